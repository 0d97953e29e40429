"""The extras of convo, the command that adds one to this installation, and the one that runs it."""

import os
import sys
from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "convo-state"

PACKAGES_BY_EXTRA: Mapping[str, tuple[str, ...]] = {
    "keyring": ("keyring",),
    "local": ("xllamacpp",),
    "mcp": ("mcp",),
    "postgres": ("psycopg", "psycopg_pool"),
    "serve": (
        *("aiohttp", "brotli", "cryptography", "httptools", "prometheus_client", "python_multipart", "starlette"),
        *("uvicorn", "websockets"),
        *(("backports.zstd",) if sys.version_info < (3, 14) else ()),
    ),
    "tokens": ("toktok",),
    "yaml": ("yaml",),
}
"""The packages of each extra of pyproject.toml."""

UV_RECEIPT, PIPX_METADATA = "uv-receipt.toml", "pipx_metadata.json"
"""The files that `uv tool` and pipx write into an environment."""

UVX_CACHE = "archive-v0"
"""The folder in uv's cache with the environments of uvx."""

ANY_COMMAND = "convo ..."


def list_missing_packages(extra: str) -> list[str]:
    return [name for name in PACKAGES_BY_EXTRA[extra] if not _is_installed(name)]


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def get_program() -> str:
    """Return how this installation runs `convo`: the start of commands that can be pasted."""
    if UVX_CACHE in Path(sys.prefix).parts:
        return make_install_command(then="convo")
    return "uv run convo" if "UV_RUN_RECURSION_DEPTH" in os.environ else "convo"


_Error = TypeVar("_Error", bound=Exception)


def make_missing_extra_error(
    error_type: Callable[..., _Error], subject: str, extra: str, *, then: str = "", **fields: str
) -> _Error:
    """Build the error of something that needs an extra; `then` as in `make_install_command`."""
    message = f"{subject} needs the extra [{extra}], which is not installed"
    return error_type(message, hint=make_install_command(extra, then=then), **fields)


def make_install_command(*extras: str, then: str = "") -> str:
    """Return the command that adds `extras` to this installation.

    then:  a command of convo to run with them
    """
    import json  # not needed by the commands that succeed
    import tomllib
    from importlib.metadata import PackageNotFoundError, distribution

    prefix = Path(sys.prefix)
    try:
        installed = distribution(DISTRIBUTION)
        installer, origin = (installed.read_text(name) or "" for name in ("INSTALLER", "direct_url.json"))
    except PackageNotFoundError:  # a source folder on the path of Python
        folder = Path(__file__).parents[1]
        installer, origin = "", json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})
    receipt = prefix / UV_RECEIPT
    if receipt.exists():  # the command replaces the extras that were installed before
        requirements = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"]
        extras = (*(extra for entry in requirements for extra in entry.get("extras", ())), *extras)
    elif UVX_CACHE in prefix.parts:  # nothing there records the extras
        extras = (*(extra for extra in PACKAGES_BY_EXTRA if not list_missing_packages(extra)), *extras)
    names = {name for name in (UV_RECEIPT, PIPX_METADATA) if (prefix / name).exists()}
    command = format_install_command(extras, prefix, names, installer.strip(), json.loads(origin or "{}"))
    if then and command.endswith(ANY_COMMAND):  # uvx installs for one command
        return command.removesuffix(ANY_COMMAND) + then
    return f"{command}, then {then}" if then else command


def format_install_command(
    extras: Collection[str], prefix: Path, prefix_files: Collection[str], installer: str, origin: Mapping[str, Any]
) -> str:
    """Return the command that adds `extras` to an installation.

    prefix:        the folder of its environment
    prefix_files:  the names of files in that folder
    installer:     the program that installed it, as its file INSTALLER says
    origin:        its direct_url.json; empty if it came from a package index
    """
    from shlex import quote

    url, vcs = origin.get("url", ""), origin.get("vcs_info")
    names = f"[{','.join(dict.fromkeys(extras))}]" if extras else ""
    folder = unquote(urlsplit(url).path) if "dir_info" in origin else None
    if folder:
        requirement = quote(f"{folder}{names}")
    elif url:
        requirement = quote(f"{DISTRIBUTION}{names} @ {vcs['vcs']}+{url}" if vcs else f"{DISTRIBUTION}{names} @ {url}")
    else:
        requirement = quote(f"{DISTRIBUTION}{names}")
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    if UV_RECEIPT in prefix_files:
        return f"uv tool install {editable}{requirement}"
    if PIPX_METADATA in prefix_files:
        return f"pipx inject {DISTRIBUTION} {requirement}"
    if UVX_CACHE in prefix.parts:
        return f"uvx --from {requirement} {ANY_COMMAND}"
    if installer != "uv":
        return f"pip install {editable}{requirement}"
    if folder and prefix == Path(folder, ".venv"):  # that of `uv run` in a clone, which has all extras
        return f"uv sync --project {quote(folder)}"
    return f"uv pip install --python {quote(str(prefix))} {editable}{requirement}"

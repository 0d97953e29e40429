"""What a project's settings file may do with the secrets of whoever works in it.

A `.convo.toml` comes with a clone, from people one may not know. It can choose models, prices and
servers; but a key, or a variable in a connection string, goes to a server that it names on another
machine only where the person said that this is meant, in a file of their own:

    trusted = ["~/work"]        the folders whose .convo.toml is obeyed, and those below them
"""

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from convo.config.origin import Origin
from convo.config.places import PROJECT_FILE

TRUSTED = "trusted"


def is_unasked(origin: Origin, trusted: Sequence[Path]) -> bool:
    """Whether a value stands in the settings file of a project that nobody said to trust."""
    folder = origin.folder
    return origin.name == PROJECT_FILE and folder is not None and not any(map(folder.is_relative_to, trusted))


def leaves_here(url: str) -> bool:
    """Whether what is sent to `url` goes to another machine."""
    parts = urlsplit(url)
    if "host" in parts.query:  # a PostgreSQL URL may name its server, or several, behind the "?"
        return True
    return any(not _is_here(host) for host in _hosts(parts))


def how_to_trust(folder: Path | None) -> str:
    """The command that says so."""
    return f"""convo config set {TRUSTED} '["{folder}"]'"""


def _hosts(parts: SplitResult) -> list[str]:
    place = parts.netloc.rpartition("@")[2]
    return [urlsplit(f"//{one}").hostname or "" for one in place.split(",")]


def _is_here(host: str) -> bool:
    if host in ("", "localhost") or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False

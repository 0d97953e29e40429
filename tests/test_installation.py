"""The command that adds an extra, for each way in which convo can be installed."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from convo import installation
from convo.installation import (
    PACKAGES_BY_EXTRA,
    PIPX_METADATA,
    UV_RECEIPT,
    format_install_command,
    make_install_command,
)
from tests.cli.chat_commands import ECHO
from tests.command_runner import ROOT, Convo

CLONE = {"url": "file:///home/me/my%20clone", "dir_info": {}}
EDITABLE = {**CLONE, "dir_info": {"editable": True}}
GIT = {"url": "https://git.example/me/convo", "vcs_info": {"vcs": "git", "commit_id": "1f0c9a7e"}}
WHEEL = {"url": "file:///tmp/convo_state-1.whl", "archive_info": {}}


@pytest.mark.parametrize(
    ("prefix", "files", "installer", "origin", "command"),
    [
        ("/t", [UV_RECEIPT], "uv", CLONE, "uv tool install '/home/me/my clone[local]'"),
        ("/t", [UV_RECEIPT], "uv", EDITABLE, "uv tool install -e '/home/me/my clone[local]'"),
        ("/t", [UV_RECEIPT], "uv", GIT, "uv tool install 'convo-state[local] @ git+https://git.example/me/convo'"),
        ("/t", [PIPX_METADATA], "pip", CLONE, "pipx inject convo-state '/home/me/my clone[local]'"),
        ("/c/archive-v0/x", [], "uv", CLONE, "uvx --from '/home/me/my clone[local]' convo ..."),
        ("/home/me/my clone/.venv", [], "uv", EDITABLE, "uv sync --project '/home/me/my clone'"),
        ("/v", [], "uv", EDITABLE, "uv pip install --python /v -e '/home/me/my clone[local]'"),
        ("/v", [], "pip", CLONE, "pip install '/home/me/my clone[local]'"),
        ("/v", [], "pip", WHEEL, "pip install 'convo-state[local] @ file:///tmp/convo_state-1.whl'"),
        ("/v", [], "pip", {}, "pip install 'convo-state[local]'"),
    ],
)
def test_the_command_is_that_of_the_installation(
    prefix: str, files: list[str], installer: str, origin: dict[str, object], command: str
) -> None:
    assert format_install_command(["local"], Path(prefix), files, installer, origin) == command


def test_a_command_of_convo_follows_the_installation_and_is_part_of_that_of_uvx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = make_install_command("local")
    assert make_install_command("local", then="convo models pull") == f"{command}, then convo models pull"
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "archive-v0"))
    monkeypatch.setattr(
        installation, "list_missing_packages", lambda extra: [] if extra in ("local", "yaml") else [extra]
    )
    command = make_install_command("keyring", then="convo models pull")
    assert re.fullmatch(r"uvx --from \S+\[local,yaml,keyring\]\S* convo models pull", command)


@pytest.mark.parametrize(
    ("prefix", "environ", "program"),
    [
        ("/v", {}, "convo"),
        ("/v", {"UV_RUN_RECURSION_DEPTH": "1"}, "uv run convo"),
        ("/c/archive-v0/x", {}, r"uvx --from \S+ convo"),
    ],
)
def test_a_hint_runs_convo_as_it_was_run(
    prefix: str, environ: dict[str, str], program: str, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", prefix)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert re.search(rf"^  try: {program} sessions$", convo("inspect", "nope").err, re.MULTILINE)
    assert convo("inspect", "nope", "--json").json()["error"]["hint"] == "convo sessions"
    assert convo("chat", "-n", "taken", *ECHO, "hi").exit == 0
    taken = convo("chat", "-n", "taken", *ECHO, "hi").err
    assert re.search(rf"^  try: {program} chat --from taken continues it", taken, re.MULTILINE)


def test_the_command_for_a_tool_keeps_its_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / UV_RECEIPT).write_text('[tool]\nrequirements = [{ name = "convo-state", extras = ["yaml"] }]\n')
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert make_install_command("serve", "local").endswith("[yaml,serve,local]'")


def test_every_extra_has_its_packages() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    assert set(PACKAGES_BY_EXTRA) == extras - {"dev"}

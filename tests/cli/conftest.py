"""Fixtures for tests of the command line: a loopback endpoint, a store URL, a folder for temporary files."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import databases
from tests.cli.stored_chats import DATABASE
from tests.loopback_server import LoopbackServer


@pytest.fixture(autouse=True)
def user_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the modules that a test imports from its folder: those of another test have the same names."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules_before = set(sys.modules)
    yield
    for name in sorted(sys.modules.keys() - modules_before, reverse=True):  # a submodule before its package
        module = sys.modules[name]
        file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
        # A file of agents has a unique name, and may have a client of the SDK, which nobody closes.
        if str(file).startswith(str(tmp_path)) and not name.startswith("convo_file_"):
            del sys.modules[name]


@pytest.fixture
def server(loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> LoopbackServer:
    """A loopback server of the Responses API, which the environment sets as the endpoint of the default model."""
    for name, value in loopback.environ.items():
        monkeypatch.setenv(name, value)
    return loopback


@pytest.fixture
def store_url(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the store that the commands of this test use. An indirect parameter selects sqlite or postgresql."""
    if request.param == "sqlite":
        yield f"sqlite:{home / DATABASE}"
        return
    url = databases.new_database()
    monkeypatch.setenv("CONVO_STORE", url)
    yield url
    databases.drop(url)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of this test and its commands."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder

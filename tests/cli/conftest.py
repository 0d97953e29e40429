"""Fixtures for tests of the command line: a loopback endpoint, a store URL, a folder for temporary files."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import databases
from tests.cli.stored_chats import DATABASE
from tests.loopback_server import LoopbackServer


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

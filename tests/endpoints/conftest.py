"""The endpoint in every form it comes in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from convo.config.values import Secret
from convo.endpoints.base import Endpoint
from convo.endpoints.remote import RemoteEndpoint
from convo.models.http import OpenAIClientOptions
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.endpoints.reader import Reader
from tests.endpoints.sides import Sides
from tests.loopback import KEY, Loopback, Scripts


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    """The model of an embedded endpoint."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    return Scripts(folder)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store("memory" if request.param == "memory" else f"sqlite:{tmp_path / 'convo.db'}")
    yield opened
    await opened.aclose()


@pytest.fixture
def reader() -> Reader:
    """A model that sums up what it is shown."""
    return Reader()


def embedded_over(store: Store, scripts: Scripts) -> EmbeddedEndpoint:
    return EmbeddedEndpoint(store, scripts, SystemClock(), random_id)


@pytest.fixture
async def embedded(store: Store, scripts: Scripts) -> AsyncIterator[EmbeddedEndpoint]:
    """Convo's own endpoint, over memory and over SQLite."""
    endpoint = embedded_over(store, scripts)
    yield endpoint
    await endpoint.aclose()


def remote_at(loopback: Loopback, key: str = KEY) -> RemoteEndpoint:
    return RemoteEndpoint(OpenAIClientOptions(base_url=loopback.url, key=Secret(key)))


@pytest.fixture
async def remote(loopback: Loopback) -> AsyncIterator[RemoteEndpoint]:
    """The same endpoint, through the openai package and HTTP."""
    endpoint = remote_at(loopback)
    yield endpoint
    await endpoint.aclose()


@pytest.fixture(params=["embedded-memory", "embedded-sqlite", "remote"])
async def sides(request: pytest.FixtureRequest, tmp_path: Path, scripts: Scripts) -> AsyncIterator[Sides]:
    if request.param == "remote":
        loopback: Loopback = request.getfixturevalue("loopback")
        here, there = remote_at(loopback), remote_at(loopback, "test-other-key")
        yield Sides(here, there, loopback.scripts)
        await here.aclose()
        await there.aclose()
        return
    store = open_store("memory" if request.param.endswith("memory") else f"sqlite:{tmp_path / 'convo.db'}")
    yield Sides(embedded_over(store, scripts), embedded_over(store.for_tenant("other"), scripts), scripts)
    await store.aclose()


@pytest.fixture
def endpoint(sides: Sides) -> Endpoint:
    """One contract, both sides of it."""
    return sides.endpoint


@pytest.fixture
def foreign(sides: Sides) -> Endpoint:
    """The same place as another tenant sees it."""
    return sides.foreign


@pytest.fixture
def script(sides: Sides) -> Scripts:
    """The model behind `endpoint`."""
    return sides.scripts

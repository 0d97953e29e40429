"""Fixtures: embedded and remote endpoints, their stores and their models."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from convo.endpoints.base import Endpoint
from convo.endpoints.remote import RemoteEndpoint
from convo.models.http import OpenAIClientOptions
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.secrets import Secret
from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.endpoints.endpoint_calls import EndpointPair
from tests.endpoints.summarizing_model import SummarizingModel
from tests.loopback_server import KEY, LoopbackModels, LoopbackServer


@pytest.fixture
def scripts(tmp_path: Path) -> LoopbackModels:
    """The scripted models of an embedded endpoint."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    return LoopbackModels(folder)


@pytest.fixture(params=["sqlite", pytest.param("memory", marks=pytest.mark.full)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    new_store = open_store("memory" if request.param == "memory" else f"sqlite:{tmp_path / 'convo.db'}")
    yield new_store
    await new_store.aclose()


@pytest.fixture
def summarizer() -> SummarizingModel:
    """A model that summarizes its input."""
    return SummarizingModel()


def embedded_over(store: Store, scripts: LoopbackModels) -> EmbeddedEndpoint:
    return EmbeddedEndpoint(store, scripts, SystemClock(), random_id)


@pytest.fixture
async def embedded(store: Store, scripts: LoopbackModels) -> AsyncIterator[EmbeddedEndpoint]:
    """The embedded endpoint, with SQLite and in long runs also with the memory store."""
    endpoint = embedded_over(store, scripts)
    yield endpoint
    await endpoint.aclose()


def remote_at(loopback: LoopbackServer, key: str = KEY) -> RemoteEndpoint:
    return RemoteEndpoint(OpenAIClientOptions(base_url=loopback.url, key=Secret(key)))


@pytest.fixture
async def remote(loopback: LoopbackServer) -> AsyncIterator[RemoteEndpoint]:
    """A remote endpoint: the same API over HTTP."""
    endpoint = remote_at(loopback)
    yield endpoint
    await endpoint.aclose()


@pytest.fixture(params=["embedded-sqlite", "remote", pytest.param("embedded-memory", marks=pytest.mark.full)])
async def pair(request: pytest.FixtureRequest, tmp_path: Path, scripts: LoopbackModels) -> AsyncIterator[EndpointPair]:
    if request.param == "remote":
        loopback: LoopbackServer = request.getfixturevalue("loopback")
        here, there = remote_at(loopback), remote_at(loopback, "test-other-key")
        yield EndpointPair(here, there, loopback.scripts, loopback.store)
        await here.aclose()
        await there.aclose()
        return
    store = open_store("memory" if request.param.endswith("memory") else f"sqlite:{tmp_path / 'convo.db'}")
    yield EndpointPair(embedded_over(store, scripts), embedded_over(store.for_tenant("other"), scripts), scripts, store)
    await store.aclose()


@pytest.fixture
def endpoint(pair: EndpointPair) -> Endpoint:
    """The endpoint under test: embedded or remote."""
    return pair.endpoint


@pytest.fixture
def other_tenant(pair: EndpointPair) -> Endpoint:
    """The same endpoint for another tenant."""
    return pair.other_tenant


@pytest.fixture
def script(pair: EndpointPair) -> LoopbackModels:
    """The models of `endpoint`."""
    return pair.scripts

"""Fixtures with a store in memory: the tests of this folder do not depend on the kind of store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.chat.conftest import ChatHarness, read_mode, tool_log
from tests.chat.recording_endpoint import RecordingEndpoint
from tests.embedded_endpoint import make_embedded_endpoint

__all__ = ["read_mode", "tool_log"]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    memory_store = open_store("memory")
    yield memory_store
    await memory_store.aclose()


@pytest.fixture
def harness(store: Store, tmp_path: Path) -> ChatHarness:
    return ChatHarness(store, RecordingEndpoint(make_embedded_endpoint(store)), tmp_path)

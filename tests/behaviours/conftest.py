"""Fixtures with a store in memory: the tests of this folder do not depend on the kind of store."""

from collections.abc import AsyncIterator

import pytest

from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.chat.conftest import harness, read_mode, tool_log

__all__ = ["harness", "read_mode", "tool_log"]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    memory_store = open_store("memory")
    yield memory_store
    await memory_store.aclose()

"""Fixtures: a conversation harness and a compaction case for each kind of store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.transfer.compaction_cases import CompactionCase
from tests.transfer.sample_conversations import ConversationHarness


@pytest.fixture(params=["sqlite", pytest.param("memory", marks=pytest.mark.full)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened_store = open_store("memory" if request.param == "memory" else f"sqlite:{tmp_path / 'convo.db'}")
    yield opened_store
    await opened_store.aclose()


@pytest.fixture
def harness(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConversationHarness:
    monkeypatch.chdir(tmp_path)
    return ConversationHarness(store, tmp_path)


@pytest.fixture
def case(store: Store, tmp_path: Path) -> CompactionCase:
    return CompactionCase(store, tmp_path)

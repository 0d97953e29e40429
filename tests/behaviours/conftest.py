"""A bench whose store is in memory: what is shown here is a matter of decisions, not of a disk."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from convo.stores.base import Store
from convo.stores.factory import open_store
from tests.chat.conftest import Bench, both_ways, ledger
from tests.chat.recorded import Recorded
from tests.embedding import embedded

__all__ = ["both_ways", "ledger"]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    opened = open_store("memory")
    yield opened
    await opened.aclose()


@pytest.fixture
def bench(store: Store, tmp_path: Path) -> Bench:
    return Bench(store, Recorded(embedded(store)), tmp_path)

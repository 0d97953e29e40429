"""Every store that there is: a test that takes `store` runs once on each."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from convo.stores.contract import Store
from convo.stores.memory import MemoryStore
from convo.stores.open import open_store
from convo.stores.sqlite import SqliteStore
from convo.stores.sqlite.database import Database
from tests import databases

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(Database(folder / "store" / "convo.db")),
    "postgresql": lambda _: open_store(databases.empty_database()),
    "postgresql, partitioned": lambda _: open_store(databases.empty_database(partitions=4)),
}

PARTS = {"postgresql": "postgresql", "postgresql, partitioned": "postgresql"}
"""What of `tests.needs` a store needs."""


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.needs(PARTS[name]) if name in PARTS else ()) for name in STORES]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = STORES[request.param](tmp_path)
    yield opened
    await opened.aclose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a database will be; neither it nor its folder is there yet."""
    return tmp_path / "store" / "convo.db"


@pytest.fixture
async def sqlite(file: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(Database(file))
    yield opened
    await opened.aclose()

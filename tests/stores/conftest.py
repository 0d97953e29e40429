"""Store fixtures: a test with the parameter `store` runs once for each kind of store."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from convo.stores.base import Store
from convo.stores.factory import open_store
from convo.stores.memory import MemoryStore
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests import databases

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(SqliteDatabase(folder / "store" / "convo.db")),
    "postgresql": lambda _: open_store(databases.cleared_database()),
    "postgresql, partitioned": lambda _: open_store(databases.cleared_database(partitions=4)),
    "postgresql 12": lambda _: open_store(databases.cleared_database(databases.OLDEST)),
    "pgbouncer": lambda _: open_store(databases.through_pgbouncer(databases.cleared_database())),
}

MARKS = {
    "postgresql": [pytest.mark.needs("postgresql")],
    "postgresql, partitioned": [pytest.mark.needs("postgresql"), pytest.mark.full],
    "postgresql 12": [pytest.mark.needs("postgresql 12"), pytest.mark.full],
    "pgbouncer": [pytest.mark.needs("postgresql", "pgbouncer"), pytest.mark.full],
}
"""Requirements of each store (see `tests.needs`). The last three run only in full test runs."""


PARAMS = [pytest.param(name, marks=MARKS.get(name, ())) for name in STORES]


@pytest.fixture(params=PARAMS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    new_store = STORES[request.param](tmp_path)
    yield new_store
    await new_store.aclose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of a database. Neither the file nor its folder exists yet."""
    return tmp_path / "store" / "convo.db"


@pytest.fixture
async def sqlite(file: Path) -> AsyncIterator[SqliteStore]:
    new_store = SqliteStore(SqliteDatabase(file))
    yield new_store
    await new_store.aclose()

"""`data_version` shows whether data has changed without reading the data."""

from pathlib import Path

from convo.stores.base import Store, Transaction
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import session


async def test_every_write_changes_the_revision(store: Store) -> None:
    before = await store.data_version()
    await store.commit(Transaction(session=session(), expected_session_head=None))
    after = await store.data_version()
    assert after is None or after != before


async def test_a_write_of_another_process_changes_the_revision(sqlite: SqliteStore, file: Path) -> None:
    other = SqliteStore(SqliteDatabase(file))
    await other.commit(Transaction(session=session(), expected_session_head=None))
    before = await sqlite.data_version()
    await sqlite.sessions()
    assert await sqlite.data_version() == before
    await other.acquire_lease("mine", "somebody", 60)
    assert await sqlite.data_version() != before
    await other.aclose()

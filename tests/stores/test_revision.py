"""Whether anything was written since, told without reading it."""

from pathlib import Path

from convo.stores.base import Store, Transaction
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chats import session


async def test_whatever_is_written_moves_it(store: Store) -> None:
    before = await store.revision()
    await store.commit(Transaction(session=session(), expect=None))
    after = await store.revision()
    assert after is None or after != before


async def test_another_processs_writing_is_noticed(sqlite: SqliteStore, file: Path) -> None:
    other = SqliteStore(SqliteDatabase(file))
    await other.commit(Transaction(session=session(), expect=None))
    before = await sqlite.revision()
    await sqlite.sessions()
    assert await sqlite.revision() == before
    await other.lease("mine", "somebody", 60)
    assert await sqlite.revision() != before
    await other.aclose()

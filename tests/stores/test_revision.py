"""Whether anything was written since, told without reading it."""

from pathlib import Path

from convo.stores.contract import Change, Store
from convo.stores.sqlite import SqliteStore
from convo.stores.sqlite.database import Database
from tests.stores.chats import session


async def test_whatever_is_written_moves_it(store: Store) -> None:
    before = await store.revision()
    await store.commit(Change(session=session(), expect=None))
    after = await store.revision()
    assert after is None or after != before


async def test_another_processs_writing_is_noticed(sqlite: SqliteStore, file: Path) -> None:
    other = SqliteStore(Database(file))
    await other.commit(Change(session=session(), expect=None))
    before = await sqlite.revision()
    await sqlite.sessions()
    assert await sqlite.revision() == before
    await other.lease("mine", "somebody", 60)
    assert await sqlite.revision() != before
    await other.aclose()

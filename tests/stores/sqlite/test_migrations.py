"""Migrations of a SQLite file: an older file is migrated when it is opened and keeps its rows."""

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path as File

import pytest

from convo.errors import StoreUnavailable
from convo.history.canonical import item_hash
from convo.history.items import Item, assistant_message, user_message
from convo.history.tree import Path, root_key
from convo.runtime import redirect_progress
from convo.stores.base import AppendItems, Conversation, Transaction
from convo.stores.codec import LISTED_COLUMNS
from convo.stores.request_list import LINKS_PER_BATCH, RequestQuery
from convo.stores.sqlite.connection import APPLICATION_ID, MIGRATIONS_FOLDER, SCHEMA_VERSION, SqliteDatabase, schema_sql
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import NOW, link, session
from tests.stores.test_agent_runs import CALL as AGENT_CALL
from tests.stores.test_agent_runs import RUN
from tests.stores.test_request_list import store_requests

ROOT = root_key("local")
CALL: Item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}
PATH = Path(ROOT).append([user_message("hi"), CALL, assistant_message("hello")])
CONVERSATION = Conversation("conv_1", PATH.head, NOW, ("msg_a", "fc_1", "msg_b"))
LINK = link("resp_1", PATH.head, session_id="ses_1", conversation_id="conv_1")
TRANSACTION = Transaction((AppendItems(ROOT, PATH.items),), (LINK,), session(head=PATH.head), conversation=CONVERSATION)

DOWNGRADE_TO_7 = (
    "DROP TRIGGER links_are_added; DROP TRIGGER links_are_changed; DROP TRIGGER links_are_removed;"
    "DROP TABLE request_sums; DROP TABLE unstored_requests;"
    "DROP INDEX links_without_title; DROP INDEX links_by_time;"
    + "".join(f"ALTER TABLE links DROP COLUMN {column};" for column in LISTED_COLUMNS)
    + "PRAGMA user_version = 7;"
)

DOWNGRADE_TO_4 = f"""
{DOWNGRADE_TO_7}
DROP INDEX links_by_body; ALTER TABLE links DROP COLUMN sent_body;
DROP TABLE approval_decisions; DROP TABLE files; DROP TABLE file_contents;
PRAGMA user_version = 4;
"""

DOWNGRADE_TO_3 = f"""
{DOWNGRADE_TO_4}
DROP INDEX sessions_by_use; ALTER TABLE sessions DROP COLUMN used;
PRAGMA user_version = 3;
"""

DOWNGRADE_TO_2 = f"""
{DOWNGRADE_TO_3}
DROP TABLE agent_calls; DROP TABLE agent_documents; DROP TABLE agent_runs;
PRAGMA user_version = 2;
"""

DOWNGRADE_TO_1 = f"""
{DOWNGRADE_TO_2}
DROP TABLE runs; DROP TABLE events; DROP TABLE names; DROP TABLE secrets; DROP TABLE hashes;
DROP INDEX links_by_route; DROP INDEX links_by_parameters; DROP INDEX members_by_conversation;
PRAGMA user_version = 1;
"""

HASHES = re.compile(r"CREATE TABLE hashes .*?;", re.DOTALL)


def first_migration_sql() -> str:
    """Return the statements of the first migration."""
    return (MIGRATIONS_FOLDER / "0001_tree.sql").read_text()


@pytest.fixture
async def old_file(file: File) -> File:
    """A file of schema 1 with one chat."""
    store = SqliteStore(SqliteDatabase(file))
    await store.commit(TRANSACTION)
    await store.aclose()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        hashes = HASHES.search(first_migration_sql())
        assert hashes
        db.executescript(DOWNGRADE_TO_1 + hashes[0])
        for n, body in db.execute("SELECT n, body FROM items").fetchall():
            full_hash = bytes.fromhex(item_hash(json.loads(body)).partition(":")[2])
            db.execute("INSERT INTO hashes VALUES (1, ?, ?)", (full_hash, n))
        db.execute("INSERT INTO repeated (tenant, hash, body) VALUES (1, x'00', '{}')")
    return file


def read_schema(db: sqlite3.Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()


async def test_the_old_file_has_the_schema_of_the_first_migration(old_file: File) -> None:
    """The tests below therefore migrate a file like that of an older version of convo."""
    with closing(sqlite3.connect(old_file)) as old_db, closing(sqlite3.connect(":memory:")) as new_db:
        new_db.executescript(first_migration_sql())
        assert read_schema(old_db) == read_schema(new_db)


async def test_an_old_file_is_migrated_once_and_keeps_its_rows(old_file: File) -> None:
    store = SqliteStore(SqliteDatabase(old_file))
    assert list(await store.admin.migrate()) == list(range(2, SCHEMA_VERSION + 1))
    assert list(await store.admin.migrate()) == []

    assert await store.path(PATH.head) == PATH
    assert await store.session("one") == TRANSACTION.session
    assert await store.conversation("conv_1") == CONVERSATION
    await store.aclose()


async def test_records_from_before_a_migration_are_found_by_their_names(old_file: File) -> None:
    store = SqliteStore(SqliteDatabase(old_file))
    assert await store.item("fc_1") == CALL
    assert [await store.item(name) for name in ("msg_a", "msg_b")] == [user_message("hi"), assistant_message("hello")]
    assert await store.conversation_links("conv_1") == [LINK]
    await store.remove_session("ses_1")
    await store.remove_conversation("conv_1")

    assert await store.database.read(lambda db: db.execute("SELECT * FROM names").fetchall()) == []
    await store.aclose()


async def test_a_repeated_item_is_still_stored_once_after_a_migration(old_file: File) -> None:
    store = SqliteStore(SqliteDatabase(old_file))
    path = Path(ROOT).append([CALL, user_message("hi"), assistant_message("hello")])
    await store.commit(
        Transaction((AppendItems(ROOT, path.items),), session=session(id="ses_2", name="two", head=path.head))
    )

    (stats,) = await store.admin.tenant_stats()
    assert (stats.row_counts["items"], stats.row_counts["places"]) == (3, 6)
    await store.aclose()


async def test_a_migration_removes_unused_tables(old_file: File) -> None:
    store = SqliteStore(SqliteDatabase(old_file))

    assert await store.database.read(lambda db: db.execute("SELECT n FROM repeated WHERE body = '{}'").fetchall()) == []
    await store.aclose()


async def test_a_file_of_schema_2_keeps_its_rows_and_gains_agent_runs(file: File) -> None:
    store = SqliteStore(SqliteDatabase(file))
    await store.commit(TRANSACTION)
    await store.aclose()
    with closing(sqlite3.connect(file, isolation_level=None)) as db, closing(sqlite3.connect(":memory:")) as second_db:
        current_schema = read_schema(db)
        db.executescript(DOWNGRADE_TO_2)
        second_db.executescript(first_migration_sql() + (MIGRATIONS_FOLDER / "0002_runs.sql").read_text())
        assert read_schema(db) == read_schema(second_db) != current_schema

    store = SqliteStore(SqliteDatabase(file))
    assert list(await store.admin.migrate()) == list(range(3, SCHEMA_VERSION + 1))
    assert await store.path(PATH.head) == PATH
    await store.commit(Transaction(agent_run=RUN, agent_calls=(AGENT_CALL,)))
    assert await store.agent_run("run_1") == RUN
    assert list(await store.agent_calls("run_1")) == [AGENT_CALL]
    assert await store.database.read(read_schema) == current_schema
    await store.aclose()


async def test_the_columns_of_requests_of_schema_7_are_computed_in_batches_also_after_a_kill(file: File) -> None:
    store = SqliteStore(SqliteDatabase(file))
    await store_requests(store)
    await store.commit(Transaction(links=tuple(link(f"resp_{number}", ROOT) for number in range(LINKS_PER_BATCH))))
    before = await store.list_requests(RequestQuery())
    await store.aclose()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        rows = db.execute("SELECT * FROM links").fetchall()
        db.executescript(DOWNGRADE_TO_7)

    def kill_after_a_batch(step: str, done: int, total: int) -> None:
        if step == "responses" and done:
            raise KeyboardInterrupt

    store = SqliteStore(SqliteDatabase(file))
    with pytest.raises(KeyboardInterrupt), redirect_progress(kill_after_a_batch):
        await store.admin.migrate()
    await store.aclose()
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(title), count(*) FROM links").fetchone() == (
            LINKS_PER_BATCH,
            LINKS_PER_BATCH + 5,
        )

    store = SqliteStore(SqliteDatabase(file))
    assert list(await store.admin.migrate()) == []
    assert await store.list_requests(RequestQuery()) == before
    await store.aclose()
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT * FROM links").fetchall() == rows


async def test_sessions_of_schema_3_keep_their_order(file: File) -> None:
    store = SqliteStore(SqliteDatabase(file))
    for name, used_at in (("early", 100.0), ("late", 300.0), ("between", 200.0)):
        await store.commit(Transaction(session=session(id=f"ses_{name}", name=name, head=ROOT, used_at=used_at)))
    await store.aclose()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.executescript(DOWNGRADE_TO_3)

    store = SqliteStore(SqliteDatabase(file))
    assert list(await store.admin.migrate()) == list(range(4, SCHEMA_VERSION + 1))
    assert [one.name for one in await store.sessions()] == ["late", "between", "early"]
    early = await store.session("early")
    assert early
    await store.commit(
        Transaction(session=replace(early, used_at=50.0, use_order=None), expected_session_head=early.head)
    )
    assert [one.name for one in await store.sessions()] == ["early", "late", "between"]
    await store.aclose()


async def test_a_new_file_goes_through_every_migration(sqlite: SqliteStore) -> None:
    assert list(await sqlite.admin.migrate()) == list(range(1, SCHEMA_VERSION + 1))


async def test_the_printed_statements_create_a_store(file: File) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as db:
        db.executescript(schema_sql())
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    store = SqliteStore(SqliteDatabase(file))

    assert list(await store.admin.migrate()) == []
    await store.commit(TRANSACTION)
    assert await store.item("msg_a") == user_message("hi")
    await store.aclose()


async def test_a_check_creates_nothing(sqlite: SqliteStore, file: File) -> None:
    await sqlite.admin.check_ready()
    assert list(await sqlite.admin.tenant_stats()) == []
    assert list(await sqlite.admin.abandoned_runs()) == []
    assert await sqlite.admin.prune_events(0) == 0

    assert not file.parent.exists()


@pytest.fixture
def not_a_database(file: File) -> File:
    """A file that is not a database."""
    file.parent.mkdir()
    file.write_bytes(b"not a database" * 100)
    return file


async def test_a_check_of_a_file_that_is_no_store_fails(not_a_database: File) -> None:
    with pytest.raises(StoreUnavailable):
        await SqliteStore(SqliteDatabase(not_a_database)).admin.check_ready()


async def test_the_secret_stays_when_the_file_is_opened_again(file: File) -> None:
    for secret in (b"first", b"second"):
        store = SqliteStore(SqliteDatabase(file))
        assert await store.admin.get_or_create_secret("seal", secret) == b"first"
        await store.aclose()


async def test_an_expired_lease_leaves_no_row_after_cleanup(sqlite: SqliteStore) -> None:
    for name, ttl_s in (("dead", -10.0), ("alive", 60.0)):
        await sqlite.acquire_lease(name, "me", ttl_s)
    await sqlite.admin.prune_events(5)

    rows = await sqlite.database.read(lambda db: db.execute("SELECT name FROM leases").fetchall())
    assert rows == [("alive",)]

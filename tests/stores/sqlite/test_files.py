"""The SQLite file: its creation, its permissions, and the errors for a file that cannot be used."""

import os
import sqlite3
import stat
import subprocess
import sys
from asyncio import CancelledError, create_task, gather, sleep
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path as File
from time import monotonic
from typing import Any

import pytest

from convo.errors import NotFound, StoreFault, StoreFull, StoreTooNew, StoreUnavailable
from convo.history.items import user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Lease, Store, Transaction
from convo.stores.sqlite import connection
from convo.stores.sqlite.check import check_database
from convo.stores.sqlite.connection import APPLICATION_ID, MIGRATIONS_FOLDER, SCHEMA_VERSION, SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import search_hits, session

ROOT = root_key("local")
PATH = Path(ROOT).append([user_message("hi")])
TRANSACTION = Transaction((AppendItems(ROOT, PATH.items),), session=session(head=PATH.head))

READS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "a list": lambda store: store.sessions(),
    "a search": lambda store: store.search_items("hi"),
    "a handle": lambda store: store.find_handles("x"),
}
WRITES: dict[str, Callable[[Store], Awaitable[object]]] = {
    "a change": lambda store: store.commit(TRANSACTION),
    "a lease": lambda store: store.acquire_lease("chat", "me", 60),
}
CALLS = READS | WRITES


@asynccontextmanager
async def open_sqlite(file: File, busy_timeout_s: float = 5.0) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(SqliteDatabase(file, busy_timeout_s=busy_timeout_s))
    try:
        yield store
    finally:
        await store.aclose()


def mode(file: File) -> int:
    return stat.S_IMODE(file.stat().st_mode)


# -- creation -------------------------------------------------------------------------------------


async def test_no_file_is_created_before_the_first_write(sqlite: SqliteStore, file: File) -> None:
    for result in (
        await sqlite.sessions(),
        await sqlite.find_handles(""),
        await search_hits(sqlite, "hi"),
        await sqlite.links("x"),
    ):
        assert list(result) == []
    assert await sqlite.path(ROOT) == Path(ROOT)
    with pytest.raises(NotFound):
        await sqlite.path(PATH.head)
    with pytest.raises(NotFound):
        await sqlite.remove_session("ses_1")
    await sqlite.release_lease(Lease("chat", "me", 0.0))

    assert not file.parent.exists()


async def test_a_reader_sees_a_file_that_another_process_creates(sqlite: SqliteStore, file: File) -> None:
    assert await sqlite.session("one") is None
    async with open_sqlite(file) as other:
        await other.commit(TRANSACTION)

    assert await sqlite.session("one") == TRANSACTION.session


async def test_data_persists_when_the_file_is_opened_again(file: File) -> None:
    async with open_sqlite(file) as store:
        await store.commit(TRANSACTION)
    async with open_sqlite(file) as store:
        assert await store.path(PATH.head) == PATH


async def test_the_size_is_that_of_the_file_and_its_log(sqlite: SqliteStore, file: File) -> None:
    assert await sqlite.admin.size_bytes() == 0
    await sqlite.commit(TRANSACTION)
    sizes = [part.stat().st_size for part in (file, file.with_name(f"{file.name}-wal"))]
    assert all(sizes)
    assert await sqlite.admin.size_bytes() == sum(sizes)


async def test_only_the_owner_can_read_the_file(file: File, sqlite: SqliteStore) -> None:
    deep = file.parent / "a" / "b" / "convo.db"
    old = os.umask(0)
    try:
        async with open_sqlite(deep) as store:
            await store.commit(TRANSACTION)
            files = sorted(deep.parent.iterdir())
            assert [path.name for path in files] == ["convo.db", "convo.db-shm", "convo.db-wal"]
            assert [mode(path) for path in (*files, *deep.parents[:3])] == [0o600] * 3 + [0o700] * 3
    finally:
        os.umask(old)


def make_empty_file(file: File) -> None:
    file.parent.mkdir()
    file.touch(mode=0o666)


async def test_an_empty_file_is_used_and_made_private(file: File, sqlite: SqliteStore) -> None:
    make_empty_file(file)
    await sqlite.commit(TRANSACTION)

    assert mode(file) == 0o600


@pytest.mark.parametrize(("options", "synchronous"), [({}, 2), ({"synchronous": "OFF"}, 0)], ids=["FULL", "OFF"])
async def test_a_commit_is_synced_to_disk_unless_that_is_disabled(
    options: Any, synchronous: int, sqlite: SqliteStore, file: File
) -> None:
    """SQLite is durable in WAL mode with synchronous=FULL, which the pragma returns as 2."""
    await sqlite.commit(TRANSACTION)
    pragmas = ["journal_mode", "synchronous", "foreign_keys", "secure_delete"]
    store = SqliteStore(SqliteDatabase(file, **options))
    values = await store.database.read(lambda db: [db.execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in pragmas])
    await store.aclose()

    assert values == ["wal", synchronous, 1, 1]


async def test_a_closed_store_refuses_work_and_can_be_closed_twice(file: File) -> None:
    store = SqliteStore(SqliteDatabase(file))
    await store.for_tenant("guest").aclose()
    await store.aclose()

    with pytest.raises(StoreUnavailable, match="closed"):
        await store.sessions()


def test_the_last_migration_is_the_schema() -> None:
    numbers = sorted(int(file.name[:4]) for file in MIGRATIONS_FOLDER.glob("*.sql"))

    assert numbers == list(range(1, SCHEMA_VERSION + 1))


async def test_a_migration_that_fails_half_way_leaves_the_file_unchanged(file: File) -> None:
    make_empty_file(file)
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("CREATE TABLE leases (in_the_way)")
    async with open_sqlite(file) as store:
        with pytest.raises(StoreUnavailable, match="table leases already exists"):
            await store.commit(TRANSACTION)

    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT name FROM sqlite_schema").fetchall() == [("leases",)]
        assert db.execute("PRAGMA user_version").fetchone() == (0,)


async def test_a_commit_of_a_cancelled_caller_is_complete_or_absent(sqlite: SqliteStore) -> None:
    await sqlite.sessions()
    commits = [create_task(sqlite.commit(replace(TRANSACTION, expected_session_head=None))) for _ in range(5)]
    await sleep(0)
    for task in commits:
        task.cancel()
    results = await gather(*commits, return_exceptions=True)

    assert {type(result) for result in results} == {CancelledError}
    record = await sqlite.session("one")
    if record:
        assert await sqlite.path(record.head) == PATH
    await sqlite.commit(TRANSACTION)
    assert await sqlite.session("one") == TRANSACTION.session


# -- foreign and damaged files --------------------------------------------------------------------


def run_script(script: str, file: File) -> list[str]:
    """Run `script` on `file` in another process and return the lines that it prints."""
    return subprocess.run(
        [sys.executable, "-c", script, str(file)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()


def make_folder(file: File) -> None:
    file.mkdir(parents=True)


def make_text_file(file: File) -> None:
    file.parent.mkdir()
    file.write_text("Dear diary, today I was not a database. " * 100)


def make_foreign_database(file: File) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE theirs (a)")


def make_marked_file(file: File) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA application_id = 1")
        db.execute("PRAGMA user_version = 1")


def make_newer_database(file: File) -> None:
    run_script(MAKE_DATABASE, file)
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        db.execute("ALTER TABLE items ADD COLUMN from_the_future TEXT")
        db.execute("PRAGMA journal_mode = DELETE")


def make_truncated_database(file: File) -> None:
    run_script(MAKE_DATABASE, file)
    os.truncate(file, 3 * 8192 + 1)


MAKE_DATABASE = """
import asyncio, sys
from pathlib import Path
from convo.stores.sqlite.store import SqliteStore
from convo.stores.sqlite.connection import SqliteDatabase
from tests.stores.chat_transactions import session
from convo.stores.base import Transaction

async def main():
    store = SqliteStore(SqliteDatabase(Path(sys.argv[1])))
    await store.commit(Transaction(session=session()))
    await store.aclose()

asyncio.run(main())
"""


def make_pipe(file: File) -> None:
    file.parent.mkdir()
    os.mkfifo(file)


UNUSABLE: dict[str, tuple[Callable[[File], None], type[StoreFault], str]] = {
    "a folder": (make_folder, StoreUnavailable, "is a folder, not a database"),
    "a pipe": (make_pipe, StoreUnavailable, "is a pipe or a device, not a database"),
    "a text": (make_text_file, StoreUnavailable, "is not a database"),
    "another program's": (make_foreign_database, StoreUnavailable, "is a database of another program"),
    "an empty one of another program": (make_marked_file, StoreUnavailable, "is a database of another program"),
    "a newer convo's": (
        make_newer_database,
        StoreTooNew,
        f"has schema {SCHEMA_VERSION + 1}; this version of convo supports schemas up to {SCHEMA_VERSION}",
    ),
    "half a file": (make_truncated_database, StoreUnavailable, "is damaged"),
}


def test_a_file_that_becomes_a_store_during_the_check_is_accepted(file: File) -> None:
    file.parent.mkdir()
    connected = closing(sqlite3.connect(file, isolation_level=None))
    with connected as one, closing(sqlite3.connect(file, isolation_level=None)) as another:
        one.execute("PRAGMA journal_mode = WAL")

        def migrate_meanwhile(statement: str) -> None:
            if "user_version" in statement:
                connection.migrate_schema(another)

        one.set_trace_callback(migrate_meanwhile)
        connection.check_schema_version(one, file)
        one.set_trace_callback(None)
        assert connection.read_schema_version(one) == SCHEMA_VERSION


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("make", "error", "message"), UNUSABLE.values(), ids=UNUSABLE)
async def test_a_foreign_file_is_reported_and_unchanged(
    file: File,
    make: Callable[[File], None],
    error: type[StoreFault],
    message: str,
    call: Callable[[Store], Awaitable[object]],
) -> None:
    make(file)
    before = read_files(file.parent)

    async with open_sqlite(file) as store:
        with pytest.raises(error) as caught:
            await call(store)

    assert str(caught.value) == f"{file} {message}"
    assert read_files(file.parent) == before


def read_files(directory: File) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(directory.iterdir()) if file.is_file()}


# -- locks, full disks and size limits ------------------------------------------------------------


@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES)
async def test_a_writer_that_times_out_gets_the_name_of_the_blocking_process(
    file: File, sqlite: SqliteStore, call: Callable[[Store], Awaitable[object]]
) -> None:
    await sqlite.commit(TRANSACTION)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with open_sqlite(file, busy_timeout_s=0.05) as store:
            assert await store.session("one") == TRANSACTION.session
            with pytest.raises(StoreUnavailable, match="another process has been writing to it for too long"):
                await call(store)
        other.execute("ROLLBACK")

    await call(sqlite)


async def test_a_file_that_another_process_creates_is_waited_for(file: File) -> None:
    """SQLite itself fails at once in this case and does not use its busy timeout."""
    make_empty_file(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        started = monotonic()
        async with open_sqlite(file, busy_timeout_s=0.3) as store:
            with pytest.raises(StoreUnavailable, match="another process has been writing to it for too long"):
                await store.commit(TRANSACTION)
        assert monotonic() - started >= 0.3


async def test_a_full_disk_is_reported_and_the_stored_data_is_kept(file: File, sqlite: SqliteStore) -> None:
    await sqlite.commit(TRANSACTION)
    pages = await sqlite.database.read(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
    await sqlite.database.read(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    big = Path(ROOT).append([user_message("x" * 2**20)])

    with pytest.raises(StoreFull) as caught:
        await sqlite.commit(Transaction((AppendItems(ROOT, big.items),), session=session(head=big.head)))

    assert str(caught.value) == f"no disk space is left for {file}"
    assert await sqlite.path(PATH.head) == PATH
    with pytest.raises(NotFound):
        await sqlite.path(big.head)
    await sqlite.commit(TRANSACTION)


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from convo.errors import ConvoError
from convo.history.tree import Path as History, root_key
from convo.history.items import user_message
from convo.stores.base import Transaction, AppendItems
from convo.stores.sqlite.store import SqliteStore
from convo.stores.sqlite.connection import SqliteDatabase
from tests.stores.chat_transactions import session

async def main():
    store = SqliteStore(SqliteDatabase(Path(sys.argv[1])))
    await store.commit(Transaction(session=session()))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
    path = History(root_key("local"))
    try:
        for turn in range(1000):
            grown = path.append([user_message(f"{turn} " * 500)])
            appended = AppendItems(path.head, grown.items[turn:])
            await store.commit(Transaction((appended,), session=session(head=grown.head)))
            path = grown
            print(path.head, flush=True)
    except ConvoError as wrong:
        print(type(wrong).__name__, wrong, flush=True)
    await store.aclose()

asyncio.run(main())
"""


@pytest.mark.needs("posix")
async def test_a_file_size_limit_is_reported_and_confirmed_data_is_kept(file: File) -> None:
    *heads, error = run_script(LIMITED, file)

    assert error == f"StoreFull {file} could not be written: the disk is full, or a size limit is reached"
    async with open_sqlite(file) as store:
        assert await store.database.read(lambda db: db.execute("PRAGMA integrity_check").fetchall()) == [("ok",)]
        record = await store.session("one")
        assert record is not None
        assert record.head == heads[-1]
        await store.commit(TRANSACTION)


# -- deleted and replaced files -------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_file_deleted_while_open_refuses_writes_until_it_exists_again(
    call: Callable[[Store], Awaitable[object]], tmp_path: File
) -> None:
    """Data in a deleted file is lost when the file is closed, so no write to it may be confirmed."""
    file, backup = tmp_path / "convo.db", tmp_path / "aside.db"
    async with open_sqlite(file) as store:
        await store.commit(TRANSACTION)
        file.rename(backup)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="was deleted while it was in use") as caught:
                await call(store)
            assert "convo store migrate" in caught.value.hint
            assert not file.exists()
        backup.replace(file)
        await call(store)


async def test_a_restored_file_contains_all_confirmed_data(tmp_path: File) -> None:
    file, backup = tmp_path / "convo.db", tmp_path / "aside.db"
    async with open_sqlite(file) as store:
        await store.commit(TRANSACTION)
        file.rename(backup)
        with pytest.raises(StoreUnavailable):
            await store.sessions()
        backup.replace(file)
        await store.commit(Transaction(session=session(id="ses_2", name="two")))
    async with open_sqlite(file) as store:
        assert {one.name for one in await store.sessions()} == {"one", "two"}


async def test_a_file_replaced_while_open_is_reopened(tmp_path: File) -> None:
    file, other = tmp_path / "convo.db", tmp_path / "other.db"
    async with open_sqlite(other) as store:
        await store.commit(replace(TRANSACTION, session=session(id="ses_2", name="two", head=PATH.head)))
    async with open_sqlite(file) as store:
        await store.commit(TRANSACTION)
        foreign_file = tmp_path / "foreign.db"
        foreign_file.write_bytes(b"somebody else's")
        foreign_file.replace(file)
        with pytest.raises(StoreUnavailable, match="is not a database"):
            await store.sessions()
        other.replace(file)

        assert [one.name for one in await store.sessions()] == ["two"]
        await store.commit(Transaction(session=session(id="ses_3", name="three")))
    assert is_sound(file)
    async with open_sqlite(file) as store:
        assert {one.name for one in await store.sessions()} == {"two", "three"}


async def test_the_log_of_a_replaced_file_is_not_applied_to_the_new_file(tmp_path: File) -> None:
    """SQLite alone would write the pages of the old file into the new file."""
    file, other = tmp_path / "convo.db", tmp_path / "other.db"
    async with open_sqlite(other) as store:
        for number in range(40):
            await store.commit(Transaction(session=session(id=f"ses_{number}", name=f"chat {number}")))
    async with open_sqlite(file) as store:
        await store.commit(TRANSACTION)
        await store.database.read(lambda db: db.execute("PRAGMA wal_autocheckpoint = 0").fetchall())
        await store.commit(Transaction(session=session(id="ses_x", name="x")))
        other.replace(file)
        assert len(await store.sessions()) == 40
    assert is_sound(file)


async def test_confirmed_data_survives_the_deletion_of_the_log(tmp_path: File) -> None:
    file = tmp_path / "convo.db"
    async with open_sqlite(file) as store:
        await store.commit(TRANSACTION)
        delete_files(file, "-wal")
        await store.commit(Transaction(session=session(id="ses_2", name="two")))
    async with open_sqlite(file) as store:
        assert {one.name for one in await store.sessions()} == {"one", "two"}
    assert is_sound(file)


def delete_files(file: File, *suffixes: str) -> None:
    for suffix in suffixes:
        os.unlink(f"{file}{suffix}")


def is_sound(file: File) -> bool:
    return not check_database(file, lambda *_: None).problems


async def test_a_migration_creates_an_empty_database_in_place_of_a_deleted_one(tmp_path: File) -> None:
    file = tmp_path / "convo.db"
    async with open_sqlite(file) as store:
        await store.commit(TRANSACTION)
        delete_files(file, "", "-wal", "-shm")
        with pytest.raises(StoreUnavailable):
            await store.sessions()
        async with open_sqlite(file) as another:
            await another.admin.migrate()
        assert list(await store.sessions()) == []
        await store.commit(TRANSACTION)
        assert await store.session("one") == TRANSACTION.session

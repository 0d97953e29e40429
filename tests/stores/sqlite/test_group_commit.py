"""Group commit: writes that wait at the same time share a transaction and do not affect each other."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from convo.stores.sqlite.connection import SqliteDatabase

Write = Callable[[sqlite3.Connection], int]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    opened = SqliteDatabase(tmp_path / "convo.db")
    await opened.migrate()
    yield opened
    await opened.aclose()


def noting(n: int) -> Write:
    """Return a write that stores the number `n` in the file."""

    def write(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO secrets (name, value) VALUES (?, x'00')", (str(n),))
        return n

    return write


def kept(database: SqliteDatabase) -> set[int]:
    """Return the numbers that another connection reads from the file."""
    with closing(sqlite3.connect(database.file)) as db:
        return {int(name) for (name,) in db.execute("SELECT name FROM secrets")}


async def at_once(database: SqliteDatabase, *jobs: Callable[[sqlite3.Connection], Any]) -> list[Any]:
    """Run jobs that all wait when the worker thread becomes free. Returns their results or exceptions."""
    begun, free = threading.Event(), threading.Event()

    def wait(db: sqlite3.Connection) -> None:
        begun.set()
        free.wait()

    first = asyncio.create_task(database.write(wait))
    await asyncio.to_thread(begun.wait)
    waiting = [asyncio.create_task(database.write(job)) for job in jobs]
    await asyncio.sleep(0)
    free.set()
    await first
    return await asyncio.gather(*waiting, return_exceptions=True)


async def test_writes_that_wait_at_the_same_time_share_one_commit(database: SqliteDatabase) -> None:
    seen: list[set[int]] = []

    assert await at_once(database, noting(1), noting(2), lambda db: seen.append(kept(database))) == [1, 2, None]
    assert seen == [set()]
    assert kept(database) == {1, 2}


async def test_at_most_64_jobs_share_a_transaction(database: SqliteDatabase) -> None:
    seen: list[set[int]] = []

    def look(db: sqlite3.Connection) -> None:
        seen.append(kept(database))

    await at_once(database, *(noting(n) for n in range(63)), look, look)
    assert seen == [set(), set(range(63))]


async def test_a_failed_write_does_not_roll_back_the_others(database: SqliteDatabase) -> None:
    def fail(db: sqlite3.Connection) -> int:
        return noting(3)(db) // 0

    one, failed, other = await at_once(database, noting(1), fail, noting(2))

    assert (one, other, type(failed)) == (1, 2, ZeroDivisionError)
    assert kept(database) == {1, 2}


async def test_a_write_that_ends_the_transaction_does_not_affect_the_others(database: SqliteDatabase) -> None:
    """SQLite itself ends the transaction in this way when a disk is full."""

    def ruin(db: sqlite3.Connection) -> None:
        db.execute("INSERT OR ROLLBACK INTO secrets (name, value) VALUES ('7', NULL)")

    one, failed, other = await at_once(database, noting(1), ruin, noting(2))

    assert (one, other) == (1, 2)
    assert "NOT NULL" in str(failed)
    assert kept(database) == {1, 2}


async def test_a_cancelled_write_is_not_executed(database: SqliteDatabase) -> None:
    free = threading.Event()
    first = asyncio.create_task(database.write(lambda db: free.wait()))
    left, stayed = (asyncio.create_task(database.write(noting(n))) for n in (1, 2))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.sleep(0)
    free.set()

    assert (await first, await stayed) == (True, 2)
    assert kept(database) == {2}


async def test_a_reader_does_not_wait_for_writers(database: SqliteDatabase) -> None:
    free, told = threading.Event(), list[str]()
    first = asyncio.create_task(database.write(lambda db: free.wait()))

    async def ask(what: str) -> None:
        await (database.write(noting(1)) if what == "write" else database.read(lambda db: None))
        told.append(what)

    asked = [asyncio.create_task(ask(what)) for what in ("write", "read")]
    await asyncio.sleep(0)
    free.set()
    await asyncio.gather(first, *asked)

    assert told == ["read", "write"]

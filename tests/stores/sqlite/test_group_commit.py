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
    new_database = SqliteDatabase(tmp_path / "convo.db")
    await new_database.migrate()
    yield new_database
    await new_database.aclose()


def write_number(n: int) -> Write:
    """Return a write that stores the number `n` in the file."""

    def write(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO secrets (name, value) VALUES (?, x'00')", (str(n),))
        return n

    return write


def stored_numbers(database: SqliteDatabase) -> set[int]:
    """Return the numbers that another connection reads from the file."""
    with closing(sqlite3.connect(database.file)) as db:
        return {int(name) for (name,) in db.execute("SELECT name FROM secrets")}


async def run_together(database: SqliteDatabase, *jobs: Callable[[sqlite3.Connection], Any]) -> list[Any]:
    """Run jobs that all wait when the worker thread becomes free. Returns their results or exceptions."""
    started, free = threading.Event(), threading.Event()

    def wait(db: sqlite3.Connection) -> None:
        started.set()
        free.wait()

    first = asyncio.create_task(database.write(wait))
    await asyncio.to_thread(started.wait)
    tasks = [asyncio.create_task(database.write(job)) for job in jobs]
    await asyncio.sleep(0)
    free.set()
    await first
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_writes_that_wait_at_the_same_time_share_one_commit(database: SqliteDatabase) -> None:
    snapshots: list[set[int]] = []

    assert await run_together(
        database, write_number(1), write_number(2), lambda db: snapshots.append(stored_numbers(database))
    ) == [1, 2, None]
    assert snapshots == [set()]
    assert stored_numbers(database) == {1, 2}


async def test_at_most_64_jobs_share_a_transaction(database: SqliteDatabase) -> None:
    snapshots: list[set[int]] = []

    def take_snapshot(db: sqlite3.Connection) -> None:
        snapshots.append(stored_numbers(database))

    await run_together(database, *(write_number(n) for n in range(63)), take_snapshot, take_snapshot)
    assert snapshots == [set(), set(range(63))]


async def test_a_failed_write_does_not_roll_back_the_others(database: SqliteDatabase) -> None:
    def fail(db: sqlite3.Connection) -> int:
        return write_number(3)(db) // 0

    one, failed, other = await run_together(database, write_number(1), fail, write_number(2))

    assert (one, other, type(failed)) == (1, 2, ZeroDivisionError)
    assert stored_numbers(database) == {1, 2}


async def test_a_write_that_ends_the_transaction_does_not_affect_the_others(database: SqliteDatabase) -> None:
    """SQLite itself ends the transaction in this way when a disk is full."""

    def end_transaction(db: sqlite3.Connection) -> None:
        db.execute("INSERT OR ROLLBACK INTO secrets (name, value) VALUES ('7', NULL)")

    one, failed, other = await run_together(database, write_number(1), end_transaction, write_number(2))

    assert (one, other) == (1, 2)
    assert "NOT NULL" in str(failed)
    assert stored_numbers(database) == {1, 2}


async def test_a_cancelled_write_is_not_executed(database: SqliteDatabase) -> None:
    free = threading.Event()
    first = asyncio.create_task(database.write(lambda db: free.wait()))
    cancelled, remaining = (asyncio.create_task(database.write(write_number(n))) for n in (1, 2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    free.set()

    assert (await first, await remaining) == (True, 2)
    assert stored_numbers(database) == {2}


async def test_a_reader_does_not_wait_for_writers(database: SqliteDatabase) -> None:
    free, finished = threading.Event(), list[str]()
    first = asyncio.create_task(database.write(lambda db: free.wait()))

    async def run_job(kind: str) -> None:
        await (database.write(write_number(1)) if kind == "write" else database.read(lambda db: None))
        finished.append(kind)

    write, read = (asyncio.create_task(run_job(kind)) for kind in ("write", "read"))
    await asyncio.wait({read}, timeout=60)
    free.set()
    await asyncio.gather(first, write, read)

    assert finished == ["read", "write"]


async def test_each_job_of_a_transaction_runs_once(database: SqliteDatabase) -> None:
    runs: list[int] = []
    await run_together(database, *(lambda db, n=n: runs.append(n) for n in range(3)))
    assert runs == [0, 1, 2]


async def test_a_job_that_is_cancelled_after_it_ran_does_not_affect_the_others(database: SqliteDatabase) -> None:
    """Its caller is cancelled before the event loop learns the results of the transaction."""
    loop, free = asyncio.get_running_loop(), threading.Event()
    first = asyncio.create_task(database.write(lambda db: free.wait()))
    await asyncio.sleep(0)
    cancelled = asyncio.create_task(database.write(write_number(1)))
    second = asyncio.create_task(database.write(lambda db: loop.call_soon_threadsafe(cancelled.cancel)))
    third = asyncio.create_task(database.write(write_number(3)))
    await asyncio.sleep(0)
    free.set()
    async with asyncio.timeout(60):
        results = await asyncio.gather(first, cancelled, second, third, return_exceptions=True)

    assert [type(result) for result in (results[1], results[3])] == [asyncio.CancelledError, int]
    assert stored_numbers(database) == {1, 3}


async def test_a_read_does_not_wait_for_another_process_that_writes(database: SqliteDatabase) -> None:
    with closing(sqlite3.connect(database.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await database.read(lambda db: db.execute("SELECT count(*) FROM secrets").fetchone()) == (0,)
        other.execute("ROLLBACK")

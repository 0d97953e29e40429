"""Several processes write one file, and some of them are killed."""

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path as File

import pytest

from convo.history.tree import Path
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.sqlite.chat_process import UNDO_EVERY, with_answer

WRITERS, TURNS = 8, 12
KILLS, MORE_KILLS = 20, 200
KILLED_EXIT_CODE = -9
pytestmark = pytest.mark.needs("posix")


def start_chat(file: File, name: str, turns: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.stores.sqlite.chat_process", str(file), name, str(turns)]
    root = File(__file__).parents[3]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


def check_file(file: File) -> None:
    """Assert that the file is intact and contains each item once."""
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        db.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        (items, bodies), (hashes,) = (
            db.execute("SELECT count(*), count(DISTINCT body) FROM items").fetchone(),
            db.execute("SELECT count(*) FROM hashes").fetchone(),
        )
        assert items == bodies == hashes


async def test_eight_processes_write_one_new_file_concurrently_and_lose_nothing(file: File) -> None:
    """Each process starts without a file. They create it concurrently and wait for each other at every commit."""
    writers = [start_chat(file, f"w{number}", TURNS) for number in range(WRITERS)]
    outputs = [writer.communicate()[0] for writer in writers]

    assert [writer.returncode for writer in writers] == [0] * WRITERS
    check_file(file)
    store = SqliteStore(SqliteDatabase(file))
    for number, lines in enumerate(outputs):
        record = await store.session(f"w{number}")
        assert record is not None
        assert record.head in lines.splitlines()[-1]
        assert len(await store.path(record.head)) == 4 * TURNS - 2 * (TURNS // UNDO_EVERY)
        assert len(await store.links(record.id)) == TURNS - TURNS // UNDO_EVERY
    await store.aclose()


async def kill_repeatedly(file: File, kills: int, rng: random.Random) -> None:
    """Kill a chatting process at a random moment, check the file, and continue with another process."""
    links: set[str] = set()
    for _ in range(kills):
        with start_chat(file, "one", 0) as writer:
            assert writer.stdout is not None
            printed = [writer.stdout.readline() for _ in range(rng.randrange(40))]
            writer.kill()
            printed += writer.stdout.readlines()
        assert writer.returncode == KILLED_EXIT_CODE
        lines = [line.split() for line in printed if line.endswith("\n")]
        heads = [fields[1] for fields in lines if fields[0] == "at"]
        links |= {link for fields in lines if fields[0] == "at" for link in fields[2:]}
        links -= {fields[1] for fields in lines if fields[0] == "without"}
        await check_confirmed_data(file, heads, links)


async def check_confirmed_data(file: File, heads: list[str], links: set[str]) -> None:
    """Assert that the store has the last printed head or the next one, and every printed link."""
    store = SqliteStore(SqliteDatabase(file))
    record = await store.session("one")
    if heads:
        assert record is not None
        path = await store.path(record.head)
        assert heads[-1] in (record.head, *previous_heads(path))
    assert links <= {link.id for link in await store.links("ses_one")}
    if record:
        check_file(file)
    await store.aclose()


def previous_heads(path: Path) -> list[str]:
    """Return the possible heads before the last commit: two items earlier, or before an undo."""
    return [path.first(len(path) - 2).head, with_answer(path).head]


async def test_a_writer_killed_at_any_moment_loses_no_confirmed_commit(file: File) -> None:
    await kill_repeatedly(file, KILLS, random.Random(1))


@pytest.mark.full
async def test_a_writer_killed_two_hundred_times_loses_no_confirmed_commit(file: File) -> None:
    await kill_repeatedly(file, MORE_KILLS, random.Random(2))

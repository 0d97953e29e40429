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
KILLED = -9
pytestmark = pytest.mark.needs("posix")


def chatting(file: File, name: str, turns: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.stores.sqlite.chat_process", str(file), name, str(turns)]
    root = File(__file__).parents[3]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


def sound(file: File) -> None:
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
    writers = [chatting(file, f"w{number}", TURNS) for number in range(WRITERS)]
    said = [writer.communicate()[0] for writer in writers]

    assert [writer.returncode for writer in writers] == [0] * WRITERS
    sound(file)
    store = SqliteStore(SqliteDatabase(file))
    for number, lines in enumerate(said):
        record = await store.session(f"w{number}")
        assert record is not None
        assert record.head in lines.splitlines()[-1]
        assert len(await store.path(record.head)) == 4 * TURNS - 2 * (TURNS // UNDO_EVERY)
        assert len(await store.links(record.id)) == TURNS - TURNS // UNDO_EVERY
    await store.aclose()


async def kill_again_and_again(file: File, kills: int, dice: random.Random) -> None:
    """Kill a chatting process at a random moment, check the file, and continue with another process."""
    links: set[str] = set()
    for _ in range(kills):
        with chatting(file, "one", 0) as writer:
            assert writer.stdout is not None
            told = [writer.stdout.readline() for _ in range(dice.randrange(40))]
            writer.kill()
            told += writer.stdout.readlines()
        assert writer.returncode == KILLED
        lines = [line.split() for line in told if line.endswith("\n")]
        heads = [words[1] for words in lines if words[0] == "at"]
        links |= {link for words in lines if words[0] == "at" for link in words[2:]}
        links -= {words[1] for words in lines if words[0] == "without"}
        await all_that_was_told_is_there(file, heads, links)


async def all_that_was_told_is_there(file: File, heads: list[str], links: set[str]) -> None:
    """Assert that the store has the last printed head or the next one, and every printed link."""
    store = SqliteStore(SqliteDatabase(file))
    record = await store.session("one")
    if heads:
        assert record is not None
        path = await store.path(record.head)
        assert heads[-1] in (record.head, *one_commit_before(path))
    assert links <= {link.id for link in await store.links("ses_one")}
    if record:
        sound(file)
    await store.aclose()


def one_commit_before(path: Path) -> list[str]:
    """Return the possible heads before the last commit: two items earlier, or before an undo."""
    return [path.first(len(path) - 2).head, with_answer(path).head]


async def test_a_writer_killed_at_any_moment_loses_no_confirmed_commit(file: File) -> None:
    await kill_again_and_again(file, KILLS, random.Random(1))


@pytest.mark.full
async def test_a_writer_killed_two_hundred_times_loses_no_confirmed_commit(file: File) -> None:
    await kill_again_and_again(file, MORE_KILLS, random.Random(2))

"""Removed text is absent from every byte of every file.

Each session repeats its own mark in all of its stored data: short messages and messages of several pages,
tool arguments, names, instructions, errors, agent runs and their calls. After the removal the tests search
the raw files for the first and the last letters of the mark, because the search index stores words without
their common prefixes.
"""

import random
import sqlite3
import sys
from asyncio import create_subprocess_exec
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path as File

import pytest

from convo.history.items import Item, user_message
from convo.history.records import AgentCall, AgentRun
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Transaction
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import NOW, link, search_hits, session

ROOT = root_key("local")
SHARED = Path(ROOT).append([user_message("what everybody was asked")])
END_LENGTH = 9
"""Number of letters at either end of a mark that identify it."""


def make_mark(number: int, rng: random.Random) -> str:
    return f"m{number:02}" + "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(21))


def items(mark: str, rng: random.Random) -> list[Item]:
    """Return a call, a message and an unknown item that contain only `mark`, in a few bytes or several pages."""
    call = {"type": "function_call", "call_id": mark, "name": "look", "arguments": f'{{"at": "{mark}"}}', "id": mark}
    return [call, user_message(f"{mark} " * rng.choice([1, 3, 40, 700])), {"type": "unknown", "field": [mark] * 5}]


@asynccontextmanager
async def open_sqlite(file: File) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(SqliteDatabase(file, synchronous="OFF", busy_timeout_s=0.1))
    try:
        yield store
    finally:
        await store.aclose()


async def store_turn(store: SqliteStore, mark: str, turn: int, rng: random.Random) -> None:
    """Store one more turn of the session that is named `mark`."""
    existing = await store.session(mark)
    record = existing or session(
        id=f"ses_{mark}", name=mark, head=SHARED.head, handle=f"/{mark}", instructions=mark * 9
    )
    new_items = items(f"{mark} {turn}", rng)
    path = (await store.path(record.head) if existing else SHARED).append(new_items)
    response = link(
        f"resp_{mark}_{turn}",
        path.head,
        session_id=record.id,
        parent_id=f"resp_{mark}_{turn - 1}" if turn else None,
        parameters={"instructions": f"{mark} {turn}"},
        error={"message": f"{mark} " * rng.choice([1, 500])},
        conversation_id=f"conv_{mark}",
    )
    appends = (AppendItems(ROOT, SHARED.items), AppendItems(record.head, tuple(new_items)))
    updated = replace(record, head=path.head, link_id=response.id, used_at=NOW + turn)
    existing_run = await store.agent_run(f"run_{mark}")
    revision = existing_run.revision + 1 if existing_run else 1
    run = AgentRun(f"run_{mark}", record.id, revision, "running", {mark: f"{mark} " * rng.choice([1, 900])}, NOW, NOW)
    call = AgentCall(run.id, f"call_{mark}_{turn}", NOW, has_ended=True, output=f"{mark} " * rng.choice([1, 500]))
    await store.commit(
        Transaction(
            appends,
            (response,),
            updated,
            record.head if existing else None,
            agent_run=run,
            agent_calls=(call,) * (turn % 2),
        )
    )


def files_with(file: File, mark: str) -> list[str]:
    """Return the names of the files that contain a part of `mark`."""
    parts = [mark[:END_LENGTH].encode(), mark[-END_LENGTH:].encode()]
    return [path.name for path in sorted(file.parent.iterdir()) if any(part in path.read_bytes() for part in parts)]


async def store_turns(store: SqliteStore, marks: list[str], turns: int, rng: random.Random) -> None:
    """Store turns of all sessions in random order, so that their rows are mixed."""
    for turn in range(turns):
        for mark in rng.sample(marks, len(marks)):
            await store_turn(store, mark, turn, rng)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_text_of_removed_sessions_remains_in_any_file(file: File, seed: int) -> None:
    """Rows of many sizes are inserted and deleted, so that SQLite moves some of them between pages."""
    rng = random.Random(seed)
    marks = [make_mark(number, rng) for number in range(30)]
    removed, kept = marks[::2], marks[1::2]
    async with open_sqlite(file) as store:
        await store_turns(store, marks, 4, rng)
        for number, name in enumerate(removed):
            await store.remove_session(f"ses_{name}")
            await store_turn(store, kept[number % 3], 4 + number, rng)

    assert {name for name in marks if files_with(file, name)} == set(kept)
    async with open_sqlite(file) as store:
        for name in kept:
            assert {hit.owner for hit in await search_hits(store, name)} == {name}


async def test_no_text_remains_when_the_removing_process_is_killed_and_another_opens_the_file(file: File) -> None:
    rng = random.Random(4)
    removed = make_mark(0, rng)
    async with open_sqlite(file) as store:
        await store_turns(store, [removed, make_mark(1, rng)], 3, rng)
    command = [sys.executable, "-c", REMOVE_AND_DIE, str(file), f"ses_{removed}"]
    process = await create_subprocess_exec(*command)

    assert await process.wait() == EXIT_CODE
    assert files_with(file, removed)
    async with open_sqlite(file) as store:
        assert await store.session(removed) is None
    assert files_with(file, removed) == []


EXIT_CODE = 9
REMOVE_AND_DIE = """
import asyncio, os, sys
from convo.stores.factory import open_store

async def main():
    await open_store(f"sqlite:{sys.argv[1]}").remove_session(sys.argv[2])
    os._exit(9)

asyncio.run(main())
"""


async def test_no_text_remains_when_another_process_closes_the_file_later(file: File) -> None:
    rng = random.Random(8)
    marks = [make_mark(0, rng), make_mark(1, rng)]
    async with open_sqlite(file) as other:
        await store_turns(other, marks, 3, rng)
        async with open_sqlite(file) as store:
            await store.remove_session(f"ses_{marks[0]}")
        await store_turn(other, marks[1], 3, rng)

    assert files_with(file, marks[0]) == []


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
async def test_no_text_remains_when_another_process_reads_or_writes_meanwhile(file: File, begin: str) -> None:
    """While another process uses the files, the removal cannot clear them. The next process that closes them does."""
    rng = random.Random(9)
    removed = make_mark(0, rng)
    async with open_sqlite(file) as store:
        await store_turns(store, [removed, make_mark(1, rng)], 3, rng)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        async with open_sqlite(file) as store:
            await store.remove_session(f"ses_{removed}")
            other.execute(begin)
            other.execute("SELECT * FROM items").fetchall()
        other.execute("COMMIT")
    async with open_sqlite(file) as store:
        await store.sessions()

    assert files_with(file, removed) == []


async def test_a_removed_response_or_conversation_leaves_no_text(file: File) -> None:
    rng = random.Random(10)
    first, second = make_mark(0, rng), make_mark(1, rng)
    first_path, second_path = (SHARED.append(items(text, rng)) for text in (first, second))
    response = link("resp_1", first_path.head, parameters={"instructions": first}, error={"message": first})
    ids = tuple(f"msg_{number}_{second}" for number in range(len(second_path)))
    async with open_sqlite(file) as store:
        await store.commit(
            Transaction(
                (AppendItems(ROOT, first_path.items), AppendItems(ROOT, second_path.items)),
                (response,),
                conversation=Conversation("conv_1", second_path.head, NOW, ids, {"topic": second}),
            )
        )
        await store.remove_link("resp_1")
        await store.remove_conversation("conv_1")

    assert files_with(file, first) == files_with(file, second) == []


async def test_an_erased_item_leaves_no_text(file: File) -> None:
    rng = random.Random(11)
    erased, kept = make_mark(0, rng), make_mark(1, rng)
    path = SHARED.append(items(erased, rng)[1:2])
    async with open_sqlite(file) as store:
        await store_turn(store, kept, 0, rng)
        await store.commit(Transaction((AppendItems(ROOT, path.items),), session=session(head=path.head)))
        await store.commit(Transaction(erased_nodes=(path.head,)))

    assert files_with(file, erased) == []


async def test_undone_turns_leave_no_text_after_the_next_removal(file: File) -> None:
    rng = random.Random(12)
    undone, removed = make_mark(0, rng), make_mark(1, rng)
    path = SHARED.append(items(undone, rng))
    async with open_sqlite(file) as store:
        await store_turn(store, removed, 0, rng)
        record = session(head=path.head)
        await store.commit(Transaction((AppendItems(ROOT, path.items),), session=record))
        await store.commit(Transaction(session=replace(record, head=SHARED.head)))
        await store.remove_session(f"ses_{removed}")

    assert files_with(file, undone) == files_with(file, removed) == []

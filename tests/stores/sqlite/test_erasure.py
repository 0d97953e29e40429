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
from convo.history.tree import Path, root_key
from convo.stores.base import AgentCall, AgentRun, AppendItems, Conversation, Transaction
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import NOW, link, session

TOP = root_key("local")
SHARED = Path(TOP).append([user_message("what everybody was asked")])
ENDS = 9
"""Number of letters at either end of a mark that identify it."""


def mark(number: int, dice: random.Random) -> str:
    return f"m{number:02}" + "".join(dice.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(21))


def items(mark: str, dice: random.Random) -> list[Item]:
    """Return a call, a message and an unknown item that contain only `mark`, in a few bytes or several pages."""
    call = {"type": "function_call", "call_id": mark, "name": "look", "arguments": f'{{"at": "{mark}"}}', "id": mark}
    return [call, user_message(f"{mark} " * dice.choice([1, 3, 40, 700])), {"type": "unknown", "field": [mark] * 5}]


@asynccontextmanager
async def opened(file: File) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(SqliteDatabase(file, synchronous="OFF", busy_timeout_s=0.1))
    try:
        yield store
    finally:
        await store.aclose()


async def say(store: SqliteStore, mark: str, turn: int, dice: random.Random) -> None:
    """Store one more turn of the session that is named `mark`."""
    found = await store.session(mark)
    record = found or session(id=f"ses_{mark}", name=mark, head=SHARED.head, handle=f"/{mark}", instructions=mark * 9)
    new = items(f"{mark} {turn}", dice)
    path = (await store.path(record.head) if found else SHARED).append(new)
    made = link(
        f"resp_{mark}_{turn}",
        path.head,
        session_id=record.id,
        parent_id=f"resp_{mark}_{turn - 1}" if turn else None,
        parameters={"instructions": f"{mark} {turn}"},
        error={"message": f"{mark} " * dice.choice([1, 500])},
        conversation_id=f"conv_{mark}",
    )
    grow = (AppendItems(TOP, SHARED.items), AppendItems(record.head, tuple(new)))
    after = replace(record, head=path.head, link_id=made.id, used_at=NOW + turn)
    there = await store.agent_run(f"run_{mark}")
    revision = there.revision + 1 if there else 1
    run = AgentRun(f"run_{mark}", record.id, revision, "running", {mark: f"{mark} " * dice.choice([1, 900])}, NOW, NOW)
    call = AgentCall(run.id, f"call_{mark}_{turn}", NOW, has_ended=True, output=f"{mark} " * dice.choice([1, 500]))
    await store.commit(
        Transaction(
            grow, (made,), after, record.head if found else None, agent_run=run, agent_calls=(call,) * (turn % 2)
        )
    )


def left(file: File, mark: str) -> list[str]:
    """Return the names of the files that contain a part of `mark`."""
    parts = [mark[:ENDS].encode(), mark[-ENDS:].encode()]
    return [one.name for one in sorted(file.parent.iterdir()) if any(part in one.read_bytes() for part in parts)]


async def chatter(store: SqliteStore, marks: list[str], turns: int, dice: random.Random) -> None:
    """Store turns of all sessions in random order, so that their rows are mixed."""
    for turn in range(turns):
        for one in dice.sample(marks, len(marks)):
            await say(store, one, turn, dice)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_text_of_removed_sessions_remains_in_any_file(file: File, seed: int) -> None:
    """Rows of many sizes are inserted and deleted, so that SQLite moves some of them between pages."""
    dice = random.Random(seed)
    marks = [mark(number, dice) for number in range(30)]
    removed, kept = marks[::2], marks[1::2]
    async with opened(file) as store:
        await chatter(store, marks, 4, dice)
        for number, one in enumerate(removed):
            await store.remove_session(f"ses_{one}")
            await say(store, kept[number % 3], 4 + number, dice)

    assert {one for one in marks if left(file, one)} == set(kept)
    async with opened(file) as store:
        for one in kept:
            assert {hit.session.name for hit in await store.search_items(one)} == {one}


async def test_no_text_remains_when_the_removing_process_is_killed_and_another_opens_the_file(file: File) -> None:
    dice = random.Random(4)
    gone = mark(0, dice)
    async with opened(file) as store:
        await chatter(store, [gone, mark(1, dice)], 3, dice)
    command = [sys.executable, "-c", REMOVE_AND_DIE, str(file), f"ses_{gone}"]
    died = await create_subprocess_exec(*command)

    assert await died.wait() == DEAD
    assert left(file, gone)
    async with opened(file) as store:
        assert await store.session(gone) is None
    assert left(file, gone) == []


DEAD = 9
REMOVE_AND_DIE = """
import asyncio, os, sys
from convo.stores.factory import open_store

async def main():
    await open_store(f"sqlite:{sys.argv[1]}").remove_session(sys.argv[2])
    os._exit(9)

asyncio.run(main())
"""


async def test_no_text_remains_when_another_process_closes_the_file_later(file: File) -> None:
    dice = random.Random(8)
    marks = [mark(0, dice), mark(1, dice)]
    async with opened(file) as other:
        await chatter(other, marks, 3, dice)
        async with opened(file) as store:
            await store.remove_session(f"ses_{marks[0]}")
        await say(other, marks[1], 3, dice)

    assert left(file, marks[0]) == []


@pytest.mark.parametrize("hold", ["BEGIN", "BEGIN IMMEDIATE"])
async def test_no_text_remains_when_another_process_reads_or_writes_meanwhile(file: File, hold: str) -> None:
    """While another process uses the files, the removal cannot clear them. The next process that closes them does."""
    dice = random.Random(9)
    gone = mark(0, dice)
    async with opened(file) as store:
        await chatter(store, [gone, mark(1, dice)], 3, dice)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        async with opened(file) as store:
            await store.remove_session(f"ses_{gone}")
            other.execute(hold)
            other.execute("SELECT * FROM items").fetchall()
        other.execute("COMMIT")
    async with opened(file) as store:
        await store.sessions()

    assert left(file, gone) == []


async def test_a_removed_response_or_conversation_leaves_no_text(file: File) -> None:
    dice = random.Random(10)
    first, second = mark(0, dice), mark(1, dice)
    one, two = (SHARED.append(items(said, dice)) for said in (first, second))
    made = link("resp_1", one.head, parameters={"instructions": first}, error={"message": first})
    ids = tuple(f"msg_{number}_{second}" for number in range(len(two)))
    async with opened(file) as store:
        await store.commit(
            Transaction(
                (AppendItems(TOP, one.items), AppendItems(TOP, two.items)),
                (made,),
                conversation=Conversation("conv_1", two.head, NOW, ids, {"topic": second}),
            )
        )
        await store.remove_link("resp_1")
        await store.remove_conversation("conv_1")

    assert left(file, first) == left(file, second) == []


async def test_an_erased_item_leaves_no_text(file: File) -> None:
    dice = random.Random(11)
    erased, kept = mark(0, dice), mark(1, dice)
    path = SHARED.append(items(erased, dice)[1:2])
    async with opened(file) as store:
        await say(store, kept, 0, dice)
        await store.commit(Transaction((AppendItems(TOP, path.items),), session=session(head=path.head)))
        await store.commit(Transaction(erased_nodes=(path.head,)))

    assert left(file, erased) == []


async def test_undone_turns_leave_no_text_after_the_next_removal(file: File) -> None:
    dice = random.Random(12)
    undone, removed = mark(0, dice), mark(1, dice)
    path = SHARED.append(items(undone, dice))
    async with opened(file) as store:
        await say(store, removed, 0, dice)
        record = session(head=path.head)
        await store.commit(Transaction((AppendItems(TOP, path.items),), session=record))
        await store.commit(Transaction(session=replace(record, head=SHARED.head)))
        await store.remove_session(f"ses_{removed}")

    assert left(file, undone) == left(file, removed) == []

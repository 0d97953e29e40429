"""What is removed is gone from every byte of every file.

Each session says its own mark, over and over, in all that is stored of it: messages of a word and
of several pages, tool arguments, names, instructions, errors. After the removal the mark's first
and last letters are looked for in the raw files; the index keeps words by their ends.
"""

import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path as File

import pytest

from convo.history import Path, root
from convo.items import Item, user
from convo.stores.contract import Change, Conversation, Growth
from convo.stores.sqlite import SqliteStore
from convo.stores.sqlite.database import Database
from tests.stores.chats import NOW, link, session

TOP = root("local")
SHARED = Path(TOP).grow([user("what everybody was asked")])
ENDS = 9
"""Letters of a mark that are enough to know it by."""


def mark(number: int, dice: random.Random) -> str:
    return f"m{number:02}" + "".join(dice.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(21))


def items(mark: str, dice: random.Random) -> list[Item]:
    """A call and a message that say nothing but `mark`, of a few bytes or of some pages."""
    call = {"type": "function_call", "call_id": mark, "name": "look", "arguments": f'{{"at": "{mark}"}}', "id": mark}
    return [call, user(f"{mark} " * dice.choice([1, 3, 40, 700])), {"type": "unknown", "field": [mark] * 5}]


@asynccontextmanager
async def opened(file: File) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(Database(file, synchronous="OFF"))
    try:
        yield store
    finally:
        await store.aclose()


async def say(store: SqliteStore, mark: str, turn: int, dice: random.Random) -> None:
    """One more turn of the session that is called `mark`."""
    found = await store.session(mark)
    record = found or session(id=f"ses_{mark}", name=mark, head=SHARED.head, handle=f"/{mark}", instructions=mark * 9)
    new = items(f"{mark} {turn}", dice)
    path = (await store.path(record.head) if found else SHARED).grow(new)
    made = link(
        f"resp_{mark}_{turn}",
        path.head,
        session=record.id,
        parent=f"resp_{mark}_{turn - 1}" if turn else None,
        parameters={"instructions": f"{mark} {turn}"},
        error={"message": f"{mark} " * dice.choice([1, 500])},
        conversation_id=f"conv_{mark}",
    )
    grow = (Growth(TOP, SHARED.items), Growth(record.head, tuple(new)))
    after = replace(record, head=path.head, link=made.id, used_at=NOW + turn)
    await store.commit(Change(grow, (made,), after, record.head if found else None))


def left(file: File, mark: str) -> list[str]:
    """The files in which something of `mark` is left."""
    parts = [mark[:ENDS].encode(), mark[-ENDS:].encode()]
    return [one.name for one in sorted(file.parent.iterdir()) if any(part in one.read_bytes() for part in parts)]


async def chatter(store: SqliteStore, marks: list[str], turns: int, dice: random.Random) -> None:
    """All sessions talk by turns, so that their rows lie mixed."""
    for turn in range(turns):
        for one in dice.sample(marks, len(marks)):
            await say(store, one, turn, dice)


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_of_removed_sessions_is_left_in_any_file(file: File, seed: int) -> None:
    dice = random.Random(seed)
    marks = [mark(number, dice) for number in range(12)]
    async with opened(file) as store:
        await chatter(store, marks, 4, dice)
        assert all(left(file, one) for one in marks)
        removed = dice.sample(marks, 6)
        for one in removed:
            await store.remove_session(f"ses_{one}")
            await say(store, next(kept for kept in marks if kept not in removed), 4 + removed.index(one), dice)

    assert {one: left(file, one) for one in removed} == {one: [] for one in removed}
    async with opened(file) as store:
        for one in set(marks) - set(removed):
            record = await store.session(one)
            assert record is not None
            assert len(await store.path(record.head)) >= 1 + 4 * 3
            assert {hit.session.name for hit in await store.search(one)} == {one}


async def test_nothing_is_left_when_another_has_the_file_open_and_closes_later(file: File) -> None:
    dice = random.Random(8)
    marks = [mark(0, dice), mark(1, dice)]
    async with opened(file) as other:
        await chatter(other, marks, 3, dice)
        async with opened(file) as store:
            await store.remove_session(f"ses_{marks[0]}")
        await say(other, marks[1], 3, dice)

    assert left(file, marks[0]) == []


async def test_nothing_is_left_when_another_is_reading_during_the_removal(file: File) -> None:
    """A reader holds the log; what is in it goes when the last one closes."""
    dice = random.Random(9)
    gone = mark(0, dice)
    file.parent.mkdir()
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        async with opened(file) as store:
            await chatter(store, [gone], 3, dice)
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM items").fetchall()
            await store.remove_session(f"ses_{gone}")
        reader.execute("COMMIT")

    assert left(file, gone) == []


async def test_a_removed_response_and_a_removed_conversation_leave_nothing(file: File) -> None:
    dice = random.Random(10)
    first, second = mark(0, dice), mark(1, dice)
    one, two = (SHARED.grow(items(said, dice)) for said in (first, second))
    made = link("resp_1", one.head, parameters={"instructions": first}, error={"message": first})
    ids = tuple(f"msg_{number}_{second}" for number in range(len(two)))
    async with opened(file) as store:
        await store.commit(
            Change(
                (Growth(TOP, one.items), Growth(TOP, two.items)),
                (made,),
                conversation=Conversation("conv_1", two.head, NOW, ids, {"topic": second}),
            )
        )
        await store.remove_link("resp_1")
        await store.remove_conversation("conv_1")

    assert left(file, first) == left(file, second) == []


async def test_an_erased_item_leaves_nothing(file: File) -> None:
    dice = random.Random(11)
    erased, kept = mark(0, dice), mark(1, dice)
    path = SHARED.grow(items(erased, dice)[1:2])
    async with opened(file) as store:
        await say(store, kept, 0, dice)
        await store.commit(Change((Growth(TOP, path.items),), session=session(head=path.head)))
        await store.commit(Change(erase=(path.head,)))

    assert left(file, erased) == []


async def test_what_was_taken_back_leaves_nothing_once_something_is_removed(file: File) -> None:
    dice = random.Random(12)
    undone, removed = mark(0, dice), mark(1, dice)
    path = SHARED.grow(items(undone, dice))
    async with opened(file) as store:
        await say(store, removed, 0, dice)
        record = session(head=path.head)
        await store.commit(Change((Growth(TOP, path.items),), session=record))
        await store.commit(Change(session=replace(record, head=SHARED.head)))
        await store.remove_session(f"ses_{removed}")

    assert left(file, undone) == left(file, removed) == []

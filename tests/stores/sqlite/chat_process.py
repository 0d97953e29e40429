"""A process that chats: the body of the tests that run several at once, or kill one.

    python -m tests.stores.sqlite.chat_process FILE NAME TURNS

When a commit has returned, it prints what must be there from then on: the session and its head.
"""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path as File

from convo.history.items import assistant_message, user_message
from convo.history.records import Session
from convo.history.tree import Path
from convo.stores.base import AppendItems, Transaction
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import USAGE, link, session

UNDO_EVERY = 5


def with_question(path: Path) -> Path:
    return path.append([user_message(f"question {len(path)} of some words"), user_message("and you?")])


def with_answer(path: Path) -> Path:
    return path.append(
        [assistant_message(f"answer {len(path)} of some words"), assistant_message("the same words each time")]
    )


def turn(record: Session, path: Path, *, new: bool) -> Iterator[tuple[Transaction, Session]]:
    """The changes of one turn, each with the record that it leaves."""
    question, answer = with_question(path), with_answer(with_question(path))
    asking, done = replace(record, head=question.head), replace(record, head=answer.head)
    made = link(f"resp_{record.name}_{len(path)}", question.head, answer.head, session_id=record.id, usage=USAGE)
    yield Transaction((AppendItems(path.head, question.items[-2:]),), (), asking, None if new else record.head), asking
    yield Transaction((AppendItems(question.head, answer.items[-2:]),), (made,), done, asking.head), done


def undo(record: Session, path: Path) -> tuple[Transaction, Session]:
    """The last answer taken back, so that something is collected too."""
    back = replace(record, head=path.first(len(path) - 2).head)
    return Transaction(session=back, expected_session_head=record.head), back


async def chat(store: SqliteStore, name: str, turns: int) -> None:
    """Go on with the session `name` for so many turns; 0: until somebody ends this process."""
    found = await store.session(name)
    record = found or session(id=f"ses_{name}", name=name)
    path = await store.path(record.head)
    for number in range(turns) if turns else count():
        for change, after in turn(record, path, new=found is None and not number):
            await store.commit(change)
            print("at", after.head, *(link.id for link in change.links), flush=True)
            record = after
        path = with_answer(with_question(path))
        if number % UNDO_EVERY == UNDO_EVERY - 1:
            print("without", last := f"resp_{name}_{len(path) - 4}", flush=True)
            await store.remove_link(last)
            change, record = undo(record, path)
            await store.commit(change)
            print("at", record.head, flush=True)
            path = path.first(len(path) - 2)


async def main(file: str, name: str, turns: str) -> None:
    store = SqliteStore(SqliteDatabase(File(file)))
    await chat(store, name, int(turns))
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A process that chats, for tests with several processes or with a killed one.

    python -m tests.stores.sqlite.chat_process FILE NAME TURNS

After each commit it prints "at", the new head and the ids of the new links: they must survive from then on.
Before it removes a link it prints "without" and the id of the link.
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
    """Yield the transactions of one turn, each with the session's record after it."""
    question, answer = with_question(path), with_answer(with_question(path))
    asking_record, done_record = replace(record, head=question.head), replace(record, head=answer.head)
    response = link(f"resp_{record.name}_{len(path)}", question.head, answer.head, session_id=record.id, usage=USAGE)
    yield (
        Transaction((AppendItems(path.head, question.items[-2:]),), (), asking_record, None if new else record.head),
        asking_record,
    )
    yield (
        Transaction((AppendItems(question.head, answer.items[-2:]),), (response,), done_record, asking_record.head),
        done_record,
    )


def undo(record: Session, path: Path) -> tuple[Transaction, Session]:
    """Move the head back before the last answer, so that nodes are garbage-collected too."""
    updated = replace(record, head=path.first(len(path) - 2).head)
    return Transaction(session=updated, expected_session_head=record.head), updated


async def chat(store: SqliteStore, name: str, turns: int) -> None:
    """Continue the session `name` for this number of turns, or until the process is killed if it is 0."""
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

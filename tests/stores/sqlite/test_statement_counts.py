"""The number of SQLite statements and log pages of one commit."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path as File

import pytest

from convo.history.items import Item
from convo.history.tree import Path, root_key
from convo.stores.base import AgentCall, AppendItems, Transaction
from convo.stores.sqlite.connection import PAGE_SIZE_BYTES, SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import NOW, link, session
from tests.stores.test_agent_runs import RUN

FRAME = PAGE_SIZE_BYTES + 24
"""Bytes of one page in the log."""

CALLED: Item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}
RETURNED: Item = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}

BEGUN = Path(root_key("local")).append([{"role": "user", "content": "What will the weather be?"}])
ASKED = BEGUN.append([CALLED])
LOOKED = ASKED.append([RETURNED])

AT_FIRST = session(head=BEGUN.head, confirmed_head=BEGUN.head)
ANSWERED = replace(AT_FIRST, head=ASKED.head, confirmed_head=ASKED.head, link_id="resp_1")

BEGINS = Transaction(
    (AppendItems(root_key("local"), BEGUN.items),), session=AT_FIRST, expected_session_head=None, agent_run=RUN
)
ANSWER = Transaction(
    (AppendItems(BEGUN.head, (CALLED,)),),
    (link("resp_1", BEGUN.head, ASKED.head, session_id="ses_1", parameters={"temperature": 1}),),
    ANSWERED,
    BEGUN.head,
    agent_run=replace(RUN, revision=2),
    agent_calls=(AgentCall("run_1", "call_1", NOW),),
)
RESULT = Transaction(
    (AppendItems(ASKED.head, (RETURNED,)),),
    session=replace(ANSWERED, head=LOOKED.head),
    expected_session_head=ASKED.head,
    agent_run=replace(RUN, revision=3),
    agent_calls=(AgentCall("run_1", "call_1", NOW, has_ended=True, output="rain"),),
)
"""A turn of an agent run has two transactions: a response that calls a tool, and the tool's output."""


@pytest.fixture
async def store(file: File) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(SqliteDatabase(file, synchronous="OFF"))
    await opened.commit(BEGINS)
    yield opened
    await opened.aclose()


async def statements(store: SqliteStore, change: Transaction) -> int:
    """Return the number of statements of a commit, without those that the search index executes itself."""
    said: list[str] = []
    await store.database.read(lambda db: db.set_trace_callback(said.append))
    await store.commit(change)
    await store.database.read(lambda db: db.set_trace_callback(None))
    return sum(not sql.startswith("--") for sql in said[1:-1])  # without the reads before and after it


async def pages(store: SqliteStore, change: Transaction) -> int:
    """Return the number of pages that a commit writes to the log."""
    log = store.database.file.with_name(f"{store.database.file.name}-wal")
    before = log.stat().st_size
    await store.commit(change)
    return (log.stat().st_size - before) // FRAME


async def test_a_turn_of_a_run_executes_few_statements(store: SqliteStore) -> None:
    assert await statements(store, ANSWER) <= 24
    assert await statements(store, RESULT) <= 16


async def test_unchanged_rows_are_not_written_again(store: SqliteStore) -> None:
    """A commit writes the page of the row, and one page for each index whose column has changed."""
    await store.commit(ANSWER)

    assert await pages(store, Transaction(session=replace(ANSWERED, used_at=NOW + 1))) == 1
    assert await pages(store, Transaction(session=replace(ANSWERED, confirmed_head=BEGUN.head))) == 2
    assert await pages(store, Transaction(session=replace(ANSWERED, name="other", confirmed_head=BEGUN.head))) == 2
    moved = replace(RUN, revision=3, document={"phase": "done"})
    assert await pages(store, Transaction(agent_run=moved)) == 2  # the document is a separate row

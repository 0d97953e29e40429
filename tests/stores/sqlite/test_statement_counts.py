"""The number of SQLite statements of a commit and of a page of requests, and of log pages."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path as File

import pytest

from convo.history.items import Item, user_message
from convo.history.records import AgentCall, Link
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Transaction
from convo.stores.request_list import RequestQuery
from convo.stores.sqlite.connection import PAGE_SIZE_BYTES, SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import NOW, link, session
from tests.stores.test_agent_runs import RUN

FRAME = PAGE_SIZE_BYTES + 24
"""Bytes of one page in the log."""

CALL_ITEM: Item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}
OUTPUT_ITEM: Item = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}

INPUT_PATH = Path(root_key("local")).append([{"role": "user", "content": "What will the weather be?"}])
CALL_PATH = INPUT_PATH.append([CALL_ITEM])
OUTPUT_PATH = CALL_PATH.append([OUTPUT_ITEM])

NEW_SESSION = session(head=INPUT_PATH.head, confirmed_head=INPUT_PATH.head)
SESSION_AFTER_CALL = replace(NEW_SESSION, head=CALL_PATH.head, confirmed_head=CALL_PATH.head, link_id="resp_1")

START = Transaction(
    (AppendItems(root_key("local"), INPUT_PATH.items),), session=NEW_SESSION, expected_session_head=None, agent_run=RUN
)
RESPONSE = Transaction(
    (AppendItems(INPUT_PATH.head, (CALL_ITEM,)),),
    (link("resp_1", INPUT_PATH.head, CALL_PATH.head, session_id="ses_1", parameters={"temperature": 1}),),
    SESSION_AFTER_CALL,
    INPUT_PATH.head,
    agent_run=RUN._replace(revision=2),
    agent_calls=(AgentCall("run_1", "call_1", NOW),),
)
RESULT = Transaction(
    (AppendItems(CALL_PATH.head, (OUTPUT_ITEM,)),),
    session=replace(SESSION_AFTER_CALL, head=OUTPUT_PATH.head),
    expected_session_head=CALL_PATH.head,
    agent_run=RUN._replace(revision=3),
    agent_calls=(AgentCall("run_1", "call_1", NOW, has_ended=True, output="rain"),),
)
"""A turn of an agent run has two transactions: a response that calls a tool, and the tool's output."""


@pytest.fixture
async def store(file: File) -> AsyncIterator[SqliteStore]:
    new_store = SqliteStore(SqliteDatabase(file, synchronous="OFF"))
    await new_store.commit(START)
    yield new_store
    await new_store.aclose()


async def trace_statements(store: SqliteStore) -> list[str]:
    """Return a list to which every statement is appended from now on."""
    executed: list[str] = []
    await store.database.read(lambda db: db.set_trace_callback(executed.append))
    return executed


async def count_statements(store: SqliteStore, change: Transaction) -> int:
    """Return the number of statements of a commit, without those that the search index executes itself."""
    executed = await trace_statements(store)
    await store.commit(change)
    await store.database.read(lambda db: db.set_trace_callback(None))
    return sum(not sql.startswith("--") for sql in executed[1:-1])  # without the reads before and after it


async def count_log_pages(store: SqliteStore, change: Transaction) -> int:
    """Return the number of pages that a commit writes to the log."""
    log = store.database.file.with_name(f"{store.database.file.name}-wal")
    before = log.stat().st_size
    await store.commit(change)
    return (log.stat().st_size - before) // FRAME


async def test_a_turn_of_a_run_executes_few_statements(store: SqliteStore) -> None:
    assert await count_statements(store, RESPONSE) <= 24
    assert await count_statements(store, RESULT) <= 16


async def test_unchanged_rows_are_not_written_again(store: SqliteStore) -> None:
    """A commit writes the page of the row, and one page for each index whose column has changed."""
    await store.commit(RESPONSE)

    assert await count_log_pages(store, Transaction(session=replace(SESSION_AFTER_CALL, used_at=NOW + 1))) == 1
    assert (
        await count_log_pages(store, Transaction(session=replace(SESSION_AFTER_CALL, confirmed_head=INPUT_PATH.head)))
        == 2
    )
    assert (
        await count_log_pages(
            store, Transaction(session=replace(SESSION_AFTER_CALL, name="other", confirmed_head=INPUT_PATH.head))
        )
        == 2
    )
    updated = RUN._replace(revision=3, document={"phase": "done"})
    assert await count_log_pages(store, Transaction(agent_run=updated)) == 2  # the document is a separate row


async def test_a_page_of_the_requests_executes_as_many_statements_with_fifty_rows_as_with_one(
    store: SqliteStore,
) -> None:
    path = Path(root_key("local"))
    links = list[Link]()
    for number in range(60):
        path = path.append([user_message(f"question {number}")])
        links.append(
            link(f"resp_{number}", path.head, session_id="ses_2", created_at=NOW + number, title=f"question {number}")
        )
    appends = (AppendItems(root_key("local"), path.items),)
    record = session(id="ses_2", name="many", head=path.head, confirmed_head=path.head)
    await store.commit(Transaction(appends, tuple(links), record))
    counts = list[int]()
    for limit in (1, 50):
        executed = await trace_statements(store)
        page = await store.list_requests(RequestQuery(limit=limit))
        await store.database.read(lambda db: db.set_trace_callback(None))
        titles = [f"question {59 - number}" for number in range(limit)]
        assert [(row.session_name, row.title) for row in page.requests] == [("many", title) for title in titles]
        counts.append(len(executed))
    assert counts[0] == counts[1]

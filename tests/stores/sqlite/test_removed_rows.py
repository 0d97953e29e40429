"""The rows that are left after removals: none that nothing references, in no table and in no index."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path as File

import pytest

from convo.history.items import user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Transaction
from convo.stores.factory import open_store
from convo.stores.sqlite.check import check_database
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import NOW, link, session
from tests.stores.sample_store import fill_store

ROOT = root_key("local")
PATH = Path(ROOT).append([user_message("one"), user_message("two"), user_message("three")])

TABLES = (
    "items", "hashes", "nodes", "repeated", "sessions", "links", "conversations", "members", "names", "runs", "events",
    "agent_runs", "agent_documents", "agent_calls", "approval_decisions", "terms",
)  # fmt: skip


def count_rows(file: File) -> dict[str, int]:
    """Return the number of rows of each table that has some."""
    assert check_database(file, lambda *_: None).problems == []
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, words, instance)")
        counts = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    return {table: count for table, count in counts.items() if count}


ALL = {
    "items": 3, "hashes": 3, "nodes": 4, "repeated": 2, "sessions": 2, "links": 2, "conversations": 1, "members": 3,
    "names": 4, "runs": 2, "events": 2, "agent_runs": 1, "agent_documents": 1, "agent_calls": 1,
    "approval_decisions": 1, "terms": 3,
}  # fmt: skip
TREE = {"items": 3, "hashes": 3, "nodes": 4, "terms": 3}
IN_CONVERSATION = {**TREE, "conversations": 1, "members": 3, "names": 3}
RUN = {"agent_runs": 1, "agent_documents": 1, "agent_calls": 1, "approval_decisions": 1}
RESPONSES = {"repeated": 2, "sessions": 2, "links": 2, "runs": 2, "events": 2}
RESPONSE_OF_EARLY = {"repeated": 2, "sessions": 1, "links": 1, "runs": 1, "events": 1}

REMOVALS: list[list[tuple[str, str, dict[str, int]]]] = [
    [
        ("session", "ses_3", {**IN_CONVERSATION, **RESPONSE_OF_EARLY, "names": 4}),
        ("session", "ses_2", IN_CONVERSATION),
        ("conversation", "conv_1", {"nodes": 1}),
    ],
    [
        ("conversation", "conv_1", {**TREE, **RUN, **RESPONSES, "names": 1}),
        ("session", "ses_2", {**TREE, **RUN, **RESPONSES, "names": 1}),
        ("session", "ses_3", {"nodes": 1}),
    ],
    [
        ("link", "resp_2", {**ALL, "runs": 1, "events": 1}),
        ("link", "resp_3", {**IN_CONVERSATION, **RUN, "sessions": 2, "links": 2}),
        ("session", "ses_2", {**IN_CONVERSATION, **RUN, "sessions": 1, "links": 1}),
        ("session", "ses_3", IN_CONVERSATION),
        ("conversation", "conv_1", {"nodes": 1}),
    ],
]  # fmt: skip


@pytest.mark.parametrize("removals", REMOVALS, ids=["sessions first", "conversation first", "responses first"])
def test_a_removal_deletes_the_rows_that_nothing_references_any_more(
    removals: list[tuple[str, str, dict[str, int]]], tmp_path: File
) -> None:
    """A removed response that a session or another response names keeps a row with its id only."""
    file = tmp_path / "convo.db"
    fill_store(f"sqlite:{file}")
    assert count_rows(file) == ALL

    async def remove(kind: str, name: str) -> None:
        store = open_store(f"sqlite:{file}")
        await {
            "session": store.remove_session, "link": store.remove_link, "conversation": store.remove_conversation,
        }[kind](name)  # fmt: skip
        await store.aclose()

    for kind, name, counts in removals:
        asyncio.run(remove(kind, name))
        assert count_rows(file) == counts


OTHER = Path(ROOT).append([user_message("four")])
RESPONSE = link("resp_1", PATH.keys[0], PATH.head, parent_id="resp_0", session_id="ses_2", parameters={"a": 1})

CHANGES: dict[str, list[tuple[Transaction, dict[str, int]]]] = {
    "a session that names other responses": [
        (Transaction(session=session(link_id="resp_1")), {"nodes": 1, "sessions": 1, "links": 1}),
        (Transaction(session=session(link_id="resp_2")), {"nodes": 1, "sessions": 1, "links": 1}),
        (Transaction(session=session()), {"nodes": 1, "sessions": 1}),
    ],
    "a session that moves to another path": [
        (
            Transaction((AppendItems(ROOT, PATH.items),), session=session(head=PATH.head, file_head=PATH.keys[0])),
            {**TREE, "sessions": 1},
        ),
        (
            Transaction((AppendItems(ROOT, OTHER.items),), session=session(head=OTHER.head, file_head=PATH.keys[0])),
            {"items": 2, "hashes": 2, "nodes": 3, "terms": 2, "sessions": 1},
        ),
        (Transaction(session=session()), {"nodes": 1, "sessions": 1}),
    ],
    "a response in progress": [
        (
            Transaction((AppendItems(ROOT, PATH.items),), (replace(RESPONSE, status="in_progress"),)),
            {**TREE, "sessions": 1, "links": 2, "repeated": 2},
        ),
        (
            Transaction((), (replace(RESPONSE, head=PATH.keys[0], parent_id=None, session_id=None, parameters={}),)),
            {"items": 1, "hashes": 1, "nodes": 2, "terms": 1, "links": 1, "repeated": 1},
        ),
    ],
    "a conversation that moves to another path": [
        (
            Transaction(
                (AppendItems(ROOT, PATH.items),), conversation=Conversation("c", PATH.head, NOW, ("x", "y", "z"))
            ),
            {**TREE, "conversations": 1, "members": 3, "names": 3},
        ),
        (
            Transaction((AppendItems(ROOT, OTHER.items),), conversation=Conversation("c", OTHER.head, NOW, ("w",))),
            {"items": 1, "hashes": 1, "nodes": 2, "terms": 1, "conversations": 1, "members": 1, "names": 1},
        ),
        (Transaction(conversation=Conversation("c", ROOT, NOW, ())), {"nodes": 1, "conversations": 1}),
    ],
    "a conversation that grows by two items": [
        (
            Transaction(
                (AppendItems(ROOT, PATH.items[:1]),), conversation=Conversation("c", PATH.keys[0], NOW, ("x",))
            ),
            {"items": 1, "hashes": 1, "nodes": 2, "terms": 1, "conversations": 1, "members": 1, "names": 1},
        ),
        (
            Transaction(
                (AppendItems(PATH.keys[0], PATH.items[1:]),),
                conversation=Conversation("c", PATH.head, NOW, ("x", "y", "z")),
            ),
            {**TREE, "conversations": 1, "members": 3, "names": 3},
        ),
    ],
    "an item that is erased": [
        (
            Transaction(
                (AppendItems(ROOT, PATH.items),), conversation=Conversation("c", PATH.head, NOW, ("x", "y", "z"))
            ),
            {**TREE, "conversations": 1, "members": 3, "names": 3},
        ),
        (
            Transaction(erased_nodes=(PATH.keys[1],)),
            {"items": 2, "hashes": 2, "nodes": 4, "terms": 2, "conversations": 1, "members": 3, "names": 2},
        ),
    ],
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_a_changed_record_deletes_the_rows_that_only_it_referenced(
    changes: list[tuple[Transaction, dict[str, int]]], tmp_path: File
) -> None:
    file = tmp_path / "convo.db"

    async def commit(transaction: Transaction) -> None:
        store = SqliteStore(SqliteDatabase(file, inline=True))
        await store.commit(transaction)
        await store.aclose()

    for transaction, counts in changes:
        asyncio.run(commit(transaction))
        assert count_rows(file) == counts


def test_ended_runs_and_expired_leases_are_deleted_after_their_time(tmp_path: File) -> None:
    """A run without events is deleted when it ends."""
    file = tmp_path / "convo.db"
    fill_store(f"sqlite:{file}")

    async def change() -> list[int]:
        store = SqliteStore(SqliteDatabase(file, inline=True))
        await store.commit(Transaction((), (link("resp_4", ROOT),), started_run_id="resp_4"))
        for response in ("resp_2", "resp_4"):
            await store.commit(Transaction(ended_run_id=response))
        await store.acquire_lease("expired", "me", -10)
        await store.acquire_lease("held", "me", 60)
        deleted = [await store.admin.prune_events(60), await store.admin.prune_events(-120)]
        await store.aclose()
        return deleted

    assert asyncio.run(change()) == [0, 1]
    counts = count_rows(file)
    assert (counts["runs"], counts["events"]) == (1, 1)
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT link, ended_at FROM runs").fetchall() == [(2, None)]
        assert db.execute("SELECT name FROM leases").fetchall() == []


def test_only_leases_that_expired_are_deleted(tmp_path: File) -> None:
    file = tmp_path / "convo.db"

    async def change() -> None:
        store = SqliteStore(SqliteDatabase(file, inline=True))
        await store.acquire_lease("expired", "me", -10)
        await store.acquire_lease("held", "me", 60)
        await store.admin.prune_events(0)
        await store.aclose()

    asyncio.run(change())
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT name FROM leases").fetchall() == [("held",)]

"""A row with invalid JSON or columns raises DamagedRow where it is read; a list leaves it out and reports it."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from operator import methodcaller
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from convo.chat.conversation_list import ConversationQuery, list_conversations
from convo.errors import DamagedRow, StoreFault
from convo.history.records import Session
from convo.history.tree import Key, root_key
from convo.stores.base import Store, Transaction
from convo.stores.postgres.store import PostgresStore
from convo.stores.sqlite.store import SqliteStore
from tests.stores.chat_transactions import search_hits
from tests.stores.sample_store import fill_open_store

TOO_DEEP = "[" * 100_000


async def execute(store: Store, *statements: str) -> None:
    """Run SQL on the tables of a store; `@` before a table stands for the schema."""
    for statement in statements:
        if isinstance(store, PostgresStore):
            await store.database.run(partial(AsyncConnection.execute, query=statement.replace("@", "convo.")))
        else:
            assert isinstance(store, SqliteStore)
            await store.database.write(methodcaller("execute", statement.replace("@", "")))


async def fill_and_damage(store: Store, *statements: str) -> list[DamagedRow]:
    """Fill the store, run the statements, and return the list to which damaged rows are reported."""
    reported: list[DamagedRow] = []
    store.admin.set_damaged_row_observer(reported.append)
    await fill_open_store(store)
    await execute(store, *statements)
    return reported


async def head_of(store: Store, name: str) -> Key:
    session = await store.session(name)
    assert session
    return session.head


def check_error(error: DamagedRow, table: str, key: str, problem: str) -> None:
    assert (error.table, error.key, error.problem) == (table, key, problem)
    assert (error.code, error.exit, error.status) == ("store_damaged", 1, 500)
    assert error.message == f"the stored {table} {key!r} is damaged: {problem}"
    assert "convo store check" in error.hint
    assert "convo store recover" in error.hint
    assert isinstance(error, StoreFault)


RECORD_DAMAGES = {
    "no JSON": ("{", "its record is not valid JSON"),
    "NaN": ("[NaN]", "its record is not valid JSON"),
    "too deep": (TOO_DEEP, "its record is not valid JSON"),
    "an object": ("{}", "its record is invalid"),
    "too short": ('["session"]', "its record is invalid"),
    "an unknown strategy": ('["x", "a/b", 1.0, "embedded", null, null, null, null]', "its record is invalid"),
    "a strategy that is a list": ('[[], "a/b", 1.0, "embedded", null, null, null, null]', "its record is invalid"),
    "a model that is a number": ('["session", 1, 1.0, "embedded", null, null, null, null]', "its record is invalid"),
    "a time that is a text": ('["session", "a/b", "1", "embedded", null, null, null, null]', "its record is invalid"),
    "a handle that is a list": ('["session", "a/b", 1.0, "embedded", null, null, [], null]', "its record is invalid"),
}


@pytest.mark.parametrize(("record", "problem"), RECORD_DAMAGES.values(), ids=RECORD_DAMAGES)
async def test_a_damaged_session(store: Store, record: str, problem: str) -> None:
    reported = await fill_and_damage(store, f"UPDATE @sessions SET record = '{record}' WHERE id = 'ses_3'")

    assert [session.name for session in await store.sessions()] == ["early"]
    assert [session.name for session in await store.sessions(limit=1)] == ["early"]  # the damaged one is newer
    assert [error.key for error in reported] == ["late", "late"]
    for read in (store.session("late"), store.session("ses_3"), store.sessions(limit=1, strict=True)):
        with pytest.raises(DamagedRow) as caught:
            await read
        check_error(caught.value, "session", "late", problem)
    assert await store.session("early")


LINK_DAMAGES = {
    "an unknown status": ("UPDATE @links SET status = 'x' WHERE id = 'resp_3'", "its status is invalid"),
    "too few integers": ("UPDATE @links SET usage = '' WHERE id = 'resp_3'", "its usage is invalid"),
    "too many integers": ("UPDATE @links SET usage = '1,2' WHERE id = 'resp_3'", "its usage is invalid"),
    "a usage of text": ("UPDATE @links SET usage = '\"a\"' WHERE id = 'resp_3'", "its usage is invalid"),
    "an error that is no JSON": ("UPDATE @links SET error = '{' WHERE id = 'resp_3'", "its error is not valid JSON"),
    "an error that is a list": ("UPDATE @links SET error = '[]' WHERE id = 'resp_3'", "its error is invalid"),
}


@pytest.mark.parametrize(("statement", "problem"), LINK_DAMAGES.values(), ids=LINK_DAMAGES)
async def test_a_damaged_response(store: Store, statement: str, problem: str) -> None:
    reported = await fill_and_damage(store, statement)
    parent = await store.link("resp_2")
    assert parent

    lists = [
        await store.related_links("resp_2"),
        await store.conversation_links("conv_1"),
        await store.links("ses_2"),
        await store.links("ses_3"),
    ]
    assert [[link.id for link in links] for links in lists] == [["resp_2"], ["resp_2"], ["resp_2"], []]
    assert [error.key for error in reported] == ["resp_3"] * 3
    for read in (store.link("resp_3"), store.links("ses_3", strict=True), store.responses_to(parent.head)):
        with pytest.raises(DamagedRow) as caught:
            await read
        check_error(caught.value, "response", "resp_3", problem)


@pytest.mark.parametrize(
    ("body", "problem"),
    [("{", "its route is not valid JSON"), ("{}", "its route is invalid"), ("[1]", "its route is invalid")],
)
async def test_a_damaged_route_makes_its_responses_unreadable(store: Store, body: str, problem: str) -> None:
    reported = await fill_and_damage(store, f"UPDATE @repeated SET body = '{body}' WHERE body LIKE '%conv_1%'")

    assert await store.conversation_links("conv_1") == []
    assert [(error.key, error.problem) for error in reported] == [("resp_2", problem), ("resp_3", problem)]


async def test_damaged_parameters(store: Store) -> None:
    await fill_and_damage(store, "UPDATE @repeated SET body = '[]' WHERE body LIKE '%Be brief%'")

    with pytest.raises(DamagedRow) as caught:
        await store.link("resp_2")
    check_error(caught.value, "response", "resp_2", "its parameters is invalid")


@pytest.mark.parametrize(
    ("metadata", "problem"), [("{", "its metadata is not valid JSON"), ("[]", "its metadata is invalid")]
)
async def test_a_damaged_conversation(store: Store, metadata: str, problem: str) -> None:
    await fill_and_damage(store, f"UPDATE @conversations SET metadata = '{metadata}'")

    with pytest.raises(DamagedRow) as caught:
        await store.conversation("conv_1")
    check_error(caught.value, "conversation", "conv_1", problem)
    assert [match.id for match in await store.find_handles("conv_")] == ["conv_1"]


RUN_DOCUMENTS = {
    SqliteStore: "UPDATE @agent_documents SET body = {}",
    PostgresStore: "UPDATE @agent_runs SET document = convert_to({}, 'UTF8')",
}


@pytest.mark.parametrize(
    ("document", "problem"),
    [("{", "its document is not valid JSON"), ("[]", None), (TOO_DEEP, "its document is not valid JSON")],
)
async def test_a_damaged_agent_run(store: Store, document: str, problem: str | None) -> None:
    kind = PostgresStore if isinstance(store, PostgresStore) else SqliteStore
    reported = await fill_and_damage(store, RUN_DOCUMENTS[kind].format(f"'{document}'"))

    assert await store.agent_runs() == []
    assert await store.agent_runs(status="paused") == []
    assert [error.key for error in reported] == ["run_1", "run_1"]
    for read in (store.agent_run("run_1"), store.agent_runs(session_id="ses_3", limit=1)):
        with pytest.raises(DamagedRow) as caught:
            await read
        assert (caught.value.table, caught.value.key) == ("run", "run_1")
        assert problem in (None, caught.value.problem)


async def test_a_run_of_a_state_is_never_left_out(store: Store) -> None:
    await fill_and_damage(store, "UPDATE @agent_runs SET status = 'x', state = 'h1'")

    with pytest.raises(DamagedRow) as caught:
        await store.agent_runs(source_state_hash="h1", limit=1)
    check_error(caught.value, "run", "run_1", "its status is invalid")


async def test_a_damaged_tool_output(store: Store) -> None:
    await fill_and_damage(store, "UPDATE @agent_calls SET output = '{'")

    with pytest.raises(DamagedRow) as caught:
        await store.agent_calls("run_1")
    check_error(caught.value, "tool call", "run_1 call_1", "it contains invalid JSON")


@pytest.mark.parametrize("body", ["{", "[[]]", "{}", '[{"type": "x"}]'])
async def test_a_damaged_event(store: Store, body: str) -> None:
    await fill_and_damage(store, f"UPDATE @events SET body = '{body}'")

    with pytest.raises(DamagedRow) as caught:
        await store.events("resp_2")
    assert (caught.value.table, caught.value.key) == ("event", "of resp_2")


ITEM_BODIES = {SqliteStore: "UPDATE @items SET body = {}", PostgresStore: "UPDATE @items SET body = {}::bytea"}


@pytest.mark.parametrize("body", ["{", "1, 2, 3", "", "\u00ff"])
async def test_a_damaged_item(store: Store, body: str) -> None:
    kind = PostgresStore if isinstance(store, PostgresStore) else SqliteStore
    value = f"'{body}'" if kind is SqliteStore else f"'\\x{body.encode().hex()}'"
    reported = await fill_and_damage(store, ITEM_BODIES[kind].format(value))

    head, root = await head_of(store, "late"), root_key(store.tenant)
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: store.path(head),
        lambda: store.items_after(head, root),
    ]
    for read in reads:
        with pytest.raises(DamagedRow) as caught:
            await read()
        assert (caught.value.table, caught.value.problem) == ("item", "its body is not valid JSON")

    stats = await store.session_stats("ses_3")
    assert (stats.item_count, stats.turn_count, stats.first_item) == (3, 1, None)
    assert [(match.kind, match.label) for match in await store.find_handles("resp_2")] == [("response", "")]
    assert len(reported) == 2
    assert await search_hits(store, "two") == []
    assert len(reported) == 3


async def test_two_items_in_one_body_are_no_history(store: Store) -> None:
    """The items of a path are decoded together: each body must be exactly one item."""
    kind = PostgresStore if isinstance(store, PostgresStore) else SqliteStore
    body = b'{"type":"message"},{"type":"message"}'
    value = f"'{body.decode()}'" if kind is SqliteStore else f"'\\x{body.hex()}'"
    await fill_and_damage(store, ITEM_BODIES[kind].format(value))

    with pytest.raises(DamagedRow):
        await store.path(await head_of(store, "early"))


async def test_a_search_leaves_a_damaged_session_out(store: Store) -> None:
    reported = await fill_and_damage(store, "UPDATE @sessions SET record = '{' WHERE id = 'ses_3'")

    page = await list_conversations(store, ConversationQuery("one"))
    assert {row.session.name for row in page.rows} == {"early", "conv_1"}
    assert {error.key for error in reported} == {"late"}


async def test_a_history_without_its_beginning(store: Store) -> None:
    await fill_and_damage(store)
    path = await store.path(await head_of(store, "late"))
    first = path.keys[0]
    if isinstance(store, PostgresStore):
        await execute(store, f"UPDATE @nodes SET parent = NULL WHERE replace(id::text, '-', '') = '{first[:32]}'")
    else:
        await execute(store, f"UPDATE @nodes SET parent = NULL WHERE hex(key) = '{first.upper()}'")

    with pytest.raises(DamagedRow) as caught:
        await store.path(path.head)
    check_error(caught.value, "history", path.head[:12], "its beginning is missing")


async def test_a_prune_does_not_guess_the_handle_of_a_damaged_session(store: Store) -> None:
    """The session may continue any conversation, so none of them may be removed."""
    await fill_and_damage(store, "UPDATE @sessions SET record = '{', used_at = 9e9")

    with pytest.raises(DamagedRow):
        await store.admin.prune("local", 5e9, dry_run=False)
    assert await store.conversation("conv_1")


async def test_a_damaged_response_is_not_overwritten(store: Store) -> None:
    await fill_and_damage(store)
    stored = await store.link("resp_3")
    assert stored
    await execute(store, "UPDATE @links SET error = '{' WHERE id = 'resp_3'")

    if isinstance(store, SqliteStore):  # PostgreSQL fills in empty columns of a final response without reading it
        with pytest.raises(DamagedRow):
            await store.commit(Transaction(links=(stored,)))


async def test_damaged_rows_are_logged_without_an_observer(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    await fill_open_store(store)
    await execute(store, "UPDATE @sessions SET record = '{' WHERE id = 'ses_3'")

    with caplog.at_level(logging.WARNING):
        await store.sessions()
    assert caplog.messages == ["the stored session 'late' is damaged: its record is not valid JSON; it was left out"]


async def test_a_caller_can_report_a_row(store: Store) -> None:
    reported = await fill_and_damage(store)
    error = DamagedRow("run", "run_1", "its document is incomplete")
    store.for_tenant("other").report_damaged_row(error)
    assert reported == [error]


# -- SQLite alone ---------------------------------------------------------------------------------

NOT_UTF8 = "CAST(x'66ff' AS TEXT)"

NULLABLE_COLUMNS = {
    "a session without a head": ("UPDATE sessions SET head = NULL WHERE name = 'late'", "its head is missing"),
    "a session without a confirmed head": (
        "UPDATE sessions SET mark = NULL WHERE name = 'late'",
        "its confirmed head is missing",
    ),
    "a session without a record": ("UPDATE sessions SET record = NULL WHERE name = 'late'", "its record is missing"),
    "a session without a time": ("UPDATE sessions SET used_at = NULL WHERE name = 'late'", "its time is missing"),
    "a record that is not UTF-8": (
        f"UPDATE sessions SET record = {NOT_UTF8} WHERE name = 'late'",
        "its record is not valid JSON",
    ),
}


@pytest.mark.parametrize(("statement", "problem"), NULLABLE_COLUMNS.values(), ids=NULLABLE_COLUMNS)
async def test_a_session_with_a_damaged_column(sqlite: SqliteStore, statement: str, problem: str) -> None:
    reported = await fill_and_damage(sqlite, statement)

    assert [session.name for session in await sqlite.sessions()] == ["early"]
    (error,) = reported
    check_error(error, "session", "late", problem)
    with pytest.raises(DamagedRow):
        await sqlite.session("ses_3")


async def test_names_that_are_not_utf8(sqlite: SqliteStore) -> None:
    reported = await fill_and_damage(
        sqlite,
        f"UPDATE sessions SET name = {NOT_UTF8} WHERE name = 'late'",
        f"UPDATE links SET status = {NOT_UTF8} WHERE id = 'resp_3'",
        f"UPDATE agent_runs SET status = {NOT_UTF8}",
    )

    assert [session.name for session in await sqlite.sessions()] == ["early"]
    assert [link.id for link in await sqlite.related_links("resp_2")] == ["resp_2"]
    assert await sqlite.agent_runs() == []
    assert [match.id for match in await sqlite.find_handles("ses_")] == ["ses_2"]
    assert [(error.table, error.key, error.problem) for error in reported] == [
        ("session", "f\ufffd", "its name is invalid"),
        ("response", "resp_3", "its status is invalid"),
        ("run", "run_1", "its status is invalid"),
        ("session", "ses_3", "its name is invalid"),
    ]


async def test_rows_that_refer_to_missing_rows(sqlite: SqliteStore, file: Path) -> None:
    reported = await fill_and_damage(sqlite)
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE sessions SET head = 99 WHERE name = 'late'")
        db.execute("UPDATE links SET route = 99 WHERE id = 'resp_3'")
        db.execute("UPDATE conversations SET head = 99")
        db.execute("DELETE FROM agent_documents")
        db.commit()

    assert [session.name for session in await sqlite.sessions()] == ["early"]
    assert await sqlite.links("ses_3") == []
    assert await sqlite.agent_runs() == []
    assert [error.problem for error in reported] == [
        "its head is missing",
        "its route is missing",
        "its document is missing",
    ]
    with pytest.raises(DamagedRow):
        await sqlite.conversation("conv_1")


async def test_a_row_with_only_an_id_is_no_session(sqlite: SqliteStore) -> None:
    """A removed session leaves its id where links of other sessions need it."""
    reported = await fill_and_damage(sqlite)
    await sqlite.remove_session("ses_2")

    sessions: list[Session] = [*await sqlite.sessions()]
    assert [session.name for session in sessions] == ["late"]
    assert await sqlite.session("ses_2") is None
    assert reported == []

"""The check of a PostgreSQL server, database and role, and of every row, without changing them."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import astuple

import psycopg
import pytest

from convo.errors import StoreTooNew
from convo.stores.base import NamedSession, ServerHealth
from convo.stores.factory import check_store, probe_store
from convo.stores.postgres.connection import SCHEMA_VERSION
from tests import databases
from tests.stores.sample_store import fill_store

pytestmark = pytest.mark.needs("postgresql")


async def probe(url: str) -> ServerHealth:
    health = await probe_store(url)
    assert isinstance(health, ServerHealth)
    return health


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement)


async def test_a_complete_database_has_no_missing_parts(url: str) -> None:
    health = await probe(url)

    assert (health.role, health.schema_version, health.latest_schema_version) == (
        "postgres",
        SCHEMA_VERSION,
        SCHEMA_VERSION,
    )
    assert (health.missing_privileges, health.is_read_only, health.can_create_schema) == ([], False, True)
    assert health.server_version >= 120_000


async def test_a_database_without_tables_is_reported_and_unchanged(url_without_tables: str) -> None:
    assert (await probe(url_without_tables)).schema_version == 0
    assert (await probe(url_without_tables)).schema_version == 0


async def test_a_newer_database_is_refused(url: str) -> None:
    execute(url, "INSERT INTO convo.migrations (number) VALUES (99)")
    with pytest.raises(StoreTooNew):
        await probe(url)


async def test_every_missing_right_of_a_role_is_named(url: str) -> None:
    role = f"app_{databases.database_name(url)}"
    execute(url, f"CREATE ROLE {role} LOGIN")
    role_url = databases.as_role(url, role)
    try:
        health = await probe(role_url)
        assert (health.schema_version, health.can_create_schema) == (None, False)
        assert health.missing_privileges == ["USAGE", "SELECT", "INSERT", "UPDATE", "DELETE"]

        execute(url, f"GRANT USAGE ON SCHEMA convo TO {role}", f"GRANT SELECT ON ALL TABLES IN SCHEMA convo TO {role}")
        health = await probe(role_url)
        assert (health.schema_version, health.missing_privileges) == (SCHEMA_VERSION, ["INSERT", "UPDATE", "DELETE"])

        execute(url, f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA convo TO {role}")
        execute(url, f"REVOKE DELETE ON convo.leases FROM {role}")
        assert (await probe(role_url)).missing_privileges == ["DELETE"]
    finally:
        execute(url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_the_rights_to_partitions_are_those_to_their_table() -> None:
    database_url = databases.new_database(partitions=2)
    role = f"app_{databases.database_name(database_url)}"
    tables = ", ".join(f"convo.{name}" for name in (*databases.TABLES, "migrations"))
    execute(database_url, f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA convo TO {role}")
    execute(database_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}")
    health = await probe(databases.as_role(database_url, role))
    execute(database_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    databases.drop(database_url)

    assert (health.schema_version, health.missing_privileges) == (SCHEMA_VERSION, [])


async def test_a_read_only_database_is_reported(url: str) -> None:
    execute(url, f"ALTER DATABASE {databases.database_name(url)} SET default_transaction_read_only = on")

    assert (await probe(url)).is_read_only


@pytest.mark.needs("pgbouncer")
async def test_the_check_through_a_transaction_pooler_reports_the_same() -> None:
    health = await probe(databases.through_pgbouncer(databases.cleared_database()))

    assert (health.schema_version, health.missing_privileges, health.is_read_only) == (SCHEMA_VERSION, [], False)


@pytest.mark.needs("postgresql 12")
async def test_the_check_of_the_oldest_server_reports_the_same() -> None:
    url = databases.cleared_database(databases.OLDEST)
    role = f"app_{databases.database_name(url)}"
    execute(url, f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA convo TO {role}")
    health, role_health = await probe(url), await probe(databases.as_role(url, role))
    execute(url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")

    assert health.server_version // 10_000 == 12
    assert (health.schema_version, health.missing_privileges) == (SCHEMA_VERSION, [])
    assert (role_health.schema_version, role_health.missing_privileges) == (
        None,
        ["SELECT", "INSERT", "UPDATE", "DELETE"],
    )


# -- the rows -------------------------------------------------------------------------------------

ROOT, FIRST_NODE = "068d08196341b65c362ace172837c8fc", "d1b1ca45ff165e2dd38bb4925b49b060"
SECOND_NODE, THIRD_NODE = "a8603defad91f92866c0c1a34fbc91c5", "82a8659a1160ff2068c7568f4c60e93c"
FIRST_ITEM = "0631f367ca0e8e800571ab5a6488d1a9"
"""The item with the lowest hash: "one"."""

NO_UUID = "'00000000-0000-0000-0000-000000000000'"
NO_KEY = "has a key that does not match its parent and its item"
NO_HASH = "does not have the hash that it is stored under"
NOT_ON_PATH = ("conversation", 1, "conversation conv_1 names items that are not on its path")

PROBLEMS: dict[str, tuple[str, list[tuple[str, int, str]], list[str]]] = {
    "an item that is not JSON": (
        f"UPDATE convo.items SET body = '{{' WHERE hash = '{FIRST_ITEM}'",
        [("item", 1, f"item {FIRST_ITEM} {NO_HASH}"), ("node", 1, f"node {FIRST_NODE} {NO_KEY}")],
        ["early", "late"],
    ),
    "items that are not objects": (
        "UPDATE convo.items SET body = '[]'",
        [("item", 3, f"item {FIRST_ITEM} {NO_HASH}"), ("node", 3, f"node {THIRD_NODE} {NO_KEY}")],
        ["early", "late"],
    ),
    "items with the hash of an id": (
        "UPDATE convo.items SET named = 7",
        [("index", 3, f"item {FIRST_ITEM} is not found by its id")],
        [],
    ),
    "items with other terms": (
        "UPDATE convo.words SET terms = '{1}'",
        [("search", 3, f"the search index lacks terms of item {FIRST_ITEM}")],
        [],
    ),
    "items without terms": (
        "DELETE FROM convo.words",
        [("search", 3, f"the search index lacks terms of item {FIRST_ITEM}")],
        [],
    ),
    "a node with another key": (
        f"UPDATE convo.nodes SET rest = {NO_UUID} WHERE depth = 3",
        [("node", 1, f"node {THIRD_NODE} {NO_KEY}")],
        ["late"],
    ),
    "a node without a parent": (
        "UPDATE convo.nodes SET parent = NULL WHERE depth = 2",
        [("node", 1, f"node {SECOND_NODE} has no parent and is not its tenant's root"), NOT_ON_PATH],
        ["early", "late"],
    ),
    "a node with a parent that does not exist": (
        f"UPDATE convo.nodes SET parent = {NO_UUID} WHERE depth = 3",
        [
            ("reference", 1, "nodes.parent refers to a row of nodes that does not exist"),
            ("node", 1, f"node {THIRD_NODE} lacks its parent or its item"),
            NOT_ON_PATH,
        ],
        ["late"],
    ),
    "a node with another depth": (
        "UPDATE convo.nodes SET depth = 7 WHERE depth = 3",
        [("node", 1, f"node {THIRD_NODE} has a depth that is not one more than its parent's")],
        ["late"],
    ),
    "a root with a depth": (
        "UPDATE convo.nodes SET depth = 1 WHERE depth = 0",
        [("node", 2, f"node {ROOT} has no parent and is not its tenant's root")],
        ["early", "late"],
    ),
    "a node without its item, which was deleted": ("UPDATE convo.nodes SET item = NULL WHERE depth = 2", [], []),
    "nodes without their items": (
        "DELETE FROM convo.items",
        [
            ("reference", 6, "nodes.item refers to a row of items that does not exist"),
            ("node", 3, f"node {THIRD_NODE} lacks its parent or its item"),
        ],
        ["early", "late"],
    ),
    "heads that do not exist": (
        "DELETE FROM convo.nodes WHERE depth = 3",
        [("reference", 5, "conversations.head refers to a row of nodes that does not exist"), NOT_ON_PATH],
        ["late"],
    ),
    "parameters with another hash, and a record that is not JSON": (
        "UPDATE convo.repeated SET body = body || '1'; UPDATE convo.sessions SET record = '{' WHERE id = 'ses_3'",
        [("record", 3, f"repeated 6a469fbd1f8f3a07c38e00e368808e76 {NO_HASH}")],
        [],
    ),
    "records without their fields": (
        "UPDATE convo.sessions SET record = '[1]'",
        [("record", 2, "session 'early' has a record that cannot be read")],
        [],
    ),
    "a tenant with another name": (
        "UPDATE convo.tenants SET name = 'guest'",
        [("tenant", 1, "tenant 'guest' is stored under another tenant's number")],
        [],
    ),
    "an id of another item": (
        "UPDATE convo.members SET node = (SELECT id FROM convo.nodes WHERE depth = 0) WHERE id = 'a'",
        [("conversation", 2, "conversation conv_1 has items without an id")],
        [],
    ),
    "an item without its id": (
        "DELETE FROM convo.members WHERE id = 'a'",
        [("conversation", 1, "conversation conv_1 has items without an id")],
        [],
    ),
    "an agent run without its session": (
        "DELETE FROM convo.sessions",
        [("reference", 1, "agent_runs.session refers to a row of sessions that does not exist")],
        [],
    ),
}


CHANGED_TABLES = (
    *("items", "nodes", "words", "repeated", "sessions", "conversations", "members", "tenants"),
    *("links", "agent_runs", "agent_calls", "events"),
)


@pytest.fixture(scope="module")
def filled_url() -> Iterator[str]:
    """A database with two sessions, a conversation, events and an agent run, and a copy of the tables to damage."""
    url = databases.new_database()
    fill_store(url)
    execute(url, "CREATE SCHEMA copy", *(f"CREATE TABLE copy.{name} AS TABLE convo.{name}" for name in CHANGED_TABLES))
    yield url
    databases.drop(url)


@pytest.fixture
def damage(filled_url: str) -> Iterator[Callable[[str], object]]:
    """Execute a statement that the server refuses otherwise. After the test, the rows are as before."""
    with psycopg.connect(filled_url, autocommit=True) as db:
        db.execute("SET session_replication_role = replica")
        yield db.execute
        for name in CHANGED_TABLES:
            db.execute(f"DELETE FROM convo.{name}; INSERT INTO convo.{name} SELECT * FROM copy.{name}")


@pytest.mark.parametrize(("statements", "problems", "damaged_sessions"), PROBLEMS.values(), ids=PROBLEMS)
def test_every_row_is_checked_and_only_sessions_with_a_damaged_path_are_listed(
    statements: str,
    problems: list[tuple[str, int, str]],
    damaged_sessions: list[str],
    filled_url: str,
    damage: Callable[[str], object],
) -> None:
    damage(statements)
    report = asyncio.run(check_store(filled_url, lambda *_: None))

    assert [astuple(one) for one in report.problems if one.code != "row"] == problems
    assert report.damaged_sessions == [NamedSession("local", name) for name in damaged_sessions]
    assert report.skipped_reason == ""


DAMAGED_ROWS = {
    "UPDATE convo.links SET status = 'x' WHERE id = 'resp_3'": ["response resp_3: its status is invalid"],
    "UPDATE convo.repeated SET body = '{' WHERE body LIKE '%conv_1%'": [
        "response resp_2: its route is not valid JSON",
        "response resp_3: its route is not valid JSON",
    ],
    "UPDATE convo.sessions SET record = '{' WHERE id = 'ses_3'": ["session late: its record is not valid JSON"],
    "UPDATE convo.conversations SET metadata = '[]'": ["conversation conv_1: its metadata is invalid"],
    "UPDATE convo.conversations SET head = '00000000-0000-0000-0000-000000000000'": [
        "conversation conv_1: its head is missing"
    ],
    "UPDATE convo.agent_calls SET output = '{'": ["tool call run_1 call_1: it contains invalid JSON"],
    "UPDATE convo.agent_runs SET document = ''": ["run run_1: its document is not valid JSON"],
    "UPDATE convo.events SET body = '{}'": [
        "event of resp_2: its body is invalid",
        "event of resp_3: its body is invalid",
    ],
}


@pytest.mark.parametrize(("statement", "rows"), DAMAGED_ROWS.items(), ids=DAMAGED_ROWS)
def test_damaged_rows_are_listed(
    statement: str, rows: list[str], filled_url: str, damage: Callable[[str], object]
) -> None:
    damage(statement)
    report = asyncio.run(check_store(filled_url, lambda *_: None))

    assert [f"{row.table} {row.key}: {row.problem}" for row in report.damaged_rows] == rows
    assert [one.count for one in report.problems if one.code == "row"] == [len(rows)]


def test_a_check_counts_the_rows_and_reports_its_steps(filled_url: str) -> None:
    steps: list[tuple[str, int, int]] = []
    report = asyncio.run(check_store(filled_url, lambda *step: steps.append(step)))

    assert report.row_counts == {
        "items": 3, "nodes": 4, "sessions": 2, "links": 2, "conversations": 1, "agent_runs": 1, "events": 2,
        "files": 0,
    }  # fmt: skip
    assert (report.problems, report.damaged_sessions, report.skipped_reason) == ([], [], "")
    decoded = [("sessions", 2, 2), ("links", 2, 2), ("conversations", 1, 1), ("agent_runs", 1, 1)]
    assert steps == [("items", 3, 3), ("nodes", 4, 4), ("records", 2, 0), ("sessions", 2, 2), *decoded]

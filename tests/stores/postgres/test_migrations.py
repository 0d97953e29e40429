"""Migrations of a PostgreSQL database, and the privileges that they need."""

from asyncio import gather
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from convo.errors import StoreReadOnly, StoreTooNew, StoreUnavailable
from convo.history.items import user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Transaction, run_lease_name
from convo.stores.codec import LISTED_COLUMNS
from convo.stores.factory import store_schema_sql
from convo.stores.postgres import connection
from convo.stores.postgres.connection import (
    MIGRATIONS_FOLDER,
    SCHEMA_VERSION,
    PostgresDatabase,
)
from convo.stores.postgres.store import PostgresStore
from convo.stores.request_list import RequestQuery
from tests import databases
from tests.stores.chat_transactions import NOW, link, search_hits, session
from tests.stores.test_agent_runs import CALL, RUN, next_revision
from tests.stores.test_request_list import store_requests
from tests.stores.test_tenants import everything

pytestmark = pytest.mark.needs("postgresql")

ROOT = root_key("local")
ALL_MIGRATIONS = list(range(1, SCHEMA_VERSION + 1))

DESCRIPTION = """
SELECT relname, relkind, attname, format_type(atttypid, atttypmod), attnotnull, attstorage, reloptions
FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
WHERE relnamespace = 'convo'::regnamespace AND attnum > 0 AND NOT attisdropped ORDER BY relname, attnum
"""


@asynccontextmanager
async def open_postgres(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(PostgresDatabase(url))
    try:
        yield store
    finally:
        await store.aclose()


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement)


def describe_tables(url: str) -> list[object]:
    with psycopg.connect(url) as db:
        return list(db.execute(DESCRIPTION).fetchall())


def test_the_last_migration_is_the_schema() -> None:
    assert sorted(int(file.name[:4]) for file in MIGRATIONS_FOLDER.glob("*.sql")) == ALL_MIGRATIONS


async def test_replicas_that_start_together_migrate_once(url_without_tables: str) -> None:
    async with (
        open_postgres(url_without_tables) as one,
        open_postgres(url_without_tables) as two,
        open_postgres(url_without_tables) as three,
    ):
        migrations = await gather(*(store.admin.migrate() for store in (one, two, three)))
        await gather(*(store.admin.check_ready() for store in (one, two, three)))

    assert sorted(map(list, migrations)) == [[], [], ALL_MIGRATIONS]


async def test_an_unmigrated_database_names_the_migrate_command(url_without_tables: str) -> None:
    async with open_postgres(url_without_tables) as store:
        for operation in (store.sessions, store.admin.check_ready, lambda: store.commit(everything("local"))):
            with pytest.raises(StoreUnavailable, match="lacks tables") as caught:
                await operation()
            assert caught.value.hint == "convo store migrate"

        await store.admin.migrate()
        await store.commit(everything("local"))
        assert len(await store.sessions()) == 1


async def test_a_database_of_a_newer_schema_is_unchanged(url: str) -> None:
    execute(url, "INSERT INTO convo.migrations (number) VALUES (99)")
    async with open_postgres(url) as store:
        for operation in (store.sessions, store.admin.check_ready, store.admin.migrate):
            with pytest.raises(StoreTooNew) as caught:
                await operation()
            assert (caught.value.found_schema, caught.value.known_schema) == (99, SCHEMA_VERSION)


async def test_a_migration_that_fails_half_way_changes_nothing(url_without_tables: str) -> None:
    execute(url_without_tables, "CREATE SCHEMA convo", "CREATE TABLE convo.leases (in_the_way integer)")
    async with open_postgres(url_without_tables) as store:
        with pytest.raises(StoreUnavailable, match="already exists"):
            await store.admin.migrate()

    with psycopg.connect(url_without_tables) as db:
        tables = "SELECT relname FROM pg_class WHERE relnamespace = 'convo'::regnamespace"
        assert db.execute(tables).fetchall() == [("leases",)]


async def test_the_printed_statements_create_the_same_tables_as_a_migration(url: str, url_without_tables: str) -> None:
    async with open_postgres(url_without_tables) as store:
        await store.admin.migrate()
    printed_url = databases.new_database(schema=False)
    execute(printed_url, store_schema_sql(printed_url))

    assert describe_tables(printed_url) == describe_tables(url_without_tables) != []
    async with open_postgres(printed_url) as store:
        assert list(await store.admin.migrate()) == []
    databases.drop(printed_url)


DOWNGRADE_TO_6 = (
    *("DROP INDEX convo.links_without_title", "DROP INDEX convo.links_by_time"),
    "DROP FUNCTION convo.clear_request_sums CASCADE",
    *("DROP TABLE convo.request_sums", "DROP TABLE convo.unstored_requests"),
    *(f"ALTER TABLE convo.links DROP COLUMN {column}" for column in LISTED_COLUMNS),
    "DELETE FROM convo.migrations WHERE number > 6",
)
DOWNGRADE_TO_3 = (
    *DOWNGRADE_TO_6,
    "ALTER TABLE convo.links DROP COLUMN sent_body",
    *("DROP TABLE convo.files", "DROP TABLE convo.file_contents", "DROP TABLE convo.approval_decisions"),
    "DELETE FROM convo.migrations WHERE number > 3",
)
DOWNGRADE_TO_2 = (
    *DOWNGRADE_TO_3,
    *("DROP INDEX convo.sessions_by_use", "ALTER TABLE convo.sessions DROP COLUMN used"),
    "DELETE FROM convo.migrations WHERE number > 2",
)
DOWNGRADE_TO_1 = (
    *DOWNGRADE_TO_2,
    *("DROP TABLE convo.agent_calls", "DROP TABLE convo.agent_runs"),
    "DELETE FROM convo.migrations WHERE number > 1",
)


@pytest.mark.parametrize("partitions", [0, 3])
async def test_a_database_of_schema_1_keeps_its_rows_and_gains_the_missing_tables(partitions: int) -> None:
    """The new tables have as many partitions as the existing ones."""
    url, first = databases.new_database(partitions=partitions), databases.new_database(schema=False)
    current = describe_tables(url)
    async with open_postgres(url) as store:
        await store.commit(everything("local"))
    execute(url, *DOWNGRADE_TO_1)
    execute(first, databases.schema_1_sql(partitions))
    assert describe_tables(url) == describe_tables(first) != current

    async with open_postgres(url) as store:
        with pytest.raises(StoreUnavailable, match="lacks tables"):
            await store.sessions()
        assert list(await store.admin.migrate()) == ALL_MIGRATIONS[1:]
        assert [one.name for one in await store.sessions()] == ["one"]
        await store.commit(Transaction(agent_run=RUN, agent_calls=(CALL,)))
        assert await store.agent_run("run_1") == RUN
    assert describe_tables(url) == current
    for database_url in (url, first):
        databases.drop(database_url)


async def test_the_columns_of_requests_of_schema_6_are_computed_by_the_migration(url: str) -> None:
    select_links = f"SELECT id, {', '.join(LISTED_COLUMNS)} FROM convo.links ORDER BY id"
    async with open_postgres(url) as store:
        await store_requests(store)
        before = await store.list_requests(RequestQuery())
    with psycopg.connect(url) as db:
        rows = db.execute(select_links).fetchall()
    execute(url, *DOWNGRADE_TO_6)
    async with open_postgres(url) as store:
        assert list(await store.admin.migrate()) == [7, 8, 9]
        with psycopg.connect(url) as db:
            assert db.execute(select_links).fetchall() == rows
        assert await store.list_requests(RequestQuery()) == before


async def test_sessions_of_schema_2_keep_their_order(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """An older version of convo that is still connected may add sessions. They count as the last used."""
    async with open_postgres(url) as store:
        for name, used_at in (("early", 100.0), ("late", 300.0), ("between", 200.0)):
            await store.commit(Transaction(session=session(id=f"ses_{name}", name=name, head=ROOT, used_at=used_at)))
    execute(url, *DOWNGRADE_TO_2)
    async with open_postgres(url) as store:
        with psycopg.connect(url):
            assert list(await store.admin.migrate()) == ALL_MIGRATIONS[2:]
        assert ["which another process has open" in message for message in caplog.messages] == [True]
        assert [one.name for one in await store.sessions()] == ["late", "between", "early"]
        columns = "tenant, used_at, head, mark, id, name, link, record"
        values = columns.replace("used_at", "10.0").replace(" id, name", " 'ses_old', 'old'")
        execute(url, f"INSERT INTO convo.sessions ({columns}) SELECT {values} FROM convo.sessions WHERE name = 'early'")
        assert [one.name for one in await store.sessions()] == ["old", "late", "between", "early"]
        early = await store.session("early")
        assert early
        await store.commit(
            Transaction(session=replace(early, used_at=50.0, use_order=None), expected_session_head=early.head)
        )
        old = await store.session("old")
        assert old
        await store.commit(
            Transaction(session=replace(old, used_at=20.0, use_order=None), expected_session_head=old.head)
        )
        assert [one.name for one in await store.sessions()] == ["old", "early", "late", "between"]


async def test_the_missing_migrations_of_an_old_database_can_be_printed_alone(url: str) -> None:
    current = describe_tables(url)
    execute(url, *DOWNGRADE_TO_1, connection.schema_sql(after_migration=1))

    assert describe_tables(url) == current
    assert connection.schema_sql(after_migration=SCHEMA_VERSION) == ""


def test_every_key_reference_and_unique_index_begins_with_the_tenant(url: str) -> None:
    """`migrations` and `secrets` belong to the whole database. All other tables can be partitioned by tenant."""
    first_columns = """
    SELECT indrelid::regclass::text, attname FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
        JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
    WHERE relnamespace = 'convo'::regnamespace AND indisunique
    UNION SELECT conrelid::regclass::text, attname FROM pg_constraint
        JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
    WHERE connamespace = 'convo'::regnamespace AND contype IN ('p', 'f', 'u')
    """
    with psycopg.connect(url) as db:
        others = {row for row in db.execute(first_columns).fetchall() if row[1] != "tenant"}

    assert others == {("convo.migrations", "number"), ("convo.secrets", "name")}


def test_tables_can_be_partitioned_into_any_number() -> None:
    database_url = databases.new_database(partitions=3)
    with psycopg.connect(database_url) as db:
        tables = "SELECT count(*) FILTER (WHERE relkind = 'p'), count(*) FILTER (WHERE relispartition) FROM pg_class"
        row = db.execute(f"{tables} WHERE relnamespace = 'convo'::regnamespace AND relkind IN ('r', 'p')").fetchone()
    databases.drop(database_url)

    assert row is not None
    assert row[0] == len(databases.TABLES) - 1  # `secrets` belongs to the whole database and is not partitioned
    assert row[1] == 3 * row[0]


async def test_a_role_with_rights_to_rows_only_can_do_everything_but_migrate(url: str, url_without_tables: str) -> None:
    role = f"app_{databases.database_name(url)}"
    execute(
        url,
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA convo TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA convo TO {role}",
    )
    async with open_postgres(databases.as_role(url_without_tables, role)) as store:
        with pytest.raises(StoreReadOnly):
            await store.admin.migrate()
    async with open_postgres(databases.as_role(url, role)) as store:
        assert list(await store.admin.migrate()) == []
        await use_every_record(store)
    execute(url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def use_every_record(store: PostgresStore) -> None:
    """Write, read and remove every kind of record."""
    await store.commit(everything("local"))
    path = Path(ROOT).append([user_message("hi there"), user_message("and more")])
    running = link("resp_2", path.head, status="in_progress", conversation_id="conv_1", created_at=NOW + 1)
    await store.commit(Transaction((AppendItems(ROOT, path.items),), (running,), started_run_id="resp_2"))
    lease = await store.acquire_lease(run_lease_name("resp_2"), "me", 60)
    await store.append_events("resp_2", [{"sequence_number": 0}])
    assert await store.admin.abandoned_runs() == []
    await store.release_lease(lease)
    assert [one.response_id for one in await store.admin.abandoned_runs()] == ["resp_2"]
    await store.commit(Transaction(links=(link("resp_2", path.head),), ended_run_id="resp_2"))
    assert len(await store.events("resp_2")) == 1
    assert await store.admin.prune_events(-60) == 1
    assert {hit.owner for hit in await search_hits(store, "hi")} == {"one", "conv_1", "resp_2"}
    assert (len(await store.find_handles("")), len(await store.sessions())) == (4, 1)
    assert await store.admin.get_or_create_secret("seal", b"1") == b"1"
    assert len(await store.admin.tenant_stats()) == 1
    await store.commit(Transaction(erased_nodes=(path.head,), agent_run=RUN, agent_calls=(CALL,)))
    await store.commit(Transaction(agent_run=next_revision(), agent_calls=(CALL._replace(has_ended=True),)))
    assert [len(await store.agent_runs()), len(await store.agent_calls("run_1"))] == [1, 1]
    await store.remove_link("resp_2")
    await store.remove_conversation("conv_1")
    assert (await store.admin.prune("local", NOW + 60, dry_run=True)).sessions == 1
    await store.admin.prune("local", NOW + 60, dry_run=False)
    assert await store.admin.tenant_stats() == []

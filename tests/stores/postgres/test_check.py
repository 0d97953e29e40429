"""`probe_store` reports on a PostgreSQL server, database and role without changing them."""

import psycopg
import pytest

from convo.errors import StoreTooNew
from convo.stores.base import ServerHealth
from convo.stores.factory import probe_store
from convo.stores.postgres.connection import SCHEMA_VERSION
from tests import databases

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

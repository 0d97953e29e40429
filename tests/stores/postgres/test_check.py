"""`probe_store` reports on a PostgreSQL server, database and role without changing them."""

import psycopg
import pytest

from convo.errors import StoreTooNew
from convo.stores.base import ServerHealth
from convo.stores.factory import probe_store
from convo.stores.postgres.connection import SCHEMA_VERSION
from tests import databases

pytestmark = pytest.mark.needs("postgresql")


async def seen(url: str) -> ServerHealth:
    found = await probe_store(url)
    assert isinstance(found, ServerHealth)
    return found


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement)


async def test_a_complete_database_has_no_missing_parts(url: str) -> None:
    found = await seen(url)

    assert (found.role, found.schema_version, found.latest_schema_version) == (
        "postgres",
        SCHEMA_VERSION,
        SCHEMA_VERSION,
    )
    assert (found.missing_privileges, found.is_read_only, found.can_create_schema) == ([], False, True)
    assert found.server_version >= 120_000


async def test_a_database_without_tables_is_reported_and_unchanged(url_without_tables: str) -> None:
    assert (await seen(url_without_tables)).schema_version == 0
    assert (await seen(url_without_tables)).schema_version == 0


async def test_a_newer_database_is_refused(url: str) -> None:
    run(url, "INSERT INTO convo.migrations (number) VALUES (99)")
    with pytest.raises(StoreTooNew):
        await seen(url)


async def test_every_missing_right_of_a_role_is_named(url: str) -> None:
    role = f"app_{databases.database_name(url)}"
    run(url, f"CREATE ROLE {role} LOGIN")
    theirs = databases.as_role(url, role)
    try:
        found = await seen(theirs)
        assert (found.schema_version, found.can_create_schema) == (None, False)
        assert found.missing_privileges == ["USAGE", "SELECT", "INSERT", "UPDATE", "DELETE"]

        run(url, f"GRANT USAGE ON SCHEMA convo TO {role}", f"GRANT SELECT ON ALL TABLES IN SCHEMA convo TO {role}")
        found = await seen(theirs)
        assert (found.schema_version, found.missing_privileges) == (SCHEMA_VERSION, ["INSERT", "UPDATE", "DELETE"])

        run(url, f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA convo TO {role}")
        run(url, f"REVOKE DELETE ON convo.leases FROM {role}")
        assert (await seen(theirs)).missing_privileges == ["DELETE"]
    finally:
        run(url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


async def test_the_rights_to_partitions_are_those_to_their_table() -> None:
    made = databases.new_database(partitions=2)
    role = f"app_{databases.database_name(made)}"
    tables = ", ".join(f"convo.{name}" for name in (*databases.TABLES, "migrations"))
    run(made, f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA convo TO {role}")
    run(made, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}")
    found = await seen(databases.as_role(made, role))
    run(made, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    databases.drop(made)

    assert (found.schema_version, found.missing_privileges) == (SCHEMA_VERSION, [])


async def test_a_read_only_database_is_reported(url: str) -> None:
    run(url, f"ALTER DATABASE {databases.database_name(url)} SET default_transaction_read_only = on")

    assert (await seen(url)).is_read_only


@pytest.mark.needs("pgbouncer")
async def test_the_check_through_a_transaction_pooler_reports_the_same() -> None:
    found = await seen(databases.through_pgbouncer(databases.cleared_database()))

    assert (found.schema_version, found.missing_privileges, found.is_read_only) == (SCHEMA_VERSION, [], False)


@pytest.mark.needs("postgresql 12")
async def test_the_check_of_the_oldest_server_reports_the_same() -> None:
    url = databases.cleared_database(databases.OLDEST)
    role = f"app_{databases.database_name(url)}"
    run(url, f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA convo TO {role}")
    ours, theirs = await seen(url), await seen(databases.as_role(url, role))
    run(url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")

    assert ours.server_version // 10_000 == 12
    assert (ours.schema_version, ours.missing_privileges) == (SCHEMA_VERSION, [])
    assert (theirs.schema_version, theirs.missing_privileges) == (None, ["SELECT", "INSERT", "UPDATE", "DELETE"])

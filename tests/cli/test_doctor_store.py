"""`convo doctor store`: problems that prevent state from being stored, and the exact commands that fix them."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from convo.cli.doctor import describe_supabase_pooler
from convo.stores.postgres import connection
from convo.stores.sqlite.connection import SCHEMA_VERSION
from tests import databases
from tests.cli.doctor_checks import run_check
from tests.cli.full_disk import small_disk
from tests.command_runner import Convo, write_project_file

# -- stores that do not persist, and SQLite ---------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("memory", "state does not persist across restarts, and is not shared between replicas"),
        ("none", "nothing is stored, and requests that continue earlier ones are rejected"),
    ],
)
def test_a_store_that_does_not_persist_is_a_warning_with_its_source(kind: str, message: str, convo: Convo) -> None:
    write_project_file(f'[state_storage]\ntype = "{kind}"\n')
    check = run_check(convo, "store")

    assert (check["level"], check["next"].startswith("[state_storage] type = ")) == ("warning", True)
    assert check["found"].startswith(f"the store is {kind} (from .convo.toml")
    assert check["found"].endswith(message)


def test_an_older_schema_needs_a_migration_and_a_newer_one_a_newer_convo(convo: Convo, home: Path) -> None:
    assert convo("store", "migrate").exit == 0
    assert f"schema {SCHEMA_VERSION}, " in run_check(convo, "store")["found"]

    for number, level, hint in (
        (SCHEMA_VERSION - 1, "warning", "convo store migrate"),
        (99, "fault", "upgrade convo"),
    ):
        with closing(sqlite3.connect(home / "data" / "convo.db")) as db:
            db.execute(f"PRAGMA user_version = {number}")
        check = run_check(convo, "store")
        assert (check["level"], f"schema {number}" in check["found"]) == (level, True)
        assert check["next"].startswith(hint)


@pytest.mark.needs("posix")
def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setenv("CONVO_HOME", str(tmp_path / "disk" / "home"))
        disk.fill()
        got = disk.launch("doctor", "store", "folders", "--json")

    assert got.exit == 1
    for check in got.json()["checks"]:
        assert check["level"] == "fault"
        assert check["next"].startswith("free some space")


# -- PostgreSQL -----------------------------------------------------------------------------------


def test_a_missing_database_driver_is_reported_with_its_install_command(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    check = run_check(convo, "store", "--store", "postgresql://me:hush@host/db")

    assert (check["level"], check["next"]) == ("fault", "pip install 'convo-state[postgres]'")


@pytest.mark.needs("postgresql")
def test_an_unreachable_server_is_reported_without_its_password(convo: Convo) -> None:
    check = run_check(convo, "store", "--store", "postgresql://me:hush@127.0.0.1:1/convo")

    assert check["found"] == "PostgreSQL at 127.0.0.1:1/convo cannot be used: Connection refused"
    assert check["next"].startswith("start the server, or correct the host and port")


@pytest.mark.needs("postgresql")
def test_the_suggested_steps_turn_an_empty_database_into_a_working_store(convo: Convo) -> None:
    """Missing tables, a role that cannot create them, and missing privileges: each suggested step fixes one problem."""
    url = databases.new_database(schema=False)
    role = f"app_{databases.database_name(url)}"
    role_url = databases.as_role(url, role)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN")

        assert run_check(convo, "store", "--store", url)["next"] == "convo store migrate, with the same --store"
        check = run_check(convo, "store", "--store", role_url)
        assert check["found"].endswith("lacks convo's tables")
        assert check["next"].startswith("convo store migrate --print-sql > schema.sql")
        db.execute(convo("store", "migrate", "--print-sql", "--store", role_url).out)

        grants = (
            f'GRANT USAGE ON SCHEMA convo TO "{role}";'
            f' GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA convo TO "{role}";'
        )
        assert run_check(convo, "store", "--store", role_url)["next"] == grants
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA convo TO {role}")
        check = run_check(convo, "store", "--store", role_url)
        assert check["next"] == grants
        db.execute(check["next"])
        assert f"role '{role}', schema " in run_check(convo, "store", "--store", role_url)["found"]


@pytest.mark.needs("postgresql")
def test_the_suggested_steps_turn_an_older_database_into_a_working_store(convo: Convo) -> None:
    url = databases.new_database(schema=False)
    role = f"app_{databases.database_name(url)}"
    role_url = databases.as_role(url, role)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(databases.schema_1_sql())
        db.execute(f"CREATE ROLE {role} LOGIN")
        db.execute(f"GRANT USAGE ON SCHEMA convo TO {role}")
        db.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA convo TO {role}")

        check = run_check(convo, "store", "--store", role_url)
        assert f"is at schema 1 of {connection.SCHEMA_VERSION}" in check["found"]
        assert check["next"].startswith("convo store migrate --print-sql --above 1 > schema.sql")
        db.execute(convo("store", "migrate", "--print-sql", "--above", "1", "--store", role_url).out)

        db.execute(run_check(convo, "store", "--store", role_url)["next"])
        assert (
            f"role '{role}', schema {connection.SCHEMA_VERSION}"
            in run_check(convo, "store", "--store", role_url)["found"]
        )

        db.execute(f"DROP OWNED BY {role}")
        db.execute(f"DROP ROLE {role}")
    databases.drop(url)


@pytest.mark.parametrize(
    ("host", "description"),
    [
        ("aws-0-us-west-2.pooler.supabase.com:6543", ", through Supabase's transaction pooler"),
        ("aws-0-us-west-2.pooler.supabase.com:5432", ", at Supabase"),
        ("db.ref.supabase.co:6543", ", through Supabase's transaction pooler"),
        ("db.ref.supabase.co", ", at Supabase"),
        ("db.example.com:6543", ""),
    ],
)
def test_supabase_poolers_are_recognized_by_their_host_names(host: str, description: str) -> None:
    assert describe_supabase_pooler(f"postgresql://postgres.ref:hush@{host}/postgres") == description


def test_a_url_without_a_host_is_not_a_supabase_server() -> None:
    assert describe_supabase_pooler("postgresql:///postgres") == ""
    assert describe_supabase_pooler("") == ""

"""`convo doctor store`: problems that prevent state from being stored, and the exact commands that fix them."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from convo.cli.doctor import BACKUP_HINT, diagnose_store
from convo.config.storage import Storage
from convo.config.values import BUILT_IN_SOURCE, Layer, SettingSource
from convo.installation import make_install_command
from convo.secrets import Secret
from convo.stores.base import FileHealth, ServerHealth
from convo.stores.postgres import connection
from convo.stores.sqlite.connection import SCHEMA_VERSION
from convo.terminal.report_views import CheckResult, make_error_result, make_ok_result, make_warning_result
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

    assert (check["level"], check["next"]) == ("fault", make_install_command("postgres"))


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


# -- the finding for each state of a store ---------------------------------------------------------

FLAG = SettingSource(Layer.FLAG, "--store")

FILE = FileHealth(Path("/w/c.db"), 3, 3, 2_000_000_000, "ext4")
SQLITE = Storage("sqlite", path=Path("/w/c.db"))


@pytest.mark.parametrize(
    ("source", "health", "result"),
    [
        (
            BUILT_IN_SOURCE,
            FILE._replace(quick_check="row 7 is missing", filesystem="nfs", free_bytes=1, schema_version=2),
            make_error_result(
                "sqlite:/w/c.db (built in) is damaged: row 7 is missing",
                "convo store check, to list the sessions; convo store recover NEW.db, to save readable rows",
            ),
        ),
        (
            FLAG,
            FILE._replace(quick_check="row 7 is missing"),
            make_error_result(
                "sqlite:/w/c.db (from --store) is damaged: row 7 is missing",
                "convo store check --store sqlite:/w/c.db, to list the sessions;"
                " convo store recover NEW.db --store sqlite:/w/c.db, to save readable rows",
            ),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(filesystem="nfs4", free_bytes=1, schema_version=2),
            make_warning_result(
                "sqlite:/w/c.db (built in) is on a network file system (nfs4), where SQLite's locks are unreliable",
                "move it to a local disk, or use PostgreSQL",
            ),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(free_bytes=99_999_999, schema_version=None),
            make_warning_result("sqlite:/w/c.db (built in): its disk has 100.0 MB left", "free some space"),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(free_bytes=100_000_000, schema_version=None),
            make_ok_result("sqlite:/w/c.db (built in) is created by the first turn"),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(schema_version=2),
            make_warning_result("sqlite:/w/c.db (built in) has schema 2; this convo uses 3", "convo store migrate"),
        ),
        (
            FLAG,
            FILE._replace(schema_version=2),
            make_warning_result(
                "sqlite:/w/c.db (from --store) has schema 2; this convo uses 3",
                "convo store migrate, with the same --store",
            ),
        ),
        (
            BUILT_IN_SOURCE,
            FILE,
            make_ok_result(
                "sqlite:/w/c.db (built in), schema 3, 2.0 GB free", BACKUP_HINT, brief="SQLite, 2.0 GB free"
            ),
        ),
        (
            BUILT_IN_SOURCE,
            FILE._replace(quick_check=None),
            make_ok_result(
                "sqlite:/w/c.db (built in), schema 3, 2.0 GB free; too large for the quick check,"
                " run convo store check",
                BACKUP_HINT,
                brief="SQLite, 2.0 GB free",
            ),
        ),
    ],
)
def test_a_sqlite_store(source: SettingSource, health: FileHealth, result: CheckResult) -> None:
    assert diagnose_store(SQLITE, source, health) == result


@pytest.mark.parametrize(
    "filesystem",
    [
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p"),
        *("afs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "lustre"),
    ],
)
def test_a_sqlite_store_on_a_network_file_system_is_a_warning(filesystem: str) -> None:
    assert diagnose_store(SQLITE, BUILT_IN_SOURCE, FILE._replace(filesystem=filesystem)).message == (
        f"sqlite:/w/c.db (built in) is on a network file system ({filesystem}), where SQLite's locks are unreliable"
    )


@pytest.mark.parametrize(
    ("storage", "note"),
    [
        (SQLITE._replace(default_ttl_s=60.0), "; unused data expires (ttl)"),
        (SQLITE._replace(tenant_ttls_s={"a": 60.0}), "; unused data expires (ttl)"),
        (SQLITE, ""),
    ],
)
def test_the_expiry_of_unused_data_ends_the_finding(storage: Storage, note: str) -> None:
    assert diagnose_store(storage, BUILT_IN_SOURCE, FILE).message == (
        f"sqlite:/w/c.db (built in), schema 3, 2.0 GB free{note}"
    )


SERVER = ServerHealth("PostgreSQL at host/db", 180_001, 'odd"name', 3, 3)
POSTGRES = Storage("postgres", url=Secret("postgresql://host/db"))


@pytest.mark.parametrize(
    ("health", "result"),
    [
        (
            SERVER._replace(server_version=119_999, is_read_only=True, schema_version=None),
            make_error_result("PostgreSQL at host/db is PostgreSQL 11.9999", "use PostgreSQL 12 or newer"),
        ),
        (
            SERVER._replace(server_version=120_000, is_read_only=True, schema_version=None),
            make_error_result(
                "PostgreSQL at host/db is read-only: a standby, or default_transaction_read_only is on",
                "use the primary in the connection string, or set default_transaction_read_only to off",
            ),
        ),
        (
            SERVER._replace(schema_version=None),
            make_error_result(
                "role 'odd\"name' lacks SELECT at PostgreSQL at host/db",
                'GRANT SELECT ON ALL TABLES IN SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(schema_version=None, missing_privileges=["USAGE", "SELECT", "INSERT"]),
            make_error_result(
                "role 'odd\"name' lacks USAGE, SELECT, INSERT at PostgreSQL at host/db",
                'GRANT USAGE ON SCHEMA convo TO "odd""name";'
                ' GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(schema_version=None, missing_privileges=["INSERT"]),
            make_error_result(
                "role 'odd\"name' lacks INSERT at PostgreSQL at host/db",
                'GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(schema_version=1, missing_privileges=["USAGE"]),
            make_error_result(
                "role 'odd\"name' lacks USAGE at PostgreSQL at host/db",
                'GRANT USAGE ON SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(missing_privileges=["DELETE"]),
            make_error_result(
                "role 'odd\"name' lacks DELETE at PostgreSQL at host/db",
                'GRANT DELETE ON ALL TABLES IN SCHEMA convo TO "odd""name";',
            ),
        ),
        (
            SERVER._replace(schema_version=2),
            make_error_result(
                "PostgreSQL at host/db is at schema 2 of 3",
                "convo store migrate --print-sql --above 2 > schema.sql,"
                " and run it with a role that can create schemas",
            ),
        ),
        (
            SERVER._replace(schema_version=2, can_create_schema=True),
            make_error_result("PostgreSQL at host/db is at schema 2 of 3", "convo store migrate"),
        ),
        (
            SERVER._replace(schema_version=0),
            make_error_result(
                "PostgreSQL at host/db lacks convo's tables",
                "convo store migrate --print-sql > schema.sql, and run it with a role that can create schemas",
            ),
        ),
        (
            SERVER._replace(uses_tls=True),
            make_ok_result(
                "PostgreSQL at host/db (built in): PostgreSQL 18.1, role 'odd\"name', schema 3, TLS",
                brief="PostgreSQL 18.1, TLS",
            ),
        ),
        (
            SERVER,
            make_ok_result(
                "PostgreSQL at host/db (built in): PostgreSQL 18.1, role 'odd\"name', schema 3, no TLS",
                brief="PostgreSQL 18.1, no TLS",
            ),
        ),
    ],
)
def test_a_postgresql_store(health: ServerHealth, result: CheckResult) -> None:
    assert diagnose_store(POSTGRES, BUILT_IN_SOURCE, health) == result


def test_the_migration_of_a_postgresql_store_that_a_flag_names_keeps_the_flag() -> None:
    no_tables = SERVER._replace(schema_version=0)
    assert diagnose_store(POSTGRES, FLAG, no_tables).hint == (
        "convo store migrate --print-sql > schema.sql, with the same --store, and run it with a role that can create"
        " schemas"
    )
    assert diagnose_store(POSTGRES, FLAG, no_tables._replace(can_create_schema=True)).hint == (
        "convo store migrate, with the same --store"
    )


def test_a_finding_of_a_postgresql_store_ends_with_the_expiry_of_unused_data() -> None:
    storage = POSTGRES._replace(default_ttl_s=60.0)
    assert diagnose_store(storage, BUILT_IN_SOURCE, SERVER) == make_ok_result(
        "PostgreSQL at host/db (built in): PostgreSQL 18.1, role 'odd\"name', schema 3, no TLS;"
        " unused data expires (ttl)",
        brief="PostgreSQL 18.1, no TLS",
    )


@pytest.mark.parametrize(
    ("url", "description"),
    [
        ("postgresql://me@aws-0-us-west-2.pooler.supabase.com:6543/db", ", through Supabase's transaction pooler"),
        ("postgresql://me@aws-0-us-west-2.pooler.supabase.com:5432/db", ", at Supabase"),
        ("postgresql://me@db.ref.supabase.co:6543/db", ", through Supabase's transaction pooler"),
        ("postgresql://me@db.ref.supabase.co/db", ", at Supabase"),
        ("postgresql://me@db.example.com:6543/db", ""),
        ("postgresql:///postgres", ""),
    ],
)
def test_supabase_poolers_are_recognized_by_their_host_names(url: str, description: str) -> None:
    storage = Storage("postgres", url=Secret(url))
    assert diagnose_store(storage, BUILT_IN_SOURCE, SERVER).message.endswith(f"no TLS{description}")

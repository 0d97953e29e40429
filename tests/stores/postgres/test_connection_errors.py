"""What is said, and advised, when no connection comes about: by real servers, networks and files."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from convo.errors import StoreUnavailable
from convo.stores.factory import open_store
from convo.stores.postgres.connection import (
    DEFAULT_CONNECTION_HINT,
    SUPABASE_DIRECT_HINT,
    SUPABASE_POOLER_HINT,
    SUPABASE_USER_HINT,
    choose_connection_hint,
)
from tests import databases

pytestmark = pytest.mark.needs("postgresql")


def refused(url: str) -> StoreUnavailable:
    """What a check of the store at `url` is refused with."""

    async def check() -> None:
        store = open_store(url)
        try:
            await store.admin.check_ready()
        finally:
            await store.aclose()

    with pytest.raises(StoreUnavailable) as told:
        asyncio.run(check())
    assert "hush" not in f"{told.value.message} {told.value.hint}"
    return told.value


# -- networks -------------------------------------------------------------------------------------


def test_a_refused_connection_suggests_starting_the_server() -> None:
    told = refused("postgresql://me:hush@127.0.0.1:1/convo")

    assert told.message == "PostgreSQL at 127.0.0.1:1/convo cannot be used: Connection refused"
    assert told.hint == "start the server, or correct the host and port in the connection string"


def test_an_unknown_host_is_named() -> None:
    told = refused("postgresql://me:hush@nowhere.invalid/convo")

    assert "failed to resolve host 'nowhere.invalid'" in told.message
    assert told.hint == "check the host name, and that this machine is online"


def test_a_timeout_suggests_checking_the_host_and_firewalls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = refused(f"postgresql://me:hush@127.0.0.1:{silent.getsockname()[1]}/convo?connect_timeout=2")

    assert told.message.endswith("cannot be used: connection timeout expired")
    assert told.hint == "check the host, and that no firewall blocks the connection"


def test_a_missing_socket_is_distinguished_from_a_closed_port(tmp_path: Path) -> None:
    told = refused(f"postgresql://me:hush@/convo?host={tmp_path}")

    assert told.message.endswith("cannot be used: No such file or directory")
    assert told.hint == "start the server, or correct its socket folder in the connection string"


# -- servers --------------------------------------------------------------------------------------

RULES = """
local all postgres trust
local all keyed scram-sha-256
host all keyed 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(scope="module")
def server() -> Iterator[databases.Server]:
    """A server that asks `keyed` for a password and does not know others."""
    import psycopg

    with databases.start_server() as made:
        with psycopg.connect(made.url(), autocommit=True) as db:
            db.execute("CREATE ROLE keyed LOGIN PASSWORD 'right'")
            db.execute("CREATE ROLE stranger LOGIN")
        (made.folder / "data" / "pg_hba.conf").write_text(RULES)
        made.pg_ctl("reload")
        yield made


@pytest.mark.parametrize(
    ("who", "database", "said", "advised"),
    [
        ("keyed:hush", "postgres", 'password authentication failed for user "keyed"', "@ %40, # %23"),
        ("keyed", "postgres", "fe_sendauth: no password supplied", "user:$DB_PASSWORD@host"),
        ("postgres", "missing", 'database "missing" does not exist', "create the database"),
        ("stranger:hush", "postgres", "no pg_hba.conf entry for host", "add sslmode=require"),
    ],
)
def test_a_rejected_login_states_the_reason(
    who: str, database: str, said: str, advised: str, server: databases.Server
) -> None:
    told = refused(f"postgresql://{who}@/{database}?host={server.folder}")

    assert f"cannot be used: {said}" in told.message
    assert advised in told.hint


def test_an_unknown_role_is_named(server: databases.Server) -> None:
    with (server.folder / "data" / "pg_hba.conf").open("a") as rules:
        rules.write("local all nobody trust\n")
    server.pg_ctl("reload")
    told = refused(server.url(user="nobody"))

    assert told.message.endswith('role "nobody" does not exist')
    assert told.hint.startswith("create the role")


def test_a_server_without_tls_is_distinguished_from_an_unreachable_one() -> None:
    def refuse_tls() -> None:
        client, _ = listening.accept()
        with client:
            client.recv(8)
            client.sendall(b"N")
            client.recv(8)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        answering = threading.Thread(target=refuse_tls)
        answering.start()
        told = refused(f"postgresql://me:hush@127.0.0.1:{listening.getsockname()[1]}/convo?sslmode=require")
        answering.join()

    assert told.message.endswith("server does not support SSL, but SSL was required")
    assert told.hint.startswith("enable TLS on the server")


# -- words that this machine cannot have said -------------------------------------------------------

DIRECT = "PostgreSQL at db.abcdefghij.supabase.co:5432/postgres"
POOLER = "PostgreSQL at aws-0-us-west-2.pooler.supabase.com:6543/postgres"


@pytest.mark.parametrize(
    ("words", "place", "advised"),
    [
        ("failed to resolve host 'db.abcdefghij.supabase.co': no address", DIRECT, SUPABASE_DIRECT_HINT),
        ("connection to server failed: Network is unreachable", DIRECT, SUPABASE_DIRECT_HINT),
        ("connection timeout expired", POOLER, SUPABASE_POOLER_HINT),
        ("FATAL:  Tenant or user not found", POOLER, SUPABASE_USER_HINT),
        ("something that nobody heard before", POOLER, DEFAULT_CONNECTION_HINT),
    ],
)
def test_the_errors_of_supabase_hosts_have_their_own_hints(words: str, place: str, advised: str) -> None:
    assert choose_connection_hint(words, place) == advised

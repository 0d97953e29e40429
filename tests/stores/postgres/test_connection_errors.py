"""Messages and hints of failed connections, with real servers, networks and files."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from convo.errors import ConvoError, InputFault, StoreFull, StoreReadOnly, StoreUnavailable
from convo.stores.factory import open_store
from convo.stores.postgres.connection import choose_connection_hint, translate_errors
from tests import databases

pytestmark = pytest.mark.needs("postgresql")

SSL_REQUEST = bytes([0, 0, 0, 8, 0x04, 0xD2, 0x16, 0x2F])
"""The first message of a client that asks for TLS (PostgreSQL's protocol 3)."""

USE_SESSION_POOLER = (
    "db.PROJECT.supabase.co has only an IPv6 address: use the connection string of the session pooler,"
    " postgres.PROJECT:...@aws-0-REGION.pooler.supabase.com:5432; or restore the project if it is paused"
)
USE_PROJECT_USER = "use postgres.PROJECT as the user of Supabase's pooler; restore the project first if it is paused"
CHECK_PROJECT = (
    "check in the Supabase dashboard that the project is not paused, and copy the host of the pooler from there"
)
ADD_PASSWORD = "add the password to the connection string, as user:$DB_PASSWORD@host"
CHECK_ROUTE = "check that this machine has a route to the host; many networks have no IPv6"
CHECK_SERVER = "check that the server runs, and check connection_string in [state_storage]"
CORRECT_LOGIN = "correct the user and password; in a URL, percent-encode special characters: @ %40, # %23, & %26"
CREATE_DATABASE = "create the database, or correct its name in the connection string"
REQUIRE_TLS = "add sslmode=require to the connection string, or ask for an entry in pg_hba.conf"
SET_CA_CERTIFICATE = "set sslrootcert= in the connection string to the CA certificate of the server"


def connection_error(url: str) -> StoreUnavailable:
    """Return the error of a check of the store at `url`. It must not contain the password."""

    async def check() -> None:
        store = open_store(url)
        try:
            await store.admin.check_ready()
        finally:
            await store.aclose()

    with pytest.raises(StoreUnavailable) as caught:
        asyncio.run(check())
    assert "hush" not in f"{caught.value.message} {caught.value.hint}"
    return caught.value


# -- networks -------------------------------------------------------------------------------------


def test_a_refused_connection_suggests_starting_the_server() -> None:
    error = connection_error("postgresql://me:hush@127.0.0.1:1/convo")

    assert error.message == "PostgreSQL at 127.0.0.1:1/convo cannot be used: Connection refused"
    assert error.hint == "start the server, or correct the host and port in the connection string"


def test_an_unknown_host_is_named() -> None:
    error = connection_error("postgresql://me:hush@nowhere.invalid/convo")

    assert "failed to resolve host 'nowhere.invalid'" in error.message
    assert error.hint == "check the host name, and that this machine is online"


def test_a_timeout_suggests_checking_the_host_and_firewalls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = connection_error(f"postgresql://me:hush@127.0.0.1:{silent.getsockname()[1]}/convo?connect_timeout=2")

    assert error.message.endswith("cannot be used: connection timeout expired")
    assert error.hint == "check the host, and that no firewall blocks the connection"


def test_a_missing_socket_is_distinguished_from_a_closed_port(tmp_path: Path) -> None:
    error = connection_error(f"postgresql://me:hush@/convo?host={tmp_path}")

    assert error.message.endswith("cannot be used: No such file or directory")
    assert error.hint == "start the server, or correct its socket folder in the connection string"


# -- servers --------------------------------------------------------------------------------------

RULES = """
local all postgres trust
local all keyed scram-sha-256
host all keyed 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(scope="module")
def server() -> Iterator[databases.Server]:
    """A server that trusts `postgres`, asks `keyed` for a password and has no pg_hba.conf entry for other roles."""
    with databases.start_server() as new_server:
        with psycopg.connect(new_server.url(), autocommit=True) as db:
            db.execute("CREATE ROLE keyed LOGIN PASSWORD 'right'")
            db.execute("CREATE ROLE stranger LOGIN")
        (new_server.folder / "data" / "pg_hba.conf").write_text(RULES)
        new_server.pg_ctl("reload")
        yield new_server


@pytest.mark.parametrize(
    ("credentials", "database", "reason", "hint"),
    [
        ("keyed:hush", "postgres", 'password authentication failed for user "keyed"', CORRECT_LOGIN),
        ("keyed", "postgres", "fe_sendauth: no password supplied", ADD_PASSWORD),
        ("postgres", "missing", 'database "missing" does not exist', CREATE_DATABASE),
        ("stranger:hush", "postgres", "no pg_hba.conf entry for host", REQUIRE_TLS),
    ],
)
def test_a_rejected_login_states_the_reason(
    credentials: str, database: str, reason: str, hint: str, server: databases.Server
) -> None:
    error = connection_error(f"postgresql://{credentials}@/{database}?host={server.folder}")

    assert f"cannot be used: {reason}" in error.message
    assert error.hint == hint


def test_an_unknown_role_is_named(server: databases.Server) -> None:
    with (server.folder / "data" / "pg_hba.conf").open("a") as rules:
        rules.write("local all nobody trust\n")
    server.pg_ctl("reload")
    error = connection_error(server.url(user="nobody"))

    assert error.message.endswith('role "nobody" does not exist')
    assert error.hint == "create the role, or correct the user name in the connection string"


@pytest.mark.parametrize("sslmode", ["require", "verify-full&sslrootcert=system"])
def test_a_server_without_tls_is_distinguished_from_an_unreachable_one(sslmode: str) -> None:
    """The client closes the connection. It sends no user, database or password without TLS."""
    received: list[bytes] = []

    def refuse_tls() -> None:
        client, _ = listening.accept()
        with client:
            received.append(client.recv(8))
            client.sendall(b"N")
            received.append(client.recv(8))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=refuse_tls)
        thread.start()
        error = connection_error(f"postgresql://me:hush@127.0.0.1:{listening.getsockname()[1]}/convo?sslmode={sslmode}")
        thread.join()

    assert error.message.endswith("server does not support SSL, but SSL was required")
    assert error.hint == "enable TLS on the server, or set another sslmode in the connection string"
    assert received == [SSL_REQUEST, b""]


# -- errors that this machine cannot produce --------------------------------------------------------

DIRECT = "PostgreSQL at db.abcdefghij.supabase.co:5432/postgres"
POOLER = "PostgreSQL at aws-0-us-west-2.pooler.supabase.com:6543/postgres"
LOCAL = "PostgreSQL at localhost/convo"


@pytest.mark.parametrize(
    ("message", "location", "hint"),
    [
        ("failed to resolve host 'db.abcdefghij.supabase.co': no address", DIRECT, USE_SESSION_POOLER),
        ("connection to server failed: Network is unreachable", DIRECT, USE_SESSION_POOLER),
        ("connection failed: No route to host", DIRECT, USE_SESSION_POOLER),
        ("connection refused", DIRECT, USE_SESSION_POOLER),
        ("connection timeout expired", POOLER, CHECK_PROJECT),
        ("connection timed out", POOLER, CHECK_PROJECT),
        ('could not translate host name "aws-0-us-west-2.pooler.supabase.com"', POOLER, CHECK_PROJECT),
        ("FATAL:  Tenant or user not found", POOLER, USE_PROJECT_USER),
        ("FATAL:  tenant/user postgres.abc not found", POOLER, USE_PROJECT_USER),
        ("something that nobody heard before", POOLER, CHECK_SERVER),
        ('could not translate host name "db"', LOCAL, "check the host name, and that this machine is online"),
        ("connection timed out", LOCAL, "check the host, and that no firewall blocks the connection"),
        ("Network is unreachable", LOCAL, CHECK_ROUTE),
        ("No route to host", LOCAL, CHECK_ROUTE),
        ("FATAL:  SASL authentication failed", LOCAL, CORRECT_LOGIN),
        ("fe_sendauth: no password supplied", LOCAL, ADD_PASSWORD),
        ("SSL error: certificate verify failed", LOCAL, SET_CA_CERTIFICATE),
        ('no pg_hba.conf entry for host "::1", no encryption', LOCAL, REQUIRE_TLS),
        ('no pg_hba.conf entry for host "::1"', LOCAL, "ask the server administrator for an entry in pg_hba.conf"),
        ("FATAL:  sorry, too many clients already", LOCAL, "close other clients, or use a connection pooler"),
        ("FATAL:  too many connections for role", LOCAL, "close other clients, or use a connection pooler"),
        ("remaining connection slots are reserved", LOCAL, "close other clients, or use a connection pooler"),
        ("FATAL:  the database system is starting up", LOCAL, "wait a moment, then try again"),
        ("FATAL:  the database system is shutting down", LOCAL, "wait a moment, then try again"),
        ("FATAL:  the database system is in recovery mode", LOCAL, "wait a moment, then try again"),
        ("something that nobody heard before", LOCAL, CHECK_SERVER),
    ],
)
def test_each_reason_of_a_failed_connection_has_its_next_step(message: str, location: str, hint: str) -> None:
    assert choose_connection_hint(message, location) == hint


TRANSLATED: dict[str, tuple[Exception, type[ConvoError], str, str]] = {
    "a full disk": (
        errors.DiskFull("no"),
        StoreFull,
        f"no disk space is left at {LOCAL}",
        "free some space, then retry; confirmed items are kept",
    ),
    "no connection in time": (
        PoolTimeout("no"),
        StoreUnavailable,
        f"{LOCAL} did not provide a connection in time",
        CHECK_SERVER,
    ),
    "a closed pool": (
        PoolClosed("no"),
        StoreUnavailable,
        f"the connection to {LOCAL} is closed",
        "check the folder of the store; CONVO_HOME sets it",
    ),
    **{
        f"concurrent writers, {kind.__name__}": (
            kind("could not commit\nDETAIL: no"),
            StoreUnavailable,
            f"{LOCAL} has too many concurrent writers: could not commit",
            "try again",
        )
        for kind in (
            errors.SerializationFailure,
            errors.DeadlockDetected,
            errors.UniqueViolation,
            errors.ForeignKeyViolation,
        )
    },
    **{
        f"missing tables, {kind.__name__}": (
            kind("no"),
            StoreUnavailable,
            f"{LOCAL} lacks tables of this version of convo",
            "convo store migrate",
        )
        for kind in (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)
    },
    **{
        f"no writing, {kind.__name__}": (
            kind("permission denied"),
            StoreReadOnly,
            f"{LOCAL} cannot be written: permission denied",
            "ask for the privilege to write",
        )
        for kind in (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)
    },
    "a long name": (
        errors.ProgramLimitExceeded("index row size exceeds the maximum"),
        InputFault,
        "a name or an id is too long for an index",
        "check the file, or choose another one",
    ),
    "a network": (
        OSError(113, "No route to host"),
        StoreUnavailable,
        f"{LOCAL} cannot be reached: No route to host",
        CHECK_SERVER,
    ),
    "an error without a number": (OSError("gone"), StoreUnavailable, f"{LOCAL} cannot be reached: gone", CHECK_SERVER),
    "another error": (
        psycopg.OperationalError(
            'connection failed: connection to server at "::1", port 5432 failed: FATAL:  the database system is'
            " starting up\nmore"
        ),
        StoreUnavailable,
        f"{LOCAL} cannot be used: the database system is starting up",
        "wait a moment, then try again",
    ),
}


@pytest.mark.parametrize(("error", "kind", "message", "hint"), TRANSLATED.values(), ids=TRANSLATED)
def test_an_error_of_the_driver_or_the_network_is_named_with_the_server(
    error: Exception, kind: type[ConvoError], message: str, hint: str
) -> None:
    with pytest.raises(kind) as caught, translate_errors(LOCAL):
        raise error
    assert (type(caught.value), caught.value.message, caught.value.hint) == (kind, message, hint)

"""Connection pool, errors and migrations.

No statement is prepared on the server. A transaction that conflicts with a concurrent writer is repeated as a
whole; one that exceeds the time limit has its socket shut down. Error messages never contain the URL.
"""

import asyncio
import logging
import re
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from convo.errors import (
    ConvoError,
    InputFault,
    InvalidSettings,
    StoreFault,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)
from convo.runtime import track_progress
from convo.stores.base import (
    DamagedRowObserver,
    TransactionObserver,
    ignore_transaction,
    warn_of_damaged_row,
    warn_of_migration,
)
from convo.stores.postgres.tenant_rows import DatabaseConnection

Result = TypeVar("Result")

MAX_ATTEMPTS = 8
"""Attempts for a transaction that conflicts with concurrent writers."""

URL_ENCODING_HINT = "percent-encode special characters: @ %40, : %3A, / %2F, ? %3F, # %23, % %25, space %20"

# Errors are raised. Without a handler Python prints psycopg's log to stderr as well, three lines a second.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class PostgresDatabase:
    """The connections of one process to one database.

    pool_size:              maximum number of connections
    connect_timeout_s:      time to wait for a connection
    transaction_timeout_s:  time limit of a transaction
    """

    def __init__(
        self, url: str, *, pool_size: int = 10, connect_timeout_s: float = 5.0, transaction_timeout_s: float = 30.0
    ) -> None:
        options = _parse_url(url)
        self.location = _format_location(options)
        self.known_tenants: set[str] = set()
        self.has_plano_table: bool | None = None  # not known yet
        self.observer: TransactionObserver = ignore_transaction
        self.damaged_row_observer: DamagedRowObserver = warn_of_damaged_row
        # libpq takes a timeout of 1 second as 2.
        self.options: dict[str, Any] = {"connect_timeout": max(2, round(connect_timeout_s)), **options}
        self._pool_size, self._connect_timeout_s, self._transaction_timeout_s = (
            pool_size,
            connect_timeout_s,
            transaction_timeout_s,
        )
        self._pool: AsyncConnectionPool[DatabaseConnection] | None = None
        self._open_lock = asyncio.Lock()
        self.full_at_s: float | None = None
        self._closed = False

    async def run(
        self,
        job: Callable[[DatabaseConnection], Awaitable[Result]],
        *,
        no_time_limit: bool = False,
        queued_at: float | None = None,
    ) -> Result:
        """Run `job` on a connection and return its result; after a conflict with another writer all of it is repeated.

        no_time_limit:  for jobs that read every row
        queued_at:      when the job began to wait, by the clock of the event loop; None: now

        Raises StoreFault and the errors of `job`.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        queued_at, cancel_requests = queued_at or loop.time(), task.cancelling()
        try:
            with translate_errors(self.location):
                return await self._run_with_retries(job, no_time_limit)
        except StoreFull:
            self.full_at_s = loop.time()
            raise
        finally:
            self.observer(loop.time() - queued_at)
            if task.cancelling() > cancel_requests:  # the pool loses it if a connection becomes free at that moment
                raise asyncio.CancelledError

    async def _run_with_retries(
        self, job: Callable[[DatabaseConnection], Awaitable[Result]], no_time_limit: bool
    ) -> Result:
        try:
            return await self._run_once(job, no_time_limit)
        except RETRYABLE_ERRORS:  # tenacity takes 400 Python calls before its first attempt
            retrying = AsyncRetrying(
                retry=retry_if_exception_type(RETRYABLE_ERRORS),
                stop=stop_after_attempt(MAX_ATTEMPTS - 1),
                wait=wait_random_exponential(multiplier=0.005, max=0.25),
                reraise=True,
            )
            return await retrying(self._run_once, job, no_time_limit)

    async def _run_once(self, job: Callable[[DatabaseConnection], Awaitable[Result]], no_time_limit: bool) -> Result:
        async with self.pooled_connection() as db:
            with nullcontext() if no_time_limit else self._time_limit(db):
                return await job(db)

    @asynccontextmanager
    async def direct_connection(self) -> AsyncIterator[DatabaseConnection]:
        """Open a connection outside the pool, without checking the schema. Raises StoreFault."""
        if self._closed:
            raise StoreUnavailable(f"the connection to {self.location} is closed")
        with translate_errors(self.location):
            async with await self._connect() as db:
                yield db

    async def aclose(self) -> None:
        self._closed = True
        if self._pool is not None:
            await self._pool.close()

    @asynccontextmanager
    async def pooled_connection(self) -> AsyncIterator[DatabaseConnection]:
        """Check out a connection of the pool for the block; an open transaction is rolled back after it."""
        pool = self._pool or await self._open_pool()
        db = await self._check_out(pool)
        try:
            yield db
        finally:
            await _roll_back(db)
            await pool.putconn(db)

    @contextmanager
    def _time_limit(self, db: DatabaseConnection) -> Iterator[None]:
        """Break the connection if the block exceeds the time limit. Raises StoreUnavailable then."""
        timed_out = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(self._transaction_timeout_s, _break_connection, db, timed_out)
        try:
            yield
        except psycopg.OperationalError as error:
            if not timed_out.is_set():
                raise
            raise StoreUnavailable(
                f"{self.location} did not respond within {self._transaction_timeout_s:g} seconds",
                hint=DEFAULT_CONNECTION_HINT,
            ) from error
        finally:
            timer.cancel()

    async def _check_out(self, pool: AsyncConnectionPool[DatabaseConnection]) -> DatabaseConnection:
        """Return an open connection of the pool; those that the server has closed meanwhile are replaced."""
        try:
            # The pool itself replaced one dead connection a second.
            while not _is_connection_open(db := await pool.getconn(self._connect_timeout_s)):
                await db.close()
                await pool.putconn(db)
        except PoolTimeout:
            await (await self._connect()).close()  # raises the reason, if there is one
            raise
        return db

    async def _open_pool(self) -> AsyncConnectionPool[DatabaseConnection]:
        async with self._open_lock:
            if self._closed:
                raise StoreUnavailable(f"the connection to {self.location} is closed")
            if self._pool is None:
                async with await self._connect() as db:
                    await check_schema_version(db, self.location)
                self._pool = await self._create_pool()
        return self._pool

    async def _create_pool(self) -> AsyncConnectionPool[DatabaseConnection]:
        pool: AsyncConnectionPool[DatabaseConnection] = AsyncConnectionPool(
            kwargs={**self.options, **CONNECTION_OPTIONS},
            min_size=0,
            max_size=self._pool_size,
            timeout=self._connect_timeout_s,
            reconnect_timeout=1.0,
            open=False,
        )
        await pool.open()
        return pool

    async def _connect(self) -> DatabaseConnection:
        return await AsyncConnection.connect(**self.options, **CONNECTION_OPTIONS)


CONNECTION_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None, "cursor_factory": AsyncRawCursor}
"""No statement is prepared on the server: with a pooler, the next transaction there may be another client's."""


def _is_connection_open(db: DatabaseConnection) -> bool:
    """Return whether an idle connection is open, without a query: the server sends data only when it closes it."""
    poll = select.poll()
    poll.register(db.fileno(), select.POLLIN | select.POLLHUP)
    return not poll.poll(0)


def _break_connection(db: DatabaseConnection, timed_out: asyncio.Event) -> None:
    """Shut down the socket, so that the waiting job gets an error."""
    timed_out.set()
    with suppress(OSError, psycopg.Error), socket.fromfd(db.fileno(), socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.shutdown(socket.SHUT_RDWR)


async def _roll_back(db: DatabaseConnection) -> None:
    """Roll back an open transaction; if that fails, the connection is broken and the pool replaces it."""
    with suppress(psycopg.Error):
        await db.rollback()


def _parse_url(url: str) -> dict[str, Any]:
    """Parse the URL into connection options. Raises InvalidSettings."""
    try:
        options = dict(conninfo_to_dict(url))
    except (psycopg.Error, UnicodeError):
        raise InvalidSettings(
            "the PostgreSQL URL cannot be parsed", hint=f"if it has a password, {URL_ENCODING_HINT}"
        ) from None
    host, port = str(options.get("host", "")), str(options.get("port", ""))
    # An @ or a / in a password that is not percent-encoded moves a part of it into the host or the port.
    if "@" in host or not all(part.isdigit() for part in port.split(",") if part):
        raise InvalidSettings(
            "the PostgreSQL URL has a host or port that cannot be parsed", hint=f"in a password, {URL_ENCODING_HINT}"
        )
    return options


def _format_location(options: dict[str, Any]) -> str:
    """Return the server and database for messages, without secrets."""
    host, port = options.get("host", "localhost"), options.get("port")
    return f"PostgreSQL at {host}{f':{port}' if port else ''}/{options.get('dbname', '')}"


RETRYABLE_ERRORS = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,
    errors.ForeignKeyViolation,
)
"""Conflicts of concurrent writers. The failed transaction wrote nothing; repeated, it reads the other's result."""

MISSING_TABLE_ERRORS = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)
NO_WRITE_ERRORS = (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)


@contextmanager
def translate_errors(location: str) -> Iterator[None]:
    """Translate the errors of psycopg and of the operating system. Raises ConvoError."""
    try:
        yield
    except psycopg.Error as error:
        raise _to_convo_error(error, location) from error
    except OSError as error:
        raise StoreUnavailable(
            f"{location} cannot be reached: {error.strerror or error}", hint=DEFAULT_CONNECTION_HINT
        ) from error


def _to_convo_error(error: psycopg.Error, location: str) -> ConvoError:
    summary = _error_summary(error)
    if isinstance(error, MISSING_TABLE_ERRORS):
        return unmigrated_error(location)
    if isinstance(error, NO_WRITE_ERRORS):
        return StoreReadOnly(f"{location} cannot be written: {summary}", hint="ask for the privilege to write")
    # PostgreSQL limits an entry of a B-tree index to a third of a page.
    if isinstance(error, errors.ProgramLimitExceeded):
        return InputFault("a name or an id is too long for an index")
    return _to_store_fault(error, location, summary)


def _to_store_fault(error: psycopg.Error, location: str, summary: str) -> StoreFault:
    if isinstance(error, errors.DiskFull):
        return StoreFull(f"no disk space is left at {location}")
    if isinstance(error, PoolTimeout):
        return StoreUnavailable(f"{location} did not provide a connection in time", hint=DEFAULT_CONNECTION_HINT)
    if isinstance(error, PoolClosed):
        return StoreUnavailable(f"the connection to {location} is closed")
    if isinstance(error, RETRYABLE_ERRORS):
        return StoreUnavailable(f"{location} has too many concurrent writers: {summary}", hint="try again")
    return StoreUnavailable(f"{location} cannot be used: {summary}", hint=choose_connection_hint(str(error), location))


def unmigrated_error(location: str) -> StoreUnavailable:
    return StoreUnavailable(f"{location} lacks tables of this version of convo", hint=MIGRATE_COMMAND)


def _error_summary(error: psycopg.Error) -> str:
    """Return the first line of the server's or the driver's message."""
    return _shorten_message(error.diag.message_primary or str(error))


DEFAULT_CONNECTION_HINT = "check that the server runs, and check connection_string in [state_storage]"
MIGRATE_COMMAND = "convo store migrate"

SUPABASE_DIRECT_HINT = (
    "db.PROJECT.supabase.co has only an IPv6 address: use the connection string of the session pooler,"
    " postgres.PROJECT:...@aws-0-REGION.pooler.supabase.com:5432; or restore the project if it is paused"
)
SUPABASE_POOLER_HINT = (
    "check in the Supabase dashboard that the project is not paused, and copy the host of the pooler from there"
)
SUPABASE_USER_HINT = "use postgres.PROJECT as the user of Supabase's pooler; restore the project first if it is paused"

SUPABASE_DIRECT_HOST = re.compile(r"\bdb\.\w+\.supabase\.(co|com|in)\b")
SUPABASE_POOLER_HOST = re.compile(r"\.pooler\.supabase\.(co|com|in)\b")
UNREACHABLE_PATTERN = re.compile(
    r"resolve host|translate host name|timeout expired|timed out|refused|unreachable|No route to host", re.IGNORECASE
)

CONNECTION_HINTS = (
    (r"Tenant or user not found|tenant/user .* not found", SUPABASE_USER_HINT),
    (r"resolve host|translate host name", "check the host name, and that this machine is online"),
    (r"Connection refused", "start the server, or correct the host and port in the connection string"),
    (r"timeout expired|timed out", "check the host, and that no firewall blocks the connection"),
    (r"unreachable|No route to host", "check that this machine has a route to the host; many networks have no IPv6"),
    (
        r"socket .* failed: No such file",
        "start the server, or correct its socket folder in the connection string",
    ),
    (
        r"password authentication failed|SASL authentication failed",
        "correct the user and password; in a URL, percent-encode special characters: @ %40, # %23, & %26",
    ),
    (r"no password supplied", "add the password to the connection string, as user:$DB_PASSWORD@host"),
    (r"database .* does not exist", "create the database, or correct its name in the connection string"),
    (r"role .* does not exist", "create the role, or correct the user name in the connection string"),
    (r"server does not support SSL", "enable TLS on the server, or set another sslmode in the connection string"),
    (
        r"certificate",
        "set sslrootcert= in the connection string to the CA certificate of the server",
    ),
    (r"pg_hba.conf.*no encryption", "add sslmode=require to the connection string, or ask for an entry in pg_hba.conf"),
    (r"pg_hba.conf", "ask the server administrator for an entry in pg_hba.conf"),
    (r"too many (clients|connections)|connection slots", "close other clients, or use a connection pooler"),
    (r"starting up|shutting down|in recovery", "wait a moment, then try again"),
)
"""Patterns of messages, and the next step for each; the first match counts."""

CONNECTION_ERROR_PREFIX = re.compile(
    r"connection (?:failed|is bad): (?:connection to server .*? failed: )?(?:FATAL:\s+)?"
)
"""Start of the driver's messages, which repeats the location."""


def choose_connection_hint(message: str, location: str) -> str:
    """Return the next step for a failed connection.

    message:   the driver's whole message
    location:  the server, as in messages
    """
    if UNREACHABLE_PATTERN.search(message) and (
        SUPABASE_DIRECT_HOST.search(location) or SUPABASE_POOLER_HOST.search(location)
    ):
        return SUPABASE_DIRECT_HINT if SUPABASE_DIRECT_HOST.search(location) else SUPABASE_POOLER_HINT
    return next(
        (next_step for pattern, next_step in CONNECTION_HINTS if re.search(pattern, message, re.IGNORECASE)),
        DEFAULT_CONNECTION_HINT,
    )


def _shorten_message(message: str) -> str:
    """Return the first line of a message, without the location."""
    return CONNECTION_ERROR_PREFIX.sub("", message.strip().partition("\n")[0], count=1)


SCHEMA_VERSION = 9
"""Number of the last migration."""

MIGRATION_LOCK_ID = 0x636F6E76
"""Key of the migrations' advisory lock: "conv" in ASCII."""

MIGRATIONS_FOLDER = Path(__file__).with_name("migrations")

COUNT_PARTITIONS = "SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('convo.sessions')"
"""Number of partitions of the existing tables."""

SELECT_SCHEMA_VERSION = "SELECT coalesce(max(number), 0) FROM convo.migrations"

CREATE_TABLE_PATTERN = re.compile(
    r"^CREATE TABLE (?P<name>\S+) \((?P<body>\n    tenant .*?\n)\)(?P<options> WITH \([^)]*\))?;", re.M | re.S
)
"""Matches a table of tenants' rows, which can be partitioned; the other tables are shared by all tenants."""


async def check_schema_version(db: DatabaseConnection, location: str) -> None:
    """Check that the tables are those of this convo. Raises StoreUnavailable and StoreTooNew."""
    version = await read_schema_version(db)
    if version > SCHEMA_VERSION:
        raise StoreTooNew(location, version, SCHEMA_VERSION)
    if version < SCHEMA_VERSION:
        raise unmigrated_error(location)


async def read_schema_version(db: DatabaseConnection) -> int:
    """Return the number of the last migration that ran; 0 before the first."""
    row = await (await db.execute("SELECT to_regclass('convo.migrations') IS NOT NULL")).fetchone()
    if not row or not row[0]:
        return 0
    return await _select_number(db, SELECT_SCHEMA_VERSION)


async def migrate_schema(db: DatabaseConnection, location: str) -> Sequence[int]:
    """Run the missing migrations, safe with concurrent callers, and return their numbers. Raises StoreTooNew.

    New tables get as many partitions as the existing ones have.
    """
    async with db.transaction():
        # Transaction poolers break locks of a session; before the version is read, so that only one caller migrates.
        await db.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK_ID})")
        version = await read_schema_version(db)
        if version > SCHEMA_VERSION:
            raise StoreTooNew(location, version, SCHEMA_VERSION)
        missing = range(version + 1, SCHEMA_VERSION + 1)
        if version and missing and await _select_number(db, COUNT_OTHER_CONNECTIONS):
            warn_of_migration(location)
        for number in track_progress("migrations", missing):
            await db.execute(_migration_sql(number, await _select_number(db, COUNT_PARTITIONS)))
    return list(missing)


COUNT_OTHER_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
"""
"""Connections of the same role: those of others may be of other programs, and their activity is hidden."""


async def _select_number(db: DatabaseConnection, sql: str) -> int:
    row = await (await db.execute(sql)).fetchone()
    return int(row[0]) if row else 0


def schema_sql(partitions: int = 0, *, after_migration: int = 0) -> str:
    """Return the SQL that `migrate_schema` would run, for a role that may create tables.

    partitions:       hash partitions of each tenants' table; 0: plain tables
    after_migration:  the number of the last migration that ran already
    """
    numbers = range(after_migration + 1, SCHEMA_VERSION + 1)
    scripts = (_migration_sql(number, partitions) for number in numbers)
    return "BEGIN;\n\n" + "\n".join(scripts) + "\nCOMMIT;\n" if numbers else ""


@cache
def _migration_sql(number: int, partitions: int) -> str:
    """Return a migration and the statement that records that it ran.

    partitions:  hash partitions, by tenant, of each of its tables; 0: plain tables
    """
    (file,) = MIGRATIONS_FOLDER.glob(f"{number:04}_*.sql")
    text = file.read_text(encoding="utf-8")
    if partitions:
        text = CREATE_TABLE_PATTERN.sub(lambda table: _partition_table(table, partitions), text)
    return f"{text}\nINSERT INTO convo.migrations (number) VALUES ({number});\n"


def _partition_table(table: re.Match[str], partitions: int) -> str:
    name, options = table["name"], table["options"] or ""
    parts = (
        f"CREATE TABLE {name}_{part} PARTITION OF {name} FOR VALUES WITH"
        f" (MODULUS {partitions}, REMAINDER {part}){options};"
        for part in range(partitions)
    )
    return "\n".join((f"CREATE TABLE {name} ({table['body']}) PARTITION BY HASH (tenant);", *parts))

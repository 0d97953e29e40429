"""A pool of connections to one PostgreSQL, and what runs on them.

Connections are made when they are needed. One that the server closed while nobody used it is seen
by its socket and replaced; one that breaks in the middle of a statement is an error to whoever
asked, because only a transaction that was not sent can be repeated without asking. Where two
writers met and the database let one of them go, the whole transaction is repeated. A server that
says nothing for long, because somebody locked a table or the network swallows everything, is left:
the connection is broken from this side, which needs nobody's answer.
"""

import asyncio
import logging
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from convo.errors import BadSettings, StoreUnavailable
from convo.stores.postgres import schema
from convo.stores.postgres.faults import REPEATABLE, translated
from convo.stores.postgres.reaching import REACH
from convo.stores.postgres.tenant import Connection
from convo.stores.upkeep import Observe, not_observed

Result = TypeVar("Result")

ATTEMPTS = 8
"""How often a transaction is tried that meets another one."""

ENCODED = "write its special characters encoded: @ %40, : %3A, / %2F, ? %3F, # %23, % %25, space %20"

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # errors are raised; three lines a second help nobody


class Database:
    """The connections of one process to one database.

    size:      how many there are at most
    wait_s:    how long to wait for one
    answer_s:  how long a transaction may take
    """

    def __init__(self, url: str, *, size: int = 10, wait_s: float = 5.0, answer_s: float = 30.0) -> None:
        options = _options(url)
        self.place = _place(options)
        self.tenants: set[str] = set()
        self.observe: Observe = not_observed
        self.options: dict[str, Any] = {"connect_timeout": max(2, round(wait_s)), **options}
        self._size, self._wait_s, self._answer_s = size, wait_s, answer_s
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def run(self, job: Callable[[Connection], Awaitable[Result]], *, however_long: bool = False) -> Result:
        """What `job` does on a connection of its own; again, whole, when it met another writer.

        however_long:  it looks at everything, and takes the time that takes
        raises:  StoreFault, and what `job` raises
        """
        again = AsyncRetrying(
            retry=retry_if_exception_type(REPEATABLE),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.005, max=0.25),
            reraise=True,
        )
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            with translated(self.place):
                return await again(self._once, job, however_long)
        finally:
            self.observe(loop.time() - begun)

    async def _once(self, job: Callable[[Connection], Awaitable[Result]], however_long: bool) -> Result:
        async with self.connection() as db:
            with nullcontext() if however_long else self._in_time(db):
                return await job(db)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Connection]:
        """A connection outside the pool, whatever tables there are. raises: StoreFault"""
        if self._closed:
            raise StoreUnavailable(f"{self.place} was closed")
        with translated(self.place):
            async with await self._connect() as db:
                yield db

    async def aclose(self) -> None:
        self._closed = True
        if self._pool is not None:
            await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One of the pool's, for as long as the block runs; what it leaves open is undone."""
        pool = self._pool or await self._open()
        db = await self._given(pool)
        try:
            yield db
        finally:
            await _leave(db)
            await pool.putconn(db)

    @contextmanager
    def _in_time(self, db: Connection) -> Iterator[None]:
        """Break the connection when the block takes too long. raises: StoreUnavailable  it did"""
        late = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(self._answer_s, _break, db, late)
        try:
            yield
        except psycopg.OperationalError as wrong:
            if not late.is_set():
                raise
            raise StoreUnavailable(
                f"{self.place} did not answer within {self._answer_s:g} seconds", hint=REACH
            ) from wrong
        finally:
            timer.cancel()

    async def _given(self, pool: AsyncConnectionPool[Connection]) -> Connection:
        """An open connection of the pool. Those that the server closed meanwhile are replaced on the way."""
        try:
            while not _is_open(db := await pool.getconn(self._wait_s)):
                await db.close()
                await pool.putconn(db)
        except PoolTimeout:
            await (await self._connect()).close()  # says why, when there is a reason
            raise
        return db

    async def _open(self) -> AsyncConnectionPool[Connection]:
        async with self._opening:
            if self._closed:
                raise StoreUnavailable(f"{self.place} was closed")
            if self._pool is None:
                async with await self._connect() as db:
                    await schema.check(db, self.place)
                self._pool = await self._made()
        return self._pool

    async def _made(self) -> AsyncConnectionPool[Connection]:
        pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            kwargs={**self.options, **OWN},
            min_size=0,
            max_size=self._size,
            timeout=self._wait_s,
            reconnect_timeout=1.0,
            open=False,
        )
        await pool.open()
        return pool

    async def _connect(self) -> Connection:
        return await AsyncConnection.connect(**self.options, **OWN)


OWN: dict[str, Any] = {"autocommit": True, "prepare_threshold": None, "cursor_factory": AsyncRawCursor}
"""No statement is prepared on the server, where another client's transaction may come next."""


def _is_open(db: Connection) -> bool:
    """Whether the server said nothing while nobody listened; then it said good-bye. It is not asked."""
    poll = select.poll()
    poll.register(db.fileno(), select.POLLIN | select.POLLHUP)
    return not poll.poll(0)


def _break(db: Connection, late: asyncio.Event) -> None:
    """Whoever waits on this connection hears that it has ended."""
    late.set()
    with suppress(OSError, psycopg.Error), socket.fromfd(db.fileno(), socket.AF_INET, socket.SOCK_STREAM) as line:
        line.shutdown(socket.SHUT_RDWR)


async def _leave(db: Connection) -> None:
    """Undo what a job left open; a connection on which that fails is broken, and the pool sees it."""
    with suppress(psycopg.Error):
        await db.rollback()


def _options(url: str) -> dict[str, Any]:
    """What `url` says. raises: BadSettings"""
    try:
        options = dict(conninfo_to_dict(url))
    except (psycopg.Error, UnicodeError):
        raise BadSettings("the PostgreSQL URL cannot be read", hint=f"if it has a password, {ENCODED}") from None
    host, port = str(options.get("host", "")), str(options.get("port", ""))
    if "@" in host or not all(part.isdigit() for part in port.split(",") if part):
        raise BadSettings("the PostgreSQL URL has no port where one belongs", hint=f"in a password, {ENCODED}")
    return options


def _place(options: dict[str, Any]) -> str:
    """Where that is, for people and without secrets."""
    host, port = options.get("host", "localhost"), options.get("port")
    return f"PostgreSQL at {host}{f':{port}' if port else ''}/{options.get('dbname', '')}"

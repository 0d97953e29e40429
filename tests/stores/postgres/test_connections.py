"""PostgreSQL connections: unavailable servers, the state after a transaction, and refused requests."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import psycopg
import pytest

from convo.errors import (
    InputFault,
    InvalidSettings,
    InvalidUsage,
    StoreFault,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from convo.history.items import user_message
from convo.history.tree import Path, root_key
from convo.installation import make_install_command
from convo.stores.base import AppendItems, Transaction
from convo.stores.factory import open_store
from convo.stores.postgres.connection import PostgresDatabase
from convo.stores.postgres.store import PostgresStore
from convo.stores.postgres.tenant_rows import Statement, run_pipeline
from tests import databases
from tests.stores.chat_transactions import link, session
from tests.stores.test_tenants import everything

pytestmark = pytest.mark.needs("postgresql")

ROOT = root_key("local")
OTHER_CONNECTIONS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

SESSION_STATE = """
SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_settings WHERE source = 'session'),
    (SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
    WHERE locktype = 'advisory' AND datname = current_database())
"""

Call = Callable[[PostgresStore], Awaitable[object]]
CALLS: dict[str, Call] = {
    "a read": lambda store: store.sessions(),
    "a change": lambda store: store.commit(everything("local")),
    "a lease": lambda store: store.acquire_lease("chat", "me", 60),
    "a check": lambda store: store.admin.check_ready(),
    "a migration": lambda store: store.admin.migrate(),
}


def query(url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as db:
        return db.execute(sql).fetchall()


async def test_a_call_that_is_cancelled_as_a_connection_becomes_free_is_cancelled(url: str) -> None:
    """Up to 8 passes of the event loop after the end of the call that used the only connection."""
    database = PostgresDatabase(url, pool_size=1)
    store = PostgresStore(database)
    for passes in range(8):
        used, ended = asyncio.Event(), asyncio.Event()

        async def use(db: object, used: asyncio.Event = used, ended: asyncio.Event = ended) -> None:
            used.set()
            await ended.wait()

        first = asyncio.create_task(database.run(use))
        await used.wait()
        waiting = asyncio.create_task(store.link("resp_1"))
        for _ in range(20):
            await asyncio.sleep(0)
        ended.set()
        for _ in range(passes):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({first, waiting})
        assert waiting.cancelled()
    await store.aclose()


# -- servers that become unavailable --------------------------------------------------------------


@pytest.mark.parametrize("call", ["a read", "a change"])
async def test_a_silent_server_times_out_and_is_retried_later(url: str, call: str) -> None:
    """Another client locks the tables. A network that drops all packets has the same effect on the store."""
    writer = PostgresStore(PostgresDatabase(url))
    await writer.commit(everything("local"))
    await writer.aclose()
    postgres = PostgresStore(PostgresDatabase(url, transaction_timeout_s=1.0))
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE convo.sessions, convo.links IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable, match="did not respond within"):
            await CALLS[call](postgres)

    await CALLS[call](postgres)
    await postgres.aclose()


async def test_a_store_is_not_ready_after_a_write_for_which_the_server_had_no_disk_space(url: str) -> None:
    database = PostgresDatabase(url)
    store = PostgresStore(database)
    await store.admin.migrate()
    await store.admin.check_ready()
    with pytest.raises(StoreFull, match="no disk space is left"):
        await database.run(lambda db: run_pipeline(db, Statement("DO $$ BEGIN RAISE SQLSTATE '53100'; END $$")))
    with pytest.raises(StoreFull, match="the last write failed"):
        await store.admin.check_ready()
    await store.aclose()


async def test_a_full_check_has_no_statement_timeout(url: str) -> None:
    database = PostgresDatabase(url, transaction_timeout_s=0.05)
    result = await database.run(
        lambda db: run_pipeline(db, Statement("SELECT 1 FROM pg_sleep(0.3)")), no_time_limit=True
    )
    assert result == [[(1,)]]
    await database.aclose()


async def test_a_connection_that_the_server_closed_is_replaced_transparently(postgres: PostgresStore, url: str) -> None:
    await postgres.commit(everything("local"))
    await asyncio.gather(*(postgres.sessions() for _ in range(5)))
    end_others = f"SELECT pg_terminate_backend(pid) {OTHER_CONNECTIONS}"
    # one connection, as the end of an earlier one might be seen as well; with await, as the pool may be opening one
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        assert await (await other.execute(end_others)).fetchall()
        while await (await other.execute(end_others)).fetchall():
            pass

    assert len(await postgres.sessions()) == 1
    await postgres.commit(Transaction(session=session(id="ses_2", name="two")))


async def test_a_server_that_returns_serves_again() -> None:
    """The server stops as in a power failure. Confirmed data survives, and the same store works again."""
    with databases.start_server() as server:
        store = PostgresStore(PostgresDatabase(server.url(), connect_timeout_s=1.0))
        await store.admin.migrate()
        await store.commit(everything("local"))
        server.stop()
        for call in CALLS.values():
            with pytest.raises(StoreUnavailable):
                await call(store)
        server.start()

        assert await store.link("resp_1") is not None
        await store.commit(Transaction(session=session(id="ses_2", name="two")))
        assert len(await store.sessions()) == 2
        await store.aclose()


async def test_transactions_during_a_server_restart_are_complete_or_absent() -> None:
    with databases.start_server() as server:
        store = PostgresStore(PostgresDatabase(server.url(), connect_timeout_s=3.0))
        await store.admin.migrate()
        confirmed: list[str] = []

        async def chat(name: str) -> None:
            for number in range(30):
                path = Path(ROOT).append([user_message(f"{name} {number}"), user_message("and more")])
                change, handle = Transaction((AppendItems(ROOT, path.items),)), f"{name}_{number}"
                if name in "abcd":
                    change = replace(change, session=session(id=handle, name=handle, head=path.head))
                else:
                    change = replace(change, links=(link(handle, path.head),))
                try:
                    await store.commit(change)
                except StoreFault:
                    continue
                confirmed.append(handle)
                if name == "a" and number == 5:
                    server.restart()

        await asyncio.gather(*map(chat, "abcdefgh"))

        stored = {match.id for match in await store.find_handles("", limit=1000)}
        assert set(confirmed) <= stored
        assert len(confirmed) > 30
        for handle in stored:
            record = await store.session(handle) or await store.link(handle)
            assert record is not None
            assert len(await store.path(record.head)) == 2
        await store.aclose()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_an_unreachable_server_is_a_fault_without_the_password(call: Call) -> None:
    store = PostgresStore(PostgresDatabase("postgresql://me:hush%40hush@127.0.0.1:1/db", connect_timeout_s=0.5))
    with pytest.raises(StoreUnavailable) as caught:
        await call(store)
    await store.aclose()

    assert "127.0.0.1:1/db" in caught.value.message
    assert "hush" not in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.status == 503


# -- after a transaction or a close ---------------------------------------------------------------


async def test_no_setting_outlives_a_transaction(postgres: PostgresStore, url: str) -> None:
    """A pooler may give the connection to another client, so no prepared statement, lock or setting remains."""
    await postgres.commit(everything("local"))
    for _ in range(10):
        await postgres.search_items("hi")
        await postgres.sessions()
    await postgres.remove_link("resp_1")

    async with postgres.database.pooled_connection() as db:
        assert await (await db.execute(SESSION_STATE)).fetchone() == (0, 0, 0)


async def test_a_closed_store_refuses_work_and_can_be_closed_twice(url: str) -> None:
    store = PostgresStore(PostgresDatabase(url))
    await store.sessions()
    await store.for_tenant("guest").aclose()
    await store.aclose()

    for call in CALLS.values():
        with pytest.raises(StoreUnavailable, match="closed"):
            await call(store)


# -- refused requests -----------------------------------------------------------------------------


async def test_a_read_only_database_can_be_read(url: str) -> None:
    writer = PostgresStore(PostgresDatabase(url))
    await writer.commit(everything("local"))
    await writer.aclose()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"ALTER DATABASE {databases.database_name(url)} SET default_transaction_read_only = on")

    store = PostgresStore(PostgresDatabase(url))
    assert len(await store.sessions()) == 1
    with pytest.raises(StoreReadOnly):
        await store.commit(Transaction(session=session(id="ses_2", name="two")))
    await store.aclose()


async def test_a_name_that_no_index_accepts_is_an_invalid_request(postgres: PostgresStore) -> None:
    name = "".join(chr(Random(number).randrange(0x4E00, 0x9FFF)) for number in range(9000))
    with pytest.raises(InputFault):
        await postgres.commit(Transaction(session=session(name=name)))

    assert await postgres.sessions() == []


NOT_A_URL = "the PostgreSQL URL cannot be parsed"
NOT_A_HOST = "the PostgreSQL URL has a host or port that cannot be parsed"
ENCODE = "percent-encode special characters: @ %40, : %3A, / %2F, ? %3F, # %23, % %25, space %20"


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("postgresql://me:p@ss@host/db", NOT_A_HOST, f"in a password, {ENCODE}"),
        ("postgresql://me:p%ss@host/db", NOT_A_URL, f"if it has a password, {ENCODE}"),
        ("postgresql://me:p/ss@host/db", NOT_A_HOST, f"in a password, {ENCODE}"),
        ("postgresql://host:port/db", NOT_A_HOST, f"in a password, {ENCODE}"),
        ("postgresql://host/db?nonsense=1", NOT_A_URL, f"if it has a password, {ENCODE}"),
    ],
)
def test_an_invalid_url_explains_how_to_encode_a_password(url: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_store(url)

    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://me:hush@db:5433/chats?sslmode=require", "PostgreSQL at db:5433/chats"),
        ("postgresql://me@db/chats", "PostgreSQL at db/chats"),
        ("postgresql:///chats", "PostgreSQL at localhost/chats"),
        ("postgresql://one:1,two:2/chats", "PostgreSQL at one,two:1,2/chats"),
        ("postgresql://db", "PostgreSQL at db/"),
    ],
)
async def test_a_message_names_the_host_and_the_database(url: str, location: str) -> None:
    assert PostgresDatabase(url).location == location


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
async def test_both_url_schemes_name_a_database(url: str, scheme: str) -> None:
    store = open_store(url.replace("postgresql", scheme, 1), tenant="guest")
    assert store.tenant == "guest"
    await store.commit(everything("guest"))
    await store.aclose()


def test_without_the_driver_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg_pool", None)

    with pytest.raises(InvalidUsage) as caught:
        open_store("postgresql://host/db")
    assert caught.value.message == "PostgreSQL needs the extra [postgres], which is not installed"
    assert caught.value.hint == make_install_command("postgres")


LOGS = """
import logging
import convo.stores.postgres.connection
logging.getLogger("psycopg.pool").warning("error connecting")
"""


def test_log_messages_of_the_pool_are_not_printed() -> None:
    got = subprocess.run([sys.executable, "-c", LOGS], capture_output=True, encoding="utf-8", check=True)
    assert (got.stdout, got.stderr) == ("", "")

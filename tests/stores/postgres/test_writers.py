"""Concurrent writers, each with its own connections like a separate process."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from convo.errors import Busy, Conflict, InputFault, NotFound, StoreFull
from convo.history.items import assistant_message, user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Transaction
from convo.stores.postgres.connection import PostgresDatabase
from convo.stores.postgres.store import PostgresStore
from convo.stores.request_list import RequestQuery
from tests import databases
from tests.stores.chat_transactions import NOW, link, session
from tests.stores.postgres.test_random_changes import UNREFERENCED_ROWS
from tests.stores.sample_store import fill_store

pytestmark = pytest.mark.needs("postgresql")

ROOT = root_key("local")
SHARED = Path(ROOT).append([user_message("everybody says hello"), assistant_message("and is answered")])


@asynccontextmanager
async def replicas(url: str, number: int) -> AsyncIterator[list[PostgresStore]]:
    async with AsyncExitStack() as stack:
        stores = [PostgresStore(PostgresDatabase(url, pool_size=4, connect_timeout_s=60)) for _ in range(number)]
        for store in stores:
            stack.push_async_callback(store.aclose)
        yield stores


def unreferenced_rows(url: str) -> list[object]:
    """Return the unreferenced rows."""
    with psycopg.connect(url) as db:
        return [row for query in UNREFERENCED_ROWS for row in db.execute(query).fetchall()]


def row_counts(url: str) -> list[int]:
    sql = "SELECT count(*) FILTER (WHERE depth > 0), (SELECT count(*) FROM convo.items) FROM convo.nodes"
    with psycopg.connect(url) as db:
        row = db.execute(sql).fetchone()
    assert row is not None
    return list(row)


async def count_successes(operations: Sequence[Awaitable[None]], *errors: type[Exception]) -> int:
    """Return the number of successes. The others must have raised one of `errors`."""
    results = await asyncio.gather(*operations, return_exceptions=True)
    assert all(result is None or isinstance(result, errors) for result in results), results
    return results.count(None)


@pytest.mark.parametrize("existing", [False, True])
async def test_of_writers_from_one_head_one_succeeds(url: str, existing: bool) -> None:
    record = session(head=SHARED.head, confirmed_head=SHARED.head)
    async with replicas(url, 8) as stores:
        if existing:
            await stores[0].commit(
                Transaction((AppendItems(ROOT, SHARED.items),), session=record, expected_session_head=None)
            )

        def build_change(number: int) -> Transaction:
            path = (SHARED if existing else Path(ROOT)).append([user_message(f"from {number}")])
            append = AppendItems(SHARED.head if existing else ROOT, (user_message(f"from {number}"),))
            updated = replace(record, head=path.head, confirmed_head=path.root)
            return Transaction((append,), session=updated, expected_session_head=SHARED.head if existing else None)

        commits = [store.commit(build_change(number)) for number, store in enumerate(stores)]
        assert await count_successes(commits, Conflict) == 1
    assert unreferenced_rows(url) == []


@pytest.mark.parametrize("kind", ["conversation", "name", "run"])
async def test_of_writers_of_one_record_one_succeeds(url: str, kind: str) -> None:
    async with replicas(url, 6) as stores:
        await stores[0].commit(
            Transaction((AppendItems(ROOT, SHARED.items),), (link("resp_1", SHARED.head),), started_run_id="resp_1")
        )
        changes: dict[str, Callable[[int], Transaction]] = {
            "conversation": lambda n: Transaction(
                conversation=Conversation("conv_1", SHARED.head, NOW + n, ("a", "b")), expected_conversation_head=None
            ),
            "name": lambda n: Transaction(
                session=session(id=f"ses_{n}", name="mine", head=SHARED.head), expected_session_head=None
            ),
            "run": lambda n: Transaction(ended_run_id="resp_1"),
        }
        commits = [store.commit(changes[kind](number)) for number, store in enumerate(stores)]
        assert await count_successes(commits, Conflict) == 1


async def test_of_two_appends_of_the_same_event_one_succeeds(url: str) -> None:
    async with replicas(url, 6) as stores:
        await stores[0].commit(
            Transaction((AppendItems(ROOT, SHARED.items),), (link("resp_1", SHARED.head),), started_run_id="resp_1")
        )
        events = [{"sequence_number": 0, "type": "a"}, {"sequence_number": 1, "type": "b"}]
        assert await count_successes([store.append_events("resp_1", events) for store in stores], Conflict) == 1
        assert list(await stores[3].events("resp_1")) == events


async def test_of_concurrent_requests_for_a_lease_one_succeeds(url: str) -> None:
    async with replicas(url, 8) as stores:
        results = await asyncio.gather(
            *(store.acquire_lease("chat", f"holder {n}", 60) for n, store in enumerate(stores)), return_exceptions=True
        )
    assert sum(isinstance(one, Busy) for one in results) == 7


@pytest.mark.parametrize("shared", ["items", "items of sessions", "parameters"])
async def test_writers_that_share_rows_in_any_order_do_not_deadlock(url: str, shared: str) -> None:
    rng = random.Random(3)
    items = [user_message(f"item {number}") for number in range(20)]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(SLOW_INSERTS)

    def build_change(number: int) -> Transaction:
        new = [user_message(f"{number}")] if shared == "parameters" else rng.sample(items, len(items))
        path = Path(ROOT).append(new)
        change = Transaction((AppendItems(ROOT, path.items),))
        if shared == "items of sessions":
            return replace(change, session=session(id=f"ses_{number}", name=f"{number}", head=path.head))
        return replace(change, links=(link(f"resp_{number}", path.head, parameters={"n": rng.randrange(40)}),))

    numbers = rng.sample(range(60), 60)
    async with replicas(url, 6) as stores:
        await asyncio.gather(*(store.commit(new_response(f"resp_of_{n}")) for n, store in enumerate(stores)))
        await asyncio.gather(*(stores[number % 6].commit(build_change(number)) for number in numbers))
    assert row_counts(url)[1] == 8 + (60 if shared == "parameters" else 20)
    with psycopg.connect(url, autocommit=True) as db:
        while db.execute(OTHER_CONNECTIONS).fetchone():  # a connection reports its deadlocks when it ends
            pass
        assert db.execute(DEADLOCKS).fetchone() == (0,)


SLOW_INSERTS = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.002); RETURN new; END $$;
CREATE TRIGGER slow BEFORE INSERT ON convo.items FOR EACH ROW EXECUTE FUNCTION slow();
CREATE TRIGGER slow BEFORE INSERT ON convo.repeated FOR EACH ROW EXECUTE FUNCTION slow();
"""
"""Without them two writers rarely insert at the same moment."""

OTHER_CONNECTIONS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def new_response(response_id: str) -> Transaction:
    path = SHARED.append([user_message(response_id)])
    return Transaction((AppendItems(ROOT, path.items),), (link(response_id, path.head),))


async def test_commits_that_wait_share_a_transaction(url: str) -> None:
    durations: list[float] = []
    async with replicas(url, 1) as (store,):
        store.admin.set_transaction_observer(durations.append)
        await asyncio.gather(*(store.commit(new_response(f"resp_{number}")) for number in range(16)))
        assert len(durations) == 2
        assert row_counts(url) == [18, 18]


async def test_two_waiting_commits_of_one_response_leave_no_unreferenced_rows(url: str) -> None:
    started, ended = new_response("resp_1"), new_response("resp_2")
    started = replace(started, links=(replace(started.links[0], status="in_progress"),))
    ended = replace(ended, links=(replace(ended.links[0], id="resp_1"),))
    async with replicas(url, 1) as (store,):
        await asyncio.gather(*map(store.commit, (new_response("resp_0"), ended, started)))
        assert await store.link("resp_1") == ended.links[0]
    assert unreferenced_rows(url) == []


async def test_a_commit_that_the_database_refuses_costs_only_itself(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(REFUSE_RESPONSE)
    long_id = "".join(chr(random.Random(number).randrange(0x4E00, 0x9FFF)) for number in range(9000))
    names = ["resp_1", "resp_2", long_id, "resp_full", "resp_3"]
    async with replicas(url, 1) as (store,):
        results = await asyncio.gather(*(store.commit(new_response(name)) for name in names), return_exceptions=True)
        assert [result and type(result) for result in results] == [None, None, InputFault, StoreFull, None]
        assert [bool(await store.link(name)) for name in names] == [True, True, False, False, True]
    assert unreferenced_rows(url) == []


REFUSE_RESPONSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE SQLSTATE '53100'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON convo.links FOR EACH ROW WHEN (new.id = 'resp_full') EXECUTE FUNCTION refuse();
"""


async def test_garbage_collection_keeps_the_nodes_that_another_writer_builds_on(url: str) -> None:
    """Each writer continues the shared history, then undoes and removes its turn while the others do the same."""
    rng = random.Random(5)

    async def write_and_remove(store: PostgresStore, name: str) -> None:
        for number in range(8):
            path = SHARED.append([user_message(f"turn {rng.randrange(3)}")])
            record = session(id=f"ses_{name}", name=name, head=path.head, confirmed_head=path.head)
            response = link(f"resp_{name}_{number}", SHARED.head, path.head, session_id=record.id)
            await store.commit(Transaction((AppendItems(ROOT, path.items),), (response,), record))
            assert await store.path(path.head) == path
            await store.commit(Transaction(session=replace(record, head=SHARED.keys[0], confirmed_head=SHARED.keys[0])))
            await store.remove_link(response.id)
            if number % 3 == 2:
                await store.remove_session(record.id)
                with pytest.raises(NotFound):
                    await store.remove_session(record.id)

    async with replicas(url, 6) as stores:
        await asyncio.gather(*(write_and_remove(store, f"s{number}") for number, store in enumerate(stores)))
        assert unreferenced_rows(url) == []
        for record in await stores[0].sessions():
            assert len(await stores[0].path(record.head)) == 1
            await stores[0].remove_session(record.id)
    assert row_counts(url) == [0, 0]


async def test_a_node_that_two_writers_release_at_once_is_collected(url: str) -> None:
    async with replicas(url, 2) as stores:
        for round_ in range(10):
            path = Path(ROOT).append([user_message("both stand here"), user_message(f"in round {round_}")])
            records = [session(id=f"ses_{n}", name=f"{n}", head=path.head, confirmed_head=path.head) for n in range(2)]
            for record in records:
                await stores[0].commit(Transaction((AppendItems(ROOT, path.items),), session=record))
            resets = (Transaction(session=replace(record, head=ROOT, confirmed_head=ROOT)) for record in records)
            await asyncio.gather(*(store.commit(change) for store, change in zip(stores, resets, strict=True)))
            assert unreferenced_rows(url) == []
    assert row_counts(url) == [0, 0]


async def test_pruning_does_not_block_writers(url: str) -> None:
    async with replicas(url, 2) as (one, two):
        for number in range(30):
            path = Path(ROOT).append([user_message(f"old {number}")])
            await one.commit(Transaction((AppendItems(ROOT, path.items),), (link(f"resp_{number}", path.head),)))

        async def write() -> None:
            for number in range(20):
                path = Path(ROOT).append([user_message(f"new {number}")])
                response = link(f"resp_new_{number}", path.head, created_at=NOW + 100)
                await two.commit(Transaction((AppendItems(ROOT, path.items),), (response,)))

        pruned, _ = await asyncio.gather(one.admin.prune("local", NOW + 1, dry_run=False), write())
        assert pruned.responses == 30
    assert row_counts(url) == [20, 20]


WAITING_LOCK = """
SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
"""
FIRST_KEY = Path(ROOT).append([user_message("one")]).head

REMOVALS: dict[str, Callable[[PostgresStore], Awaitable[object]]] = {
    "a session": lambda store: store.remove_session("ses_2"),
    "a response": lambda store: store.remove_link("resp_2"),
    "a conversation": lambda store: store.remove_conversation("conv_1"),
    "old records": lambda store: store.admin.prune("local", NOW + 10, dry_run=False),
    "an erased item": lambda store: store.commit(Transaction(erased_nodes=(FIRST_KEY,))),
}


@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
async def test_a_removal_waits_for_the_commits_of_its_tenant_that_began_before(
    remove: Callable[[PostgresStore], Awaitable[object]],
) -> None:
    """Otherwise it would delete rows that such a commit is about to reference."""
    url = databases.cleared_database()
    await asyncio.to_thread(fill_store, url)
    store = PostgresStore(PostgresDatabase(url))
    await store.sessions()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        await other.execute("BEGIN")
        await other.execute("SELECT pg_advisory_xact_lock_shared(tenant) FROM convo.tenants")
        removal = asyncio.ensure_future(remove(store))
        while not removal.done() and not (await (await other.execute(WAITING_LOCK)).fetchone()):
            pass
        assert not removal.done()
        await other.execute("COMMIT")
        await removal
    await store.aclose()


async def test_the_sums_of_charts_wait_for_the_commits_that_began_before() -> None:
    """Otherwise they would be stored without the changes of such a commit."""
    url = databases.cleared_database()
    await asyncio.to_thread(fill_store, url)
    store = PostgresStore(PostgresDatabase(url))
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        await other.execute("BEGIN")
        await other.execute("SELECT pg_advisory_xact_lock_shared(tenant) FROM convo.tenants")
        await other.execute("UPDATE convo.links SET model = 'other/model'")
        charts = asyncio.ensure_future(store.chart_requests(RequestQuery()))
        while not charts.done() and not (await (await other.execute(WAITING_LOCK)).fetchone()):
            pass
        await other.execute("COMMIT")
        assert [group.name for group in (await charts).models.top] == ["other/model"]
    await store.aclose()

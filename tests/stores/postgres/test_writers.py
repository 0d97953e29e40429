"""Concurrent writers, each with its own connections like a separate process."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from convo.errors import Busy, Conflict, NotFound
from convo.history.items import assistant_message, user_message
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Conversation, Transaction
from convo.stores.postgres.connection import PostgresDatabase
from convo.stores.postgres.store import PostgresStore
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
        stores = [PostgresStore(PostgresDatabase(url, pool_size=4)) for _ in range(number)]
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


async def test_writers_that_share_items_in_any_order_do_not_deadlock(url: str) -> None:
    rng = random.Random(3)
    items = [user_message(f"item {number}") for number in range(20)]

    async def write_session(store: PostgresStore, number: int) -> None:
        path = Path(ROOT).append(rng.sample(items, len(items)))
        await store.commit(
            Transaction(
                (AppendItems(ROOT, path.items),), session=session(id=f"ses_{number}", name=f"{number}", head=path.head)
            )
        )

    async with replicas(url, 6) as stores:
        await asyncio.gather(*(write_session(stores[number % 6], number) for number in range(30)))
        assert len(await stores[0].sessions()) == 30
    assert row_counts(url)[1] == 20


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

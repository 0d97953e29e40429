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
from tests.stores.chat_transactions import NOW, link, session
from tests.stores.postgres.test_random_changes import UNNEEDED

pytestmark = pytest.mark.needs("postgresql")

TOP = root_key("local")
SHARED = Path(TOP).append([user_message("everybody says hello"), assistant_message("and is answered")])


@asynccontextmanager
async def replicas(url: str, number: int) -> AsyncIterator[list[PostgresStore]]:
    async with AsyncExitStack() as stack:
        stores = [PostgresStore(PostgresDatabase(url, pool_size=4)) for _ in range(number)]
        for store in stores:
            stack.push_async_callback(store.aclose)
        yield stores


def left(url: str) -> list[object]:
    """Return the unreferenced rows."""
    with psycopg.connect(url) as db:
        return [row for unneeded in UNNEEDED for row in db.execute(unneeded).fetchall()]


def rows(url: str) -> list[int]:
    ask = "SELECT count(*) FILTER (WHERE depth > 0), (SELECT count(*) FROM convo.items) FROM convo.nodes"
    with psycopg.connect(url) as db:
        found = db.execute(ask).fetchone()
    assert found is not None
    return list(found)


async def counted(work: Sequence[Awaitable[None]], *errors: type[Exception]) -> int:
    """Return the number of successes. The others must have raised one of `errors`."""
    done = await asyncio.gather(*work, return_exceptions=True)
    assert all(one is None or isinstance(one, errors) for one in done), done
    return done.count(None)


@pytest.mark.parametrize("begun", [False, True])
async def test_of_writers_from_one_head_one_succeeds(url: str, begun: bool) -> None:
    record = session(head=SHARED.head, confirmed_head=SHARED.head)
    async with replicas(url, 8) as stores:
        if begun:
            await stores[0].commit(
                Transaction((AppendItems(TOP, SHARED.items),), session=record, expected_session_head=None)
            )

        def attempt(number: int) -> Transaction:
            path = (SHARED if begun else Path(TOP)).append([user_message(f"from {number}")])
            grow = AppendItems(SHARED.head if begun else TOP, (user_message(f"from {number}"),))
            moved = replace(record, head=path.head, confirmed_head=path.root)
            return Transaction((grow,), session=moved, expected_session_head=SHARED.head if begun else None)

        commits = [store.commit(attempt(number)) for number, store in enumerate(stores)]
        assert await counted(commits, Conflict) == 1
    assert left(url) == []


@pytest.mark.parametrize("kind", ["conversation", "name", "run"])
async def test_of_writers_of_one_record_one_succeeds(url: str, kind: str) -> None:
    async with replicas(url, 6) as stores:
        await stores[0].commit(
            Transaction((AppendItems(TOP, SHARED.items),), (link("resp_1", SHARED.head),), started_run_id="resp_1")
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
        assert await counted(commits, Conflict) == 1


async def test_of_two_appends_of_the_same_event_one_succeeds(url: str) -> None:
    async with replicas(url, 6) as stores:
        await stores[0].commit(
            Transaction((AppendItems(TOP, SHARED.items),), (link("resp_1", SHARED.head),), started_run_id="resp_1")
        )
        events = [{"sequence_number": 0, "type": "a"}, {"sequence_number": 1, "type": "b"}]
        assert await counted([store.append_events("resp_1", events) for store in stores], Conflict) == 1
        assert list(await stores[3].events("resp_1")) == events


async def test_of_concurrent_requests_for_a_lease_one_succeeds(url: str) -> None:
    async with replicas(url, 8) as stores:
        taken = await asyncio.gather(
            *(store.acquire_lease("chat", f"holder {n}", 60) for n, store in enumerate(stores)), return_exceptions=True
        )
    assert sum(isinstance(one, Busy) for one in taken) == 7


async def test_writers_that_share_items_in_any_order_do_not_deadlock(url: str) -> None:
    dice = random.Random(3)
    items = [user_message(f"item {number}") for number in range(20)]

    async def say(store: PostgresStore, number: int) -> None:
        path = Path(TOP).append(dice.sample(items, len(items)))
        await store.commit(
            Transaction(
                (AppendItems(TOP, path.items),), session=session(id=f"ses_{number}", name=f"{number}", head=path.head)
            )
        )

    async with replicas(url, 6) as stores:
        await asyncio.gather(*(say(stores[number % 6], number) for number in range(30)))
        assert len(await stores[0].sessions()) == 30
    assert rows(url)[1] == 20


async def test_garbage_collection_keeps_the_nodes_that_another_writer_builds_on(url: str) -> None:
    """Each writer continues the shared history, then undoes and removes its turn while the others do the same."""
    dice = random.Random(5)

    async def live(store: PostgresStore, name: str) -> None:
        for number in range(8):
            path = SHARED.append([user_message(f"turn {dice.randrange(3)}")])
            record = session(id=f"ses_{name}", name=name, head=path.head, confirmed_head=path.head)
            made = link(f"resp_{name}_{number}", SHARED.head, path.head, session_id=record.id)
            await store.commit(Transaction((AppendItems(TOP, path.items),), (made,), record))
            assert await store.path(path.head) == path
            await store.commit(Transaction(session=replace(record, head=SHARED.keys[0], confirmed_head=SHARED.keys[0])))
            await store.remove_link(made.id)
            if number % 3 == 2:
                await store.remove_session(record.id)
                with pytest.raises(NotFound):
                    await store.remove_session(record.id)

    async with replicas(url, 6) as stores:
        await asyncio.gather(*(live(store, f"s{number}") for number, store in enumerate(stores)))
        assert left(url) == []
        for record in await stores[0].sessions():
            assert len(await stores[0].path(record.head)) == 1
            await stores[0].remove_session(record.id)
    assert rows(url) == [0, 0]


async def test_a_node_that_two_writers_release_at_once_is_collected(url: str) -> None:
    async with replicas(url, 2) as stores:
        for round_ in range(10):
            path = Path(TOP).append([user_message("both stand here"), user_message(f"in round {round_}")])
            records = [session(id=f"ses_{n}", name=f"{n}", head=path.head, confirmed_head=path.head) for n in range(2)]
            for record in records:
                await stores[0].commit(Transaction((AppendItems(TOP, path.items),), session=record))
            back = (Transaction(session=replace(record, head=TOP, confirmed_head=TOP)) for record in records)
            await asyncio.gather(*(store.commit(change) for store, change in zip(stores, back, strict=True)))
            assert left(url) == []
    assert rows(url) == [0, 0]


async def test_pruning_does_not_block_writers(url: str) -> None:
    async with replicas(url, 2) as (one, two):
        for number in range(30):
            path = Path(TOP).append([user_message(f"old {number}")])
            await one.commit(Transaction((AppendItems(TOP, path.items),), (link(f"resp_{number}", path.head),)))

        async def write() -> None:
            for number in range(20):
                path = Path(TOP).append([user_message(f"new {number}")])
                made = link(f"resp_new_{number}", path.head, created_at=NOW + 100)
                await two.commit(Transaction((AppendItems(TOP, path.items),), (made,)))

        pruned, _ = await asyncio.gather(one.admin.prune("local", NOW + 1, dry_run=False), write())
        assert pruned.responses == 30
    assert rows(url) == [20, 20]

"""Ctrl-C during a commit: the store works in its own thread and cannot be stopped."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from convo.chat.session_record import ChatDeps
from convo.errors import Conflict
from convo.history.items import item_text, user_message
from convo.history.records import Session, Strategy
from convo.history.tree import root_key
from convo.stores.base import Store, Transaction
from tests.chat.conftest import ChatHarness, send

CANCELLATIONS = 3


class HookedStore:
    """A store with functions to call before or after one of its commits, by number from 1.

    The commit itself is the real one.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.before: dict[int, Callable[[], Awaitable[None]]] = {}
        self.after: dict[int, Callable[[], Awaitable[None]]] = {}
        self._commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, transaction: Transaction) -> None:
        self._commits += 1
        number = self._commits
        if number in self.before:
            await self.before[number]()
        await self.store.commit(transaction)
        if number in self.after:
            await self.after[number]()


@pytest.fixture
def hooked_store(harness: ChatHarness) -> HookedStore:
    store = HookedStore(harness.store)
    harness.deps = ChatDeps(store, harness.endpoint, harness.clock, harness.deps.new_id)
    return store


async def cancel_during_commit(store: HookedStore, number: int, turn: Callable[[], Awaitable[object]]) -> None:
    """Start a turn, and cancel it several times after commit `number` is stored and before the commit returns."""
    stored, released = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        stored.set()
        await released.wait()

    store.after[number] = wait
    task = asyncio.ensure_future(turn())
    await stored.wait()
    for _ in range(CANCELLATIONS):
        task.cancel()
        await asyncio.sleep(0)
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_chat_interrupted_while_it_stores_the_message_continues(
    strategy: Strategy, harness: ChatHarness, hooked_store: HookedStore
) -> None:
    chat = await harness.open(strategy, name="mine")
    await cancel_during_commit(hooked_store, 1, lambda: send(chat, "one"))

    assert (chat.turn, [item_text(item) for item in chat.state.path.items]) == (None, ["one"])
    assert await send(chat, "two") == "two"
    assert [item_text(item) for item in (await harness.open(None, "mine")).state.path.items] == ["one", "two", "two"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_answer_that_is_stored_during_an_interruption_is_confirmed(
    strategy: Strategy, harness: ChatHarness, hooked_store: HookedStore
) -> None:
    chat = await harness.open(strategy, name="mine")
    last = 4 if strategy is Strategy.CONVERSATION else 3  # after the message, a conversation, and the first text
    await cancel_during_commit(hooked_store, last, lambda: send(chat, "one"))

    assert chat.turn
    assert chat.turn.link
    assert chat.turn.link.status == "completed"
    assert not chat.state.unconfirmed_nodes
    assert await send(chat, "two") == "two"
    reopened = await harness.open(None, "mine")
    assert [item_text(item) for item in reopened.state.path.items] == ["one", "one", "two", "two"]
    assert len(await harness.store.links(reopened.session.id)) == 2


async def test_a_second_ctrl_c_does_not_interrupt_the_commit(harness: ChatHarness, hooked_store: HookedStore) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    events = chat.send([user_message("a message that is long enough to come in pieces")])

    async def read_a_piece() -> None:
        async for event in events:
            if event["type"].endswith(".delta"):
                return

    await read_a_piece()
    await cancel_during_commit(hooked_store, 3, events.aclose)
    assert [item["status"] for item in chat.state.path.items if item["role"] == "assistant"] == ["incomplete"]
    assert chat.turn
    assert chat.turn.link
    assert chat.turn.link.status == "cancelled"


async def test_a_name_that_another_process_takes_meanwhile_gets_the_next_number(
    harness: ChatHarness, hooked_store: HookedStore
) -> None:
    async def take(name: str) -> None:
        head = root_key(harness.store.tenant)
        session = Session(f"ses_{name}", name, Strategy.SESSION, harness.model, head, head, 0.0, 0.0)
        await harness.store.commit(Transaction(session=session, expected_session_head=None))

    hooked_store.before = {1: lambda: take("hello"), 2: lambda: take("hello-2")}
    chat = await harness.open(Strategy.SESSION)
    await send(chat, "hello")
    assert chat.session.name == "hello-3"


async def test_a_name_that_is_always_taken_is_a_conflict(harness: ChatHarness, hooked_store: HookedStore) -> None:
    async def take(number: int) -> None:
        head = root_key(harness.store.tenant)
        name = f"hello-{number}" if number > 1 else "hello"
        session = Session(f"ses_{name}", name, Strategy.SESSION, harness.model, head, head, 0.0, 0.0)
        await harness.store.commit(Transaction(session=session, expected_session_head=None))

    hooked_store.before = {number: lambda number=number: take(number) for number in range(1, 9)}  # type: ignore[misc]
    chat = await harness.open(Strategy.SESSION)
    with pytest.raises(Conflict, match="another session has the name"):
        await send(chat, "hello")
    assert harness.bodies == []

"""Turns whose request cannot be sent, and turns whose response cannot be stored."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from convo.chat.conversation import Chat
from convo.errors import (
    NO_CONNECTION,
    ConvoError,
    KeyRefused,
    ModelMissing,
    RequestRefused,
    StoreFull,
    TryLater,
    Unreachable,
    Unsupported,
)
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.stores.base import Store
from tests.chat.conftest import ChatHarness, send
from tests.chat.recording_endpoint import EndpointFault
from tests.combinations import rotated_combinations
from tests.request_items import message_lines
from tests.stores.chat_transactions import search_hits
from tests.stores.failing_store import FailingStore

ERRORS_BEFORE_SENDING: list[ConvoError] = [
    Unreachable("no such host", code=NO_CONNECTION),
    KeyRefused("no"),
    RequestRefused("no such model", code="model_not_found", status=404),
    ModelMissing("no weights"),
    Unsupported("this model", "images"),
]
ERRORS_AFTER_SENDING: list[ConvoError] = [RequestRefused("odd", code="odd"), Unreachable("it broke")]


async def send_and_fail(chat: Chat, failure: ConvoError, *, keep: bool) -> None:
    with pytest.raises(type(failure)):
        async for _ in chat.send([user_message("two")], keep_on_failure=keep):
            pass


@dataclass
class StoreAndFiles:
    """All data of a chat in a store and in a folder."""

    store: Store
    folder: Path

    async def snapshot(self) -> list[object]:
        sessions = await self.store.sessions()
        links = [link for session in sessions for link in await self.store.links(session.id)]
        files = [(file.name, file.read_bytes()) for file in sorted(self.folder.glob("*.json"))]
        return [
            sessions,
            links,
            files,
            await search_hits(self.store, "two"),
            await self.store.find_handles("conv_"),
        ]


@pytest.mark.parametrize(("strategy", "failure"), rotated_combinations(Strategy, ERRORS_BEFORE_SENDING, each=2))
async def test_an_unsent_message_that_is_not_kept_leaves_the_store_unchanged(
    harness: ChatHarness, strategy: Strategy, failure: ConvoError, tmp_path: Path
) -> None:
    chat = await harness.open(strategy, name="mine")
    await send(chat, "one")
    data = StoreAndFiles(harness.store, tmp_path)
    before = await data.snapshot()
    harness.clock.advance(60)
    harness.endpoint.faults = [EndpointFault(failure)]

    await send_and_fail(chat, failure, keep=False)

    assert await data.snapshot() == before
    assert chat.turn is None
    assert await send(chat, "three") == "three"
    assert message_lines(chat.state.path.items) == ["user: one", "assistant: one", "user: three", "assistant: three"]


@pytest.mark.parametrize(("strategy", "failure"), rotated_combinations(Strategy, ERRORS_BEFORE_SENDING, each=2))
async def test_an_unsent_message_that_is_not_kept_creates_no_session(
    harness: ChatHarness, strategy: Strategy, failure: ConvoError, tmp_path: Path
) -> None:
    data = StoreAndFiles(harness.store, tmp_path)
    before = await data.snapshot()
    chat = await harness.open(strategy)
    harness.endpoint.faults = [EndpointFault(failure)]

    await send_and_fail(chat, failure, keep=False)

    assert await data.snapshot() == before
    assert await send(chat, "three") == "three"
    assert [session.name for session in await harness.store.sessions()] == ["three"]


@pytest.mark.parametrize(("strategy", "failure"), rotated_combinations(Strategy, ERRORS_BEFORE_SENDING, each=2))
async def test_an_unsent_message_that_is_kept_is_unconfirmed(
    harness: ChatHarness, strategy: Strategy, failure: ConvoError
) -> None:
    chat = await harness.open(strategy, name="mine")
    harness.endpoint.faults = [EndpointFault(failure)]
    await send_and_fail(chat, failure, keep=True)
    reopened = await harness.open(None, "mine")
    assert message_lines([node.item for node in reopened.state.unconfirmed_nodes]) == ["user: two"]


@pytest.mark.parametrize(("strategy", "failure"), rotated_combinations(Strategy, ERRORS_AFTER_SENDING))
async def test_a_message_whose_request_was_sent_is_kept_after_an_error(
    harness: ChatHarness, strategy: Strategy, failure: ConvoError
) -> None:
    chat = await harness.open(strategy, name="mine")
    harness.endpoint.faults = [EndpointFault(failure)] * 4
    await send_and_fail(chat, failure, keep=False)
    assert message_lines([node.item for node in chat.state.unconfirmed_nodes]) == ["user: two"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_message_that_an_earlier_attempt_may_have_delivered_is_kept(
    harness: ChatHarness, strategy: Strategy
) -> None:
    chat = await harness.open(strategy, name="mine")
    error = Unreachable("no such host", code=NO_CONNECTION)
    harness.endpoint.faults = [EndpointFault(TryLater("down", status=503)), EndpointFault(error)]
    await send_and_fail(chat, error, keep=False)
    assert message_lines([node.item for node in chat.state.unconfirmed_nodes]) == ["user: two"]


# -- a store that is full --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_response_that_cannot_be_stored_fails_its_turn_and_the_chat_continues(
    store: Store, harness: ChatHarness, strategy: Strategy
) -> None:
    full_store: Any = FailingStore(
        store, StoreFull("no room"), failing=False, which=lambda change: change.session and change.links
    )
    harness.deps = type(harness.deps)(full_store, harness.endpoint, harness.clock, harness.deps.new_id)
    chat = await harness.open(strategy, name="mine")
    await send(chat, "one")
    full_store.failing = True
    with pytest.raises(StoreFull):
        await send(chat, "two")
    assert chat.turn
    assert chat.turn.link
    assert (chat.turn.link.status, chat.turn.link.error) == ("failed", {"code": "store_full", "message": "no room"})
    full_store.failing = False

    await send(chat, "three")
    reopened = await harness.open(None, "mine")
    user_lines = [item for item in message_lines(reopened.state.path.items) if item.startswith("user")]
    assert user_lines == ["user: one", "user: two", "user: three"]
    assert not reopened.state.unconfirmed_nodes

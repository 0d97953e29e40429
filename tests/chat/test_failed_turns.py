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
from tests.chat.conftest import ChatHarness, say
from tests.chat.recording_endpoint import EndpointFault
from tests.request_items import message_lines
from tests.stores.failing_store import FailingStore

UNASKED: list[ConvoError] = [
    Unreachable("no such host", code=NO_CONNECTION),
    KeyRefused("no"),
    RequestRefused("no such model", code="model_not_found", status=404),
    ModelMissing("no weights"),
    Unsupported("this model", "images"),
]
ASKED: list[ConvoError] = [RequestRefused("odd", code="odd"), Unreachable("it broke")]


def kind_of(failure: ConvoError) -> str:
    return f"{type(failure).__name__}-{failure.code}"


async def fail(chat: Chat, failure: ConvoError, *, keep: bool) -> None:
    with pytest.raises(type(failure)):
        async for _ in chat.send([user_message("two")], keep_on_failure=keep):
            pass


@dataclass
class Everything:
    """All data of a chat in a store and in a folder."""

    store: Store
    folder: Path

    async def now(self) -> list[object]:
        sessions = await self.store.sessions()
        links = [link for session in sessions for link in await self.store.links(session.id)]
        files = [(file.name, file.read_bytes()) for file in sorted(self.folder.glob("*.json"))]
        return [sessions, links, files, await self.store.search_items("two"), await self.store.find_handles("conv_")]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", UNASKED, ids=kind_of)
async def test_an_unsent_message_that_is_not_kept_leaves_the_store_unchanged(
    harness: ChatHarness, strategy: Strategy, failure: ConvoError, tmp_path: Path
) -> None:
    chat = await harness.open(strategy, name="mine")
    await say(chat, "one")
    everything = Everything(harness.store, tmp_path)
    before = await everything.now()
    harness.clock.advance(60)
    harness.endpoint.faults = [EndpointFault(failure)]

    await fail(chat, failure, keep=False)

    assert await everything.now() == before
    assert chat.turn is None
    assert await say(chat, "three") == "three"
    assert message_lines(chat.state.path.items) == ["user: one", "assistant: one", "user: three", "assistant: three"]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", UNASKED, ids=kind_of)
async def test_an_unsent_message_that_is_not_kept_creates_no_session(
    harness: ChatHarness, strategy: Strategy, failure: ConvoError, tmp_path: Path
) -> None:
    everything = Everything(harness.store, tmp_path)
    before = await everything.now()
    chat = await harness.open(strategy)
    harness.endpoint.faults = [EndpointFault(failure)]

    await fail(chat, failure, keep=False)

    assert await everything.now() == before
    assert await say(chat, "three") == "three"
    assert [session.name for session in await harness.store.sessions()] == ["three"]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", UNASKED, ids=kind_of)
async def test_an_unsent_message_that_is_kept_is_unconfirmed(
    harness: ChatHarness, strategy: Strategy, failure: ConvoError
) -> None:
    chat = await harness.open(strategy, name="mine")
    harness.endpoint.faults = [EndpointFault(failure)]
    await fail(chat, failure, keep=True)
    again = await harness.open(None, "mine")
    assert message_lines([node.item for node in again.state.unconfirmed_nodes]) == ["user: two"]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("failure", ASKED, ids=kind_of)
async def test_a_message_whose_request_was_sent_is_kept_after_an_error(
    harness: ChatHarness, strategy: Strategy, failure: ConvoError
) -> None:
    chat = await harness.open(strategy, name="mine")
    harness.endpoint.faults = [EndpointFault(failure)] * 4
    await fail(chat, failure, keep=False)
    assert message_lines([node.item for node in chat.state.unconfirmed_nodes]) == ["user: two"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_message_that_an_earlier_attempt_may_have_delivered_is_kept(
    harness: ChatHarness, strategy: Strategy
) -> None:
    chat = await harness.open(strategy, name="mine")
    gone = Unreachable("no such host", code=NO_CONNECTION)
    harness.endpoint.faults = [EndpointFault(TryLater("down", status=503)), EndpointFault(gone)]
    await fail(chat, gone, keep=False)
    assert message_lines([node.item for node in chat.state.unconfirmed_nodes]) == ["user: two"]


# -- a store that is full --------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_response_that_cannot_be_stored_fails_its_turn_and_the_chat_continues(
    store: Store, harness: ChatHarness, strategy: Strategy
) -> None:
    full: Any = FailingStore(
        store, StoreFull("no room"), failing=False, which=lambda change: change.session and change.links
    )
    harness.deps = type(harness.deps)(full, harness.endpoint, harness.clock, harness.deps.new_id)
    chat = await harness.open(strategy, name="mine")
    await say(chat, "one")
    full.failing = True
    with pytest.raises(StoreFull):
        await say(chat, "two")
    assert chat.turn
    assert chat.turn.link
    assert (chat.turn.link.status, chat.turn.link.error) == ("failed", {"code": "store_full", "message": "no room"})
    full.failing = False

    await say(chat, "three")
    again = await harness.open(None, "mine")
    asked = [item for item in message_lines(again.state.path.items) if item.startswith("user")]
    assert asked == ["user: one", "user: two", "user: three"]
    assert not again.state.unconfirmed_nodes

"""Opening a conversation by every kind of handle, and forks under each strategy."""

from pathlib import Path

import pytest

from convo.chat.conversation import Chat
from convo.chat.open import find_free_file, find_selected_session, fork_session, open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.errors import WrongOwner
from convo.history.items import user_message
from convo.history.records import Scope, Strategy
from convo.strategies.selection import OwnerSelection
from tests.chat.conftest import ChatHarness, send
from tests.chat.recording_endpoint import RecordingEndpoint
from tests.request_items import message_lines, state_fields

OPTIONS = RequestOptions("scripted/echo", "scripted/echo")


async def open_each_strategy(harness: ChatHarness) -> dict[Strategy, Chat]:
    """A conversation of one turn for every strategy."""
    chats = {strategy: await harness.open(strategy, name=f"by-{strategy}") for strategy in Strategy}
    for chat in chats.values():
        await send(chat, "one")
    return chats


@pytest.mark.parametrize("strategy", Strategy)
async def test_every_handle_of_a_session_continues_it(harness: ChatHarness, strategy: Strategy) -> None:
    session = (await open_each_strategy(harness))[strategy].session
    handles = [session.name, session.name[:-1], session.id, *([session.handle] if session.handle else [])]
    for handle in handles:
        implied = strategy if handle == session.handle else None
        assert await find_selected_session(harness.store, OwnerSelection(implied, handle)) == session


async def test_without_a_handle_a_new_conversation_starts(harness: ChatHarness) -> None:
    await open_each_strategy(harness)
    assert await find_selected_session(harness.store, OwnerSelection(None)) is None
    assert await find_selected_session(harness.store, OwnerSelection(Strategy.CHAIN)) is None


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("requested", Strategy)
async def test_a_session_is_opened_only_by_the_flag_of_its_owner(
    harness: ChatHarness, strategy: Strategy, requested: Strategy
) -> None:
    chats = await open_each_strategy(harness)
    harness.clock.advance(60)
    await send(chats[strategy], "two")
    if requested is strategy:
        assert (
            await find_selected_session(harness.store, OwnerSelection(requested, use_last_session=True))
            == chats[strategy].session
        )
        return
    with pytest.raises(WrongOwner, match=f"'by-{strategy}' is owned by .* \\(--{strategy}\\), not by "):
        await find_selected_session(harness.store, OwnerSelection(requested, use_last_session=True))


async def test_a_chain_continues_from_an_older_response_as_a_session_of_its_own(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN, name="mine")
    await send(chat, "one")
    first = chat.session.handle
    await send(chat, "two")

    branch = await harness.open(Strategy.CHAIN, first)
    await send(branch, "other")

    assert branch.session.id != chat.session.id
    assert message_lines(branch.state.path.items) == ["user: one", "assistant: one", "user: other", "assistant: other"]
    assert state_fields(harness.bodies[-1]) == {"previous_response_id": first}
    assert await harness.store.session("mine") == chat.session


async def test_nothing_is_stored_before_the_first_message(harness: ChatHarness) -> None:
    for strategy in Strategy:
        await harness.open(strategy, name=f"by-{strategy}")
    assert await harness.store.sessions() == []


class RemoteEndpoint(RecordingEndpoint):
    """The same endpoint with another base URL."""

    scope = Scope("https://elsewhere.test/v1")


async def test_a_response_of_another_endpoint_is_refused_with_both_endpoints(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.CHAIN)
    await send(chat, "one")
    deps = ChatDeps(harness.store, RemoteEndpoint(harness.endpoint), harness.clock, harness.deps.new_id)
    with pytest.raises(WrongOwner, match=r"belongs to embedded, not to https://elsewhere\.test/v1"):
        await open_chat(OwnerSelection(Strategy.CHAIN, chat.session.handle), None, OPTIONS, deps)


# -- forks -----------------------------------------------------------------------------------------


async def test_a_fork_starts_after_the_confirmed_items(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    await send(chat, "one")
    events = chat.send([user_message("two")])
    await anext(events)
    await events.aclose()
    fork = await fork_session(chat.session, OPTIONS, harness.deps)
    assert message_lines(chat.state.path.items)[2:] == ["user: two"]
    assert message_lines(fork.state.path.items) == ["user: one", "assistant: one"]


async def test_a_fork_has_the_requested_name(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION, name="mine")
    await send(chat, "one")
    assert (await fork_session(chat.session, OPTIONS, harness.deps, name="other")).session.name == "other"


@pytest.mark.parametrize(
    ("existing", "expected"),
    [([], "talk.json"), (["talk.json"], "talk-2.json"), (["talk.json", "talk-2.json"], "talk-3.json")],
)
def test_an_existing_file_is_not_overwritten_by_a_fork(tmp_path: Path, existing: list[str], expected: str) -> None:
    for name in existing:
        (tmp_path / name).touch()
    assert find_free_file(str(tmp_path / "talk.json")) == str(tmp_path / expected)

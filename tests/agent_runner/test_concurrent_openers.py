"""Two writers of one conversation: a stale session is refreshed or gets a conflict, and nothing is overwritten."""

import asyncio
from pathlib import Path

import pytest

from convo.chat.conversation import Chat
from convo.errors import Conflict
from convo.history.items import user_message
from convo.history.records import Strategy
from tests.chat.agent_runs import read_events
from tests.chat.conftest import ChatHarness, answer_text, send
from tests.request_items import message_lines


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_process_with_a_stale_session_refreshes_to_the_newer_turns(
    harness: ChatHarness, strategy: Strategy
) -> None:
    await send(await harness.open(strategy, name="mine"), "one")
    slow, fast = await harness.open(None, "mine"), await harness.open(None, "mine")
    await send(fast, "two")

    await slow.refresh()
    await send(slow, "three")

    expected = ["user: one", "assistant: one", "user: two", "assistant: two", "user: three", "assistant: three"]
    assert message_lines(slow.state.path.items) == expected


async def test_a_new_session_has_nothing_to_refresh(harness: ChatHarness) -> None:
    chat = await harness.open(Strategy.SESSION)
    await chat.refresh()
    await send(chat, "one")
    assert message_lines(chat.state.path.items) == ["user: one", "assistant: one"]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_writer_with_a_stale_session_gets_a_conflict_and_changes_nothing(
    harness: ChatHarness, strategy: Strategy, tmp_path: Path
) -> None:
    await send(await harness.open(strategy, name="mine"), "one")
    slow, fast = await harness.open(None, "mine"), await harness.open(None, "mine")
    await send(fast, "two")
    before, request_count = contents(tmp_path), len(harness.bodies)

    with pytest.raises(Conflict):
        await send(slow, "three")

    assert await harness.store.session("mine") == fast.session
    assert (contents(tmp_path), len(harness.bodies)) == (before, request_count)


def contents(folder: Path) -> bytes:
    file = folder / "talk.json"
    return file.read_bytes() if file.exists() else b""


async def test_a_writer_that_becomes_stale_during_an_answer_does_not_overwrite_the_other_turn(
    harness: ChatHarness, tmp_path: Path
) -> None:
    await send(await harness.open(Strategy.REPLAY, name="mine"), "one")
    slow = await harness.open(None, "mine")
    events = slow.send([user_message("two")])
    await anext(events)
    fast = await harness.open(None, "mine")
    await send(fast, "three")
    before = contents(tmp_path)

    with pytest.raises(Conflict):
        await read_events(events)

    assert contents(tmp_path) == before
    assert await harness.store.session("mine") == fast.session


async def test_a_file_that_is_edited_during_an_answer_keeps_both_changes(harness: ChatHarness, tmp_path: Path) -> None:
    file, notes = tmp_path / "talk.json", list[str]()
    chat = await harness.open(Strategy.REPLAY, name="mine")
    chat.notify = notes.append
    await send(chat, "one")
    events = chat.send([user_message("two")])
    await anext(events)
    file.write_text(file.read_text().replace('"one"', '"uno"'))

    assert answer_text(await read_events(events)) == "two"

    expected = ["user: uno", "assistant: uno", "user: two", "assistant: two"]
    assert message_lines(chat.state.path.items) == expected
    assert notes == [f"{file} changed during the response; both changes are kept"]
    assert not chat.state.unconfirmed_nodes
    again = await harness.open(None, "mine")
    assert message_lines(again.load_state().path.items) == expected


async def test_sessions_that_start_concurrently_with_the_same_text_get_different_names(harness: ChatHarness) -> None:
    chats: list[Chat] = [await harness.open(Strategy.SESSION) for _ in range(3)]
    results = await asyncio.gather(*(read_events(chat.send([user_message("hello")])) for chat in chats))
    assert [answer_text(events) for events in results] == ["hello"] * 3
    assert sorted(session.name for session in await harness.store.sessions()) == ["hello", "hello-2", "hello-3"]

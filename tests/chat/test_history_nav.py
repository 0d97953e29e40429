"""Moves of the head: undo, redo and forks, without loss of items."""

import json

import pytest

from convo.chat.conversation import Chat
from convo.chat.history_nav import UndoStack, get_last_user_items, make_session_at_turn
from convo.chat.open import fork_session
from convo.errors import InvalidUsage, NotFound, RequestRefused, WrongOwner
from convo.history.items import item_text
from convo.history.records import Strategy
from tests.chat.conftest import ChatHarness, say
from tests.chat.recording_endpoint import EndpointFault
from tests.request_items import message_lines, state_fields

CLIENTS = [Strategy.REPLAY, Strategy.SESSION]
MOVING = [*CLIENTS, Strategy.CHAIN]


async def talked(harness: ChatHarness, strategy: Strategy, *words: str) -> Chat:
    chat = await harness.open(strategy, name="mine")
    for one in words:
        await say(chat, one)
    return chat


def said(chat: Chat) -> list[str]:
    return [item_text(item) for item in chat.state.path.items]


@pytest.mark.parametrize("strategy", MOVING)
async def test_redo_restores_an_undone_turn(harness: ChatHarness, strategy: Strategy) -> None:
    chat, heads = await talked(harness, strategy, "one", "two", "three"), UndoStack()
    stood, last = chat.state, chat.record.last_link
    await heads.undo(chat)
    await heads.undo(chat)
    assert said(chat) == ["one", "one"]
    await heads.redo(chat)
    await heads.redo(chat)
    assert (chat.state, chat.record.last_link) == (stood, last)
    await say(chat, "four")
    assert said(chat)[-3:] == ["three", "four", "four"]


@pytest.mark.parametrize("strategy", MOVING)
async def test_after_a_new_message_there_is_nothing_to_redo(harness: ChatHarness, strategy: Strategy) -> None:
    chat, heads = await talked(harness, strategy, "one", "two"), UndoStack()
    await heads.undo(chat)
    await say(chat, "other")
    stood = chat.state
    with pytest.raises(InvalidUsage, match="nothing to redo"):
        await heads.redo(chat)
    assert chat.state == stood


@pytest.mark.parametrize("strategy", MOVING)
@pytest.mark.parametrize("number", [1, -2])
async def test_the_next_turn_continues_from_the_turn_that_undo_returned_to(
    harness: ChatHarness, strategy: Strategy, number: int
) -> None:
    chat = await talked(harness, strategy, "one")
    confirmed = chat.session.handle if strategy is Strategy.CHAIN else None
    for words in ("two", "three"):
        await say(chat, words)
    await UndoStack().undo(chat, number)
    await say(chat, "other")
    assert said(chat) == ["one", "one", "other", "other"]
    body = harness.bodies[-1]
    if confirmed:
        assert (message_lines(body["input"]), state_fields(body)) == (
            ["user: other"],
            {"previous_response_id": confirmed},
        )
    else:
        assert len(body["input"]) == 3
    assert chat.turn
    assert chat.turn.link
    assert chat.turn.link.parent_id == (await harness.store.links(chat.session.id))[0].id


@pytest.mark.parametrize("strategy", MOVING)
async def test_undone_items_stay_in_the_store(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await talked(harness, strategy, "one", "two")
    left = chat.record.last_link
    await UndoStack().undo(chat, 1)
    await say(chat, "other")
    assert left
    assert [item_text(item) for item in (await harness.store.path(left.head)).items] == ["one", "one", "two", "two"]


@pytest.mark.parametrize("strategy", MOVING)
async def test_another_process_finds_the_head_that_undo_set(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await talked(harness, strategy, "one", "two", "three")
    await UndoStack().undo(chat, 1)
    again = await harness.open(handle="mine")
    assert said(again) == ["one", "one"]
    assert again.state == chat.state
    if strategy is Strategy.REPLAY:
        assert len(json.loads((harness.folder / "talk.json").read_text())) == 2


async def test_in_a_conversation_only_unconfirmed_items_are_undone(harness: ChatHarness) -> None:
    chat, heads = await talked(harness, Strategy.CONVERSATION, "one"), UndoStack()
    harness.endpoint.faults.append(EndpointFault(RequestRefused("No.")))
    with pytest.raises(RequestRefused):
        await say(chat, "two")
    await heads.undo(chat)
    assert said(chat) == ["one", "one"]
    await heads.redo(chat)
    assert said(chat) == ["one", "one", "two"]
    await heads.undo(chat)
    for number in (None, 0):
        with pytest.raises(WrongOwner) as refused:
            await heads.undo(chat, number)
        assert "convo convert" in refused.value.hint
    with pytest.raises(WrongOwner):
        await fork_session(chat.session, chat.options, harness.deps)


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_unknown_turn_changes_nothing(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await talked(harness, strategy, "one")
    stood = chat.state
    for number in (2, -2, 99):
        with pytest.raises(NotFound):
            await UndoStack().undo(chat, number)
    assert chat.state == stood


# -- calls and their outputs are one unit ----------------------------------------------------------


async def called(harness: ChatHarness, strategy: Strategy) -> Chat:
    """A turn with a text answer, then a turn that calls a tool and sends its output in a second request."""
    script = harness.folder / "script.json"
    calls = [{"call": {"name": "tea", "arguments": {}, "call_id": "call_1"}}, {"text": "hot"}]
    script.write_text(json.dumps({"replies": [{"text": "hello"}, *calls, {"text": "fine"}]}))
    harness.model = f"scripted/{script}"
    chat = await talked(harness, strategy, "hi", "tea?")
    call = chat.state.path.items[-1]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "hot"}
    async for _ in chat.send([output]):
        pass
    return chat


@pytest.mark.parametrize("strategy", MOVING)
async def test_undo_removes_a_whole_turn_with_its_calls(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await called(harness, strategy)
    assert len(chat.state.path) == 6
    await UndoStack().undo(chat)
    assert said(chat) == ["hi", "hello"]
    await say(chat, "and now?")
    assert chat.turn
    assert chat.turn.link
    assert chat.turn.link.status == "completed"


@pytest.mark.parametrize("strategy", MOVING)
async def test_a_fork_contains_whole_turns(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await called(harness, strategy)
    assert len((await harness.store.path((await make_session_at_turn(harness.store, chat.session, 1)).head)).nodes) == 2
    assert (await make_session_at_turn(harness.store, chat.session, 2)).head == chat.session.head


# -- forks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", MOVING)
@pytest.mark.parametrize("number", [0, 1, 2, 3])
async def test_a_fork_continues_from_any_turn_and_its_source_is_unchanged(
    harness: ChatHarness, strategy: Strategy, number: int
) -> None:
    chat = await talked(harness, strategy, "one", "two", "three")
    before = chat.state
    made = await fork_session(
        await make_session_at_turn(harness.store, chat.session, number), chat.options, harness.deps
    )
    await say(made, "other")
    assert said(made) == [*("one", "one", "two", "two", "three", "three")[: 2 * number], "other", "other"]
    again = await harness.open(handle="mine")
    assert again.state == before
    assert made.session.name != again.session.name
    if strategy is Strategy.REPLAY:
        assert made.session.handle != again.session.handle


# -- the last message ------------------------------------------------------------------------------


async def test_the_last_message_may_have_several_items(harness: ChatHarness) -> None:
    chat = await talked(harness, Strategy.SESSION, "one")
    for words in ("two", "three"):
        harness.endpoint.faults.append(EndpointFault(RequestRefused("No.")))
        with pytest.raises(RequestRefused):
            await say(chat, words)
    assert [item_text(item) for item in get_last_user_items(chat)] == ["two", "three"]


async def test_an_empty_chat_has_no_last_message(harness: ChatHarness) -> None:
    with pytest.raises(InvalidUsage):
        get_last_user_items(await harness.open(Strategy.SESSION))

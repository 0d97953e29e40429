"""Moves of the head: undo, redo and forks, without loss of items."""

import json
from dataclasses import replace
from typing import Any

import pytest

from convo.chat.conversation import Chat
from convo.chat.history_nav import UndoStack, get_last_user_items, make_session_at_turn
from convo.chat.open import fork_session
from convo.chat.turn import RequestOptions
from convo.errors import InvalidUsage, NotFound, RequestRefused, StoreFull
from convo.history.items import item_text
from convo.history.records import Scope, Session, Strategy
from tests.chat.conftest import ChatHarness, send
from tests.chat.recording_endpoint import EndpointFault
from tests.request_items import message_lines, state_fields
from tests.stores.failing_store import FailingStore

CLIENT_STRATEGIES = [Strategy.REPLAY, Strategy.SESSION]
MOVABLE_STRATEGIES = [*CLIENT_STRATEGIES, Strategy.CHAIN]


async def start_chat(harness: ChatHarness, strategy: Strategy, *texts: str) -> Chat:
    chat = await harness.open(strategy, name="mine")
    for text in texts:
        await send(chat, text)
    return chat


def item_texts(chat: Chat) -> list[str]:
    return [item_text(item) for item in chat.state.path.items]


@pytest.mark.parametrize("strategy", MOVABLE_STRATEGIES)
async def test_redo_restores_an_undone_turn(harness: ChatHarness, strategy: Strategy) -> None:
    chat, undo_stack = await start_chat(harness, strategy, "one", "two", "three"), UndoStack()
    before_move, last = chat.state, chat.record.last_link
    await undo_stack.undo(chat)
    await undo_stack.undo(chat)
    assert item_texts(chat) == ["one", "one"]
    await undo_stack.redo(chat)
    await undo_stack.redo(chat)
    assert (chat.state, chat.record.last_link) == (before_move, last)
    await send(chat, "four")
    assert item_texts(chat)[-3:] == ["three", "four", "four"]


@pytest.mark.parametrize("strategy", MOVABLE_STRATEGIES)
async def test_after_a_new_message_there_is_nothing_to_redo(harness: ChatHarness, strategy: Strategy) -> None:
    chat, undo_stack = await start_chat(harness, strategy, "one", "two"), UndoStack()
    await undo_stack.undo(chat)
    await send(chat, "other")
    before_move = chat.state
    with pytest.raises(InvalidUsage, match="nothing to redo"):
        await undo_stack.redo(chat)
    assert chat.state == before_move


@pytest.mark.parametrize("strategy", MOVABLE_STRATEGIES)
@pytest.mark.parametrize("number", [1, -2])
async def test_the_next_turn_continues_from_the_turn_that_undo_returned_to(
    harness: ChatHarness, strategy: Strategy, number: int
) -> None:
    chat = await start_chat(harness, strategy, "one")
    confirmed = chat.session.handle if strategy is Strategy.CHAIN else None
    for text in ("two", "three"):
        await send(chat, text)
    await UndoStack().undo(chat, number)
    await send(chat, "other")
    assert item_texts(chat) == ["one", "one", "other", "other"]
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


@pytest.mark.parametrize("strategy", MOVABLE_STRATEGIES)
async def test_another_process_finds_the_head_that_undo_set(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await start_chat(harness, strategy, "one", "two", "three")
    await UndoStack().undo(chat, 1)
    reopened = await harness.open(handle="mine")
    assert item_texts(reopened) == ["one", "one"]
    assert reopened.state == chat.state
    if strategy is Strategy.REPLAY:
        assert len(json.loads((harness.folder / "talk.json").read_text())) == 2


@pytest.mark.parametrize("strategy", Strategy)
async def test_an_unknown_turn_changes_nothing(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await start_chat(harness, strategy, "one")
    before_move = chat.state
    for number in (2, -2, 99):
        with pytest.raises(NotFound):
            await UndoStack().undo(chat, number)
    assert chat.state == before_move


# -- calls and their outputs are one unit ----------------------------------------------------------


async def start_chat_with_call(harness: ChatHarness, strategy: Strategy) -> Chat:
    """A turn with a text answer, then a turn that calls a tool and sends its output in a second request."""
    script = harness.folder / "script.json"
    calls = [{"call": {"name": "tea", "arguments": {}, "call_id": "call_1"}}, {"text": "hot"}]
    script.write_text(json.dumps({"replies": [{"text": "hello"}, *calls, {"text": "fine"}]}))
    harness.model = f"scripted/{script}"
    chat = await start_chat(harness, strategy, "hi", "tea?")
    call = chat.state.path.items[-1]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "hot"}
    async for _ in chat.send([output]):
        pass
    return chat


@pytest.mark.parametrize("strategy", MOVABLE_STRATEGIES)
async def test_undo_removes_a_whole_turn_with_its_calls(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await start_chat_with_call(harness, strategy)
    assert len(chat.state.path) == 6
    await UndoStack().undo(chat)
    assert item_texts(chat) == ["hi", "hello"]
    await send(chat, "and now?")
    assert chat.turn
    assert chat.turn.link
    assert chat.turn.link.status == "completed"


@pytest.mark.parametrize("strategy", MOVABLE_STRATEGIES)
async def test_a_fork_contains_whole_turns(harness: ChatHarness, strategy: Strategy) -> None:
    chat = await start_chat_with_call(harness, strategy)
    assert len((await harness.store.path((await make_session_at_turn(harness.store, chat.session, 1)).head)).nodes) == 2
    assert (await make_session_at_turn(harness.store, chat.session, 2)).head == chat.session.head


# -- forks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", MOVABLE_STRATEGIES)
@pytest.mark.parametrize("number", [0, 1, 2, 3])
async def test_a_fork_continues_from_any_turn_and_its_source_is_unchanged(
    harness: ChatHarness, strategy: Strategy, number: int
) -> None:
    chat = await start_chat(harness, strategy, "one", "two", "three")
    before = chat.state
    fork = await fork_session(
        await make_session_at_turn(harness.store, chat.session, number), chat.options, harness.deps
    )
    await send(fork, "other")
    assert item_texts(fork) == [*("one", "one", "two", "two", "three", "three")[: 2 * number], "other", "other"]
    reopened = await harness.open(handle="mine")
    assert reopened.state == before
    assert fork.session.name != reopened.session.name
    if strategy is Strategy.REPLAY:
        assert fork.session.handle != reopened.session.handle


# -- the last message ------------------------------------------------------------------------------


async def test_the_last_message_may_have_several_items(harness: ChatHarness) -> None:
    chat = await start_chat(harness, Strategy.SESSION, "one")
    for text in ("two", "three"):
        harness.endpoint.faults.append(EndpointFault(RequestRefused("No.")))
        with pytest.raises(RequestRefused):
            await send(chat, text)
    assert [item_text(item) for item in get_last_user_items(chat)] == ["two", "three"]


async def test_an_empty_chat_has_no_last_message(harness: ChatHarness) -> None:
    with pytest.raises(InvalidUsage) as caught:
        get_last_user_items(await harness.open(Strategy.SESSION))
    assert (caught.value.message, caught.value.hint) == ("the conversation has no message yet", "type a message")


async def test_the_last_message_is_before_its_answer(harness: ChatHarness) -> None:
    chat = await start_chat(harness, Strategy.SESSION, "one", "two")
    assert [item_text(item) for item in get_last_user_items(chat)] == ["two"]


async def test_the_error_of_a_redo_names_the_command_that_shows_every_branch(harness: ChatHarness) -> None:
    first, second = (
        await harness.open(Strategy.SESSION, name="mine"),
        await harness.open(Strategy.SESSION, name="other"),
    )
    undo_stack = UndoStack()
    for chat in (first, second):
        await send(chat, "one")
    await undo_stack.undo(first)
    for chat in (second, first):  # of another session, and after the entries were cleared
        with pytest.raises(InvalidUsage) as caught:
            await undo_stack.redo(chat)
        assert caught.value.message == "nothing to redo: no undo since the last message"
        assert caught.value.hint == "/inspect shows every branch"


# -- records after a move --------------------------------------------------------------------------


async def test_the_record_of_an_earlier_turn_names_its_response(harness: ChatHarness) -> None:
    for strategy in MOVABLE_STRATEGIES:
        chat = await harness.open(strategy, name=f"by-{strategy}")
        for text in ("one", "two", "three"):
            await send(chat, text)
            harness.clock.advance(1)
        first, second, _ = sorted(await harness.store.links(chat.session.id), key=lambda link: link.created_at)
        session, path = chat.session, chat.state.path
        is_chain = strategy is Strategy.CHAIN

        async def at_turn(number: int, session: Session = session) -> Session:
            return await make_session_at_turn(harness.store, session, number)

        for number, link in ((1, first), (2, second), (-1, second)):
            assert await at_turn(number) == replace(
                session,
                head=link.head,
                confirmed_head=link.head,
                handle=link.id if is_chain else session.handle,
                link_id=link.id,
            )
        assert await at_turn(0) == replace(
            session,
            head=path.root,
            confirmed_head=path.root,
            handle=None if is_chain else session.handle,
            link_id=None,
        )
        assert await at_turn(3) == session
        with pytest.raises(NotFound):
            await at_turn(4)


async def test_the_record_of_an_unconfirmed_turn_keeps_its_response(harness: ChatHarness) -> None:
    chat = await start_chat(harness, Strategy.CONVERSATION, "one")
    for text in ("two", "three"):
        harness.endpoint.faults.append(EndpointFault(RequestRefused("No.")))
        with pytest.raises(RequestRefused):
            await send(chat, text)
    session = chat.session
    assert await make_session_at_turn(harness.store, session, 1) == replace(session, head=session.confirmed_head)


async def test_a_retry_continues_the_response_before_it(harness: ChatHarness) -> None:
    for strategy in MOVABLE_STRATEGIES:
        chat = await harness.open(strategy, name=f"by-{strategy}")
        for text in ("one", "two"):
            await send(chat, text)
        first = (await harness.store.links(chat.session.id))[0]
        second = chat.record.last_link
        async for _ in chat.retry():
            pass
        link = chat.record.last_link
        assert second
        assert link
        assert (first.id, second.parent_id, link.parent_id) == (second.parent_id, first.id, first.id)
        assert link.previous_response_id == (first.id if strategy is Strategy.CHAIN else None)
        assert (await harness.store.session(chat.session.id)) == chat.session
        assert item_texts(chat) == ["one", "one", "two", "two"]


async def test_a_head_that_cannot_be_stored_does_not_move(harness: ChatHarness) -> None:
    store: Any = FailingStore(harness.store, StoreFull("no room"), failing=False)
    harness.deps = harness.deps._replace(store=store)
    chat = await start_chat(harness, Strategy.SESSION, "one", "two")
    state, last_link, session = chat.state, chat.record.last_link, chat.session
    store.failing = True
    with pytest.raises(StoreFull):
        await chat.undo()
    assert (chat.state, chat.record.last_link) == (state, last_link)
    assert chat.session.head == session.head
    store.failing = False
    await send(chat, "three")
    assert chat.turn
    assert chat.turn.link
    assert chat.turn.link.parent_id == (last_link and last_link.id)


async def test_the_options_of_the_last_turn_are_in_the_record(harness: ChatHarness) -> None:
    chat = await start_chat(harness, Strategy.SESSION, "one")
    chat.options = RequestOptions("scripted/other", "scripted/echo", "Be brief.")
    await send(chat, "two")
    session = await harness.store.session("mine")
    assert session
    assert (session.model, session.instructions, session.scope) == ("scripted/other", "Be brief.", Scope())


async def test_a_record_that_another_process_changed_is_loaded_again(harness: ChatHarness) -> None:
    chat = await start_chat(harness, Strategy.SESSION, "one")
    record = chat.record
    await chat.refresh()
    assert chat.record is record
    other = await harness.open(None, "mine")
    await send(other, "two")
    await chat.refresh()
    assert (chat.session, chat.state, chat.record.last_link) == (other.session, other.state, other.record.last_link)
    await harness.store.remove_session(chat.session.id)
    await chat.refresh()
    assert chat.session == other.session

"""Conversion between all strategies: the next turn continues from the complete history."""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from convo.chat.item_file import ReplayFile
from convo.chat.open import fork_session
from convo.chat.view_loader import load_handle_view
from convo.errors import (
    Conflict,
    InvalidUsage,
    ItemDeleted,
    NotFound,
    RequestRefused,
    StateFault,
    Unreachable,
    WrongOwner,
)
from convo.history.canonical import Digest, digest
from convo.history.items import Item, item_text, item_type, user_message
from convo.history.records import EMBEDDED_SCOPE, Scope, Session, Strategy
from convo.stores.base import Transaction
from convo.strategies.conversion import LossEffect, TransferTarget, plan_transfer
from convo.strategies.strategy import STRATEGIES
from convo.transfer.convert import (
    ConvertDestination,
    SessionWriter,
    check_convertible,
    convert_chat,
    convert_conversation,
    load_source,
)
from tests.chat.recording_endpoint import EndpointFault
from tests.transfer.sample_conversations import ECHO, SEALED, ConversationHarness, send_items

ANY_NAME = ConvertDestination()

PAIRS = list(permutations(Strategy, 2))


async def convert(
    harness: ConversationHarness, handle: str, strategy: Strategy, destination: ConvertDestination = ANY_NAME
) -> Session:
    source = await harness.source(handle)
    target = TransferTarget(strategy, EMBEDDED_SCOPE, harness.name)
    check_convertible(source, target)
    plan = plan_transfer(source.transfer_items, target)
    writer = SessionWriter(harness.store, harness.clock, harness.deps.new_id)
    return await convert_conversation(source, plan, target, destination, writer, harness.endpoint)


def item_digests(items: Sequence[Item]) -> list[Digest]:
    """Return the digests of `items` without unencrypted reasoning, which is not sent after a conversion."""
    return [digest(item) for item in items if item_type(item) != "reasoning" or item.get("encrypted_content")]


@pytest.mark.parametrize(("owner", "target"), PAIRS, ids=[f"{one}-{other}" for one, other in PAIRS])
async def test_after_a_conversion_the_model_gets_the_same_history(
    harness: ConversationHarness, owner: Strategy, target: Strategy
) -> None:
    old = await harness.sample_chat(owner)
    before, file = old.session, ReplayFile(harness.folder / "talk.json")
    in_file = file.read()
    history = old.state.path.items
    requests = len(harness.model.requests)

    session = await convert(harness, before.name, target)

    assert len(harness.model.requests) == requests, "no model is asked to convert"
    assert await harness.session(before.id) == before
    assert file.read() == in_file
    new = await harness.open(session.name)
    assert new.session.strategy is target
    assert session.instructions == before.instructions == "Be brief."
    await send_items(new, user_message("And now?"))
    await send_items(old, user_message("And now?"))
    request, expected = harness.model.requests[-2:]
    assert item_digests(request.input) == item_digests(expected.input)
    assert [item_type(item) for item in request.input].count("message") > 3
    assert request.instructions == expected.instructions == "Be brief."
    assert item_digests(new.state.path.items[:-2]) == item_digests(history)
    assert digest(SEALED) in item_digests(new.state.path.items)

    await send_items(new, user_message("Once more."))
    sent = harness.endpoint.bodies[-1]["input"]
    assert (len(sent) == 1) == STRATEGIES[target].is_server_side
    assert item_digests(new.state.path.items[:-4]) == item_digests(history), "nothing doubles"
    assert item_digests(harness.model.requests[-1].input)[: len(item_digests(request.input))] == item_digests(
        request.input
    )


@pytest.mark.parametrize(("owner", "target"), PAIRS, ids=[f"{one}-{other}" for one, other in PAIRS])
async def test_the_items_that_a_conversion_loses_are_exactly_those_announced(
    harness: ConversationHarness, owner: Strategy, target: Strategy
) -> None:
    old = await harness.sample_chat(owner)
    source = await harness.source(old.session.name)
    losses = plan_transfer(source.transfer_items, TransferTarget(target, EMBEDDED_SCOPE, harness.name)).losses
    expected = {"reasoning_unsealed": "left out", "item_ids": "changed"}
    assert {loss.code: loss.effect for loss in losses} == (
        expected if STRATEGIES[target].is_server_side else {"reasoning_unsealed": "not sent"}
    )
    session = await convert(harness, old.session.name, target)
    digests = [digest(item) for item in (await harness.store.path(session.head)).items]
    missing = [index for index, one in enumerate(source.transfer_items, 1) if digest(one.item) not in digests]
    assert missing == [index for loss in losses if loss.effect is LossEffect.LEFT_OUT for index in loss.positions]


@pytest.mark.parametrize("target", [Strategy.SESSION, Strategy.REPLAY])
async def test_a_conversion_to_the_client_shares_every_node_with_its_source(
    harness: ConversationHarness, target: Strategy
) -> None:
    old = await harness.sample_chat(Strategy.CHAIN)
    session = await convert(harness, old.session.name, target)
    assert (session.head, session.confirmed_head) == (old.session.head, old.session.confirmed_head)


async def test_a_converted_replay_file_has_the_items_unchanged(harness: ConversationHarness) -> None:
    old = await harness.sample_chat(Strategy.CONVERSATION)
    session = await convert(
        harness, old.session.name, Strategy.REPLAY, ConvertDestination(file=str(harness.folder / "mine.json"))
    )
    assert session.handle == str(harness.folder / "mine.json")
    assert ReplayFile(session.handle).read_valid() == list(old.state.path.items)


async def test_an_existing_file_is_not_overwritten(harness: ConversationHarness) -> None:
    old = await harness.sample_chat(Strategy.SESSION)
    path = harness.folder / "mine.json"
    path.write_text("[]")
    with pytest.raises(Conflict) as refused:
        await convert(harness, old.session.name, Strategy.REPLAY, ConvertDestination(file=str(path)))
    assert (refused.value.message, refused.value.hint) == (f"{path} already exists", "choose a new file with --as")
    assert path.read_text() == "[]"


async def test_a_named_pipe_is_not_read_as_a_file(harness: ConversationHarness) -> None:
    old = await harness.sample_chat(Strategy.SESSION)
    path = harness.folder / "pipe.json"
    os.mkfifo(path)
    with pytest.raises(Conflict, match="already exists"):
        await convert(harness, old.session.name, Strategy.REPLAY, ConvertDestination(file=str(path)))


@pytest.mark.parametrize("target", [Strategy.CONVERSATION, Strategy.REPLAY])
async def test_a_conversion_to_a_name_that_is_taken_leaves_no_conversation_and_no_file(
    harness: ConversationHarness, target: Strategy
) -> None:
    old = await harness.sample_chat(Strategy.SESSION)
    path = harness.folder / "mine.json"
    destination = ConvertDestination(old.session.name, str(path) if target is Strategy.REPLAY else None)
    with pytest.raises(Conflict, match=f"another session has the name '{old.session.name}'"):
        await convert(harness, old.session.name, target, destination)
    assert not path.exists()
    created = harness.endpoint.created_conversations
    assert len(created) == (target is Strategy.CONVERSATION)
    for conversation in created:
        with pytest.raises(NotFound):
            await harness.endpoint.retrieve_conversation(conversation)
    assert [one.id for one in await harness.store.sessions()] == [old.session.id]


async def test_a_converted_session_has_a_name_like_that_of_its_source(harness: ConversationHarness) -> None:
    harness.name = ECHO
    chat = await harness.open(None, Strategy.SESSION)
    await send_items(chat, user_message("Hello there."))
    await harness.store.commit(
        Transaction(session=replace(chat.session, name="mine"), expected_session_head=chat.session.head)
    )
    session = await convert(harness, "mine", Strategy.CHAIN)
    assert (session.name, session.id[:3]) == ("mine-2", "ses")
    assert session.created_at == session.used_at == harness.clock.now()


async def test_a_response_without_a_session_is_a_source_with_its_instructions(harness: ConversationHarness) -> None:
    harness.name = ECHO
    events = [
        event
        async for event in harness.endpoint.create(
            {"model": harness.name, "input": "Weather in Oslo?", "instructions": "Be brief."}
        )
    ]
    source = await harness.source(events[-1]["response"]["id"])
    assert (source.name, source.created_at, source.instructions) == (None, None, "Be brief.")
    session = await convert(harness, source.handle, Strategy.SESSION)
    assert (session.name, session.instructions) == ("weather-in-oslo", "Be brief.")


async def test_an_endpoint_that_is_not_reachable_is_replaced_by_the_local_copy(
    harness: ConversationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await harness.sample_chat(Strategy.CONVERSATION)

    async def fail(_: str) -> None:
        raise Unreachable("the endpoint is down")

    monkeypatch.setattr(harness.endpoint, "retrieve_conversation", fail, raising=False)
    source = await harness.source(old.session.name)
    assert source.notes == ("the endpoint is down; using the local copy",)
    assert [one.item for one in source.transfer_items] == list(old.state.path.items)


async def test_the_items_of_another_endpoint_are_not_read_from_the_local_store(
    harness: ConversationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other endpoint has a conversation with the same id and other items."""
    harness.name = ECHO
    chat = await harness.open(None, Strategy.CONVERSATION)
    await send_items(chat, user_message("Mine."))
    other = await harness.endpoint.create_conversation([user_message("Theirs.")], None)
    list_items = harness.endpoint.list_conversation_items
    monkeypatch.setattr(harness.endpoint, "scope", Scope("https://elsewhere.example"), raising=False)
    monkeypatch.setattr(
        harness.endpoint,
        "list_conversation_items",
        lambda _, **options: list_items(str(other["id"]), **options),
        raising=False,
    )
    source = await harness.source(chat.session.name)
    assert [item_text(one.item) for one in source.transfer_items] == ["Theirs."]
    assert source.notes == ("the local record differs from the conversation; using the conversation",)


async def test_a_conversation_is_created_from_twenty_items_at_a_time(harness: ConversationHarness) -> None:
    harness.name = ECHO
    chat = await harness.open(None, Strategy.SESSION)
    for number in range(21):
        await send_items(chat, user_message(f"Number {number}."))
    session = await convert(harness, chat.session.name, Strategy.CONVERSATION)
    found = await harness.store.conversation(session.handle or "")
    assert found
    assert item_digests((await harness.store.path(found.head)).items) == item_digests(chat.state.path.items)
    assert (session.head, session.confirmed_head) == (found.head, found.head)


async def test_a_conversation_whose_items_are_refused_is_removed(
    harness: ConversationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.name = ECHO
    chat = await harness.open(None, Strategy.SESSION)
    for number in range(11):
        await send_items(chat, user_message(f"Number {number}."))
    created: list[str] = []

    async def refuse_items(conversation_id: str, items: Sequence[Item]) -> None:
        created.append(conversation_id)
        raise RequestRefused("no more")

    async def lose_items(conversation_id: str, items: Sequence[Item]) -> None:
        created.append(conversation_id)

    monkeypatch.setattr(harness.endpoint, "add_conversation_items", lose_items, raising=False)
    with pytest.raises(StateFault) as caught:
        await convert(harness, chat.session.name, Strategy.CONVERSATION)
    assert caught.value.message == f"{created.pop()} has 20 items, but 22 were sent"
    monkeypatch.setattr(harness.endpoint, "add_conversation_items", refuse_items, raising=False)
    with pytest.raises(RequestRefused):
        await convert(harness, chat.session.name, Strategy.CONVERSATION)
    with pytest.raises(NotFound):
        await harness.endpoint.retrieve_conversation(created[0])
    assert [one.id for one in await harness.store.sessions()] == [chat.session.id]


@pytest.mark.parametrize("target", Strategy)
async def test_unanswered_input_stays_unconfirmed_after_a_conversion(
    harness: ConversationHarness, target: Strategy
) -> None:
    owner = Strategy.CHAIN if target is Strategy.SESSION else Strategy.SESSION
    old = await harness.sample_chat(owner)
    harness.endpoint.faults.append(EndpointFault(RequestRefused("not today")))
    with pytest.raises(RequestRefused):
        await send_items(old, user_message("Lost?"))

    session = await convert(harness, old.session.name, target)

    new = await harness.open(session.name)
    texts = [item_text(node.item) for node in new.state.unconfirmed_nodes]
    assert texts[-1] == "Lost?"
    assert len(texts) == (len(new.state.path) if target is Strategy.CHAIN else 1)
    await send_items(new, user_message("Found."))
    assert [item_text(item) for item in harness.model.requests[-1].input[-2:]] == ["Lost?", "Found."]


async def test_items_that_other_clients_added_to_a_conversation_are_converted_once(
    harness: ConversationHarness,
) -> None:
    harness.name = ECHO
    chat = await harness.open(None, Strategy.CONVERSATION)
    await send_items(chat, user_message("Mine."))
    async for _ in harness.endpoint.create(
        {"model": harness.name, "input": "Theirs.", "conversation": chat.session.handle}
    ):
        pass
    session = await convert(harness, chat.session.name, Strategy.SESSION)
    texts = [item_text(item) for item in (await harness.store.path(session.head)).items if item.get("role") == "user"]
    assert texts == ["Mine.", "Theirs."]


async def test_a_conversation_that_lost_an_item_is_converted_without_it(harness: ConversationHarness) -> None:
    harness.name = ECHO
    chat = await harness.open(None, Strategy.CONVERSATION)
    await send_items(chat, user_message("Secret."))
    await send_items(chat, user_message("Plain."))
    endpoint_items = (await harness.endpoint.list_conversation_items(chat.session.handle or "", order="asc")).items
    await harness.endpoint.delete_conversation_item(chat.session.handle or "", str(endpoint_items[0]["id"]))
    assert (await harness.source(chat.session.name)).notes == ()
    session = await convert(harness, chat.session.name, Strategy.CHAIN)
    texts = [item_text(item) for item in (await harness.store.path(session.head)).items if item.get("role") == "user"]
    assert texts == ["Plain."]
    assert (await harness.source(chat.session.name)).notes == ()


async def test_a_converted_chain_does_not_continue_a_response_of_another_client(harness: ConversationHarness) -> None:
    """The other client's response has the same input as the first turn."""
    harness.name = ECHO
    async for _ in harness.endpoint.create({"model": harness.name, "input": "Weather in Oslo?"}):
        pass
    old = await harness.open(None, Strategy.SESSION)
    await send_items(old, user_message("Weather in Oslo?"))
    session = await convert(harness, old.session.name, Strategy.CHAIN)
    new = await harness.open(session.name)
    await send_items(new, user_message("And now?"))
    assert "previous_response_id" not in harness.endpoint.bodies[-1]
    assert item_digests(new.state.path.items[:-2]) == item_digests(old.state.path.items)


async def test_undo_on_a_converted_chain_removes_one_turn_and_not_the_history(harness: ConversationHarness) -> None:
    old = await harness.sample_chat(Strategy.SESSION)
    session = await convert(harness, old.session.name, Strategy.CHAIN)
    new = await harness.open(session.name)
    await new.undo()
    assert item_digests(new.state.path.items) == item_digests(old.state.path.items[:-2])


async def test_a_fork_of_a_converted_chain_starts_with_its_complete_history(harness: ConversationHarness) -> None:
    old = await harness.sample_chat(Strategy.SESSION)
    session = await convert(harness, old.session.name, Strategy.CHAIN)
    forked = await fork_session(session, old.options, harness.deps)
    await send_items(forked, user_message("And now?"))
    assert item_digests(forked.state.path.items[:-2]) == item_digests(old.state.path.items)


async def test_a_turn_of_a_conversation_can_be_undone_in_a_converted_copy_only(harness: ConversationHarness) -> None:
    old = await harness.sample_chat(Strategy.CONVERSATION)
    with pytest.raises(WrongOwner) as error:
        await old.undo()
    assert error.value.hint == f"convo convert {old.session.handle} --to session, then undo it there"
    session = await convert(harness, old.session.name, Strategy.SESSION)
    new = await harness.open(session.name)
    await new.undo()
    assert item_digests(new.state.path.items) == item_digests(old.state.path.items[:-2])


@pytest.mark.parametrize("owner", [Strategy.SESSION, Strategy.REPLAY, Strategy.CHAIN])
async def test_a_conversion_to_the_same_owner_is_refused(harness: ConversationHarness, owner: Strategy) -> None:
    old = await harness.sample_chat(owner)
    with pytest.raises(InvalidUsage) as refused:
        await convert(harness, old.session.name, owner)
    handle = (await harness.source(old.session.name)).handle
    assert (refused.value.message, refused.value.hint) == (
        f"{handle} already has the strategy {owner}",
        f"for a copy: convo chat --fork {handle}",
    )


async def test_a_chat_without_a_message_is_not_converted(harness: ConversationHarness) -> None:
    chat = await harness.open(None, Strategy.SESSION)
    with pytest.raises(InvalidUsage) as refused:
        await convert_chat(chat, Strategy.CHAIN)
    assert (refused.value.message, refused.value.hint) == (
        "the conversation has no message yet",
        "exit, and start with convo chat --chain",
    )


async def test_a_conversation_can_be_converted_to_a_second_conversation(harness: ConversationHarness) -> None:
    old = await harness.sample_chat(Strategy.CONVERSATION)
    session = await convert(harness, old.session.name, Strategy.CONVERSATION)
    assert session.handle != old.session.handle
    assert item_digests((await harness.store.path(session.head)).items) == item_digests(old.state.path.items)


async def test_a_history_that_lost_an_item_has_no_source_without_its_owner(harness: ConversationHarness) -> None:
    harness.name = ECHO
    chat = await harness.open(None, Strategy.CONVERSATION)
    await send_items(chat, user_message("Secret."))
    handle = chat.session.handle or ""
    item = (await harness.endpoint.list_conversation_items(handle, order="asc")).items[0]
    await harness.endpoint.delete_conversation_item(handle, str(item["id"]))
    view = await load_handle_view(harness.store, chat.session.name)
    with pytest.raises(ItemDeleted) as caught:
        await load_source(view, harness.store)
    assert str(view.unreadable_head)[:8] in caught.value.message


async def test_an_unclaimed_copy_is_used_and_stays_after_a_conflict(harness: ConversationHarness) -> None:
    """A conversion that was killed before its session was stored leaves the file."""
    old = await harness.sample_chat(Strategy.SESSION)
    file = harness.folder / "mine.json"
    ReplayFile(file).write(old.state.path.items)
    with pytest.raises(Conflict):
        await convert(harness, old.session.name, Strategy.REPLAY, ConvertDestination(old.session.name, str(file)))
    assert ReplayFile(file).read_valid() == list(old.state.path.items)
    session = await convert(harness, old.session.name, Strategy.REPLAY, ConvertDestination(None, str(file)))
    assert session.handle == str(file)
    with pytest.raises(Conflict, match="already exists"):
        await convert(harness, old.session.name, Strategy.REPLAY, ConvertDestination(None, str(file)))


async def test_a_folder_is_not_overwritten(harness: ConversationHarness) -> None:
    old = await harness.sample_chat(Strategy.SESSION)
    path = harness.folder / "mine.json"
    path.mkdir()
    with pytest.raises(Conflict, match="already exists"):
        await convert(harness, old.session.name, Strategy.REPLAY, ConvertDestination(None, str(path)))


async def test_a_response_of_another_client_is_converted_with_its_instructions(harness: ConversationHarness) -> None:
    harness.name = ECHO
    async for event in harness.endpoint.create({"model": ECHO, "input": "Hello.", "instructions": "Be kind."}):
        last = event
    source = await harness.source(last["response"]["id"])
    assert (source.name, source.instructions, source.created_at, source.model) == (None, "Be kind.", None, ECHO)
    session = await convert(harness, last["response"]["id"], Strategy.SESSION)
    assert (session.name, session.instructions, session.model) == ("hello", "Be kind.", ECHO)


async def test_a_conversation_without_items_is_converted(harness: ConversationHarness) -> None:
    harness.name = ECHO
    created = await harness.endpoint.create_conversation([])
    session = await convert(harness, str(created["id"]), Strategy.SESSION)
    assert (session.name, session.head, session.confirmed_head) == ("chat", session.head, session.head)
    assert not (await harness.store.path(session.head)).items


async def test_a_confirmed_chain_is_converted_without_a_request(harness: ConversationHarness) -> None:
    old = await harness.sample_chat(Strategy.CHAIN)
    harness.endpoint.bodies.clear()
    harness.endpoint.other_calls.clear()
    await convert(harness, old.session.name, Strategy.SESSION)
    assert (harness.endpoint.bodies, harness.endpoint.other_calls) == ([], [])

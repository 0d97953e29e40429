"""Every owner hands a whole history to every other one, and a turn there goes on from all of it."""

from collections.abc import Sequence
from itertools import permutations

import pytest

from convo.chat.files import ReplayFile
from convo.chat.open import fork_session
from convo.errors import Conflict, InvalidUsage, NotFound, RequestRefused, WrongOwner
from convo.history.canonical import Digest, digest
from convo.history.items import Item, item_text, item_type, user_message
from convo.history.records import EMBEDDED_SCOPE, Session, Strategy
from convo.strategies.conversion import LossEffect, TransferTarget, plan_transfer
from convo.strategies.strategy import STRATEGIES
from convo.transfer.convert import ConvertDestination, SessionWriter, check_convertible, convert_conversation
from tests.chat.recorded import Fault
from tests.transfer.histories import ECHO, SEALED, Hall, say

ANY_NAME = ConvertDestination()

PAIRS = list(permutations(Strategy, 2))


async def converted(hall: Hall, handle: str, to: Strategy, wish: ConvertDestination = ANY_NAME) -> Session:
    source = await hall.source(handle)
    target = TransferTarget(to, EMBEDDED_SCOPE, hall.name)
    check_convertible(source, target)
    carried = plan_transfer(source.transfer_items, target)
    beside = SessionWriter(hall.store, hall.clock, hall.edges.new_id)
    return await convert_conversation(source, carried, target, wish, beside, hall.endpoint)


def meant(items: Sequence[Item]) -> list[Digest]:
    """What was said, without what no other owner is given: reasoning that is not sealed."""
    return [digest(item) for item in items if item_type(item) != "reasoning" or item.get("encrypted_content")]


@pytest.mark.parametrize(("owner", "to"), PAIRS, ids=[f"{one}-{other}" for one, other in PAIRS])
async def test_a_turn_at_the_new_owner_shows_the_model_what_the_old_one_would_have(
    hall: Hall, owner: Strategy, to: Strategy
) -> None:
    old = await hall.story(owner)
    before, file = old.session, ReplayFile(hall.folder / "talk.json")
    in_file = file.read()
    history = old.state.path.items
    requests = len(hall.model.heard)

    session = await converted(hall, before.name, to)

    assert len(hall.model.heard) == requests, "no model is asked to convert"
    assert await hall.session(before.id) == before
    assert file.read() == in_file
    new = await hall.open(session.name)
    assert new.session.strategy is to
    assert session.instructions == before.instructions == "Be brief."
    await say(new, user_message("And now?"))
    await say(old, user_message("And now?"))
    heard, expected = hall.model.heard[-2:]
    assert meant(heard.input) == meant(expected.input)
    assert [item_type(item) for item in heard.input].count("message") > 3
    assert heard.instructions == expected.instructions == "Be brief."
    assert meant(new.state.path.items[:-2]) == meant(history)
    assert digest(SEALED) in meant(new.state.path.items)

    await say(new, user_message("Once more."))
    sent = hall.endpoint.bodies[-1]["input"]
    assert (len(sent) == 1) == STRATEGIES[to].is_server_side
    assert meant(new.state.path.items[:-4]) == meant(history), "nothing doubles"
    assert meant(hall.model.heard[-1].input)[: len(meant(heard.input))] == meant(heard.input)


@pytest.mark.parametrize(("owner", "to"), PAIRS, ids=[f"{one}-{other}" for one, other in PAIRS])
async def test_what_does_not_go_over_is_exactly_what_was_told_before(hall: Hall, owner: Strategy, to: Strategy) -> None:
    old = await hall.story(owner)
    source = await hall.source(old.session.name)
    losses = plan_transfer(source.transfer_items, TransferTarget(to, EMBEDDED_SCOPE, hall.name)).losses
    expected = {"reasoning_unsealed": "left out", "item_ids": "changed"}
    assert {loss.code: loss.effect for loss in losses} == (
        expected if STRATEGIES[to].is_server_side else {"reasoning_unsealed": "not sent"}
    )
    session = await converted(hall, old.session.name, to)
    there = [digest(item) for item in (await hall.store.path(session.head)).items]
    missing = [at for at, one in enumerate(source.transfer_items, 1) if digest(one.item) not in there]
    assert missing == [at for loss in losses if loss.effect is LossEffect.LEFT_OUT for at in loss.positions]


@pytest.mark.parametrize("to", [Strategy.SESSION, Strategy.REPLAY])
async def test_an_owner_at_the_client_shares_every_place_with_its_source(hall: Hall, to: Strategy) -> None:
    old = await hall.story(Strategy.CHAIN)
    session = await converted(hall, old.session.name, to)
    assert (session.head, session.confirmed_head) == (old.session.head, old.session.confirmed_head)


async def test_a_file_holds_the_history_as_it_travelled(hall: Hall) -> None:
    old = await hall.story(Strategy.CONVERSATION)
    session = await converted(
        hall, old.session.name, Strategy.REPLAY, ConvertDestination(file=str(hall.folder / "mine.json"))
    )
    assert session.handle == str(hall.folder / "mine.json")
    assert ReplayFile(session.handle).read_valid() == list(old.state.path.items)


async def test_a_file_that_is_there_is_not_written_over(hall: Hall) -> None:
    old = await hall.story(Strategy.SESSION)
    there = hall.folder / "mine.json"
    there.write_text("[]")
    with pytest.raises(Conflict, match="already exists"):
        await converted(hall, old.session.name, Strategy.REPLAY, ConvertDestination(file=str(there)))
    assert there.read_text() == "[]"


async def test_a_conversation_is_seeded_twenty_items_at_a_time(hall: Hall) -> None:
    hall.name = ECHO
    chat = await hall.open(None, Strategy.SESSION)
    for number in range(21):
        await say(chat, user_message(f"Number {number}."))
    session = await converted(hall, chat.session.name, Strategy.CONVERSATION)
    found = await hall.store.conversation(session.handle or "")
    assert found
    assert meant((await hall.store.path(found.head)).items) == meant(chat.state.path.items)
    assert (session.head, session.confirmed_head) == (found.head, found.head)


async def test_a_seed_that_is_refused_leaves_no_conversation(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    hall.name = ECHO
    chat = await hall.open(None, Strategy.SESSION)
    for number in range(11):
        await say(chat, user_message(f"Number {number}."))
    made: list[str] = []

    async def refused(conversation_id: str, items: Sequence[Item]) -> None:
        made.append(conversation_id)
        raise RequestRefused("no more")

    monkeypatch.setattr(hall.endpoint, "add_conversation_items", refused, raising=False)
    with pytest.raises(RequestRefused):
        await converted(hall, chat.session.name, Strategy.CONVERSATION)
    with pytest.raises(NotFound):
        await hall.endpoint.retrieve_conversation(made[0])
    assert [one.id for one in await hall.store.sessions()] == [chat.session.id]


@pytest.mark.parametrize("to", Strategy)
async def test_what_was_said_and_not_answered_waits_at_the_new_owner_too(hall: Hall, to: Strategy) -> None:
    owner = Strategy.CHAIN if to is Strategy.SESSION else Strategy.SESSION
    old = await hall.story(owner)
    hall.endpoint.faults.append(Fault(RequestRefused("not today")))
    with pytest.raises(RequestRefused):
        await say(old, user_message("Lost?"))

    session = await converted(hall, old.session.name, to)

    new = await hall.open(session.name)
    waits = [item_text(node.item) for node in new.state.unconfirmed_nodes]
    assert waits[-1] == "Lost?"
    assert len(waits) == (len(new.state.path) if to is Strategy.CHAIN else 1)
    await say(new, user_message("Found."))
    assert [item_text(item) for item in hall.model.heard[-1].input[-2:]] == ["Lost?", "Found."]


async def test_what_others_said_in_a_conversation_goes_over_once(hall: Hall) -> None:
    hall.name = ECHO
    chat = await hall.open(None, Strategy.CONVERSATION)
    await say(chat, user_message("Mine."))
    async for _ in hall.endpoint.create({"model": hall.name, "input": "Theirs.", "conversation": chat.session.handle}):
        pass
    session = await converted(hall, chat.session.name, Strategy.SESSION)
    said = [item_text(item) for item in (await hall.store.path(session.head)).items if item.get("role") == "user"]
    assert said == ["Mine.", "Theirs."]


async def test_a_conversation_that_lost_an_item_goes_over_without_it(hall: Hall) -> None:
    hall.name = ECHO
    chat = await hall.open(None, Strategy.CONVERSATION)
    await say(chat, user_message("Secret."))
    await say(chat, user_message("Plain."))
    listed = (await hall.endpoint.list_conversation_items(chat.session.handle or "", order="asc")).items
    await hall.endpoint.delete_conversation_item(chat.session.handle or "", str(listed[0]["id"]))
    session = await converted(hall, chat.session.name, Strategy.CHAIN)
    said = [item_text(item) for item in (await hall.store.path(session.head)).items if item.get("role") == "user"]
    assert said == ["Plain."]


async def test_a_converted_chain_takes_no_response_of_somebody_elses_for_its_own(hall: Hall) -> None:
    """Another client's chain begins with the same words: it answers nothing that this one asked."""
    hall.name = ECHO
    async for _ in hall.endpoint.create({"model": hall.name, "input": "Weather in Oslo?"}):
        pass
    old = await hall.open(None, Strategy.SESSION)
    await say(old, user_message("Weather in Oslo?"))
    session = await converted(hall, old.session.name, Strategy.CHAIN)
    new = await hall.open(session.name)
    await say(new, user_message("And now?"))
    assert "previous_response_id" not in hall.endpoint.bodies[-1]
    assert meant(new.state.path.items[:-2]) == meant(old.state.path.items)


async def test_undo_on_a_converted_chain_takes_one_turn_back_and_not_the_history(hall: Hall) -> None:
    old = await hall.story(Strategy.SESSION)
    session = await converted(hall, old.session.name, Strategy.CHAIN)
    new = await hall.open(session.name)
    await new.undo()
    assert meant(new.state.path.items) == meant(old.state.path.items[:-2])


async def test_a_fork_of_a_converted_chain_begins_with_its_whole_history(hall: Hall) -> None:
    old = await hall.story(Strategy.SESSION)
    session = await converted(hall, old.session.name, Strategy.CHAIN)
    forked = await fork_session(session, old.options, hall.edges)
    await say(forked, user_message("And now?"))
    assert meant(forked.state.path.items[:-2]) == meant(old.state.path.items)


async def test_what_a_conversation_cannot_take_back_its_copy_can(hall: Hall) -> None:
    old = await hall.story(Strategy.CONVERSATION)
    with pytest.raises(WrongOwner) as refused:
        await old.undo()
    assert refused.value.hint == f"convo convert {old.session.handle} --to session, then undo it there"
    session = await converted(hall, old.session.name, Strategy.SESSION)
    new = await hall.open(session.name)
    await new.undo()
    assert meant(new.state.path.items) == meant(old.state.path.items[:-2])


@pytest.mark.parametrize("owner", [Strategy.SESSION, Strategy.REPLAY, Strategy.CHAIN])
async def test_an_owner_is_not_asked_to_hold_what_it_holds(hall: Hall, owner: Strategy) -> None:
    old = await hall.story(owner)
    with pytest.raises(InvalidUsage, match="already"):
        await converted(hall, old.session.name, owner)


async def test_a_conversation_becomes_a_second_one(hall: Hall) -> None:
    old = await hall.story(Strategy.CONVERSATION)
    session = await converted(hall, old.session.name, Strategy.CONVERSATION)
    assert session.handle != old.session.handle
    assert meant((await hall.store.path(session.head)).items) == meant(old.state.path.items)

"""/retry and /undo for every owner, before and after a turn was confirmed."""

from dataclasses import replace

import pytest

from convo.errors import InvalidUsage, WrongOwner
from convo.history.items import SUMMARY_HEADING, Item, assistant_message, user_message
from convo.history.records import Link, Strategy
from convo.history.tree import Key, Path, root_key
from convo.strategies.branching import undo_last_answer, undo_last_turn
from convo.strategies.strategy import ConversationState

START = Path(root_key("local"))
ONE = (user_message("one"), assistant_message("first"))
TWO = (user_message("two"), assistant_message("second"))
UNDO_STRATEGIES = [Strategy.REPLAY, Strategy.SESSION, Strategy.CHAIN]


def confirmed(strategy: Strategy) -> tuple[ConversationState, Link]:
    """Return two confirmed turns, and the link of the second."""
    path = START.append([*ONE, *TWO])
    state = ConversationState(strategy, path, path.head, {"chain": "resp_2", "conversation": "conv_1"}.get(strategy))
    return state, link(path.first(3).head, path.head)


def link(input_head: Key, head: Key) -> Link:
    return Link(
        id="resp_2",
        input_head=input_head,
        head=head,
        sent_count=1,
        model="m",
        strategy=Strategy.CHAIN,
        status="completed",
        created_at=0,
        previous_response_id="resp_1",
    )


def message_texts(state: ConversationState) -> list[str]:
    return [item["content"][0]["text"] for item in state.path.items]


@pytest.mark.parametrize("strategy", Strategy)
def test_undo_of_an_unconfirmed_turn_moves_to_the_confirmed_head(strategy: Strategy) -> None:
    state, last = confirmed(strategy)
    partial: Item = {**assistant_message("hal"), "status": "incomplete"}
    assert undo_last_turn(replace(state, path=state.path.append([user_message("three"), partial])), last) == state


@pytest.mark.parametrize("strategy", Strategy)
def test_retry_of_an_unconfirmed_turn_drops_the_partial_answer_and_keeps_the_input(strategy: Strategy) -> None:
    state, last = confirmed(strategy)
    unconfirmed_state = replace(state, path=state.path.append([user_message("three")]))
    cancelled = replace(
        unconfirmed_state, path=unconfirmed_state.path.append([{**assistant_message("hal"), "status": "incomplete"}])
    )
    assert undo_last_answer(cancelled, last) == unconfirmed_state


@pytest.mark.parametrize("strategy", UNDO_STRATEGIES)
def test_undo_of_a_confirmed_turn_moves_before_its_input(strategy: Strategy) -> None:
    state, last = confirmed(strategy)
    undone = undo_last_turn(state, last)

    assert message_texts(undone) == ["one", "first"]
    assert undone.unconfirmed_nodes == ()
    assert undone.handle == ("resp_1" if strategy is Strategy.CHAIN else None)


@pytest.mark.parametrize("strategy", UNDO_STRATEGIES)
def test_retry_of_a_confirmed_turn_sends_its_input_again(strategy: Strategy) -> None:
    state, last = confirmed(strategy)
    again = undo_last_answer(state, last)

    assert message_texts(again) == ["one", "first", "two"]
    assert [node.item for node in again.unconfirmed_nodes] == [user_message("two")]
    assert again.handle == ("resp_1" if strategy is Strategy.CHAIN else None)


@pytest.mark.parametrize("undo", [undo_last_answer, undo_last_turn])
def test_a_confirmed_turn_of_a_conversation_cannot_be_undone(undo: object) -> None:
    state, last = confirmed(Strategy.CONVERSATION)
    with pytest.raises(WrongOwner):
        undo(state, last)  # type: ignore[operator]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("undo", [undo_last_answer, undo_last_turn])
def test_an_empty_history_has_nothing_to_undo(strategy: Strategy, undo: object) -> None:
    with pytest.raises(InvalidUsage):
        undo(ConversationState(strategy, START, START.root), None)  # type: ignore[operator]


# -- calls, compactions and unconfirmed histories ---------------------------------------------------------

CALL: Item = {"type": "function_call", "call_id": "c", "name": "tea", "arguments": "{}"}
OUTPUT: Item = {"type": "function_call_output", "call_id": "c", "output": "hot"}
SUMMARY = user_message(f"{SUMMARY_HEADING}\n\nThey counted.")
PARTIAL: Item = {**assistant_message("hal"), "status": "incomplete"}


def unconfirmed(strategy: Strategy, *items: Item) -> ConversationState:
    """Return a history of another owner, which has no confirmed items."""
    return ConversationState(strategy, START.append(items), START.root)


def test_a_server_is_asked_again_with_the_last_input_and_a_client_with_the_last_message() -> None:
    path = START.append([*ONE, user_message("two"), CALL, OUTPUT, assistant_message("second")])
    last = replace(link(path.first(5).head, path.head), previous_response_id="resp_tea")
    chain = undo_last_answer(ConversationState(Strategy.CHAIN, path, path.head, "resp_2"), last)
    assert (chain.path, chain.handle) == (path.first(5), "resp_tea")
    assert [node.item for node in chain.unconfirmed_nodes] == [OUTPUT]
    session = undo_last_answer(ConversationState(Strategy.SESSION, path, path.head), last)
    assert (session.path, session.confirmed_head) == (path.first(3), path.first(2).head)


def test_a_chain_whose_last_response_is_unknown_is_asked_again_from_its_message() -> None:
    state, _ = confirmed(Strategy.CHAIN)
    assert message_texts(undo_last_answer(state, None)) == ["one", "first", "two"]


def test_a_conversation_that_has_the_input_cannot_be_asked_again() -> None:
    path = START.append([*ONE, user_message("two")])
    state = ConversationState(Strategy.CONVERSATION, path.append([PARTIAL]), path.head, "conv_1")
    with pytest.raises(WrongOwner):
        undo_last_answer(state, None)


@pytest.mark.parametrize(
    ("items", "kept_count"),
    [
        ((*ONE, *TWO), 2),
        ((*ONE, user_message("two")), 2),
        ((user_message("one"), CALL, OUTPUT), 2),
        ((*ONE, user_message("two"), user_message("three"), PARTIAL), 2),
        ((SUMMARY, user_message("two"), PARTIAL), 1),
    ],
)
def test_undo_in_a_history_of_another_owner_keeps_complete_turns(items: tuple[Item, ...], kept_count: int) -> None:
    state = unconfirmed(Strategy.CHAIN, *items)
    assert undo_last_turn(state, None) == replace(state, path=state.path.first(kept_count))


@pytest.mark.parametrize("undo", [undo_last_answer, undo_last_turn])
@pytest.mark.parametrize("items", [(SUMMARY, PARTIAL), (SUMMARY, assistant_message("first"))])
def test_undo_stops_at_a_compaction(undo: object, items: tuple[Item, ...]) -> None:
    path = START.append(items)
    with pytest.raises(InvalidUsage) as error:
        undo(ConversationState(Strategy.SESSION, path, path.head), None)  # type: ignore[operator]
    assert error.value.message == "the conversation has no message since the compaction"
    assert error.value.hint == "type a message"


@pytest.mark.parametrize("undo", [undo_last_answer, undo_last_turn])
def test_a_conversation_without_a_message_has_nothing_to_undo(undo: object) -> None:
    with pytest.raises(InvalidUsage) as error:
        undo(ConversationState(Strategy.SESSION, START, START.root), None)  # type: ignore[operator]
    assert error.value.message == "the conversation has no message yet"


def test_retry_after_a_compaction_needs_a_message_after_it() -> None:
    with pytest.raises(InvalidUsage, match="since the compaction"):
        undo_last_answer(unconfirmed(Strategy.SESSION, SUMMARY, PARTIAL), None)


def test_a_conversation_names_the_way_to_undo_its_last_turn() -> None:
    state, last = confirmed(Strategy.CONVERSATION)
    with pytest.raises(WrongOwner) as error:
        undo_last_turn(state, last)
    assert error.value.message == "the endpoint stores the last turn, so it cannot be undone here"
    assert error.value.hint == "convo convert conv_1 --to session, then undo it there"


def test_undo_of_the_first_response_of_a_chain_restarts_it() -> None:
    """The first request of this chain sent the whole history of another owner."""
    path = START.append([*ONE, *TWO])
    first = replace(link(path.first(3).head, path.head), previous_response_id=None, sent_count=3)
    undone = undo_last_turn(ConversationState(Strategy.CHAIN, path, path.head, "resp_2"), first)
    assert (message_texts(undone), undone.handle, len(undone.unconfirmed_nodes)) == (["one", "first"], None, 2)


def test_a_chain_that_restarted_after_a_compaction_has_nothing_to_undo() -> None:
    """The last response of the chain belongs to the history before the compaction."""
    _, last = confirmed(Strategy.CHAIN)
    for undo in (undo_last_answer, undo_last_turn):
        with pytest.raises(InvalidUsage, match="since the compaction"):
            undo(unconfirmed(Strategy.CHAIN, SUMMARY), last)

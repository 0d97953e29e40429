"""/retry and /undo, under every owner, before and after a turn was confirmed."""

from dataclasses import replace

import pytest

from convo.errors import InvalidUsage, WrongOwner
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Link, Strategy
from convo.history.tree import Key, Path, root_key
from convo.strategies.branching import undo_last_answer, undo_last_turn
from convo.strategies.strategy import ConversationState

START = Path(root_key("local"))
ONE = (user_message("one"), assistant_message("first"))
TWO = (user_message("two"), assistant_message("second"))
GOING_BACK = [Strategy.REPLAY, Strategy.SESSION, Strategy.CHAIN]


def confirmed(strategy: Strategy) -> tuple[ConversationState, Link]:
    """Two confirmed turns, and the link of the second."""
    path = START.append([*ONE, *TWO])
    held = ConversationState(strategy, path, path.head, {"chain": "resp_2", "conversation": "conv_1"}.get(strategy))
    return held, link(path.first(3).head, path.head)


def link(saw: Key, head: Key) -> Link:
    return Link(
        id="resp_2",
        input_head=saw,
        head=head,
        sent_count=1,
        model="m",
        strategy=Strategy.CHAIN,
        status="completed",
        created_at=0,
        previous_response_id="resp_1",
    )


def words(held: ConversationState) -> list[str]:
    return [item["content"][0]["text"] for item in held.path.items]


@pytest.mark.parametrize("strategy", Strategy)
def test_undo_of_an_unconfirmed_turn_moves_to_the_confirmed_head(strategy: Strategy) -> None:
    held, last = confirmed(strategy)
    partial: Item = {**assistant_message("hal"), "status": "incomplete"}
    assert undo_last_turn(replace(held, path=held.path.append([user_message("three"), partial])), last) == held


@pytest.mark.parametrize("strategy", Strategy)
def test_retry_of_an_unconfirmed_turn_drops_the_partial_answer_and_keeps_the_input(strategy: Strategy) -> None:
    held, last = confirmed(strategy)
    asked = replace(held, path=held.path.append([user_message("three")]))
    stopped = replace(asked, path=asked.path.append([{**assistant_message("hal"), "status": "incomplete"}]))
    assert undo_last_answer(stopped, last) == asked


@pytest.mark.parametrize("strategy", GOING_BACK)
def test_undo_of_a_confirmed_turn_moves_before_its_input(strategy: Strategy) -> None:
    held, last = confirmed(strategy)
    back = undo_last_turn(held, last)

    assert words(back) == ["one", "first"]
    assert back.unconfirmed_nodes == ()
    assert back.handle == ("resp_1" if strategy is Strategy.CHAIN else None)


@pytest.mark.parametrize("strategy", GOING_BACK)
def test_retry_of_a_confirmed_turn_sends_its_input_again(strategy: Strategy) -> None:
    held, last = confirmed(strategy)
    again = undo_last_answer(held, last)

    assert words(again) == ["one", "first", "two"]
    assert [node.item for node in again.unconfirmed_nodes] == [user_message("two")]
    assert again.handle == ("resp_1" if strategy is Strategy.CHAIN else None)


@pytest.mark.parametrize("go_back", [undo_last_answer, undo_last_turn])
def test_a_confirmed_turn_of_a_conversation_cannot_be_undone(go_back: object) -> None:
    held, last = confirmed(Strategy.CONVERSATION)
    with pytest.raises(WrongOwner):
        go_back(held, last)  # type: ignore[operator]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("go_back", [undo_last_answer, undo_last_turn])
def test_an_empty_history_has_nothing_to_undo(strategy: Strategy, go_back: object) -> None:
    with pytest.raises(InvalidUsage):
        go_back(ConversationState(strategy, START, START.root), None)  # type: ignore[operator]

"""A history is replaced by a shorter one."""

import pytest

from convo.errors import Conflict
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Path, root_key
from convo.strategies.branching import items_after_point, replace_history
from convo.strategies.strategy import ConversationState

ROOT = root_key("local")
ANSWER: Item = {**assistant_message("second"), "id": "msg_2"}
PATH = Path(ROOT).append(
    [user_message("one"), assistant_message("first"), user_message("two"), ANSWER, user_message("3")]
)
SUMMARY: Item = {**user_message("They counted."), "id": "msg_s"}
WITHOUT_ID = user_message("They counted.")


def state(strategy: Strategy, confirmed: int) -> ConversationState:
    return ConversationState(strategy, PATH, PATH.first(confirmed).head, "h")


@pytest.mark.parametrize("strategy", [Strategy.REPLAY, Strategy.SESSION])
@pytest.mark.parametrize(
    ("confirmed", "point", "unconfirmed"), [(5, 2, 0), (4, 2, 1), (2, 2, 3), (2, 4, 1), (0, 4, 1), (5, 5, 0)]
)
def test_a_client_keeps_the_items_after_the_point(
    strategy: Strategy, confirmed: int, point: int, unconfirmed: int
) -> None:
    after = replace_history(state(strategy, confirmed), PATH.first(point), [SUMMARY])
    assert after.path.items == (SUMMARY, *PATH.items[point:])
    assert len(after.unconfirmed_nodes) == unconfirmed
    assert after.handle == "h"


def test_a_chain_restarts_and_sends_the_replacement_without_ids() -> None:
    after = replace_history(state(Strategy.CHAIN, 4), PATH.first(2), [SUMMARY])
    assert after.path.items == (WITHOUT_ID, user_message("two"), assistant_message("second"), user_message("3"))
    assert (after.handle, len(after.unconfirmed_nodes)) == (None, 4)


def test_a_conversation_has_the_confirmed_items_without_ids() -> None:
    after = replace_history(state(Strategy.CONVERSATION, 4), PATH.first(2), [SUMMARY])
    assert after.path.items[:3] == (WITHOUT_ID, user_message("two"), assistant_message("second"))
    assert [node.item for node in after.unconfirmed_nodes] == [user_message("3")]


def test_an_output_whose_call_is_replaced_is_left_out() -> None:
    call: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "incomplete"}
    output: Item = {"type": "function_call_output", "call_id": "c", "output": "not run"}
    point = Path(ROOT).append([user_message("one"), call])
    before = ConversationState(Strategy.SESSION, point.append([output, user_message("two")]), point.head)
    assert replace_history(before, point, [SUMMARY]).path.items == (SUMMARY, user_message("two"))


@pytest.mark.parametrize(
    "point",
    [
        PATH.first(2),
        Path(ROOT).append([user_message("one"), {"role": "assistant", "content": "first"}]),
        Path(ROOT).append([{"role": "user", "content": "one"}, {"role": "assistant", "content": "first"}]),
    ],
    ids=["the same nodes", "an answer in another form", "both in another form"],
)
def test_the_form_of_the_replaced_items_does_not_matter(point: Path) -> None:
    assert items_after_point(PATH, point) == PATH.items[2:]


@pytest.mark.parametrize("point", [PATH.append([user_message("more")]), Path(ROOT).append([user_message("other")])])
def test_a_history_that_changed_meanwhile_is_not_replaced(point: Path) -> None:
    with pytest.raises(Conflict) as error:
        items_after_point(PATH, point)
    assert error.value.message == "the history changed during the compaction"
    assert error.value.hint == "compact it again"

"""Which items of a long history go along, and what is left out because it lost its other half."""

import pytest

from convo.items import Item, assistant, user
from convo.strategies.newest import latest_outputs, newest, paired

HI, HELLO = user("hi"), assistant("hello")
THOUGHT: Item = {"type": "reasoning", "id": "rs_1", "summary": []}


def call(call_id: str = "c1") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}


def output(words: str, call_id: str = "c1") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": words}


@pytest.mark.parametrize(("limit", "kept"), [(None, 4), (9, 4), (3, 3), (1, 1), (0, 0)])
def test_when_a_session_has_a_limit_only_the_newest_items_are_sent(limit: int | None, kept: int) -> None:
    items = [HI, HELLO, user("more"), assistant("yes")]
    assert newest(items, limit) == items[4 - kept :]


def test_when_a_limit_cuts_between_a_call_and_its_output_the_output_is_left_out() -> None:
    items = [HI, call(), output("one"), HELLO]
    assert newest(items, 2) == [HELLO]
    assert newest(items, 3) == items[1:]


def test_without_a_limit_orphan_outputs_are_kept() -> None:
    assert newest([HI, output("one"), HELLO], None) == [HI, output("one"), HELLO]


def test_when_a_call_has_no_output_it_and_the_reasoning_before_it_are_left_out() -> None:
    assert paired([HI, THOUGHT, call(), HELLO], cut=False) == [HI, HELLO]
    assert paired([HI, THOUGHT, HELLO], cut=False) == [HI, THOUGHT, HELLO]


def test_when_two_outputs_share_a_call_the_later_one_wins() -> None:
    items = [call(), output("early"), HELLO, output("late")]
    assert paired(items, cut=False) == latest_outputs(items) == [call(), HELLO, output("late")]
    assert latest_outputs([output("early"), output("late")]) == [output("late")]


def test_a_model_may_use_an_id_again_and_each_call_keeps_its_own_output() -> None:
    items = [HI, call(), output("one"), call(), output("two"), HELLO]
    assert paired(items, cut=False) == latest_outputs(items) == items
    assert newest(items, 4) == items[3:]

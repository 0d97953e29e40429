"""The items of a long history that are sent, and those omitted because their counterpart is missing."""

import random
from typing import Any, cast

import pytest
from agents.run_internal.items import drop_orphan_function_calls

from convo.history.items import Item, assistant_message, user_message
from convo.strategies.requests import drop_superseded_outputs, newest_sendable_items

HI, HELLO = user_message("hi"), assistant_message("hello")
THOUGHT: Item = {"type": "reasoning", "id": "rs_1", "summary": []}


def call(call_id: str = "c1") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}


def output(text: str, call_id: str = "c1") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


@pytest.mark.parametrize(("limit", "kept_count"), [(None, 4), (9, 4), (3, 3), (1, 1), (0, 0)])
def test_when_a_session_has_a_limit_only_the_newest_items_are_sent(limit: int | None, kept_count: int) -> None:
    items = [HI, HELLO, user_message("more"), assistant_message("yes")]
    assert newest_sendable_items(items, limit) == items[4 - kept_count :]


def test_when_a_limit_cuts_between_a_call_and_its_output_the_output_is_left_out() -> None:
    items = [HI, call(), output("one"), HELLO]
    assert newest_sendable_items(items, 2) == [HELLO]
    assert newest_sendable_items(items, 3) == items[1:]


def test_without_a_limit_orphan_outputs_are_kept() -> None:
    assert newest_sendable_items([HI, output("one"), HELLO], None) == [HI, output("one"), HELLO]


def test_when_a_call_has_no_output_it_and_the_reasoning_before_it_are_left_out() -> None:
    assert newest_sendable_items([HI, THOUGHT, call(), HELLO], None) == [HI, HELLO]
    assert newest_sendable_items([HI, THOUGHT, HELLO], None) == [HI, THOUGHT, HELLO]


def test_when_two_outputs_share_a_call_the_later_one_wins() -> None:
    items = [call(), output("early"), HELLO, output("late")]
    assert newest_sendable_items(items, None) == drop_superseded_outputs(items) == [call(), HELLO, output("late")]
    assert drop_superseded_outputs([output("early"), output("late")]) == [output("late")]


def test_a_model_may_reuse_a_call_id_and_each_call_keeps_its_output() -> None:
    items = [HI, call(), output("one"), call(), output("two"), HELLO]
    assert newest_sendable_items(items, None) == drop_superseded_outputs(items) == items
    assert newest_sendable_items(items, 4) == items[3:]


# -- tool searches and programs -----------------------------------------------------------------------

BY_PROGRAM = {"caller": {"type": "program", "caller_id": "p1"}}
PROGRAM: Item = {"type": "program", "call_id": "p1", "code": "look()"}
PROGRAM_OUTPUT: Item = {"type": "program_output", "call_id": "p1", "result": "ok"}


def search(call_id: str | None = None) -> Item:
    return {"type": "tool_search_call", "call_id": call_id, "execution": "server"}


def tools(call_id: str | None = None) -> Item:
    return {"type": "tool_search_output", "call_id": call_id, "tools": []}


def test_a_tool_search_without_its_output_is_left_out_with_its_reasoning() -> None:
    assert newest_sendable_items([HI, THOUGHT, search("s1"), HELLO], None) == [HI, HELLO]
    assert newest_sendable_items([HI, THOUGHT, search(), HELLO], None) == [HI, HELLO]
    history = [HI, search(), tools(), search(), tools(), search("s1"), tools("s1"), HELLO]
    assert newest_sendable_items(history, None) == history
    assert newest_sendable_items([search(), search(), tools()], None) == [search(), tools()]


def test_a_program_without_its_output_is_left_out_with_its_calls() -> None:
    calls = [{**call(), **BY_PROGRAM}, {**output("one"), **BY_PROGRAM}]
    history = [HI, PROGRAM, *calls, PROGRAM_OUTPUT, HELLO]
    assert newest_sendable_items(history, None) == history
    assert newest_sendable_items([HI, THOUGHT, PROGRAM, *calls, HELLO], None) == [HI, HELLO]


def test_a_limit_splits_no_pair_of_a_search_or_a_program() -> None:
    assert newest_sendable_items([HI, search("s1"), tools("s1"), HELLO], 2) == [HELLO]
    assert newest_sendable_items([HI, PROGRAM, PROGRAM_OUTPUT, HELLO], 2) == [HELLO]


def item(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "call_id": name, **more}


ANSWERS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "tool_search_call": "tool_search_output",
    "program": "program_output",
}


@pytest.mark.parametrize("seed", range(40))
def test_calls_are_left_out_as_in_the_agents_sdk(seed: int) -> None:
    """In these histories each id is used once, and each output comes after its call."""
    rng = random.Random(seed)
    items: list[Any] = []
    for number in range(rng.randint(2, 14)):
        of = rng.choice([*ANSWERS, "message", "program"])
        name = f"c{number}"
        programs = [one["call_id"] for one in items if one["type"] == "program"]
        caller = {"caller": {"type": "program", "caller_id": rng.choice(programs)}} if programs else {}
        more = caller if of != "program" and rng.random() < 0.5 else {}
        items.append(item(of, name, **more))
        if of in ANSWERS and rng.random() < 0.6:
            items.append(item(ANSWERS[of], name, **more))
    sdk_items = drop_orphan_function_calls(cast(Any, items), pruning_indexes=set(range(len(items))))
    assert newest_sendable_items(items, None) == sdk_items


@pytest.mark.parametrize(
    ("status", "is_kept"), [({}, True), ({"status": "in_progress"}, True), ({"status": "completed"}, False)]
)
def test_a_shell_call_of_a_program_may_still_lack_its_output(status: dict[str, str], is_kept: bool) -> None:
    shell = item("shell_call", "s1", **BY_PROGRAM, **status)
    items = [HI, PROGRAM, shell, PROGRAM_OUTPUT, HELLO]
    assert newest_sendable_items(items, None) == (items if is_kept else [HI, PROGRAM, PROGRAM_OUTPUT, HELLO])
    assert newest_sendable_items([HI, {**call(), **BY_PROGRAM}], None) == [HI]
    assert newest_sendable_items([HI, item("shell_call", "s1", **status)], None) == [HI]


def test_a_program_without_an_id_is_left_out_alone() -> None:
    assert newest_sendable_items([HI, {"type": "program", "code": "look()"}, HELLO], None) == [HI, HELLO]

"""Tool outputs directly follow the turn with their calls."""

from typing import Any

from convo.history.items import Item, assistant_message, user_message
from convo.models.base import group_by_role


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}


def output(name: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": name}


def ordered_labels(*items: Item) -> list[str]:
    """Return turns as short words; those of the assistant begin with a capital letter."""
    short = {True: "A", False: "u"}
    return [short[is_own] + "".join(_label(item) for item in run) for is_own, run in group_by_role(items)]


def _label(item: Item) -> str:
    letters = {"function_call": "c", "function_call_output": "o"}
    return letters.get(str(item.get("type")), "m") + str(item.get("call_id", ""))


def test_sequential_calls_stay_in_their_turns() -> None:
    assert ordered_labels(user_message("?"), call("1"), output("1"), call("2"), output("2")) == [
        "um",
        "Ac1",
        "uo1",
        "Ac2",
        "uo2",
    ]


def test_parallel_calls_are_followed_by_their_outputs_in_order() -> None:
    assert ordered_labels(call("1"), assistant_message("and"), call("2"), output("2"), output("1")) == [
        "Ac1mc2",
        "uo1o2",
    ]


def test_an_output_is_moved_before_messages_that_follow_its_call() -> None:
    assert ordered_labels(call("1"), user_message("hurry"), output("1")) == ["Ac1", "uo1m"]


def test_an_output_from_a_later_turn_is_moved_to_its_call() -> None:
    history = [call("1"), call("2"), output("1"), assistant_message("well"), output("2"), user_message("so?")]

    assert ordered_labels(*history) == ["Ac1c2", "uo1o2", "Am", "um"]


def test_an_output_without_its_call_keeps_its_position() -> None:
    assert ordered_labels(user_message("?"), output("1"), assistant_message("!")) == ["umo1", "Am"]

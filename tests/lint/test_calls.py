"""Calls other than function calls: hosted tools, approval requests, programs, and ids that several calls have."""

import json
from pathlib import Path
from typing import Any

import pytest

from convo.lint.calls import INTERRUPTED_MESSAGE
from convo.lint.model import lint_view_of_file
from convo.lint.repair import repair_for_file
from convo.lint.rules import lint_history
from tests.command_runner import Convo
from tests.lint.lint_views import APPROVAL_REQUEST, APPROVAL_RESPONSE, answer, call, output, user

PROGRAM = {"type": "program", "call_id": "p1", "code": "look()", "fingerprint": "f"}
PROGRAM_OUTPUT = {"type": "program_output", "call_id": "p1", "result": "ok", "status": "completed"}
CALLS_BY_PROGRAM = [dict(one, caller={"type": "program", "caller_id": "p1"}) for one in (call("a"), output("a"))]
AGENT = {"type": "multi_agent_call", "call_id": "m1", "action": "spawn_agent", "arguments": "{}"}
SPAWNED = {"type": "multi_agent_call_output", "call_id": "m1", "action": "spawn_agent", "output": []}
SEARCH = {"type": "tool_search_call", "call_id": "s1", "arguments": {}, "execution": "client"}
FOUND = {"type": "tool_search_output", "call_id": "s1", "tools": [], "execution": "client"}
HOSTED_SEARCH = {**SEARCH, "execution": "server"}
NAMELESS, NAMELESS_FOUND = {**HOSTED_SEARCH, "call_id": None}, {**FOUND, "execution": "server", "call_id": None}

PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "program": (PROGRAM, PROGRAM_OUTPUT),
    "multi_agent_call": (AGENT, SPAWNED),
    "tool_search": (SEARCH, FOUND),
    "approval": (APPROVAL_REQUEST, APPROVAL_RESPONSE),
}


def codes(*items: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(one.code, one.issue.item_index) for one in lint_history(lint_view_of_file(items))]


@pytest.mark.parametrize(("first", "second"), PAIRS.values(), ids=PAIRS)
def test_half_of_a_pair_is_found_and_repaired(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert codes(user(), first, second, answer()) == []
    assert codes(user(), first, answer(), user()) == [("call-without-output", 1)]
    assert codes(user(), second, answer()) == [("output-without-call", 1)]
    for items in ([user(), first, answer(), user()], [user(), second, answer()]):
        assert lint_history(repair_for_file(lint_view_of_file(items)).view) == ()


def test_what_openai_accepts_of_searches_is_valid_and_stays() -> None:
    """A search that the server ran may have no output, and a function's output may answer a client's search."""
    for searched in ([HOSTED_SEARCH], [NAMELESS], [NAMELESS, NAMELESS_FOUND], [SEARCH, output("s1")]):
        items = (user(), *searched, call("a"), output("a"), answer(), user())
        assert codes(*items) == []
        assert repair_for_file(lint_view_of_file(items)).view.items == items
    assert codes(user(), output("s1"), SEARCH, FOUND) == [("output-without-call", 1)]
    assert codes(user(), HOSTED_SEARCH, output("s2")) == [("output-without-call", 2)]


def test_in_a_request_to_deepseek_a_message_does_not_separate_a_call_from_its_output() -> None:
    items = [user(), call("a"), answer("and"), call("b"), output("a"), output("b")]
    assert codes(*items) == []
    view = lint_view_of_file(items, {"model": "deepseek-v4-flash"})
    assert [(one.code, one.issue.item_index) for one in lint_history(view)] == [("call-without-output", 1)]
    assert repair_for_file(view).view.items == (items[0], items[1], items[4], items[2], items[3], items[5])


def test_an_output_that_names_its_tool_needs_no_call() -> None:
    goal = {"type": "function_call_output", "namespace": "agent", "name": "goal_objective", "output": "Find it."}
    assert codes(user(), goal, answer()) == []
    assert codes(user(), {**goal, "name": None}, answer())[0] == ("malformed-item", 1)


def test_a_search_is_removed_and_an_approval_request_rejected() -> None:
    searched = repair_for_file(lint_view_of_file([user(), SEARCH, answer("x"), user()])).view
    assert [one["type"] for one in searched.items] == ["message", "message", "message"]
    repaired_request = repair_for_file(lint_view_of_file([user(), APPROVAL_REQUEST, answer("x"), user()])).view
    declined = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False}
    assert repaired_request.items[2] == {**declined, "reason": INTERRUPTED_MESSAGE}


def test_an_approval_request_may_be_pending_at_the_end() -> None:
    assert codes(user(), APPROVAL_REQUEST) == []
    assert codes(user(), APPROVAL_REQUEST, {**APPROVAL_REQUEST, "id": "mcpr_2"}) == []
    assert codes(user(), APPROVAL_REQUEST, user("well?")) == [("call-without-output", 1)]


def test_a_program_is_removed_with_its_calls() -> None:
    assert codes(user(), PROGRAM, *CALLS_BY_PROGRAM, PROGRAM_OUTPUT, answer()) == []
    assert codes(user(), PROGRAM, *CALLS_BY_PROGRAM) == []  # it continues with the output of its call
    assert codes(user(), PROGRAM, *CALLS_BY_PROGRAM, answer()) == [("call-without-output", 1)]
    repaired = repair_for_file(lint_view_of_file([user(), PROGRAM, *CALLS_BY_PROGRAM, answer(), user()])).view
    assert [one["type"] for one in repaired.items] == ["message", "message", "message"]


def test_of_several_calls_with_one_id_the_outputs_answer_each_in_order() -> None:
    assert codes(user(), *[call("a")] * 3, *[output("a")] * 3, answer()) == []
    three = [user(), call("a"), call("a"), call("a"), output("a", output="one"), answer()]
    assert codes(*three) == [("call-without-output", 2), ("call-without-output", 3)]
    repaired = repair_for_file(lint_view_of_file(three)).view
    assert [one["output"] for one in repaired.items[4:7]] == ["one", INTERRUPTED_MESSAGE, INTERRUPTED_MESSAGE]
    assert lint_history(repaired) == ()
    again = [user(), call("a"), answer(), user(), call("a"), output("a"), answer()]
    assert codes(*again) == [("call-without-output", 1)]
    closed = repair_for_file(lint_view_of_file(again)).view
    assert closed.items[2] == {"type": "function_call_output", "call_id": "a", "output": INTERRUPTED_MESSAGE}
    assert lint_history(closed) == ()


def test_the_command_names_the_item(convo: Convo, tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    file.write_text(json.dumps([user(), PROGRAM, answer(), user()]), encoding="utf-8")
    got = convo("lint", str(file))
    assert got.exit == 4
    assert "program p1 has no output" in got.out


def test_of_several_outputs_of_one_call_the_last_stays() -> None:
    twice = [user(), call("a"), output("a"), output("a"), answer()]
    assert codes(*twice) == [("output-without-call", 2)]
    repaired = repair_for_file(lint_view_of_file(twice)).view
    assert repaired.items == (*twice[:2], *twice[3:])
    assert lint_history(repaired) == ()


def test_a_call_is_removed_if_an_output_at_the_end_of_its_batch_would_answer_a_later_response() -> None:
    items = [user(), call("a"), call("b"), output("b"), call("a"), output("a"), answer()]
    assert codes(*items) == [("call-without-output", 1)]
    assert repair_for_file(lint_view_of_file(items)).view.items == (items[0], *items[2:])


def test_every_search_result_without_a_search_is_found() -> None:
    assert codes(user(), NAMELESS_FOUND, NAMELESS_FOUND, NAMELESS, NAMELESS_FOUND, answer()) == [
        ("output-without-call", 1),
        ("output-without-call", 2),
    ]


def test_an_interrupted_output_comes_after_the_outputs_at_the_end_of_the_history() -> None:
    items = [user(), call("a"), call("b"), output("b")]
    closed = {"type": "function_call_output", "call_id": "a", "output": INTERRUPTED_MESSAGE}
    assert repair_for_file(lint_view_of_file(items)).view.items == (*items, closed)
    items = [call("c"), output("c"), answer(), call("a")]
    assert repair_for_file(lint_view_of_file(items)).view.items == (*items, closed)


def test_a_call_id_may_be_reused_once_its_call_has_an_output() -> None:
    assert codes(user(), call("a"), output("a"), answer(), user(), call("a"), output("a"), answer()) == []

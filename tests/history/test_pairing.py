"""Pairs of calls and outputs."""

from typing import Any

import pytest

from convo.history.items import Item
from convo.history.pairing import output_index_by_call, pair_id, program_call_id


def item(kind: str, call_id: str | None = None, **more: Any) -> Item:
    return {"type": kind, "call_id": call_id, **more}


OUTPUT = item("function_call_output", "c")


@pytest.mark.parametrize(
    ("pair", "id_"),
    [
        (item("function_call", "c", id="fc_1"), "c"),
        (item("function_call", None, id="fc_1"), None),
        (item("local_shell_call_output", None, id="c"), "c"),
        (item("local_shell_call_output", "d", id="c"), "d"),
        (item("mcp_approval_request", None, id="mcpr_1"), "mcpr_1"),
        (item("mcp_approval_response", None, id="x", approval_request_id="mcpr_1"), "mcpr_1"),
        (item("mcp_approval_response", None, approval_request_id=7), None),
        ({"role": "user"}, None),
    ],
)
def test_a_pair_shares_an_id(pair: Item, id_: str | None) -> None:
    assert pair_id(pair) == id_


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ("function_call", "function_call_output"),
        ("tool_search_call", "tool_search_output"),
        ("program", "program_output"),
        ("multi_agent_call", "multi_agent_call_output"),
    ],
)
def test_an_output_belongs_to_a_call_of_its_type(call: str, output: str) -> None:
    assert output_index_by_call([item(call, "c"), item(output, "c")]) == {0: 1}
    assert output_index_by_call([item("computer_call", "c"), item(output, "d")]) == {-2: 1}


@pytest.mark.parametrize("call", ["local_shell_call", "custom_tool_call", "tool_search_call"])
def test_the_output_of_a_function_answers_other_calls_of_a_client(call: str) -> None:
    """Codex answers a local shell so, and pydantic-ai a tool search."""
    function, output = item("function_call", "c"), item("function_call_output", "c")
    assert output_index_by_call([item(call, "c"), output]) == {0: 1}
    assert output_index_by_call([item(call, "c"), function, output, output]) == {1: 2, 0: 3}
    assert output_index_by_call([item(call, "c"), item("custom_tool_call_output", "d")]) == {-2: 1}
    assert output_index_by_call([item("program", "c"), output]) == {-2: 1}


@pytest.mark.parametrize(
    ("items", "indexes"),
    [
        ([], {}),
        ([item("function_call", "c")], {}),
        ([item("function_call_output", "c"), item("function_call_output", "c")], {-1: 1}),
        ([item("function_call", "c"), *[item("function_call_output", "c")] * 2], {0: 2}),
        ([item("function_call", "c"), item("function_call", "c"), item("function_call_output", "c")], {0: 2}),
        ([*[item("function_call", "c")] * 2, *[item("function_call_output", "c")] * 3], {0: 2, 1: 4}),
        ([item("function_call", "c"), {"role": "user"}, item("function_call", "c"), OUTPUT], {2: 3}),
        ([item("function_call", "c", status="incomplete"), item("function_call", "c"), OUTPUT], {1: 2}),
        ([item("function_call", "c"), OUTPUT, item("function_call", "c"), OUTPUT], {0: 1, 2: 3}),
        ([item("function_call", "c"), item("reasoning"), item("function_call", "c"), OUTPUT, OUTPUT], {0: 3, 2: 4}),
        ([item("tool_search_call"), item("tool_search_call"), item("tool_search_output")], {1: 2}),
        ([item("tool_search_call"), *[item("tool_search_output")] * 2], {0: 1, -3: 2}),
        ([item("tool_search_call", "s"), item("tool_search_output"), item("tool_search_output", "s")], {-2: 1, 0: 2}),
        ([item("tool_search_call", "s"), item("function_call_output", "s")], {0: 1}),
        ([item("tool_search_call"), item("function_call_output")], {-2: 1}),
    ],
)
def test_the_last_output_counts_and_an_output_without_a_call_has_a_negative_key(
    items: list[Item], indexes: dict[int, int]
) -> None:
    assert output_index_by_call(items) == indexes


@pytest.mark.parametrize(
    ("caller", "call_id"),
    [
        ({"type": "program", "caller_id": "p"}, "p"),
        ({"type": "program", "caller_id": 7}, None),
        ({"type": "agent", "caller_id": "p"}, None),
        ("p", None),
        (None, None),
    ],
)
def test_a_call_names_the_program_that_made_it(caller: object, call_id: str | None) -> None:
    assert program_call_id({"type": "function_call", "caller": caller}) == call_id

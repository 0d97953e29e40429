"""A call is resolved to one tool: by its name, in its namespace, or as a deferred tool."""

from collections.abc import Callable
from itertools import permutations

import pytest
from agents import FunctionTool, function_tool, tool_namespace
from agents._tool_identity import get_function_tool_lookup_key_for_tool

from convo.errors import InputFault
from convo.tools.tool import (
    FAILED,
    Namespace,
    Tool,
    output_text,
    timeout_message,
    tool,
    tool_definitions,
    tool_lookup,
    toolbox,
)

CRM = Namespace("crm", "customers")


def find(q: str) -> str:
    """Find it."""
    return q


def make(**settings: object) -> Tool:
    decorate: Callable[[Callable[..., object]], Tool] = tool(**settings)  # type: ignore[call-overload]
    return decorate(find)


BARE, SPACED, DEFERRED = make(), make(namespace=CRM), make(deferred=True)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"name": "find"}, BARE),
        ({"name": "find", "namespace": None}, BARE),
        ({"name": "find", "namespace": "crm"}, SPACED),
        ({"name": "find", "namespace": "find"}, DEFERRED),
        ({"name": "lost"}, None),
        ({"name": "find", "namespace": "erp"}, None),
        ({"name": "find", "namespace": ""}, BARE),
        ({"name": "find", "namespace": 1}, BARE),
        ({}, None),
    ],
)
def test_a_call_is_resolved_to_its_tool_by_all_its_lookup_keys(
    call: dict[str, str | None], expected: Tool | None
) -> None:
    for tools in permutations([BARE, SPACED, DEFERRED]):
        assert toolbox(tools).find(call) is expected


def test_the_lookup_keys_equal_those_of_the_agents_sdk() -> None:
    sdk_tool: FunctionTool = function_tool(find)
    (spaced,) = tool_namespace(name="crm", description="customers", tools=[sdk_tool])
    deferred = function_tool(find, defer_loading=True)
    found = [get_function_tool_lookup_key_for_tool(one) for one in (sdk_tool, spaced, deferred)]
    assert [tool_lookup(one) for one in (BARE, SPACED, DEFERRED)] == found


@pytest.mark.parametrize(
    "pair",
    [
        (BARE, BARE),
        (SPACED, SPACED),
        (DEFERRED, DEFERRED),
        (SPACED, make(name="crm.find")),
        (make(name="crm.find"), SPACED),
    ],
)
def test_two_tools_that_a_call_could_not_distinguish_are_refused(pair: tuple[Tool, Tool]) -> None:
    with pytest.raises(InputFault, match=f"^two tools are named '{pair[1].title}'$") as error:
        toolbox(pair)
    assert error.value.hint == "rename one, or give it a namespace"


def test_a_namespace_with_the_name_of_its_tool_is_refused() -> None:
    with pytest.raises(InputFault, match=r"^tool 'find.find' has the name of its namespace$") as error:
        toolbox([make(namespace=Namespace("find", ""))])
    assert error.value.hint == "rename one: that form means a deferred tool"


def test_definitions_group_a_namespace_at_its_first_tool_and_keep_hosted_tools_unchanged() -> None:
    search = {"type": "web_search", "filters": {"allowed_domains": ["x.org"]}}
    other = make(name="close", namespace=CRM)
    parameters = {
        "type": "object",
        "properties": {"q": {"type": "string"}},
        "required": ["q"],
        "additionalProperties": False,
    }
    function = {
        "type": "function",
        "name": "find",
        "description": "Find it.",
        "parameters": parameters,
        "strict": True,
    }
    space = {"name": "crm", "description": "customers", "tools": [function, {**function, "name": "close"}]}
    assert tool_definitions([BARE, SPACED, search, other]) == [function, {"type": "namespace", **space}, search]
    assert tool_definitions([make(strict=False)])[0]["strict"] is False


def test_a_deferred_tool_needs_a_matching_search_tool() -> None:
    with pytest.raises(InputFault, match=r"^tool 'find' is deferred, but there is no tool search$") as error:
        tool_definitions([BARE, DEFERRED, {"type": "web_search"}])
    assert error.value.hint == 'add {"type": "tool_search"}'
    got = tool_definitions([DEFERRED, {"type": "tool_search"}])
    assert got[0]["defer_loading"] is True
    assert "defer_loading" not in tool_definitions([BARE])[0]


def test_a_namespace_with_two_descriptions_is_refused() -> None:
    with pytest.raises(InputFault, match=r"^namespace 'crm' has two descriptions$") as error:
        tool_definitions([SPACED, make(name="close", namespace=Namespace("crm", "clients"))])
    assert error.value.hint == "use the same description for all its tools"


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ("plain", "plain"),
        ({"a": "ä"}, '{"a": "ä"}'),
        (None, "null"),
        ([1, 2], "[1, 2]"),
        ({"type": "input_image", "image_url": "data:x"}, [{"type": "input_image", "image_url": "data:x"}]),
        (
            {
                1,
            },
            "{1}",
        ),
        (float("nan"), "nan"),
        ([], "[]"),
        ([{"type": "input_text", "text": "x"}], [{"type": "input_text", "text": "x"}]),
        ([{"type": "input_file", "file_id": "f"}], [{"type": "input_file", "file_id": "f"}]),
        ([{"type": "input_text"}, {"type": "output_text"}], '[{"type": "input_text"}, {"type": "output_text"}]'),
        ([{"type": "input_text"}, 1], '[{"type": "input_text"}, 1]'),
    ],
)
def test_the_return_value_of_a_tool_becomes_its_output_item(value: object, output: object) -> None:
    assert output_text(value) == output


def test_failure_messages_equal_those_of_the_agents_sdk() -> None:
    from agents.tool import default_tool_error_function, default_tool_timeout_error_message

    assert default_tool_error_function(None, ValueError("x")) == FAILED  # type: ignore[arg-type]
    assert default_tool_timeout_error_message(tool_name="t", timeout_seconds=2.0) == timeout_message("t", 2.0)

"""Objects of the installed Agents SDK are converted by their structure and keep their meaning."""

import inspect
from typing import Any, cast

import agents as sdk
import pytest
from agents.handoffs import Handoff as SdkHandoff
from agents.mcp import MCPServerStdio
from agents.models.openai_responses import Converter
from agents.run import DEFAULT_MAX_TURNS
from agents.tool import default_tool_error_function
from pydantic import BaseModel

from convo.agents.agent import Agent
from convo.agents.graph import AgentTool
from convo.agents.sdk import from_object
from convo.errors import ConvoError, InputFault, Unsupported
from convo.tools.schema import Mismatch
from convo.tools.tool import Context, tool_definitions

CONTEXT = Context("a", "add", "call_1", {"user": "kim"})


class Paid(BaseModel):
    cents: int


@sdk.function_tool
def add(a: int, b: int) -> int:
    """Add them."""
    return a + b


@sdk.function_tool(needs_approval=True, timeout=2.0)
async def slow(a: int) -> int:
    """Take time."""
    return a


def convert_agent(**settings: Any) -> Agent:
    return from_object(sdk.Agent(name="a", **settings))["a"]


async def normalized(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def test_a_graph_with_a_cycle_and_two_agents_of_one_name_is_converted() -> None:
    second = sdk.Agent(name="desk", instructions="second")
    first = sdk.Agent(name="desk", instructions="first", handoffs=[sdk.handoff(second, tool_name_override="go")])
    second.handoffs.append(first)
    found = from_object(first)
    assert {name: [way.to for way in one.ways] for name, one in found.agents.items()} == {
        "desk": ["desk#2"],
        "desk#2": ["desk"],
    }
    assert found["desk"].ways[0].tool_name == "go"
    assert found["desk#2"].instructions == "second"


def without_empty_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_empty_values(below) for key, below in value.items() if below is not None}
    return [without_empty_values(below) for below in value] if isinstance(value, list) else value


def test_an_output_type_parses_as_in_the_agents_sdk() -> None:
    found = convert_agent(output_type=Paid).output
    assert found is not None
    assert found.strict
    assert found.value('{"cents": 3}') == Paid(cents=3)
    with pytest.raises(Mismatch):
        found.value('{"cents": "x"}')
    strict = convert_agent(output_type=sdk.AgentOutputSchema(list[int])).output
    assert strict is not None
    assert strict.strict
    assert strict.value('{"response": [1]}') == [1]
    with pytest.raises(Mismatch, match="ModelBehaviorError"):
        strict.value('{"response": "x"}')


def test_tool_use_behavior_is_converted() -> None:
    to = sdk.Agent(name="b")
    found = convert_agent(
        tools=[add],
        handoffs=[sdk.handoff(to, nest_handoff_history=True)],
        tool_use_behavior={"stop_at_tool_names": ["add", "one_that_is_off"]},
        reset_tool_choice=False,
    )
    assert found.after_tools == frozenset({"add"})
    assert not found.reset_tool_choice
    assert found.ways[0].nest


def loose() -> SdkHandoff[Any, Any]:
    async def go(context: Any, written: str) -> Any: ...

    return SdkHandoff("go", "", {}, go, "b")


REMOVE = "remove it, or run it with the Agents SDK"
WRAP = "wrap it in a function tool"


class OwnTool:
    """A class that is not a tool of the SDK."""

    name = "own"


@pytest.mark.parametrize(
    ("settings", "error", "text", "hint"),
    [
        (
            {"mcp_servers": [MCPServerStdio({"command": "x"}, name="shop", custom_data_extractor=lambda context: {})]},
            Unsupported,
            "custom data (MCP server 'shop')",
            REMOVE,
        ),
        (
            {"prompt": {"id": "p"}},
            Unsupported,
            "a stored prompt: v1/prompts is shut down on 30 November 2026 (agent 'a')",
            REMOVE,
        ),
        (
            {"tools": [sdk.ComputerTool(computer=object())]},  # type: ignore[arg-type]
            Unsupported,
            "computer use (ComputerTool)",
            WRAP,
        ),
        ({"tools": [OwnTool()]}, Unsupported, "a tool of class OwnTool", WRAP),
        (
            {"tools": [sdk.ToolSearchTool(execution="client")]},
            Unsupported,
            "a tool search that the client executes (tool 'tool_search')",
            REMOVE,
        ),
        (
            {"tool_use_behavior": lambda context, results: None},
            Unsupported,
            "the tool_use_behavior of agent 'a'",
            "use 'run_llm_again', 'stop_on_first_tool' or stop_at_tool_names",
        ),
        (
            {"output_type": Paid, "tool_use_behavior": "stop_on_first_tool"},
            Unsupported,
            "an output_type together with a tool's output as the final answer (agent 'a')",
            REMOVE,
        ),
        (
            {"model_settings": sdk.ModelSettings(extra_headers={"x": "y"})},
            Unsupported,
            "the model setting extra_headers",
            REMOVE,
        ),
        (
            {"handoffs": [loose()]},
            InputFault,
            "a handoff of agent 'a' does not have its agent",
            "use the Agent object as the handoff",
        ),
        (
            {"instructions": lambda context: "x"},
            InputFault,
            "the instructions of agent 'a' must accept two arguments",
            "define them as def instructions(context, agent)",
        ),
        (
            {"tools": [sdk.function_tool(lambda: 1, name_override="late", defer_loading=True)]},
            InputFault,
            "agent 'a': Deferred-loading Responses tools require ToolSearchTool()",
            "correct the definition of the agent",
        ),
        (
            {"output_type": dict[str, int]},
            InputFault,
            "the output_type of agent 'a': Strict JSON schema is enabled, but the output type is not valid.",
            "output_type=AgentOutputSchema(TYPE, strict_json_schema=False)",
        ),
    ],
)
def test_an_unsupported_setting_is_refused_by_name(
    settings: dict[str, Any], error: type[ConvoError], text: str, hint: str
) -> None:
    with pytest.raises(error) as raised:
        convert_agent(**settings)
    start = f"convo does not support {text}" if error is Unsupported else text
    assert raised.value.message.startswith(start)  # the SDK adds its own reason to some
    assert raised.value.hint == hint


# -- agents as tools ------------------------------------------------------------------------------


def agent_as_tool(**settings: Any) -> sdk.FunctionTool:
    return sdk.Agent(name="Clerk", instructions="Look.", tools=[slow]).as_tool("ask", "Ask the clerk.", **settings)


def test_an_agent_as_a_tool_is_converted_with_its_graph() -> None:
    sdk_tool = agent_as_tool(needs_approval=True, max_turns=3)
    (tool,) = convert_agent(tools=[sdk_tool]).functions
    assert isinstance(tool, AgentTool)
    assert [without_empty_values(one) for one in tool_definitions([tool])] == [
        without_empty_values(one) for one in Converter.convert_tools([sdk_tool], []).tools
    ]
    assert (tool.needs_approval, tool.max_turns, tool.graph["Clerk"].instructions) == (True, 3, "Look.")
    assert [one.name for one in tool.graph["Clerk"].functions] == ["slow"]
    message = tool.failure and tool.failure(ValueError("secret"))
    assert message == default_tool_error_function(cast(Any, None), ValueError("secret"))
    strict, plain = convert_agent(
        tools=[agent_as_tool(failure_error_function=None), sdk.Agent(name="b").as_tool("b", "b")]
    ).functions
    assert isinstance(plain, AgentTool)
    assert (strict.failure, plain.max_turns) == (None, DEFAULT_MAX_TURNS)


async def extracted(result: Any) -> str:
    return "x"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"session": object()}, "its own session"),
        ({"conversation_id": "conv_1"}, "its own conversation"),
        ({"previous_response_id": "resp_1"}, "its own previous response"),
        ({"run_config": sdk.RunConfig()}, "its own run configuration"),
        ({"on_stream": print}, "an event listener"),
        ({"custom_output_extractor": extracted}, "a custom output extractor"),
        ({"failure_error_function": lambda context, error: "no"}, "a custom failure message"),
    ],
)
def test_an_agent_tool_with_a_custom_runner_is_refused_by_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(Unsupported, match="tool 'ask'") as raised:
        convert_agent(tools=[agent_as_tool(**settings)])
    assert text in raised.value.message


def test_recursive_agent_tools_and_hidden_handoffs_are_refused() -> None:
    first = sdk.Agent(name="a")
    first.tools.append(first.as_tool("again", "ask again"))
    with pytest.raises(Unsupported, match="agent 'a' as a tool of itself"):
        from_object(first)
    hidden = agent_as_tool()
    hidden.on_invoke_tool = slow.on_invoke_tool
    with pytest.raises(Unsupported, match="this kind of agent tool"):
        convert_agent(tools=[hidden])


@pytest.mark.parametrize("thing", [1, sdk.Agent, add, None])
def test_an_object_that_is_no_agent_is_refused(thing: object) -> None:
    with pytest.raises(InputFault, match="is not an agent"):
        from_object(thing)


def test_an_agent_of_convo_becomes_its_graph() -> None:
    assert list(from_object(Agent("a", handoffs=(Agent("b"),))).agents) == ["a", "b"]

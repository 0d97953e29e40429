"""Functions of the Agents SDK: the arguments that they receive, and their results as values of convo."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import agents as sdk
import pytest
from agents.run_config import CallModelData, ModelInputData
from openai.types.responses import ResponseFunctionToolCall

from convo.agents.handoff_history import to_sdk_form
from convo.agents.sdk import (
    ForeignInputFilter,
    from_object,
    get_refusal,
    is_foreign_filter,
    make_run_context,
    make_tool_context,
    to_guardrail_input,
)
from convo.agents.sdk_run import SdkRun
from convo.errors import InputFault, Unsupported
from convo.history.items import Item, user_message
from convo.tools.tool import NO_VALUES, Context, Namespace, Tool
from tests.agents.test_sdk_adapter import CONTEXT, convert_agent, normalized

USAGES = (
    {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens_details": {"reasoning_tokens": 3},
    },
    {"input_tokens": 1, "output_tokens": None},
)
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": "{ }"}
IMAGE: Item = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}
ANSWER: Item = {"type": "message", "role": "assistant", "content": [{"type": "input_text", "text": "hello"}]}


# -- contexts -------------------------------------------------------------------------------------


def test_a_run_context_has_the_values_the_input_and_the_usage_of_the_run() -> None:
    context = make_run_context(Context("a", "", "", {"user": "kim"}, USAGES, (user_message("hi"), IMAGE)))
    assert isinstance(context, sdk.RunContextWrapper)
    assert context.context == {"user": "kim"}
    assert context.turn_input == [{"role": "user", "content": "hi"}, IMAGE]
    usage = context.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens, usage.total_tokens) == (2, 11, 5, 15)
    assert usage.input_tokens_details.cached_tokens == 4
    assert usage.input_tokens_details.cache_write_tokens == 2
    assert usage.output_tokens_details.reasoning_tokens == 3


def test_a_run_without_values_has_none_as_its_context() -> None:
    assert make_run_context(Context("a", "", "", NO_VALUES)).context is None
    assert make_run_context(Context("a", "", "", {})).context == {}


def test_a_tool_context_has_the_call_as_the_model_made_it() -> None:
    agent = sdk.Agent(name="a")
    context = make_tool_context(Context("a", "add", "call_1", {"user": "kim"}, call=CALL), '{"a": 1}', agent, SdkRun())
    assert (context.tool_name, context.tool_call_id, context.tool_arguments) == ("add", "call_1", '{"a": 1}')
    assert context.tool_call == ResponseFunctionToolCall(
        type="function_call", id="fc_1", call_id="call_1", name="add", arguments='{"a": 1}'
    )
    assert context.agent is agent
    assert isinstance(context.run_config, sdk.RunConfig)
    assert context.context == {"user": "kim"}


def test_a_tool_context_without_a_call_has_one_of_the_tools_name() -> None:
    context = make_tool_context(Context("a", "add", "call_1"), "{}", sdk.Agent(name="a"), SdkRun())
    assert context.tool_name == "add"
    assert context.tool_call == ResponseFunctionToolCall(
        type="function_call", call_id="call_1", name="add", arguments="{}"
    )


@pytest.mark.parametrize("method", ["approve_tool", "reject_tool"])
def test_a_function_that_approves_a_call_itself_is_refused(method: str) -> None:
    context = make_run_context(CONTEXT)
    assert get_refusal(context) is None
    with pytest.raises(Unsupported) as raised:
        getattr(context, method)(None, always_approve=True)
    assert raised.value.message == "convo does not support approve_tool and reject_tool of a run context"
    assert raised.value.hint == "approve or reject with convo resume, or at the prompt"
    assert get_refusal(context) is raised.value


async def test_the_refusal_ends_a_tool_that_hides_it() -> None:
    @sdk.function_tool
    def pay(context: sdk.RunContextWrapper[Any]) -> str:
        context.approve_tool(None)  # type: ignore[arg-type]
        return "paid"

    (tool,) = convert_agent(tools=[pay]).functions
    with pytest.raises(Unsupported, match="approve_tool and reject_tool"):
        await normalized(tool.run(CONTEXT, "{}"))


# -- tools ----------------------------------------------------------------------------------------


@sdk.function_tool(timeout=3.0, timeout_behavior="raise_exception", defer_loading=True)
async def slow(a: int) -> int:
    """Take time."""
    return a


@sdk.function_tool(strict_mode=False)
def plain(a: int) -> int:
    """Return it."""
    return a


def convert_tool(tool: sdk.FunctionTool) -> Tool:
    (converted,) = convert_agent(tools=[tool, sdk.ToolSearchTool()] if tool.defer_loading else [tool]).functions
    return converted


def test_every_setting_of_a_function_tool_is_converted() -> None:
    (grouped,) = sdk.tool_namespace(name="crm", description="customers", tools=[slow])
    converted = convert_tool(grouped)
    assert converted == Tool(
        name="slow",
        description="Take time.",
        parameters=slow.params_json_schema,
        run=converted.run,
        strict=True,
        takes_context=True,
        needs_approval=False,
        namespace=Namespace("crm", "customers"),
        deferred=True,
        timeout_s=3.0,
        on_timeout="fail",
        failure=None,
        enabled=True,
        serialize=converted.serialize,
    )
    without_settings = convert_tool(plain)
    assert without_settings == Tool(
        name="plain",
        description="Return it.",
        parameters=plain.params_json_schema,
        run=without_settings.run,
        strict=False,
        takes_context=True,
        serialize=without_settings.serialize,
        failure=None,
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, "3"),
        ({"a": 1}, "{'a': 1}"),
        (sdk.ToolOutputText(text="hi"), [{"type": "input_text", "text": "hi"}]),
        (
            [sdk.ToolOutputImage(image_url="data:,")],
            [{"type": "input_image", "image_url": "data:,"}],
        ),
    ],
)
def test_the_value_of_a_tool_is_converted_as_in_the_agents_sdk(value: object, expected: object) -> None:
    serialize = convert_tool(plain).serialize
    assert serialize is not None
    assert serialize(value) == expected


async def test_a_function_decides_about_approval_with_the_context_and_the_arguments() -> None:
    received: list[object] = []

    async def rule(context: Any, arguments: Mapping[str, Any], call_id: str) -> bool:
        received.append((context.context, arguments, call_id))
        return bool(arguments["a"] > 5)

    @sdk.function_tool(needs_approval=rule)
    def pay(a: int) -> int:
        return a

    needs_approval = convert_tool(pay).needs_approval
    assert callable(needs_approval)
    for arguments, expected in (('{"a": 1}', False), ('{"a": 9}', True)):
        context = Context("a", "pay", "call_1", {"user": "kim"}, call={**CALL, "arguments": arguments})
        assert await normalized(needs_approval(context, {"a": int(arguments[6])})) is expected
    assert received == [({"user": "kim"}, {"a": 1}, "call_1"), ({"user": "kim"}, {"a": 9}, "call_1")]


async def test_arguments_that_the_tool_would_change_need_approval() -> None:
    @sdk.function_tool(needs_approval=lambda context, arguments, call_id: asyncio.sleep(0, False))
    def pay(a: int) -> int:
        return a

    needs_approval = convert_tool(pay).needs_approval
    assert callable(needs_approval)
    changed = {**CALL, "arguments": '{"a": "1"}'}
    assert needs_approval(Context("a", "pay", "c", call=changed), {"a": "1"}) is True
    unchanged = {**CALL, "arguments": '{"a": 1}'}
    for call in (unchanged, {**CALL, "arguments": None}, None):
        assert await normalized(needs_approval(Context("a", "pay", "c", call=call), {"a": 1})) is False


async def test_a_function_decides_whether_a_tool_or_a_handoff_is_offered() -> None:
    received: list[object] = []

    def rule(context: Any, agent: Any) -> bool:
        received.append((context.context, agent.name))
        return False

    agent = sdk.Agent(
        name="a",
        tools=[sdk.function_tool(lambda: 1, name_override="one", is_enabled=rule)],
        handoffs=[sdk.handoff(sdk.Agent(name="b"), is_enabled=rule)],
    )
    converted = from_object(agent)["a"]
    for enabled in (converted.functions[0].enabled, converted.ways[0].enabled):
        assert callable(enabled)
        assert await normalized(enabled(CONTEXT)) is False
    assert received == [({"user": "kim"}, "a")] * 2


async def test_a_handoff_calls_its_function_with_the_arguments() -> None:
    received: list[object] = []

    async def on_handoff(context: Any, reason: str) -> None:
        received.append((context.context, reason))

    handoff = sdk.handoff(
        sdk.Agent(name="b"),
        on_handoff=on_handoff,
        input_type=str,
        tool_name_override="go",
        tool_description_override="Go there.",
        nest_handoff_history=False,
    )
    (converted,) = from_object(sdk.Agent(name="a", handoffs=[handoff]))["a"].ways
    assert (converted.to, converted.tool_name, converted.description) == ("b", "go", "Go there.")
    assert (converted.parameters, converted.nest) == (handoff.input_json_schema, False)
    assert (converted.strict, converted.enabled) == (True, True)
    assert converted.taken is not None
    assert (await normalized(converted.taken(CONTEXT, '"late"'))).name == "b"
    assert received == [({"user": "kim"}, "late")]


# -- guardrails -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([user_message("hi")], "hi"),
        ([user_message("hi"), user_message("there")], [{"content": text, "role": "user"} for text in ("hi", "there")]),
        ([IMAGE], [IMAGE]),
        ([ANSWER], [ANSWER]),
        ([{"role": "assistant", "content": "hello"}], [{"role": "assistant", "content": "hello"}]),
        ([], []),
    ],
)
def test_an_input_guardrail_gets_text_only_for_one_text_of_the_user(items: list[Item], expected: object) -> None:
    assert to_guardrail_input(items) == expected


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (user_message("hi"), {"content": "hi", "role": "user"}),
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi"}),
        (IMAGE, IMAGE),
        (ANSWER, ANSWER),
        ({**ANSWER, "role": "user", "content": [{"type": "input_text", "text": "x"}] * 2}, None),
        ({**ANSWER, "role": "user", "content": [{"type": "input_text", "text": "x", "more": 1}]}, None),
        ({**ANSWER, "role": "user", "content": [{"type": "text", "text": "x"}]}, None),
        ({**ANSWER, "role": "user", "content": ["x"]}, None),
        ({**ANSWER, "role": "user", "content": "x"}, None),
        ({**ANSWER, "role": "user", "content": []}, None),
    ],
)
def test_only_a_single_text_of_the_user_has_a_short_form(item: Item, expected: Item | None) -> None:
    assert to_sdk_form(item) == (item if expected is None else expected)


async def test_guardrails_of_plain_and_async_functions_get_the_agent_and_the_value() -> None:
    received: list[object] = []

    def result(context: Any, agent: Any, value: Any) -> sdk.GuardrailFunctionOutput:
        received.append((context.context, agent.name, value))
        return sdk.GuardrailFunctionOutput(output_info={"value": value}, tripwire_triggered=value != "ok")

    async def later(context: Any, agent: Any, value: Any) -> sdk.GuardrailFunctionOutput:
        return result(context, agent, value)

    converted = convert_agent(
        input_guardrails=[sdk.InputGuardrail(result, "first"), sdk.InputGuardrail(later, run_in_parallel=False)],
        output_guardrails=[sdk.OutputGuardrail(result, "last"), sdk.OutputGuardrail(later)],
    )
    guardrails = (*converted.input_guardrails, *converted.output_guardrails)
    assert [(one.name, one.parallel) for one in guardrails] == [
        *(("first", True), ("later", False)),
        *(("last", True), ("later", True)),
    ]
    for guardrail in converted.input_guardrails:
        assert await normalized(guardrail.check(CONTEXT, [user_message("ok")])) is None
        assert await normalized(guardrail.check(CONTEXT, [user_message("no")])) == "{'value': 'no'}"
    for guardrail in converted.output_guardrails:
        assert await normalized(guardrail.check(CONTEXT, "ok")) is None
        assert await normalized(guardrail.check(CONTEXT, 3)) == "{'value': 3}"
    values = [({"user": "kim"}, "a", value) for value in ("ok", "no", "ok", "no", "ok", 3, "ok", 3)]
    assert received == values


async def test_a_guardrail_that_trips_without_information_has_a_reason() -> None:
    result = sdk.GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)
    guardrail = sdk.OutputGuardrail(lambda context, agent, value: result, "last")
    (converted,) = convert_agent(output_guardrails=[guardrail]).output_guardrails
    assert await normalized(converted.check(CONTEXT, "no")) == "no reason was given"


# -- input filters --------------------------------------------------------------------------------


async def test_an_input_filter_gets_short_messages_and_unchanged_items_are_restored() -> None:
    received: list[CallModelData[Any]] = []
    agent = sdk.Agent(name="a")
    added = {"role": "user", "content": "now"}

    def keep_last(data: CallModelData[Any]) -> ModelInputData:
        received.append(data)
        return ModelInputData(input=[*data.model_data.input[1:], added], instructions="Be brief.")  # type: ignore[list-item]

    items = [user_message("old"), user_message("hi"), IMAGE]
    foreign = ForeignInputFilter(keep_last, {"a": agent})
    assert await foreign(items, "Be long.", CONTEXT) == ([items[1], IMAGE, added], "Be brief.")
    (data,) = received
    assert data.model_data.input == [{"content": "old", "role": "user"}, {"content": "hi", "role": "user"}, IMAGE]
    assert (data.model_data.instructions, data.agent, data.context) == ("Be long.", agent, {"user": "kim"})


async def test_an_input_filter_may_be_async() -> None:
    async def keep(data: CallModelData[Any]) -> ModelInputData:
        return data.model_data

    assert await ForeignInputFilter(keep, {})([user_message("hi")], None, CONTEXT) == ([user_message("hi")], None)


async def test_the_result_of_an_input_filter_must_be_its_class() -> None:
    foreign = ForeignInputFilter(lambda data: SimpleNamespace(input=[], instructions=None), {})
    with pytest.raises(InputFault) as raised:
        await foreign([], None, CONTEXT)
    assert raised.value.message == "the input filter did not return a ModelInputData"
    assert raised.value.hint == "return data.model_data, or a new ModelInputData"


def annotated(data: CallModelData[Any]) -> object: ...


def returning(data: Any) -> ModelInputData: ...  # type: ignore[empty-body]


def own(data: "list[Any]") -> object: ...


def without_annotations(data):  # type: ignore[no-untyped-def]
    ...


@pytest.mark.parametrize(
    ("function", "with_sdk_agents", "expected"),
    [
        (annotated, False, True),
        (returning, False, True),
        (own, True, False),
        (without_annotations, False, False),
        (without_annotations, True, True),
        (print, True, True),
    ],
)
def test_a_filter_for_the_agents_sdk_is_known_by_its_annotations(
    function: Any, with_sdk_agents: bool, expected: bool
) -> None:
    assert is_foreign_filter(function, foreign_agents=with_sdk_agents) is expected

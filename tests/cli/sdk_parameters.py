"""The public parameters of the Agents SDK, each with a value other than its default, and what convo does with it.

`tests.cli.test_sdk_parameters` runs every row with both programs, and `.github/AGENTS.md` is made from the rows.
"""

import asyncio
import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import agents as sdk
from agents import Agent, ModelSettings, RunConfig, handoff
from agents.lifecycle import AgentHooksBase, RunHooksBase
from agents.mcp import MCPServerStdio
from agents.models.openai_provider import OpenAIProvider
from agents.run_config import ToolExecutionConfig
from agents.sandbox import SandboxRunConfig
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel

Result = Literal["same", "refused"]


@dataclass(frozen=True)
class Row:
    """A parameter with a value.

    result:   the requests are the same, or convo names the parameter in an error before any request
    options:  the options of `convo chat` that say it; without any, the agent or --run-config does
    note:     what a reader must know
    others:   other arguments of the same call
    text:     a part of the refusal, if that is not the name of the parameter
    exit:     the exit code of convo when the run fails in both programs
    """

    value: Any
    result: Result = "same"
    note: str = ""
    options: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    exit: int = 0
    replies: tuple[Mapping[str, Any], ...] = ()


class Paid(BaseModel):
    """An output type, and the arguments of a handoff and of an agent tool."""

    cents: int


HOOK_EVENTS = ("agent_start", "llm_start", "llm_end", "tool_start", "tool_end", "handoff", "agent_end")


def describe_detail(value: Any) -> object:
    """Return a detail of a hook without what differs between two runs: ids."""
    if isinstance(value, sdk.ModelResponse):
        return [type(one).__name__ for one in value.output], value.usage.requests, value.usage.total_tokens
    if isinstance(value, list):
        return [item.get("type", item.get("role")) for item in value]
    return getattr(value, "name", value)


def make_recording_hooks(kind: type) -> Any:
    """Make hooks that write their calls into SEEN."""

    def record(event: str) -> Any:
        async def hook(self: object, *values: Any, **named: Any) -> None:
            context, *details = (*values, *named.values())
            call = context.tool_arguments if event.startswith("tool") else ""
            SEEN.append(f"{event} {call} {context.usage.requests} {[describe_detail(one) for one in details]}")

        return hook

    prefix = "agent_" if kind is AgentHooksBase else ""
    return type("Hooks", (kind,), {f"on_{event.removeprefix(prefix)}": record(event) for event in HOOK_EVENTS})()


class Sum(BaseModel, extra="forbid"):
    """An output of a tool."""

    total: int


SUM_SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}

SEEN: list[str] = []
"""The calls of hooks in the current run."""


TOO_LATE_S = 1


def instructions(context: Any, agent: Any) -> str:
    return f"{agent.name} {context.context} {context.tool_input} {' '.join(SEEN)}"


def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: the first
    """
    return a + b


async def late(a: int) -> str:
    """Add slowly."""
    await asyncio.sleep(TOO_LATE_S)
    return "late"


def fail(a: int) -> str:
    """Fail."""
    raise ValueError("no")


def always(*arguments: Any, **more: Any) -> bool:
    return True


def passes(*arguments: Any) -> sdk.GuardrailFunctionOutput:
    return sdk.GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)


@sdk.tool_input_guardrail
def rejects_input(data: Any) -> sdk.ToolGuardrailFunctionOutput:
    return sdk.ToolGuardrailFunctionOutput.reject_content(f"not {data.context.tool_arguments}")


@sdk.tool_output_guardrail
def rejects_output(data: Any) -> sdk.ToolGuardrailFunctionOutput:
    return sdk.ToolGuardrailFunctionOutput.reject_content(f"not {data.output}")


def shorten(data: Any) -> Any:
    return sdk.run_config.ModelInputData(input=data.model_data.input, instructions="Short.")


def drop_new_items(data: Any) -> Any:
    """Filter a handoff; the message in place of the items keeps the number of prompts, which selects the reply."""
    kinds = [type(item).__name__ for item in (*data.pre_handoff_items, *data.new_items)]
    history = ({"role": "user", "content": f"{data.input_history} {kinds}"}, {"role": "user", "content": "go on"})
    return data.clone(input_history=history, new_items=())


def three_messages(items: list[Any]) -> list[Any]:
    return [{"role": "user", "content": json.dumps([items, number])} for number in range(3)]


def join(history: list[Any], new: list[Any]) -> list[Any]:
    return [*history, {"role": "user", "content": "before"}, *new]


def say_handled(data: Any) -> Any:
    return sdk.RunErrorHandlerResult(final_output="handled")


DONE = {"text": "Done."}
CALL = {"call": {"name": "add", "call_id": "c1", "arguments": {"a": 1, "b": 2}}}
LATE = {"call": {"name": "late", "call_id": "c1", "arguments": {"a": 1}}}
FAIL = {"call": {"name": "fail", "call_id": "c1", "arguments": {"a": 1}}}
TRANSFER = {"call": {"name": "transfer_to_b", "call_id": "c2", "arguments": {}}}
ASK_CENTS = {"call": {"name": "ask", "call_id": "c1", "arguments": {"cents": 3}}}
ASK = {"call": {"name": "ask", "call_id": "c1", "arguments": {"input": "look"}}}

OWN = "honoured with a model object, a provider or a default client"

TRACES = "no request has it; convo sends no traces"


AGENT = {
    "name": Row("Bee Two"),
    "handoff_description": Row("Counts.", others={"handoffs": [Agent(name="b", handoff_description="Pays.")]}),
    "tools": Row([sdk.function_tool(add)], replies=(CALL, DONE)),
    "mcp_servers": Row([MCPServerStdio(params={"command": "python"})], note="stdio, SSE and streamable HTTP"),
    "mcp_config": Row({"convert_schemas_to_strict": True}),
    "instructions": Row(instructions),
    "prompt": Row({"id": "pmpt_1"}, "refused", "v1/prompts is shut down on 30 November 2026", text="v1/prompts"),
    "handoffs": Row([Agent(name="b", instructions="Pay.")], replies=(TRANSFER, DONE)),
    "model": Row("gpt-4.1", note="for a model object, and a default client, the SDK makes the requests"),
    "model_settings": Row(ModelSettings(temperature=0.3)),
    "input_guardrails": Row([sdk.InputGuardrail(passes)]),
    "output_guardrails": Row([sdk.OutputGuardrail(passes)]),
    "output_type": Row(Paid, replies=({"text": '{"cents": 3}'},)),
    "hooks": Row(
        make_recording_hooks(AgentHooksBase),
        others={"instructions": instructions, "tools": [sdk.function_tool(add)]},
        replies=(CALL, DONE),
    ),
    "tool_use_behavior": Row(
        "stop_on_first_tool",
        note="a function is refused",
        others={"tools": [sdk.function_tool(add)]},
        replies=(CALL, DONE),
    ),
    "reset_tool_choice": Row(
        False,
        others={"tools": [sdk.function_tool(add)], "model_settings": ModelSettings(tool_choice="required")},
        replies=(CALL, DONE),
    ),
}

MODEL_SETTINGS = {
    "temperature": Row(0.3),
    "top_p": Row(0.5),
    "frequency_penalty": Row(0.1),
    "presence_penalty": Row(0.1),
    "tool_choice": Row("add"),
    "parallel_tool_calls": Row(False),
    "truncation": Row("auto"),
    "max_tokens": Row(77),
    "reasoning": Row(Reasoning(effort="high", summary="auto")),
    "verbosity": Row("low"),
    "metadata": Row({"a": "b"}),
    "store": Row(True),
    "prompt_cache_retention": Row("24h"),
    "include_usage": Row(True, note="convo always reads the usage"),
    "response_include": Row(["web_search_call.action.sources"]),
    "top_logprobs": Row(2),
    "extra_query": Row({"q": "1"}, "refused", OWN),
    "extra_body": Row({"service_tier": "flex"}),
    "extra_headers": Row({"X-A": "1"}, "refused", OWN),
    "extra_args": Row({"service_tier": "flex"}),
    "retry": Row(
        sdk.ModelRetrySettings(max_retries=1), note="failed requests are repeated by the rules of convo, which says so"
    ),
    "context_management": Row([{"type": "compaction", "compact_threshold": 9000}]),
    "prompt_cache_options": Row({"mode": "explicit"}),
    "preserve_raw_usage": Row(True, note="convo stores the usage unchanged"),
    "timeout": Row(30.0, "refused"),
}

FUNCTION_TOOL = {
    "func": Row(add),
    "name_override": Row("add", others={"func": late}),
    "description_override": Row("Add."),
    "docstring_style": Row("google"),
    "use_docstring_info": Row(False),
    "failure_error_function": Row(
        lambda context, error: f"failed: {error}", others={"func": fail}, replies=(FAIL, DONE)
    ),
    "strict_mode": Row(False),
    "is_enabled": Row(lambda context, agent: agent.name != "a", replies=(DONE,)),
    "needs_approval": Row(lambda context, arguments, call_id: False),
    "tool_input_guardrails": Row([rejects_input]),
    "tool_output_guardrails": Row([rejects_output]),
    "timeout": Row(0.05, others={"func": late}, replies=(LATE, DONE)),
    "timeout_behavior": Row("raise_exception", others={"func": late, "timeout": 0.05}, replies=(LATE, DONE), exit=1),
    "timeout_error_function": Row(
        lambda context, error: "too late", others={"func": late, "timeout": 0.05}, replies=(LATE, DONE)
    ),
    "defer_loading": Row(True, note="with a ToolSearchTool", replies=(DONE,)),
    "custom_data_extractor": Row(lambda *arguments: {"x": 1}, "refused", text="custom data"),
    "allowed_callers": Row(["direct"], "refused", text="callers other than the model"),
    "output_type": Row(Sum, "refused", others={"func": late}, text="an output schema"),
    "output_json_schema": Row(SUM_SCHEMA, "refused", others={"func": late}, text="an output schema"),
}

HANDOFF = {
    "agent": Row(Agent(name="b", instructions="Pay.")),
    "tool_name_override": Row("transfer_to_b", others={"agent": Agent(name="c", instructions="Pay.")}),
    "tool_description_override": Row("Go."),
    "on_handoff": Row(lambda context: SEEN.append("handed off")),
    "input_type": Row(
        Paid,
        others={"on_handoff": lambda context, value: SEEN.append(str(value.cents))},
        replies=({"call": {"name": "transfer_to_b", "call_id": "c1", "arguments": {"cents": 3}}}, DONE),
    ),
    "input_filter": Row(drop_new_items, note="if the client stores the history"),
    "nest_handoff_history": Row(True, exit=1),
    "is_enabled": Row(lambda context, agent: False, replies=(DONE,)),
}

AS_TOOL = {
    "tool_name": Row("ask"),
    "tool_description": Row("Ask it."),
    "custom_output_extractor": Row(lambda result: "x", "refused", text="a custom output extractor"),
    "is_enabled": Row(lambda context, agent: agent.name != "a", replies=(DONE,)),
    "on_stream": Row(lambda event: None, "refused", text="an event listener"),
    "run_config": Row(RunConfig(model="gpt-4.1"), "refused", text="its own run configuration"),
    "max_turns": Row(1),
    "hooks": Row(make_recording_hooks(RunHooksBase)),
    "previous_response_id": Row("resp_1", "refused", text="its own previous response"),
    "conversation_id": Row("conv_1", "refused", text="its own conversation"),
    "session": Row(sdk.SQLiteSession("x"), "refused", text="its own session"),
    "failure_error_function": Row(lambda context, error: "F", "refused", text="a custom failure message"),
    "needs_approval": Row(lambda context, arguments, call_id: False),
    "parameters": Row(Paid, replies=(ASK_CENTS, DONE)),
    "input_builder": Row(
        lambda options: f"pay {options['params']['cents']}", others={"parameters": Paid}, replies=(ASK_CENTS, DONE)
    ),
    "include_input_schema": Row(True, others={"parameters": Paid}, replies=(ASK_CENTS, DONE)),
    "on_stream_max_pending_events": Row(
        5, "refused", others={"on_stream": lambda event: None}, text="an event listener", note="with on_stream"
    ),
}

RUN_CONFIG = {
    "model": Row("gpt-4.1", options=("-m", "openai/gpt-4.1")),
    "model_provider": Row(
        OpenAIProvider(openai_client=AsyncOpenAI(api_key="x")), note="the SDK makes the requests; `-m` replaces it"
    ),
    "model_settings": Row(ModelSettings(temperature=0.9)),
    "handoff_input_filter": Row(drop_new_items),
    "nest_handoff_history": Row(True, exit=1),
    "handoff_history_mapper": Row(three_messages, others={"nest_handoff_history": True}),
    "input_guardrails": Row([sdk.InputGuardrail(passes)]),
    "output_guardrails": Row([sdk.OutputGuardrail(passes)]),
    "tracing_disabled": Row(True, note=TRACES),
    "tracing": Row({"include_usage": True}, note=TRACES),
    "trace_include_sensitive_data": Row(False, note=TRACES),
    "workflow_name": Row("w", note=TRACES),
    "trace_id": Row("trace_1", note=TRACES),
    "group_id": Row("g", note=TRACES),
    "trace_metadata": Row({"a": "b"}, note=TRACES),
    "session_input_callback": Row(join, note="convo always has a session"),
    "call_model_input_filter": Row(shorten),
    "tool_error_formatter": Row(lambda arguments: f"{arguments.kind}: {arguments.tool_name}"),
    "session_settings": Row(sdk.SessionSettings(limit=2)),
    "reasoning_item_id_policy": Row("omit", "refused"),
    "sandbox": Row(SandboxRunConfig(cwd="x"), "refused"),
    "tool_execution": Row(ToolExecutionConfig(max_function_tool_concurrency=1)),
    "tool_not_found_behavior": Row("return_error_to_model", "refused"),
    "tool_name_collision_policy": Row("error", note="two tools of one name are always refused"),
    "output_guardrail_blocked_message": Row("blocked", "refused"),
}

RUN = {
    "starting_agent": Row(None, note="`--agent`"),
    "input": Row(
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "go"},
        ],
        note="text is the message of the command",
    ),
    "context": Row({"k": 1}, options=("--context", "desk.py:context")),
    "max_turns": Row(1, exit=1),
    "hooks": Row(make_recording_hooks(RunHooksBase), replies=(CALL, TRANSFER, DONE)),
    "run_config": Row(RunConfig(model_settings=ModelSettings(top_p=0.5))),
    "error_handlers": Row({"max_turns": say_handled}, "refused"),
    "previous_response_id": Row("resp_", options=("--from",)),
    "auto_previous_response_id": Row(True, options=("--chain",)),
    "conversation_id": Row("conv_", options=("--from",)),
    "session": Row(sdk.SQLiteSession("x"), options=("--sdk-session", "desk.py:session")),
}

TABLES: Mapping[str, tuple[Mapping[str, Row], Callable[..., Any]]] = {
    "Agent": (AGENT, Agent),
    "ModelSettings": (MODEL_SETTINGS, ModelSettings),
    "RunConfig": (RUN_CONFIG, RunConfig),
    "Runner.run": (RUN, sdk.Runner.run),
    "function_tool": (FUNCTION_TOOL, sdk.function_tool),
    "handoff": (HANDOFF, handoff),
    "Agent.as_tool": (AS_TOOL, Agent.as_tool),
}
"""The rows of each definition of the SDK, by parameter."""


def list_parameters(definition: Callable[..., Any]) -> list[str]:
    """Return the public parameters of a definition of the installed SDK."""
    if dataclasses.is_dataclass(definition):
        return [one.name for one in dataclasses.fields(definition) if one.init and not one.name.startswith("_")]
    names = inspect.signature(inspect.unwrap(definition)).parameters
    return [name for name in names if name != "self" and not name.startswith("_")]


@dataclass(frozen=True)
class Case:
    """An agent with the arguments of `Runner.run`, and the replies of the server."""

    agent: Any
    arguments: Mapping[str, Any]
    replies: tuple[Mapping[str, Any], ...]


def build_case(table: str, name: str) -> Case:
    """Build the run of a row."""
    row = TABLES[table][0][name]
    values = {**row.others, name: row.value}
    arguments: Mapping[str, Any] = {}
    base: dict[str, Any] = {"name": "a", "instructions": "Be brief."}
    replies: tuple[Mapping[str, Any], ...] = (CALL, DONE)
    if table == "Agent":
        return Case(Agent(**{**base, **values}), arguments, row.replies or (DONE,))
    tools: list[Any] = [sdk.function_tool(add)]
    if table == "ModelSettings":
        agent = Agent(**base, tools=tools, model_settings=ModelSettings(**values))
    elif table == "function_tool":
        tools = [sdk.function_tool(**{"func": add, **values})]
        tools += [sdk.ToolSearchTool()] if name == "defer_loading" else []
        agent = Agent(**base, tools=tools)
    elif table == "handoff":
        way = handoff(**{"agent": HANDOFF["agent"].value, **values})
        agent, replies = Agent(**base, handoffs=[way]), (TRANSFER, DONE)
    elif table == "Agent.as_tool":
        inner = Agent(name="b", instructions=instructions)
        arguments_ = {"tool_name": "ask", "tool_description": "Ask.", **values}
        agent, replies = Agent(**base, tools=[inner.as_tool(**arguments_)]), (ASK, DONE)
    else:
        agent = Agent(
            **{**base, "instructions": instructions},
            tools=tools,
            handoffs=[HANDOFF["agent"].value],
        )
        if table == "RunConfig":
            arguments, replies = {"run_config": RunConfig(**values)}, (CALL, TRANSFER, DONE)
        else:
            arguments = values
    return Case(agent, arguments, row.replies or replies)

"""Every public field of the installed Agents SDK's classes is honoured or refused by name; a new field fails a test.

The tables of `convo.agents.sdk` list every field, and for each unsupported one the text of the refusal.
"""

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, cast

import agents as sdk
import pytest
from agents.handoffs import Handoff as SdkHandoff
from agents.realtime import RealtimeAgent
from agents.run_config import RunConfig
from agents.sandbox import SandboxAgent
from agents.tool import Tool as SdkTool

from convo.agents import sdk as foreign_fields
from convo.agents.sdk import IGNORED_SETTINGS, REQUEST_FIELDS, SETTING_CONVERTERS, UNSUPPORTED_SETTINGS, from_object
from convo.errors import Unsupported
from convo.tools.tool import Tool

RUN_CONFIG = {
    "model": "-m",
    "model_provider": "[providers] in config.toml",
    "model_settings": "the agent's own",
    "handoff_input_filter": "refused on each handoff; one of convo's own is Habits.filter",
    "nest_handoff_history": "--nest-history",
    "handoff_history_mapper": "--history-mapper",
    "input_guardrails": "the agent's own",
    "output_guardrails": "the agent's own",
    "tracing_disabled": "convo traces nothing",
    "tracing": "convo traces nothing",
    "trace_include_sensitive_data": "convo traces nothing",
    "workflow_name": "convo traces nothing",
    "trace_id": "convo traces nothing",
    "group_id": "convo traces nothing",
    "trace_metadata": "convo traces nothing",
    "session_input_callback": "Conduct.session_input",
    "call_model_input_filter": "--input-filter",
    "tool_error_formatter": "the words of the SDK's default",
    "session_settings": "--session-limit",
    "reasoning_item_id_policy": "the SDK's default",
    "sandbox": "a SandboxAgent is refused",
    "tool_execution": "Limits.parallel",
    "tool_not_found_behavior": "the SDK's default: the run fails",
    "tool_name_collision_policy": "tools of one name are refused",
    "output_guardrail_blocked_message": "the SDK's default",
}
"""convo accepts no RunConfig: the equivalent of each of its fields. The RunConfig of an agent's tool is refused."""


def public(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind) if field.init and not field.name.startswith("_")}


def tool_kinds() -> Iterator[type]:
    """Yield the classes that the SDK accepts as tools."""
    for kind in cast(Any, SdkTool).__args__:
        yield getattr(kind, "__origin__", kind)


def test_the_tables_name_every_field_of_the_installed_sdk_and_no_other() -> None:
    assert public(sdk.Agent) == set(foreign_fields.SDK_AGENT_FIELDS)
    assert public(SdkHandoff) == set(foreign_fields.SDK_HANDOFF_FIELDS)
    assert public(sdk.InputGuardrail) == set(foreign_fields.SDK_INPUT_GUARDRAIL_FIELDS)
    assert public(sdk.OutputGuardrail) == set(foreign_fields.SDK_OUTPUT_GUARDRAIL_FIELDS)
    assert public(RunConfig) == set(RUN_CONFIG)
    assert public(sdk.ModelSettings) == {
        *REQUEST_FIELDS,
        *SETTING_CONVERTERS,
        *IGNORED_SETTINGS,
        *UNSUPPORTED_SETTINGS,
        "tool_choice",
    }
    kinds = {kind.__name__: kind for kind in tool_kinds()}
    assert set(kinds) == {*foreign_fields.SDK_TOOL_FIELDS, *foreign_fields.UNSUPPORTED_TOOLS}
    for name, fields in foreign_fields.SDK_TOOL_FIELDS.items():
        assert public(kinds[name]) == set(fields)


AS_TOOL = {
    *("self", "tool_name", "tool_description", "is_enabled", "max_turns", "needs_approval"),
    *("failure_error_function", "parameters", "input_builder", "include_input_schema"),
    *("custom_output_extractor", "on_stream", "on_stream_max_pending_events", "run_config", "hooks"),
    *("previous_response_id", "conversation_id", "session"),
}
"""The parameters of `Agent.as_tool`; `read_agent_tool_settings` refuses the unsupported ones."""


def test_the_parameters_of_as_tool_are_known() -> None:
    assert set(inspect.signature(sdk.Agent.as_tool).parameters) == AS_TOOL


@sdk.function_tool
def add(a: int, b: int) -> int:
    """Add them."""
    return a + b


class Odd:
    """A value that no field has by default."""

    def __call__(self, *arguments: object) -> bool:
        return True


def unsupported_fields(fields: Mapping[str, str | None]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in fields.items() if text]


@pytest.mark.parametrize(("field", "text"), unsupported_fields(foreign_fields.SDK_AGENT_FIELDS))
def test_an_unsupported_field_of_an_agent_is_refused_by_name(field: str, text: str) -> None:
    agent = sdk.Agent(name="a")
    object.__setattr__(agent, field, Odd())
    with pytest.raises(Unsupported, match=f"{text} .*agent 'a'") as error:
        from_object(agent)
    assert (error.value.param, bool(error.value.hint)) == (field, True)


@pytest.mark.parametrize(("field", "text"), unsupported_fields(foreign_fields.SDK_TOOL_FIELDS["FunctionTool"]))
def test_an_unsupported_field_of_a_function_tool_is_refused_by_name(field: str, text: str) -> None:
    with pytest.raises(Unsupported, match=f"{text} .*tool 'add'"):
        from_object(sdk.Agent(name="a", tools=[change_field(add, field)]))


@pytest.mark.parametrize(("field", "text"), unsupported_fields(foreign_fields.SDK_HANDOFF_FIELDS))
def test_an_unsupported_field_of_a_handoff_is_refused_by_name(field: str, text: str) -> None:
    way = sdk.handoff(sdk.Agent(name="b"))
    setattr(way, field, Odd())
    with pytest.raises(Unsupported, match=f"{text} .*handoff 'transfer_to_b' of agent 'a'"):
        from_object(sdk.Agent(name="a", handoffs=[way]))


def change_field(tool: sdk.FunctionTool, field: str) -> sdk.FunctionTool:
    copy = dataclasses.replace(tool)
    setattr(copy, field, Odd())
    return copy


@pytest.mark.parametrize(
    "tool",
    [
        sdk.LocalShellTool(executor=lambda request: ""),
        sdk.ShellTool(executor=cast(Any, lambda request: "")),
        sdk.ApplyPatchTool(editor=cast(Any, object())),
        sdk.ComputerTool(computer=cast(Any, object())),
        sdk.CustomTool(name="c", description="", on_invoke_tool=cast(Any, lambda context, value: "")),
        sdk.ProgrammaticToolCallingTool(),
        sdk.HostedMCPTool(
            tool_config={"type": "mcp", "server_label": "x", "server_url": "https://x.org"},
            on_approval_request=lambda request: {"approve": True},
        ),
        sdk.ToolSearchTool(execution="client"),
    ],
    ids=lambda tool: type(tool).__name__,
)
def test_a_tool_whose_calls_cannot_be_run_is_refused_by_name(tool: Any) -> None:
    with pytest.raises(Unsupported) as error:
        from_object(sdk.Agent(name="a", tools=[tool]))
    assert error.value.hint
    assert type(tool).__name__ in error.value.message or tool.name in error.value.message


@dataclasses.dataclass
class Newer(sdk.FunctionTool):
    """A function tool of a future release."""

    runs_at_night: bool = False


Newer.__module__, Newer.__name__ = "agents.tool", "FunctionTool"


@dataclasses.dataclass
class NewerAgent(sdk.Agent[Any]):
    """An agent of a future release."""

    patience: int = 3


NewerAgent.__module__, NewerAgent.__name__ = "agents.agent", "Agent"


def test_a_field_of_a_newer_sdk_is_refused_once_it_has_a_value() -> None:
    arguments = {field: getattr(add, field) for field in public(sdk.FunctionTool)}
    (tool,) = from_object(sdk.Agent(name="a", tools=[Newer(**arguments)]))["a"].tools
    assert isinstance(tool, Tool)
    with pytest.raises(Unsupported, match=r"the field runs_at_night \(tool 'add'\)"):
        from_object(sdk.Agent(name="a", tools=[Newer(**arguments, runs_at_night=True)]))
    assert from_object(NewerAgent(name="n")).start == "n"
    with pytest.raises(Unsupported, match=r"the field patience \(agent 'n'\)"):
        from_object(NewerAgent(name="n", patience=4))


def test_a_newer_model_setting_is_refused_by_name() -> None:
    settings = sdk.ModelSettings()
    object.__setattr__(settings, "mood", "calm")
    with pytest.raises(Unsupported, match="the model setting mood"):
        from_object(sdk.Agent(name="a", model_settings=settings))


class Renamed(sdk.Agent[Any]):
    """A subclass that overrides no method that the SDK calls, and changes a default."""

    handoff_description = "Greets people."

    def greeting(self) -> str:
        return "hello"


class Prompted(sdk.Agent[Any]):
    """A subclass that changes the system prompt."""

    async def get_system_prompt(self, run_context: Any) -> str | None:
        return "Something else."


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        (SandboxAgent(name="s"), r"the class SandboxAgent \(agent 's'\)"),
        (RealtimeAgent(name="r"), r"the class RealtimeAgent \(agent 'r'\)"),
        (Prompted(name="p"), r"an overridden method get_system_prompt \(agent 'p'\)"),
        (sdk.Agent(name="a", handoffs=[SandboxAgent(name="s")]), r"the class SandboxAgent \(agent 's'\)"),
        (
            sdk.Agent(name="a", tools=[SandboxAgent(name="s").as_tool("t", "t")]),
            r"the class SandboxAgent \(agent 's'\)",
        ),
    ],
)
def test_an_agent_of_another_class_is_refused_by_name_at_any_depth(agent: object, text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        from_object(agent)


def test_a_subclass_without_changes_is_an_agent() -> None:
    assert from_object(Renamed(name="r", instructions="Be brief."))["r"].instructions == "Be brief."

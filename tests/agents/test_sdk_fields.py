"""Every public field of the installed Agents SDK's classes is honoured or refused by name; a new field fails a test.

The tables of `convo.agents.sdk` list every field, and for each unsupported one the text of the refusal.
"""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any, cast

import agents as sdk
import pytest
from agents.handoffs import Handoff as SdkHandoff
from agents.realtime import RealtimeAgent
from agents.run_config import RunConfig
from agents.sandbox import SandboxAgent
from agents.tool import Tool as SdkTool

from convo.agents import sdk as foreign_fields
from convo.agents.agent import Agent
from convo.agents.sdk import HTTP_SETTINGS, IGNORED_SETTINGS, REQUEST_FIELDS, SETTING_CONVERTERS, from_object
from convo.agents.sdk_run import RUN_ARGUMENTS, RUN_CONFIG_FIELDS
from convo.errors import Unsupported
from convo.tools.tool import Tool

REFUSED_SETTINGS = {*HTTP_SETTINGS, "timeout"}


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
    assert public(RunConfig) == set(RUN_CONFIG_FIELDS)
    assert set(inspect.signature(sdk.Runner.run).parameters) == set(RUN_ARGUMENTS)
    assert public(sdk.ModelSettings) == {
        *REQUEST_FIELDS,
        *SETTING_CONVERTERS,
        *IGNORED_SETTINGS,
        *REFUSED_SETTINGS,
        "tool_choice",
    }
    kinds = {kind.__name__: kind for kind in tool_kinds()}
    assert set(kinds) == {*foreign_fields.SDK_TOOL_FIELDS, *foreign_fields.UNSUPPORTED_TOOLS}
    for name, fields in foreign_fields.SDK_TOOL_FIELDS.items():
        assert public(kinds[name]) == set(fields)


@pytest.mark.parametrize(
    ("settings", "include", "tool_choice", "fields"),
    [
        (sdk.ModelSettings(), (), None, {}),
        (
            sdk.ModelSettings(
                temperature=0.0,
                top_p=0.1,
                frequency_penalty=0.2,
                presence_penalty=0.3,
                parallel_tool_calls=False,
                truncation="auto",
                metadata={"a": "b"},
                store=False,
                prompt_cache_retention="24h",
                prompt_cache_options=cast(Any, {"mode": "explicit"}),
                context_management=cast(Any, [{"type": "compaction"}]),
                max_tokens=7,
                include_usage=True,
                preserve_raw_usage=True,
                tool_choice="auto",
            ),
            (),
            "auto",
            {
                "temperature": 0.0,
                "top_p": 0.1,
                "frequency_penalty": 0.2,
                "presence_penalty": 0.3,
                "parallel_tool_calls": False,
                "truncation": "auto",
                "metadata": {"a": "b"},
                "store": False,
                "prompt_cache_retention": "24h",
                "prompt_cache_options": {"mode": "explicit"},
                "context_management": [{"type": "compaction"}],
                "max_output_tokens": 7,
                "tool_choice": "auto",
            },
        ),
        (
            sdk.ModelSettings(top_logprobs=2, response_include=["reasoning.encrypted_content"]),
            ("web_search_call.results",),
            None,
            {
                "top_logprobs": 2,
                "include": [
                    "message.output_text.logprobs",
                    "reasoning.encrypted_content",
                    "web_search_call.results",
                ],
            },
        ),
        (sdk.ModelSettings(), ("web_search_call.results",), None, {"include": ["web_search_call.results"]}),
        (
            sdk.ModelSettings(
                reasoning=cast(Any, {"effort": "low"}),
                extra_args={"text": {"x": 1}, "user": "kim"},
                verbosity="low",
                extra_body={"user": {"id": 1}},
            ),
            (),
            None,
            {"reasoning": {"effort": "low"}, "text": {"x": 1, "verbosity": "low"}, "user": "kim"},
        ),
    ],
)
def test_model_settings_become_fields_of_a_request(
    settings: sdk.ModelSettings, include: tuple[str, ...], tool_choice: Any, fields: dict[str, Any]
) -> None:
    assert foreign_fields.convert_model_settings(settings, include, tool_choice) == fields


def test_an_agent_without_settings_has_those_of_the_requested_model() -> None:
    agent = from_object(sdk.Agent(name="a", tools=[sdk.FileSearchTool(["v"], include_search_results=True)]))["a"]
    include = ["file_search_call.results"]
    assert agent.model_defaults is not None
    assert agent.model_defaults("gpt-4.1") == {"include": include}
    assert agent.model_defaults("gpt-5-mini") == {"text": {"verbosity": "low"}, "include": include}
    named = from_object(sdk.Agent(name="a", model="gpt-4.1"))["a"]
    assert (named.model, named.settings, dict(named.settings_for("gpt-5"))) == ("gpt-4.1", {}, {})
    own = from_object(sdk.Agent(name="a", model_settings=sdk.ModelSettings(top_p=0.5)))["a"]
    assert (own.model_defaults, own.settings) == (None, {"top_p": 0.5})


@sdk.function_tool
def add(a: int, b: int) -> int:
    """Add them."""
    return a + b


def test_every_field_of_an_agent_is_converted() -> None:
    agent = sdk.Agent(
        name="a",
        instructions="Answer.",
        handoff_description="Pays.",
        model="openai/gpt-4.1",
        model_settings=sdk.ModelSettings(top_p=0.5),
        tool_use_behavior="stop_on_first_tool",
        reset_tool_choice=False,
    )
    expected = Agent("a", "Answer.", "Pays.", "openai/gpt-4.1", {"top_p": 0.5}, follows_sdk=True)
    assert from_object(agent)["a"] == dataclasses.replace(expected, after_tools="first output", reset_tool_choice=False)
    bare = from_object(sdk.Agent(name="b"))["b"]
    assert bare == dataclasses.replace(
        Agent("b", follows_sdk=True), settings=bare.settings, model_defaults=bare.model_defaults
    )
    assert (bare.after_tools, bare.reset_tool_choice, bare.output) == ("ask again", True, None)


def test_the_agents_of_the_sdk_are_known_by_their_identity() -> None:
    second = sdk.Agent(name="desk")
    first = sdk.Agent(name="desk", handoffs=[second])
    second.handoffs.append(first)
    assert foreign_fields.foreign_agents(first) == {"desk": first, "desk#2": second}
    assert foreign_fields.foreign_agents(Agent("desk")) == {}
    assert foreign_fields.foreign_agents(add) == {}


@pytest.mark.parametrize(
    "tool",
    [
        sdk.ShellTool(executor=cast(Any, lambda request: ""), needs_approval=lambda *arguments: True),
        sdk.ApplyPatchTool(editor=cast(Any, object()), needs_approval=lambda *arguments: True),
        sdk.ComputerTool(computer=cast(Any, object())),
        sdk.ProgrammaticToolCallingTool(),
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

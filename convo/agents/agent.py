"""`Agent`, `Handoff`, `Guardrail` and `Output`: the definition of an agent, as values.

Nothing here runs: functions of the user (instructions, guardrails, filters) are stored, and the agent runner calls
them. Invalid definitions raise InputFault at construction. An output type that is not an object is wrapped in an
object with the key `response`, because a strict schema needs an object at its root.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, Literal, Protocol, TypeAlias, get_args

from convo.errors import InputFault, NotCanonical
from convo.history.canonical import item_hash
from convo.history.items import Item, Json
from convo.tools.schema import Mismatch, call_converter, type_schema
from convo.tools.tool import Context, Hosted, Tool

WRAPPER_KEY = "response"


@dataclass(frozen=True, slots=True)
class Output:
    """The schema of a final output, and the function that parses its value.

    read:  raises Mismatch for text that does not fit the schema; call `value`, which also converts other errors
    """

    schema: Mapping[str, Json]
    read: Callable[[str], object]
    strict: bool = True

    def value(self, text: str) -> object:
        """Parse the text of an output. Raises Mismatch if it does not match, for any exception of `read`."""
        return call_converter(self.read, "", text)

    @property
    def format(self) -> dict[str, Json]:
        """The `text.format` of a request."""
        return {"type": "json_schema", "name": "final_output", "schema": dict(self.schema), "strict": self.strict}


def plain_json(value: object) -> Json:
    """Convert a value to JSON: models, dataclasses, sets and enums by their content, anything else by its `str`."""
    return json.loads(json.dumps(value, default=_json_default))


def _json_default(value: Any) -> Json:
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, set | frozenset):
        return list(value)
    return value.value if isinstance(value, Enum) else str(value)


def output(kind: Any, *, strict: bool = True) -> Output | None:
    """Return the output of a type, or of a JSON schema as a mapping; None for plain text.

    Raises InputFault for a type that a schema cannot express.
    """
    if kind is None or kind is str:
        return None
    if isinstance(kind, Mapping):
        if kind.get("type") != "object":
            raise InputFault("an output schema must have an object at its root", hint='{"type": "object", ...}')
        return Output(kind, _parse_json, strict)
    root = type_schema(kind, "the output", strict=strict)
    if root.schema.get("type") == "object":
        return Output(root.schema, lambda text: root.read(_parse_json(text), ""), strict)
    schema = {"type": "object", "properties": {WRAPPER_KEY: root.schema}, "required": [WRAPPER_KEY]}
    return Output(
        {**schema, "additionalProperties": False}, lambda text: root.read(_parse_wrapped_json(text), ""), strict
    )


def _parse_json(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Mismatch("the output is not JSON") from error


def _parse_wrapped_json(text: str) -> Json:
    value = _parse_json(text)
    if not isinstance(value, dict) or WRAPPER_KEY not in value:
        raise Mismatch(f"the output has no field {WRAPPER_KEY!r}")
    return value[WRAPPER_KEY]


Instructions: TypeAlias = str | Callable[[Context], str | Awaitable[str]] | None
"""The instructions for the model, or a function that returns them, called once a turn."""

GuardrailCheck: TypeAlias = Callable[[Context, Json], str | Awaitable[str | None] | None]
"""Check the input (a list of items) or the final output; return the reason to stop the run, or None."""

EnabledRule: TypeAlias = bool | Callable[[Context], bool | Awaitable[bool]]

HookEvent: TypeAlias = Literal["agent_start", "llm_start", "llm_end", "tool_start", "tool_end", "handoff", "agent_end"]

Hooks: TypeAlias = Callable[..., Awaitable[None]]
"""Called with the event of a run, the Context and the details of the event.

agent_start  the agent begins to answer: at the start of a run, and after a handoff
llm_start    the instructions, and the input items
llm_end      the response
tool_start   of a tool that is an agent
tool_end     of a tool that is an agent: its output
handoff      the identity of the next agent
agent_end    the final output
"""

TOOL_NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""Tool names that servers accept."""

AfterToolsMode: TypeAlias = Literal["ask again", "first output"]

AfterTools: TypeAlias = AfterToolsMode | frozenset[str]
"""The step after tool outputs.

"ask again" calls the model again; "first output" makes the first output the final output; a set of names
makes the first output of one of these tools the final output.
"""


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A check of the input or the final output that can stop the run.

    name:      for the error, and the record of the run
    check:     called with the Context, and the input items or the final output; returns the reason to stop, or None
    parallel:  an input guardrail runs in parallel to the first model call instead of before it
    """

    name: str
    check: GuardrailCheck
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Handoff:
    """A handoff to another agent, which the model makes by calling a tool.

    to:           the agent or its name; its identity in a graph
    tool_name:    None: `transfer_to_` and the agent's name
    description:  of the tool, for the model; None: made of the agent's name and description
    parameters:   the schema of the arguments that the model gives; None: no arguments
    taken:        called at the handoff with the arguments as the model wrote them
    filter:       called with the HandoffTranscript, returns the one for the next agent
    nest:         whether the history becomes a summary; None: as the run is configured
    strict:       `strict` of the tool: the server makes the arguments match `parameters`
    enabled:      whether the model is offered it, or a function of the Context that is called before each model call
    """

    to: "str | Agent"
    tool_name: str | None = None
    description: str | None = None
    parameters: Mapping[str, Json] | None = None
    taken: Callable[[Context, str], object] | None = None
    filter: Callable[..., object] | None = None
    nest: bool | None = None
    strict: bool = True
    enabled: EnabledRule = True

    def __post_init__(self) -> None:
        """Check the types of the fields. Raises InputFault."""
        for field_, (kinds, hint) in HANDOFF_FIELDS.items():
            _check_type("a handoff", field_, getattr(self, field_), kinds, hint)
        if self.tool_name is not None:
            _check_tool_name("a handoff has tool_name", self.tool_name)


class ToolServers(Protocol):
    """The MCP servers of an agent."""

    async def list_tools(self, context: Context) -> Sequence[Tool]:
        """Return the tools now; connects first if necessary. May raise any exception."""

    def states(self) -> Mapping[str, str]:
        """Return by the name of each server a text with its state."""

    async def aclose(self) -> None:
        """End the connections, and the processes of the servers."""


@dataclass(frozen=True, slots=True)
class CustomModel:
    """A model that the definition of an agent brings, whose requests other code makes.

    name:    "provider/model", for the record
    stream:  as `convo.models.responses.EventStream`
    """

    name: str
    stream: Callable[[str | None, Sequence[Item], Mapping[str, Json]], AsyncIterator[Any]]


@dataclass(frozen=True, slots=True)
class Agent:
    """The definition of an agent.

    name:               for handoffs to it, the model and the record
    instructions:       text, or a function of the Context that returns it for each model call; None: those of the chat
    description:        for the model of another agent that can hand off to this one
    model:              "provider/model" or an alias; a model of its own; None: the run's model
    settings:           further fields of its requests: temperature, tool_choice, reasoning, ...
    model_defaults:     returns the fields that replace `settings` if the agent has no model, by the name of the run's
                        model in the request
    tools:              our own tools, and hosted tools as in a request
    handoffs:           the agents that can take over: an Agent, the name of one, or a Handoff with options
    output:             the schema of its final output; None: plain text
    input_guardrails:   check the input of a run that begins with this agent
    output_guardrails:  check the final output of a run that ends with this agent
    after_tools:        the step after tool outputs, see `AfterTools`
    follows_sdk:        it behaves as an agent of the Agents SDK: requests to api.openai.com have a `prompt_cache_key`
                        for their session, unless its settings or the chat's set one; penalties are sent to chat models
                        alone; a refusal fails the run
    reset_tool_choice:  a forced tool is forced only once: after the use of any tool the model chooses freely
    servers:            MCP servers, which list their tools before each model call
    hooks:              called for the events of its runs
    server_tools:       the tools that they listed when the agent was loaded, to find the tool of a stored call
    """

    name: str
    instructions: Instructions = None
    description: str = ""
    model: str | CustomModel | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)
    tools: tuple[Tool | Hosted, ...] = ()
    handoffs: "tuple[Handoff | Agent | str, ...]" = ()
    output: Output | None = None
    input_guardrails: tuple[Guardrail, ...] = ()
    output_guardrails: tuple[Guardrail, ...] = ()
    after_tools: AfterTools = "ask again"
    reset_tool_choice: bool = True
    model_defaults: Callable[[str], Mapping[str, Json]] | None = None
    follows_sdk: bool = False
    servers: ToolServers | None = None
    server_tools: tuple[Tool, ...] = ()
    hooks: Hooks | None = None

    def __post_init__(self) -> None:
        """Check the fields. Raises InputFault for a wrong type and for a part that no request could contain or use."""
        if not isinstance(self.name, str):
            raise InputFault(
                f"an agent's name must be a string, not {_type_name(self.name)}", hint='Agent("desk", ...)'
            )
        subject = f"agent {self.name!r}"
        for field_, (kinds, hint) in AGENT_FIELDS.items():
            _check_type(subject, field_, getattr(self, field_), kinds, hint)
        if isinstance(self.after_tools, str) and self.after_tools not in get_args(AfterToolsMode):
            raise InputFault(f"{subject} has after_tools {self.after_tools!r}", hint=AGENT_FIELDS["after_tools"][1])
        for field_, (noun, kinds, hint) in AGENT_LIST_FIELDS.items():
            values = getattr(self, field_)
            _check_type(subject, field_, values, (tuple, list), f"{field_}=(...,)")
            for value in values:
                _check_type(subject, noun, value.to if isinstance(value, Handoff) else value, kinds, hint)
        for tool in self.tools:
            _check_tool(subject, tool)
        if not isinstance(self.after_tools, str) and self.servers is None:
            _check_stop_tools(subject, self.after_tools, self.tools)

    def settings_for(self, wire_model: str) -> Mapping[str, Json]:
        """Return the fields of its requests to a model; `wire_model` is the model's name in the request."""
        return self.settings if self.model or self.model_defaults is None else self.model_defaults(wire_model)

    @property
    def functions(self) -> tuple[Tool, ...]:
        """The tools that the run itself calls."""
        return (*self.server_tools, *(tool for tool in self.tools if isinstance(tool, Tool)))

    @property
    def ways(self) -> tuple[Handoff, ...]:
        """The handoffs, with short forms as `Handoff`."""
        return tuple(handoff if isinstance(handoff, Handoff) else Handoff(handoff) for handoff in self.handoffs)


AGENT_FIELDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "instructions": ((str, Callable, NoneType), "use text, or a function that returns text"),  # type: ignore[dict-item]
    "model": ((str, CustomModel, NoneType), 'model="provider/model"'),
    "settings": ((Mapping,), 'settings={"temperature": 0.2}'),
    "output": ((Output, NoneType), "create one with output(TYPE)"),
    "after_tools": ((str, frozenset), '"ask again", "first output", or frozenset({"a_tool"})'),
}
"""Field of an agent -> the types allowed, and the hint of an error."""

AGENT_LIST_FIELDS: Mapping[str, tuple[str, tuple[type, ...], str]] = {
    "tools": ("a tool", (Tool, Mapping), "create one from a function with @tool"),
    "handoffs": ("a handoff", (str, Agent), "use an Agent, or its name"),
    "input_guardrails": ("a guardrail", (Guardrail,), 'Guardrail("a name", a_function)'),
    "output_guardrails": ("a guardrail", (Guardrail,), 'Guardrail("a name", a_function)'),
}
"""Field of an agent that is a list -> the noun for an element, the types allowed, and the hint of an error."""


HANDOFF_FIELDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "tool_name": ((str, NoneType), 'tool_name="pay"'),
    "description": ((str, NoneType), "use text for the model"),
    "parameters": ((Mapping, NoneType), 'parameters={"type": "object", ...}'),
}
"""Field of a handoff -> the types allowed, and the hint of an error."""


def _check_type(subject: str, noun: str, value: object, kinds: tuple[type, ...], hint: str) -> None:
    if not isinstance(value, kinds):
        raise InputFault(f"{subject} has {noun} of type {_type_name(value)}", hint=hint)


def collect_tool_names(tools: Iterable[Tool | Hosted]) -> frozenset[str]:
    """Return the names by which `after_tools` can refer to our own tools, bare and with namespace."""
    return frozenset(name for tool in tools if isinstance(tool, Tool) for name in (tool.name, tool.title))


def _check_stop_tools(subject: str, stop_names: frozenset[str], tools: Iterable[Tool | Hosted]) -> None:
    tool_names = collect_tool_names(tools)
    for name in sorted(stop_names - tool_names, key=repr):
        hint = f"use one of {', '.join(sorted(tool_names))}" if tool_names else "add it to its tools"
        raise InputFault(f"{subject} stops after {name!r}, which is not one of its tools", hint=hint)


def _check_tool(subject: str, tool: Tool | Hosted) -> None:
    """Raise InputFault for a tool that servers reject and for a hosted tool that has no JSON form."""
    if isinstance(tool, Tool):
        _check_tool_name(f"{subject} has a tool called", tool.name)
        return
    tool_type = tool.get("type")
    if not isinstance(tool_type, str) or not tool_type:
        raise InputFault(f"{subject} has a hosted tool of the type {tool_type!r}", hint='{"type": "web_search"}')
    for field_, value in tool.items():
        try:
            item_hash({field_: value})
        except NotCanonical as error:
            raise InputFault(
                f"{subject} has a tool {tool_type!r} whose {field_!r} is not JSON: {error.__cause__}",
                hint="use only JSON values: it becomes a field of a request",
            ) from error


def _check_tool_name(subject: str, name: str) -> None:
    if not TOOL_NAME_PATTERN.fullmatch(name):
        raise InputFault(f"{subject} {name!r}", hint="use 1 to 128 characters of a-z, A-Z, 0-9, _ and -")


def _type_name(value: object) -> str:
    return type(value).__name__

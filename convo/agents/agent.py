"""An agent as a value: what it is told, what it may use, to whom it may hand over.

Nothing here runs. Functions that a person wrote (instructions, guardrails, filters) are carried as
they are; the engine calls them and waits where there is something to wait for.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Literal, TypeAlias, get_args

from convo.agents.output import Output
from convo.errors import InputFault, NotCanonical
from convo.items import Json, hash_of
from convo.tools import Context, Hosted, Tool

Instructions: TypeAlias = str | Callable[[Context], str | Awaitable[str]] | None
"""The words for the model, or a function that makes them once a turn."""

Check: TypeAlias = Callable[[Context, Json], str | Awaitable[str | None] | None]
"""Looks at the input (a list of items) or the final output; says why it must not pass, or None."""

Enabled: TypeAlias = bool | Callable[[Context], bool | Awaitable[bool]]

CALLED = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""What a server takes as the name by which a model calls something."""

AFTER: TypeAlias = Literal["ask again", "first output"]

AfterTools: TypeAlias = AFTER | frozenset[str]
"""What follows tool outputs: the model is asked again, or the first output, or that of these tools, is the answer."""


@dataclass(frozen=True, slots=True)
class Guardrail:
    """Looks at what goes in or comes out, and may stop the run.

    parallel:  an input's check runs beside the first model call, and not before it
    """

    name: str
    check: Check
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Handoff:
    """A way from one agent to another, which its model takes by calling a tool.

    to:           the agent, or its name; in a graph always its identity
    tool_name:    None: `transfer_to_` and the agent's name
    parameters:   the schema of what the model says as it hands over; None: nothing
    taken:        told what the model said, as it wrote it
    filter:       makes what the next agent sees out of what there is
    nest:         whether the history becomes a summary; None: as the run has it
    """

    to: "str | Agent"
    tool_name: str | None = None
    description: str | None = None
    parameters: Mapping[str, Json] | None = None
    taken: Callable[[Context, str], object] | None = None
    filter: Callable[..., object] | None = None
    nest: bool | None = None
    strict: bool = True
    enabled: Enabled = True

    def __post_init__(self) -> None:
        """raises: InputFault  a part of it is of a kind that it cannot be"""
        for field_, (kinds, hint) in OF_A_HANDOFF.items():
            _check("a handoff", field_, getattr(self, field_), kinds, hint)
        if self.tool_name is not None:
            _callable_by("a handoff has tool_name", self.tool_name)


@dataclass(frozen=True, slots=True)
class Agent:
    """Who answers.

    description:        what another agent's model is told of it
    model:              "provider/model" or an alias; None: as the run has it
    settings:           further fields of its requests: temperature, tool_choice, reasoning, ...
    model_defaults:     makes what takes the place of `settings` where the agent has no model: of the name by
                        which the run's model is asked
    tools:              ours, and hosted ones as they stand in a request
    output:             the schema that its answer has to fit; None: plain words
    cache_key:          its requests to api.openai.com carry a `prompt_cache_key` of their session, unless its settings
                        or the chat's name one
    reset_tool_choice:  a tool that was forced is forced once: after any tool was used the model is free
    """

    name: str
    instructions: Instructions = None
    description: str = ""
    model: str | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)
    tools: tuple[Tool | Hosted, ...] = ()
    handoffs: "tuple[Handoff | Agent | str, ...]" = ()
    output: Output | None = None
    input_guardrails: tuple[Guardrail, ...] = ()
    output_guardrails: tuple[Guardrail, ...] = ()
    after_tools: AfterTools = "ask again"
    reset_tool_choice: bool = True
    model_defaults: Callable[[str], Mapping[str, Json]] | None = None
    cache_key: bool = False

    def __post_init__(self) -> None:
        """raises: InputFault  a part of it is of a kind that it cannot be, or could never be sent or come up"""
        if not isinstance(self.name, str):
            raise InputFault(f"an agent's name is of type {_kind(self.name)}", hint='Agent("desk", ...)')
        whose = f"agent {self.name!r}"
        for field_, (kinds, hint) in ONE.items():
            _check(whose, field_, getattr(self, field_), kinds, hint)
        if isinstance(self.after_tools, str) and self.after_tools not in get_args(AFTER):
            raise InputFault(f"{whose} has after_tools {self.after_tools!r}", hint=ONE["after_tools"][1])
        for field_, (each, kinds, hint) in SEVERAL.items():
            parts = getattr(self, field_)
            _check(whose, field_, parts, (tuple, list), f"{field_}=(...,)")
            for part in parts:
                _check(whose, each, part.to if isinstance(part, Handoff) else part, kinds, hint)
        for tool in self.tools:
            _offered(whose, tool)
        if not isinstance(self.after_tools, str):
            _stops(whose, self.after_tools, self.tools)

    def settings_for(self, wire_model: str) -> Mapping[str, Json]:
        """The fields of its requests to a model, which is asked by the name `wire_model`."""
        return self.settings if self.model or self.model_defaults is None else self.model_defaults(wire_model)

    @property
    def functions(self) -> tuple[Tool, ...]:
        """Its tools that run here."""
        return tuple(one for one in self.tools if isinstance(one, Tool))

    @property
    def ways(self) -> tuple[Handoff, ...]:
        """Its handoffs, the short forms spelled out."""
        return tuple(one if isinstance(one, Handoff) else Handoff(one) for one in self.handoffs)


ONE: Mapping[str, tuple[tuple[type, ...], str]] = {
    "instructions": ((str, Callable, NoneType), "words, or a function that makes them"),  # type: ignore[dict-item]
    "model": ((str, NoneType), 'model="provider/model"'),
    "settings": ((Mapping,), 'settings={"temperature": 0.2}'),
    "output": ((Output, NoneType), "output(TYPE) makes one of a type"),
    "after_tools": ((str, frozenset), '"ask again", "first output", or frozenset({"a_tool"})'),
}
"""What a field of an agent may hold, and what to write there."""

SEVERAL: Mapping[str, tuple[str, tuple[type, ...], str]] = {
    "tools": ("a tool", (Tool, Mapping), "@tool makes one of a function"),
    "handoffs": ("a handoff", (str, Agent), "hand over to an Agent, or to its name"),
    "input_guardrails": ("a guardrail", (Guardrail,), 'Guardrail("a name", a_function)'),
    "output_guardrails": ("a guardrail", (Guardrail,), 'Guardrail("a name", a_function)'),
}
"""What each part of a field with several may be."""


OF_A_HANDOFF: Mapping[str, tuple[tuple[type, ...], str]] = {
    "tool_name": ((str, NoneType), 'tool_name="pay"'),
    "description": ((str, NoneType), "words for the model"),
    "parameters": ((Mapping, NoneType), 'parameters={"type": "object", ...}'),
}
"""What a field of a handoff may hold."""


def _check(whose: str, what: str, part: object, kinds: tuple[type, ...], hint: str) -> None:
    if not isinstance(part, kinds):
        raise InputFault(f"{whose} has {what} of type {_kind(part)}", hint=hint)


def names_of(tools: Iterable[Tool | Hosted]) -> frozenset[str]:
    """The names by which `after_tools` may mean those of our own."""
    return frozenset(name for one in tools if isinstance(one, Tool) for name in (one.name, one.title))


def _stops(whose: str, after: frozenset[str], tools: Iterable[Tool | Hosted]) -> None:
    there = names_of(tools)
    for name in sorted(after - there, key=repr):
        hint = f"its tools are {', '.join(sorted(there))}" if there else "list it among its tools"
        raise InputFault(f"{whose} is to stop after {name!r}, which is none of its tools", hint=hint)


def _offered(whose: str, tool: Tool | Hosted) -> None:
    """Refuse what no server takes as a tool, and what cannot be sent at all."""
    if isinstance(tool, Tool):
        _callable_by(f"{whose} has a tool called", tool.name)
        return
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        raise InputFault(f"{whose} has a hosted tool of the type {kind!r}", hint='{"type": "web_search"}')
    for field_, value in tool.items():
        try:
            hash_of({field_: value})
        except NotCanonical as wrong:
            raise InputFault(
                f"{whose} has a tool {kind!r} whose {field_!r} has no JSON form: {wrong.__cause__}",
                hint="it is a field of a request; say it in words or numbers",
            ) from wrong


def _callable_by(what: str, name: str) -> None:
    if not CALLED.fullmatch(name):
        raise InputFault(f"{what} {name!r}", hint="1 to 128 of a-z, A-Z, 0-9, _ and -")


def _kind(value: object) -> str:
    return type(value).__name__

"""`Tool` and the `@tool` decorator, tool lookup, argument parsing, and the text of tool outcomes.

Name, description and parameters come from the function; the model does not see a first parameter of type `Context`.
A tool is identified by its lookup (bare, namespaced or deferred). Invalid arguments are returned as `Wrong`, text for
the model, not raised. Nothing here runs a tool: the agent runner does.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_type_hints, overload

from convo.errors import InputFault
from convo.history.items import Item, Json
from convo.tools.schema import Field, Mismatch, Record, form, told

NO_VALUES: Final[Mapping[str, Json]] = MappingProxyType({})
"""The application's own values, where it gave none."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a tool may know beside its arguments.

    agent:    the identity of the agent that asks
    call_id:  the provider's string
    values:   the application's own, as the run carries them
    usages:   the usage of each model call of the run so far, as the response said it
    input:    the items that the run began with
    call:     the call as the model made it; None outside a call
    """

    agent: str
    tool: str
    call_id: str
    values: Mapping[str, Json] = field(default_factory=dict)
    usages: tuple[Mapping[str, Json], ...] = ()
    input: tuple[Item, ...] = ()
    call: Item | None = None


@dataclass(frozen=True, slots=True)
class Namespace:
    """A group of tools that the model sees under one name."""

    name: str
    description: str


Approval: TypeAlias = bool | Callable[[Context, Mapping[str, object]], bool | Awaitable[bool]]
"""Whether a call has to be approved: always, never, or what a function says of its arguments."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may ask for.

    parameters:   the JSON schema of its arguments
    run:          called with the arguments by name, after the Context where `takes_context`; a tool of
                  another package is called with the Context and the arguments as the model wrote them
    record:       reads the arguments; None where the tool reads them itself
    deferred:     shown to the model only once it has searched for it
    timeout_s:    how long one call may take; None: as long as it likes
    on_timeout:   "tell" the model, or "fail" the run
    failure:      the words for the model when the tool raised; None: the run fails with it
    enabled:      whether the model is shown it, where that is asked before every turn
    serialize:    makes the output item's `output` of what `run` returned; None: `output_text`
    """

    name: str
    description: str
    parameters: Mapping[str, Json]
    run: Callable[..., object]
    record: Record | None = None
    strict: bool = True
    takes_context: bool = False
    needs_approval: Approval = False
    namespace: Namespace | None = None
    deferred: bool = False
    timeout_s: float | None = None
    on_timeout: Literal["tell", "fail"] = "tell"
    failure: Callable[[Exception], str] | None = field(default=lambda raised: FAILED)
    enabled: bool | Callable[[Context], bool | Awaitable[bool]] = True
    serialize: Callable[[Any], Json] | None = None

    @property
    def is_async(self) -> bool:
        """Whether a call has to be waited for; whatever else it does belongs on a thread of its own."""
        return inspect.iscoroutinefunction(self.run)

    @property
    def title(self) -> str:
        """The name that a person knows it by."""
        return f"{self.namespace.name}.{self.name}" if self.namespace else self.name


FAILED = "An error occurred while running the tool. Please try again."
"""What a model is told of a tool that raised, as the Agents SDK says it: no word of the error itself."""


@overload
def tool(function: Callable[..., object], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: Approval = False,
    strict: bool = True,
    namespace: Namespace | None = None,
    deferred: bool = False,
    timeout_s: float | None = None,
    on_timeout: Literal["tell", "fail"] = "tell",
    failure: Callable[[Exception], str] | None = ...,
    enabled: bool | Callable[[Context], bool | Awaitable[bool]] = True,
) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = True,
    **settings: Any,
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a tool of a function; alone, or with fields of `Tool` by name.

    raises:  InputFault  a parameter cannot be said in a schema, or a setting makes no sense
    """
    if function is None:
        return lambda plain: _make_tool(plain, name, description, strict, settings)
    return _make_tool(function, name, description, strict, settings)


def _make_tool(
    function: Callable[..., object], name: str | None, description: str | None, strict: bool, settings: dict[str, Any]
) -> Tool:
    called = name or function.__name__
    if settings.get("timeout_s") is not None and settings["timeout_s"] <= 0:
        raise InputFault(f"tool {called!r} may take {settings['timeout_s']} seconds", hint="give it more than none")
    signature = inspect.signature(function)
    hints = get_type_hints(function, include_extras=True)
    words = told(function, tuple(signature.parameters))
    parameters = list(signature.parameters.values())
    takes_context = bool(parameters) and hints.get(parameters[0].name) is Context
    fields = tuple(
        _make_parameter_field(one, hints, words.fields, called, strict) for one in parameters[takes_context:]
    )
    record = Record(fields, strict)
    return Tool(
        name=called,
        description=words.words if description is None else description,
        parameters=record.schema,
        run=function,
        record=record,
        strict=strict,
        takes_context=takes_context,
        **settings,
    )


def _make_parameter_field(
    one: inspect.Parameter, hints: Mapping[str, Any], words: Mapping[str, str], called: str, strict: bool
) -> Field:
    where = f"parameter {one.name!r} of tool {called!r}"
    if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
        raise InputFault(f"{where} has no name of its own that a model could use", hint="take a list, or name each one")
    if one.name not in hints:
        raise InputFault(f"{where} has no type", hint="annotate it: the schema is made of the types")
    if hints[one.name] is Context:
        raise InputFault(f"{where} is the Context and not the first", hint="put it first")
    default = None if one.default is one.empty else _make_default_factory(one.default)
    return Field(one.name, form(hints[one.name], where, strict=strict), default, words.get(one.name))


def _make_default_factory(value: object) -> Callable[[], object]:
    return lambda: value


Lookup: TypeAlias = tuple[str, ...]
"""("bare", name), ("namespaced", space, name) or ("deferred_top_level", name)."""

Hosted: TypeAlias = Mapping[str, Json]
"""A tool that the provider runs, as it stands in a request: {"type": "web_search"}."""


def lookup_of(tool: Tool) -> Lookup:
    """A tool's name in layers."""
    if tool.namespace:
        return ("namespaced", tool.namespace.name, tool.name)
    return ("deferred_top_level" if tool.deferred else "bare", tool.name)


def _lookup_of_call(call: Item) -> Lookup:
    """The layers that a call's fields say."""
    name, space = str(call.get("name")), call.get("namespace")
    if not isinstance(space, str) or not space:
        return ("bare", name)
    return ("deferred_top_level", name) if space == name else ("namespaced", space, name)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one agent by their layers."""

    tools: Mapping[Lookup, Tool]

    def find(self, call: Item) -> Tool | None:
        """The tool that a call means; None when this agent has none such."""
        return self.tools.get(_lookup_of_call(call))


def toolbox(tools: Iterable[Tool]) -> Toolbox:
    """Lay tools out by their layers.

    raises:  InputFault  two tools that a call could not tell apart
    """
    found: dict[Lookup, Tool] = {}
    titles: set[str] = set()
    for tool in tools:
        if tool.namespace and tool.namespace.name == tool.name:
            raise InputFault(
                f"tool {tool.title!r} has its namespace's name", hint="that form stands for deferred tools"
            )
        lookup = lookup_of(tool)
        if lookup in found or (tool.title in titles and lookup[0] != "deferred_top_level"):
            raise InputFault(f"two tools are called {tool.title!r}", hint="rename one, or give it a namespace")
        found[lookup] = tool
        titles.add(tool.title)
    return Toolbox(found)


def definitions(tools: Sequence[Tool | Hosted]) -> list[dict[str, Json]]:
    """The `tools` of a request: functions, groups where their first tool stands, hosted ones as they are.

    raises:  InputFault  a group with two descriptions, or deferred tools and no search that would find them
    """
    made: list[dict[str, Json]] = []
    groups: dict[str, dict[str, Json]] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            made.append(dict(tool))
        elif tool.namespace is None:
            made.append(_build_function_definition(tool))
        else:
            _add_to_namespace(groups, made, tool)
    deferred = [tool.title for tool in tools if isinstance(tool, Tool) and tool.deferred]
    if deferred and not any(one.get("type") == "tool_search" for one in made):
        raise InputFault(f"tool {deferred[0]!r} is deferred and nothing finds it", hint='add {"type": "tool_search"}')
    return made


def _add_to_namespace(groups: dict[str, dict[str, Json]], made: list[dict[str, Json]], tool: Tool) -> None:
    assert tool.namespace
    name, description = tool.namespace.name, tool.namespace.description
    if name not in groups:
        groups[name] = {"type": "namespace", "name": name, "description": description, "tools": []}
        made.append(groups[name])
    if groups[name]["description"] != description:
        raise InputFault(f"namespace {name!r} has two descriptions", hint="say the same for each of its tools")
    groups[name]["tools"].append(_build_function_definition(tool))


def _build_function_definition(tool: Tool) -> dict[str, Json]:
    said: dict[str, Json] = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": tool.strict,
    }
    return {**said, "defer_loading": True} if tool.deferred else said


NOT_APPROVED = "Tool execution was not approved."
"""What a model is told of a call that a person rejected without a reason."""

CONTENT_PART_TYPES = {"input_text", "input_image", "input_file"}
"""Content that travels as it is; a list of it is an output of several parts."""

__all__ = ["FAILED", "NOT_APPROVED", "output_text", "timed_out"]


def timed_out(tool: str, timeout_s: float) -> str:
    return f"Tool '{tool}' timed out after {timeout_s:g} seconds."


def output_text(value: object) -> Json:
    """What a tool returned, as the `output` of its item: text as it is, content parts, else JSON, else its `str`."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [value]
    if parts and all(isinstance(part, dict) and part.get("type") in CONTENT_PART_TYPES for part in parts):
        return parts
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


@dataclass(frozen=True, slots=True)
class Wrong:
    """Arguments that do not fit; `words` are for the model."""

    words: str


def read_arguments(tool: Tool, written: str) -> dict[str, object] | Wrong:
    """The arguments by name, as the function takes them; for a tool that reads them itself, as JSON says them.

    written:  as the model wrote it; nothing at all stands for no arguments
    """
    try:
        value = ARGUMENT_DECODER.decode(written.strip() or "{}")
    except (ValueError, RecursionError) as mistake:
        return _invalid_arguments(tool, f"they are not JSON ({_describe_mistake(mistake)})")
    if not isinstance(value, dict):
        return _invalid_arguments(tool, "they must be one JSON object")
    if tool.record is None:
        return value
    try:
        return tool.record.read(value, "")
    except (Mismatch, RecursionError) as mistake:
        return _invalid_arguments(tool, _describe_mistake(mistake))


def _invalid_arguments(tool: Tool, what: str) -> Wrong:
    return Wrong(f"Invalid arguments for tool {tool.title}: {what}. Call it again with arguments that fit its schema.")


def _describe_mistake(mistake: Exception) -> str:
    return "nested too deep" if isinstance(mistake, RecursionError) else str(mistake)


def _reject_json_constant(constant: str) -> Json:
    raise ValueError(f"{constant} is no JSON number")


ARGUMENT_DECODER = json.JSONDecoder(parse_constant=_reject_json_constant)

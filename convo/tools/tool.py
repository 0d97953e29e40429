"""`Tool` and the `@tool` decorator, tool lookup, argument parsing, and the text of tool outcomes.

Name, description and parameters come from the function; the model does not see a first parameter of type `Context`.
A tool is identified by its lookup (bare, namespaced or deferred). Invalid arguments are returned as `InvalidArguments`,
with a message for the model, not raised. Nothing here runs a tool: the agent runner does.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_type_hints, overload

from convo.errors import InputFault
from convo.history.canonical import refuse_json_constant
from convo.history.items import MCP_APPROVAL_REQUEST, Item, Json, item_type
from convo.tools.schema import Field, Mismatch, ObjectSchema, parse_docstring, type_schema

NO_VALUES: Final[Mapping[str, Json]] = MappingProxyType({})
"""The context values of a run whose application gave none."""


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a call to a function of the user: a tool, guardrail, filter or rule.

    agent:    the identity of the current agent
    call_id:  the provider's string
    values:   context values of the application: a mapping, or the object that `--context` names
    usages:   the usage of each model call of the run so far, as in the response
    input:    the items at the start of the run
    call:     the call as the model made it; None outside a call
    tool_input:  in the run of an agent tool with parameters of its own: their values
    """

    agent: str
    tool: str
    call_id: str
    values: Any = field(default_factory=dict)
    usages: tuple[Mapping[str, Json], ...] = ()
    input: tuple[Item, ...] = ()
    call: Item | None = None
    tool_input: Json = None


@dataclass(frozen=True, slots=True)
class Namespace:
    """A group of tools that the model sees under one name."""

    name: str
    description: str


Hosted: TypeAlias = Mapping[str, Json]
"""A tool that the provider runs, as in a request: {"type": "web_search"}."""

Approval: TypeAlias = bool | Callable[[Context, Mapping[str, object]], bool | Awaitable[bool]]
"""Whether a call needs approval: always, never, or as a function of the context and the arguments decides."""


class ServerTool(NamedTuple):
    """A tool of an MCP server, as in a RunState: the server's name, the tool's name there, the server's position."""

    server: str
    name: str
    position: int | None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call.

    parameters:   the JSON schema of the arguments
    run:          called with the arguments by name, after the Context if `takes_context`; a tool of another package is
                  called with the Context and the arguments as the model wrote them
    record:       parses the arguments; None: the tool parses them itself
    deferred:     the model sees the tool only after it searched for it
    timeout_s:    seconds that one call may take; None: no limit
    on_timeout:   "tell": the model receives a message; "fail": the run fails
    failure:      makes the output for the model if the tool raises; None: the run fails
    enabled:      whether the model is offered the tool; a function is called before every turn
    serialize:    converts the return value to the `output` of the item; None: `output_text`
    origin:       the tool of an MCP server that this is, whose definition may change; None for a function
    definition:   of a tool that is no function, its entry in a request: {"type": "shell"}; `run` returns the item that
                  answers `Context.call`
    """

    name: str
    description: str
    parameters: Mapping[str, Json]
    run: Callable[..., object]
    record: ObjectSchema | None = None
    strict: bool = True
    takes_context: bool = False
    needs_approval: Approval = False
    namespace: Namespace | None = None
    deferred: bool = False
    timeout_s: float | None = None
    on_timeout: Literal["tell", "fail"] = "tell"
    failure: Callable[[Exception], str] | None = field(default=lambda error: FAILED)
    enabled: bool | Callable[[Context], bool | Awaitable[bool]] = True
    serialize: Callable[[Any], Json] | None = None
    origin: ServerTool | None = None
    definition: Hosted | None = None

    @property
    def title(self) -> str:
        """The name shown to a person, with the namespace."""
        return f"{self.namespace.name}.{self.name}" if self.namespace else self.name


FAILED = "An error occurred while running the tool. Please try again."
"""Output for the model if a tool raised: the Agents SDK's text, without the message of the error."""


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
    """Define a tool from a function; use alone, or with fields of `Tool` as keywords.

    Raises InputFault for a parameter that a schema cannot express and for an invalid setting.
    """
    if function is None:
        return lambda decorated: _make_tool(decorated, name, description, strict, settings)
    return _make_tool(function, name, description, strict, settings)


def _make_tool(
    function: Callable[..., object], name: str | None, description: str | None, strict: bool, settings: dict[str, Any]
) -> Tool:
    tool_name = name or function.__name__
    if settings.get("timeout_s") is not None and settings["timeout_s"] <= 0:
        raise InputFault(
            f"tool {tool_name!r} has a timeout of {settings['timeout_s']} seconds", hint="set timeout_s to more than 0"
        )
    signature = inspect.signature(function)
    hints = get_type_hints(function, include_extras=True)
    docstring = parse_docstring(function, tuple(signature.parameters))
    parameters = list(signature.parameters.values())
    takes_context = bool(parameters) and hints.get(parameters[0].name) is Context
    fields = tuple(
        _make_parameter_field(parameter, hints, docstring.fields, tool_name, strict)
        for parameter in parameters[takes_context:]
    )
    record = ObjectSchema(fields, strict)
    return Tool(
        name=tool_name,
        description=docstring.description if description is None else description,
        parameters=record.schema,
        run=function,
        record=record,
        strict=strict,
        takes_context=takes_context,
        **settings,
    )


def _make_parameter_field(
    parameter: inspect.Parameter,
    hints: Mapping[str, Any],
    descriptions: Mapping[str, str],
    tool_name: str,
    strict: bool,
) -> Field:
    where = f"parameter {parameter.name!r} of tool {tool_name!r}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise InputFault(
            f"{where} has no name that a model could use", hint="use a list, or a named parameter for each value"
        )
    if parameter.name not in hints:
        raise InputFault(f"{where} has no type", hint="add a type annotation: the schema is built from the types")
    if hints[parameter.name] is Context:
        raise InputFault(f"{where} is the Context, but not the first parameter", hint="move it to the first position")
    default = None if parameter.default is parameter.empty else _make_default_factory(parameter.default)
    return Field(
        parameter.name,
        type_schema(hints[parameter.name], where, strict=strict),
        default,
        descriptions.get(parameter.name),
    )


def _make_default_factory(value: object) -> Callable[[], object]:
    return lambda: value


Lookup: TypeAlias = tuple[str, ...]
"""("bare", name), ("namespaced", space, name) or ("deferred_top_level", name)."""


def tool_lookup(tool: Tool) -> Lookup:
    """Return the lookup of a tool."""
    if tool.namespace:
        return ("namespaced", tool.namespace.name, tool.name)
    return ("deferred_top_level" if tool.deferred else "bare", tool.name)


def _lookup_of_call(call: Item) -> Lookup:
    name, namespace = str(call.get("name")), call.get("namespace")
    if not isinstance(namespace, str) or not namespace:
        return ("bare", name)
    return ("deferred_top_level", name) if namespace == name else ("namespaced", namespace, name)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one agent by their lookup."""

    tools: Mapping[Lookup, Tool]

    def find(self, call: Item) -> Tool | None:
        """Return the tool of a call; None if the agent has no such tool."""
        if call.get("type", "function_call") == "function_call":
            tool = self.tools.get(_lookup_of_call(call))
            return None if tool is None or tool.definition else tool
        return next((tool for tool in self.tools.values() if tool.definition and _answers(tool.definition, call)), None)


def _answers(definition: Hosted, call: Item) -> bool:
    """Return whether a call is one of the tool with this definition, which is no function."""
    match definition["type"]:
        case "custom":
            return item_type(call) == "custom_tool_call" and call.get("name") == definition["name"]
        case "mcp":
            is_request = item_type(call) == MCP_APPROVAL_REQUEST
            return is_request and call.get("server_label") == definition["server_label"]
    return item_type(call) == f"{definition['type']}_call"


def toolbox(tools: Iterable[Tool]) -> Toolbox:
    """Index tools by their lookup.

    Raises InputFault for two tools that a call could not distinguish.
    """
    by_lookup: dict[Lookup, Tool] = {}
    titles: set[str] = set()
    for tool in tools:
        if tool.namespace and tool.namespace.name == tool.name:
            raise InputFault(
                f"tool {tool.title!r} has the name of its namespace", hint="rename one: that form means a deferred tool"
            )
        lookup = tool_lookup(tool)
        # A call of a deferred tool has the name as its namespace, too, so it may share the name of another tool.
        is_deferred = lookup[0] == "deferred_top_level"
        if lookup in by_lookup or (tool.title in titles and not is_deferred):
            raise InputFault(f"two tools are named {tool.title!r}", hint="rename one, or give it a namespace")
        by_lookup[lookup] = tool
        if not is_deferred:
            titles.add(tool.title)
    return Toolbox(by_lookup)


def tool_definitions(tools: Sequence[Tool | Hosted]) -> list[dict[str, Json]]:
    """Build the `tools` of a request: functions, namespaces in the place of their first tool, hosted tools unchanged.

    Raises InputFault for a namespace with two descriptions, and for deferred tools without a tool search.
    """
    entries: list[dict[str, Json]] = []
    groups: dict[str, dict[str, Json]] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            entries.append(dict(tool))
        elif tool.definition is not None:
            entries.append(dict(tool.definition))
        elif tool.namespace is None:
            entries.append(_build_function_definition(tool))
        else:
            _add_to_namespace(groups, entries, tool)
    deferred = [tool.title for tool in tools if isinstance(tool, Tool) and tool.deferred]
    if deferred and not any(entry.get("type") == "tool_search" for entry in entries):
        raise InputFault(
            f"tool {deferred[0]!r} is deferred, but there is no tool search", hint='add {"type": "tool_search"}'
        )
    return entries


def _add_to_namespace(groups: dict[str, dict[str, Json]], entries: list[dict[str, Json]], tool: Tool) -> None:
    assert tool.namespace
    name, description = tool.namespace.name, tool.namespace.description
    if name not in groups:
        groups[name] = {"type": "namespace", "name": name, "description": description, "tools": []}
        entries.append(groups[name])
    if groups[name]["description"] != description:
        raise InputFault(f"namespace {name!r} has two descriptions", hint="use the same description for all its tools")
    groups[name]["tools"].append(_build_function_definition(tool))


def _build_function_definition(tool: Tool) -> dict[str, Json]:
    definition: dict[str, Json] = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": tool.strict,
    }
    return {**definition, "defer_loading": True} if tool.deferred else definition


NOT_APPROVED = "Tool execution was not approved."
"""Output for the model of a call that a person rejected without a message."""

CONTENT_PART_TYPES = {"input_text", "input_image", "input_file"}
"""Content parts that are sent unchanged; a list of them is an output of several parts."""


def timeout_message(tool: str, timeout_s: float) -> str:
    return f"Tool '{tool}' timed out after {timeout_s:g} seconds."


def output_text(value: object) -> Json:
    """Convert a return value to the `output` of an item: strings and content parts unchanged, else JSON, else `str`."""
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
class InvalidArguments:
    """Arguments that do not match the schema; `message` is the message for the model."""

    message: str


def read_arguments(tool: Tool, text: str) -> dict[str, object] | InvalidArguments:
    """Parse the arguments of a call, by name; plain JSON values if the tool parses them itself.

    text:  as the model wrote them; an empty string means no arguments
    """
    try:
        value = ARGUMENT_DECODER.decode(text.strip() or "{}")
    except (ValueError, RecursionError) as error:
        return _invalid_arguments(tool, f"they are not JSON ({_describe_mistake(error)})")
    if not isinstance(value, dict):
        return _invalid_arguments(tool, "they must be one JSON object")
    if tool.record is None:
        return value
    try:
        return tool.record.read(value, "")
    except (Mismatch, RecursionError) as error:
        return _invalid_arguments(tool, _describe_mistake(error))


def _invalid_arguments(tool: Tool, reason: str) -> InvalidArguments:
    return InvalidArguments(
        f"Invalid arguments for tool {tool.title}: {reason}. Call it again with arguments that fit its schema."
    )


def _describe_mistake(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)


ARGUMENT_DECODER = json.JSONDecoder(parse_constant=refuse_json_constant)

"""Map tools and items of the Responses API to functions, for models that support only functions, and map calls back.

`map_request` replaces the tools of a request by functions and its items by messages, function calls and their outputs:

    function                                as it is
    custom                                  a function with the parameter `input`, the free text; as it is for a model
                                            with custom tools, its calls too
    namespace                               a function NAMESPACE__NAME for each of its tools
    local_shell, shell, apply_patch         a function of that name
    tool_search that the client runs        a function; the tools that it may load are offered once they are loaded
    tool_search that the server runs        left out, as every tool that it may load is offered
    tools that only a server can run        refused, or left out where the settings say so; a web search beside other
                                            tools is left out by default
    items of such tools                     text notes
    outputs without a call (no `call_id`)   messages of the user, with the tool's name
    additional_tools, configuration_update  applied to the request

`build_call_item` turns a call of such a function into the item of its tool. Nothing here waits, sends or reads a clock.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal, TypeAlias

from convo.config.sections import HostedTools
from convo.errors import InputFault, Unsupported, UnsupportedValue
from convo.history.items import CONFIGURATION_TYPES, Item, Json, get_call_id, item_type
from convo.history.pairing import call_index_by_output, pair_id
from convo.history.tree import derive, where
from convo.models.base import ModelRequest, list_unknown_fields, read_required_str

ToolKind: TypeAlias = Literal["function", "custom", "local_shell", "shell", "apply_patch", "tool_search"]

MAX_FUNCTION_NAME_CHARS = 64
"""Characters; servers refuse a longer name."""

HOSTED_TOOL_TYPES = frozenset(
    {
        *("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
        *("file_search", "code_interpreter", "image_generation", "computer", "computer_use", "computer_use_preview"),
        *("mcp", "programmatic_tool_calling"),
    }
)
"""Types of tools that the server of the model runs."""


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool as the client named it; `name` equals the kind for a tool without a name of its own."""

    kind: ToolKind
    name: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class MappedRequest:
    """A request that has only functions.

    request:  `input` has only messages, function calls, their outputs, reasoning, and items that no adapter supports;
              `tools` has only functions; `tool_choice` is a string or names a function. For a model with custom tools
              they and their calls are `custom` and `custom_tool_call`
    tools:    the tools by the name of their function, without the functions that are sent as they are
    ignored:  the names of fields that are not sent, for `x-convo-ignored`
    """

    request: ModelRequest
    tools: Mapping[str, ClientTool]
    ignored: tuple[str, ...]


def map_request(
    request: ModelRequest,
    model_label: str,
    hosted_tools: HostedTools = "refuse",
    *,
    has_custom_tools: bool = False,
) -> MappedRequest:
    """Map a request to functions and messages.

    model_label:       the model's name in errors
    hosted_tools:      whether a tool that only a server can run is refused or left out; "auto" leaves out a web search,
                       unless the request has no other tool
    has_custom_tools:  whether the model has custom tools of its own

    Raises Unsupported for a tool, tool choice or item that has no equivalent, InputFault for a malformed one.
    """
    ignored: list[str] = []
    parameters = dict(request.parameters)
    special_items = [request.input[index] for index in derive(request.input, _SPECIAL_ITEMS)]
    if not special_items and "tools" not in parameters and "tool_choice" not in parameters:
        return MappedRequest(request, {}, ())
    for item in special_items:
        if item_type(item) == "configuration_update":
            _apply_configuration_update(item, parameters)

    tools = [
        *(parameters.get("tools") or ()),
        *(tool for item in special_items if item_type(item) == "additional_tools" for tool in _tool_list(item)),
    ]
    collector = _ToolCollector(
        model_label,
        ignored,
        is_search_by_client=any(map(_is_search_by_client, tools)),
        has_custom_tools=has_custom_tools,
    )
    collector.add(tools, hosted_tools)
    # Without its only tool the model would answer from memory, as if it had searched.
    if hosted_tools == "auto" and not collector.offers and (search := next(filter(_is_web_search, tools), None)):
        raise _unsupported_hosted_tool(model_label, f"{search['type']} tools as the only tools", "tools")
    for item in special_items:
        if item_type(item) == "tool_search_output":
            # After the request's own tools, so that a loaded one is not offered twice.
            collector.add(_tool_list(item), "omit", is_loaded=True)
    offers = collector.offers
    names = _FunctionNames(tool for tool, _ in offers)

    choice = _resolve_tool_choice(parameters.get("tool_choice"), names, model_label, hosted_tools, ignored)
    if isinstance(choice, _AllowedFunctions):
        offers = [(tool, definition) for tool, definition in offers if names.by_tool[tool] in choice.names]
        choice = choice.mode
    define = _custom_definition if has_custom_tools else _function_definition
    functions = [
        (define if tool.kind == "custom" else _function_definition)(names.by_tool[tool], tool, definition)
        for tool, definition in offers
    ]
    if has_custom_tools and isinstance(choice, Mapping) and _is_custom(choice["name"], names):
        choice = {"type": "custom", "name": choice["name"]}
    parameters.pop("tools", None)
    parameters.pop("tool_choice", None)
    if functions:
        parameters["tools"] = functions
        parameters |= {"tool_choice": choice} if choice is not None else {}
    # OpenAI refuses a tool choice in a request without tools.
    elif choice not in (None, "auto", "none"):
        ignored.append("tool_choice")
    items = request.input
    if special_items:
        items = _map_items(items, names, model_label, has_custom_tools=has_custom_tools)
    return MappedRequest(
        request=replace(request, input=items, parameters=parameters),
        tools={
            names.by_tool[tool]: tool for tool, _ in offers if tool.kind != "function" or tool.namespace is not None
        },
        ignored=(*ignored, *_list_unsent_note_fields(special_items)),
    )


def _apply_configuration_update(item: Item, parameters: dict[str, Json]) -> None:
    """Set the reasoning effort and the text format that apply from `item` on; each stays until a later update."""
    for name in ("reasoning", "text"):
        update = item.get(name)
        if update is None:
            continue
        if not isinstance(update, Mapping):
            raise InputFault(f"the {name!r} of a configuration_update is not an object")
        fields = {field: value for field, value in update.items() if value is not None}
        parameters[name] = {**(parameters.get(name) or {}), **fields}


# -- tools ----------------------------------------------------------------------------------------

_KNOWN_TOOL_FIELDS: Mapping[str, frozenset[str]] = {
    "function": frozenset({"type", "name", "description", "parameters", "strict"}),
    "custom": frozenset({"type", "name", "description", "format"}),
    "namespace": frozenset({"type", "name", "description", "tools"}),
    "tool_search": frozenset({"type", "execution", "description", "parameters"}),
    "shell": frozenset({"type", "environment"}),
    "local_shell": frozenset({"type"}),
    "apply_patch": frozenset({"type"}),
}
"""The fields of a tool that reach the model, by type."""

_DEFAULT_TOOL_FIELDS: Mapping[str, Json] = {"allowed_callers": ["direct"], "async": False, "defer_loading": False}
"""Values that request the default behaviour."""

_Offer: TypeAlias = tuple[ClientTool, Mapping[str, Json]]


class _ToolCollector:
    """Collects the tools to offer, with their definitions; `offers` has each tool once, in the client's order."""

    def __init__(
        self, model_label: str, ignored: list[str], *, is_search_by_client: bool, has_custom_tools: bool
    ) -> None:
        self._model_label, self._ignored = model_label, ignored
        self._is_search_by_client, self._has_custom_tools = is_search_by_client, has_custom_tools
        self._offers: list[_Offer] = []
        self._searchable: dict[str, str] = {}

    @property
    def offers(self) -> list[_Offer]:
        listed = "\n".join(f"- {name}: {text}" if text else f"- {name}" for name, text in self._searchable.items())
        if not listed:
            return self._offers
        return [
            (tool, {**definition, "description": _join_paragraphs(definition.get("description"), listed)})
            if tool.kind == "tool_search"
            else (tool, definition)
            for tool, definition in self._offers
        ]

    def add(self, tools: Iterable[Json], hosted_tools: HostedTools, *, is_loaded: bool = False) -> None:
        """Add tools; the result of a search is offered although its loading was deferred. Raises Unsupported."""
        for tool in tools:
            if not isinstance(tool, Mapping):
                raise InputFault("a list of tools contains a tool that is not an object")
            kind = tool.get("type")
            if kind == "namespace":
                self._add_namespace(tool, is_loaded=is_loaded)
            elif kind in ("function", "custom"):
                self._add_named(tool, None, is_loaded=is_loaded)
            elif kind == "tool_search" and not self._is_search_by_client:
                self._ignored.append("tools.tool_search")
            elif kind in ("local_shell", "apply_patch", "tool_search") or (kind == "shell" and _is_local_shell(tool)):
                self._offer(ClientTool(kind, kind), tool, is_loaded=is_loaded)
                self._report_unknown_fields(tool)
            elif kind not in HOSTED_TOOL_TYPES and kind != "shell" and not _is_web_search(tool):
                raise UnsupportedValue(self._model_label, f"{kind} tools", param="tools")
            elif hosted_tools == "omit" or (hosted_tools == "auto" and _is_web_search(tool)):
                self._ignored.append(f"tools.{kind}")
            else:
                feature = "shell tools in a container" if kind == "shell" else f"{kind} tools"
                raise _unsupported_hosted_tool(self._model_label, feature, "tools")

    def _add_namespace(self, tool: Mapping[str, Json], *, is_loaded: bool) -> None:
        """Add the tools of a namespace; the description of the first one that is offered has the namespace's too."""
        name, description = _required_name(tool), tool.get("description")
        self._report_unknown_fields(tool)
        for member in _tool_list(tool):
            if not isinstance(member, Mapping) or member.get("type") not in ("function", "custom"):
                raise InputFault(f"the namespace {name!r} contains a tool that is neither a function nor custom")
            if self._is_deferred(member, is_loaded=is_loaded):
                self._searchable[name] = str(description or "")
            if description:
                about = f"All functions {name}__*: {description}"
                member = {**member, "description": _join_paragraphs(member.get("description"), about)}
            if self._add_named(member, name, is_loaded=is_loaded):
                # Only the first tool of a namespace repeats its description.
                description = None

    def _add_named(self, tool: Mapping[str, Json], namespace: str | None, *, is_loaded: bool) -> bool:
        """Add a function or custom tool. Returns False for one that the model has to search first."""
        name = _required_name(tool)
        if self._is_deferred(tool, is_loaded=is_loaded):
            if namespace is None:
                self._searchable[name] = str(tool.get("description") or "")
            return False
        self._offer(ClientTool(tool["type"], name, namespace), tool, is_loaded=is_loaded)
        self._report_unknown_fields(tool)
        return True

    def _is_deferred(self, tool: Mapping[str, Json], *, is_loaded: bool) -> bool:
        return bool(tool.get("defer_loading")) and self._is_search_by_client and not is_loaded

    def _offer(self, tool: ClientTool, definition: Mapping[str, Json], *, is_loaded: bool) -> None:
        if not is_loaded or all(tool != offered for offered, _ in self._offers):
            self._offers.append((tool, definition))

    def _report_unknown_fields(self, tool: Mapping[str, Json]) -> None:
        for field in list_unknown_fields(tool, _KNOWN_TOOL_FIELDS[tool["type"]]):
            is_honoured = field == "defer_loading" and self._is_search_by_client
            if _DEFAULT_TOOL_FIELDS.get(field) != tool[field] and not is_honoured:
                self._ignored.append(f"tools.{field}")
        is_sent = self._has_custom_tools and _grammar(tool) is not None
        if tool["type"] == "custom" and tool.get("format") not in (None, {"type": "text"}) and not is_sent:
            self._ignored.append("tools.format")  # the model may read a grammar, and nothing enforces it


def _is_web_search(tool: Json) -> bool:
    """Whether `tool` is `web_search` or one of its dated names; Codex offers it in every request."""
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    return kind == "web_search" or (isinstance(kind, str) and kind.startswith("web_search_"))


def _unsupported_hosted_tool(model_label: str, feature: str, param: str) -> Unsupported:
    """Name the setting in the message, because a client of `convo serve` gets no hint."""
    return UnsupportedValue(
        model_label, f'{feature}; hosted_tools = "omit" for the provider leaves them out', param=param
    )


def _is_search_by_client(tool: Json) -> bool:
    return isinstance(tool, Mapping) and tool.get("type") == "tool_search" and tool.get("execution") == "client"


def _is_local_shell(tool: Mapping[str, Json]) -> bool:
    environment = tool.get("environment")
    return environment is None or (isinstance(environment, Mapping) and environment.get("type") == "local")


def _required_name(tool: Mapping[str, Json]) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise InputFault(f"a tool of type {tool.get('type')} has no 'name'")
    return name


def _tool_list(owner: Mapping[str, Json]) -> Sequence[Json]:
    tools = owner.get("tools")
    if not isinstance(tools, list):
        raise InputFault(f"the 'tools' of {owner.get('type')} are not a list")
    return tools


def _join_paragraphs(*texts: Json) -> str:
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


_VALID_FUNCTION_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_FUNCTION_NAME_CHARS}}}")


class _FunctionNames:
    """The function name of each tool; names that collide, are too long or have other characters end in a digest."""

    def __init__(self, tools: Iterable[ClientTool]) -> None:
        self.by_tool: dict[ClientTool, str] = {}
        flattened = []
        for tool in tools:
            if tool.kind == "function" and tool.namespace is None:
                self.by_tool[tool] = tool.name
            else:
                flattened.append(tool)
        # Functions keep their names, so the other tools are named after all functions, in any order of the tools.
        self._taken = set(self.by_tool.values())
        for tool in flattened:
            self.get(tool)

    def get(self, tool: ClientTool) -> str:
        """Return the name of a tool, also of one that is not offered and occurs in the history."""
        if tool.kind == "function" and tool.namespace is None:
            return tool.name
        if tool not in self.by_tool:
            name = tool.name if tool.namespace is None else f"{tool.namespace}__{tool.name}"
            digest = sha256(
                # "replace": a name may hold half of a surrogate pair.
                "\n".join((tool.kind, tool.namespace or "", tool.name)).encode("utf-8", "replace")
            ).hexdigest()
            length = 8
            while name in self._taken or not _VALID_FUNCTION_NAME.fullmatch(name):
                name = (
                    re.sub("[^a-zA-Z0-9_-]", "_", name)[: MAX_FUNCTION_NAME_CHARS - length - 1] + f"_{digest[:length]}"
                )
                length += 1
            self._taken.add(name)
            self.by_tool[tool] = name
        return self.by_tool[tool]

    def find(self, kind: str, name: str, namespace: Json = None) -> str | None:
        """Return the function of the tool that a tool choice names; None if it is not offered."""
        for tool, function_name in self.by_tool.items():
            is_named = tool.name == name and (namespace is None or tool.namespace == namespace)
            if tool.kind == kind and (is_named or name in (function_name, f"{tool.namespace}.{tool.name}")):
                return function_name
        return None


def _function_definition(function_name: str, tool: ClientTool, definition: Mapping[str, Json]) -> Json:
    """Build the function that a model is offered for a tool."""
    match tool.kind:
        case "function":
            return {**definition, "name": function_name}
        case "custom":
            grammar = _grammar(definition)
            syntax = (
                f"The input must match this {grammar.get('syntax')} grammar:\n{grammar.get('definition')}"
                if grammar
                else None
            )
            description = _join_paragraphs(definition.get("description"), "Pass the complete text as `input`.", syntax)
            return _function(function_name, description, {"input": {"type": "string"}}, "input")
        case "tool_search":
            parameters = definition.get("parameters") or {"type": "object", "properties": {}}
            description = _join_paragraphs(definition.get("description") or _SEARCH_DESCRIPTION)
            return {"type": "function", "name": function_name, "description": description, "parameters": parameters}
        case kind:
            description, properties, required = _BUILT_IN_FUNCTIONS[kind]
            if kind == "shell":
                skills = (definition.get("environment") or {}).get("skills")
                description = _join_paragraphs(description, f"Skills: {json.dumps(skills)}" if skills else None)
            return _function(function_name, description, properties, *required)


def _custom_definition(function_name: str, tool: ClientTool, definition: Mapping[str, Json]) -> Json:
    """Build the custom tool that a model with such tools is offered."""
    fields = {name: definition[name] for name in ("description", "format") if definition.get(name) is not None}
    if _grammar(definition) is None:
        fields.pop("format", None)  # free text, which is the default
    return {"type": "custom", "name": function_name, **fields}


def _is_custom(function_name: Json, names: _FunctionNames) -> bool:
    return any(name == function_name and tool.kind == "custom" for tool, name in names.by_tool.items())


def _grammar(tool: Mapping[str, Json]) -> Mapping[str, Json] | None:
    form = tool.get("format")
    return form if isinstance(form, Mapping) and form.get("type") == "grammar" else None


def _function(name: str, description: str, properties: Mapping[str, Json], *required: str) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": schema}


_SEARCH_DESCRIPTION = "Search for further tools and load them. They can be called after the search."

_BUILT_IN_FUNCTIONS: Mapping[str, tuple[str, Mapping[str, Json], tuple[str, ...]]] = {
    "local_shell": (
        "Run a command on the user's computer.",
        {
            "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
            "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer"},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "user": {"type": "string"},
        },
        ("command",),
    ),
    "shell": (
        "Run shell commands, one after the other, and return their output.",
        {
            "commands": {"type": "array", "items": {"type": "string"}},
            "timeout_ms": {"type": "integer", "description": "Time limit of all commands in milliseconds."},
            "max_output_length": {"type": "integer", "description": "Characters of output to return at most."},
        },
        ("commands",),
    ),
    "apply_patch": (
        "Create, update or delete one file. The diff of a new file has a line `+TEXT` for each of its lines. The diff"
        " of an update has sections that begin with `@@`, or `@@ LINE` with a line above the change; in a section,"
        " unchanged lines begin with a space, removed lines with `-` and added lines with `+`.",
        {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string", "description": "Relative to the root of the workspace."},
            "diff": {"type": "string", "description": "Required unless the file is deleted."},
        },
        ("type", "path"),
    ),
}
"""Description, properties and required properties of the functions for tools without a definition of their own."""


# -- tool choice ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AllowedFunctions:
    mode: str
    names: frozenset[str]


def _resolve_tool_choice(
    choice: Json, names: _FunctionNames, model_label: str, hosted_tools: HostedTools, ignored: list[str]
) -> Json:
    """Return a string, a function, the allowed functions, or None for no choice. Raises Unsupported."""
    if choice is None or isinstance(choice, str):
        return choice
    kind, name = choice.get("type"), choice.get("name")
    if kind == "allowed_tools":
        search = next(filter(_is_web_search, choice.get("tools") or ()), None)
        if search and hosted_tools == "auto":
            raise _unsupported_hosted_tool(model_label, f"the tool choice {search['type']!r}", "tool_choice")
        allowed = frozenset(
            function_name for entry in choice.get("tools") or () for function_name in _named_functions(entry, names)
        )
        return _AllowedFunctions(choice.get("mode") or "auto", allowed)
    if kind == "function":
        if not isinstance(name, str):
            raise InputFault("a tool choice of type function has no 'name'")
        return {"type": "function", "name": names.find(kind, name, choice.get("namespace")) or name}
    function_name = next(iter(_named_functions(choice, names)), None) if kind != "namespace" else None
    if function_name is not None:
        return {"type": "function", "name": function_name}
    if kind in (*HOSTED_TOOL_TYPES, "shell") or _is_web_search(choice):
        if hosted_tools != "omit":
            raise _unsupported_hosted_tool(model_label, f"the tool choice {name or kind!r}", "tool_choice")
        ignored.append("tool_choice")
        return None
    raise UnsupportedValue(model_label, f"the tool choice {name or kind!r}", param="tool_choice")


def _named_functions(choice: Json, names: _FunctionNames) -> Iterator[str]:
    """Yield the functions of the tool or namespace that `choice` names."""
    if not isinstance(choice, Mapping):
        raise InputFault("a tool choice contains a tool that is not an object")
    kind, name = str(choice.get("type") or "function"), choice.get("name")
    if kind == "namespace":
        yield from (function_name for tool, function_name in names.by_tool.items() if tool.namespace == name)
    elif function_name := names.find(kind, name if isinstance(name, str) else kind, choice.get("namespace")):
        yield function_name


# -- items ----------------------------------------------------------------------------------------

_CALL_KINDS: Mapping[str, ToolKind] = {
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
    "tool_search_call": "tool_search",
}

_ASSISTANT_NOTE_TYPES = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call"),
        *("mcp_call", "mcp_list_tools", "mcp_approval_request"),
        *("program", "program_output", "multi_agent_call", "multi_agent_call_output"),
    }
)
"""Items that a server made: text notes of the assistant."""

_USER_NOTE_TYPES = frozenset({"mcp_approval_response", "agent_message", "computer_call_output"})
"""Items that the client made, or another agent: text notes of the user."""

_SPECIAL_ITEMS = where(
    lambda item: (
        item_type(item) not in ("message", "reasoning", "function_call", "function_call_output")
        or "namespace" in item
        or (item_type(item) == "function_call_output" and get_call_id(item) is None)
    )
)
"""The items that `_map_items` replaces, and those that change the tools or the parameters."""


def _map_items(items: Sequence[Item], names: _FunctionNames, model_label: str, *, has_custom_tools: bool) -> list[Item]:
    call_indexes = call_index_by_output(items)
    paired = {*call_indexes.values(), *(index for index, call in call_indexes.items() if call >= 0)}
    mapped: list[Item] = []
    for index, item in enumerate(items):
        kind = item_type(item)
        if kind in CONFIGURATION_TYPES:
            continue
        if kind in ("tool_search_call", "tool_search_output") and (pair_id(item) is None or index not in paired):
            text = _loaded_tools_text(item, names) if kind == "tool_search_output" else _note_text(item)
            mapped.append(_note("assistant", text))
        elif kind == "custom_tool_call" and has_custom_tools:
            name = names.get(_called_custom_tool(item))
            fields = {"call_id": read_required_str(item, "call_id"), "input": read_required_str(item, "input")}
            mapped.append({"type": kind, "name": name, **fields})
        elif kind in _ITEM_MAPPERS:
            mapped.append(_ITEM_MAPPERS[kind](item, names))
        elif kind == "function_call_output" and get_call_id(item) is None:
            mapped.append(_standalone_output(item))
        elif kind in _ASSISTANT_NOTE_TYPES:
            mapped.append(_note("assistant", _note_text(item)))
        elif kind in _USER_NOTE_TYPES:
            mapped.append(_user_note(item, model_label))
        else:
            mapped.append(item)
    return mapped


def _function_call(item: Item, function_name: str, arguments: str) -> Item:
    call_id = read_required_str(item, "call_id")
    return {"type": "function_call", "call_id": call_id, "name": function_name, "arguments": arguments}


def _map_function_call(item: Item, names: _FunctionNames) -> Item:
    if not isinstance(item.get("namespace"), str):
        return item
    name = names.get(ClientTool("function", read_required_str(item, "name"), item["namespace"]))
    return {**item, "name": name}


def _called_custom_tool(item: Item) -> ClientTool:
    namespace = item.get("namespace")
    return ClientTool("custom", read_required_str(item, "name"), namespace if isinstance(namespace, str) else None)


def _map_custom_call(item: Item, names: _FunctionNames) -> Item:
    return _function_call(
        item, names.get(_called_custom_tool(item)), _dump({"input": read_required_str(item, "input")})
    )


def _map_built_in_call(item: Item, names: _FunctionNames) -> Item:
    """Map a call of a shell, apply_patch or tool_search; its arguments are those that the function has."""
    kind = _CALL_KINDS[item_type(item)]
    field = {"apply_patch": "operation", "tool_search": "arguments"}.get(kind, "action")
    arguments = item.get(field)
    if not isinstance(arguments, Mapping):
        raise InputFault(f"an item of type {item_type(item)} has no {field!r}")
    if kind == "local_shell":
        arguments = {name: value for name, value in arguments.items() if name != "type" and value not in (None, {})}
    fields = arguments if kind == "tool_search" else {n: value for n, value in arguments.items() if value is not None}
    return _function_call(item, names.get(ClientTool(kind, kind)), _dump(fields))


def _function_output(item: Item, output: Json, *, is_failed: bool = False) -> Item:
    call_id = pair_id(item)
    if call_id is None:
        raise InputFault(f"an item of type {item_type(item)} has no 'call_id'")
    status = {"status": "incomplete"} if is_failed or item.get("status") == "incomplete" else {}
    return {"type": "function_call_output", "call_id": call_id, "output": output, **status}


def _map_shell_output(item: Item, names: _FunctionNames) -> Item:
    limit = {"max_output_length": item["max_output_length"]} if item.get("max_output_length") is not None else {}
    return _function_output(item, _dump({"output": item.get("output"), **limit}))


def _map_patch_output(item: Item, names: _FunctionNames) -> Item:
    output = item.get("output")
    text = "\n".join(filter(None, (str(item.get("status") or ""), output if isinstance(output, str) else "")))
    return _function_output(item, text, is_failed=item.get("status") == "failed")


def _loaded_tools_text(item: Item, names: _FunctionNames) -> str:
    loaded: list[str] = []
    for tool in _tool_list(item):
        members = _tool_list(tool) if tool.get("type") == "namespace" else (tool,)
        for member in members:
            name = member.get("name")
            found = names.find(
                str(member.get("type")),
                str(name or member.get("type")),
                tool.get("name") if member is not tool else None,
            )
            loaded += [found] if found else []
    return f"These tools can be called now: {', '.join(loaded)}" if loaded else "No tools were found."


_ITEM_MAPPERS: Mapping[str, Callable[[Item, _FunctionNames], Item]] = {
    "function_call": _map_function_call,
    "custom_tool_call": _map_custom_call,
    **dict.fromkeys(_CALL_KINDS, _map_built_in_call),
    "custom_tool_call_output": lambda item, names: _function_output(item, item.get("output")),
    "local_shell_call_output": lambda item, names: _function_output(item, item.get("output")),
    "shell_call_output": _map_shell_output,
    "apply_patch_call_output": _map_patch_output,
    "tool_search_output": lambda item, names: _function_output(item, _loaded_tools_text(item, names)),
}


def _dump(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


# -- notes ----------------------------------------------------------------------------------------

_DATA_NOTE = "(not shown)"


def _note(role: str, text: str, *parts: Json) -> Item:
    part_type = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": part_type, "text": text}, *parts]}


def _note_text(item: Item) -> str:
    """Describe an item in text: its type, and each of its fields. Images and other data are not shown."""
    lines = [f"[{item_type(item)}]"]
    for name, value in item.items():
        if name in ("type", "id") or value is None:
            continue
        shown = _DATA_NOTE if (item_type(item), name) == ("image_generation_call", "result") else _without_data(value)
        lines.append(f"{name}: {shown if isinstance(shown, str) else _dump(shown)}")
    return "\n".join(lines)


def _without_data(value: Json) -> Json:
    """Replace the data URLs in a value."""
    if isinstance(value, Mapping):
        return {name: _without_data(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_without_data(member) for member in value]
    return _DATA_NOTE if isinstance(value, str) and value.startswith("data:") else value


def _user_note(item: Item, model_label: str) -> Item:
    content = item.get("content")
    parts: list[Json] = content if isinstance(content, list) else []
    if any(isinstance(part, Mapping) and part.get("type") == "encrypted_content" for part in parts):
        raise UnsupportedValue(model_label, f"an encrypted {item_type(item)}", param="input")
    screenshot = item.get("output") if item_type(item) == "computer_call_output" else None
    if isinstance(screenshot, Mapping) and isinstance(screenshot.get("image_url"), str):
        text = _note_text({**item, "output": "the following screenshot"})
        return _note("user", text, {"type": "input_image", "image_url": screenshot["image_url"]})
    images = [part for part in parts if isinstance(part, Mapping) and part.get("type") == "input_image"]
    if images:
        return _note("user", _note_text({**item, "content": [part for part in parts if part not in images]}), *images)
    return _note("user", _note_text(item))


def _standalone_output(item: Item) -> Item:
    """Map an output without a call of the model to a message of the user with the same parts."""
    namespace, output = item.get("namespace"), item.get("output")
    name = read_required_str(item, "name")
    label = f"[{namespace}.{name}]" if isinstance(namespace, str) else f"[{name}]"
    if isinstance(output, str):
        return _note("user", f"{label}\n{output}")
    if output is not None and not isinstance(output, list):
        raise InputFault(f"the 'output' of an item of type {item_type(item)} is neither text nor a list")
    return _note("user", label, *(output or ()))


def _list_unsent_note_fields(items: Sequence[Item]) -> Iterator[str]:
    """List the fields of notes whose data is not sent."""
    for item in items:
        kind = item_type(item)
        if kind == "image_generation_call" and item.get("result"):
            yield "input.image_generation_call.result"
        elif kind in _ASSISTANT_NOTE_TYPES:
            yield from (f"input.{kind}.{name}" for name, value in item.items() if _without_data(value) != value)


# -- calls of the model ---------------------------------------------------------------------------


def build_call_item(tool: ClientTool, function_name: str, call_id: str, arguments: str) -> dict[str, Json]:
    """Build the item for a model's call of a shell, apply_patch or tool_search, without id and status.

    Malformed arguments give a function call with the arguments as they are: the client, which has no such function,
    reports that to the model, and nothing is run.
    """
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        parsed = None
    fields = _CALL_BUILDERS[tool.kind](parsed) if isinstance(parsed, dict) else None
    if fields is None:
        return {"type": "function_call", "call_id": call_id, "name": function_name, "arguments": arguments}
    return {"type": f"{tool.kind}_call", "call_id": call_id, **fields}


def _build_local_shell(arguments: Mapping[str, Json]) -> dict[str, Json] | None:
    command, env = arguments.get("command"), arguments.get("env")
    if not _is_list_of_str(command):
        return None
    fields: dict[str, Json] = {"timeout_ms": _int_or_none(arguments.get("timeout_ms"))}
    fields |= {name: _str_or_none(arguments.get(name)) for name in ("user", "working_directory")}
    is_env = isinstance(env, dict) and all(isinstance(value, str) for value in env.values())
    return {"action": {"type": "exec", "command": command, "env": env if is_env else {}, **fields}}


def _build_shell(arguments: Mapping[str, Json]) -> dict[str, Json] | None:
    commands = arguments.get("commands")
    # Some models pass one command as text.
    if isinstance(commands, str):
        commands = [commands]
    if not _is_list_of_str(commands):
        return None
    limits = {name: _int_or_none(arguments.get(name)) for name in ("timeout_ms", "max_output_length")}
    return {"action": {"commands": commands, **limits}, "environment": {"type": "local"}}


def _build_patch(arguments: Mapping[str, Json]) -> dict[str, Json] | None:
    kind, path, diff = (arguments.get(name) for name in ("type", "path", "diff"))
    if not isinstance(path, str):
        return None
    if kind == "delete_file":
        return {"operation": {"type": kind, "path": path}}
    if kind not in ("create_file", "update_file") or not isinstance(diff, str):
        return None
    return {"operation": {"type": kind, "path": path, "diff": diff}}


def _build_search(arguments: Mapping[str, Json]) -> dict[str, Json] | None:
    return {"arguments": dict(arguments), "execution": "client"}


_CALL_BUILDERS: Mapping[str, Callable[[Mapping[str, Json]], dict[str, Json] | None]] = {
    "local_shell": _build_local_shell,
    "shell": _build_shell,
    "apply_patch": _build_patch,
    "tool_search": _build_search,
}


def _is_list_of_str(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(member, str) for member in value)


def _int_or_none(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _str_or_none(value: Json) -> str | None:
    return value if isinstance(value, str) else None


_INPUT_START = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_MAX_START_CHARS = 256
"""Characters within which the arguments must match `_INPUT_START`, to be decoded while they arrive."""

_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_PARTIAL_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_ESCAPED_CHARACTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_STRING_PIECE = re.compile(r'[^"\\]+')


class CustomInputDecoder:
    """Decodes the input of a custom tool from the arguments of its function while they arrive.

    The arguments `{"input": "TEXT"}` give TEXT, up to its closing quote. An escape that JSON does not know stays as it
    is. Other arguments are decoded at the end: an object with a string `input` gives that, no arguments give "", and
    everything else is the input itself.
    """

    def __init__(self) -> None:
        self._pending, self._start_chars = "", 0
        self._other_pieces: list[str] | None = []
        self._is_closed = False

    def decode(self, delta: str) -> str:
        """Return the text that `delta` adds; surrogates may be split."""
        if self._other_pieces is not None:
            self._other_pieces.append(delta)
            if self._start_chars > _MAX_START_CHARS:
                return ""
            self._start_chars += len(delta)
            start = "".join(self._other_pieces)
            match = _INPUT_START.match(start)
            if match is None:
                return ""
            self._other_pieces, delta = None, start[match.end() :]
        if self._is_closed:
            return ""
        text, self._pending = self._pending + delta, ""
        pieces: list[str] = []
        index = 0
        while index < len(text):
            if text[index] == '"':
                self._is_closed = True
                break
            if text[index] != "\\":
                piece = _STRING_PIECE.match(text, index)
                assert piece is not None
                pieces.append(piece[0])
                index = piece.end()
            elif escape := _ESCAPE.match(text, index):
                code, character = escape.groups()
                pieces.append(chr(int(code, 16)) if code else _ESCAPED_CHARACTERS.get(character, character))
                index = escape.end()
            elif _PARTIAL_ESCAPE.match(text, index):
                self._pending = text[index:]
                break
            else:
                pieces.append("\\")
                index += 1
        return "".join(pieces)

    def finish(self) -> str:
        """Return the text that is left at the end of the arguments."""
        if self._other_pieces is None:
            pending, self._pending = self._pending, ""
            return pending
        arguments, self._other_pieces = "".join(self._other_pieces), []
        try:
            parsed = json.loads(arguments or "{}", strict=False)
        except (ValueError, RecursionError):
            return arguments
        if parsed == {}:
            return ""
        text = parsed.get("input") if isinstance(parsed, dict) else parsed
        return text if isinstance(text, str) else arguments

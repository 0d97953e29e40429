"""`mcp` tools that this server runs, for models whose own server does not.

The tools of an MCP server are offered to the model as functions; its calls come back as `mcp_call` items.
They are run here, and the model is asked again with their outputs until it calls none, all in one response.
Adapters see functions, calls and outputs only; the stored history has the API's `mcp_` items.

A server is one of the operator's, named by `server_label` or `server_url`; or, if the settings allow it, the
client's at a public `server_url`. A server of the Responses API gets all other `mcp` tools unchanged.
"""

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any

from convo.endpoints.base import IsSteered
from convo.errors import RequestRefused
from convo.history.items import Item, Json, StreamEvent, is_client_call, item_type
from convo.history.tree import derive, where
from convo.models.base import HostedToolsUse, Model, ModelRequest
from convo.models.request_fields import (
    BOOLEAN_SCHEMA,
    OBJECT_SCHEMA,
    STRING_SCHEMA,
    array_schema,
    enum_schema,
    object_schema,
)
from convo.responses_api import errors
from convo.responses_api.mcp_client import (
    McpConnections,
    McpOptions,
    McpResult,
    McpTarget,
    protocol_error,
)
from convo.responses_api.remote_files import RemoteFiles, make_address_check
from convo.responses_api.response import add_usage, build_steered_response
from convo.responses_api.validation import validate_value
from convo.runtime import NewId
from convo.stores.base import Store

MAX_CALLS = 64
"""Calls of one response; `max_tool_calls` may lower it."""

MAX_HEADERS, MAX_HEADER_CHARS = 32, 8192

MCP_ITEM_PREFIX = "mcp_"
CALL, LIST, REQUEST, ANSWER = "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"

OWN_ID = re.compile(r"(?:mcp|mcpr|mcpl)_r([0-9a-f]{8})_(.+)")
"""Matches the ids of items that were made here: the model call, and the call id of the model."""

LABEL_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
FUNCTION_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
CALL_ID_PATTERN = re.compile(r"[A-Za-z0-9_.:=+~@$-]{1,256}")
HEADER_NAME_PATTERN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
REFUSED_HEADERS = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "te", "upgrade", "accept"}
)

_NAMES_SCHEMA = array_schema(STRING_SCHEMA)
_FILTER_SCHEMA = object_schema({}, {"tool_names": _NAMES_SCHEMA, "read_only": BOOLEAN_SCHEMA})

TOOL_SCHEMA = {
    **object_schema(
        {"type": STRING_SCHEMA, "server_label": STRING_SCHEMA},
        {
            **dict.fromkeys(
                ("server_url", "server_description", "authorization", "connector_id", "tunnel_id"), STRING_SCHEMA
            ),
            "allowed_tools": {"anyOf": [_NAMES_SCHEMA, _FILTER_SCHEMA]},
            "require_approval": {
                "anyOf": [
                    enum_schema("always", "never"),
                    object_schema({}, {"always": _FILTER_SCHEMA, "never": _FILTER_SCHEMA}),
                ]
            },
            "headers": OBJECT_SCHEMA,
            "defer_loading": BOOLEAN_SCHEMA,
            "allowed_callers": array_schema(enum_schema("direct", "programmatic")),
        },
    ),
    "additionalProperties": False,
}
"""An `mcp` tool that is run here."""


@dataclass(frozen=True, slots=True)
class McpServerTool:
    """One `mcp` tool of a request that is run here; `tool` is as the client wrote it."""

    label: str
    target: McpTarget
    tool: Mapping[str, Json] = field(repr=False)

    def allows(self, name: str, annotations: Json) -> bool:
        """Whether the operator and the client allow a tool."""
        if not self.target.allows(name):
            return False
        allowed = self.tool.get("allowed_tools")
        if allowed is None:
            return True
        return name in allowed if isinstance(allowed, list) else _matches(allowed, name, annotations)

    def needs_approval(self, name: str, annotations: Json) -> bool:
        """Whether a call needs approval. A tool that no filter names needs it, as in the API."""
        policy = self.tool.get("require_approval") or "always"
        if isinstance(policy, str):
            return bool(policy == "always")
        if policy.get("always") is not None and _matches(policy["always"], name, annotations):
            return True
        return not (policy.get("never") is not None and _matches(policy["never"], name, annotations))


def _matches(tool_filter: Mapping[str, Json], name: str, annotations: Json) -> bool:
    """Whether a filter matches a tool; an empty one matches none."""
    names, read_only = tool_filter.get("tool_names"), tool_filter.get("read_only")
    is_read_only = bool(isinstance(annotations, Mapping) and annotations.get("readOnlyHint"))
    return (
        (names is not None or read_only is not None)
        and (names is None or name in names)
        and (read_only is None or read_only == is_read_only)
    )


@dataclass(frozen=True, slots=True)
class McpPlan:
    """A request without its `mcp` tools and items, and the tools to run here, by label.

    request:  for the adapter; its input has calls and outputs of functions in place of `mcp_` items
    """

    request: ModelRequest
    servers: Mapping[str, McpServerTool]


def has_mcp(request: ModelRequest) -> bool:
    """Whether a request has `mcp` tools or items."""
    return any(map(_is_mcp, request.parameters.get("tools") or ())) or bool(derive(request.input, _MCP_ITEMS))


_MCP_ITEMS = where(lambda item: str(item.get("type")).startswith(MCP_ITEM_PREFIX))


def plan_mcp(request: ModelRequest, options: McpOptions, hosted_tools: HostedToolsUse) -> McpPlan:
    """Separate the `mcp` tools that are run here from a request.

    hosted_tools:  of the model; its adapter gets the tools that are not run here, unless it refuses them

    Raises RequestRefused for a tool that is neither run nor left out.
    """
    tools = request.parameters.get("tools") or ()
    servers: dict[str, McpServerTool] = {}
    others: list[Json] = []
    for index, tool in enumerate(tools):
        server = _parse_tool(tool, f"tools[{index}]", options, hosted_tools) if _is_mcp(tool) else None
        if server is None:
            others.append(tool)
        elif server.label in servers:
            raise RequestRefused(
                f"Duplicate server_label '{server.label}'", code="invalid_value", param=f"tools[{index}].server_label"
            )
        else:
            servers[server.label] = server
    has_items = bool(derive(request.input, _MCP_ITEMS))
    if not servers and not has_items:
        return McpPlan(request, servers)
    parameters = dict(request.parameters)
    if servers:
        parameters.pop("max_tool_calls", None)
        parameters["tools"] = others
        if not others:
            del parameters["tools"]
    items = translate_items(request.input) if has_items else request.input
    return McpPlan(replace(request, input=items, parameters=parameters), servers)


def _is_mcp(tool: Json) -> bool:
    return isinstance(tool, Mapping) and tool.get("type") == "mcp"


def _parse_tool(
    tool: Mapping[str, Json], location: str, options: McpOptions, hosted_tools: HostedToolsUse
) -> McpServerTool | None:
    """Return the tool to run here; None for one of the adapter. Raises RequestRefused."""
    label, url = tool.get("server_label"), tool.get("server_url")
    named = options.servers.get(str(label))
    if url is not None:
        named = named if named is not None and named.url == url else None
        named = named or next((target for target in options.servers.values() if target.url == url), None)
    elif tool.get("connector_id") or tool.get("tunnel_id"):
        named = None
    is_allowed = named is not None or (url is not None and options.client_urls)
    if (named is None and hosted_tools == "run") or (not is_allowed and hosted_tools == "omit"):
        return None
    _validate_tool(tool, location)
    if named is not None:
        return McpServerTool(str(label), _with_client_key(named, tool, location), tool)
    for name in ("connector_id", "tunnel_id"):
        if tool.get(name):
            raise errors.unsupported_parameter_error(f"{location}.{name}", "this server has no connectors or tunnels")
    if url is None:
        raise RequestRefused(
            f"This server has no MCP server '{label}'",
            code="mcp_server_not_found",
            param=f"{location}.server_label",
            hint="the operator adds it under [mcp.NAME]",
        )
    if not options.client_urls:
        raise RequestRefused(
            "This server does not connect to the MCP servers of clients",
            code="mcp_server_not_allowed",
            param=f"{location}.server_url",
            hint="the operator allows it with serve.mcp_urls = true",
        )
    check = RemoteFiles(max_bytes=0, timeout_s=0, is_allowed=make_address_check(options.blocked_networks))
    return McpServerTool(
        str(label), _with_client_key(McpTarget(url=str(url), address_check=check), tool, location), tool
    )


def _validate_tool(tool: Mapping[str, Json], location: str) -> None:
    validate_value(location, tool, TOOL_SCHEMA)
    if not LABEL_PATTERN.fullmatch(tool["server_label"]):
        raise RequestRefused(
            f"Invalid '{location}.server_label': expected a letter, then letters, digits, _ or -",
            code="invalid_value",
            param=f"{location}.server_label",
        )
    if tool.get("defer_loading"):
        raise errors.unsupported_parameter_error(f"{location}.defer_loading", "this server loads all tools")
    if "direct" not in (tool.get("allowed_callers") or ["direct"]):
        raise errors.unsupported_parameter_error(f"{location}.allowed_callers", "this server has direct calls only")


def _with_client_key(target: McpTarget, tool: Mapping[str, Json], location: str) -> McpTarget:
    """Return the target with the client's token and headers, which replace none of the operator's."""
    headers = dict(tool.get("headers") or {})
    if tool.get("authorization"):
        headers["authorization"] = f"Bearer {tool['authorization']}"
    if not headers:
        return target
    if target.url is None:
        raise errors.unsupported_parameter_error(f"{location}.headers", "this MCP server has no URL")
    name: Json
    for name, value in headers.items():
        is_text = isinstance(value, str) and value.isascii() and value.isprintable() and len(value) <= MAX_HEADER_CHARS
        if not is_text or not HEADER_NAME_PATTERN.fullmatch(name) or name.lower() in REFUSED_HEADERS:
            raise RequestRefused(
                f"Invalid '{location}.headers': a name or a value is not allowed",
                code="invalid_value",
                param=f"{location}.headers",
            )
        if name.lower() == "authorization" and target.key is not None:
            raise errors.unsupported_parameter_error(
                f"{location}.authorization", "the operator sets the key of this MCP server"
            )
    if len(headers) > MAX_HEADERS:
        raise errors.too_long_error(f"{location}.headers", "object", MAX_HEADERS, len(headers))
    return replace(target, headers={**target.headers, **headers})


# -- history --------------------------------------------------------------------------------------


def make_function_name(label: str, name: str) -> str:
    """Return the name of the function for a tool: readable where that is unambiguous, else with a hash."""
    plain = f"mcp__{label}__{name}"
    if "__" not in label and not label.endswith("_") and FUNCTION_NAME_PATTERN.fullmatch(plain):
        return plain
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:32]
    digest = sha256(f"{label}\n{name}".encode("utf-8", "replace")).hexdigest()[:16]
    return f"mcp_{digest}_{cleaned}"


def make_parameters(tool: Mapping[str, Json]) -> dict[str, Json]:
    """Return the schema of a tool's arguments; OpenAI refuses one without `properties`, which MCP allows."""
    schema = tool.get("input_schema")
    return {"properties": {}, **schema} if isinstance(schema, Mapping) else {"type": "object", "properties": {}}


def translate_items(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return `items` with calls and outputs of functions in place of the `mcp_` items that were made here.

    Calls of one model call come before their outputs. A rejected call has an output that says so. Requests without
    an answer, answers and lists of tools are left out. Items of other servers are for the adapter.
    """
    answers = _find_answers(items)
    run_requests = {_request_id(item) for item in items if item.get("type") == CALL}
    own_requests = {_request_id(item) for item in items if item.get("type") == REQUEST and _is_own(item)}
    translated: list[Item] = []
    outputs: list[Item] = []
    open_round: str | None = None
    for item in items:
        kind = item_type(item)
        is_kept = not kind.startswith(MCP_ITEM_PREFIX) or not (
            _request_id(item) in own_requests if kind == ANSWER else _is_own(item)
        )
        round_id = None if is_kept else _round_of(item)
        if is_kept or round_id != open_round:
            translated += outputs
            outputs, open_round = [], round_id
        if is_kept:
            translated.append(item)
        elif kind == CALL:
            translated.append(_function_call(item))
            outputs.append(_function_output(item, describe_result(item)))
        elif kind == REQUEST and _request_id(item) in answers and _request_id(item) not in run_requests:
            answer = answers[_request_id(item)]
            if answer.get("approve") is not True:
                reason = answer.get("reason")
                text = "The user rejected this call" + (f": {reason}" if isinstance(reason, str) and reason else ".")
                translated.append(_function_call(item))
                outputs.append(_function_output(item, text))
    return (*translated, *outputs)


def find_approved_requests(items: Sequence[Item]) -> list[Item]:
    """Return the approved requests that were made here and have not been run, in their order.

    The last answer to a request counts.
    """
    run_requests = {_request_id(item) for item in items if item.get("type") == CALL}
    approved = {request_id for request_id, answer in _find_answers(items).items() if answer.get("approve") is True}
    return [
        item
        for item in items
        if item.get("type") == REQUEST and _request_id(item) in approved - run_requests and _is_own(item)
    ]


def _find_answers(items: Sequence[Item]) -> dict[str | None, Item]:
    """Return the last answer to each request for approval, by the id of the request."""
    return {_request_id(item): item for item in items if item.get("type") == ANSWER}


def _request_id(item: Item) -> str | None:
    """Return the id of a request for approval, from the request, its answer or its call; None for any other value."""
    request_id = item.get("id" if item.get("type") == REQUEST else "approval_request_id")
    return request_id if isinstance(request_id, str) else None


def describe_result(item: Item) -> str:
    """Return the output of a call as the model receives it."""
    error = item.get("error")
    if not error:
        return str(item.get("output") or "")
    if not isinstance(error, Mapping):
        return f"Error: {error}"
    content = error.get("content")
    if isinstance(content, list):
        texts = [str(part["text"]) for part in content if isinstance(part, Mapping) and part.get("text")]
        return "Error: " + "\n".join(texts)
    return f"Error: {error.get('message')}"


def _is_own(item: Item) -> bool:
    return OWN_ID.fullmatch(str(item.get("id"))) is not None


def _round_of(item: Item) -> str:
    match = OWN_ID.fullmatch(str(item.get("id")))
    return match[1] if match else str(item.get("id"))


def _call_id_of(item: Item) -> str:
    match = OWN_ID.fullmatch(str(item.get("id")))
    return match[2] if match else f"call_{sha256(str(item.get('id')).encode('utf-8', 'replace')).hexdigest()[:24]}"


def _function_call(item: Item) -> Item:
    arguments = item.get("arguments")
    return {
        "type": "function_call",
        "call_id": _call_id_of(item),
        "name": make_function_name(str(item.get("server_label")), str(item.get("name"))),
        "arguments": arguments if isinstance(arguments, str) else "{}",
    }


def _function_output(item: Item, output: str) -> Item:
    return {"type": "function_call_output", "call_id": _call_id_of(item), "output": output}


# -- the loop -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool that the model may call; `function_name` is its name for the model."""

    server: McpServerTool
    name: str
    needs_approval: bool
    function: Mapping[str, Json]

    @property
    def function_name(self) -> str:
        return str(self.function["name"])


MAX_REMEMBERED_CALLS = 32
"""Approved calls of a tenant whose results are kept in memory, until their responses are stored."""


class ApprovedCalls:
    """Runs each approved call of a tenant once: a request that is sent again gets the result of the first one.

    The result is in the store, under an id that follows from the request for approval; or in this process, if the
    response was not stored, because its model refused it or the client wants that. A call that was interrupted may have
    had its effect, so it is not run again either.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._results: dict[str, McpResult] = {}
        self._running: set[str] = set()

    async def run(self, item: Mapping[str, Json], call: Callable[[], Awaitable[McpResult]]) -> McpResult:
        """Return the result of `call`, or that of an earlier call with the id and the arguments of `item`."""
        key = json.dumps([item["id"], item["server_label"], item["name"], item["arguments"]])
        if key in self._results:
            return self._results[key]
        begun = protocol_error("not run again: another request has begun this call")
        if key in self._running:
            return begun
        self._running.add(key)
        try:
            stored = await self._store.item(str(item["id"]))
        except BaseException:
            self._running.discard(key)  # nothing was run
            raise
        if stored is None or any(stored.get(name) != value for name, value in item.items()):
            result = await call()
        elif stored.get("status") in ("completed", "failed"):
            result = McpResult(stored.get("output"), stored.get("error"))
        else:
            result = begun
        self._running.discard(key)
        self._results[key] = result
        if len(self._results) > MAX_REMEMBERED_CALLS:
            del self._results[next(iter(self._results))]
        return result


@dataclass(slots=True)
class _OpenCall:
    """A call that the model is writing, or has written."""

    tool: ListedTool
    item_id: str
    call: Item | None = None
    result: Item | None = None


async def respond_with_mcp(
    model: Model,
    plan: McpPlan,
    history: Sequence[Item],
    new_id: NewId,
    max_calls: int | None,
    *,
    approved: ApprovedCalls,
    is_steered: IsSteered,
) -> AsyncGenerator[StreamEvent, None]:
    """Stream one response: the model's events, with `mcp` calls run and the model asked again.

    history:    the input before it was translated
    max_calls:  `max_tool_calls` of the request
    approved:   runs the calls that were approved
    is_steered: asked after calls were run: if it is true, the model is not asked again

    Raises the errors of `Model.respond`, and EndpointFault if a server cannot list its tools.
    """
    async with McpConnections({label: server.target for label, server in plan.servers.items()}) as connections:
        limit = min(max_calls or MAX_CALLS, MAX_CALLS)
        loop = _McpLoop(model, plan, connections, new_id, limit, approved, is_steered)
        async with aclosing(loop.run(history)) as events:
            async for event in events:
                yield event


class _McpLoop:
    """The state of one response: its output so far, and the calls that were run."""

    def __init__(
        self,
        model: Model,
        plan: McpPlan,
        connections: McpConnections,
        new_id: NewId,
        max_calls: int,
        approved: ApprovedCalls,
        is_steered: IsSteered,
    ) -> None:
        self._model, self._plan, self._connections, self._new_id = model, plan, connections, new_id
        self._approved, self._is_steered = approved, is_steered
        self._max_calls, self._call_count = max_calls, 0
        self._tools: dict[str, ListedTool] = {}
        self._output: list[Item] = []
        self._usage: Mapping[str, Json] | None = None
        self._open_calls: dict[int, _OpenCall] = {}
        self._terminal: StreamEvent = {}

    async def run(self, history: Sequence[Item]) -> AsyncGenerator[StreamEvent, None]:
        opening = [event for item in await self._list_tools(history) for event in self._list_events(item)]
        items: list[Item] = list(self._plan.request.input)
        for request in find_approved_requests(history):
            for event in opening:
                yield event
            opening = []
            async for event in self._run_approved(request):
                yield event
            call = self._output[-1]
            items += [_function_call(call), _function_output(call, describe_result(call))]
        is_first, is_last, has_run = True, False, items != list(self._plan.request.input)
        while True:
            if has_run and self._is_steered():
                self._end_steered()
                break
            request_now = self._build_request(items, is_first=is_first, with_tools=not is_last)
            async with aclosing(self._ask(request_now)) as events:
                async for event in events:
                    if has_run and self._is_steered():  # while the model was asked again
                        self._end_steered()
                        break
                    has_run = False
                    for opening_event in opening:  # only now: until its first event the model may refuse the request
                        yield opening_event
                    opening = []
                    yield event
            for opening_event in opening:
                yield opening_event
            opening = []
            start = len(self._output)
            async for event in self._run_calls(start):
                yield event
            new_items = self._close_round(start)
            is_done = is_last or self._terminal["type"] != "response.completed"
            if is_done or not self._open_calls or self._waits_for_client(start):
                break
            items += new_items
            is_first, is_last, has_run = False, self._call_count >= self._max_calls, True
        response = self._terminal.get("response") or {}
        yield {**self._terminal, "response": {**response, "output": list(self._output), "usage": self._usage}}

    def _end_steered(self) -> None:
        """End the response before the model is asked again."""
        self._terminal = {"type": "response.incomplete", "response": build_steered_response({})}
        self._open_calls = {}

    async def _list_tools(self, history: Sequence[Item]) -> list[Item]:
        """Find the tools of every server; return the items of the lists that the history does not have."""
        names = {tool.get("name") for tool in self._plan.request.parameters.get("tools") or () if tool.get("name")}
        new_lists: list[Item] = []
        for label, server in self._plan.servers.items():
            known = next((item for item in reversed(history) if _is_list_of(item, label)), None)
            tools = known["tools"] if known else await self._connections[label].list_tools()
            allowed = [tool for tool in tools if server.allows(tool["name"], tool.get("annotations"))]
            if known is None:
                new_lists.append(
                    {
                        "id": self._make_id("mcpl", self._new_round(), "tools"),
                        "type": LIST,
                        "server_label": label,
                        "tools": allowed,
                        "error": None,
                    }
                )
            for tool in allowed:
                listed = _to_listed_tool(server, tool)
                if listed.function_name in names:
                    raise RequestRefused(
                        f"Two tools have the name '{listed.function_name}'", code="invalid_value", param="tools"
                    )
                self._tools[listed.function_name] = listed
        return new_lists

    def _list_events(self, item: Item) -> Iterator[StreamEvent]:
        place = {"output_index": len(self._output)}
        self._output.append(item)
        yield {"type": "response.output_item.added", **place, "item": {**item, "tools": []}}
        yield {"type": "response.mcp_list_tools.in_progress", **place, "item_id": item["id"]}
        yield {"type": "response.mcp_list_tools.completed", **place, "item_id": item["id"]}
        yield {"type": "response.output_item.done", **place, "item": item}

    async def _run_approved(self, request: Item) -> AsyncGenerator[StreamEvent, None]:
        """Run a call that was approved, and append its item to the output."""
        label, name = str(request.get("server_label")), str(request.get("name"))
        tool = self._tools.get(make_function_name(label, name))
        round_id = self._new_round() if tool is None else _round_of(request)
        item: dict[str, Json] = {
            "id": self._make_id("mcp", round_id, _call_id_of(request)),
            "type": CALL,
            "server_label": label,
            "name": name,
            "arguments": request.get("arguments"),
            "approval_request_id": request.get("id"),
        }
        place = {"output_index": len(self._output)}
        self._output.append({**item, "status": "incomplete", "output": None, "error": None})
        yield {"type": "response.output_item.added", **place, "item": {**item, "status": "in_progress"}}
        yield {"type": "response.mcp_call.in_progress", **place, "item_id": item["id"]}
        if tool is None:
            result = protocol_error("the request has no such tool")
        else:
            result = await self._approved.run(item, partial(self._call, tool, item["arguments"]))
        done = _with_result(item, result)
        self._output[-1] = done
        for event in _result_events(done, place):
            yield event

    def _build_request(self, items: Sequence[Item], *, is_first: bool, with_tools: bool) -> ModelRequest:
        request = self._plan.request
        parameters = dict(request.parameters)
        functions = [dict(tool.function) for tool in self._tools.values()] if with_tools else []
        tools = [*(parameters.get("tools") or ()), *functions]
        choice = self._translate_choice(parameters.get("tool_choice"))
        if choice is not None:
            parameters["tool_choice"] = choice if is_first or choice in ("auto", "none") else "auto"
        parameters["tools"] = tools
        if not tools:
            del parameters["tools"]
            parameters.pop("tool_choice", None)
        return replace(request, input=tuple(items), parameters=parameters)

    def _translate_choice(self, choice: Json) -> Json:
        """Return `tool_choice` with functions in place of the `mcp` tools that are run here."""
        if not isinstance(choice, Mapping):
            return choice
        if choice.get("type") == "allowed_tools":
            tools = [one for tool in choice.get("tools") or () for one in self._choose_functions(tool)]
            return {**choice, "tools": tools}
        functions = self._choose_functions(choice)
        if functions == [choice]:
            return choice
        return functions[0] if len(functions) == 1 else "required"

    def _choose_functions(self, choice: Json) -> list[Json]:
        if not _is_mcp(choice) or choice.get("server_label") not in self._plan.servers:
            return [choice]
        return [
            {"type": "function", "name": tool.function_name}
            for tool in self._tools.values()
            if tool.server.label == choice["server_label"] and choice.get("name") in (None, tool.name)
        ]

    async def _ask(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Stream one model call; the terminal event is kept in `_terminal`."""
        start, self._open_calls, round_id = len(self._output), {}, self._new_round()
        async with aclosing(self._model.respond(request)) as events:
            async for event in events:
                if event["type"] in ("response.completed", "response.incomplete", "response.failed"):
                    self._terminal = event
                    return
                if "output_index" not in event:
                    yield event
                    continue
                index = event["output_index"]
                item = event.get("item") or {}
                if event["type"] == "response.output_item.added" and item.get("name") in self._tools:
                    tool, call_id = self._tools[item["name"]], str(item.get("call_id"))
                    prefix = "mcpr" if tool.needs_approval else "mcp"
                    self._open_calls[index] = _OpenCall(tool, self._make_id(prefix, round_id, call_id))
                call = self._open_calls.get(index)
                place = {"output_index": index + start}
                if call is None or item.get("type", "function_call") != "function_call":
                    yield {**event, **place}
                    continue
                for own_event in self._call_events(call, event, place):
                    yield own_event

    def _call_events(self, call: _OpenCall, event: StreamEvent, place: Mapping[str, int]) -> Iterator[StreamEvent]:
        """Translate an event of a function call."""
        kind = event["type"]
        if kind == "response.output_item.done":
            call.call = event["item"]
        if call.tool.needs_approval:
            if call.call is not None:
                call.result = {"type": REQUEST, **self._call_fields(call)}
                yield {"type": "response.output_item.added", **place, "item": call.result}
                yield {"type": "response.output_item.done", **place, "item": call.result}
        elif kind == "response.output_item.added":
            item = {"type": CALL, **self._call_fields(call), "arguments": "", "status": "in_progress"}
            yield {"type": kind, **place, "item": item}
            yield {"type": "response.mcp_call.in_progress", **place, "item_id": call.item_id}
        elif kind == "response.function_call_arguments.delta":
            delta = event.get("delta")
            yield {"type": "response.mcp_call_arguments.delta", **place, "item_id": call.item_id, "delta": delta}
        elif kind == "response.function_call_arguments.done":
            done = {"item_id": call.item_id, "arguments": event.get("arguments")}
            yield {"type": "response.mcp_call_arguments.done", **place, **done}

    def _call_fields(self, call: _OpenCall) -> dict[str, Json]:
        arguments = (call.call or {}).get("arguments") or ""
        return {
            "id": call.item_id,
            "server_label": call.tool.server.label,
            "name": call.tool.name,
            "arguments": arguments,
        }

    async def _run_calls(self, start: int) -> AsyncGenerator[StreamEvent, None]:
        """Run the calls of the round that need no approval, in their order."""
        is_complete = self._terminal.get("type") == "response.completed"
        for index, call in sorted(self._open_calls.items()):
            if call.result is not None or call.call is None:
                continue
            item = {"type": CALL, **self._call_fields(call), "approval_request_id": None}
            if is_complete:
                result = await self._call(call.tool, item["arguments"])
                call.result = _with_result(item, result)
            else:
                call.result = {**item, "status": "incomplete", "output": None, "error": None}
            for event in _result_events(call.result, {"output_index": index + start}):
                yield event

    async def _call(self, tool: ListedTool, arguments: Json) -> McpResult:
        """Call a tool, unless the limit of calls is reached or the arguments are no JSON object."""
        if self._call_count >= self._max_calls:
            return protocol_error(f"not run: a response may have {self._max_calls} tool calls")
        self._call_count += 1
        try:
            parsed = json.loads(arguments or "{}")
        except (TypeError, ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            return protocol_error("not run: the arguments are not a JSON object")
        return await self._connections[tool.server.label].call_tool(tool.name, parsed)

    def _close_round(self, start: int) -> list[Item]:
        """Append the round's items to the output; return them as the model receives them."""
        response = self._terminal.get("response") or {}
        self._usage = add_usage(self._usage, response.get("usage"))
        new_items: list[Item] = []
        outputs: list[Item] = []
        for index, item in enumerate(response.get("output") or ()):
            new_items.append(item)
            call = self._open_calls.get(index)
            result = call.result if call else None
            self._output.append(item if result is None else result)
            if result is not None:
                output = {"type": "function_call_output", "call_id": item["call_id"], "output": describe_result(result)}
                outputs.append(output)
        return [*new_items, *outputs]

    def _waits_for_client(self, start: int) -> bool:
        """Whether the round has a call that the client must run or approve."""
        return any(is_client_call(item) or item.get("type") == REQUEST for item in self._output[start:])

    def _new_round(self) -> str:
        return sha256(self._new_id("mcp").encode()).hexdigest()[:8]

    def _make_id(self, prefix: str, round_id: str, call_id: str) -> str:
        if not CALL_ID_PATTERN.fullmatch(call_id):
            call_id = f"call_{sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:24]}"
        return f"{prefix}_r{round_id}_{call_id}"


def _is_list_of(item: Item, label: str) -> bool:
    """Whether an item of the history is a usable list of a server's tools. A client may have written it."""
    tools = item.get("tools")
    return (
        item.get("type") == LIST
        and item.get("server_label") == label
        and not item.get("error")
        and isinstance(tools, list)
        and all(isinstance(tool, Mapping) and isinstance(tool.get("name"), str) for tool in tools)
    )


def _to_listed_tool(server: McpServerTool, tool: Mapping[str, Any]) -> ListedTool:
    name, annotations = tool["name"], tool.get("annotations")
    return ListedTool(
        server,
        name,
        server.needs_approval(name, annotations),
        {
            "type": "function",
            "name": make_function_name(server.label, name),
            "description": str(tool.get("description") or ""),
            "parameters": make_parameters(tool),
            "strict": False,
        },
    )


def _with_result(item: Mapping[str, Json], result: McpResult) -> Item:
    status = "completed" if result.error is None else "failed"
    return {**item, "status": status, "output": result.output, "error": result.error}


def _result_events(item: Item, place: Mapping[str, int]) -> Iterator[StreamEvent]:
    outcome = {"completed": "completed", "failed": "failed"}.get(str(item["status"]))
    if outcome:
        yield {"type": f"response.mcp_call.{outcome}", **place, "item_id": item["id"]}
    yield {"type": "response.output_item.done", **place, "item": item}

"""Run items of a RunState: made from conversation items, for an agent of the graph.

`GraphAgent` builds run items and references. The context values of the user are written and read here too.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, cast

from convo.agents.graph import Graph
from convo.agents.handoffs import IGNORED_HANDOFF_OUTPUT, build_handoff_tools
from convo.errors import InputFault, NotCanonical
from convo.history.canonical import item_hash
from convo.history.items import (
    MCP_APPROVAL_REQUEST,
    MCP_APPROVAL_RESPONSE,
    Item,
    Json,
    get_call_id,
    is_client_output,
    is_user_message,
    item_type,
)
from convo.history.records import Strategy
from convo.runs.state import ToolCall
from convo.runstate.document import get_path
from convo.runstate.format import APPROVAL_ITEM, INPUT_RUN_ITEM
from convo.runstate.identity import HANDOFF_ROLE, StateCall, make_lookup_key, parse_state_call
from convo.runstate.run_state import RunState
from convo.tools.tool import NO_VALUES, Lookup, Tool, tool_lookup, toolbox

NONE_META = {"original_type": "none", "serialized_via": "none", "requires_deserializer": False, "omitted": False}
MAPPING_META = {**NONE_META, "original_type": "mapping", "serialized_via": "mapping"}


CONTEXT_HINT = "pass it with --context FILE.json, or FILE.py:NAME for an object or function"


def build_context_members(
    context: Any, base: Mapping[str, Json] | None = None, serializer: Callable[[Any], Any] | None = None
) -> dict[str, Json]:
    """Build the context members of a state as the Agents SDK does; those of `base` if they have the same values.

    context:     a mapping, which a reader can restore, or another object of the application
    serializer:  returns a mapping for another object; without it only models and dataclasses are stored

    Raises InputFault for a value that is not JSON, and the errors of `serializer`.
    """
    values, serialized_via = _serialize_context(context, serializer)
    if base and (base.get("context") or {}) == values and serialized_via != "omitted":
        return {key: base[key] for key in ("context", "context_meta") if key in base}
    if not isinstance(values, Mapping):
        raise InputFault(f"the context was serialized to a {type(values).__name__}", hint="return a dict")
    for name, value in values.items():
        _check_context_value(name, value)
    if serialized_via == "mapping":
        return {"context": dict(values) or None, "context_meta": MAPPING_META if values else NONE_META}
    kind = type(context)
    is_model, is_record = hasattr(context, "model_dump"), is_dataclass(context)
    meta = {
        "original_type": "pydantic" if is_model else "dataclass" if is_record else "custom",
        "serialized_via": serialized_via,
        "requires_deserializer": True,
        "omitted": serialized_via == "omitted",
        "class_path": f"{kind.__module__}:{kind.__qualname__}",
    }
    return {"context": dict(values), "context_meta": meta}


def _serialize_context(context: Any, serializer: Callable[[Any], Any] | None) -> tuple[Any, str]:
    """Return the values of the context, and how they were made, in the SDK's words."""
    if isinstance(context, Mapping):
        return context, "mapping"
    if serializer is not None:
        return serializer(context), "context_serializer"
    if hasattr(context, "model_dump"):
        return context.model_dump(exclude_unset=True), "model_dump"
    if is_dataclass(context):
        with suppress(TypeError, ValueError):
            values = asdict(cast(Any, context))
            json.dumps(values)
            return values, "asdict"
    return {}, "omitted"


def read_context_values(document: Json) -> Mapping[str, Json]:
    """Return the application's context values, or NO_VALUES. Raises InputFault if the context is not a mapping."""
    context = read_context_description(document)
    if not is_context_restorable(document):
        meta = get_path(document, ("context", "context_meta")) or {}
        # A class path has the module, too; that of a file is convo's own name for it.
        type_name = str(meta.get("class_path") or meta.get("original_type") or "not a mapping").rpartition(":")[2]
        raise InputFault(
            f"the context of this run was {type_name}, which cannot be restored from a state",
            hint=CONTEXT_HINT,
        )
    return NO_VALUES if context is None else dict(context)


def is_context_restorable(document: Json) -> bool:
    """Whether the state alone restores the application's context: it is a mapping, or there is none."""
    meta = get_path(document, ("context", "context_meta")) or {}
    is_object = meta.get("omitted") or meta.get("requires_deserializer")
    return not is_object and isinstance(read_context_description(document) or {}, dict)


def read_context_description(document: Json) -> Json:
    """Return the application's context as in the state: a mapping, the fields of another object, or None."""
    return get_path(document, ("context", "context"))


def _check_context_value(name: str, value: Json) -> None:
    try:
        item_hash({name: value})
    except NotCanonical as error:
        raise InputFault(f"the context's {name!r} is not JSON, so it cannot be restored") from error


RUN_ITEM_TYPES = {
    "message": "message_output_item",
    "reasoning": "reasoning_item",
    "compaction": "compaction_item",
    "mcp_list_tools": "mcp_list_tools_item",
    MCP_APPROVAL_REQUEST: "mcp_approval_request_item",
    MCP_APPROVAL_RESPONSE: "mcp_approval_response_item",
    "tool_search_call": "tool_search_call_item",
    "tool_search_output": "tool_search_output_item",
}
TOOL_CALL_TYPES = {
    *("function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"),
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"),
}

CONVO_IDENTITY_PREFIX = "convo:"
"""Prefix of identities of agents that share a name, in a state for convo only; every other reader rejects them."""


@dataclass(frozen=True)
class GraphAgent:
    """An agent of a graph, for the run items of its turns."""

    graph: Graph
    identity: str

    @property
    def reference(self) -> dict[str, Json]:
        """The agent's reference in a state; if agents share its name, with an identity that only convo reads."""
        name = self.graph[self.identity].name
        shared = name in self.graph.duplicates
        return {"name": name, "identity": CONVO_IDENTITY_PREFIX + self.identity} if shared else {"name": name}

    @property
    def handoff_targets(self) -> dict[str, str]:
        """Names of the handoff tools -> identities of their targets."""
        return {tool.name: tool.target for tool in build_handoff_tools(self.graph, self.identity)}

    def find_tool(self, call: Item) -> Tool | None:
        return toolbox(self.graph[self.identity].functions).find(call)


def build_response_items(agent: GraphAgent, output: Iterable[Item]) -> Iterator[dict[str, Json]]:
    """Build the run items of a response."""
    targets = agent.handoff_targets
    for item in output:
        if item_type(item) == "function_call" and item.get("name") in targets and not item.get("namespace"):
            yield _build_run_item("handoff_call_item", agent, item)
        elif item_type(item) in TOOL_CALL_TYPES:
            yield {**_build_run_item("tool_call_item", agent, item), **_build_tool_fields(agent, item)}
        else:
            yield _build_run_item(RUN_ITEM_TYPES.get(item_type(item), INPUT_RUN_ITEM), agent, item)


def build_followup_items(agent: GraphAgent, output: Iterable[Item], after: Iterable[Item]) -> Iterator[dict[str, Json]]:
    """Build the run items that follow a response: outputs of its calls, approval responses and messages of the user."""
    targets = agent.handoff_targets
    names = {get_call_id(item): str(item.get("name")) for item in output if item_type(item) == "function_call"}
    for item in after:
        target = targets.get(names.get(get_call_id(item), ""))
        if is_client_output(item) and target is not None and item.get("output") != IGNORED_HANDOFF_OUTPUT:
            agents = {"source_agent": agent.reference, "target_agent": GraphAgent(agent.graph, target).reference}
            yield {**_build_run_item("handoff_output_item", agent, item), **agents}
        elif is_client_output(item):
            yield {**_build_run_item("tool_call_output_item", agent, item), "output": item.get("output")}
        elif item_type(item) == MCP_APPROVAL_RESPONSE:
            yield _build_run_item(RUN_ITEM_TYPES[item_type(item)], agent, item)
        else:
            yield _build_run_item(INPUT_RUN_ITEM, agent, item)


def build_approval_item(agent: GraphAgent, call: ToolCall) -> dict[str, Json]:
    """Build the approval item of a call."""
    item = _build_run_item(APPROVAL_ITEM, agent, call.item)
    if call.tool is None or call.tool.definition is not None:
        return {**item, "tool_name": call.lookup[-1]}
    namespace = {"tool_namespace": call.tool.namespace.name} if call.tool.namespace else {}
    fields = {"tool_lookup_key": lookup_to_json(call.lookup), "tool_origin": _build_tool_origin(call.tool)}
    return {**item, "tool_name": call.tool.name, **namespace, **fields}


def _build_tool_origin(tool: Tool) -> dict[str, Json]:
    return {"type": "mcp", "mcp_server_name": tool.origin.server} if tool.origin else {"type": "function"}


def build_function_action(call: ToolCall) -> dict[str, Json]:
    """Build the action of a function call."""
    tool = call.tool
    assert tool
    namespace = {"namespace": tool.namespace.name, "qualifiedName": tool.title} if tool.namespace else {}
    definition = {"description": tool.description, "paramsJsonSchema": dict(tool.parameters)}
    tool_json = {"name": tool.name, **namespace, "lookupKey": lookup_to_json(call.lookup), **definition}
    return {"tool_call": dict(call.item), "tool": tool_json}


def describe_tool(tool: Tool) -> dict[str, Json]:
    """Return the tool of a call of another kind."""
    return {"name": tool.name, "description": tool.description} if tool.description else {"name": tool.name}


def build_mcp_request(call: ToolCall) -> dict[str, Json]:
    """Build the action of an MCP approval request, without the secrets that the tool's definition can contain."""
    tool = {"name": "hosted_mcp", "tool_config": {"type": "mcp", "server_label": call.item.get("server_label")}}
    return {"request_item": {"raw_item": dict(call.item)}, "mcp_tool": tool}


def lookup_to_json(lookup: Lookup) -> dict[str, Json]:
    """Return a lookup as the format stores it."""
    kind, *namespace, name = lookup
    return {"kind": kind, **({"namespace": namespace[0]} if namespace else {}), "name": name}


def build_ledger(items: Iterable[Mapping[str, Json]], completed_call_ids: Iterable[str]) -> dict[str, Json]:
    """Build the ledger entries of the calls in run items, by call id.

    completed_call_ids:  calls whose entries are marked as completed, so they cannot run again

    Raises ValueError for arguments without a digest.
    """
    completed = frozenset(completed_call_ids)
    ledger: dict[str, Json] = {}
    for item in items:
        call = parse_state_call(item["raw_item"], item)
        if call is None or call.id is None:
            continue
        role = HANDOFF_ROLE if item["type"] == "handoff_call_item" else None
        binding = call.binding(role)
        if binding is not None:
            flags = {"executed": call.id in completed, "completed": call.id in completed}
            ledger[call.id] = {
                "type": call.type,
                "approval_scope": binding.scope,
                "fingerprint": binding.fingerprint,
                **flags,
            }
    return ledger


def build_sticky_call(lookup: Lookup, agent: Mapping[str, Json] | None) -> StateCall:
    """Build a call that represents every call of a tool, for sticky decisions."""
    if lookup[0] == "mcp":
        _, server, name = lookup
        raw = {"type": MCP_APPROVAL_REQUEST, "id": "any", "server_label": server, "name": name}
        return StateCall(raw, name, agent=agent)
    return StateCall({"type": "function_call", "name": lookup[-1]}, lookup[-1], lookup, agent=agent)


def _build_run_item(kind: str, agent: GraphAgent, raw: Item) -> dict[str, Json]:
    return {"type": kind, "raw_item": dict(raw), "agent": agent.reference}


def _build_tool_fields(agent: GraphAgent, item: Item) -> dict[str, Json]:
    """Return the fields of a call's tool; only its name if the agent no longer has the tool."""
    tool = agent.find_tool(item)
    if item_type(item) != "function_call":
        return {} if tool is None else {"tool_name": tool.name}
    if tool is None:
        return {"tool_name": str(item.get("name"))}
    key = tool_lookup(tool)
    is_default = key == make_lookup_key(str(item.get("name")), item.get("namespace"))
    fields = {"tool_name": tool.name, "description": tool.description, "tool_origin": _build_tool_origin(tool)}
    return fields if is_default else {**fields, "tool_lookup_key": lookup_to_json(key)}


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One model call of a run.

    agent:        the identity of the agent
    output:       the items of the response
    added_items:  the items added before the next call: outputs in the order of their calls, messages of the user
    usage:        as the endpoint returned it, in tokens
    """

    agent: str
    output: Sequence[Item]
    added_items: Sequence[Item] = ()
    response_id: str | None = None
    usage: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class RunTranscript:
    """The data for a RunState that `Run` does not store.

    input_items:             the items before the first of `model_calls`: the history with this run's input at its end,
                             or the result of a summary or filter
    model_calls:             the run's model calls, oldest first
    summarized_calls:        how many of `model_calls` are in `input_items` already, because a handoff summarized them
    handle:                  `conv_...` or the newest `resp_...`, if the endpoint owns the history
    context_values:          context values of the application
    convo_only:              only convo reads the state, so agents may share a name
    allow_unknown_outcomes:  calls with an unknown outcome are written as started; the Agents SDK asks for them like for
                             others
    base:                    the state that was imported; of `model_calls` only those after its last response are new,
                             and `input_items` counts only if a summary was made since
    """

    input_items: Sequence[Item]
    model_calls: Sequence[ModelCall] = ()
    strategy: Strategy = Strategy.SESSION
    handle: str | None = None
    summarized_calls: int = 0
    context_values: Any = field(default_factory=dict)
    context_serializer: Callable[[Any], Any] | None = None
    base: RunState | None = None
    convo_only: bool = False
    allow_unknown_outcomes: bool = False


def split_model_calls(graph: Graph, first: str, items: Iterable[Item]) -> list[ModelCall]:
    """Split the items of a run into its model calls; `first` is the identity of the first agent."""
    model_calls: list[ModelCall] = []
    agent = first
    for output, after in split_responses(items):
        model_calls.append(ModelCall(agent, output, after))
        agent = _agent_after_response(graph, agent, output)
    return model_calls


def split_responses(items: Iterable[Item]) -> Iterator[tuple[list[Item], list[Item]]]:
    """Split items into responses, each with the items that were added after it."""
    output: list[Item] = []
    after: list[Item] = []
    for item in items:
        is_added = is_client_output(item) or is_user_message(item) or item_type(item) == MCP_APPROVAL_RESPONSE
        if after and not is_added:
            yield output, after
            output, after = [], []
        (after if is_added else output).append(item)
    if output or after:
        yield output, after


def _agent_after_response(graph: Graph, agent: str, output: Sequence[Item]) -> str:
    """Return the identity of the next agent; if a response has several handoffs, the first one counts."""
    targets = {tool.name: tool.target for tool in build_handoff_tools(graph, agent)}
    names = (str(item.get("name")) for item in output if get_call_id(item) and not item.get("namespace"))
    return next((targets[name] for name in names if name in targets), agent)

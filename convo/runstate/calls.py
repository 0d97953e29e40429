"""Tool calls of the last response of a RunState, with their stages, as a run works on them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from convo.agents.agent import Agent
from convo.agents.graph import Graph
from convo.agents.handoffs import build_handoff_tools
from convo.errors import ConvoError, InvalidRunState, NotFound, Unsupported
from convo.history.items import (
    MCP_APPROVAL_REQUEST,
    MCP_APPROVAL_RESPONSE,
    Item,
    Json,
    get_call_id,
    is_client_call,
    is_client_output,
    item_type,
)
from convo.history.pairing import ALL_PAIRS, call_index_by_output, pair_id
from convo.runs.machine import parse_tool_calls
from convo.runs.state import ModelResponded, Run, RunFailure, Stage, ToolCall
from convo.runstate.document import PathMatch, PathSteps, format_path, get_path
from convo.runstate.format import APPROVAL_ITEM, LEDGER_PATH, iter_actions, iter_interruptions, iter_nested_states
from convo.tools.tool import toolbox

FUNCTION_ACTIONS_PATH: PathSteps = ("last_processed_response", "functions")
SERVER_TOOLS_PATH: PathSteps = ("last_processed_response", "mcp_tool_bindings")
SCHEMA_ANNOTATIONS = {"title", "description", "$schema"}
"""Schema keywords without effect on validation; they may change while a call is pending."""
SCHEMA_MAPS = {"properties", "$defs", "definitions"}

SDK_RESUME_HINT = "use --decide-only -o decided.json, and resume with the Agents SDK"


def read_last_response(document: Json) -> tuple[Item, ...]:
    """Return the items of the last response, with its calls as they would run."""
    responses = document.get("model_responses") or [{}]
    planned = {call.id: call.raw for _, call in iter_actions(document)}
    output = responses[-1].get("output") or []
    return tuple(planned.get(answerable_call_id(item), item) for item in output)


def answerable_call_id(item: Item) -> str | None:
    """Return the id that connects a call, its output and its approval."""
    call_id = item.get("id") if item_type(item) == MCP_APPROVAL_REQUEST else item.get("approval_request_id")
    return call_id if isinstance(call_id, str) else get_call_id(item)


def is_call_answer(raw: Item) -> bool:
    """Return whether an item is the output of a call or the response to an approval request."""
    return is_client_output(raw) or item_type(raw) == MCP_APPROVAL_RESPONSE


def collect_outputs(document: Json) -> dict[str, Item]:
    """Return the outputs in a state, by call id; an id that was used again belongs to its last call."""
    run_items = document.get("generated_items") or ()
    return {call_id: run_items[index]["raw_item"] for index, call_id in find_last_outputs(run_items).items()}


def find_last_outputs(run_items: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Map the indexes of outputs to their call ids, without the outputs of calls whose id a later call has."""
    indexes = [index for index, item in enumerate(run_items) if item.get("type") != APPROVAL_ITEM]
    raw_items = [run_items[index]["raw_item"] for index in indexes]
    last_calls = {pair_id(raw): index for index, raw in enumerate(raw_items) if item_type(raw) in ALL_PAIRS}
    return {
        indexes[output_index]: str(call_id)
        for output_index, call_index in call_index_by_output(raw_items).items()
        if is_call_answer(raw_items[output_index])
        and (call_id := pair_id(raw_items[output_index])) is not None
        and last_calls.get(call_id, call_index) == call_index
    }


def collect_started_call_ids(document: Json) -> set[str]:
    """Return the calls that started, by the ledger; the outcome of one without an output is unknown."""
    ledger = get_path(document, LEDGER_PATH) or {}
    return {call_id for call_id, entry in ledger.items() if entry["executed"]}


def import_calls(document: Json, run: Run) -> tuple[ToolCall, ...]:
    """Import the calls of the last response, in order, each in its stage.

    Raises NotFound for a missing tool, InvalidRunState for a tool whose schema differs from the one in the state, and
    Unsupported for a pending call of a kind that convo does not perform.
    """
    outputs = collect_outputs(document)
    _check_planned_calls(document, outputs)
    open_calls = tuple(
        item
        for item in read_last_response(document)
        if answerable_call_id(item) not in outputs or _is_client_call(item)
    )
    mismatch = find_agent_mismatch(document, run.graph, run.agent)
    if mismatch is not None:
        raise mismatch
    targets = {tool.name: tool.target for tool in build_handoff_tools(run.graph, run.agent)}
    calls = parse_tool_calls(run, ModelResponded(open_calls, toolbox(run.current_agent.functions), targets))
    if isinstance(calls, RunFailure):
        problem = calls.message[:1].lower() + calls.message[1:]
        raise Unsupported("convo", f"the pending calls of this state: {problem}", hint=SDK_RESUME_HINT)
    pending_ids = {answerable_call_id(match.value["raw_item"]) for match in iter_interruptions(document)}
    nested_states = find_open_nested_states(document)
    started_ids = collect_started_call_ids(document)
    return tuple(
        _mark_nested(call)
        if call.id in nested_states
        else _mark_stage(call, outputs, call.id in pending_ids, call.id in started_ids)
        for call in calls
    )


def _check_planned_calls(document: Json, completed_ids: Collection[str]) -> None:
    """Raise InvalidRunState unless the calls to run are the calls that the model made.

    A call that the model never made gets an output that no server accepts; a call that is not planned never runs.
    """
    responses = document.get("model_responses") or [{}]
    output = responses[-1].get("output") or []
    made_ids = {answerable_call_id(item) for item in output}
    planned_ids = {call.id for _, call in iter_actions(document)}
    for steps, call in iter_actions(document):
        if call.id not in made_ids:
            raise InvalidRunState(format_path(steps), "is not a call of the last response in model_responses")
    for index, item in enumerate(output):
        if (
            _needs_answer(item)
            and answerable_call_id(item) not in planned_ids
            and answerable_call_id(item) not in completed_ids
        ):
            steps = ("model_responses", len(responses) - 1, "output", index)
            raise InvalidRunState(
                format_path(steps), "is a call without an output that last_processed_response does not contain"
            )


def find_agent_mismatch(document: Json, graph: Graph, identity: str) -> ConvoError | None:
    """Return the reason why an agent of the graph cannot have made the last response's calls; None if it can."""
    agent = graph[identity]
    handoff_names = {tool.name for tool in build_handoff_tools(graph, identity)}
    schemas = dict(_iter_recorded_schemas(document))
    bindings = get_path(document, SERVER_TOOLS_PATH) or {}
    for item in read_last_response(document):
        if item_type(item) == "function_call" and item.get("name") not in handoff_names:
            call_id = get_call_id(item)
            mismatch = _find_tool_mismatch(agent, item, schemas.get(call_id), bindings.get(call_id))
            if mismatch is not None:
                return mismatch
    return None


def _iter_recorded_schemas(document: Json) -> Iterator[tuple[str | None, tuple[PathSteps, Json]]]:
    """Iterate over the schemas of functions in the state, by call id."""
    for index, action in enumerate(get_path(document, FUNCTION_ACTIONS_PATH) or ()):
        steps = (*FUNCTION_ACTIONS_PATH, index, "tool", "paramsJsonSchema")
        yield get_call_id(action["tool_call"]), (steps, get_path(document, steps))


def _find_tool_mismatch(
    agent: Agent, item: Item, recorded: tuple[PathSteps, Json] | None, server_tool: Json
) -> ConvoError | None:
    """Return the reason why the agent's tool is not that of a call.

    server_tool:  the `ServerTool` that the state has for the call; states before 1.18 have none
    """
    tool = toolbox(agent.functions).find(item)
    if tool is None:
        return NotFound(
            "tool", str(item.get("name")), hint=f"add it: agent {agent.name!r} called it before the run was paused"
        )
    if server_tool is not None and tool.origin and server_tool != list(tool.origin):
        problem = f"is for another MCP server or tool than tool {tool.title!r} now"
        steps = (*SERVER_TOOLS_PATH, str(get_call_id(item)))
        return InvalidRunState(format_path(steps), problem, hint="resume with the servers that the run was paused with")
    if recorded is None or recorded[1] is None or strip_annotations(recorded[1]) == strip_annotations(tool.parameters):
        return None
    problem = f"differs from the schema of tool {tool.title!r}, so the approved call is not the call that would run"
    return InvalidRunState(format_path(recorded[0]), problem, hint="resume with the tools that the run was paused with")


def strip_annotations(schema: Json) -> Json:
    """Return a schema without annotations, for comparison."""
    if isinstance(schema, list):
        return [strip_annotations(element) for element in schema]
    if not isinstance(schema, Mapping):
        return schema
    members = {
        key: value
        for key, value in schema.items()
        if key not in SCHEMA_ANNOTATIONS and (key, value) != ("required", [])
    }
    return {key: _strip_member(key, value) for key, value in members.items()}


def _strip_member(key: str, value: Json) -> Json:
    if key == "required" and isinstance(value, list):
        return sorted(map(str, value))
    if key in SCHEMA_MAPS and isinstance(value, Mapping):
        return {name: strip_annotations(schema) for name, schema in value.items()}
    return strip_annotations(value)


def _needs_answer(item: Item) -> bool:
    return is_client_call(item) or item_type(item) == MCP_APPROVAL_REQUEST


def _is_client_call(item: Item) -> bool:
    """Return False for client calls that convo does not run; such a call with an output is only history."""
    return item_type(item) in ("function_call", MCP_APPROVAL_REQUEST) or not is_client_call(item)


def find_open_nested_states(document: Json) -> dict[str, PathMatch]:
    """Return the states of agents used as tools whose call has no output, by call id."""
    outputs = collect_outputs(document)
    states = (
        (get_call_id(get_path(document, (*match.steps[:-1], "tool_call"))), match)
        for match in iter_nested_states(document)
    )
    return {call_id: match for call_id, match in states if call_id is not None and call_id not in outputs}


def _mark_nested(call: ToolCall) -> ToolCall:
    return replace(call, stage=Stage.NESTED_RUN_PAUSED, output=None)


def _mark_stage(call: ToolCall, outputs: Mapping[str, Item], is_pending: bool, has_started: bool) -> ToolCall:
    if call.id in outputs:
        return replace(call, stage=Stage.DONE, output=outputs[call.id], has_run=call.tool is not None)
    if has_started and call.tool is not None:
        return replace(call, stage=Stage.OUTCOME_UNKNOWN, output=None)
    needs_decision = call.stage is Stage.CHECKING_APPROVAL or (is_pending and call.stage is not Stage.HANDOFF)
    return replace(call, stage=Stage.PENDING, output=None) if needs_decision else call

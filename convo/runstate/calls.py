"""Tool calls of the last response of a RunState, with their stages, as a run works on them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

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
from convo.runs.machine import parse_tool_calls
from convo.runs.state import ModelResponded, Run, RunFailure, Stage, ToolCall
from convo.runstate.document import PathMatch, PathSteps, format_path, get_path
from convo.runstate.format import LEDGER_PATH, iter_actions, iter_interruptions, iter_nested_states
from convo.tools.tool import toolbox

FUNCTION_ACTIONS_PATH: PathSteps = ("last_processed_response", "functions")
SCHEMA_ANNOTATIONS = {"title", "description", "$schema"}
"""Schema keywords without effect on validation; they may change while a call is pending."""
SCHEMA_MAPS = {"properties", "$defs", "definitions"}

SDK_RESUME_HINT = "use --decide-only -o decided.json, and resume with the Agents SDK"


def read_last_response(document: Json) -> tuple[Item, ...]:
    """Return the items of the last response, with its calls as they would run."""
    answers = document.get("model_responses") or [{}]
    planned = {call.id: call.raw for _, call in iter_actions(document)}
    said = answers[-1].get("output") or []
    return tuple(planned.get(answerable_call_id(item), item) for item in said)


def answerable_call_id(item: Item) -> str | None:
    """Return the id that connects a call, its output and its approval."""
    found = item.get("id") if item_type(item) == MCP_APPROVAL_REQUEST else item.get("approval_request_id")
    return found if isinstance(found, str) else get_call_id(item)


def collect_outputs(document: Json) -> dict[str, Item]:
    """Return the outputs in a state, by call id."""
    raws = (item["raw_item"] for item in document.get("generated_items") or ())
    found = {
        answerable_call_id(raw): raw for raw in raws if is_client_output(raw) or item_type(raw) == MCP_APPROVAL_RESPONSE
    }
    return {call: raw for call, raw in found.items() if call is not None}


def collect_started_call_ids(document: Json) -> set[str]:
    """Return the calls that started, by the ledger; the outcome of one without an output is unknown."""
    ledger = get_path(document, LEDGER_PATH) or {}
    return {call for call, entry in ledger.items() if entry["executed"]}


def import_calls(document: Json, run: Run) -> tuple[ToolCall, ...]:
    """Import the calls of the last response, in order, each in its stage.

    Raises NotFound for a missing tool, InvalidRunState for a tool whose schema differs from the one in the state, and
    Unsupported for a pending call of a kind that convo does not perform.
    """
    done = collect_outputs(document)
    _check_planned_calls(document, done)
    open_calls = tuple(
        item for item in read_last_response(document) if answerable_call_id(item) not in done or _is_client_call(item)
    )
    wrong = find_agent_mismatch(document, run.graph, run.agent)
    if wrong is not None:
        raise wrong
    ways = {offer.name: offer.target for offer in build_handoff_tools(run.graph, run.agent)}
    calls = parse_tool_calls(run, ModelResponded(open_calls, toolbox(run.current_agent.functions), ways))
    if isinstance(calls, RunFailure):
        words = calls.message[:1].lower() + calls.message[1:]
        raise Unsupported("convo", f"the pending calls of this state: {words}", hint=SDK_RESUME_HINT)
    waiting = {answerable_call_id(one.value["raw_item"]) for one in iter_interruptions(document)}
    inside = find_open_nested_states(document)
    begun = collect_started_call_ids(document)
    return tuple(
        _mark_nested(call) if call.id in inside else _mark_stage(call, done, call.id in waiting, call.id in begun)
        for call in calls
    )


def _check_planned_calls(document: Json, done: Collection[str]) -> None:
    """Raise InvalidRunState unless the calls to run are the calls that the model made.

    A call that the model never made gets an output that no server accepts; a call that is not planned never runs.
    """
    answers = document.get("model_responses") or [{}]
    output = answers[-1].get("output") or []
    said = {answerable_call_id(item) for item in output}
    planned = {call.id for _, call in iter_actions(document)}
    for steps, call in iter_actions(document):
        if call.id not in said:
            raise InvalidRunState(format_path(steps), "is not a call of the last response in model_responses")
    for place, item in enumerate(output):
        if _needs_answer(item) and answerable_call_id(item) not in planned and answerable_call_id(item) not in done:
            steps = ("model_responses", len(answers) - 1, "output", place)
            raise InvalidRunState(
                format_path(steps), "is a call without an output that last_processed_response does not contain"
            )


def find_agent_mismatch(document: Json, graph: Graph, identity: str) -> ConvoError | None:
    """Return the reason why an agent of the graph cannot have made the last response's calls; None if it can."""
    agent = graph[identity]
    ways = {offer.name for offer in build_handoff_tools(graph, identity)}
    said = dict(_iter_recorded_schemas(document))
    for item in read_last_response(document):
        if item_type(item) == "function_call" and item.get("name") not in ways:
            found = _find_tool_mismatch(agent, item, said.get(get_call_id(item)))
            if found is not None:
                return found
    return None


def _iter_recorded_schemas(document: Json) -> Iterator[tuple[str | None, tuple[PathSteps, Json]]]:
    """Iterate over the schemas of functions in the state, by call id."""
    for index, action in enumerate(get_path(document, FUNCTION_ACTIONS_PATH) or ()):
        steps = (*FUNCTION_ACTIONS_PATH, index, "tool", "paramsJsonSchema")
        yield get_call_id(action["tool_call"]), (steps, get_path(document, steps))


def _find_tool_mismatch(agent: Agent, item: Item, shown: tuple[PathSteps, Json] | None) -> ConvoError | None:
    tool = toolbox(agent.functions).find(item)
    if tool is None:
        return NotFound(
            "tool", str(item.get("name")), hint=f"add it: agent {agent.name!r} called it before the run was paused"
        )
    if shown is None or shown[1] is None or strip_annotations(shown[1]) == strip_annotations(tool.parameters):
        return None
    words = f"differs from the schema of tool {tool.title!r}, so the approved call is not the call that would run"
    return InvalidRunState(format_path(shown[0]), words, hint="resume with the tools that the run was paused with")


def strip_annotations(schema: Json) -> Json:
    """Return a schema without annotations, for comparison."""
    if isinstance(schema, list):
        return [strip_annotations(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    said = {
        key: below
        for key, below in schema.items()
        if key not in SCHEMA_ANNOTATIONS and (key, below) != ("required", [])
    }
    return {key: _strip_member(key, below) for key, below in said.items()}


def _strip_member(key: str, below: Json) -> Json:
    if key == "required" and isinstance(below, list):
        return sorted(map(str, below))
    if key in SCHEMA_MAPS and isinstance(below, Mapping):
        return {name: strip_annotations(one) for name, one in below.items()}
    return strip_annotations(below)


def _needs_answer(item: Item) -> bool:
    return is_client_call(item) or item_type(item) == MCP_APPROVAL_REQUEST


def _is_client_call(item: Item) -> bool:
    """Return False for client calls that convo does not run; such a call with an output is only history."""
    return item_type(item) in ("function_call", MCP_APPROVAL_REQUEST) or not is_client_call(item)


def find_open_nested_states(document: Json) -> dict[str, PathMatch]:
    """Return the states of agents used as tools whose call has no output, by call id."""
    done = collect_outputs(document)
    found = (
        (get_call_id(get_path(document, (*place.steps[:-1], "tool_call"))), place)
        for place in iter_nested_states(document)
    )
    return {call: place for call, place in found if call is not None and call not in done}


def _mark_nested(call: ToolCall) -> ToolCall:
    return replace(call, stage=Stage.NESTED_RUN_PAUSED, output=None)


def _mark_stage(call: ToolCall, done: Mapping[str, Item], waits: bool, begun: bool) -> ToolCall:
    if call.id in done:
        return replace(call, stage=Stage.DONE, output=done[call.id], has_run=call.tool is not None)
    if begun and call.tool is not None:
        return replace(call, stage=Stage.OUTCOME_UNKNOWN, output=None)
    undone = call.stage is Stage.CHECKING_APPROVAL or (waits and call.stage is not Stage.HANDOFF)
    return replace(call, stage=Stage.PENDING, output=None) if undone else call

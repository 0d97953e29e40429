"""The calls of a state's last answer, as a run of convo's own works on them.

An answer's calls stand in a state as the model made them, as they would run and as they wait. What
is taken is what would run, which whoever read the state has compared with what is shown. A call
with an output is done, and of one that was started and has none the outcome is unknown; one that
waits, waits; one that does none of this needs what its tool needs now.
The call of an agent used as a tool in which something waits has a whole run inside.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from convo.agents import Agent, Graph
from convo.errors import BadState, ConvoError, NotFound, Unsupported
from convo.handoffs import offers
from convo.items import Item, Json, call_id, is_call, is_output, kind
from convo.run import Answered, Call, Failure, Run, Stage
from convo.run.answers import calls_of
from convo.runstate.nested import actions, children, interruptions
from convo.runstate.paths import Place, Steps, at, path
from convo.tools import Tool, toolbox

VERDICT = "mcp_approval_response"
FUNCTIONS: Steps = ("last_processed_response", "functions")
WORDS = {"title", "description", "$schema"}
"""What a schema says for people, and what may change while a call waits."""
NAMED = {"properties", "$defs", "definitions"}

SDK = "--decide-only -o decided.json, and the Agents SDK goes on with it"


def last_answer(document: Json) -> tuple[Item, ...]:
    """What the model said last, its calls as they would run."""
    answers = document.get("model_responses") or [{}]
    planned = {call.id: call.raw for _, call in actions(document)}
    said = answers[-1].get("output") or []
    return tuple(planned.get(named_by(item), item) for item in said)


def named_by(item: Item) -> str | None:
    """The id by which a call, its output or its approval is known."""
    found = item.get("id") if kind(item) == "mcp_approval_request" else item.get("approval_request_id")
    return found if isinstance(found, str) else call_id(item)


def outputs(document: Json) -> dict[str, Item]:
    """The outputs that a state holds, by the id of the call."""
    raws = (item["raw_item"] for item in document.get("generated_items") or ())
    found = {named_by(raw): raw for raw in raws if is_output(raw) or kind(raw) == VERDICT}
    return {call: raw for call, raw in found.items() if call is not None}


def started(document: Json) -> set[str]:
    """The calls whose tools were started, as the ledger says; without an output nobody knows what came of one."""
    ledger = at(document, ("context", "tool_invocations")) or {}
    return {call for call, entry in ledger.items() if entry["executed"]}


def batch(document: Json, run: Run) -> tuple[Call, ...]:
    """The calls of the last answer, in its order, each as far as it is.

    raises:  NotFound, BadState  a tool is not there, or takes something else than the state says
             Unsupported         a call waits of a kind that convo does not perform
    """
    done = outputs(document)
    _check_said(document, done)
    open_calls = tuple(item for item in last_answer(document) if named_by(item) not in done or _is_ours(item))
    wrong = unfit(document, run.graph, run.agent)
    if wrong is not None:
        raise wrong
    ways = {offer.name: offer.to for offer in offers(run.graph, run.agent)}
    calls = calls_of(run, Answered(open_calls, toolbox(run.current.functions), ways))
    if isinstance(calls, Failure):
        words = calls.message[:1].lower() + calls.message[1:]
        raise Unsupported("convo", f"what this state waits for: {words}", hint=SDK)
    waiting = {named_by(one.value["raw_item"]) for one in interruptions(document)}
    inside = inner(document)
    begun = started(document)
    return tuple(
        _inside(call) if call.id in inside else _as_far(call, done, call.id in waiting, call.id in begun)
        for call in calls
    )


def _check_said(document: Json, done: Collection[str]) -> None:
    """What would run and what the model called must be the same.

    raises:  BadState  a call would run that the model never made, so no server would take its output, or
                       one was made that no reader would run
    """
    answers = document.get("model_responses") or [{}]
    output = answers[-1].get("output") or []
    said = {named_by(item) for item in output}
    planned = {call.id for _, call in actions(document)}
    for steps, call in actions(document):
        if call.id not in said:
            raise BadState(path(steps), "is none of the calls that the last answer in model_responses holds")
    for place, item in enumerate(output):
        if _asks(item) and named_by(item) not in planned and named_by(item) not in done:
            steps = ("model_responses", len(answers) - 1, "output", place)
            raise BadState(path(steps), "is a call that last_processed_response does not plan, and without an output")


def unfit(document: Json, graph: Graph, identity: str) -> ConvoError | None:
    """Why an agent of the graph cannot be the one that made the calls of the last answer; None where it can."""
    agent = graph[identity]
    ways = {offer.name for offer in offers(graph, identity)}
    said = dict(_shown(document))
    for item in last_answer(document):
        if kind(item) == "function_call" and item.get("name") not in ways:
            found = _wrong(agent, item, said.get(call_id(item)))
            if found is not None:
                return found
    return None


def _shown(document: Json) -> Iterator[tuple[str | None, tuple[Steps, Json]]]:
    """Every function's schema, as the state says it, by the id of the call."""
    for index, action in enumerate(at(document, FUNCTIONS) or ()):
        steps = (*FUNCTIONS, index, "tool", "paramsJsonSchema")
        yield call_id(action["tool_call"]), (steps, at(document, steps))


def _wrong(agent: Agent, item: Item, shown: tuple[Steps, Json] | None) -> ConvoError | None:
    tool = _tool(agent, item)
    if tool is None:
        return NotFound("tool", str(item.get("name")), hint=f"agent {agent.name!r} called it before the run was paused")
    if shown is None or shown[1] is None or meaning(shown[1]) == meaning(tool.parameters):
        return None
    words = f"is not what tool {tool.title!r} takes; what was asked for is not what would run"
    return BadState(path(shown[0]), words, hint="go on with the tools that the run was paused with")


def _tool(agent: Agent, item: Item) -> Tool | None:
    return toolbox(agent.functions).find(item)


def meaning(schema: Json) -> Json:
    """What a schema accepts, without its words for people."""
    if isinstance(schema, list):
        return [meaning(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    said = {key: below for key, below in schema.items() if key not in WORDS and (key, below) != ("required", [])}
    return {key: _below(key, below) for key, below in said.items()}


def _below(key: str, below: Json) -> Json:
    if key == "required" and isinstance(below, list):
        return sorted(map(str, below))
    if key in NAMED and isinstance(below, Mapping):
        return {name: meaning(one) for name, one in below.items()}
    return meaning(below)


def _asks(item: Item) -> bool:
    return is_call(item) or kind(item) == "mcp_approval_request"


def _is_ours(item: Item) -> bool:
    """Whether a run performs such calls itself; what somebody else performed is only history."""
    return kind(item) in ("function_call", "mcp_approval_request") or not is_call(item)


def inner(document: Json) -> dict[str, Place]:
    """The states of agents used as tools in which something waits, by the id of the call that they answer."""
    done = outputs(document)
    found = ((call_id(at(document, (*place.steps[:-1], "tool_call"))), place) for place in children(document))
    return {call: place for call, place in found if call is not None and call not in done}


def _inside(call: Call) -> Call:
    return replace(call, stage=Stage.INSIDE, output=None)


def _as_far(call: Call, done: Mapping[str, Item], waits: bool, begun: bool) -> Call:
    if call.id in done:
        return replace(call, stage=Stage.DONE, output=done[call.id], ran=call.tool is not None)
    if begun and call.tool is not None:
        return replace(call, stage=Stage.UNKNOWN, output=None)
    undone = call.stage is Stage.JUDGING or (waits and call.stage is not Stage.HANDOFF)
    return replace(call, stage=Stage.WAITING, output=None) if undone else call

"""Agents of a RunState and of the graph, and the sticky decisions stored for each.

`resolve_agent_identities` maps the agents of a document to the graph by handoffs and tools, because the
SDK's numbers of agents with one name cannot be recomputed.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from convo.agents.graph import Graph
from convo.agents.handoffs import build_handoff_tools
from convo.errors import InputFault, InvalidRunState, NotFound
from convo.history.items import Json
from convo.runs.state import Run
from convo.runstate.document import format_path, get_path, iter_path_matches, parse_path_pattern, replace_path
from convo.runstate.format import (
    AGENT_MEMBERS,
    RUN_ITEM_PATTERNS,
    ApprovalVerdict,
    LocatedRecord,
    add_verdict,
    get_rejection_message,
    get_sticky_decision,
)
from convo.runstate.identity import StateCall
from convo.runstate.run_items import CONVO_IDENTITY_PREFIX, GraphAgent, build_sticky_call
from convo.runstate.state import RunState
from convo.runstate.versions import LEDGER_SINCE, find_record_slots
from convo.tools.tool import Lookup, toolbox

OWN_RUN_ITEM_PATTERNS = tuple(
    parse_path_pattern(holder) for holder in RUN_ITEM_PATTERNS if not holder.endswith("interruptions[]")
)
"""Places of the run's own run items; an interruption can belong to an agent used as a tool."""

FUNCTION_APPROVAL_PATTERN = parse_path_pattern("context.function_tool_approvals[]")


def get_agent_identity(reference: Json) -> str:
    """Return the identity of an agent in a state: its name, or `Name#2`."""
    return str(reference.get("identity") or reference["name"])


def resolve_agent_identities(document: Json, graph: Graph, can_be_current: Callable[[str], bool]) -> dict[str, str]:
    """Map the identities in a state to those of the graph; an ambiguous one is left out.

    can_be_current:  whether an agent of the graph can be the current one, by the tools of its calls

    Raises NotFound for an agent that the graph lacks, and InputFault if several agents can be the current one.
    """
    names = {get_agent_identity(one): str(one["name"]) for one in _iter_agent_references(document)}
    candidates = {said: _find_agents_by_name(graph, name) for said, name in names.items()}
    known = {said: only[0] for said, only in candidates.items() if len(only) == 1}
    own = {said: said.removeprefix(CONVO_IDENTITY_PREFIX) for said in names if said.startswith(CONVO_IDENTITY_PREFIX)}
    known |= {said: identity for said, identity in own.items() if identity in candidates[said]}
    shown = _resolve_by_handoffs(document, graph, known)
    current = get_agent_identity(document["current_agent"])
    if current not in known:
        fitting = [one for one in candidates[current] if can_be_current(one) and shown.get(current) in (None, one)]
        known[current] = _require_single_agent(fitting, names[current])
    for said, name in names.items():
        if said not in known and said in shown:
            known[said] = shown[said]
        left = [one for one in candidates[said] if one not in known.values()]
        if said not in known and len(left) == 1 and len(candidates[said]) == list(names.values()).count(name):
            known[said] = left[0]
    return known


def _iter_agent_references(document: Json) -> Iterator[Json]:
    yield document["current_agent"]
    for steps in OWN_RUN_ITEM_PATTERNS:
        for item in iter_path_matches(document, steps):
            yield from (item.value[key] for key in AGENT_MEMBERS if isinstance(item.value.get(key), dict))
    for record in iter_path_matches(document, FUNCTION_APPROVAL_PATTERN):
        yield record.value["agent"]


def _find_agents_by_name(graph: Graph, name: str) -> list[str]:
    """Return the identities of all agents with a name. Raises NotFound."""
    same = [identity for identity, agent in graph.agents.items() if agent.name == name]
    if not same:
        raise NotFound(
            "agent", name, hint=f"add this agent, which the state needs; known agents: {', '.join(graph.agents)}"
        )
    return same


def _resolve_by_handoffs(document: Json, graph: Graph, known: dict[str, str]) -> dict[str, str]:
    """Map the target of each completed handoff to the graph; the last handoff to an identity counts."""
    led: dict[str, str] = {}
    called: dict[str, str] = {}
    for item in document.get("session_items") or document.get("generated_items") or ():
        raw, source, target = item["raw_item"], item.get("source_agent"), item.get("target_agent")
        if item.get("type") == "handoff_call_item":
            called[str(raw.get("call_id"))] = str(raw.get("name"))
        elif isinstance(source, dict) and isinstance(target, dict):
            giver = known.get(get_agent_identity(source)) or led.get(get_agent_identity(source))
            name = called.get(str(raw.get("call_id")))
            to = (
                next((one.target for one in build_handoff_tools(graph, giver) if one.name == name), None)
                if giver
                else None
            )
            if to is not None:
                led[get_agent_identity(target)] = to
    return led


def _require_single_agent(fitting: list[str], name: str) -> str:
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise NotFound("agent", name, hint="add the tools that the state calls to an agent with this name")
    raise InputFault(
        f"{len(fitting)} agents are named {name!r}, and the state does not identify the one that continues",
        hint="give each agent a unique name",
    )


StickyDecisions: TypeAlias = dict[tuple[str, Lookup], ApprovalVerdict]


def write_sticky_decisions(state: RunState, run: Run) -> RunState:
    """Return `state` with the sticky decisions of `run`."""
    for (agent, lookup), approve in run.sticky_decisions.items():
        call = build_sticky_call(lookup, GraphAgent(run.graph, agent).reference)
        document, slots = find_record_slots(state.version, state.document, call, always=True)
        for slot in slots:
            if slot.can_be_sticky:
                record = get_path(document, slot.steps) or {}
                words = run.sticky_rejection_messages.get((agent, lookup))
                lasting = add_verdict(record, (), ApprovalVerdict(approve, words, always=True), call.scope_digest())
                document = replace_path(document, slot.steps, lasting)
                state = RunState(document, state.version)
    return state


def read_sticky_decisions(state: RunState, graph: Graph, known: Mapping[str, str]) -> StickyDecisions:
    """Return the sticky decisions of a state, by agent and tool of the graph, without those of nested states.

    known:  identities in the state -> identities of the graph

    Raises InvalidRunState if the digest of a decision is not that of the tool it names.
    """
    found: StickyDecisions = {}
    for holder, kept in state.records:
        verdict = get_sticky_decision(kept.record)
        if holder or kept.is_duplicate or verdict is None:
            continue
        tools = (
            _iter_hosted_tools(state, graph, kept)
            if kept.is_hosted
            else _iter_function_tools(state, graph, known, kept)
        )
        words = None if verdict else get_rejection_message(kept.record, None)
        found.update((one, ApprovalVerdict(verdict, words, always=True)) for one in tools)
    return found


def _iter_hosted_tools(state: RunState, graph: Graph, kept: LocatedRecord) -> Iterator[tuple[str, Lookup]]:
    said = get_path(state.document, (*kept.steps[:-1], "identity"))
    if said.get("type") == "server_tool":
        yield from ((agent, ("mcp", str(said.get("server_label")), kept.key)) for agent in graph.agents)


def _iter_function_tools(
    state: RunState, graph: Graph, known: Mapping[str, str], kept: LocatedRecord
) -> Iterator[tuple[str, Lookup]]:
    """Iterate over the tools of a record. Raises InvalidRunState for the digest of another tool."""
    owner = known.get(get_agent_identity(kept.agent)) if kept.agent else None
    owners = list(graph.agents) if kept.agent is None else [owner] if owner else []
    for agent in owners:
        for lookup, tool in toolbox(graph[agent].functions).tools.items():
            call: StateCall = build_sticky_call(lookup, None)
            if kept.key not in call.record_keys:
                continue
            if state.version.number >= LEDGER_SINCE.number and kept.record.get("sticky_scope") != call.scope_digest():
                raise InvalidRunState(
                    format_path((*kept.steps, "sticky_scope")), f"is not the digest of tool {tool.title}"
                )
            yield agent, lookup

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
    APPROVAL_ITEM,
    RUN_ITEM_PATTERNS,
    ApprovalVerdict,
    LocatedRecord,
    add_verdict,
    get_rejection_message,
    get_sticky_decision,
)
from convo.runstate.identity import StateCall
from convo.runstate.run_items import CONVO_IDENTITY_PREFIX, GraphAgent, build_sticky_call
from convo.runstate.run_state import RunState
from convo.runstate.versions import LEDGER_SINCE, find_record_slots
from convo.tools.tool import Lookup, toolbox

OWN_RUN_ITEM_PATTERNS = tuple(
    parse_path_pattern(pattern) for pattern in RUN_ITEM_PATTERNS if not pattern.endswith("interruptions[]")
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
    names = {get_agent_identity(reference): str(reference["name"]) for reference in _iter_agent_references(document)}
    candidates = {state_identity: _find_agents_by_name(graph, name) for state_identity, name in names.items()}
    known = {state_identity: matches[0] for state_identity, matches in candidates.items() if len(matches) == 1}
    convo_identities = {
        state_identity: state_identity.removeprefix(CONVO_IDENTITY_PREFIX)
        for state_identity in names
        if state_identity.startswith(CONVO_IDENTITY_PREFIX)
    }
    known |= {
        state_identity: identity
        for state_identity, identity in convo_identities.items()
        if identity in candidates[state_identity]
    }
    by_handoff = _resolve_by_handoffs(document, graph, known)
    current = get_agent_identity(document["current_agent"])
    if current not in known:
        possible = [
            candidate
            for candidate in candidates[current]
            if can_be_current(candidate) and by_handoff.get(current) in (None, candidate)
        ]
        known[current] = _require_single_agent(possible, names[current])
    for state_identity, name in names.items():
        if state_identity not in known and state_identity in by_handoff:
            known[state_identity] = by_handoff[state_identity]
        remaining = [candidate for candidate in candidates[state_identity] if candidate not in known.values()]
        if (
            state_identity not in known
            and len(remaining) == 1
            and len(candidates[state_identity]) == list(names.values()).count(name)
        ):
            known[state_identity] = remaining[0]
    return known


def _iter_agent_references(document: Json) -> Iterator[Json]:
    yield document["current_agent"]
    for steps in OWN_RUN_ITEM_PATTERNS:
        for item in iter_path_matches(document, steps):
            if item.value.get("type") == APPROVAL_ITEM:  # can be of an agent used as a tool, too
                continue
            yield from (item.value[key] for key in AGENT_MEMBERS if isinstance(item.value.get(key), dict))
    for record in iter_path_matches(document, FUNCTION_APPROVAL_PATTERN):
        yield record.value["agent"]


def _find_agents_by_name(graph: Graph, name: str) -> list[str]:
    """Return the identities of all agents with a name. Raises NotFound."""
    identities = [identity for identity, agent in graph.agents.items() if agent.name == name]
    if not identities:
        raise NotFound(
            "agent", name, hint=f"add this agent, which the state needs; known agents: {', '.join(graph.agents)}"
        )
    return identities


def _resolve_by_handoffs(document: Json, graph: Graph, identities: dict[str, str]) -> dict[str, str]:
    """Map the target of each completed handoff to the graph; the last handoff to an identity counts."""
    targets: dict[str, str] = {}
    handoff_names: dict[str, str] = {}
    for item in document.get("session_items") or document.get("generated_items") or ():
        raw, source, target = item["raw_item"], item.get("source_agent"), item.get("target_agent")
        if item.get("type") == "handoff_call_item":
            handoff_names[str(raw.get("call_id"))] = str(raw.get("name"))
        elif isinstance(source, dict) and isinstance(target, dict):
            source_identity = identities.get(get_agent_identity(source)) or targets.get(get_agent_identity(source))
            name = handoff_names.get(str(raw.get("call_id")))
            target_identity = (
                next((tool.target for tool in build_handoff_tools(graph, source_identity) if tool.name == name), None)
                if source_identity
                else None
            )
            if target_identity is not None:
                targets[get_agent_identity(target)] = target_identity
    return targets


def _require_single_agent(matches: list[str], name: str) -> str:
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise NotFound("agent", name, hint="add the tools that the state calls to an agent with this name")
    raise InputFault(
        f"{len(matches)} agents are named {name!r}, and the state does not identify the one that continues",
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
                message = run.sticky_rejection_messages.get((agent, lookup))
                updated = add_verdict(record, (), ApprovalVerdict(approve, message, always=True), call.scope_digest())
                document = replace_path(document, slot.steps, updated)
                state = RunState(document, state.version)
    return state


def read_sticky_decisions(state: RunState, graph: Graph, identities: Mapping[str, str]) -> StickyDecisions:
    """Return the sticky decisions of a state, by agent and tool of the graph, without those of nested states.

    identities:  identities in the state -> identities of the graph

    Raises InvalidRunState if the digest of a decision is not that of the tool it names.
    """
    decisions: StickyDecisions = {}
    for state_path, located in state.records:
        verdict = get_sticky_decision(located.record)
        if state_path or located.is_duplicate or verdict is None:
            continue
        tools = (
            _iter_hosted_tools(state, graph, located)
            if located.is_hosted
            else _iter_function_tools(state, graph, identities, located)
        )
        message = None if verdict else get_rejection_message(located.record, None)
        decisions.update((tool_key, ApprovalVerdict(verdict, message, always=True)) for tool_key in tools)
    return decisions


def _iter_hosted_tools(state: RunState, graph: Graph, located_record: LocatedRecord) -> Iterator[tuple[str, Lookup]]:
    identity = get_path(state.document, (*located_record.steps[:-1], "identity"))
    if identity.get("type") == "server_tool":
        yield from ((agent, ("mcp", str(identity.get("server_label")), located_record.key)) for agent in graph.agents)


def _iter_function_tools(
    state: RunState, graph: Graph, identities: Mapping[str, str], located_record: LocatedRecord
) -> Iterator[tuple[str, Lookup]]:
    """Iterate over the tools of a record. Raises InvalidRunState for the digest of another tool."""
    owner = identities.get(get_agent_identity(located_record.agent)) if located_record.agent else None
    owners = list(graph.agents) if located_record.agent is None else [owner] if owner else []
    for agent in owners:
        for lookup, tool in toolbox(graph[agent].functions).tools.items():
            call: StateCall = build_sticky_call(lookup, None)
            if located_record.key not in call.record_keys:
                continue
            if (
                state.version.number >= LEDGER_SINCE.number
                and located_record.record.get("sticky_scope") != call.scope_digest()
            ):
                raise InvalidRunState(
                    format_path((*located_record.steps, "sticky_scope")), f"is not the digest of tool {tool.title}"
                )
            yield agent, lookup

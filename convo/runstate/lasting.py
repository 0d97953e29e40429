"""Decisions that hold for good: from a run into a state, and from a state into a run.

A run keeps them by agent and tool. A state keeps them under the agent from 1.18 on, tied to the
tool by its digest from 1.15 on; before that one holds for every agent with such a tool.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from convo.agents import Graph
from convo.errors import BadState
from convo.run import Run
from convo.runstate import records
from convo.runstate.identity import Call
from convo.runstate.paths import at, path, replaced
from convo.runstate.records import Kept, Verdict, noted
from convo.runstate.run_items import Speaker, bound
from convo.runstate.state import State
from convo.runstate.versions import BOUND, room
from convo.runstate.whose import identity_in
from convo.tools import Lookup, toolbox

Always: TypeAlias = dict[tuple[str, Lookup], Verdict]


def for_good(state: State, run: Run) -> State:
    """`state` with the run's decisions for good."""
    for (agent, lookup), approve in run.always.items():
        call = bound(lookup, Speaker(run.graph, agent).reference)
        document, slots = room(state.version, state.document, call, always=True)
        for slot in slots:
            if slot.for_good:
                record = at(document, slot.steps) or {}
                words = run.reasons.get((agent, lookup))
                lasting = noted(record, (), Verdict(approve, words, always=True), call.scope())
                document = replaced(document, slot.steps, lasting)
                state = State(document, state.version)
    return state


def always(state: State, graph: Graph, known: Mapping[str, str]) -> Always:
    """The decisions for good of a state, by agent and tool of the graph; those of an inner state are its own.

    known:   the graph's identity for each that the state speaks of
    raises:  BadState  a decision is tied to another tool than the one that it names
    """
    found: Always = {}
    for holder, kept in state.records:
        verdict = records.for_good(kept.record)
        if holder or kept.echo or verdict is None:
            continue
        tools = _hosted(state, graph, kept) if kept.hosted else _functions(state, graph, known, kept)
        words = None if verdict else records.message(kept.record, None)
        found.update((one, Verdict(verdict, words, always=True)) for one in tools)
    return found


def _hosted(state: State, graph: Graph, kept: Kept) -> Iterator[tuple[str, Lookup]]:
    said = at(state.document, (*kept.steps[:-1], "identity"))
    if said.get("type") == "server_tool":
        yield from ((agent, ("mcp", str(said.get("server_label")), kept.key)) for agent in graph.agents)


def _functions(state: State, graph: Graph, known: Mapping[str, str], kept: Kept) -> Iterator[tuple[str, Lookup]]:
    """The tools that a record speaks of. raises: BadState"""
    owner = known.get(identity_in(kept.agent)) if kept.agent else None
    owners = list(graph.agents) if kept.agent is None else [owner] if owner else []
    for agent in owners:
        for lookup, tool in toolbox(graph[agent].functions).tools.items():
            call: Call = bound(lookup, None)
            if kept.key not in call.keys:
                continue
            if state.version.number >= BOUND.number and kept.record.get("sticky_scope") != call.scope():
                raise BadState(path((*kept.steps, "sticky_scope")), f"is the digest of another tool than {tool.title}")
            yield agent, lookup

"""Handoff tools, and what applies at a handoff: an input filter, a nested history, or nothing.

A handoff is a function tool, `transfer_to_` and the agent's name; its output names the next agent as JSON. If the
server owns the history, a filter raises WrongOwner and nesting is skipped with a warning.
"""

import json
import re
from collections.abc import Callable, Container
from dataclasses import dataclass

from convo.agents.agent import Handoff
from convo.agents.graph import Graph
from convo.agents.handoff_history import DEFAULT_HISTORY_MARKERS, HistoryMapper, HistoryMarkers
from convo.errors import InputFault, WrongOwner
from convo.history.items import Json

IGNORED_HANDOFF_OUTPUT = "Multiple handoffs detected, ignoring this one."

EMPTY_PARAMETERS: dict[str, Json] = {"additionalProperties": False, "type": "object", "properties": {}, "required": []}


@dataclass(frozen=True, slots=True)
class HandoffTool:
    """One handoff as its model sees it.

    to:  the next agent's identity
    """

    way: Handoff
    to: str
    name: str
    definition: dict[str, Json]


def make_handoff_tool_name(agent: str) -> str:
    """`transfer_to_billing_agent` for the agent "Billing agent"."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", f"transfer_to_{agent}").lower()


def format_handoff_output(agent: str) -> str:
    """The output of a handoff's call: who goes on, by name."""
    return json.dumps({"assistant": agent})


def build_handoff_tools(graph: Graph, identity: str, off: Container[str] = ()) -> tuple[HandoffTool, ...]:
    """The handoffs of an agent, as tools.

    off:     identities to whom it may not hand over now
    raises:  InputFault  two tools of one name
    """
    agent = graph[identity]
    made = tuple(_build_handoff_tool(graph, way) for way in agent.ways if way.to not in off)
    taken = {tool.name for tool in agent.functions if tool.namespace is None}
    for offer in made:
        if offer.name in taken:
            raise InputFault(
                f"agent {agent.name!r} has two tools called {offer.name!r}",
                hint="give one of the handoffs a tool_name",
            )
        taken.add(offer.name)
    return made


def _build_handoff_tool(graph: Graph, way: Handoff) -> HandoffTool:
    to = str(way.to)
    target = graph[to]
    name = way.tool_name or make_handoff_tool_name(target.name)
    words = way.description or f"Handoff to the {target.name} agent to handle the request. {target.description}"
    definition = {
        "type": "function",
        "name": name,
        "description": words,
        "parameters": dict(way.parameters or EMPTY_PARAMETERS),
        "strict": way.strict,
    }
    return HandoffTool(way, to, name, definition)


@dataclass(frozen=True, slots=True)
class HandoffDefaults:
    """How a run hands over, where a handoff does not say.

    nest:    the history becomes a summary
    mapper:  makes the summary; None: ours
    filter:  for every handoff without one of its own
    """

    nest: bool = False
    mapper: HistoryMapper | None = None
    filter: Callable[..., object] | None = None
    markers: HistoryMarkers = DEFAULT_HISTORY_MARKERS


@dataclass(frozen=True, slots=True)
class HandoffPlan:
    """What to do at one handoff; at most one of filter and nest.

    warning:  what a person should know, in words
    """

    filter: Callable[..., object] | None = None
    nest: bool = False
    warning: str | None = None


def plan_handoff(way: Handoff, habits: HandoffDefaults, *, remembers: bool, names: tuple[str, str]) -> HandoffPlan:
    """Decide over one handoff.

    remembers:  the owner holds the history itself
    names:      who hands over to whom, for the words
    raises:     WrongOwner  a filter, under an owner that remembers
    """
    chosen = habits.filter if way.filter is None else way.filter
    nest = habits.nest if way.nest is None else way.nest
    if not remembers:
        return HandoffPlan(filter=chosen, nest=nest and chosen is None)
    whom = " -> ".join(names)
    if chosen is not None:
        raise WrongOwner(
            f"the handoff {whom} has an input filter, and the history belongs to the endpoint",
            hint="take the filter out, or own the history with --session or --replay",
        )
    warning = f"the handoff {whom} goes on without a summary: the history belongs to the endpoint" if nest else None
    return HandoffPlan(warning=warning)

"""Handoff tools, and the plan of a handoff: an input filter, a nested history, or the history unchanged.

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
    """One handoff as a tool in a request.

    target:  the identity of the next agent
    """

    handoff: Handoff
    target: str
    name: str
    definition: dict[str, Json]


def _make_handoff_tool_name(agent: str) -> str:
    """Return the default name of a handoff tool: `transfer_to_billing_agent` for the agent "Billing agent"."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", f"transfer_to_{agent}").lower()


def format_handoff_output(agent: str) -> str:
    """Return the output of a handoff call: JSON with the name of the next agent."""
    return json.dumps({"assistant": agent})


def build_handoff_tools(graph: Graph, identity: str, disabled: Container[str] = ()) -> tuple[HandoffTool, ...]:
    """Build the tools for the handoffs of an agent.

    disabled:  identities of agents to which a handoff is not allowed now

    Raises InputFault for two tools of one name.
    """
    agent = graph[identity]
    handoff_tools = tuple(_build_handoff_tool(graph, handoff) for handoff in agent.ways if handoff.to not in disabled)
    taken_names = {tool.name for tool in agent.functions if tool.namespace is None}
    for handoff_tool in handoff_tools:
        if handoff_tool.name in taken_names:
            raise InputFault(
                f"agent {agent.name!r} has two tools named {handoff_tool.name!r}",
                hint="set tool_name on one of the handoffs",
            )
        taken_names.add(handoff_tool.name)
    return handoff_tools


def _build_handoff_tool(graph: Graph, handoff: Handoff) -> HandoffTool:
    identity = str(handoff.to)
    target = graph[identity]
    name = handoff.tool_name or _make_handoff_tool_name(target.name)
    description = (
        handoff.description or f"Handoff to the {target.name} agent to handle the request. {target.description}"
    )
    definition = {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": dict(handoff.parameters or EMPTY_PARAMETERS),
        "strict": handoff.strict,
    }
    return HandoffTool(handoff, identity, name, definition)


@dataclass(frozen=True, slots=True)
class HandoffDefaults:
    """Settings of a run for handoffs that do not set their own.

    nest:    the history becomes a summary
    mapper:  builds the input from the flat transcript; None: the default summary
    filter:  for every handoff without its own filter
    """

    nest: bool = False
    mapper: HistoryMapper | None = None
    filter: Callable[..., object] | None = None
    markers: HistoryMarkers = DEFAULT_HISTORY_MARKERS


@dataclass(frozen=True, slots=True)
class HandoffPlan:
    """The steps at one handoff; at most one of filter and nest.

    warning:  a message for the user
    """

    filter: Callable[..., object] | None = None
    nest: bool = False
    warning: str | None = None


def plan_handoff(
    handoff: Handoff, defaults: HandoffDefaults, *, is_server_history: bool, agent_names: tuple[str, str]
) -> HandoffPlan:
    """Decide how one handoff is performed.

    is_server_history:  the server owns the history
    agent_names:        the previous and the next agent, for messages

    Raises WrongOwner for a filter if the server owns the history.
    """
    input_filter = defaults.filter if handoff.filter is None else handoff.filter
    nest = defaults.nest if handoff.nest is None else handoff.nest
    if not is_server_history:
        return HandoffPlan(filter=input_filter, nest=nest and input_filter is None)
    names = " -> ".join(agent_names)
    if input_filter is not None:
        raise WrongOwner(
            f"the handoff {names} has an input filter, but the endpoint stores the history",
            hint="remove the filter, or keep the history locally with --session or --replay",
        )
    warning = f"the handoff {names} continues without a summary: the endpoint stores the history" if nest else None
    return HandoffPlan(warning=warning)

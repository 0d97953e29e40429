"""The tools by which a model hands over.

A handoff is a call like any other to the model: `transfer_to_` and the next agent's name. Its
output says who goes on, as JSON. Where a model calls several at once, the first one is taken and
the others are told so.
"""

import json
import re
from collections.abc import Container
from dataclasses import dataclass

from convo.agents import Graph, Handoff
from convo.errors import InputFault
from convo.items import Json

IGNORED = "Multiple handoffs detected, ignoring this one."

NOTHING: dict[str, Json] = {"additionalProperties": False, "type": "object", "properties": {}, "required": []}


@dataclass(frozen=True, slots=True)
class Offer:
    """One handoff as its model sees it.

    to:  the next agent's identity
    """

    way: Handoff
    to: str
    name: str
    definition: dict[str, Json]


def tool_name(agent: str) -> str:
    """`transfer_to_billing_agent` for the agent "Billing agent"."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", f"transfer_to_{agent}").lower()


def transferred(agent: str) -> str:
    """The output of a handoff's call: who goes on, by name."""
    return json.dumps({"assistant": agent})


def offers(graph: Graph, identity: str, off: Container[str] = ()) -> tuple[Offer, ...]:
    """The handoffs of an agent, as tools.

    off:     identities to whom it may not hand over now
    raises:  InputFault  two tools of one name
    """
    agent = graph[identity]
    made = tuple(_offer(graph, way) for way in agent.ways if way.to not in off)
    taken = {tool.name for tool in agent.functions if tool.namespace is None}
    for offer in made:
        if offer.name in taken:
            raise InputFault(
                f"agent {agent.name!r} has two tools called {offer.name!r}",
                hint="give one of the handoffs a tool_name",
            )
        taken.add(offer.name)
    return made


def _offer(graph: Graph, way: Handoff) -> Offer:
    to = str(way.to)
    target = graph[to]
    name = way.tool_name or tool_name(target.name)
    words = way.description or f"Handoff to the {target.name} agent to handle the request. {target.description}"
    definition = {
        "type": "function",
        "name": name,
        "description": words,
        "parameters": dict(way.parameters or NOTHING),
        "strict": way.strict,
    }
    return Offer(way, to, name, definition)

"""Which agent of a graph a state means.

A state names agents, and where several share a name it numbers them by an order that only the
Agents SDK computes, or, in a state that convo wrote for itself, by that of the graph. So the SDK's
number says nothing here, and what happened is looked at instead: a
handoff leads to one agent of the graph, whatever its number there, and a call is of a tool that
only some of them have. What is still open then is refused: a run must not go on as somebody else.
"""

from collections.abc import Callable, Iterator

from convo.agents import Graph
from convo.errors import InputFault, NotFound
from convo.handoffs import offers
from convo.items import Json
from convo.runstate.paths import found, pattern
from convo.runstate.run_items import OWN
from convo.runstate.version import ITEM_LISTS

ITEMS = tuple(pattern(holder) for holder in ITEM_LISTS if not holder.endswith("interruptions[]"))
"""Where run items stand that are this run's own; what waits may wait in an agent used as a tool."""

AGENTS = ("agent", "source_agent", "target_agent")
OWNED = pattern("context.function_tool_approvals[]")


def identity_in(reference: Json) -> str:
    """The identity under which a state knows an agent: its name, or `Name#2`."""
    return str(reference.get("identity") or reference["name"])


def identities(document: Json, graph: Graph, fits: Callable[[str], bool]) -> dict[str, str]:
    """The graph's identity for each that a state speaks of; one that cannot be told apart is left out.

    fits:    whether an agent of the graph could be the one whose turn it is, by the tools of its calls
    raises:  NotFound    an agent that the graph does not have
             InputFault  several could be the one whose turn it is
    """
    names = {identity_in(one): str(one["name"]) for one in _references(document)}
    candidates = {said: _called(graph, name) for said, name in names.items()}
    known = {said: only[0] for said, only in candidates.items() if len(only) == 1}
    own = {said: said.removeprefix(OWN) for said in names if said.startswith(OWN)}
    known |= {said: identity for said, identity in own.items() if identity in candidates[said]}
    shown = _by_handoffs(document, graph, known)
    current = identity_in(document["current_agent"])
    if current not in known:
        fitting = [one for one in candidates[current] if fits(one) and shown.get(current) in (None, one)]
        known[current] = _only(fitting, names[current])
    for said, name in names.items():
        if said not in known and said in shown:
            known[said] = shown[said]
        left = [one for one in candidates[said] if one not in known.values()]
        if said not in known and len(left) == 1 and len(candidates[said]) == list(names.values()).count(name):
            known[said] = left[0]
    return known


def _references(document: Json) -> Iterator[Json]:
    yield document["current_agent"]
    for steps in ITEMS:
        for item in found(document, steps):
            yield from (item.value[key] for key in AGENTS if isinstance(item.value.get(key), dict))
    for record in found(document, OWNED):
        yield record.value["agent"]


def _called(graph: Graph, name: str) -> list[str]:
    """The identities of the agents of a name. raises: NotFound"""
    same = [identity for identity, agent in graph.agents.items() if agent.name == name]
    if not same:
        raise NotFound("agent", name, hint=f"the state needs it; there are {', '.join(graph.agents)}")
    return same


def _by_handoffs(document: Json, graph: Graph, known: dict[str, str]) -> dict[str, str]:
    """Where the handoffs that happened led: the last one to an identity counts."""
    led: dict[str, str] = {}
    called: dict[str, str] = {}
    for item in document.get("session_items") or document.get("generated_items") or ():
        raw, source, target = item["raw_item"], item.get("source_agent"), item.get("target_agent")
        if item.get("type") == "handoff_call_item":
            called[str(raw.get("call_id"))] = str(raw.get("name"))
        elif isinstance(source, dict) and isinstance(target, dict):
            giver = known.get(identity_in(source)) or led.get(identity_in(source))
            name = called.get(str(raw.get("call_id")))
            to = next((one.to for one in offers(graph, giver) if one.name == name), None) if giver else None
            if to is not None:
                led[identity_in(target)] = to
    return led


def _only(fitting: list[str], name: str) -> str:
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise NotFound("agent", name, hint="none of that name has the tools that the state calls")
    raise InputFault(
        f"{len(fitting)} agents are called {name!r}, and the state does not tell which of them goes on",
        hint="give each agent a name of its own",
    )

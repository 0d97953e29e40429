"""What the next agent's model sees: everything, what a filter leaves, or a summary.

Only where the client owns the history is there something to choose. What it makes is a view: the
conversation itself keeps every item.
"""

import copy

from convo.agents import Graph, Handoff
from convo.engine.standing import Standing, View, view_of
from convo.engine.theirs import told_by
from convo.errors import NotFound
from convo.handoffs import Habits, Plan, Transcript, nested, offers, passed_on, plan
from convo.history import Path
from convo.run import HandOver
from convo.tools import Context


def way_of(graph: Graph, effect: HandOver) -> Handoff:
    """The handoff that a call takes. raises: NotFound"""
    name = effect.call.lookup[-1]
    for offer in offers(graph, effect.source):
        if (offer.name, offer.to) == (name, effect.target):
            return offer.way
    raise NotFound("handoff", name, hint=f"agent {effect.source!r} had it when the run was kept")


def planned(graph: Graph, effect: HandOver, habits: Habits, *, remembers: bool) -> Plan:
    """What applies. raises: WrongOwner  a filter, under an owner that remembers"""
    names = graph[effect.source].name, graph[effect.target].name
    return plan(way_of(graph, effect), habits, remembers=remembers, names=names)


async def tell(way: Handoff, effect: HandOver, context: Context) -> None:
    """Tell the handoff's own function what the model said. raises: RunFailed"""
    if way.taken is not None:
        what = f"the handoff to {effect.target!r}"
        await told_by(what, "handoff", way.taken, context, effect.call.arguments, thread=True)


async def view(todo: Plan, habits: Habits, standing: Standing, path: Path) -> View | None:
    """What the next agent's model sees in place of the conversation at `path`; None: as before.

    raises:  RunFailed, InputFault  a filter or mapper raised, or returned something else
    """
    if todo.filter is None and not todo.nest:
        return standing.view
    transcript = _transcript(standing, path)
    if todo.filter is not None:
        made = await told_by("a handoff's input filter", "handoff", todo.filter, transcript, thread=True)
        return view_of(passed_on(made), path)
    mapper = habits.mapper
    if mapper is None:
        return view_of(nested(transcript, markers=habits.markers), path)
    items = await told_by("the history mapper", "handoff", nested, transcript, mapper, habits.markers, thread=True)
    return view_of(items, path)


def _transcript(standing: Standing, path: Path) -> Transcript:
    """The conversation in three parts, copied: what a person wrote may change what it is given."""
    new = len(path) - path.place(standing.turn)
    seen, begun = path.items, path.place(standing.begun)
    if standing.view:
        view = standing.view.behind(path)
        seen, begun = view.path.items, view.history
    split = max(len(seen) - new, begun)
    return Transcript(*copy.deepcopy((seen[:begun], seen[begun:split], seen[split:])))

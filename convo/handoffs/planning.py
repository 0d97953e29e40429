"""What applies at a handoff: a filter, a summary or nothing, and under which owner.

An owner that remembers is sent what it lacks and nothing else; a history that it already has
cannot be rewritten from here. So a filter is refused under it, and a summary is left out and the
person told. A handoff's own word comes before the run's.
"""

from collections.abc import Callable
from dataclasses import dataclass

from convo.agents import Handoff
from convo.errors import WrongOwner
from convo.handoffs.nesting import Mapper
from convo.handoffs.summary import MARKERS, Markers


@dataclass(frozen=True, slots=True)
class Habits:
    """How a run hands over, where a handoff does not say.

    nest:    the history becomes a summary
    mapper:  makes the summary; None: ours
    filter:  for every handoff without one of its own
    """

    nest: bool = False
    mapper: Mapper | None = None
    filter: Callable[..., object] | None = None
    markers: Markers = MARKERS


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do at one handoff; at most one of filter and nest.

    warning:  what a person should know, in words
    """

    filter: Callable[..., object] | None = None
    nest: bool = False
    warning: str | None = None


def plan(way: Handoff, habits: Habits, *, remembers: bool, names: tuple[str, str]) -> Plan:
    """Decide over one handoff.

    remembers:  the owner holds the history itself
    names:      who hands over to whom, for the words
    raises:     WrongOwner  a filter, under an owner that remembers
    """
    chosen = habits.filter if way.filter is None else way.filter
    nest = habits.nest if way.nest is None else way.nest
    if not remembers:
        return Plan(filter=chosen, nest=nest and chosen is None)
    whom = " -> ".join(names)
    if chosen is not None:
        raise WrongOwner(
            f"the handoff {whom} has an input filter, and the history belongs to the endpoint",
            hint="take the filter out, or own the history with --session or --replay",
        )
    warning = f"the handoff {whom} goes on without a summary: the history belongs to the endpoint" if nest else None
    return Plan(warning=warning)

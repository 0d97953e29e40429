"""Sessions on a screen: the list of them, one record, and what a search found.

The list is waited for most often: what only the others need is imported by them.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from convo.engine.glance import Glance
from convo.history import OWNERS, Session
from convo.items import Item
from convo.ui.answer import safe
from convo.ui.medium import Medium
from convo.ui.table import Column, fitted, lines

if TYPE_CHECKING:
    from convo.inspection.open_run import OpenRun


class Place(NamedTuple):
    """Where a search found something.

    at:    the item's number on its path
    of:    how many items the session has; None when the item is on a branch that was left
    who:   the item's role, or its kind
    """

    session: Session
    at: int
    of: int | None
    who: str
    snippet: str

    def __str__(self) -> str:
        return f"{self.at}/{self.of}" if self.of else f"{self.at}, on a branch"


def listed(glances: Sequence[Glance], medium: Medium) -> str:
    """A line for each session."""
    sessions = [one.session for one in glances]
    columns = [
        Column("session", [one.name for one in sessions], style="id"),
        Column("owner", [str(one.strategy) for one in sessions], goes=3),
        Column("model", [one.model for one in sessions], goes=0),
        Column("items", [f"{one.items:,}" for one in glances], right=True, goes=2),
        Column("turns", [f"{one.turns:,}" for one in glances], right=True, goes=1),
        Column("used", [when(one.used_at) for one in sessions]),
        Column("first words", [one.words for one in glances]),
    ]
    return medium.drawn("\n".join(lines(fitted(columns, medium), medium)))


def record(glance: Glance, said: Sequence[Item], medium: Medium, run: "OpenRun | None" = None) -> str:
    """Everything that a session's record says.

    said:  what its owner has not confirmed
    run:   of agents, which is open in it
    """
    from convo.ui.labelled import labelled

    name = medium.paint(safe(glance.session.name), "bold")
    return medium.drawn("\n".join([name, *labelled(_facts(glance, said, run), medium)]))


def found(places: Sequence[Place], medium: Medium) -> str:
    """A line for each item that a search found."""
    columns = [
        Column("session", [place.session.name for place in places], style="id"),
        Column("item", [str(place) for place in places]),
        Column("by", [place.who for place in places], goes=0),
        Column("words", [place.snippet for place in places]),
    ]
    return medium.drawn("\n".join(lines(fitted(columns, medium), medium)))


def when(at: float) -> str:
    """A time on this machine's clock, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _facts(glance: Glance, said: Sequence[Item], run: "OpenRun | None") -> list[tuple[str, str]]:
    from convo.ui.labelled import counted, waiting
    from convo.ui.open_run import stands, way_on

    session, on = glance.session, way_on(glance.session, run)
    opened = stands(run) if run else ""
    unread = [*([("waiting", opened)] if opened else []), ("waiting", f"{counted(glance.waiting)} unacknowledged")]
    system = [("system", session.instructions)] if session.instructions else []
    return [
        ("id", session.id),
        ("owner", f"{OWNERS[session.strategy].words} (--{session.strategy})"),
        ("handle", session.handle or "none: its name is its handle"),
        ("endpoint", str(session.scope)),
        ("model", session.model),
        *system,
        ("head", f"{session.head[:12]}, {counted(glance.items)}"),
        ("mark", f"{session.mark[:12]}, {counted(glance.items - glance.waiting)} confirmed"),
        *(waiting(said, opened) if len(said) == glance.waiting else unread),
        ("turns", f"{glance.turns:,}"),
        ("created", when(session.created_at)),
        ("used", when(session.used_at)),
        *([("go on", on)] if on else []),
    ]

"""Everything that was read about one handle, wherever it came from.

The store, a replay file and a remote endpoint know different things, and each of them fills in
one of these. What is shown, on a screen or as JSON, is decided over this value alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from convo.config import Price
from convo.history import Key, Link, Node, Path, Scope, Session, Strategy
from convo.inspection.open_run import OpenRun
from convo.inspection.places import Places


@dataclass(frozen=True, repr=False)  # an event loop spells out what it returns, and this is long
class Known:
    """One conversation as far as it is known.

    handle:    what names it: a session's name, `resp_...`, `conv_...`, or a file
    scope:     the endpoint that its turns go to; None for a file that no record knows
    path:      what the handle stands for, from the first item to its head; empty when it lost an item
    mark:      the last node of `path` that the owner confirmed
    links:     the calls around it, forks included, oldest first
    places:    every node that those links and `path` pass through
    at:        the link at which the handle stands; None where there is none
    session:   the record, when one was named
    names:     the names of the sessions that made the links, by id
    forks:     whether every fork is among the links; an endpoint cannot tell its responses' children
    notes:     what else a person should know, one sentence each
    prices:    what a person said that models cost, by their full names
    lost:      the head of a path that cannot be read because an item on it was deleted
    run:       of agents, which is open in the session: nothing else can be said before it goes on
    """

    handle: str
    strategy: Strategy
    scope: Scope | None
    path: Path
    mark: Key
    links: tuple[Link, ...]
    places: Places
    at: str | None = None
    session: Session | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    forks: bool = True
    notes: tuple[str, ...] = ()
    lost: Key | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    run: OpenRun | None = None

    @property
    def head(self) -> Key:
        """The last node of what the handle stands for."""
        return self.lost or self.path.head

    @property
    def unacknowledged(self) -> tuple[Node, ...]:
        """What was said and not confirmed."""
        return self.path.after(self.mark)

    @property
    def model(self) -> str | None:
        """The model of the record, or of the link at which the handle stands, with its provider."""
        if self.session:
            return self.session.model
        return next((link.model for link in reversed(self.links) if self.at in (link.id, None)), None)

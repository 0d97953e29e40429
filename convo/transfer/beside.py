"""A new session beside what is there, under a name that is free.

Whatever is moved stays where it was, and what comes of it is a session of its own, stored in one
change. Between finding a free name and taking it another process may take it, so several are tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convo.clock import Clock
from convo.engine.naming import free_name
from convo.engine.record import whole
from convo.errors import Conflict
from convo.history import Link, Path, Session
from convo.ids import NewId
from convo.stores.contract import Change, Growth, Store

NAMES = 5
"""Names that are tried, each of which another process may take first."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Where a new session is written: the store, the time and the source of ids."""

    store: Store
    clock: Clock
    new_id: NewId

    async def write(self, session: Session, path: Path, name: str | None, links: Sequence[Link] = ()) -> Session:
        """Store `session`, whose path is `path`, in one change; returns it as it is called there.

        name:    None gives it its own name, with a number where that is taken
        raises:  Conflict  `name` is taken;  StoreFault
        """
        grow = (Growth(path.root, path.items),) if path.items else ()
        for left in reversed(range(NAMES)):
            session = replace(session, name=name or await free_name(self.store, session.name))
            try:
                await whole(self.store.commit(Change(grow=grow, links=tuple(links), session=session, expect=None)))
                break
            except Conflict:
                if name or not left:
                    raise
        return session

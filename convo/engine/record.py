"""A session's record while it is open, and the one way in which it moves.

Whoever decided hands in the state it should have; what has to be stored for it follows from the
difference to the state it had.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakSet

from convo.engine.edges import Edges
from convo.errors import NotFound
from convo.history import Link, Path, Session, Strategy
from convo.items import Item
from convo.stores.contract import AgentCall, AgentRun, Change, Growth, Store
from convo.strategies import Held


@dataclass(frozen=True, slots=True)
class Beside:
    """What becomes so together with a move of the record, all or nothing.

    agent_run, calls:  the run of agents that moved it, and its ledger
    then:              items that stand behind an answer at once: outputs of calls that nothing was run for
    """

    agent_run: AgentRun | None = None
    calls: tuple[AgentCall, ...] = ()
    then: tuple[Item, ...] = ()


NOTHING = Beside()


class Record:
    """One session's record, opened for writing by one process.

    agent_run:  the run of agents that was stored last through it
    """

    def __init__(self, session: Session, path: Path, last: Link | None, edges: Edges, *, saved: bool) -> None:
        """Open a record; `last` is its last confirmed link.

        saved:  whether the store has it; a new one may begin with a history that the store has not
        """
        self.session, self.last = session, last
        self.held = Held(session.strategy, path, session.mark, handle_of(session))
        self._store, self._clock = edges.store, edges.clock
        self._saved, self._stored = saved, path if saved else Path(path.root)
        self._seen = Path(path.root)
        self.agent_run: AgentRun | None = None

    async def move(
        self,
        held: Held,
        *links: Link,
        last: Link | None = None,
        beside: Beside = NOTHING,
        seen: Path | None = None,
    ) -> None:
        """Store `held` and `links` as what is so from now on, all or nothing.

        last:    the link that the owner confirmed with this move
        seen:    a path of its own on which one of `links` stands: its model saw something else than `held`
        raises:  Conflict  another process moved the record;  StoreFault
        """
        await whole(self._move(held, links, last, beside, seen))

    async def _move(
        self, held: Held, links: tuple[Link, ...], last: Link | None, beside: Beside, seen: Path | None
    ) -> None:
        grown = _growth(held.path, self._stored)
        if seen is not None:
            grown += _growth(seen, max(self._stored, self._seen, key=seen.shared))
        last = last or self.last
        session = replace(
            self.session,
            head=held.path.head,
            mark=held.mark,
            handle=self.session.handle if held.strategy is Strategy.REPLAY else held.handle,
            link=last.id if last else None,
            used_at=self._clock.now(),
            use=None,
        )
        await self._save(session, grown, links, beside)
        self.held, self.last, self._stored = held, last, held.path
        self._seen = seen or self._seen
        self.agent_run = beside.agent_run or self.agent_run

    async def note(self, beside: Beside) -> None:
        """Store what is so of a run of agents; the conversation stays as it is. raises: Conflict, StoreFault"""
        await whole(self._note(beside))

    async def _note(self, beside: Beside) -> None:
        await self._store.commit(Change(agent_run=beside.agent_run, calls=beside.calls))
        self.agent_run = beside.agent_run or self.agent_run

    @property
    def saved(self) -> bool:
        """Whether the store has it."""
        return self._saved

    def before(self) -> "Before":
        """How it is now, to be handed to `withdraw`."""
        return Before(self.session, self.held, self.last, self._saved, self._stored)

    async def withdraw(self, before: "Before", attempt: Link | None) -> None:
        """Put the record back to how it was before `attempt`, which asked nobody; the store forgets it."""
        await whole(self._withdraw(before, attempt))

    async def _withdraw(self, before: "Before", attempt: Link | None) -> None:
        if not before.saved:
            await self._store.remove_session(self.session.id)
        else:
            await self._store.commit(Change(session=before.session, expect=self.session.head))
            if attempt:
                await self._store.remove_link(attempt.id)
        self.session, self.held, self.last = before.session, before.held, before.last
        self._saved, self._stored = before.saved, before.stored

    async def is_ours(self) -> bool:
        """Whether the store has the record as this process left it."""
        now = await self._store.session(self.session.id)
        return now is not None and now.head == self.session.head

    async def update(self, session: Session) -> None:
        """Store other fields of the record; its head stays."""
        await whole(self._save(replace(session, used_at=self._clock.now(), use=None)))

    async def _save(
        self, session: Session, grow: tuple[Growth, ...] = (), links: tuple[Link, ...] = (), beside: Beside = NOTHING
    ) -> None:
        expect = self.session.head if self._saved else None
        run = beside.agent_run
        change = Change(grow, links, session=session, expect=expect, agent_run=run, calls=beside.calls)
        await self._store.commit(change)
        self.session, self._saved = session, True


@dataclass(frozen=True, slots=True)
class Before:
    """A record at one moment; `stored` is what of its path the store had."""

    session: Session
    held: Held
    last: Link | None
    saved: bool
    stored: Path


def _growth(path: Path, there: Path) -> tuple[Growth, ...]:
    """What of `path` has to be stored, where `there` is."""
    shared = there.shared(path)
    new = tuple(node.item for node in path.nodes[shared:])
    return (Growth(path.first(shared).head, new),) if new else ()


_CARRYING = WeakSet[asyncio.Task[None]]()
"""The tasks in which something is carried out to its end."""


async def whole(work: Coroutine[Any, Any, None]) -> None:
    """Carry `work` out to its end, and be cancelled only then.

    A store works in a thread that nobody stops: whoever let go of it in the middle would not know
    what it has stored. What is a part of such work is carried out with it.
    """
    if asyncio.current_task() in _CARRYING:
        await work
        return
    task = asyncio.ensure_future(work)
    _CARRYING.add(task)
    stopped: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancelled:
            stopped = cancelled
    task.result()
    if stopped:
        raise stopped


async def reopened(session: Session, edges: Edges) -> Record:
    """The record of a session that the store has. raises: NotFound, ItemDeleted"""
    path, last = await edges.store.path(session.head), await last_link(edges.store, session)
    return Record(session, path, last, edges, saved=True)


def handle_of(session: Session) -> str | None:
    """The handle at the endpoint; a replay file's path is none."""
    return None if session.strategy is Strategy.REPLAY else session.handle


async def last_link(store: Store, session: Session) -> Link | None:
    """The session's last confirmed link. raises: NotFound  the record names one that is gone"""
    if not session.link:
        return None
    link = await store.link(session.link)
    if link is None:
        raise NotFound("response", session.link)
    return link

"""Goes on looking at a conversation that somebody else is carrying on.

Reading a conversation costs its whole length, so it is read again only when it moved. First the store is
asked whether anybody wrote anything at all, which costs next to nothing; then the record of the session, the head of
a conversation of our own endpoint, and which responses there are, with their states. None of them reads an
item. Whoever writes may be any process on any machine that shares the store, or a person who edits a replay
file.
"""

import os
from collections.abc import AsyncGenerator
from typing import NamedTuple

from convo.clock import Clock
from convo.engine.looking import look, look_at_file
from convo.history import Key, Session, Strategy
from convo.inspection import Known
from convo.stores.contract import Store

EVERY_S = 0.5
"""Seconds between two looks."""

UNFINISHED = ("queued", "in_progress")


class Pulse(NamedTuple):
    """What differs when anything of a conversation moved.

    session:  its record, which moves with every word that is said and every answer
    head:     of the conversation at our own endpoint, which other clients move too
    states:   (id, status) of each response that is kin to it
    run:      (id, revision) of the session's newest run of agents
    file:     when its replay file was written, and how long it is
    """

    session: Session | None
    head: Key | None
    states: tuple[tuple[str, str], ...]
    run: tuple[str, int] | None
    file: tuple[int, int] | None


async def watch(store: Store, handle: str, clock: Clock, *, file: bool = False) -> AsyncGenerator[Known, None]:
    """What is known of `handle` now, and again whenever it moved; never ends by itself.

    file:    the handle is the path of a replay file
    raises:  as `look`, the first time; NotFound later when it was removed meanwhile
    """
    read = look_at_file if file else look
    known = await read(store, handle)
    revision = await store.revision()
    before = await pulse(store, known)
    known = await read(store, handle)  # whatever moved while nobody had felt the pulse
    while True:
        yield known
        now = before
        while now == before:
            await clock.sleep(EVERY_S)
            revision, last = await store.revision(), revision
            if revision is None or revision != last or written(known) != before.file:
                now = await pulse(store, known)
        before = now
        known = await read(store, handle)


async def pulse(store: Store, known: Known) -> Pulse:
    """How it stands with what is known, without reading an item of it."""
    session = await store.session(known.session.id) if known.session else None
    owner = session.handle if session else known.handle
    conversation = await store.conversation(owner) if owner and owner.startswith("conv_") else None
    at = session.link if session else known.at
    kin = await store.family(at) if at else ()
    states = tuple((link.id, link.status) for link in kin)
    runs = await store.agent_runs(session=session.id, limit=1) if session else ()
    run = (runs[0].id, runs[0].revision) if runs else None
    return Pulse(session, conversation.head if conversation else None, states, run, written(known))


def written(known: Known) -> tuple[int, int] | None:
    """When the replay file was written, in nanoseconds, and its length; None where there is none."""
    if known.strategy is not Strategy.REPLAY:
        return None
    place = known.session.handle if known.session and known.session.handle else known.handle
    try:
        found = os.stat(os.path.expanduser(place))
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def under_way(known: Known) -> bool:
    """Whether an answer is still to come: a request runs, or something was said that no request has taken up."""
    tried = {link.saw for link in known.links}
    waits = bool(known.unacknowledged) and known.head not in tried
    return waits or any(link.status in UNFINISHED for link in known.links)

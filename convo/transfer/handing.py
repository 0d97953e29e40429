"""Another owner comes to hold a conversation, and the one who held it is not touched.

The result is always new: a session, beside it a file or a conversation where the owner is one of
those. No model is asked. A chain has no response yet that could be gone on from, so all of it waits
until the first turn sends it; a conversation is seeded, twenty items at a time, and read back, so
that the record is a copy of what the owner really has. A file is written before its record, and
taken up by the same command if that was killed between the two; what a killed one has seeded at an
endpoint stays there, because nobody could tell whose it is.
"""

import os
from contextlib import suppress
from dataclasses import dataclass, replace

from convo.endpoints.contract import Endpoint
from convo.engine.edges import Edges
from convo.engine.finding import absolute, by_handle
from convo.engine.naming import name_for
from convo.engine.opening import numbered
from convo.engine.replay_file import ReplayFile, as_text
from convo.errors import Conflict, ConvoError, Unreadable, Usage
from convo.history import Path, Session, Strategy, root
from convo.stores.contract import Store
from convo.strategies.carrying import Carried, Target
from convo.transfer.beside import Beside
from convo.transfer.seeding import forget, seeded
from convo.transfer.taking import Source


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person called the result: a session's name, a file; None for one of its own making."""

    name: str | None = None
    file: str | None = None


def worth_it(source: Source, target: Target) -> None:
    """raises: Usage  the new owner is the one that holds it already"""
    same_place = source.scope == target.scope or not target.remembers
    if source.strategy is target.strategy and same_place and target.strategy is not Strategy.CONVERSATION:
        raise Usage(
            f"{source.handle} is owned by {target.strategy} already", hint="convo chat --fork makes a second one"
        )


async def hand_over(
    source: Source, carried: Carried, target: Target, wish: Wish, beside: Beside, endpoint: Endpoint | None = None
) -> Session:
    """Let `target` hold `carried`; returns the record of the new session.

    endpoint:  of the new owner; needed for a conversation alone
    raises:    Conflict  the file, or the name, is taken;  what the endpoint or the store answers. What was
               made until then is taken back
    """
    if target.strategy is Strategy.CONVERSATION:
        assert endpoint
        return await _to_conversation(source, carried, target, wish, beside, endpoint)
    path = Path(root(beside.store.tenant)).grow(carried.items)
    mark = path.root if target.strategy is Strategy.CHAIN else path.first(carried.confirmed).head
    session = _session(source, target, path, beside)
    session = replace(session, mark=mark)
    if target.strategy is Strategy.REPLAY:
        return await _to_file(session, path, wish, beside)
    return await beside.write(session, path, wish.name)


def _session(source: Source, target: Target, path: Path, beside: Beside) -> Session:
    now = beside.clock.now()
    return Session(
        id=beside.new_id("ses"),
        name=source.name or (name_for(path.items[0]) if path.items else "chat"),
        strategy=target.strategy,
        model=target.model,
        head=path.head,
        mark=path.head,
        created_at=now,
        used_at=now,
        scope=target.scope,
        instructions=source.instructions,
    )


async def _to_file(session: Session, path: Path, wish: Wish, beside: Beside) -> Session:
    file = await _file(session, path, wish, beside.store)
    is_new = not file.exists()
    file.check()
    if is_new:
        file.write(path.items)
    session = replace(session, handle=str(file.place), written=path.head)
    try:
        return await beside.write(session, path, wish.name)
    except ConvoError:
        if is_new:
            with suppress(OSError):
                os.unlink(file.place)
        raise


async def _file(session: Session, path: Path, wish: Wish, store: Store) -> ReplayFile:
    """Where `path` is to stand, or stands already since a try that was killed. raises: Conflict  another file does"""
    places = [wish.file] if wish.file else numbered(absolute(f"{wish.name or session.name}.json"))
    for file in map(ReplayFile, places):
        if not file.exists() or await _is_left(file, path, store):
            return file
    raise Conflict(f"{file.place} is there already", hint="name a file that is not, with --as")


async def _is_left(file: ReplayFile, path: Path, store: Store) -> bool:
    """Whether a file holds just `path`, and nobody has a record of it."""
    return _holds(file, path) and await by_handle(store, Strategy.REPLAY, str(file.place)) is None


def _holds(file: ReplayFile, path: Path) -> bool:
    with suppress(Unreadable):
        return file.place.is_file() and as_text(file.read()) == as_text(path.items)
    return False


async def _to_conversation(
    source: Source, carried: Carried, target: Target, wish: Wish, beside: Beside, endpoint: Endpoint
) -> Session:
    seed, rest = carried.items[: carried.confirmed], carried.items[carried.confirmed :]
    edges = Edges(beside.store, endpoint, beside.clock, beside.new_id)
    made = await seeded(seed, edges, source.metadata)
    path = made.path.grow(rest)
    session = replace(_session(source, target, path, beside), mark=made.path.head, handle=made.handle)
    try:
        return await beside.write(session, path, wish.name)
    except BaseException:
        await forget(made.handle, edges)
        raise

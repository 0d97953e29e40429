"""Renames and removes sessions: what is done to a record as a whole.

Both take the right to write first, so that nothing is taken from under a chat that is open.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace

from convo.engine.lease import writing
from convo.engine.naming import fit
from convo.errors import Busy, ItemDeleted, NotFound
from convo.history import HERE, OWNERS, Key, Link, Session, Strategy
from convo.stores.contract import Change, Store

ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Gone:
    """What went with one session.

    links, items:  how many; what other sessions share is not among them
    runs:          those of agents, by id
    kept:          what still stands elsewhere, in words: a replay file, a remote endpoint's copy
    """

    session: Session
    links: int
    items: int
    runs: tuple[str, ...] = ()
    kept: str = ""


async def rename(store: Store, session: Session, name: str) -> Session:
    """Give a session another name; its place among the last used stays.

    raises:  Usage     `name` could be taken for another handle
             Conflict  another session has it
             Busy      the session is open in another process
    """
    named = replace(session, name=fit(name))
    async with _held(store, [session]):
        await store.commit(Change(session=named, expect=session.head))
    return named


async def remove(store: Store, sessions: Sequence[Session]) -> list[Gone]:
    """Remove sessions with all that only they held; none of them when one of them is open.

    A conversation of our own endpoint goes with the last session that stands at it.

    raises:  Busy, NotFound, StoreFault
    """
    async with _held(store, sessions):
        return [await _remove(store, session) for session in sessions]


async def _remove(store: Store, session: Session) -> Gone:
    links = await store.links(session.id)
    paths = await _paths(store, [session.head, *(key for link in reversed(links) for key in (link.head, link.saw))])
    runs = tuple([run.id for run in await store.agent_runs(session=session.id, limit=ALL)])
    if session.strategy is Strategy.CONVERSATION and session.scope == HERE and session.handle:
        await _remove_conversation(store, session)  # first: after a kill in between the record still names it
    await store.remove_session(session.id)
    gone = [link.id for link in links if await store.link(link.id) is None]
    lost: set[Key] = set()
    for keys in paths:
        lost.update(keys[await _left(store, keys) :])
    return Gone(session, len(gone), len(lost), runs, kept(session, links))


async def _paths(store: Store, ends: Iterable[Key]) -> list[Sequence[Key]]:
    """The paths to `ends`, without those that another one leads through."""
    paths: list[Sequence[Key]] = []
    passed: set[Key] = set()
    for end in ends:
        if end not in passed:
            with suppress(NotFound, ItemDeleted):
                paths.append((await store.path(end)).keys)
                passed.update(paths[-1])
    return paths


async def _remove_conversation(store: Store, session: Session) -> None:
    """Remove the conversation of a session, unless another session has it too."""
    others = [one for one in await store.sessions() if one.handle == session.handle and one.id != session.id]
    if not others and session.handle and await store.conversation(session.handle):
        await store.remove_conversation(session.handle)


async def _left(store: Store, keys: Sequence[Key]) -> int:
    """How many of a path's places are still there. What leads to a place that is there, is there."""
    least, most = 0, len(keys)
    while least < most:
        middle = (least + most + 1) // 2
        if await _is_there(store, keys[middle - 1]):
            least = middle
        else:
            most = middle - 1
    return least


async def _is_there(store: Store, key: Key) -> bool:
    try:
        await store.path(key)
    except ItemDeleted:
        return True
    except NotFound:
        return False
    return True


def kept(session: Session, links: Sequence[Link]) -> str:
    """What removing a session leaves elsewhere, in words; "" where it leaves nothing.

    links:  those that it made
    """
    left = []
    if session.strategy is Strategy.REPLAY and session.handle:
        left.append(f"the file {session.handle} stays")
    if session.scope != HERE and OWNERS[session.strategy].remembers and session.handle:
        left.append(f"{session.scope} keeps its own copy of {session.handle}")
    elif copies := [link for link in links if link.scope != HERE and link.stored and link.id.startswith("resp_")]:
        left.append(f"{copies[-1].scope} keeps its own copy of {copies[-1].id} and those before it")
    return "; ".join(left)


@asynccontextmanager
async def _held(store: Store, sessions: Sequence[Session]) -> AsyncIterator[None]:
    """The right to write all of `sessions`. raises: Busy"""
    async with AsyncExitStack() as holds:
        for session in sessions:
            try:
                hold = await writing(store, session)
            except Busy as busy:
                raise Busy(session.name, busy.holder, hint="leave that chat first") from busy
            holds.push_async_callback(hold.release)
        yield

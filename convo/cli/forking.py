"""What `--fork HANDLE[@N]` begins from.

A session is forked as a record of its own. A response that its endpoint keeps is simply gone on from:
that is what a fork is, on a chain. A response of a client's own history was kept nowhere else, so it
is the session that is forked, where that response stood.
"""

from dataclasses import replace
from typing import NamedTuple

from convo.engine.finding import absolute, by_handle, the_session, with_turn
from convo.engine.heads import standing_at
from convo.engine.opening import one_list
from convo.engine.turning import after_turn, around
from convo.errors import NotFound, Usage
from convo.history import Link, Session, Strategy
from convo.stores.contract import Store
from convo.strategies import kind_of


class Forked(NamedTuple):
    """Where a fork begins: at a session's record, or behind a response that is gone on from."""

    session: Session | None = None
    handle: str | None = None


async def forked(store: Store, named: str) -> Forked:
    """What `named` is forked from; nothing is stored.

    raises:  NotFound    there is no such thing, or no such turn of it
             WrongOwner  a conversation has one head, at its endpoint
             Usage       no response of a chain ends there
    """
    handle, number = await with_turn(store, named)
    kind = kind_of(handle)
    if kind is Strategy.CONVERSATION:
        raise one_list(handle)
    if kind is Strategy.CHAIN:
        return await _response(store, handle, number)
    session = await (the_session(store, handle) if kind is Strategy.SESSION else _replayed(store, handle))
    return Forked(session if number is None else await standing_at(store, session, number))


async def _response(store: Store, handle: str, number: int | None) -> Forked:
    link = await store.link(handle)
    if link is None:
        if number is None:
            return Forked(handle=handle)
        raise NotFound("response", handle, hint=f"convo inspect {handle} names the responses before it")
    session = await store.session(link.session) if link.session and not link.stored else None
    if session:
        stood = replace(session, head=link.head, mark=link.head, link=link.id)
        return Forked(stood if number is None else await standing_at(store, stood, number))
    return Forked(handle=handle if number is None else (await _earlier(store, link, number)).id)


async def _earlier(store: Store, link: Link, number: int) -> Link:
    """The response with which a turn of a chain ended."""
    path = await store.path(link.head)
    cut = path.first(after_turn(path.items, number))
    _, before = await around(cut, link, store)
    if before is None or before.head != cut.head:
        raise Usage("no response of this chain ends there", hint=f"convo inspect {link.id} shows where they end")
    return before


async def _replayed(store: Store, place: str) -> Session:
    found = await by_handle(store, Strategy.REPLAY, absolute(place))
    if found is None:
        raise NotFound("session at", place, hint="copy the file, and go on with --replay --from COPY")
    return found

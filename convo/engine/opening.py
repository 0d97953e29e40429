"""Finds the conversation that the flags ask for, or begins it.

In two steps, because a record says at which endpoint its handle lives: first `recorded` looks
into the store, then, with the endpoint at hand, `open_chat` reads what is there and takes the
right to write. A handle that no record knows is read once from its owner and mirrored.
"""

import os
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import chain, count
from shlex import quote

from convo.engine.chat import Chat
from convo.engine.edges import Edges
from convo.engine.finding import absolute, by_handle, find, last_answered, the_conversation
from convo.engine.naming import free_name
from convo.engine.paging import PAGE, every
from convo.engine.record import Record, last_link, reopened
from convo.engine.turn import Asking
from convo.errors import NotFound, WrongOwner
from convo.history import HERE, OWNERS, Link, Path, Session, Strategy, root
from convo.stores.contract import Store
from convo.strategies import Held, Wanted, answered, kind_of

REPLAY_FILE = "conversation.json"
"""Where a replayed conversation goes when no file is named: the first free name like this one."""


async def recorded(store: Store, wanted: Wanted) -> Session | None:
    """The session that `wanted` goes on with; None when a new one begins.

    raises:  NotFound, AmbiguousHandle
             WrongOwner  the record has another owner than the flag names
    """
    if wanted.last:
        session: Session | None = await last_answered(store)
    elif wanted.handle is None:
        return None
    elif wanted.strategy is Strategy.REPLAY:
        return await by_handle(store, Strategy.REPLAY, absolute(wanted.handle))
    elif kind_of(wanted.handle) in (Strategy.CHAIN, Strategy.CONVERSATION):
        return await by_handle(store, kind_of(wanted.handle), wanted.handle)
    else:
        found = await find(store, wanted.handle)
        session = await store.session(found.id)
        if session is None:
            raise NotFound("session", wanted.handle)
    if session and wanted.strategy and session.strategy is not wanted.strategy:
        name = quote(session.name)
        raise WrongOwner(
            f"{session.name!r} is owned by {OWNERS[session.strategy].words} (--{session.strategy}), "
            f"not by {OWNERS[wanted.strategy].words}",
            hint=f"convo chat --from {name}, or convo convert {name} --to {wanted.strategy}",
        )
    return session


async def open_chat(wanted: Wanted, session: Session | None, asking: Asking, edges: Edges, *, name: str = "") -> Chat:
    """Open the conversation; nothing is stored before something is said.

    name:    for a new session; "" takes it from the first words said
    raises:  NotFound    neither the store nor the endpoint knows the handle
             WrongOwner  the handle belongs to another endpoint
             what the endpoint answers
    """
    if session is None:
        session, path, last = await _begin(wanted, asking, edges, name)
        return Chat(Record(session, path, last, edges, saved=False), asking, edges)
    return Chat(await reopened(session, edges), asking, edges)


async def fork(source: Session, asking: Asking, edges: Edges, *, name: str = "") -> Chat:
    """A second session that begins where `source` stands; the source is not touched.

    name:    "" takes the source's, with a number
    raises:  WrongOwner  a conversation has one head, at its endpoint
    """
    if source.strategy is Strategy.CONVERSATION:
        raise one_list(source.handle or source.name)
    held = Held(source.strategy, await edges.store.path(source.head), source.mark)
    path = held.path.first(max(answered(held), held.path.place(held.mark)))
    session = replace(
        source,
        id=edges.new_id("ses"),
        name=name or await free_name(edges.store, source.name),
        head=path.head,
        created_at=edges.clock.now(),
        written=None,
        handle=free_file(source.handle) if source.strategy is Strategy.REPLAY else source.handle,
    )
    record = Record(session, path, await last_link(edges.store, source), edges, saved=False)
    return Chat(record, asking, edges)


def one_list(conversation: str) -> WrongOwner:
    """Why a conversation is not forked."""
    return WrongOwner(
        f"{conversation} is one list at its endpoint and cannot have a second head",
        hint=f"convo convert {quote(conversation)} --to session",
    )


async def _begin(wanted: Wanted, asking: Asking, edges: Edges, name: str) -> tuple[Session, Path, Link | None]:
    """A record that the store does not have yet, with what its owner has already."""
    strategy = wanted.strategy or Strategy.SESSION
    handle, path, last = await STARTS[strategy](wanted.handle, edges)
    now = edges.clock.now()
    session = Session(
        id=edges.new_id("ses"),
        name=name,
        strategy=strategy,
        model=asking.model,
        head=path.head,
        mark=path.head,
        created_at=now,
        used_at=now,
        scope=edges.endpoint.scope,
        link=last.id if last else None,
        handle=handle,
    )
    return session, path, last


Start = tuple[str | None, Path, Link | None]


async def _at_session(handle: str | None, edges: Edges) -> Start:
    return None, Path(root(edges.store.tenant)), None


async def _at_file(handle: str | None, edges: Edges) -> Start:
    return absolute(handle) if handle else free_file(absolute(REPLAY_FILE)), Path(root(edges.store.tenant)), None


async def _at_response(handle: str | None, edges: Edges) -> Start:
    if handle is None:
        return await _at_session(handle, edges)
    link = await edges.store.link(handle)
    if link is None:
        return handle, await history_of_response(handle, edges), None
    if link.scope != edges.endpoint.scope:
        raise WrongOwner(
            f"{handle} belongs to {link.scope}, not to {edges.endpoint.scope}", hint="-m with a model of that endpoint"
        )
    if not link.stored:
        raise await _not_kept(link, edges.store)
    return handle, await edges.store.path(link.head), link


async def _not_kept(link: Link, store: Store) -> WrongOwner:
    """Why a response of a client's own history is not gone on from, and which session has that history."""
    session = await store.session(link.session) if link.session else None
    return WrongOwner(
        f"{link.id} was sent with store=false, so its endpoint cannot go on from it",
        hint=f"convo chat --fork {quote(session.name)}" if session else "convo sessions",
    )


async def _at_conversation(handle: str | None, edges: Edges) -> Start:
    if handle is None:
        return await _at_session(handle, edges)
    return handle, await history_of_conversation(handle, edges), None


STARTS: dict[Strategy, Callable[[str | None, Edges], Awaitable[Start]]] = {
    Strategy.SESSION: _at_session,
    Strategy.REPLAY: _at_file,
    Strategy.CHAIN: _at_response,
    Strategy.CONVERSATION: _at_conversation,
}


async def history_of_response(response_id: str, edges: Edges) -> Path:
    """What a chain holds up to and including this response, read from its endpoint."""
    response = await edges.endpoint.retrieve(response_id)
    items = await every(lambda after: edges.endpoint.input_items(response_id, after=after, limit=PAGE, order="asc"))
    return Path(root(edges.store.tenant)).grow([*items, *response.get("output", ())])


async def history_of_conversation(conversation_id: str, edges: Edges) -> Path:
    """What a conversation holds: our own rows where they are the owner's, else read from its endpoint."""
    if edges.endpoint.scope == HERE:
        return await edges.store.path((await the_conversation(edges.store, conversation_id)).head)
    await edges.endpoint.conversation(conversation_id)
    items = await every(
        lambda after: edges.endpoint.conversation_items(conversation_id, after=after, limit=PAGE, order="asc")
    )
    return Path(root(edges.store.tenant)).grow(items)


def free_file(place: str | None) -> str:
    """`place`, or the same with -2, -3, ... before its suffix when there is such a file."""
    return next(name for name in numbered(place or absolute(REPLAY_FILE)) if not os.path.exists(name))


def numbered(place: str) -> Iterator[str]:
    """`place`, and the same with -2, -3, ... before its suffix, without an end."""
    stem, suffix = os.path.splitext(place)
    stem = re.sub(r"-\d+$", "", stem)
    return chain([stem + suffix], (f"{stem}-{number}{suffix}" for number in count(2)))

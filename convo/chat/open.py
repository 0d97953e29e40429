"""Open the conversation that the options select, or start one.

Two steps, because the session record says at which endpoint its handle is: `find_selected_session`
reads the store, then `open_chat` reads the history with that endpoint. A handle without a
record is read once from its owner and mirrored. Nothing is committed before something is sent.
"""

import os
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import chain, count
from shlex import quote

from convo.chat.conversation import Chat
from convo.chat.lookup import (
    find_session_by_handle,
    load_last_answered_session,
    load_stored_conversation,
    resolve_handle,
    to_absolute_path,
)
from convo.chat.session_record import (
    ChatDeps,
    SessionRecord,
    find_free_session_name,
    load_last_link,
    load_session_record,
)
from convo.chat.turn import RequestOptions
from convo.endpoints.base import PAGE_ITEMS, list_all_items
from convo.errors import NotFound, WrongOwner
from convo.history.records import EMBEDDED_SCOPE, STRATEGY_INFO, Link, Session, Strategy
from convo.history.tree import Path, root_key
from convo.stores.base import Store
from convo.strategies.state import ConversationState, OwnerSelection, last_answer_depth, owner_of_handle

DEFAULT_REPLAY_FILE = "conversation.json"
"""Where a replayed conversation goes when no file is named: the first free name like this one."""


async def find_selected_session(store: Store, wanted: OwnerSelection) -> Session | None:
    """The session that `wanted` goes on with; None when a new one begins.

    raises:  NotFound, AmbiguousHandle
             WrongOwner  the record has another owner than the flag names
    """
    if wanted.last:
        session: Session | None = await load_last_answered_session(store)
    elif wanted.handle is None:
        return None
    elif wanted.strategy is Strategy.REPLAY:
        return await find_session_by_handle(store, Strategy.REPLAY, to_absolute_path(wanted.handle))
    elif owner_of_handle(wanted.handle) in (Strategy.CHAIN, Strategy.CONVERSATION):
        return await find_session_by_handle(store, owner_of_handle(wanted.handle), wanted.handle)
    else:
        found = await resolve_handle(store, wanted.handle)
        session = await store.session(found.id)
        if session is None:
            raise NotFound("session", wanted.handle)
    if session and wanted.strategy and session.strategy is not wanted.strategy:
        name = quote(session.name)
        raise WrongOwner(
            f"{session.name!r} is owned by {STRATEGY_INFO[session.strategy].words} (--{session.strategy}), "
            f"not by {STRATEGY_INFO[wanted.strategy].words}",
            hint=f"convo chat --from {name}, or convo convert {name} --to {wanted.strategy}",
        )
    return session


async def open_chat(
    wanted: OwnerSelection, session: Session | None, asking: RequestOptions, edges: ChatDeps, *, name: str = ""
) -> Chat:
    """Open the conversation; nothing is stored before something is said.

    name:    for a new session; "" takes it from the first words said
    raises:  NotFound    neither the store nor the endpoint knows the handle
             WrongOwner  the handle belongs to another endpoint
             what the endpoint answers
    """
    if session is None:
        session, path, last = await _make_session(wanted, asking, edges, name)
        return Chat(SessionRecord(session, path, last, edges, saved=False), asking, edges)
    return Chat(await load_session_record(session, edges), asking, edges)


async def fork_session(source: Session, asking: RequestOptions, edges: ChatDeps, *, name: str = "") -> Chat:
    """A second session that begins where `source` stands; the source is not touched.

    name:    "" takes the source's, with a number
    raises:  WrongOwner  a conversation has one head, at its endpoint
    """
    if source.strategy is Strategy.CONVERSATION:
        raise make_unforkable_error(source.handle or source.name)
    held = ConversationState(source.strategy, await edges.store.path(source.head), source.mark)
    path = held.path.first(max(last_answer_depth(held), held.path.place(held.mark)))
    session = replace(
        source,
        id=edges.new_id("ses"),
        name=name or await find_free_session_name(edges.store, source.name),
        head=path.head,
        created_at=edges.clock.now(),
        written=None,
        handle=find_free_file(source.handle) if source.strategy is Strategy.REPLAY else source.handle,
    )
    record = SessionRecord(session, path, await load_last_link(edges.store, source), edges, saved=False)
    return Chat(record, asking, edges)


def make_unforkable_error(conversation: str) -> WrongOwner:
    """Why a conversation is not forked."""
    return WrongOwner(
        f"{conversation} is one list at its endpoint and cannot have a second head",
        hint=f"convo convert {quote(conversation)} --to session",
    )


async def _make_session(
    wanted: OwnerSelection, asking: RequestOptions, edges: ChatDeps, name: str
) -> tuple[Session, Path, Link | None]:
    """A record that the store does not have yet, with what its owner has already."""
    strategy = wanted.strategy or Strategy.SESSION
    handle, path, last = await START_LOADERS[strategy](wanted.handle, edges)
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


StartingPoint = tuple[str | None, Path, Link | None]


async def _start_session(handle: str | None, edges: ChatDeps) -> StartingPoint:
    return None, Path(root_key(edges.store.tenant)), None


async def _start_replay(handle: str | None, edges: ChatDeps) -> StartingPoint:
    return (
        to_absolute_path(handle) if handle else find_free_file(to_absolute_path(DEFAULT_REPLAY_FILE)),
        Path(root_key(edges.store.tenant)),
        None,
    )


async def _start_chain(handle: str | None, edges: ChatDeps) -> StartingPoint:
    if handle is None:
        return await _start_session(handle, edges)
    link = await edges.store.link(handle)
    if link is None:
        return handle, await fetch_response_history(handle, edges), None
    if link.scope != edges.endpoint.scope:
        raise WrongOwner(
            f"{handle} belongs to {link.scope}, not to {edges.endpoint.scope}", hint="-m with a model of that endpoint"
        )
    if not link.stored:
        raise await _make_not_stored_error(link, edges.store)
    return handle, await edges.store.path(link.head), link


async def _make_not_stored_error(link: Link, store: Store) -> WrongOwner:
    """Why a response of a client's own history is not gone on from, and which session has that history."""
    session = await store.session(link.session) if link.session else None
    return WrongOwner(
        f"{link.id} was sent with store=false, so its endpoint cannot go on from it",
        hint=f"convo chat --fork {quote(session.name)}" if session else "convo sessions",
    )


async def _start_conversation(handle: str | None, edges: ChatDeps) -> StartingPoint:
    if handle is None:
        return await _start_session(handle, edges)
    return handle, await load_conversation_history(handle, edges), None


START_LOADERS: dict[Strategy, Callable[[str | None, ChatDeps], Awaitable[StartingPoint]]] = {
    Strategy.SESSION: _start_session,
    Strategy.REPLAY: _start_replay,
    Strategy.CHAIN: _start_chain,
    Strategy.CONVERSATION: _start_conversation,
}


async def fetch_response_history(response_id: str, edges: ChatDeps) -> Path:
    """What a chain holds up to and including this response, read from its endpoint."""
    response = await edges.endpoint.retrieve(response_id)
    items = await list_all_items(
        lambda after: edges.endpoint.input_items(response_id, after=after, limit=PAGE_ITEMS, order="asc")
    )
    return Path(root_key(edges.store.tenant)).grow([*items, *response.get("output", ())])


async def load_conversation_history(conversation_id: str, edges: ChatDeps) -> Path:
    """What a conversation holds: our own rows where they are the owner's, else read from its endpoint."""
    if edges.endpoint.scope == EMBEDDED_SCOPE:
        return await edges.store.path((await load_stored_conversation(edges.store, conversation_id)).head)
    await edges.endpoint.conversation(conversation_id)
    items = await list_all_items(
        lambda after: edges.endpoint.conversation_items(conversation_id, after=after, limit=PAGE_ITEMS, order="asc")
    )
    return Path(root_key(edges.store.tenant)).grow(items)


def find_free_file(place: str | None) -> str:
    """`place`, or the same with -2, -3, ... before its suffix when there is such a file."""
    return next(
        name for name in iter_numbered_paths(place or to_absolute_path(DEFAULT_REPLAY_FILE)) if not os.path.exists(name)
    )


def iter_numbered_paths(place: str) -> Iterator[str]:
    """`place`, and the same with -2, -3, ... before its suffix, without an end."""
    stem, suffix = os.path.splitext(place)
    stem = re.sub(r"-\d+$", "", stem)
    return chain([stem + suffix], (f"{stem}-{number}{suffix}" for number in count(2)))

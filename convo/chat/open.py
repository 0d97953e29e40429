"""Open the conversation that the options select, or start one.

Two steps, because the endpoint of a handle is in the session record: `find_selected_session`
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
"""The file of a new replayed conversation without a file name; a number is added until the name is free."""


async def find_selected_session(store: Store, wanted: OwnerSelection) -> Session | None:
    """Return the session that `selection` continues; None for a new one.

    Raises the errors of `resolve_handle`, and WrongOwner when the record has another strategy than the flag.
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
    """Open the conversation; nothing is stored before the first message.

    name:  for a new session; "" makes one from the first message
    Raises NotFound when neither the store nor the endpoint knows the handle, WrongOwner when it belongs to another
    endpoint, and the errors of the endpoint.
    """
    if session is None:
        session, path, last = await _make_session(wanted, asking, edges, name)
        return Chat(SessionRecord(session, path, last, edges, saved=False), asking, edges)
    return Chat(await load_session_record(session, edges), asking, edges)


async def fork_session(source: Session, asking: RequestOptions, edges: ChatDeps, *, name: str = "") -> Chat:
    """Return a second session that begins at the head of `source`; the source does not change.

    name:  "" uses the source's name with a number
    Raises WrongOwner for a conversation of an endpoint: it has one head.
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
    """Return the error for a fork of a conversation."""
    return WrongOwner(
        f"{conversation} is one list at its endpoint and cannot have a second head",
        hint=f"convo convert {quote(conversation)} --to session",
    )


async def _make_session(
    wanted: OwnerSelection, asking: RequestOptions, edges: ChatDeps, name: str
) -> tuple[Session, Path, Link | None]:
    """Make a record that the store does not have yet, with the history that its owner already has."""
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
    """Return the error for continuing a response with store=false; the hint names the session with its history."""
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
    """Fetch the history of a chain, up to and including this response, from its endpoint."""
    response = await edges.endpoint.retrieve(response_id)
    items = await list_all_items(
        lambda after: edges.endpoint.input_items(response_id, after=after, limit=PAGE_ITEMS, order="asc")
    )
    return Path(root_key(edges.store.tenant)).grow([*items, *response.get("output", ())])


async def load_conversation_history(conversation_id: str, edges: ChatDeps) -> Path:
    """Return the items of a conversation: from the store for the embedded endpoint, otherwise from its server."""
    if edges.endpoint.scope == EMBEDDED_SCOPE:
        return await edges.store.path((await load_stored_conversation(edges.store, conversation_id)).head)
    await edges.endpoint.conversation(conversation_id)
    items = await list_all_items(
        lambda after: edges.endpoint.conversation_items(conversation_id, after=after, limit=PAGE_ITEMS, order="asc")
    )
    return Path(root_key(edges.store.tenant)).grow(items)


def find_free_file(place: str | None) -> str:
    """Return `path`, or the first of `path` with -2, -3, ... before its suffix that does not exist."""
    return next(
        name for name in iter_numbered_paths(place or to_absolute_path(DEFAULT_REPLAY_FILE)) if not os.path.exists(name)
    )


def iter_numbered_paths(place: str) -> Iterator[str]:
    """Yield `path`, then `path` with -2, -3, ... before its suffix, without an end."""
    stem, suffix = os.path.splitext(place)
    stem = re.sub(r"-\d+$", "", stem)
    return chain([stem + suffix], (f"{stem}-{number}{suffix}" for number in count(2)))

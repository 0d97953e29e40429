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
    is_existing_path,
    load_last_used_session,
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
from convo.errors import NotFound, StateFault, WrongOwner
from convo.history.records import EMBEDDED_SCOPE, Link, Session, Strategy
from convo.history.tree import Path, root_key
from convo.stores.base import Store, load_conversation
from convo.strategies.selection import OwnerSelection, owner_of_handle
from convo.strategies.strategy import STRATEGIES, ConversationState, last_answer_depth

DEFAULT_REPLAY_FILE = "conversation.json"
"""The file of a new replayed conversation without a file name; a number is added until the name is free."""


async def find_selected_session(store: Store, selection: OwnerSelection) -> Session | None:
    """Return the session that `selection` continues; None for a new one.

    Raises the errors of `resolve_handle`, and WrongOwner when the record has another strategy than the flag.
    """
    if selection.use_last_session:
        session: Session | None = await load_last_used_session(store)
    elif selection.handle is None:
        return None
    elif selection.replay_file:
        session = await find_session_by_handle(store, to_absolute_path(selection.replay_file))
        if session is None and not is_existing_path(selection.replay_file):
            session = await store.session(selection.replay_file)  # the name of a session, not of a new file
    elif STRATEGIES[owner_of_handle(selection.handle)].is_server_side:
        return await find_session_by_handle(store, selection.handle)
    else:
        match = await resolve_handle(store, selection.handle)
        session = await store.session(match.id)
        if session is None:
            raise NotFound("session", selection.handle)
    if session and selection.strategy and session.strategy is not selection.strategy:
        name = quote(session.name)
        raise WrongOwner(
            f"{session.name!r} is owned by {STRATEGIES[session.strategy].description} (--{session.strategy}), "
            f"not by {STRATEGIES[selection.strategy].description}",
            hint=f"convo chat --from {name}, or convo convert {name} --to {selection.strategy}",
        )
    return session


async def open_chat(
    selection: OwnerSelection, session: Session | None, options: RequestOptions, deps: ChatDeps, *, name: str = ""
) -> Chat:
    """Open the conversation; nothing is stored before the first message.

    name:  for a new session; "" makes one from the first message
    Raises NotFound when neither the store nor the endpoint knows the handle, WrongOwner when it belongs to another
    endpoint, and the errors of the endpoint.
    """
    if session is None:
        session, path, last_link = await _make_session(selection, options, deps, name)
        return Chat(SessionRecord(session, path, last_link, deps, is_saved=False), options, deps)
    return Chat(await load_session_record(session, deps), options, deps)


async def fork_session(source: Session, options: RequestOptions, deps: ChatDeps, *, name: str = "") -> Chat:
    """Return a second session that begins at the head of `source`; the source does not change.

    name:  "" uses the source's name with a number
    Raises WrongOwner for a conversation of an endpoint: it has one head.
    """
    if STRATEGIES[source.strategy].uses_conversation:
        raise make_unforkable_error(source.handle or source.name)
    state = ConversationState(source.strategy, await deps.store.path(source.head), source.confirmed_head)
    path = state.path.first(max(last_answer_depth(state), state.path.depth(state.confirmed_head)))
    session = replace(
        source,
        id=deps.new_id("ses"),
        name=name or await find_free_session_name(deps.store, source.name),
        head=path.head,
        created_at=deps.clock.now(),
        file_head=None,
        handle=find_free_file(source.replay_file) if source.replay_file else source.handle,
    )
    record = SessionRecord(session, path, await load_last_link(deps.store, source), deps, is_saved=False)
    return Chat(record, options, deps)


def make_unforkable_error(conversation: str) -> WrongOwner:
    """Return the error for a fork of a conversation."""
    return WrongOwner(
        f"{conversation} cannot be forked: its endpoint stores it as one list",
        hint=f"convo convert {quote(conversation)} --to session",
    )


async def _make_session(
    selection: OwnerSelection, options: RequestOptions, deps: ChatDeps, name: str
) -> tuple[Session, Path, Link | None]:
    """Make a record that the store does not have yet, with the history that its owner already has."""
    strategy = selection.strategy or Strategy.SESSION
    handle, path, last_link = await START_LOADERS[strategy](selection.handle, deps)
    now = deps.clock.now()
    session = Session(
        id=deps.new_id("ses"),
        name=name,
        strategy=strategy,
        model=options.model,
        head=path.head,
        confirmed_head=path.head,
        created_at=now,
        used_at=now,
        scope=deps.endpoint.scope,
        link_id=last_link.id if last_link else None,
        handle=handle,
    )
    return session, path, last_link


StartingPoint = tuple[str | None, Path, Link | None]


async def _start_session(handle: str | None, deps: ChatDeps) -> StartingPoint:
    return None, Path(root_key(deps.store.tenant)), None


async def _start_replay(handle: str | None, deps: ChatDeps) -> StartingPoint:
    return (
        to_absolute_path(handle) if handle else find_free_file(None),
        Path(root_key(deps.store.tenant)),
        None,
    )


async def _start_chain(handle: str | None, deps: ChatDeps) -> StartingPoint:
    if handle is None:
        return await _start_session(handle, deps)
    link = await deps.store.link(handle)
    if link is None:
        return handle, await fetch_response_history(handle, deps), None
    if link.scope != deps.endpoint.scope:
        raise WrongOwner(
            f"{handle} belongs to {link.scope}, not to {deps.endpoint.scope}",
            hint="choose a model of that endpoint with -m",
        )
    if not link.is_stored:
        raise await _make_not_stored_error(link, deps.store)
    return handle, await deps.store.path(link.head), link


async def _make_not_stored_error(link: Link, store: Store) -> WrongOwner:
    """Return the error for continuing a response with store=false; the hint names the session with its history."""
    session = await store.session(link.session_id) if link.session_id else None
    return WrongOwner(
        f"{link.id} was sent with store=false, so its endpoint cannot continue it",
        hint=f"convo chat --fork {quote(session.name)}" if session else "convo sessions",
    )


async def _start_conversation(handle: str | None, deps: ChatDeps) -> StartingPoint:
    if handle is None:
        return await _start_session(handle, deps)
    return handle, await load_conversation_history(handle, deps), None


START_LOADERS: dict[Strategy, Callable[[str | None, ChatDeps], Awaitable[StartingPoint]]] = {
    Strategy.SESSION: _start_session,
    Strategy.REPLAY: _start_replay,
    Strategy.CHAIN: _start_chain,
    Strategy.CONVERSATION: _start_conversation,
}


async def fetch_response_history(response_id: str, deps: ChatDeps) -> Path:
    """Fetch the history of a chain, up to and including this response, from its endpoint."""
    response = await deps.endpoint.retrieve(response_id)
    items = await list_all_items(
        lambda after: deps.endpoint.list_input_items(response_id, after=after, limit=PAGE_ITEMS, order="asc")
    )
    return Path(root_key(deps.store.tenant)).append([*items, *response.get("output", ())])


async def load_conversation_history(conversation_id: str, deps: ChatDeps) -> Path:
    """Return the items of a conversation: from the store for the embedded endpoint, otherwise from its server."""
    if deps.endpoint.scope == EMBEDDED_SCOPE:
        return await deps.store.path((await load_conversation(deps.store, conversation_id)).head)
    await deps.endpoint.retrieve_conversation(conversation_id)
    items = await list_all_items(
        lambda after: deps.endpoint.list_conversation_items(conversation_id, after=after, limit=PAGE_ITEMS, order="asc")
    )
    return Path(root_key(deps.store.tenant)).append(items)


def find_free_file(path: str | None) -> str:
    """Return `path`, or the first of `path` with -2, -3, ... before its suffix that does not exist."""
    return next(
        name for name in iter_numbered_paths(path or to_absolute_path(DEFAULT_REPLAY_FILE)) if not os.path.exists(name)
    )


def iter_numbered_paths(path: str) -> Iterator[str]:
    """Yield `path`, then `path` with -2, -3, ... before its suffix, endlessly: "a-7", "a-2", "a-3", ..."""
    stem, suffix = os.path.splitext(path)
    stem = re.sub(r"-\d+$", "", stem)
    # First `path` as it is: the file for a session report-2024 was report.json.
    return chain([path], (f"{stem}-{number}{suffix}" for number in count(2)))


async def check_no_open_run(store: Store, session: Session) -> None:
    """Raise StateFault for an open agent run, whose calls have no output yet."""
    from convo.chat.view_loader import load_open_run  # slow to import, and a new session has none

    if run := await load_open_run(store, session):
        raise StateFault(
            f"{session.name!r} has an open agent run, and its calls have no output yet",
            hint=f"convo resume {quote(session.name)}{run.agents_option}, or convo approvals",
        )

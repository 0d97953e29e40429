"""Load a ConversationView of a handle, from the store or from an endpoint; nothing is changed.

A replay file or a local conversation is compared with its record, and differences become notes.
A remote chain is followed back response by response; a remote conversation is only a list of items. An open
agent run is part of the view. Modules for files, for endpoints and for differences are imported where they are used:
most commands show a stored conversation.
"""

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from convo.chat.lookup import (
    find_session_by_handle,
    load_link,
    load_session,
    load_session_of_run,
    read_or_report,
    resolve_handle,
    to_absolute_path,
)
from convo.errors import AmbiguousHandle, ConvoError, InvalidRunState, ItemDeleted, NotFound, Unreadable
from convo.history.items import Json, Response
from convo.history.records import ANSWERED_STATUSES, EMBEDDED_SCOPE, AgentRun, Link, Session, Strategy
from convo.history.tree import Key, Path, root_key
from convo.inspect.run_timeline import RunTimeline, build_run_timeline
from convo.inspect.tree import ancestor_ids, build_remote_chain, order_by_conversation
from convo.inspect.view import AGENTS_OPTION, ConversationView, OpenRun, PathIndex
from convo.runtime import report_progress
from convo.stores.base import Store, load_conversation
from convo.strategies.selection import owner_of_handle
from convo.strategies.strategy import STRATEGIES

if TYPE_CHECKING:
    from convo.endpoints.base import Endpoint


async def load_handle_view(
    store: Store,
    handle: str,
    *,
    read_files: bool = True,
    max_links: int | None = None,
    is_branch_only: bool = False,
) -> ConversationView:
    """Load the view of `handle` from the store.

    read_files:  also read the file that owns a conversation; otherwise its record is shown
    max_links:   maximum number of requests to read: of a tree, those on the path to the handle and then the closest
                 forks; of a session, the newest; of a conversation, the last ones. A note says that there are more.
                 None for all, 1 for the handle's own request
    is_branch_only:  read only the branch that ends at the handle, so that the time does not depend on the number of
                 forks; of a conversation, read all its requests
    Raises the errors of `resolve_handle`: NotFound, AmbiguousHandle, InvalidUsage.
    """

    async def load_session_part(session: Session) -> ConversationView:
        return await load_session_view(
            store, session, read_files=read_files, max_links=max_links, is_branch_only=is_branch_only
        )

    try:
        match = await resolve_handle(store, handle)
    except NotFound:
        session = await find_mirror_session(store, handle)
        if session is None:
            raise
        return replace(await load_session_part(session), handle=session.handle or session.name)
    if match.kind in SESSION_LOADERS:
        view = await load_session_part(await SESSION_LOADERS[match.kind](store, match.id))
        return (
            replace(view, run_timeline=await _load_run_timeline(store, match.id, view)) if match.kind == "run" else view
        )
    if match.kind == "response":
        return await load_response_view(store, match.id, max_links=max_links, is_branch_only=is_branch_only)
    return await load_conversation_view(store, match.id, max_links=max_links)


async def load_file_view(store: Store, file_path: str) -> ConversationView:
    """Load the view of a file of items, with its record's links if it has one.

    Raises NotFound, Unreadable.
    """
    from convo.chat.item_file import ReplayFile, read_item_file

    if not ReplayFile(file_path).exists():
        raise NotFound("file", file_path, hint="check the path")
    session = await find_session_by_handle(store, to_absolute_path(file_path))
    if session:
        return replace(await load_session_view(store, session), handle=file_path)
    path = Path(root_key(store.tenant)).append(read_item_file(file_path).items)
    path_index = PathIndex(path.root)
    path_index.add(path)
    return ConversationView(file_path, Strategy.REPLAY, None, path, path.head, (), path_index)


async def find_mirror_session(store: Store, handle: str) -> Session | None:
    """Return the session used last that mirrors an endpoint's handle with this prefix.

    Raises AmbiguousHandle when several handles match.
    """
    if not STRATEGIES[owner_of_handle(handle)].is_server_side:
        return None
    matches = [session for session in await store.sessions() if (session.handle or "").startswith(handle)]
    exact_matches = [session for session in matches if session.handle == handle] or matches
    if len({session.handle for session in exact_matches}) > 1:
        raise AmbiguousHandle(
            handle, [(session.handle or "", f"{session.strategy}  {session.name}") for session in exact_matches]
        )
    return exact_matches[0] if exact_matches else None


async def load_session_view(
    store: Store,
    session: Session,
    *,
    read_files: bool = True,
    max_links: int | None = None,
    is_branch_only: bool = False,
) -> ConversationView:
    """Load a session's record, its links and their forks; the options are those of `load_handle_view`."""
    state = await (STATE_LOADERS[session.strategy] if read_files else STORED_STATE_LOADERS[session.strategy])(
        store, session
    )
    if is_branch_only and session.link_id and not session.conversation_id:
        links, link_notes = await _load_branch_links(store, session.link_id, max_links)
    else:
        session_links = await store.links(session.id, limit=None if max_links is None else max_links + 1)
        seeds = [*filter(None, [session.link_id]), *(link.id for link in session_links)]
        links, link_notes = await _load_related_links(store, session_links, seeds, max_links)
    shared_links = await _load_shared_links(store, session)
    if max_links is not None and len(shared_links) > max_links:
        shared_links = shared_links[len(shared_links) - max_links :]
        link_notes = link_notes or _describe_missing_requests(max_links)
    path_index = await load_path_index(store, state.path, [*links, *shared_links])
    newest_run = await _load_newest_run(store, session)
    return ConversationView(
        handle=session.name or session.id,
        strategy=session.strategy,
        scope=session.scope,
        path=state.path,
        confirmed_head=state.confirmed_head,
        links=order_by_conversation(_sort_unique([*links, *shared_links]), path_index) if shared_links else links,
        path_index=path_index,
        current_link_id=session.link_id,
        session=session,
        session_names=await _load_session_names(store, [*links, *shared_links]),
        has_all_forks=not is_branch_only,
        has_all_links=not link_notes,
        notes=(*state.notes, *link_notes),
        unreadable_head=state.unreadable_head,
        open_run=await _to_open_run(store, session, newest_run) if newest_run else None,
        agent=newest_run and _get_named_agent(newest_run.document),
    )


async def load_response_view(
    store: Store, link_id: str, *, max_links: int | None = None, is_branch_only: bool = False
) -> ConversationView:
    """Load a response and the responses related to it; the options are those of `load_handle_view`."""
    link = await load_link(store, link_id)
    links, link_notes = (
        await _load_branch_links(store, link_id, max_links)
        if is_branch_only
        else await _load_related_links(store, [link], [link_id], max_links)
    )
    return replace(await _build_response_view(store, link, links, link_notes), has_all_forks=not is_branch_only)


async def load_request_view(store: Store, link_id: str, other_ids: Sequence[str] = ()) -> ConversationView:
    """Load one response with its own path, and `other_ids`, those that exist, with theirs; no other response."""
    link = await load_link(store, link_id)
    others = [await read_or_report(store, store.link(other_id)) for other_id in other_ids]
    view = await _build_response_view(store, link, _sort_unique([link, *filter(None, others)]), ())
    return replace(view, has_all_forks=False)


async def _build_response_view(
    store: Store, link: Link, links: Sequence[Link], link_notes: tuple[str, ...]
) -> ConversationView:
    state = await _load_path_state(store, link.head, link.head)
    path_index = await load_path_index(store, state.path, links)
    is_unanswered = link.status not in ANSWERED_STATUSES and link.input_head in path_index
    return ConversationView(
        handle=link.id,
        strategy=link.strategy,
        scope=link.scope,
        path=state.path,
        confirmed_head=path_index.key_before_last(link.input_head, link.sent_count)
        if is_unanswered and not state.unreadable_head
        else state.confirmed_head,
        links=tuple(links),
        path_index=path_index,
        current_link_id=link.id,
        session_names=await _load_session_names(store, links),
        has_all_links=not link_notes,
        notes=(*state.notes, *link_notes),
        unreadable_head=state.unreadable_head,
    )


async def load_conversation_view(
    store: Store, conversation_id: str, *, max_links: int | None = None
) -> ConversationView:
    """Load a conversation of the embedded endpoint and its responses; `max_links` as for `load_handle_view`."""
    conversation = await load_conversation(store, conversation_id)
    path = await store.path(conversation.head)
    unsorted_links = await _load_conversation_links(store, conversation_id, path)
    session = await find_session_by_handle(store, conversation_id)
    if session:  # its record also has the links of items deleted since
        unsorted_links = _sort_unique([*unsorted_links, *await store.links(session.id)])
    notes: tuple[str, ...] = ()
    if max_links is not None and len(unsorted_links) > max_links:
        unsorted_links = _sort_by_depth(unsorted_links, path)[len(unsorted_links) - max_links :]
        notes = _describe_missing_requests(max_links)
    path_index = await load_path_index(store, path, unsorted_links)
    links = order_by_conversation(unsorted_links, path_index)
    return ConversationView(
        handle=conversation_id,
        strategy=Strategy.CONVERSATION,
        scope=EMBEDDED_SCOPE,
        path=path,
        confirmed_head=path.head,
        links=links,
        path_index=path_index,
        current_link_id=next((link.id for link in reversed(links) if link.status in ANSWERED_STATUSES), None),
        session_names=await _load_session_names(store, links),
        has_all_links=not notes,
        notes=notes,
    )


SESSION_LOADERS: dict[str, Callable[[Store, str], Awaitable[Session]]] = {
    "session": load_session,
    "run": load_session_of_run,
}
"""For each kind of handle that refers to a session: the function that loads the session."""


# -- the state in a record, compared with its owner where that needs no request --------------------


class RecordedState(NamedTuple):
    """The state in a session record.

    notes:            differences from the owner, for the user
    unreadable_head:  the head of a path that lost an item
    """

    path: Path
    confirmed_head: Key
    notes: tuple[str, ...] = ()
    unreadable_head: Key | None = None


async def _load_path_state(store: Store, head: Key, confirmed_head: Key) -> RecordedState:
    try:
        return RecordedState(await store.path(head), confirmed_head)
    except ItemDeleted as error:
        empty = Path(root_key(store.tenant))
        return RecordedState(empty, empty.head, (error.message,), head)


async def _load_session_state(store: Store, session: Session) -> RecordedState:
    return await _load_path_state(store, session.head, session.confirmed_head)


async def _load_replay_state(store: Store, session: Session) -> RecordedState:
    """Return the state of a replayed conversation; the file owns it, so edits of the file win over the record."""
    from convo.chat.item_file import ReplayFile

    state, file = await _load_session_state(store, session), ReplayFile(session.handle or "")
    if not file.exists():
        return state._replace(notes=(f"{file.path} does not exist; this is its recorded content",))
    try:
        items = file.read()
    except Unreadable as error:
        return state._replace(notes=(f"{error.message}; this is its recorded content",))
    file_path = Path(state.path.root).append(items)
    if file_path.head in (session.file_head or state.path.root, state.path.head):
        return state
    from convo.inspect.diff import describe_drift

    difference = describe_drift(state.path.items, items, "the file")
    return RecordedState(file_path, file_path.head, (f"{difference}: it was edited",) if difference else ())


async def _load_conversation_state(store: Store, session: Session) -> RecordedState:
    state = await _load_session_state(store, session)
    if session.scope != EMBEDDED_SCOPE or not session.handle or state.unreadable_head:
        return state
    conversation = await store.conversation(session.handle)
    if conversation is None:
        return state._replace(notes=(f"{session.handle} no longer exists; this is the local copy",))
    from convo.inspect.diff import describe_drift

    owner_path = await store.path(conversation.head)
    difference = describe_drift(state.path.up_to(state.confirmed_head).items, owner_path.items, "the conversation")
    return state._replace(notes=(difference,) if difference else ())


STATE_LOADERS: dict[Strategy, Callable[[Store, Session], Awaitable[RecordedState]]] = {
    Strategy.SESSION: _load_session_state,
    Strategy.CHAIN: _load_session_state,
    Strategy.REPLAY: _load_replay_state,
    Strategy.CONVERSATION: _load_conversation_state,
}

STORED_STATE_LOADERS = {**STATE_LOADERS, Strategy.REPLAY: _load_session_state}
"""The same without reading files."""


# -- links and paths -------------------------------------------------------------------------------


async def _load_related_links(
    store: Store, links: Iterable[Link], seeds: Iterable[str], max_links: int | None
) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """Return the links of the trees that contain the `seeds`, then the newest of `links`; together at most `max_links`.

    Of a tree with more links, the closest to each seed are read. Also returns a note if some links were not read.
    """
    known_links, related_links = list(links), dict[str, Link]()
    is_partial = max_links is not None and len(known_links) > max_links
    for seed in seeds:
        if seed in related_links or (is_partial and len(related_links) >= (max_links or 0)):
            continue
        found = await store.related_links(seed, limit=None if max_links is None else max_links + 1)
        is_partial = is_partial or (max_links is not None and len(found) > max_links)
        related_links |= {link.id: link for link in found}
    others = [link for link in known_links if link.id not in related_links]
    if max_links is not None:
        others = others[max(0, len(others) + len(related_links) - max_links) :]
    note = f"forks beyond the closest {max_links:,} requests are not shown" if is_partial and max_links != 1 else ""
    return tuple(_sort_unique([*related_links.values(), *others])), (note,) if note else ()


FIRST_BRANCH_LINKS = 16
"""Links that are read first for a branch; twice as many each time until they contain its first request."""


async def _load_branch_links(
    store: Store, link_id: str, max_links: int | None
) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """Return a link and its ancestors, oldest first, at most `max_links`, and a note if there are more."""
    limit, end = FIRST_BRANCH_LINKS, sys.maxsize if max_links is None else max_links + 1
    while True:
        limit = min(limit, end)
        found = await store.related_links(link_id, limit=limit)  # the ancestors are the first of them
        branch_ids = ancestor_ids(link_id, found)
        if len(branch_ids) < limit or limit == end:
            break
        limit *= 2
    links = [link for link in found if link.id in branch_ids]
    is_partial = max_links is not None and len(links) > max_links
    return tuple(links[-max_links:] if is_partial and max_links else links), (
        _describe_missing_requests(max_links) if is_partial and max_links else ()
    )


async def _load_shared_links(store: Store, session: Session) -> list[Link]:
    """Return the links of all clients of the session's conversation at the embedded endpoint."""
    if not session.conversation_id or session.scope != EMBEDDED_SCOPE:
        return []
    conversation = await store.conversation(session.conversation_id)
    return (
        await _load_conversation_links(store, conversation.id, await store.path(conversation.head))
        if conversation
        else []
    )


async def _load_conversation_links(store: Store, conversation_id: str, path: Path) -> list[Link]:
    """Return the links of a conversation of the embedded endpoint whose input is still on its path."""
    path_keys = frozenset(path.keys)
    return [link for link in await store.conversation_links(conversation_id) if link.input_head in path_keys]


def _sort_unique(links: Iterable[Link]) -> list[Link]:
    """Return every link once, oldest first."""
    return sorted({link.id: link for link in links}.values(), key=lambda link: link.created_at)


def _describe_missing_requests(max_links: int) -> tuple[str, ...]:
    return (f"requests before the last {max_links:,} are not shown",) if max_links != 1 else ()


def _sort_by_depth(links: Sequence[Link], path: Path) -> list[Link]:
    """Sort the links of a conversation by their positions on its path; those without one come first."""
    depth = {key: position for position, key in enumerate(path.keys, 1)}
    return sorted(links, key=lambda link: depth.get(link.input_head, 0))


async def load_path_index(store: Store, path: Path, links: Sequence[Link]) -> PathIndex:
    """Index the paths of all links; a path with a deleted or damaged item is omitted."""
    path_index = PathIndex(path.root)
    path_index.add(path)
    for link in reversed(links):
        for key in (link.head, link.input_head):
            if key not in path_index:
                with suppress(NotFound, ItemDeleted):
                    link_path = await read_or_report(store, store.path(key))
                    if link_path is not None:
                        path_index.add(link_path)
    return path_index


async def _load_session_names(store: Store, links: Sequence[Link]) -> dict[str, str]:
    """Return the names of the sessions of the links, by id."""
    ids = {link.session_id for link in links if link.session_id}
    sessions = [await read_or_report(store, store.session(session_id)) for session_id in ids]
    return {session.id: session.name for session in sessions if session}


MAX_CHAIN_RESPONSES = 10_000
"""The most responses of a chain that are read from a server: its chain could have no end."""

NOT_FOUND_STATUS = 404
"""The status for an object that an endpoint does not have, or no longer."""


async def fetch_remote_view(endpoint: "Endpoint", handle: str, *, root: Key, provider: str) -> ConversationView:
    """Fetch the view of `resp_...` or `conv_...` from `endpoint`.

    root:      the root of the keys of the items
    provider:  the prefix of the model names
    Raises the errors of the endpoint.
    """
    if handle.startswith("conv_"):
        return await _fetch_conversation(endpoint, handle, root)
    return await _fetch_chain(endpoint, handle, root, provider)


async def _fetch_conversation(endpoint: "Endpoint", handle: str, root: Key) -> ConversationView:
    from convo.endpoints.base import PAGE_ITEMS, list_all_items

    await endpoint.retrieve_conversation(handle)
    items = await list_all_items(
        lambda after: endpoint.list_conversation_items(handle, after=after, limit=PAGE_ITEMS, order="asc")
    )
    path = Path(root).append(items)
    path_index = PathIndex(root)
    path_index.add(path)
    note = "the endpoint does not list the responses of a conversation"
    return ConversationView(
        handle,
        Strategy.CONVERSATION,
        endpoint.scope,
        path,
        path.head,
        (),
        path_index,
        has_all_forks=False,
        notes=(note,),
    )


async def _fetch_chain(endpoint: "Endpoint", handle: str, root: Key, provider: str) -> ConversationView:
    from convo.endpoints.base import PAGE_ITEMS, list_all_items

    responses, notes = await _fetch_response_and_previous(endpoint, handle)
    context = await list_all_items(
        lambda after: endpoint.list_input_items(handle, after=after, limit=PAGE_ITEMS, order="asc")
    )
    chain = build_remote_chain(responses, context, root, endpoint.scope, provider)
    return ConversationView(
        handle=handle,
        strategy=chain.links[-1].strategy,
        scope=endpoint.scope,
        path=chain.path,
        confirmed_head=chain.path.head,
        links=chain.links,
        path_index=chain.path_index,
        current_link_id=handle,
        has_all_forks=False,
        notes=notes,
    )


async def _fetch_response_and_previous(endpoint: "Endpoint", handle: str) -> tuple[list[Response], tuple[str, ...]]:
    """Fetch the response and those before it, oldest first, and a note if the chain was not read from its start."""
    responses = {handle: await endpoint.retrieve(handle)}
    before = responses[handle].get("previous_response_id")
    while before and before not in responses:
        if len(responses) >= MAX_CHAIN_RESPONSES:
            note = f"the chain is longer than {MAX_CHAIN_RESPONSES:,} responses; responses before {before} are not read"
            return list(reversed(responses.values())), (note,)
        report_progress("responses", len(responses))
        try:
            responses[before] = await endpoint.retrieve(before)
        except ConvoError as error:
            if error.status != NOT_FOUND_STATUS:
                raise
            note = f"{before} no longer exists; the tokens of earlier responses count for the response after it"
            return list(reversed(responses.values())), (note,)
        before = responses[before].get("previous_response_id")
    return list(reversed(responses.values())), ()


OPEN_RUN_STATUSES = ("running", "paused")
"""Statuses of an agent run that has not ended."""

AGENTS_SOURCE_KEY = "origin"
"""The member of a run's document with the source of the agents; the application alone writes it."""

RERUN_CALLS_KEY = "again"
"""The member of a run's document with the ids of the calls that had started when it was stored and may run again."""


def make_call_key(turn: int, call_id: str) -> str:
    """Return the key of a call in the call log; a model may reuse a call id in another response of the same run."""
    return f"{turn}/{call_id}"


async def load_open_run(store: Store, session: Session) -> OpenRun | None:
    """Return the agent run of a session that has calls without output; a damaged one is reported."""
    newest = await _load_newest_run(store, session)
    return await _to_open_run(store, session, newest) if newest else None


async def _load_newest_run(store: Store, session: Session) -> AgentRun | None:
    newest = await read_or_report(store, store.agent_runs(session_id=session.id, limit=1))
    return newest[0] if newest else None


async def _load_run_timeline(store: Store, run_id: str, view: ConversationView) -> RunTimeline | None:
    """Return the time line of a run; None if it has no entries."""
    run = await store.agent_run(run_id)
    if run is None:
        return None
    timeline = build_run_timeline(run, await store.agent_calls(run_id), view.path.items)
    return timeline if timeline.entries else None


def _get_named_agent(document: Mapping[str, Json]) -> str | None:
    """Return the current agent of a stored run; None for the unnamed one of a chat with --tool or --mcp."""
    agent, source = document.get("agent"), document.get(AGENTS_SOURCE_KEY)
    has_tools_only = isinstance(source, dict) and "agent" not in source
    return agent if isinstance(agent, str) and not has_tools_only else None


def get_agents_option(document: Mapping[str, Json]) -> str:
    """Return the option that `convo resume` needs for a stored run; "" if its agents or tools are recorded."""
    return "" if AGENTS_SOURCE_KEY in document else AGENTS_OPTION


async def _to_open_run(store: Store, session: Session, row: AgentRun) -> OpenRun | None:
    if row.status not in OPEN_RUN_STATUSES or not row.document.get("batch"):
        return None
    option = get_agents_option(row.document)
    if row.status == "paused":
        return OpenRun(row.id, _get_pending_ids(row.document), is_paused=True, agents_option=option)
    from convo.chat.session_record import describe_session_writer

    return OpenRun(row.id, process=await describe_session_writer(store, session), agents_option=option)


def _get_pending_ids(document: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the ids of the pending calls; none when another version of convo stored the run in an unknown form."""
    from convo.runs.stored_approvals import (
        list_pending_approvals,  # imported only for an open run: the import takes time
    )

    try:
        return tuple(call.call_id for call in list_pending_approvals(document))
    except InvalidRunState:
        return ()

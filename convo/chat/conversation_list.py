"""The list of conversations: everything in a store, once each, filtered, sorted and in pages.

A conversation is a session (a chat, a recording or an import), a chain of responses without a session, or a
conversation of the embedded endpoint. A chain is a tree of responses: its newest leaf is its handle, the other leaves
are its forks. Of the history only the first items of the rows of a page are read.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args

from convo.chat.lookup import is_own_chat, is_recorded_session, read_or_report
from convo.config.sections import Price
from convo.errors import ItemDeleted, NotFound
from convo.history.items import MAX_TITLE_ITEMS, Item, conversation_title, item_author, searchable_text, typed_text
from convo.history.records import (
    ANSWERED_STATUSES,
    EMBEDDED_SCOPE,
    IMPORT_USE_ORDER,
    Link,
    LinkStatus,
    Session,
    Strategy,
    describe_client,
)
from convo.history.tree import Key, root_key
from convo.report import Count, Wire
from convo.stores.base import Store
from convo.stores.codec import parse_search_phrases, tokenize
from convo.strategies.strategy import STRATEGIES

ConversationKind: TypeAlias = Literal["session", "recording", "chain", "conversation"]
ConversationStatus: TypeAlias = Literal["done", "running", "interrupted", "paused", "incomplete", "cancelled", "failed"]
CONVERSATION_STATUSES: tuple[ConversationStatus, ...] = get_args(ConversationStatus)
ConversationSort: TypeAlias = Literal["used", "created", "name", "model", "turns", "status"]
CONVERSATION_SORTS: tuple[ConversationSort, ...] = get_args(ConversationSort)

STATUS_OF_LINK: Mapping[LinkStatus, ConversationStatus] = {
    "queued": "running",
    "in_progress": "running",
    "completed": "done",
    "incomplete": "incomplete",
    "cancelled": "cancelled",
    "failed": "failed",
}

MAX_MATCHES = 200
"""Items with the words of a search whose conversations are looked for, best first; fewer if these fill the page."""

MAX_LINKS, LINKS_PER_ROW = 10_000, 12
"""The newest responses without a session that are put into chains; fewer if these fill the page."""

LINKS_PER_SESSION = 4
"""A page reads one session for so many links."""

MAX_UNUSED = 200
"""The newest conversations of the endpoint that are listed also if they have no response."""

MAX_PRICED_LINKS = 200
"""Responses of a session whose cost is summed; with more its cost is unknown."""


class ConversationCursor(NamedTuple):
    """The end of a page: the number of rows up to it, and the handle of the last one."""

    position: int
    handle: str


class ConversationQuery(NamedTuple):
    """Which conversations to list, and in which order.

    words:         each of them is in one item, or in the name; "" for any
    since, until:  seconds since 1970 at and before which it was used last; None for any
    model:         "provider/model", or without the provider
    client:        the program whose requests were recorded, with or without its version
    is_own:        only chats of this program: no recordings, imports, and conversations of other clients
    sort:          None: by use, and by rank if there are words
    limit:         rows of the page; None for all
    after:         the cursor of the page before
    prices:        the user's own prices, by full name of the model; without them no cost is computed
    """

    words: str = ""
    since: float | None = None
    until: float | None = None
    model: str | None = None
    status: ConversationStatus | None = None
    client: str | None = None
    is_own: bool = False
    sort: ConversationSort | None = None
    is_descending: bool = True
    limit: int | None = 20
    after: ConversationCursor | None = None
    prices: Mapping[str, Price] | None = None

    @property
    def is_filtered(self) -> bool:
        return bool(self.words or self.since or self.until or self.model or self.status or self.client)

    @property
    def reads_figures(self) -> bool:
        """Whether the figures of all conversations are needed, not only those of the page."""
        return self.sort in ("turns", "status") or bool(self.status or self.client)

    @property
    def is_first_page(self) -> bool:
        """Whether the first conversations that are found, by use or by rank, fill the page."""
        is_any = not (self.reads_figures or self.after or self.limit is None)
        return is_any and self.sort in (None, None if self.words else "used")

    def passes(self, row: "ListedConversation") -> bool:
        """Return whether a conversation passes the filters, except the words."""
        model, client = row.session.model, row.client or ""
        return (
            (self.since is None or row.session.used_at >= self.since)
            and (self.until is None or row.session.used_at < self.until)
            and (not self.is_own or (row.has_session and is_own_chat(row.session)))
            and (self.model is None or self.model in (model, model.partition("/")[2]))
            and (self.status is None or self.status == row.status)
            and (self.client is None or self.client in (client, client.partition(" ")[0]))
        )


class HitReport(NamedTuple):
    """The best item of a conversation that a search found.

    item_number:  position of the item
    item_count:   number of items of the conversation; null if the item is on another branch
    author:       role of the message, or type of the item
    """

    key: Key
    item_number: Annotated[Count, Wire("at")]
    item_count: Annotated[int | None, Wire("of")]
    author: Annotated[str, Wire("by")]
    snippet: str


@dataclass(slots=True)
class ListedConversation:
    """One row.

    session:            the record; for a conversation without one, the record that a chat which continues it would get
    item_count:         items on the path to the head; None if they were not counted
    unconfirmed_count:  items that the owner has not confirmed
    turn_count:         responses
    first_words:        the start of the first message that a person typed
    status:             of the open agent run, or of the last request
    client:             of a recording, with its version
    cost_usd:           None without a response, and if the price of one is unknown
    fork_count:         other leaves of a chain
    hit:                what a search found; None if it is the name
    sort_time:          its place by use; that of a session whose first request failed is the last one
    links:              of a conversation without a session, newest first
    found:              the node and the item of `hit`
    """

    session: Session
    item_count: int | None = None
    unconfirmed_count: int = 0
    turn_count: int = 0
    first_words: str = ""
    kind: ConversationKind = "session"
    status: ConversationStatus = "done"
    client: str | None = None
    cost_usd: float | None = None
    fork_count: int = 0
    hit: HitReport | None = None
    sort_time: float = 0.0
    links: list[Link] = field(default_factory=list)
    found: tuple[Key, Item] | None = None

    @property
    def has_session(self) -> bool:
        return self.kind in ("session", "recording")

    def has_link(self, link_id: str) -> bool:
        return any(link.id == link_id for link in self.links)

    @property
    def created_at(self) -> float:
        return self.links[-1].created_at if self.links else self.session.created_at


SORT_VALUES: Mapping[ConversationSort, Callable[[ListedConversation], str | float]] = {
    "used": lambda row: row.sort_time,
    "created": lambda row: row.created_at,
    "name": lambda row: row.session.name.casefold(),
    "model": lambda row: row.session.model,
    "turns": lambda row: row.turn_count,
    "status": lambda row: row.status,
}


class ConversationPage(NamedTuple):
    """One page of the list; `searched` says where a search looked, or what the list leaves out, "" for nothing."""

    rows: Sequence[ListedConversation]
    next_cursor: ConversationCursor | None
    searched: str


async def list_conversations(store: Store, query: ConversationQuery) -> ConversationPage:
    """Return one page of the conversations of `store`; damaged rows are left out and reported. Raises StoreFault."""
    short = LINKS_PER_ROW * (query.limit or 0)
    for window in (short, 8 * short, MAX_LINKS) if query.is_first_page and not query.words else (MAX_LINKS,):
        if query.words:
            found, horizon = await _search(store, query)
        else:
            found, horizon = await _load_newest(store, query, window)
        if query.reads_figures:
            found = await _load_rows(store, found, query)
        found = [row for row in found if query.passes(row)]
        if query.sort or not query.words:
            found.sort(key=SORT_VALUES[query.sort or "used"], reverse=query.is_descending)
        start = 0
        if query.after:
            places = (place for place, row in enumerate(found, 1) if row.session.id == query.after.handle)
            start = next(places, query.after.position)
        page = found[start:]
        if horizon is None or horizon < (query.since or 0) or len(page) > (query.limit or 0):
            break
    chosen = page[: query.limit]
    cursor = ConversationCursor(start + len(chosen), chosen[-1].session.id) if len(page) > len(chosen) > 0 else None
    if not query.words:  # a search has loaded whole chains already
        whole = [row if row.has_session else await _load_foreign(store, row.session.id) for row in chosen]
        chosen = list({row.session.id: row for row in whole if row is not None}.values())
    rows = await _load_rows(store, chosen, query)
    for row in rows:
        await _locate_hit(store, row, query.words)
    return ConversationPage(rows, cursor, _describe(query, horizon is not None and window == MAX_LINKS))


def _describe(query: ConversationQuery, is_limited: bool) -> str:
    if not query.words:
        return f"API chains of the newest {MAX_LINKS:,} responses only" if is_limited else ""
    limit = f"; only the first {MAX_MATCHES:,} matches" if is_limited else ""
    return f"searched the names and messages of all conversations in the store{limit}"


async def load_session_row(store: Store, session: Session) -> ListedConversation:
    """Return the row of one session. Raises DamagedRow."""
    row = _session_row(session)
    await _load_row(store, row, ConversationQuery(), {})
    return row


# -- what there is ------------------------------------------------------------------------------------


def _session_row(session: Session) -> ListedConversation:
    kind: ConversationKind = "recording" if is_recorded_session(session) else "session"
    return ListedConversation(session, kind=kind, sort_time=session.used_at)


async def _list_sessions(store: Store, limit: int | None = None) -> list[ListedConversation]:
    """Return the sessions, last used first: a session is at least as recent as one that was used before it."""
    rows = [_session_row(session) for session in await store.sessions(limit=limit)]
    latest, root = float("-inf"), root_key(store.tenant)
    for row in reversed(rows):
        if row.session.use_order != IMPORT_USE_ORDER:  # an import was not used
            row.sort_time = latest = max(latest, row.session.used_at)
        if row.session.link_id is None and row.session.confirmed_head == root:
            newest = await store.links(row.session.id, limit=1)
            row.sort_time = float("-inf") if newest and newest[0].status == "failed" else row.sort_time
    return rows


async def _load_newest(
    store: Store, query: ConversationQuery, window: int
) -> tuple[list[ListedConversation], float | None]:
    """Return the conversations, and the time before which some are missing because only `window` links were read.

    By use, a page ends at that time.
    """
    session_limit = None if query.is_own or window == MAX_LINKS else window // LINKS_PER_SESSION
    sessions = await _list_sessions(store, session_limit)
    if query.is_own:
        return sessions, None
    from convo.stores.request_list import RequestQuery

    page = await store.list_requests(RequestQuery(session="", limit=window))
    links = [request.link for request in page.requests]
    listed: set[str | None] = {row.session.handle for row in sessions}
    found = [*sessions, *(row for row in _group_links(links) if row.session.id not in listed)]
    listed |= {row.session.id for row in found}
    matches = await store.find_handles("conv_", limit=MAX_UNUSED)
    unused = [await _load_foreign(store, match.id) for match in matches if match.id not in listed]
    found += filter(None, unused)
    ends = [links[-1].created_at] if links and page.next_cursor else []
    if len(sessions) == session_limit:
        ends.append(sessions[-1].session.used_at)
    if not ends or window == MAX_LINKS:
        return found, max(ends, default=None)
    return [row for row in found if row.sort_time >= max(ends)], max(ends)


def _group_links(links: Sequence[Link]) -> list[ListedConversation]:
    """Put links without a session, newest first, into chains and conversations."""
    rows: dict[str, ListedConversation] = {}
    by_parent: dict[str, ListedConversation] = {}  # the chain that continues a response which was not read yet
    for link in links:
        row = rows.get(link.conversation_id) if link.conversation_id else by_parent.pop(link.id, None)
        if row is None:
            row = _foreign_row(link.conversation_id or link.id, link.created_at, link.head, link)
            rows[row.session.id] = row
        row.links.append(link)
        if link.parent_id is not None and link.conversation_id is None:
            other = by_parent.setdefault(link.parent_id, row)
            if other is not row:
                newer, older = (row, other) if row.sort_time > other.sort_time else (other, row)
                newer.links.extend(older.links)
                newer.links.sort(key=lambda link: link.created_at, reverse=True)
                newer.fork_count += 1 + older.fork_count
                by_parent[link.parent_id] = newer
                del rows[older.session.id]
    return list(rows.values())


def _foreign_row(row_id: str, used_at: float, head: Key, link: Link | None = None) -> ListedConversation:
    """Return the row of a conversation without a session; `link` is its last response."""
    is_chain = link is not None and link.conversation_id is None
    record = Session(
        id=row_id,
        name=row_id,
        strategy=Strategy.CHAIN if is_chain else Strategy.CONVERSATION,
        model=link.model if link else "",
        head=head,
        confirmed_head=head,
        created_at=used_at,
        used_at=used_at,
        scope=link.scope if link else EMBEDDED_SCOPE,
        link_id=link.id if link else None,
        handle=row_id,
    )
    return ListedConversation(record, kind="chain" if is_chain else "conversation", sort_time=used_at)


async def _load_foreign(store: Store, handle: str) -> ListedConversation | None:
    """Return the whole chain or conversation of a response without a session, or the conversation with this id.

    None if it was removed, or if a session continues it: it is listed as that session.
    """
    related = await store.related_links(handle)
    conversation_id = next((link.conversation_id for link in related if link.id == handle), handle)
    if conversation_id is None:
        continued = {link.parent_id for link in related if link.session_id is not None}
        rows = _group_links([link for link in reversed(related) if link.session_id is None])
        row = next((row for row in rows if row.has_link(handle) and row.links[0].id not in continued), None)
        if row is not None:
            row.session = replace(row.session, created_at=row.created_at)
        return row
    conversation = await read_or_report(store, store.conversation(conversation_id))
    if conversation is None:
        return None
    links = [link for link in reversed(await store.conversation_links(conversation_id)) if link.session_id is None]
    used_at, newest = (links[0].created_at, links[0]) if links else (conversation.created_at, None)
    row = _foreign_row(conversation_id, used_at, conversation.head, newest)
    row.links, row.session = links, replace(row.session, created_at=conversation.created_at)
    return row


async def _search(store: Store, query: ConversationQuery) -> tuple[list[ListedConversation], float | None]:
    """Return the conversations with the words, best first, and a time if there are more than `MAX_MATCHES` matches.

    Those with the words in their name come first.
    """
    phrases = parse_search_phrases(query.words)
    if not phrases:
        return [], None
    sessions = await _list_sessions(store)
    by_owner: dict[str, ListedConversation | None] = {row.session.id: row for row in sessions}
    by_owner |= {row.session.handle: None for row in sessions if row.session.handle}  # listed as its session
    named = [row for row in sessions if all(f" {one} " in f" {tokenize(row.session.name)} " for one in phrases)]
    found = {row.session.id: row for row in named}
    result = await store.search_items(query.words, limit=MAX_MATCHES)
    is_limited, loaded_count = result.is_limited, 0
    for item, places in result.matches:
        if query.is_first_page and sum(map(query.passes, found.values())) > (query.limit or 0):
            break
        new: list[ListedConversation] = []
        for owner, key in places.items():
            if owner not in by_owner:
                if loaded_count == MAX_MATCHES:
                    is_limited = True
                    continue
                loaded_count += 1
                loaded = by_owner[owner] = await _load_foreign(store, owner)
                if loaded:
                    ids = [owner, loaded.session.id, *(link.id for link in loaded.links)]
                    by_owner |= dict.fromkeys(ids, by_owner.get(loaded.session.id, loaded))
            row = by_owner[owner]
            if row is not None and row.found is None:
                row.found = key, item
                new.append(row)
        new.sort(key=lambda row: row.sort_time, reverse=True)
        found = {row.session.id: row for row in [*found.values(), *new]}
    return list(found.values()), 0.0 if is_limited else None


# -- rows ---------------------------------------------------------------------------------------------


async def _load_rows(
    store: Store, rows: Sequence[ListedConversation], query: ConversationQuery
) -> list[ListedConversation]:
    """Load rows that were not loaded before; those that were removed meanwhile or are damaged are left out."""
    open_runs = [run for status in ("running", "paused") for run in await store.agent_runs(status=status)]
    runs = {run.session_id: run.status for run in open_runs}
    return [row for row in rows if await read_or_report(store, _load_row(store, row, query, runs))]


async def _load_row(store: Store, row: ListedConversation, query: ConversationQuery, runs: Mapping[str, str]) -> bool:
    """Add the figures, the status and the title. Returns False if the conversation was removed. Raises DamagedRow.

    runs:  the status of the open agent run of sessions, by their ids
    """
    links, stats = row.links, None
    try:
        if row.has_session:
            stats = await store.session_stats(row.session.id)
            row.item_count, row.unconfirmed_count, row.turn_count = stats[:3]
            limit = 1 if query.prices is None else MAX_PRICED_LINKS + 1
            links = list(reversed(await store.links(row.session.id, limit=limit)))
        else:
            row.turn_count = sum(link.status in ANSWERED_STATUSES for link in links)
        if stats and (stats.first_item is None or typed_text(stats.first_item)):
            first_items: Sequence[Item | None] = [stats.first_item]
        else:
            first_items = await store.first_items(row.session.head, MAX_TITLE_ITEMS)
        row.first_words = conversation_title(filter(None, first_items))
    except NotFound:
        return False
    if query.prices is not None:
        from convo.inspect.view import link_cost_usd

        costs = [link_cost_usd(link, query.prices) for link in links if link.usage]
        known = [cost for cost in costs if cost is not None]
        row.cost_usd = sum(known) if 0 < len(known) == len(costs) and len(links) <= MAX_PRICED_LINKS else None
    if links and row.kind == "recording":
        row.client = describe_client(links[0].parameters)
    run_status = runs.get(row.session.id)
    if run_status == "paused":
        row.status = "paused"
    elif run_status or (row.unconfirmed_count and _is_unanswered(row.session, links)):
        from convo.chat.session_record import describe_session_writer

        row.status = "running" if await describe_session_writer(store, row.session) else "interrupted"
    elif links:
        row.status = STATUS_OF_LINK[links[0].status]
    return True


def _is_unanswered(session: Session, links: Sequence[Link]) -> bool:
    """Return whether the last message has no response, not even a failed one: its process was killed, or still waits.

    The items of a converted conversation are sent to a server that owns the state with the next message only.
    """
    return links[0].head != session.head if links else not STRATEGIES[session.strategy].is_server_side


async def _locate_hit(store: Store, row: ListedConversation, words: str) -> None:
    """Set the place of what a search found on the path of its conversation, unless it was deleted."""
    if row.found is None:
        return
    from convo.inspect.view import search_snippet

    key, item = row.found
    with suppress(NotFound, ItemDeleted):
        path = await read_or_report(store, store.path(row.session.head))
        is_on_path = path is not None and path.contains(key)
        place = path if is_on_path else await read_or_report(store, store.path(key))
        if path is not None and place is not None:
            snippet = search_snippet(searchable_text(item), words)
            row.hit = HitReport(key, place.depth(key), len(path) if is_on_path else None, item_author(item), snippet)


class SessionReport(NamedTuple):
    """The record of a session, or of a conversation without one.

    id:                 the handle: of a chain without a session its newest response
    strategy:           the owner of the state
    head:               key of the head: the node of the last item
    confirmed_head:     key of the last node that the owner confirmed
    item_count:         null if the items were not counted
    unconfirmed_count:  number of items that the owner has not confirmed
    created_at:         seconds since 1970
    used_at:            seconds since 1970
    status:             of the open agent run, or of the last request
    client:             the program whose requests were recorded, with its version
    cost_usd:           null if the price of a response is unknown, and for a session of more than 200 responses
    fork_count:         other branches of the chain
    hit:                what a search found; null without a search, or if the name was found
    """

    id: str
    name: str
    strategy: Strategy
    handle: str | None
    endpoint: str
    model: str
    head: Key
    confirmed_head: Annotated[Key, Wire("mark")]
    item_count: Annotated[Count | None, Wire("items")]
    unconfirmed_count: Annotated[Count, Wire("unacknowledged")]
    turn_count: Annotated[Count, Wire("turns")]
    response_id: str | None
    instructions: str | None
    created_at: float
    used_at: float
    first_words: str | None
    kind: ConversationKind
    status: ConversationStatus
    client: str | None
    cost_usd: float | None
    fork_count: Annotated[Count, Wire("forks")]
    hit: HitReport | None = None


def build_session_report(row: ListedConversation) -> SessionReport:
    session = row.session
    return SessionReport(
        session.id,
        session.name,
        session.strategy,
        session.handle,
        str(session.scope),
        session.model,
        session.head,
        session.confirmed_head,
        row.item_count,
        row.unconfirmed_count,
        row.turn_count,
        session.link_id,
        session.instructions,
        session.created_at,
        session.used_at,
        row.first_words,
        row.kind,
        row.status,
        row.client,
        row.cost_usd,
        row.fork_count,
        row.hit,
    )

"""JSON data of the inspector page: sessions, requests, and one conversation; the feed of its changes.

The data of a conversation is a superset of `convo inspect --json`: with the order of the tree, figures of each link,
and each distinct request once. Responses in progress are included with their text so far.

The list of requests and the charts are read for one call of a tenant at a time, so that many calls with one key do not
hold up the other tenants.
"""

import asyncio
import binascii
import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from hashlib import sha256
from itertools import islice

from convo.chat.conversation_list import (
    ConversationCursor,
    ConversationQuery,
    build_session_report,
    list_conversations,
)
from convo.chat.lookup import (
    load_link,
    load_running_text,
    load_sent_body,
)
from convo.chat.next_request import rebuild_request_fields
from convo.chat.session_record import list_running_requests
from convo.chat.view_loader import load_handle_view, load_request_view
from convo.config.sections import Price
from convo.config.settings import LOCAL_TENANT
from convo.errors import DamagedRow, InvalidRunState
from convo.history.canonical import is_utf8_encodable
from convo.history.items import (
    MAX_TITLE_ITEMS,
    Item,
    Json,
    StreamEvent,
    conversation_title,
    item_type,
    last_answer_text,
    request_title,
)
from convo.history.records import (
    IGNORED_PARAMETER,
    UNFINISHED_STATUSES,
    Link,
    describe_client,
    is_recording_in_progress,
)
from convo.inspect.report import build_conversation_report, list_parents
from convo.inspect.tree import iter_link_rows
from convo.inspect.view import ConversationView, OpenRun, compute_link_stats, link_cost_usd
from convo.prompt_cache.why import MISSES, MissReport, describe_cause, explain_miss, explain_misses, find_listed_misses
from convo.report import to_json
from convo.runs.stored_approvals import PendingApproval, list_pending_approvals
from convo.server import errors, http
from convo.server.handlers import HandlerContext, SeenConversation
from convo.server.request_log import is_continuation
from convo.stores.base import Store
from convo.stores.codec import parse_search_phrases, tokenize
from convo.stores.request_charts import CostGroup, CostGroups, TimeBucket
from convo.stores.request_list import TEXT_SORTS, ListedRequest, RequestCursor, RequestQuery, unstored_cost_usd
from convo.stores.unstored_requests import UnstoredRequest
from convo.strategies.strategy import STRATEGIES
from convo.usage.cost import Usage
from convo.usage.model_info import find_price

DEFAULT_SESSION_LIMIT, MAX_SESSION_LIMIT = 50, 1000
"""Number of conversations on a page."""


async def encode_session_list(context: HandlerContext) -> bytes:
    """Serialize the list of conversations."""
    query, store = context.query, store_for_tenant(context)
    position, handle = decode_cursor(query["after"], "created_at") if query.get("after") else (0, "")
    conversation_query = ConversationQuery(
        words=query.get("q", "").strip(),
        sort=query.get("sort"),
        is_descending=query.get("order") != "asc",
        limit=max(1, min(query.get("limit", DEFAULT_SESSION_LIMIT), MAX_SESSION_LIMIT)),
        after=ConversationCursor(max(0, int(position)), handle) if handle else None,
        prices=context.inspector.prices,
    )
    async with context.inspector.query_locks.for_tenant(context.tenant):
        page = await list_conversations(store, conversation_query)
    return http.serialize_strict_json(
        {
            "data": to_json(map(build_session_report, page.rows)),
            "next": encode_cursor(page.next_cursor) if page.next_cursor else None,
            "searched": page.searched,
            "running": list(map(_describe_running, context.requests.running(context.tenant))),
            "paused": [paused_run async for paused_run in _iter_paused_runs(store)],
        }
    )


DEFAULT_REQUEST_LIMIT, MAX_REQUEST_LIMIT = 50, 200
"""Number of requests on a page."""

MAX_CURSOR_INTEGER = 2**63 - 1
"""The largest integer of a cursor: databases have no larger ones."""

MAX_LINKS = 2000
"""Requests of one tree that the page of a conversation shows."""

MAX_SEEN_CONVERSATIONS = 32
"""Conversations of which the version is kept, so that a poll without a change does not read them."""

MAX_CONTINUATIONS = 20
"""Requests that continue the one in the pane, of which the pane has links."""

MAX_EARLIER_REQUESTS = 8
"""Earlier requests of the session with which a request in the pane is compared, besides its parent."""

MAX_LIST_TEXTS, MAX_LIST_TEXT_CHARS = 20, 100_000
"""Recorded requests in progress whose text is in the list, and the characters of each text."""

MAX_RUNNING_ROWS = 200
"""Running requests in the list: the newest."""

MAX_PAUSED_RUNS = 20
"""Number of paused agent runs that the page lists above the requests."""

MAX_ARGUMENT_CHARACTERS = 1000
"""Characters of the arguments of a pending call that the page shows."""

MAX_SESSION_NAMES = 100
"""Number of sessions that the page offers as a filter."""

REGULAR_EVENT_S = 0.75
"""Seconds between two events where the changes of the store are not known."""


async def encode_request_list(context: HandlerContext) -> bytes:
    """Serialize one page of the requests. Raises RequestRefused for an invalid cursor."""
    query, prices, store = context.query, context.inspector.prices, store_for_tenant(context)
    sort = query.get("sort", "created_at")
    request_query = replace(
        _build_filter_query(context),
        sort=sort,
        is_descending=query.get("order") != "asc",
        limit=max(1, min(query.get("limit", DEFAULT_REQUEST_LIMIT), MAX_REQUEST_LIMIT)),
        after=decode_cursor(query["after"], sort) if query.get("after") else None,
    )
    running_rows = [*context.requests.running(context.tenant), *await _list_other_requests(store)][-MAX_RUNNING_ROWS:]
    request_query = replace(request_query, recent=context.requests.recent(context.tenant))
    async with context.inspector.query_locks.for_tenant(context.tenant):
        page = await store.list_requests(request_query)
    links = [request.link for request in page.requests]
    missed_ids = find_listed_misses((request.link, _parent_usage(request)) for request in page.requests)
    stored_ids = {link.id for link in links}
    running = [link for link in links if is_recording_in_progress(link)]
    texts = {
        link.id: {"text": text, "phase": "streaming" if text else "waiting"}
        for link in running[:MAX_LIST_TEXTS]
        for text in [(await load_running_text(link, store))[:MAX_LIST_TEXT_CHARS]]
    }
    return http.serialize_strict_json(
        {
            "data": [
                {
                    **_build_request_row(request, prices),
                    "cache_missed": request.link.id in missed_ids,
                    **texts.get(request.link.id, {}),
                }
                if isinstance(request, ListedRequest)
                else _build_unstored_row(request, request_query)
                for request in page.rows
            ],
            "next": encode_cursor(page.next_cursor) if page.next_cursor else None,
            "running": [
                row for row in reversed(running_rows) if row["id"] not in stored_ids and _is_wanted(row, request_query)
            ],
            "paused": [paused_run async for paused_run in _iter_paused_runs(store)],
            "models": _name_models(
                {
                    *await store.request_models(request_query.expand_model_name),
                    *(request_query.expand_model_name(row.model) for row in request_query.recent if row.model),
                },
                request_query,
            ),
            "tools": list(await store.request_tools()),
            "sessions": [session.name for session in await store.sessions(limit=MAX_SESSION_NAMES)],
            "is_search_limited": page.is_search_limited,
            "is_recording": context.is_recorded,
            "not_recorded": [
                {"client": client, "count": count}
                for client, count in (() if context.is_recorded else await store.count_unrecorded())
            ],
            **({"continued": await _list_continuations(query["request"], context)} if query.get("request") else {}),
        }
    )


async def _list_continuations(link_id: str, context: HandlerContext) -> Sequence[str]:
    """Return the ids of stored requests, and of those in progress, that continue a request."""
    children = await store_for_tenant(context).child_links(link_id, limit=MAX_CONTINUATIONS)
    running = context.requests.running(context.tenant)
    ids = [
        *(child.id for child in children),
        *(str(row["id"]) for row in running if row["previous_response_id"] == link_id),
    ]
    return list(dict.fromkeys(ids))


async def encode_charts(context: HandlerContext) -> bytes:
    """Serialize the figures of the requests that pass the filters."""
    async with context.inspector.query_locks.for_tenant(context.tenant):
        recent = context.requests.recent(context.tenant)
        charts = await store_for_tenant(context).chart_requests(replace(_build_filter_query(context), recent=recent))
    groups = [*charts.models.top, *([charts.models.other] if charts.models.other else [])]
    costs = [group.cost_usd for group in groups if group.cost_usd is not None]
    total = TimeBucket.sum(charts.buckets)
    return http.serialize_strict_json(
        {
            "bucket_s": charts.bucket_s,
            "buckets": [
                {
                    "start": bucket.start,
                    **_build_figures(bucket),
                    "latency_p50_s": bucket.p50_s,
                    "latency_p95_s": bucket.p95_s,
                }
                for bucket in charts.buckets
            ],
            "total": {
                **_build_figures(total),
                "cost_usd": sum(costs) if costs else None,
                "unpriced": sum(group.unpriced for group in groups),
            },
            "models": _build_cost_groups(charts.models),
            "sessions": _build_cost_groups(charts.sessions),
            "damaged": charts.damaged_count,
            "is_search_limited": charts.is_search_limited,
        }
    )


def _build_filter_query(context: HandlerContext) -> RequestQuery:
    """Build the query of the list and the charts from the filters in the address."""
    query, prices = context.query, context.inspector.prices
    return RequestQuery(
        status=query.get("status") or None,
        model=query.get("model") or None,
        session=query.get("session") or None,
        text=query.get("q", "").strip(),
        tool=query.get("tool") or None,
        begin=query.get("from"),
        end=query.get("to"),
        find_price=lambda model: find_price(model, prices),
        expand_model_name=context.inspector.expand_model_name,
    )


def _name_models(full_names: Iterable[str], query: RequestQuery) -> list[str]:
    """Return the full name of each model; for the model of the filter, the name in the filter."""
    full_names = set(full_names)
    if query.model is not None and (full_name := query.expand_model_name(query.model)) in full_names:
        full_names = full_names - {full_name} | {query.model}
    return sorted(full_names)


def _build_figures(bucket: TimeBucket) -> dict[str, Json]:
    return {
        "requests": bucket.requests,
        "errors": bucket.errors,
        "input_tokens": bucket.input_tokens,
        "cached_tokens": bucket.cached_tokens,
        "output_tokens": bucket.output_tokens,
        "cache_hit_rate": bucket.cache_hit_rate,
    }


def _build_cost_groups(groups: CostGroups) -> dict[str, Json]:
    def figures(group: CostGroup) -> dict[str, Json]:
        return {"requests": group.requests, "cost_usd": group.cost_usd, "unpriced": group.unpriced}

    return {
        "top": [{"name": group.name, **figures(group)} for group in groups.top],
        "other": {"groups": groups.other.groups, **figures(groups.other)} if groups.other else None,
    }


async def _iter_paused_runs(store: Store) -> AsyncGenerator[Json, None]:
    """Yield the newest paused agent runs, each with its session and its pending calls."""
    for run in await store.agent_runs(status="paused", limit=MAX_PAUSED_RUNS):
        session = None
        with suppress(DamagedRow):
            session = await store.session(run.session_id)
        pending: Sequence[PendingApproval] = ()
        with suppress(InvalidRunState):  # stored by another version of convo
            pending = list_pending_approvals(run.document)
        yield {
            "run_id": run.id,
            "session": session.name if session else run.session_id,
            "pending": [_build_pending_call(call.call_id, call.tool, call.arguments) for call in pending],
        }


def _is_wanted(row: Mapping[str, Json], query: RequestQuery) -> bool:
    """Return whether a running request passes the filters; of its text only the title is searched."""
    title_terms = f" {tokenize(row['title'])} "
    return (
        query.status in (None, "in_progress")
        and query.has_model(row["model"])
        and query.session in (None, row["session"])
        and query.tool is None
        and (query.begin is None or row["created_at"] >= query.begin)
        and (query.end is None or row["created_at"] < query.end)
        and all(f" {phrase} " in title_terms for phrase in parse_search_phrases(query.text))
    )


def encode_cursor(cursor: RequestCursor | ConversationCursor) -> str:
    return urlsafe_b64encode(json.dumps(cursor).encode()).decode()


def decode_cursor(text: str, sort: str) -> RequestCursor:
    """Decode a cursor of the list in this order. Raises RequestRefused."""
    with suppress(ValueError, TypeError, binascii.Error, RecursionError):
        value, request_id = json.loads(urlsafe_b64decode(text.encode()))
        is_valid = _is_storable_text(value) if sort in TEXT_SORTS else _is_storable_number(value)
        if is_valid and isinstance(request_id, str):
            return RequestCursor(value, request_id)
    raise errors.http_parameter_type_error("after", "a cursor of this list")


def _is_storable_text(value: Json) -> bool:
    return isinstance(value, str) and is_utf8_encodable(value) and "\0" not in value


def _is_storable_number(value: Json) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and -MAX_CURSOR_INTEGER <= value <= MAX_CURSOR_INTEGER


def _parent_usage(request: ListedRequest) -> Usage | None:
    if request.parent_counts is None:
        return None
    input_tokens, cached_tokens, written_tokens = request.parent_counts
    return Usage(input_tokens, cached_tokens, cache_write_tokens=written_tokens)


def _build_request_row(request: ListedRequest, prices: Mapping[str, Price]) -> dict[str, Json]:
    link, usage = request.link, Usage.from_json(request.link.usage)
    return {
        "id": link.id,
        "parent": link.parent_id,
        "title": request.title,
        "created_at": link.created_at,
        "model": link.model,
        "status": link.status,
        "session": request.session_name,
        "client": describe_client(link.parameters),
        "latency_s": link.duration_s,
        "input_tokens": usage and usage.input_tokens,
        "cached_tokens": usage and usage.cached_tokens,
        "output_tokens": usage and usage.output_tokens,
        "cost_usd": link_cost_usd(link, prices),
        "code": (link.error or {}).get("code"),
    }


def _build_unstored_row(request: UnstoredRequest, query: RequestQuery) -> dict[str, Json]:
    return {
        "id": request.id,
        "parent": None,
        "title": "",
        "created_at": request.created_at,
        "model": request.model,
        "status": request.status,
        "session": None,
        "client": request.client,
        "latency_s": request.latency_s,
        "input_tokens": request.input_tokens,
        "cached_tokens": request.cached_tokens,
        "output_tokens": request.output_tokens,
        "cost_usd": unstored_cost_usd(request, query),
        "is_stored": False,
        "api": request.api,
        "code": request.code,
        "count": request.count,
        "first_token_s": request.first_token_s,
        "request_bytes": request.request_bytes,
        "response_bytes": request.response_bytes,
    }


async def follow_changes(context: HandlerContext) -> AsyncGenerator[StreamEvent, None]:
    """Yield an event at first and after each change, until the server shuts down.

    A change is a response of the tenant that starts or ends on this server, or a write to the store by any process. The
    store counts the writes of all tenants together; so that no tenant can observe another one's, the tenant of a key
    gets an event at regular times instead.
    """
    store, running_requests = store_for_tenant(context), context.requests
    number, known, is_only_tenant = 0, None, context.tenant == LOCAL_TENANT
    async with context.inspector.store_changes.follow(store) if is_only_tenant else nullcontext() as store_changes:
        while not running_requests.is_closed:
            changes = [running_requests.next_change(context.tenant)]
            if store_changes is not None:
                changes += await store_changes.next_changes()
            state = (store_changes and store_changes.version, running_requests.revision(context.tenant))
            if store_changes is None or state != known:
                yield {"type": "inspector.changed", "sequence_number": number}
                number, known = number + 1, state
            timeout_s = REGULAR_EVENT_S if store_changes is None else None
            await asyncio.wait(changes, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


async def encode_conversation_view(context: HandlerContext) -> bytes:
    """Serialize one conversation, or only its responses in progress if the page has the current version.

    Its requests are read only if something was written to the store since the last call.
    Raises NotFound and AmbiguousHandle.
    """
    store, handle = store_for_tenant(context), context.path_params["handle"]
    known, data_version = context.inspector.seen_conversations, None
    if context.tenant == LOCAL_TENANT:  # the time of a reply must not show other tenants' writes, see `follow_changes`
        data_version = await store.data_version()
        seen = known.get(handle)
        if seen and seen.data_version == data_version and seen.version == context.query.get("seen"):
            running = await _load_running(seen, store, context)
            return http.serialize_strict_json({"version": seen.version, "running": running})
    view = await load_handle_view(store, handle, read_files=context.tenant == LOCAL_TENANT, max_links=MAX_LINKS)
    version, link_ids = _hash_view_version(view), frozenset(link.id for link in view.links)
    is_api_conversation = view.session is None and view.handle not in link_ids  # `conv_...`: forks are no part of it
    seen = SeenConversation(
        data_version or "",
        version,
        frozenset() if is_api_conversation else link_ids,
        view.session.handle if view.session else view.handle,
        [link for link in view.links if link.status in UNFINISHED_STATUSES],
    )
    known.pop(handle, None)
    if data_version is not None and view.replay_file is None and view.open_run is None:  # those change without a write
        known[handle] = seen
        while len(known) > MAX_SEEN_CONVERSATIONS:
            del known[next(iter(known))]
    running = await _load_running(seen, store, context)
    if context.query.get("seen") == version:
        return http.serialize_strict_json({"version": version, "running": running})
    view = replace(view, prices=context.inspector.prices)
    return await asyncio.to_thread(
        lambda: http.serialize_strict_json({**_build_conversation_data(view), "running": running})
    )


async def encode_request_view(context: HandlerContext) -> bytes:
    """Serialize one request with its own path, its parent, and the request to compare it with.

    Raises NotFound if there is no such request, or no such request to compare it with.
    """
    store, link_id, other_id = store_for_tenant(context), context.path_params["id"], context.query.get("compare")
    link = await load_link(store, link_id)
    others = [link.parent_id] if link.parent_id else []
    if other_id:
        others.append((await load_link(store, other_id)).id)
    view = await load_request_view(store, link_id, others)
    children = await store.child_links(link_id, limit=MAX_CONTINUATIONS)
    view = replace(view, prices=context.inspector.prices)
    continued = [child.id for child in children]
    sent = await load_sent_body(store, link)
    sent_request = (
        {"protocol": sent.protocol, "path": sent.path, "headers": sent.headers, "body": sent.body} if sent else None
    )
    cache_view = replace(await _add_earlier_requests(view, link, store), sent_body=sent)

    def encode() -> bytes:
        report = explain_miss(cache_view, link)
        miss = _build_miss(report) if report.outcome in MISSES and report.missed_tokens else None
        data = _build_conversation_data(view)
        return http.serialize_strict_json({**data, "continued": continued, "sent": sent_request, "cache_miss": miss})

    return await asyncio.to_thread(encode)


async def _add_earlier_requests(view: ConversationView, link: Link, store: Store) -> ConversationView:
    """Add the newest earlier requests of the session with the same instructions: their prompts are cached, too."""
    if link.session_id is None:
        return view
    query = RequestQuery(session=link.session_id, end=link.created_at, limit=MAX_EARLIER_REQUESTS)
    instructions = link.parameters.get("instructions")
    links = [request.link for request in (await store.list_requests(query)).requests]
    ids = [earlier.id for earlier in links if earlier.parameters.get("instructions") == instructions]
    if ids[:1] in ([], [link.parent_id]):
        return view
    return replace(await load_request_view(store, link.id, [*filter(None, [link.parent_id]), *ids]), prices=view.prices)


async def _load_running(seen: SeenConversation, store: Store, context: HandlerContext) -> Sequence[Json]:
    """Return the conversation's responses in progress, with their text so far."""
    running = context.requests.running(context.tenant)
    return [
        *(_describe_running(row) for row in running if is_continuation(row, seen.link_ids, seen.live_handle)),
        *[await load_background_response(link, store) for link in seen.unfinished_links],
    ]


async def _list_other_requests(store: Store) -> list[dict[str, Json]]:
    """Return the rows of requests of chats and other commands."""
    return [
        {
            "id": session.id,
            "request_id": session.id,
            "parent": session.link_id,
            "title": request_title(reversed(items)),
            "created_at": started_at,
            "model": model,
            "status": "in_progress",
            "phase": "streaming" if (text := last_answer_text(items[-1:])) else "waiting",
            "session": session.name,
            "client": None,
            **dict.fromkeys(("latency_s", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")),
            "first_token_s": None,
            "previous_response_id": session.link_id,
            "conversation": None,
            "text": text,
            "is_stored": True,
            "api": "responses" if items else "compact",
        }
        for session, model, started_at, items in await list_running_requests(store)
    ]


def _describe_running(row: Mapping[str, Json]) -> dict[str, Json]:
    names = ("previous_response_id", "status", "phase", "created_at", "model", "text")
    return {"response_id": row["id"], **{name: row[name] for name in names}}


async def load_background_response(link: Link, store: Store) -> Json:
    """Load a background or recorded response as far as it is stored, whichever process runs it."""
    return {
        "response_id": link.id,
        "previous_response_id": link.parent_id,
        "status": link.status,
        "model": link.model,
        "text": await load_running_text(link, store),
    }


def store_for_tenant(context: HandlerContext) -> Store:
    """Return the caller's part of the store."""
    return context.inspector.store.for_tenant(context.tenant)


STATE_HANDLE_FIELDS = ("previous_response_id", "conversation")
"""Fields of a request that its link also has."""


def _hash_view_version(view: ConversationView) -> str:
    """Return a hash that changes whenever the view changes."""
    links = [(link.id, link.status, link.input_head, link.head, link.session_id) for link in view.links]
    state = (view.handle, view.path.head, view.confirmed_head, view.current_link_id, view.notes, view.open_run, links)
    return sha256(repr(state).encode()).hexdigest()


def _build_conversation_data(view: ConversationView) -> dict[str, Json]:
    """Build the page's data of one conversation; a superset of the object of `convo inspect --json`."""
    document, requests = to_json(build_conversation_report(view)), RequestTable()
    rows = {
        row.link.id: {"depth": row.depth, "begins": row.starts_branch}
        for row in iter_link_rows(view.links, view.current_link_id)
    }
    link_data = {link.id: _build_link_data(link, view, requests) for link in view.links}
    for report in explain_misses(view):
        link_data[report.response_id]["cache_miss"] = _build_miss(report)
    return {
        **document,
        "version": _hash_view_version(view),
        "name": view.session.name if view.session else view.handle,
        "is_session": view.session is not None,
        "owner": STRATEGIES[view.strategy].description,
        "owners": {str(strategy): owner.description for strategy, owner in STRATEGIES.items()},
        "model": view.model,
        "at": view.current_link_id,
        "path": {"through": view.path.head} if len(view.path) else [],
        "items_at_head": len(view.path),
        "unacknowledged": [node.key for node in view.unconfirmed_nodes],
        "notes": list(view.notes),
        "run": _build_run_data(view.open_run, view) if view.open_run else None,
        "parents": list_parents(view.path_index),
        "links": [
            {**link, **link_data[link["response_id"]], **rows[link["response_id"]]} for link in document["links"]
        ],
        "rows": list(rows),
        "requests": requests.requests,
    }


def _build_miss(report: MissReport) -> Json:
    return {**to_json(report), "description": describe_cause(report)}


def build_inspector_data(views: Mapping[str, ConversationView]) -> dict[str, Json]:
    """Build the data of a single-file page: conversations by handle, and the list of them."""
    return {
        "list": {
            "data": [_build_list_entry(handle, view) for handle, view in views.items()],
            "next": None,
            "searched": "",
        },
        "conversations": {handle: _build_conversation_data(view) for handle, view in views.items()},
    }


def _build_list_entry(handle: str, view: ConversationView) -> dict[str, Json]:
    items = view.path.items
    last_created_at = max((link.created_at for link in view.links), default=None)
    return {
        "id": handle,
        "name": view.session.name if view.session else view.handle,
        "strategy": str(view.strategy),
        "status": "done",
        "items": len(items),
        "unacknowledged": len(view.unconfirmed_nodes),
        "used_at": view.session.used_at if view.session else last_created_at,
        "first_words": conversation_title(islice(items, MAX_TITLE_ITEMS)),
    }


class RequestTable:
    """Distinct requests without their items, in the order of their first use."""

    def __init__(self) -> None:
        self._indexes: dict[str, int] = {}

    def index_of(self, request: Mapping[str, Json]) -> int:
        text = json.dumps(request, sort_keys=True)
        return self._indexes.setdefault(text, len(self._indexes))

    @property
    def requests(self) -> Sequence[Json]:
        return [json.loads(text) for text in self._indexes]


def _build_link_data(link: Link, view: ConversationView, requests: RequestTable) -> dict[str, Json]:
    stats = compute_link_stats(link, view.path_index)
    fields = rebuild_request_fields(link, view.path_index)
    request = {name: value for name, value in fields.items() if name not in STATE_HANDLE_FIELDS}
    return {
        "parent": link.parent_id,
        "strategy": str(link.strategy),
        "session": view.session_names.get(link.session_id, "a removed session") if link.session_id else None,
        "seconds": link.duration_s,
        "first_token_s": link.first_token_s,
        "ignored": list(link.parameters.get(IGNORED_PARAMETER, ())),
        "client": describe_client(link.parameters),
        "error": dict(link.error) if link.error else None,
        "reported": dict(link.reported),
        "items_sent": stats.sent_count,
        "items_saw": stats.input_count,
        "sent_tokens": stats.sent_tokens,
        "full": stats.is_full_history,
        "said": stats.input_preview,
        "answered": stats.output_preview,
        "request": requests.index_of(request),
    }


def _build_run_data(run: OpenRun, view: ConversationView) -> Json:
    """Describe the agent run that is open in the session; a call of a nested run has only its id."""
    calls = {item.get("call_id") or item.get("id"): item for item in view.path.items if _is_call(item)}
    pending = [(call_id, calls.get(call_id, {})) for call_id in run.pending_call_ids]
    return {
        "id": run.id,
        "is_paused": run.is_paused,
        "process": run.process,
        "pending": [_build_pending_call(call_id, call.get("name"), call.get("arguments")) for call_id, call in pending],
    }


def _build_pending_call(call_id: str, name: Json, arguments: Json) -> Json:
    """Describe a call; of long arguments only the start."""
    text = arguments if isinstance(arguments, str) else ""
    is_long = len(text) > MAX_ARGUMENT_CHARACTERS
    return {
        "call_id": call_id,
        "name": name if isinstance(name, str) else None,
        "arguments": f"{text[:MAX_ARGUMENT_CHARACTERS]}…" if is_long else text,
    }


def _is_call(item: Item) -> bool:
    return item_type(item).endswith("_call") or item_type(item) == "mcp_approval_request"

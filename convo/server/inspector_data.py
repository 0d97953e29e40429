"""JSON data of the inspector page: sessions, and one conversation.

A superset of `convo inspect --json`: with the order of the tree, figures of each link, and each
distinct request once. Responses in progress are included with their text so far.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from convo.chat.lookup import list_store, store_listing_to_json
from convo.chat.next_request import rebuild_request_fields
from convo.chat.view_loader import load_handle_view
from convo.config.settings import LOCAL_TENANT
from convo.history.accumulator import ResponseAccumulator
from convo.history.items import Json, item_preview
from convo.history.records import IGNORED_PARAMETER, UNFINISHED_STATUSES, Link
from convo.inspect.serialize import conversation_to_json
from convo.inspect.tree import iter_link_rows
from convo.inspect.view import ConversationView, compute_link_stats, sum_link_usage
from convo.server import http
from convo.server.routes import HandlerContext
from convo.server.sse import join_output_text
from convo.stores.base import Store
from convo.strategies.strategy import STRATEGIES

DEFAULT_SESSION_LIMIT, MAX_SESSION_LIMIT = 50, 1000
"""Number of sessions listed."""


async def encode_session_list(context: HandlerContext) -> bytes:
    """Serialize the list of conversations."""
    limit = max(1, min(context.query.get("limit", DEFAULT_SESSION_LIMIT), MAX_SESSION_LIMIT))
    listing = await list_store(store_for_tenant(context), limit)
    running = [live_response.to_json() for live_response in context.inspector.live_responses.for_tenant(context.tenant)]
    return http.serialize_strict_json({**store_listing_to_json(listing), "running": running})


async def encode_conversation_view(context: HandlerContext) -> bytes:
    """Serialize one conversation, or only its responses in progress if the page has the current version.

    Raises NotFound and AmbiguousHandle.
    """
    store = store_for_tenant(context)
    view = await load_handle_view(store, context.path_params["handle"], read_files=context.tenant == LOCAL_TENANT)
    running = [
        *iter_live_responses(view, context),
        *[await load_background_response(link, store) for link in view.links if link.status in UNFINISHED_STATUSES],
    ]
    version = _hash_view_version(view)
    if context.query.get("seen") == version:
        return http.serialize_strict_json({"version": version, "running": running})
    view = replace(view, prices=context.inspector.prices)
    return await asyncio.to_thread(
        lambda: http.serialize_strict_json({**_build_conversation_data(view), "running": running})
    )


def iter_live_responses(view: ConversationView, context: HandlerContext) -> Iterator[Json]:
    """Yield the conversation's responses in progress on this server, with their text so far."""
    ids = frozenset(link.id for link in view.links)
    handle = view.session.handle if view.session else view.handle
    for live_response in context.inspector.live_responses.for_tenant(context.tenant):
        if live_response.is_continuation_of(ids, handle):
            yield live_response.to_json()


async def load_background_response(link: Link, store: Store) -> Json:
    """Load a background response as far as it is stored, whichever process runs it."""
    accumulator = ResponseAccumulator()
    for event in await store.events(link.id):
        accumulator.add(event)
    return {"response_id": link.id, "status": link.status, "model": link.model, "text": join_output_text(accumulator)}


def store_for_tenant(context: HandlerContext) -> Store:
    """Return the caller's part of the store."""
    return context.inspector.store.for_tenant(context.tenant)


STATE_HANDLE_FIELDS = ("previous_response_id", "conversation")
"""Fields of a request that its link also has."""


def _hash_view_version(view: ConversationView) -> str:
    """Return a hash that changes whenever the view changes."""
    links = [(link.id, link.status, link.input_head, link.head, link.session_id) for link in view.links]
    return sha256(
        repr((view.handle, view.path.head, view.confirmed_head, view.current_link_id, view.notes, links)).encode()
    ).hexdigest()


def _build_conversation_data(view: ConversationView) -> dict[str, Json]:
    """Build the page's data of one conversation; a superset of the object of `convo inspect --json`."""
    document, requests = conversation_to_json(view), RequestTable()
    rows = {
        row.link.id: {"depth": row.depth, "begins": row.starts_branch}
        for row in iter_link_rows(view.links, view.current_link_id)
    }
    link_data = {link.id: _build_link_data(link, view, requests) for link in view.links}
    return {
        **document,
        "version": _hash_view_version(view),
        "name": view.session.name if view.session else view.handle,
        "owner": STRATEGIES[view.strategy].description,
        "owners": {str(strategy): owner.description for strategy, owner in STRATEGIES.items()},
        "model": view.model,
        "at": view.current_link_id,
        "path": {"through": view.path.head} if len(view.path) else [],
        "items_at_head": len(view.path),
        "unacknowledged": [node.key for node in view.unconfirmed_nodes],
        "notes": list(view.notes),
        "bill": _build_bill_data(view),
        "parents": {key: entry.parent if entry.depth > 1 else None for key, entry in view.path_index},
        "links": [
            {**link, **link_data[link["response_id"]], **rows[link["response_id"]]} for link in document["links"]
        ],
        "rows": list(rows),
        "requests": requests.requests,
    }


def build_inspector_data(views: Mapping[str, ConversationView]) -> dict[str, Json]:
    """Build the data of a single-file page: conversations by handle, and the list of them."""
    return {
        "list": {
            "sessions": [_build_list_entry(handle, view) for handle, view in views.items()],
            "others": [],
            "more": False,
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
        "items": len(items),
        "unacknowledged": len(view.unconfirmed_nodes),
        "used_at": view.session.used_at if view.session else last_created_at,
        "first_words": item_preview(items[0]) if items else "",
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
    request = {name: value for name, value in rebuild_request_fields(link).items() if name not in STATE_HANDLE_FIELDS}
    return {
        "parent": link.parent_id,
        "strategy": str(link.strategy),
        "session": view.session_names.get(link.session_id, "a removed session") if link.session_id else None,
        "seconds": link.duration_s,
        "ignored": list(link.parameters.get(IGNORED_PARAMETER, ())),
        "error": dict(link.error) if link.error else None,
        "items_sent": stats.sent_count,
        "items_saw": stats.input_count,
        "sent_tokens": stats.sent_tokens,
        "full": stats.is_full_history,
        "said": stats.input_preview,
        "answered": stats.output_preview,
        "request": requests.index_of(request),
    }


def _build_bill_data(view: ConversationView) -> Json:
    total = sum_link_usage(view.links, view.prices)
    if total is None:
        return None
    usage = total.usage
    return {
        "requests": total.request_count,
        "input": usage.input_tokens,
        "cached": usage.cached_tokens,
        "output": usage.output_tokens,
        "again": total.resent_tokens,
        "cost_usd": total.cost_usd,
    }

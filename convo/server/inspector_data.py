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
from convo.chat.preview import rebuild_request_fields
from convo.chat.view_loader import load_handle_view
from convo.config.settings import LOCAL_TENANT
from convo.history.accumulator import ResponseAccumulator
from convo.history.items import Json, item_preview
from convo.history.records import IGNORED_PARAMETER, STRATEGY_INFO, Link
from convo.inspect.serialize import conversation_to_json
from convo.inspect.tree import iter_link_rows
from convo.inspect.view import ConversationView, compute_link_stats, sum_link_usage
from convo.server import http
from convo.server.routes import HandlerContext
from convo.server.sse import join_output_text
from convo.stores.base import Store

RUNNING_STATUSES = ("queued", "in_progress")
DEFAULT_SESSION_LIMIT, MAX_SESSION_LIMIT = 50, 1000
"""Number of sessions listed."""


async def encode_session_list(asked: HandlerContext) -> bytes:
    """Serialize the list of conversations."""
    limit = max(1, min(asked.query.get("limit", DEFAULT_SESSION_LIMIT), MAX_SESSION_LIMIT))
    found = await list_store(store_for_tenant(asked), limit)
    running = [heard.as_json() for heard in asked.inspected.going.of(asked.tenant)]
    return http.serialize_strict_json({**store_listing_to_json(found), "running": running})


async def encode_conversation_view(asked: HandlerContext) -> bytes:
    """Serialize one conversation, or only its responses in progress if the page has the current version.

    Raises NotFound and AmbiguousHandle.
    """
    store = store_for_tenant(asked)
    known = await load_handle_view(store, asked.ids["handle"], files=asked.tenant == LOCAL_TENANT)
    running = [
        *iter_live_responses(known, asked),
        *[await load_background_response(link, store) for link in known.links if link.status in RUNNING_STATUSES],
    ]
    version = hash_view_version(known)
    if asked.query.get("seen") == version:
        return http.serialize_strict_json({"version": version, "running": running})
    known = replace(known, prices=asked.inspected.prices)
    return await asyncio.to_thread(
        lambda: http.serialize_strict_json({**build_conversation_data(known), "running": running})
    )


def iter_live_responses(known: ConversationView, asked: HandlerContext) -> Iterator[Json]:
    """Yield the conversation's responses in progress on this server, with their text so far."""
    ids = frozenset(link.id for link in known.links)
    handle = known.session.handle if known.session else known.handle
    for heard in asked.inspected.going.of(asked.tenant):
        if heard.goes_on_from(ids, handle):
            yield heard.as_json()


async def load_background_response(link: Link, store: Store) -> Json:
    """Load a background response as far as it is stored, whichever process runs it."""
    partial = ResponseAccumulator()
    for event in await store.events(link.id):
        partial.take(event)
    return {"response_id": link.id, "status": link.status, "model": link.model, "text": join_output_text(partial)}


def store_for_tenant(asked: HandlerContext) -> Store:
    """Return the caller's part of the store."""
    return asked.inspected.store.of(asked.tenant)


STATE_HANDLE_FIELDS = ("previous_response_id", "conversation")
"""Fields of a request that its link also has."""


def hash_view_version(known: ConversationView) -> str:
    """Return a hash that changes whenever the view changes."""
    links = [(link.id, link.status, link.saw, link.head, link.session) for link in known.links]
    return sha256(repr((known.handle, known.path.head, known.mark, known.at, known.notes, links)).encode()).hexdigest()


def build_conversation_data(known: ConversationView) -> dict[str, Json]:
    """Build the page's data of one conversation; a superset of the object of `convo inspect --json`."""
    shape, requests = conversation_to_json(known), RequestTable()
    drawn = {row.link.id: (row.depth, row.begins) for row in iter_link_rows(known.links, known.at)}
    told = {link.id: _build_link_data(link, known, requests) for link in known.links}
    return {
        **shape,
        "version": hash_view_version(known),
        "name": known.session.name if known.session else known.handle,
        "owner": STRATEGY_INFO[known.strategy].words,
        "owners": {str(strategy): owner.words for strategy, owner in STRATEGY_INFO.items()},
        "model": known.model,
        "at": known.at,
        "path": {"through": known.path.head} if len(known.path) else [],
        "items_at_head": len(known.path),
        "unacknowledged": [node.key for node in known.unacknowledged],
        "notes": list(known.notes),
        "bill": _build_bill_data(known),
        "parents": {key: place.before if place.depth > 1 else None for key, place in known.places},
        "links": [
            _merge_link_data(link, told[link["response_id"]], *drawn[link["response_id"]]) for link in shape["links"]
        ],
        "rows": list(drawn),
        "requests": requests.listed,
    }


def build_inspector_data(found: Mapping[str, ConversationView]) -> dict[str, Json]:
    """Build the data of a single-file page: conversations by handle, and the list of them."""
    return {
        "list": {
            "sessions": [_build_list_entry(handle, known) for handle, known in found.items()],
            "others": [],
            "more": False,
        },
        "conversations": {handle: build_conversation_data(known) for handle, known in found.items()},
    }


def _build_list_entry(handle: str, known: ConversationView) -> dict[str, Json]:
    items = known.path.items
    last = max((link.created_at for link in known.links), default=None)
    return {
        "id": handle,
        "name": known.session.name if known.session else known.handle,
        "strategy": str(known.strategy),
        "items": len(items),
        "unacknowledged": len(known.unacknowledged),
        "used_at": known.session.used_at if known.session else last,
        "first_words": item_preview(items[0]) if items else "",
    }


class RequestTable:
    """Distinct requests without their items, in the order of their first use."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, request: Mapping[str, Json]) -> int:
        text = json.dumps(request, sort_keys=True)
        return self._places.setdefault(text, len(self._places))

    @property
    def listed(self) -> Sequence[Json]:
        return [json.loads(text) for text in self._places]


def _merge_link_data(link: Mapping[str, Json], more: Mapping[str, Json], depth: int, begins: bool) -> dict[str, Json]:
    return {**link, **more, "depth": depth, "begins": begins}


def _build_link_data(link: Link, known: ConversationView, requests: RequestTable) -> dict[str, Json]:
    was = compute_link_stats(link, known.places)
    request = {name: value for name, value in rebuild_request_fields(link).items() if name not in STATE_HANDLE_FIELDS}
    return {
        "parent": link.parent,
        "strategy": str(link.strategy),
        "session": known.names.get(link.session, "a session that was removed") if link.session else None,
        "seconds": link.seconds,
        "ignored": list(link.parameters.get(IGNORED_PARAMETER, ())),
        "error": dict(link.error) if link.error else None,
        "items_sent": was.sent,
        "items_saw": was.saw,
        "sent_tokens": was.sent_tokens,
        "full": was.full,
        "said": was.said,
        "answered": was.answered,
        "request": requests.place(request),
    }


def _build_bill_data(known: ConversationView) -> Json:
    found = sum_link_usage(known.links, known.prices)
    if found is None:
        return None
    used = found.used
    return {
        "requests": found.requests,
        "input": used.input,
        "cached": used.cached,
        "output": used.output,
        "again": found.again,
        "cost_usd": found.cost_usd,
    }

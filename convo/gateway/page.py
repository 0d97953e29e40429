"""The inspector page, and what it asks for.

The page's own files hold nothing of anybody and are given to whoever asks. What they show goes by the
rules of the API: the same keys, the same tenants, and without keys this machine alone. They are
no part of the API and stand in no document of it: the page and its server are always of one version.
"""

import asyncio
from dataclasses import replace

from convo.config import ALONE
from convo.engine.directory import as_list, directory
from convo.engine.looking import look
from convo.gateway import documents, refusals
from convo.gateway.asked import Answer, Asked, Plain
from convo.gateway.exchange import JSON, NO_CONTENT
from convo.gateway.going import said
from convo.gateway.queries import Query, integer, string
from convo.gateway.routes import Route
from convo.inspection import Known
from convo.items import Json
from convo.items.partial import Partial
from convo.pages import inspected, inspector
from convo.stores.contract import Store

OPEN = ("queued", "in_progress")
MOST_LISTED = 1000

GUARD = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
PRIVATE = (*GUARD, (b"cache-control", b"no-store"))
PUBLIC = (
    *GUARD,
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", inspector.SERVED_POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)

LIMIT = Query("limit", integer, {"type": "integer"}, "Sessions at most.")
SEEN = Query("seen", string, {"type": "string"}, "The version that the page has.")


async def page(asked: Asked) -> Answer:
    return await file(replace(asked, ids={"name": ""}))


async def file(asked: Asked) -> Answer:
    """raises: Refused  the page has no such file"""
    found = inspector.served().get(asked.ids["name"])
    if found is None:
        raise refusals.no_route("GET", inspector.AT + asked.ids["name"])
    return Plain(found.body, found.form, PUBLIC)


async def icon(asked: Asked) -> Answer:
    """There is none, and a browser that asks for one is not told of an error."""
    return Plain(b"", b"image/x-icon", GUARD, NO_CONTENT)


async def listed(asked: Asked) -> Answer:
    """What can be opened."""
    limit = asked.query.get("limit", 50)
    found = await directory(store_of(asked), max(1, min(limit, MOST_LISTED)))
    running = [heard.as_json() for heard in asked.inspected.going.of(asked.tenant)]
    return private({**as_list(found), "running": running})


async def conversation(asked: Asked) -> Answer:
    """One conversation, or only what runs in it where the page has the rest. raises: NotFound, AmbiguousHandle"""
    store = store_of(asked)
    known = await look(store, asked.ids["handle"], files=asked.tenant == ALONE)
    running = await answering(asked, store, known)
    found = inspected.version(known)
    if asked.query.get("seen") == found:
        return private({"version": found, "running": running})
    known = replace(known, prices=asked.inspected.prices)
    return await asyncio.to_thread(lambda: private({**inspected.conversation(known), "running": running}))


async def answering(asked: Asked, store: Store, known: Known) -> list[Json]:
    """The answers that are being given in a conversation, with their words so far."""
    ids = frozenset(link.id for link in known.links)
    handle = known.session.handle if known.session else known.handle
    running: list[Json] = [
        heard.as_json() for heard in asked.inspected.going.of(asked.tenant) if heard.goes_on_from(ids, handle)
    ]
    for link in known.links:
        if link.status in OPEN:
            partial = Partial()
            for event in await store.events(link.id):
                partial.take(event)
            running.append({"response_id": link.id, "status": link.status, "model": link.model, "text": said(partial)})
    return running


def store_of(asked: Asked) -> Store:
    """What of the store belongs to whoever asks."""
    return asked.inspected.store.of(asked.tenant)


def private(value: Json) -> Plain:
    return Plain(documents.write(value), JSON, PRIVATE)


ROUTES = (
    Route("GET", "/", page, "The inspector page.", "Text", open=True),
    Route("GET", "/favicon.ico", icon, "No picture.", "Text", open=True),
    Route("GET", f"{inspector.AT}{{name}}", file, "A file of the page.", "Text", open=True),
    Route("GET", "/inspect/api/list", listed, "What can be opened.", "Text", query=(LIMIT,)),
    Route("GET", "/inspect/api/conversations/{handle}", conversation, "One of them.", "Text", query=(SEEN,)),
)

"""What the inspector page is told: what can be opened, and one conversation with what goes on in it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from convo.config import ALONE
from convo.engine.directory import as_list, directory
from convo.engine.looking import look
from convo.gateway import documents
from convo.gateway.asked import Asked
from convo.gateway.going import said
from convo.history import Link
from convo.inspection import Known
from convo.items import Json
from convo.items.partial import Partial
from convo.pages import inspected
from convo.stores.contract import Store

OPEN = ("queued", "in_progress")
USUAL, MOST = 50, 1000
"""How many sessions are listed."""


async def listed(asked: Asked) -> bytes:
    """What can be opened, as JSON."""
    limit = max(1, min(asked.query.get("limit", USUAL), MOST))
    found = await directory(store_of(asked), limit)
    running = [heard.as_json() for heard in asked.inspected.going.of(asked.tenant)]
    return documents.write({**as_list(found), "running": running})


async def conversation(asked: Asked) -> bytes:
    """One conversation as JSON, or only what runs in it where the page has the rest.

    raises:  NotFound, AmbiguousHandle
    """
    store = store_of(asked)
    known = await look(store, asked.ids["handle"], files=asked.tenant == ALONE)
    running = [*heard_of(known, asked), *[await kept_of(link, store) for link in known.links if link.status in OPEN]]
    version = inspected.version(known)
    if asked.query.get("seen") == version:
        return documents.write({"version": version, "running": running})
    known = replace(known, prices=asked.inspected.prices)
    return await asyncio.to_thread(lambda: documents.write({**inspected.conversation(known), "running": running}))


def heard_of(known: Known, asked: Asked) -> Iterator[Json]:
    """The answers that this server is giving in a conversation, with their words so far."""
    ids = frozenset(link.id for link in known.links)
    handle = known.session.handle if known.session else known.handle
    for heard in asked.inspected.going.of(asked.tenant):
        if heard.goes_on_from(ids, handle):
            yield heard.as_json()


async def kept_of(link: Link, store: Store) -> Json:
    """An answer in the background, as far as it is kept, wherever it is given."""
    partial = Partial()
    for event in await store.events(link.id):
        partial.take(event)
    return {"response_id": link.id, "status": link.status, "model": link.model, "text": said(partial)}


def store_of(asked: Asked) -> Store:
    """What of the store belongs to whoever asks."""
    return asked.inspected.store.of(asked.tenant)

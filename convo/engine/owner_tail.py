"""Reads what the owner has behind the last item that it confirmed.

Only an endpoint that owns a history can have more than was heard of. The embedded endpoint's rows
lie in the same store and are read there; a remote conversation is read newest first until it
meets what is known. A remote chain cannot be asked for its children: there a resend is a fork.
"""

from contextlib import aclosing
from dataclasses import dataclass, replace

from convo.endpoints.contract import Endpoint
from convo.engine.paging import PAGE, pages
from convo.errors import StateFault
from convo.history import HERE, Link, Path, Strategy
from convo.items import Item
from convo.stores.contract import Store
from convo.strategies import Held, after_mark, answered, send

ANSWERED = ("completed", "incomplete")
"""How a response ended that a chain may go on from."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The owner's items after the mark, oldest first, and the links that made them, where known."""

    items: tuple[Item, ...] = ()
    links: tuple[Link, ...] = ()


async def owner_tail(held: Held, endpoint: Endpoint, store: Store) -> Tail:
    """What the owner has and nobody heard of.

    raises:  StateFault  the conversation no longer holds what it had confirmed
    """
    here = endpoint.scope == HERE
    if held.strategy is Strategy.CHAIN and here:
        return await _chain_here(held, store)
    if held.strategy is Strategy.CONVERSATION and held.handle:
        return await (_conversation_here(held, store) if here else _conversation(held, endpoint))
    return Tail()


async def _chain_here(held: Held, store: Store) -> Tail:
    """The answer that our own endpoint gave to exactly what is unacknowledged, or to its beginning.

    A new root may begin with a history of answers: whoever answered a part of that was not asked here.
    """
    confirmed = held.path.upto(held.mark)
    asked = confirmed.grow(send(held).items)
    seed = held.path.first(answered(held))
    known = len(seed) and len(confirmed) + len(send(replace(held, path=seed)).items)
    for at in range(len(asked), max(len(confirmed), known), -1):
        for link in await store.answers(asked.first(at).head):
            if link.session is None and link.status in ANSWERED and link.previous_response_id == held.handle:
                path = await store.path(link.head)
                return Tail(_items_after(path, held), (link,))
    return Tail()


async def _conversation_here(held: Held, store: Store) -> Tail:
    found = await store.conversation(held.handle or "")
    if found is None:
        return Tail()
    path = await store.path(found.head)
    if not path.passes(held.mark):
        raise _drifted(held)
    links = await store.answers(*(node.key for node in path.after(held.mark)))
    return Tail(_items_after(path, held), tuple(link for link in links if link.session is None))


async def _conversation(held: Held, endpoint: Endpoint) -> Tail:
    handle, newest_first = held.handle or "", list[Item]()
    listed = pages(lambda after: endpoint.conversation_items(handle, after=after, limit=PAGE, order="desc"))
    async with aclosing(listed):
        async for page in listed:
            newest_first += page.items
            more = page.has_more and bool(page.items)
            tail = after_mark(held, newest_first)
            if tail is not None and (held.mark != held.path.root or not more):
                return Tail(tuple(tail))
    raise _drifted(held)


def _items_after(path: Path, held: Held) -> tuple[Item, ...]:
    return tuple(node.item for node in path.after(held.mark))


def _drifted(held: Held) -> StateFault:
    return StateFault(
        f"{held.handle} no longer holds the last item that it had confirmed",
        hint=f"convo inspect {held.handle}, or go on with it anew: convo chat --conversation --from {held.handle}",
    )

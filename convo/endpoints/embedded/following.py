"""What a background response told so far, and what it tells from now on.

The events come from the store, wherever the response is carried out: here somebody rings when there
are more, elsewhere the store is asked a few times a second. Whether it has ended is asked before the
events are read, so that none is missed between the two. The last event is not kept: it is made from
the link, behind the others.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from convo.endpoints.embedded import refusals
from convo.endpoints.embedded.checks import integer
from convo.endpoints.embedded.context import the_response
from convo.endpoints.embedded.edges import Edges
from convo.endpoints.embedded.ledger import OPEN
from convo.endpoints.embedded.resource import terminal
from convo.history import Link
from convo.items import Event, Item

POLL_S = 0.25


async def followed(response_id: str, edges: Edges, *, after: int | None = None) -> AsyncGenerator[Event, None]:
    """As `Endpoint.follow`."""
    last = -1 if after is None else after
    if after is not None:
        integer(0)("starting_after", after)
    while True:
        here = edges.runs.here(response_id)
        news = here.next_news() if here else None
        link = await the_response(edges.store, response_id)
        if not link.parameters.get("background"):
            raise refusals.not_followed(response_id)
        for event in await edges.store.events(response_id, after=last):
            yield event
            last = event["sequence_number"]
        if link.status not in OPEN:
            break
        await _more(news, edges)
    number = await _number_of_the_end(response_id, edges, last)
    if number > last:
        yield {**terminal(link, await output_of(link, edges)), "sequence_number": number}


async def output_of(link: Link, edges: Edges) -> Sequence[Item]:
    """What a response added to its history, whatever was deleted before it. raises: ItemDeleted"""
    return await edges.store.tail(link.head, link.saw)


async def _more(news: asyncio.Event | None, edges: Edges) -> None:
    if news is None:
        await edges.clock.sleep(POLL_S)
    else:
        await news.wait()


async def _number_of_the_end(response_id: str, edges: Edges, last: int) -> int:
    """The number behind the last kept event; `last` was told. raises: Refused  they are no longer kept"""
    near = await edges.store.events(response_id, after=last - 1) or await edges.store.events(response_id)
    if not near:
        raise refusals.forgotten(response_id)
    return int(near[-1]["sequence_number"]) + 1

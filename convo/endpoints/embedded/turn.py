"""One request that is answered while somebody reads, from its history to its last event.

    open        the request with its history; in a conversation as its only writer
    ask         the model, until its first event: what goes wrong so far is a refusal, and leaves nothing
    stream      response.created, response.in_progress, the model's events, numbered
    end         durable, then unlocked, then told: the last event carries what is stored

An answer that breaks off after its first event ends with `response.failed`; one that is stopped is
kept as cancelled. Neither adds anything to a conversation.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

from convo.endpoints.embedded import ending
from convo.endpoints.embedded.context import Before
from convo.endpoints.embedded.edges import Edges
from convo.endpoints.embedded.ending import Ended
from convo.endpoints.embedded.listening import TERMINAL, Listening, Telling
from convo.endpoints.embedded.listing import ids_of
from convo.endpoints.embedded.opening import Opened, answer, opened
from convo.endpoints.embedded.requests import Request
from convo.endpoints.embedded.resource import resource, terminal
from convo.endpoints.embedded.runs import apart, unbroken
from convo.errors import Conflict, NotFound, StoreFault
from convo.history import Link
from convo.items import Event
from convo.stores.contract import Change, Store


class Turn:
    """One request while it is carried out; `last` is what it goes on from where the store does not know it."""

    def __init__(self, request: Request, edges: Edges, last: Before | None = None) -> None:
        self._request, self._edges, self._last = request, edges, last
        self._began = edges.clock.ticks()
        self._told = Telling(edges.manner.renamed)
        self._left: tuple[Opened, Link, Ended] | None = None

    def told(self) -> AsyncGenerator[Event, None]:
        """The events of the answer, which goes on without a reader where it should. raises: as `Endpoint.create`"""
        if self._edges.manner.outlasts and self._request.store:
            return apart(self.events(), self._edges.runs)
        return self.events()

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events of the answer. raises: as `Endpoint.create`"""
        async with AsyncExitStack() as held:
            turn = await opened(self._request, self._edges, held, self._last)
            asked = await held.enter_async_context(aclosing(answer(turn, self._edges)))
            heard = Listening(asked)
            event = await heard.first()
            link, over = self._begun(turn), False
            try:
                for kind in ("response.created", "response.in_progress"):
                    yield self._told({"type": kind, "response": resource(link, ())})
                while event["type"] not in TERMINAL:
                    yield self._told(event)
                    event = await heard.after(event)
                end, over = ending.ended(event), True
                link, end = await unbroken(self._keep_at_last(turn, link, end))
            except (asyncio.CancelledError, GeneratorExit):
                if not over:
                    await self._stop(turn, link, asked, heard)
                raise
        self._left = turn, link, end
        yield self._told(terminal(link, end.output))

    def left(self) -> Before | None:
        """What a request can go on from now; None while the answer has not ended, or when it ended badly."""
        if self._left is None or not self._left[2].acknowledged:
            return None
        turn, link, end = self._left
        path = turn.saw.grow(end.output)
        return Before(path, ids_of(path), previous=link)

    def _begun(self, turn: Opened) -> Link:
        waited = self._edges.clock.ticks() - self._began
        return ending.begun(
            turn.request,
            turn.before,
            turn.saw,
            response_id=self._edges.new_id("resp"),
            created_at=self._edges.clock.now() - waited,
            first_token_s=waited,
        )

    async def _stop(self, turn: Opened, link: Link, asked: AsyncGenerator[Event, None], heard: Listening) -> None:
        try:
            await asked.aclose()
        finally:
            await unbroken(self._keep(turn, link, ending.stopped(heard.so_far())))

    async def _keep_at_last(self, turn: Opened, link: Link, end: Ended) -> tuple[Link, Ended]:
        """As `_keep`. A server tells a store that fails now in the stream, where one has begun."""
        try:
            return await self._keep(turn, link, end)
        except StoreFault:
            if not (self._edges.manner.outlasts and turn.request.shown):
                raise
            return self._finished(turn, link, ending.not_kept(end.output))

    async def _keep(self, turn: Opened, link: Link, end: Ended) -> tuple[Link, Ended]:
        """Make the end durable, and say how it ended: badly, if the conversation went on without it."""
        link, end = self._finished(turn, link, end)
        if not turn.request.store:
            return link, end
        change = ending.change_for(turn.before, turn.saw, end, link, self._edges.new_id)
        try:
            await commit(self._edges.store, change, turn, end)
        except Conflict as lost:
            return await self._keep(turn, link, ending.ended(ending.broken_off(lost, end.output)))
        return link, end

    def _finished(self, turn: Opened, link: Link, end: Ended) -> tuple[Link, Ended]:
        return ending.finished(link, turn.saw, end, self._edges.clock.ticks() - self._began), end


async def commit(store: Store, change: Change, turn: Opened, end: Ended) -> None:
    """Make `change` true, also when what it leans on was deleted meanwhile, or never stored."""
    try:
        await store.commit(change)
    except NotFound:
        await store.commit(ending.replanted(change, turn.saw, end))

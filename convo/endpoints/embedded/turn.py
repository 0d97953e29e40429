"""One request that is answered while somebody reads, from its history to its last event.

    open        the request with its history; in a conversation as its only writer
    ask         the model, until its first event: what goes wrong so far is a refusal, and leaves nothing
    stream      response.created, response.in_progress, the model's events, numbered
    end         durable, then unlocked, then told: the last event carries what is stored

An answer that breaks off after its first event ends with `response.failed`, and adds nothing to a
conversation. One whose reader leaves is cancelled at once, also before its first event. A client of a
server that disconnects leaves a turn in its conversation: its input, and the part of the answer that was
sent. An answer that the model had finished by then is kept as completed. The end of the server's grace
time cancels an answer too, and adds nothing to a conversation.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

from convo.endpoints.embedded import ending
from convo.endpoints.embedded.context import Before
from convo.endpoints.embedded.edges import Edges
from convo.endpoints.embedded.ending import Ended
from convo.endpoints.embedded.listening import TERMINAL, Listening, Telling
from convo.endpoints.embedded.listing import ids_of
from convo.endpoints.embedded.opening import Opened, answer, ignored, opened, provider
from convo.endpoints.embedded.requests import Request
from convo.endpoints.embedded.resource import created, resource, terminal
from convo.endpoints.embedded.runs import unbroken
from convo.errors import Conflict, NotFound, StoreFault, TryLater
from convo.history import Link
from convo.items import Event
from convo.stores.contract import Change, Store

FINISHED_PASSES = 200
"""Passes of the event loop in which an event that a model has already sent arrives, however busy the machine is."""


class Turn:
    """One request while it is carried out; `last` is what it goes on from where the store does not know it."""

    def __init__(self, request: Request, edges: Edges, last: Before | None = None) -> None:
        self._request, self._edges, self._last = request, edges, last
        self._began = edges.clock.ticks()
        self._told = Telling(edges.manner.renamed)
        self._left: tuple[Opened, Link, Ended] | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events of the answer. raises: as `Endpoint.create`"""
        for_clients = self._edges.manner.for_clients
        link: Link | None = None
        end: Ended | None = None
        event: Event | None = None
        async with AsyncExitStack() as held:
            foreground = held.enter_context(self._edges.runs.foreground(self._edges.store.tenant))
            turn = await opened(self._request, self._edges, held, self._last)
            foreground.conversation = self._request.conversation
            asked = await held.enter_async_context(aclosing(answer(turn, self._edges)))
            shown = turn.request.shown
            listening = Listening(asked, receipts=for_clients and shown, hidden=for_clients and not shown)
            try:
                event = await foreground.wait(listening.first())
                link = self._begun(turn, answered=True)
                foreground.response_id = link.id
                yield self._told(created(link))
                yield self._told({"type": "response.in_progress", "response": resource(link, ())})
                while event["type"] not in TERMINAL:
                    yield self._told(event)
                    if for_clients and shown:
                        listening.sent(event)
                    event = await foreground.wait(listening.after(event))
                end = listening.ended(event)
                foreground.close()
                link, end = await unbroken(self._keep_at_last(turn, link, end))
            except (asyncio.CancelledError, GeneratorExit, TryLater) as why:
                if isinstance(why, TryLater) and not foreground.stopped:
                    raise
                foreground.close()
                if end is None and (link is not None or (for_clients and not foreground.stopped)):
                    unsent = event if isinstance(why, GeneratorExit) and for_clients else None
                    link = link or self._begun(turn, answered=False)
                    await self._stop(
                        turn, link, asked, listening, unsent, disconnected=for_clients and not foreground.stopped
                    )
                raise
        assert link is not None
        assert end is not None
        self._left = turn, link, end
        yield self._told(terminal(link, end.output))

    def left(self) -> Before | None:
        """What a request can go on from now; None while the answer has not ended, or when it ended badly."""
        if self._left is None or not self._left[2].acknowledged:
            return None
        turn, link, end = self._left
        path = turn.saw.grow(end.output)
        return Before(path, ids_of(path), previous=link)

    def _begun(self, turn: Opened, *, answered: bool) -> Link:
        waited = self._edges.clock.ticks() - self._began
        return ending.begun(
            turn.request,
            turn.before,
            turn.saw,
            response_id=self._edges.new_id("resp"),
            created_at=self._edges.clock.now() - waited,
            first_token_s=waited if answered else None,
            ignored=ignored(turn, self._edges),
            provider=provider(turn, self._edges),
        )

    async def _stop(
        self,
        turn: Opened,
        link: Link,
        asked: AsyncGenerator[Event, None],
        listening: Listening,
        unsent: Event | None,
        *,
        disconnected: bool,
    ) -> None:
        """Cancel the model, and keep what there is of its answer.

        unsent:        the event that the reader did not take; None when the model was waited for
        disconnected:  a client of this server left; else its own process stopped the answer
        """
        end: Ended | None = None
        try:
            if unsent is not None and disconnected:
                end = await _finished_already(listening, unsent)
            await asked.aclose()
        finally:
            if end is None:
                end = (ending.disconnected if disconnected else ending.stopped)(listening.so_far())
            await unbroken(self._keep(turn, link, end))

    async def _keep_at_last(self, turn: Opened, link: Link, end: Ended) -> tuple[Link, Ended]:
        """As `_keep`. A server tells a store that fails now in the stream, where one has begun."""
        try:
            return await self._keep(turn, link, end)
        except StoreFault:
            if not (self._edges.manner.for_clients and turn.request.shown):
                raise
            return self._finished(turn, link, ending.not_kept(end.output))

    async def _keep(self, turn: Opened, link: Link, end: Ended) -> tuple[Link, Ended]:
        """Make the end durable, and say how it ended: badly, if the conversation went on without it."""
        link, end = self._finished(turn, link, end)
        change = ending.change_for(turn.before, turn.saw, end, link, self._edges.new_id)
        if not turn.request.store:
            if turn.before.conversation is None or not end.joins:
                return link, end
            change = replace(change, links=())  # the conversation keeps its items; the response is not kept
        try:
            await commit(self._edges.store, change, turn, end)
        except Conflict as lost:
            return await self._keep(turn, link, ending.ended(ending.broken_off(lost, end.output)))
        return link, end

    def _finished(self, turn: Opened, link: Link, end: Ended) -> tuple[Link, Ended]:
        return ending.finished(link, turn.saw, end, self._edges.clock.ticks() - self._began), end


async def _finished_already(listening: Listening, event: Event) -> Ended | None:
    """How the model ended its answer, if it has sent all of it already; `event` is the last one that was read."""
    while event["type"] not in TERMINAL:
        following = asyncio.ensure_future(listening.after(event))
        try:
            for _ in range(FINISHED_PASSES):
                if following.done():
                    break
                await asyncio.sleep(0)
        finally:
            if not following.done():  # also when this wait is cancelled: nothing may read the answer while it is closed
                following.cancel()
                await unbroken(asyncio.wait([following]))
        if following.cancelled():
            return None
        event = following.result()
    end = listening.ended(event)
    return end if end.acknowledged else None


async def commit(store: Store, change: Change, turn: Opened, end: Ended) -> None:
    """Make `change` true, also when what it leans on was deleted meanwhile, or never stored."""
    try:
        await store.commit(change)
    except NotFound:
        await store.commit(ending.replanted(change, turn.saw, end))

"""One request, from its history to its last event.

    read        the request, or a refusal
    lock        in a conversation: one writer at a time
    ask         the model, until its first event: what goes wrong so far is a refusal, and leaves nothing
    stream      response.created, response.in_progress, the model's events, numbered
    end         durable, then unlocked, then told: the last event carries what is stored

An answer that breaks off after its first event ends with `response.failed`; one that nobody reads
to its end is stopped and kept as cancelled. Neither adds anything to a conversation.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from convo.clock import Clock
from convo.endpoints.embedded import ending
from convo.endpoints.embedded.context import Before, added, before, the_conversation
from convo.endpoints.embedded.ending import Ended
from convo.endpoints.embedded.lock import writing
from convo.endpoints.embedded.pairs import check_pairs, for_the_model
from convo.endpoints.embedded.requests import Request
from convo.endpoints.embedded.resource import resource
from convo.errors import Conflict, ConvoError, NotFound, StreamBroken
from convo.history import Link, Path
from convo.ids import NewId
from convo.items import Event, Item
from convo.models.contract import Ask, Model
from convo.stores.contract import Change, Store

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


class Models(Protocol):
    """Opens models by name. Whoever made it closes what it opened with `aclose`."""

    def __call__(self, name: str) -> tuple[Model, str]:
        """The model for "provider/model", and the provider's own name for it.

        raises:  ConvoError  there is no such provider or model, or its key is missing
        """
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Edges:
    """Everything outside that a turn touches."""

    store: Store
    models: Models
    clock: Clock
    new_id: NewId


class Turn:
    """One request while it is carried out."""

    def __init__(self, request: Request, edges: Edges) -> None:
        self._request, self._edges = request, edges
        self._began = edges.clock.ticks()
        self._numbers = count()
        self._finished: list[Item] = []

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events of the answer. raises: as `Endpoint.create`"""
        async with AsyncExitStack() as held:
            await self._lock(held)
            history = await before(self._request, self._edges.store)
            saw = self._saw(history)
            answer = await held.enter_async_context(aclosing(self._ask(saw)))
            event = await _first(answer)
            link = self._begun(history, saw)
            try:
                for kind in ("response.created", "response.in_progress"):
                    yield self._numbered({"type": kind, "response": resource(link, ())})
                while event["type"] not in TERMINAL:
                    yield self._numbered(event)
                    event = await self._next(event, answer)
                link, end = await self._keep(history, saw, link, ending.ended(event))
            except (asyncio.CancelledError, GeneratorExit):
                await answer.aclose()
                await asyncio.shield(self._keep(history, saw, link, ending.stopped(self._finished)))
                raise
        yield self._numbered({"type": f"response.{end.status}", "response": resource(link, end.output)})

    async def _lock(self, held: AsyncExitStack) -> None:
        """Become the only writer of the conversation, if there is one. raises: NotFound, TryLater"""
        if self._request.conversation:
            await the_conversation(self._edges.store, self._request.conversation)
            holder = self._edges.new_id("hold")
            await held.enter_async_context(writing(self._edges.store, self._request.conversation, holder))

    def _saw(self, history: Before) -> Path:
        """The whole history that the model is asked about. raises: Refused, NotCanonical"""
        saw = history.path.grow(added(self._request, history))
        check_pairs(saw.items)
        return saw

    def _ask(self, saw: Path) -> AsyncGenerator[Event, None]:
        model, name = self._edges.models(self._request.model)
        return model.respond(asked(self._request, saw, name))

    async def _next(self, event: Event, answer: AsyncGenerator[Event, None]) -> Event:
        """The event after `event`; one that ends the response where the model broke off."""
        if event["type"] == "response.output_item.done":
            self._finished.append(event["item"])
        try:
            return await anext(answer)
        except StopAsyncIteration:
            return ending.broken_off(StreamBroken("The model's answer ended before it was whole"), self._finished)
        except ConvoError as fault:
            return ending.broken_off(fault, self._finished)

    def _begun(self, history: Before, saw: Path) -> Link:
        waited = self._edges.clock.ticks() - self._began
        return ending.begun(
            self._request,
            history,
            saw,
            response_id=self._edges.new_id("resp"),
            created_at=self._edges.clock.now() - waited,
            first_token_s=waited,
        )

    async def _keep(self, history: Before, saw: Path, link: Link, end: Ended) -> tuple[Link, Ended]:
        """Make the end durable, and say how it ended: badly, if the conversation went on without it."""
        link = ending.finished(link, saw, end, self._edges.clock.ticks() - self._began)
        if not self._request.store:
            return link, end
        change = ending.change_for(history, saw, end, link, self._edges.new_id)
        try:
            await self._commit(change, saw, end)
        except Conflict as lost:
            return await self._keep(history, saw, link, ending.ended(ending.broken_off(lost, end.output)))
        return link, end

    async def _commit(self, change: Change, saw: Path, end: Ended) -> None:
        try:
            await self._edges.store.commit(change)
        except NotFound:
            await self._edges.store.commit(ending.replanted(change, saw, end))

    def _numbered(self, event: Event) -> Event:
        return {**event, "sequence_number": next(self._numbers)}


def asked(request: Request, saw: Path, name: str) -> Ask:
    """What the model is asked; `name` is its provider's own name for it."""
    return Ask(name, for_the_model(saw.items), request.instructions, request.for_the_model)


async def _first(answer: AsyncGenerator[Event, None]) -> Event:
    """The first event of an answer. What goes wrong before it is no answer."""
    try:
        return await anext(answer)
    except StopAsyncIteration:
        raise StreamBroken("the model's answer ended before it began") from None

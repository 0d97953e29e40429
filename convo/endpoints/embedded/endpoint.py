"""Convo's own endpoint: Responses and Conversations over a store and models, in process.

Every method reads what it is given, decides by plain functions beside this file, and leaves one
change. `convo serve` is this behind HTTP and nothing more.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from convo.clock import Clock
from convo.config import Secret
from convo.endpoints.contract import Order, Page
from convo.endpoints.embedded import background, compacting, listing, refusals, requests
from convo.endpoints.embedded.connection import Connection
from convo.endpoints.embedded.context import added, before, ids_in, referred, the_response
from convo.endpoints.embedded.conversations import Conversations
from convo.endpoints.embedded.edges import Edges, Manner, Models
from convo.endpoints.embedded.ending import abandoned, stopped
from convo.endpoints.embedded.fitting import Windows
from convo.endpoints.embedded.following import followed, output_of
from convo.endpoints.embedded.ledger import OPEN
from convo.endpoints.embedded.pairs import check_pairs
from convo.endpoints.embedded.requests import Request
from convo.endpoints.embedded.resource import compaction, resource
from convo.endpoints.embedded.runs import Runs
from convo.endpoints.embedded.sealing import Sealing
from convo.endpoints.embedded.stateless import check_references, without_state
from convo.endpoints.embedded.turn import Turn
from convo.history import HERE, Link, Scope
from convo.ids import NewId
from convo.items import Event, Item, Json, Response
from convo.stores.contract import Store
from convo.tokens import count, window_of


class Embedded:
    """The endpoint over one tenant's store. Closing it closes the models, not the store.

    runs:      what goes on without a reader, where other endpoints of the process share it
    manner:    how it behaves; as the chat's own endpoint unless something else is said
    seal_key:  seals compaction items; the database's own key does where there is none
    windows:   how much each model has room for
    """

    def __init__(
        self,
        store: Store,
        models: Models,
        clock: Clock,
        new_id: NewId,
        *,
        runs: Runs | None = None,
        manner: Manner | None = None,
        seal_key: Secret | None = None,
        windows: Windows = window_of,
    ) -> None:
        sealing = Sealing(store, seal_key)
        self._edges = Edges(store, models, clock, new_id, sealing, runs or Runs(), manner or Manner(), windows)
        self._conversations = Conversations(self._edges)

    @property
    def scope(self) -> Scope:
        return HERE

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[Event, None]:
        self._edges.runs.check_open()
        request = self._read(body)
        if request.background:
            run = await background.begin(request, self._edges)
            events = followed(run.link.id, self._edges)
        else:
            events = Turn(request, self._edges).events()
        async with aclosing(events):
            async for event in events:
                yield event

    def wire(self, body: Mapping[str, Json]) -> None:
        """Nothing leaves this process."""

    def connect(self) -> Connection:
        return Connection(self._edges)

    async def retrieve(self, response_id: str) -> Response:
        link = await self._response(response_id)
        return resource(link, await output_of(link, self._edges))

    async def follow(self, response_id: str, *, after: int | None = None) -> AsyncGenerator[Event, None]:
        async with aclosing(followed(response_id, self._edges, after=after)) as events:
            async for event in events:
                yield event

    async def cancel(self, response_id: str) -> Response:
        link = await self._response(response_id)
        if not link.parameters.get("background"):
            raise refusals.not_in_background()
        if link.status in OPEN:
            await self._stop(response_id)
        return await self.retrieve(response_id)

    async def compact(self, body: Mapping[str, Json]) -> Mapping[str, Json]:
        request = self._read(requests.to_compact(body))
        history = await self._history(request)
        check_pairs(history)
        window, used = await compacting.window(request, history, self._edges)
        return compaction(self._edges.new_id("resp"), self._edges.clock.now(), window, used)

    async def delete(self, response_id: str) -> None:
        link = await self._response(response_id)
        if link.status in OPEN:
            await self._stop(response_id)
        await self._edges.store.remove_link(response_id)

    async def input_items(
        self,
        response_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page:
        link = await self._response(response_id)
        path = await self._edges.store.path(link.saw)
        ids = await ids_in(self._edges.store, link, path)
        return listing.page(path.items, ids, after=after, before=before, limit=limit, order=order)

    async def count(self, body: Mapping[str, Json]) -> int | None:
        request = self._counted(body)
        items = await compacting.shown(await self._history(request), self._edges)
        tokens = None
        if request.model:
            model, name = self._edges.models(request.model)
            tokens = await model.count(compacting.asked(request, items, name))
        if tokens is None and self._edges.manner.estimates:
            counted = await asyncio.to_thread(count, items, request.instructions, request.parameters.get("tools"))
            tokens = counted.tokens
        return tokens

    async def _history(self, request: Request) -> Sequence[Item]:
        """All that `request` is about; nothing of it is kept. raises: as `before` and `added`"""
        history = await before(request, self._edges.store)
        found = await referred(request.items, history.ids, self._edges.store)
        return history.path.grow(added(request.items, history.ids, found)).items

    async def create_conversation(
        self, items: Sequence[Item] = (), metadata: Mapping[str, str] | None = None
    ) -> Mapping[str, Json]:
        return await self._conversations.create(items, metadata)

    async def conversation(self, conversation_id: str) -> Mapping[str, Json]:
        return await self._conversations.retrieve(conversation_id)

    async def update_conversation(self, conversation_id: str, metadata: Mapping[str, str]) -> Mapping[str, Json]:
        return await self._conversations.update(conversation_id, metadata)

    async def delete_conversation(self, conversation_id: str) -> None:
        await self._conversations.delete(conversation_id)

    async def add_items(self, conversation_id: str, items: Sequence[Item]) -> Page:
        return await self._conversations.add(conversation_id, items)

    async def conversation_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Order = "desc",
    ) -> Page:
        return await self._conversations.items(conversation_id, after=after, before=before, limit=limit, order=order)

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item:
        return await self._conversations.item(conversation_id, item_id)

    async def delete_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        return await self._conversations.remove(conversation_id, item_id)

    async def check_request(self, body: Mapping[str, Json]) -> None:
        request = self._read(body)
        model, name = self._edges.models(request.model)
        items = await compacting.shown(tuple(request.items), self._edges)
        await model.check_request(compacting.asked(request, items, name))

    async def warm(self, model: str) -> None:
        opened, name = self._edges.models(model)
        await opened.warm(name)

    async def mark_abandoned(self, response_id: str) -> None:
        """End an open run that nobody carries out any more, as failed."""
        await background.end_elsewhere(response_id, abandoned, self._edges)

    async def aclose(self) -> None:
        await self._edges.runs.aclose(0.0)
        await self._edges.models.aclose()

    def _read(self, body: Mapping[str, Json]) -> Request:
        """raises: Refused"""
        if not self._edges.manner.stateless:
            return requests.read(body)
        request = requests.read(without_state(body))
        check_references(request)
        return request

    def _counted(self, body: Mapping[str, Json]) -> Request:
        """raises: Refused"""
        request = requests.read_count(body)
        if self._edges.manner.stateless:
            without_state(body)
            check_references(request)
        return request

    async def _response(self, response_id: str) -> Link:
        """The link of a response, also of one whose client disconnected a moment ago. raises: NotFound"""
        await self._edges.runs.wait_until_ended(self._edges.store.tenant, response_id=response_id)
        return await the_response(self._edges.store, response_id)

    async def _stop(self, response_id: str) -> None:
        """End an open run as cancelled, here or wherever it is carried out."""
        here = self._edges.runs.here(response_id)
        if here is not None:
            await here.stop()
        else:
            await background.end_elsewhere(response_id, stopped, self._edges)

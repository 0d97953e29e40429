"""Convo's own endpoint: Responses and Conversations over a store and models, in process.

Every method reads what it is given, decides by plain functions beside this file, and leaves one
change. `convo serve` is this behind HTTP and nothing more.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from convo.clock import Clock
from convo.endpoints.contract import Order, Page
from convo.endpoints.embedded import listing, requests
from convo.endpoints.embedded.context import added, before, ids_in, the_response
from convo.endpoints.embedded.conversations import Conversations
from convo.endpoints.embedded.resource import resource
from convo.endpoints.embedded.turn import Edges, Models, Turn, asked
from convo.history import HERE, Scope
from convo.ids import NewId
from convo.items import Event, Item, Json, Response
from convo.stores.contract import Store


class Embedded:
    """The endpoint over one tenant's store. Closing it closes the models, not the store."""

    def __init__(self, store: Store, models: Models, clock: Clock, new_id: NewId) -> None:
        self._edges = Edges(store, models, clock, new_id)
        self._conversations = Conversations(self._edges)

    @property
    def scope(self) -> Scope:
        return HERE

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[Event, None]:
        request = requests.read(body)
        async with aclosing(Turn(request, self._edges).events()) as events:
            async for event in events:
                yield event

    async def retrieve(self, response_id: str) -> Response:
        link = await the_response(self._edges.store, response_id)
        path = await self._edges.store.path(link.head)
        return resource(link, path.items[path.place(link.saw) :])

    async def delete(self, response_id: str) -> None:
        await the_response(self._edges.store, response_id)
        await self._edges.store.remove_link(response_id)

    async def input_items(
        self, response_id: str, *, after: str | None = None, limit: int = 20, order: Order = "desc"
    ) -> Page:
        link = await the_response(self._edges.store, response_id)
        path = await self._edges.store.path(link.saw)
        ids = await ids_in(self._edges.store, link, path)
        return listing.page(path.items, ids, after=after, limit=limit, order=order)

    async def count(self, body: Mapping[str, Json]) -> int | None:
        request = requests.read_count(body)
        history = await before(request, self._edges.store)
        saw = history.path.grow(added(request, history))
        model, name = self._edges.models(request.model)
        return await model.count(asked(request, saw, name))

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
        self, conversation_id: str, *, after: str | None = None, limit: int = 20, order: Order = "desc"
    ) -> Page:
        return await self._conversations.items(conversation_id, after=after, limit=limit, order=order)

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item:
        return await self._conversations.item(conversation_id, item_id)

    async def delete_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        return await self._conversations.remove(conversation_id, item_id)

    async def warm(self, model: str) -> None:
        opened, name = self._edges.models(model)
        await opened.warm(name)

    async def aclose(self) -> None:
        await self._edges.models.aclose()

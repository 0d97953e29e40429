"""Conversations: lists of items that have an owner of their own, and one writer at a time.

Reading needs no right to write. Whoever changes the list takes it for as long as that lasts, and
is told `conversation_locked` while an answer is on its way into it.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from convo.endpoints.contract import Order, Page
from convo.endpoints.embedded import checks, listing, membership, refusals
from convo.endpoints.embedded.context import referred, the_conversation
from convo.endpoints.embedded.edges import Edges
from convo.endpoints.embedded.inputs import reference
from convo.endpoints.embedded.lock import writing
from convo.endpoints.embedded.requests import read_items
from convo.errors import NotFound
from convo.history import Path, root
from convo.items import Item, Json
from convo.stores.contract import Change, Conversation


class Conversations:
    """The Conversations half of the endpoint; the contract says what each method promises."""

    def __init__(self, edges: Edges) -> None:
        self._edges, self._store = edges, edges.store

    async def create(self, items: Sequence[Item], metadata: Mapping[str, str] | None) -> Mapping[str, Json]:
        if self._edges.manner.stateless:
            raise refusals.no_state("conversation")
        given = await self._whole(items)
        top = Path(root(self._store.tenant))
        fresh = Conversation(
            id=self._edges.new_id("conv"),
            head=top.head,
            created_at=self._edges.clock.now(),
            metadata=_metadata(metadata),
        )
        change = membership.joined(fresh, top, given, self._edges.new_id)
        await self._store.commit(replace(change, conversation_expect=None))
        return membership.resource(fresh)

    async def retrieve(self, conversation_id: str) -> Mapping[str, Json]:
        return membership.resource(await the_conversation(self._store, conversation_id))

    async def update(self, conversation_id: str, metadata: Mapping[str, str]) -> Mapping[str, Json]:
        renamed = _metadata(metadata)
        async with self._writing(conversation_id):
            there = await the_conversation(self._store, conversation_id)
            changed = replace(there, metadata=renamed)
            await self._store.commit(Change(conversation=changed, conversation_expect=there.head))
        return membership.resource(changed)

    async def delete(self, conversation_id: str) -> None:
        async with self._writing(conversation_id):
            await self._store.remove_conversation(conversation_id)

    async def add(self, conversation_id: str, items: Sequence[Item]) -> Page:
        given = await self._whole(items)
        async with self._writing(conversation_id):
            there = await the_conversation(self._store, conversation_id)
            change = membership.joined(there, await self._path(there), given, self._edges.new_id)
            await self._store.commit(change)
        names = change.conversation.ids[len(there.ids) :] if change.conversation else ()
        return Page([listing.shown(item, name) for item, name in zip(given, names, strict=True)], has_more=False)

    async def items(
        self, conversation_id: str, *, after: str | None, before: str | None, limit: int, order: Order
    ) -> Page:
        await self._edges.runs.wait_until_ended(self._store.tenant, conversation=conversation_id)
        there = await the_conversation(self._store, conversation_id)
        path = await self._path(there)
        return listing.page(path.items, there.ids, after=after, before=before, limit=limit, order=order)

    async def item(self, conversation_id: str, item_id: str) -> Item:
        there = await the_conversation(self._store, conversation_id)
        path = await self._path(there)
        return listing.shown(path.items[_place(there, item_id)], item_id)

    async def remove(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        async with self._writing(conversation_id):
            there = await the_conversation(self._store, conversation_id)
            change = membership.left(there, await self._path(there), _place(there, item_id))
            await self._store.commit(change)
        return membership.resource(there)

    async def _whole(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """`items` with what they refer to in its place. raises: Refused"""
        given = read_items(list(items))
        found = await referred(given, (), self._store)
        return tuple(found.get(reference(item) or "", item) for item in given)

    async def _path(self, conversation: Conversation) -> Path:
        return await self._store.path(conversation.head)

    @asynccontextmanager
    async def _writing(self, conversation_id: str) -> AsyncIterator[None]:
        """raises: NotFound, TryLater"""
        await the_conversation(self._store, conversation_id)
        await self._edges.runs.wait_until_ended(self._store.tenant, conversation=conversation_id)
        async with writing(self._store, conversation_id, self._edges.new_id("hold")):
            yield


def _metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """raises: Refused"""
    given = dict(metadata or {})
    checks.metadata("metadata", given)
    return given


def _place(conversation: Conversation, item_id: str) -> int:
    """Where this item stands, counted from 0. raises: NotFound"""
    if item_id not in conversation.ids:
        raise NotFound("item", item_id)
    return conversation.ids.index(item_id)

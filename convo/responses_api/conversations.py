"""Conversations: create, read, update and delete them and their items.

A conversation is a path in the item tree with an id for each item. Reads take no lock; every
change holds the write lease of the conversation, else it fails with `conversation_locked`.
Deleting an item deletes its body: later items are appended again under the same ids.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from convo.endpoints.base import ItemPage, SortOrder
from convo.errors import NotFound
from convo.history.items import Item, Json
from convo.history.records import strip_item_secrets
from convo.history.tree import Path, root_key
from convo.models.request_fields import METADATA_SCHEMA
from convo.responses_api import errors, history, validation
from convo.responses_api.deps import EndpointDeps, conversation_write_lock
from convo.responses_api.history import id_prefix, own_id, resolve_references
from convo.responses_api.validation import parse_conversation_items, referenced_id
from convo.runtime import NewId
from convo.stores.base import AppendItems, Conversation, Transaction, load_conversation


class Conversations:
    """The Conversations API of the endpoint; its methods implement the contract in `convo.endpoints.base`."""

    def __init__(self, deps: EndpointDeps) -> None:
        self._deps, self._store = deps, deps.store

    async def create(self, items: Sequence[Item], metadata: Mapping[str, str] | None) -> Mapping[str, Json]:
        if self._deps.options.stateless:
            raise errors.stateless_server_error("conversation")
        new_items = await self._resolve_items(items)
        root_path = Path(root_key(self._store.tenant))
        conversation = Conversation(
            id=self._deps.new_id("conv"),
            head=root_path.head,
            created_at=self._deps.clock.now(),
            metadata=_parse_metadata(metadata),
        )
        change = build_append_transaction(conversation, root_path, new_items, self._deps.new_id)
        await self._store.commit(replace(change, expected_conversation_head=None))
        return build_conversation_resource(conversation)

    async def retrieve(self, conversation_id: str) -> Mapping[str, Json]:
        return build_conversation_resource(await load_conversation(self._store, conversation_id))

    async def update(self, conversation_id: str, metadata: Mapping[str, str]) -> Mapping[str, Json]:
        new_metadata = _parse_metadata(metadata)
        async with self._lock(conversation_id):
            conversation = await load_conversation(self._store, conversation_id)
            changed = replace(conversation, metadata=new_metadata)
            await self._store.commit(Transaction(conversation=changed, expected_conversation_head=conversation.head))
        return build_conversation_resource(changed)

    async def delete(self, conversation_id: str) -> None:
        async with self._lock(conversation_id):
            self._deps.histories.take(self._store.tenant, conversation_id)
            await self._store.remove_conversation(conversation_id)

    async def add_items(self, conversation_id: str, items: Sequence[Item]) -> ItemPage:
        new_items = await self._resolve_items(items)
        async with self._lock(conversation_id):
            conversation = await load_conversation(self._store, conversation_id)
            change = build_append_transaction(
                conversation, await self._load_path(conversation), new_items, self._deps.new_id
            )
            await self._store.commit(change)
        ids = change.conversation.item_ids[len(conversation.item_ids) :] if change.conversation else ()
        return ItemPage(
            [history.to_api_item(item, item_id) for item, item_id in zip(new_items, ids, strict=True)], has_more=False
        )

    async def list_items(
        self, conversation_id: str, *, after: str | None, before: str | None, limit: int, order: SortOrder
    ) -> ItemPage:
        await self._deps.runs.wait_until_ended(self._store.tenant, conversation_id=conversation_id)
        conversation = await load_conversation(self._store, conversation_id)
        path = await self._load_path(conversation)
        return history.paginate_items(
            path.items, conversation.item_ids, after=after, before=before, limit=limit, order=order
        )

    async def retrieve_item(self, conversation_id: str, item_id: str) -> Item:
        conversation = await load_conversation(self._store, conversation_id)
        path = await self._load_path(conversation)
        return history.to_api_item(path.items[_item_index(conversation, item_id)], item_id)

    async def delete_item(self, conversation_id: str, item_id: str) -> Mapping[str, Json]:
        async with self._lock(conversation_id):
            conversation = await load_conversation(self._store, conversation_id)
            change = build_removal_transaction(
                conversation, await self._load_path(conversation), _item_index(conversation, item_id)
            )
            self._deps.histories.take(self._store.tenant, conversation_id)
            await self._store.commit(change)
        return build_conversation_resource(conversation)

    async def _resolve_items(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Validate `items` and replace item references by the items they name. Raises RequestRefused.

        The credentials of tools are left out: a conversation is stored before a model receives it.
        """
        new_items = strip_item_secrets(parse_conversation_items(list(items)))
        referenced = await resolve_references(new_items, (), self._store)
        return tuple(referenced.get(referenced_id(item) or "", item) for item in new_items)

    async def _load_path(self, conversation: Conversation) -> Path:
        return await self._store.path(conversation.head)

    @asynccontextmanager
    async def _lock(self, conversation_id: str) -> AsyncIterator[None]:
        """Hold the write lock of the conversation. Raises NotFound and TryLater."""
        await load_conversation(self._store, conversation_id)
        await self._deps.runs.wait_until_ended(self._store.tenant, conversation_id=conversation_id)
        async with conversation_write_lock(self._store, conversation_id, self._deps.new_id("hold")):
            yield


def _parse_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Validate the metadata. Raises RequestRefused."""
    pairs = dict(metadata or {})
    validation.validate_value("metadata", pairs, METADATA_SCHEMA)
    return pairs


def _item_index(conversation: Conversation, item_id: str) -> int:
    """Return the index of this item. Raises NotFound."""
    if item_id not in conversation.item_ids:
        raise NotFound("item", item_id)
    return conversation.item_ids.index(item_id)


def build_append_transaction(
    conversation: Conversation, path: Path, items: Sequence[Item], new_id: NewId
) -> Transaction:
    """Build the transaction that appends `items` to the conversation, whose items are `path`."""
    return Transaction(
        appends=(AppendItems(path.head, tuple(items)),) if items else (),
        conversation=replace(
            conversation,
            head=path.append(items).head,
            item_ids=(*conversation.item_ids, *assign_item_ids(items, conversation.item_ids, new_id)),
        ),
        expected_conversation_head=conversation.head,
    )


def build_removal_transaction(conversation: Conversation, path: Path, index: int) -> Transaction:
    """Build the transaction that deletes the item at `index` from the conversation and from the store.

    If the item before it is equal, both share one path: the conversation keeps the first of the two nodes, and only the
    last is erased.
    """
    before, later_items = path.first(index), path.items[index + 1 :]
    new_path = before.append(later_items)
    erased_key = next((key for key in path.keys[index:] if not new_path.contains(key)), None)
    updated = replace(
        conversation, head=new_path.head, item_ids=(*conversation.item_ids[:index], *conversation.item_ids[index + 1 :])
    )
    return Transaction(
        appends=(AppendItems(before.head, later_items),) if later_items else (),
        conversation=updated,
        expected_conversation_head=conversation.head,
        erased_nodes=(erased_key,) if erased_key else (),
    )


def assign_item_ids(items: Sequence[Item], used_ids: Sequence[str], new_id: NewId) -> tuple[str, ...]:
    """Return the ids of `items` in a conversation: their own if they have one that is not used yet."""
    used, ids = set(used_ids), []
    for item in items:
        own_item_id = own_id(item)
        item_id = own_item_id if own_item_id and own_item_id not in used else new_id(id_prefix(item))
        used.add(item_id)
        ids.append(item_id)
    return tuple(ids)


def build_conversation_resource(conversation: Conversation) -> dict[str, Json]:
    """Build the API's conversation object."""
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": dict(conversation.metadata),
    }

"""Load the history before a request, and list items as the API does.

An unknown, deleted, foreign or `store=false` response is "not found", indistinguishably. Calls
and outputs must be paired before a model is called; incomplete items stay stored and are not
sent to the model. An item without an id is listed under an id built from its tree node.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import getsizeof
from types import MappingProxyType
from typing import TypeAlias

from convo.endpoints.base import ItemPage, SortOrder
from convo.errors import NotFound, RequestRefused
from convo.history.canonical import normalize_item
from convo.history.items import (
    Item,
    Json,
    describe_item_type,
    is_assistant_message,
    is_client_call,
    is_client_output,
    is_incomplete_item,
    is_model_item,
    item_type,
    to_sendable,
)
from convo.history.pairing import Pair, make_pair_step, output_index_by_call, pair_id
from convo.history.records import EMBEDDED_SCOPE, Link
from convo.history.tree import Key, Path, derive, root_key, where
from convo.responses_api import errors
from convo.responses_api.validation import REFERENCES, ResponseRequest, referenced_id, validate_value
from convo.stores.base import Conversation, Store, load_conversation

CONTINUABLE_STATUSES = ("completed", "incomplete", "cancelled")
"""Statuses of a response that another one may continue."""


@dataclass(frozen=True)
class LoadedHistory:
    """The history that the endpoint prepends to a request.

    item_ids:  of each item on `path`; empty if the request names no item
    """

    path: Path
    item_ids: tuple[str, ...] = ()
    previous: Link | None = None
    conversation: Conversation | None = None


MAX_CACHED_BYTES = 32 * 1024 * 1024
"""Estimated memory of the histories that a process keeps: 20 chains of 1,000 short messages."""

ITEM_OVERHEAD_BYTES = 1500
"""Memory of an item besides its text, which is in memory twice: as an object, and encoded for the model."""


MAX_BARE_ITEMS = 8
"""Items of a history that is kept without what was derived from them: that is 120 objects for the garbage collector."""


class HistoryCache:
    """The histories at the end of recent turns, by tenant and the response or conversation that continues them.

    The store checks each before it is used: another process may have deleted an item, or changed the conversation.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], tuple[LoadedHistory, int]] = {}
        self._bytes = 0

    def has(self, tenant: str, handle: str) -> bool:
        return (tenant, handle) in self._entries

    def take(self, tenant: str, handle: str) -> LoadedHistory | None:
        """Remove and return a history: what a request appends to it stays in memory as long as the history itself."""
        entry = self._entries.pop((tenant, handle), None)
        self._bytes -= entry[1] if entry else 0
        return entry[0] if entry else None

    def add(self, tenant: str, handle: str, history: LoadedHistory) -> None:
        """Keep a history, and drop the least recently added ones above the limit."""
        # Removed first: a dictionary keeps the position of a key that is set again.
        self.take(tenant, handle)
        path = history.path
        size = sum(path.items.derive(_make_size_step))
        if len(path) <= MAX_BARE_ITEMS:
            # 6,000 histories with what was derived made a full garbage collection take 1.0 s; without it 0.04 s.
            history = replace(history, path=Path(path.root, path.nodes))
        if size > MAX_CACHED_BYTES:
            return
        self._entries[tenant, handle] = history, size
        self._bytes += size
        while self._bytes > MAX_CACHED_BYTES:
            self.take(*next(iter(self._entries)))

    def clear(self) -> None:
        self._entries, self._bytes = {}, 0


def _make_size_step() -> Callable[[Sequence[Item]], list[int]]:
    return lambda items: [ITEM_OVERHEAD_BYTES + 2 * getsizeof(repr(item)) for item in items]


async def load_request_history(request: ResponseRequest, store: Store, cache: HistoryCache | None) -> LoadedHistory:
    """Load the history that `request` continues.

    cache:  has this history no longer then; None: read it from the store

    Raises RequestRefused if there is no such previous response, NotFound if there is no such conversation, and
    ItemDeleted if an item of that history was deleted.
    """
    handle = request.conversation_id or request.previous_response_id
    cached = cache.take(store.tenant, handle) if cache and handle else None
    known_path = cached.path if cached else None
    if request.conversation_id:
        conversation = await load_conversation(store, request.conversation_id, cached.conversation if cached else None)
        path = await store.path(conversation.head, known_path)
        return LoadedHistory(path, conversation.item_ids, conversation=conversation)
    if request.previous_response_id is None:
        return LoadedHistory(Path(root_key(store.tenant)))
    link = await find_response_link(store, request.previous_response_id)
    if link is None:
        raise errors.previous_response_not_found_error(request.previous_response_id)
    if link.status not in CONTINUABLE_STATUSES:
        raise errors.previous_response_not_continuable_error(link.id, link.status)
    path = await store.path(link.head, known_path)
    ids = await load_item_ids(store, link, path) if any("id" in item for item in request.items) else ()
    return LoadedHistory(path, ids, previous=link)


async def resolve_references(items: Sequence[Item], history_ids: Sequence[str], store: Store) -> Mapping[str, Item]:
    """Return the items that the references in `items` name, by id, except those in `history_ids`.

    Raises RequestRefused for a reference to no item.
    """
    referenced: dict[str, Item] = {}
    for item_id in (items[index]["id"] for index in derive(items, REFERENCES)):
        item = None if item_id in history_ids else await store.item(item_id)
        if item is not None:
            referenced[item_id] = item
        elif item_id not in history_ids:
            raise errors.item_not_found_error(item_id)
    return referenced


def select_new_items(
    items: Sequence[Item], history_ids: Sequence[str], referenced: Mapping[str, Item]
) -> Sequence[Item]:
    """Return the items that `items` add to a history whose items have the ids in `history_ids`.

    A reference to an item of the history adds nothing.

    referenced:  the items that the other references name, by id

    Raises RequestRefused for an item that the history already has.
    """
    if history_ids or referenced:
        return tuple(_make_new_item_step(history_ids, referenced)(items))
    return derive(items, _make_new_item_step)


def _make_new_item_step(
    history_ids: Sequence[str] = (), referenced: Mapping[str, Item] = MappingProxyType({})
) -> Callable[[Sequence[Item]], Iterator[Item]]:
    known_ids = set(history_ids)

    def step(items: Sequence[Item]) -> Iterator[Item]:
        for item in items:
            target_id = referenced_id(item)
            if target_id is not None and target_id in known_ids:
                continue
            new_item = item if target_id is None else referenced[target_id]
            _check_not_duplicate(target_id or own_id(new_item), known_ids)
            yield new_item

    return step


async def find_response_link(store: Store, response_id: str) -> Link | None:
    """Return the link of a stored response of this endpoint.

    The store also has links of other endpoints, and of attempts without a response.
    """
    link = await store.link(response_id)
    is_own = link and link.is_stored and link.scope == EMBEDDED_SCOPE and link.id.startswith("resp_")
    return link if is_own else None


UNSTORED_RETENTION_S = 600.0
"""Seconds after its end for which a background response with `store: false` can be retrieved."""


def is_kept_for_polling(link: Link) -> bool:
    """Whether this is a background response with `store: false`, which is deleted some time after its end."""
    is_background = bool(link.parameters.get("background")) and link.session_id is None
    return is_background and not link.is_stored and link.scope == EMBEDDED_SCOPE


def get_polling_end(link: Link) -> float | None:
    """Return the time until which the response can be retrieved, in seconds since 1970; None while it runs."""
    return None if link.duration_s is None else link.created_at + link.duration_s + UNSTORED_RETENTION_S


async def load_response_link(store: Store, response_id: str, now: float) -> Link:
    """Load the link of a response that can be retrieved at the time `now`. Raises NotFound."""
    link = await store.link(response_id)
    if link is not None and is_kept_for_polling(link):
        polling_end = get_polling_end(link)
        if polling_end is None or now < polling_end:
            return link
    link = await find_response_link(store, response_id)
    if link is None:
        raise NotFound("response", response_id)
    return link


async def load_item_ids(store: Store, link: Link, path: Path) -> tuple[str, ...]:
    """Return the ids of the items on a response's path; an item of its conversation has its id in the conversation."""
    ids_by_key: dict[Key, str] = {}
    conversation = await store.conversation(link.conversation_id) if link.conversation_id else None
    if conversation:
        keys: Iterable[Key] = (await store.path(conversation.head)).keys
        ids_by_key = dict(zip(keys, conversation.item_ids, strict=True))
    return resolve_item_ids(path, ids_by_key)


def _check_not_duplicate(item_id: str | None, known_ids: set[str]) -> None:
    if item_id is None:
        return
    if item_id in known_ids:
        raise errors.duplicate_item_error(item_id)
    known_ids.add(item_id)


def check_call_pairs(items: Sequence[Item]) -> None:
    """Check that each call has one output.

    Raises RequestRefused for an output without an earlier call, a second output of one call, or a call without one.
    """
    pairs = derive(items, make_pair_step)
    if output_errors := derive(pairs, _make_output_error_step):
        make_error, name, call_id = output_errors[0]
        raise make_error(name, call_id)
    if open_calls := set(derive(items, _CALLS_WITH_ID)).difference(pair.call_index for pair in pairs):
        call = items[min(open_calls)]
        raise errors.missing_tool_output_error(describe_item_type(call), str(pair_id(call)))


_OutputError: TypeAlias = tuple[Callable[[str, str], RequestRefused], str, str]


def _make_output_error_step() -> Callable[[Sequence[Pair]], Iterator[_OutputError]]:
    with_output = set[int]()

    def step(pairs: Sequence[Pair]) -> Iterator[_OutputError]:
        for _, call_index, item in pairs:
            call_id, name = pair_id(item), describe_item_type(item)
            if call_id is None or not is_client_output(item):
                continue
            if call_index < 0:
                yield errors.missing_tool_call_error, name, call_id
            elif call_index in with_output:
                yield errors.duplicate_tool_output_error, name, call_id
            with_output.add(call_index)

    return step


_CALLS_WITH_ID = where(lambda item: is_client_call(item) and pair_id(item) is not None and not is_incomplete_item(item))
_INCOMPLETE_ITEMS = where(is_incomplete_item)
_INCOMPLETE_CALLS = where(lambda item: is_client_call(item) and is_incomplete_item(item))


def remove_incomplete_items(items: Sequence[Item]) -> Sequence[Item]:
    """Return `items` without incomplete parts: of a partial response its text stays, a partial call is left out."""
    if not derive(items, _INCOMPLETE_ITEMS):
        return items
    if not derive(items, _INCOMPLETE_CALLS):
        return derive(items, _make_complete_step)
    with_output = output_index_by_call(items)
    parts = (
        _complete_part(item, has_output=index in with_output) if is_incomplete_item(item) else item
        for index, item in enumerate(items)
    )
    return tuple(item for item in parts if item is not None)


def _make_complete_step() -> Callable[[Sequence[Item]], Iterator[Item]]:
    def step(items: Sequence[Item]) -> Iterator[Item]:
        parts = (_complete_part(item, has_output=False) if is_incomplete_item(item) else item for item in items)
        return (part for part in parts if part is not None)

    return step


def _complete_part(item: Item, *, has_output: bool) -> Item | None:
    """Return the part of an incomplete item that can be sent; a call with an output is sent as a complete one."""
    if is_client_call(item):
        return {**item, "status": "completed"} if has_output else None
    return to_sendable(item) if is_assistant_message(item) or item_type(item) == "reasoning" else item


ID_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "compaction": "cmp",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctc",
}

TYPES_WITH_STATUS = frozenset({"message", "function_call", "function_call_output"})

MAX_PAGE_ITEMS = 100
NODE_KEY_DIGITS = 48


def id_prefix(item: Item) -> str:
    """Return the prefix of ids of this item type, without the underscore."""
    return ID_PREFIXES.get(item_type(item), "item")


def resolve_item_ids(path: Path, assigned_ids: Mapping[Key, str] | None = None) -> tuple[str, ...]:
    """Return the id of each item on `path`: its own, else the one in `assigned_ids`, else one built from the key."""
    known_ids = assigned_ids or {}
    return tuple(
        own_id(node.item) or known_ids.get(node.key) or f"{id_prefix(node.item)}_{node.key[:NODE_KEY_DIGITS]}"
        for node in path.nodes
    )


def own_id(item: Item) -> str | None:
    item_id = item.get("id")
    return item_id if isinstance(item_id, str) and item_id else None


def to_api_item(item: Item, item_id: str) -> dict[str, Json]:
    """Return `item` in the form of the API: content as a list of parts, with an id and a status."""
    api_item: dict[str, Json] = {**item, "type": item_type(item), "id": item_id}
    if item_type(item) == "message" and not isinstance(item.get("content"), list):
        api_item["content"] = normalize_item(item)["content"]
    if item_type(item) in TYPES_WITH_STATUS:
        api_item["status"] = item.get("status") or "completed"
    return api_item


def paginate_items(
    items: Sequence[Item],
    ids: Sequence[str],
    *,
    after: str | None,
    before: str | None = None,
    limit: int,
    order: SortOrder,
) -> ItemPage:
    """Return one page of `items`, which are ordered oldest first.

    after, before:  ids that delimit the page, in the requested order. With `before` alone the page ends there, so
                    that clients can page backwards
    limit:          1 to 100

    Raises RequestRefused.
    """
    validate_value("limit", limit, {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_ITEMS})
    validate_value("order", order, {"type": "string", "enum": ["asc", "desc"]})
    entries = list(zip(items, ids, strict=True))
    if order == "desc":
        entries.reverse()
    ordered_ids = [item_id for _, item_id in entries]
    start = _cursor_index("after", after, ordered_ids) + 1 if after is not None else 0
    end = _cursor_index("before", before, ordered_ids) if before is not None else len(entries)
    selected = entries[start:end]
    is_backwards = before is not None and after is None
    page = selected[-limit:] if is_backwards else selected[:limit]
    return ItemPage([to_api_item(item, item_id) for item, item_id in page], has_more=len(page) < len(selected))


def _cursor_index(name: str, item_id: str, ids: Sequence[str]) -> int:
    try:
        return ids.index(item_id)
    except ValueError:
        raise errors.unknown_cursor_error(name, item_id) from None


def check_strict_input(items: Sequence[Item], known_ids: Collection[str], history: Sequence[Item]) -> None:
    """Check `items` as the real API does; `known_ids` are the ids of the items before them.

    history:  the items before them, followed by `items`

    Raises RequestRefused with the real API's messages.
    """
    for index, item in enumerate(items):
        if item_type(item) == "reasoning":
            _check_reasoning(index, item, items[index + 1 :], known_ids)
        elif item_type(item) == "function_call":
            _check_arguments(index, item)
        elif item_type(item) == "compaction" and len(history) > len(items):
            raise RequestRefused(
                "A compaction item cannot follow the history that it replaces", param=f"input[{index}]"
            )
    last_compaction = max((index for index, item in enumerate(history) if item_type(item) == "compaction"), default=-1)
    check_call_pairs(history[last_compaction + 1 :])


def _check_reasoning(index: int, item: Item, later_items: Sequence[Item], known_ids: Collection[str]) -> None:
    if not isinstance(item.get("summary"), list):
        raise errors.missing_parameter_error(f"input[{index}].summary")
    has_no_content = not item.get("encrypted_content") and not item.get("content")
    if has_no_content and item.get("id") not in known_ids:
        raise errors.item_not_found_error(str(item.get("id")))
    next_item = next((later_item for later_item in later_items if item_type(later_item) != "reasoning"), None)
    if next_item is None or not is_model_item(next_item):
        name = item.get("id") or f"input[{index}]"
        raise RequestRefused(
            f"Item '{name}' of type 'reasoning' was provided without its required following item", param="input"
        )


def _check_arguments(index: int, item: Item) -> None:
    try:
        arguments = json.loads(item["arguments"])
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise errors.invalid_type_error(f"input[{index}].arguments", "the text of a JSON object", "something else")

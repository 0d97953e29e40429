"""Load the history before a request, and list items as the API does.

An unknown, deleted, foreign or `store=false` response is "not found", indistinguishably. Calls
and outputs must be paired before a model is called; incomplete items stay stored and are not
sent to the model. Items without an id are listed under one made from their tree node.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from convo.endpoints.base import ItemPage, SortOrder
from convo.errors import NotFound, RequestRefused
from convo.history.canonical import normalize_item
from convo.history.items import (
    OUTPUT_BY_CLIENT_CALL,
    Item,
    Json,
    get_call_id,
    is_assistant_message,
    is_client_call,
    is_client_output,
    item_type,
    to_sendable,
)
from convo.history.records import EMBEDDED_SCOPE, Link
from convo.history.tree import Key, Path, root_key
from convo.responses_api import errors
from convo.responses_api.validation import ResponseRequest, enum_validator, integer_validator, referenced_id
from convo.stores.base import Conversation, Store

CONTINUABLE_STATUSES = ("completed", "incomplete", "cancelled")
"""How a response ended that another one may go on from."""


@dataclass(frozen=True)
class LoadedHistory:
    """The history that the endpoint puts before a request.

    ids:  of each item on `path`; none where the request names no item
    """

    path: Path
    ids: tuple[str, ...] = ()
    previous: Link | None = None
    conversation: Conversation | None = None


async def load_request_history(request: ResponseRequest, store: Store) -> LoadedHistory:
    """What the endpoint holds for `request`.

    raises:  RequestRefused      there is no such previous response
             NotFound     there is no such conversation
             ItemDeleted  an item of that history was deleted
    """
    if request.conversation:
        conversation = await load_conversation(store, request.conversation)
        return LoadedHistory(await store.path(conversation.head), conversation.ids, conversation=conversation)
    if request.previous is None:
        return LoadedHistory(Path(root_key(store.tenant)))
    link = await find_response_link(store, request.previous)
    if link is None:
        raise errors.previous_response_not_found_error(request.previous)
    if link.status not in CONTINUABLE_STATUSES:
        raise errors.previous_response_not_continuable_error(link.id, link.status)
    path = await store.path(link.head)
    ids = await load_item_ids(store, link, path) if any("id" in item for item in request.items) else ()
    return LoadedHistory(path, ids, previous=link)


async def resolve_references(items: Sequence[Item], known: Sequence[str], store: Store) -> Mapping[str, Item]:
    """What the references among `items` stand for, by id; without those to items that are `known` already.

    raises:  RequestRefused  a reference to nothing
    """
    found: dict[str, Item] = {}
    for wanted in (named for named in map(referenced_id, items) if named is not None):
        item = None if wanted in known else await store.item(wanted)
        if item is not None:
            found[wanted] = item
        elif wanted not in known:
            raise errors.item_not_found_error(wanted)
    return found


def select_new_items(items: Sequence[Item], known: Sequence[str], found: Mapping[str, Item]) -> tuple[Item, ...]:
    """What `items` add to a history whose items have the ids in `known`.

    A reference to an item that the history holds already adds nothing: it stands there.

    found:   what the other references stand for
    raises:  RequestRefused  an item that is there already
    """
    there, joining = set(known), []
    for item in items:
        wanted = referenced_id(item)
        if wanted is not None and wanted in there:
            continue
        whole = item if wanted is None else found[wanted]
        _check_not_duplicate(wanted or own_id(whole), there)
        joining.append(whole)
    return tuple(joining)


async def find_response_link(store: Store, response_id: str) -> Link | None:
    """The link of a response that this endpoint keeps.

    The store has links of other endpoints and of attempts without a response too.
    """
    link = await store.link(response_id)
    ours = link and link.stored and link.scope == EMBEDDED_SCOPE and link.id.startswith("resp_")
    return link if ours else None


async def load_response_link(store: Store, response_id: str) -> Link:
    """raises: NotFound"""
    link = await find_response_link(store, response_id)
    if link is None:
        raise NotFound("response", response_id)
    return link


async def load_conversation(store: Store, conversation_id: str) -> Conversation:
    """raises: NotFound"""
    conversation = await store.conversation(conversation_id)
    if conversation is None:
        raise NotFound("conversation", conversation_id)
    return conversation


async def load_item_ids(store: Store, link: Link, path: Path) -> tuple[str, ...]:
    """The ids of the items on a response's path; those of its conversation as they are called there."""
    given: dict[Key, str] = {}
    conversation = await store.conversation(link.conversation_id) if link.conversation_id else None
    if conversation:
        keys: Iterable[Key] = (await store.path(conversation.head)).keys
        given = dict(zip(keys, conversation.ids, strict=True))
    return resolve_item_ids(path, given)


def _check_not_duplicate(item_id: str | None, known: set[str]) -> None:
    if item_id is None:
        return
    if item_id in known:
        raise errors.duplicate_item_error(item_id)
    known.add(item_id)


PAIRED_TYPES = frozenset({*OUTPUT_BY_CLIENT_CALL, *OUTPUT_BY_CLIENT_CALL.values()})


def check_call_pairs(items: Sequence[Item]) -> None:
    """Make sure that each call has one output. An id may be used again once its call has an output.

    raises:  RequestRefused  an output whose call does not stand before it, a second output of one call, or a call
                             without one
    """
    calls: dict[str, Item] = {}
    answered: set[str] = set()
    for item in items:
        named = _pair_id(item) if item.get("type") in PAIRED_TYPES else None
        if named is None:
            continue
        if is_client_call(item):
            before = calls.get(named)
            if before is not None and named not in answered and not _is_incomplete(before):
                raise errors.missing_tool_output_error(_describe_type(before), named)
            calls[named] = item
            answered.discard(named)
        elif named not in calls:
            raise errors.missing_tool_call_error(_describe_type(item), named)
        elif named in answered:
            raise errors.duplicate_tool_output_error(_describe_type(item), named)
        else:
            answered.add(named)
    for named, call in calls.items():
        if named not in answered and not _is_incomplete(call):
            raise errors.missing_tool_output_error(_describe_type(call), named)


def remove_incomplete_items(items: Sequence[Item]) -> tuple[Item, ...]:
    """`items` without what was cut off: a partial answer becomes its words, half a call is left out."""
    if not any(map(_is_incomplete, items)):
        return tuple(items)
    answered = {_pair_id(item) for item in items if item.get("type") in PAIRED_TYPES and is_client_output(item)}
    formed = (_complete_part(item, answered) if _is_incomplete(item) else item for item in items)
    return tuple(item for item in formed if item is not None)


def _complete_part(item: Item, answered: Collection[str | None]) -> Item | None:
    """What is left of an item that was cut off; what was answered is whole all the same."""
    if is_client_call(item):
        return item if _pair_id(item) in answered else None
    return to_sendable(item) if is_assistant_message(item) or item_type(item) == "reasoning" else item


def _is_incomplete(item: Item) -> bool:
    return item.get("status") not in (None, "completed")


def _pair_id(item: Item) -> str | None:
    """What ties a call and its output; a local shell's output has its call's in `id`."""
    named = get_call_id(item)
    if named is None and item_type(item) == "local_shell_call_output" and isinstance(item.get("id"), str):
        return str(item["id"])
    return named


def _describe_type(item: Item) -> str:
    return item_type(item).replace("_", " ")


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
    """How the ids of items of this kind begin, without the underscore."""
    return ID_PREFIXES.get(item_type(item), "item")


def resolve_item_ids(path: Path, given: Mapping[Key, str] | None = None) -> tuple[str, ...]:
    """The id of each item on `path`: its own, the one `given` to its place, or one made of its place."""
    known = given or {}
    return tuple(
        own_id(node.item) or known.get(node.key) or f"{id_prefix(node.item)}_{node.key[:NODE_KEY_DIGITS]}"
        for node in path.nodes
    )


def own_id(item: Item) -> str | None:
    found = item.get("id")
    return found if isinstance(found, str) and found else None


def to_api_item(item: Item, item_id: str) -> dict[str, Json]:
    """`item` as the API shows it: content as a list of parts, with an id and a status."""
    spelled: dict[str, Json] = {**item, "type": item_type(item), "id": item_id}
    if item_type(item) == "message" and not isinstance(item.get("content"), list):
        spelled["content"] = normalize_item(item)["content"]
    if item_type(item) in TYPES_WITH_STATUS:
        spelled["status"] = item.get("status") or "completed"
    return spelled


def paginate_items(
    items: Sequence[Item],
    ids: Sequence[str],
    *,
    after: str | None,
    before: str | None = None,
    limit: int,
    order: SortOrder,
) -> ItemPage:
    """One page of `items`, which stand oldest first.

    after, before:  the ids between which the page lies, in the order asked for. With `before` alone it
                    ends there, so that somebody can page backwards
    limit:          1 to 100
    raises:         RequestRefused
    """
    integer_validator(1, MAX_PAGE_ITEMS)("limit", limit)
    enum_validator("asc", "desc")("order", order)
    listed = list(zip(items, ids, strict=True))
    if order == "desc":
        listed.reverse()
    named = [item_id for _, item_id in listed]
    start = _cursor_index("after", after, named) + 1 if after is not None else 0
    end = _cursor_index("before", before, named) if before is not None else len(listed)
    chosen = listed[start:end]
    backwards = before is not None and after is None
    part = chosen[-limit:] if backwards else chosen[:limit]
    return ItemPage([to_api_item(item, item_id) for item, item_id in part], has_more=len(part) < len(chosen))


def _cursor_index(name: str, item_id: str, ids: Sequence[str]) -> int:
    try:
        return ids.index(item_id)
    except ValueError:
        raise errors.unknown_cursor_error(name, item_id) from None


NOT_MODEL_OUTPUT_TYPES = frozenset({"compaction", "compaction_trigger", "mcp_approval_response"})


def check_strict_input(given: Sequence[Item], known: Collection[str], saw: Sequence[Item]) -> None:
    """What a request gives, against a history whose items have the ids in `known`.

    saw:     that history with what is given behind it
    raises:  RequestRefused  in the real API's words
    """
    for at, item in enumerate(given):
        if item_type(item) == "reasoning":
            _check_reasoning(at, item, given[at + 1 :], known)
        elif item_type(item) == "function_call":
            _check_arguments(at, item)
        elif item_type(item) == "compaction" and len(saw) > len(given):
            raise RequestRefused("A compaction item cannot follow the history that it stands for", param=f"input[{at}]")
    folded = max((at for at, item in enumerate(saw) if item_type(item) == "compaction"), default=-1)
    check_call_pairs(saw[folded + 1 :])


def _check_reasoning(at: int, item: Item, behind: Sequence[Item], known: Collection[str]) -> None:
    if not isinstance(item.get("summary"), list):
        raise errors.missing_parameter_error(f"input[{at}].summary")
    alone = not item.get("encrypted_content") and not item.get("content")
    if alone and item.get("id") not in known:
        raise errors.item_not_found_error(str(item.get("id")))
    following = next((one for one in behind if item_type(one) != "reasoning"), None)
    if following is None or not _is_model_output(following):
        name = item.get("id") or f"input[{at}]"
        raise RequestRefused(
            f"Item '{name}' of type 'reasoning' was provided without its required following item", param="input"
        )


def _is_model_output(item: Item) -> bool:
    if item_type(item) == "message":
        return is_assistant_message(item)
    return not is_client_output(item) and item_type(item) not in NOT_MODEL_OUTPUT_TYPES


def _check_arguments(at: int, item: Item) -> None:
    try:
        found = json.loads(item["arguments"])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise errors.invalid_type_error(f"input[{at}].arguments", "the text of a JSON object", "something else")

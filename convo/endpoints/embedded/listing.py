"""Items as lists show them: each with an id, messages spelled out, a page at a time.

An item that came without an id is shown with one made of its place, so that every list of the
same history gives it the same one. In a conversation it keeps the one that it was given there.
"""

from collections.abc import Mapping, Sequence

from convo.endpoints.contract import Order, Page
from convo.endpoints.embedded import refusals
from convo.endpoints.embedded.checks import integer, one_of
from convo.history import Key, Path
from convo.items import Item, Json, kind, normal

PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "compaction": "cmp",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctc",
}

ALWAYS_WITH_STATUS = frozenset({"message", "function_call", "function_call_output"})

MOST = 100
PLACE_DIGITS = 48


def prefix(item: Item) -> str:
    """How the ids of items of this kind begin, without the underscore."""
    return PREFIXES.get(kind(item), "item")


def ids_of(path: Path, given: Mapping[Key, str] | None = None) -> tuple[str, ...]:
    """The id of each item on `path`: its own, the one `given` to its place, or one made of its place."""
    known = given or {}
    return tuple(
        own_id(node.item) or known.get(node.key) or f"{prefix(node.item)}_{node.key[:PLACE_DIGITS]}"
        for node in path.nodes
    )


def own_id(item: Item) -> str | None:
    found = item.get("id")
    return found if isinstance(found, str) and found else None


def shown(item: Item, item_id: str) -> dict[str, Json]:
    """`item` as the API shows it: content as a list of parts, with an id and a status."""
    spelled: dict[str, Json] = {**item, "type": kind(item), "id": item_id}
    if kind(item) == "message" and not isinstance(item.get("content"), list):
        spelled["content"] = normal(item)["content"]
    if kind(item) in ALWAYS_WITH_STATUS:
        spelled["status"] = item.get("status") or "completed"
    return spelled


def page(
    items: Sequence[Item],
    ids: Sequence[str],
    *,
    after: str | None,
    before: str | None = None,
    limit: int,
    order: Order,
) -> Page:
    """One page of `items`, which stand oldest first.

    after, before:  the ids between which the page lies, in the order asked for. With `before` alone it
                    ends there, so that somebody can page backwards
    limit:          1 to 100
    raises:         Refused
    """
    integer(1, MOST)("limit", limit)
    one_of("asc", "desc")("order", order)
    listed = list(zip(items, ids, strict=True))
    if order == "desc":
        listed.reverse()
    named = [item_id for _, item_id in listed]
    start = _place("after", after, named) + 1 if after is not None else 0
    end = _place("before", before, named) if before is not None else len(listed)
    chosen = listed[start:end]
    backwards = before is not None and after is None
    part = chosen[-limit:] if backwards else chosen[:limit]
    return Page([shown(item, item_id) for item, item_id in part], has_more=len(part) < len(chosen))


def _place(name: str, item_id: str, ids: Sequence[str]) -> int:
    try:
        return ids.index(item_id)
    except ValueError:
        raise refusals.no_place(name, item_id) from None

"""What may be said to the endpoint: the `input` of a response and the items of a conversation.

Only what the endpoint itself has to understand is checked: messages, calls and their outputs,
references. A kind that is not known here is kept as it came, for a model that knows it.
"""

from collections.abc import Mapping, Sequence

from convo.endpoints.embedded import refusals
from convo.endpoints.embedded.checks import Check, array, each, fields, handle, in_words, object_, one_of, string
from convo.items import Item, Json, kind, user

REFERENCE = "item_reference"

TRIGGER = "compaction_trigger"
"""Asks for a compaction now; it is nothing that was said, so it is never kept."""

PART = fields(required={"type": string()})


def _text_or_parts(name: str, value: Json) -> None:
    if isinstance(value, str):
        return
    if not isinstance(value, list):
        raise refusals.wrong_type(name, "one of an array of objects or string", in_words(value))
    each(PART)(name, value)


MESSAGE = fields(
    required={"role": one_of("user", "assistant", "system", "developer")},
    optional={"id": string()},
)

KINDS: Mapping[str, Check] = {
    "message": MESSAGE,
    "function_call": fields({"call_id": string(), "name": string(), "arguments": string()}, {"id": string()}),
    "function_call_output": fields({"call_id": string()}, {"id": string()}),
    "custom_tool_call": fields({"call_id": string(), "name": string(), "input": string()}, {"id": string()}),
    "custom_tool_call_output": fields({"call_id": string()}, {"id": string()}),
    "reasoning": fields(optional={"id": string(), "summary": array, "content": array, "encrypted_content": string()}),
    "compaction": fields({"encrypted_content": string()}, {"id": string()}),
    REFERENCE: fields({"id": string()}),
}

SAID: Mapping[str, str] = {
    "message": "content",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
}
"""The field of a kind that holds words or a list of parts; it must be there and may be empty."""


def items_of(name: str, value: Json) -> tuple[Item, ...]:
    """The items that `value` stands for: words are a user's message.

    raises:  Refused  names the first thing that is wrong, as `input[2].content`
    """
    if isinstance(value, str):
        return (user(value),)
    if not isinstance(value, list):
        raise refusals.wrong_type(name, "one of an array of objects or string", in_words(value))
    for at, item in enumerate(value):
        _check_item(f"{name}[{at}]", item)
    return tuple(map(_typed, value))


def reference(item: Item) -> str | None:
    """The id that an item only refers to."""
    return str(item["id"]) if item.get("type") == REFERENCE else None


def is_trigger(item: Item) -> bool:
    return item.get("type") == TRIGGER


def triggered(items: Sequence[Item]) -> bool:
    """Whether a compaction is asked for. raises: Refused  something stands behind that"""
    if any(map(is_trigger, items[:-1])):
        raise refusals.trigger_not_last()
    return bool(items) and is_trigger(items[-1])


def _check_item(name: str, item: Json) -> None:
    object_(name, item)
    typed: Item = _typed(item)
    if typed.get("type") is not None:
        string()(f"{name}.type", typed["type"])
    if kind(typed) == "unknown":
        raise refusals.missing(f"{name}.type")
    KINDS.get(kind(typed), object_)(name, typed)
    if typed.get("id"):
        handle(f"{name}.id", typed["id"])
    words = SAID.get(kind(typed))
    if words is not None:
        if typed.get(words) is None:
            raise refusals.missing(f"{name}.{words}")
        _text_or_parts(f"{name}.{words}", typed[words])


def _typed(item: dict[str, Json]) -> dict[str, Json]:
    """A reference may leave its type out; everything else stays as it came."""
    return {**item, "type": REFERENCE} if set(item) == {"id"} or _untyped_reference(item) else item


def _untyped_reference(item: dict[str, Json]) -> bool:
    return set(item) == {"id", "type"} and item["type"] is None

"""What an event must look like before anything is made of it.

An endpoint is a stranger. Events of kinds that nobody here reads pass whatever they hold; the
fields that are read must have their types, or the answer is broken off with a sentence.
"""

from collections.abc import Mapping
from typing import Any

from convo.errors import StreamBroken
from convo.items.shapes import Event, Json

Types = type | tuple[type, ...]

OF_EVENTS: dict[str, Mapping[str, Types]] = {
    **{f"response.{kind}": {"response": dict} for kind in ("created", "queued", "in_progress")},
    **{f"response.{kind}": {"response": dict} for kind in ("completed", "incomplete", "failed", "cancelled")},
    **{f"response.output_item.{kind}": {"output_index": int, "item": dict} for kind in ("added", "done")},
    "response.content_part.added": {"output_index": int, "part": dict},
    "response.reasoning_summary_part.added": {"output_index": int, "part": dict},
    **{
        f"response.{kind}.delta": {"output_index": int, "delta": str}
        for kind in (
            "output_text",
            "refusal",
            "reasoning_text",
            "reasoning",
            "reasoning_summary_text",
            "function_call_arguments",
        )
    },
}

NOTHING = type(None)

OF_RESPONSES: Mapping[str, Types] = {
    "id": (str, NOTHING),
    "status": (str, NOTHING),
    "output": (list, NOTHING),
    "usage": (dict, NOTHING),
    "error": (dict, NOTHING),
    "incomplete_details": (dict, NOTHING),
}

OF_USAGE: Mapping[str, Types] = {
    "input_tokens": (int, NOTHING),
    "output_tokens": (int, NOTHING),
    "input_tokens_details": (dict, NOTHING),
    "output_tokens_details": (dict, NOTHING),
}

OF_ITEMS: Mapping[str, Types] = {"type": (str, NOTHING), "id": (str, NOTHING), "status": (str, NOTHING)}


def wellformed(event: Event) -> Event:
    """`event`, when what is read of it can be read. raises: StreamBroken"""
    kind = event.get("type")
    if not isinstance(kind, str):
        raise StreamBroken("the endpoint sent an event without a type")
    _check(event, OF_EVENTS.get(kind, {}), kind)
    if isinstance(event.get("item"), dict):
        _check(event["item"], OF_ITEMS, kind)
    response = event.get("response")
    if kind in OF_EVENTS and isinstance(response, dict):
        _check(response, OF_RESPONSES, kind)
        _check(response.get("usage") or {}, OF_USAGE, kind)
        for item in response.get("output") or ():
            _check(item, OF_ITEMS, kind)
    return event


def _check(value: Any, fields: Mapping[str, Types], kind: str) -> None:
    if not isinstance(value, dict):
        raise StreamBroken(f"the endpoint's event {kind!r} holds an item that is none")
    for field, types in fields.items():
        found: Json = value.get(field)
        if not isinstance(found, types):
            raise StreamBroken(f"the endpoint's event {kind!r} has no {field!r} that can be read")

"""Accumulation of a response stream: the output so far, and validation of its events.

The final payload of a stream is stored. `ResponseAccumulator` replaces it when the stream was cut off, or when
the final payload has no output. `validate_stream_event` comes first: it checks only the fields that are read here, and
raises StreamBroken. Event types that nothing here reads pass unchecked.
"""

from collections import defaultdict
from collections.abc import Mapping
from io import StringIO
from typing import Any
from zlib import crc32

from convo.errors import StreamBroken
from convo.history.items import Item, Json, StreamEvent, is_item, item_text, item_type, to_sendable

TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The events that end a response and contain the complete response."""

SERVER_TERMINAL_EVENTS = TERMINAL_EVENTS | {"response.cancelled"}
"""The same, and the event of servers that have one for a cancelled response."""

START_EVENTS = frozenset({"response.created", "response.queued", "response.in_progress"})
"""The events before the first output event."""

ITEM_EVENTS = frozenset({"response.output_item.added", "response.output_item.done"})
"""The events that contain an output item."""

DELTA_TARGETS = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
    "response.reasoning.delta": ("content", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
}
"""Delta events: the list that contains the part, the type of the part, and its text field."""

TEXT_DELTAS = frozenset({"response.output_text.delta", "response.refusal.delta"})
"""Delta events of a message."""

PART_ADDED_EVENTS = {"response.content_part.added": "content", "response.reasoning_summary_part.added": "summary"}
"""Events that start a part, and the list of the item that contains it."""


STREAMED_TEXT_DIFFERS = "streamed_text_differs"
"""The field of a terminal event, and of a link's error, for a final text that differs from the streamed text."""

STREAMED_TEXT_DIFFERS_MESSAGE = "the text that was streamed differs from the final text, which was kept"


class StreamedTextChecksum:
    """Compares the text of a response's deltas with the text of its terminal event; it stores checksums only."""

    def __init__(self) -> None:
        self._checksums: dict[Json, int] = {}
        self._total_checksum = 0

    def add(self, event: StreamEvent) -> None:
        """Add the delta of an event, if it is text of a message."""
        delta = event.get("delta")
        if event["type"] in TEXT_DELTAS and isinstance(delta, str):
            index, text = event.get("output_index"), delta.encode("utf-8", "surrogatepass")
            self._checksums[index] = crc32(text, self._checksums.get(index, 0))
            self._total_checksum = crc32(text, self._total_checksum)

    def has_different_text(self, event: StreamEvent) -> bool:
        """Return whether text was streamed and the terminal event of a successful response has another text.

        Some servers give every delta the same index, so several messages are compared as one text too.
        """
        response = event.get("response")
        output = response.get("output") if isinstance(response, Mapping) else None
        if event["type"] == "response.failed" or not self._checksums or not isinstance(output, list) or not output:
            return False
        texts = [text.encode("utf-8", "surrogatepass") for text in map(_message_text, output) if text]
        has_same_messages = sorted(map(crc32, texts)) == sorted(self._checksums.values())
        return not has_same_messages and crc32(b"".join(texts)) != self._total_checksum


def _message_text(item: Json) -> str:
    """Return the text of a message, its refusals included."""
    content = item.get("content") if isinstance(item, Mapping) and item.get("type") == "message" else None
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


class ResponseAccumulator:
    """Collects the valid events of one response.

    Deltas are written to a buffer until the text is read: a response may have very many, and adding
    to a string copies it each time.
    """

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.has_output_events = False
        self._items: dict[int, dict[str, Json]] = {}
        self._buffers: defaultdict[tuple[int, str, str], StringIO] = defaultdict(lambda: StringIO(newline=""))
        self._done_indexes: set[int] = set()

    @property
    def output(self) -> list[Item]:
        """The items so far, in the order of the response."""
        for key in self._buffers:
            self._flush_buffer(*key)
        return [self._items[index] for index in sorted(self._items)]

    @property
    def incomplete_output(self) -> list[Item]:
        """The items so far of a response that ends here: complete ones, and partial ones with text, as incomplete.

        A partial call is left out: it must not be run.
        """
        output = self.output
        indexed_items = zip(sorted(self._items), output, strict=True)
        flagged_items = [(index in self._done_indexes, item) for index, item in indexed_items]
        closed_items = [item if is_done else {**item, "status": "incomplete"} for is_done, item in flagged_items]
        return [
            item
            for (is_done, _), item in zip(flagged_items, closed_items, strict=True)
            if is_done or to_sendable(item) or (item_type(item) == "reasoning" and item_text(item))
        ]

    def _flush_buffer(self, index: int, list_name: str, field: str) -> None:
        container = self._items[index][list_name][-1] if list_name else self._items[index]
        container[field] = self._buffers[index, list_name, field].getvalue()

    def add(self, event: StreamEvent) -> None:
        """Add one event; events without output change nothing."""
        kind = event["type"]
        if kind in START_EVENTS:
            self.response_id = event["response"].get("id") or self.response_id
            return
        self.has_output_events = self.has_output_events or kind not in TERMINAL_EVENTS
        if kind in ITEM_EVENTS:
            self._set_item(event["output_index"], event["item"])
            if kind == "response.output_item.done":
                self._done_indexes.add(event["output_index"])
        elif kind in PART_ADDED_EVENTS:
            self._add_part(event["output_index"], dict(event["part"]), PART_ADDED_EVENTS[kind])
        elif kind in DELTA_TARGETS:
            self._add_delta(event, *DELTA_TARGETS[kind])
        elif kind == "response.function_call_arguments.delta":
            self._items.setdefault(event["output_index"], {"type": "function_call"})
            self._buffers[event["output_index"], "", "arguments"].write(event["delta"])

    def _set_item(self, index: int, item: dict[str, Json]) -> None:
        lists = {name: list(item[name]) for name in ("content", "summary") if isinstance(item.get(name), list)}
        self._items[index] = {**item, **lists}
        for key in [key for key in self._buffers if key[0] == index]:
            del self._buffers[key]

    def _add_part(self, index: int, part: dict[str, Json], name: str) -> None:
        parts = self._part_list(index, name)
        for field in ("text", "refusal"):  # the previous part is complete
            if (index, name, field) in self._buffers:
                self._flush_buffer(index, name, field)
                del self._buffers[index, name, field]
        parts.append(part)

    def _add_delta(self, event: StreamEvent, name: str, part: str, field: str) -> None:
        place = event["output_index"], name, field
        if place not in self._buffers:
            parts = self._part_list(event["output_index"], name)
            if not parts or not isinstance(parts[-1], dict):
                parts.append({"type": part, field: ""})
        self._buffers[place].write(event["delta"])

    def _part_list(self, index: int, name: str) -> list[dict[str, Json]]:
        """Return the list `name` of an item: "content" of a message, or "summary" of reasoning."""
        new_item = {"type": "reasoning"} if name == "summary" else {"type": "message", "role": "assistant"}
        item = self._items.setdefault(index, new_item)
        if not isinstance(item.get(name), list):  # some servers start a message with null
            item[name] = []
        parts: list[dict[str, Json]] = item[name]
        return parts


FieldTypes = type | tuple[type, ...]

EVENT_FIELDS: dict[str, Mapping[str, FieldTypes]] = {
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

NONE_TYPE = type(None)

RESPONSE_FIELDS: Mapping[str, FieldTypes] = {
    "id": (str, NONE_TYPE),
    "status": (str, NONE_TYPE),
    "output": (list, NONE_TYPE),
    "usage": (dict, NONE_TYPE),
    "error": (dict, NONE_TYPE),
    "incomplete_details": (dict, NONE_TYPE),
}

USAGE_FIELDS: Mapping[str, FieldTypes] = {
    "input_tokens": (int, NONE_TYPE),
    "output_tokens": (int, NONE_TYPE),
    "input_tokens_details": (dict, NONE_TYPE),
    "output_tokens_details": (dict, NONE_TYPE),
}

ITEM_FIELDS: Mapping[str, FieldTypes] = {"type": (str, NONE_TYPE), "id": (str, NONE_TYPE), "status": (str, NONE_TYPE)}


def validate_stream_event(event: StreamEvent) -> StreamEvent:
    """Return `event` if the fields that convo reads are valid. Raises StreamBroken."""
    kind = event.get("type")
    if not isinstance(kind, str):
        raise StreamBroken("the endpoint sent an event without a type")
    _check_fields(event, EVENT_FIELDS.get(kind, {}), kind)
    if kind in ITEM_EVENTS:
        _check_fields(event["item"], ITEM_FIELDS, kind)
        _check_item_type(event["item"], kind)
    response = event.get("response")
    if kind in START_EVENTS | SERVER_TERMINAL_EVENTS and isinstance(response, dict):
        _check_fields(response, RESPONSE_FIELDS, kind)
        _check_fields(response.get("usage") or {}, USAGE_FIELDS, kind)
        for item in response.get("output") or ():
            _check_fields(item, ITEM_FIELDS, kind)
            _check_item_type(item, kind)
    return event


def _check_item_type(item: Json, kind: str) -> None:
    """Check that an output item has a type: without one it could be stored, but not sent, exported or resumed."""
    if kind in EVENT_FIELDS and not is_item(item):
        raise StreamBroken(f"the endpoint's event {kind!r} has an output item without a type")


def _check_fields(value: Any, fields: Mapping[str, FieldTypes], kind: str) -> None:
    if not isinstance(value, dict):
        raise StreamBroken(f"the endpoint's event {kind!r} has a member that is not an object")
    for field, types in fields.items():
        field_value: Json = value.get(field)
        if not isinstance(field_value, types):
            raise StreamBroken(f"the endpoint's event {kind!r} has no valid {field!r}")

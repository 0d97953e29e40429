"""Accumulation of a response stream: the output so far, and validation of its events.

The final payload of a stream is stored. `ResponseAccumulator` replaces it when the stream was cut off, or when
the final payload has no output. `find_event_fault` comes first: it checks only the fields that are read here.
Event types that nothing here reads pass unchecked.
"""

from collections.abc import Mapping
from io import StringIO
from typing import TypeAlias
from zlib import crc32

from convo.errors import StreamBroken
from convo.history.items import Item, Json, StreamEvent, is_item, item_text, item_type, to_sendable

TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The events that end a response and contain the complete response."""

SERVER_TERMINAL_EVENTS = TERMINAL_EVENTS | {"response.cancelled"}
"""The same, and the event of servers that have one for a cancelled response."""

START_EVENTS = frozenset({"response.created", "response.queued", "response.in_progress"})
"""The events before the first output event."""

EVENTS_WITH_RESPONSE = START_EVENTS | SERVER_TERMINAL_EVENTS

ITEM_EVENTS = frozenset({"response.output_item.added", "response.output_item.done"})
"""The events that contain an output item."""

DELTA_TARGETS = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
    # The name in the Open Responses specification; the openai package has reasoning_text.
    "response.reasoning.delta": ("content", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
}
"""Delta events: the list that contains the part, the type of the part, and its text field."""

TEXT_DELTAS = frozenset({"response.output_text.delta", "response.refusal.delta"})
"""Delta events of a message."""

_TEXT_TARGETS = frozenset(DELTA_TARGETS[kind] for kind in TEXT_DELTAS)

PART_ADDED_EVENTS = {"response.content_part.added": "content", "response.reasoning_summary_part.added": "summary"}
"""Events that start a part, and the list of the item that contains it."""


STREAMED_TEXT_DIFFERS = "streamed_text_differs"
"""The field of a terminal event, and of a link's error, for a final text that differs from the streamed text."""

STREAMED_TEXT_DIFFERS_MESSAGE = "the text that was streamed differs from the final text, which was kept"


def _message_text(item: Json) -> str:
    """Return the text of a message, its refusals included."""
    content = item.get("content") if isinstance(item, Mapping) and item.get("type") == "message" else None
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


_Target: TypeAlias = tuple[str, str, str]

_BUFFERED_DELTAS: Mapping[str, _Target] = {
    **DELTA_TARGETS,
    "response.function_call_arguments.delta": ("", "", "arguments"),
}
"""`DELTA_TARGETS`, and the field of a call for its arguments."""


class ResponseAccumulator:
    """Collects the valid events of one response.

    Deltas are written to a buffer until the text is read: a response may have very many, and adding
    to a string copies it each time. Of text that an item or a further part completes, a checksum is kept.
    """

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.has_output_events = False
        self._items: dict[int, dict[str, Json]] = {}
        self._buffers: dict[tuple[int, _Target], StringIO] = {}
        self._done_indexes: set[int] = set()
        self._checksums: dict[int, int] = {}
        self._total_checksum = 0

    @property
    def output(self) -> list[Item]:
        """The items so far, in the order of the response."""
        for key, buffer in self._buffers.items():
            self._store_text(*key, buffer)
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

    def has_different_text(self, event: StreamEvent) -> bool:
        """Return whether text was streamed and the terminal event of a successful response has another text.

        Some servers give every delta the same index, so several messages are compared as one text too.
        """
        for key in list(self._buffers):
            self._close_buffer(*key)
        response = event.get("response")
        output = response.get("output") if isinstance(response, Mapping) else None
        if event["type"] == "response.failed" or not self._checksums or not isinstance(output, list) or not output:
            return False
        texts = [text.encode("utf-8", "surrogatepass") for text in map(_message_text, output) if text]
        has_same_messages = sorted(map(crc32, texts)) == sorted(self._checksums.values())
        return not has_same_messages and crc32(b"".join(texts)) != self._total_checksum

    def add(self, event: StreamEvent) -> None:
        """Add one event; events without output change nothing."""
        kind = event["type"]
        target = _BUFFERED_DELTAS.get(kind)
        if target is not None:
            buffer = self._buffers.get((event["output_index"], target))
            (buffer or self._open_buffer(event["output_index"], target)).write(event["delta"])
            return
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

    def _set_item(self, index: int, item: dict[str, Json]) -> None:
        lists = {name: list(item[name]) for name in ("content", "summary") if isinstance(item.get(name), list)}
        for key in [key for key in self._buffers if key[0] == index]:
            self._close_buffer(*key)
        self._items[index] = {**item, **lists}

    def _add_part(self, index: int, part: dict[str, Json], name: str) -> None:
        parts = self._part_list(index, name)
        self._close_list(index, name)  # the previous part is complete
        parts.append(part)

    def _open_buffer(self, index: int, target: _Target) -> StringIO:
        name, part, field = target
        self.has_output_events = True
        if not name:
            self._items.setdefault(index, {"type": "function_call"})
        else:
            parts = self._part_list(index, name)
            # A server may send an answer after its reasoning with one output_index and no new part: it replaced the
            # reasoning.
            if self._close_list(index, name) or not parts or not isinstance(parts[-1], dict):
                parts.append({"type": part, field: ""})
        buffer = self._buffers[index, target] = StringIO(newline="")
        return buffer

    def _close_list(self, index: int, name: str) -> bool:
        """Close the buffers of a list of parts, such as that of deltas of another type; return whether it had any."""
        keys = [key for key in self._buffers if key[0] == index and key[1][0] == name]
        for key in keys:
            self._close_buffer(*key)
        return bool(keys)

    def _close_buffer(self, index: int, target: _Target) -> None:
        text = self._store_text(index, target, self._buffers.pop((index, target)))
        if target in _TEXT_TARGETS:
            encoded = text.encode("utf-8", "surrogatepass")
            self._checksums[index] = crc32(encoded, self._checksums.get(index, 0))
            self._total_checksum = crc32(encoded, self._total_checksum)

    def _store_text(self, index: int, target: _Target, buffer: StringIO) -> str:
        """Set the text of the deltas in the open part, or in the call; return it."""
        name, _, field = target
        container = self._items[index][name][-1] if name else self._items[index]
        container[field] = text = buffer.getvalue()
        return text

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
    fault = find_event_fault(event)
    if fault is not None:
        raise StreamBroken(fault)
    return event


def find_event_fault(event: StreamEvent) -> str | None:
    """Return what is wrong with the fields of `event` that convo reads; None if nothing is."""
    kind = event.get("type")
    if not isinstance(kind, str):
        return "the endpoint sent an event without a type"
    for field, types in EVENT_FIELDS.get(kind, {}).items():
        if not isinstance(event.get(field), types):
            return f"the endpoint's event {kind!r} has no valid {field!r}"
    if kind in ITEM_EVENTS:
        return _find_item_fault(event["item"], kind)
    if kind in EVENTS_WITH_RESPONSE:
        response = event["response"]
        fault = _find_field_fault(response, RESPONSE_FIELDS, kind)
        fault = fault or _find_field_fault(response.get("usage") or {}, USAGE_FIELDS, kind)
        item_faults = (_find_item_fault(item, kind) for item in ([] if fault else response.get("output") or ()))
        return fault or next(filter(None, item_faults), None)
    return None


def _find_item_fault(item: Json, kind: str) -> str | None:
    """Return what is wrong with an item. One without a type could be stored, but not sent, exported or resumed."""
    fault = _find_field_fault(item, ITEM_FIELDS, kind)
    has_type = fault is not None or is_item(item)
    return fault if has_type else f"the endpoint's event {kind!r} has an output item without a type"


def _find_field_fault(value: Json, fields: Mapping[str, FieldTypes], kind: str) -> str | None:
    if not isinstance(value, dict):
        return f"the endpoint's event {kind!r} has a member that is not an object"
    wrong = next((field for field, types in fields.items() if not isinstance(value.get(field), types)), None)
    return f"the endpoint's event {kind!r} has no valid {wrong!r}" if wrong is not None else None

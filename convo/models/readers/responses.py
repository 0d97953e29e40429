"""Read an answer of the Responses API: its events, or its whole body, in any form that a server was seen to send.

The events that are yielded are in the API's order and have the fields that convo reads. An invalid field or event is
skipped, and the rest is kept:

    text without item events (proxies), no item at the end    the item is added, and is in the final output
    two items with one output_index (open-responses-server)   the second one gets the next index
    an item with another id in each event (Copilot)           its first id
    a completed response with the status "incomplete" (vLLM)  an incomplete response
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO

from convo.history.accumulator import (
    DELTA_TARGETS,
    ITEM_EVENTS,
    PART_ADDED_EVENTS,
    SERVER_TERMINAL_EVENTS,
    START_EVENTS,
)
from convo.history.items import Item, Json, StreamEvent, get_call_id, is_item, item_type
from convo.history.records import NOTICES
from convo.models.http import DONE_MARKER
from convo.models.stream import is_json, is_token_count
from convo.runtime import NewId


@dataclass(slots=True, eq=False)
class _OutputItem:
    """An item of the output.

    id:     the same one in all its events
    item:   the item, as far as its events say
    texts:  its texts by the type of the part, until the item is done
    """

    index: int
    item: Item
    id: str | None = None
    is_done: bool = False
    texts: dict[str, StringIO] = field(default_factory=dict)

    @property
    def arguments(self) -> str:
        return self.texts["arguments"].getvalue() if "arguments" in self.texts else ""


class ResponsesReader:
    """Reads one answer."""

    def __init__(self, new_id: NewId | None = None, *, is_whole: bool = True) -> None:
        """Start an answer.

        new_id:    gives an id to each item, the same in all events; None: ids stay as they are
        is_whole:  the events begin with the first one; otherwise no item is added for a text without one
        """
        self._new_id, self._is_whole = new_id, is_whole
        self._places: list[_OutputItem] = []
        self._place_by_index: dict[Json, _OutputItem] = {}
        self._started: dict[str, Json] = {}

    def read(self, value: Json) -> Iterator[StreamEvent]:
        """Read one event, a whole body, or the text [DONE]. An event of an error is passed on."""
        if value == DONE_MARKER and self._places:  # without the event that ends the response
            calls = [place for place in self._places if item_type(place.item) == "function_call"]
            end = "completed" if all(place.is_done or is_json(place.arguments) for place in calls) else "incomplete"
            notices = {NOTICES: ["the provider ended the response with no reason"]}
            yield from self._read_terminal({"type": f"response.{end}", "response": {**self._started, **notices}})
        if not isinstance(value, dict):
            return
        kind = value.get("type")
        if isinstance(kind, str) and kind in DELTA_TARGETS:  # most events: one more delta of a text that has begun
            index, delta = value.get("output_index"), value.get("delta")
            place = self._place_by_index.get(index) if type(index) is int else None
            if place is not None and place.index == index and place.id in (None, value.get("item_id")):
                text = place.texts.get(DELTA_TARGETS[kind][1])
                if text is not None and isinstance(delta, str):
                    text.write(delta)
                    yield value
                    return
        if not isinstance(kind, str):
            if value.get("object") == "response" or isinstance(value.get("output"), list):
                yield from self._read_body(value)
            elif value.get("error") or value.get("detail"):
                yield {**value, "type": "error"}
        elif kind in SERVER_TERMINAL_EVENTS:
            yield from self._read_terminal(value)
        elif kind in START_EVENTS:
            response = value.get("response")
            self._started = _clean_response(response if isinstance(response, dict) else {})
            yield {**value, "response": self._started}
        elif kind in ITEM_EVENTS:
            yield from self._read_item(value)
        elif "output_index" in value or "item_id" in value or kind in _TEXT_EVENTS:
            yield from self._read_part(value)
        else:
            yield value

    def _read_body(self, response: Mapping[str, Json]) -> Iterator[StreamEvent]:
        output, status = response.get("output"), response.get("status")
        if response.get("error") and not output:
            yield {**response, "type": "error"}
            return
        yield {"type": "response.created", "response": _clean_response({**response, "output": []})}
        for index, item in enumerate(output if isinstance(output, list) else ()):
            for kind in ("added", "done"):
                yield from self.read({"type": f"response.output_item.{kind}", "output_index": index, "item": item})
        terminal = status if status in ("incomplete", "failed", "cancelled") else "completed"
        yield from self._read_terminal({"type": f"response.{terminal}", "response": response})

    def _read_item(self, event: StreamEvent) -> Iterator[StreamEvent]:
        item, index = event.get("item"), event.get("output_index")
        if not isinstance(item, dict) or not is_item(item):
            return
        is_done = event["type"] == "response.output_item.done"
        place = self._find_place(index, item, is_done=is_done)
        if place is None:
            place = self._add_place(index, item)
            if is_done and self._is_whole:
                yield self._make_item_event(place, "added", {**item, **_EMPTY_LISTS.get(item_type(item), {})})
        place.item = item
        if is_done:
            place.is_done = True
            place.texts.clear()
        yield {**event, "output_index": place.index, "item": self._with_id(item, place)}

    def _find_place(self, index: Json, item: Item, *, is_done: bool) -> _OutputItem | None:
        """Return the place of the item that an event continues; None if the event begins an item."""
        place = self._place_by_index.get(index) if type(index) is int else None
        if place is None and is_done:
            open_places = (place for place in reversed(self._places) if not place.is_done)
            place = next((place for place in open_places if _is_same(place.item, item)), None)
        return None if place is None or place.is_done or item_type(place.item) != item_type(item) else place

    def _add_place(self, index: Json, item: Item) -> _OutputItem:
        used = {place.index for place in self._places}
        free = max(used, default=-1) + 1
        place = _OutputItem(index if type(index) is int and index not in used and index >= 0 else free, item)
        self._places.append(place)
        self._place_by_index[place.index] = place
        if type(index) is int:
            self._place_by_index[index] = place
        return place

    def _read_part(self, event: StreamEvent) -> Iterator[StreamEvent]:
        kind, index = event["type"], event.get("output_index")
        if type(index) is not int:
            index = self._places[-1].index if self._places else None
        place = self._place_by_index.get(index)
        part_type, text_field = _TEXT_EVENTS.get(kind, ("", ""))
        text = event.get(text_field)
        if (part_type and not isinstance(text, str)) or (
            kind in PART_ADDED_EVENTS and not isinstance(event.get("part"), dict)
        ):
            return
        is_new = place is None or (place.is_done and text_field == "delta")
        if is_new and part_type in _ITEM_BY_PART and self._is_whole:
            item_id = {"id": event["item_id"]} if isinstance(event.get("item_id"), str) else {}
            item = {**_ITEM_BY_PART[part_type], **item_id, "status": "in_progress"}
            place = self._add_place(index, item)
            yield self._make_item_event(place, "added", item)
        if place is None:
            if part_type != "arguments":  # a part of a call without its name
                yield event
            return
        if part_type and not place.is_done and (text_field == "delta" or part_type not in place.texts):
            place.texts.setdefault(part_type, StringIO(newline="")).write(str(text))
        item_id = self._with_id({"id": event.get("item_id")}, place)["id"]
        yield {**event, "output_index": place.index, **({"item_id": item_id} if item_id else {})}

    def _read_terminal(self, event: StreamEvent) -> Iterator[StreamEvent]:
        response = event.get("response")
        cleaned = _clean_response(response if isinstance(response, dict) else {})
        kind = event["type"]
        if kind == "response.completed" and cleaned.get("status") in ("incomplete", "failed"):
            kind = f"response.{cleaned['status']}"
        output = self._finish_output(cleaned.get("output") or [], is_complete=kind == "response.completed")
        given = response.get("output") if isinstance(response, dict) else None
        if isinstance(given, list) and len(given) > len(cleaned["output"]):
            cleaned[NOTICES] = ["an output item without a type was left out"]
        for place in self._places:
            if not place.is_done and place.item in output:
                yield self._make_item_event(place, "done", place.item)
        yield {**event, "type": kind, "response": {**cleaned, "output": output}}

    def _finish_output(self, final: Sequence[Item], *, is_complete: bool) -> list[Item]:
        """Return the final items under their ids in the events, and the streamed items that are missing among them."""
        places = sorted(self._places, key=lambda place: place.index)
        unused = list(places)
        output: list[tuple[int, Item]] = []
        for position, item in enumerate(final):
            place = next((place for place in unused if item.get("id") and place.item.get("id") == item["id"]), None)
            if place is None and position < len(places) and places[position] in unused:
                place = places[position] if item_type(places[position].item) == item_type(item) else None
            if place is not None:
                unused.remove(place)
                place.item = item = self._with_id(item, place)
            elif self._new_id is not None:
                item = self._with_id(item, _OutputItem(position, item))
            output.append((place.index if place else position, item))
        final_types, final_calls = {item_type(item) for item in final}, {get_call_id(item) for item in final}
        for place in unused:
            if item_type(place.item) in final_types and get_call_id(place.item) in (None, *final_calls):
                continue
            if not place.is_done:
                place.item = _close_item(place, is_complete=is_complete)
            if place.is_done or place.texts:
                place.item = self._with_id(place.item, place)
                output.append((place.index, place.item))
        return [item for _, item in sorted(output, key=lambda entry: entry[0])]

    def _with_id(self, item: Item, place: _OutputItem) -> Item:
        """Return the item with one id for all its events: the first that the server sent, or a new one."""
        item_id = item.get("id")
        if self._new_id is None:
            return item
        if place.id is None:
            place.id = item_id if isinstance(item_id, str) and item_id else None
            place.id = place.id or self._new_id(_ID_PREFIXES.get(item_type(place.item), "item"))
        return item if item_id == place.id else {**item, "id": place.id}

    def _make_item_event(self, place: _OutputItem, kind: str, item: Item) -> StreamEvent:
        fields = {"output_index": place.index, "item": self._with_id(item, place)}
        return {"type": f"response.output_item.{kind}", **fields}


_TEXT_EVENTS: Mapping[str, tuple[str, str]] = {
    **{kind: (part, "delta") for kind, (_, part, _) in DELTA_TARGETS.items()},
    **{kind.replace(".delta", ".done"): (part, field) for kind, (_, part, field) in DELTA_TARGETS.items()},
    "response.function_call_arguments.delta": ("arguments", "delta"),
    "response.function_call_arguments.done": ("arguments", "arguments"),
}
"""Events with text: the type of its part, and the field of the event. Some servers send the whole text only."""

_EMPTY_LISTS: Mapping[str, Mapping[str, Json]] = {"message": {"content": []}, "function_call": {"arguments": ""}}
"""Fields of an item that has just begun."""

_ID_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}

_ITEM_BY_PART: Mapping[str, Mapping[str, Json]] = {
    "output_text": {"type": "message", "role": "assistant", "content": []},
    "refusal": {"type": "message", "role": "assistant", "content": []},
    "reasoning_text": {"type": "reasoning", "summary": [], "content": []},
    "summary_text": {"type": "reasoning", "summary": []},
}
"""The item of a delta that came without one, by the type of its part."""


def _is_same(first: Item, second: Item) -> bool:
    return item_type(first) == item_type(second) and first.get("id") == second.get("id")


def _close_item(place: _OutputItem, *, is_complete: bool) -> Item:
    """Return an item whose last event is missing, with the text of its deltas."""
    is_cut = item_type(place.item) == "function_call" and not is_json(place.arguments)
    item: dict[str, Json] = {**place.item, "status": "completed" if is_complete and not is_cut else "incomplete"}
    for part_type, buffer in place.texts.items():
        if part_type == "arguments":
            item["arguments"] = buffer.getvalue()
            continue
        name, text = "summary" if part_type == "summary_text" else "content", buffer.getvalue()
        extra: dict[str, Json] = {"annotations": [], "logprobs": []} if part_type == "output_text" else {}
        text_field = "refusal" if part_type == "refusal" else "text"
        item[name] = [{"type": part_type, text_field: text, **extra}]
    return item


_RESPONSE_TYPES: Mapping[str, type] = {
    "usage": dict,
    "error": dict,
    "incomplete_details": dict,
    "status": str,
    "id": str,
}


def _clean_response(response: Mapping[str, Json]) -> dict[str, Json]:
    """Return the response without fields of another type than the API's."""
    cleaned = dict(response)
    for name, expected in _RESPONSE_TYPES.items():
        if not isinstance(cleaned.get(name), expected | None):
            cleaned[name] = None
    if "output" in response:
        output = response["output"]
        cleaned["output"] = [item for item in output if is_item(item)] if isinstance(output, list) else []
    if cleaned.get("usage") is not None:
        cleaned["usage"] = _clean_usage(cleaned["usage"])
    return cleaned


_USAGE_COUNTS = ("input_tokens", "output_tokens", "total_tokens")


def _clean_usage(reported: Mapping[str, Json]) -> dict[str, Json]:
    """Remove the counts that are no numbers of tokens; fields unknown to the API stay."""
    usage: dict[str, Json] = {}
    for name, value in reported.items():
        if name in _USAGE_COUNTS:
            usage |= {name: int(value)} if _is_count(value) else {}
        elif name in ("input_tokens_details", "output_tokens_details"):
            details = value if isinstance(value, dict) else {}
            usage[name] = {key: int(count) for key, count in details.items() if _is_count(count)}
        else:
            usage[name] = value
    return usage


def _is_count(value: Json) -> bool:
    return is_token_count(value) or (type(value) is float and value.is_integer() and is_token_count(int(value)))

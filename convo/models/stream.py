"""Writes one answer as Responses events, in the order the real API keeps.

An adapter says what arrived (`text`, `refusal`, `thinking`, `seal`, `call`, `arguments`) and `Answer`
says which events follow: it opens items and parts when their first piece comes, closes them when
something else begins, and gathers the final output from what it sent, so that the streamed and
the final form cannot differ.

    item added → (part added → deltas → text done → part done)* → item done → ... → terminal
"""

from collections.abc import Callable, Iterator

from convo.ids import NewId
from convo.items import Event, Item, Json


def usage(input_tokens: int, output_tokens: int, *, cached: int = 0, written: int = 0, reasoning: int = 0) -> Json:
    """A usage object with both details, all figures in tokens."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


class Answer:
    """One answer while it is written; every method yields the events that are due now."""

    def __init__(self, new_id: NewId, model: str | None = None) -> None:
        """`model` is who answers, as the terminal event names it; a provider may correct it later."""
        self.model = model
        self._new_id = new_id
        self._output: list[dict[str, Json]] = []
        self._open: dict[str, Json] | None = None
        self._part: dict[str, Json] | None = None

    @property
    def output(self) -> list[dict[str, Json]]:
        """The items so far, the open one as it stands."""
        return self._output

    def text(self, delta: str) -> Iterator[Event]:
        yield from self._piece("message", "output_text", "response.output_text.delta", delta, logprobs=[])

    def refusal(self, delta: str) -> Iterator[Event]:
        yield from self._piece("message", "refusal", "response.refusal.delta", delta)

    def thinking(self, delta: str) -> Iterator[Event]:
        """A piece of reasoning that the provider shows in full."""
        yield from self._piece("reasoning", "reasoning_text", "response.reasoning_text.delta", delta)

    def seal(self, content: str) -> Iterator[Event]:
        """What was thought ends, shown or not; by `content` its maker knows it again."""
        if self._open is None or self._open["type"] != "reasoning":
            yield from self._begin(NEW_ITEM["reasoning"](self._new_id))
        assert self._open is not None
        self._open["encrypted_content"] = content
        yield from self._finish("completed")

    def call(self, call_id: str, name: str) -> Iterator[Event]:
        """A function call begins; its arguments follow."""
        yield from self._begin(
            {"type": "function_call", "id": self._new_id("fc"), "call_id": call_id, "name": name, "arguments": ""}
        )

    def arguments(self, delta: str) -> Iterator[Event]:
        """A piece of the open call's arguments."""
        call = self._open
        if call is None or call["type"] != "function_call":
            raise ValueError("arguments came without a call")
        if delta:
            call["arguments"] += delta
            yield self._event("response.function_call_arguments.delta", delta=delta)

    def whole(self, item: Item) -> Iterator[Event]:
        """An item that is already finished and stays exactly as it is, apart from an id it lacks."""
        yield from self._finish("completed")
        kept = {**_copy(dict(item)), "id": item.get("id") or self._new_id(str(item.get("type", "item")))}
        parts = kept["content"] if isinstance(kept.get("content"), list) else []
        self._output.append(kept)
        self._open = {**kept, "content": []} if parts else kept
        yield self._event("response.output_item.added", with_id=False, item=_copy(self._open))
        for part in parts:
            yield from self._whole_part(part)
        yield self._event("response.output_item.done", with_id=False, item=_copy(kept))
        self._open = None

    def completed(self, used: Json) -> Iterator[Event]:
        yield from self._end("completed", used)

    def incomplete(self, reason: str, used: Json) -> Iterator[Event]:
        """`reason` as the API names it: "max_output_tokens" or "content_filter"."""
        yield from self._end("incomplete", used, incomplete_details={"reason": reason})

    def failed(self, code: str, message: str, used: Json = None) -> Iterator[Event]:
        yield from self._end("failed", used, error={"code": code, "message": message})

    # -- the order of things ------------------------------------------------------------------

    def _piece(self, item: str, part: str, event: str, delta: str, **more: Json) -> Iterator[Event]:
        if not delta:
            return
        if self._open is None or self._open["type"] != item:
            yield from self._begin(NEW_ITEM[item](self._new_id))
        if self._part is None or self._part["type"] != part:
            yield from self._begin_part(part)
        assert self._part is not None
        self._part[TEXT_IN[part]] += delta
        yield self._part_event(event, delta=delta, **more)

    def _begin(self, item: dict[str, Json]) -> Iterator[Event]:
        yield from self._finish("completed")
        self._open = {**item, "status": "in_progress"}
        self._output.append(self._open)
        yield self._event("response.output_item.added", with_id=False, item=_copy(self._open))

    def _begin_part(self, part: str) -> Iterator[Event]:
        yield from self._finish_part()
        assert self._open is not None
        self._part = dict(NEW_PART[part])
        self._open["content"].append(self._part)
        yield self._part_event("response.content_part.added", part=_copy(self._part))

    def _whole_part(self, part: dict[str, Json]) -> Iterator[Event]:
        assert self._open is not None
        field = TEXT_IN.get(str(part.get("type")))
        self._open["content"].append(part)
        yield self._part_event("response.content_part.added", part={**_copy(part), field: ""} if field else _copy(part))
        if field is None:
            yield self._part_event("response.content_part.done", part=_copy(part))
            return
        more: dict[str, Json] = {"logprobs": []} if part["type"] == "output_text" else {}
        yield self._part_event(f"response.{part['type']}.delta", delta=part[field], **more)
        self._part = part
        yield from self._finish_part()

    def _finish_part(self) -> Iterator[Event]:
        part = self._part
        if part is None:
            return
        field = TEXT_IN[part["type"]]
        more: dict[str, Json] = {"logprobs": []} if part["type"] == "output_text" else {}
        yield self._part_event(f"response.{part['type']}.done", **{field: part[field]}, **more)
        yield self._part_event("response.content_part.done", part=_copy(part))
        self._part = None

    def _finish(self, status: str) -> Iterator[Event]:
        yield from self._finish_part()
        item = self._open
        if item is None:
            return
        if item["type"] == "function_call" and status == "completed":
            yield self._event("response.function_call_arguments.done", name=item["name"], arguments=item["arguments"])
        item["status"] = status
        yield self._event("response.output_item.done", with_id=False, item=_copy(item))
        self._open = None

    def _end(self, status: str, used: Json, **why: Json) -> Iterator[Event]:
        yield from self._finish("completed" if status == "completed" else "incomplete")
        ended = {"status": status, "model": self.model, "output": _copy(self._output), "usage": used, **why}
        yield {"type": f"response.{status}", "response": ended}

    def _event(self, name: str, /, *, with_id: bool = True, **fields: Json) -> Event:
        assert self._open is not None
        named = {"item_id": self._open["id"]} if with_id else {}
        return {"type": name, "output_index": len(self._output) - 1, **named, **fields}

    def _part_event(self, name: str, /, **fields: Json) -> Event:
        assert self._open is not None
        return self._event(name, content_index=len(self._open["content"]) - 1, **fields)


NEW_ITEM: dict[str, Callable[[NewId], dict[str, Json]]] = {
    "message": lambda new: {"type": "message", "id": new("msg"), "role": "assistant", "content": []},
    "reasoning": lambda new: {"type": "reasoning", "id": new("rs"), "summary": [], "content": []},
}

NEW_PART: dict[str, dict[str, Json]] = {
    "output_text": {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    "refusal": {"type": "refusal", "refusal": ""},
    "reasoning_text": {"type": "reasoning_text", "text": ""},
}

TEXT_IN = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text"}


def _copy(value: Json) -> Json:
    """A snapshot of JSON that is still being written."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copy(inner) for inner in value]
    return value

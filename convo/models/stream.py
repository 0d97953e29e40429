"""Write one response as Responses API events, in the API's order.

An adapter reports each piece of output (text, reasoning, a function call); `ResponseEventWriter` opens and closes items
and parts and builds the final output from the same data, so that streamed and final output are equal.

    item added -> (part added -> deltas -> text done -> part done)* -> item done -> ... -> terminal
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from io import StringIO
from types import MappingProxyType
from typing import Literal, NamedTuple

from convo.history.items import Item, Json, StreamEvent
from convo.history.records import NOTICES
from convo.models.tool_mapping import ClientTool, CustomInputDecoder, build_call_item
from convo.runtime import NewId
from convo.usage.cost import MAX_TOKEN_COUNT

_SURROGATE, _HIGH_SURROGATE = re.compile("[\ud800-\udfff]"), re.compile("[\ud800-\udbff]")
"""Patterns of any UTF-16 surrogate and of a high surrogate, the first of a pair."""


def is_token_count(value: Json) -> bool:
    """Whether a value in a server's usage is a possible number of tokens."""
    return type(value) is int and 0 <= value <= MAX_TOKEN_COUNT


def read_token_count(counts: Mapping[str, Json], *names: str) -> int:
    """Return the first count above 0 of the fields with these names, "details.field"; 0 for any other value."""
    for name in names:
        value: Json = counts
        for step in name.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if type(value) in (int, float) and 0 < value <= MAX_TOKEN_COUNT:
            return int(value)
    return 0


def make_usage(
    input_tokens: int, output_tokens: int, *, cached: int = 0, written: int = 0, written_1h: int = 0, reasoning: int = 0
) -> Json:
    """Build a usage object with both details, in tokens. An impossible count becomes 0.

    written_1h:  the part of `written` that is kept for an hour; its field is convo's own
    """
    input_tokens, output_tokens, cached, written, written_1h, reasoning = (
        count if is_token_count(count) else 0
        for count in (input_tokens, output_tokens, cached, written, written_1h, reasoning)
    )
    hour_fields = {"cache_write_1h_tokens": min(written_1h, written)} if written_1h else {}
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written, **hour_fields},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


def is_json(text: str) -> bool:
    """Whether `text` is a whole JSON value."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class Ending(NamedTuple):
    """How an answer ended.

    reason:      of an incomplete answer: "max_output_tokens" or "content_filter"
    word:        the finish reason or stop reason as the server sent it
    is_unknown:  convo does not know that reason, or there was none
    """

    status: Literal["completed", "incomplete", "failed"]
    reason: str | None = None
    word: str = ""
    is_unknown: bool = False


REPETITION = "repetition"
"""The finish reason of an answer that was stopped because it repeated itself: of vLLM, and of the local models."""

_COMPLETED, _FAILED = Ending("completed"), Ending("failed")
_AT_LIMIT, _FILTERED = Ending("incomplete", "max_output_tokens"), Ending("incomplete", "content_filter")

_ENDINGS: Mapping[str, Ending] = {
    **dict.fromkeys(("stop", "tool_calls", "function_call", "tool_use", "end_turn", "pause_turn"), _COMPLETED),
    **dict.fromkeys(("eos", "eos_token", "stop_sequence", "end", "complete", "refusal"), _COMPLETED),
    **dict.fromkeys(("length", "max_tokens", "model_length", "model_context_window_exceeded"), _AT_LIMIT),
    REPETITION: _AT_LIMIT,
    **dict.fromkeys(("content_filter", "safety", "sensitive", "recitation"), _FILTERED),
    **dict.fromkeys(("error", "network_error", "insufficient_system_resource", "abort"), _FAILED),
    "malformed_function_call": _FAILED,
}
"""Finish reasons and stop reasons of all servers, in lower case."""


def read_ending(word: Json, *, is_whole: bool, has_whole_calls: bool) -> Ending | None:
    """Parse a finish reason or a stop reason; null and "" are none.

    is_whole:         the answer has another end: [DONE], a last usage, or it is a whole body
    has_whole_calls:  the arguments of every call are complete

    Returns None for an answer that was cut: it has neither a reason nor another end.
    """
    name = word if isinstance(word, str) else str(word or "")
    if not name and not is_whole:
        return None
    ending = _ENDINGS.get(name.lower(), None)
    if ending is None:
        unknown = _COMPLETED if has_whole_calls else _AT_LIMIT
        return unknown._replace(word=name, is_unknown=True)
    return ending._replace(word=name)


class PartList(NamedTuple):
    """The list of an item that contains a part, and the names in the part's events."""

    list_name: str
    index_field: str
    event_name: str


CONTENT_PARTS = PartList("content", "content_index", "content_part")
SUMMARY_PARTS = PartList("summary", "summary_index", "reasoning_summary_part")


class ResponseEventWriter:
    """Writes one response; each method yields the events that its call completes.

    An event shares the items and parts that are finished with the output; an open item or part is copied.

    reported:  fields of the terminal event that only the provider can know (`convo.history.records`)
    """

    def __init__(
        self,
        new_id: NewId,
        model: str | None = None,
        *,
        summarized: bool = False,
        tools: Mapping[str, ClientTool] = MappingProxyType({}),
    ) -> None:
        """Start a response without items.

        model:       its name in the terminal event; the adapter may replace it later
        summarized:  write reasoning as a summary, because the request asked for one
        tools:       the tools by the name of their function (see `convo.models.tool_mapping`)
        """
        self.model = model
        self.reported: dict[str, Json] = {}
        self._reasoning_part = "summary_text" if summarized else "reasoning_text"
        self._new_id = new_id
        self._output: list[dict[str, Json]] = []
        self._discarded: list[dict[str, Json]] = []
        self._open_item: dict[str, Json] | None = None
        self._open_part: dict[str, Json] | None = None
        self._part_list = CONTENT_PARTS
        self._delta_buffer, self._pending_surrogate = StringIO(newline=""), ""
        self._tools = tools
        self._input_decoder: CustomInputDecoder | None = None
        self._buffered_call: tuple[ClientTool, str, str] | None = None
        self._delta_kind, self._delta_event = "", dict[str, Json]()

    @property
    def output(self) -> list[dict[str, Json]]:
        """The items so far, including the open item."""
        self._store_buffer()
        return self._output

    def extend(self, kind: str, delta: str) -> StreamEvent | None:
        """Write a delta that continues the open part or call; None if it needs more than its own event.

        kind:  "text", "refusal", "reasoning" or "call"
        """
        # The path of nearly every delta: one event, without a generator.
        if kind != self._delta_kind or not delta or self._pending_surrogate or _SURROGATE.search(delta):
            return None
        self._delta_buffer.write(delta)
        if kind == "text":
            return {**self._delta_event, "delta": delta, "logprobs": []}
        return {**self._delta_event, "delta": delta}

    def write_text(self, delta: str, logprobs: Sequence[Json] = ()) -> Iterator[StreamEvent]:
        """Write output text, with the log probabilities of its tokens if they were requested."""
        yield from self._write_delta("message", "output_text", delta, logprobs=list(logprobs))

    def write_refusal(self, delta: str) -> Iterator[StreamEvent]:
        yield from self._write_delta("message", "refusal", delta)

    def write_reasoning(self, delta: str) -> Iterator[StreamEvent]:
        """Write visible reasoning text."""
        yield from self._write_delta("reasoning", self._reasoning_part, delta)

    def write_encrypted_content(self, content: str) -> Iterator[StreamEvent]:
        """End the reasoning item, visible or not, with its encrypted content."""
        if self._open_item is None or self._open_item["type"] != "reasoning":
            yield from self._start_item(_ITEM_TEMPLATES["reasoning"](self._new_id))
        assert self._open_item is not None
        self._open_item["encrypted_content"] = content
        yield from self._finish_item("completed")

    def start_custom_call(self, call_id: str, name: str) -> Iterator[StreamEvent]:
        """Start the call of a custom tool of the model; its input follows, as `write_arguments` gets it."""
        tool = self._tools.get(name) or ClientTool("custom", name)
        namespace = {} if tool.namespace is None else {"namespace": tool.namespace}
        call = {"type": "custom_tool_call", "id": self._new_id("ctc"), "call_id": call_id}
        yield from self._start_item({**call, "name": tool.name, **namespace, "input": ""})

    def start_function_call(self, call_id: str, name: str) -> Iterator[StreamEvent]:
        """Start the call of a function; its arguments follow. The item is the one of the function's tool.

        A shell, apply_patch or tool_search call is written as a whole, as its arguments must be complete.
        """
        tool = self._tools.get(name) or ClientTool("function", name)
        namespace = {} if tool.namespace is None else {"namespace": tool.namespace}
        match tool.kind:
            case "function":
                call = {"type": "function_call", "id": self._new_id("fc"), "call_id": call_id, "name": tool.name}
                yield from self._start_item({**call, **namespace, "arguments": ""})
                self._delta_kind, self._delta_event = "call", self._make_event("response.function_call_arguments.delta")
            case "custom":
                call = {"type": "custom_tool_call", "id": self._new_id("ctc"), "call_id": call_id, "name": tool.name}
                yield from self._start_item({**call, **namespace, "input": ""})
                self._input_decoder = CustomInputDecoder()
            case _:
                yield from self._finish_item("completed")
                self._buffered_call = tool, name, call_id

    def report(self, notice: str) -> None:
        """Report a part of the server's answer that was not understood, in one sentence for the user."""
        notices = self.reported.setdefault(NOTICES, [])
        if notice not in notices:
            notices.append(notice)

    def restart(self) -> None:
        """Discard the items so far. New items of the same types get their output indexes and ids."""
        self._discarded, self._output = self._output, []
        self._open_item = self._open_part = self._buffered_call = self._input_decoder = None
        self._delta_kind = ""
        self._delta_buffer, self._pending_surrogate = StringIO(newline=""), ""

    def finish_incomplete_item(self) -> Iterator[StreamEvent]:
        """End the open item, which the server did not complete."""
        yield from self._finish_item("incomplete")

    def write_arguments(self, delta: str) -> Iterator[StreamEvent]:
        """Write a part of the open call's arguments. Raises ValueError without an open call."""
        call = self._open_item
        if self._buffered_call is not None:
            self._delta_buffer.write(self._join_surrogates(delta))
        elif call is None or call["type"] not in _CALL_FIELDS:
            raise ValueError("arguments came without a call")
        elif self._input_decoder is None:
            yield from self._write_call_delta(delta)
        else:
            yield from self._write_call_delta(self._input_decoder.decode(delta))

    def write_item(self, item: Item) -> Iterator[StreamEvent]:
        """Write a finished item unchanged, except for a missing id."""
        yield from self._finish_item("completed")
        # The caller's item stays as it is: content parts are appended below.
        output_item = {**deepcopy(dict(item)), "id": item.get("id") or self._new_id(str(item.get("type", "item")))}
        parts = output_item["content"] if isinstance(output_item.get("content"), list) else []
        self._output.append(output_item)
        self._open_item = {**output_item, "content": []} if parts else output_item
        yield self._make_event("response.output_item.added", with_id=False, item=deepcopy(self._open_item))
        for part in parts:
            yield from self._write_part(part)
        yield self._make_event("response.output_item.done", with_id=False, item=output_item)
        self._open_item = None

    def write_completed(self, usage: Json) -> Iterator[StreamEvent]:
        yield from self._terminate("completed", usage)

    def write_incomplete(self, reason: str, usage: Json) -> Iterator[StreamEvent]:
        """End the response early; `reason` is "max_output_tokens" or "content_filter"."""
        yield from self._terminate("incomplete", usage, incomplete_details={"reason": reason})

    def write_failed(self, code: str, message: str, usage: Json = None) -> Iterator[StreamEvent]:
        yield from self._terminate("failed", usage, error={"code": code, "message": message})

    # -- order of events ----------------------------------------------------------------------

    def _write_delta(self, item: str, part: str, delta: str, **fields: Json) -> Iterator[StreamEvent]:
        if not delta:
            return
        if self._open_item is None or self._open_item["type"] != item:
            yield from self._start_item(_ITEM_TEMPLATES[item](self._new_id))
        if self._open_part is None or self._open_part["type"] != part:
            yield from self._start_part(part)
        assert self._open_part is not None
        if fields.get("logprobs"):
            self._open_part["logprobs"] += fields["logprobs"]
        delta = self._join_surrogates(delta)
        if not delta:
            return
        self._delta_buffer.write(delta)
        yield {**self._delta_event, "delta": delta, **fields}

    def _write_call_delta(self, delta: str) -> Iterator[StreamEvent]:
        assert self._open_item is not None
        if delta := self._join_surrogates(delta):
            self._delta_buffer.write(delta)
            yield self._make_event(f"response.{_CALL_EVENT_NAMES[self._open_item['type']]}.delta", delta=delta)

    def _start_item(self, item: dict[str, Json]) -> Iterator[StreamEvent]:
        yield from self._finish_item("completed")
        place = len(self._output)
        # A client has seen the discarded items: one with the same id replaces its item instead of adding another.
        if place < len(self._discarded) and self._discarded[place]["type"] == item["type"]:
            item["id"] = self._discarded[place]["id"]
        self._open_item = {**item, "status": "in_progress"}
        self._output.append(self._open_item)
        yield self._make_event("response.output_item.added", with_id=False, item=deepcopy(self._open_item))

    def _start_part(self, part: str) -> Iterator[StreamEvent]:
        yield from self._finish_part()
        assert self._open_item is not None
        self._open_part = deepcopy(_PART_TEMPLATES[part])
        self._part_list = SUMMARY_PARTS if part == "summary_text" else CONTENT_PARTS
        self._open_item[self._part_list.list_name].append(self._open_part)
        yield self._make_part_event(f"response.{self._part_list.event_name}.added", part=deepcopy(self._open_part))
        self._delta_kind = _DELTA_KINDS[part]
        self._delta_event = self._make_part_event(f"response.{_PART_EVENT_NAMES.get(part, part)}.delta")

    def _write_part(self, part: dict[str, Json]) -> Iterator[StreamEvent]:
        assert self._open_item is not None
        field = _TEXT_FIELDS.get(str(part.get("type")))
        self._open_item["content"].append(part)
        yield self._make_part_event("response.content_part.added", part={**part, field: ""} if field else part)
        if field is None:
            yield self._make_part_event("response.content_part.done", part=part)
            return
        fields: dict[str, Json] = {"logprobs": []} if part["type"] == "output_text" else {}
        yield self._make_part_event(f"response.{part['type']}.delta", delta=part[field], **fields)
        self._open_part = part
        yield from self._finish_part()

    def _join_surrogates(self, delta: str) -> str:
        """Join surrogate pairs that are split between deltas; a high surrogate at the end is kept for the next delta.

        Servers that count in UTF-16 split such a character and escape each half separately.
        """
        if not (self._pending_surrogate or _SURROGATE.search(delta)):
            return delta
        # UTF-16 joins the two halves of a pair.
        text = (self._pending_surrogate + delta).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        self._pending_surrogate = text[-1] if _HIGH_SURROGATE.fullmatch(text[-1:]) else ""
        return text.removesuffix(self._pending_surrogate) if self._pending_surrogate else text

    def _store_buffer(self) -> None:
        """Copy the buffered text into the open part or call: appending each delta to a string copies it each time."""
        text = self._delta_buffer.getvalue() + self._pending_surrogate
        if text and self._open_part is not None:
            self._open_part[_TEXT_FIELDS[self._open_part["type"]]] = text
        elif text and self._open_item is not None:
            self._open_item[_CALL_FIELDS[self._open_item["type"]]] = text

    def _flush_buffer(self) -> None:
        self._store_buffer()
        self._delta_buffer, self._pending_surrogate = StringIO(newline=""), ""

    def _finish_part(self) -> Iterator[StreamEvent]:
        part, self._delta_kind = self._open_part, ""
        if part is None:
            return
        self._flush_buffer()
        field = _TEXT_FIELDS[part["type"]]
        fields: dict[str, Json] = {"logprobs": part.get("logprobs") or []} if part["type"] == "output_text" else {}
        name = _PART_EVENT_NAMES.get(part["type"], part["type"])
        yield self._make_part_event(f"response.{name}.done", **{field: part[field]}, **fields)
        yield self._make_part_event(f"response.{self._part_list.event_name}.done", part=part)
        self._open_part, self._part_list = None, CONTENT_PARTS

    def _finish_item(self, status: str) -> Iterator[StreamEvent]:
        yield from self._finish_part()
        if self._buffered_call is not None:
            yield from self._finish_buffered_call(status)
        item = self._open_item
        if item is None:
            return
        if self._input_decoder is not None:
            yield from self._write_call_delta(self._input_decoder.finish())
            self._input_decoder = None
        self._flush_buffer()
        if item["type"] == "function_call" and status == "completed":
            yield self._make_event(
                "response.function_call_arguments.done", name=item["name"], arguments=item["arguments"]
            )
        if item["type"] == "custom_tool_call" and status == "completed":
            yield self._make_event("response.custom_tool_call_input.done", input=item["input"])
        item["status"] = status
        yield self._make_event("response.output_item.done", with_id=False, item=item)
        self._open_item = None

    def _finish_buffered_call(self, status: str) -> Iterator[StreamEvent]:
        """Write the buffered call as an item. A partial one is left out: it must not be run."""
        assert self._buffered_call is not None
        tool, function_name, call_id = self._buffered_call
        arguments = self._delta_buffer.getvalue() + self._pending_surrogate
        self._buffered_call, self._delta_buffer, self._pending_surrogate = None, StringIO(newline=""), ""
        if status != "completed":
            return
        call = build_call_item(tool, function_name, call_id, arguments)
        call["id"] = self._new_id(_CALL_ID_PREFIXES[call["type"]])
        if call["type"] != "function_call":
            yield from self._start_item(call)
            return
        yield from self._start_item({**call, "arguments": ""})
        yield from self._write_call_delta(arguments)

    def _terminate(self, status: str, usage: Json, **details: Json) -> Iterator[StreamEvent]:
        yield from self._finish_item("completed" if status == "completed" else "incomplete")
        fields = {**self.reported, **details}
        response = {"status": status, "model": self.model, "output": self._output, "usage": usage, **fields}
        yield {"type": f"response.{status}", "response": response}

    def _make_event(self, name: str, /, *, with_id: bool = True, **fields: Json) -> dict[str, Json]:
        assert self._open_item is not None
        id_fields = {"item_id": self._open_item["id"]} if with_id else {}
        return {"type": name, "output_index": len(self._output) - 1, **id_fields, **fields}

    def _make_part_event(self, name: str, /, **fields: Json) -> dict[str, Json]:
        assert self._open_item is not None
        index: dict[str, Json] = {self._part_list.index_field: len(self._open_item[self._part_list.list_name]) - 1}
        return self._make_event(name, **index, **fields)


_CALL_FIELDS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The streamed field of calls."""

_CALL_EVENT_NAMES = {"function_call": "function_call_arguments", "custom_tool_call": "custom_tool_call_input"}

_CALL_ID_PREFIXES = {
    "function_call": "fc",
    "local_shell_call": "lsh",
    "shell_call": "sh",
    "apply_patch_call": "apc",
    "tool_search_call": "tsc",
}

_ITEM_TEMPLATES: dict[str, Callable[[NewId], dict[str, Json]]] = {
    "message": lambda new: {"type": "message", "id": new("msg"), "role": "assistant", "content": []},
    "reasoning": lambda new: {"type": "reasoning", "id": new("rs"), "summary": [], "content": []},
}

_PART_TEMPLATES: dict[str, dict[str, Json]] = {
    "output_text": {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    "refusal": {"type": "refusal", "refusal": ""},
    "reasoning_text": {"type": "reasoning_text", "text": ""},
    "summary_text": {"type": "summary_text", "text": ""},
}

_TEXT_FIELDS = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}

_DELTA_KINDS = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "reasoning",
}

_PART_EVENT_NAMES = {"summary_text": "reasoning_summary_text"}
"""Part types whose events are named differently."""

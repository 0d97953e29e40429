"""Read an answer of Anthropic's Messages API, its events or its whole body, in any form that a server was seen to send.

An invalid field or event is skipped, and the rest is kept. Some proxies begin a second message before the first one
ended: only the second counts.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from io import StringIO

from convo.history.items import Json
from convo.models.answer import Call, Piece
from convo.models.stream import Ending, is_token_count, make_usage, read_ending, read_token_count


class Block:
    """A block of the content.

    call:        its call, if it is one of the client's tools
    is_stopped:  the server said that the block is complete
    """

    def __init__(self, fields: Mapping[str, Json]) -> None:
        self.type = str(fields.get("type"))
        self.call = Call(_str(fields.get("id")), _str(fields.get("name"))) if self.type == "tool_use" else None
        self.is_stopped = False
        self._fields = dict(fields)
        self._texts: defaultdict[str, StringIO] = defaultdict(lambda: StringIO(newline=""))

    def add(self, delta: Mapping[str, Json]) -> None:
        """Add the fields of a delta: texts are appended, a citation is added to the list."""
        for name, value in delta.items():
            if name == "citation":
                if not isinstance(self._fields.get("citations"), list):
                    self._fields["citations"] = []
                self._fields["citations"].append(value)
            elif name != "type" and isinstance(value, str):
                self._texts[name].write(value)

    def to_fields(self) -> dict[str, Json]:
        """Return the block as a whole body has it; arguments that are no JSON stay text."""
        fields = {name: _str(self._fields.get(name)) + text.getvalue() for name, text in self._texts.items()}
        arguments = fields.pop("partial_json", "")
        if arguments:
            try:
                fields["input"] = json.loads(arguments)
            except (ValueError, RecursionError):
                fields["input"] = arguments
        return {**self._fields, **fields}


class MessagesReader:
    """Reads one answer.

    message:  the fields of the message, without its content and usage; those of later events replace the earlier ones
    blocks:   the content so far
    counts:   the token counts as the server named them
    error:    the event or body with an error; the answer ended with it
    """

    def __init__(self) -> None:
        self.message: dict[str, Json] = {}
        self.blocks: list[Block] = []
        self.counts: dict[str, Json] = {}
        self.error: Json = None
        self._block_by_index: dict[Json, Block] = {}
        self._is_whole = False

    @property
    def usage(self) -> Json:
        return read_messages_usage(self.counts)

    def read(self, event: Json) -> Iterator[Piece]:
        """Read one event, or a whole body. The source of a piece is its block of thinking, or its call."""
        if not isinstance(event, dict) or (self._is_whole and event.get("type") != "message_delta"):
            return
        index = event["index"] if type(event.get("index")) is int else None
        is_body = isinstance(event.get("content"), list)
        match event.get("type") or (is_body and "message"):
            case "message_start":
                yield from self._start_message(event.get("message"))
            case "content_block_start":
                yield from self._start_block(index, event.get("content_block"))
            case "content_block_delta" if isinstance(event.get("delta"), Mapping):
                yield from self._add_delta(index, event["delta"])
            case "content_block_stop":
                block = self._block_by_index.pop(index, None)
                if block is not None:
                    yield from self._stop_block(block)
            case "message_delta":
                self._add_fields(event)
                self._add_fields(event.get("delta"))
            case "message_stop":
                self._is_whole = True
            case "message":
                yield from self._start_message(event)
                content = event.get("content")
                for number, block in enumerate(content if isinstance(content, list) else ()):
                    yield from self._start_block(number, block)
                    if number in self._block_by_index:
                        yield from self._stop_block(self._block_by_index.pop(number))
                self._is_whole = True
            case _ if event.get("error") or event.get("type") == "error" or event.get("detail"):
                self.error = event

    def ending(self) -> Ending | None:
        """Return how the answer ended; None for a stream that was cut."""
        calls = [block.call for block in self.blocks if block.call is not None]
        if calls and self.message.get("stop_reason") == "refusal":  # none of them may run
            return Ending("incomplete", "content_filter", "refusal")
        has_whole_calls = all(call.is_closed() or not call.arguments for call in calls)
        return read_ending(self.message.get("stop_reason"), is_whole=self._is_whole, has_whole_calls=has_whole_calls)

    def _start_message(self, message: Json) -> Iterator[Piece]:
        fields = message if isinstance(message, dict) else {}
        if self.blocks and fields.get("id") != self.message.get("id"):
            self.message, self.blocks, self.counts = {}, [], {}
            self._block_by_index.clear()
            yield Piece("restart", "")
        self._add_fields(fields)

    def _add_fields(self, fields: Json) -> None:
        for name, value in fields.items() if isinstance(fields, dict) else ():
            if name == "usage" and isinstance(value, dict):
                self.counts |= {count: number for count, number in value.items() if number is not None}
            elif name not in _FRAMING and value is not None:
                self.message[name] = value

    def _start_block(self, index: Json, fields: Json) -> Iterator[Piece]:
        if not isinstance(fields, dict):
            return
        block = Block(fields)
        self.blocks.append(block)
        self._block_by_index[index] = block
        if block.type in ("thinking", "redacted_thinking"):
            yield Piece("reasoning", _str(fields.get("thinking")), block)
        elif block.type == "text" and (text := _str(fields.get("text"))):
            yield Piece("text", text)
        elif block.call is not None:
            yield Piece("call", "", block.call)

    def _add_delta(self, index: Json, delta: Mapping[str, Json]) -> Iterator[Piece]:
        block = self._block_by_index.get(index)
        if block is None:  # a delta without a start
            if "partial_json" in delta:
                return  # a part of a call without its name
            yield from self._start_block(index, {"type": "thinking" if "thinking" in delta else "text"})
            block = self._block_by_index[index]
        block.add(delta)
        if block.call is not None and (arguments := _str(delta.get("partial_json"))):
            block.call.add(arguments)
            yield Piece("call", arguments, block.call)
        elif block.type == "thinking" and (thinking := _str(delta.get("thinking"))):
            yield Piece("reasoning", thinking, block)
        elif block.type == "text" and (text := _str(delta.get("text"))):
            yield Piece("text", text)

    def _stop_block(self, block: Block) -> Iterator[Piece]:
        block.is_stopped = True
        if block.call is None:
            return
        if not block.call.arguments:
            arguments = json.dumps(block.to_fields().get("input") or {})
            block.call.add(arguments)
            yield Piece("call", arguments, block.call)
        block.call.is_stopped = True


_FRAMING = frozenset({"type", "delta", "content", "usage"})


def _str(value: Json) -> str:
    return value if isinstance(value, str) else ""


def read_messages_usage(counts: Mapping[str, Json]) -> Json:
    """Read Claude's token counts as usage of the Responses API; None without any.

    Claude counts cache reads and cache writes apart from `input_tokens`.
    """
    if not counts:
        return None
    cached, written = (read_token_count(counts, f"cache_{name}_input_tokens") for name in ("read", "creation"))
    return make_usage(
        read_token_count(counts, "input_tokens") + cached + written,
        read_token_count(counts, "output_tokens"),
        cached=cached,
        written=written,
        written_1h=read_token_count(counts, "cache_creation.ephemeral_1h_input_tokens"),
        reasoning=read_token_count(counts, "output_tokens_details.thinking_tokens"),
    )


_CACHE_MISS_REASONS = {
    "model_changed": "model_changed",
    "system_changed": "input_changed",
    "tools_changed": "tools_changed",
    "messages_changed": "input_changed",
}
"""The Responses API's reason for each reason of Claude's cache diagnostics; instructions are a part of its input."""


def translate_diagnostics(diagnostics: Json) -> Json:
    """Translate the comparison with another message: null is no difference, a null reason that it is not finished."""
    if not isinstance(diagnostics, Mapping):
        return {"type": "cache_hit"}
    miss = diagnostics.get("cache_miss_reason")
    fields: Mapping[str, Json] = miss if isinstance(miss, Mapping) else {}
    kind, tokens = str(fields.get("type")), fields.get("cache_missed_input_tokens")
    if kind == "previous_message_not_found":
        return {"type": "comparison_response_not_found"}
    if kind not in _CACHE_MISS_REASONS:
        return {"type": "unavailable"}
    reason = _CACHE_MISS_REASONS[kind]
    return {
        "type": "cache_miss",
        "reason": reason,
        "cache_missed_tokens": tokens if is_token_count(tokens) else 0,
        "comparison_reusable_tokens": None,
        **({} if kind == reason else {"provider_reason": kind}),
    }


def encode_thinking_block(block: Mapping[str, Json]) -> str:
    """Encode a thinking block as the encrypted content of a reasoning item."""
    return base64.b64encode(json.dumps(block).encode()).decode()

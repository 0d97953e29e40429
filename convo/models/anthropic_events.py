"""The events of the Messages API, read as one answer.

    message_start                        who answers, and what the input came to
    content_block_start, _delta, _stop   text, a call, or a thought that ends with its signature
    message_delta                        why it stopped, and what the output came to
    message_stop                         the end; a stream without it was cut

A thought is kept whole, as the block it was, sealed in the item that shows it.
"""

import json
from collections.abc import Iterator, Mapping
from io import StringIO

from convo.errors import StreamBroken
from convo.items import Event, Json
from convo.models.anthropic_messages import thought
from convo.models.stream import Answer, usage

DONE = frozenset({"end_turn", "stop_sequence", "tool_use", "pause_turn"})
CUT_SHORT = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Reasons to stop, and those that the Responses API calls max_output_tokens."""

NOT_SAID = "The model will not answer this."


class Blocks:
    """One answer while its blocks come in."""

    def __init__(self, answer: Answer, by: str) -> None:
        """`by` is whose seals these are, see `convo.models.sealed`."""
        self._answer, self._by = answer, by
        self._block: dict[str, Json] = {}
        self._pieces: dict[str, StringIO] = {}
        self._wrote = False
        self._used: dict[str, int] = {}
        self._reason, self._explanation = "", NOT_SAID
        self._ended = False

    def read(self, event: Json) -> Iterator[Event]:
        """The events that `event` brings.

        raises:  StreamBroken  it is not of a form that the Messages API has
        """
        try:
            yield from self._read(event)
        except ODD as wrong:
            raise StreamBroken("the answer holds a piece that the Messages API does not have") from wrong

    def end(self) -> Iterator[Event]:
        """The terminal event.

        raises:  StreamBroken  it did not come
        """
        if not self._ended or not self._reason:
            raise StreamBroken("the answer stopped before its end")
        reason, used = self._reason, used_of(self._used)
        if reason == "refusal":
            yield from self._answer.refusal(self._explanation)
        if reason in DONE or reason == "refusal":
            yield from self._answer.completed(used)
        elif reason in CUT_SHORT:
            yield from self._answer.incomplete("max_output_tokens", used)
        else:
            yield from self._answer.failed("server_error", f"the provider ended the answer with {reason!r}", used)

    def _read(self, event: Json) -> Iterator[Event]:
        match event["type"]:
            case "message_start":
                self._answer.model = _words(event["message"].get("model")) or self._answer.model
                self._used |= figures(event["message"].get("usage"))
            case "content_block_start":
                yield from self._start(event["content_block"])
            case "content_block_delta":
                yield from self._delta(event["delta"])
            case "content_block_stop":
                yield from self._stop()
            case "message_delta":
                self._reason = _words(event["delta"].get("stop_reason"))
                self._explanation = _words((event["delta"].get("stop_details") or {}).get("explanation")) or NOT_SAID
                self._used |= figures(event.get("usage"))
            case "message_stop":
                self._ended = True

    def _start(self, block: Mapping[str, Json]) -> Iterator[Event]:
        self._block, self._pieces, self._wrote = dict(block), {}, False
        match block["type"]:
            case "text":
                yield from self._answer.text(_words(block.get("text")))
            case "thinking":
                yield from self._answer.thinking(_words(block.get("thinking")))
            case "tool_use":
                yield from self._answer.call(_words(block["id"]), _words(block["name"]))
            case "redacted_thinking":
                yield from self._answer.seal(self._by + thought(dict(block)))
            case other:
                raise StreamBroken(f"the answer holds {other}, which was not asked for")

    def _delta(self, delta: Mapping[str, Json]) -> Iterator[Event]:
        match delta["type"]:
            case "text_delta":
                yield from self._answer.text(_words(delta["text"]))
            case "input_json_delta":
                self._wrote = self._wrote or bool(delta["partial_json"])
                yield from self._answer.arguments(delta["partial_json"])
            case "thinking_delta":
                self._add("thinking", delta["thinking"])
                yield from self._answer.thinking(delta["thinking"])
            case "signature_delta":
                self._add("signature", delta["signature"])

    def _add(self, name: str, piece: str) -> None:
        """Add a piece of a thought: in a buffer, because adding to a string copies it each time."""
        if name not in self._pieces:
            self._pieces[name] = StringIO(newline="")
            self._pieces[name].write(self._block.get(name, ""))
        self._pieces[name].write(piece)

    def _stop(self) -> Iterator[Event]:
        block, self._block = self._block, {}
        block |= {name: pieces.getvalue() for name, pieces in self._pieces.items()}
        if block["type"] == "tool_use" and not self._wrote:
            yield from self._answer.arguments(json.dumps(block.get("input") or {}))
        if block["type"] == "thinking":
            yield from self._answer.seal(self._by + thought(block))


def used_of(raw: Mapping[str, int]) -> Json:
    """A usage object of `figures`: Claude counts what it read from its cache and wrote into it apart from the rest."""
    cached, written = (raw.get(f"cache_{name}_input_tokens", 0) for name in ("read", "creation"))
    reasoning = raw.get("thinking_tokens", 0)
    total = raw.get("input_tokens", 0) + cached + written
    return usage(total, raw.get("output_tokens", 0), cached=cached, written=written, reasoning=reasoning)


def figures(told: Mapping[str, Json] | None) -> dict[str, int]:
    """The figures that were told, by name; those of the end count over those of the beginning."""
    every = {**(told or {}), **((told or {}).get("output_tokens_details") or {})}
    return {name: value for name, value in every.items() if isinstance(value, int)}


# -- what a server may leave out, and what it may not put in its place ----------------------------

ODD = (AttributeError, KeyError, TypeError, ValueError)


def _words(value: Json) -> str:
    if not isinstance(value, str | None):
        raise TypeError(f"{type(value).__name__} where words belong")
    return value or ""

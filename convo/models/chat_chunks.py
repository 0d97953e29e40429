"""The chunks of chat completions, read as one answer.

Chunks have no beginning and no end of anything: text flows until something else comes, a call
goes on until another index or id appears, and the answer is whole when a finish reason has come.
A stream that stops before that was cut.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from convo.errors import StreamBroken
from convo.ids import NewId
from convo.items import Event, Json
from convo.models.chat_messages import sealed_thoughts
from convo.models.stream import Answer, usage

T = TypeVar("T")

DONE = frozenset({"stop", "tool_calls", "function_call", "eos", "end_turn"})
CUT_SHORT = {
    "length": "max_output_tokens",
    "model_length": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Finish reasons, and the Responses API's word for an answer that stops early."""

LOOK = "see what the provider's base_url answers; it often ends in /v1"

THOUGHTS = ("reasoning_content", "reasoning")
"""Where servers put a model's thoughts; some fill both with the same."""


class Chunks:
    """One answer while its chunks come in."""

    def __init__(self, answer: Answer, new_id: NewId, by: str | None = None) -> None:
        """`by` is whose thoughts these are, where the server wants them back; see `convo.models.sealed`."""
        self._answer, self._new_id, self._by = answer, new_id, by
        self._call: tuple[int, str] | None = None
        self._came = False
        self._written = True
        self._thought: list[str] = []
        self._logprobs: list[Json] = []
        self._finish: str | None = None
        self._used: Json = None

    def read(self, chunk: Json) -> Iterator[Event]:
        """The events that `chunk` brings.

        raises:  StreamBroken  it is not of a form that chat completions has
        """
        chunk = _object(chunk)
        self._came = True
        self._answer.model = _words(chunk.get("model")) or self._answer.model
        told = chunk.get("usage") or _object(chunk.get("x_groq")).get("usage")
        if told:
            self._used = used(_object(told))
        for choice in map(_object, _list(chunk.get("choices"))):
            self._logprobs += map(_logprob, _list(_object(choice.get("logprobs")).get("content")))
            yield from self._delta(_object(choice.get("delta")))
            self._finish = _words(choice.get("finish_reason")) or self._finish

    def end(self) -> Iterator[Event]:
        """The terminal event.

        raises:  StreamBroken  no finish reason came
        """
        if not self._came:
            raise StreamBroken("the server answered without a single event of chat completions", hint=LOOK)
        if self._finish is None:
            raise StreamBroken("the answer stopped before its end")
        if self._finish in DONE:
            yield from self._decided()
            yield from self._whole_call()
            yield from self._answer.completed(self._used)
        elif self._finish in CUT_SHORT:
            yield from self._answer.incomplete(CUT_SHORT[self._finish], self._used)
        else:
            why = f"the provider ended the answer with {self._finish!r}"
            yield from self._answer.failed("server_error", why, self._used)

    def _delta(self, delta: Mapping[str, Json]) -> Iterator[Event]:
        thought = next((_words(delta.get(name)) for name in THOUGHTS if delta.get(name)), "")
        said, refused, calls = (
            _words(delta.get("content")),
            _words(delta.get("refusal")),
            _list(delta.get("tool_calls")),
        )
        if thought or said or refused:
            yield from self._whole_call()
            self._call = None
        if thought and self._by is not None:
            self._thought.append(thought)
        yield from self._answer.thinking(thought)
        if said or refused or calls:
            yield from self._decided()
        if said:
            logprobs, self._logprobs = self._logprobs, []
            yield from self._answer.text(said, logprobs)
        yield from self._answer.refusal(refused)
        for piece in map(_object, calls):
            yield from self._tool_call(piece)

    def _decided(self) -> Iterator[Event]:
        """What was thought ends here, and is sealed where it is wanted back."""
        thought, self._thought = "".join(self._thought), []
        if thought and self._by is not None:
            yield from self._answer.seal(self._by + sealed_thoughts(thought))

    def _tool_call(self, piece: Mapping[str, Json]) -> Iterator[Event]:
        """A piece of a call. A new index begins the next call, and so does a new id: some servers count none."""
        function = _object(piece.get("function"))
        index, call_id = _figure(piece.get("index")), _words(piece.get("id"))
        if self._call is None or self._call[0] != index or call_id not in ("", self._call[1]):
            name = _words(function.get("name"))
            if not name:
                raise StreamBroken("the answer mixes the pieces of its tool calls")
            yield from self._whole_call()
            self._call, self._written = (index, call_id or self._new_id("call")), False
            yield from self._answer.call(self._call[1], name)
        arguments = _words(function.get("arguments"))
        self._written = self._written or bool(arguments)
        yield from self._answer.arguments(arguments)

    def _whole_call(self) -> Iterator[Event]:
        """The arguments of a call that has none: some servers write nothing at all."""
        if not self._written:
            self._written = True
            yield from self._answer.arguments("{}")


def _logprob(value: Json) -> Json:
    """The log probability of a token, as the Responses API writes it."""
    found = _object(value)
    one: dict[str, Json] = {"token": _words(found.get("token")), "bytes": _list(found.get("bytes"))}
    one["logprob"] = _of((int, float), found.get("logprob"), 0.0)
    if "top_logprobs" in found:
        one["top_logprobs"] = [_logprob(other) for other in _list(found["top_logprobs"])]
    return one


def used(raw: Mapping[str, Json]) -> Json:
    """A usage object from chat completions' figures; DeepSeek counts its cache in a field of its own.

    raises:  StreamBroken  a figure is none
    """
    read, written = _object(raw.get("prompt_tokens_details")), _object(raw.get("completion_tokens_details"))
    return usage(
        _figure(raw.get("prompt_tokens")),
        _figure(raw.get("completion_tokens")),
        cached=_figure(read.get("cached_tokens")) or _figure(raw.get("prompt_cache_hit_tokens")),
        written=_figure(read.get("cache_write_tokens")),
        reasoning=_figure(written.get("reasoning_tokens")),
    )


# -- what a server may leave out, and what it may not put in its place ----------------------------


def _of(form: type[T] | tuple[type[T], ...], value: Json, empty: T) -> T:
    if value is None:
        return empty
    if isinstance(value, form):
        return value
    raise StreamBroken("the answer holds a piece that chat completions does not have")


def _object(value: Json) -> dict[str, Json]:
    return _of(dict, value, {})


def _list(value: Json) -> list[Json]:
    return _of(list, value, [])


def _words(value: Json) -> str:
    return _of(str, value, "")


def _figure(value: Json) -> int:
    return _of(int, value, 0)

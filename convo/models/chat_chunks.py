"""The chunks of chat completions, read as one answer.

Chunks have no beginning and no end of anything: text flows until something else comes, a call
goes on until another index or id appears, and the answer is whole when a finish reason has come.
A stream that stops before that was cut.
"""

from collections.abc import Iterator, Mapping

from convo.errors import StreamBroken
from convo.ids import NewId
from convo.items import Event, Json
from convo.models.stream import Answer, usage

DONE = frozenset({"stop", "tool_calls", "function_call", "eos", "end_turn"})
CUT_SHORT = {
    "length": "max_output_tokens",
    "model_length": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Finish reasons, and the Responses API's word for an answer that stops early."""

THOUGHTS = ("reasoning_content", "reasoning")
"""Where servers put a model's thoughts; some fill both with the same."""


class Chunks:
    """One answer while its chunks come in."""

    def __init__(self, answer: Answer, new_id: NewId) -> None:
        self._answer, self._new_id = answer, new_id
        self._call: tuple[int, str] | None = None
        self._finish: str | None = None
        self._used: Json = None

    def read(self, chunk: Json) -> Iterator[Event]:
        """The events that `chunk` brings.

        raises:  StreamBroken  it is not of a form that chat completions has
        """
        if not isinstance(chunk, Mapping):
            raise StreamBroken("the answer holds a piece that is not a chunk of chat completions")
        self._answer.model = chunk.get("model") or self._answer.model
        if chunk.get("usage"):
            self._used = used(chunk["usage"])
        for choice in chunk.get("choices") or ():
            yield from self._delta(choice.get("delta") or {})
            self._finish = choice.get("finish_reason") or self._finish

    def end(self) -> Iterator[Event]:
        """The terminal event.

        raises:  StreamBroken  no finish reason came
        """
        if self._finish is None:
            raise StreamBroken("the answer stopped before its end")
        if self._finish in DONE:
            yield from self._answer.completed(self._used)
        elif self._finish in CUT_SHORT:
            yield from self._answer.incomplete(CUT_SHORT[self._finish], self._used)
        else:
            why = f"the provider ended the answer with {self._finish!r}"
            yield from self._answer.failed("server_error", why, self._used)

    def _delta(self, delta: Json) -> Iterator[Event]:
        yield from self._answer.thinking(next((_words(delta.get(name)) for name in THOUGHTS if delta.get(name)), ""))
        yield from self._answer.text(_words(delta.get("content")))
        yield from self._answer.refusal(_words(delta.get("refusal")))
        for piece in delta.get("tool_calls") or ():
            yield from self._tool_call(piece)

    def _tool_call(self, piece: Json) -> Iterator[Event]:
        """A piece of a call. A new index begins the next call, and so does a new id: some servers count none."""
        function = piece.get("function") or {}
        index, call_id = piece.get("index") or 0, _words(piece.get("id"))
        if self._call is None or self._call[0] != index or call_id not in ("", self._call[1]):
            if not function.get("name"):
                raise StreamBroken("the answer mixes the pieces of its tool calls")
            self._call = index, call_id or self._new_id("call")
            yield from self._answer.call(self._call[1], function["name"])
        yield from self._answer.arguments(_words(function.get("arguments")))


def used(raw: Mapping[str, Json]) -> Json:
    """A usage object from chat completions' figures; DeepSeek counts its cache in a field of its own."""
    read, written = raw.get("prompt_tokens_details") or {}, raw.get("completion_tokens_details") or {}
    return usage(
        raw.get("prompt_tokens") or 0,
        raw.get("completion_tokens") or 0,
        cached=read.get("cached_tokens") or raw.get("prompt_cache_hit_tokens") or 0,
        written=read.get("cache_write_tokens") or 0,
        reasoning=written.get("reasoning_tokens") or 0,
    )


def _words(value: Json) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise StreamBroken("the answer holds text in a form that chat completions does not have")

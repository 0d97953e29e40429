"""Translate the pieces of one answer of chat completions or Messages to events of the Responses API.

A reader of a protocol (`readers.chat`, `readers.messages`) yields pieces in the order in which they arrived. Calls may
alternate, and text may stand between the pieces of a call. Events of one item may not, so `AnswerTranslator` holds a
part that begins while a call is open until that call has ended.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Literal, NamedTuple, TypeAlias

from convo.errors import StreamCut
from convo.history.items import Json, StreamEvent
from convo.models.stream import REPETITION, Ending, ResponseEventWriter
from convo.runtime import NewId


class Call:
    """A call as far as it arrived.

    fields:      the fields of the call that its reader does not read
    is_stopped:  the server said that the call is complete
    """

    def __init__(self, call_id: str = "", name: str = "", index: int | None = None, *, is_custom: bool = False) -> None:
        self.id, self.name, self.index, self.is_custom = call_id, name, index, is_custom
        self.fields: dict[str, Json] = {}
        self.is_stopped = False
        self._arguments, self._unscanned = StringIO(newline=""), StringIO(newline="")
        self._rest = ""
        self._depth, self._is_in_text, self._has_object = 0, False, False

    @property
    def arguments(self) -> str:
        return self._arguments.getvalue()

    def add(self, text: str) -> None:
        self._arguments.write(text)
        self._unscanned.write(text)

    def is_closed(self) -> bool:
        """Whether the call is complete: its arguments end with a closed JSON object, or the server said so.

        Each piece is scanned once: parsing all arguments after each piece takes quadratic time.
        """
        if self.is_stopped or self.is_custom:
            return self.is_stopped
        text = self._rest + self._unscanned.getvalue()
        self._unscanned = StringIO(newline="")
        # An odd number of backslashes at the end begins an escape that the next piece completes.
        self._rest = "\\" if (len(text) - len(text.rstrip("\\"))) % 2 else ""
        for sign in _JSON_SIGNS.findall(text.removesuffix(self._rest) if self._rest else text):
            if sign == '"':
                self._is_in_text = not self._is_in_text
            elif not self._is_in_text and sign in "{}":
                self._depth += 1 if sign == "{" else -1
                self._has_object = True
        return self._has_object and self._depth == 0 and not self._is_in_text


_JSON_SIGNS = re.compile(r'\\.|["{}]', re.DOTALL)
"""Escapes, quotes and braces."""

PieceKind: TypeAlias = Literal["text", "refusal", "reasoning", "call", "restart"]


class Piece(NamedTuple):
    """A part of an answer as it arrived: the text that it adds, for a call a part of its arguments.

    kind:    "restart" discards the answer so far: the server began another one in its place

    source:  the call, or the block, that the piece belongs to; None if the server does not divide its texts
    """

    kind: PieceKind
    text: str
    source: object = None


@dataclass(slots=True, eq=False)
class _Part:
    """A text or a call; `held` is its text until the parts before it have ended."""

    kind: PieceKind
    source: object
    held: list[str] = field(default_factory=list)
    is_started: bool = False

    @property
    def call(self) -> Call | None:
        return self.source if isinstance(self.source, Call) else None


class AnswerTranslator:
    """Writes the pieces of one answer as events. A subclass adds the encrypted content of reasoning items."""

    def __init__(self, writer: ResponseEventWriter, new_id: NewId) -> None:
        self._writer, self._new_id = writer, new_id
        self._parts: deque[_Part] = deque()

    def add(self, piece: Piece, logprobs: list[Json] | None = None) -> Iterator[StreamEvent]:
        """Yield the events that a piece completes; `logprobs` belong to its text, and are removed once written."""
        kind, text, source = piece
        event = None if logprobs else self.extend(kind, text, source)
        if event is not None:
            yield event
            return
        if kind == "restart":
            self._parts.clear()
            self._writer.restart()
            return
        part = self._parts[-1] if self._parts else None
        if part is None or part.kind != kind or part.source is not source:
            # Recorded servers alternate between the pieces of several calls.
            part = next((part for part in self._parts if source is not None and part.source is source), None)
        if part is None:
            part = _Part(kind, source)
            self._parts.append(part)
        if part is self._parts[0] and part.is_started:
            yield from self._write(part, text, logprobs)
        else:
            part.held.append(text)
        if len(self._parts) > 1 or not part.is_started:
            yield from self._advance(logprobs)

    def extend(self, kind: PieceKind, text: str, source: object = None) -> StreamEvent | None:
        """Return the event of a text that continues the only open part; None if more than this event is written."""
        part = self._parts[0] if len(self._parts) == 1 else None
        if part is None or not part.is_started or part.kind != kind or part.source is not source:
            return None
        return self._writer.extend(kind, text)

    def write_end(self, ending: Ending | None, usage: Json) -> Iterator[StreamEvent]:
        """Yield the rest and the terminal event. Raises StreamCut for an answer without an end."""
        if ending is None:
            raise StreamCut("the response ended before it was complete")
        yield from self._advance(ending=ending)
        if ending.is_unknown:
            word = f"the unknown reason {ending.word!r}" if ending.word else "no reason"
            self._writer.report(f"the provider ended the response with {word}")
        if ending.word.lower() == REPETITION:
            self._writer.report("the response was stopped because it repeated itself")
        if ending.status == "failed":
            message = f"the provider ended the response with {ending.word!r}"
            yield from self._writer.write_failed("server_error", message, usage)
        elif ending.reason is not None:
            yield from self._writer.write_incomplete(ending.reason, usage)
        else:
            yield from self._write_encrypted(self._encrypted_before("end", None))
            yield from self._writer.write_completed(usage)

    def _report_left_out(self, part_types: Iterable[str]) -> None:
        for name in sorted(part_types):
            self._writer.report(f"a part of the answer was left out: {name}, which was not requested")

    def _encrypted_before(self, kind: PieceKind | Literal["end"], source: object) -> Iterator[str]:
        """Yield encrypted contents, each of a reasoning item before this part or the end of a complete answer."""
        yield from ()

    def _encrypted_after(self, source: object) -> Iterator[str]:
        """Yield encrypted contents, each of a reasoning item that ends here."""
        yield from ()

    def _write_encrypted(self, contents: Iterator[str]) -> Iterator[StreamEvent]:
        for content in contents:
            yield from self._writer.write_encrypted_content(content)

    def _advance(self, logprobs: list[Json] | None = None, ending: Ending | None = None) -> Iterator[StreamEvent]:
        """Write the held parts whose turn has come; at the end of the answer all of them."""
        while self._parts:
            part = self._parts[0]
            # Some servers send the name of a call after its first arguments.
            if not part.is_started and (part.call is None or part.call.name):
                part.is_started = True
                yield from self._write_encrypted(self._encrypted_before(part.kind, part.source))
                if part.call is not None:
                    start = self._writer.start_custom_call if part.call.is_custom else self._writer.start_function_call
                    yield from start(part.call.id or self._new_id("call"), part.call.name)
                for text in part.held:
                    yield from self._write(part, text, logprobs)
                part.held.clear()
            is_last = len(self._parts) == 1
            if ending is None and (is_last or (part.call is not None and not part.call.is_closed())):
                return
            self._parts.popleft()
            yield from self._end(part, is_cut=ending is not None and ending.status != "completed", is_last=is_last)

    def _write(self, part: _Part, text: str, logprobs: list[Json] | None = None) -> Iterator[StreamEvent]:
        match part.kind:
            case "text":
                yield from self._writer.write_text(text, logprobs or ())
                if logprobs:
                    logprobs.clear()
            case "reasoning":
                yield from self._writer.write_reasoning(text)
            case "refusal":
                yield from self._writer.write_refusal(text)
            case "call" if text:
                yield from self._writer.write_arguments(text)

    def _end(self, part: _Part, *, is_cut: bool, is_last: bool) -> Iterator[StreamEvent]:
        """End a part that another one follows, or that the answer ends with; a call of a cut answer may be partial."""
        call = part.call
        if call is None:
            yield from self._write_encrypted(self._encrypted_after(part.source))
        elif not part.is_started:
            self._writer.report("a call without a name was left out")
        elif is_cut and not is_last and not call.is_closed():
            yield from self._writer.finish_incomplete_item()
        elif not (call.arguments or call.is_custom or is_cut):
            yield from self._writer.write_arguments("{}")  # Claude sends none, and some proxies in front of it

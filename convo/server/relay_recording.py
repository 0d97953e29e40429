"""Copies of relayed requests and responses for a recorder.

A relay passes bodies on as they arrive and adds each piece to a copy, which ends at a limit. The queue of
`convo.recording.exchange_queue` decodes the copies and calls the recorder.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from convo.history.accumulator import TERMINAL_EVENTS
from convo.models.http import DamagedBody, Decompressor
from convo.recording import exchange
from convo.recording.decoder import StreamedText
from convo.recording.exchange import ExchangeRequest, ExchangeResponse, Recorder
from convo.recording.exchange_queue import MAX_WAITING, QueuedExchange, RecordingQueue
from convo.runtime import Clock, NewId
from convo.secrets import recordable_headers
from convo.server.http import Header, InvalidJson, parse_strict_json

MAX_COPIED_BYTES = 128 * 1024 * 1024
"""Bytes of all copies together: of exchanges in progress and of those that wait for the recorder."""

DRAIN_TIMEOUT_S = 30.0
"""Seconds that the recorder gets at the end for the exchanges that wait."""

MAX_STREAMS = 10_000
"""Concatenated streams in a compressed body that are decoded."""

DECODED_PIECE_BYTES = 16 * 1024
"""Bytes that are decoded at once: the rest of the piece is copied at the end of each stream."""

MAX_EVENT_DEPTH = 200
"""Nested objects and arrays in a WebSocket message that is parsed."""


CREDENTIAL_HEADERS = frozenset({"authorization", "x-api-key", "api-key"})
"""The headers in which clients of OpenAI, Anthropic and Azure send a key."""

# -- copies of bodies -----------------------------------------------------------------------------


class CopyBudget:
    """The bytes that all copies together may still take."""

    def __init__(self, max_bytes: int = MAX_COPIED_BYTES) -> None:
        self.free_bytes = max_bytes


class BodyCopy:
    """The beginning of a body as it was sent.

    is_truncated:  the body was longer than the limit, or than the budget allowed
    """

    def __init__(self, budget: CopyBudget, max_bytes: int) -> None:
        self.is_truncated = False
        self._budget, self._max_bytes = budget, max_bytes
        self._pieces: list[bytes] = []
        self._size_bytes = self._taken_count = 0

    def add(self, piece: bytes) -> None:
        if self.is_truncated:
            return
        allowed = min(self._max_bytes - self._size_bytes, self._budget.free_bytes)
        if len(piece) > allowed:
            piece, self.is_truncated = piece[:allowed], True
        self._budget.free_bytes -= len(piece)
        self._size_bytes += len(piece)
        self._pieces.append(piece)

    def take_new_pieces(self) -> list[bytes]:
        """Return the pieces that were added since the last call; they stay in the copy."""
        pieces = self._pieces[self._taken_count :]
        self._taken_count += len(pieces)
        return pieces

    def take(self) -> bytes:
        """Return the copy, and give its bytes back to the budget."""
        body = b"".join(self._pieces)
        self.release()
        return body

    def release(self) -> None:
        self._budget.free_bytes += self._size_bytes
        self._pieces, self._size_bytes = [], 0


async def decode_copy(copy: BodyCopy, encoding: str, max_bytes: int) -> tuple[bytes, bool]:
    """Return the decoded body of `copy`, and whether it is truncated."""
    is_truncated, raw = copy.is_truncated, copy.take()
    if not encoding:
        return raw, is_truncated
    # in a thread: a few KB may become many MB
    body, is_complete = await asyncio.to_thread(decompress_copy, raw, encoding, max_bytes)
    return body, is_truncated or not is_complete


def decompress_copy(raw: bytes, encoding: str, max_bytes: int) -> tuple[bytes, bool]:
    """Decode a body, as far as it is complete and has at most `max_bytes`.

    encoding:  the value of Content-Encoding

    Returns the decoded body and whether it is complete; empty and False for an unknown or damaged encoding.
    """
    is_complete = True
    for name in reversed([part.strip().lower() for part in encoding.split(",")]):
        if name in ("", "identity") or not raw:
            continue
        try:
            raw, complete = _decode_streams(name, raw, max_bytes)
        except DamagedBody:
            return b"", False
        is_complete = is_complete and complete
    return raw, is_complete


def _decode_streams(name: str, raw: bytes, max_bytes: int) -> tuple[bytes, bool]:
    """Decode concatenated streams. Raises DamagedBody if the first one is damaged."""
    body = bytearray()
    position, rest = 0, b""
    for _ in range(MAX_STREAMS):
        stream = Decompressor(name)
        while not stream.is_finished:
            piece, rest = rest, b""
            if not piece:
                piece = raw[position : position + DECODED_PIECE_BYTES]
                position += len(piece)
            if not piece:  # the stream is cut off
                return bytes(body), False
            try:
                for chunk in stream.decompress(piece):
                    body += chunk
                    if len(body) > max_bytes:
                        return bytes(body[:max_bytes]), False
            except DamagedBody:
                if body:  # bytes after the last stream, or damage
                    return bytes(body), False
                raise
        rest = stream.unused_data
        if not rest and position >= len(raw):
            return bytes(body), True
    return bytes(body), False


# -- one exchange ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExchangeHead:
    """A request without its body; `encoding` is its Content-Encoding."""

    protocol: exchange.Protocol
    url: str
    headers: Mapping[str, str]
    encoding: str = ""


class ExchangeCopy(QueuedExchange):
    """The copy of one exchange while it passes through a relay.

    is_encoded:  the response has a content encoding, so its text is known at its end only
    """

    def __init__(self, recording: "RelayRecording", head: ExchangeHead, id: str, now: float, started_s: float) -> None:  # noqa: A002
        super().__init__(recording.recorder)
        self.request_body, self.response_body = recording.new_body(), recording.new_body()
        self.head, self.id, self.received_at, self.started_s = head, id, now, started_s
        self.first_byte_s: float | None = None
        self.is_encoded = False
        self._recording = recording
        self._is_begun = self._is_recorded = self._is_finished = False
        self._status: int | None = None
        self._headers: tuple[Header, ...] = ()
        self._duration_s, self._kept_bytes = 0.0, 0
        self._error: str | None = None
        self._text = StreamedText(head.protocol)

    def begin(self) -> None:
        """Record the request. Later calls have no effect."""
        if not self._is_begun:
            self._is_begun = True
            self._is_recorded = self._recording.queue.begin(self)

    def add_response_piece(self, piece: bytes) -> None:
        if self.first_byte_s is None and piece:
            self.first_byte_s = self._recording.clock.monotonic() - self.started_s
        self.response_body.add(piece)

    def finish(self, status: int | None, headers: Iterable[Header] = (), error: str | None = None) -> None:
        """Record the response. Later calls have no effect."""
        if self._is_finished:
            return
        self._is_finished = True
        self.begin()
        self._status, self._headers, self._error = status, tuple(headers), error
        self._duration_s = self._recording.clock.monotonic() - self.started_s
        if self._is_recorded:
            self._recording.queue.finish(self)
        else:
            self.release()

    async def load_request(self) -> ExchangeRequest:
        head, max_bytes = self.head, self._recording.max_body_bytes
        decoded, is_truncated = await decode_copy(self.request_body, head.encoding, max_bytes)
        body = decoded[: self._recording.kept_budget.free_bytes]
        self._kept_bytes = len(body)
        self._recording.kept_budget.free_bytes -= len(body)
        is_truncated = is_truncated or len(body) < len(decoded)
        return ExchangeRequest(
            self.id, head.protocol, head.url, head.headers, body, self.received_at, is_truncated
        )  # fmt: skip

    async def load_response(self) -> ExchangeResponse:
        headers = recordable_headers(self._headers)
        encoding, max_bytes = headers.get("content-encoding", ""), self._recording.max_body_bytes
        body, is_truncated = await decode_copy(self.response_body, encoding, max_bytes)
        return ExchangeResponse(
            self._status, headers, body, self.first_byte_s, self._duration_s, is_truncated, self._error
        )

    def take_text(self) -> str:
        pieces = self.response_body.take_new_pieces()
        return "" if self.is_encoded else "".join(map(self._text.add, pieces))

    def release(self) -> None:
        self.request_body.release()
        self.response_body.release()
        self._recording.kept_budget.free_bytes += self._kept_bytes
        self._kept_bytes = 0


class RelayRecording:
    """Copies exchanges of a relay, and passes them to one recorder, which it closes.

    kept_budget:  for the decoded requests that wait for the end of their responses
    """

    def __init__(
        self, recorder: Recorder, *, clock: Clock, new_id: NewId, max_body_bytes: int, report: Callable[[str], None],
        report_error: Callable[[BaseException], None], max_waiting: int = MAX_WAITING, budget: CopyBudget | None = None,
        max_kept_bytes: int = MAX_COPIED_BYTES,
    ) -> None:  # fmt: skip
        self.recorder, self.clock, self.max_body_bytes = recorder, clock, max_body_bytes
        self.queue = RecordingQueue(report=report, report_error=report_error, max_waiting=max_waiting)
        self._new_id = new_id
        self._budget, self.kept_budget = budget or CopyBudget(), CopyBudget(max_kept_bytes)

    def open_copy(self, head: ExchangeHead) -> ExchangeCopy:
        """Start the copy of an exchange whose request begins now."""
        return ExchangeCopy(self, head, self._new_id("exch"), self.clock.now(), self.clock.monotonic())

    def new_body(self) -> BodyCopy:
        return BodyCopy(self._budget, self.max_body_bytes)

    async def aclose(self, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Record the waiting exchanges, for at most `timeout_s` seconds, and close the recorder."""
        await self.queue.aclose(timeout_s)
        await self.recorder.aclose()


# -- WebSocket ------------------------------------------------------------------------------------

CREATE_TYPE = "response.create"

FINAL_TYPES = frozenset({*TERMINAL_EVENTS, "error"})
"""Types of the event that ends a response."""

LEADING_TYPE = re.compile(r'\s*\{\s*"type"\s*:\s*"([^"\\]*)"')
"""The type of a message that begins with it; clients and servers write it first."""


class WebSocketCopies:
    """Splits the messages of a WebSocket into exchanges: a `response.create` and its events.

    Events belong to the oldest request that is open, or to the one with their `stream_id`.
    """

    def __init__(self, recording: RelayRecording, head: ExchangeHead, headers: Iterable[Header]) -> None:
        self._recording, self._head, self._headers = recording, head, tuple(headers)
        self._open: list[tuple[Any, ExchangeCopy]] = []

    def add_client_message(self, text: str) -> bool:
        """Begin an exchange if the message is a `response.create`; return whether it is one."""
        # Most messages are not parsed: their type is read from their start.
        message = _parse_message(text) if '"stream_id"' in text or not LEADING_TYPE.match(text) else None
        if _read_type(text, message) != CREATE_TYPE:
            return False
        copy = self._recording.open_copy(self._head)
        copy.request_body.add(text.encode("utf-8", "replace"))
        copy.begin()
        self._open.append(((message or {}).get("stream_id"), copy))
        return True

    def add_event(self, text: str) -> None:
        """Add an event to its exchange, and finish the exchange with its last event."""
        if not self._open:
            return
        # With one open request an event needs no stream id, and is not parsed.
        message = _parse_message(text) if len(self._open) > 1 or not LEADING_TYPE.match(text) else None
        stream_id = (message or {}).get("stream_id")
        entry = next((entry for entry in self._open if entry[0] == stream_id), self._open[0])
        line = text.replace("\r", " ").replace("\n", " ") + "\n"  # JSON has line breaks only between its tokens
        entry[1].add_response_piece(line.encode("utf-8", "replace"))
        if _read_type(text, message) in FINAL_TYPES:
            self._open.remove(entry)
            entry[1].finish(101, self._headers)

    def close(self, error: str) -> None:
        """Finish the open exchanges: the connection ended."""
        for _, copy in self._open:
            copy.finish(101, self._headers, error)
        self._open.clear()


def _read_type(text: str, message: Mapping[str, Any] | None) -> object:
    if message is not None:
        return message.get("type")
    leading = LEADING_TYPE.match(text)
    return leading[1] if leading else None


def _parse_message(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object of a message; None for anything else."""
    try:
        message = parse_strict_json(text.encode("utf-8", "replace"), depth=MAX_EVENT_DEPTH)
    except InvalidJson:
        return None
    return message if isinstance(message, dict) else None

"""HTTP/1.1 with bounds on what comes before a request is one.

uvicorn's own protocol waits for headers as long as they take and as large as they are, and for a
client that takes nothing of its answer as long as it stays. This one counts and times, and says what
is wrong as the API's error object, where somebody still reads.
"""

from asyncio import AbstractEventLoop, TimerHandle, Transport
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from convo.config import Serve
from convo.endpoints.errors import error_object
from convo.errors import ConvoError
from convo.gateway import documents, refusals
from convo.gateway.exchange import CONNECTION, Connection
from convo.ids import random_id

MOST_WAITING = 64 * 1024
"""Bytes that wait for others before they are written."""

MOST_PIPELINED = 8
"""Requests that are read while an answer before them is not complete."""


class Gathering:
    """A transport that writes at once what comes at once: headers with a body, events with one another.

    To write to a socket costs more than to make an event. What is handed over while the loop is busy is
    written when it comes round again, or when there is much of it.
    """

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._waiting: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            gathered = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            self._transport.write(gathered)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class BoundedHttp(HttpToolsProtocol):
    """One connection. `serve` says how large and how slow a request's head may be, and how slow its reader."""

    serve: ClassVar[Serve]

    _head = 0
    _timer: TimerHandle | None = None
    _stalled: TimerHandle | None = None
    _in_head = True
    _fault: ConvoError | None = None
    _pipelined = 0

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._unanswered: list[tuple[RequestResponseCycle, Connection]] = []

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(Gathering(transport, self.loop))  # type: ignore[arg-type]  # it is one in all but name
        self._wait_for_a_head()

    def eof_received(self) -> None:
        self.transport.flush()  # type: ignore[attr-defined]  # what was sent so far is still handed over
        self._left()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._taken()
        self._left()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.serve.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._grow(len(data))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head, self._in_head = 0, True
        self._wait_for_a_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._head += len(name) + len(value)
        if self._head > self.serve.max_header_bytes:
            self._fault = refusals.head_too_large(self.serve.max_header_bytes)
            raise ValueError(self._fault.message)  # ends the parsing; `send_400_response` follows

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is before:
            return
        connection = Connection()
        self.scope["extensions"] = {CONNECTION: connection}  # type: ignore[dict-item]  # an object of ours
        self._unanswered = [(cycle, one) for cycle, one in self._unanswered if not cycle.response_complete]
        self._unanswered.append((self.cycle, connection))
        self._read_on(0)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._read_on(len(body))

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._read_on(0)

    def _read_on(self, size: int) -> None:
        """Read behind a whole request, within limits: only a connection that is read tells that it was closed.

        uvicorn stops reading while requests wait for the answers before them, and when a body is large.
        """
        if self.cycle is None:
            return
        self._pipelined = self._pipelined + size if self.pipeline else 0
        if len(self.pipeline) > MOST_PIPELINED or self._pipelined > self.serve.max_body_bytes:
            return
        if self.pipeline or not self.cycle.more_body:
            self.flow.resume_reading()

    def _left(self) -> None:
        """Tell every request that has no answer yet that its client has left."""
        for cycle, connection in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
                connection.close()
        self._unanswered.clear()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._fault or refusals.not_http())

    def _grow(self, size: int) -> None:
        """Count what has come of a header that is not whole yet."""
        self._head += size
        if self._head > 2 * self.serve.max_header_bytes:
            self._refuse(refusals.head_too_large(self.serve.max_header_bytes))

    def _wait_for_a_head(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(self.serve.read_s, self._too_late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _taken(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _too_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(refusals.too_slow(self.serve.read_s))

    def _refuse(self, fault: ConvoError) -> None:
        """Answer without a request, and close."""
        body = documents.write({"error": error_object(fault)})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[fault.status] + head % (len(body), random_id("req").encode()) + body)
        self.transport.close()


def bounded(serve: Serve) -> type[BoundedHttp]:
    """The protocol with these bounds."""
    return type("BoundedHttp", (BoundedHttp,), {"serve": serve})

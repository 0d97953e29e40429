"""WebSocket protocol class for uvicorn: API errors, and a write timeout.

A failed handshake gets the API's error object, and a client that does not read is disconnected.
Imported with the first WebSocket, because it loads the websockets package.
"""

from asyncio import TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from convo.server import errors, http

MAX_FRAGMENTS = 65_536
"""Frames of one message: those without data do not count for its size."""


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection; its client has `write_s` seconds to receive data that the socket's buffer cannot hold."""

    def __init__(self, write_s: float, **options: Any) -> None:
        super().__init__(**options)
        self._write_s = write_s
        self._write_timer: TimerHandle | None = None

    def eof_received(self) -> None:
        """Stop sending: the client has closed the connection."""
        self.transport.flush()  # type: ignore[attr-defined]  # a BufferedTransport
        self.disconnected = True
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._write_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not (self.handshake_initiated or self.transport.is_closing()):
            self._send_error()  # the headers are complete and are no handshake

    def handle_connect(self, event: Request) -> None:
        if is_ascii_handshake(event) and self.conn.accept(event).status_code == 101:
            super().handle_connect(event)
        else:
            self._send_error()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.close_sent:
            self.conn.send_close(CloseCode.MESSAGE_TOO_BIG, f"more than {MAX_FRAGMENTS} fragments")
            self.handle_parser_exception()

    def handle_ping(self) -> None:
        """Answer a ping, unless the client does not read: its answers would fill the memory."""
        if self._write_timer is None:
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def _send_error(self) -> None:
        """Send an HTTP error response, and close."""
        fault = errors.invalid_handshake_error()
        self.handshake_complete = self.close_sent = True
        self.transport.write(STATUS_LINE[fault.status] + http.serialize_raw_error(fault))
        self.transport.close()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def is_ascii_handshake(handshake: Request) -> bool:
    """Whether the headers that the protocol parses are ASCII; it fails on anything else."""
    prefixes = ("sec-websocket-", "connection", "upgrade", "origin")
    values = [value for name, value in handshake.headers.raw_items() if name.lower().startswith(prefixes)]
    return all(value.isascii() for value in (handshake.path, *values))

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

from convo.errors import TryLater
from convo.server import errors, http
from convo.server.rate_limits import BodyBudget, BodyShare

MAX_FRAGMENTS = 65_536
"""Frames of one message: those without data do not count for its size."""


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection; its client has `write_s` seconds to receive data that the socket's buffer cannot hold.

    body_budget:  counts the bytes of a message that arrives, until the application receives it
    """

    def __init__(self, write_s: float, body_budget: BodyBudget, **options: Any) -> None:
        super().__init__(**options)
        self._arriving = BodyShare(body_budget)
        self._is_refused = False
        self._write_s = write_s
        self._write_timer: TimerHandle | None = None

    def eof_received(self) -> None:
        """Stop sending: the client has closed the connection."""
        self.transport.flush()  # type: ignore[attr-defined]  # a BufferedTransport
        self.disconnected = True
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arriving.release()
        self.conn.receive_eof()  # frees the buffer with the beginning of a frame
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self._write_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        try:
            self._arriving.take(len(data))
        except TryLater as fault:
            self._close(CloseCode.TRY_AGAIN_LATER, fault.message)
            return
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
        else:
            self._close(CloseCode.MESSAGE_TOO_BIG, f"more than {MAX_FRAGMENTS} fragments")

    def handle_parser_exception(self) -> None:
        """Refuse a message that is still arriving: send the reason, then discard what the client sends.

        uvicorn closes the socket at once. Its client, which is sending, would see a reset and not the reason.
        """
        assert self.conn.close_sent is not None
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.flush()  # type: ignore[attr-defined]  # a BufferedTransport
        self.transport.write_eof()
        self.close_sent = self._is_refused = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    async def receive(self) -> Any:
        event = await super().receive()
        self._arriving.release()
        return event

    def handle_pong(self, event: Frame) -> None:
        self._release_control_frame()
        super().handle_pong(event)

    def handle_ping(self) -> None:
        """Answer a ping, unless the client does not read: its answers would fill the memory."""
        self._release_control_frame()
        if self._write_timer is None:
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def _release_control_frame(self) -> None:
        """Release the bytes of a ping or pong, unless a message has begun."""
        if not self.frames and self.queue.empty():
            self._arriving.release()

    def _close(self, code: CloseCode, reason: str) -> None:
        if not self.close_sent:
            self.conn.send_close(code, reason)
            self.handle_parser_exception()

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

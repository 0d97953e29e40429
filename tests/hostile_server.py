"""A server on loopback whose responses are too large, too slow or invalid.

It writes to the socket directly, so a response can break every rule of HTTP. Each connection is one
request: the server reads its head and body, then sends the pieces of the response until the client
closes the connection or the pieces end.

    server.answers = lambda request: repeat_piece(b"x" * 1024)
    server.sent                             # bytes sent by each response, in the order in which they ended
"""

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

OK = b"HTTP/1.1 200 OK\r\nconnection: close\r\n"
STREAM = OK + b"content-type: text/event-stream\r\n\r\n"
JSON = OK + b"content-type: application/json\r\n\r\n"
PIECE = 64 * 1024

REQUEST_TIMEOUT_S = 60.0
SEND_POLL_S = 0.2
"""Seconds between two checks whether the server stops, while a client reads nothing."""

Answer = Callable[[str], Iterator[bytes]]


@dataclass
class HostileServer:
    """The running server.

    url:      its base URL, with /v1
    answers:  returns the pieces of a response to a request, given its first line and its body
    request_lines:  the request lines, oldest first
    sent:     bytes of each response that has ended
    closed:   set when a client closed a connection before its response ended
    ended_at: time at which each response ended, by the monotonic clock
    """

    url: str
    answers: Answer = lambda _: iter(())
    request_lines: list[str] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    ended_at: list[float] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def environ(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "test-key"}

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        sent, has_client_left = 0, False
        with connection:
            connection.settimeout(REQUEST_TIMEOUT_S)
            try:
                request = _request(connection, self)
                connection.settimeout(SEND_POLL_S)
                for piece in self.answers(request):
                    sent += self._send(connection, piece)
            except OSError:
                has_client_left = True
            finally:
                self.sent.append(sent)
                self.ended_at.append(monotonic())
                if has_client_left:
                    self.closed.set()

    def _send(self, connection: socket.socket, piece: bytes) -> int:
        """Send a piece and return its length. Raises OSError if the client disconnected or the server stops."""
        view = memoryview(piece)
        while view:
            if self.stopping.is_set():
                raise ConnectionAbortedError
            with suppress(TimeoutError):
                view = view[connection.send(view) :]
        return len(piece)

    def wait(self, seconds: float) -> None:
        """Wait between two pieces of a slow response. Raises OSError if the server stops."""
        if self.stopping.wait(seconds):
            raise ConnectionAbortedError


def _request(connection: socket.socket, server: HostileServer) -> str:
    raw = b""
    while b"\r\n\r\n" not in raw:
        piece = connection.recv(PIECE)
        if not piece:
            raise ConnectionAbortedError
        raw += piece
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")), 0)
    while len(body) < length:
        piece = connection.recv(PIECE)
        if not piece:
            raise ConnectionAbortedError
        body += piece
    server.request_lines.append(lines[0])
    return f"{lines[0]} {body.decode()}"


@contextmanager
def run_hostile_server(answers: Answer | None = None) -> Iterator[HostileServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = HostileServer(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
    if answers:
        server.answers = answers
    threading.Thread(target=server.serve, args=(listener,), daemon=True).start()
    try:
        yield server
    finally:
        server.stopping.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


# -- responses ------------------------------------------------------------------------------------


def repeat_piece(piece: bytes, *, head: bytes = b"", times: int | None = None) -> Iterator[bytes]:
    """Yield `head`, then `piece` `times` times; without `times`, forever, with small pieces joined."""
    if head:
        yield head
    many = piece * max(1, PIECE // len(piece)) if times is None else piece
    while times is None or times > 0:
        yield many
        times = None if times is None else times - 1


def endless_error(status: int, piece: bytes, *headers: bytes) -> Iterator[bytes]:
    """An error response whose body never ends."""
    head = b"\r\n".join([b"HTTP/1.1 %d Wrong" % status, b"content-type: application/json", *headers, b"", b""])
    return repeat_piece(piece, head=head)


def gzip_of_size(megabytes: int, piece: bytes = b" ") -> bytes:
    """Compress `megabytes` MiB of `piece` with gzip, to about a thousandth of that size."""
    return gzip.compress(piece * (megabytes * 2**20 // len(piece)), compresslevel=6)


def sse_event(data: Any, name: str = "") -> bytes:
    event_line = f"event: {name}\n" if name else ""
    return f"{event_line}data: {json.dumps(data)}\n\n".encode()

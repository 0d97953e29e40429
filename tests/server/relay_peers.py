"""Both sides of a relay: a client that sends raw requests, and a scripted upstream that receives them.

Both write and read HTTP/1.1 themselves, because a library would change what a test compares.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from convo.config.settings import ServeSettings
from convo.recording.exchange import ExchangeRequest, ExchangeResponse
from convo.runtime import SystemClock, random_id
from convo.server.relay import Relay, Upstream, run_relay
from convo.server.relay_recording import MAX_COPIED_BYTES, CopyBudget, RelayRecording
from convo.server.server import open_listening_socket

Headers = Sequence[tuple[str, str]]

LINE_END = b"\r\n"


@dataclass
class Message:
    """A request or a response as it was received.

    start:        the first line, without its line end
    headers:      names in lower case, in the order of the message
    is_complete:  the body came to its end
    """

    start: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    is_complete: bool = True

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def status(self) -> int:
        return int(self.start.split()[1])


async def read_head(reader: asyncio.StreamReader) -> Message | None:
    """Read a message up to its body; None at the end of the connection."""
    try:
        raw = await reader.readuntil(LINE_END * 2)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    start, *lines = raw.decode("latin-1").split("\r\n")[:-2]
    pairs = [line.split(":", 1) for line in lines]
    return Message(start, [(name.lower(), value.strip()) for name, value in pairs])


async def iterate_body(reader: asyncio.StreamReader, message: Message, *, until_end: bool) -> AsyncIterator[bytes]:
    """Yield the pieces of a body, without the framing. `until_end`: without a length it ends with the connection."""
    length = message.header("content-length")
    try:
        if message.header("transfer-encoding") == "chunked":
            while size := int(await reader.readline(), 16):
                yield await reader.readexactly(size)
                await reader.readexactly(2)
            await reader.readexactly(2)
        elif length is not None:
            left = int(length)
            while left:
                piece = await reader.read(min(left, 65536))
                if not piece:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(piece)
                yield piece
        elif until_end:
            while piece := await reader.read(65536):
                yield piece
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        message.is_complete = False


async def read_body(reader: asyncio.StreamReader, message: Message, *, until_end: bool) -> None:
    async for piece in iterate_body(reader, message, until_end=until_end):
        message.body += piece


def encode_head(start: str, headers: Headers) -> bytes:
    return "".join(f"{line}\r\n" for line in (start, *(f"{name}: {value}" for name, value in headers), "")).encode(
        "latin-1"
    )


def encode_chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


Answer = Callable[[Message, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Answers a request whose body was read; returns whether the connection stays open."""


@dataclass
class ScriptedUpstream:
    """A server whose responses a test writes byte by byte.

    requests:     received requests, oldest first
    reads_body:   read the body before `answer` is called
    disconnects:  set when a connection ended before its response did
    """

    answer: Answer
    port: int = 0
    reads_body: bool = True
    requests: list[Message] = field(default_factory=list)
    connections: int = 0

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while request := await read_head(reader):
                self.requests.append(request)
                if self.reads_body:
                    await read_body(reader, request, until_end=False)
                if not await self.answer(request, reader, writer):
                    break
        except ConnectionError:
            pass
        finally:
            writer.close()


def shrink_buffers(connection: socket.socket) -> None:
    """Make the kernel's buffers small, also those of connections that are accepted later."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, 65_536)


@asynccontextmanager
async def run_upstream(
    answer: Answer, *, reads_body: bool = True, has_small_buffers: bool = False
) -> AsyncIterator[ScriptedUpstream]:
    upstream = ScriptedUpstream(answer, reads_body=reads_body)
    listener = socket.create_server(("127.0.0.1", 0))
    if has_small_buffers:
        shrink_buffers(listener)
    server = await asyncio.start_server(upstream.serve_connection, sock=listener, limit=1 << 20)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()


class MemoryRecorder:
    """Keeps exchanges in lists."""

    def __init__(self) -> None:
        self.begun: list[ExchangeRequest] = []
        self.finished: list[tuple[ExchangeRequest, ExchangeResponse]] = []
        self.texts: dict[str, str] = {}
        self.is_closed = False

    async def begin(self, request: ExchangeRequest) -> None:
        self.begun.append(request)

    async def add_text(self, request: ExchangeRequest, text: str) -> None:
        self.texts[request.id] = self.texts.get(request.id, "") + text

    async def finish(self, request: ExchangeRequest, response: ExchangeResponse) -> None:
        assert request in self.begun
        self.finished.append((request, response))

    async def aclose(self) -> None:
        self.is_closed = True


SERVE = ServeSettings("127.0.0.1", 0, None, "CONVO_SEAL_KEY", grace_s=0.2, read_s=5.0, write_s=5.0)


@dataclass
class RunningRelay:
    """A relay on a free port.

    notices:  the lines that it reported
    errors:   unexpected errors; a test that ends with one fails
    """

    relay: Relay
    recordings: RelayRecording
    recorder: MemoryRecorder
    port: int
    notices: list[str]
    errors: list[BaseException]

    async def open(self) -> "Client":
        return Client(self.port, *await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20))

    async def send(self, start: str, headers: Headers = (), body: bytes = b"") -> Message:
        """Send one request over a connection of its own; return the response."""
        async with await self.open() as client:
            length = [("content-length", str(len(body)))] if body else []
            await client.write(encode_head(f"{start} HTTP/1.1", [*client.host, *headers, *length]) + body)
            return await client.read_response()

    async def wait_for_records(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.recorder.finished) < count:  # noqa: ASYNC110 - the recorder has no event for it
                await asyncio.sleep(0.005)


class Client:
    """One connection to a relay."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.host = [("host", f"127.0.0.1:{port}")]
        self.reader, self.writer = reader, writer

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_response(self, *, is_head: bool = False) -> Message:
        response = await read_head(self.reader)
        assert response
        if not is_head and response.status not in (204, 304):
            await read_body(self.reader, response, until_end=True)
        return response


@asynccontextmanager
async def run_test_relay(
    *upstreams: Upstream,
    serve: ServeSettings = SERVE,
    recorder: MemoryRecorder | None = None,
    max_waiting: int = 500,
    budget: CopyBudget | None = None,
    max_kept_bytes: int = MAX_COPIED_BYTES,
    has_small_buffers: bool = False,
) -> AsyncIterator[RunningRelay]:
    notices: list[str] = []
    errors: list[BaseException] = []
    recorder = recorder or MemoryRecorder()
    clock = SystemClock()
    recordings = RelayRecording(
        recorder, clock=clock, new_id=random_id, max_body_bytes=serve.max_body_bytes, report=notices.append,
        report_error=errors.append, max_waiting=max_waiting, budget=budget, max_kept_bytes=max_kept_bytes,
    )  # fmt: skip
    relay = Relay(upstreams, serve, recordings, clock=clock, new_id=random_id, idle_s=10, report=notices.append)
    stop = asyncio.Event()
    with open_listening_socket("127.0.0.1", 0) as listening_socket:
        if has_small_buffers:
            shrink_buffers(listening_socket)
        port = listening_socket.getsockname()[1]
        task = asyncio.create_task(run_relay(relay, serve, listening_socket, stop, errors.append))
        try:
            yield RunningRelay(relay, recordings, recorder, port, notices, errors)
        finally:
            stop.set()
            await task
            await recordings.aclose()
    assert errors == []

"""Run the gateway on a socket with uvicorn: limits, timeouts, shutdown.

The HTTP protocol class limits the size and time of request headers and disconnects clients that do
not read. At shutdown no new work starts, running responses get the grace time, and the service
stores the state of unfinished ones.
"""

import asyncio
import logging
import os
import platform
import socket
import sys
from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from convo.config.settings import ServeSettings
from convo.config.trust import is_loopback
from convo.endpoints.base import EndpointService
from convo.errors import ConvoError, InvalidSettings
from convo.runtime import random_id
from convo.server import errors, http
from convo.server.app import ANY_ORIGIN, Gateway
from convo.server.http import CONNECTION_EXTENSION, ClientConnection
from convo.server.rate_limits import BodyBudget

LISTEN_BACKLOG = 2048

ACCEPT_BATCH = 8
"""Connections that one pass of the event loop accepts.

asyncio accepts as many as the backlog that it was given before the first of them is counted, and when there is no free
file descriptor it tries, and logs a traceback, as often.
"""

RESERVED_FILES = 64
"""File descriptors that are kept for the store, and for connections that are being accepted."""

MACOS_MAX_FILES = 10_240
"""The highest limit of open files that macOS accepts, whatever its hard limit is (OPEN_MAX)."""

MIN_CONNECTIONS = 8
FULL_NOTICE_S = 60.0
"""Seconds between two notices that there are too many connections."""

IDLE_TIMEOUT_S = 75
"""Seconds that an idle connection stays open: longer than clients keep theirs, so that the client closes it."""

WEBSOCKET_PING_S = 20.0
"""Interval of WebSocket pings, and timeout of their pongs, in seconds."""

THREAD_SWITCH_INTERVAL_S = 0.0005
"""Seconds after which the interpreter switches to another waiting thread.

The store's thread waits for the interpreter after each statement. With Python's default of 5 ms, a busy event loop
delays each of some twenty statements by that time, and every response waits for its commit.
"""

M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES = -3, 128 * 1024
"""The option of glibc's mallopt, and its initial value: larger blocks are returned to the system when freed.

Unless it is set, glibc raises it to the size of freed blocks, and keeps them: after ten bodies of 31 MB, a server kept
200 to 900 MB.
"""

DATE_REFRESH_S = 1.0
"""Maximum age of the Date header, in seconds."""

CLOSE_POLL_S = 0.005
"""Seconds between two checks at shutdown whether the last connection is closed."""

ACCEPT_PASSES = 3
"""Passes of the event loop after which an accepted socket is one of the server's connections; asyncio needs two."""

SHUTDOWN_NOTICE_S = 1.0
"""Seconds after which a shutdown that still runs is reported at the terminal."""


class GatewayServer(uvicorn.Server):
    """uvicorn's server, without its signal handlers; it stops as soon as nothing runs.

    uvicorn's own checks ten times a second whether to stop, and pauses before it does.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.end_requested = asyncio.Event()
        self._timeout_s: float | None = None

    def request_end(self, timeout_s: float | None = None) -> None:
        """Stop accepting connections, let running requests finish, and close.

        timeout_s:  seconds after which requests that still run are cancelled; None waits for them. Clients then have
                    `FINAL_SEND_TIMEOUT_S` to receive the rest before their connections are aborted
        """
        self._timeout_s = timeout_s
        self.should_exit = True
        self.end_requested.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening_socket in sockets or ():
            listening_socket.listen(LISTEN_BACKLOG)  # asyncio sets ACCEPT_BATCH, which is too short as a queue

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # updates the Date header of responses
            with suppress(TimeoutError):
                await asyncio.wait_for(self.end_requested.wait(), DATE_REFRESH_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listening sockets, then the connections. Running requests may finish before.

        asyncio needs several passes of its loop to accept a connection, and fails in between if its server is closed:
        the socket would stay open.
        """
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError):  # on Windows
            for listening_socket in sockets or ():
                loop.remove_reader(listening_socket)
        for _ in range(ACCEPT_PASSES):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        if await self._end_requests_within(self._timeout_s):
            return
        for task in self.server_state.tasks:
            task.cancel()
        if await self._end_requests_within(http.FINAL_SEND_TIMEOUT_S):
            return
        # A client that does not read would keep its cancelled request: it then ended after the store was closed.
        for connection in self.server_state.connections:
            connection.transport.abort()
        await self._wait_until_idle()  # cancelled requests still store their results

    async def _end_requests_within(self, timeout_s: float | None) -> bool:
        """Close each connection after its running request; return whether all connections and tasks ended in time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wait_until_idle(), None if timeout_s is None else max(timeout_s, CLOSE_POLL_S))
            return True
        return False

    async def _wait_until_idle(self) -> None:
        """Shut down each connection once, also later ones, and wait until no connection and no task is left."""
        closing: set[object] = set()
        while True:
            for connection in self.server_state.connections - closing:
                closing.add(connection)
                connection.shutdown()
            if not (self.server_state.connections or self.server_state.tasks):
                return
            await asyncio.sleep(CLOSE_POLL_S)


def open_listening_socket(host: str, port: int) -> socket.socket:
    """Open a socket that accepts connections from now on.

    The socket names its protocol, because asyncio disables Nagle's algorithm only for such sockets: otherwise
    a body is sent 40 ms after its headers.

    Raises InvalidSettings.
    """
    listening_socket = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    try:
        if os.name == "posix":  # on Windows it would let two servers use one port
            # A server that starts again can bind its port while connections of the last one are in TIME_WAIT.
            listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening_socket.bind((host.strip("[]"), port))
        listening_socket.listen(LISTEN_BACKLOG)
    except (OSError, TypeError, OverflowError) as error:  # TypeError: the name cannot be encoded
        listening_socket.close()
        reason = error.strerror if isinstance(error, OSError) else "it is not a host name"
        raise InvalidSettings(
            f"cannot listen on {host}, port {port}: {reason}", hint="choose another --port; 0 selects a free one"
        ) from error
    return listening_socket


def local_base_url(listening_socket: socket.socket) -> str:
    """Return the base URL for a client on this machine."""
    host, port = listening_socket.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def check_keys_required(serve: ServeSettings) -> None:
    """Raise InvalidSettings if other machines, or any web page, could send requests without a key."""
    if serve.keys_file is None and ANY_ORIGIN in serve.cors_origins:
        raise InvalidSettings(
            "serve.cors_origins allows every web page, and no API keys are set up",
            hint="name the origins, as in https://app.example, or set up keys: convo serve --new-key NAME --keys FILE",
        )
    if serve.keys_file is None and not is_loopback(serve.host):
        raise InvalidSettings(
            f"{serve.host} can be reached from other machines, and no API keys are set up",
            hint="convo serve --new-key NAME --keys FILE creates a key; then serve with --keys FILE",
        )


async def serve_until(
    server: GatewayServer, listening_socket: socket.socket, stop_event: asyncio.Event
) -> asyncio.Task[None]:
    """Serve until `stop_event` is set or the server ends; return the task of the server, which may still run."""
    serve_task = asyncio.create_task(server.serve([listening_socket]))
    stop_task = asyncio.create_task(stop_event.wait())
    await asyncio.wait({serve_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
    stop_task.cancel()
    return serve_task


async def run_gateway(
    gateway: Gateway, service: EndpointService, serve: ServeSettings, listening_socket: socket.socket,
    stop_event: asyncio.Event, report: Callable[[BaseException], None], report_delay: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Serve until `stop_event` is set, and then until the grace time is over. Closes the service.

    report:        called with unexpected exceptions
    report_delay:  called if the shutdown takes longer, because responses still run
    """
    prepare_process()
    server = GatewayServer(build_uvicorn_config(gateway, serve, gateway.body_budget))
    with report_unexpected_errors(report):
        gateway.start()
        serve_task = await serve_until(server, listening_socket, stop_event)
        gateway.begin_shutdown()
        # Before WebSockets are closed, which takes a part of the grace time.
        cancel_at = asyncio.get_running_loop().time() + serve.grace_s + http.FINAL_SEND_TIMEOUT_S
        delay_timer = asyncio.get_running_loop().call_later(SHUTDOWN_NOTICE_S, report_delay)
        # Beside the WebSockets and HTTP: one grace time counts for all of them, from the signal on.
        close_task = asyncio.create_task(_close_service(gateway, service, serve.grace_s))
        await gateway.sockets.aclose(serve.grace_s)
        server.request_end(max(0.0, cancel_at - asyncio.get_running_loop().time()))
        await close_task
        await serve_task
        await gateway.recording.aclose()
        await gateway.requests.aclose()
        delay_timer.cancel()


async def _close_service(gateway: Gateway, service: EndpointService, grace_s: float) -> None:
    """Wait for the requests that are passed through, then close the service and its connections to the providers."""
    loop = asyncio.get_running_loop()
    grace_end = loop.time() + grace_s
    await gateway.pass_through_tracker.aclose(grace_s)
    await service.aclose(max(0.0, grace_end - loop.time()))


def build_uvicorn_config(
    application: Callable[..., Any], serve: ServeSettings, body_budget: BodyBudget, *, date_header: bool = True
) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        http=make_http_protocol(serve, get_max_connections()),
        # asyncio accepts as many connections in one pass; with more it would overtake their count.
        backlog=ACCEPT_BATCH,
        ws=partial(make_websocket_protocol, serve.write_s, body_budget),  # type: ignore[arg-type]  # a factory works like the class
        ws_max_size=serve.max_body_bytes,
        ws_ping_interval=WEBSOCKET_PING_S,
        ws_ping_timeout=WEBSOCKET_PING_S,
        ws_per_message_deflate=False,
        # The gateway is started and closed by `run_gateway`, not by uvicorn.
        lifespan="off",
        # Errors go to `report_unexpected_errors`, access to the gateway's own log.
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=date_header,
        proxy_headers=False,
        timeout_keep_alive=IDLE_TIMEOUT_S,
    )


def prepare_process() -> None:
    """Configure the process of a server: thread switch interval, limit of open files, release of freed memory."""
    import ctypes

    sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
    with suppress(ImportError, ValueError, OSError):  # ImportError: on Windows
        import resource

        soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        # With more connections than file descriptors asyncio tried, and logged, each accept 2,048 times a second.
        limit = max(soft_limit, min(hard_limit, MACOS_MAX_FILES)) if platform.system() == "Darwin" else hard_limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))
    with suppress(AttributeError, OSError, TypeError):  # another C library; TypeError: on Windows
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)


def get_max_connections() -> int:
    """Return how many connections fit into the limit of open files, if each needs another one to a provider."""
    try:
        import resource
    except ImportError:  # on Windows, where sockets are no files
        return MACOS_MAX_FILES
    return max(MIN_CONNECTIONS, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED_FILES) // 2)


def make_websocket_protocol(write_s: float, body_budget: BodyBudget, **options: Any) -> asyncio.Protocol:
    """Create a connection's protocol; its module is imported with the first WebSocket."""
    from convo.server.websocket_protocol import BoundedWebSocketProtocol

    return BoundedWebSocketProtocol(write_s, body_budget, **options)


class _ErrorReporter(logging.Handler):
    """Reports the unexpected exceptions in uvicorn's log.

    A text of a WebSocket that is not UTF-8 is a client's error: uvicorn closes the connection with 1007.
    """

    def __init__(self, report: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception) and not isinstance(error, UnicodeDecodeError):
            self._report(error)


@contextmanager
def report_unexpected_errors(report: Callable[[BaseException], None]) -> Iterator[None]:
    """Discard uvicorn's own log, except for unexpected exceptions, until the last server of the process ends."""
    log, handler = logging.getLogger("uvicorn.error"), _ErrorReporter(report)
    log.propagate = False
    log.setLevel(logging.ERROR)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        # Several servers may run in one process.
        if not any(isinstance(other, _ErrorReporter) for other in log.handlers):
            log.propagate = True
            log.setLevel(logging.NOTSET)


MAX_BUFFERED_BYTES = 64 * 1024
"""Bytes after which the buffer is written at once."""

MAX_PIPELINED_REQUESTS = 8
"""Requests that are read before the response to an earlier one is complete."""

MAX_PIPELINED_BYTES = 1024 * 1024
"""Bytes of their bodies that are read before."""


class BufferedTransport:
    """A transport that joins consecutive writes: headers with a body, events with each other.

    A write to a socket costs more than the creation of an event. Data is written in the next pass of the event
    loop, or when the buffer is full.
    """

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._buffer: list[bytes] = []
        self._size_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._buffer:
            # An answer of nine events takes three writes, and a third less CPU.
            self._loop.call_soon(self.flush)
        self._buffer.append(data)
        self._size_bytes += len(data)
        if self._size_bytes > MAX_BUFFERED_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._buffer:
            data = b"".join(self._buffer)
            self._buffer.clear()
            self._size_bytes = 0
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class ConnectionLimit:
    """The limit of the open connections of one server.

    idle:  the connections without a request, the one that is idle longest first. A request begins after its headers
    """

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self.idle: dict[BoundedHttpProtocol, None] = {}
        self._reported_s = -FULL_NOTICE_S

    def should_report(self, now_s: float) -> bool:
        """Return whether a minute has passed since this was last true."""
        is_due = now_s - self._reported_s >= FULL_NOTICE_S
        self._reported_s = now_s if is_due else self._reported_s
        return is_due


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. `serve` limits the size and time of request headers, and disconnects clients that do not read.

    limit:  shared by all connections: one too many closes the one that is idle longest
    """

    serve: ClassVar[ServeSettings]
    limit: ClassVar[ConnectionLimit]

    _head_bytes = 0
    _head_timer: TimerHandle | None = None
    _write_timer: TimerHandle | None = None
    _in_head = True
    _fault: ConvoError | None = None
    _pipelined_bytes = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unanswered: list[tuple[RequestResponseCycle, ClientConnection]] = []

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(BufferedTransport(transport, self.loop))  # type: ignore[arg-type]  # it implements the interface without the base class
        self._start_head_timer()
        self.limit.idle[self] = None
        if len(self.connections) > self.limit.max_connections:
            next(iter(self.limit.idle)).close_idle()

    def close_idle(self) -> None:
        """Close this connection, because too many are open. A client that is not yet answered gets an error."""
        fault = errors.too_many_connections_error(self.limit.max_connections)
        if self.limit.should_report(self.loop.time()):
            self.logger.error(fault.message, exc_info=fault)
        self.limit.idle.pop(self)
        if self.cycle is None:
            self._send_error(fault)
        else:
            self.transport.close()

    def eof_received(self) -> None:
        self.transport.flush()  # type: ignore[attr-defined]  # data buffered so far is still sent
        self._notify_disconnect()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limit.idle.pop(self, None)
        self._stop_head_timer()
        self._stop_write_timer()
        self._notify_disconnect()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.serve.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._count_head_bytes(len(data))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes, self._in_head = 0, True
        self._start_head_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self.serve.max_header_bytes:
            self._fault = errors.headers_too_large_error(self.serve.max_header_bytes)
            raise ValueError(self._fault.message)  # ends the parsing; uvicorn then calls `send_400_response`

    def on_headers_complete(self) -> None:
        self._in_head = False
        self.limit.idle.pop(self, None)
        self._stop_head_timer()
        previous_cycle = self.cycle
        super().on_headers_complete()
        # uvicorn starts no request for an upgrade to a WebSocket.
        if self.cycle is previous_cycle:
            return
        connection = ClientConnection()
        self.scope["extensions"] = {CONNECTION_EXTENSION: connection}  # type: ignore[dict-item]  # typed for dicts only
        self._unanswered = [(cycle, client) for cycle, client in self._unanswered if not cycle.response_complete]
        self._unanswered.append((self.cycle, connection))
        self._resume_reading(0)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._resume_reading(len(body))

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._resume_reading(0)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self.limit.idle[self] = None

    def _resume_reading(self, size: int) -> None:
        """Continue reading after a whole request, within limits: only a socket that is read reports that it was closed.

        uvicorn stops reading while requests wait for the responses before them, and if a body is large.
        """
        if self.cycle is None:
            return
        self._pipelined_bytes = self._pipelined_bytes + size if self.pipeline else 0
        if len(self.pipeline) > MAX_PIPELINED_REQUESTS or self._pipelined_bytes > MAX_PIPELINED_BYTES:
            return
        if self.pipeline or not self.cycle.more_body:
            self.flow.resume_reading()

    def _notify_disconnect(self) -> None:
        """Notify every request without a response that its client disconnected."""
        for cycle, connection in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
                connection.close()
        self._unanswered.clear()

    def send_400_response(self, msg: str) -> None:
        self._send_error(self._fault or errors.invalid_http_error())

    def _count_head_bytes(self, size: int) -> None:
        """Count the bytes of incomplete headers."""
        self._head_bytes += size
        if self._head_bytes > 2 * self.serve.max_header_bytes:
            self._send_error(errors.headers_too_large_error(self.serve.max_header_bytes))

    def _start_head_timer(self) -> None:
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(self.serve.read_s, self._refuse_slow_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _refuse_slow_head(self) -> None:
        if not self.transport.is_closing():
            self._send_error(errors.request_timeout_error(self.serve.read_s))

    def _send_error(self, fault: ConvoError) -> None:
        """Send an error response without a request, and close."""
        request_id = b"x-request-id: %b\r\n" % random_id("req").encode()
        self.transport.write(STATUS_LINE[fault.status] + http.serialize_raw_error(fault, request_id))
        self.transport.close()


def make_http_protocol(serve: ServeSettings, max_connections: int) -> type[BoundedHttpProtocol]:
    """Return the protocol class of one server with these limits."""
    members = {"serve": serve, "limit": ConnectionLimit(max_connections)}
    return type("BoundedHttpProtocol", (BoundedHttpProtocol,), members)

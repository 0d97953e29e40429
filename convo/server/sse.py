"""Server-sent events: stream a response, or collect it into one JSON body.

Nothing is sent before the first event, so an early error keeps its HTTP status. Comments keep a
quiet stream alive. A client that disconnects cancels the response at once. Responses in progress
are tracked for the inspector.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from convo.endpoints.base import LIMIT_FIELD, error_event
from convo.errors import ConvoError
from convo.history.accumulator import STREAMED_TEXT_DIFFERS, TERMINAL_EVENTS
from convo.history.items import Json, StreamEvent
from convo.history.records import IGNORED_PARAMETER
from convo.server import errors, http
from convo.server.http import CLIENT_CLOSED_STATUS, ClientDisconnected, HttpExchange
from convo.stores.base import Store

SSE_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
"""The last two stop caches and proxies from buffering events."""

SSE_DONE = b"data: [DONE]\n\n"
SSE_KEEPALIVE_COMMENT = b": still here\n\n"


@dataclass(frozen=True, slots=True)
class EventsResult:
    """A response that consists of events.

    stream:                send each event; else only the final response
    is_first_event_final:  respond with the response of the first event
    may_be_empty:          there may be no events: all of them may have been sent before
    """

    events: AsyncGenerator[StreamEvent, None]
    stream: bool
    is_first_event_final: bool = False
    may_be_empty: bool = False


class StreamMetrics(Protocol):
    """Records metrics of streams."""

    def record_first_event(self, route: str, after_s: float) -> None: ...

    def record_response(self, response: Json) -> None: ...

    def add_open_streams(self, delta: int) -> None: ...


async def relay_events(
    exchange: HttpExchange, result: EventsResult, metrics: StreamMetrics, *, keepalive_s: float
) -> None:
    """Send the events or the response of `result`, until the client disconnects.

    Raises ConvoError if nothing has been sent yet.
    """
    if not result.stream:
        async with CancelOnDisconnect(exchange):
            last_event = await _collect_response(exchange, result, metrics)
            await exchange.send_json(last_event["response"], headers=exchange.record_limit(last_event))
        return
    writer = SSEWriter(exchange, metrics)
    metrics.add_open_streams(+1)
    try:
        async with CancelOnDisconnect(exchange, writer.write_keepalive, keepalive_s):
            await _write_events(result, writer)
    finally:
        metrics.add_open_streams(-1)


async def _collect_response(exchange: HttpExchange, result: EventsResult, metrics: StreamMetrics) -> StreamEvent:
    """Return the event with the final response. Raises ConvoError."""
    last_event: StreamEvent | None = None
    async with aclosing(result.events) as events:
        async for event in events:
            if last_event is None:
                metrics.record_first_event(exchange.route, exchange.duration_s)
                event = record_ignored_fields(event, exchange)
            last_event = event
            if result.is_first_event_final:
                break
    if last_event is None:
        raise errors.empty_stream_error()
    if last_event["type"] in TERMINAL_EVENTS:
        metrics.record_response(last_event["response"])
    return last_event


async def _write_events(result: EventsResult, writer: "SSEWriter") -> None:
    try:
        async with aclosing(result.events) as events:
            async for event in events:
                await writer.write_event(event)
    except ConvoError as fault:
        if not writer.is_started:
            raise
        await writer.write_error(fault)
    await writer.end(may_be_empty=result.may_be_empty)


class SSEWriter:
    """Writes a stream of server-sent events."""

    def __init__(self, exchange: HttpExchange, metrics: StreamMetrics) -> None:
        self._exchange, self._metrics = exchange, metrics
        self._next_sequence_number, self._is_quiet = 0, True
        self.is_started = False

    async def write_event(self, event: StreamEvent) -> None:
        if not self.is_started:
            event = record_ignored_fields(event, self._exchange)
            await self._start()
        if self._next_sequence_number == 0:
            self._metrics.record_first_event(self._exchange.route, self._exchange.duration_s)
        self._next_sequence_number, self._is_quiet = event["sequence_number"] + 1, False
        # An ASGI server discards what is sent after a disconnect, without an error.
        if self._exchange.connection.closed:
            raise ClientDisconnected
        is_last = event["type"] in TERMINAL_EVENTS
        if is_last:
            for name, limit in self._exchange.record_limit(event):
                # The headers are sent already; a comment is ignored by every client.
                await self._exchange.send_chunk(b": %b %b\n\n" % (name, limit))
            event = to_api_event(event)
        await self._exchange.send_chunk(encode_sse_event(event))
        if is_last:
            self._metrics.record_response(event["response"])

    async def write_error(self, fault: ConvoError) -> None:
        self._exchange.record_fault(fault)
        await self._exchange.send_chunk(encode_sse_event(error_event(fault, self._next_sequence_number)))

    async def write_keepalive(self) -> None:
        """Send a keepalive comment if nothing was sent since the last call."""
        if self._is_quiet:
            if not self.is_started:
                await self._start()
            await self._exchange.send_chunk(SSE_KEEPALIVE_COMMENT)
        self._is_quiet = True

    async def end(self, *, may_be_empty: bool) -> None:
        """End the stream. Raises StreamBroken if nothing was sent, unless `may_be_empty`."""
        if not (self.is_started or may_be_empty):
            raise errors.empty_stream_error()
        if not self.is_started:
            await self._start()
        await self._exchange.send_chunk(SSE_DONE, more_body=False)

    async def _start(self) -> None:
        self.is_started = True
        await self._exchange.start_response(200, SSE_HEADERS)


def to_api_event(event: StreamEvent) -> StreamEvent:
    """Remove the fields of `event` that are not in the API: the limit that ended it, and that its text differs."""
    has_own_fields = LIMIT_FIELD in event or STREAMED_TEXT_DIFFERS in event
    return (
        {name: value for name, value in event.items() if name not in (LIMIT_FIELD, STREAMED_TEXT_DIFFERS)}
        if has_own_fields
        else event
    )


def encode_sse_event(event: StreamEvent) -> bytes:
    return f"event: {event['type']}\ndata: {http.JSON_ENCODER.encode(event)}\n\n".encode()


def record_ignored_fields(event: StreamEvent, exchange: HttpExchange) -> StreamEvent:
    """Move the ignored fields of a response's first event to a header, as far as they fit."""
    names, size = [], 0
    for name in event.get(IGNORED_PARAMETER) or ():
        header_name = "".join(char for char in str(name) if char.isascii() and char.isprintable() and char != ",")
        size += len(header_name) + 2
        if header_name and size <= MAX_IGNORED_HEADER_BYTES:
            names.append(header_name)
    exchange.ignored_fields = tuple(names)
    return {name: value for name, value in event.items() if name != IGNORED_PARAMETER}


MAX_IGNORED_HEADER_BYTES = 2048


class CancelOnDisconnect:
    """Cancels its block when the client disconnects, and suppresses that cancellation.

    send_keepalive:  called every `interval_s` seconds while the block runs
    """

    def __init__(
        self,
        exchange: HttpExchange,
        send_keepalive: Callable[[], Awaitable[None]] | None = None,
        interval_s: float | None = None,
    ) -> None:
        self._exchange, self._send_keepalive, self._interval_s = exchange, send_keepalive, interval_s
        self._is_disconnected = False
        self._keepalive_timer: asyncio.TimerHandle | None = None
        self._keepalive_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._block = asyncio.current_task()
        self._exchange.connection.set_close_callback(self._cancel)
        if self._send_keepalive and self._interval_s:
            self._keepalive_timer = asyncio.get_running_loop().call_later(self._interval_s, self._start_keepalive)

    def _start_keepalive(self) -> None:
        self._keepalive_task = asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        assert self._send_keepalive is not None
        assert self._interval_s is not None
        while True:
            await self._send_keepalive()
            await asyncio.sleep(self._interval_s)

    def _cancel(self) -> None:
        assert self._block
        self._is_disconnected = True
        self._block.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._exchange.connection.set_close_callback(None)
        if self._keepalive_timer:
            self._keepalive_timer.cancel()
        if self._keepalive_task:
            self._keepalive_task.cancel()
        if not self._is_disconnected:
            return False
        assert self._block
        if kind is not asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # receive a cancellation that arrived after the end of the block
        if kind in (asyncio.CancelledError, ClientDisconnected):
            self._exchange.status = self._exchange.status or CLIENT_CLOSED_STATUS
        # Only this object's own cancellation is suppressed, not one of the server's shutdown.
        remaining = self._block.uncancel()
        return kind is ClientDisconnected or (kind is asyncio.CancelledError and remaining == 0)


CHANGE_POLL_S = 0.25
"""Seconds between two checks of the store for changes of other processes."""


class StoreChanges:
    """Notifies followers of writes to a store by any process. One task reads its version for all of them together.

    version:  the version of the store; None before the first read
    """

    def __init__(self) -> None:
        self.version: str | None = None
        self._follower_count = 0
        self._task: asyncio.Task[None] | None = None
        self._change: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def follow(self, store: Store) -> AsyncIterator[Self]:
        """Read the version of `store` regularly during the block."""
        self._follower_count += 1
        if self._task is None or self._task.done():  # the first follower, or the store failed
            self.version, self._task = None, asyncio.create_task(self._poll(store))
        try:
            yield self
        finally:
            self._follower_count -= 1
            if not self._follower_count and (task := self._task):
                self._task = None
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def next_changes(self) -> list[asyncio.Future[None]]:
        """Return futures of which one is done when the version changes. Raises StoreFault if it cannot be read."""
        assert self._task is not None
        if self.version is None:
            await asyncio.wait({self._task, self._next_change()}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()
        return [self._task, self._next_change()]

    def _next_change(self) -> asyncio.Future[None]:
        if self._change is None or self._change.done():
            self._change = asyncio.get_running_loop().create_future()
        return self._change

    async def _poll(self, store: Store) -> None:
        while True:
            version = await store.data_version()
            if version != self.version:
                self.version = version
                if self._change is not None and not self._change.done():
                    self._change.set_result(None)
            await asyncio.sleep(CHANGE_POLL_S)

"""Server-sent events: stream a response, or collect it into one JSON body.

Nothing is sent before the first event, so an early error keeps its HTTP status. Comments keep a
quiet stream alive. A client that disconnects cancels the response at once. Responses in progress
are tracked for the inspector.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from convo.endpoints.base import LIMIT_FIELD, error_event
from convo.errors import ConvoError
from convo.history.accumulator import START_EVENTS, STREAMED_TEXT_DIFFERS, ResponseAccumulator
from convo.history.items import Json, StreamEvent, item_text
from convo.history.records import IGNORED_PARAMETER
from convo.server import errors, http
from convo.server.http import CLIENT_CLOSED_STATUS, ClientDisconnected, HttpExchange

SSE_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
"""The last two stop caches and proxies from buffering events."""

SSE_DONE = b"data: [DONE]\n\n"
SSE_KEEPALIVE_COMMENT = b": still here\n\n"
SENT_TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})


@dataclass(frozen=True, slots=True)
class EventsResult:
    """A response that consists of events.

    stream:                send each event; else only the final response
    is_first_event_final:  respond with the response of the first event
    may_be_empty:          there may be no events: all of them may have been sent before
    """

    events: AsyncGenerator[StreamEvent, None]
    streamed: bool
    early: bool = False
    maybe: bool = False


class StreamMetrics(Protocol):
    """Records metrics of streams."""

    def first_event(self, route: str, after_s: float) -> None: ...

    def ended(self, response: Json) -> None: ...

    def stream(self, change: int) -> None: ...


async def relay_events(
    exchange: HttpExchange, answering: EventsResult, noticing: StreamMetrics, *, keepalive_s: float
) -> None:
    """Send the events or the response of `result`, until the client disconnects.

    Raises ConvoError if nothing has been sent yet.
    """
    if not answering.streamed:
        async with CancelOnDisconnect(exchange):
            last = await _collect_response(exchange, answering, noticing)
            await exchange.answer(last["response"], headers=exchange.reached(last))
        return
    told = SSEWriter(exchange, noticing)
    noticing.stream(+1)
    try:
        async with CancelOnDisconnect(exchange, told.quiet, keepalive_s):
            await _write_events(answering, told)
    finally:
        noticing.stream(-1)


async def _collect_response(exchange: HttpExchange, answering: EventsResult, noticing: StreamMetrics) -> StreamEvent:
    """Return the event with the final response. Raises ConvoError."""
    last: StreamEvent | None = None
    async with aclosing(answering.events) as events:
        async for event in events:
            if last is None:
                noticing.first_event(exchange.route, exchange.took_s)
                event = record_ignored_fields(event, exchange)
            last = event
            if answering.early:
                break
    if last is None:
        raise errors.empty_stream_error()
    if last["type"] in SENT_TERMINAL_EVENTS:
        noticing.ended(last["response"])
    return last


async def _write_events(answering: EventsResult, told: "SSEWriter") -> None:
    try:
        async with aclosing(answering.events) as events:
            async for event in events:
                await told.event(event)
    except ConvoError as fault:
        if not told.begun:
            raise
        await told.fault(fault)
    await told.end(maybe=answering.maybe)


class SSEWriter:
    """Writes a stream of server-sent events."""

    def __init__(self, exchange: HttpExchange, noticing: StreamMetrics) -> None:
        self._exchange, self._noticing = exchange, noticing
        self._next, self._quiet = 0, True
        self.begun = False

    async def event(self, event: StreamEvent) -> None:
        if not self.begun:
            event = record_ignored_fields(event, self._exchange)
            await self._begin()
        if self._next == 0:
            self._noticing.first_event(self._exchange.route, self._exchange.took_s)
        self._next, self._quiet = event["sequence_number"] + 1, False
        if self._exchange.connection.closed:
            raise ClientDisconnected
        for name, limit in self._exchange.reached(event):
            await self._exchange.piece(b": %b %b\n\n" % (name, limit))
        event = to_api_event(event)
        await self._exchange.piece(encode_sse_event(event))
        if event["type"] in SENT_TERMINAL_EVENTS:
            self._noticing.ended(event["response"])

    async def fault(self, fault: ConvoError) -> None:
        await self._exchange.piece(encode_sse_event(error_event(fault, self._next)))

    async def quiet(self) -> None:
        """Send a keepalive comment if nothing was sent since the last call."""
        if self._quiet:
            if not self.begun:
                await self._begin()
            await self._exchange.piece(SSE_KEEPALIVE_COMMENT)
        self._quiet = True

    async def end(self, *, maybe: bool) -> None:
        """End the stream. Raises StreamBroken if nothing was sent, unless `may_be_empty`."""
        if not (self.begun or maybe):
            raise errors.empty_stream_error()
        if not self.begun:
            await self._begin()
        await self._exchange.piece(SSE_DONE, more=False)

    async def _begin(self) -> None:
        self.begun = True
        await self._exchange.begin(200, SSE_HEADERS)


def to_api_event(event: StreamEvent) -> StreamEvent:
    """Remove the fields of `event` that are not in the API: the limit that ended it, and that its text differs."""
    ours = LIMIT_FIELD in event or STREAMED_TEXT_DIFFERS in event
    return (
        {name: value for name, value in event.items() if name not in (LIMIT_FIELD, STREAMED_TEXT_DIFFERS)}
        if ours
        else event
    )


def encode_sse_event(event: StreamEvent) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), http.serialize_strict_json(event))


def record_ignored_fields(event: StreamEvent, exchange: HttpExchange) -> StreamEvent:
    """Move the ignored fields of an answer's first event to a header, as far as they fit."""
    names, size = [], 0
    for name in event.get(IGNORED_PARAMETER) or ():
        shown = "".join(one for one in str(name) if one.isascii() and one.isprintable() and one != ",")
        size += len(shown) + 2
        if shown and size <= MAX_IGNORED_HEADER_BYTES:
            names.append(shown)
    exchange.ignored = tuple(names)
    return {name: value for name, value in event.items() if name != IGNORED_PARAMETER}


MAX_IGNORED_HEADER_BYTES = 2048


class CancelOnDisconnect:
    """Cancels its block when the client disconnects, and suppresses that cancellation.

    send_keepalive:  called every `interval_s` seconds while the block runs
    """

    def __init__(
        self, exchange: HttpExchange, quiet: Callable[[], Awaitable[None]] | None = None, every_s: float | None = None
    ) -> None:
        self._exchange, self._quiet, self._every_s = exchange, quiet, every_s
        self._gone = False
        self._begins: asyncio.TimerHandle | None = None
        self._keeping_alive: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._block = asyncio.current_task()
        self._exchange.connection.on_close(self._cancel)
        if self._quiet and self._every_s:
            self._begins = asyncio.get_running_loop().call_later(self._every_s, self._begin)

    def _begin(self) -> None:
        self._keeping_alive = asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        assert self._quiet is not None
        assert self._every_s is not None
        while True:
            await self._quiet()
            await asyncio.sleep(self._every_s)

    def _cancel(self) -> None:
        assert self._block
        self._gone = True
        self._block.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._exchange.connection.on_close(None)
        if self._begins:
            self._begins.cancel()
        if self._keeping_alive:
            self._keeping_alive.cancel()
        if not self._gone:
            return False
        assert self._block
        if kind is not asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # receive a cancellation that arrived after the end of the block
        if kind in (asyncio.CancelledError, ClientDisconnected):
            self._exchange.status = self._exchange.status or CLIENT_CLOSED_STATUS
        left = self._block.uncancel()
        return kind is ClientDisconnected or (kind is asyncio.CancelledError and left == 0)


@dataclass
class LiveResponse:
    """One response in progress."""

    response: Mapping[str, Json]
    partial: ResponseAccumulator = field(default_factory=ResponseAccumulator)

    def goes_on_from(self, link_ids: frozenset[str], conversation_id: str | None) -> bool:
        """Whether it continues one of these links, or this conversation."""
        conversation = (self.response.get("conversation") or {}).get("id")
        if conversation is not None:
            return bool(conversation == conversation_id)
        return self.response.get("previous_response_id") in link_ids

    def as_json(self) -> dict[str, Json]:
        return {
            "response_id": self.response["id"],
            "status": "in_progress",
            "model": self.response.get("model"),
            "text": join_output_text(self.partial),
        }


class LiveResponses:
    """The responses in progress of all tenants."""

    def __init__(self) -> None:
        self._heard: dict[str, dict[str, LiveResponse]] = {}

    def of(self, tenant: str) -> list[LiveResponse]:
        """Return a tenant's responses in progress, oldest first."""
        return list(self._heard.get(tenant, {}).values())

    async def told(self, tenant: str, events: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent, None]:
        """Yield `events` and track their response while it is in progress."""
        heard: LiveResponse | None = None
        try:
            async with aclosing(events):
                async for event in events:
                    if heard is not None:
                        heard.partial.take(event)
                    elif event["type"] in START_EVENTS and event["response"].get("store") is not False:
                        heard = LiveResponse(event["response"])
                        self._heard.setdefault(tenant, {})[heard.response["id"]] = heard
                    yield event
        finally:
            if heard is not None:
                self._forget(tenant, heard)

    def _forget(self, tenant: str, heard: LiveResponse) -> None:
        theirs = self._heard[tenant]
        del theirs[heard.response["id"]]
        if not theirs:
            del self._heard[tenant]


def join_output_text(partial: ResponseAccumulator) -> str:
    """Join the text of all output items so far."""
    return "\n".join(filter(None, (item_text(item) for item in partial.output)))

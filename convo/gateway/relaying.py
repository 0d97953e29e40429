"""The events of an answer, passed on as they come.

There is one loop. Who asked for a stream gets each event as a server-sent event; who did not gets
the response of the last one as JSON (of the first one, when it is carried out in the background).

Until the first event nothing is sent, so that what goes wrong is a plain HTTP error with its
status. A stream that stays quiet for long is kept alive by comments, from before its first event
as well: an error after one is sent as an event. When the client disconnects, the loop is
cancelled at once and closes the endpoint's generator. An event counts as sent when it was handed to
the connection before the server saw it close.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from convo.endpoints.contract import LIMIT
from convo.endpoints.errors import error_event
from convo.errors import ConvoError
from convo.gateway import documents, refusals
from convo.gateway.exchange import CLIENT_GONE, ClientGone, Exchange
from convo.history import IGNORED
from convo.items import Event, Json
from convo.items.partial import STREAMED

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
"""The last two keep caches and proxies from holding events back."""

DONE = b"data: [DONE]\n\n"
COMMENT = b": still here\n\n"
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer that comes as events.

    streamed:  pass each of them on; else the response alone
    early:     the response of the first event is the answer
    maybe:     there need not be any event: everything may have been told before
    """

    events: AsyncGenerator[Event, None]
    streamed: bool
    early: bool = False
    maybe: bool = False


class Noticing(Protocol):
    """Whoever keeps count of what passes."""

    def first_event(self, route: str, after_s: float) -> None: ...

    def ended(self, response: Json) -> None: ...

    def stream(self, change: int) -> None: ...


async def relay(exchange: Exchange, answering: Answering, noticing: Noticing, *, keepalive_s: float) -> None:
    """Answer with `answering`, as long as the client is there.

    raises:  ConvoError  nothing has been sent yet
    """
    if not answering.streamed:
        async with Watch(exchange):
            last = await _collected(exchange, answering, noticing)
            await exchange.answer(last["response"], headers=exchange.reached(last))
        return
    told = Told(exchange, noticing)
    noticing.stream(+1)
    try:
        async with Watch(exchange, told.quiet, keepalive_s):
            await _passed_on(answering, told)
    finally:
        noticing.stream(-1)


async def _collected(exchange: Exchange, answering: Answering, noticing: Noticing) -> Event:
    """The event whose response answers. raises: ConvoError"""
    last: Event | None = None
    async with aclosing(answering.events) as events:
        async for event in events:
            if last is None:
                noticing.first_event(exchange.route, exchange.took_s)
                event = reported(event, exchange)
            last = event
            if answering.early:
                break
    if last is None:
        raise refusals.no_answer()
    if last["type"] in TERMINAL:
        noticing.ended(last["response"])
    return last


async def _passed_on(answering: Answering, told: "Told") -> None:
    try:
        async with aclosing(answering.events) as events:
            async for event in events:
                await told.event(event)
    except ConvoError as fault:
        if not told.begun:
            raise
        await told.fault(fault)
    await told.end(maybe=answering.maybe)


class Told:
    """A stream of server-sent events, as far as it has been written."""

    def __init__(self, exchange: Exchange, noticing: Noticing) -> None:
        self._exchange, self._noticing = exchange, noticing
        self._next, self._quiet = 0, True
        self.begun = False

    async def event(self, event: Event) -> None:
        if not self.begun:
            event = reported(event, self._exchange)
            await self._begin()
        if self._next == 0:
            self._noticing.first_event(self._exchange.route, self._exchange.took_s)
        self._next, self._quiet = event["sequence_number"] + 1, False
        if self._exchange.connection.closed:
            raise ClientGone
        for name, limit in self._exchange.reached(event):
            await self._exchange.piece(b": %b %b\n\n" % (name, limit))
        event = as_the_api_has_it(event)
        await self._exchange.piece(encoded(event))
        if event["type"] in TERMINAL:
            self._noticing.ended(event["response"])

    async def fault(self, fault: ConvoError) -> None:
        await self._exchange.piece(encoded(error_event(fault, self._next)))

    async def quiet(self) -> None:
        """Say that there is nothing to say, if nothing was said since the last time."""
        if self._quiet:
            if not self.begun:
                await self._begin()
            await self._exchange.piece(COMMENT)
        self._quiet = True

    async def end(self, *, maybe: bool) -> None:
        """raises: StreamBroken  nothing was told, and something had to be"""
        if not (self.begun or maybe):
            raise refusals.no_answer()
        if not self.begun:
            await self._begin()
        await self._exchange.piece(DONE, more=False)

    async def _begin(self) -> None:
        self.begun = True
        await self._exchange.begin(200, HEADERS)


def as_the_api_has_it(event: Event) -> Event:
    """`event` as the API has it: the limit that ended it is no field of it, nor is that its streamed text differs."""
    ours = LIMIT in event or STREAMED in event
    return {name: value for name, value in event.items() if name not in (LIMIT, STREAMED)} if ours else event


def encoded(event: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), documents.write(event))


def reported(event: Event, exchange: Exchange) -> Event:
    """The first event of an answer; the ignored fields that it names become a header, as far as it has room."""
    names, size = [], 0
    for name in event.get(IGNORED) or ():
        shown = "".join(one for one in str(name) if one.isascii() and one.isprintable() and one != ",")
        size += len(shown) + 2
        if shown and size <= LONGEST_HEADER:
            names.append(shown)
    exchange.ignored = tuple(names)
    return {name: value for name, value in event.items() if name != IGNORED}


LONGEST_HEADER = 2048


class Watch:
    """Cancels its block when the client disconnects, and suppresses that cancellation.

    quiet:   called every `every_s` seconds while the block runs
    """

    def __init__(
        self, exchange: Exchange, quiet: Callable[[], Awaitable[None]] | None = None, every_s: float | None = None
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
                await asyncio.sleep(0)  # a cancellation that came too late to break the block off
        if kind in (asyncio.CancelledError, ClientGone):
            self._exchange.status = self._exchange.status or CLIENT_GONE
        left = self._block.uncancel()
        return kind is ClientGone or (kind is asyncio.CancelledError and left == 0)

"""The events of an answer, passed on as they come.

There is one loop. Who asked for a stream gets each event as a server-sent event; who did not gets
the response of the last one as JSON (of the first one, when it is carried out in the background).

Until the first event nothing is sent, so that what goes wrong is a plain HTTP error with its
status. A stream that stays quiet for long is kept alive by comments, from before its first event
as well: what goes wrong after one is told as an event. While the loop waits for the model, it
watches the client; once that has gone the loop ends and closes the endpoint's generator.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from convo.endpoints.errors import error_event
from convo.errors import ConvoError
from convo.gateway import documents, refusals
from convo.gateway.exchange import CLIENT_GONE, Exchange
from convo.items import Event, Json

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
"""The last two keep caches and proxies from holding events back."""

DONE = b"data: [DONE]\n\n"
COMMENT = b": still here\n\n"
UNWATCHED_S = 0.02
"""Most answers take less, and to watch for a client costs as much as to send it one."""

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
            response = await _collected(exchange, answering, noticing)
            await exchange.answer(response)
        return
    told = Told(exchange, noticing)
    noticing.stream(+1)
    try:
        async with Watch(exchange, told.quiet, keepalive_s):
            await _passed_on(answering, told)
    finally:
        noticing.stream(-1)


async def _collected(exchange: Exchange, answering: Answering, noticing: Noticing) -> Json:
    """The response that answers. raises: ConvoError"""
    last: Event | None = None
    async with aclosing(answering.events) as events:
        async for event in events:
            if last is None:
                noticing.first_event(exchange.route, exchange.took_s)
            last = event
            if answering.early:
                break
    if last is None:
        raise refusals.no_answer()
    if last["type"] in TERMINAL:
        noticing.ended(last["response"])
    return last["response"]


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
            await self._begin()
        if self._next == 0:
            self._noticing.first_event(self._exchange.route, self._exchange.took_s)
        self._next, self._quiet = event["sequence_number"] + 1, False
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


def encoded(event: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), documents.write(event))


class Watch:
    """Breaks its block off once the client has gone away, and says nothing more about it.

    quiet:   called every `every_s` seconds while the block runs
    """

    def __init__(
        self, exchange: Exchange, quiet: Callable[[], Awaitable[None]] | None = None, every_s: float | None = None
    ) -> None:
        self._exchange, self._quiet, self._every_s = exchange, quiet, every_s
        self._gone = False

    async def __aenter__(self) -> None:
        self._block = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._begins = asyncio.get_running_loop().call_later(UNWATCHED_S, self._begin)

    def _begin(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._begins.cancel()
        if self._watching:
            self._watching.cancel()
        if not (self._gone and kind is asyncio.CancelledError):
            return False
        assert self._block
        self._exchange.status = self._exchange.status or CLIENT_GONE
        return self._block.uncancel() == 0

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    message = await self._exchange.receive()
            except TimeoutError:
                assert self._quiet
                await self._quiet()
                continue
            if message["type"] == "http.disconnect":
                self._gone = True
                assert self._block
                self._block.cancel()
                return

"""The events of an answer, passed on as they come.

There is one loop. Who asked for a stream gets each event as a server-sent event; who did not gets
the response of the last one as JSON (of the first one, when it is carried out in the background).

Until the first event nothing is sent, so that what goes wrong is a plain HTTP error with its
status. A stream that stays quiet for long is kept alive by comments, from before its first event
as well: what goes wrong after one is told as an event. While the loop waits for the model, it
watches the client; once that has gone the loop ends and closes the endpoint's generator.
"""

import asyncio
from collections.abc import AsyncGenerator
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
MOST_WAITING = 64 * 1024
"""Bytes that may wait to be written before nothing more is read from the endpoint."""

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer that comes as events.

    streamed:  pass each of them on; else the response alone
    early:     the response of the first event is the answer
    """

    events: AsyncGenerator[Event, None]
    streamed: bool
    early: bool = False


class Noticing(Protocol):
    """Whoever keeps count of what passes."""

    def first_event(self, route: str, after_s: float) -> None: ...

    def ended(self, response: Json) -> None: ...

    def stream(self, change: int) -> None: ...


async def relay(exchange: Exchange, answering: Answering, noticing: Noticing, *, keepalive_s: float) -> None:
    """Answer with `answering`, as long as the client is there.

    raises:  ConvoError  nothing has been sent yet
    """
    async with Watch(exchange):
        if answering.streamed:
            await _streamed(exchange, answering.events, noticing, keepalive_s)
        else:
            await exchange.answer(await _collected(exchange, answering, noticing))


async def _streamed(
    exchange: Exchange, events: AsyncGenerator[Event, None], noticing: Noticing, keepalive_s: float
) -> None:
    told = Told(exchange, noticing, keepalive_s)
    writing = asyncio.create_task(told.write())
    noticing.stream(+1)
    try:
        await _passed_on(events, told)
        await writing
    finally:
        noticing.stream(-1)
        writing.cancel()


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


async def _passed_on(answer: AsyncGenerator[Event, None], told: "Told") -> None:
    try:
        async with aclosing(answer) as events:
            async for event in events:
                await told.event(event)
    except ConvoError as fault:
        if not told.begun:
            raise
        await told.fault(fault)
    told.end()


class Told:
    """A stream of server-sent events. What comes at once is written at once: a write costs more than an event."""

    def __init__(self, exchange: Exchange, noticing: Noticing, keepalive_s: float) -> None:
        self._exchange, self._noticing, self._keepalive_s = exchange, noticing, keepalive_s
        self._next, self._ended, self._headed = 0, False, False
        self._pieces: list[bytes] = []
        self._size = 0
        self._changed, self._room = asyncio.Event(), asyncio.Event()

    @property
    def begun(self) -> bool:
        """Whether there is a status already, or an event that needs one."""
        return self._headed or bool(self._pieces)

    async def event(self, event: Event) -> None:
        if self._next == 0:
            self._noticing.first_event(self._exchange.route, self._exchange.took_s)
        self._next = event["sequence_number"] + 1
        if event["type"] in TERMINAL:
            self._noticing.ended(event["response"])
        await self._add(encoded(event))

    async def fault(self, fault: ConvoError) -> None:
        await self._add(encoded(error_event(fault, self._next)))

    def end(self) -> None:
        """raises: StreamBroken  nothing was said"""
        if not self.begun:
            raise refusals.no_answer()
        self._pieces.append(DONE)
        self._ended = True
        self._changed.set()

    async def write(self) -> None:
        """Write what was told, until its end; after some time of quiet, that there is nothing to say."""
        while not self._ended or self._pieces:
            try:
                async with asyncio.timeout(self._keepalive_s):
                    await self._changed.wait()
            except TimeoutError:
                self._pieces.append(COMMENT)
            await self._flush()

    async def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        self._changed.set()
        if self._size > MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    async def _flush(self) -> None:
        if not self._headed:
            self._headed = True
            await self._exchange.begin(200, HEADERS)
        written = b"".join(self._pieces)
        self._pieces.clear()
        self._changed.clear()
        self._size = 0
        self._room.set()
        await self._exchange.piece(written, more=not self._ended)


def encoded(event: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), documents.write(event))


class Watch:
    """Breaks its block off once the client has gone away, and says nothing more about it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._gone = exchange, False

    async def __aenter__(self) -> None:
        self._block = asyncio.current_task()
        self._watching = asyncio.create_task(self._watch())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._watching.cancel()
        if not (self._gone and kind is asyncio.CancelledError):
            return False
        assert self._block
        self._exchange.status = self._exchange.status or CLIENT_GONE
        return self._block.uncancel() == 0

    async def _watch(self) -> None:
        while (await self._exchange.receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        assert self._block
        self._block.cancel()

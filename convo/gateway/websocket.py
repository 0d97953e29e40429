"""Responses over a WebSocket: one client, one turn at a time.

    read      always, also while a turn runs: a ping has to be answered, a client that left to be seen.
              A turn that comes while another one runs waits; too many that wait are refused
    turn      the oldest one that waits, event by event
    end       the client left, the connection is too old, or the server stops

What ends a connection lets the running turn come to its end and begins no other one. A client that
left does not lose its turn: an answer that is stored is finished without a reader. One that is not
is stopped, for nobody could ever read it.

Compression is left off: the events are small, the openai package's client asks for none, and
zlib would cost every event time and every connection memory.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convo.clock import Clock
from convo.endpoints.contract import Connection, Endpoint
from convo.errors import ConvoError, Refused
from convo.gateway import websocket_messages as messages
from convo.gateway.websocket_messages import STEER, Create
from convo.items import Event, Json

if TYPE_CHECKING:
    from starlette.websockets import WebSocket


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long and how much.

    age_s:    after so many seconds a connection ends
    send_s:   a client that takes nothing for so many seconds is gone
    waiting:  turns that may wait behind the running one
    lanes:    names of lanes on one connection
    """

    age_s: float = 60 * 60
    send_s: float = 60
    waiting: int = 16
    lanes: int = 32


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a connection ends: `code` of the WebSocket protocol, None when the client left."""

    code: int | None
    reason: str = ""
    fault: Refused | None = None


GONE = Ending(None)
STOPPING = Ending(1012, "the server is stopping")


class Sockets:
    """All open connections, so that a server that stops can end them."""

    def __init__(self) -> None:
        self._open: set[Socket] = set()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def holding(self, socket: "Socket") -> AsyncIterator[None]:
        self._open.add(socket)
        if self._stopping:
            socket.end(STOPPING)
        try:
            yield
        finally:
            self._open.discard(socket)

    def stop(self) -> None:
        """Every connection ends after its running turn, and so does one that comes from now on."""
        self._stopping = True
        for socket in self._open:
            socket.end(STOPPING)


class Socket:
    """One connection that was accepted.

    read:  makes JSON of a message within the limits of a body, or raises ConvoError
    """

    def __init__(
        self, websocket: "WebSocket", endpoint: Endpoint, clock: Clock, bounds: Bounds, read: Callable[[bytes], Json]
    ) -> None:
        self._websocket, self._endpoint, self._clock = websocket, endpoint, clock
        self._bounds, self._read = bounds, read
        self._chains: dict[str | None, Connection] = {}
        self._waiting: deque[Create] = deque()
        self._changed = asyncio.Event()
        self._ending: Ending | None = None

    def end(self, ending: Ending) -> None:
        """Begin no further turn. The first reason stays, unless the client leaves meanwhile."""
        if self._ending is None or ending is GONE:
            self._ending = ending
        self._changed.set()

    async def serve(self) -> None:
        """Turn after turn, until the connection ends."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._listen()), group.create_task(self._grow_old())]
            while turn := await self._next():
                await self._carry_out(turn)
            await self._say_goodbye()
            for task in beside:
                task.cancel()

    async def _next(self) -> Create | None:
        """The turn that waited longest; None when the connection ends."""
        while self._ending is None:
            if self._waiting:
                return self._waiting.popleft()
            self._changed.clear()
            await self._changed.wait()
        return None

    async def _carry_out(self, turn: Create) -> None:
        number = 0
        chain = self._chains.get(turn.lane) or self._endpoint.connect()
        self._chains[turn.lane] = chain
        try:
            async with aclosing(chain.create(turn.body)) as events:
                async for event in events:
                    number = event["sequence_number"] + 1
                    if not await self._send(messages.labelled(event, turn.lane)) and not turn.kept:
                        return
        except ConvoError as fault:
            await self._send(messages.error_message(fault, number, turn.lane))

    # -- beside the turns -------------------------------------------------------------------------

    async def _listen(self) -> None:
        while (message := await self._websocket.receive())["type"] == "websocket.receive":
            await self._take(message)
        self.end(GONE)

    async def _grow_old(self) -> None:
        await self._clock.sleep(self._bounds.age_s)
        fault = messages.too_old(self._bounds.age_s)
        self.end(Ending(1001, fault.code, fault))

    async def _take(self, message: Mapping[str, Any]) -> None:
        """Let a turn wait, or answer what is none."""
        lane = None
        try:
            asked = self._message(message.get("text"))
            lane = messages.lane_of(asked)
            if asked.get("type") == STEER:
                await self._send(messages.steering_failed(asked))
                return
            self._queue(messages.turn(asked))
        except ConvoError as fault:
            await self._send(messages.error_message(fault, 0, lane))

    def _message(self, text: str | None) -> Mapping[str, Json]:
        if text is None:
            raise messages.text_only()
        asked = self._read(text.encode())
        if not isinstance(asked, Mapping):
            raise messages.not_an_object()
        return asked

    def _queue(self, turn: Create) -> None:
        """raises: Refused  too many wait, or too many lanes are named"""
        if len(self._waiting) >= self._bounds.waiting:
            raise messages.too_many_waiting(self._bounds.waiting)
        lanes = {*self._chains, *(waiting.lane for waiting in self._waiting), turn.lane} - {None}
        if len(lanes) > self._bounds.lanes:
            raise messages.too_many_lanes(self._bounds.lanes)
        self._waiting.append(turn)
        self._changed.set()

    # -- to the client ----------------------------------------------------------------------------

    async def _send(self, event: Event) -> bool:
        """Whether the client is still there to take it."""
        return await self._tell({"type": "websocket.send", "text": json.dumps(event, separators=(",", ":"))})

    async def _say_goodbye(self) -> None:
        ending = self._ending
        if ending is not None and ending.fault is not None:
            await self._send(messages.error_message(ending.fault, 0, None))
        if ending is not None and ending.code is not None:
            await self._tell({"type": "websocket.close", "code": ending.code, "reason": ending.reason})

    async def _tell(self, message: MutableMapping[str, Any]) -> bool:
        from starlette.websockets import WebSocketDisconnect

        if self._ending is GONE:
            return False
        try:
            async with asyncio.timeout(self._bounds.send_s):
                await self._websocket.send(message)
        except (WebSocketDisconnect, TimeoutError):
            self.end(GONE)
        return self._ending is not GONE

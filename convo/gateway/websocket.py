"""Responses over a WebSocket: one client, one turn at a time.

    listen    always, also while a turn runs: a ping has to be answered, a client that left to be seen.
              What is said meanwhile waits for its turn; too much that waits is refused
    answer    what waited longest, event by event
    end       the client left, the connection is too old, or the server stops

A connection that grew too old, or whose server stops, ends behind the running turn and begins no
other one. When the client left, the loop is cancelled and closes the endpoint's generator, as over HTTP.

Compression is left off. In one window with what a stranger brought into the input, the size of a
message tells about the words beside it; and an idle connection would hold 36 KB for an hour. Most
clients sit on this machine, and the openai package's own asks for none.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, MutableMapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from convo.clock import Clock
from convo.endpoints.contract import Connection, Endpoint
from convo.errors import ConvoError, Refused, StoreFault
from convo.gateway import documents
from convo.gateway import websocket_messages as messages
from convo.gateway.exchange import CLIENT_GONE
from convo.gateway.relaying import TERMINAL, Noticing, as_the_api_has_it
from convo.gateway.websocket_messages import STEER, Create
from convo.items import Event, Json

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send

PATH = "/v1/responses"
METHOD = "WEBSOCKET"
"""What figures and logs call a turn that came this way."""

OPENED = 101
"""The status of a connection that was accepted."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long and how much.

    age_s:    after so many seconds a connection ends
    waiting:  messages that may wait behind the running turn
    lanes:    names of lanes on one connection
    """

    age_s: float = 60 * 60
    waiting: int = 8
    lanes: int = 32


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a connection ends: `code` of the WebSocket protocol, None when the client left."""

    code: int | None
    reason: str = ""
    fault: Refused | None = None


FLUSHING_S = 1.0
"""How long a client has to take the last words of a turn that was broken off."""

GONE = Ending(None)
STOPPING = Ending(1012, "the server is stopping")


@dataclass(frozen=True, slots=True)
class Wrong:
    """A message that is no turn; it is told when its turn comes, so that answers keep the order of requests."""

    fault: ConvoError
    lane: str | None


@dataclass(slots=True)
class Progress:
    """How far a turn has been told: the next sequence number, and the status that it comes to."""

    number: int = 0
    status: int = 200


class Counting(Noticing, Protocol):
    """Whoever keeps count of turns, and of what passes in them."""

    def answered(self, method: str, route: str, status: int, took_s: float) -> None: ...

    def store_fault(self) -> None: ...


@dataclass(frozen=True, slots=True)
class House:
    """What the server gives each of its connections.

    read:  makes an object of a message within the limits of a body; raises Refused
    room:  holds a place for one turn; raises KeyRefused or TryLater where there is none
    told:  passes the events of a turn on, and notices them for whoever looks on
    """

    clock: Clock
    bounds: Bounds
    counting: Counting
    read: Callable[[bytes], dict[str, Json]]
    room: Callable[[], AbstractContextManager[None]]
    told: Callable[[AsyncGenerator[Event, None]], AsyncGenerator[Event, None]]


class Socket:
    """One connection that was accepted."""

    def __init__(self, receive: "Receive", send: "Send", endpoint: Endpoint, house: House) -> None:
        self._receive, self._raw_send, self._endpoint, self._house = receive, send, endpoint, house
        self._chains: dict[str | None, Connection] = {}
        self._waiting: deque[Create | Wrong] = deque()
        self._changed = asyncio.Event()
        self._ending: Ending | None = None

    async def serve(self) -> None:
        """Turn after turn, until the connection ends."""
        async with asyncio.TaskGroup() as group:
            aging = group.create_task(self._grow_old())
            self._answering = group.create_task(self._answer_all())
            listening = group.create_task(self._listen())
            await asyncio.wait({self._answering, listening}, return_when=asyncio.FIRST_COMPLETED)
            for task in (aging, self._answering, listening):
                task.cancel()
        await self._say_goodbye()

    def end(self, ending: Ending) -> None:
        """Begin no further turn. The first reason stays, unless the client leaves meanwhile."""
        if self._ending is None or ending is GONE:
            self._ending = ending
        self._changed.set()

    def break_off(self) -> None:
        """Stop the running turn, too."""
        self._answering.cancel()

    # -- the turns --------------------------------------------------------------------------------

    async def _answer_all(self) -> None:
        while (said := await self._next()) is not None:
            if isinstance(said, Wrong):
                await self._send(messages.error_message(said.fault, 0, said.lane))
            else:
                await self._carry_out(said)

    async def _next(self) -> Create | Wrong | None:
        """What waited longest; None when the connection ends."""
        while self._ending is None:
            if self._waiting:
                return self._waiting.popleft()
            self._changed.clear()
            await self._changed.wait()
        return None

    async def _carry_out(self, turn: Create) -> None:
        progress, began, counting = Progress(status=CLIENT_GONE), self._house.clock.ticks(), self._house.counting
        counting.stream(+1)
        try:
            with self._house.room():
                events = self._house.told(self._chain(turn.lane).create(turn.body))
                await self._pass_on(events, turn.lane, progress, began)
        except ConvoError as fault:
            progress.status = fault.status
            if isinstance(fault, StoreFault):
                counting.store_fault()
            await self._send(messages.error_message(fault, progress.number, turn.lane))
        finally:
            counting.stream(-1)
            counting.answered(METHOD, PATH, progress.status, self._house.clock.ticks() - began)

    async def _pass_on(
        self, answer: AsyncGenerator[Event, None], lane: str | None, progress: Progress, began: float
    ) -> None:
        async with aclosing(answer) as events:
            async for event in events:
                if progress.number == 0:
                    self._house.counting.first_event(PATH, self._house.clock.ticks() - began)
                progress.number = event["sequence_number"] + 1
                if not await self._send(messages.labelled(event, lane)):
                    return
                if event["type"] in TERMINAL:
                    self._house.counting.ended(event["response"])
                    progress.status = 200

    def _chain(self, lane: str | None) -> Connection:
        if lane not in self._chains:
            self._chains[lane] = self._endpoint.connect()
        return self._chains[lane]

    # -- beside the turns -------------------------------------------------------------------------

    async def _listen(self) -> None:
        while (message := await self._receive())["type"] == "websocket.receive":
            await self._take(message.get("text"))
        self.end(GONE)

    async def _grow_old(self) -> None:
        age_s = self._house.bounds.age_s
        await self._house.clock.sleep(age_s)
        self.end(Ending(1001, "the connection is too old", messages.too_old(age_s)))

    async def _take(self, text: str | None) -> None:
        """Let what was said wait for its turn, or answer now what never gets one."""
        lane, most = None, self._house.bounds.waiting
        if len(self._waiting) >= most:
            await self._send(messages.error_message(messages.too_many_waiting(most), 0, None))
            return
        try:
            asked = self._house.read(messages.text_of(text))
            lane = messages.lane_of(asked)
            if asked.get("type") == STEER:
                await self._send(messages.steering_failed(asked))
                return
            self._waiting.append(self._turn(asked))
        except ConvoError as fault:
            self._waiting.append(Wrong(fault, lane))
        self._changed.set()

    def _turn(self, asked: dict[str, Json]) -> Create:
        """raises: Refused  it is none, or names one lane too many"""
        turn, most = messages.turn(asked), self._house.bounds.lanes
        lanes = {*self._chains, *(waiting.lane for waiting in self._waiting), turn.lane} - {None}
        if len(lanes) > most:
            raise messages.too_many_lanes(most)
        return turn

    # -- to the client ----------------------------------------------------------------------------

    async def _send(self, event: Event) -> bool:
        """Whether the client is still there to take it."""
        return await self._tell(
            {"type": "websocket.send", "text": documents.write(as_the_api_has_it(event)).decode("ascii")}
        )

    async def _say_goodbye(self) -> None:
        ending = self._ending
        if ending is not None and ending.fault is not None:
            await self._send(messages.error_message(ending.fault, 0, None))
        if ending is not None and ending.code is not None:
            await self._tell({"type": "websocket.close", "code": ending.code, "reason": ending.reason})

    async def _tell(self, message: MutableMapping[str, Any]) -> bool:
        if self._ending is GONE:
            return False
        try:
            await self._raw_send(message)
        except (OSError, RuntimeError):  # it left, or the protocol has closed it meanwhile
            self.end(GONE)
        return self._ending is not GONE


class Sockets:
    """All open connections, so that a server that stops can end them."""

    def __init__(self) -> None:
        self._open: dict[Socket, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def holding(self, socket: Socket) -> AsyncIterator[None]:
        self._open[socket] = asyncio.Event()
        try:
            yield
        finally:
            self._open.pop(socket).set()

    async def aclose(self, grace_s: float) -> None:
        """Every connection ends behind its running turn, or after `grace_s` seconds."""
        left = [asyncio.create_task(closed.wait()) for closed in self._open.values()]
        for socket in self._open:
            socket.end(STOPPING)
        if left:
            await asyncio.wait(left, timeout=grace_s + FLUSHING_S)  # the service ends what still runs
        for socket in list(self._open):
            socket.break_off()
        if left:
            await asyncio.wait(left, timeout=FLUSHING_S)
        for waiting in left:
            waiting.cancel()


async def accept(receive: "Receive", send: "Send", request_id: str) -> None:
    """Say yes to a connection that asks to be opened."""
    await receive()
    await send({"type": "websocket.accept", "headers": [(b"x-request-id", request_id.encode())]})


def refusable(send: "Send") -> "Send":
    """`send`, over which a connection can be refused by an answer of HTTP before it is opened."""

    async def sent(message: "Message") -> None:
        kind = message["type"]
        await send({**message, "type": f"websocket.{kind}"} if kind.startswith("http.") else message)

    return sent

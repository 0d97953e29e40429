"""The Responses API over a WebSocket: one JSON object a message.

A client sends `response.create` messages; each `stream_id` has its own chain, and turns run one
at a time. Messages that arrive during a turn are queued, up to a limit. A connection that is too old,
or whose server stops, closes after the running turn.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from convo.endpoints.base import Endpoint, ResponsesConnection, error_event
from convo.errors import ConvoError, RequestRefused, StoreFault
from convo.history.items import Json, StreamEvent
from convo.runtime import Clock
from convo.server import http
from convo.server.http import CLIENT_CLOSED_STATUS
from convo.server.sse import SENT_TERMINAL_EVENTS, StreamMetrics, to_api_event

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send


CREATE_MESSAGE_TYPE, STEER_MESSAGE_TYPE = "response.create", "response.steer"

STREAM_ID_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,256}")


@dataclass(frozen=True, slots=True)
class TurnMessage:
    """A turn to run: `body` for `ResponsesConnection.create`; `stream_id` is None if the request has none."""

    body: Mapping[str, Json]
    lane: str | None


def parse_stream_id(message: Mapping[str, Json]) -> str | None:
    """Return the stream id of `message`. Raises RequestRefused if it is invalid."""
    lane = message.get("stream_id")
    if lane is None or (isinstance(lane, str) and STREAM_ID_PATTERN.fullmatch(lane)):
        return lane
    raise RequestRefused(
        "The 'stream_id' field must be a string of 1 to 256 letters, digits, underscores, hyphens and periods",
        code="invalid_stream_id",
        param="stream_id",
    )


def parse_turn_message(message: Mapping[str, Json]) -> TurnMessage:
    """Parse a turn. Raises RequestRefused for a message of another type."""
    kind = message.get("type")
    if kind is None:
        raise RequestRefused("Missing required parameter: 'type'", code="missing_required_parameter", param="type")
    if kind != CREATE_MESSAGE_TYPE:
        words = f"Invalid value: '{kind}'. Supported values are: '{CREATE_MESSAGE_TYPE}'"
        raise RequestRefused(words, code="invalid_value", param="type")
    body = {name: value for name, value in message.items() if name not in ("type", "stream_id")}
    return TurnMessage(body, parse_stream_id(message))


def check_text_message(said: str | None) -> bytes:
    """Return the text of a message as bytes. Raises RequestRefused for a binary message."""
    if said is None:
        raise RequestRefused("A message over a WebSocket has to be text", code="invalid_json")
    return said.encode()


def too_many_streams_error(most: int) -> RequestRefused:
    return RequestRefused(
        f"This WebSocket connection has reached its maximum number of distinct stream IDs ({most}). "
        "Reuse an existing stream_id or open a new WebSocket connection",
        code="websocket_stream_limit_reached",
        param="stream_id",
    )


def queue_full_error(most: int) -> RequestRefused:
    return RequestRefused(
        f"{most} requests wait on this WebSocket connection already. Wait until one of them is answered",
        code="websocket_queue_full",
        status=429,
    )


def connection_expired_error(limit_s: float) -> RequestRefused:
    return RequestRefused(
        f"Responses websocket connection limit reached ({limit_s / 60:g} minutes). "
        "Create a new websocket connection to continue",
        code="websocket_connection_limit_reached",
    )


def with_stream_id(event: StreamEvent, lane: str | None) -> StreamEvent:
    """Return `event` with its stream id."""
    return event if lane is None else {**event, "stream_id": lane}


def build_error_message(fault: ConvoError, number: int, lane: str | None) -> StreamEvent:
    """Build the error event: nested as in the specification, and flat as the openai package reads it from a stream.

    number:  the sequence number that the next event of the stream would have had
    """
    event = error_event(fault, number)
    code = event["error"]["code"] or fault.code
    return with_stream_id(
        {**event, "status": fault.status, "code": code, "error": {**event["error"], "code": code}}, lane
    )


def build_steer_failed_event(message: Mapping[str, Json]) -> StreamEvent:
    """Build the answer to `response.steer`: it returns the input, which the client can send with the next request."""
    error = {
        "type": "invalid_request_error",
        "code": "steering_not_supported",
        "message": "This server does not steer responses. Send the input with the next response.create.",
    }
    returned = {"input": message.get("input"), "previous_response_id": message.get("previous_response_id")}
    return {"type": "response.steer.failed", "sequence_number": 0, "steer": returned, "error": error}


WEBSOCKET_PATH = "/v1/responses"
WEBSOCKET_METHOD = "WEBSOCKET"
"""The method of a WebSocket turn in metrics and logs."""

SWITCHING_PROTOCOLS_STATUS = 101
"""The status of an accepted connection."""


@dataclass(frozen=True, slots=True)
class WebSocketLimits:
    """Limits of one connection.

    max_age_s:    seconds after which the connection is closed
    max_queued:   messages that may wait for the running turn
    max_streams:  distinct stream ids
    """

    age_s: float = 60 * 60
    waiting: int = 8
    lanes: int = 32


@dataclass(frozen=True, slots=True)
class CloseReason:
    """The reason to close a connection: `code` of the WebSocket protocol, None if the client disconnected."""

    code: int | None
    reason: str = ""
    fault: RequestRefused | None = None


FINAL_SEND_TIMEOUT_S = 1.0
"""Seconds in which a client can receive the last events of a cancelled turn."""

CLIENT_DISCONNECTED = CloseReason(None)
SERVER_STOPPING = CloseReason(1012, "the server is stopping")


@dataclass(frozen=True, slots=True)
class InvalidMessage:
    """A message that is not a turn; its error is sent in the order of the messages."""

    fault: ConvoError
    lane: str | None


@dataclass(slots=True)
class TurnProgress:
    """The progress of a turn: the next sequence number, and the status so far."""

    number: int = 0
    status: int = 200


class TurnMetrics(StreamMetrics, Protocol):
    """Records metrics of turns and their streams."""

    def answered(self, method: str, route: str, status: int, took_s: float) -> None: ...

    def store_fault(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WebSocketDeps:
    """The dependencies of each connection.

    parse_message:  parses a message within the limits of a body; raises RequestRefused
    request_slot:   counts one turn as running; raises KeyRefused or TryLater if that is refused
    track_events:   yields the events of a turn and tracks them for the inspector
    """

    clock: Clock
    bounds: WebSocketLimits
    counting: TurnMetrics
    read: Callable[[bytes], dict[str, Json]]
    room: Callable[[], AbstractContextManager[None]]
    told: Callable[[AsyncGenerator[StreamEvent, None]], AsyncGenerator[StreamEvent, None]]


class WebSocketConnection:
    """One accepted connection."""

    def __init__(self, receive: "Receive", send: "Send", endpoint: Endpoint, house: WebSocketDeps) -> None:
        self._receive, self._raw_send, self._endpoint, self._house = receive, send, endpoint, house
        self._chains: dict[str | None, ResponsesConnection] = {}
        self._waiting: deque[TurnMessage | InvalidMessage] = deque()
        self._changed = asyncio.Event()
        self._ending: CloseReason | None = None

    async def serve(self) -> None:
        """Run turns one at a time until the connection ends."""
        async with asyncio.TaskGroup() as group:
            aging = group.create_task(self._grow_old())
            self._answering = group.create_task(self._answer_all())
            listening = group.create_task(self._listen())
            await asyncio.wait({self._answering, listening}, return_when=asyncio.FIRST_COMPLETED)
            for task in (aging, self._answering, listening):
                task.cancel()
        await self._say_goodbye()

    def end(self, ending: CloseReason) -> None:
        """Start no further turn. The first reason stays, unless the client disconnects afterwards."""
        if self._ending is None or ending is CLIENT_DISCONNECTED:
            self._ending = ending
        self._changed.set()

    def break_off(self) -> None:
        """Cancel the running turn."""
        self._answering.cancel()

    # -- turns ------------------------------------------------------------------------------------

    async def _answer_all(self) -> None:
        while (said := await self._next()) is not None:
            if isinstance(said, InvalidMessage):
                await self._send(build_error_message(said.fault, 0, said.lane))
            else:
                await self._carry_out(said)

    async def _next(self) -> TurnMessage | InvalidMessage | None:
        """Return the oldest message in the queue; None when the connection ends."""
        while self._ending is None:
            if self._waiting:
                return self._waiting.popleft()
            self._changed.clear()
            await self._changed.wait()
        return None

    async def _carry_out(self, turn: TurnMessage) -> None:
        progress, began, counting = (
            TurnProgress(status=CLIENT_CLOSED_STATUS),
            self._house.clock.ticks(),
            self._house.counting,
        )
        counting.stream(+1)
        try:
            with self._house.room():
                events = self._house.told(self._chain(turn.lane).create(turn.body))
                await self._pass_on(events, turn.lane, progress, began)
        except ConvoError as fault:
            progress.status = fault.status
            if isinstance(fault, StoreFault):
                counting.store_fault()
            await self._send(build_error_message(fault, progress.number, turn.lane))
        finally:
            counting.stream(-1)
            counting.answered(WEBSOCKET_METHOD, WEBSOCKET_PATH, progress.status, self._house.clock.ticks() - began)

    async def _pass_on(
        self, answer: AsyncGenerator[StreamEvent, None], lane: str | None, progress: TurnProgress, began: float
    ) -> None:
        async with aclosing(answer) as events:
            async for event in events:
                if progress.number == 0:
                    self._house.counting.first_event(WEBSOCKET_PATH, self._house.clock.ticks() - began)
                progress.number = event["sequence_number"] + 1
                if not await self._send(with_stream_id(event, lane)):
                    return
                if event["type"] in SENT_TERMINAL_EVENTS:
                    self._house.counting.ended(event["response"])
                    progress.status = 200

    def _chain(self, lane: str | None) -> ResponsesConnection:
        if lane not in self._chains:
            self._chains[lane] = self._endpoint.connect()
        return self._chains[lane]

    # -- messages ---------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while (message := await self._receive())["type"] == "websocket.receive":
            await self._take(message.get("text"))
        self.end(CLIENT_DISCONNECTED)

    async def _grow_old(self) -> None:
        age_s = self._house.bounds.age_s
        await self._house.clock.sleep(age_s)
        self.end(CloseReason(1001, "the connection is too old", connection_expired_error(age_s)))

    async def _take(self, text: str | None) -> None:
        """Queue a message, or respond at once to one that is not queued."""
        lane, most = None, self._house.bounds.waiting
        if len(self._waiting) >= most:
            await self._send(build_error_message(queue_full_error(most), 0, None))
            return
        try:
            asked = self._house.read(check_text_message(text))
            lane = parse_stream_id(asked)
            if asked.get("type") == STEER_MESSAGE_TYPE:
                await self._send(build_steer_failed_event(asked))
                return
            self._waiting.append(self._turn(asked))
        except ConvoError as fault:
            self._waiting.append(InvalidMessage(fault, lane))
        self._changed.set()

    def _turn(self, asked: dict[str, Json]) -> TurnMessage:
        """Parse a turn. Raises RequestRefused for another message, or for one stream id too many."""
        turn, most = parse_turn_message(asked), self._house.bounds.lanes
        lanes = {*self._chains, *(waiting.lane for waiting in self._waiting), turn.lane} - {None}
        if len(lanes) > most:
            raise too_many_streams_error(most)
        return turn

    # -- sending ----------------------------------------------------------------------------------

    async def _send(self, event: StreamEvent) -> bool:
        """Send an event; return whether the client is still connected."""
        return await self._tell(
            {"type": "websocket.send", "text": http.serialize_strict_json(to_api_event(event)).decode("ascii")}
        )

    async def _say_goodbye(self) -> None:
        ending = self._ending
        if ending is not None and ending.fault is not None:
            await self._send(build_error_message(ending.fault, 0, None))
        if ending is not None and ending.code is not None:
            await self._tell({"type": "websocket.close", "code": ending.code, "reason": ending.reason})

    async def _tell(self, message: MutableMapping[str, Any]) -> bool:
        if self._ending is CLIENT_DISCONNECTED:
            return False
        try:
            await self._raw_send(message)
        except (OSError, RuntimeError):  # the client disconnected, or the protocol closed the connection
            self.end(CLIENT_DISCONNECTED)
        return self._ending is not CLIENT_DISCONNECTED


class WebSocketConnections:
    """All open connections, so that the server can close them at shutdown."""

    def __init__(self) -> None:
        self._open: dict[WebSocketConnection, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def holding(self, socket: WebSocketConnection) -> AsyncIterator[None]:
        self._open[socket] = asyncio.Event()
        try:
            yield
        finally:
            self._open.pop(socket).set()

    async def aclose(self, grace_s: float) -> None:
        """Close every connection after its running turn, or after `grace_s` seconds."""
        left = [asyncio.create_task(closed.wait()) for closed in self._open.values()]
        for socket in self._open:
            socket.end(SERVER_STOPPING)
        if left:
            await asyncio.wait(left, timeout=grace_s + FINAL_SEND_TIMEOUT_S)  # the service ends running turns
        for socket in list(self._open):
            socket.break_off()
        if left:
            await asyncio.wait(left, timeout=FINAL_SEND_TIMEOUT_S)
        for waiting in left:
            waiting.cancel()


async def accept_websocket(receive: "Receive", send: "Send", request_id: str) -> None:
    """Accept a connection that is being opened."""
    await receive()
    await send({"type": "websocket.accept", "headers": [(b"x-request-id", request_id.encode())]})


def with_http_rejection(send: "Send") -> "Send":
    """Return `send` for a connection that may be refused with an HTTP response before it is opened."""

    async def sent(message: "Message") -> None:
        kind = message["type"]
        await send({**message, "type": f"websocket.{kind}"} if kind.startswith("http.") else message)

    return sent

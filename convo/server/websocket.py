"""The Responses API over a WebSocket: one JSON object a message.

A client sends `response.create` messages; each `stream_id` has its own chain, and turns run one
at a time. Messages that arrive during a turn are queued, up to a limit; `response.steer` is for the running turn (see
`convo.server.steering`). A connection that is too old, or whose server stops, closes after the running turn.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from convo.endpoints.base import Endpoint, ResponsesConnection, error_event
from convo.errors import ConvoError, RequestRefused, StoreFault
from convo.history.accumulator import TERMINAL_EVENTS
from convo.history.items import Json, StreamEvent
from convo.runtime import Clock, NewId, random_id
from convo.server import errors, http
from convo.server.http import CLIENT_CLOSED_STATUS, FINAL_SEND_TIMEOUT_S
from convo.server.rate_limits import BodyShare
from convo.server.request_log import LiveRequest, RecordEvents, RequestLog
from convo.server.sse import StreamMetrics, to_api_event
from convo.server.steering import STEER_MESSAGE_TYPE, ConnectionSteering, SteerLimits, TurnMessage

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send


CREATE_MESSAGE_TYPE = "response.create"

STREAM_ID_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,256}")


def parse_stream_id(message: Mapping[str, Json]) -> str | None:
    """Return the stream id of `message`. Raises RequestRefused if it is invalid."""
    stream_id = message.get("stream_id")
    if stream_id is None or (isinstance(stream_id, str) and STREAM_ID_PATTERN.fullmatch(stream_id)):
        return stream_id
    raise RequestRefused(
        "The 'stream_id' field must be a string of 1 to 256 letters, digits, underscores, hyphens and periods",
        code="invalid_stream_id",
        param="stream_id",
    )


def parse_turn_message(message: Mapping[str, Json]) -> TurnMessage:
    """Parse a turn. Raises RequestRefused for a message of another type."""
    kind = message.get("type")
    if kind is None:
        raise errors.missing_http_parameter_error("type")
    if kind != CREATE_MESSAGE_TYPE:
        raise errors.http_parameter_value_error("type", kind, (CREATE_MESSAGE_TYPE, STEER_MESSAGE_TYPE))
    body = {name: value for name, value in message.items() if name not in ("type", "stream_id")}
    return TurnMessage(body, parse_stream_id(message))


def check_text_message(text: str | None) -> bytes:
    """Return the text of a message as bytes. Raises RequestRefused for a binary message."""
    if text is None:
        raise RequestRefused("A WebSocket message must be text", code="invalid_json")
    return text.encode()


def too_many_streams_error(maximum: int) -> RequestRefused:
    return RequestRefused(
        f"This WebSocket connection has reached its maximum number of distinct stream IDs ({maximum}). "
        "Reuse an existing stream_id or open a new WebSocket connection",
        code="websocket_stream_limit_reached",
        param="stream_id",
    )


def queue_full_error(maximum: int) -> RequestRefused:
    return RequestRefused(
        f"{maximum} requests are already queued on this WebSocket connection. Wait for a response first",
        code="websocket_queue_full",
        status=429,
    )


def connection_expired_error(limit_s: float) -> RequestRefused:
    return RequestRefused(
        f"Responses websocket connection limit reached ({limit_s / 60:g} minutes). "
        "Create a new websocket connection to continue",
        code="websocket_connection_limit_reached",
    )


def with_stream_id(event: StreamEvent, stream_id: str | None) -> StreamEvent:
    """Return `event` with its stream id."""
    return event if stream_id is None else {**event, "stream_id": stream_id}


def build_error_message(fault: ConvoError, number: int, stream_id: str | None) -> StreamEvent:
    """Build the error event: nested as in the specification, and flat as the openai package reads it from a stream.

    number:  the sequence number that the next event of the stream would have had
    """
    event = error_event(fault, number)
    code = event["error"]["code"] or fault.code
    return with_stream_id(
        {**event, "status": fault.status, "code": code, "error": {**event["error"], "code": code}}, stream_id
    )


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
    steering:     limits of the input that waits for the end of a response
    """

    max_age_s: float = 60 * 60
    max_queued: int = 8
    max_streams: int = 32
    steering: SteerLimits = field(default_factory=SteerLimits)


@dataclass(frozen=True, slots=True)
class CloseReason:
    """The reason to close a connection: `code` of the WebSocket protocol, None if the client disconnected."""

    code: int | None
    reason: str = ""
    fault: RequestRefused | None = None


CLIENT_DISCONNECTED = CloseReason(None)
SERVER_STOPPING = CloseReason(1012, "the server is stopping")


@dataclass(frozen=True, slots=True)
class InvalidMessage:
    """A message that is not a turn; its error is sent in the order of the messages."""

    fault: ConvoError
    stream_id: str | None
    size_bytes: int = 0


@dataclass(slots=True)
class TurnProgress:
    """The progress of a turn: whether an event was sent, the status so far, and the error that ended it."""

    has_events: bool = False
    status: int = 200
    fault: ConvoError | None = None


class TurnMetrics(StreamMetrics, Protocol):
    """Records metrics of turns and their streams."""

    def record_request(self, method: str, route: str, status: int, duration_s: float) -> None: ...

    def record_store_fault(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WebSocketDeps:
    """The dependencies of each connection.

    parse_message:  parses a message within the limits of a body; raises RequestRefused
    request_slot:   counts one turn as running; raises KeyRefused or TryLater if that is refused
    body_share:     counts the bytes of the messages, each until its turn ends
    requests:       the running requests
    make_live_request:  makes the request of a turn that starts now
    record_events:  yields the events of a turn, recorded if they must be
    new_id:         makes the ids of steering input
    """

    clock: Clock
    limits: WebSocketLimits
    metrics: TurnMetrics
    parse_message: Callable[[bytes], dict[str, Json]]
    request_slot: Callable[[LiveRequest], AbstractContextManager[None]]
    body_share: BodyShare
    requests: RequestLog
    make_live_request: Callable[[], LiveRequest]
    record_events: RecordEvents
    new_id: NewId = random_id


class WebSocketConnection:
    """One accepted connection."""

    def __init__(self, receive: "Receive", send: "Send", endpoint: Endpoint, deps: WebSocketDeps) -> None:
        self._receive, self._raw_send, self._endpoint, self._deps = receive, send, endpoint, deps
        self._connections: dict[str | None, ResponsesConnection] = {}
        self._queue: deque[TurnMessage | InvalidMessage] = deque()
        self._changed = asyncio.Event()
        self._close_reason: CloseReason | None = None
        self._steering = ConnectionSteering(deps.new_id, deps.limits.steering)
        self._next_number, self._send_lock = 0, asyncio.Lock()

    async def serve(self) -> None:
        """Run turns one at a time until the connection ends."""
        async with asyncio.TaskGroup() as group:
            age_task = group.create_task(self._close_at_max_age())
            self._turns_task = group.create_task(self._run_turns())
            receive_task = group.create_task(self._receive_messages())
            await asyncio.wait({self._turns_task, receive_task}, return_when=asyncio.FIRST_COMPLETED)
            for task in (age_task, self._turns_task, receive_task):
                task.cancel()
        self._deps.body_share.release()
        await self._send_close()

    def close_after_turn(self, reason: CloseReason) -> None:
        """Start no further turn. The first reason stays, unless the client disconnects afterwards."""
        # Nothing can be sent any more then, not even the first reason.
        if self._close_reason is None or reason is CLIENT_DISCONNECTED:
            self._close_reason = reason
        self._changed.set()

    def cancel_turn(self) -> None:
        """Cancel the running turn."""
        self._turns_task.cancel()

    # -- turns ------------------------------------------------------------------------------------

    async def _run_turns(self) -> None:
        while (message := await self._next_message()) is not None:
            if isinstance(message, InvalidMessage):
                self._deps.body_share.release(message.size_bytes)
                await self._send_event(build_error_message(message.fault, 0, message.stream_id))
                continue
            turn: TurnMessage | None = message
            while turn is not None:
                turn = await self._run_turn(turn)
            self._deps.body_share.release(message.size_bytes)
            self._next_number = 0

    async def _next_message(self) -> TurnMessage | InvalidMessage | None:
        """Return the oldest message in the queue; None when the connection ends."""
        while self._close_reason is None:
            if self._queue:
                return self._queue.popleft()
            self._changed.clear()
            await self._changed.wait()
        return None

    async def _run_turn(self, message: TurnMessage) -> TurnMessage | None:
        """Run a turn; return the one that continues it with the input that steered it, if there is one."""
        progress, started_s, metrics = (
            TurnProgress(status=CLIENT_CLOSED_STATUS),
            self._deps.clock.monotonic(),
            self._deps.metrics,
        )
        metrics.add_open_streams(+1)
        turn, self._next_number = self._steering.begin(message), 0
        request = self._deps.make_live_request()
        try:
            with self._deps.requests.track(request), self._deps.request_slot(request):
                self._deps.requests.begin(request, turn.body, turn.size_bytes)
                turn_events = self._connection_for(turn.stream_id).create(
                    turn.body, is_steered=self._steering.is_steered
                )
                events = self._deps.requests.follow(request, self._deps.record_events(request, turn.body, turn_events))
                await self._send_events(events, turn.stream_id, progress, started_s)
        except ConvoError as fault:
            progress.status, progress.fault = fault.status, fault
            if isinstance(fault, StoreFault):
                metrics.record_store_fault()
            if progress.has_events or not turn.is_automatic:  # else the error is sent with the input that it returns
                await self._send_numbered(build_error_message(fault, 0, None), turn.stream_id)
        finally:
            metrics.add_open_streams(-1)
            metrics.record_request(
                WEBSOCKET_METHOD, WEBSOCKET_PATH, progress.status, self._deps.clock.monotonic() - started_s
            )
        result = self._steering.finish(
            progress.fault,
            can_continue=self._close_reason is None,
            queued_turns=[queued for queued in self._queue if isinstance(queued, TurnMessage)],
        )
        for event in result.events:
            await self._send_numbered(event, turn.stream_id)
        return result.turn

    async def _send_events(
        self,
        turn_events: AsyncGenerator[StreamEvent, None],
        stream_id: str | None,
        progress: TurnProgress,
        started_s: float,
    ) -> None:
        async with aclosing(turn_events) as events:
            async for event in events:
                if not progress.has_events:
                    self._deps.metrics.record_first_event(WEBSOCKET_PATH, self._deps.clock.monotonic() - started_s)
                progress.has_events = True
                self._steering.observe(event)
                if not await self._send_numbered(event, stream_id):
                    return
                if event["type"] in TERMINAL_EVENTS:
                    self._deps.metrics.record_response(event["response"])
                    progress.status = 200

    def _connection_for(self, stream_id: str | None) -> ResponsesConnection:
        if stream_id not in self._connections:
            self._connections[stream_id] = self._endpoint.connect()
        return self._connections[stream_id]

    # -- messages ---------------------------------------------------------------------------------

    async def _receive_messages(self) -> None:
        while (message := await self._receive())["type"] == "websocket.receive":
            await self._queue_message(message.get("text"))
        self.close_after_turn(CLIENT_DISCONNECTED)

    async def _close_at_max_age(self) -> None:
        age_s = self._deps.limits.max_age_s
        await self._deps.clock.sleep(age_s)
        self.close_after_turn(CloseReason(1001, "the connection is too old", connection_expired_error(age_s)))

    async def _queue_message(self, text: str | None) -> None:
        """Queue a message, or respond at once to one that is not queued."""
        stream_id, max_queued, size_bytes = None, self._deps.limits.max_queued, 0
        queued: TurnMessage | InvalidMessage
        try:
            raw_message = check_text_message(text)
            self._deps.body_share.take(len(raw_message))
            size_bytes = len(raw_message)
            message = self._deps.parse_message(raw_message)
            if message.get("type") == STEER_MESSAGE_TYPE:
                event, stream_id = self._steering.submit(message, len(raw_message))
                self._deps.body_share.release(size_bytes)
                await self._send_numbered(event, stream_id)
                return
            stream_id = parse_stream_id(message)
            queued = replace(self._parse_turn(message), size_bytes=size_bytes)
        except ConvoError as fault:
            queued = InvalidMessage(fault, stream_id, size_bytes)
        if len(self._queue) >= max_queued:
            self._deps.body_share.release(size_bytes)
            await self._send_event(build_error_message(queue_full_error(max_queued), 0, None))
            return
        self._queue.append(queued)
        self._changed.set()

    def _parse_turn(self, message: dict[str, Json]) -> TurnMessage:
        """Parse a turn. Raises RequestRefused for another message, or for one stream id too many."""
        turn, max_streams = parse_turn_message(message), self._deps.limits.max_streams
        # Queued turns count: their connections exist only once they run.
        stream_ids = {*self._connections, *(queued.stream_id for queued in self._queue), turn.stream_id} - {None}
        if len(stream_ids) > max_streams:
            raise too_many_streams_error(max_streams)
        return turn

    # -- sending ----------------------------------------------------------------------------------

    async def _send_numbered(self, event: StreamEvent, stream_id: str | None) -> bool:
        """Send an event with the next number of the turn; return whether the client is still connected.

        Events of the turn and of steering are sent by two tasks, and share their numbers.
        """
        async with self._send_lock:
            number, self._next_number = self._next_number, self._next_number + 1
            return await self._send_event(with_stream_id({**event, "sequence_number": number}, stream_id))

    async def _send_event(self, event: StreamEvent) -> bool:
        """Send an event; return whether the client is still connected."""
        return await self._send_message(
            {"type": "websocket.send", "text": http.serialize_strict_json(to_api_event(event)).decode("ascii")}
        )

    async def _send_close(self) -> None:
        close_reason = self._close_reason
        if close_reason is not None and close_reason.fault is not None:
            await self._send_event(build_error_message(close_reason.fault, 0, None))
        if close_reason is not None and close_reason.code is not None:
            await self._send_message(
                {"type": "websocket.close", "code": close_reason.code, "reason": close_reason.reason}
            )

    async def _send_message(self, message: MutableMapping[str, Any]) -> bool:
        if self._close_reason is CLIENT_DISCONNECTED:
            return False
        try:
            await self._raw_send(message)
        except (OSError, RuntimeError):  # the client disconnected, or the protocol closed the connection
            self.close_after_turn(CLIENT_DISCONNECTED)
        return self._close_reason is not CLIENT_DISCONNECTED


class WebSocketConnections:
    """All open connections, so that the server can close them at shutdown."""

    def __init__(self) -> None:
        self._close_events: dict[WebSocketConnection, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._close_events)

    @asynccontextmanager
    async def track(self, connection: WebSocketConnection) -> AsyncIterator[None]:
        self._close_events[connection] = asyncio.Event()
        try:
            yield
        finally:
            self._close_events.pop(connection).set()

    async def aclose(self, grace_s: float) -> None:
        """Close every connection after its running turn, or after `grace_s` seconds."""
        close_tasks = [asyncio.create_task(close_event.wait()) for close_event in self._close_events.values()]
        for socket in self._close_events:
            socket.close_after_turn(SERVER_STOPPING)
        if close_tasks:
            await asyncio.wait(close_tasks, timeout=grace_s + FINAL_SEND_TIMEOUT_S)  # the service ends running turns
        # A copy: each connection removes itself when it ends.
        for socket in list(self._close_events):
            socket.cancel_turn()
        if close_tasks:
            await asyncio.wait(close_tasks, timeout=FINAL_SEND_TIMEOUT_S)
        for close_task in close_tasks:
            close_task.cancel()


async def accept_websocket(
    receive: "Receive", send: "Send", request_id: str, headers: Sequence[http.Header] = ()
) -> None:
    """Accept a connection that is being opened; `headers` are added to the response."""
    # The ASGI message websocket.connect must be received before the connection is accepted.
    await receive()
    await send({"type": "websocket.accept", "headers": [(b"x-request-id", request_id.encode()), *headers]})


def with_http_rejection(send: "Send") -> "Send":
    """Return `send` for a connection that may be refused with an HTTP response before it is opened."""

    async def send_with_prefix(message: "Message") -> None:
        message_type = message["type"]
        await send({**message, "type": f"websocket.{message_type}"} if message_type.startswith("http.") else message)

    return send_with_prefix

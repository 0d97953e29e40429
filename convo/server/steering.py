"""Steering: user input that a client sends for a response while it runs, over the same WebSocket.

Source: the types `openai.types.responses.response_steer_*` of openai 3.54.0 with their docstrings, and the guide
"Mid-turn steering" of the API. A client sends

    {"type": "response.steer", "previous_response_id": ID, "input": TEXT or USER MESSAGES}

and no other field, with the id of a response that runs on its connection. The events of the server have a `steer` with
`previous_response_id`, and the `id` of the input once it was accepted:

    response.steer.accepted  the input is queued; the next `response.created` of the chain commits it
    response.steer.pending   the response has ended, and the client has to send the items in `required_input` first. Its
                             next `response.create` after that response gets the queued input before its own
    response.steer.failed    the input was not used and is returned in `steer.input`; `error.code` is one of
        invalid_input               the event has another field, or its input is not user messages
        response_not_found          this connection has no such response
        response_already_completed  the response has completed
        response_not_active         the response has ended in another way
        steering_not_supported      the response belongs to a conversation, compacts its history by itself, or only
                                    prepares the next one
        too_many_pending_steers     too much input is queued on the connection
        successor_creation_failed   the response failed, or the response that continues it was refused

A response that is steered ends after its current output item (`incomplete`, reason "steered"), or completes. The server
then creates a response that continues it with the queued input and the same settings. Queued input is kept by the
connection only, until it is committed. Nothing here waits or sends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from convo.errors import ConvoError, RequestRefused
from convo.history.items import Item, Json, StreamEvent, user_message
from convo.history.pairing import build_required_input
from convo.runtime import NewId

STEER_MESSAGE_TYPE = "response.steer"

SteerErrorCode: TypeAlias = Literal[
    "invalid_input",
    "response_not_found",
    "response_already_completed",
    "response_not_active",
    "steering_not_supported",
    "too_many_pending_steers",
    "successor_creation_failed",
]

STEER_FIELDS = frozenset({"type", "previous_response_id", "input"})
STEERING_MESSAGE_FIELDS = frozenset({"type", "role", "content"})
STEERING_PART_TYPES = frozenset({"input_text", "input_image", "input_file"})

MAX_ENDED_RESPONSES: Final = 256
"""Ended responses whose status a connection remembers, for the errors of late input."""


@dataclass(frozen=True, slots=True)
class SteerLimits:
    """Limits of the input that is queued on one connection.

    max_bytes:  of the messages as they were received
    """

    max_inputs: int = 32
    max_bytes: int = 16_000_000


@dataclass(frozen=True, slots=True)
class QueuedSteer:
    """Accepted input.

    returned_input:  as the client wrote it
    items:           the user messages that are added to the history
    """

    id: str
    response_id: str
    returned_input: Json
    items: tuple[Item, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TurnMessage:
    """A turn to run.

    body:          for `ResponsesConnection.create`
    stream_id:     None if the request has none
    steers:        queued input that is in `body`
    is_automatic:  created by the server for `steers`
    size_bytes:    of the message as it was received
    """

    body: Mapping[str, Json]
    stream_id: str | None
    steers: tuple[QueuedSteer, ...] = ()
    is_automatic: bool = False
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SteeringResult:
    """The events to send after a turn, without their numbers, and the turn to run next."""

    events: tuple[StreamEvent, ...] = ()
    turn: TurnMessage | None = None


def parse_steer_input(message: Mapping[str, Json]) -> tuple[str, tuple[Item, ...]]:
    """Return the id of the response and the user messages. Raises RequestRefused with the field."""
    for name in sorted(set(message) - STEER_FIELDS):
        reason = ": the response has its stream" if name == "stream_id" else ""
        raise RequestRefused(f"Unknown parameter: '{name}'{reason}", param=name)
    response_id, steer_input = message.get("previous_response_id"), message.get("input")
    if not isinstance(response_id, str) or not response_id:
        raise RequestRefused("'previous_response_id' must be the id of a response", param="previous_response_id")
    if isinstance(steer_input, str) and steer_input:
        return response_id, (user_message(steer_input),)
    if not isinstance(steer_input, list) or not steer_input:
        raise RequestRefused("'input' must be a text or a list of user messages, and not empty", param="input")
    return response_id, tuple(_parse_user_message(f"input[{index}]", item) for index, item in enumerate(steer_input))


def _parse_user_message(name: str, item: Json) -> Item:
    if not isinstance(item, Mapping) or item.get("role") != "user" or item.get("type") not in (None, "message"):
        raise RequestRefused(f"'{name}' must be a message of the user", param=name)
    for unknown in sorted(set(item) - STEERING_MESSAGE_FIELDS):
        raise RequestRefused(f"Unknown parameter: '{name}.{unknown}'", param=f"{name}.{unknown}")
    content = item.get("content")
    if not isinstance(content, str):
        if not isinstance(content, list) or not content:
            raise RequestRefused(f"'{name}.content' must be a text or a list of parts", param=f"{name}.content")
        for index, part in enumerate(content):
            location = f"{name}.content[{index}]"
            kind = part.get("type") if isinstance(part, Mapping) else None
            if not isinstance(kind, str) or kind not in STEERING_PART_TYPES:
                raise RequestRefused(f"'{location}' must be input_text, input_image or input_file", param=location)
            if kind == "input_text" and not isinstance(part.get("text"), str):
                raise RequestRefused(f"'{location}.text' must be a string", param=f"{location}.text")
    return {"type": "message", "role": "user", "content": content}


def find_unsupported_reason(body: Mapping[str, Json]) -> str | None:
    """Return the reason why a response to `body` cannot be steered, or None."""
    if body.get("conversation"):
        return "A response of a conversation cannot be steered"
    if body.get("context_management"):
        return "A response that compacts its history by itself cannot be steered"
    cache_options = body.get("prompt_cache_options")
    if body.get("generate") is False or (isinstance(cache_options, Mapping) and cache_options.get("prewarm")):
        return "A request that only prepares the next one cannot be steered"
    return None


def build_steer_failed_event(
    code: SteerErrorCode, message: str, steer_input: Json, response_id: Json, steer_id: str | None = None
) -> StreamEvent:
    """Build the event that returns input; `message` has no final full stop."""
    error = {"type": "invalid_request_error", "code": code, "message": f"{message.removesuffix('.')}."}
    steer_id_field = {} if steer_id is None else {"id": steer_id}
    steer = {**steer_id_field, "input": steer_input, "previous_response_id": response_id}
    return {"type": "response.steer.failed", "sequence_number": 0, "steer": steer, "error": error}


def _build_returned_event(steer: QueuedSteer, code: SteerErrorCode, message: str) -> StreamEvent:
    return build_steer_failed_event(code, message, steer.returned_input, steer.response_id, steer.id)


def _build_steer_event(kind: str, steer: QueuedSteer, **fields: Json) -> StreamEvent:
    identity = {"id": steer.id, "previous_response_id": steer.response_id}
    return {"type": f"response.steer.{kind}", "sequence_number": 0, "steer": identity, **fields}


@dataclass(slots=True)
class _RunningResponse:
    turn: TurnMessage
    id: str | None = None
    terminal: StreamEvent | None = None
    queued: list[QueuedSteer] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _WaitingSteers:
    """Input for a response that has ended and needs items of the client."""

    stream_id: str | None
    steers: tuple[QueuedSteer, ...]


class ConnectionSteering:
    """The steering of one connection: the response that runs, and the input that is queued."""

    def __init__(self, new_id: NewId, limits: SteerLimits) -> None:
        self._new_id, self._limits = new_id, limits
        self._running: _RunningResponse | None = None
        self._waiting: dict[str, _WaitingSteers] = {}
        self._ended: dict[str, Json] = {}

    def is_steered(self) -> bool:
        """Whether input waits for the end of the running response."""
        return self._running is not None and bool(self._running.queued)

    def begin(self, turn: TurnMessage) -> TurnMessage:
        """Start a turn; return it with the queued input that waits for it, before its own."""
        previous_id = turn.body.get("previous_response_id")
        waiting = self._waiting.get(previous_id) if isinstance(previous_id, str) else None
        if waiting is not None and waiting.stream_id == turn.stream_id and not turn.is_automatic:
            own_items = _to_items(turn.body.get("input"))
            if own_items is not None:  # else the request is refused
                del self._waiting[str(previous_id)]
                items = [*_steered_items(waiting.steers), *own_items]
                turn = replace(turn, body={**turn.body, "input": items}, steers=waiting.steers)
        self._running = _RunningResponse(turn)
        return turn

    def observe(self, event: StreamEvent) -> None:
        """Take note of an event of the running response, before it is sent."""
        running, response = self._running, event.get("response")
        if running is None or not isinstance(response, Mapping):
            return
        if event["type"] == "response.created":
            running.id = str(response["id"])
        elif event["type"] in ("response.completed", "response.incomplete", "response.failed"):
            running.terminal = event
            self._remember_end(running, response.get("status"))

    def submit(self, message: Mapping[str, Json], size_bytes: int) -> tuple[StreamEvent, str | None]:
        """Queue the input of a message; return the event to send, without its number, and its stream id."""
        running = self._running
        returned_input, response_id = message.get("input"), message.get("previous_response_id")
        is_target = running is not None and running.id is not None and running.id == response_id
        stream_id = running.turn.stream_id if running is not None and is_target else None

        def refuse(code: SteerErrorCode, text: str) -> tuple[StreamEvent, str | None]:
            return build_steer_failed_event(code, text, returned_input, response_id), stream_id

        try:
            response_id, items = parse_steer_input(message)
        except RequestRefused as refused:
            return refuse("invalid_input", refused.message)
        status = self._ended.get(response_id)
        if status == "completed":
            return refuse("response_already_completed", f"Response '{response_id}' has completed")
        if status is not None:
            return refuse("response_not_active", f"Response '{response_id}' has ended ({status})")
        if running is None or not is_target:
            return refuse("response_not_found", f"Response '{response_id}' does not run on this connection")
        reason = find_unsupported_reason(running.turn.body)
        if reason is not None:
            return refuse("steering_not_supported", reason)
        queued = [*running.queued, *(steer for waiting in self._waiting.values() for steer in waiting.steers)]
        if len(queued) >= self._limits.max_inputs:
            return refuse("too_many_pending_steers", f"{len(queued)} inputs are already queued on this connection")
        if sum(steer.size_bytes for steer in queued) + size_bytes > self._limits.max_bytes:
            return refuse(
                "too_many_pending_steers",
                f"The input that is queued on a connection may have {self._limits.max_bytes} bytes",
            )
        steer = QueuedSteer(self._new_id("steer"), response_id, returned_input, items, size_bytes)
        running.queued.append(steer)
        return _build_steer_event("accepted", steer), stream_id

    def finish(
        self, fault: ConvoError | None, *, can_continue: bool, queued_turns: Sequence[TurnMessage] = ()
    ) -> SteeringResult:
        """End the running turn, and commit, keep or return its queued input.

        fault:         the error that ended the turn without a terminal event
        can_continue:  whether the connection may start another turn
        queued_turns:  the turns that the client has already sent
        """
        running, self._running = self._running, None
        if running is None:
            return SteeringResult()
        turn = running.turn
        if running.id is None:
            if turn.is_automatic:
                text = fault.message if fault is not None else "The response was not created"
                return _return_steers(turn.steers, text)
            if turn.steers:  # the client may send a corrected request
                self._waiting[str(turn.body["previous_response_id"])] = _WaitingSteers(turn.stream_id, turn.steers)
            return SteeringResult()
        if running.terminal is None:
            self._remember_end(running, "failed")
        if not running.queued:
            return SteeringResult()
        response = (running.terminal or {}).get("response") or {}
        if response.get("status") not in ("completed", "incomplete"):
            return _return_steers(running.queued, f"Response '{running.id}' failed")
        if not can_continue:
            return _return_steers(running.queued, "The connection ends")
        steers = tuple(running.queued)
        stubs = [stub for stub in map(build_required_input, response.get("output") or ()) if stub is not None]
        if not stubs:
            return SteeringResult(turn=_build_successor(turn, running.id, steers))
        self._waiting[running.id] = _WaitingSteers(turn.stream_id, steers)
        if any(_continues(queued, running.id, turn.stream_id) for queued in queued_turns):
            return SteeringResult()
        fields = {"reason": "waiting_for_required_input", "required_input": stubs}
        return SteeringResult(tuple(_build_steer_event("pending", steer, **fields) for steer in steers))

    def _remember_end(self, running: _RunningResponse, status: Json) -> None:
        if running.id is not None:
            self._ended[running.id] = status
            if len(self._ended) > MAX_ENDED_RESPONSES:
                del self._ended[next(iter(self._ended))]


def _build_successor(turn: TurnMessage, response_id: str, steers: tuple[QueuedSteer, ...]) -> TurnMessage:
    """Build the turn that continues a response with the same settings."""
    body = {**turn.body, "previous_response_id": response_id, "input": _steered_items(steers)}
    return TurnMessage(body, turn.stream_id, steers, is_automatic=True)


def _return_steers(steers: Sequence[QueuedSteer], message: str) -> SteeringResult:
    events = (_build_returned_event(steer, "successor_creation_failed", message) for steer in steers)
    return SteeringResult(tuple(events))


def _steered_items(steers: Sequence[QueuedSteer]) -> list[Item]:
    return [item for steer in steers for item in steer.items]


def _to_items(value: Json) -> list[Json] | None:
    """Return the input of a request as items; None if it is invalid."""
    if value is None or isinstance(value, list):
        return list(value or ())
    return [user_message(value)] if isinstance(value, str) else None


def _continues(turn: TurnMessage, response_id: str, stream_id: str | None) -> bool:
    return turn.body.get("previous_response_id") == response_id and turn.stream_id == stream_id

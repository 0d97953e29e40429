"""What travels over a WebSocket on /v1/responses: one JSON object a message, in both directions.

A client sends `{"type": "response.create", ...}`, the body of POST /v1/responses beside the type. Of
the fields that belong to HTTP alone a connection takes what asks for nothing else than happens
anyway: the Agents SDK sends `stream: true` with every turn.

A server sends the events of a stream as they are, without `[DONE]`, and for what went wrong
`{"type": "error", "status": 400, "error": {...}}`. `stream_id` names a lane: requests that carry it
have a chain of their own, and so have those that carry none. Lanes take turns.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from convo.endpoints.errors import error_event
from convo.errors import ConvoError, Refused
from convo.items import Event, Json

CREATE, STEER = "response.create", "response.steer"

LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")


@dataclass(frozen=True, slots=True)
class Create:
    """A turn to carry out: `body` as `Connection.create` takes it; `lane` None for requests that name none."""

    body: Mapping[str, Json]
    lane: str | None


def lane_of(message: Mapping[str, Json]) -> str | None:
    """raises: Refused  `stream_id` is no name of a lane"""
    lane = message.get("stream_id")
    if lane is None or (isinstance(lane, str) and LANE.fullmatch(lane)):
        return lane
    raise Refused(
        "The 'stream_id' field must be a string of 1 to 256 letters, digits, underscores, hyphens and periods",
        code="invalid_stream_id",
        param="stream_id",
    )


def turn(message: Mapping[str, Json]) -> Create:
    """The turn that `message` asks for.

    raises:  Refused  it is of another type
    """
    kind = message.get("type")
    if kind is None:
        raise Refused("Missing required parameter: 'type'", code="missing_required_parameter", param="type")
    if kind != CREATE:
        words = f"Invalid value: '{kind}'. Supported values are: '{CREATE}'"
        raise Refused(words, code="invalid_value", param="type")
    body = {name: value for name, value in message.items() if name not in ("type", "stream_id")}
    return Create(body, lane_of(message))


def text_of(said: str | None) -> bytes:
    """raises: Refused  it came as bytes"""
    if said is None:
        raise Refused("A message over a WebSocket has to be text", code="invalid_json")
    return said.encode()


def too_many_lanes(most: int) -> Refused:
    return Refused(
        f"This WebSocket connection has reached its maximum number of distinct stream IDs ({most}). "
        "Reuse an existing stream_id or open a new WebSocket connection",
        code="websocket_stream_limit_reached",
        param="stream_id",
    )


def too_many_waiting(most: int) -> Refused:
    return Refused(
        f"{most} requests wait on this WebSocket connection already. Wait until one of them is answered",
        code="websocket_queue_full",
        status=429,
    )


def too_old(limit_s: float) -> Refused:
    return Refused(
        f"Responses websocket connection limit reached ({limit_s / 60:g} minutes). "
        "Create a new websocket connection to continue",
        code="websocket_connection_limit_reached",
    )


def labelled(event: Event, lane: str | None) -> Event:
    """`event` as the lane's own."""
    return event if lane is None else {**event, "stream_id": lane}


def error_message(fault: ConvoError, number: int, lane: str | None) -> Event:
    """What tells `fault`: nested as the specification has it, flat as the openai package reads a stream.

    number:  the sequence number that the next event of the stream would have had
    """
    event = error_event(fault, number)
    code = event["error"]["code"] or fault.code
    return labelled({**event, "status": fault.status, "code": code, "error": {**event["error"], "code": code}}, lane)


def steering_failed(message: Mapping[str, Json]) -> Event:
    """The answer to `response.steer`: what was sent comes back, to be sent with the next request."""
    error = {
        "type": "invalid_request_error",
        "code": "steering_not_supported",
        "message": "This server does not steer responses. Send the input with the next response.create.",
    }
    returned = {"input": message.get("input"), "previous_response_id": message.get("previous_response_id")}
    return {"type": "response.steer.failed", "sequence_number": 0, "steer": returned, "error": error}

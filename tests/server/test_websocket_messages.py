"""WebSocket messages, parsed and built: turns, stream ids, errors, and the reply to steering."""

import json
from typing import Any

import pytest

from convo.errors import RequestRefused, StoreUnavailable, TryLater
from convo.server import websocket
from convo.server.steering import TurnMessage, build_steer_failed_event
from convo.server.websocket import (
    build_error_message,
    check_text_message,
    parse_stream_id,
    parse_turn_message,
    with_stream_id,
)
from tests.endpoints.endpoint_calls import error_fields

STREAM_ID_ERROR = "The 'stream_id' field must be a string of 1 to 256 letters, digits, underscores, hyphens and periods"


@pytest.mark.parametrize("stream_id", [None, "a", "A-z_0.9", "x" * 256])
def test_a_stream_id_is_a_short_name(stream_id: str | None) -> None:
    assert parse_stream_id({"stream_id": stream_id}) == stream_id
    assert parse_stream_id({}) is None


@pytest.mark.parametrize("stream_id", ["", "x" * 257, "a b", "a\n", "ü", 7, True, [], {}], ids=ascii)
def test_any_other_stream_id_is_refused(stream_id: Any) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_stream_id({"stream_id": stream_id})
    assert (caught.value.message, error_fields(caught.value)) == (
        STREAM_ID_ERROR,
        ("invalid_stream_id", 400, "stream_id"),
    )


def test_a_turn_is_the_message_without_its_type_and_stream_id() -> None:
    message = {"type": "response.create", "stream_id": "left", "model": "m", "input": "a"}
    assert parse_turn_message(message) == TurnMessage({"model": "m", "input": "a"}, "left")
    assert parse_turn_message({"type": "response.create"}) == TurnMessage({}, None)


@pytest.mark.parametrize(
    ("message", "text", "code"),
    [
        ({"model": "m"}, "Missing required parameter: 'type'", "missing_required_parameter"),
        ({"type": None}, "Missing required parameter: 'type'", "missing_required_parameter"),
        (
            {"type": "response.cancel"},
            "Invalid value: 'response.cancel'. Supported values are: 'response.create' and 'response.steer'",
            "invalid_value",
        ),
    ],
)
def test_a_message_of_another_type_is_refused(message: dict[str, Any], text: str, code: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_turn_message(message)
    assert (caught.value.message, error_fields(caught.value)) == (text, (code, 400, "type"))


def test_a_binary_message_is_refused() -> None:
    assert check_text_message("ü") == "ü".encode()
    assert check_text_message("") == b""
    with pytest.raises(RequestRefused) as caught:
        check_text_message(None)
    assert (caught.value.message, caught.value.code) == ("A WebSocket message must be text", "invalid_json")


def test_an_event_has_the_stream_id_of_its_turn() -> None:
    event = {"type": "response.created"}
    assert with_stream_id(event, None) is event
    assert with_stream_id(event, "left") == {"type": "response.created", "stream_id": "left"}


def test_an_error_is_nested_and_flat_and_always_has_a_code() -> None:
    assert build_error_message(TryLater("Busy", code="overloaded"), 4, "left") == {
        "type": "error",
        "sequence_number": 4,
        "status": 503,
        "code": "overloaded",
        "message": "Busy.",
        "param": None,
        "error": {"type": "server_error", "code": "overloaded", "message": "Busy.", "param": None},
        "stream_id": "left",
    }
    plain = build_error_message(RequestRefused("No"), 0, None)
    assert (plain["code"], plain["error"]["code"]) == ("invalid_request_error", "invalid_request_error")
    assert "stream_id" not in plain
    assert build_error_message(StoreUnavailable("away"), 0, None)["code"] == "store_unavailable"


def test_input_that_was_not_used_is_returned() -> None:
    failed = build_steer_failed_event("steering_not_supported", "A reason", "Stop.", "resp_1")
    assert failed == {
        "type": "response.steer.failed",
        "sequence_number": 0,
        "steer": {"input": "Stop.", "previous_response_id": "resp_1"},
        "error": {"type": "invalid_request_error", "code": "steering_not_supported", "message": "A reason."},
    }


async def test_a_connection_is_accepted_with_the_id_of_its_request() -> None:
    received: list[str] = []
    sent: list[Any] = []

    async def receive() -> Any:
        received.append("connect")
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await websocket.accept_websocket(receive, send, "req_1")
    assert received == ["connect"]
    assert sent == [{"type": "websocket.accept", "headers": [(b"x-request-id", b"req_1")]}]
    await websocket.with_http_rejection(send)({"type": "http.response.start", "status": 403})
    await websocket.with_http_rejection(send)({"type": "websocket.close"})
    assert sent[1:] == [{"type": "websocket.http.response.start", "status": 403}, {"type": "websocket.close"}]
    assert json.dumps(sent[1:])

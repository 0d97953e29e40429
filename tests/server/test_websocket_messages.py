"""WebSocket messages, parsed and built: turns, stream ids, errors, and the reply to steering."""

from typing import Any

import pytest

from convo.errors import RequestRefused
from convo.server.websocket import (
    check_text_message,
    parse_stream_id,
    parse_turn_message,
)
from tests.endpoints.endpoint_calls import error_fields

STREAM_ID_ERROR = "The 'stream_id' field must be a string of 1 to 256 letters, digits, underscores, hyphens and periods"


@pytest.mark.parametrize("stream_id", [None, "a", "A-z_0.9", "x" * 256])
def test_a_stream_id_is_a_short_name(stream_id: str | None) -> None:
    assert parse_stream_id({"stream_id": stream_id}) == stream_id


@pytest.mark.parametrize("stream_id", ["", "x" * 257, "a b", "a\n", "ü", 7, True, [], {}], ids=ascii)
def test_any_other_stream_id_is_refused(stream_id: Any) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_stream_id({"stream_id": stream_id})
    assert (caught.value.message, error_fields(caught.value)) == (
        STREAM_ID_ERROR,
        ("invalid_stream_id", 400, "stream_id"),
    )


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

"""Errors of HTTP and WebSocket whose whole message no request of another test shows."""

import pytest

from convo.errors import ConvoError
from convo.server import errors, websocket

ERRORS: list[tuple[ConvoError, str, str, int]] = [
    (
        errors.duplicate_key_header_error("x-api-key"),
        "Your request has more than one x-api-key header; send one",
        "duplicate_key_header",
        400,
    ),
    (
        errors.missing_api_key_error(),
        "You didn't provide an API key. Provide it in an Authorization header: Bearer YOUR_KEY",
        "missing_api_key",
        401,
    ),
    (errors.incorrect_api_key_error(), "Incorrect API key provided", "invalid_api_key", 401),
    (
        websocket.too_many_streams_error(32),
        "This WebSocket connection has reached its maximum number of distinct stream IDs (32). "
        "Reuse an existing stream_id or open a new WebSocket connection",
        "websocket_stream_limit_reached",
        400,
    ),
    (
        websocket.connection_expired_error(90),
        "Responses websocket connection limit reached (1.5 minutes). Create a new websocket connection to continue",
        "websocket_connection_limit_reached",
        400,
    ),
]


@pytest.mark.parametrize(("error", "message", "code", "status"), ERRORS, ids=[row[2] for row in ERRORS])
def test_an_error_has_its_message_code_and_status(error: ConvoError, message: str, code: str, status: int) -> None:
    assert (error.message, error.code, error.status) == (message, code, status)

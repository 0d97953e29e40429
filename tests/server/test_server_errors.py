"""The errors of HTTP and WebSocket as a client sees them: message, code, status, param."""

import pytest

from convo.errors import ConvoError
from convo.server import errors, websocket

REFUSED = "invalid_request_error"

ERRORS: list[tuple[ConvoError, str, str, int, str | None]] = [
    (
        errors.unknown_url_error("GET", "/v12"),
        "Invalid URL (GET /v12); the paths of this API begin with /v1",
        REFUSED,
        404,
        None,
    ),
    (
        errors.headers_too_large_error(65536),
        "The headers of your request are larger than 65,536 bytes",
        "headers_too_large",
        431,
        None,
    ),
    (
        errors.request_timeout_error(1.5),
        "Your request did not arrive within 1.5 seconds",
        "request_timeout",
        408,
        None,
    ),
    (errors.invalid_http_error(), "The request is not an HTTP/1.1 request", "invalid_request", 400, None),
    (
        errors.invalid_handshake_error(),
        "This request cannot open a WebSocket. Send a GET without a body, with a Sec-WebSocket-Key, version 13, "
        "and at most 128 headers of 8,192 bytes",
        "invalid_handshake",
        400,
        None,
    ),
    (
        errors.server_shutting_down_error(),
        "The server is shutting down. Please retry in a moment",
        "server_shutting_down",
        503,
        None,
    ),
    (errors.not_ready_error(), "The server is not ready. Please retry in a moment", "not_ready", 503, None),
    (
        errors.duplicate_key_header_error("authorization"),
        "Your request has more than one Authorization header; send one",
        "duplicate_authorization_header",
        400,
        None,
    ),
    (
        errors.duplicate_key_header_error("x-api-key"),
        "Your request has more than one x-api-key header; send one",
        "duplicate_key_header",
        400,
        None,
    ),
    (
        errors.host_not_allowed_error("evil.example"),
        "This server accepts requests for its own address only, not for 'evil.example'",
        "host_not_allowed",
        403,
        None,
    ),
    (
        errors.origin_not_allowed_error("https://evil.example"),
        "This server does not accept requests from the web page 'https://evil.example'",
        "origin_not_allowed",
        403,
        None,
    ),
    (
        errors.missing_api_key_error(),
        "You didn't provide an API key. Provide it in an Authorization header: Bearer YOUR_KEY",
        "missing_api_key",
        401,
        None,
    ),
    (errors.incorrect_api_key_error(), "Incorrect API key provided", "invalid_api_key", 401, None),
    (
        errors.http_parameter_value_error("type", "x", ("a",)),
        "Invalid value: 'x'. Supported values are: 'a'",
        "invalid_value",
        400,
        "type",
    ),
    (
        errors.http_parameter_value_error("type", "x", ("a", "b", "c")),
        "Invalid value: 'x'. Supported values are: 'a', 'b', and 'c'",
        "invalid_value",
        400,
        "type",
    ),
    (errors.empty_stream_error(), "The response ended before its first event", "stream_broken", 502, None),
    (
        websocket.too_many_streams_error(32),
        "This WebSocket connection has reached its maximum number of distinct stream IDs (32). "
        "Reuse an existing stream_id or open a new WebSocket connection",
        "websocket_stream_limit_reached",
        400,
        "stream_id",
    ),
    (
        websocket.queue_full_error(8),
        "8 requests are already queued on this WebSocket connection. Wait for a response first",
        "websocket_queue_full",
        429,
        None,
    ),
    (
        websocket.connection_expired_error(90),
        "Responses websocket connection limit reached (1.5 minutes). Create a new websocket connection to continue",
        "websocket_connection_limit_reached",
        400,
        None,
    ),
]


@pytest.mark.parametrize(("error", "message", "code", "status", "param"), ERRORS, ids=[row[1][:40] for row in ERRORS])
def test_an_error_has_its_message_code_status_and_parameter(
    error: ConvoError, message: str, code: str, status: int, param: str | None
) -> None:
    assert (error.message, error.code, error.status) == (message, code, status)
    assert getattr(error, "param", None) == param


@pytest.mark.parametrize(
    "error",
    [errors.overloaded_error(), errors.server_shutting_down_error(), errors.not_ready_error()],
    ids=lambda error: error.code,
)
def test_a_server_that_cannot_respond_now_may_be_tried_after_a_second(error: ConvoError) -> None:
    assert getattr(error, "retry_after_s", None) == 1.0

"""Errors of HTTP itself, raised before an endpoint is called.

Messages, codes and statuses equal the real API's as far as they are known.
"""

from collections.abc import Mapping, Sequence

from convo.errors import AlreadyDecided, KeyRefused, RequestRefused, StreamBroken, TryLater
from convo.history.items import Json

OVERLOADED_RETRY_S = 1.0
"""Seconds after which a client may retry if too many requests are running."""


def unknown_url_error(method: str, path: str) -> RequestRefused:
    advice = "" if f"{path}/".startswith("/v1/") else "; the paths of this API begin with /v1"
    return RequestRefused(f"Invalid URL ({method} {path}){advice}", status=404)


def unknown_relay_path_error(method: str, path: str, base_paths: Sequence[str]) -> RequestRefused:
    """Build the error of a relay; `base_paths` are the paths that it relays."""
    return RequestRefused(f"Invalid URL ({method} {path}); this relay accepts {', '.join(base_paths)}", status=404)


def method_not_allowed_error(method: str, path: str, allowed_methods: str) -> RequestRefused:
    return RequestRefused(
        f"Not allowed to {method} on {path}; allowed are {allowed_methods}", code="method_not_supported", status=405
    )


def unsupported_content_type_error(content_type: str) -> RequestRefused:
    header = (
        f"you specified the header 'Content-Type: {content_type}'"
        if content_type
        else "you specified no Content-Type header"
    )
    return RequestRefused(
        f"Unsupported content type: '{content_type}'. This API method only accepts 'application/json' requests, "
        f"but {header}. Please try again with a supported content type",
        code="unsupported_content_type",
    )


def unsupported_encoding_error(encoding: str) -> RequestRefused:
    return RequestRefused(
        f"Unsupported content encoding '{encoding}': send the body as it is", code="unsupported_encoding", status=415
    )


def invalid_json_error(reason: str) -> RequestRefused:
    return RequestRefused(f"We could not parse the JSON body of your request: {reason}")


def body_not_an_object_error() -> RequestRefused:
    return RequestRefused("The JSON body of your request must be an object")


def body_too_large_error(max_bytes: int) -> RequestRefused:
    return RequestRefused(
        f"The body of your request is larger than {max_bytes:,} bytes", code="request_too_large", status=413
    )


def headers_too_large_error(max_bytes: int) -> RequestRefused:
    return RequestRefused(
        f"The headers of your request are larger than {max_bytes:,} bytes", code="headers_too_large", status=431
    )


def request_timeout_error(within_s: float) -> RequestRefused:
    return RequestRefused(
        f"Your request did not arrive within {within_s:g} seconds", code="request_timeout", status=408
    )


def invalid_http_error() -> RequestRefused:
    return RequestRefused("The request is not an HTTP/1.1 request", code="invalid_request")


def invalid_handshake_error() -> RequestRefused:
    return RequestRefused(
        "This request cannot open a WebSocket. Send a GET without a body, with a Sec-WebSocket-Key, version 13, "
        "and at most 128 headers of 8,192 bytes",
        code="invalid_handshake",
    )


def too_many_items_error(name: str, maximum: int, got: int) -> RequestRefused:
    return RequestRefused(
        f"Invalid '{name}': array too long. Expected an array with maximum length {maximum}, "
        f"but got an array with length {got} instead",
        code="array_above_max_length",
        param=name,
    )


def overloaded_error() -> TryLater:
    return TryLater(
        "Too many concurrent requests. Please retry in a moment",
        code="overloaded",
        retry_after_s=OVERLOADED_RETRY_S,
    )


def too_many_connections_error(maximum: int) -> TryLater:
    return TryLater(
        f"More than {maximum:,} connections are open, which the limit of open files (ulimit -n) does not allow. "
        "Those that are idle longest are closed; please retry in a moment",
        code="overloaded",
        retry_after_s=OVERLOADED_RETRY_S,
    )


def bodies_too_large_error(max_bytes: int) -> TryLater:
    return TryLater(
        f"The bodies of all running requests together would exceed {max_bytes:,} bytes. Please retry in a moment",
        code="overloaded",
        retry_after_s=OVERLOADED_RETRY_S,
    )


def server_shutting_down_error() -> TryLater:
    return TryLater(
        "The server is shutting down. Please retry in a moment",
        code="server_shutting_down",
        retry_after_s=OVERLOADED_RETRY_S,
    )


def not_ready_error() -> TryLater:
    """Build the error without a reason, because callers are not authenticated. The server's log has the reason."""
    return TryLater(
        "The server is not ready. Please retry in a moment", code="not_ready", retry_after_s=OVERLOADED_RETRY_S
    )


def duplicate_key_header_error(name: str) -> RequestRefused:
    """Build the error; `name` is the header in lower case."""
    if name == "authorization":
        return RequestRefused(
            "Your request has more than one Authorization header; send one", code="duplicate_authorization_header"
        )
    return RequestRefused(f"Your request has more than one {name} header; send one", code="duplicate_key_header")


def host_not_allowed_error(text: str) -> RequestRefused:
    return RequestRefused(
        f"This server accepts requests for its own address only, not for '{text}'", code="host_not_allowed", status=403
    )


def caller_not_allowed_error() -> RequestRefused:
    return RequestRefused(
        "This server accepts requests from its own machine only, because it has no API keys",
        code="caller_not_allowed",
        status=403,
    )


def origin_not_allowed_error(text: str) -> RequestRefused:
    return RequestRefused(
        f"This server does not accept requests from the web page '{text}'", code="origin_not_allowed", status=403
    )


# -- decisions on the inspector page ---------------------------------------------------------------

KEYS_HINT = (
    "create a key for the tenant of the runs, which is local for those of this machine: "
    "convo serve --new-key local --keys FILE; then serve with --keys FILE"
)


def api_key_required_error() -> RequestRefused:
    return RequestRefused(
        f"A decision needs an API key, also on this machine. To set up keys, {KEYS_HINT}",
        code="api_key_required",
        status=403,
        hint=KEYS_HINT,
    )


def invalid_csrf_token_error() -> RequestRefused:
    return RequestRefused(
        "The 'csrf_token' is not one of this key, or it has expired. Load the call again",
        code="invalid_csrf_token",
        param="csrf_token",
        status=403,
    )


def already_decided_error(decision: Mapping[str, Json]) -> AlreadyDecided:
    """Build the error; `decision` is the JSON object of the logged decision."""
    verb = "approved" if decision["decision"] == "approve" else "rejected"
    by = f" by {decision['decided_by']}" if decision["decided_by"] else ""
    return AlreadyDecided(f"The call {decision['call_id']} is already {verb}{by}", decision)


def arguments_changed_error(call_id: str) -> RequestRefused:
    return RequestRefused(
        f"The arguments of {call_id} changed since they were shown. Load the call again",
        code="arguments_changed",
        param="arguments_digest",
        status=409,
    )


def ambiguous_call_error(call_id: str) -> RequestRefused:
    return RequestRefused(
        f"Several pending calls of the run have the id {call_id}. Decide them with convo approvals",
        code="ambiguous_call",
        status=409,
    )


def session_open_error(name: str, process: str) -> RequestRefused:
    return RequestRefused(
        f"The session {name} is open in another process ({process}), which has continued or ended the run",
        code="session_open",
        status=409,
    )


def run_changed_error(run_id: str) -> RequestRefused:
    return RequestRefused(f"The run {run_id} changed meanwhile. Load the call again", code="run_changed", status=409)


# -- queries and fields ---------------------------------------------------------------------------


def unknown_http_parameter_error(name: str) -> RequestRefused:
    return RequestRefused(f"Unknown parameter: '{name}'", code="unknown_parameter", param=name)


def missing_http_parameter_error(name: str) -> RequestRefused:
    return RequestRefused(f"Missing required parameter: '{name}'", code="missing_required_parameter", param=name)


def http_parameter_type_error(name: str, expected: str) -> RequestRefused:
    """Build the error; `expected` has its article: "an integer"."""
    return RequestRefused(f"Invalid type for '{name}': expected {expected}", code="invalid_type", param=name)


def http_parameter_value_error(name: str, got: str, supported: tuple[str, ...]) -> RequestRefused:
    values = [f"'{value}'" for value in supported]
    last = f"and {values.pop()}" if len(values) > 1 else values.pop()
    listed = f"{', '.join(values)}, {last}" if len(values) > 1 else " ".join([*values, last])
    return RequestRefused(f"Invalid value: '{got}'. Supported values are: {listed}", code="invalid_value", param=name)


def repeated_parameter_error(name: str) -> RequestRefused:
    return RequestRefused(f"Invalid '{name}': it is given more than once", code="invalid_value", param=name)


def parameter_requires_error(name: str, other: str) -> RequestRefused:
    return RequestRefused(f"The '{name}' parameter is only allowed with '{other}'", code="invalid_value", param=name)


# -- models and streams ---------------------------------------------------------------------------


def unknown_model_error(model: str) -> RequestRefused:
    return RequestRefused(f"The model '{model}' does not exist", code="model_not_found", param="model", status=404)


def empty_stream_error() -> StreamBroken:
    return StreamBroken("The response ended before its first event")


# -- keys -----------------------------------------------------------------------------------------


def missing_api_key_error() -> KeyRefused:
    return KeyRefused(
        "You didn't provide an API key. Provide it in an Authorization header: Bearer YOUR_KEY", code="missing_api_key"
    )


def incorrect_api_key_error() -> KeyRefused:
    return KeyRefused("Incorrect API key provided", code="invalid_api_key")

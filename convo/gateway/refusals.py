"""What HTTP itself can be refused for, before an endpoint is asked.

The messages, codes and statuses are the real API's where they are known: a refusal without a code here has none
there. Every one of them travels as the API's error object.
"""

from convo.errors import KeyRefused, Refused, StreamBroken, TryLater

FULL_FOR_S = 1.0
"""Seconds after which a client may ask again when too many requests run."""


def no_route(method: str, path: str) -> Refused:
    advice = "" if f"{path}/".startswith("/v1/") else "; the paths of this API begin with /v1"
    return Refused(f"Invalid URL ({method} {path}){advice}", status=404)


def wrong_method(method: str, path: str, allowed: str) -> Refused:
    return Refused(f"Not allowed to {method} on {path}; allowed are {allowed}", code="method_not_supported", status=405)


def wrong_form(given: str) -> Refused:
    header = f"you specified the header 'Content-Type: {given}'" if given else "you specified no Content-Type header"
    return Refused(
        f"Unsupported content type: '{given}'. This API method only accepts 'application/json' requests, but {header}. "
        "Please try again with a supported content type",
        code="unsupported_content_type",
    )


def encoded(given: str) -> Refused:
    return Refused(
        f"Unsupported content encoding '{given}': send the body as it is", code="unsupported_encoding", status=415
    )


def not_json(why: str) -> Refused:
    return Refused(f"We could not parse the JSON body of your request: {why}")


def not_an_object() -> Refused:
    return Refused("The JSON body of your request must be an object")


def body_too_large(most: int) -> Refused:
    return Refused(f"The body of your request is larger than {most:,} bytes", code="request_too_large", status=413)


def head_too_large(most: int) -> Refused:
    return Refused(f"The headers of your request are larger than {most:,} bytes", code="headers_too_large", status=431)


def too_slow(within_s: float) -> Refused:
    return Refused(f"Your request did not arrive within {within_s:g} seconds", code="request_timeout", status=408)


def not_http() -> Refused:
    return Refused("This is not a request of HTTP/1.1", code="invalid_request")


def no_handshake() -> Refused:
    return Refused(
        "This opens no WebSocket: that takes a GET without a body, a Sec-WebSocket-Key, version 13, "
        "and no more than 128 headers of 8,192 bytes",
        code="invalid_handshake",
    )


def too_many_items(name: str, most: int, got: int) -> Refused:
    return Refused(
        f"Invalid '{name}': array too long. Expected an array with maximum length {most}, "
        f"but got an array with length {got} instead",
        code="array_above_max_length",
        param=name,
    )


def too_many_requests() -> TryLater:
    return TryLater(
        "Too many requests run here at once. Please retry in a moment", code="overloaded", retry_after_s=FULL_FOR_S
    )


def ending() -> TryLater:
    return TryLater(
        "The server is shutting down. Please retry in a moment", code="server_shutting_down", retry_after_s=FULL_FOR_S
    )


def not_ready() -> TryLater:
    """It gives no reason, because callers are not authenticated. The reason is in the server's log."""
    return TryLater("The server is not ready. Please retry in a moment", code="not_ready", retry_after_s=FULL_FOR_S)


def duplicate_authorization() -> Refused:
    return Refused(
        "Your request has more than one Authorization header; send one", code="duplicate_authorization_header"
    )


def foreign_host(said: str) -> Refused:
    return Refused(
        f"This server answers to its own address alone, not to '{said}'", code="host_not_allowed", status=403
    )


def foreign_origin(said: str) -> Refused:
    return Refused(f"This server takes no requests from the web page '{said}'", code="origin_not_allowed", status=403)


# -- queries and fields ---------------------------------------------------------------------------


def unknown_parameter(name: str) -> Refused:
    return Refused(f"Unknown parameter: '{name}'", code="unknown_parameter", param=name)


def missing(name: str) -> Refused:
    return Refused(f"Missing required parameter: '{name}'", code="missing_required_parameter", param=name)


def wrong_type(name: str, wanted: str) -> Refused:
    """`wanted` with its article: "an integer"."""
    return Refused(f"Invalid type for '{name}': expected {wanted}", code="invalid_type", param=name)


def wrong_value(name: str, got: str, known: tuple[str, ...]) -> Refused:
    values = [f"'{value}'" for value in known]
    last = f"and {values.pop()}" if len(values) > 1 else values.pop()
    listed = f"{', '.join(values)}, {last}" if len(values) > 1 else " ".join([*values, last])
    return Refused(f"Invalid value: '{got}'. Supported values are: {listed}", code="invalid_value", param=name)


def given_twice(name: str) -> Refused:
    return Refused(f"Invalid '{name}': it is given more than once", code="invalid_value", param=name)


def only_with(name: str, other: str) -> Refused:
    return Refused(f"The '{name}' parameter is only allowed with '{other}'", code="invalid_value", param=name)


# -- what an endpoint cannot say ------------------------------------------------------------------


def no_model(model: str) -> Refused:
    return Refused(f"The model '{model}' does not exist", code="model_not_found", param="model", status=404)


def no_answer() -> StreamBroken:
    return StreamBroken("The answer ended before it began")


# -- keys -----------------------------------------------------------------------------------------


def no_key() -> KeyRefused:
    return KeyRefused(
        "You didn't provide an API key. Provide it in an Authorization header: Bearer YOUR_KEY", code="missing_api_key"
    )


def wrong_key() -> KeyRefused:
    return KeyRefused("Incorrect API key provided", code="invalid_api_key")

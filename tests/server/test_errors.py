"""HTTP errors: the status and the error object of each refused request."""

import json
from typing import Any

import pytest

from tests.clock import HELD_S
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway

JSON = {"content-type": "application/json"}


def error(message: str, code: str | None, param: str | None = None, kind: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def invalid(path: str) -> Any:
    return error(f"Invalid URL (GET {path}).", None)


REFUSED: list[tuple[str, str, dict[str, Any], int, Any]] = [
    ("GET", "/v1/nope", {}, 404, invalid("/v1/nope")),
    ("GET", "/v1", {}, 404, invalid("/v1")),
    ("GET", "/v1/responses/a/b", {}, 404, invalid("/v1/responses/a/b")),
    ("GET", "/v1/responses/", {}, 404, invalid("/v1/responses/")),
    (
        "GET",
        "/responses/resp_1",
        {},
        404,
        error("Invalid URL (GET /responses/resp_1); the paths of this API begin with /v1.", None),
    ),
    (
        "PUT",
        "/v1/responses",
        {},
        405,
        error("Not allowed to PUT on /v1/responses; allowed are POST.", "method_not_supported"),
    ),
    (
        "OPTIONS",
        "/v1/conversations/conv_1",
        {},
        405,
        error(
            "Not allowed to OPTIONS on /v1/conversations/conv_1; allowed are GET, POST, DELETE, HEAD.",
            "method_not_supported",
        ),
    ),
    (
        "GET",
        "/v1/responses/resp_1?foo=1",
        {},
        400,
        error("Unknown parameter: 'foo'.", "unknown_parameter", "foo"),
    ),
    (
        "DELETE",
        "/v1/conversations/conv_1?limit=1",
        {},
        400,
        error("Unknown parameter: 'limit'.", "unknown_parameter", "limit"),
    ),
    (
        "GET",
        "/v1/responses/resp_1/input_items?limit=ten",
        {},
        400,
        error("Invalid type for 'limit': expected an integer.", "invalid_type", "limit"),
    ),
    (
        "GET",
        "/v1/responses/resp_1/input_items?order=up",
        {},
        400,
        error("Invalid value: 'up'. Supported values are: 'asc' and 'desc'.", "invalid_value", "order"),
    ),
    (
        "GET",
        "/v1/responses/resp_1?stream=1",
        {},
        400,
        error("Invalid type for 'stream': expected a boolean.", "invalid_type", "stream"),
    ),
    (
        "GET",
        "/v1/responses/resp_1?stream=true&stream=false",
        {},
        400,
        error("Invalid 'stream': it is given more than once.", "invalid_value", "stream"),
    ),
    (
        "GET",
        "/v1/responses/resp_1?starting_after=3",
        {},
        400,
        error("The 'starting_after' parameter is only allowed with 'stream=true'.", "invalid_value", "starting_after"),
    ),
    (
        "GET",
        "/v1/responses/resp_1?include_obfuscation=true",
        {},
        404,
        error("Response with id 'resp_1' not found.", None),
    ),
    (
        "GET",
        "/v1/models/nope",
        {},
        404,
        error("The model 'nope' does not exist.", "model_not_found", "model"),
    ),
    ("POST", "/v1/responses/resp_1/cancel", {}, 404, error("Response with id 'resp_1' not found.", None)),
    ("GET", "/v1/responses/resp_1?stream=true", {}, 404, error("Response with id 'resp_1' not found.", None)),
    (
        "POST",
        "/v1/responses",
        {"content": b"{}", "headers": {"content-type": "text/plain"}},
        400,
        error(
            "Unsupported content type: 'text/plain'. This API method only accepts 'application/json' requests, "
            "but you specified the header 'Content-Type: text/plain'. Please try again with a supported content type.",
            "unsupported_content_type",
        ),
    ),
    (
        "POST",
        "/v1/responses",
        {"content": b"{}"},
        400,
        error(
            "Unsupported content type: ''. This API method only accepts 'application/json' requests, "
            "but you specified no Content-Type header. Please try again with a supported content type.",
            "unsupported_content_type",
        ),
    ),
    (
        "POST",
        "/v1/responses",
        {"content": b"{}", "headers": {**JSON, "content-encoding": "gzip"}},
        415,
        error("Unsupported content encoding 'gzip': send the body as it is.", "unsupported_encoding"),
    ),
    (
        "POST",
        "/v1/responses",
        {"content": b"{", "headers": JSON},
        400,
        error(
            "We could not parse the JSON body of your request: "
            "Expecting property name enclosed in double quotes at line 1, column 2.",
            None,
        ),
    ),
    (
        "POST",
        "/v1/responses",
        {"content": b"", "headers": JSON},
        400,
        error("We could not parse the JSON body of your request: Expecting value at line 1, column 1.", None),
    ),
    (
        "POST",
        "/v1/responses",
        {"content": b"[]", "headers": JSON},
        400,
        error("The JSON body of your request must be an object.", None),
    ),
    (
        "POST",
        "/v1/responses",
        {"json": {"model": "echo", "input": "hi", "stop_words": "x"}},
        400,
        error("Unknown parameter: 'stop_words'.", "unknown_parameter", "stop_words"),
    ),
    (
        "POST",
        "/v1/conversations",
        {"json": {"items": {}}},
        400,
        error("Invalid type for 'items': expected an array.", "invalid_type", "items"),
    ),
    (
        "POST",
        "/v1/conversations",
        {"json": {"metadata": "x"}},
        400,
        error("Invalid type for 'metadata': expected an object.", "invalid_type", "metadata"),
    ),
    (
        "POST",
        "/v1/conversations",
        {"json": {"name": "x"}},
        400,
        error("Unknown parameter: 'name'.", "unknown_parameter", "name"),
    ),
    (
        "POST",
        "/v1/conversations/conv_1",
        {"json": {}},
        400,
        error("Missing required parameter: 'metadata'.", "missing_required_parameter", "metadata"),
    ),
    (
        "POST",
        "/v1/conversations/conv_1/items",
        {"json": {}},
        400,
        error("Missing required parameter: 'items'.", "missing_required_parameter", "items"),
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "expected"), REFUSED, ids=[f"{row[0]} {row[1]} {row[3]}" for row in REFUSED]
)
def test_an_error_has_its_status_and_error_object(
    shared_gateway: RunningGateway, method: str, path: str, more: dict[str, Any], status: int, expected: Any
) -> None:
    got = shared_gateway.http.request(method, path, **more)
    assert (got.status_code, got.json(), got.headers["content-type"]) == (status, expected, "application/json")
    assert got.headers["x-request-id"].startswith("req_")
    assert got.headers["openai-processing-ms"].isdigit()


def test_a_wrong_method_gets_the_allowed_ones(shared_gateway: RunningGateway) -> None:
    assert shared_gateway.http.put("/v1/conversations").headers["allow"] == "POST"


def test_a_retryable_error_has_a_retry_after_header(gateway: RunningGateway) -> None:
    """The endpoint's retry time is sent in seconds, as in HTTP, and in milliseconds, which clients read first."""
    gateway.script(
        "refused", {"error": {"code": "rate_limit_exceeded", "message": "Slow", "status": 429, "retry_after_s": 1.5}}
    )
    got = gateway.create_response({"model": "refused", "input": "hi"})
    assert (got.status_code, got.headers["retry-after"], got.headers["retry-after-ms"]) == (429, "2", "1500")


UNREADABLE = [
    (b"NaN", "NaN is not JSON"),
    (b"-Infinity", "-Infinity is not JSON"),
    (b"1e400", "a number in it is larger than any double"),
    (b"9" * 5000, "a number in it has too many digits"),
    (b'{"a": 1, "a": 2}', 'the key "a" occurs twice in one object'),
    (b'"\xff"', "byte 55 is not UTF-8"),
    (b"[" * 101 + b"]" * 101, "it is nested deeper than 100 levels"),
    (b"[" * 100_000, "it is nested deeper than 100 levels"),
]


@pytest.mark.parametrize(("value", "reason"), UNREADABLE, ids=[row[1] for row in UNREADABLE])
def test_ambiguous_json_is_refused(shared_gateway: RunningGateway, value: bytes, reason: str) -> None:
    body = b'{"model": "echo", "input": "hi", "tool_choice": {"x": ' + value + b"}}"
    got = shared_gateway.http.post("/v1/responses", content=body, headers=JSON)
    assert got.status_code == 400
    assert got.json()["error"]["message"] == f"We could not parse the JSON body of your request: {reason}."


def test_a_body_with_too_many_values_is_refused_before_it_is_parsed(shared_gateway: RunningGateway) -> None:
    body = b'{"model": "echo", "input": "hi", "tools": [' + b"[]," * 250_001 + b"[]]}"
    got = shared_gateway.http.post("/v1/responses", content=body, headers=JSON)
    assert got.json()["error"]["message"].endswith("it contains more than 500,000 values.")


def test_brackets_and_commas_in_strings_do_not_count_as_values(gateway: RunningGateway) -> None:
    gateway.script("one", {"text": "Read."})
    got = gateway.create_response({"model": "one", "input": '\\",[{' * 200_000})
    assert got.json()["output"][0]["content"][0]["text"] == "Read."


def test_numbers_and_lone_surrogates_round_trip(stored_gateway: RunningGateway) -> None:
    """Values that other servers round or refuse are stored and returned unchanged."""
    numbers = "[9007199254740993, 18446744073709551617, 1.0, 1]"
    item = f'{{"type": "message", "role": "user", "content": "\\ud83d", "x": {numbers}}}'
    body = f'{{"model": "echo", "input": [{item}]}}'
    response = gateway_json(stored_gateway, "POST", "/v1/responses", body.encode())
    listed = gateway_json(stored_gateway, "GET", f"/v1/responses/{response['id']}/input_items")

    assert response["output"][0]["content"][0]["text"] == "\ud83d"
    assert listed["data"][0]["content"][0]["text"] == "\ud83d"
    assert repr(listed["data"][0]["x"]) == numbers


def gateway_json(gateway: RunningGateway, method: str, path: str, body: bytes | None = None) -> Any:
    got = gateway.http.request(method, path, content=body, headers=JSON if body else {})
    assert got.status_code == 200, got.text
    return json.loads(got.content)


# -- limits ---------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused_by_its_content_length(serve: Serve) -> None:
    got = serve(max_body_bytes=1024).create_response({"model": "echo", "input": "x" * 2000})
    assert got.status_code == 413
    assert got.json() == error("The body of your request is larger than 1,024 bytes.", "request_too_large")
    assert got.headers["connection"] == "close"


def test_a_body_without_a_content_length_is_counted(serve: Serve) -> None:
    pieces = iter([b'{"model": "echo", "input": "', *[b"x" * 300] * 5, b'"}'])
    got = serve(max_body_bytes=1024).http.post("/v1/responses", content=pieces, headers=JSON)
    assert (got.status_code, got.json()["error"]["code"]) == (413, "request_too_large")


def test_too_many_items_are_refused_with_the_name_of_their_field(serve: Serve) -> None:
    got = serve(max_items=2).create_response({"model": "echo", "input": [{"role": "user", "content": "x"}] * 3})
    assert got.status_code == 400
    assert got.json() == error(
        "Invalid 'input': array too long. Expected an array with maximum length 2, "
        "but got an array with length 3 instead.",
        "array_above_max_length",
        "input",
    )


def test_too_many_concurrent_requests_are_refused_with_a_retry_time(serve: Serve) -> None:
    gateway = serve(max_requests=1)
    gateway.script("slow", {"text": "word " * 100}, delay_s=HELD_S)
    with gateway.http.stream("POST", "/v1/responses", json={"model": "slow", "input": "hi", "stream": True}) as first:
        lines = first.iter_lines()
        next(lines)
        got = gateway.create_response({"model": "echo", "input": "hi"})
        health = gateway.http.get("/healthz")

    assert (got.status_code, got.headers["retry-after"]) == (503, "1")
    assert got.json() == error(
        "Too many concurrent requests. Please retry in a moment.", "overloaded", kind="server_error"
    )
    assert health.json() == {"status": "ok"}


def test_calls_and_outputs_that_share_an_id_are_refused_by_name(shared_gateway: RunningGateway) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    for items, prefix in (
        ([call, call, call, output], "No tool output found for function call c1"),
        ([call, output, output], "Duplicate function call output for call_id c1."),
    ):
        got = shared_gateway.create_response({"model": "echo", "input": [{"role": "user", "content": "hi"}, *items]})
        error = got.json()["error"]
        assert (got.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "input")
        assert error["message"].startswith(prefix)

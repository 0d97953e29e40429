"""Errors of servers and of HTTP become errors of convo with messages of its own."""

import errno
import socket
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import aiohttp
import httpx2
import pytest
from aiohttp.client_reqrep import ConnectionKey

from convo.errors import ConvoError, KeyRefused, RequestRefused, StreamBroken, TryLater, Unreachable, WindowExceeded
from convo.models.errors import (
    ErrorContext,
    fault_from_event,
    fault_from_status,
    fault_from_stream_error,
    map_provider_errors,
    to_endpoint_fault,
)
from convo.models.http import fault_from_response
from convo.secrets import Secret

KEY = "sk-abcdefghijklmnop"
CONTEXT = ErrorContext("deepseek", "https://me:pw@api.deepseek.com/v1?x=1", model="v9", key=Secret(KEY))

REFUSALS: dict[str, tuple[int, Any, type[ConvoError], str]] = {
    "an invalid key": (
        401,
        {"message": f"Incorrect API key provided: {KEY}."},
        KeyRefused,
        "refused the key: Incorrect",
    ),
    "a masked key": (401, {"message": "Incorrect key: sk-ab***nop."}, KeyRefused, "Incorrect key: ***"),
    "no permission": (403, {"message": "You have no access"}, KeyRefused, "refused the key: You have no access"),
    "an invalid request": (400, {"message": "Bad.", "code": "bad", "param": "input"}, RequestRefused, "Bad"),
    "not found": (
        404,
        {"message": "Response with id 'r' not found."},
        RequestRefused,
        "Response with id 'r' not",
    ),
    "too large": (413, "", RequestRefused, "deepseek returned HTTP 413 at https://api.deepseek.com/v1"),
    "a rate limit": (429, {"message": "Slow down", "code": "rate_limit_exceeded"}, TryLater, "Slow down"),
    "no credit": (429, {"message": "You have no credit", "code": "insufficient_quota"}, RequestRefused, "no credit"),
    "a conflict": (409, {"message": "Conflict"}, TryLater, "Conflict"),
    "a server timeout": (408, None, TryLater, "deepseek returned HTTP 408"),
    "a locked conversation": (400, {"message": "Locked", "code": "conversation_locked"}, TryLater, "Locked"),
    "an outage": (503, "<html>nginx</html>", TryLater, "deepseek returned HTTP 503"),
    "nested": (400, {"error": {"message": "Deep"}}, RequestRefused, "Deep"),
    "an error as text": (400, {"error": "Bad word"}, RequestRefused, "Bad word"),
    "FastAPI's": (422, {"detail": "field required"}, RequestRefused, "field required"),
    "a FastAPI error list": (422, {"detail": [{"loc": ["body"]}]}, RequestRefused, "deepseek returned HTTP 422"),
}


@pytest.mark.parametrize(("status", "body", "kind", "text"), REFUSALS.values(), ids=REFUSALS)
def test_each_error_status_becomes_an_error_of_this_package(
    status: int, body: Any, kind: type[ConvoError], text: str
) -> None:
    error = fault_from_status(status, body, CONTEXT)

    assert type(error) is kind
    assert text in error.message
    assert error.status == status
    assert error.hint
    assert not error.message.endswith(".")


@pytest.mark.parametrize(("status", "body", "kind", "text"), REFUSALS.values(), ids=REFUSALS)
def test_no_error_message_contains_a_key_or_a_password(
    status: int, body: Any, kind: type[ConvoError], text: str
) -> None:
    message = fault_from_status(status, body, CONTEXT).message

    assert KEY not in message
    assert "sk-" not in message
    assert "pw" not in message


@pytest.mark.parametrize(
    ("status", "body", "message", "hint"),
    [
        (
            402,
            None,
            "deepseek returned HTTP 402",
            "the account needs credit: see the provider's billing page",
        ),
        (
            429,
            {"message": "No credit.", "code": "insufficient_quota"},
            "No credit",
            "the account needs credit: see the provider's billing page",
        ),
        *(
            (status, body, f"deepseek returned HTTP {status} at https://api.deepseek.com/v1", "check its base_url")
            for status, body in (
                (400, None),
                (404, {"detail": "Not Found"}),
                (405, {"detail": "Method Not Allowed"}),
                (404, "\n<html>nginx</html>"),
                (404, {"message": None}),
            )
        ),
        (
            413,
            {"code": "context_length_exceeded"},
            "the input is longer than the model's context window",
            WindowExceeded.hint,
        ),
        (403, None, "deepseek refused the key", KeyRefused.hint),
        (500, None, "deepseek returned HTTP 500", TryLater.hint),
        (422, {"message": ["one", "two"]}, "['one', 'two']", RequestRefused.hint),
    ],
)
def test_an_error_without_a_sentence_names_the_status_and_the_next_step(
    status: int, body: Any, message: str, hint: str
) -> None:
    fault = fault_from_status(status, body, CONTEXT)

    assert (fault.message, fault.hint, fault.status) == (message, hint, status)


@pytest.mark.parametrize(
    ("status", "message", "is_about_the_window"),
    [
        (400, "prompt is too long: 9 tokens > 8", True),
        (400, "The request exceeds the available context size", True),
        (413, "This model's maximum context length is 8 tokens", True),
        (400, "the input does not fit the Context Window", True),
        (422, "prompt is too long", False),
        (400, "the name exceeds 64 characters", False),
    ],
)
def test_an_input_longer_than_the_context_window_has_one_code_for_all_servers(
    status: int, message: str, is_about_the_window: bool
) -> None:
    fault = fault_from_status(status, {"message": message, "code": "bad"}, CONTEXT)
    error = fault_from_status(status, {"message": message, "param": "messages"}, CONTEXT)

    assert type(fault) is RequestRefused
    assert (fault.code, fault.param) == (("context_length_exceeded", "input") if is_about_the_window else ("bad", None))
    assert error.param == "messages"
    assert fault.message == message


def test_only_the_beginning_of_a_long_message_is_passed_on_and_searched() -> None:
    def message(text: str) -> str:
        return fault_from_status(400, {"message": text}, CONTEXT).message

    assert message("x" * 600) == "x" * 600
    assert message("x" * 600 + "y") == "x" * 600
    assert message("x" + " " * 1998 + "y") == "x y"
    assert message("x" + " " * 1998 + "yz") == "x y"
    assert message("model" + " " * 1986 + "not found") == "deepseek has no model 'v9'"
    assert message("model" + " " * 1987 + "not found") == "model not foun"


@pytest.mark.parametrize(("depth", "message"), [(10, "Deep"), (11, "deepseek returned HTTP 400")])
def test_an_error_object_is_found_inside_ten_others(depth: int, message: str) -> None:
    body: Any = {"message": "Deep."}
    for _ in range(depth):
        body = {"error": body}

    assert fault_from_status(400, body, CONTEXT).message.startswith(message)


def test_a_message_that_is_nested_too_deeply_for_text_is_left_out() -> None:
    words: Any = []
    for _ in range(200_000):
        words = [words]

    fault = fault_from_status(503, {"message": words}, CONTEXT)
    while words:
        words = words.pop()
    assert fault.message == "deepseek returned HTTP 503"


def test_a_key_is_masked_in_the_code_and_the_param_as_well() -> None:
    fault = fault_from_status(400, {"message": "Bad", "code": f"bad {KEY}", "param": f"p {KEY}"}, CONTEXT)
    error = fault_from_status(400, {"message": "Bad", "type": f"bad {KEY}"}, CONTEXT)

    assert (fault.code, fault.param, error.code) == ("bad ***", "p ***", "bad ***")


@pytest.mark.parametrize("secret", ["sk-123456", "pk-123456", "gsk-123456", "xai-a1b2c3", "key-123456", "Bearer x.y"])
def test_text_that_looks_like_a_key_is_masked(secret: str) -> None:
    assert ErrorContext("mine").clean_message(f"wrong: {secret} !\n Try\tagain. ") == "wrong: *** ! Try again"


@pytest.mark.parametrize("status", [400, 599])
def test_the_error_status_is_preserved(status: int) -> None:
    assert fault_from_status(status, {"message": "No"}, CONTEXT).status == status


@pytest.mark.parametrize("status", [399, 600])
def test_a_number_outside_of_the_error_statuses_becomes_a_bad_gateway(status: int) -> None:
    assert fault_from_status(status, {"message": "No"}, CONTEXT).status == 502


@pytest.mark.parametrize(
    ("status", "header", "kind"),
    [(429, "false", RequestRefused), (400, "true", TryLater), (429, "perhaps", TryLater), (400, "no", RequestRefused)],
)
def test_the_server_decides_whether_a_retry_makes_sense(status: int, header: str, kind: type[ConvoError]) -> None:
    response = httpx2.Response(
        status, headers={"x-should-retry": header, "retry-after": "2"}, json={"error": {"message": "Hm"}}
    )

    fault = fault_from_response(response, CONTEXT)

    assert (type(fault), fault.message, fault.status) == (kind, "Hm", status)
    assert fault.retry_after_s == (2.0 if kind is TryLater else None)


def test_an_error_that_is_no_json_is_read_as_text() -> None:
    assert fault_from_response(httpx2.Response(422, text="too many cups."), CONTEXT).message == "too many cups"


def test_a_model_is_named_by_a_404_about_it_and_by_no_other() -> None:
    unknown = {"message": "model: v9", "type": "not_found_error"}

    assert fault_from_status(404, unknown, CONTEXT).code == "model_not_found"
    assert fault_from_status(404, {**unknown, "message": "model: v8"}, CONTEXT).code == "not_found_error"
    assert fault_from_status(404, {**unknown, "type": "x"}, CONTEXT).code == "x"
    assert fault_from_status(400, unknown, CONTEXT).code == "not_found_error"
    assert fault_from_status(422, {"message": "model not found", "type": "x"}, CONTEXT).code == "x"
    assert fault_from_status(422, {"message": "No", "code": "model_not_found"}, CONTEXT).message == (
        "deepseek has no model 'v9'"
    )
    assert fault_from_status(404, {"message": "model not found"}, ErrorContext("deepseek")).message == "model not found"


def test_an_unknown_model_is_reported_with_the_command_that_lists_the_models() -> None:
    fault = fault_from_status(404, {"message": "model not found"}, CONTEXT)

    assert fault.hint == "convo models lists the models; choose one with -m"


@pytest.mark.parametrize("status", [302, 999])
def test_a_status_that_is_no_error_is_not_passed_on(status: int) -> None:
    assert fault_from_status(status, None, CONTEXT).status == 502


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"message": "The model `v9` does not exist or you do not have access to it.", "code": "model_not_found"}),
        (404, {"message": 'model "v9" not found, try pulling it first'}),
        (404, {"error": "model 'v9' not found"}),
        (400, {"message": "Model Not Exist", "type": "invalid_request_error"}),
    ],
    ids=["openai", "ollama", "older ollama", "deepseek"],
)
def test_a_missing_model_is_named_whichever_form_the_server_uses(status: int, body: Any) -> None:
    error = fault_from_status(status, body, CONTEXT)

    assert error.message == "deepseek has no model 'v9'"
    assert (error.code, error.param, error.status) == ("model_not_found", "model", status)
    assert "-m" in error.hint


def test_the_code_and_param_of_the_server_are_preserved() -> None:
    error = fault_from_status(
        400, {"message": "No", "code": "previous_response_not_found", "param": "previous_response_id"}, CONTEXT
    )

    assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")


def test_a_numeric_code_is_replaced_by_the_type() -> None:
    assert fault_from_status(
        400, {"message": "No", "code": 400, "type": "exceed_context_size_error"}, CONTEXT
    ).code == ("exceed_context_size_error")


NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=40)), "date": format_datetime(NOW)}, 40.0),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=40))}, None),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "86401"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, 0.0),
        *(({"retry-after": value}, None) for value in ("inf", "nan", "1e300")),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    error = fault_from_response(httpx2.Response(429, headers=headers, text="Slow down"), CONTEXT)

    assert isinstance(error, TryLater)
    assert error.retry_after_s == seconds


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ({"message": "Busy", "code": 503}, TryLater, 503),
        ({"message": "Busy", "type": "overloaded_error"}, TryLater, 529),
        ({"message": "Slow", "code": "rate_limit_exceeded"}, TryLater, 429),
        ({"message": "Bad", "type": "invalid_request_error"}, RequestRefused, 400),
        ({"message": "Bad", "code": "400"}, RequestRefused, 400),
        ({"message": "Bad", "code": 399}, StreamBroken, 502),
        ({"message": "Busy", "code": 599}, TryLater, 599),
        ({"message": "Busy", "code": 600}, StreamBroken, 502),
        ({"message": "Key", "type": "authentication_error"}, KeyRefused, 401),
        ({"message": "Pay", "type": "billing_error"}, RequestRefused, 402),
        ({"message": "Key", "type": "permission_error"}, KeyRefused, 403),
        ({"message": "Gone", "type": "not_found_error"}, RequestRefused, 404),
        ({"message": "Big", "type": "request_too_large"}, RequestRefused, 413),
        ({"message": "Slow", "type": "rate_limit_error"}, TryLater, 429),
        ({"message": "Busy", "type": "server_error"}, TryLater, 500),
        ({"message": "Busy", "code": "internal_error"}, TryLater, 500),
        ({"message": "Busy", "type": "api_error"}, TryLater, 500),
        ({"message": "Late", "type": "timeout_error"}, TryLater, 504),
        ({"message": "Odd"}, StreamBroken, 502),
    ],
)
def test_an_error_event_before_the_answer_is_read_like_an_error_status(
    body: Any, kind: type[ConvoError], status: int
) -> None:
    error = fault_from_stream_error(body, CONTEXT, is_streaming=False)

    assert type(error) is kind
    assert error.status == status


def test_an_error_event_after_a_chunk_of_the_answer_is_a_broken_stream() -> None:
    error = fault_from_stream_error({"message": f"Busy, {KEY}", "code": "server_error"}, CONTEXT, is_streaming=True)

    assert isinstance(error, StreamBroken)
    assert (error.message, error.code) == ("Busy, ***", "server_error")


def test_an_error_event_without_a_message_names_the_provider() -> None:
    fault = fault_from_stream_error({"param": "input"}, CONTEXT, is_streaming=True)

    assert (fault.message, fault.code, fault.param) == (
        "deepseek ended the response with an error",
        "stream_broken",
        "input",
    )


def test_the_type_of_an_event_is_not_taken_for_the_type_of_its_error() -> None:
    flat = {"type": "error", "message": "Slow.", "code": None}
    fault = fault_from_event(flat, CONTEXT, is_streaming=True)

    assert (fault.code, fault.message) == ("stream_broken", "Slow")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([{"error": {"code": 400, "message": "Bad tool.", "status": "INVALID_ARGUMENT"}}], "Bad tool"),
        ({"detail": [{"loc": ["body"], "msg": "field required"}, {"msg": "too long"}]}, "field required; too long"),
        ({"detail": "No such thing."}, "No such thing"),
        ({"delta": {}, "error": {"message": "Provider returned error"}}, "Provider returned error"),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": '{"error":{"message":"Quota."}}'}}},
            "Provider returned error: Quota",
        ),
        ({"error": {"message": "Failed", "metadata": {"raw": "upstream is down"}}}, "Failed: upstream is down"),
    ],
)
def test_the_reason_of_a_server_is_found_in_every_form(body: Any, message: str) -> None:
    assert fault_from_status(400, body, CONTEXT).message == message
    assert fault_from_stream_error(body, CONTEXT, is_streaming=True).message == message


def test_a_used_up_quota_in_the_first_event_is_no_reason_to_retry() -> None:
    for error in ({"type": "insufficient_quota"}, {"code": "insufficient_quota", "type": "rate_limit_error"}):
        fault = fault_from_stream_error({"error": {**error, "message": "Pay."}}, CONTEXT, is_streaming=False)
        assert not isinstance(fault, TryLater)


REQUEST = httpx2.Request("POST", "https://api.deepseek.com/v1")


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (
            httpx2.ConnectError("[Errno 111] Connection refused"),
            "cannot reach deepseek at https://api.deepseek.com/v1: [Errno 111] Connection refused",
            "no_connection",
        ),
        (httpx2.ConnectError(""), "cannot reach deepseek at https://api.deepseek.com/v1", "no_connection"),
        (
            httpx2.ReadTimeout("timed out"),
            "deepseek did not respond in time at https://api.deepseek.com/v1",
            "unreachable",
        ),
        (
            httpx2.InvalidURL("bad"),
            "'https://api.deepseek.com/v1' is not the URL of a server",
            "no_connection",
        ),
        (
            httpx2.ReadError("gone"),
            "the connection to deepseek at https://api.deepseek.com/v1 broke before it responded",
            "unreachable",
        ),
    ],
)
def test_a_failed_connection_names_the_provider_and_the_url(error: Exception, message: str, code: str) -> None:
    fault = to_endpoint_fault(error, CONTEXT)

    assert fault is not None
    assert (fault.message, fault.code) == (message, code)


@pytest.mark.parametrize(
    ("os_error", "reason"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (OSError(errno.ENETUNREACH, "Connect call failed ('::1', 9, 0, 0)"), "network is unreachable"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (ssl.SSLError(1, "[SSL] certificate verify failed"), "[SSL] certificate verify failed"),
        (OSError("no number"), "no number"),
    ],
)
def test_a_failed_connection_has_the_message_of_the_system(os_error: OSError, reason: str) -> None:
    key = ConnectionKey("127.0.0.1", 9, False, True, None, None, None, None)
    error = httpx2.ConnectError("")
    error.__cause__ = aiohttp.ClientConnectorError(key, os_error)
    fault = to_endpoint_fault(error, CONTEXT)

    assert fault is not None
    assert fault.message == f"cannot reach deepseek at https://api.deepseek.com/v1: {reason}"


def test_an_invalid_url_is_reported_with_the_setting_to_check() -> None:
    fault = to_endpoint_fault(httpx2.UnsupportedProtocol("no scheme"), CONTEXT)

    assert fault is not None
    assert fault.hint == "check the provider's base_url"


@pytest.mark.parametrize("error", [ValueError("no JSON"), RecursionError()])
def test_a_response_that_cannot_be_parsed_is_a_broken_stream(error: Exception) -> None:
    fault = to_endpoint_fault(error, CONTEXT)

    assert isinstance(fault, StreamBroken)
    assert fault.message == "deepseek sent a response that is not an event stream"


def test_half_a_surrogate_pair_is_refused() -> None:
    fault = to_endpoint_fault(UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), CONTEXT)

    assert isinstance(fault, RequestRefused)
    assert (fault.message, fault.code) == (
        "deepseek does not accept text with half a surrogate pair",
        "invalid_input",
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            httpx2.ConnectError("[Errno 111] Connection refused"),
            "cannot reach deepseek at https://api.deepseek.com",
        ),
        (httpx2.ReadTimeout("timed out"), "did not respond in time"),
        (httpx2.UnsupportedProtocol("no scheme"), "is not the URL of a server"),
        (httpx2.InvalidURL("bad"), "is not the URL of a server"),
        (httpx2.RemoteProtocolError("gone"), "broke before it responded"),
        (httpx2.LocalProtocolError(f"Illegal header value b'Bearer {KEY}'"), "broke before it responded"),
    ],
)
def test_a_connection_that_fails_before_the_answer_is_unreachable(error: Exception, text: str) -> None:
    translated = to_endpoint_fault(error, CONTEXT)

    assert isinstance(translated, Unreachable)
    assert text in translated.message
    assert KEY not in translated.message


def test_a_connection_that_fails_during_the_answer_is_a_broken_stream() -> None:
    assert isinstance(to_endpoint_fault(httpx2.ReadError("gone"), CONTEXT, is_streaming=True), StreamBroken)


def test_a_translated_error_has_the_original_error_as_its_cause() -> None:
    foreign = httpx2.ReadTimeout("timed out")

    with pytest.raises(Unreachable) as error, map_provider_errors(CONTEXT):
        raise foreign

    assert error.value.__cause__ is foreign


@pytest.mark.parametrize("error", [RequestRefused("ours"), KeyError("a mistake of ours"), KeyboardInterrupt()])
def test_an_unrelated_error_is_not_translated(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, map_provider_errors(CONTEXT):
        raise error

    assert raised.value is error

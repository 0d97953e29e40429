"""What servers and the openai package say went wrong, in our own words."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx2
import openai
import pytest

from convo.config.values import Secret
from convo.errors import ConvoError, KeyRefused, RequestRefused, StreamBroken, TryLater, Unreachable
from convo.models.errors import (
    ErrorContext,
    fault_from_status,
    fault_from_stream_error,
    map_provider_errors,
    to_endpoint_fault,
)

KEY = "sk-abcdefghijklmnop"
ASKED = ErrorContext("deepseek", "https://me:pw@api.deepseek.com/v1?x=1", model="v9", key=Secret(KEY))

REFUSALS: dict[str, tuple[int, Any, type[ConvoError], str]] = {
    "a wrong key": (401, {"message": f"Incorrect API key provided: {KEY}."}, KeyRefused, "refused the key: Incorrect"),
    "a masked key": (401, {"message": "Incorrect key: sk-ab***nop."}, KeyRefused, "Incorrect key: ***"),
    "no right": (403, {"message": "You have no access"}, KeyRefused, "refused the key: You have no access"),
    "a fault of ours": (400, {"message": "Bad.", "code": "bad", "param": "input"}, RequestRefused, "Bad"),
    "one that is not found": (
        404,
        {"message": "Response with id 'r' not found."},
        RequestRefused,
        "Response with id 'r' not",
    ),
    "too much": (413, "", RequestRefused, "deepseek returned HTTP 413 at https://api.deepseek.com/v1"),
    "too often": (429, {"message": "Slow down", "code": "rate_limit_exceeded"}, TryLater, "Slow down"),
    "no credit": (429, {"message": "You have no credit", "code": "insufficient_quota"}, RequestRefused, "no credit"),
    "another at work": (409, {"message": "Conflict"}, TryLater, "Conflict"),
    "a timeout of the server": (408, None, TryLater, "deepseek returned HTTP 408"),
    "a locked conversation": (400, {"message": "Locked", "code": "conversation_locked"}, TryLater, "Locked"),
    "an outage": (503, "<html>nginx</html>", TryLater, "deepseek returned HTTP 503"),
    "nested": (400, {"error": {"message": "Deep"}}, RequestRefused, "Deep"),
    "in a word": (400, {"error": "Bad word"}, RequestRefused, "Bad word"),
    "FastAPI's": (422, {"detail": "field required"}, RequestRefused, "field required"),
    "FastAPI's list": (422, {"detail": [{"loc": ["body"]}]}, RequestRefused, "deepseek returned HTTP 422"),
}


@pytest.mark.parametrize(("status", "body", "kind", "words"), REFUSALS.values(), ids=REFUSALS)
def test_each_refusal_is_one_of_ours(status: int, body: Any, kind: type[ConvoError], words: str) -> None:
    wrong = fault_from_status(status, body, ASKED)

    assert type(wrong) is kind
    assert words in wrong.message
    assert wrong.status == status
    assert wrong.hint
    assert not wrong.message.endswith(".")


@pytest.mark.parametrize(("status", "body", "kind", "words"), REFUSALS.values(), ids=REFUSALS)
def test_no_message_holds_a_key_or_a_password(status: int, body: Any, kind: type[ConvoError], words: str) -> None:
    message = fault_from_status(status, body, ASKED).message

    assert KEY not in message
    assert "sk-" not in message
    assert "pw" not in message


@pytest.mark.parametrize("status", [302, 999])
def test_a_status_that_is_none_of_an_error_is_not_passed_on(status: int) -> None:
    assert fault_from_status(status, None, ASKED).status == 502


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"message": "The model `v9` does not exist or you do not have access to it.", "code": "model_not_found"}),
        (404, {"message": 'model "v9" not found, try pulling it first'}),
        (404, {"error": "model 'v9' not found"}),
        (400, {"message": "Model Not Exist", "type": "invalid_request_error"}),
    ],
    ids=["openai", "ollama", "ollama's old form", "deepseek"],
)
def test_a_model_that_does_not_exist_is_named_however_the_server_puts_it(status: int, body: Any) -> None:
    wrong = fault_from_status(status, body, ASKED)

    assert wrong.message == "deepseek has no model 'v9'"
    assert (wrong.code, wrong.param, wrong.status) == ("model_not_found", "model", status)
    assert "-m" in wrong.hint


def test_the_servers_own_code_and_param_are_kept() -> None:
    wrong = fault_from_status(
        400, {"message": "No", "code": "previous_response_not_found", "param": "previous_response_id"}, ASKED
    )

    assert (wrong.code, wrong.param) == ("previous_response_not_found", "previous_response_id")


def test_a_code_that_is_a_number_gives_way_to_the_type() -> None:
    assert fault_from_status(400, {"message": "No", "code": 400, "type": "exceed_context_size_error"}, ASKED).code == (
        "exceed_context_size_error"
    )


NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=40)), "date": format_datetime(NOW)}, 40.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, 0.0),
        *(({"retry-after": words}, None) for words in ("inf", "nan", "1e300")),
        ({}, None),
    ],
)
def test_the_servers_wish_to_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    request = httpx2.Request("POST", "https://api.deepseek.com/v1")
    response = httpx2.Response(429, headers=headers, request=request)

    wrong = to_endpoint_fault(openai.RateLimitError("Slow down", response=response, body=None), ASKED)

    assert isinstance(wrong, TryLater)
    assert wrong.retry_after_s == seconds


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ({"message": "Busy", "code": 503}, TryLater, 503),
        ({"message": "Busy", "type": "overloaded_error"}, TryLater, 529),
        ({"message": "Slow", "code": "rate_limit_exceeded"}, TryLater, 429),
        ({"message": "Bad", "type": "invalid_request_error"}, RequestRefused, 400),
        ({"message": "Odd"}, StreamBroken, 502),
    ],
)
def test_an_error_event_that_comes_first_is_read_as_an_answers_status(
    body: Any, kind: type[ConvoError], status: int
) -> None:
    wrong = fault_from_stream_error(body, ASKED, is_streaming=False)

    assert type(wrong) is kind
    assert wrong.status == status


def test_an_error_event_behind_a_piece_of_the_answer_is_a_broken_stream() -> None:
    wrong = fault_from_stream_error({"message": f"Busy, {KEY}", "code": "server_error"}, ASKED, is_streaming=True)

    assert isinstance(wrong, StreamBroken)
    assert (wrong.message, wrong.code) == ("Busy, ***", "server_error")


REQUEST = httpx2.Request("POST", "https://api.deepseek.com/v1")


@pytest.mark.parametrize(
    ("wrong", "words"),
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
def test_a_connection_that_fails_before_the_answer_is_unreachable(wrong: Exception, words: str) -> None:
    ours = to_endpoint_fault(wrong, ASKED)

    assert isinstance(ours, Unreachable)
    assert words in ours.message
    assert KEY not in ours.message


def test_a_connection_that_fails_in_the_answer_is_a_broken_stream() -> None:
    assert isinstance(to_endpoint_fault(httpx2.ReadError("gone"), ASKED, is_streaming=True), StreamBroken)
    assert isinstance(
        to_endpoint_fault(openai.APIConnectionError(request=REQUEST), ASKED, is_streaming=True), StreamBroken
    )


def test_an_edge_keeps_the_foreign_error_as_the_cause() -> None:
    foreign = openai.APITimeoutError(REQUEST)

    with pytest.raises(Unreachable) as caught, map_provider_errors(ASKED):
        raise foreign

    assert caught.value.__cause__ is foreign


@pytest.mark.parametrize("wrong", [RequestRefused("ours"), KeyError("a mistake of ours"), KeyboardInterrupt()])
def test_an_edge_lets_everything_else_through_as_it_is(wrong: BaseException) -> None:
    with pytest.raises(type(wrong)) as caught, map_provider_errors(ASKED):
        raise wrong

    assert caught.value is wrong

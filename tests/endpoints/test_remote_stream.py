"""Checks of a remote event stream: its state, its errors and its events."""

from typing import Any

import pytest

from convo.endpoints.remote import is_state_honoured
from convo.errors import RequestRefused, StateIgnored, StreamBroken, TryLater
from convo.models.errors import ErrorContext, fault_from_event
from convo.models.readers.responses import ResponsesReader

CONTEXT = ErrorContext("openai", "http://127.0.0.1/v1")


def created(**response: Any) -> dict[str, Any]:
    return {"type": "response.created", "response": response}


HONOURED_STATES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, created()),
    ({}, {"type": "response.output_text.delta", "delta": "a"}),
    ({"previous_response_id": None}, created(previous_response_id="resp_other")),
    ({"previous_response_id": "resp_1"}, created(previous_response_id="resp_1")),
    ({"conversation": "conv_1"}, created(conversation={"id": "conv_1"})),
    ({"conversation": {"id": "conv_1"}}, created(conversation="conv_1")),
]


@pytest.mark.parametrize(("body", "event"), HONOURED_STATES)
def test_an_answer_that_names_its_previous_state_is_accepted(body: dict[str, Any], event: dict[str, Any]) -> None:
    assert is_state_honoured(body, event)


IGNORED_STATES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"previous_response_id": "resp_1"}, created()),
    ({"previous_response_id": "resp_1"}, created(previous_response_id=None)),
    ({"previous_response_id": "resp_1"}, created(previous_response_id="resp_2")),
    ({"previous_response_id": "resp_1"}, {"type": "response.output_text.delta", "delta": "a"}),
    ({"conversation": "conv_1"}, created(conversation=None)),
    ({"conversation": "conv_1"}, created(conversation={"id": "conv_2"})),
    ({"conversation": {"id": "conv_1"}}, created(previous_response_id="conv_1")),
]


@pytest.mark.parametrize(("body", "event"), IGNORED_STATES)
def test_an_answer_without_its_history_is_an_error(body: dict[str, Any], event: dict[str, Any]) -> None:
    with pytest.raises(StateIgnored) as caught:
        is_state_honoured(body, event)
    assert caught.value.message in {
        "the endpoint responded without the history of resp_1",
        "the endpoint responded without the history of conv_1",
    }


def test_a_keepalive_does_not_confirm_the_state() -> None:
    assert not is_state_honoured({"previous_response_id": "resp_1"}, {"type": "keepalive"})


ERROR_EVENTS: list[dict[str, Any]] = [
    {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None},
    {"type": "error", "error": {"type": "x", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None}},
    {"type": "error", "error": None, "code": "rate_limit_exceeded", "message": "Slow down."},
    {"error": {"code": "rate_limit_exceeded", "message": "Slow down."}},
]


@pytest.mark.parametrize("event", ERROR_EVENTS)
def test_an_error_event_is_read_in_both_forms(event: dict[str, Any]) -> None:
    [read] = ResponsesReader().read(event)
    early = fault_from_event(read, CONTEXT, is_streaming=False)
    late = fault_from_event(read, CONTEXT, is_streaming=True)
    assert isinstance(early, TryLater)
    assert isinstance(late, StreamBroken)
    assert (early.code, early.message, late.message) == ("rate_limit_exceeded", "Slow down", "Slow down")


def test_an_error_event_before_the_answer_is_read_like_an_error_status() -> None:
    event = {"type": "error", "error": {"type": "invalid_request_error", "message": "No.", "param": "input"}}
    error = fault_from_event(event, CONTEXT, is_streaming=False)
    assert isinstance(error, RequestRefused)
    assert (error.status, error.param) == (400, "input")


@pytest.mark.parametrize("value", [[], "[DONE]", 7, None, True, {"type": 7}, {"error": None}])
def test_a_value_that_is_no_event_is_skipped(value: Any) -> None:
    assert list(ResponsesReader().read(value)) == []


def test_an_event_is_passed_on_unchanged() -> None:
    event = {"type": "response.tea", "cups": 9007199254740993, "lid": None}
    [read] = ResponsesReader().read(event)
    assert read is event

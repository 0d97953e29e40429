"""Errors as error objects and error events, and the errors parsed from them."""

import pytest

from convo.endpoints.base import error_event, error_object
from convo.errors import (
    ConvoError,
    ItemDeleted,
    KeyRefused,
    RequestRefused,
    StoreUnavailable,
    TryLater,
    Unreachable,
    Unsupported,
)
from convo.models.errors import ErrorContext, fault_from_status
from convo.responses_api import errors


def test_a_locked_conversation_has_the_error_of_the_api() -> None:
    fault = errors.conversation_locked_error()
    assert fault.status == 400
    assert error_object(fault) == {
        "message": "Another process is currently operating on this conversation. Please retry in a few seconds.",
        "type": "invalid_request_error",
        "param": "conversation",
        "code": "conversation_locked",
    }


@pytest.mark.parametrize(
    ("fault", "error_type"),
    [
        (KeyRefused("Incorrect API key provided"), "invalid_request_error"),
        (TryLater("Slow down", status=429), "rate_limit_error"),
        (TryLater("Busy", status=503), "server_error"),
        (StoreUnavailable("the database is away"), "server_error"),
        (Unreachable("no connection"), "server_error"),
        (ItemDeleted("abc"), "invalid_request_error"),
        (Unsupported("m", "images", param="input"), "invalid_request_error"),
    ],
)
def test_the_type_of_an_error_object_depends_on_the_error_class(fault: ConvoError, error_type: str) -> None:
    result = error_object(fault)
    assert result["type"] == error_type
    assert result["message"].endswith(".")
    assert result["param"] == getattr(fault, "param", None)


@pytest.mark.parametrize(
    "fault",
    [
        errors.previous_response_not_found_error("resp_x"),
        errors.conversation_locked_error(),
        errors.missing_tool_output_error("function call", "call_X"),
        errors.unknown_parameter_error("x"),
        errors.item_not_found_error("msg_x"),
        RequestRefused("The model is tired", code="tired", status=422, param="model"),
        TryLater("Busy", status=503, code="overloaded"),
        KeyRefused("nothing"),
    ],
    ids=lambda fault: str(fault)[:30],
)
def test_an_error_object_round_trips(fault: RequestRefused | TryLater) -> None:
    parsed = fault_from_status(fault.status, {"error": error_object(fault)}, ErrorContext("openai"))

    assert type(parsed) is type(fault)
    assert (parsed.code, parsed.status, parsed.param) == (fault.code, fault.status, fault.param)
    assert fault.message in parsed.message


def test_an_error_event_has_its_fields_on_both_levels() -> None:
    event = error_event(errors.previous_response_not_found_error("resp_x"), 7)
    assert (event["type"], event["sequence_number"]) == ("error", 7)
    assert {name: event[name] for name in ("code", "message", "param")} == {
        name: event["error"][name] for name in ("code", "message", "param")
    }
    assert event["error"]["type"] == "invalid_request_error"


def test_the_error_of_an_unreachable_store_hides_its_address() -> None:
    error = error_object(StoreUnavailable("PostgreSQL at db.internal:5432 cannot be reached"))
    assert error["message"] == "The server cannot use its store now. Please retry in a few seconds."
    assert error["code"] == "store_unavailable"
    assert StoreUnavailable.status == 503


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (
            TryLater("Slow down", status=429, code="rate_limit_exceeded"),
            {"message": "Slow down.", "type": "requests", "param": None, "code": "rate_limit_exceeded"},
        ),
        (
            TryLater("Slow down", status=428, code="rate_limit_exceeded"),
            {"message": "Slow down.", "type": "invalid_request_error", "param": None, "code": "rate_limit_exceeded"},
        ),
        (
            TryLater("Slow down", status=429),
            {"message": "Slow down.", "type": "rate_limit_error", "param": None, "code": None},
        ),
        (Unreachable("Gone?"), {"message": "Gone?", "type": "server_error", "param": None, "code": None}),
        (
            ConvoError("Oh!"),
            {"message": "Oh!", "type": "server_error", "param": None, "code": "failed"},
        ),
        (
            RequestRefused("No", status=499),
            {"message": "No.", "type": "invalid_request_error", "param": None, "code": None},
        ),
        (
            RequestRefused("No", status=500),
            {"message": "No.", "type": "server_error", "param": None, "code": None},
        ),
        (
            KeyRefused("Wrong key"),
            {"message": "Wrong key.", "type": "invalid_request_error", "param": None, "code": "invalid_api_key"},
        ),
        (
            KeyRefused("No key", code="missing_api_key"),
            {"message": "No key.", "type": "invalid_request_error", "param": None, "code": None},
        ),
    ],
)
def test_an_error_has_the_type_and_the_code_of_the_real_api(fault: ConvoError, error: dict[str, str | None]) -> None:
    assert error_object(fault) == error

"""The errors of the API: message, code, status, param and hint."""

from typing import Any

import pytest

from convo.errors import ConvoError
from convo.installation import make_install_command
from convo.responses_api import errors

REFUSED = "invalid_request_error"
NEXT = "correct the request, then repeat the command"

ERRORS: list[tuple[ConvoError, str, str, int, str | None, str]] = [
    (
        errors.previous_response_not_found_error("resp_x"),
        "Previous response with id 'resp_x' not found",
        "previous_response_not_found",
        400,
        "previous_response_id",
        "start a new chain, or continue from another response",
    ),
    (
        errors.previous_response_not_continuable_error("resp_x", "failed"),
        "Previous response with id 'resp_x' is failed and cannot be continued",
        REFUSED,
        400,
        "previous_response_id",
        "continue from the response before it",
    ),
    (
        errors.missing_tool_output_error("function call", "call_1"),
        "No tool output found for function call call_1",
        REFUSED,
        400,
        "input",
        f"send its output, or {errors.REPAIR_HINT}",
    ),
    (
        errors.missing_tool_call_error("function call output", "call_1"),
        "No tool call found for function call output with call_id call_1",
        REFUSED,
        400,
        "input",
        errors.REPAIR_HINT,
    ),
    (
        errors.duplicate_tool_output_error("function call output", "call_1"),
        "Duplicate function call output for call_id call_1. Each call must have exactly one output",
        REFUSED,
        400,
        "input",
        errors.REPAIR_HINT,
    ),
    (
        errors.duplicate_item_error("msg_1"),
        "Duplicate item found with id msg_1. Remove duplicate items from your input and try again",
        REFUSED,
        400,
        "input",
        NEXT,
    ),
    (
        errors.item_not_found_error("msg_1"),
        "Item with id 'msg_1' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input",
        REFUSED,
        404,
        "input",
        NEXT,
    ),
    (
        errors.unknown_cursor_error("after", "msg_1"),
        "Invalid 'after': no item with id 'msg_1' in this list",
        "invalid_value",
        400,
        "after",
        NEXT,
    ),
    (
        errors.missing_input_error(),
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided",
        "missing_required_parameter",
        400,
        "input",
        NEXT,
    ),
    (
        errors.stateless_server_error("store"),
        "Unsupported parameter: 'store': "
        "this server keeps no state between requests; send the whole history as `input`",
        "unsupported_parameter",
        400,
        "store",
        NEXT,
    ),
    (errors.not_cancellable_error(), "Cannot cancel a synchronous response", REFUSED, 400, None, NEXT),
    (
        errors.not_streamable_error("resp_x"),
        "Response with id 'resp_x' cannot be streamed: it was not created with background=true",
        REFUSED,
        400,
        "stream",
        NEXT,
    ),
    (
        errors.events_expired_error("resp_x"),
        "The events of response 'resp_x' are no longer stored; retrieve it without `stream`",
        REFUSED,
        400,
        "stream",
        NEXT,
    ),
    (
        errors.invalid_encrypted_content_error({"id": "cmp_1"}),
        "The encrypted content for item cmp_1 could not be verified. "
        "Reason: Encrypted content could not be decrypted or parsed",
        "invalid_encrypted_content",
        400,
        None,
        "send it to the gateway that encrypted it, with the same key; or continue from before it",
    ),
    (
        errors.invalid_encrypted_content_error({}, hint="use the model of the item"),
        "The encrypted content for item without an id could not be verified. "
        "Reason: Encrypted content could not be decrypted or parsed",
        "invalid_encrypted_content",
        400,
        None,
        "use the model of the item",
    ),
    (
        errors.missing_cryptography_error(),
        "Compaction needs the extra [serve], which is not installed",
        "unsupported_parameter",
        400,
        None,
        make_install_command("serve"),
    ),
    (
        errors.trigger_not_last_error(),
        "The 'compaction_trigger' item must be the final input item",
        REFUSED,
        400,
        "input",
        NEXT,
    ),
    (
        errors.too_long_error("items", "array", 20, 21),
        "Invalid 'items': array too long. Expected an array with maximum length 20, but got an array with length 21 "
        "instead",
        "array_above_max_length",
        400,
        "items",
        NEXT,
    ),
]


@pytest.mark.parametrize(
    ("error", "message", "code", "status", "param", "hint"), ERRORS, ids=[row[1][:40] for row in ERRORS]
)
def test_an_error_has_the_words_of_the_api_and_a_hint_for_the_user(
    error: ConvoError, message: str, code: str, status: int, param: str | None, hint: str
) -> None:
    assert (error.message, error.code, error.status) == (message, code, status)
    assert (getattr(error, "param", None), error.hint) == (param, hint)


@pytest.mark.parametrize(
    ("known", "listed"), [(("a",), "'a'"), (("a", "b"), "'a' and 'b'"), (("a", "b", "c"), "'a', 'b', and 'c'")]
)
def test_supported_values_are_listed_as_in_a_sentence(known: tuple[str, ...], listed: str) -> None:
    error: Any = errors.invalid_value_error("order", "x", known)
    assert error.message == f"Invalid value: 'x'. Supported values are: {listed}"


def test_a_locked_conversation_may_be_tried_again_after_two_seconds() -> None:
    assert errors.conversation_locked_error().retry_after_s == 2.0

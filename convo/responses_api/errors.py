"""Errors of the Responses and Conversations API, word for word.

Clients depend on messages, codes and statuses: keep them equal to the real API's. Messages
have no final full stop here; the error object adds it.
"""

from collections.abc import Iterable
from decimal import Decimal

from convo.errors import RequestRefused, TryLater
from convo.history.items import MAX_ID_CHARS, Item

LOCKED_RETRY_S = 2.0
"""Seconds after which a client may retry with a locked conversation."""


def unknown_parameter_error(name: str) -> RequestRefused:
    return RequestRefused(f"Unknown parameter: '{name}'", code="unknown_parameter", param=name)


def missing_parameter_error(name: str) -> RequestRefused:
    return RequestRefused(f"Missing required parameter: '{name}'", code="missing_required_parameter", param=name)


def invalid_type_error(name: str, expected: str, got: str) -> RequestRefused:
    """Build the error; `expected` and `got` have their articles: "an integer", "a string"."""
    return RequestRefused(
        f"Invalid type for '{name}': expected {expected}, but got {got} instead", code="invalid_type", param=name
    )


def invalid_value_error(name: str, got: object, supported: Iterable[str]) -> RequestRefused:
    values = [f"'{value}'" for value in supported]
    last = f"and {values.pop()}" if len(values) > 1 else values.pop()
    listed = f"{', '.join(values)}, {last}" if len(values) > 1 else " ".join([*values, last])
    return RequestRefused(f"Invalid value: '{got}'. Supported values are: {listed}", code="invalid_value", param=name)


def invalid_id_error(name: str, got: str) -> RequestRefused:
    """Build the error; `got` may be any text, so it is cut, and unprintable characters are escaped."""
    shown = repr(got[:64])[1:-1] + ("..." if len(got) > 64 else "")
    return RequestRefused(
        f"Invalid '{name}': '{shown}'. "
        f"Expected an id: letters, digits and _.:=+~@$-, at most {MAX_ID_CHARS} characters",
        code="invalid_value",
        param=name,
    )


def invalid_file_url_error(name: str) -> RequestRefused:
    return RequestRefused(
        f"Invalid '{name}'. Expected a URL that begins with https://, http:// or data:",
        code="invalid_value",
        param=name,
    )


def below_minimum_error(name: str, kind: str, minimum: float, got: float) -> RequestRefused:
    """Build the error; `kind` is "integer" or "decimal"."""
    return RequestRefused(
        f"Invalid '{name}': {kind} below minimum value. "
        f"Expected a value >= {minimum:g}, but got {_format_number(got)} instead",
        code=f"{kind}_below_min_value",
        param=name,
    )


def above_maximum_error(name: str, kind: str, maximum: float, got: float) -> RequestRefused:
    """Build the error; `kind` is "integer" or "decimal"."""
    return RequestRefused(
        f"Invalid '{name}': {kind} above maximum value. "
        f"Expected a value <= {maximum:g}, but got {_format_number(got)} instead",
        code=f"{kind}_above_max_value",
        param=name,
    )


def too_long_error(name: str, kind: str, maximum: int, got: int) -> RequestRefused:
    """Build the error; `kind` is "array" or "string"."""
    return RequestRefused(
        f"Invalid '{name}': {kind} too long. Expected {_with_article(kind)} with maximum length {maximum}, "
        f"but got {_with_article(kind)} with length {got} instead",
        code=f"{kind}_above_max_length",
        param=name,
    )


def too_many_properties_error(name: str, maximum: int, got: int) -> RequestRefused:
    return RequestRefused(
        f"Invalid '{name}': too many properties. Expected an object with at most {maximum} properties, "
        f"but got an object with {got} properties instead",
        code="object_above_max_properties",
        param=name,
    )


def unsupported_parameter_error(name: str, reason: str) -> RequestRefused:
    """Build the error for a parameter of the API that this endpoint does not support."""
    return RequestRefused(f"Unsupported parameter: '{name}': {reason}", code="unsupported_parameter", param=name)


# -- state ----------------------------------------------------------------------------------------


def mutually_exclusive_error() -> RequestRefused:
    return RequestRefused(
        "Mutually exclusive parameters. Ensure you are only providing one of: 'previous_response_id' or 'conversation'",
        code="mutually_exclusive_parameters",
    )


def missing_input_error() -> RequestRefused:
    return RequestRefused(
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided",
        code="missing_required_parameter",
        param="input",
    )


def previous_response_not_found_error(response_id: str) -> RequestRefused:
    """Build the error; it is the same for unknown, deleted and unstored responses, and for another tenant's."""
    return RequestRefused(
        f"Previous response with id '{response_id}' not found",
        code="previous_response_not_found",
        param="previous_response_id",
        hint="start a new chain, or continue from another response",
    )


def previous_response_not_continuable_error(response_id: str, status: str) -> RequestRefused:
    return RequestRefused(
        f"Previous response with id '{response_id}' is {status} and cannot be continued",
        param="previous_response_id",
        hint="continue from the response before it",
    )


def stateless_server_error(name: str) -> RequestRefused:
    """Build the error for a field that needs a store, on an endpoint without one."""
    return unsupported_parameter_error(
        name, "this server keeps no state between requests; send the whole history as `input`"
    )


def not_cancellable_error() -> RequestRefused:
    """Build the error for a response that was not created with `background=true`."""
    return RequestRefused("Cannot cancel a synchronous response")


def not_streamable_error(response_id: str) -> RequestRefused:
    return RequestRefused(
        f"Response with id '{response_id}' cannot be streamed: it was not created with background=true",
        param="stream",
    )


def events_expired_error(response_id: str) -> RequestRefused:
    return RequestRefused(
        f"The events of response '{response_id}' are no longer stored; retrieve it without `stream`", param="stream"
    )


def conversation_locked_error() -> TryLater:
    return TryLater(
        "Another process is currently operating on this conversation. Please retry in a few seconds",
        code="conversation_locked",
        param="conversation",
        status=400,
        retry_after_s=LOCKED_RETRY_S,
    )


REPAIR_HINT = "convo repair HANDLE --as NAME, for a copy that continues"
"""The next step for a history in which the calls and the outputs are not in pairs."""


def missing_tool_output_error(call: str, call_id: str) -> RequestRefused:
    """Build the error; `call` is in words: "function call"."""
    return RequestRefused(
        f"No tool output found for {call} {call_id}",
        param="input",
        hint=f"send its output, or {REPAIR_HINT}",
    )


def missing_tool_call_error(output: str, call_id: str) -> RequestRefused:
    """Build the error; `output` is in words: "function call output"."""
    return RequestRefused(f"No tool call found for {output} with call_id {call_id}", param="input", hint=REPAIR_HINT)


def duplicate_tool_output_error(output: str, call_id: str) -> RequestRefused:
    """Build the error; `output` is in words: "function call output"."""
    return RequestRefused(
        f"Duplicate {output} for call_id {call_id}. Each call must have exactly one output",
        param="input",
        hint=REPAIR_HINT,
    )


def duplicate_item_error(item_id: str) -> RequestRefused:
    return RequestRefused(
        f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again", param="input"
    )


def item_not_found_error(item_id: str) -> RequestRefused:
    return RequestRefused(
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input",
        status=404,
        param="input",
    )


def unknown_cursor_error(name: str, item_id: str) -> RequestRefused:
    """Build the error for a cursor that names no item of the list."""
    return RequestRefused(
        f"Invalid '{name}': no item with id '{item_id}' in this list", code="invalid_value", param=name
    )


# -- compaction -----------------------------------------------------------------------------------


def invalid_encrypted_content_error(item: Item, *, hint: str | None = None) -> RequestRefused:
    """Build the error; it does not reveal whether the item was damaged or is another gateway's or tenant's."""
    return RequestRefused(
        f"The encrypted content for item {item.get('id') or 'without an id'} could not be verified. "
        "Reason: Encrypted content could not be decrypted or parsed",
        code="invalid_encrypted_content",
        hint=hint or "send it to the gateway that encrypted it, with the same key; or continue from before it",
    )


def trigger_not_last_error() -> RequestRefused:
    return RequestRefused("The 'compaction_trigger' item must be the final input item", param="input")


def missing_cryptography_error() -> RequestRefused:
    from convo.installation import make_missing_extra_error

    return make_missing_extra_error(RequestRefused, "Compaction", "serve", code="unsupported_parameter")


def _with_article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _format_number(number: float) -> str:
    try:
        return f"{number:g}"
    except OverflowError:  # a whole number that is larger than every float
        return f"{Decimal(number):.6g}"

"""What the real API says when it refuses, word for word.

Clients read these: the openai package retries by status, agents look for the codes, people search
for the sentences. Messages stand here without their final stop, as everywhere in the house; the
error object that travels has it.
"""

from collections.abc import Iterable

from convo.errors import Refused, TryLater
from convo.items import Item
from convo.items.ids import LONGEST_ID

LOCKED_FOR_S = 2.0
"""Seconds after which a client may ask again for a conversation that is being written."""


def unknown_parameter(name: str) -> Refused:
    return Refused(f"Unknown parameter: '{name}'", code="unknown_parameter", param=name)


def missing(name: str) -> Refused:
    return Refused(f"Missing required parameter: '{name}'", code="missing_required_parameter", param=name)


def wrong_type(name: str, wanted: str, got: str) -> Refused:
    """`wanted` and `got` with their articles: "an integer", "a string"."""
    return Refused(
        f"Invalid type for '{name}': expected {wanted}, but got {got} instead", code="invalid_type", param=name
    )


def wrong_value(name: str, got: object, known: Iterable[str]) -> Refused:
    values = [f"'{value}'" for value in known]
    last = f"and {values.pop()}" if len(values) > 1 else values.pop()
    listed = f"{', '.join(values)}, {last}" if len(values) > 1 else " ".join([*values, last])
    return Refused(f"Invalid value: '{got}'. Supported values are: {listed}", code="invalid_value", param=name)


def no_id(name: str, got: str) -> Refused:
    """`got` may be anything, so only its beginning is shown, with what is not printable escaped."""
    shown = repr(got[:64])[1:-1] + ("..." if len(got) > 64 else "")
    return Refused(
        f"Invalid '{name}': '{shown}'. Expected an id: letters, digits and _.:=+~@$-, at most {LONGEST_ID} characters",
        code="invalid_value",
        param=name,
    )


def below(name: str, kind: str, least: float, got: float) -> Refused:
    """`kind` is "integer" or "decimal"."""
    return Refused(
        f"Invalid '{name}': {kind} below minimum value. Expected a value >= {least:g}, but got {got:g} instead",
        code=f"{kind}_below_min_value",
        param=name,
    )


def above(name: str, kind: str, most: float, got: float) -> Refused:
    """`kind` is "integer" or "decimal"."""
    return Refused(
        f"Invalid '{name}': {kind} above maximum value. Expected a value <= {most:g}, but got {got:g} instead",
        code=f"{kind}_above_max_value",
        param=name,
    )


def too_long(name: str, kind: str, most: int, got: int) -> Refused:
    """`kind` is "array" or "string"."""
    return Refused(
        f"Invalid '{name}': {kind} too long. Expected {_a(kind)} with maximum length {most}, "
        f"but got {_a(kind)} with length {got} instead",
        code=f"{kind}_above_max_length",
        param=name,
    )


def too_many_properties(name: str, most: int, got: int) -> Refused:
    return Refused(
        f"Invalid '{name}': too many properties. Expected an object with at most {most} properties, "
        f"but got an object with {got} properties instead",
        code="object_above_max_properties",
        param=name,
    )


def not_honoured(name: str, what: str) -> Refused:
    """Something that the API knows and this endpoint does not do."""
    return Refused(f"Unsupported parameter: '{name}': {what}", code="unsupported_parameter", param=name)


# -- state ----------------------------------------------------------------------------------------


def both_owners() -> Refused:
    return Refused(
        "Mutually exclusive parameters. Ensure you are only providing one of: 'previous_response_id' or 'conversation'",
        code="mutually_exclusive_parameters",
    )


def no_input() -> Refused:
    return Refused(
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided",
        code="missing_required_parameter",
        param="input",
    )


def no_previous(response_id: str) -> Refused:
    """Unknown, deleted, another tenant's and store=false are all the same."""
    return Refused(
        f"Previous response with id '{response_id}' not found",
        code="previous_response_not_found",
        param="previous_response_id",
        hint="start a new chain, or go on from another response",
    )


def not_answered(response_id: str, status: str) -> Refused:
    return Refused(
        f"Previous response with id '{response_id}' is {status} and cannot be continued",
        param="previous_response_id",
        hint="go on from the response before it",
    )


def no_state(name: str) -> Refused:
    """A field that needs a store, asked of an endpoint that has none."""
    return not_honoured(name, "this server keeps no state between requests; send the whole history as `input`")


def not_in_background() -> Refused:
    """Only what nobody waits for can be stopped by somebody else."""
    return Refused("Cannot cancel a synchronous response")


def not_followed(response_id: str) -> Refused:
    return Refused(
        f"Response with id '{response_id}' cannot be streamed: it was not created with background=true",
        param="stream",
    )


def forgotten(response_id: str) -> Refused:
    return Refused(
        f"The events of response '{response_id}' are no longer kept; retrieve it without `stream`", param="stream"
    )


def locked() -> TryLater:
    return TryLater(
        "Another process is currently operating on this conversation. Please retry in a few seconds",
        code="conversation_locked",
        param="conversation",
        status=400,
        retry_after_s=LOCKED_FOR_S,
    )


def no_output(call: str, call_id: str) -> Refused:
    """`call` in words: "function call"."""
    return Refused(
        f"No tool output found for {call} {call_id}", param="input", hint="send its output, or go on before it"
    )


def no_call(output: str, call_id: str) -> Refused:
    """`output` in words: "function call output"."""
    return Refused(
        f"No tool call found for {output} with call_id {call_id}", param="input", hint="leave the output out"
    )


def second_output(output: str, call_id: str) -> Refused:
    """`output` in words: "function call output"."""
    return Refused(
        f"Duplicate {output} for call_id {call_id}. Each call must have exactly one output",
        param="input",
        hint="leave one of the outputs out; convo lint and convo repair know such histories",
    )


def duplicate(item_id: str) -> Refused:
    return Refused(
        f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again", param="input"
    )


def no_item(item_id: str) -> Refused:
    return Refused(
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input",
        status=404,
        param="input",
    )


def no_place(name: str, item_id: str) -> Refused:
    """`after` names nothing in the list."""
    return Refused(f"Invalid '{name}': no item with id '{item_id}' in this list", code="invalid_value", param=name)


# -- compaction -----------------------------------------------------------------------------------


def not_verified(item: Item, *, hint: str | None = None) -> Refused:
    """A compaction item that was damaged, or that another gateway or tenant sealed; the answer does not tell which."""
    return Refused(
        f"The encrypted content for item {item.get('id') or 'without an id'} could not be verified. "
        "Reason: Encrypted content could not be decrypted or parsed",
        code="invalid_encrypted_content",
        hint=hint or "send it to the gateway, and with the key, that it came from; or go on from before it",
    )


def trigger_not_last() -> Refused:
    return Refused("The 'compaction_trigger' item must be the final input item", param="input")


def nothing_to_seal_with() -> Refused:
    return Refused(
        "Compaction needs the package cryptography, which is not installed here",
        code="unsupported_parameter",
        hint="pip install 'convo-state[serve]'",
    )


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"

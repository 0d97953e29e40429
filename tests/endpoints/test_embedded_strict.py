"""A strict endpoint refuses the items that the real API refuses, with the same messages, and accepts valid items."""

from typing import Any

import pytest

from convo.errors import RequestRefused
from convo.responses_api.deps import EndpointOptions
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.stores.memory import MemoryStore
from tests.clock import FixedClock
from tests.embedded_endpoint import make_embedded_endpoint
from tests.endpoints.endpoint_calls import ask, user_item

ECHO = "scripted/echo"

ANSWER = {"type": "message", "role": "assistant", "content": "hello"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
COMPACTION = {"type": "compaction", "encrypted_content": "x"}


def endpoint(*, strict: bool) -> EmbeddedEndpoint:
    return make_embedded_endpoint(MemoryStore(), FixedClock(), options=EndpointOptions(strict=strict))


REFUSED: list[tuple[list[dict[str, Any]], str]] = [
    ([REASONING], "Item 'rs_1' of type 'reasoning' was provided without its required following item"),
    ([REASONING, user_item("x")], "Item 'rs_1' of type 'reasoning' was provided without its required following item"),
    ([{**REASONING, "summary": None}, ANSWER], "Missing required parameter: 'input[0].summary'"),
    (
        [{"type": "reasoning", "id": "rs_1", "summary": []}, ANSWER],
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input",
    ),
    (
        [{**CALL, "arguments": "{"}, OUTPUT],
        "Invalid type for 'input[0].arguments': expected the text of a JSON object, but got something else instead",
    ),
    ([CALL, COMPACTION, OUTPUT], "No tool call found for function call output with call_id c1"),
]


@pytest.mark.parametrize(("items", "message"), REFUSED, ids=str)
async def test_a_strict_endpoint_refuses_the_items_that_the_api_refuses(items: Any, message: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        await ask(endpoint(strict=True), [*items, user_item("go on")], model=ECHO)
    assert caught.value.message == message
    assert (await ask(endpoint(strict=False), [*items, user_item("go on")], model=ECHO))["status"] == "completed"


@pytest.mark.parametrize(
    "items",
    [
        [REASONING, {**REASONING, "id": "rs_2"}, ANSWER],
        [REASONING, CALL, OUTPUT],
        [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}, ANSWER],
        [CALL, OUTPUT, COMPACTION],
    ],
    ids=str,
)
async def test_a_strict_endpoint_accepts_complete_items(items: Any) -> None:
    assert (await ask(endpoint(strict=True), [*items, user_item("go on")], model=ECHO))["status"] == "completed"


async def test_a_strict_endpoint_refuses_a_compaction_after_a_stored_history() -> None:
    strict = endpoint(strict=True)
    first = await ask(strict, "hi", model=ECHO)
    with pytest.raises(RequestRefused) as caught:
        await ask(strict, [COMPACTION, user_item("go on")], model=ECHO, previous_response_id=first["id"])
    assert caught.value.message == "A compaction item cannot follow the history that it replaces"

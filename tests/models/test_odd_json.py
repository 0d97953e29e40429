"""Any JSON of a server or a file results in an answer or in an error of convo."""

from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from convo.errors import ConvoError, EndpointFault, StreamBroken
from convo.history.accumulator import validate_stream_event
from convo.models.anthropic import AnthropicEventTranslator, build_anthropic_body
from convo.models.base import NO_ISSUER
from convo.models.chat_completions import ChatChunkTranslator, build_chat_body
from convo.models.errors import ErrorContext, fault_from_status, fault_from_stream_error
from convo.models.readers.responses import ResponsesReader
from convo.models.stream import ResponseEventWriter
from tests.clock import counting_ids
from tests.models.model_calls import make_request

WORDS = ["message", "text", "stop", "assistant", "user", "function_call", "function_call_output", "input_text"]
LEAF = st.one_of(st.none(), st.booleans(), st.integers(-1, 600), st.floats(allow_nan=False), st.sampled_from(WORDS))


def json_with(*fields: str) -> st.SearchStrategy[Any]:
    """Return JSON whose objects have these fields, so that it passes the first checks of a parser."""

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(fields), inner, max_size=5))

    return st.recursive(LEAF, grow, max_leaves=12)


CHUNK = json_with(
    "choices", "delta", "content", "tool_calls", "function", "name", "arguments", "index", "id", "usage", "model",
    "finish_reason", "prompt_tokens", "prompt_tokens_details", "cached_tokens", "reasoning", "refusal",
)  # fmt: skip
PIECE = json_with("text", "thinking", "id", "name", "input", "stop_reason", "stop_details", "usage", "model", "data")
SHAPES = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]
BLOCKS = ["text", "thinking", "tool_use", "redacted_thinking", "text_delta", "input_json_delta", "signature_delta"]
MESSAGE = PIECE | st.fixed_dictionaries(
    {"type": st.sampled_from([*SHAPES, "message_stop", "odd"])},
    optional={
        "message": PIECE,
        "content_block": PIECE | st.fixed_dictionaries({"type": st.sampled_from(BLOCKS)}, optional={"id": LEAF}),
        "delta": PIECE | st.fixed_dictionaries({"type": st.sampled_from(BLOCKS)}, optional={"partial_json": LEAF}),
        "usage": PIECE,
    },
)
ITEM_OR_PIECE = PIECE | st.fixed_dictionaries({"type": st.sampled_from(WORDS)}, optional={"id": LEAF})
RESPONSE_EVENT = json_with("type", "output_index", "item", "delta", "response", "output") | st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [f"response.{name}" for name in ("output_item.added", "output_item.done", "output_text.delta", "completed")]
        )
    },
    optional={"item": ITEM_OR_PIECE, "output_index": LEAF, "delta": LEAF, "response": PIECE},
)
ERROR = json_with("error", "message", "code", "type", "detail", "param")
PART = json_with("type", "text", "refusal", "image_url", "detail", "file_data", "input_audio")
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(WORDS),
        "role": st.sampled_from(["user", "assistant", "system", "odd"]),
        "content": PART,
        "call_id": LEAF,
        "name": LEAF,
        "arguments": LEAF,
        "output": PART,
    },
)


@given(st.lists(CHUNK, max_size=3))
def test_invalid_chunks_are_read_or_break_the_stream(chunks: list[Any]) -> None:
    new_id = counting_ids()
    translator = ChatChunkTranslator(ResponseEventWriter(new_id, "m"), new_id)
    try:
        events = [event for chunk in chunks for event in translator.translate_chunk(chunk)]
        events += translator.finish()
    except StreamBroken:
        return
    assert events[-1]["type"] in ("response.completed", "response.incomplete", "response.failed")


@given(st.lists(MESSAGE, max_size=4))
def test_invalid_messages_are_read_or_break_the_stream(told: list[Any]) -> None:
    new_id = counting_ids()
    translator = AnthropicEventTranslator(ResponseEventWriter(new_id, "m"), new_id, "me:")
    try:
        events = [event for one in told for event in translator.translate_event(one)]
        events += translator.finish()
    except StreamBroken:
        return
    assert events[-1]["type"] in ("response.completed", "response.incomplete", "response.failed")


@given(st.lists(RESPONSE_EVENT, max_size=4))
def test_invalid_events_of_the_responses_api_become_valid_ones_or_none(values: list[Any]) -> None:
    reader = ResponsesReader(counting_ids())

    for event in [event for value in values for event in reader.read(value)]:
        validate_stream_event(event)


@given(st.integers(400, 599), ERROR, st.booleans())
def test_invalid_error_objects_become_errors_with_a_message(status: int, body: Any, answering: bool) -> None:
    context = ErrorContext("deepseek", "http://x", model="m")

    assert fault_from_status(status, body, context).message
    assert isinstance(fault_from_stream_error(body, context, is_streaming=answering), EndpointFault)


STANDALONE_OUTPUT = {"type": "function_call_output", "name": "look_up", "output": 1}


@example([STANDALONE_OUTPUT])
@example([{**STANDALONE_OUTPUT, "output": {"type": "input_text"}}])
@given(st.lists(ITEM, max_size=4))
def test_invalid_items_are_sent_or_refused(items: list[Any]) -> None:
    body = None
    with suppress(ConvoError):
        body = build_chat_body(make_request(*items), "m")

    assert body is None or all(isinstance(message["role"], str) for message in body["messages"])


@example([STANDALONE_OUTPUT])
@example([{**STANDALONE_OUTPUT, "output": {"type": "input_text"}}])
@given(st.lists(ITEM, max_size=4))
def test_invalid_items_are_sent_to_claude_or_refused(items: list[Any]) -> None:
    body = None
    with suppress(ConvoError):
        body = build_anthropic_body(make_request(*items), NO_ISSUER, "m")

    assert body is None or all(message["role"] in ("user", "assistant") for message in body["messages"])

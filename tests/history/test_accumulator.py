"""What is made of an answer's pieces, and what is refused before anything is made of it."""

import pytest

from convo.errors import StreamBroken
from convo.history.accumulator import ResponseAccumulator, StreamedTextChecksum, validate_stream_event
from convo.history.items import Json, StreamEvent
from convo.models.stream import ResponseEventWriter, make_usage
from tests.clock import counting_ids

SAID = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}


def gathered(*events: StreamEvent) -> list[Json]:
    partial = ResponseAccumulator()
    for event in events:
        partial.add(validate_stream_event(event))
    return list(partial.output)


@pytest.mark.parametrize("summarized", [False, True])
def test_a_complete_answer_is_accumulated_as_the_final_response_has_it(summarized: bool) -> None:
    answer = ResponseEventWriter(counting_ids(), "m", summarized=summarized)
    events = [
        *answer.write_reasoning("let me "),
        *answer.write_reasoning("see"),
        *answer.write_text("Hel"),
        *answer.write_text("lo"),
        *answer.write_refusal("no more"),
        *answer.start_function_call("c1", "f"),
        *answer.write_arguments('{"a"'),
        *answer.write_arguments(": 1}"),
        *answer.write_completed(make_usage(1, 2)),
    ]
    assert gathered(*events) == events[-1]["response"]["output"]


@pytest.mark.parametrize("cut", range(1, 14))
def test_an_interrupted_answer_contains_the_received_deltas(cut: int) -> None:
    answer = ResponseEventWriter(counting_ids(), "m")
    events = [
        *answer.write_text("one "),
        *answer.write_text("two"),
        *answer.write_refusal("no"),
        *answer.write_text("three"),
        *answer.start_function_call("c", "f"),
    ]
    partial, words = ResponseAccumulator(), ""
    for event in events[:cut]:
        partial.add(event)
        words += event.get("delta", "")
    parts = [part for item in partial.output for part in item.get("content", ())]
    assert "".join(part.get("text", part.get("refusal", "")) for part in parts) == words


def test_deltas_of_a_summary_are_accumulated_without_their_item() -> None:
    delta = {"output_index": 0, "summary_index": 0, "item_id": "rs_1", "type": "response.reasoning_summary_text.delta"}
    parts = [{"type": "summary_text", "text": "onetwo"}]
    assert gathered({**delta, "delta": "one"}, {**delta, "delta": "two"}) == [{"type": "reasoning", "summary": parts}]


def test_deltas_without_an_item_or_part_are_accumulated_as_text() -> None:
    piece = {"type": "response.output_text.delta", **SAID, "delta": "hi"}
    assert gathered(piece, piece)[0]["content"] == [{"type": "output_text", "text": "hihi"}]


def test_accumulating_a_very_long_answer_takes_linear_time() -> None:
    piece = {"type": "response.output_text.delta", **SAID, "delta": "x" * 16}
    assert len(gathered(*[piece] * 100_000)[0]["content"][0]["text"]) == 1_600_000


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": 7},
        {"type": "response.created"},
        {"type": "response.created", "response": None},
        {"type": "response.created", "response": {"id": 7}},
        {"type": "response.output_item.added", "item": {}},
        {"type": "response.output_item.added", "output_index": "0", "item": {}},
        {"type": "response.output_item.added", "output_index": 0, "item": "x"},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": ["message"]}},
        {"type": "response.content_part.added", "output_index": 0, "part": None},
        {"type": "response.output_text.delta", "output_index": 0},
        {"type": "response.output_text.delta", "output_index": 0, "delta": 7},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": None},
        {"type": "response.completed"},
        {"type": "response.completed", "response": {"output": "x"}},
        {"type": "response.completed", "response": {"output": ["x"]}},
        {"type": "response.completed", "response": {"status": 7}},
        {"type": "response.completed", "response": {"usage": "many"}},
        {"type": "response.completed", "response": {"usage": {"input_tokens": "3"}}},
        {"type": "response.failed", "response": {"error": "boom"}},
    ],
)
def test_an_invalid_event_ends_the_answer_with_an_error(event: StreamEvent) -> None:
    with pytest.raises(StreamBroken, match=r"^the endpoint"):
        validate_stream_event(event)


def test_an_unknown_event_may_contain_anything() -> None:
    event = {"type": "response.something.new", "item": {"deep": [1]}, "output_index": "odd"}
    assert validate_stream_event(event) == event
    assert gathered(event) == []


@pytest.mark.parametrize("content", [None, "words", [], ["odd"], [None]])
def test_a_message_may_start_with_content_that_is_no_list(content: Json) -> None:
    begun = {"type": "message", "role": "assistant", "content": content}

    (message,) = gathered(
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "lo"},
    )

    assert message["content"][-1] == {"type": "output_text", "text": "Hello"}


def test_a_cancelled_response_must_be_an_object() -> None:
    with pytest.raises(StreamBroken, match=r"has no valid 'response'"):
        validate_stream_event({"type": "response.cancelled", "response": ["odd"]})


def differs(streamed: list[tuple[int, str]], *final: str) -> bool:
    """Whether messages `final` differ from the deltas `streamed`, each with its `output_index`."""
    text, said = StreamedTextChecksum(), "response.output_text.delta"
    for index, delta in streamed:
        text.add({"type": said, "output_index": index, "content_index": 0, "delta": delta})
    parts = [[{"type": "output_text", "text": words}] for words in final]
    output = [{"type": "message", "role": "assistant", "content": part} for part in parts]
    return text.has_different_text({"type": "response.completed", "response": {"output": output}})


@pytest.mark.parametrize(
    ("streamed", "final", "expected"),
    [
        ([(0, "sun"), (0, "ny")], ["sunny"], False),
        ([(0, "sunny")], ["rainy"], True),
        ([(0, "sunny")], ["sunny "], True),
        ([(0, "one"), (1, "two")], ["one", "two"], False),
        ([(0, "o"), (1, "t"), (0, "ne"), (1, "wo")], ["one", "two"], False),
        ([(0, "one"), (0, "two")], ["one", "two"], False),
        ([(0, "one"), (1, "two")], ["one"], True),
        ([(0, "\ud800")], ["\ud800"], False),
        ([], ["sunny"], False),
        ([(0, "sunny")], [], False),
    ],
)
def test_the_streamed_text_is_compared_with_the_final_text(
    streamed: list[tuple[int, str]], final: list[str], expected: bool
) -> None:
    assert differs(streamed, *final) is expected

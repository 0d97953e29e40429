"""Accumulation of stream events into a response, and the refusal of invalid events."""

import pytest

from convo.errors import StreamBroken
from convo.history.accumulator import ResponseAccumulator, validate_stream_event
from convo.history.items import Json, StreamEvent
from convo.models.stream import ResponseEventWriter, make_usage
from tests.clock import counting_ids

DELTA_POSITION = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}


def gather_items(*events: StreamEvent) -> list[Json]:
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.add(validate_stream_event(event))
    return list(accumulator.output)


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
    assert gather_items(*events) == events[-1]["response"]["output"]


def test_deltas_of_several_types_without_parts_are_parts_of_their_own() -> None:
    kinds = ("reasoning_text", "output_text", "reasoning_text")
    events = [{"type": f"response.{kind}.delta", "output_index": 0, "delta": kind} for kind in kinds]

    assert [part for item in gather_items(*events) for part in item["content"]] == [
        {"type": kind, "text": kind} for kind in kinds
    ]


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
    accumulator, text = ResponseAccumulator(), ""
    for event in events[:cut]:
        accumulator.add(event)
        text += event.get("delta", "")
    parts = [part for item in accumulator.output for part in item.get("content", ())]
    assert "".join(part.get("text", part.get("refusal", "")) for part in parts) == text


def test_deltas_of_a_summary_are_accumulated_without_their_item() -> None:
    delta = {"output_index": 0, "summary_index": 0, "item_id": "rs_1", "type": "response.reasoning_summary_text.delta"}
    parts = [{"type": "summary_text", "text": "onetwo"}]
    assert gather_items({**delta, "delta": "one"}, {**delta, "delta": "two"}) == [
        {"type": "reasoning", "summary": parts}
    ]


def test_deltas_without_an_item_or_part_are_accumulated_as_text() -> None:
    piece = {"type": "response.output_text.delta", **DELTA_POSITION, "delta": "hi"}
    assert gather_items(piece, piece)[0]["content"] == [{"type": "output_text", "text": "hihi"}]


def test_accumulating_a_very_long_answer_takes_linear_time() -> None:
    piece = {"type": "response.output_text.delta", **DELTA_POSITION, "delta": "x" * 16}
    assert len(gather_items(*[piece] * 100_000)[0]["content"][0]["text"]) == 1_600_000


def test_an_unknown_event_may_contain_anything() -> None:
    event = {"type": "response.something.new", "item": {"deep": [1]}, "output_index": "odd"}
    assert validate_stream_event(event) == event
    assert gather_items(event) == []


@pytest.mark.parametrize("content", [None, "words", [], ["odd"], [None]])
def test_a_message_may_start_with_content_that_is_no_list(content: Json) -> None:
    partial_message = {"type": "message", "role": "assistant", "content": content}

    (message,) = gather_items(
        {"type": "response.output_item.added", "output_index": 0, "item": partial_message},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "lo"},
    )

    assert message["content"][-1] == {"type": "output_text", "text": "Hello"}


def test_an_output_item_needs_a_type() -> None:
    with pytest.raises(StreamBroken, match="has an output item without a type"):
        validate_stream_event({"type": "response.output_item.done", "output_index": 0, "item": {}})


def test_a_cancelled_response_must_be_an_object() -> None:
    with pytest.raises(StreamBroken, match=r"has no valid 'response'"):
        validate_stream_event({"type": "response.cancelled", "response": ["odd"]})


def differs(streamed: list[tuple[int, str]], *final: str) -> bool:
    """Return whether the messages `final` differ from the deltas `streamed`, pairs of `output_index` and text."""
    accumulator, event_type = ResponseAccumulator(), "response.output_text.delta"
    for index, delta in streamed:
        accumulator.add({"type": event_type, "output_index": index, "content_index": 0, "delta": delta})
    parts = [[{"type": "output_text", "text": final_text}] for final_text in final]
    output = [{"type": "message", "role": "assistant", "content": part} for part in parts]
    return accumulator.has_different_text({"type": "response.completed", "response": {"output": output}})


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


RESPONSE_EVENTS = ["created", "queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
DELTA_EVENTS = [
    "output_text",
    "refusal",
    "reasoning_text",
    "reasoning",
    "reasoning_summary_text",
    "function_call_arguments",
]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        *(({"type": f"response.{kind}"}, "response") for kind in RESPONSE_EVENTS),
        *(({"type": f"response.{kind}.delta", "delta": "a"}, "output_index") for kind in DELTA_EVENTS),
        *(({"type": f"response.{kind}.delta", "output_index": 0}, "delta") for kind in DELTA_EVENTS),
        ({"type": "response.output_item.added", "item": {}}, "output_index"),
        ({"type": "response.output_item.added", "output_index": 0}, "item"),
        ({"type": "response.output_item.done", "item": {}}, "output_index"),
        ({"type": "response.output_item.done", "output_index": 0}, "item"),
        ({"type": "response.content_part.added", "part": {}}, "output_index"),
        ({"type": "response.content_part.added", "output_index": 0}, "part"),
        ({"type": "response.reasoning_summary_part.added", "part": {}}, "output_index"),
        ({"type": "response.reasoning_summary_part.added", "output_index": 0}, "part"),
        *(
            ({"type": "response.output_item.done", "output_index": 0, "item": {name: 7}}, name)
            for name in ("type", "id", "status")
        ),
        *(({"type": "response.created", "response": {"output": [{name: 7}]}}, name) for name in ("type", "id")),
        *(
            ({"type": "response.completed", "response": {name: 7}}, name)
            for name in ("id", "status", "output", "usage", "error", "incomplete_details")
        ),
        *(
            ({"type": "response.completed", "response": {"usage": {name: "7"}}}, name)
            for name in ("input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details")
        ),
    ],
)
def test_the_error_names_the_event_and_the_invalid_field(event: StreamEvent, field: str) -> None:
    with pytest.raises(StreamBroken) as error:
        validate_stream_event(event)
    assert error.value.message == f"the endpoint's event {event['type']!r} has no valid {field!r}"


def test_an_output_item_that_is_not_an_object_is_named() -> None:
    with pytest.raises(StreamBroken) as error:
        validate_stream_event({"type": "response.completed", "response": {"output": ["x"]}})
    assert error.value.message == "the endpoint's event 'response.completed' has a member that is not an object"


def test_an_event_without_a_type_is_refused() -> None:
    with pytest.raises(StreamBroken) as error:
        validate_stream_event({"type": None})
    assert error.value.message == "the endpoint sent an event without a type"


@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "response.completed",
            "response": {
                "id": None,
                "status": None,
                "output": None,
                "usage": None,
                "error": None,
                "incomplete_details": None,
            },
        },
        {
            "type": "response.completed",
            "response": {
                "usage": {
                    "input_tokens": None,
                    "output_tokens": None,
                    "input_tokens_details": None,
                    "output_tokens_details": None,
                },
                "output": [{"type": None, "role": "assistant", "id": None, "status": None}],
            },
        },
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": None, "role": "assistant", "id": None, "status": None},
        },
        {"type": "response.something.new", "response": {"usage": "many", "output": ["x"]}},
    ],
)
def test_a_field_may_be_null_and_an_unknown_event_may_have_any_response(event: StreamEvent) -> None:
    assert validate_stream_event(event) is event


def text_delta(index: int, text: str, kind: str = "output_text") -> StreamEvent:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text}


def accumulate(*events: StreamEvent) -> ResponseAccumulator:
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.add(event)
    return accumulator


def test_the_response_keeps_the_id_that_a_start_event_gave() -> None:
    created = {"type": "response.created", "response": {"id": "resp_1"}}
    queued: StreamEvent = {"type": "response.queued", "response": {}}
    progress = {"type": "response.in_progress", "response": {"id": "resp_2"}}
    assert accumulate().response_id is None
    assert accumulate(created, queued).response_id == "resp_1"
    assert accumulate(created, queued, progress).response_id == "resp_2"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        *(({"type": f"response.{kind}", "response": {}}, False) for kind in RESPONSE_EVENTS[:-1]),
        (text_delta(0, "a"), True),
        ({"type": "response.something.new"}, True),
    ],
)
def test_output_events_are_those_between_start_and_end(event: StreamEvent, expected: bool) -> None:
    assert accumulate().has_output_events is False
    assert accumulate(event).has_output_events is expected
    assert accumulate(text_delta(0, "a"), event).has_output_events is True


def test_the_items_are_in_the_order_of_their_indexes() -> None:
    done_event = {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "content": []}}
    assert [item["type"] for item in accumulate(text_delta(2, "b"), done_event).output] == ["message", "message"]
    assert accumulate(text_delta(2, "b"), done_event).output[0]["content"] == []


def test_an_incomplete_response_keeps_complete_items_and_partial_text() -> None:
    call = {"type": "function_call", "call_id": "c", "arguments": "{}"}
    events = [
        {"type": "response.output_item.done", "output_index": 0, "item": call},
        {"type": "response.output_item.added", "output_index": 1, "item": {**call, "call_id": "d"}},
        text_delta(2, "Hel"),
        {"type": "response.output_item.added", "output_index": 3, "item": {"type": "message", "role": "assistant"}},
        {"type": "response.function_call_arguments.delta", "output_index": 4, "delta": "{"},
        {"type": "response.output_item.done", "output_index": 5, "item": {"type": "x", "status": "incomplete"}},
    ]
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hel"}]}
    assert accumulate(*events).incomplete_output == [
        call,
        {**message, "status": "incomplete"},
        {"type": "x", "status": "incomplete"},
    ]
    assert accumulate(*events).output[4] == {"type": "function_call", "arguments": "{"}


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (
            "refusal",
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "ab"}]},
        ),
        (
            "reasoning_text",
            {"type": "message", "role": "assistant", "content": [{"type": "reasoning_text", "text": "ab"}]},
        ),
        (
            "reasoning",
            {"type": "message", "role": "assistant", "content": [{"type": "reasoning_text", "text": "ab"}]},
        ),
        ("reasoning_summary_text", {"type": "reasoning", "summary": [{"type": "summary_text", "text": "ab"}]}),
    ],
)
def test_a_delta_without_its_item_starts_one(kind: str, item: Json) -> None:
    assert gather_items(text_delta(0, "a", kind), text_delta(0, "b", kind)) == [item]


@pytest.mark.parametrize(("event", "name"), [("content_part", "content"), ("reasoning_summary_part", "summary")])
def test_a_part_that_starts_ends_the_part_before_it(event: str, name: str) -> None:
    kind = "output_text" if name == "content" else "reasoning_summary_text"
    added = {"type": f"response.{event}.added", "output_index": 0, "part": {"type": "part", "text": ""}}
    (item,) = gather_items(added, text_delta(0, "one", kind), added, text_delta(0, "two", kind))
    assert item[name] == [{"type": "part", "text": "one"}, {"type": "part", "text": "two"}]
    assert added["part"] == {"type": "part", "text": ""}


@pytest.mark.parametrize(("event", "name"), [("content_part", "content"), ("reasoning_summary_part", "summary")])
def test_the_item_of_an_event_is_not_changed(event: str, name: str) -> None:
    item = {"type": "x", name: [{"type": "part", "text": "one"}]}
    started = {"type": "response.output_item.added", "output_index": 0, "item": item}
    added = {"type": f"response.{event}.added", "output_index": 0, "part": {"type": "part", "text": "two"}}
    assert [part["text"] for part in gather_items(started, added)[0][name]] == ["one", "two"]
    assert item == {"type": "x", name: [{"type": "part", "text": "one"}]}


def test_a_complete_item_replaces_its_parts() -> None:
    item = {"type": "message", "content": [{"type": "output_text", "text": "whole"}], "summary": "odd"}
    done_event = {"type": "response.output_item.done", "output_index": 0, "item": item}
    assert gather_items(text_delta(0, "half"), text_delta(1, "other"), done_event)[0] == item
    part = {"type": "response.content_part.added", "output_index": 0, "part": {"type": "output_text", "text": ""}}
    assert [part["text"] for part in gather_items(done_event, part, text_delta(0, "more"))[0]["content"]] == [
        "whole",
        "more",
    ]
    assert item["content"] == [{"type": "output_text", "text": "whole"}]


@pytest.mark.parametrize(
    ("kind", "response", "expected"),
    [
        ("completed", {"output": [{"type": "message", "content": [{"refusal": "sunny"}]}]}, False),
        ("completed", {"output": [{"type": "message", "content": [{"text": "sun"}, "odd", {"text": "ny"}]}]}, False),
        ("completed", {"output": ["odd", {"type": "message", "content": [{"text": "sunny"}]}]}, False),
        ("completed", {"output": [{"type": "message", "content": "sunny"}]}, True),
        ("completed", {"output": [{"type": "reasoning", "content": [{"text": "sunny"}]}]}, True),
        ("incomplete", {"output": [{"type": "message", "content": [{"text": "rainy"}]}]}, True),
        ("failed", {"output": [{"type": "message", "content": [{"text": "rainy"}]}]}, False),
        ("completed", {"output": None}, False),
        ("completed", None, False),
    ],
)
@pytest.mark.parametrize("delta", ["output_text", "refusal"])
def test_only_the_text_of_messages_is_compared(kind: str, response: Json, expected: bool, delta: str) -> None:
    accumulator = ResponseAccumulator()
    accumulator.add(text_delta(0, "sunny", delta))
    accumulator.add(text_delta(0, "thinking", "reasoning_text"))
    assert accumulator.has_different_text({"type": f"response.{kind}", "response": response}) is expected

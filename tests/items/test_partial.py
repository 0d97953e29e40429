"""What is made of an answer's pieces, and what is refused before anything is made of it."""

import pytest

from convo.errors import StreamBroken
from convo.ids import counting_ids
from convo.items import Event, Json
from convo.items.partial import Partial
from convo.items.wellformed import wellformed
from convo.models.stream import Answer, usage

SAID = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}


def gathered(*events: Event) -> list[Json]:
    partial = Partial()
    for event in events:
        partial.take(wellformed(event))
    return list(partial.output)


def test_a_whole_answer_is_gathered_as_the_final_payload_has_it() -> None:
    answer = Answer(counting_ids(), "m")
    events = [
        *answer.thinking("let me "),
        *answer.thinking("see"),
        *answer.text("Hel"),
        *answer.text("lo"),
        *answer.refusal("no more"),
        *answer.call("c1", "f"),
        *answer.arguments('{"a"'),
        *answer.arguments(": 1}"),
        *answer.completed(usage(1, 2)),
    ]
    assert gathered(*events) == events[-1]["response"]["output"]


@pytest.mark.parametrize("cut", range(1, 14))
def test_an_answer_that_is_cut_anywhere_has_the_pieces_that_came(cut: int) -> None:
    answer = Answer(counting_ids(), "m")
    events = [
        *answer.text("one "),
        *answer.text("two"),
        *answer.refusal("no"),
        *answer.text("three"),
        *answer.call("c", "f"),
    ]
    partial, words = Partial(), ""
    for event in events[:cut]:
        partial.take(event)
        words += event.get("delta", "")
    parts = [part for item in partial.output for part in item.get("content", ())]
    assert "".join(part.get("text", part.get("refusal", "")) for part in parts) == words


def test_pieces_without_an_item_or_a_part_are_words_of_an_answer_all_the_same() -> None:
    piece = {"type": "response.output_text.delta", **SAID, "delta": "hi"}
    assert gathered(piece, piece)[0]["content"] == [{"type": "output_text", "text": "hihi"}]


def test_a_very_long_answer_in_very_many_pieces_costs_its_length() -> None:
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
def test_an_event_that_cannot_be_read_breaks_the_answer_off_in_words(event: Event) -> None:
    with pytest.raises(StreamBroken, match=r"^the endpoint"):
        wellformed(event)


def test_an_event_of_a_kind_that_nobody_reads_may_hold_anything() -> None:
    event = {"type": "response.something.new", "item": {"deep": [1]}, "output_index": "odd"}
    assert wellformed(event) == event
    assert gathered(event) == []

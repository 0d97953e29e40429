"""The order of a response's events, checked with the openai package."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from convo.history.items import StreamEvent
from convo.models.stream import ResponseEventWriter, make_usage
from tests.clock import counting_ids

BARE = {"id": "resp_1", "object": "response", "created_at": 0, "model": "m", "tools": [], "tool_choice": "auto"}


def read_by_openai(events: Sequence[StreamEvent]) -> list[Any]:
    """Return the events as the openai package parses them; it raises for a wrong index or order."""
    empty = {**BARE, "output": [], "parallel_tool_calls": True, "status": "in_progress"}
    first = {"type": "response.created", "response": empty}
    last = {**events[-1], "response": {**BARE, "parallel_tool_calls": True, **events[-1]["response"]}}
    numbered = [{**event, "sequence_number": number} for number, event in enumerate([first, *events[:-1], last])]
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in numbered)
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body.encode())
    )
    with (
        httpx2.Client(transport=transport) as http,
        OpenAI(api_key="none", base_url="http://test", http_client=http) as client,
        client.responses.stream(model="m", input="x") as stream,
    ):
        return list(stream)


PIECES = st.one_of(
    st.tuples(st.just("write_text"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("write_refusal"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("write_reasoning"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("write_encrypted_content"), st.text(min_size=1, max_size=3)),
    st.tuples(st.just("call"), st.lists(st.text(max_size=3), max_size=3)),
)


def write(answer: ResponseEventWriter, pieces: Sequence[tuple[str, Any]]) -> Iterator[StreamEvent]:
    for number, (what, value) in enumerate(pieces):
        if what == "call":
            yield from answer.start_function_call(f"c{number}", "weather")
            for piece in value:
                yield from answer.write_arguments(piece)
        else:
            yield from getattr(answer, what)(value)


@given(pieces=st.lists(PIECES, max_size=8), summarized=st.booleans())
def test_the_openai_package_reads_any_sequence_of_events_correctly(
    pieces: list[tuple[str, Any]], summarized: bool
) -> None:
    answer = ResponseEventWriter(counting_ids(), "m", summarized=summarized)
    events = [*write(answer, pieces), *answer.write_completed(make_usage(1, 2))]

    read = read_by_openai(events)

    snapshots = {(event.output_index, event.content_index): event.snapshot for event in read if event.type == TEXT}
    for (item, part), snapshot in snapshots.items():
        assert answer.output[item]["content"][part]["text"] == snapshot
    assert [event.type for event in read][-1] == "response.completed"
    assert [event.item.to_dict() for event in read if event.type == "response.output_item.done"] == answer.output


TEXT = "response.output_text.delta"


@given(pieces=st.lists(PIECES, max_size=8))
def test_every_item_is_closed_before_the_next_starts(pieces: list[tuple[str, Any]]) -> None:
    answer = ResponseEventWriter(counting_ids(), "m")
    events = [*write(answer, pieces), *answer.write_incomplete("max_output_tokens", None)]

    edges = [event for event in events if event["type"].startswith("response.output_item.")]
    assert [event["type"].rpartition(".")[2] for event in edges] == ["added", "done"] * len(answer.output)
    assert [event["output_index"] for event in edges[::2]] == list(range(len(answer.output)))
    assert len({event["item"]["id"] for event in edges}) == len(answer.output)


def test_a_partial_call_is_incomplete_and_has_no_arguments_done_event() -> None:
    answer = ResponseEventWriter(counting_ids(), "m")
    events = [
        *answer.start_function_call("c1", "weather"),
        *answer.write_arguments('{"ci'),
        *answer.write_incomplete("max_output_tokens", None),
    ]

    assert "response.function_call_arguments.done" not in {event["type"] for event in events}
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"


def test_a_complete_item_is_emitted_unchanged() -> None:
    item = {
        "type": "message",
        "id": "msg_x",
        "role": "assistant",
        "phase": "final",
        "content": [{"type": "output_text", "text": "hi", "annotations": [{"a": 1}]}, {"type": "tomorrow", "x": 1}],
    }
    answer = ResponseEventWriter(counting_ids(), "m")
    events = [
        *answer.write_item(item),
        *answer.write_item({"type": "tomorrows_kind", "x": 2}),
        *answer.write_completed(None),
    ]

    assert events[-1]["response"]["output"] == [item, {"type": "tomorrows_kind", "x": 2, "id": "tomorrows_kind_1"}]
    assert [event["delta"] for event in events if event["type"] == TEXT] == ["hi"]


def test_later_text_does_not_change_an_emitted_event() -> None:
    answer = ResponseEventWriter(counting_ids(), "m")
    added = next(answer.write_text("hi"))
    before = json.dumps(added)

    for _ in answer.write_completed(None):
        pass

    assert json.dumps(added) == before


@pytest.mark.parametrize(
    "pieces",
    [("a\ud83d", "\ude00b"), ("a", "\ud83d", "\ude00", "b"), ("a\ud83d\ude00b",)],
    ids=["split", "separate", "together"],
)
def test_a_surrogate_pair_split_across_chunks_is_joined(pieces: tuple[str, ...]) -> None:
    answer = ResponseEventWriter(counting_ids())

    events = [event for piece in pieces for event in answer.write_text(piece)]
    end = [
        *answer.start_function_call("call_1", "f"),
        *(event for piece in pieces for event in answer.write_arguments(piece)),
    ]
    end += answer.write_completed(make_usage(1, 1))

    text, call = end[-1]["response"]["output"]
    assert text["content"][0]["text"] == "a\U0001f600b"
    assert call["arguments"] == "a\U0001f600b"
    for chunk_event in (events, end):
        assert "".join(one["delta"] for one in chunk_event if one["type"].endswith(".delta")) == "a\U0001f600b"


def test_half_a_surrogate_pair_at_the_end_of_an_answer_is_preserved() -> None:
    answer = ResponseEventWriter(counting_ids())

    *_, end = [*answer.write_text("a\ud83d"), *answer.write_completed(make_usage(1, 1))]

    assert end["response"]["output"][0]["content"][0]["text"] == "a\ud83d"


def collect(*pieces: Iterator[StreamEvent]) -> list[StreamEvent]:
    """Return the events of all pieces, each as it is when it is emitted."""
    return [json.loads(json.dumps(event)) for piece in pieces for event in piece]


ITEM_ADDED, ITEM_DONE = "response.output_item.added", "response.output_item.done"
PART_ADDED, PART_DONE = "response.content_part.added", "response.content_part.done"


def test_each_piece_of_an_answer_has_its_events() -> None:
    writer = ResponseEventWriter(counting_ids(), "m")
    hi, you = {"token": "Hi", "logprob": -1.0}, {"token": " you", "logprob": -2.0}
    events = collect(
        writer.write_reasoning("Hm."),
        writer.write_encrypted_content("secret"),
        writer.write_text("Hi", [hi]),
        writer.write_text("", [hi]),
        writer.write_text(" you", [you]),
        writer.write_refusal("No."),
        writer.start_function_call("c1", "f"),
        writer.write_arguments("{"),
        writer.write_arguments("}"),
        writer.write_encrypted_content("hidden"),
        writer.write_completed(make_usage(1, 2)),
    )

    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
    reasoning_at = {"output_index": 0, "item_id": "rs_1", "content_index": 0}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    text_at = {"output_index": 1, "item_id": "msg_1", "content_index": 0}
    refusal_at = {"output_index": 1, "item_id": "msg_1", "content_index": 1}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": ""}
    call_at = {"output_index": 2, "item_id": "fc_1"}
    hidden = {"type": "reasoning", "id": "rs_2", "summary": [], "content": []}
    thought = {"type": "reasoning_text", "text": "Hm."}
    text = {"type": "output_text", "text": "Hi you", "annotations": [], "logprobs": [hi, you]}
    refusal = {"type": "refusal", "refusal": "No."}
    output = [
        {**reasoning, "content": [thought], "status": "completed", "encrypted_content": "secret"},
        {**message, "content": [text, refusal], "status": "completed"},
        {**call, "arguments": "{}", "status": "completed"},
        {**hidden, "status": "completed", "encrypted_content": "hidden"},
    ]
    assert events == [
        {"type": ITEM_ADDED, "output_index": 0, "item": {**reasoning, "status": "in_progress"}},
        {"type": PART_ADDED, **reasoning_at, "part": {**thought, "text": ""}},
        {"type": "response.reasoning_text.delta", **reasoning_at, "delta": "Hm."},
        {"type": "response.reasoning_text.done", **reasoning_at, "text": "Hm."},
        {"type": PART_DONE, **reasoning_at, "part": thought},
        {"type": ITEM_DONE, "output_index": 0, "item": output[0]},
        {"type": ITEM_ADDED, "output_index": 1, "item": {**message, "status": "in_progress"}},
        {"type": PART_ADDED, **text_at, "part": {**text, "text": "", "logprobs": []}},
        {"type": TEXT, **text_at, "delta": "Hi", "logprobs": [hi]},
        {"type": TEXT, **text_at, "delta": " you", "logprobs": [you]},
        {"type": "response.output_text.done", **text_at, "text": "Hi you", "logprobs": [hi, you]},
        {"type": PART_DONE, **text_at, "part": text},
        {"type": PART_ADDED, **refusal_at, "part": {**refusal, "refusal": ""}},
        {"type": "response.refusal.delta", **refusal_at, "delta": "No."},
        {"type": "response.refusal.done", **refusal_at, "refusal": "No."},
        {"type": PART_DONE, **refusal_at, "part": refusal},
        {"type": ITEM_DONE, "output_index": 1, "item": output[1]},
        {"type": ITEM_ADDED, "output_index": 2, "item": {**call, "status": "in_progress"}},
        {"type": "response.function_call_arguments.delta", **call_at, "delta": "{"},
        {"type": "response.function_call_arguments.delta", **call_at, "delta": "}"},
        {"type": "response.function_call_arguments.done", **call_at, "name": "f", "arguments": "{}"},
        {"type": ITEM_DONE, "output_index": 2, "item": output[2]},
        {"type": ITEM_ADDED, "output_index": 3, "item": {**hidden, "status": "in_progress"}},
        {"type": ITEM_DONE, "output_index": 3, "item": output[3]},
        {
            "type": "response.completed",
            "response": {"status": "completed", "model": "m", "output": output, "usage": make_usage(1, 2)},
        },
    ]


def test_a_summary_has_events_of_its_own_and_a_reason_ends_an_answer_early() -> None:
    writer = ResponseEventWriter(counting_ids(), "m", summarized=True)
    events = collect(writer.write_reasoning("Hm."), writer.write_incomplete("content_filter", None))

    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
    position = {"output_index": 0, "item_id": "rs_1", "summary_index": 0}
    part = {"type": "summary_text", "text": "Hm."}
    done = {**item, "summary": [part], "status": "incomplete"}
    assert events == [
        {"type": ITEM_ADDED, "output_index": 0, "item": {**item, "status": "in_progress"}},
        {"type": "response.reasoning_summary_part.added", **position, "part": {**part, "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **position, "delta": "Hm."},
        {"type": "response.reasoning_summary_text.done", **position, "text": "Hm."},
        {"type": "response.reasoning_summary_part.done", **position, "part": part},
        {"type": ITEM_DONE, "output_index": 0, "item": done},
        {
            "type": "response.incomplete",
            "response": {
                "status": "incomplete",
                "model": "m",
                "output": [done],
                "usage": None,
                "incomplete_details": {"reason": "content_filter"},
            },
        },
    ]


def test_a_finished_item_has_the_events_of_its_parts() -> None:
    text, refusal = {"type": "output_text", "text": "hi", "annotations": []}, {"type": "refusal", "refusal": "No."}
    message = {"type": "message", "role": "assistant", "content": [text, refusal, {"type": "later", "x": 1}]}
    call = {"type": "function_call", "id": "fc_9", "call_id": "c", "name": "f", "arguments": "{}"}
    writer = ResponseEventWriter(counting_ids(), "m")
    events = collect(
        writer.write_text("Well"),
        writer.write_item(message),
        writer.write_item(call),
        writer.write_failed("server_error", "gone"),
    )

    begun = events[5]["item"]
    done = {**message, "id": "message_1"}
    at = [{"output_index": 1, "item_id": "message_1", "content_index": index} for index in range(3)]
    assert (begun["status"], events[5]["type"]) == ("completed", ITEM_DONE)
    assert events[6:] == [
        {"type": ITEM_ADDED, "output_index": 1, "item": {**done, "content": []}},
        {"type": PART_ADDED, **at[0], "part": {**text, "text": ""}},
        {"type": TEXT, **at[0], "delta": "hi", "logprobs": []},
        {"type": "response.output_text.done", **at[0], "text": "hi", "logprobs": []},
        {"type": PART_DONE, **at[0], "part": text},
        {"type": PART_ADDED, **at[1], "part": {**refusal, "refusal": ""}},
        {"type": "response.refusal.delta", **at[1], "delta": "No."},
        {"type": "response.refusal.done", **at[1], "refusal": "No."},
        {"type": PART_DONE, **at[1], "part": refusal},
        {"type": PART_ADDED, **at[2], "part": {"type": "later", "x": 1}},
        {"type": PART_DONE, **at[2], "part": {"type": "later", "x": 1}},
        {"type": ITEM_DONE, "output_index": 1, "item": done},
        {"type": ITEM_ADDED, "output_index": 2, "item": call},
        {"type": ITEM_DONE, "output_index": 2, "item": call},
        {
            "type": "response.failed",
            "response": {
                "status": "failed",
                "model": "m",
                "output": [begun, done, call],
                "usage": None,
                "error": {"code": "server_error", "message": "gone"},
            },
        },
    ]


@pytest.mark.parametrize("opened", [False, True])
def test_arguments_without_a_call_are_an_error(opened: bool) -> None:
    writer = ResponseEventWriter(counting_ids(), "m")
    if opened:
        collect(writer.write_text("hi"))

    with pytest.raises(ValueError, match=r"^arguments came without a call$"):
        collect(writer.write_arguments("{}"))


def test_an_open_item_has_its_text_so_far() -> None:
    writer = ResponseEventWriter(counting_ids(), "m")
    collect(writer.write_text("a"), writer.start_function_call("c", "f"), writer.write_arguments('{"a"'))
    assert [writer.output[0]["content"][0]["text"], writer.output[1]["arguments"]] == ["a", '{"a"']


@pytest.mark.parametrize(
    ("count", "counted"), [(0, 0), (10**15, 10**15), (10**15 + 1, 0), (-1, 0), (True, 0), (2.0, 0)]
)
def test_an_impossible_number_of_tokens_is_counted_as_none(count: Any, counted: int) -> None:
    assert make_usage(count, 2, cached=count, written=count, reasoning=count) == {
        "input_tokens": counted,
        "input_tokens_details": {"cached_tokens": counted, "cache_write_tokens": counted},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": counted},
        "total_tokens": counted + 2,
    }

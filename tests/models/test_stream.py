"""The order of a response's events, checked with the openai package."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
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


@settings(max_examples=40, deadline=None)
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


def write_every_kind(answer: ResponseEventWriter) -> Iterator[StreamEvent]:
    """Write each kind of item; a second call has the id of the first one."""
    message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "hi", "annotations": []}, {"type": "x"}],
    }
    yield from answer.write_reasoning("Oslo")
    yield from answer.write_reasoning(", then.")
    yield from answer.write_encrypted_content("gAAA")
    yield from answer.write_text("It ", [{"token": "It"}])
    yield from answer.write_text("")
    yield from answer.write_text("rains.")
    yield from answer.write_refusal("No.")
    yield from answer.start_function_call("call_1", "f")
    yield from answer.write_arguments('{"a')
    yield from answer.write_arguments('":1}')
    yield from answer.write_encrypted_content("x")
    yield from answer.start_function_call("call_1", "g")
    yield from answer.write_item(message)
    yield from answer.write_item({"type": "web_search_call", "id": "ws_1", "status": "completed"})
    yield from answer.write_reasoning("Again")


@pytest.mark.parametrize("summarized", [True, False])
def test_each_kind_of_item_has_the_recorded_events(summarized: bool) -> None:
    """`answer_events.jsonl` has the events with a summary of the reasoning, then those with its text."""
    answer = ResponseEventWriter(counting_ids(), "m", summarized=summarized)
    events = [json.dumps(event) for event in write_every_kind(answer)]
    events += [json.dumps(event) for event in answer.write_incomplete("max_output_tokens", {"input_tokens": 1})]
    recorded = (Path(__file__).parent / "answer_events.jsonl").read_text("utf-8").splitlines()
    half = len(recorded) // 2
    assert events == (recorded[:half] if summarized else recorded[half:])


def test_an_answer_ends_completed_incomplete_or_failed() -> None:
    def end(write_end: Callable[[ResponseEventWriter], Iterator[StreamEvent]]) -> StreamEvent:
        answer = ResponseEventWriter(counting_ids())
        *_, last = [*answer.start_function_call("c", "f"), *write_end(answer)]
        return last

    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": ""}
    completed = [{**call, "status": "completed"}]
    unfinished = [{**call, "status": "incomplete"}]
    usage = {"input_tokens": 1}
    assert end(lambda answer: answer.write_completed(usage)) == {
        "type": "response.completed",
        "response": {"status": "completed", "model": None, "output": completed, "usage": usage},
    }
    assert end(lambda answer: answer.write_incomplete("content_filter", usage)) == {
        "type": "response.incomplete",
        "response": {
            "status": "incomplete",
            "model": None,
            "output": unfinished,
            "usage": usage,
            "incomplete_details": {"reason": "content_filter"},
        },
    }
    assert end(lambda answer: answer.write_failed("server_error", "Broken.")) == {
        "type": "response.failed",
        "response": {
            "status": "failed",
            "model": None,
            "output": unfinished,
            "usage": None,
            "error": {"code": "server_error", "message": "Broken."},
        },
    }


def test_arguments_need_an_open_call() -> None:
    answer = ResponseEventWriter(counting_ids())
    with pytest.raises(ValueError, match=r"^arguments came without a call$"):
        list(answer.write_arguments("{}"))
    list(answer.write_text("hi"))
    with pytest.raises(ValueError, match=r"^arguments came without a call$"):
        list(answer.write_arguments("{}"))

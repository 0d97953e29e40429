"""Chunks of chat completions become one response."""

from itertools import product
from typing import Any

import pytest

from convo.errors import StreamBroken
from convo.history.items import StreamEvent
from convo.models.chat_completions import ChatChunkTranslator
from convo.models.readers.chat import ChatReader
from convo.models.stream import ResponseEventWriter, make_usage
from tests.clock import counting_ids
from tests.models.chat_server import delta, finish, tool


def read(*chunks: Any) -> list[StreamEvent]:
    new_id = counting_ids()
    chunks_read = ChatChunkTranslator(ResponseEventWriter(new_id, "m"), new_id)
    events = [event for chunk in chunks for event in chunks_read.translate_chunk(chunk)]
    return [*events, *chunks_read.finish()]


def output(*chunks: Any) -> Any:
    return read(*chunks, finish("stop"))[-1]["response"]["output"]


def tool_calls(*chunks: Any) -> list[tuple[str, str, str]]:
    calls = [item for item in output(*chunks) if item["type"] == "function_call"]
    return [(call["call_id"], call["name"], call["arguments"]) for call in calls]


def test_reasoning_text_and_calls_become_separate_items() -> None:
    items = output(
        delta(role="assistant", content=None),
        delta(reasoning_content="Let me "),
        delta(reasoning_content="see."),
        delta(content="I look."),
        tool(0, call_id="c1", name="weather"),
        tool(0, arguments='{"city":'),
        tool(0, arguments='"Oslo"}'),
    )

    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert items[0]["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert items[1]["content"][0]["text"] == "I look."
    assert (items[2]["call_id"], items[2]["arguments"]) == ("c1", '{"city":"Oslo"}')


def test_reasoning_that_a_server_sends_twice_is_read_once() -> None:
    items = output(delta(reasoning="Hm.", reasoning_content="Hm."), delta(content="Yes."))

    assert items[0]["content"] == [{"type": "reasoning_text", "text": "Hm."}]


def test_an_unknown_part_and_audio_are_left_out_and_reported() -> None:
    unknown = [{"type": "text", "text": ""}, {"type": "hologram"}, {"x": 1}, {"type": "text", "text": "Hi"}]
    response = read(delta(content=unknown), delta(audio={"data": "zz"}), finish("stop"))[-1]["response"]
    assert response["output"][0]["content"][0]["text"] == "Hi"
    assert response["convo_notices"] == [
        "a part of the answer was left out: audio, which was not requested",
        "a part of the answer was left out: hologram, which was not requested",
        "a part of the answer was left out: untyped, which was not requested",
    ]
    assert "convo_notices" not in read(delta(content="Hi", audio=None), finish("stop"))[-1]["response"]


def test_a_refusal_becomes_a_refusal_part() -> None:
    assert output(delta(refusal="I will not."))[0]["content"] == [{"type": "refusal", "refusal": "I will not."}]


def test_parallel_calls_are_separated_by_their_index() -> None:
    assert tool_calls(
        tool(0, call_id="c1", name="a"),
        tool(0, arguments="{}"),
        tool(1, call_id="c2", name="b"),
        tool(1, arguments="[]"),
    ) == [("c1", "a", "{}"), ("c2", "b", "[]")]


def test_calls_without_an_index_are_separated_by_their_id() -> None:
    assert tool_calls(
        tool(0, call_id="c1", name="a", arguments="{}"), tool(0, call_id="c2", name="b", arguments="[]")
    ) == [
        ("c1", "a", "{}"),
        ("c2", "b", "[]"),
    ]


def test_calls_with_one_id_stay_separate_calls() -> None:
    three = [tool(index, call_id="c1", name="look", arguments=f'{{"n":{index}}}') for index in range(3)]
    found = tool_calls(*three)
    assert [arguments for _, _, arguments in found] == ['{"n":0}', '{"n":1}', '{"n":2}']
    assert [call_id for call_id, _, _ in found] == ["c1", "c1", "c1"]


def test_a_call_that_repeats_its_id_and_name_is_one_call() -> None:
    assert tool_calls(
        tool(0, call_id="c1", name="a", arguments="{"), tool(0, call_id="c1", name="a", arguments="}")
    ) == [("c1", "a", "{}")]


def test_a_call_without_an_id_gets_one() -> None:
    assert tool_calls(tool(0, name="a", arguments="{}")) == [("call_1", "a", "{}")]


OSLO, ROME = '{"city":"Oslo"}', '{"city":"Rome"}'


def piece(**fields: Any) -> dict[str, Any]:
    """Return a chunk with one entry of `tool_calls`, whose function has `name` and `arguments`."""
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    return delta(tool_calls=[{**fields, "function": function}])


def whole(**message: Any) -> dict[str, Any]:
    return {"object": "chat.completion", "choices": [{"message": message, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        (
            [
                delta(tool_calls=[{"index": i, "id": f"c{i}", "function": {"name": n}} for i, n in enumerate("ab")]),
                *(
                    piece(index=1, arguments=ROME[:5]),
                    piece(index=0, arguments=OSLO),
                    piece(index=1, arguments=ROME[5:]),
                ),
            ],
            [("c0", "a", OSLO), ("c1", "b", ROME)],
        ),
        (
            [
                piece(index=0, id="c0", name="a", arguments=""),
                *(piece(index=1, arguments=OSLO[:5]), piece(index=2, arguments=OSLO[5:])),
            ],
            [("c0", "a", OSLO)],
        ),
        (
            [piece(index=0, id="", name="a", arguments=OSLO), piece(index=0, id="", name="a", arguments=ROME)],
            [("call_1", "a", OSLO), ("call_2", "a", ROME)],
        ),
        (
            [piece(name="a", arguments=OSLO[:5]), piece(name="a", arguments=OSLO[5:]), piece(name="a", arguments=ROME)],
            [("call_1", "a", OSLO), ("call_2", "a", ROME)],
        ),
        (
            [piece(index=0, id="c0"), piece(index=0, name="a"), piece(index=0, name="", arguments=OSLO)],
            [("c0", "a", OSLO)],
        ),
        (
            [
                piece(index=0, id="c0", name="a", arguments=OSLO[:5]),
                delta(content="So."),
                piece(index=0, arguments=OSLO[5:]),
            ],
            [("c0", "a", OSLO)],
        ),
        (
            [piece(index=0, id="c0", name="a", arguments=OSLO[:5]), piece(index=0, id="c1", arguments=OSLO[5:])],
            [("c0", "a", OSLO)],
        ),
        ([piece(index=0, id="c0", name="a", arguments={"city": "Oslo"})], [("c0", "a", '{"city": "Oslo"}')]),
        (
            [delta(function_call={"name": "a", "arguments": ""}), delta(function_call={"arguments": OSLO})],
            [("call_1", "a", OSLO)],
        ),
        (
            [
                whole(
                    function_call={"name": "", "arguments": ""},
                    tool_calls=[
                        {"id": "c0", "custom": {"name": "", "input": ""}, "function": {"name": "a", "arguments": "{}"}},
                        {"id": "c0", "function": {"name": "a", "arguments": ""}},
                    ],
                )
            ],
            [("c0", "a", "{}"), ("c0", "a", "{}")],
        ),
    ],
    ids=[
        *("alternating", "an index that drifts", "one index and no id", "no index and no id", "a late name"),
        *("text between", "another id in each piece", "an object", "legacy", "empty calls beside real ones"),
    ],
)
def test_calls_are_told_apart_in_every_form(chunks: list[Any], calls: list[tuple[str, str, str]]) -> None:
    assert tool_calls(*chunks) == calls


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Yes."}],
            "Hm.",
        ),
        ([{"type": "text", "text": "Yes."}, {"type": "odd"}, None, 3], ""),
        ("Yes.", ""),
    ],
)
def test_content_is_read_as_text_or_as_parts(content: Any, expected: str) -> None:
    for chunk in (delta(content=content), whole(content=content)):
        items = output(chunk)

        assert [part["text"] for item in items for part in item["content"]] == [*filter(None, [expected]), "Yes."]


def message_chunk(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": message}]}


def test_messages_in_place_of_deltas_are_read_once() -> None:
    call = {"tool_calls": [{"id": "c0", "function": {"name": "a", "arguments": "{}"}}]}
    both = {"choices": [{"delta": {"content": "lo"}, "message": {"content": "Hello"}}]}
    for chunks in (
        [message_chunk(content="Hel"), message_chunk(content="lo"), message_chunk(**call)],
        [delta(content="Hello"), message_chunk(content="Hello", **call)],
        [delta(content="Hel"), both, message_chunk(content="Hello", **call)],
    ):
        message, kept = output(*chunks)
        assert (message["content"][0]["text"], kept["call_id"]) == ("Hello", "c0")


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "eos_token", "stop_sequence", "end", "complete", "STOP"])
def test_an_answer_with_a_normal_finish_reason_is_completed(reason: str) -> None:
    assert read(delta(content="Yes."), finish(reason))[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("length", "max_output_tokens"),
        ("MAX_TOKENS", "max_output_tokens"),
        ("SAFETY", "content_filter"),
        ("content_filter", "content_filter"),
    ],
)
def test_a_truncated_answer_is_incomplete_with_its_reason(reason: str, expected: str) -> None:
    end = read(delta(content="Ye"), finish(reason))[-1]

    assert end["type"] == "response.incomplete"
    assert end["response"]["incomplete_details"] == {"reason": expected}
    assert end["response"]["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("reason", ["insufficient_system_resource", "network_error", "MALFORMED_FUNCTION_CALL"])
def test_an_answer_that_the_server_gave_up_is_a_failure_that_keeps_its_text(reason: str) -> None:
    end = read(delta(content="Ye"), finish(reason))[-1]

    assert end["type"] == "response.failed"
    assert end["response"]["error"]["message"] == f"the provider ended the response with {reason!r}"
    assert end["response"]["output"][0]["content"][0]["text"] == "Ye"


@pytest.mark.parametrize("end", [finish("done"), "[DONE]", {"choices": [], "usage": {"prompt_tokens": 1}}])
@pytest.mark.parametrize(("arguments", "status"), [("{}", "completed"), ('{"city":', "incomplete")])
def test_an_answer_with_an_unknown_end_is_complete_if_its_calls_are(end: Any, arguments: str, status: str) -> None:
    response = read(piece(index=0, id="c0", name="a", arguments=arguments), end)[-1]["response"]

    reason = "the unknown reason 'done'" if isinstance(end, dict) and end["choices"] else "no reason"
    assert response["convo_notices"] == [f"the provider ended the response with {reason}"]
    assert (response["status"], response["output"][0]["status"]) == (status, status)


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ((), "the response has no chat completions event"),
        ((delta(content="Ye"),), "the response ended before it was complete"),
        ((["no", "chunk"],), "the response has no chat completions event"),
    ],
    ids=["nothing", "no reason", "a list"],
)
def test_an_incomplete_answer_is_a_broken_stream(chunks: tuple[Any, ...], text: str) -> None:
    with pytest.raises(StreamBroken) as error:
        read(*chunks)

    assert error.value.message == text


def test_an_answer_without_chunks_refers_to_the_base_url() -> None:
    with pytest.raises(StreamBroken) as error:
        read()

    assert error.value.hint == "check the provider's base_url; it often ends in /v1"


def test_the_response_has_the_model_name_of_the_server() -> None:
    assert read(delta(content="Yes."), finish("stop"))[-1]["response"]["model"] == "m-2026"


@pytest.mark.parametrize(
    ("raw", "read_as"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}, make_usage(12, 3)),
        (
            {
                "prompt_tokens": 12,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            make_usage(12, 3, cached=8, reasoning=2),
        ),
        (
            {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 4}},
            make_usage(12, 0, cached=8, written=4),
        ),
        (
            {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 8}, "prompt_cache_hit_tokens": 7},
            make_usage(12, 0, cached=8),
        ),
        ({"prompt_tokens": 12, "completion_tokens": 3, "prompt_cache_hit_tokens": 8}, make_usage(12, 3, cached=8)),
        ({"prompt_tokens": 12, "completion_tokens": None, "prompt_tokens_details": None}, make_usage(12, 0)),
        ({"prompt_tokens": 12.0, "completion_tokens": "3", "cached_tokens": 8}, make_usage(12, 0, cached=8)),
        ([{"prompt_tokens": 12, "num_cached_tokens": 8}], make_usage(12, 0, cached=8)),
    ],
    ids=["plain", "openai", "written to the cache", "both", "deepseek", "nulls", "kimi, a float", "a list"],
)
def test_usage_is_read_in_every_form(raw: dict[str, Any], read_as: Any) -> None:
    events = read(delta(content="Yes."), finish("stop"), {"choices": [], "usage": raw})
    assert events[-1]["response"]["usage"] == read_as


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    items = output(tool(0, call_id="c1", name="a"), delta(content="So."))

    assert tool_calls(tool(0, call_id="c1", name="a"), tool(1, call_id="c2", name="b")) == [
        ("c1", "a", "{}"),
        ("c2", "b", "{}"),
    ]
    assert items[0]["arguments"] == "{}"


def test_usage_outside_of_the_standard_field_is_read_too() -> None:
    usage, end = {"prompt_tokens": 4, "completion_tokens": 2}, finish("stop")
    in_choice = {"choices": [{**end["choices"][0], "usage": usage}]}

    for chunk in ({**end, "x_groq": {"usage": usage}}, in_choice):
        assert read(chunk)[-1]["response"]["usage"] == make_usage(4, 2)


def test_each_reasoning_item_with_reasoning_content_has_it_encrypted() -> None:
    new_id = counting_ids()
    chunks = ChatChunkTranslator(ResponseEventWriter(new_id, "m"), new_id, "me:")
    fields = [{"reasoning_content": "A"}, {"reasoning_content": "B", "content": "one"}, {"reasoning_content": "C"}]
    deltas = [*(delta(**field) for field in fields), finish("stop")]
    events = [*(event for chunk in deltas for event in chunks.translate_chunk(chunk)), *chunks.finish()]

    items = events[-1]["response"]["output"]
    assert [(item["type"], item.get("encrypted_content")) for item in items] == [
        ("reasoning", "me:QUI="),
        ("message", None),
        ("reasoning", "me:Qw=="),
    ]


def test_truncated_reasoning_has_no_encrypted_content() -> None:
    new_id = counting_ids()
    chunks = ChatChunkTranslator(ResponseEventWriter(new_id, "m"), new_id, "me:")
    events = [
        *chunks.translate_chunk(delta(reasoning="A")),
        *chunks.translate_chunk(finish("length")),
        *chunks.finish(),
    ]

    assert events[-1]["response"]["output"][0]["status"] == "incomplete"
    assert "encrypted_content" not in events[-1]["response"]["output"][0]


def test_values_of_earlier_chunks_are_kept_when_a_later_chunk_has_none() -> None:
    usage = {"prompt_tokens": 4, "completion_tokens": 2}
    later = {"model": None, "usage": None, "choices": [{"delta": None, "finish_reason": None}]}

    response = read(delta(content="Yes."), finish("length", usage), later, {})[-1]["response"]

    assert (response["status"], response["model"], response["usage"]) == ("incomplete", "m-2026", make_usage(4, 2))


def test_a_response_without_a_model_name_has_the_requested_one() -> None:
    assert read({"choices": [{"finish_reason": "stop"}]})[-1]["response"]["model"] == "m"


def test_log_probabilities_are_sent_with_the_text_that_follows_them() -> None:
    first, second = ({"token": word, "bytes": [65], "logprob": -0.5} for word in ("A", "B"))
    chunks = [
        {"choices": [{"delta": {"content": ""}, "logprobs": {"content": [{**first, "top_logprobs": [second]}]}}]},
        {"choices": [{"delta": {"content": "AB"}, "logprobs": {"content": [second]}}]},
        {"choices": [{"delta": {"content": "C"}, "logprobs": {"content": [{"token": "C", "logprob": 0}]}}]},
        {"choices": [{"delta": {"content": "D"}, "logprobs": None}]},
    ]

    events = read(*chunks, finish("stop"))

    sent = [event["logprobs"] for event in events if event["type"] == "response.output_text.delta"]
    assert sent == [[{**first, "top_logprobs": [second]}, second], [{"token": "C", "bytes": [], "logprob": 0}], []]
    assert repr(sent[1][0]["logprob"]) == "0"


def test_a_refusal_ends_a_call_without_arguments() -> None:
    call, message = output(tool(0, call_id="c1", name="a"), delta(refusal="No."))
    assert (call["arguments"], message["content"]) == ("{}", [{"type": "refusal", "refusal": "No."}])


def test_a_call_ends_the_reasoning_before_it_and_reasoning_ends_the_call() -> None:
    new_id = counting_ids()
    translator = ChatChunkTranslator(ResponseEventWriter(new_id, "m"), new_id, "me:")
    thoughts = [delta(reasoning_content=text) for text in "AB"]
    chunks = [thoughts[0], tool(0, call_id="c1", name="a"), thoughts[1], finish("stop")]
    events = [*(event for chunk in chunks for event in translator.translate_chunk(chunk)), *translator.finish()]

    items = events[-1]["response"]["output"]
    assert [(item["type"], item.get("encrypted_content"), item.get("arguments")) for item in items] == [
        ("reasoning", "me:QQ==", None),
        ("function_call", None, "{}"),
        ("reasoning", "me:Qg==", None),
    ]


ODD_FIELDS: dict[str, list[dict[str, Any]]] = {
    "chunk": [
        *({"id": value} for value in ("y", "", None, 7)),
        *({"model": value} for value in ("n", "", None, 7)),
        *({"service_tier": value} for value in ("flex", None, 7)),
        *({"usage": {"prompt_tokens": value}} for value in (0, 1)),
        {"x_groq": {"usage": {"prompt_tokens": 2}}},
        {"error": {"message": "no"}},
        {"choices": []},
        {"choices": [{"index": index, "delta": {"content": "c"}} for index in range(2)]},
    ],
    "choice": [
        *({"index": value} for value in (1, None)),
        *({"finish_reason": value} for value in ("", "stop")),
        {"logprobs": {"content": [{"token": "a", "logprob": -1.0}]}},
        {"message": {"content": "whole"}},
        {"delta": None, "message": {"content": "whole"}},
        {"usage": {"prompt_tokens": 3}},
        {"error": {"message": "no"}},
        {"delta": None},
    ],
    "delta": [
        *({"content": value} for value in ("", None, [{"type": "text", "text": "d"}])),
        *({"content": None, name: "r"} for name in ("reasoning_content", "reasoning", "refusal")),
        {"reasoning_content": "r"},
        *({"tool_calls": value} for value in ([], [{"index": 0, "id": "c1", "function": {"name": "f"}}])),
        *({"reasoning_details": value} for value in ([], [{"index": 0, "type": "x", "text": "d"}])),
        {"role": "assistant", "refusal": "", "function_call": None},
    ],
}
CHANGES: list[tuple[str, dict[str, Any]]] = [(level, fields) for level, rows in ODD_FIELDS.items() for fields in rows]


def make_chunk(text: str, change: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a chunk with a text, and with these other fields at one level."""
    level, fields = change
    choice: dict[str, Any] = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    if level == "delta":
        choice["delta"] |= fields
    elif level == "choice":
        choice |= fields
    chunk = {"id": "x", "model": "m", "choices": [choice]}
    return {**chunk, **fields} if level == "chunk" else chunk


def test_a_chunk_that_is_read_in_one_step_is_read_as_any_other() -> None:
    plain_count = 0
    for first, second in product(CHANGES, repeat=2):
        one_step, all_steps = ChatReader(), ChatReader()
        for text, change in (("a", first), ("b", ("", {})), ("c", second), ("d", ("", {}))):
            chunk = make_chunk(text, change)
            plain = one_step.read_plain(chunk)
            plain_count += plain is not None
            pieces = [plain] if plain else [(piece.kind, piece.text) for piece in one_step.read(chunk)]
            assert pieces == [(piece.kind, piece.text) for piece in all_steps.read(chunk)], (first, second)
            for name in ("id", "model", "fields", "logprobs", "usage", "service_tier", "error"):
                assert getattr(one_step, name) == getattr(all_steps, name), (name, first, second)
            assert one_step.has_reasoning_content == all_steps.has_reasoning_content
            assert one_step.ending() == all_steps.ending()
    assert plain_count > len(CHANGES) ** 2

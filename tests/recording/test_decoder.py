"""Exchanges of the three protocols become items, parameters, usage and a status; damaged ones become notes."""

import gc
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.history.canonical import item_hash
from convo.history.items import is_item, item_text
from convo.recording.decoder import decode_request, decode_response
from convo.recording.exchange import Protocol
from convo.recording.recorder import open_recorder
from convo.stores.factory import open_store
from convo.stores.request_list import RequestQuery
from tests.clock import FixedClock
from tests.recording.exchanges import CAPTURED_CLIENTS, captured_exchanges, make_request, make_response, sse

IMAGE = "data:image/png;base64,AAAA"

CHAT_BODY = {
    "model": "gpt", "max_tokens": 9, "stream": True, "reasoning_effort": "low", "seed": 3,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "tools": [{"type": "function", "function": {"name": "run", "parameters": {}}}],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "Ann", "content": [
            {"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
            {"type": "video", "video": 1},
        ]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}},
            {"id": "call_2", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "ok"}]},
        {"role": "narrator", "content": "Later."},
        "no message",
    ],
}  # fmt: skip


def test_a_chat_request_becomes_items_and_parameters_and_nothing_is_dropped() -> None:
    decoded = decode_request(make_request(CHAT_BODY, protocol="chat_completions"))
    assert decoded.model == "gpt"
    assert list(decoded.items) == [
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "name": "Ann", "content": [
            {"type": "input_text", "text": "Look."},
            {"type": "input_image", "image_url": IMAGE, "detail": "low"},
            {"type": "video", "video": 1},
        ]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "call_1", "name": "run", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "sh", "input": "ls"},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "ok"}]},
        {"type": "message", "role": "narrator", "content": [{"type": "input_text", "text": "Later."}]},
        {"type": "unknown", "value": "no message"},
    ]  # fmt: skip
    assert decoded.parameters == {
        "seed": 3,
        "max_output_tokens": 9,
        "tools": [{"type": "function", "name": "run", "parameters": {}}],
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
        "reasoning": {"effort": "low"},
    }


def test_a_messages_request_keeps_signatures_media_and_unknown_blocks() -> None:
    body = {
        "model": "claude",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {}}],
        "tools": [{"name": "run", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web"}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                    {"type": "document", "source": {"type": "url", "url": "https://a.example/x.pdf"}, "title": "x"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "signed"},
                    {"type": "redacted_thinking", "data": "sealed"},
                    {"type": "text", "text": "I call."},
                    {"type": "server_tool_use", "id": "s1", "name": "web", "input": {}},
                    {"type": "tool_use", "id": "t1", "name": "run", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "is_error": True,
                        "content": [{"type": "text", "text": "no"}],
                    },
                    {"type": "text", "text": "Again."},
                ],
            },
        ],
    }
    decoded = decode_request(make_request(body, protocol="messages"))
    assert list(decoded.items) == [
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Look."},
            {"type": "input_image", "image_url": IMAGE},
            {"type": "input_file", "file_url": "https://a.example/x.pdf", "filename": "x"},
        ]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}],
         "encrypted_content": "signed"},
        {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I call."}]},
        {"type": "server_tool_use", "id": "s1", "name": "web", "input": {}},
        {"type": "function_call", "call_id": "t1", "name": "run", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "t1", "output": [{"type": "input_text", "text": "no"}],
         "status": "incomplete"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Again."}]},
    ]  # fmt: skip
    assert decoded.parameters["instructions"] == "Be brief."
    assert decoded.parameters["system"] == [{"type": "text", "cache_control": {}}]
    assert decoded.parameters["max_output_tokens"] == 9
    assert [tool["type"] for tool in decoded.parameters["tools"]] == ["function", "web_search_20250305"]


STREAMED_MESSAGE = sse(
    {"type": "message_start", "message": {"id": "msg_1", "model": "claude-1", "content": [], "stop_reason": None,
                                          "usage": {"input_tokens": 5, "cache_read_input_tokens": 7}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "signed"}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "I "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "call."}},
    {"type": "content_block_start", "index": 2,
     "content_block": {"type": "tool_use", "id": "t1", "name": "run", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}},
    {"type": "message_stop"},
)  # fmt: skip


def test_a_streamed_message_is_put_together() -> None:
    request = make_request({"model": "claude", "messages": []}, protocol="messages")
    decoded = decode_response(request, make_response(STREAMED_MESSAGE))
    assert (decoded.status, decoded.id, decoded.model, decoded.error) == ("completed", "msg_1", "claude-1", None)
    assert list(decoded.output) == [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}],
         "encrypted_content": "signed"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I call."}]},
        {"type": "function_call", "call_id": "t1", "name": "run", "arguments": '{"a": 1}'},
    ]  # fmt: skip
    assert decoded.usage is not None
    assert decoded.usage["input_tokens"] == 12
    assert decoded.usage["input_tokens_details"]["cached_tokens"] == 7
    assert decoded.usage["output_tokens"] == 4


def test_a_null_at_the_end_of_a_stream_replaces_no_token_count() -> None:
    delta: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    counts = {"output_tokens": 4, "cache_read_input_tokens": None, "output_tokens_details": {"thinking_tokens": 3}}
    body = STREAMED_MESSAGE + sse({**delta, "usage": counts})
    decoded = decode_response(make_request({"messages": []}, protocol="messages"), make_response(body))
    assert decoded.usage == {
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 16,
    }


def test_a_streamed_chat_completion_is_put_together() -> None:
    deltas = [
        {"role": "assistant", "content": "I "},
        {"content": "call."},
        {
            "tool_calls": [
                {"index": 0, "id": "c0", "type": "function", "function": {"name": "run", "arguments": '{"a"'}}
            ]
        },
        {"tool_calls": [{"index": 1, "id": "c1", "type": "function", "function": {"name": "two", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    ]
    chunks: list[Any] = [{"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks += [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    ]
    body = b"".join(b"data: %b\r\n\r\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\r\n\r\n"
    request = make_request({"messages": []}, protocol="chat_completions")
    decoded = decode_response(request, make_response(body))
    assert list(decoded.output) == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I call."}]},
        {"type": "function_call", "call_id": "c0", "name": "run", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c1", "name": "two", "arguments": ""},
    ]
    assert (decoded.status, decoded.id) == ("incomplete", "chatcmpl-1")
    assert decoded.error == {"code": "max_output_tokens", "message": "the response is incomplete"}
    assert decoded.usage is not None
    assert decoded.usage["total_tokens"] == 7


def test_messages_of_a_websocket_are_events_one_a_line() -> None:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    response = {"id": "resp_1", "model": "m", "output": [item], "usage": {"input_tokens": 1, "output_tokens": 2}}
    events = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.completed", "response": response},
    ]
    body = "\n".join(map(json.dumps, events)).encode()
    decoded = decode_response(make_request({"type": "response.create", "model": "m"}), make_response(body, status=101))
    assert (decoded.status, decoded.id, list(decoded.output)) == ("completed", "resp_1", [item])


PARTIAL_TEXT = sse(
    {"type": "response.created", "response": {"id": "resp_1", "model": "m"}},
    {"type": "response.output_item.added", "output_index": 0,
     "item": {"type": "message", "role": "assistant", "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "Half an "},
)  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "response", "status", "code", "texts"),
    [
        (
            "responses",
            make_response(PARTIAL_TEXT, error="reset by peer"),
            "incomplete",
            "connection_failed",
            ["Half an "],
        ),
        (
            "responses",
            make_response(PARTIAL_TEXT + b'data: {"type": "response.comp'),
            "incomplete",
            "stream_ended",
            ["Half an "],
        ),
        ("responses", make_response(b"", status=None, error="refused"), "failed", "connection_failed", []),
        ("messages", make_response(STREAMED_MESSAGE[:700], is_truncated=True), "incomplete", "stream_ended", None),
        (
            "messages",
            make_response({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}, status=529),
            "failed",
            "overloaded_error",
            [],
        ),
        (
            "chat_completions",
            make_response({"error": {"code": "invalid_api_key", "message": "No"}}, status=401),
            "failed",
            "invalid_api_key",
            [],
        ),
        ("chat_completions", make_response(b"<html>gateway</html>", status=502), "failed", "upstream_error", []),
        ("chat_completions", make_response(b"\xff\xfe nothing"), "failed", "invalid_response", []),
        (
            "responses",
            make_response(sse({"type": "error", "error": {"code": "rate_limit", "message": "Slow"}})),
            "failed",
            "rate_limit",
            [],
        ),
    ],
)
def test_a_response_that_did_not_succeed_has_a_status_and_an_error(
    protocol: Protocol, response: Any, status: str, code: str, texts: list[str] | None
) -> None:
    decoded = decode_response(make_request({}, protocol=protocol), response)
    assert decoded.status == status
    assert decoded.error is not None
    assert decoded.error["code"] == code
    assert texts is None or [item["content"][0]["text"] for item in decoded.output] == texts
    assert bool(decoded.notes) == response.is_truncated


@pytest.mark.parametrize(
    ("body", "is_truncated", "note"),
    [
        (b'{"model": "m", "input": "He', True, "cut off"),
        (b"[1]", False, "not a JSON object"),
        (b'{"a": NaN}', False, "not a JSON object"),
        (b'{"a": 1e999}', False, "not a JSON object"),
        (b"[" * 100_000, False, "not a JSON object"),
        (b'{"a":' * 100_000, False, "not a JSON object"),
        (b"\xff", False, "not a JSON object"),
        (b'{"x":[%b{}]}' % (b"{}," * 300_000), False, "too many values"),
        (b'{"input":[%b{}],"messages":[%b{}]}' % (b"{}," * 20_000, b"{}," * 20_000), False, "more than 20,000 items"),
    ],
    ids=["truncated", "array", "NaN", "infinity", "deep array", "deep object", "no UTF-8", "values", "items"],
)
@pytest.mark.parametrize("protocol", ["responses", "chat_completions", "messages"])
def test_a_damaged_request_is_a_note(protocol: Protocol, body: bytes, is_truncated: bool, note: str) -> None:
    decoded = decode_request(make_request(body, protocol=protocol, is_truncated=is_truncated))
    assert decoded.items == ()
    assert note in decoded.notes[0]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "text", "function", "assistant"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "role",
                    "content",
                    "text",
                    "tool_calls",
                    "function",
                    "id",
                    "output",
                    "delta",
                    "choices",
                    "index",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        "model",
        "input",
        "messages",
        "system",
        "tools",
        "content",
        "choices",
        "output",
        "error",
        "usage",
        "type",
        "response",
        "status",
        "content_block",
        "delta",
        "index",
        "message",
        "item",
        "output_index",
    ]
)
TYPES = st.sampled_from(
    ["response.completed", "response.output_item.added", "response.output_text.delta", "content_block_start",
     "content_block_delta", "message_delta", "message_start", "error"]
)  # fmt: skip
DOCUMENTS = st.dictionaries(NAMES, JSON_VALUES, max_size=6)
EVENTS = st.builds(lambda document, kind: {**document, "type": kind}, DOCUMENTS, TYPES)


@given(
    st.sampled_from(["responses", "chat_completions", "messages"]), DOCUMENTS, DOCUMENTS, st.lists(EVENTS, max_size=5)
)
def test_any_json_is_decoded_without_an_exception(
    protocol: Protocol, body: dict[str, Any], document: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    request = make_request(body, protocol=protocol)
    decoded = [decode_response(request, make_response(raw)) for raw in (document, sse(*events))]
    items = [*decode_request(request).items, *(item for response in decoded for item in response.output)]
    assert all(map(is_item, items))
    assert all(map(item_hash, items))


@pytest.mark.parametrize("client", CAPTURED_CLIENTS)
def test_an_answer_cut_off_anywhere_is_decoded(client: str) -> None:
    for request, response in captured_exchanges(client)[:1]:
        for end in range(0, len(response.body), 7):
            decoded = decode_response(request, make_response(response.body[:end], is_truncated=True))
            assert decoded.status in ("completed", "incomplete", "failed")
            assert decoded.notes


MISPLACED_VALUES: tuple[Any, ...] = ([1], {"a": 1}, None, 10**30, "\ud800")


@pytest.mark.parametrize("value", MISPLACED_VALUES, ids=repr)
async def test_a_value_of_another_type_in_any_field_is_recorded(value: Any) -> None:
    """Values that cannot be keys of a dict once ended the task that records, and with it all later recordings."""
    store = open_store("memory")
    await store.admin.migrate()
    recorder = open_recorder(store, clock=FixedClock())
    tool = {"type": value, "name": value}
    exchanges: list[tuple[Protocol, dict[str, Any], bytes]] = [
        ("responses", {"input": [{"role": "user", "content": [{"type": value, "text": "a"}]}], "tools": [tool]}, b""),
        ("responses", {"input": [{"type": "additional_tools", "tools": [tool]}]}, sse({"type": "response.created"})),
        ("responses", {"input": "a"}, b"data: %b\n\n" % json.dumps({"type": value}).encode()),
        ("chat_completions", {"messages": [{"role": "tool", "content": [{"type": value}]}], "tools": [tool]}, b""),
        (
            "chat_completions",
            {"messages": []},
            b"data: %b\n\n"
            % json.dumps(
                {"choices": [{"delta": {"tool_calls": [{"index": value, "id": value}]}, "finish_reason": value}]}
            ).encode(),
        ),
        ("messages", {"messages": [{"role": value, "content": [{"type": value}]}], "tools": [tool]}, b""),
    ]
    for number, (protocol, body, raw) in enumerate(exchanges):
        request = make_request({"model": "gpt", **body}, protocol=protocol, id=f"exch_{number}")
        await recorder.begin(request)
        await recorder.finish(request, make_response(raw))
    page = await store.list_requests(RequestQuery())
    assert len(page.requests) == len(exchanges)
    await recorder.aclose()
    await store.aclose()


def test_a_response_of_too_many_values_or_lines_is_decoded_up_to_the_limit() -> None:
    """Parsed, each body would take a gigabyte."""
    text = sse({"type": "chunk", "choices": [{"delta": {"content": "hi"}}]})
    request = make_request({"model": "gpt"}, protocol="chat_completions")
    values = b"data: [%b{}]\n\n" % (b"{}," * 100_000)
    for rest in (values * 20, b"\n" * 1_000_000):
        decoded = decode_response(request, make_response(text + rest + text))
        assert item_text(decoded.output[0]) == "hi"
        assert decoded.notes == ("the response has too many events or values: the rest was left out",)
    decoded = decode_response(request, make_response(b'{"choices":[%b{}]}' % (b"{}," * 300_000)))
    assert (decoded.status, decoded.output) == ("failed", ())


@pytest.mark.parametrize("protocol", ["chat_completions", "messages"])
def test_lists_and_arguments_in_many_events_are_put_together_in_linear_time(protocol: Protocol) -> None:
    """Compares two lengths of one decoding, without the garbage collector: its share depends on the tests before."""
    delta = {"type": "citations_delta", "citation": 1}
    call = {"index": 0, "function": {"arguments": "x" * 20}}
    chat_delta = {"annotations": [1], "tool_calls": [call]}
    event = {"type": "content_block_delta", "index": 0, "delta": delta, "choices": [{"delta": chat_delta}]}
    request = make_request({"model": "gpt"}, protocol=protocol)

    def decoding_time(events: int) -> float:
        response = make_response(sse(event) * events)
        started = time.process_time()
        assert decode_response(request, response).output
        return time.process_time() - started

    gc.disable()
    try:
        short = min(decoding_time(20_000) for _ in range(2))
        long = decoding_time(160_000)
    finally:
        gc.enable()
    assert long < 16 * short  # 8 in linear time; copying the list or arguments for each event took 30

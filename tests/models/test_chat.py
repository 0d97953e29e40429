"""Chat completions over a real connection."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from typing import Any

import pytest

from convo.config.sections import CustomTools
from convo.config.settings import ResponseLimits
from convo.errors import (
    NO_CONNECTION,
    EndpointFault,
    KeyRefused,
    LimitReached,
    RequestRefused,
    StreamBroken,
    TryLater,
    Unreachable,
    Unsupported,
)
from convo.history.items import Json, StreamEvent, user_message
from convo.models.base import make_issuer_tag
from convo.models.chat_completions import ChatModel
from convo.models.stream import make_usage
from convo.secrets import Secret
from tests.clock import counting_ids
from tests.models.chat_server import ChatServer, delta, finish, tool, usage_fields
from tests.models.model_calls import collect_events, deltas, final_response, make_request, output_text, read_events

KEY = "sk-abcdefghijklmnop"
HI = make_request(user_message("hi"), model="v3")


@pytest.fixture
async def model(server: ChatServer) -> AsyncIterator[ChatModel]:
    model = ChatModel("deepseek", server.url, counting_ids(), key=Secret(KEY), is_served=True)
    yield model
    await model.aclose()


async def test_an_answer_is_streamed_and_ends_with_a_complete_response(server: ChatServer, model: ChatModel) -> None:
    server.stream(delta(role="assistant"), delta(content="Hel"), delta(content="lo."), finish("stop"), usage_fields())

    events = await read_events(model, HI)

    assert deltas(events) == ["Hel", "lo."]
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["usage"] == make_usage(12, 3)
    assert events[-1]["response"]["model"] == "m-2026"


async def test_the_request_has_the_history_and_the_key_and_no_other_credentials(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org_other")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj_other")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin_other")
    monkeypatch.setenv("OPENAI_API_KEY", "key_other")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer ambient_other\nX-Team: team_other")
    server.stream(finish("stop"))
    model = ChatModel("deepseek", server.url, counting_ids(), key=Secret(KEY))

    await read_events(model, make_request(user_message("hi"), model="v3", instructions="be brief", max_output_tokens=5))
    await model.aclose()

    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert not any("other" in value for value in server.requests[0].headers.values())
    assert server.requests[0].json == {
        "model": "v3",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_a_server_without_a_key_never_gets_the_openai_key(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key_other")
    server.stream(finish("stop"))
    model = ChatModel("ollama", server.url, counting_ids())

    await read_events(model, HI)
    await model.aclose()

    assert "key_other" not in str(server.requests[0].headers)


async def test_a_request_parameter_takes_precedence_over_a_default(server: ChatServer) -> None:
    server.stream(finish("stop"))
    model = ChatModel("m", server.url, counting_ids(), defaults={"temperature": 0.2, "repeat_penalty": 1.05})

    await read_events(model, make_request(user_message("hi"), temperature=0.9))
    await model.aclose()

    assert (server.requests[0].json["temperature"], server.requests[0].json["repeat_penalty"]) == (0.9, 1.05)


async def test_a_stream_without_a_finish_reason_is_broken(server: ChatServer, model: ChatModel) -> None:
    server.stream(delta(content="Hel"), end=b"")

    with pytest.raises(StreamBroken, match="before it was complete"):
        await read_events(model, HI)


async def test_a_dropped_connection_breaks_the_stream_after_the_received_text(
    server: ChatServer, model: ChatModel
) -> None:
    server.stream(delta(content="Hel"), cut=True)
    events: list[StreamEvent] = []

    with pytest.raises(StreamBroken, match="connection to deepseek broke"):
        await collect_events(events, model, HI)

    assert deltas(events) == ["Hel"]


async def test_bytes_that_are_no_json_break_the_stream(server: ChatServer, model: ChatModel) -> None:
    server.stream(delta(content="Hel"), b"data: {not json\n\n")

    with pytest.raises(StreamBroken, match="not an event stream"):
        await read_events(model, HI)


async def test_a_body_that_is_no_event_stream_is_read_as_a_whole_answer(server: ChatServer, model: ChatModel) -> None:
    server.refuse(200, {"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]})
    assert output_text(await final_response(model, HI)) == "Hello."

    server.refuse(200, {"error": {"message": "quota of the team is used up", "code": "quota"}})
    with pytest.raises(EndpointFault, match="quota of the team is used up"):
        await read_events(model, HI)

    server.refuse(200, {"hello": "world"})
    with pytest.raises(StreamBroken, match="no chat completions event") as error:
        await read_events(model, HI)
    assert "base_url" in error.value.hint


async def test_an_error_event_within_the_answer_breaks_the_stream(server: ChatServer, model: ChatModel) -> None:
    server.stream(delta(content="Hel"), {"error": {"message": "Out of memory.", "code": 500}})

    with pytest.raises(StreamBroken, match=r"^Out of memory$"):
        await read_events(model, HI)


async def test_an_error_event_before_the_answer_is_retryable(server: ChatServer, model: ChatModel) -> None:
    server.stream({"error": {"message": "Loading the model.", "code": 503}})

    with pytest.raises(TryLater, match=r"^Loading the model$"):
        await read_events(model, HI)


async def test_a_rejected_key_is_reported_without_the_key(server: ChatServer, model: ChatModel) -> None:
    server.refuse(401, {"error": {"message": f"Incorrect API key provided: {KEY}.", "code": "invalid_api_key"}})

    with pytest.raises(KeyRefused) as error:
        await read_events(model, HI)

    assert error.value.message == "deepseek refused the key: Incorrect API key provided: ***"


async def test_a_rate_limited_request_is_not_repeated_and_its_error_has_retry_after(
    server: ChatServer, model: ChatModel
) -> None:
    server.refuse(429, {"error": {"message": "Slow down."}}, {"retry-after": "7"})

    with pytest.raises(TryLater) as error:
        await read_events(model, HI)

    assert (error.value.retry_after_s, len(server.requests)) == (7.0, 1)


@pytest.mark.parametrize("body", ["<html>not here</html>", "Not Found", {"detail": "Not Found"}])
async def test_a_wrong_base_url_is_named(server: ChatServer, body: Any) -> None:
    server.refuse(404, body)
    model = ChatModel("groq", server.url, counting_ids())

    with pytest.raises(RequestRefused) as error:
        await read_events(model, HI)
    await model.aclose()

    assert error.value.message == f"groq returned HTTP 404 at {server.url}"
    assert error.value.hint == "check its base_url"


async def test_a_connection_closed_before_the_response_is_not_reported_as_no_connection(
    server: ChatServer, model: ChatModel
) -> None:
    server.hang_up()

    with pytest.raises(Unreachable, match="broke before it responded") as error:
        await read_events(model, HI)

    assert error.value.code != NO_CONNECTION


async def test_a_server_that_does_not_speak_http_is_unreachable(server: ChatServer, model: ChatModel) -> None:
    server.send_non_http()

    with pytest.raises(Unreachable, match="broke before it responded"):
        await read_events(model, HI)


async def test_json_that_is_nested_too_deeply_breaks_the_stream(server: ChatServer, model: ChatModel) -> None:
    server.stream(delta(content="Hi"), b"data: " + b"[" * 100_000 + b"\n\n")

    with pytest.raises(StreamBroken, match="not an event stream"):
        await read_events(model, HI)


async def test_an_unsupported_item_is_refused_before_a_request_is_sent(server: ChatServer, model: ChatModel) -> None:
    with pytest.raises(Unsupported, match="deepseek/v3 does not support hologram_call items"):
        await read_events(model, make_request({"type": "hologram_call"}, model="v3"))

    assert server.requests == []


async def test_half_a_surrogate_pair_is_refused_with_a_message(server: ChatServer, model: ChatModel) -> None:
    with pytest.raises(RequestRefused, match="half a surrogate pair"):
        await read_events(model, make_request(user_message("\ud83d")))

    assert server.requests == []


async def test_closing_the_stream_closes_the_connection(server: ChatServer, model: ChatModel) -> None:
    server.stall(delta(content="Hel"))

    async with aclosing(model.respond(HI)) as events:
        async for event in events:
            if event["type"] == "response.output_text.delta":
                break

    assert await client_disconnected(server.client_left)


async def test_cancelling_before_the_first_chunk_closes_the_connection(server: ChatServer, model: ChatModel) -> None:
    server.stall()
    task = asyncio.create_task(read_events(model, HI))
    await asyncio.to_thread(server.request_received.wait, 20)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await client_disconnected(server.client_left)


async def test_one_model_serves_concurrent_requests(server: ChatServer, model: ChatModel) -> None:
    for word in ("one", "two", "three"):
        server.stream(delta(content=word), finish("stop"))

    responses = await asyncio.gather(*(final_response(model, HI) for _ in range(3)))

    assert sorted(output_text(response) for response in responses) == ["one", "three", "two"]


async def client_disconnected(disconnected: threading.Event) -> bool:
    """Return whether the server noticed that the client disconnected; the timeout applies only if the test fails."""
    return await asyncio.to_thread(disconnected.wait, 20)


async def test_a_number_without_a_canonical_form_in_an_unread_field_is_ignored(
    server: ChatServer, model: ChatModel
) -> None:
    chunk = b'data: {"odd": [NaN, 1e999], "choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\n'
    server.stream(chunk)

    assert output_text(await final_response(model, HI)) == "Hi"


async def test_a_stream_may_have_as_many_events_as_the_limit_and_no_more(server: ChatServer) -> None:
    chunks = [delta(content="a"), delta(content="b"), finish("stop")]
    for limit in (3, 2):
        server.stream(*chunks)
        limited = ChatModel("mine", server.url, counting_ids(), limits=ResponseLimits(answer_events=limit))
        with nullcontext() if limit == 3 else pytest.raises(LimitReached, match=r"limits\.answer_events = 2$"):
            assert output_text(await final_response(limited, HI)) == "ab"
        await limited.aclose()


async def test_text_without_an_object_in_a_chunk_is_a_broken_stream(server: ChatServer, model: ChatModel) -> None:
    server.stream(b"data: 7\n\n")

    with pytest.raises(StreamBroken, match=r"^the response has no chat completions event$"):
        await read_events(model, HI)


async def test_a_request_is_checked_without_a_response(server: ChatServer, model: ChatModel) -> None:
    with pytest.raises(Unsupported):
        await model.check_request(make_request(user_message("hi"), model="v3", truncation="auto"))
    server.refuse(200, {"data": []})
    server.refuse(401, {"error": {"message": "No."}})

    await model.check_request(HI)
    with pytest.raises(KeyRefused):
        await model.check_request(HI)

    assert [request.path for request in server.requests] == ["/v1/models", "/v1/models"]
    assert [await model.count(HI), await model.compact(HI)] == [None, None]


@pytest.mark.parametrize(
    ("is_on", "ignored"), [(True, ()), (False, ("include.reasoning.encrypted_content", "input.reasoning"))]
)
@pytest.mark.parametrize("provider", ["deepseek", "groq"])
async def test_reasoning_goes_back_to_its_server_unless_a_setting_switches_it_off(
    provider: str, is_on: bool, ignored: tuple[str, ...]
) -> None:
    url = "http://127.0.0.1:1/v1"
    tag = make_issuer_tag(provider, "v3", url)
    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": f"{tag}SG0u"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    model = ChatModel(provider, url, counting_ids(), resend_fields=is_on)
    request = make_request(reasoning, call, model="v3", include=["reasoning.encrypted_content"])

    assert model.ignored_fields(request) == ignored
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    fields = {"reasoning_content": "Hm."} if is_on else {"reasoning_content": ""} if provider == "deepseek" else {}
    sent = {**message, **fields}
    assert model.build_body(request) == {"model": "v3", "messages": [sent]}


async def test_a_json_object_is_posted_with_a_body_and_requested_without_one(
    server: ChatServer, model: ChatModel
) -> None:
    server.refuse(200, {"input_tokens": 3})
    server.refuse(200, {"n_ctx": 4096})

    assert await model.request_json("/count", {"model": "v3"}) == {"input_tokens": 3}
    assert await model.request_json("/props") == {"n_ctx": 4096}
    assert [(request.path, request.json) for request in server.requests] == [
        ("/v1/count", {"model": "v3"}),
        ("/v1/props", None),
    ]


# -- custom tools ----------------------------------------------------------------------------------

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}
PATCH = {"type": "custom", "name": "patch", "description": "d", "format": GRAMMAR}
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def custom_delta(index: int, custom_input: str, **fields: Json) -> dict[str, Any]:
    """Return a chunk with a part of a custom call; the first one has its id, type and name."""
    name = {"name": fields.pop("name")} if "name" in fields else {}
    return delta(tool_calls=[{"index": index, **fields, "custom": {**name, "input": custom_input}}])


@pytest.fixture
async def native(server: ChatServer) -> AsyncIterator[ChatModel]:
    model = ChatModel("vllm", server.url, counting_ids(), custom_tools="native")
    yield model
    await model.aclose()


async def test_a_custom_tool_and_its_streamed_call_are_translated_both_ways(
    server: ChatServer, native: ChatModel
) -> None:
    first = {"id": "call_1", "type": "custom", "name": "patch"}
    server.stream(
        delta(content="So."),
        custom_delta(0, "", **first),
        custom_delta(0, '{"input": "'),
        custom_delta(0, "\ud83d"),
        custom_delta(0, "\ude00\n"),
        tool(1, call_id="call_2", name="look"),
        custom_delta(2, "aaa", **{**first, "id": "call_3", "name": "b__free"}),
        custom_delta(3, "", **{**first, "id": "call_4"}),
        finish("tool_calls"),
        usage_fields(),
    )
    tools = [PATCH, FUNCTION, {"type": "namespace", "name": "b", "tools": [{"type": "custom", "name": "free"}]}]
    events = await read_events(native, make_request(user_message("hi"), tools=tools))

    assert server.requests[0].json["tools"] == [
        {
            "type": "custom",
            "custom": {
                "name": "patch",
                "description": "d",
                "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a+/"}},
            },
        },
        {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}},
        {"type": "custom", "custom": {"name": "b__free"}},
    ]
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output[1:]] == ["custom_tool_call", "function_call", *["custom_tool_call"] * 2]
    patch, look, free, empty = output[1:]
    assert (patch["name"], patch["call_id"], patch["input"]) == ("patch", "call_1", '{"input": "\U0001f600\n')
    assert (look["call_id"], look["arguments"]) == ("call_2", "{}")
    assert (free["name"], free["namespace"], free["input"]) == ("free", "b", "aaa")
    assert (empty["call_id"], empty["input"], empty["status"]) == ("call_4", "", "completed")
    streamed = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    assert streamed == ['{"input": "', "\U0001f600\n", "aaa"]
    done = [event["input"] for event in events if event["type"] == "response.custom_tool_call_input.done"]
    assert done == [patch["input"], "aaa", ""]

    outputs = [{"type": "custom_tool_call_output", "call_id": f"call_{number}", "output": "ok"} for number in (1, 3, 4)]
    function_output = {"type": "function_call_output", "call_id": "call_2", "output": "seen"}
    body = native.build_body(make_request(user_message("hi"), *output, *outputs, function_output, tools=tools))
    assistant, *answers = body["messages"][1:]
    assert assistant["tool_calls"][0] == {
        "id": "call_1",
        "type": "custom",
        "custom": {"name": "patch", "input": patch["input"]},
    }
    assert assistant["tool_calls"][2]["custom"] == {"name": "b__free", "input": "aaa"}
    assert [(message["role"], message["tool_call_id"]) for message in answers] == [
        ("tool", f"call_{number}") for number in (1, 2, 3, 4)
    ]


def test_a_tool_choice_names_a_custom_tool_in_the_form_of_the_server(native: ChatModel) -> None:
    def choice(tool_choice: Json, *tools: Json) -> Json:
        return native.build_body(make_request(user_message("hi"), tools=tools, tool_choice=tool_choice))["tool_choice"]

    member = {"type": "namespace", "name": "b", "tools": [{"type": "custom", "name": "free"}]}
    assert choice({"type": "custom", "name": "patch"}, PATCH) == {"type": "custom", "custom": {"name": "patch"}}
    assert choice({"type": "custom", "name": "free"}, member) == {"type": "custom", "custom": {"name": "b__free"}}
    assert choice({"type": "function", "name": "look"}, PATCH, FUNCTION) == {
        "type": "function",
        "function": {"name": "look"},
    }
    assert choice("required", PATCH) == "required"


@pytest.mark.parametrize(
    ("url", "model", "setting", "is_native"),
    [
        ("https://api.openai.com/v1", "gpt-5-mini", "auto", True),
        ("https://mine.openai.azure.com/openai/v1", "gpt-6-astra", "auto", True),
        ("https://api.openai.com/v1", "gpt-5-mini", "function", False),
        ("https://api.openai.com/v1", "gpt-4o", "auto", False),
        ("https://api.openai.com/v1", "gpt-5-chat-latest", "auto", False),
        ("https://mine.openai.azure.com/openai/v1", "gpt-35-turbo", "auto", False),
        ("https://mine.openai.azure.com/openai/v1", "our-deployment", "auto", False),
        ("https://mine.openai.azure.com/openai/v1", "our-deployment", "native", True),
        ("http://127.0.0.1:8000/v1", "gpt-5-mini", "auto", False),
    ],
)
def test_a_grammar_is_sent_where_the_model_has_custom_tools_and_is_reported_elsewhere(
    url: str, model: str, setting: CustomTools, is_native: bool
) -> None:
    chat = ChatModel("x", url, counting_ids(), custom_tools=setting)
    request = make_request(user_message("hi"), model=model, tools=[PATCH])
    assert chat.build_body(request)["tools"][0]["type"] == ("custom" if is_native else "function")
    assert chat.ignored_fields(request) == (() if is_native else ("tools.format",))
    unknown = make_request(user_message("hi"), model=model, tools=[{**PATCH, "format": {"type": "xml"}}])
    assert chat.ignored_fields(unknown) == ("tools.format",)


async def test_a_function_call_of_a_custom_tool_is_read_as_well(server: ChatServer, native: ChatModel) -> None:
    server.stream(
        tool(0, call_id="call_1", name="patch", arguments='{"input": "aa"}'), finish("tool_calls"), usage_fields()
    )
    events = await read_events(native, make_request(user_message("hi"), tools=[PATCH]))
    assert [(item["type"], item["input"]) for item in events[-1]["response"]["output"]] == [("custom_tool_call", "aa")]


@pytest.mark.parametrize("custom", ["text", ["x"], {"name": 7}, {"input": "no name"}])
async def test_a_call_without_a_name_is_left_out_and_reported(
    server: ChatServer, native: ChatModel, custom: Json
) -> None:
    call = delta(tool_calls=[{"index": 0, "id": "call_1", "type": "custom", "custom": custom}])
    server.stream(delta(content="So."), call, finish("tool_calls"))

    response = await final_response(native, make_request(user_message("hi"), tools=[PATCH]))

    assert [item["type"] for item in response["output"]] == ["message"]
    assert response["convo_notices"] == ["a call without a name was left out"]

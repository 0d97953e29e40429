"""The Messages API over a real connection: answers, tool calls, thinking, token counts and model lists."""

from typing import Any

import pytest

from convo.errors import KeyRefused, RequestRefused, Unsupported
from convo.history.items import user_message
from convo.models.anthropic import AnthropicModel
from convo.models.stream import make_usage
from tests.clock import counting_ids
from tests.models.anthropic_model import HI, KEY, OPUS, model, text_block
from tests.models.chat_server import ChatServer
from tests.models.messages_events import block, message_events, redacted, sse, start, stop, text, thinking, tool
from tests.models.model_calls import deltas, final_response, make_request, output_text, read_events

__all__ = ["model"]

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": True}


def turn(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def output(call_id: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": value, **more}


# -- one answer -----------------------------------------------------------------------------------


async def test_an_answer_is_streamed_and_ends_with_a_complete_response(
    server: ChatServer, model: AnthropicModel
) -> None:
    server.stream(*message_events(text(0, "Hel", "lo.")), end=b"")

    events = await read_events(model, HI)

    assert deltas(events) == ["Hel", "lo."]
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["usage"] == make_usage(12, 7)
    assert events[-1]["response"]["model"] == "claude-opus-5-20260701"


async def test_the_request_has_exactly_the_asked_fields(server: ChatServer, model: AnthropicModel) -> None:
    server.stream(*message_events(text(0, "Hi")), end=b"")

    await read_events(
        model, make_request(user_message("hi"), model=OPUS, instructions="be brief", max_output_tokens=50)
    )

    assert server.requests[0].path == "/v1/messages"
    assert server.requests[0].headers["x-api-key"] == KEY
    assert server.requests[0].json == {
        "model": OPUS,
        "max_tokens": 50,
        "system": [text_block("be brief")],
        "messages": [turn("user", text_block("hi"))],
        "cache_control": {"type": "ephemeral"},
        "stream": True,
    }


async def test_input_tokens_include_cached_tokens(server: ChatServer, model: AnthropicModel) -> None:
    start_event = start(input_tokens=10, cache_read_input_tokens=200, cache_creation_input_tokens=30)
    details = {"thinking_tokens": 5}
    server.stream(start_event, *text(0, "Hi"), *stop(output_tokens_details=details), end=b"")

    response = await final_response(model, HI)

    assert response["usage"] == make_usage(240, 7, cached=200, written=30, reasoning=5)


async def test_tokens_that_are_cached_for_an_hour_are_counted_apart(server: ChatServer, model: AnthropicModel) -> None:
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 30}
    creation = {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 10}
    message = {"id": "msg_1", "model": OPUS, "usage": {**usage, "cache_creation": creation}}
    server.stream(sse({"type": "message_start", "message": message}), *text(0, "Hi"), *stop(), end=b"")

    response = await final_response(model, HI)

    assert response["usage"] == make_usage(40, 7, written=30, written_1h=10)
    assert response["usage"]["input_tokens_details"]["cache_write_1h_tokens"] == 10


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "tool_use", "pause_turn"])
async def test_an_answer_with_a_normal_stop_reason_is_completed(
    server: ChatServer, model: AnthropicModel, reason: str
) -> None:
    server.stream(*message_events(text(0, "Hi"), reason=reason), end=b"")

    assert (await final_response(model, HI))["status"] == "completed"


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_a_truncated_answer_is_incomplete_with_its_reason(
    server: ChatServer, model: AnthropicModel, reason: str
) -> None:
    server.stream(*message_events(text(0, "Hel"), reason=reason), end=b"")

    response = await final_response(model, HI)

    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["output"][0]["status"] == "incomplete"


async def test_a_refusal_becomes_a_refusal_with_its_explanation(server: ChatServer, model: AnthropicModel) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "That could do harm."}
    server.stream(start(), *stop("refusal", details), end=b"")

    response = await final_response(model, HI)

    assert response["status"] == "completed"
    assert response["output"][0]["content"] == [{"type": "refusal", "refusal": "That could do harm."}]


@pytest.mark.parametrize("details", [None, {"type": "refusal"}, {"explanation": None}])
async def test_a_refusal_without_an_explanation_has_a_text(
    server: ChatServer, model: AnthropicModel, details: dict[str, Any] | None
) -> None:
    server.stream(start(), *stop("refusal", details), end=b"")

    response = await final_response(model, HI)

    assert response["output"][0]["content"] == [{"type": "refusal", "refusal": "The model will not answer this."}]


async def test_an_unknown_stop_reason_is_reported(server: ChatServer, model: AnthropicModel) -> None:
    server.stream(*message_events(text(0, "Hi"), reason="sunset"), end=b"")

    response = await final_response(model, HI)

    notices = ["the provider ended the response with the unknown reason 'sunset'"]
    assert (response["status"], response["convo_notices"]) == ("completed", notices)


# -- calls ----------------------------------------------------------------------------------------


async def test_parallel_calls_and_their_outputs_round_trip_in_one_turn(
    server: ChatServer, model: AnthropicModel
) -> None:
    server.stream(
        *message_events(
            text(0, "Let me see."),
            tool(1, "toolu_1", "weather", '{"city":', '"Oslo"}'),
            tool(2, "toolu_2", "time", ""),
            reason="tool_use",
        ),
        end=b"",
    )
    server.stream(*message_events(text(0, "Cold, at noon.")), end=b"")

    first = await final_response(model, make_request(user_message("?"), model=OPUS, tools=[WEATHER]))
    outputs = [output("toolu_2", "noon"), output("toolu_1", [{"type": "input_text", "text": "-3"}])]
    answer = await final_response(
        model, make_request(user_message("?"), *first["output"], *outputs, model=OPUS, tools=[WEATHER])
    )

    calls = [item for item in first["output"] if item["type"] == "function_call"]
    assert [(item["call_id"], item["name"], item["arguments"]) for item in calls] == [
        ("toolu_1", "weather", '{"city":"Oslo"}'),
        ("toolu_2", "time", "{}"),
    ]
    assert server.requests[1].json["messages"] == [
        turn("user", text_block("?")),
        turn(
            "assistant",
            text_block("Let me see."),
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
            {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}},
        ),
        turn(
            "user",
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text_block("-3")]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [text_block("noon")]},
        ),
    ]
    assert output_text(answer) == "Cold, at noon."


# -- thinking -------------------------------------------------------------------------------------


async def test_thinking_blocks_are_sent_back_unchanged_to_their_model(
    server: ChatServer, model: AnthropicModel
) -> None:
    server.stream(
        *message_events(
            thinking(0, "Oslo… ", "is cold.", signature="EqRkA/+=="),
            redacted(1, "EmwKAhgB"),
            tool(2, "toolu_1", "weather", "{}"),
            reason="tool_use",
        ),
        end=b"",
    )
    server.stream(*message_events(text(0, "Cold.")), end=b"")

    events = await read_events(model, HI)
    first = events[-1]["response"]["output"]
    await read_events(model, make_request(user_message("hi"), *first, output("toolu_1", "-3"), model=OPUS))

    assert deltas(events, "reasoning_text") == ["Oslo… ", "is cold."]
    assert [item["type"] for item in first] == ["reasoning", "reasoning", "function_call"]
    assert server.requests[1].json["messages"][1]["content"][:2] == [
        {"type": "thinking", "thinking": "Oslo… is cold.", "signature": "EqRkA/+=="},
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
    ]


async def test_thinking_without_text_is_stored_too(server: ChatServer, model: AnthropicModel) -> None:
    server.stream(*message_events(thinking(0, signature="Sig"), text(1, "Hi")), end=b"")
    server.stream(*message_events(text(0, "Yes")), end=b"")

    first = await final_response(model, HI)
    await read_events(model, make_request(user_message("hi"), *first["output"], user_message("sure?"), model=OPUS))

    assert first["output"][0]["content"] == []
    assert server.requests[1].json["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "", "signature": "Sig"},
        text_block("Hi"),
    ]


async def test_another_model_gets_the_calls_without_the_thinking_blocks(
    server: ChatServer, model: AnthropicModel
) -> None:
    server.stream(
        *message_events(thinking(0, "Hm.", signature="Sig"), tool(1, "toolu_1", "weather", "{}"), reason="tool_use"),
        end=b"",
    )
    server.stream(*message_events(text(0, "Cold.")), end=b"")

    first = await final_response(model, HI)
    history = [user_message("hi"), *first["output"], output("toolu_1", "-3")]
    await read_events(model, make_request(*history, model="claude-haiku-4-5", reasoning={"effort": "low"}))

    content = server.requests[1].json["messages"][1]["content"]
    assert [block["type"] for block in content] == ["tool_use"]
    assert "thinking" not in server.requests[1].json


async def test_a_truncated_answer_is_sent_back_as_its_text(server: ChatServer, model: AnthropicModel) -> None:
    server.stream(*message_events(text(0, "Hel"), reason="max_tokens"), end=b"")
    server.stream(*message_events(text(0, "lo")), end=b"")

    first = await final_response(model, HI)
    await read_events(model, make_request(user_message("hi"), *first["output"], user_message("go on"), model=OPUS))

    assert server.requests[1].json["messages"] == [
        turn("user", text_block("hi")),
        turn("assistant", text_block("Hel")),
        turn("user", text_block("go on")),
    ]


# -- token counts and model lists -----------------------------------------------------------------


async def test_input_tokens_are_counted_by_the_server(server: ChatServer, model: AnthropicModel) -> None:
    server.refuse(200, {"input_tokens": 41})

    count = await model.count(
        make_request(user_message("hi"), model=OPUS, instructions="be brief", max_output_tokens=5)
    )

    assert count == 41
    assert server.requests[0].path == "/v1/messages/count_tokens"
    assert sorted(server.requests[0].json) == ["cache_control", "messages", "model", "system"]


async def test_a_server_that_cannot_count_tokens_is_reported(server: ChatServer, model: AnthropicModel) -> None:
    server.refuse(404, {"detail": "Not Found"})

    assert await model.count(HI) is None


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [(400, "invalid_request_error", "No"), (404, "not_found_error", f"anthropic has no model {OPUS!r}")],
)
async def test_a_count_that_is_refused_for_another_reason_is_an_error(
    server: ChatServer, model: AnthropicModel, status: int, kind: str, message: str
) -> None:
    text = f"model: {OPUS}" if status == 404 else "No."
    server.refuse(status, {"type": "error", "error": {"type": kind, "message": text}})

    with pytest.raises(RequestRefused, match=f"^{message}$"):
        await model.count(HI)


async def test_the_fields_that_the_input_tokens_depend_on_are_sent(server: ChatServer, model: AnthropicModel) -> None:
    server.refuse(200, {"input_tokens": 41})
    request = make_request(
        user_message("hi"),
        model=OPUS,
        instructions="be brief",
        tools=[WEATHER],
        tool_choice="required",
        reasoning={"effort": "low"},
        service_tier="default",
        safety_identifier="s",
        temperature=0.5,
    )

    assert await model.count(request) == 41
    assert sorted(server.requests[0].json) == [
        *("cache_control", "messages", "model", "output_config", "system", "thinking", "tool_choice", "tools")
    ]


async def test_a_request_is_checked_without_a_response(server: ChatServer, model: AnthropicModel) -> None:
    with pytest.raises(Unsupported):
        await model.check_request(make_request(user_message("hi"), model=OPUS, truncation="auto"))
    server.refuse(200, {"data": []})
    server.refuse(401, {"error": {"type": "authentication_error", "message": "No."}})

    await model.check_request(HI)
    with pytest.raises(KeyRefused):
        await model.check_request(HI)

    assert [request.path for request in server.requests] == ["/v1/models", "/v1/models"]


@pytest.mark.parametrize("url", ["{}", "{}/v1"])
async def test_a_base_url_may_end_in_the_version(server: ChatServer, url: str) -> None:
    server.stream(*message_events(text(0, "Hi")), end=b"")
    model = AnthropicModel("mine", url.format(server.url.removesuffix("/v1")), counting_ids())

    await read_events(model, HI)
    await model.aclose()

    assert server.requests[0].path == "/v1/messages"


async def test_a_block_may_begin_with_text(server: ChatServer, model: AnthropicModel) -> None:
    begun = block(
        0, {"type": "thinking", "thinking": "A", "signature": "s"}, {"type": "thinking_delta", "thinking": "B"}
    )
    server.stream(*message_events(begun, block(1, {"type": "text", "text": "H"}, {"type": "text_delta", "text": "i"})))
    server.stream(*message_events(text(0, "Yes")), end=b"")

    first = await final_response(model, HI)
    await read_events(model, make_request(user_message("hi"), *first["output"], user_message("sure?"), model=OPUS))

    assert first["output"][0]["content"] == [{"type": "reasoning_text", "text": "AB"}]
    assert server.requests[1].json["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "AB", "signature": "s"},
        text_block("Hi"),
    ]


async def test_a_message_without_a_model_or_counts_has_the_requested_model(
    server: ChatServer, model: AnthropicModel
) -> None:
    begin = sse({"type": "message_start", "message": {"model": None, "usage": None}})
    finish = sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    server.stream(begin, finish, sse({"type": "message_stop"}), end=b"")

    response = await final_response(model, HI)

    assert (response["model"], response["usage"]) == (OPUS, None)


async def test_models_are_listed_by_name(server: ChatServer, model: AnthropicModel) -> None:
    server.refuse(200, {"data": [{"type": "model", "id": OPUS}, {"id": "claude-haiku-4-5"}], "has_more": False})

    assert [*await model.list_models()] == [OPUS, "claude-haiku-4-5"]
    assert (server.requests[0].path, server.requests[0].headers["x-api-key"]) == ("/v1/models", KEY)


@pytest.mark.parametrize("body", [[], 7, {}, {"input_tokens": "7"}])
async def test_a_count_that_is_not_a_number_is_unknown(server: ChatServer, model: AnthropicModel, body: Any) -> None:
    server.refuse(200, body)

    assert await model.count(HI) is None


async def test_arguments_at_the_start_of_a_call_are_used_if_no_others_follow(
    server: ChatServer, model: AnthropicModel
) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}
    server.stream(*message_events(block(0, call), reason="tool_use"), end=b"")

    response = await final_response(model, HI)

    assert [(item["call_id"], item["arguments"]) for item in response["output"]] == [("c1", '{"city": "Oslo"}')]

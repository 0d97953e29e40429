"""Claude's Messages API, over a real connection."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from convo.config.secret import Secret
from convo.errors import KeyRefused, Refused, StreamBroken, TryLater, Unreachable, Unsupported
from convo.ids import counting_ids
from convo.items import Event, user
from convo.models.anthropic import AnthropicModel
from convo.models.stream import usage
from tests.models.chat_server import ChatServer, serving
from tests.models.messages_events import error, redacted, start, stop, text, thinking, tool, whole
from tests.models.reading import all_of, asking, deltas, ended, into, said

KEY = "sk-ant-abcdefghijklmnop"
OPUS = "claude-opus-5"
HI = asking(user("hi"), model=OPUS)
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": True}


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serving() as server:
        yield server


@pytest.fixture
async def model(server: ChatServer) -> AsyncIterator[AnthropicModel]:
    model = AnthropicModel("anthropic", server.url, counting_ids(), key=Secret(KEY))
    yield model
    await model.aclose()


def turn(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def words(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def output(call_id: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": value, **more}


# -- one answer -----------------------------------------------------------------------------------


async def test_an_answer_streams_as_it_comes_and_ends_whole(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(*whole(text(0, "Hel", "lo.")), end=b"")

    events = await all_of(model, HI)

    assert deltas(events) == ["Hel", "lo."]
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["usage"] == usage(12, 7)
    assert events[-1]["response"]["model"] == "claude-opus-5-20260701"


async def test_the_request_says_exactly_what_was_asked(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(*whole(text(0, "Hi")), end=b"")

    await all_of(model, asking(user("hi"), model=OPUS, instructions="be brief", max_output_tokens=50))

    assert server.requests[0].path == "/v1/messages"
    assert server.requests[0].headers["x-api-key"] == KEY
    assert server.requests[0].json == {
        "model": OPUS,
        "max_tokens": 50,
        "system": [words("be brief")],
        "messages": [turn("user", words("hi"))],
        "cache_control": {"type": "ephemeral"},
        "stream": True,
    }


async def test_what_was_cached_is_part_of_the_input(server: ChatServer, model: AnthropicModel) -> None:
    told = start(input_tokens=10, cache_read_input_tokens=200, cache_creation_input_tokens=30)
    details = {"thinking_tokens": 5}
    server.streams(told, *text(0, "Hi"), *stop(output_tokens_details=details), end=b"")

    response = await ended(model, HI)

    assert response["usage"] == usage(240, 7, cached=200, written=30, reasoning=5)


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "tool_use", "pause_turn"])
async def test_an_answer_that_came_to_its_end_is_completed(
    server: ChatServer, model: AnthropicModel, reason: str
) -> None:
    server.streams(*whole(text(0, "Hi"), reason=reason), end=b"")

    assert (await ended(model, HI))["status"] == "completed"


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_an_answer_that_was_cut_off_says_so(server: ChatServer, model: AnthropicModel, reason: str) -> None:
    server.streams(*whole(text(0, "Hel"), reason=reason), end=b"")

    response = await ended(model, HI)

    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["output"][0]["status"] == "incomplete"


async def test_a_refusal_is_one_and_says_why(server: ChatServer, model: AnthropicModel) -> None:
    why = {"type": "refusal", "category": "cyber", "explanation": "That could do harm."}
    server.streams(start(), *stop("refusal", why), end=b"")

    response = await ended(model, HI)

    assert response["status"] == "completed"
    assert response["output"][0]["content"] == [{"type": "refusal", "refusal": "That could do harm."}]


async def test_an_unknown_end_is_a_failure(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(*whole(text(0, "Hi"), reason="sunset"), end=b"")

    response = await ended(model, HI)

    assert (response["status"], "'sunset'" in response["error"]["message"]) == ("failed", True)


# -- calls ----------------------------------------------------------------------------------------


async def test_parallel_calls_go_round_with_their_outputs_in_one_turn(
    server: ChatServer, model: AnthropicModel
) -> None:
    server.streams(
        *whole(
            text(0, "Let me see."),
            tool(1, "toolu_1", "weather", '{"city":', '"Oslo"}'),
            tool(2, "toolu_2", "time", ""),
            reason="tool_use",
        ),
        end=b"",
    )
    server.streams(*whole(text(0, "Cold, at noon.")), end=b"")

    first = await ended(model, asking(user("?"), model=OPUS, tools=[WEATHER]))
    outputs = [output("toolu_2", "noon"), output("toolu_1", [{"type": "input_text", "text": "-3"}])]
    answer = await ended(model, asking(user("?"), *first["output"], *outputs, model=OPUS, tools=[WEATHER]))

    calls = [item for item in first["output"] if item["type"] == "function_call"]
    assert [(item["call_id"], item["name"], item["arguments"]) for item in calls] == [
        ("toolu_1", "weather", '{"city":"Oslo"}'),
        ("toolu_2", "time", "{}"),
    ]
    assert server.requests[1].json["messages"] == [
        turn("user", words("?")),
        turn(
            "assistant",
            words("Let me see."),
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
            {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}},
        ),
        turn(
            "user",
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [words("-3")]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [words("noon")]},
        ),
    ]
    assert said(answer) == "Cold, at noon."


# -- thoughts -------------------------------------------------------------------------------------


async def test_thoughts_go_back_to_their_model_exactly_as_they_came(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(
        *whole(
            thinking(0, "Oslo… ", "is cold.", signature="EqRkA/+=="),
            redacted(1, "EmwKAhgB"),
            tool(2, "toolu_1", "weather", "{}"),
            reason="tool_use",
        ),
        end=b"",
    )
    server.streams(*whole(text(0, "Cold.")), end=b"")

    events = await all_of(model, HI)
    first = events[-1]["response"]["output"]
    await all_of(model, asking(user("hi"), *first, output("toolu_1", "-3"), model=OPUS))

    assert deltas(events, "reasoning_text") == ["Oslo… ", "is cold."]
    assert [item["type"] for item in first] == ["reasoning", "reasoning", "function_call"]
    assert server.requests[1].json["messages"][1]["content"][:2] == [
        {"type": "thinking", "thinking": "Oslo… is cold.", "signature": "EqRkA/+=="},
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
    ]


async def test_thoughts_that_are_not_shown_are_kept_all_the_same(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(*whole(thinking(0, signature="Sig"), text(1, "Hi")), end=b"")
    server.streams(*whole(text(0, "Yes")), end=b"")

    first = await ended(model, HI)
    await all_of(model, asking(user("hi"), *first["output"], user("sure?"), model=OPUS))

    assert first["output"][0]["content"] == []
    assert server.requests[1].json["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "", "signature": "Sig"},
        words("Hi"),
    ]


async def test_another_model_is_given_the_calls_and_not_the_thoughts(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(
        *whole(thinking(0, "Hm.", signature="Sig"), tool(1, "toolu_1", "weather", "{}"), reason="tool_use"), end=b""
    )
    server.streams(*whole(text(0, "Cold.")), end=b"")

    first = await ended(model, HI)
    history = [user("hi"), *first["output"], output("toolu_1", "-3")]
    await all_of(model, asking(*history, model="claude-haiku-4-5", reasoning={"effort": "low"}))

    content = server.requests[1].json["messages"][1]["content"]
    assert [block["type"] for block in content] == ["tool_use"]
    assert "thinking" not in server.requests[1].json


async def test_a_call_of_another_provider_keeps_its_output_under_a_name_that_claude_takes(
    server: ChatServer, model: AnthropicModel
) -> None:
    server.streams(*whole(text(0, "Four.")), end=b"")
    call = {"type": "function_call", "call_id": "call|1:é", "name": "add", "arguments": '{"a":2}'}

    await all_of(model, asking(user("2+2?"), call, output("call|1:é", "4"), model=OPUS))

    asked, answered = (message["content"][0] for message in server.requests[0].json["messages"][1:])
    assert asked["id"] == answered["tool_use_id"]
    assert asked["id"].replace("_", "").isalnum()
    assert asked["id"].isascii()


async def test_a_cut_off_answer_goes_back_as_its_words(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(*whole(text(0, "Hel"), reason="max_tokens"), end=b"")
    server.streams(*whole(text(0, "lo")), end=b"")

    first = await ended(model, HI)
    await all_of(model, asking(user("hi"), *first["output"], user("go on"), model=OPUS))

    assert server.requests[1].json["messages"] == [
        turn("user", words("hi")),
        turn("assistant", words("Hel")),
        turn("user", words("go on")),
    ]


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "ours"),
    [
        (401, "authentication_error", KeyRefused),
        (403, "permission_error", KeyRefused),
        (429, "rate_limit_error", TryLater),
        (500, "api_error", TryLater),
        (529, "overloaded_error", TryLater),
        (400, "invalid_request_error", Refused),
        (402, "billing_error", Refused),
        (413, "request_too_large", Refused),
    ],
)
async def test_a_refusal_of_the_request_is_ours(
    server: ChatServer, model: AnthropicModel, status: int, kind: str, ours: type[Exception]
) -> None:
    server.refuses(status, {"type": "error", "error": {"type": kind, "message": "No."}}, {"retry-after": "3"})

    with pytest.raises(ours) as refused:
        await all_of(model, HI)

    assert len(server.requests) == 1
    assert getattr(refused.value, "status", None) == status
    assert getattr(refused.value, "code", None) == kind


async def test_an_input_that_is_too_long_has_its_own_code(server: ChatServer, model: AnthropicModel) -> None:
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    server.refuses(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})

    with pytest.raises(Refused, match="210000 tokens > 200000") as refused:
        await all_of(model, HI)

    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")


async def test_a_model_that_does_not_exist_is_named(server: ChatServer, model: AnthropicModel) -> None:
    server.refuses(404, {"type": "error", "error": {"type": "not_found_error", "message": f"model: {OPUS}"}})

    with pytest.raises(Refused, match=f"^anthropic has no model '{OPUS}'$"):
        await all_of(model, HI)


async def test_a_key_is_never_quoted(server: ChatServer, model: AnthropicModel) -> None:
    server.refuses(401, {"type": "error", "error": {"type": "authentication_error", "message": f"bad key {KEY}"}})

    with pytest.raises(KeyRefused) as refused:
        await all_of(model, HI)

    assert KEY not in refused.value.message


async def test_an_error_instead_of_an_answer_may_be_tried_again(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(error("overloaded_error", "Overloaded."), end=b"")

    with pytest.raises(TryLater, match=r"^Overloaded$") as later:
        await all_of(model, HI)

    assert later.value.status == 529


async def test_an_error_in_the_answer_breaks_it_after_what_came(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(start(), *text(0, "Hel"), error("overloaded_error", "Overloaded."), end=b"")
    came: list[Event] = []

    with pytest.raises(StreamBroken, match=r"^Overloaded$"):
        await into(came, model, HI)

    assert deltas(came) == ["Hel"]


async def test_a_stream_that_stops_before_its_end_is_broken(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(start(), *text(0, "Hel"), end=b"")

    with pytest.raises(StreamBroken, match="before its end"):
        await all_of(model, HI)


async def test_a_connection_that_is_cut_breaks_the_answer(server: ChatServer, model: AnthropicModel) -> None:
    server.streams(start(), *text(0, "Hel"), cut=True)

    with pytest.raises(StreamBroken, match="connection to anthropic broke"):
        await all_of(model, HI)


@pytest.mark.parametrize(
    "odd",
    [
        b"event: content_block_start\ndata: {not json\n\n",
        b'event: message_start\ndata: {"type": "message_start", "message": []}\n\n',
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"type": "text_delta"}}\n\n',
        b"event: message_start\ndata: [1]\n\n",
    ],
)
async def test_what_is_no_stream_of_messages_breaks_the_answer(
    server: ChatServer, model: AnthropicModel, odd: bytes
) -> None:
    server.streams(odd, end=b"")

    with pytest.raises(StreamBroken):
        await all_of(model, HI)


async def test_a_server_that_cannot_be_reached_is_named() -> None:
    model = AnthropicModel("anthropic", "http://127.0.0.1:1", counting_ids(), key=Secret(KEY))

    with pytest.raises(Unreachable, match="cannot reach anthropic"):
        await all_of(model, HI)
    await model.aclose()


async def test_what_cannot_be_sent_is_refused_before_anybody_is_asked(
    server: ChatServer, model: AnthropicModel
) -> None:
    with pytest.raises(Unsupported, match=f"anthropic/{OPUS} does not take web_search tools"):
        await all_of(model, asking(user("hi"), model=OPUS, tools=[{"type": "web_search"}]))

    assert server.requests == []


async def test_another_server_never_sees_what_the_environment_says_of_anthropics_account(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key_other")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token_other")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/other")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Team: team_other\nX-Api-Key: header_other")
    server.streams(*whole(text(0, "Hi")), end=b"")
    model = AnthropicModel("proxy", server.url, counting_ids(), key=Secret(KEY))

    await all_of(model, HI)
    await model.aclose()

    assert server.requests[0].headers["x-api-key"] == KEY
    assert not any("other" in value for value in server.requests[0].headers.values())


# -- beside the answer ----------------------------------------------------------------------------


async def test_input_tokens_are_counted_by_the_server(server: ChatServer, model: AnthropicModel) -> None:
    server.refuses(200, {"input_tokens": 41})

    counted = await model.count(asking(user("hi"), model=OPUS, instructions="be brief", max_output_tokens=5))

    assert counted == 41
    assert server.requests[0].path == "/v1/messages/count_tokens"
    assert sorted(server.requests[0].json) == ["cache_control", "messages", "model", "system"]


async def test_a_server_that_does_not_count_says_so(server: ChatServer, model: AnthropicModel) -> None:
    server.refuses(404, {"detail": "Not Found"})

    assert await model.count(HI) is None


async def test_its_models_are_listed_by_name(server: ChatServer, model: AnthropicModel) -> None:
    server.refuses(200, {"data": [{"type": "model", "id": OPUS}, {"id": "claude-haiku-4-5"}], "has_more": False})

    assert await model.models() == [OPUS, "claude-haiku-4-5"]

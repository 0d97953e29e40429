"""Errors of the Messages API become errors of this package."""

from typing import Any

import pytest

from convo.errors import KeyRefused, RequestRefused, StreamBroken, TryLater, Unreachable, Unsupported
from convo.history.items import StreamEvent, user_message
from convo.models.anthropic import AnthropicModel
from convo.secrets import Secret
from tests.clock import counting_ids
from tests.models.anthropic_model import HI, KEY, OPUS, model
from tests.models.chat_server import ChatServer
from tests.models.messages_events import error, message_events, sse, start, text
from tests.models.model_calls import collect_events, deltas, final_response, make_request, output_text, read_events

__all__ = ["model"]


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (401, "authentication_error", KeyRefused),
        (403, "permission_error", KeyRefused),
        (429, "rate_limit_error", TryLater),
        (500, "api_error", TryLater),
        (529, "overloaded_error", TryLater),
        (400, "invalid_request_error", RequestRefused),
        (402, "billing_error", RequestRefused),
        (413, "request_too_large", RequestRefused),
    ],
)
async def test_an_error_status_becomes_an_error_of_this_package(
    server: ChatServer, model: AnthropicModel, status: int, kind: str, expected: type[Exception]
) -> None:
    server.refuse(status, {"type": "error", "error": {"type": kind, "message": "No."}}, {"retry-after": "3"})

    with pytest.raises(expected) as error:
        await read_events(model, HI)

    assert len(server.requests) == 1
    assert getattr(error.value, "status", None) == status
    assert getattr(error.value, "code", None) == kind


async def test_an_input_that_is_too_long_has_its_own_code(server: ChatServer, model: AnthropicModel) -> None:
    message = "prompt is too long: 210000 tokens > 200000 maximum"
    server.refuse(400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}})

    with pytest.raises(RequestRefused, match="210000 tokens > 200000") as error:
        await read_events(model, HI)

    assert (error.value.code, error.value.param) == ("context_length_exceeded", "input")


async def test_a_model_that_does_not_exist_is_named(server: ChatServer, model: AnthropicModel) -> None:
    server.refuse(404, {"type": "error", "error": {"type": "not_found_error", "message": f"model: {OPUS}"}})

    with pytest.raises(RequestRefused, match=f"^anthropic has no model '{OPUS}'$"):
        await read_events(model, HI)


async def test_a_key_is_never_quoted(server: ChatServer, model: AnthropicModel) -> None:
    server.refuse(401, {"type": "error", "error": {"type": "authentication_error", "message": f"bad key {KEY}"}})

    with pytest.raises(KeyRefused) as error:
        await read_events(model, HI)

    assert KEY not in error.value.message


async def test_an_error_event_before_the_answer_is_retryable(server: ChatServer, model: AnthropicModel) -> None:
    server.stream(error("overloaded_error", "Overloaded."), end=b"")

    with pytest.raises(TryLater, match=r"^Overloaded$") as try_later:
        await read_events(model, HI)

    assert try_later.value.status == 529


async def test_an_error_event_within_the_answer_breaks_the_stream_after_the_received_text(
    server: ChatServer, model: AnthropicModel
) -> None:
    server.stream(start(), *text(0, "Hel"), error("overloaded_error", "Overloaded."), end=b"")
    events: list[StreamEvent] = []

    with pytest.raises(StreamBroken, match=r"^Overloaded$"):
        await collect_events(events, model, HI)

    assert deltas(events) == ["Hel"]


async def test_a_stream_without_its_last_event_is_broken(server: ChatServer, model: AnthropicModel) -> None:
    server.stream(start(), *text(0, "Hel"), end=b"")

    with pytest.raises(StreamBroken, match="before it was complete"):
        await read_events(model, HI)


async def test_a_dropped_connection_breaks_the_stream(server: ChatServer, model: AnthropicModel) -> None:
    server.stream(start(), *text(0, "Hel"), cut=True)

    with pytest.raises(StreamBroken, match="connection to anthropic broke"):
        await read_events(model, HI)


@pytest.mark.parametrize(
    "body",
    [
        b"event: content_block_start\ndata: {not json\n\n",
        b'event: message_start\ndata: {"type": "message_start", "message": []}\n\n',
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"type": "text_delta"}}\n\n',
        b"event: message_start\ndata: [1]\n\n",
    ],
)
async def test_a_body_that_is_no_message_stream_breaks_the_answer(
    server: ChatServer, model: AnthropicModel, body: bytes
) -> None:
    server.stream(body, end=b"")

    with pytest.raises(StreamBroken):
        await read_events(model, HI)


async def test_a_block_that_was_not_requested_is_left_out_and_reported(
    server: ChatServer, model: AnthropicModel
) -> None:
    search: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use", "name": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_stop", "index": 0},
    ]
    server.stream(*message_events([*map(sse, search)], text(1, "Hi")), end=b"")
    response = await final_response(model, HI)
    assert (output_text(response), response["convo_notices"]) == (
        "Hi",
        ["a part of the answer was left out: server_tool_use, which was not requested"],
    )

    server.stream(*message_events([*map(sse, search)]), end=b"")
    with pytest.raises(StreamBroken, match="the response contains server_tool_use, which was not requested"):
        await read_events(model, HI)


async def test_a_server_that_cannot_be_reached_is_named() -> None:
    model = AnthropicModel("anthropic", "http://127.0.0.1:1", counting_ids(), key=Secret(KEY))

    with pytest.raises(Unreachable, match="cannot reach anthropic"):
        await read_events(model, HI)
    await model.aclose()


async def test_an_unsupported_tool_is_refused_before_a_request_is_sent(
    server: ChatServer, model: AnthropicModel
) -> None:
    with pytest.raises(Unsupported, match=f"anthropic/{OPUS} does not support web_search tools"):
        await read_events(model, make_request(user_message("hi"), model=OPUS, tools=[{"type": "web_search"}]))

    assert server.requests == []


async def test_another_server_never_gets_the_anthropic_environment_variables(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key_other")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token_other")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1/other")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Team: team_other\nX-Api-Key: header_other")
    server.stream(*message_events(text(0, "Hi")), end=b"")
    model = AnthropicModel("proxy", server.url, counting_ids(), key=Secret(KEY))

    await read_events(model, HI)
    await model.aclose()

    assert server.requests[0].headers["x-api-key"] == KEY
    assert not any("other" in value for value in server.requests[0].headers.values())


async def test_the_environment_headers_are_sent_to_the_anthropic_account(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Team: mine")
    server.stream(*message_events(text(0, "Hi")), end=b"")
    model = AnthropicModel("anthropic", server.url, counting_ids())

    await read_events(model, HI)
    await model.aclose()

    headers = server.requests[0].headers
    assert (headers["x-team"], headers["accept-encoding"], headers["anthropic-version"]) == (
        "mine",
        "identity",
        "2023-06-01",
    )
    assert "x-api-key" not in headers

"""Claude checks that nothing before its thinking has changed: the request says what happens then, drops are shown."""

from typing import Any

import pytest

from convo.config.sections import PrefixMismatchBehavior
from convo.errors import RequestRefused
from convo.history.items import user_message
from convo.models.anthropic import AnthropicModel
from convo.models.base import ModelRequest, make_issuer_tag
from convo.models.readers.messages import encode_thinking_block
from convo.secrets import Secret
from tests.clock import counting_ids
from tests.models.anthropic_model import HI, KEY, model
from tests.models.chat_server import ChatServer
from tests.models.messages_events import message_events, sse, stop, text
from tests.models.model_calls import final_response, make_request, read_events

__all__ = ["model"]

BETA = "thinking-binding-controls-2026-08-01"
DROP = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}


def ask(name: str, **parameters: Any) -> ModelRequest:
    return make_request(user_message("hi"), model=name, **parameters)


@pytest.mark.parametrize(
    ("name", "parameters", "thinking"),
    [
        ("claude-opus-5-5", {}, {"type": "adaptive", **DROP}),
        ("claude-haiku-5-5-20261001", {"reasoning": {"effort": "low"}}, {"type": "adaptive", **DROP}),
        ("claude-fable-5-1", {"reasoning": {"summary": "auto"}}, {"type": "adaptive", "display": "summarized", **DROP}),
        ("anthropic.claude-mythos-5-1-v1:0", {}, {"type": "adaptive", **DROP}),
        ("claude-sonnet-5-5", {"reasoning": {"effort": "none"}}, {"type": "between_tools"}),
        ("claude-fable-5", {}, None),
        ("claude-opus-5", {"reasoning": {"effort": "low"}}, {"type": "adaptive"}),
        ("our-claude", {"reasoning": {"effort": "low"}}, {"type": "adaptive"}),
    ],
)
async def test_models_that_check_the_prefix_are_asked_to_drop_thinking(
    server: ChatServer, model: AnthropicModel, name: str, parameters: dict[str, Any], thinking: Any
) -> None:
    server.stream(*message_events(text(0, "Hi")), end=b"")
    server.respond(b'{"input_tokens": 3}')

    await read_events(model, ask(name, **parameters))
    await model.count(ask(name, **parameters))

    for request in server.requests:
        assert request.json.get("thinking") == thinking
        assert request.headers.get("anthropic-beta") == (BETA if "block_binding" in (thinking or {}) else None)


@pytest.mark.parametrize(
    ("behavior", "thinking"),
    [
        ("error", {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}),
        ("provider_default", None),
    ],
)
async def test_a_setting_refuses_changed_prefixes_or_leaves_the_choice_to_the_account(
    server: ChatServer, behavior: PrefixMismatchBehavior, thinking: Any
) -> None:
    model = AnthropicModel("a", server.url, counting_ids(), key=Secret(KEY), prefix_mismatch_behavior=behavior)
    server.stream(*message_events(text(0, "Hi")), end=b"")

    await read_events(model, ask("claude-opus-5-5"))
    await model.aclose()

    assert server.requests[0].json.get("thinking") == thinking
    assert ("anthropic-beta" in server.requests[0].headers) is (thinking is not None)


async def test_the_beta_is_added_to_those_of_the_users_own_headers(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "Anthropic-Beta: other-2026-01-01")
    model = AnthropicModel("anthropic", server.url, counting_ids(), key=Secret(KEY))
    server.stream(*message_events(text(0, "Hi")), end=b"")
    server.respond(b'{"input_tokens": 3}')

    await read_events(model, ask("claude-opus-5-5"))
    await model.count(ask("claude-opus-5-5"))
    await model.aclose()

    assert [request.headers["anthropic-beta"] for request in server.requests] == [f"other-2026-01-01,{BETA}"] * 2


def started(**fields: Any) -> bytes:
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": []}
    return sse({"type": "message_start", "message": {**message, "usage": {"input_tokens": 1}, **fields}})


def dropped(path: str, reason: str = "prefix_binding_mismatch", kind: str = "thinking_dropped") -> dict[str, str]:
    return {"type": kind, "path": path, "reason": reason}


async def test_dropped_thinking_is_reported_with_the_id_of_its_item(server: ChatServer, model: AnthropicModel) -> None:
    issuer = make_issuer_tag("anthropic", "claude-opus-5-5", server.url.removesuffix("/v1"))
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ"},
    ]
    reasoning = [
        {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": issuer + encoded}
        for number, encoded in enumerate(map(encode_thinking_block, blocks))
    ]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    request = make_request(user_message("hi"), *reasoning, call, output, model="claude-opus-5-5")
    transformations = [
        dropped("messages.1.content.0"),
        dropped("messages.1.content.1", "model_binding_mismatch"),
        dropped("messages.9.content.0", "end_user_binding_mismatch"),
        dropped("messages.1.content.0", kind="thinking_mismatch_allowed"),
    ]
    server.stream(started(input_transformations=transformations), *text(0, "Hi"), *stop(), end=b"")

    response = await final_response(model, request)

    assert response["input_transformations"] == [
        {"id": "rs_0", "action": "removed", "reason": "prefix_mismatch", "type": "reasoning"},
        {"id": "rs_1", "action": "removed", "reason": "model_mismatch", "type": "reasoning"},
        {"id": "messages.9.content.0", "action": "removed", "reason": "end_user_mismatch", "type": "reasoning"},
    ]


async def test_the_report_at_the_end_of_a_stream_replaces_the_first_one(
    server: ChatServer, model: AnthropicModel
) -> None:
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "input_transformations": []}
    server.stream(
        started(input_transformations=[dropped("messages.1.content.0")]),
        *text(0, "Hi"),
        sse(delta),
        sse({"type": "message_stop"}),
        end=b"",
    )

    response = await final_response(model, HI)

    assert response["input_transformations"] is None


async def test_a_refused_prefix_has_its_own_code_and_a_hint(server: ChatServer, model: AnthropicModel) -> None:
    message = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different"
    error = {"type": "invalid_request_error", "message": f"{message} conversation. Remove the block."}
    server.refuse(400, {"type": "error", "error": error})

    with pytest.raises(RequestRefused, match=r"^messages\.1\.content\.0") as refused:
        await read_events(model, HI)

    assert (refused.value.code, refused.value.status, refused.value.param) == ("prefix_mismatch", 400, "input")
    assert 'prefix_mismatch_behavior = "drop_block"' in str(refused.value.hint)

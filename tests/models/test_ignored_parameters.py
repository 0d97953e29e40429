"""Every parameter of the Responses API, for every kind of model: sent, refused by name, or reported as ignored."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from convo.errors import Unsupported
from convo.history.items import Json, assistant_message, user_message
from convo.models import anthropic, chat_completions, responses
from convo.models.base import (
    NO_ISSUER,
    ModelRequest,
    list_ignored_item_fields,
    make_issuer_tag,
    tag_encrypted_content,
)
from convo.models.chat_completions import detect_chat_dialect
from convo.models.request_fields import MODEL_FIELDS
from tests.request_values import FIELD_VALUES, TOOL

GROQ, OPENAI = "https://api.groq.com/openai/v1", "https://api.openai.com/v1"
ALLOWED = ("top_k", "seed", "stop", "chat_template_kwargs", "service_tier", "user")


class Adapter(NamedTuple):
    """The request body of one kind of model, and the fields that it reports as ignored."""

    body: Callable[[ModelRequest], dict[str, Json]]
    ignored_fields: Callable[[ModelRequest], tuple[str, ...]]


def chat(base_url: str, extra: tuple[str, ...] = ()) -> Adapter:
    dialect = detect_chat_dialect("x", base_url, extra)
    return Adapter(
        lambda request: chat_completions.build_chat_body(request, "m", dialect),
        lambda request: chat_completions.list_ignored_chat_fields(request, dialect, NO_ISSUER),
    )


def claude(extra: tuple[str, ...] = ()) -> Adapter:
    return Adapter(
        lambda request: anthropic.build_anthropic_body(request, NO_ISSUER, "m", extra),
        lambda request: anthropic.list_ignored_anthropic_fields(request, NO_ISSUER, extra),
    )


def native(extra: tuple[str, ...] = ()) -> Adapter:
    return Adapter(
        lambda request: responses.build_responses_body(request, NO_ISSUER, "m", extra),
        lambda request: responses.list_ignored_responses_fields(request, NO_ISSUER, extra),
    )


ADAPTERS = {
    "chat": chat(GROQ),
    "chat, allowed": chat(GROQ, ALLOWED),
    "chat at openai": chat(OPENAI),
    "claude": claude(),
    "claude, allowed": claude(ALLOWED),
    "native": native(),
    "native, allowed": native(ALLOWED),
}

WITH_TOOLS = ("parallel_tool_calls", "tool_choice")
"""Parameters that have an effect only with tools."""


def build_requests(name: str) -> tuple[ModelRequest, ModelRequest]:
    """Return a request without and one with the parameter `name`."""
    parameters = {"tools": [TOOL]} if name in WITH_TOOLS else {}
    plain = ModelRequest("claude-sonnet-5", (user_message("hi"),), parameters=parameters)
    return plain, ModelRequest(plain.model, plain.input, parameters={**parameters, name: FIELD_VALUES[name]})


def test_a_parameter_is_sent_refused_or_reported_and_never_dropped_silently() -> None:
    for adapter in ADAPTERS.values():
        for name in sorted(MODEL_FIELDS):
            without, request = build_requests(name)
            is_reported = name in {one.partition(".")[0] for one in adapter.ignored_fields(request)}
            assert parameter_outcome(adapter, request, without) == name or is_reported


def parameter_outcome(adapter: Adapter, request: ModelRequest, without: ModelRequest) -> str | None:
    """Return the parameter in which `request` differs from `without`, if it is sent or refused by name."""
    try:
        sent = adapter.body(request) != adapter.body(without)
    except Unsupported as error:
        return error.param
    added_names = (name for name in request.parameters if name not in without.parameters)
    return next(added_names, "tools") if sent else ""


REPORTED: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("chat", {"service_tier": "priority", "user": "u"}, ("service_tier", "user")),
    (
        "chat",
        {"reasoning": {"effort": "low", "summary": "auto", "mode": "pro"}},
        ("reasoning.mode",),
    ),
    ("chat", {"include": ["reasoning.encrypted_content"]}, ("include.reasoning.encrypted_content",)),
    ("chat", {"tools": [{**TOOL, "defer_loading": True}]}, ("tools.defer_loading",)),
    ("chat", {"service_tier": None, "temperature": 1, "tools": [TOOL]}, ()),
    ("chat, allowed", {"service_tier": "priority", "user": "u", "safety_identifier": "s"}, ("safety_identifier",)),
    (
        "chat at openai",
        {"service_tier": "priority", "prompt_cache_key": "k", "safety_identifier": "s", "stop": "x"},
        (),
    ),
    ("chat at openai", {"top_k": 1, "chat_template_kwargs": {"a": 1}}, ("top_k", "chat_template_kwargs")),
    ("claude", {"service_tier": "default", "prompt_cache_retention": "24h", "safety_identifier": "s"}, ()),
    ("claude", {"reasoning": {"effort": "low", "summary": "auto"}}, ()),
    ("claude", {"reasoning": {"effort": "low", "generate_summary": "auto", "mode": "pro"}}, ("reasoning.mode",)),
    ("claude", {"reasoning": {"effort": "low", "mode": None}, "user": None, "max_tool_calls": 1}, ("max_tool_calls",)),
    ("claude", {"prompt_cache_options": {"mode": "implicit", "ttl": "30m", "x": None}}, ()),
    (
        "claude",
        {"prompt_cache_options": {"ttl": "12h", "y": 1}},
        ("prompt_cache_options.ttl", "prompt_cache_options.y"),
    ),
    ("claude", {"service_tier": "auto"}, ()),
    ("claude", {"text": {"verbosity": "low"}}, ("text.verbosity",)),
    ("claude", {"text": {"verbosity": "medium"}}, ()),
    ("claude", {"service_tier": "flex"}, ("service_tier",)),
    ("chat", {"user": None, "max_tool_calls": 3}, ("max_tool_calls",)),
    ("chat", {"reasoning": {"summary": None, "context": None, "mode": "pro"}}, ("reasoning.mode",)),
    ("chat", {"tools": [{**TOOL, "a": [], "b": {}, "c": 0}]}, ("tools.c",)),
    ("chat", {"tools": [{"type": "mcp", "server_url": "u"}]}, ()),  # refused
    ("native", {"service_tier": "flex", "user": "u", "seed": 1}, ("seed",)),
    ("native, allowed", {"top_k": 1, "seed": 1}, ()),
]


@pytest.mark.parametrize(("adapter", "parameters", "names"), REPORTED)
def test_an_ignored_parameter_is_named(adapter: str, parameters: dict[str, Any], names: tuple[str, ...]) -> None:
    request = ModelRequest("claude-sonnet-5", (user_message("hi"),), parameters=parameters)
    assert ADAPTERS[adapter].ignored_fields(request) == names


def test_allowed_fields_are_sent_under_the_names_of_the_server() -> None:
    request = ModelRequest("claude-sonnet-5", (user_message("hi"),), parameters={"top_k": 5, "stop": "END", "seed": 7})

    chat_body, claude_body = ADAPTERS["chat, allowed"].body(request), ADAPTERS["claude, allowed"].body(request)

    assert (chat_body["top_k"], chat_body["stop"], chat_body["seed"]) == (5, "END", 7)
    assert (claude_body["top_k"], claude_body["stop_sequences"]) == (5, ["END"])
    assert ADAPTERS["claude, allowed"].ignored_fields(request) == ("seed",)


@pytest.mark.parametrize("adapter", ["chat", "claude"])
def test_unsupported_fields_of_items_are_named(adapter: str) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "caller": "n"}
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    items = (user_message("hi"), {**assistant_message("ok"), "phase": "commentary"}, call, output)

    assert ADAPTERS[adapter].ignored_fields(ModelRequest("m", items)) == (
        "input.message.phase",
        "input.function_call.caller",
    )
    assert ADAPTERS["native"].ignored_fields(ModelRequest("m", items)) == ()


def test_unsupported_fields_of_parts_are_named() -> None:
    """Reasoning is reported as a whole; parts that are not objects have no fields."""
    parts = [
        {"type": "input_text", "text": "x", "annotations": ["a"]},
        {"type": "input_image", "image_url": "y", "z": 1},
    ]
    items = (
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t", "z": 1}], "z": 1},
        {"role": "user", "content": ["bare text", *parts]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1", "late": 1}]},
    )
    assert list(list_ignored_item_fields(items)) == [
        "input.input_text.annotations",
        "input.input_image.z",
        "input.input_text.late",
    ]


@pytest.mark.parametrize(
    "seal", [None, tag_encrypted_content({"encrypted_content": "x"}, make_issuer_tag("o", "m"))["encrypted_content"]]
)
def test_reasoning_that_cannot_be_sent_is_reported(seal: str | None) -> None:
    reasoning_item: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": seal}
    for adapter in ("chat", "claude", "native"):
        assert ADAPTERS[adapter].ignored_fields(
            ModelRequest("m", (user_message("hi"), reasoning_item, assistant_message("ok")))
        ) == ("input.reasoning",)


def test_encrypted_reasoning_of_another_issuer_is_sent_to_a_native_server() -> None:
    reasoning_item: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    request = ModelRequest("m", (user_message("hi"), reasoning_item, assistant_message("ok")))

    assert reasoning_item in ADAPTERS["native"].body(request)["input"]
    assert ADAPTERS["native"].ignored_fields(request) == ()
    assert ADAPTERS["claude"].ignored_fields(request) == ("input.reasoning",)


def test_older_versions_of_claude_ignore_summaries() -> None:
    request = ModelRequest(
        "claude-3-5-haiku-20241022",
        (),
        parameters={"reasoning": {"effort": "none", "summary": "a", "generate_summary": "b"}},
    )
    assert ADAPTERS["claude"].ignored_fields(request) == ("reasoning.summary", "reasoning.generate_summary")

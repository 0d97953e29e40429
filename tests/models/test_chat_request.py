"""A model request is converted to the body of a chat completions request."""

from typing import Any

import pytest

from convo.errors import Unsupported
from convo.history.items import Json, user_message
from convo.models.chat_completions import ChatDialect, build_chat_body, detect_chat_dialect
from tests.models.model_calls import make_request

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
TIME = {"type": "function", "name": "time", "description": "now", "parameters": None}
SCHEMA = {"type": "object", "properties": {}}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}, "strict": True}},
    {"type": "function", "function": {"name": "time", "description": "now"}},
]

BODIES: dict[str, tuple[dict[str, Json], dict[str, Json]]] = {
    "nothing": ({}, {}),
    "sampling": ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
    "a temperature of zero": ({"temperature": 0}, {"temperature": 0}),
    "penalties": ({"presence_penalty": 1, "frequency_penalty": -1}, {"presence_penalty": 1, "frequency_penalty": -1}),
    "an output token limit": ({"max_output_tokens": 7}, {"max_tokens": 7}),
    "nulls": ({"temperature": None, "tools": None, "reasoning": None, "text": None}, {}),
    "functions": ({"tools": [WEATHER, TIME]}, {"tools": TOOLS}),
    "no tools": ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, {}),
    "a tool choice mode": (
        {"tools": [WEATHER, TIME], "tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": "required"},
    ),
    "a tool choice by name": (
        {"tools": [WEATHER, TIME], "tool_choice": {"type": "function", "name": "time"}},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "time"}}},
    ),
    "allowed tools": (
        {
            "tools": [WEATHER, TIME],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "time"}],
            },
        },
        {"tools": TOOLS[1:], "tool_choice": "required"},
    ),
    "no parallel calls": (
        {"tools": [TIME], "parallel_tool_calls": False},
        {"tools": TOOLS[1:], "parallel_tool_calls": False},
    ),
    "text": ({"text": {"format": {"type": "text"}}}, {}),
    "JSON": ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    "a schema": (
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA, "strict": True},
            }
        },
    ),
    "low verbosity with a schema": (
        {"text": {"verbosity": "low", "format": {"type": "json_object"}}},
        {"verbosity": "low", "response_format": {"type": "json_object"}},
    ),
    "allowed tools without a mode": (
        {"tools": [WEATHER, TIME], "tool_choice": {"type": "allowed_tools", "tools": [{"name": "time"}]}},
        {"tools": TOOLS[1:], "tool_choice": "auto"},
    ),
    "low verbosity": ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
    "logprobs": ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
    "top logprobs": ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
    "no top logprobs": ({"top_logprobs": 0}, {}),
    "an effort": ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
    "fields of the Responses API only": (
        {"store": False, "metadata": {"a": "b"}, "include": ["reasoning.encrypted_content"], "truncation": "disabled"},
        {},
    ),
}


@pytest.mark.parametrize(("parameters", "fields"), BODIES.values(), ids=BODIES)
def test_each_parameter_is_sent_in_its_field(parameters: dict[str, Json], fields: dict[str, Json]) -> None:
    body = build_chat_body(make_request(user_message("hi"), **parameters), "m")

    assert body == {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}


@pytest.mark.parametrize(
    ("parameters", "expected", "param"),
    [
        ({"tools": [WEATHER, {"type": "web_search"}]}, "web_search tools", "tools"),
        ({"tools": [WEATHER], "tool_choice": {"type": "mcp"}}, "the tool choice 'mcp'", "tool_choice"),
        ({"text": {"format": {"type": "grammar"}}}, "the text format 'grammar'", "text.format"),
        ({"truncation": "auto"}, "the parameter 'truncation'", "truncation"),
        ({"prompt": {"id": "pmpt_1"}}, "the parameter 'prompt'", "prompt"),
        ({"tomorrow": 1}, "the parameter 'tomorrow'", "tomorrow"),
    ],
)
def test_a_parameter_that_the_server_does_not_support_is_refused_with_its_name(
    parameters: dict[str, Any], expected: str, param: str
) -> None:
    with pytest.raises(Unsupported, match=expected) as error:
        build_chat_body(make_request(user_message("hi"), **parameters), "deepseek/m")

    kind = "parameter" if expected.startswith("the parameter") else "value"
    assert (error.value.param, error.value.code) == (param, f"unsupported_{kind}")


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://me.openai.azure.com/openai", "max_completion_tokens"),
        ("https://me.services.ai.azure.com/models", "max_completion_tokens"),
        ("no-url", "max_tokens"),
        ("https://api.deepseek.com", "max_tokens"),
        ("http://127.0.0.1:11434/v1", "max_tokens"),
    ],
)
def test_the_token_limit_is_sent_under_the_name_that_the_server_supports(url: str, field: str) -> None:
    dialect = detect_chat_dialect("mine", url)

    assert build_chat_body(make_request(user_message("hi"), max_output_tokens=7), "m", dialect)[field] == 7


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        (ChatDialect(has_thinking=True), {"thinking": {"type": "disabled"}}),
        (ChatDialect(), {"reasoning_effort": "none"}),
    ],
    ids=["DeepSeek", "others"],
)
def test_disabled_reasoning_is_sent_in_the_form_of_the_server(dialect: ChatDialect, fields: dict[str, Json]) -> None:
    body = build_chat_body(make_request(user_message("hi"), reasoning={"effort": "none"}), "m", dialect)

    assert body == {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}


def test_an_effort_is_sent_to_a_server_with_thinking_as_to_any_other() -> None:
    body = build_chat_body(
        make_request(user_message("hi"), reasoning={"effort": "low"}), "m", ChatDialect(has_thinking=True)
    )

    assert body == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "low"}


@pytest.mark.parametrize(
    ("provider", "url", "has_reasoning"),
    [
        ("deepseek", "http://127.0.0.1:1/v1", True),
        ("mine", "https://api.deepseek.com/v1", True),
        ("groq", "https://api.groq.com/openai/v1", False),
    ],
)
def test_deepseek_is_recognized_by_its_name_and_by_its_base_url(provider: str, url: str, has_reasoning: bool) -> None:
    assert detect_chat_dialect(provider, url).has_thinking is has_reasoning

"""The request body of the Messages API, parameter by parameter."""

from typing import Any

import pytest

from convo.errors import Unsupported
from convo.history.items import assistant_message, user_message
from convo.models.anthropic import build_anthropic_body, list_ignored_anthropic_fields
from convo.models.readers.messages import encode_thinking_block
from tests.models.anthropic_model import ISSUER_TAG
from tests.models.model_calls import make_request

TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
OTHER = {"type": "function", "name": "g", "parameters": None}


def body(model: str = "claude-opus-5", **parameters: Any) -> dict[str, Any]:
    """Return the request body of these parameters without the fields that every request has."""
    request_body = build_anthropic_body(
        make_request(user_message("hi"), model=model, **parameters), ISSUER_TAG, f"anthropic/{model}"
    )
    plain = {"model": model, "messages": request_body["messages"], "cache_control": {"type": "ephemeral"}}
    return {name: value for name, value in request_body.items() if plain.get(name) != value}


@pytest.mark.parametrize(
    ("model", "requested", "limit"),
    [
        ("claude-opus-5", None, 128_000),
        ("claude-haiku-4-5-20251001", None, 64_000),
        ("claude-newest-9", None, 32_000),
        ("claude-opus-5", 5, 5),
    ],
)
def test_max_tokens_is_always_sent(model: str, requested: int | None, limit: int) -> None:
    assert body(model, max_output_tokens=requested) == {"max_tokens": limit}


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
        ({"temperature": 1.0, "top_p": 1, "top_logprobs": 0, "presence_penalty": 0, "frequency_penalty": 0.0}, {}),
        ({"truncation": "disabled", "prompt_cache_key": "k", "max_tool_calls": 3, "store": True, "metadata": {}}, {}),
        ({"service_tier": "default"}, {"service_tier": "standard_only"}),
        ({"service_tier": "auto"}, {}),
        ({"safety_identifier": "abc"}, {"metadata": {"user_id": "abc"}}),
        ({"prompt_cache_retention": "24h"}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
        ({"prompt_cache_options": {"ttl": "30m"}}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
        ({"prompt_cache_options": {"ttl": "12h"}}, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
        ({"prompt_cache_options": {"mode": "implicit"}}, {}),
        ({"include": ["reasoning.encrypted_content"]}, {}),
        ({"text": {"format": {"type": "text"}, "verbosity": "medium"}}, {}),
    ],
)
def test_parameters_are_renamed_or_omitted(parameters: dict[str, Any], sent: dict[str, Any]) -> None:
    assert body(max_output_tokens=9, **parameters) == {"max_tokens": 9, **sent}


def test_cache_control_is_omitted_with_explicit_caching() -> None:
    request_body = build_anthropic_body(
        make_request(user_message("hi"), prompt_cache_options={"mode": "explicit"}), ISSUER_TAG, "anthropic/m"
    )

    assert "cache_control" not in request_body


@pytest.mark.parametrize(
    ("options", "cached", "ignored"),
    [
        ({"mode": "explicit", "ttl": "1h"}, ["q2", "tool", "q3", "q4"], ("input.input_text.prompt_cache_breakpoint",)),
        ({}, ["tool", "q3", "q4"], ("input.input_text.prompt_cache_breakpoint",)),
    ],
)
def test_the_last_breakpoints_are_sent_and_the_others_are_reported(
    options: dict[str, Any], cached: list[str], ignored: tuple[str, ...]
) -> None:
    def part(text: str) -> dict[str, Any]:
        return {"type": "input_text", "text": text, "prompt_cache_breakpoint": {"mode": "explicit"}}

    request = make_request(
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q0"}, part("q2")]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": [part("tool")]},
        {"type": "message", "role": "user", "content": [part("q3"), part("q4")]},
        {"type": "message", "role": "developer", "content": [part("system")]},
        prompt_cache_options=options,
    )
    sent = build_anthropic_body(request, ISSUER_TAG, "anthropic/m")
    blocks = [*sent["system"], *(block for message in sent["messages"] for block in message["content"])]
    blocks = [inner for block in blocks for inner in (*block.get("content", ()), block)]

    cache_control = {"type": "ephemeral"} | ({"ttl": options["ttl"]} if "ttl" in options else {})
    assert [block["text"] for block in blocks if "cache_control" in block] == cached
    assert all(block.get("cache_control", cache_control) == cache_control for block in blocks)
    assert list_ignored_anthropic_fields(request, ISSUER_TAG) == ignored


def test_a_breakpoint_that_is_sent_is_not_reported() -> None:
    content = [{"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit"}}]
    request = make_request({"type": "message", "role": "user", "content": content})

    assert list_ignored_anthropic_fields(request, ISSUER_TAG) == ()


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"truncation": "auto"}, "truncation"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"reasoning": {"effort": "boundless"}}, "reasoning.effort"),
        ({"a_field_of_tomorrow": 1}, "a_field_of_tomorrow"),
    ],
)
def test_a_parameter_that_claude_does_not_support_is_refused_with_its_name(
    parameters: dict[str, Any], param: str
) -> None:
    with pytest.raises(Unsupported) as error:
        body(**parameters)

    assert error.value.param == param


def test_a_refusal_of_logprobs_names_them() -> None:
    with pytest.raises(Unsupported, match=r" does not support logprobs$"):
        body(include=["message.output_text.logprobs"])


# -- tools ----------------------------------------------------------------------------------------


def test_tools_keep_their_schemas_and_their_strictness() -> None:
    assert body(tools=[TOOL, OTHER])["tools"] == [
        {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}, "strict": True},
        {"name": "g", "input_schema": {"type": "object", "properties": {}}},
    ]


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (None, None, None),
        ("auto", True, None),
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", None, {"type": "any"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("none", False, {"type": "none"}),
        ({"type": "function", "name": "f"}, None, {"type": "tool", "name": "f"}),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"name": "f"}]}, None, {"type": "any"}),
    ],
)
def test_a_tool_choice_is_translated(choice: Any, parallel: bool | None, sent: Any) -> None:
    fields = body(tools=[TOOL], tool_choice=choice, parallel_tool_calls=parallel)

    assert fields.get("tool_choice") == sent


def test_tools_that_are_not_allowed_are_omitted() -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}

    assert [tool["name"] for tool in body(tools=[TOOL, OTHER], tool_choice=allowed)["tools"]] == ["g"]


def test_a_tool_choice_without_tools_is_omitted() -> None:
    assert body(tools=[], tool_choice="none", parallel_tool_calls=True) == {"max_tokens": 128_000}


# -- output format and thinking -------------------------------------------------------------------


def test_a_schema_and_an_effort_are_sent_together() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    text_format = {"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}

    fields = body(text=text_format, reasoning={"effort": "high", "summary": "auto"})

    assert fields["output_config"] == {"format": {"type": "json_schema", "schema": schema}, "effort": "high"}
    assert fields["thinking"] == {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("model", "reasoning", "sent"),
    [
        (
            "claude-opus-5",
            {"effort": "minimal"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        ),
        (
            "claude-opus-4-6",
            {"effort": "xhigh"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        ),
        ("claude-opus-5", {"summary": "auto"}, {"thinking": {"type": "adaptive", "display": "summarized"}}),
        ("claude-opus-5", {"generate_summary": "auto"}, {"thinking": {"type": "adaptive", "display": "summarized"}}),
        *(
            (
                "claude-opus-5",
                {"effort": effort},
                {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}},
            )
            for effort in ("low", "medium", "high", "xhigh", "max")
        ),
        *(
            (
                "claude-haiku-4-5",
                {"effort": effort, "summary": "auto"},
                {"thinking": {"type": "enabled", "budget_tokens": tokens, "display": "summarized"}},
            )
            for effort, tokens in (
                ("minimal", 1024),
                ("medium", 10_240),
                ("high", 24_576),
                ("xhigh", 32_768),
                ("max", 32_768),
            )
        ),
        ("claude-opus-4-8", {"effort": "none"}, {}),
        ("claude-haiku-5-5", {"effort": "none"}, {"thinking": {"type": "disabled"}}),
        ("claude-opus-5", {}, {}),
        ("claude-opus-5", {"effort": "none"}, {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", {"effort": "none"}, {"thinking": {"type": "between_tools"}}),
        ("claude-sonnet-4-6", {"effort": "none"}, {}),
        ("claude-haiku-4-5", {"effort": "low"}, {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("claude-haiku-4-5", {"effort": "none"}, {}),
        ("claude-haiku-4-5", {"summary": "auto"}, {}),
        ("claude-3-5-haiku-20241022", {"effort": "none"}, {}),
    ],
)
def test_an_effort_is_sent_in_the_form_of_the_models_generation(
    model: str, reasoning: dict[str, Any], sent: dict[str, Any]
) -> None:
    fields = body(model, reasoning=reasoning)
    del fields["max_tokens"]

    assert fields == sent


def test_a_thinking_budget_leaves_tokens_for_text() -> None:
    fields = body("claude-haiku-4-5", reasoning={"effort": "high"}, max_output_tokens=2000)

    assert fields["thinking"]["budget_tokens"] == 1500


@pytest.mark.parametrize(
    ("model", "parameters", "param"),
    [
        ("claude-3-5-haiku-20241022", {"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ("claude-opus-5-5", {"reasoning": {"effort": "none"}}, "reasoning.effort"),
        ("claude-haiku-4-5", {"reasoning": {"effort": "low"}, "max_output_tokens": 500}, "max_output_tokens"),
    ],
)
def test_an_effort_that_a_model_does_not_support_is_refused(model: str, parameters: dict[str, Any], param: str) -> None:
    with pytest.raises(Unsupported) as error:
        body(model, **parameters)
    assert error.value.param == param


def test_thinking_by_budget_does_not_start_after_a_call_of_another_model() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "4"}
    history = [user_message("2+2?"), call, output]

    def thinks(*items: Any, model: str) -> bool:
        return "thinking" in build_anthropic_body(
            make_request(*items, model=model, reasoning={"effort": "low"}), ISSUER_TAG, "anthropic/m"
        )

    own = encode_thinking_block({"type": "thinking", "thinking": "Hm.", "signature": "s"})
    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": f"{ISSUER_TAG}{own}"}
    assert not thinks(*history, model="claude-haiku-4-5")
    assert not thinks(call, output, model="claude-haiku-4-5")
    assert thinks(*history, model="claude-opus-5")
    assert thinks(history[0], reasoning, *history[1:], model="claude-haiku-4-5")
    assert thinks(*history, assistant_message("4"), user_message("and 3+3?"), model="claude-haiku-4-5")
    assert thinks(*history, user_message("and 3+3?"), model="claude-opus-5")
    assert thinks(user_message("2+2?"), model="claude-haiku-4-5")


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-3-7-sonnet-20250219", "enabled"),
        ("claude-opus-4-20250514", "enabled"),
        ("claude-opus-4-1-20250805", "enabled"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "enabled"),
        ("claude-opus-4-6", "adaptive"),
        ("claude-sonnet-5", "adaptive"),
        ("claude-mythos-preview", "adaptive"),
    ],
)
def test_the_version_in_the_model_name_selects_the_form_of_thinking(model: str, thinking: str) -> None:
    """A name without a version is treated as a newer model."""
    assert body(model, reasoning={"effort": "low"})["thinking"]["type"] == thinking


@pytest.mark.parametrize(("max_tokens", "budget"), [(1025, 1024), (1365, 1024), (1367, 1025), (3, None), (1024, None)])
def test_a_thinking_budget_is_three_quarters_of_the_output_but_at_least_the_minimum(
    max_tokens: int, budget: int | None
) -> None:
    if budget is None:
        with pytest.raises(Unsupported, match=f"a reasoning effort within {max_tokens} output tokens$"):
            body("claude-haiku-4-5", reasoning={"effort": "max"}, max_output_tokens=max_tokens)
    else:
        fields = body("claude-haiku-4-5", reasoning={"effort": "max"}, max_output_tokens=max_tokens)
        assert fields["thinking"]["budget_tokens"] == budget


OMIT = '; hosted_tools = "omit" for the provider leaves them out'


@pytest.mark.parametrize(
    ("model", "parameters", "message", "hint"),
    [
        ("claude-opus-5", {"temperature": 1.5}, "a temperature of 1.5", None),
        ("claude-opus-5", {"tools": [{"type": "web_search"}]}, f"web_search tools{OMIT}", None),
        ("claude-opus-5", {"tools": [TOOL], "tool_choice": {"type": "mcp"}}, f"the tool choice 'mcp'{OMIT}", None),
        (
            "claude-opus-5",
            {"text": {"format": {"type": "json_object"}}},
            "the text format 'json_object'",
            "set a JSON schema: text.format of type json_schema",
        ),
        ("claude-opus-5", {"truncation": "auto"}, "the parameter 'truncation'", None),
        ("claude-opus-5", {"reasoning": {"effort": "boundless"}}, "the reasoning effort 'boundless'", None),
        ("claude-opus-5-5", {"reasoning": {"effort": "none"}}, "the reasoning effort 'none'", "use low"),
    ],
)
def test_a_refusal_names_the_value_and_an_alternative(
    model: str, parameters: dict[str, Any], message: str, hint: str | None
) -> None:
    with pytest.raises(Unsupported) as error:
        body(model, **parameters)

    assert error.value.message == f"anthropic/{model} does not support {message}"
    assert error.value.hint == (Unsupported.hint if hint is None else hint)


def test_models_before_3_7_do_not_think() -> None:
    with pytest.raises(Unsupported, match="a reasoning effort"):
        body("claude-3-5-sonnet-20241022", reasoning={"effort": "low"})

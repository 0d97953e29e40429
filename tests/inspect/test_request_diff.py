"""Two requests are compared as sent, and the prompt cache is estimated from their common prefix."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.history.items import assistant_message, user_message
from convo.inspect.diff import (
    RequestDiff,
    SentRequest,
    build_request_diff_report,
    diff_requests,
    sort_request_fields,
)
from convo.report import to_json
from convo.usage.cost import Usage
from convo.usage.counting import count_tokens

MODEL = "openai/gpt-5-mini"
LONG = "word " * 3_000


def request(
    *items: Any, model: str = MODEL, before: Any = (), usage: Usage | None = None, **fields: Any
) -> SentRequest:
    body = {"model": model.partition("/")[2], "input": list(items), **fields}
    return SentRequest("resp_1", model, body, tuple(before), usage)


FIELD_ORDER = ("model", "tools", "instructions", "input", "store", "temperature")


def serialized_body(body: dict[str, Any]) -> bytes:
    """Return the canonical text of a request, with the fields in the order of FIELD_ORDER."""
    ordered_body = {name: body[name] for name in FIELD_ORDER if name in body}
    assert len(ordered_body) == len(body)
    return json.dumps(ordered_body, separators=(",", ":"), ensure_ascii=False).encode()


def without_field(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return one field of a request, if the request has it."""
    return {name: body[name]} if name in body else {}


def test_the_order_of_fields_and_keys_is_ignored() -> None:
    body = {"temperature": 1, "input": [{"role": "user", "content": "ü"}], "instructions": "x", "model": "m"}
    reordered = {name: body[name] for name in reversed(body)} | {"input": [{"content": "ü", "role": "user"}]}
    text = '{"model":"m","instructions":"x","input":[{"content":"ü","role":"user"}],"temperature":1}'.encode()
    found = diff_requests(SentRequest("a", "m", body), SentRequest("b", "m", reordered))
    assert (found.byte_offset, found.sizes_bytes) == (None, (len(text), len(text)))
    changes = [("model", "n", b'm"'), ("instructions", "y", b'x"'), ("input", [1], b'{"c'), ("temperature", 2, b"1}")]
    for name, value, at in changes:
        found = diff_requests(SentRequest("a", "m", body), SentRequest("b", "m", {**reordered, name: value}))
        assert (found.path.partition("[")[0], found.byte_offset) == (name, text.rindex(at))


def test_the_first_different_byte_has_an_offset_and_a_path() -> None:
    found = diff_requests(request(user_message("größer")), request(user_message("größe?")))
    text = '{"model":"gpt-5-mini","input":[{"content":[{"text":"größer","type":"input_text"}],"role":"user"'.encode()
    assert found.byte_offset == text.index(b'r","type"')
    assert (found.path, found.a, found.b) == ("input[0].content[0].text", "größer", "größe?")


def test_equal_requests_have_no_difference() -> None:
    found = diff_requests(request(user_message("a")), request(user_message("a")))
    assert (found.byte_offset, found.path, found.a, found.b) == (None, "", "", "")
    assert found.common_prefix == count_tokens([user_message("a")])


FIELDS = some.dictionaries(
    some.sampled_from(["model", "tools", "instructions", "input", "temperature", "store"]),
    some.integers(0, 2) | some.sampled_from(["a", "ab", "ü"]) | some.lists(some.integers(0, 2), max_size=2),
)


@given(FIELDS, FIELDS)
def test_a_difference_is_found_exactly_where_the_texts_differ(one: dict[str, Any], other: dict[str, Any]) -> None:
    found = diff_requests(SentRequest("a", "m", one), SentRequest("b", "m", other))
    first_text, second_text = serialized_body(one), serialized_body(other)
    assert (found.byte_offset is None) == (first_text == second_text)
    if found.byte_offset is not None:
        assert first_text[: found.byte_offset] == second_text[: found.byte_offset]
        assert first_text[found.byte_offset :][:1] != second_text[found.byte_offset :][:1]
        changed = [
            name
            for name in FIELD_ORDER
            if serialized_body(without_field(one, name)) != serialized_body(without_field(other, name))
        ]
        assert found.path.partition("[")[0] == changed[0]


def test_the_complete_input_of_the_model_is_compared_whichever_party_supplied_it() -> None:
    full_request = request(user_message("one"), assistant_message("first"), user_message("two"))
    chained = request(user_message("two"), before=[user_message("one"), assistant_message("first")])
    assert diff_requests(full_request, chained).common_prefix == count_tokens(full_request.input_items)


@pytest.mark.parametrize(
    ("first", "second", "label"),
    [
        ({"instructions": "Be brief."}, {"instructions": "Be long."}, "Be "),
        ({"instructions": "Be brief."}, {}, ""),
    ],
)
def test_the_tokens_before_a_difference_are_the_common_prefix(
    first: dict[str, Any], second: dict[str, Any], label: str
) -> None:
    found = diff_requests(request(user_message(LONG), **first), request(user_message(LONG), **second))
    assert found.common_prefix.tokens == count_tokens((), label).tokens


def test_changed_tools_change_everything_after_them() -> None:
    tools = [{"type": "function", "name": name} for name in ("tea", "milk")]
    first = request(user_message(LONG), tools=tools, instructions="Be brief.")
    same = request(user_message(LONG), tools=tools, instructions="Be brief.")
    reversed_tools = request(user_message(LONG), tools=tools[::-1], instructions="Be brief.")
    assert diff_requests(first, reversed_tools).common_prefix.tokens < 20
    assert diff_requests(first, same).common_prefix.tokens > 3_000


def test_another_model_has_an_empty_cache() -> None:
    found = diff_requests(request(user_message(LONG)), request(user_message(LONG), model="openai/gpt-5"))
    assert (found.common_prefix.tokens, found.expected_cached_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("prefix", "model", "expected"),
    [
        (1_023, "openai/gpt-5-mini", 0),
        (1_024, "openai/gpt-5-mini", 1_024),
        (1_300, "openai/gpt-5-mini", 1_280),
        (1_023, "openai/gpt-6.1-terra", 0),
        (1_300, "openai/gpt-5.6-sol", 1_300),
        (2_100, "azure/gpt-5.5", 2_048),
        (1_300, "openai/o3", 1_280),
        (1_023, "anthropic/claude-opus-4-8", 0),
        (1_300, "anthropic/claude-opus-4-8", 1_300),
        (900, "deepseek/deepseek-chat", 900),
    ],
)
def test_a_prefix_is_cached_from_the_minimum_of_the_model_on_and_by_some_in_steps(
    prefix: int, model: str, expected: int
) -> None:
    overhead = count_tokens([user_message("word")]).tokens - 1
    sent = request(user_message("word" + " word" * (prefix - overhead - 1)), model=model)
    found = diff_requests(sent, sent)
    assert (found.common_prefix.tokens, found.expected_cached_tokens) == (prefix, expected)


def test_the_json_has_the_expected_and_the_reported_cached_tokens() -> None:
    first = request(user_message(LONG))
    second = request(
        user_message(LONG),
        assistant_message("a"),
        user_message("b"),
        usage=Usage(input_tokens=3_020, cached_tokens=2_944),
    )
    found: RequestDiff = diff_requests(first, second)
    assert to_json(build_request_diff_report(found)) == {
        "byte": found.byte_offset,
        "path": "input[1]",
        "a": "",
        "b": found.b,
        "bytes": [len(serialized_body(dict(side.body))) for side in (first, second)],
        "prefix_tokens": count_tokens([user_message(LONG)]).tokens,
        "estimated": False,
        "expected_cached_tokens": 2_944,
        "reported_cached_tokens": 2_944,
        "reported_input_tokens": 3_020,
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"tools": [1], "text": {"a": 1}}, {"tools": [1], "text": {"a": 2}}),
        ({"text": {"format": "x"}}, {"text": None}),
        ({"tools": [{"name": "tea"}]}, {"tools": [{"name": "tee"}]}),
    ],
)
def test_a_difference_in_a_field_before_the_input_ends_the_prefix(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    found = diff_requests(request(user_message(LONG), **first), request(user_message(LONG), **second))
    assert found.common_prefix.tokens < 20


def test_the_items_before_a_difference_and_its_common_text_are_a_prefix() -> None:
    first = request(user_message("one"), user_message("Tell me about tea."))
    second = request(user_message("one"), user_message("Tell me about milk."))
    answer = request(user_message("one"), assistant_message("Tell me about tea."))
    item, text = count_tokens([user_message("one")]).tokens, count_tokens((), "Tell me about ").tokens
    assert diff_requests(first, second).common_prefix.tokens == item + text
    assert diff_requests(first, answer).common_prefix.tokens == item


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ("hi", [{"role": "user", "content": "hi"}]),
        ([user_message("hi"), "odd"], [user_message("hi")]),
        (None, []),
        (7, []),
    ],
)
def test_the_input_of_a_request_may_be_text_or_items(value: Any, items: list[Any]) -> None:
    before = user_message("before")
    assert SentRequest("r", "m", {"input": value}, (before,)).input_items == [before, *items]


def test_an_unknown_tokenizer_makes_the_prefix_an_estimate() -> None:
    for model, is_estimate in [("x/unknown", True), ("openai/gpt-5-mini", False), ("openai/gpt-5.6", True)]:
        sent = request(user_message("hi"), model=model)
        assert diff_requests(sent, sent).common_prefix.is_estimate is is_estimate
    encrypted = request({"type": "reasoning", "encrypted_content": "A" * 400})
    assert diff_requests(encrypted, encrypted).common_prefix.is_estimate


def test_a_request_without_usage_has_no_reported_tokens() -> None:
    found = to_json(build_request_diff_report(diff_requests(request(), request())))
    assert (found["byte"], found["path"], found["a"], found["b"]) == (None, None, "", "")
    assert (found["reported_cached_tokens"], found["reported_input_tokens"]) == (None, None)


def test_fields_are_sorted_as_a_model_receives_them() -> None:
    names = [
        "temperature",
        "input",
        "previous_response_id",
        "conversation",
        "instructions",
        "text",
        "tools",
        "model",
        "a",
    ]
    assert sort_request_fields(names) == [
        *("model", "tools", "text", "instructions", "conversation", "previous_response_id", "input"),
        *("a", "temperature"),
    ]

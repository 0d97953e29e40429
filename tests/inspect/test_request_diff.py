"""Two requests as they were sent, and what their beginning is worth to the prompt cache."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.history.items import assistant_message, user_message
from convo.inspect.diff import (
    RequestDiff,
    SentRequest,
    canonical_request_bytes,
    count_common_prefix_tokens,
    diff_requests,
    max_cached_tokens,
    request_diff_to_json,
)
from convo.usage.counting import Usage, count_tokens

MODEL = "openai/gpt-5-mini"
LONG = "word " * 3_000


def request(
    *items: Any, model: str = MODEL, before: Any = (), usage: Usage | None = None, **fields: Any
) -> SentRequest:
    body = {"model": model.partition("/")[2], "input": list(items), **fields}
    return SentRequest("resp_1", model, body, tuple(before), usage)


def test_the_order_in_which_somebody_wrote_the_fields_does_not_count() -> None:
    body = {"temperature": 1, "input": [{"role": "user", "content": "ü"}], "instructions": "x", "model": "m"}
    turned = {name: body[name] for name in reversed(body)}
    assert canonical_request_bytes(body) == canonical_request_bytes(turned)
    assert canonical_request_bytes(body).decode() == (
        '{"model":"m","instructions":"x","input":[{"content":"ü","role":"user"}],"temperature":1}'
    )
    assert json.loads(canonical_request_bytes(body)) == body


def test_the_first_byte_that_differs_is_counted_in_bytes_and_has_a_path() -> None:
    found = diff_requests(request(user_message("größer")), request(user_message("größe?")))
    text = canonical_request_bytes(request(user_message("größer")).body)
    assert found.byte_offset is not None
    assert text[found.byte_offset : found.byte_offset + 1] == b"r"
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
def test_a_byte_is_found_where_the_texts_differ_and_nowhere_else(one: dict[str, Any], other: dict[str, Any]) -> None:
    found = diff_requests(SentRequest("a", "m", one), SentRequest("b", "m", other))
    ours, theirs = canonical_request_bytes(one), canonical_request_bytes(other)
    assert (found.byte_offset is None) == (ours == theirs)
    if found.byte_offset is not None:
        assert ours[: found.byte_offset] == theirs[: found.byte_offset]
        assert ours[found.byte_offset :][:1] != theirs[found.byte_offset :][:1]


def test_what_the_model_was_shown_counts_whoever_put_it_there() -> None:
    whole = request(user_message("one"), assistant_message("first"), user_message("two"))
    chained = request(user_message("two"), before=[user_message("one"), assistant_message("first")])
    assert count_common_prefix_tokens(whole, chained) == count_tokens(whole.input_items)


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ({"instructions": "Be brief."}, {"instructions": "Be long."}, "Be "),
        ({"instructions": "Be brief."}, {}, ""),
    ],
)
def test_what_stands_behind_a_difference_is_shown_for_nothing(
    first: dict[str, Any], second: dict[str, Any], left: str
) -> None:
    found = count_common_prefix_tokens(request(user_message(LONG), **first), request(user_message(LONG), **second))
    assert found.tokens == count_tokens((), left).tokens


def test_other_tools_change_everything_behind_them() -> None:
    tools = [{"type": "function", "name": name} for name in ("tea", "milk")]
    first = request(user_message(LONG), tools=tools, instructions="Be brief.")
    assert (
        count_common_prefix_tokens(
            first, request(user_message(LONG), tools=tools[::-1], instructions="Be brief.")
        ).tokens
        < 20
    )
    assert (
        count_common_prefix_tokens(first, request(user_message(LONG), tools=tools, instructions="Be brief.")).tokens
        > 3_000
    )


def test_another_model_has_kept_nothing() -> None:
    assert (
        diff_requests(
            request(user_message(LONG)), request(user_message(LONG), model="openai/gpt-5")
        ).expected_cached_tokens
        == 0
    )


@pytest.mark.parametrize(
    ("prefix", "model", "expected"),
    [
        (1_023, "openai/gpt-5-mini", 0),
        (1_024, "openai/gpt-5-mini", 1_024),
        (1_300, "openai/gpt-5-mini", 1_280),
        (1_300, "openai/gpt-5.6-sol", 1_300),
        (900, "deepseek/deepseek-chat", 900),
    ],
)
def test_openai_keeps_long_beginnings_in_steps(prefix: int, model: str, expected: int) -> None:
    assert max_cached_tokens(prefix, model, model) == expected


def test_what_was_expected_stands_beside_what_was_reported() -> None:
    first = request(user_message(LONG))
    second = request(
        user_message(LONG),
        assistant_message("a"),
        user_message("b"),
        usage=Usage(input_tokens=3_020, cached_tokens=2_944),
    )
    found: RequestDiff = diff_requests(first, second)
    assert request_diff_to_json(found) == {
        "byte": found.byte_offset,
        "path": "input[1]",
        "a": "",
        "b": found.b,
        "bytes": [len(canonical_request_bytes(first.body)), len(canonical_request_bytes(second.body))],
        "prefix_tokens": count_tokens([user_message(LONG)]).tokens,
        "estimated": False,
        "expected_cached_tokens": 2_944,
        "reported_cached_tokens": 2_944,
        "reported_input_tokens": 3_020,
    }

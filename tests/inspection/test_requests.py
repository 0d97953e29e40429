"""Two requests as they were sent, and what their beginning is worth to the prompt cache."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.inspection.requests import Parted, Request, alike, as_json, canonical, kept, parted
from convo.items import assistant, user
from convo.tokens import Usage, count

MODEL = "openai/gpt-5-mini"
LONG = "word " * 3_000


def request(*items: Any, model: str = MODEL, before: Any = (), usage: Usage | None = None, **fields: Any) -> Request:
    body = {"model": model.partition("/")[2], "input": list(items), **fields}
    return Request("resp_1", model, body, tuple(before), usage)


def test_the_order_in_which_somebody_wrote_the_fields_does_not_count() -> None:
    body = {"temperature": 1, "input": [{"role": "user", "content": "ü"}], "instructions": "x", "model": "m"}
    turned = {name: body[name] for name in reversed(body)}
    assert canonical(body) == canonical(turned)
    assert canonical(body).decode() == (
        '{"model":"m","instructions":"x","input":[{"content":"ü","role":"user"}],"temperature":1}'
    )
    assert json.loads(canonical(body)) == body


def test_the_first_byte_that_differs_is_counted_in_bytes_and_has_a_path() -> None:
    found = parted(request(user("größer")), request(user("größe?")))
    text = canonical(request(user("größer")).body)
    assert found.byte is not None
    assert text[found.byte : found.byte + 1] == b"r"
    assert (found.path, found.a, found.b) == ("input[0].content[0].text", "größer", "größe?")


def test_equal_requests_have_no_difference() -> None:
    found = parted(request(user("a")), request(user("a")))
    assert (found.byte, found.path, found.a, found.b) == (None, "", "", "")
    assert found.prefix == count([user("a")])


FIELDS = some.dictionaries(
    some.sampled_from(["model", "tools", "instructions", "input", "temperature", "store"]),
    some.integers(0, 2) | some.sampled_from(["a", "ab", "ü"]) | some.lists(some.integers(0, 2), max_size=2),
)


@given(FIELDS, FIELDS)
def test_a_byte_is_found_where_the_texts_differ_and_nowhere_else(one: dict[str, Any], other: dict[str, Any]) -> None:
    found = parted(Request("a", "m", one), Request("b", "m", other))
    ours, theirs = canonical(one), canonical(other)
    assert (found.byte is None) == (ours == theirs)
    if found.byte is not None:
        assert ours[: found.byte] == theirs[: found.byte]
        assert ours[found.byte :][:1] != theirs[found.byte :][:1]


def test_what_the_model_was_shown_counts_whoever_put_it_there() -> None:
    whole = request(user("one"), assistant("first"), user("two"))
    chained = request(user("two"), before=[user("one"), assistant("first")])
    assert alike(whole, chained) == count(whole.shown)


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
    found = alike(request(user(LONG), **first), request(user(LONG), **second))
    assert found.tokens == count((), left).tokens


def test_other_tools_change_everything_behind_them() -> None:
    tools = [{"type": "function", "name": name} for name in ("tea", "milk")]
    first = request(user(LONG), tools=tools, instructions="Be brief.")
    assert alike(first, request(user(LONG), tools=tools[::-1], instructions="Be brief.")).tokens < 20
    assert alike(first, request(user(LONG), tools=tools, instructions="Be brief.")).tokens > 3_000


def test_another_model_has_kept_nothing() -> None:
    assert parted(request(user(LONG)), request(user(LONG), model="openai/gpt-5")).expected == 0


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
    assert kept(prefix, model, model) == expected


def test_what_was_expected_stands_beside_what_was_reported() -> None:
    first = request(user(LONG))
    second = request(user(LONG), assistant("a"), user("b"), usage=Usage(input=3_020, cached=2_944))
    found: Parted = parted(first, second)
    assert as_json(found) == {
        "byte": found.byte,
        "path": "input[1]",
        "a": "",
        "b": found.b,
        "bytes": [len(canonical(first.body)), len(canonical(second.body))],
        "prefix_tokens": count([user(LONG)]).tokens,
        "estimated": False,
        "expected_cached_tokens": 2_944,
        "reported_cached_tokens": 2_944,
        "reported_input_tokens": 3_020,
    }

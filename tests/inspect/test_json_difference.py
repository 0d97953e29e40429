"""The first difference of two requests, as a JSON path."""

import json
import re
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.inspect.diff import RequestDiff, SentRequest, diff_requests

JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-3, 3) | some.sampled_from([1.0, 0.0]) | some.text("ab", max_size=3),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


def difference(one: Any, other: Any) -> RequestDiff:
    """Compare two values as the metadata of two requests."""
    first, second = ({"model": "m", "metadata": value} for value in (one, other))
    return diff_requests(SentRequest("a", "x/m", first), SentRequest("b", "x/m", second))


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def value_at(value: Any, path: str) -> str:
    """Return the text of the value at a path of the diff; "" if there is none."""
    steps = [int(index) if index else key for key, index in re.findall(r"([a-z]+)|\[(\d+)\]", path)][1:]
    try:
        return text(reduce(lambda container, step: container[step], steps, value))
    except (KeyError, IndexError, TypeError):
        return ""


@given(JSON, JSON)
def test_requests_differ_at_a_path_if_and_only_if_their_texts_differ(one: Any, other: Any) -> None:
    found = difference(one, other)
    assert (found.path == "") == (found.byte_offset is None) == (text(one) == text(other))


@given(JSON, JSON)
def test_the_values_at_the_path_differ(one: Any, other: Any) -> None:
    path = difference(one, other).path
    if path:
        assert value_at(one, path) != value_at(other, path)


@given(JSON)
def test_a_request_does_not_differ_from_itself(value: Any) -> None:
    assert difference(value, value).path == ""


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, "metadata.a[1].b"),
        ([1, 2], [1], "metadata[1]"),
        ({"b": 1, "a": 1}, {"a": 2, "b": 2}, "metadata.a"),
        ({"a": 1}, {"a": 1.0}, "metadata.a"),
        ({"a": 1}, {"a": True}, "metadata.a"),
        ({"a": []}, {"a": {}}, "metadata.a"),
        ({}, {"a": None}, "metadata.a"),
        ("x", "y", "metadata"),
    ],
)
def test_the_path_has_the_syntax_of_jq(one: Any, other: Any, path: str) -> None:
    assert difference(one, other).path == path


@given(some.text("ab"), some.text("ab"))
def test_the_excerpts_start_at_most_24_characters_before_the_difference(one: str, other: str) -> None:
    found = difference(one, other)
    if found.path:
        same = next(
            (position for position, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) > 1), None
        )
        position = min(len(one), len(other)) if same is None else same
        start = max(0, position - 24)
        assert [found.a, found.b] == [
            ("…" if start else "") + text[start : position + 24] + ("…" if len(text) > position + 24 else "")
            for text in (one, other)
        ]

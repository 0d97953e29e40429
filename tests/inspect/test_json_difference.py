"""Where two JSON values first differ."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.inspect.diff import (
    MISSING,
    common_prefix_size,
    first_difference_path,
    format_json_path,
    sorted_json_text,
    value_at_path,
)

JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-3, 3) | some.sampled_from([1.0, 0.0]) | some.text("ab", max_size=3),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_there_is_a_first_difference_where_the_texts_differ_and_nowhere_else(one: Any, other: Any) -> None:
    assert (first_difference_path(one, other) is None) == (sorted_json_text(one) == sorted_json_text(other))


@given(JSON, JSON)
def test_what_stands_at_the_difference_differs(one: Any, other: Any) -> None:
    path = first_difference_path(one, other)
    if path is not None:
        ours, theirs = value_at_path(one, path), value_at_path(other, path)
        assert ours is MISSING or theirs is MISSING or sorted_json_text(ours) != sorted_json_text(theirs)


@given(JSON)
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    assert first_difference_path(value, value) is None


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, "a[1].b"),
        ([1, 2], [1], "[1]"),
        ({"b": 1, "a": 1}, {"a": 2, "b": 2}, "a"),
        ({"a": 1}, {"a": 1.0}, "a"),
        ({"a": 1}, {"a": True}, "a"),
        ({"a": []}, {"a": {}}, "a"),
        ({}, {"a": None}, "a"),
        ("x", "y", ""),
    ],
)
def test_a_path_is_what_a_person_writes(one: Any, other: Any, path: str) -> None:
    assert format_json_path(first_difference_path(one, other) or ()) == path


@given(some.text("ab"), some.text("ab"))
def test_texts_begin_alike_as_far_as_they_do(one: str, other: str) -> None:
    same = common_prefix_size(one, other)
    assert one[:same] == other[:same]
    assert same == min(len(one), len(other)) or one[same] != other[same]

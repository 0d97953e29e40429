"""The encoding of JSON and of search terms, the same in every store."""

import pytest

from convo.errors import NotCanonical
from convo.history.items import Json
from convo.stores.codec import (
    encode_json,
    is_route,
    merge_integers,
    split_integers,
)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "Out of range float values are not JSON compliant"),
        ({"a": {1, 2}}, "Object of type set is not JSON serializable"),
    ],
)
def test_a_value_that_is_not_json_is_refused(value: Json, reason: str) -> None:
    with pytest.raises(NotCanonical) as caught:
        encode_json(value)
    assert caught.value.message.startswith(f"a value has no JSON form: {reason}")


def test_json_is_compact_and_always_valid_utf8() -> None:
    assert encode_json({"b": [1, "ä"], "a": None}) == '{"b":[1,"ä"],"a":null}'
    assert encode_json(["ä", "\ud83d"]) == '["\\u00e4","\\ud83d"]'


def test_integers_are_split_from_a_value_and_merged_again() -> None:
    value: Json = {"a": 12, "b": [True, None, {"c": -3}, 0.5, "7"], "d": 2**70}
    form: Json = {"a": 0, "b": [True, None, {"c": 0}, 0.5, "7"], "d": 0}

    assert split_integers(value) == (form, f"12,-3,{2**70}")
    assert merge_integers(form, f"12,-3,{2**70}") == value
    assert split_integers({}) == ({}, "")
    assert merge_integers({}, "") == {}
    assert split_integers(None) == (None, None)


def test_a_value_with_too_few_stored_integers_is_a_value_error() -> None:
    """A StopIteration inside a coroutine would not be an error of the store."""
    with pytest.raises(ValueError, match="an integer is missing"):
        merge_integers({"a": 0, "b": 0}, "12")


ROUTE: list[Json] = ["local/model", "session", "embedded", None, None, "conv_1", True, {"input_tokens": 0}]


@pytest.mark.parametrize(
    ("index", "values", "is_valid"),
    [
        (0, [""], True), (0, [None, 1], False),
        (1, ["replay", "conversation", "chain"], True), (1, ["", "other", None, ["session"]], False),
        (2, ["https://host/v1"], True), (2, [None, 1], False),
        (3, ["org"], True), (3, [1, []], False),
        (4, ["proj"], True), (4, [1, []], False),
        (5, [None], True), (5, [1, []], False),
        (6, [False], True), (6, [None, 1, "true"], False),
        (7, [None, {}], True),
    ],
)  # fmt: skip
def test_a_route_has_eight_fields_of_their_types(index: int, values: list[Json], is_valid: bool) -> None:
    for value in values:
        assert is_route([*ROUTE[:index], value, *ROUTE[index + 1 :]]) is is_valid
    assert is_route(ROUTE)
    assert not any(is_route(other) for other in (ROUTE[:7], [*ROUTE, None], {}, dict.fromkeys("abcdefgh"), None))

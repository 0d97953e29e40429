"""The encoding of JSON and of search terms, the same in every store."""

import pytest

from convo.errors import NotCanonical
from convo.history.items import Json
from convo.stores.codec import (
    encode_json,
    merge_integers,
    parse_search_phrases,
    phrase_density,
    split_integers,
    tokenize,
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


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Hello, World_2!", "hello world 2"),
        ("Äpfel STRAßE", "apfel strasse"),
        ("日本a", "日 本 a"),
        ("か\u3099", "が"),
        ("ok👍☀", "ok 👍 ☀"),
        ("a" * 65 + " b", "a" * 64 + " b"),
        ("...", ""),
    ],
)
def test_the_terms_of_a_text(text: str, terms: str) -> None:
    assert tokenize(text) == terms


def test_a_search_requires_each_phrase_once() -> None:
    assert parse_search_phrases("time-out Time-Out ... ÄB") == ("time out", "ab")
    assert phrase_density("a b a", ("a",)) == 2 / 5
    assert phrase_density("a b a", ("a b", "b")) == 2 / 5
    assert phrase_density("a b a", ("a", "c")) == 0
    assert phrase_density("a b a", ()) == 0

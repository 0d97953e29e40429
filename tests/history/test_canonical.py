"""The two names of an item: the hash of its form and the digest of its meaning."""

import json
import random
from hashlib import sha256
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.errors import NotCanonical
from convo.history.canonical import digest, item_hash, normalize_item
from convo.history.items import Item, Json, assistant_message, user_message
from tests.history.json_strategies import ITEMS, JSON

PART = {"type": "output_text", "text": "hello"}
FOUR_FORMS: dict[str, Item] = {
    "output of a response": {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{**PART, "annotations": [], "logprobs": []}],
    },
    "input of a request": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{**PART, "annotations": []}],
    },
    "without type and id": {"role": "assistant", "content": [PART]},
    "content as a string": {"role": "assistant", "content": "hello"},
}
DIFFERENT: list[Item] = [
    user_message("hello"),
    assistant_message("hello"),
    assistant_message("Hello"),
    assistant_message(""),
    {"role": "system", "content": "hello"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "hello"}]},
    {"role": "assistant", "content": [PART, PART]},
    {**assistant_message("hello"), "phase": "commentary"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"},
    {"type": "n", "n": 2**53},
    {"type": "n", "n": 2**53 + 1},
    {"type": "n", "n": 1},
    {"type": "n", "n": 1.0},
    {"type": "n", "n": True},
    {"type": "n", "n": "1"},
    {"type": "n", "n": "\ud83d"},
    {"type": "n", "n": "?"},
]


def shuffled(value: Json, rng: random.Random) -> Json:
    """Return `value` with the keys of every object in another order."""
    if isinstance(value, list):
        return [shuffled(inner, rng) for inner in value]
    if isinstance(value, dict):
        return {key: shuffled(value[key], rng) for key in rng.sample(list(value), len(value))}
    return value


@pytest.mark.parametrize("form", FOUR_FORMS.values(), ids=FOUR_FORMS)
def test_one_answer_has_one_digest_in_each_of_its_four_forms(form: Item) -> None:
    assert digest(form) == digest(assistant_message("hello"))


def test_the_four_forms_of_an_answer_have_four_hashes() -> None:
    assert len({item_hash(form) for form in FOUR_FORMS.values()}) == 4


def test_items_with_different_meanings_have_different_digests() -> None:
    for one, other in list(combinations(DIFFERENT, 2)):
        assert item_hash(one) != item_hash(other)
        assert digest(one) != digest(other)


@given(ITEMS, st.randoms(use_true_random=False))
def test_key_order_does_not_change_the_digest(item: Item, dice: random.Random) -> None:
    other = shuffled(item, dice)

    assert item_hash(other) == item_hash(item)
    assert digest(other) == digest(item)


@given(ITEMS, ITEMS)
def test_a_hash_is_equal_only_for_equal_json(one: Item, other: Item) -> None:
    """1, 1.0 and True are equal in Python, so the test compares JSON texts."""
    texts = [json.dumps(item, sort_keys=True) for item in (one, other)]

    assert (item_hash(one) == item_hash(other)) == (texts[0] == texts[1])


@given(ITEMS)
def test_equal_forms_have_equal_digests_and_normal_forms_are_stable(item: Item) -> None:
    assert digest(normalize_item(item)) == digest(item)
    assert json.dumps(normalize_item(normalize_item(item))) == json.dumps(normalize_item(item))


@given(ITEMS, st.sampled_from(["id", "status", "created_at", "created_by"]), JSON)
def test_fields_that_only_a_server_sets_do_not_count(item: Item, field: str, value: Json) -> None:
    assert digest({**item, field: value}) == digest(item)


@given(ITEMS)
def test_hashing_an_item_does_not_change_it(item: Item) -> None:
    before = json.dumps(item)
    item_hash(item), digest(item)

    assert json.dumps(item) == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {1}, b"x", object(), 10**5000], ids=type)
def test_a_value_that_is_not_json_has_no_digest(value: object) -> None:
    for name in (item_hash, digest):
        with pytest.raises(NotCanonical):
            name({"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]})


def test_an_item_that_contains_itself_has_no_digest() -> None:
    item: dict[str, Json] = {"type": "message"}
    item["self"] = item

    with pytest.raises(NotCanonical):
        item_hash(item)


def test_the_name_of_an_item_is_the_hash_of_its_canonical_text() -> None:
    """Stores contain both names, so neither may change."""
    form = '{"content":"h\\u00e9","id":"m","n":18014398509481985,"role":"user"}'
    canonical = (
        '{"content":[{"text":"h\\u00e9","type":"input_text"}],"n":18014398509481985,"role":"user","type":"message"}'
    )
    item = {"role": "user", "content": "h\u00e9", "id": "m", "n": 2**54 + 1}
    assert item_hash(item) == f"h1:{sha256(form.encode()).hexdigest()}"
    assert digest(item) == f"d1:{sha256(canonical.encode()).hexdigest()}"


@pytest.mark.parametrize(
    ("item", "normalized"),
    [
        ({"role": "user"}, {"role": "user", "type": "message", "content": []}),
        ({"role": "user", "content": 7}, {"role": "user", "type": "message", "content": 7}),
        (
            {"role": "user", "content": ["odd", {"type": "x", "a": None}]},
            {"role": "user", "type": "message", "content": ["odd", {"type": "x"}]},
        ),
        ({"role": "user", "type": "other", "content": "hi"}, {"role": "user", "type": "other", "content": "hi"}),
        ({"type": "message", "content": "hi"}, {"type": "message", "content": "hi"}),
        ({"role": None, "type": "message", "content": "hi"}, {"type": "message", "content": "hi"}),
        (
            {"type": "x", "name": None, "content": [{"annotations": []}]},
            {"type": "x", "content": [{"annotations": []}]},
        ),
    ],
)
def test_only_messages_are_normalized(item: Item, normalized: dict[str, Json]) -> None:
    assert normalize_item(item) == normalized


def test_the_error_says_why_an_item_has_no_name() -> None:
    with pytest.raises(NotCanonical) as error:
        item_hash({"type": "n", "n": float("nan")})
    assert error.value.message.startswith("an item has no exact JSON form: Out of range float values")

"""An estimate of the tokens of an item, for items without a count."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.history.items import user_message
from convo.usage.counting import estimate_tokens

PROSE = (
    "The quick brown fox jumps over the lazy dog. A conversation is a path in a tree, and whoever owns the head of "
    "that path decides what the next request contains. Nothing that was confirmed is lost, and nothing is sent twice."
)
PROSE_TOKENS = 47
"""Counted with the o200k vocabulary."""

CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'}


def test_the_estimate_for_english_prose_is_within_a_third() -> None:
    assert estimate_tokens(user_message(PROSE)) - estimate_tokens(user_message("")) == pytest.approx(
        PROSE_TOKENS, rel=1 / 3
    )


@pytest.mark.parametrize(("text", "tokens"), [("a", 5), ("abcd", 5), ("abcde", 6), ("日本", 6), ("\ud83d" * 5, 6)])
def test_four_bytes_of_text_are_a_token_and_an_item_takes_four_more(text: str, tokens: int) -> None:
    assert estimate_tokens(user_message(text)) == tokens


def test_an_item_without_words_still_takes_the_tokens_around_it() -> None:
    assert estimate_tokens(user_message("")) == 4


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * 10_000}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "A" * 10_000},
    ],
    ids=["an image", "encrypted reasoning"],
)
def test_binary_content_counts_as_zero(item: Any) -> None:
    assert estimate_tokens(item) == estimate_tokens(user_message(""))


def test_the_arguments_and_the_output_of_a_call_count() -> None:
    output = {"type": "function_call_output", "call_id": "call_1", "output": "rain, all day long"}
    assert estimate_tokens(CALL) > estimate_tokens({**CALL, "arguments": ""}) > 4
    assert estimate_tokens(output) > estimate_tokens({**output, "output": ""})


def test_the_form_of_a_message_does_not_matter() -> None:
    parts = {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": PROSE}]}
    assert estimate_tokens(parts) == estimate_tokens(user_message(PROSE))


def test_characters_of_more_bytes_take_more_tokens() -> None:
    assert estimate_tokens(user_message("日本語" * 20)) > estimate_tokens(user_message("abc" * 20))


@given(some.text(alphabet=some.characters()), some.text(alphabet=some.characters()))
def test_more_text_never_takes_fewer_tokens_and_empty_text_is_allowed(words: str, more: str) -> None:
    """A lone surrogate is text too: an interrupted stream may end with one."""
    assert 4 <= estimate_tokens(user_message(words)) <= estimate_tokens(user_message(words + more))

"""What a person reads in an item, and what a search finds it by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.history.items import Item, assistant_message, item_preview, item_text, searchable_text, user_message
from tests.history.json_strategies import ITEMS

CALL = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": '{"city": "Paris"}'}
READ: dict[str, tuple[Item, str]] = {
    "words in the easy form": ({"role": "user", "content": "hi"}, "hi"),
    "words in parts": (user_message("hi", {"type": "input_text", "text": "there"}), "hi\nthere"),
    "an image beside words": (user_message("look", {"type": "input_image", "image_url": "data:..."}), "look"),
    "a refusal": ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "no"),
    "a summary of thoughts": ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, "hm"),
    "a tool's output": ({"type": "function_call_output", "call_id": "c", "output": "rain"}, "rain"),
    "a call": (CALL, ""),
    "content that is no content": ({"role": "user", "content": {"text": 7}}, ""),
}


@pytest.mark.parametrize(("item", "words"), READ.values(), ids=READ)
def test_the_words_of_an_item_are_read_in_whatever_form_it_is(item: Item, words: str) -> None:
    assert item_text(item) == words


def test_a_call_is_searched_by_its_name_and_arguments() -> None:
    assert searchable_text(CALL) == 'look_up\n{"city": "Paris"}'


def test_an_item_without_words_is_introduced_by_its_kind_and_name() -> None:
    assert item_preview(CALL) == "[function_call] look_up"
    assert item_preview({}) == "[unknown]"


def test_first_words_are_at_most_sixty_characters_unless_another_width_is_asked_for() -> None:
    assert item_preview(user_message("m" * 60)) == "m" * 60
    assert item_preview(user_message("m" * 61)) == "m" * 59 + "…"


@given(ITEMS, st.integers(min_value=1, max_value=80))
def test_first_words_are_one_short_line_for_any_item(item: Item, width: int) -> None:
    line = item_preview(item, width)

    assert 0 < len(line) <= width
    assert line == " ".join(line.split())


@given(st.text())
def test_words_that_a_person_typed_are_read_back_as_they_are(words: str) -> None:
    assert item_text(user_message(words)) == item_text(assistant_message(words)) == words

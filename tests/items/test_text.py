"""What a person reads in an item, and which items belong together."""

import pytest

from convo.items import (
    Item,
    assistant,
    call_id,
    first_words,
    is_assistant,
    is_call,
    is_output,
    is_user,
    kind,
    searchable,
    text,
    user,
)

CALL: Item = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}
OUTPUT: Item = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (user("hi"), "hi"),
        ({"role": "user", "content": "easy"}, "easy"),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "no"),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            "a\nb",
        ),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinking"}]}, "thinking"),
        (OUTPUT, "rain"),
        ({"type": "function_call_output", "output": [{"type": "input_text", "text": "sun"}]}, "sun"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}, ""),
        ({"type": "something_new", "content": {"odd": 1}}, ""),
    ],
)
def test_the_words_of_an_item_in_every_form(item: Item, words: str) -> None:
    assert text(item) == words


def test_a_call_is_found_by_its_name_and_arguments() -> None:
    assert searchable(CALL) == 'weather\n{"city": "Oslo"}'


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (user("one\n two   three"), "one two three"),
        (user("a" * 70), "a" * 59 + "…"),
        (CALL, "[function_call] weather"),
        ({"type": "compaction"}, "[compaction]"),
    ],
)
def test_first_words_are_one_line_of_at_most_sixty(item: Item, line: str) -> None:
    assert first_words(item) == line


def test_a_call_and_its_output_share_an_id() -> None:
    assert (is_call(CALL), is_output(CALL), call_id(CALL)) == (True, False, "c1")
    assert (is_call(OUTPUT), is_output(OUTPUT), call_id(OUTPUT)) == (False, True, "c1")
    assert call_id({"type": "function_call", "call_id": 7}) is None


@pytest.mark.parametrize(
    ("item", "what"),
    [
        ({"role": "user", "content": ""}, "message"),
        ({"type": "message", "role": "user"}, "message"),
        (CALL, "function_call"),
        ({"type": "brand_new"}, "brand_new"),
        ({}, "unknown"),
    ],
)
def test_the_kind_of_an_item(item: Item, what: str) -> None:
    assert kind(item) == what


def test_messages_know_who_speaks() -> None:
    assert is_user({"role": "user", "content": "easy"})
    assert is_assistant(assistant("x"))
    assert not is_user(assistant("x"))
    assert not is_user({"type": "compaction", "role": "user"})

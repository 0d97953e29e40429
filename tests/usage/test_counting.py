"""Token counts of items, instructions and tools: exact, estimated, and their upper bound."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.history.items import Item, user_message
from convo.usage.counting import TokenCount, count_item_tokens, count_tokens, load_tokenizer, max_token_count
from tests.history.json_strategies import ITEMS, TEXT
from tests.usage.test_estimate import CALL, PROSE, PROSE_TOKENS

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 4_000}


@pytest.fixture
def no_vocabulary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulate a machine without the extra `tokens`."""
    monkeypatch.setitem(sys.modules, "toktok", None)
    load_tokenizer.cache_clear()
    yield
    load_tokenizer.cache_clear()


def test_text_is_counted_with_the_vocabulary_of_its_model() -> None:
    assert count_tokens((), PROSE) == TokenCount(PROSE_TOKENS, is_estimate=False)


def test_an_item_takes_four_tokens_more_than_its_text() -> None:
    assert count_tokens([user_message(PROSE)]) == TokenCount(PROSE_TOKENS + 4, is_estimate=False)


@pytest.mark.usefixtures("no_vocabulary")
def test_a_count_without_a_vocabulary_is_marked_as_an_estimate() -> None:
    found = count_tokens((), PROSE)
    assert found.is_estimate
    assert found.tokens == pytest.approx(PROSE_TOKENS, rel=1 / 3)


@pytest.mark.usefixtures("no_vocabulary")
@pytest.mark.parametrize(("text", "tokens"), [("a", 1), ("abcd", 1), ("abcde", 2), ("日本", 2), ("\ud83d" * 5, 2)])
def test_without_a_vocabulary_four_bytes_are_a_token(text: str, tokens: int) -> None:
    assert count_tokens((), text) == TokenCount(tokens, is_estimate=True)
    assert count_item_tokens([user_message(text), user_message("")]) == (tokens + 4, 4)


def test_an_estimate_is_shown_as_one() -> None:
    assert (str(TokenCount(1_234, is_estimate=True)), str(TokenCount(1_234, is_estimate=False))) == (
        "about 1,234",
        "1,234",
    )


@pytest.mark.parametrize(("detail", "tokens"), [({}, 765), ({"detail": "high"}, 765), ({"detail": "low"}, 85)])
def test_an_image_is_estimated_and_its_bytes_do_not_count(detail: dict[str, str], tokens: int) -> None:
    message = user_message("", {**IMAGE, **detail})
    assert count_tokens([message]) == TokenCount(tokens + 4, is_estimate=True)


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"output": {"type": "computer_screenshot", "file_id": "f"}}, 765),
        ({"output": [{"type": "input_image", "file_id": "f"}] * 2}, 2 * 765),
        ({"content": [{"type": "input_image", "file_id": "f"}], "output": [{"type": "input_image"}]}, 2 * 765),
        ({"content": [{"type": "input_audio", "input_audio": None}, "text"], "encrypted_content": "A" * 16}, 3),
        ({"content": [{"type": "input_file", "file_data": "A" * 15}]}, 2),
        ({"content": [{"type": "input_file", "file_id": "f"}]}, 0),
        ({"encrypted_content": "A" * 6}, 1),
    ],
)
def test_each_part_that_is_not_text_is_counted(fields: dict[str, Any], tokens: int) -> None:
    item = {"type": "computer_call_output", **fields}
    assert count_tokens([item]) == TokenCount(tokens + 4, is_estimate=tokens > 0)
    assert count_item_tokens([item]) == (tokens + 4,)


@pytest.mark.parametrize(
    ("items", "instructions", "tools", "bound"),
    [
        ([], None, None, 0),
        ([], "abc", None, 3),
        ([], "日本", None, 8),
        ([], None, [{"a": 1}], 10),
        ([{"type": "input_image", "ab": "cde"}], None, None, 4 + 2 + 11 + 3 + 765),
        (
            [{"type": "x", "output": [{"type": "computer_screenshot"}, "ab", 7]}],
            None,
            None,
            4 + 2 + 1 + (1 + 19 + 765) + 2,
        ),
        ([{"a": "b"}, {}], "c", [1], 4 + 1 + 1 + 4 + 1 + 3),
    ],
)
def test_the_bound_is_the_bytes_of_all_text_and_a_token_for_each_field(
    items: list[Item], instructions: str | None, tools: Any, bound: int
) -> None:
    """A character that is not ASCII counts as four bytes."""
    assert max_token_count(items, instructions, tools) == bound


@pytest.mark.parametrize("field", ["content", "output"])
def test_an_image_given_by_url_stays_within_its_bound(field: str) -> None:
    message = {"type": "function_call_output", field: [{"type": "input_image", "file_id": "f"}]}
    assert count_tokens([message]).tokens <= max_token_count([message])
    screen = {"type": "computer_call_output", "output": {"type": "computer_screenshot", "file_id": "f"}}
    assert count_tokens([screen]).tokens <= max_token_count([screen])


@pytest.mark.parametrize(
    "item",
    [
        user_message("", {"type": "input_file", "file_data": "A" * 16_000}),
        user_message("", {"type": "input_audio", "input_audio": {"data": "A" * 16_000}}),
        {"type": "reasoning", "summary": [], "encrypted_content": "A" * 16_000},
    ],
    ids=["a file", "audio", "encrypted reasoning"],
)
def test_an_item_without_text_takes_a_token_for_four_bytes(item: Any) -> None:
    assert count_tokens([item]) == TokenCount(3_000 + 4, is_estimate=True)


def test_instructions_and_tools_are_counted_too() -> None:
    tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
    message_tokens = count_tokens([user_message("hi")]).tokens
    assert (
        message_tokens
        < count_tokens([user_message("hi")], instructions=PROSE).tokens
        < count_tokens([user_message("hi")], PROSE, tools).tokens
    )


def test_a_call_counts_with_its_name_and_its_arguments() -> None:
    assert count_tokens([CALL]).tokens > count_tokens([{**CALL, "arguments": ""}]).tokens


@given(ITEMS)
def test_any_item_is_counted_within_its_bound(item: Item) -> None:
    """The items include lone surrogates and fields of unknown item types."""
    assert 4 <= count_tokens([item]).tokens <= max_token_count([item])


@given(TEXT)
def test_no_text_has_more_tokens_than_bytes(words: str) -> None:
    assert count_tokens((), words).tokens <= max_token_count([user_message(words)])


@given(some.lists(ITEMS, max_size=5))
def test_the_counts_of_the_items_add_up_to_the_total(items: list[Item]) -> None:
    assert sum(count_item_tokens(items)) == count_tokens(items).tokens

"""The text of an item for display and for search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.compaction.window import summary_message
from convo.history.items import (
    Item,
    Json,
    assistant_message,
    conversation_title,
    decode_json_escapes,
    item_preview,
    item_text,
    searchable_text,
    user_message,
)
from tests.history.json_strategies import ITEMS

CALL = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": '{"city": "Paris"}'}
TEXTS: dict[str, tuple[Item, str]] = {
    "text in the short form": ({"role": "user", "content": "hi"}, "hi"),
    "text in parts": (user_message("hi", {"type": "input_text", "text": "there"}), "hi\nthere"),
    "an image beside text": (user_message("look", {"type": "input_image", "image_url": "data:..."}), "look"),
    "a refusal": ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "no"),
    "a reasoning summary": ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, "hm"),
    "a tool output": ({"type": "function_call_output", "call_id": "c", "output": "rain"}, "rain"),
    "a call": (CALL, ""),
    "invalid content": ({"role": "user", "content": {"text": 7}}, ""),
    "a transcript": ({"role": "user", "content": [{"type": "input_audio", "transcript": "hello"}]}, "hello"),
    "a part of several texts": ({"role": "user", "content": [{"text": "a", "refusal": "b"}, "odd", {}]}, "a\nb"),
    "texts in several fields": ({"summary": "a", "content": "b", "output": ["odd", {"text": "c"}]}, "a\nb\nc"),
}


@pytest.mark.parametrize(("item", "text"), TEXTS.values(), ids=TEXTS)
def test_the_text_of_an_item_is_read_in_every_form(item: Item, text: str) -> None:
    assert item_text(item) == text


def test_a_call_is_searched_by_its_name_and_arguments() -> None:
    assert searchable_text(CALL) == 'look_up\n{"city": "Paris"}'


def test_an_item_without_text_is_described_by_its_type_and_name() -> None:
    assert item_preview(CALL) == "[function_call] look_up"
    assert item_preview({}) == "[unknown]"


def test_an_excerpt_has_at_most_sixty_characters_unless_another_width_is_given() -> None:
    assert item_preview(user_message("m" * 60)) == "m" * 60
    assert item_preview(user_message("m" * 61)) == "m" * 59 + "…"


@given(ITEMS, st.integers(min_value=1, max_value=80))
def test_an_excerpt_is_one_short_line_for_any_item(item: Item, width: int) -> None:
    line = item_preview(item, width)

    assert 0 < len(line) <= width
    assert line == " ".join(line.split())


@given(st.text())
def test_typed_text_is_read_back_unchanged(words: str) -> None:
    assert item_text(user_message(words)) == item_text(assistant_message(words)) == words


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"type": "custom_tool_call", "name": "sed", "input": "s/a/b/"}, "sed\ns/a/b/"),
        ({"type": "x", "name": "n", "arguments": {"a": 1}, "output": "o", "input": ""}, "o\nn"),
        ({"role": "user", "content": ""}, ""),
    ],
)
def test_a_search_reads_the_text_the_name_and_the_input(item: Item, text: str) -> None:
    assert searchable_text(item) == text


@pytest.mark.parametrize(
    ("item", "width", "line"),
    [
        (user_message("one two three"), 13, "one two three"),
        (user_message("one two three"), 12, "one two thr…"),
        (user_message(" a\n\tb  c "), 5, "a b c"),
        (user_message("a b c d e f"), 3, "a …"),
        ({"type": "function_call", "name": "n" * 60}, 60, "[function_call] " + "n" * 43 + "…"),
        ({"type": "function_call", "name": 7}, 60, "[function_call]"),
    ],
)
def test_a_preview_is_cut_at_its_width(item: Item, width: int, line: str) -> None:
    assert item_preview(item, width) == line


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        (r"Z\u00fcrich", "Zürich"),
        (r"\u0058\u0041", "XA"),
        (r"\ud83c\udf89 \uD83C\uDF89", "🎉 🎉"),
        (r"\\u00fc", r"\\u00fc"),
        (r"\n\u00fc\"", '\\n\u00fc\\"'),
        (r"\u0022 \u005c \u000a \u202e \ud83c", r"\u0022 \u005c \u000a \u202e \ud83c"),
        (r"no escape \n", r"no escape \n"),
    ],
)
def test_only_escapes_of_printable_characters_are_decoded(text: str, decoded: str) -> None:
    assert decode_json_escapes(text) == decoded


# -- titles ----------------------------------------------------------------------------------------

TOOLS = {"type": "additional_tools", "tools": []}
DEVELOPER = {"role": "developer", "content": "You are a coding agent."}


def parts(*texts: str) -> dict[str, Json]:
    return {"role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}


@pytest.mark.parametrize(
    ("items", "title"),
    [
        ([], ""),
        ([parts("say hi")], "say hi"),
        ([TOOLS, DEVELOPER, parts("say hi"), parts("and again")], "say hi"),
        ([TOOLS, parts("<environment_context>\n<cwd>/x</cwd>\n</environment_context>"), parts("say hi")], "say hi"),
        ([parts("<user_instructions>\nBe brief.\n</user_instructions>"), parts("say hi")], "say hi"),
        ([parts("# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nBe brief.\n</INSTRUCTIONS>"), parts("hi")], "hi"),
        ([parts("<system-reminder>\none</system-reminder>", "<system-reminder>\ntwo", "say hi")], "say hi"),
        ([parts("<system-reminder>one</system-reminder>\n<system-reminder>two</system-reminder> say hi")], "say hi"),
        ([parts("why is <system-reminder> in my prompt?")], "why is <system-reminder> in my prompt?"),
        ([parts("<environment_context>only this")], "<environment_context>only this"),
        ([TOOLS, DEVELOPER], "[additional_tools]"),
        ([summary_message("They talked.")], "summary: They talked."),
        ([summary_message("They talked."), parts("say hi")], "say hi"),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}, parts("what is it?")],
            "what is it?",
        ),
    ],
)
def test_the_title_is_the_first_text_that_a_person_typed(items: list[Item], title: str) -> None:
    assert conversation_title(items) == title


def test_the_title_of_a_long_message_is_found_in_linear_time_and_cut() -> None:
    wrapped = "<system-reminder>x</system-reminder>" * 20_000
    assert conversation_title([parts(wrapped + "hello " * 100)], 12) == "hello hello…"

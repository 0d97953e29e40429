"""The last turns of a conversation that is gone on with."""

from convo.history.items import assistant_message, user_message
from convo.terminal.repl import MAX_PREVIEW_LINES, last_turn_lines
from convo.terminal.terminal import DisplayOptions, text_width


def test_the_last_turns_are_shown_with_who_said_them() -> None:
    items = [
        user_message("one"),
        assistant_message("1"),
        user_message("two"),
        assistant_message("2\n\nor so"),
        user_message("three"),
        assistant_message("3"),
    ]
    assert list(last_turn_lines(items, DisplayOptions(80))) == [
        "… 2 earlier messages",
        "> two",
        "  2",
        "  or so",
        "> three",
        "  3",
    ]


def test_they_are_dim_where_there_are_colours() -> None:
    assert list(last_turn_lines([user_message("hi")], DisplayOptions(80, has_color=True))) == ["\x1b[2m> hi\x1b[0m"]


def test_what_is_long_is_cut_to_the_terminal_and_to_a_few_lines() -> None:
    long = assistant_message("\n".join(["word " * 50] * (MAX_PREVIEW_LINES + 3)))
    lines = list(last_turn_lines([user_message("日本語" * 40), long], DisplayOptions(40)))
    assert max(map(text_width, lines)) <= 40
    assert lines[-1] == "  … 3 more lines"
    assert len(lines) == MAX_PREVIEW_LINES + 2


def test_files_that_went_along_are_not_shown_and_nothing_is_nothing() -> None:
    said = user_message("read it", {"type": "input_text", "text": "notes.md:\n# Notes"})
    assert list(last_turn_lines([said], DisplayOptions(80))) == ["> read it"]
    assert list(last_turn_lines([], DisplayOptions(80))) == []


def test_control_characters_are_spelled_out() -> None:
    assert list(last_turn_lines([user_message("a\x1b[2Jb")], DisplayOptions(80))) == ["> a\\x1b[2Jb"]

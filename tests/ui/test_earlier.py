"""The last turns of a conversation that is gone on with."""

from convo.items import assistant, user
from convo.ui.earlier import LINES, last_turns
from convo.ui.medium import Medium, width


def test_the_last_turns_are_shown_with_who_said_them() -> None:
    items = [user("one"), assistant("1"), user("two"), assistant("2\n\nor so"), user("three"), assistant("3")]
    assert list(last_turns(items, Medium(80))) == ["… 2 earlier", "> two", "  2", "  or so", "> three", "  3"]


def test_they_are_dim_where_there_are_colours() -> None:
    assert list(last_turns([user("hi")], Medium(80, colour=True))) == ["\x1b[2m> hi\x1b[0m"]


def test_what_is_long_is_cut_to_the_terminal_and_to_a_few_lines() -> None:
    long = assistant("\n".join(["word " * 50] * (LINES + 3)))
    lines = list(last_turns([user("日本語" * 40), long], Medium(40)))
    assert max(map(width, lines)) <= 40
    assert lines[-1] == "  … 3 more lines"
    assert len(lines) == LINES + 2


def test_files_that_went_along_are_not_shown_and_nothing_is_nothing() -> None:
    said = user("read it", {"type": "input_text", "text": "notes.md:\n# Notes"})
    assert list(last_turns([said], Medium(80))) == ["> read it"]
    assert list(last_turns([], Medium(80))) == []


def test_control_characters_are_spelled_out() -> None:
    assert list(last_turns([user("a\x1b[2Jb")], Medium(80))) == ["> a\\x1b[2Jb"]

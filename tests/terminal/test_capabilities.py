"""The capabilities of an output, and text that is fitted to its width."""

import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.terminal.terminal import (
    VARIABLE_WIDTH_CHAR,
    DisplayOptions,
    detect_display,
    pad_text,
    text_width,
    truncate_text,
    wrap_line,
    wrap_text,
)


class FakeTerminal(io.TextIOWrapper):
    """A stream whose `isatty` is true."""

    def isatty(self) -> bool:
        return True


def fake_terminal(encoding: str = "utf-8") -> FakeTerminal:
    return FakeTerminal(io.BytesIO(), encoding=encoding)


def test_a_pipe_has_no_width_and_no_colour() -> None:
    assert detect_display(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), {}) == DisplayOptions(
        None, has_color=False, has_box_chars=True
    )


def test_a_terminal_has_width_and_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "93")
    assert detect_display(fake_terminal(), {"TERM": "xterm"}) == DisplayOptions(93, has_color=True, has_box_chars=True)


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_disabled(environ: dict[str, str]) -> None:
    assert not detect_display(fake_terminal(), environ).has_color


def test_an_empty_no_color_disables_nothing() -> None:
    assert detect_display(fake_terminal(), {"NO_COLOR": ""}).has_color


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_without_unicode_plain_characters_are_used(encoding: str) -> None:
    display = detect_display(fake_terminal(encoding), {})
    assert display.translate_box_chars("├─● a → b…") == "|-* a > b~"


def test_styles_are_written_only_in_colour() -> None:
    assert DisplayOptions(80, has_color=True).apply_style("x", "bold") == "\x1b[1mx\x1b[0m"
    assert DisplayOptions(80).apply_style("x", "bold") == "x"
    assert DisplayOptions(80, has_color=True).apply_style("", "bold") == ""


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("👍🏽", 4), ("a\u200bb", 2), ("", 0)]
)
def test_width_counts_columns_and_not_characters(text: str, columns: int) -> None:
    assert text_width(text) == columns


def test_characters_with_a_fast_path_are_one_column_wide() -> None:
    fast_path_chars = [char for char in map(chr, range(0x3000)) if not re.match(VARIABLE_WIDTH_CHAR, char)]
    assert len(fast_path_chars) > 800
    assert not [
        char for char in fast_path_chars if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Mn")
    ]
    assert not [char for char in fast_path_chars if unicodedata.east_asian_width(char) in "WF"]


def test_truncated_text_is_marked() -> None:
    assert truncate_text("abcdef", 6) == "abcdef"
    assert truncate_text("abcdef", 5) == "abcd…"
    assert truncate_text("abcdef", 1) == "…"
    assert truncate_text("日本語", 5) == "日本…"
    assert truncate_text("日本語", 4) == "日…"
    assert truncate_text("ab cdef", 4) == "ab…"
    assert truncate_text("abc", 0) == ""


@given(st.text(), st.integers(0, 40))
def test_truncated_text_is_never_wider_than_its_column(text: str, columns: int) -> None:
    assert text_width(truncate_text(text, columns)) <= columns


def test_padding_is_counted_in_columns() -> None:
    assert pad_text("日本", 6) == "日本  "


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (None, ["one two · resp_0000", "three"]),
        (19, ["one two · resp_0000", "three"]),
        (18, ["one two ·", "  resp_0000", "three"]),
        (4, ["one", "  two", "  ·", "  resp_0000", "three"]),
    ],
)
def test_a_sentence_wraps_between_words(columns: int | None, lines: list[str]) -> None:
    assert wrap_text("one two · resp_0000\nthree", columns).split("\n") == lines


ADDRESS = "http://127.0.0.1:8000/v1/responses/resp_1?limit=100"


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        (
            f"no answer from {ADDRESS}",
            36,
            ["no answer from", "  http://127.0.0.1:8000/v1/", "  responses/resp_1?limit=100"],
        ),
        ("  at SmolLM2-135M-Instruct-Q4 or", 30, ["  at SmolLM2-135M-Instruct-Q4", "    or"]),
        ("  SmolLM2-135M-Instruct-Q4", 25, ["  SmolLM2-135M-", "    Instruct-Q4"]),
        ("x" * 27 + " y", 25, ["x" * 23, "  xxxx y"]),
        ("日" * 12 + "/" + "本" * 3, 26, ["日" * 12, "  /本本本"]),
        ("日" * 11 + "/" + "本" * 3, 26, ["日" * 11 + "/", "  本本本"]),
    ],
)
def test_a_word_that_is_longer_than_a_line_is_split_after_a_separator(
    text: str, columns: int, lines: list[str]
) -> None:
    assert wrap_text(text, columns).split("\n") == lines


@given(st.text("ab/-_?&日é\u0301 ", max_size=60), st.integers(23, 40))
def test_a_wrapped_line_is_never_wider_and_keeps_its_characters(text: str, columns: int) -> None:
    wrapped = wrap_text(text, columns)
    assert wrapped.replace("\n", "").replace(" ", "") == text.replace(" ", "")
    if not text.startswith(" "):
        assert all(text_width(line) <= columns for line in wrapped.split("\n"))


def test_a_command_is_only_wrapped_between_words() -> None:
    assert list(wrap_line(f"see {ADDRESS}", 36)) == ["see", f"  {ADDRESS}"]

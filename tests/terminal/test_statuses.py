"""The sign, the word and the style of a status."""

import pytest

from convo.history.records import LINK_STATUSES
from convo.terminal import statuses
from convo.terminal.statuses import (
    STATUS_MARKS,
    Status,
    StatusMark,
    format_failure,
    format_line_start,
    status_column,
)
from convo.terminal.tables import render_table
from convo.terminal.terminal import BOX_CHARS, DisplayOptions, text_width
from convo.terminal.theme import STYLES

MARKS = {mark for mark in vars(statuses).values() if isinstance(mark, StatusMark)}


def test_every_status_of_a_response_has_a_mark() -> None:
    assert set(STATUS_MARKS) == set(LINK_STATUSES)


@pytest.mark.parametrize("mark", sorted(MARKS))
def test_every_sign_takes_one_column_and_has_an_ascii_form(mark: StatusMark) -> None:
    assert text_width(mark.sign) == 1
    assert mark.sign.isascii() or mark.sign in BOX_CHARS
    ascii_sign = DisplayOptions(80, has_box_chars=False).translate_box_chars(mark.sign)
    assert ascii_sign.isascii()
    assert len(ascii_sign) == 1
    assert mark.style in STYLES


def test_a_terminal_shows_sign_and_word_and_a_pipe_the_word() -> None:
    column = status_column("status", [Status("failed", STATUS_MARKS["failed"]), Status("-")], DisplayOptions(80))
    assert render_table([column], DisplayOptions(80)).splitlines() == [
        "╭──────────╮",
        "│ status   │",
        "├──────────┤",
        "│ ✗ failed │",
        "│ -        │",
        "╰──────────╯",
    ]
    piped = status_column("status", [Status("failed", STATUS_MARKS["failed"])], DisplayOptions())
    assert render_table([piped], DisplayOptions()) == "status\nfailed"
    assert format_line_start(STATUS_MARKS["failed"], DisplayOptions()) == ""


def test_only_the_status_is_colored() -> None:
    display = DisplayOptions(59, has_color=True)
    column = status_column(
        "preview", [Status("failed", STATUS_MARKS["failed"]), Status("")], display, suffixes=[": hi", "ho"]
    )
    assert render_table([column], display).splitlines()[1:] == ["\x1b[31m✗ failed\x1b[0m: hi", "ho"]


def test_a_status_that_is_cut_keeps_its_style() -> None:
    display = DisplayOptions(6, has_color=True)
    column = status_column("status", [Status("cancelled", STATUS_MARKS["cancelled"])], display)
    assert render_table([column], display).splitlines()[1] == "\x1b[2m⊘ can…\x1b[0m"


def test_the_reason_of_a_failure_is_wrapped_also_after_a_command_and_the_next_step_keeps_its_command() -> None:
    message, hint = "convo tap needs aiohttp, brotli, httptools", "run convo chat --from mine --session now"
    assert format_failure(message, hint, DisplayOptions(32)).splitlines() == [
        "✗ convo: convo tap needs",
        "  aiohttp, brotli, httptools",
        "  try: run convo chat --from mine --session now",
    ]


def test_the_program_of_a_command_stays_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")
    failure = format_failure("no session 'mine'", "convo chat --from yours", DisplayOptions(34))
    assert failure.splitlines()[1:] == ["  try:", "    uv run convo chat --from yours"]

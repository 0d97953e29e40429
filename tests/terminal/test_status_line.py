"""The status line below the prompt."""

import pytest

from convo.terminal.status_line import StatusLine, StatusLineState
from convo.terminal.terminal import text_width

FULL = StatusLineState("session what-is-a-monad", "openai/gpt-5-mini", 12_345, 400_000, 0.0123, 1)


def line(state: StatusLineState, columns: int) -> str:
    """The status line for `columns`; the terminal has one more column, which stays empty."""
    status_line = StatusLine()
    status_line.state = state
    return status_line.render(columns + 1)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (120, "session what-is-a-monad · openai/gpt-5-mini · 3.1% of 400,000 · $0.0123 · +1"),
        (70, "session what-is-a-monad · gpt-5-mini · 3.1% · $0.0123 · +1"),
        (56, "session what-is-a-m… · gpt-5-mini · 3.1% · $0.0123 · +1"),
        (50, "session what-i… · gpt-5-mini · 3.1% · $0.0123 · +1"),
        (45, "session what-is-a-m… · 3.1% · $0.0123 · +1"),
        (38, "session what-is… · 3.1% · $0.0123 · +1"),
        (35, "session what-is-a-m… · 3.1% · +1"),
        (10, "session w…"),
    ],
)
def test_the_status_line_shows_what_fits_starting_with_the_strategy(columns: int, text: str) -> None:
    assert line(FULL, columns) == text


def test_the_status_line_is_never_wider_than_the_terminal() -> None:
    wide = FULL._replace(owner="session 日本語のお話をしましょう")
    too_wide = [
        columns
        for columns in range(1, 100)
        if max(text_width(line(FULL, columns)), text_width(line(wide, columns))) > columns
    ]
    assert too_wide == []


def test_the_cost_is_a_lower_bound_if_a_request_has_no_price() -> None:
    assert line(FULL._replace(is_cost_partial=True), 120).endswith(" · at least $0.0123 · +1")
    assert line(FULL._replace(cost_usd=None, is_cost_partial=True), 120).endswith(" of 400,000 · +1")


def test_unknown_figures_are_omitted() -> None:
    assert line(StatusLineState("session", "scripted/echo"), 80) == "session · scripted/echo"
    assert (
        line(StatusLineState("session x", "scripted/echo", used_tokens=7), 80) == "session x · scripted/echo · 7 tokens"
    )
    assert StatusLine().render(80) == ""

"""The minimal output that updates a terminal."""

import io

from hypothesis import given
from hypothesis import strategies as st

from convo.terminal.markdown import RowPainter, build_screen_update
from tests.terminal.markdown.markdown_layout import displayed_lines

rows = st.lists(st.sampled_from(("a", "ab", "abc", "", "x", "\x1b[1mb\x1b[0m")), max_size=6)


@given(finished=st.lists(st.tuples(rows, rows), min_size=1, max_size=6))
def test_the_terminal_shows_finished_and_open_rows(finished: list[tuple[list[str], list[str]]]) -> None:
    out = io.StringIO()
    painter = RowPainter(out)
    for finished_rows, open_rows in finished:
        painter.update(finished_rows, open_rows)
    all_rows = [row for finished_rows, _ in finished for row in finished_rows] + finished[-1][1]
    assert displayed_lines(out.getvalue(), 20) == displayed_lines("\n".join(all_rows), 20)


def test_appended_text_is_written_alone() -> None:
    assert build_screen_update(["one", "two"], ["one", "two thr"]) == " thr"
    assert build_screen_update(["one", "two"], ["one", "two three", "four"]) == " three\nfour"
    assert build_screen_update(["one"], ["one"]) == ""


def test_the_cursor_goes_no_higher_than_the_first_row_that_changed() -> None:
    assert build_screen_update(["one", "two", "three"], ["one", "TWO", "three"]) == "\x1b[1A\r\x1b[JTWO\nthree"


def test_of_many_open_rows_the_last_are_drawn() -> None:
    out = io.StringIO()
    RowPainter(out).update([], [str(number) for number in range(20)], max_rows=6)
    assert out.getvalue().split() == [str(number) for number in range(14, 20)]

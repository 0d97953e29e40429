"""Tables that are fitted to the width of a terminal."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from convo.terminal.tables import MAX_BOXED_ROWS, Column, fit_box, fit_columns, render_table, table_lines
from convo.terminal.terminal import DisplayOptions, cut_after_word, text_width

COLUMNS = [
    Column("id", ["one", "two"]),
    Column("owner", ["chain", "chain"], drop_order=1),
    Column("in", ["7", "1,024"], align_right=True, drop_order=2),
    Column("words", ["what is a monad", "日本語 and more words"]),
]


def test_in_a_pipe_every_row_has_every_column() -> None:
    assert render_table(COLUMNS, DisplayOptions()) == (
        "id   owner     in  words\n"  #
        "one  chain      7  what is a monad\n"
        "two  chain  1,024  日本語 and more words"
    )


def test_in_a_narrow_terminal_constant_columns_are_shown_once() -> None:
    table = fit_columns(COLUMNS, DisplayOptions(26))
    assert table.common_cells == (("owner", "chain"),)
    assert "\n".join(table_lines(table, DisplayOptions(26))) == (
        "id      in  words\n"  #
        "one      7  what is a…\n"
        "two  1,024  日本語 and…"
    )
    assert render_table(COLUMNS, DisplayOptions(26)) == "\n".join(table_lines(table, DisplayOptions(26)))


def test_in_a_narrower_terminal_columns_are_omitted_by_priority() -> None:
    table = fit_columns(COLUMNS, DisplayOptions(20))
    assert [column.heading for column in table.columns] == ["id", "words"]
    assert table.common_cells == (("owner", "chain"),)


def test_a_last_column_of_numbers_or_dates_is_dropped_or_whole_but_not_cut() -> None:
    columns = [Column("id", ["one", "two"]), Column("date", ["2026-01-31 12:00", "2026-01-31 12:01"], drop_order=1)]
    assert [column.heading for column in fit_columns(columns, DisplayOptions(21)).columns] == ["id", "date"]
    assert [column.heading for column in fit_columns(columns, DisplayOptions(20)).columns] == ["id"]
    numbers = [Column("id", ["one", "two"]), Column("bytes", ["1", "20"], align_right=True)]
    lines = list(table_lines(fit_columns(numbers, DisplayOptions()), DisplayOptions()))
    assert lines == ["id   bytes", "one      1", "two     20"]


def test_a_narrow_table_cuts_names_and_texts_after_a_word_and_shows_numbers_as_a_whole() -> None:
    columns = [
        Column("name", ["a name of many words", "short"], min_width=10),
        Column("status", ["✓ done", "! incomplete"]),
        Column("heading", ["1,024", "7"], align_right=True),
    ]

    def lines(width: int) -> list[str]:
        return list(table_lines(fit_columns(columns, DisplayOptions(width)), DisplayOptions(width)))

    assert lines(36) == [
        "name           status        heading",
        "a name of…     ✓ done          1,024",
        "short          ! incomplete        7",
    ]
    assert lines(31) == [
        "name        status        head…",
        "a name of…  ✓ done        1,024",
        "short       ! incomplete      7",
    ]
    assert all("1,024" in "".join(lines(width)) or "1" not in "".join(lines(width)) for width in range(1, 60))


def test_a_long_word_is_cut_where_half_of_the_line_would_be_lost() -> None:
    assert cut_after_word("see https://example.com/a/long/path", 20) == "see https://example…"
    assert cut_after_word("what is a monad", 12) == "what is a…"
    assert cut_after_word("what is a monad", 10) == "what is a…"
    assert cut_after_word("what is a monad", 15) == "what is a monad"
    assert cut_after_word("a long categorization", 19) == "a long categorizat…"


def test_a_table_of_one_row_keeps_its_columns() -> None:
    only = [Column("id", ["one"]), Column("owner", ["chain"], drop_order=1), Column("words", ["w" * 40])]
    assert fit_columns(only, DisplayOptions(60)).common_cells == ()


def test_colours_do_not_move_the_columns() -> None:
    styled = [Column("id", ["a", "bc"], style="id"), Column("words", ["x", "y"])]
    display = DisplayOptions(80, has_color=True)
    assert list(table_lines(fit_columns(styled, display), display)) == [
        "\x1b[2mid  words\x1b[0m",
        "\x1b[36ma \x1b[0m  x",
        "\x1b[36mbc\x1b[0m  y",
    ]


BOXED = """\
╭─────┬───────┬───────┬───────────────────────╮
│ id  │ owner │    in │ words                 │
├─────┼───────┼───────┼───────────────────────┤
│ one │ chain │     7 │ what is a monad       │
│ two │ chain │ 1,024 │ 日本語 and more words │
╰─────┴───────┴───────┴───────────────────────╯"""


def test_a_terminal_of_usual_width_has_a_box_with_ascii_lines_if_needed() -> None:
    assert render_table(COLUMNS, DisplayOptions(60)) == BOXED
    ascii_table = render_table(COLUMNS[:3], DisplayOptions(60, has_box_chars=False))
    assert ascii_table.isascii()
    assert ascii_table.splitlines()[:2] == ["+---------------------+", "| id  | owner |    in |"]


def test_a_narrow_terminal_has_no_box() -> None:
    assert render_table(COLUMNS, DisplayOptions(59)) == render_table(COLUMNS, DisplayOptions())


def test_a_box_costs_no_column() -> None:
    columns = [Column(f"c{index}", ["x" * 11, "y"], align_right=True, drop_order=index) for index in range(5)]
    tables = {width: fit_box(columns, DisplayOptions(width)) for width in (60, 62, 63, 70, 71)}
    assert {width: (len(table.columns), table.is_boxed) for width, table in tables.items()} == {
        60: (4, True),
        62: (4, True),
        63: (5, False),
        70: (5, False),
        71: (5, True),
    }


def test_a_box_cuts_no_name_and_leaves_twenty_columns_of_the_last_text() -> None:
    columns = [Column("name", ["n" * 30, "m"], min_width=10), Column("text", ["t" * 40, "u"], min_width=10)]
    assert all(fit_box(columns, DisplayOptions(width)).is_boxed for width in (60, 61, 76, 77))
    columns = [*columns[:1], Column("size", ["1" * 10, "2"], align_right=True), *columns[1:]]
    is_boxed = {width: fit_box(columns, DisplayOptions(width)).is_boxed for width in (60, 69, 70, 90)}
    assert is_boxed == {60: False, 69: False, 70: True, 90: True}


def test_a_table_in_full_has_a_box_only_where_it_fits() -> None:
    wide = DisplayOptions(60, has_all_columns=True)
    assert render_table(COLUMNS, wide) == BOXED
    long = [*COLUMNS, Column("more", ["m" * 40, "n"])]
    assert render_table(long, wide) == "\n".join(table_lines(fit_columns(long, DisplayOptions()), DisplayOptions()))


def test_a_long_table_has_plain_lines() -> None:
    columns = [Column("id", [str(number) for number in range(MAX_BOXED_ROWS + 1)], style="id")]
    display = DisplayOptions(80, has_color=True)
    assert render_table(columns, display).splitlines() == list(table_lines(fit_columns(columns, display), display))
    shorter = [columns[0]._replace(cells=columns[0].cells[1:])]
    assert render_table(shorter, DisplayOptions(80)).startswith("╭")


def test_a_cell_has_its_style_and_its_start_another_one() -> None:
    columns = [Column("id", ["├── a", "bc"], style="id", start_styles=[(4, "dim"), None]), Column("n", ["1", "2"])]
    assert render_table(columns, DisplayOptions(40, has_color=True)).splitlines() == [
        "\x1b[2mid     n\x1b[0m",
        "\x1b[2m├── \x1b[0m\x1b[36ma\x1b[0m  1",
        "\x1b[36mbc   \x1b[0m  2",
    ]


def test_control_characters_are_escaped() -> None:
    hostile = [Column("id", ["a"]), Column("words", ["\x1b[2Jgone"])]
    assert "\x1b" not in render_table(hostile, DisplayOptions(80))
    assert "[red]a[/red]" in render_table([Column("id", ["[red]a[/red]"])], DisplayOptions(80))
    assert list(table_lines(fit_columns(hostile, DisplayOptions()), DisplayOptions()))[1] == "a   \\x1b[2Jgone"


CELLS = st.lists(st.text(max_size=30), min_size=2, max_size=2)


@given(st.lists(CELLS, min_size=1, max_size=6), st.integers(1, 100))
def test_no_line_is_wider_than_the_terminal(cells: list[list[str]], columns: int) -> None:
    table_columns = [
        Column(f"c{index}", values, drop_order=index if index % 2 else None) for index, values in enumerate(cells)
    ]
    display = DisplayOptions(columns)
    assert all(text_width(line) <= columns for line in table_lines(fit_columns(table_columns, display), display))
    assert all(cell_len(line) <= max(columns, 1) for line in render_table(table_columns, display).split("\n"))

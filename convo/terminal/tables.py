"""Tables that drop columns to fit, and panels and bars.

A pipe gets a table as plain lines. rich, which paints the others, is imported with the first one.

Tables come with the columns and the widths that `fit_columns` chose, and with cells that are cut already: rich neither
wraps a word nor cuts a number.
"""

import io
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from convo.terminal.terminal import CLICKABLE_URL, DisplayOptions, cut_after_word, escape_control_chars, text_width
from convo.terminal.theme import make_rich_theme

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PANEL_COLUMNS = 4
"""Width of the two borders of a panel, each with a blank."""

PANEL_TITLE_COLUMNS = 6
"""Width of the border beside the title; a longer title is cut."""


COLUMN_GAP = 2

BOX_GAP = 3
"""Columns between two cells in a box: a line with a blank on both sides."""

BOX_EDGES = 4
"""Columns of the left and the right edge of a box, with their blanks."""

MIN_BOX_COLUMNS = 60
"""Columns of a terminal from which on tables have a box; a narrower one needs the space for the cells."""

MIN_BOXED_TEXT_COLUMNS = 20
"""Columns to which a box may cut the last column."""

MAX_BOXED_ROWS = 200
"""Rows up to which a table has a box, which rich paints.

It takes 75 to 100 us a cell, also with given widths and in pieces of 100 rows: 1.7 s for 2,000 rows of 8 columns, where
`table_lines` takes 18 ms.
"""

MIN_LAST_COLUMN_WIDTH = 12
"""Width of a last column of text below which other columns are dropped first.

A last column of numbers, or one that can be dropped itself, counts with its full width: it is not cut.
"""

MIN_HEADING_WIDTH = 4
"""Columns of the heading of narrow numbers that are left where nothing else can be cut."""


class Column(NamedTuple):
    """One column of a table; `cells` has a string for every line.

    align_right:  for numbers
    drop_order:   on a narrow display the column with the lowest value is dropped first; None: never dropped
    min_width:    the width to which texts, such as names, may be cut; None: other columns are dropped instead
    style:        a style of the theme, for all cells
    links:        the URL of each cell, on a terminal with links; None for a cell without
    start_styles: (number of first characters, style) of a cell, instead of `style`; None for a cell without
    """

    heading: str
    cells: Sequence[str]
    align_right: bool = False
    drop_order: int | None = None
    style: str | None = None
    start_styles: Sequence[tuple[int, str] | None] = ()
    min_width: int | None = None
    links: Sequence[str | None] = ()

    @property
    def common_cell(self) -> str | None:
        """The cell that all lines share; None if they differ or if there is only one line."""
        return self.cells[0] if len(self.cells) > 1 and len(set(self.cells)) == 1 else None

    @property
    def width(self) -> int:
        return max(map(text_width, (self.heading, *self.cells)))

    def fit_cell(self, row: int | None, width: int) -> tuple[str, int]:
        """Return a cell, or the heading for `row` None, in at most `width`, and its own width.

        A number is shown as a whole or not.
        """
        cell = self.heading if row is None else self.cells[row]
        cell_width = text_width(cell)
        if cell_width <= width:
            return cell, cell_width
        cut = "…"[:width] if self.align_right and row is not None else cut_after_word(cell, width)
        return cut, text_width(cut)

    def least_width(self, *, is_last: bool) -> int:
        """The width without which other columns are dropped first."""
        is_flexible_end = is_last and self.drop_order is None and not self.align_right
        min_width = MIN_LAST_COLUMN_WIDTH if self.min_width is None and is_flexible_end else self.min_width
        return self.width if min_width is None else min(self.width, min_width)


class Table(NamedTuple):
    """Columns that fit the display.

    widths:        of the columns
    common_cells:  (heading, cell) of the dropped columns whose cells are all equal
    is_boxed:      whether there is space for a box
    """

    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    common_cells: tuple[tuple[str, str], ...] = ()
    is_boxed: bool = False


def fit_columns(columns: Sequence[Column], display: DisplayOptions, *, is_boxed: bool = False) -> Table:
    """Escape all cells, and drop columns until the table fits the display."""
    kept = [column._replace(cells=tuple(map(escape_control_chars, column.cells))) for column in columns]
    common_cells: list[tuple[str, str]] = []
    gap, edges = (BOX_GAP, BOX_EDGES) if is_boxed else (COLUMN_GAP, 0)
    table_width = None if display.table_width is None else display.table_width - edges
    for column in sorted(kept, key=_drop_key):
        if column.drop_order is None or not _is_too_wide(kept, table_width, gap):
            break
        kept.remove(column)
        if column.common_cell is not None:
            common_cells.append((column.heading, column.common_cell))
    while table_width is not None and (gap + 1) * len(kept) - gap > max(1, table_width):
        kept.pop()
    order = [column.heading for column in columns]
    common_cells.sort(key=lambda pair: order.index(pair[0]))
    return Table(tuple(kept), _choose_widths(kept, table_width, gap), tuple(common_cells), is_boxed)


def table_lines(table: Table, display: DisplayOptions) -> Iterator[str]:
    """Yield the headings, then one line for each row, without a box, no wider than the display."""
    yield display.apply_style(_format_row(table, None, display._replace(has_color=False)), "dim")
    for index in range(len(table.columns[-1].cells)):
        yield _format_row(table, index, display)


def render_table(columns: Sequence[Column], display: DisplayOptions) -> str:
    """Render a table that fits the display."""
    table = fit_box(columns, display)
    lines = boxed_lines(table, display) if table.is_boxed else table_lines(table, display)
    return display.translate_box_chars("\n".join(lines))


def fit_box(columns: Sequence[Column], display: DisplayOptions) -> Table:
    """Fit a table into a box, or without one where a box would cost a column or cut a name.

    Only the last column may lose some text to a box. A table has none on a pipe, in a narrow terminal, or if it is long
    or wider than the terminal.
    """
    table = fit_columns(columns, display)
    if display.width is None or display.width < MIN_BOX_COLUMNS or len(columns[0].cells) > MAX_BOXED_ROWS:
        return table
    boxed = fit_columns(columns, display, is_boxed=True)
    width = sum(boxed.widths) + BOX_GAP * (len(boxed.widths) - 1) + BOX_EDGES
    is_uncut = boxed.widths[:-1] == table.widths[:-1] and boxed.widths[-1] >= min(
        table.widths[-1], MIN_BOXED_TEXT_COLUMNS
    )
    return boxed if is_uncut and width <= display.width else table


def _format_row(table: Table, row: int | None, display: DisplayOptions) -> str:
    """Format one line, or the headings for `row` None. Texts are cut after a word; a number is shown as a whole."""
    shown: list[str] = []
    for index, (column, width) in enumerate(zip(table.columns, table.widths, strict=True)):
        text, own_width = column.fit_cell(row, width)
        is_padded = column.align_right or index < len(table.columns) - 1
        padding = " " * (width - own_width) if is_padded else ""
        start_style = column.start_styles[row] if row is not None and column.start_styles else None
        if start_style:
            length, style = start_style
            rest = display.apply_style(text[length:], column.style) if column.style else text[length:]
            text = display.apply_style(text[:length], style) + rest
        if row is not None and column.links:
            text = display.link_text(text, column.links[row])
        padded = padding + text if column.align_right else text + padding
        shown.append(display.apply_style(padded, column.style) if column.style and not start_style else padded)
    return (" " * COLUMN_GAP).join(shown).rstrip()


def _drop_key(column: Column) -> tuple[bool, int]:
    """Sort key of the columns to drop: first those whose cells are all equal, then by drop order."""
    is_required = column.drop_order is None
    return (is_required or column.common_cell is None, 1_000 if column.drop_order is None else column.drop_order)


def _is_too_wide(columns: Sequence[Column], table_width: int | None, gap: int) -> bool:
    if table_width is None:
        return False
    least = sum(column.least_width(is_last=index == len(columns) - 1) for index, column in enumerate(columns))
    return least + gap * (len(columns) - 1) > table_width


def _choose_widths(columns: Sequence[Column], table_width: int | None, gap: int) -> tuple[int, ...]:
    """Return the widths of the columns.

    Where they do not fit, the texts that may be cut lose their ends first, from the last column to the first; then the
    headings of numbers; then, on a display of a few columns, the widest ones.
    """
    widths = [column.width for column in columns]
    if table_width is None:
        return tuple(widths)
    last = len(columns) - 1
    excess = sum(widths) + gap * last - table_width
    least = [column.least_width(is_last=index == last) for index, column in enumerate(columns)]
    headings = [
        max(MIN_HEADING_WIDTH, *map(text_width, column.cells)) if column.align_right else least[index]
        for index, column in enumerate(columns)
    ]
    for limits in (least, headings):
        for index in range(last, -1, -1):
            cut = max(0, min(excess, widths[index] - limits[index]))
            widths[index] -= cut
            excess -= cut
    while excess > 0 and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
        excess -= 1
    return tuple(widths)


def panel_lines(
    title: str, lines: list[str], display: DisplayOptions, *, footer: str = "", border_style: str = "dim"
) -> list[str]:
    """Return a panel as wide as the terminal with `title` in its upper border.

    lines:   at most `display.width - PANEL_COLUMNS` wide, escaped, and in the styles of the display; a longer line
             is folded
    footer:  a dim text in the lower border, cut at its end
    """
    from rich.box import ASCII, ROUNDED
    from rich.panel import Panel
    from rich.text import Text

    panel = Panel(
        Text.from_ansi("\n".join(lines), overflow="fold"),
        title=Text(escape_control_chars(" ".join(title.split())), style="bold not dim default"),
        title_align="left",
        subtitle=Text(escape_control_chars(footer), style="dim") if footer else None,
        subtitle_align="left",
        border_style=border_style,
        box=ROUNDED if display.has_box_chars else ASCII,
        width=display.width,
    )
    return _render(panel, display)


def boxed_lines(table: Table, display: DisplayOptions) -> list[str]:
    """Return the lines of a table in a box."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shape = box.ROUNDED if display.has_box_chars else box.ASCII
    painted = RichTable(box=shape, border_style="dim", header_style="dim")
    for column, width in zip(table.columns, table.widths, strict=True):
        painted.add_column(
            Text(column.fit_cell(None, width)[0]),
            justify="right" if column.align_right else "left",
            width=width,
            no_wrap=True,
        )
    for row in range(len(table.columns[0].cells)):
        painted.add_row(
            *(
                _make_cell(column, row, width, display)
                for column, width in zip(table.columns, table.widths, strict=True)
            )
        )
    used_width = sum(table.widths) + BOX_GAP * len(table.widths) + BOX_EDGES
    return _render(painted, display._replace(width=max(used_width, display.width or 0)))


def _make_cell(column: Column, row: int, width: int, display: DisplayOptions) -> "Text":
    """Return a cell in the style of its column, or with a start of its own style, and with its link."""
    from rich.style import Style
    from rich.text import Text

    start_length, start_style = (column.start_styles[row] if column.start_styles else None) or (0, "")
    cell = Text(column.fit_cell(row, width)[0], no_wrap=True, overflow="ellipsis", end="")
    cell.stylize(start_style, 0, start_length)
    cell.stylize(column.style or "", start_length)
    url = column.links[row] if column.links else None
    if display.has_links and url and CLICKABLE_URL.fullmatch(url):
        cell.stylize(Style(link=url))
    return cell


def render_bar(value: int, total: int, columns: int, display: DisplayOptions, *, is_padded: bool = False) -> str:
    """Return a bar that is `columns` long for `value` = `total`, to an eighth of a column.

    A value above zero takes one column at least.

    is_padded:  add blanks up to `columns`
    """
    from rich.bar import Bar

    end = max(value, total / columns) if value else 0
    (line,) = _render(Bar(total, 0, end, width=columns), display._replace(has_color=False, width=columns))
    bar = line if display.has_box_chars else "#" * round(columns * end / total)
    return display.apply_style(bar, "id") + (" " * (columns - len(bar)) if is_padded else "")


def _render(renderable: object, display: DisplayOptions) -> list[str]:
    """Return the lines of a renderable of rich, without blanks at their ends and without the ids of its links."""
    console = _make_console(display)
    with console.capture() as capture:
        console.print(renderable)
    # rich's ids of links are random: the output of one table would differ from run to run.
    lines = LINK_ID.sub("\x1b]8;;", capture.get()).rstrip("\n").split("\n")
    return [_merge_styles(BLANK_END.sub(r"\1", line)) for line in lines]


def _merge_styles(line: str) -> str:
    """Write a style once that several pieces in a row have: rich ends and begins it at each cell."""
    while (merged := REPEATED_STYLE.sub(r"\1\2", line)) != line:
        line = merged
    return line


REPEATED_STYLE = re.compile(r"(\x1b\[[\d;]*[1-9]m)([^\x1b]*)\x1b\[0m\1")


LINK_ID = re.compile(r"\x1b\]8;id=\d+;")
BLANK_END = re.compile(r" +((?:\x1b\[[\d;]*m)*)$")
"""Blanks at the end of a line, perhaps with a style."""


@lru_cache(4)
def _make_console(display: DisplayOptions) -> "Console":
    from rich.console import Console

    return Console(
        file=io.StringIO(),
        width=display.width,
        force_terminal=True,
        color_system=display.color_system if display.has_color else None,
        theme=make_rich_theme(display.color_system),
        legacy_windows=False,
        highlight=False,
    )

"""Panels, tables and bars on a terminal, painted by rich.

It is imported with the first one, so a pipe never loads it.

Tables come with the columns and the widths that `fit_columns` chose, and with cells that are cut already: rich neither
wraps a word nor cuts a number.
"""

import io
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from convo.terminal.terminal import (
    BOX_EDGES,
    BOX_GAP,
    CLICKABLE_URL,
    Column,
    DisplayOptions,
    Table,
    escape_control_chars,
)
from convo.terminal.theme import make_rich_theme

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PANEL_COLUMNS = 4
"""Columns of the borders of a panel and of the blanks beside them."""

PANEL_TITLE_COLUMNS = 6
"""Columns of the border beside the title; a longer title is cut."""


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

"""Panels and bars on a terminal, drawn by rich, which is imported when the first one is drawn: a pipe never loads it.

Tables are not drawn by rich: its layout takes 75 us a cell, 1.2 s for 2,000 requests of 8 columns, and `table_lines`
18 ms; and pipes need the columns, their order and their padding all the same.
"""

import io
from functools import lru_cache
from typing import TYPE_CHECKING

from convo.terminal.terminal import DisplayOptions, escape_control_chars
from convo.terminal.theme import RICH_COLOR_SYSTEMS, make_rich_theme

if TYPE_CHECKING:
    from rich.console import Console

PANEL_COLUMNS = 4
"""Columns of the borders of a panel and of the blanks beside them."""

PANEL_TITLE_COLUMNS = 6
"""Columns of the border beside the title; a longer title is cut."""


def panel_lines(title: str, lines: list[str], display: DisplayOptions) -> list[str]:
    """Return a panel as wide as the terminal with `title` in its border.

    lines:  at most `display.width - PANEL_COLUMNS` wide, escaped, and in the styles of the display; a longer line
            is folded
    """
    from rich.box import ASCII, ROUNDED
    from rich.panel import Panel
    from rich.text import Text

    panel = Panel(
        Text.from_ansi("\n".join(lines), overflow="fold"),
        title=Text(escape_control_chars(" ".join(title.split())), style="bold not dim default"),
        title_align="left",
        border_style="dim",
        box=ROUNDED if display.has_box_chars else ASCII,
        width=display.width,
    )
    return _render(panel, display)


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
    """Return the lines of a renderable of rich, without blanks at their ends."""
    console = _make_console(display)
    with console.capture() as capture:
        console.print(renderable)
    return [line.rstrip() for line in capture.get().rstrip("\n").split("\n")]


@lru_cache(4)
def _make_console(display: DisplayOptions) -> "Console":
    from rich.console import Console

    return Console(
        file=io.StringIO(),
        width=display.width,
        force_terminal=True,
        color_system=RICH_COLOR_SYSTEMS[display.color_system] if display.has_color else None,
        theme=make_rich_theme(display.color_system),
        legacy_windows=False,
        highlight=False,
    )

"""Panels on a terminal, drawn by rich, which is imported when the first one is drawn: a pipe never has one."""

import io

from convo.terminal.terminal import DisplayOptions, escape_control_chars

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
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    output = io.StringIO()
    console = Console(
        file=output,
        width=display.width,
        force_terminal=True,
        color_system="standard" if display.has_color else None,
        legacy_windows=False,
        highlight=False,
    )
    panel = Panel(
        Text.from_ansi("\n".join(lines), overflow="fold"),
        title=Text(escape_control_chars(" ".join(title.split())), style="bold not dim"),
        title_align="left",
        border_style="dim",
        box=ROUNDED if display.has_box_chars else ASCII,
        width=display.width,
    )
    console.print(panel)
    return [line.rstrip() for line in output.getvalue().rstrip("\n").split("\n")]

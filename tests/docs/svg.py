"""A terminal screen as SVG: selectable and searchable text, a few kilobytes, without embedded fonts."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

CELL_WIDTH, CELL_HEIGHT, MARGIN, BAR = 8.4, 18, 16, 34
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"

GROUND, EDGE, TEXT = "#16181d", "#2b2f38", "#d5d9e0"
COLOURS = {
    "black": "#5c6370",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": TEXT,
    "brightblack": "#8a93a3",
}


RUN = re.compile(r"\S+(?: \S+)*")
"""Words separated by single blanks: SVG collapses several blanks into one."""


class Cell(NamedTuple):
    """One cell: its character and its style."""

    data: str
    colour: str = "default"
    bold: bool = False
    reverse: bool = False


def render_svg(title: str, rows: Sequence[Sequence[Cell]]) -> str:
    """The SVG of a terminal window with this title and these rows."""
    columns = max((len(row) for row in rows), default=0)
    width, height = columns * CELL_WIDTH + 2 * MARGIN, len(rows) * CELL_HEIGHT + BAR + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="100%" height="100%" rx="8" fill="{GROUND}" stroke="{EDGE}"/>',
            *(f'<circle cx="{18 + 16 * index}" cy="17" r="5" fill="{EDGE}"/>' for index in range(3)),
            f'<text x="{width / 2:.0f}" y="21" fill="{COLOURS["brightblack"]}" text-anchor="middle" '
            f'font-family="{FONT}" font-size="12">{escape(title)}</text>',
            f'<g font-family="{FONT}" font-size="14" fill="{TEXT}">',
            *(_line(index, row) for index, row in enumerate(rows)),
            "</g>",
            "</svg>\n",
        ]
    )


def _line(at: int, row: Sequence[Cell]) -> str:
    y = BAR + CELL_HEIGHT * at + 14
    return f'<text y="{y}">' + "".join(_runs(row)) + "</text>"


def _runs(row: Sequence[Cell]) -> Iterator[str]:
    """Yield a tspan for each run of words with the same style, at the position and width of its cells in any font."""
    column = 0
    for style, signs in groupby(row, key=lambda sign: sign[1:]):
        text = "".join(sign.data for sign in signs)
        for run in RUN.finditer(text):
            x, length = MARGIN + (column + run.start()) * CELL_WIDTH, len(run[0]) * CELL_WIDTH
            yield f'<tspan x="{x:.1f}" textLength="{length:.1f}"{_style(*style)}>{escape(run[0])}</tspan>'
        column += len(text)


def _style(colour: str, bold: bool, reverse: bool) -> str:
    fill = f' fill="{COLOURS[colour]}"' if colour in COLOURS else ""
    return fill + (' font-weight="bold"' if bold else "") + (' text-decoration="underline"' if reverse else "")

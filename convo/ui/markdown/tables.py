"""Tables, whose columns keep the widths that their first rows asked for.

A cell that is wider than its column goes on below, so nothing is cut off. Where even narrow columns
do not fit, rows are told as lists: a name and a value a line.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from convo.ui.markdown.inlines import DIM
from convo.ui.markdown.spans import Paper, Row, Span, columns, wrapped

Cell: TypeAlias = Sequence[Span]
Line: TypeAlias = Sequence[Cell]

LEAST = 5
"""Columns below which a cell cannot be read."""

SETTLED = 24
"""Rows after which the widths of a table stand, and it is printed as it comes."""


class Form(NamedTuple):
    """How a table is laid out.

    widths:  of its columns; empty where it is told as a list
    sides:   "left", "right" or "center" for each column
    """

    widths: tuple[int, ...]
    sides: tuple[str, ...]


def form(lines: Sequence[Line], sides: Sequence[str], room: int) -> Form:
    """The form of a table that begins with `lines`, the head among them."""
    widest = [max(_widest(line[at]) for line in lines if at < len(line)) for at in range(len(sides))]
    left = room - 3 * (len(sides) - 1)
    if left < min(LEAST * len(sides), sum(widest)):
        return Form((), tuple(sides))
    return Form(tuple(_shared(widest, left)), tuple(sides))


def head_rows(head: Line, form: Form, paper: Paper) -> list[Row]:
    if not form.widths:
        return []
    dash, cross = ("─", "─┼─") if paper.boxes else ("-", "-+-")
    rule = Span(cross.join(dash * width for width in form.widths), DIM)
    return [*_rows(head, form, paper), (rule,)]


def line_rows(head: Line, line: Line, form: Form, paper: Paper, room: int) -> list[Row]:
    """One line of the table; `room` is how wide it may be."""
    if form.widths:
        return _rows(line, form, paper)
    told = [row for name, cell in zip(head, line, strict=False) for row in _told(name, cell, room)]
    return [*told, ()]


def _told(name: Cell, cell: Cell, room: int) -> list[Row]:
    first, *more = wrapped([*name, Span(": "), *cell], room - 2) or [()]
    return [first, *((Span("  "), *row) for row in more)]


def _rows(line: Line, form: Form, paper: Paper) -> list[Row]:
    cells = [wrapped(cell, width) for cell, width in zip(line, form.widths, strict=False)]
    height = max((len(cell) for cell in cells), default=0) or 1
    return [_row([cell[at] if at < len(cell) else () for cell in cells], form, paper) for at in range(height)]


def _row(cells: Sequence[Row], form: Form, paper: Paper) -> Row:
    between = Span(" │ " if paper.boxes else " | ", DIM)
    row: list[Span] = []
    for at, (cell, width, side) in enumerate(zip(cells, form.widths, form.sides, strict=False)):
        space = width - columns(cell)
        before = {"right": space, "center": space // 2}.get(side, 0)
        after = 0 if at == len(form.widths) - 1 else space - before
        row += [*([between] if at else []), Span(" " * before), *cell, Span(" " * after)]
    return tuple(span for span in row if span.words)


def _widest(cell: Cell) -> int:
    return max((columns(row) for row in wrapped(cell, 1_000)), default=1)


def _shared(widest: Sequence[int], room: int) -> list[int]:
    """Widths that fit into `room`: narrow columns get what they ask for, wide ones share the rest."""
    widths, left, open_columns = [0] * len(widest), room, len(widest)
    for at in sorted(range(len(widest)), key=lambda at: widest[at]):
        widths[at] = min(widest[at], left // open_columns)
        left -= widths[at]
        open_columns -= 1
    return widths

"""A table that fits: what says the same on every line is said once when there is no room.

In a pipe every column stands in every line, so that a program finds it there. In a terminal the
columns that may go are those that say nothing new, then those that were named as the first to
go; last the words are cut. A line never grows longer than the terminal is wide.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from convo.ui.answer import safe
from convo.ui.medium import Medium, cut, padded, width

GAP = 2
LEAST_WORDS = 12
"""Columns of the last cell below which other columns go first."""


class Column(NamedTuple):
    """One column; `cells` has a string for every line.

    right:  figures end at the same place
    goes:   when there is no room, the one with the smallest figure goes first; None: it stays
    style:  of `convo.ui.medium.STYLES`, for all of its cells
    """

    head: str
    cells: Sequence[str]
    right: bool = False
    goes: int | None = None
    style: str | None = None

    @property
    def same(self) -> str | None:
        """What the column says on every line, where it says the same on all of several."""
        return self.cells[0] if len(self.cells) > 1 and len(set(self.cells)) == 1 else None

    @property
    def room(self) -> int:
        return max(map(width, (self.head, *self.cells)))


class Table(NamedTuple):
    """Columns that fit; the last one takes what room is left.

    said:  (head, cell) of the columns that went because they say the same on every line
    """

    columns: tuple[Column, ...]
    said: tuple[tuple[str, str], ...] = ()


def fitted(columns: Sequence[Column], medium: Medium) -> Table:
    """`columns` without those that go because the medium is narrow. The last column stays."""
    kept = [column._replace(cells=tuple(map(safe, column.cells))) for column in columns]
    said: list[tuple[str, str]] = []
    for column in sorted(kept, key=_leaving):
        if column.goes is None or not _too_wide(kept, medium):
            break
        kept.remove(column)
        if column.same is not None:
            said.append((column.head, column.same))
    order = [column.head for column in columns]
    return Table(tuple(kept), tuple(sorted(said, key=lambda pair: order.index(pair[0]))))


def lines(table: Table, medium: Medium) -> Iterator[str]:
    """The heads and then every line, no wider than the medium."""
    rooms = [column.room for column in table.columns[:-1]]
    yield medium.paint(_line([column.head for column in table.columns], table, rooms, Medium(medium.width)), "dim")
    for at in range(len(table.columns[-1].cells)):
        yield _line([column.cells[at] for column in table.columns], table, rooms, medium)


def _line(cells: Sequence[str], table: Table, rooms: Sequence[int], medium: Medium) -> str:
    """One line; a cell that begins within the medium's width and does not end there is cut."""
    shown: list[str] = []
    left = 10**9 if medium.width is None else medium.width
    for at, (cell, column) in enumerate(zip(cells, table.columns, strict=True)):
        room = max(0, left)
        words = cut(cell, room)
        if at < len(rooms):
            words = padded(words, min(rooms[at], room), right=column.right)
        left -= width(words) + GAP
        shown.append(medium.paint(words, column.style) if column.style else words)
    return (" " * GAP).join(shown).rstrip()


def _leaving(column: Column) -> tuple[bool, int]:
    """Who leaves first: what says nothing new, then as named."""
    stays = column.goes is None
    return (stays or column.same is None, 1_000 if column.goes is None else column.goes)


def _too_wide(columns: Sequence[Column], medium: Medium) -> bool:
    if medium.width is None:
        return False
    words = min(columns[-1].room, LEAST_WORDS)
    return sum(column.room + GAP for column in columns[:-1]) + words > medium.width

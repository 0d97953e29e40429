"""The text of one answer, of which as little as possible is kept.

It is looked at at the ends of lines and, in long ones, every few words, counted from where the line
began. So what is cut off where follows from the text and not from the pieces in which it comes.
"""

import re

from convo.ui.markdown.cutting import LONG, cut, end_of_line
from convo.ui.markdown.parsing import blocks
from convo.ui.markdown.rendering import Carry, Rendering
from convo.ui.markdown.spans import MARK, Paper, Row, broken

GRAIN = 48
"""Characters of a line after which it is looked at again."""

LARGE = 2_000
"""Characters past which what is open is looked at only when it has grown by a quarter."""

NOT_YET = re.compile(r"[-=+*#>|`~_\s:.)\d]*")
"""A line of marks alone: what it is can only be seen when it goes on."""

FRAMES = 40
DEEP = re.compile(r"(?: {0,3}(?:>|(?:[-+*]|\d{1,9}[.)])(?= ))){20,}")
"""Lists and quotes that may be open, and marks of them in one line: so many of either are no structure."""


class Reading:
    """Takes an answer piece by piece.

    paper:   what it is laid out for; another one counts for what has not been handed out
    looked:  characters that were looked at, for whoever wants to know what it costs
    """

    def __init__(self, paper: Paper) -> None:
        self.paper, self.looked = paper, 0
        self._lines: list[str] = []
        self._open = ""
        self._carry = Carry()
        self._begun = False
        self._size = self._due = self._next = 0

    def take(self, piece: str) -> list[Row]:
        """The rows that are finished with `piece`, in which a terminal would obey nothing."""
        rows: list[Row] = []
        at = 0
        while at < len(piece):
            room = max(1, self._due - len(self._open))
            end = piece.find("\n", at, at + room)
            part = piece[at : at + room] if end < 0 else piece[at:end]
            self._open += part.replace(MARK, "\ufffd")
            at += len(part) + (end >= 0)
            if end >= 0:
                rows += self._end_line()
            elif len(self._open) >= self._due:
                rows += self._within()
        return rows

    def open(self) -> list[Row]:
        """What is open, as it looks now; no row is wider than the paper."""
        shown = [] if NOT_YET.fullmatch(self._open) else [self._line()]
        lines = [*self._lines, *shown]
        self.looked += sum(map(len, lines))
        rows = Rendering(blocks(lines), lines, self.paper, self._carry, open_end=True).rows()
        return [part for row in rows for part in broken(row, self.paper.width)]

    def end(self) -> list[Row]:
        """The rows that were open; the next piece begins another text."""
        lines = [*self._lines, *([self._line()] if self._open else [])]
        rows = Rendering(blocks(lines), lines, self.paper, self._carry).rows()
        self._lines, self._open, self._carry, self._begun = [], "", Carry(), False
        self._size = self._due = self._next = 0
        return rows

    @property
    def size(self) -> int:
        """Characters that are open."""
        return self._size + len(self._open)

    def _line(self) -> str:
        """The line that is open; one that would stand too deep is text."""
        line = self._open.expandtabs(4)
        words = line.lstrip()
        deep = DEEP.match(line) or (len(self._carry.frames) >= FRAMES and len(line) - len(words) > FRAMES)
        if not deep or not words.strip("-* ") or words.startswith(MARK):
            return line
        return f"{line[: -len(words)]}{MARK}{words}"

    def _end_line(self) -> list[Row]:
        self._lines.append(self._line())
        self._size += len(self._open) + 1
        self._open, self._due = "", GRAIN
        return self._look() if self._size >= self._next else []

    def _within(self) -> list[Row]:
        """Look at a line that is not whole."""
        rows: list[Row] = []
        if self.size >= self._next:
            self._lines.append(self._line())
            rows = self._look(partial=True)
            self._open = self._lines.pop()
            self._size -= len(self._open)
        if len(self._open) > LONG:
            goes_on = end_of_line([*self._lines, self._open], self._carry)
            rows += self._end_line()
            self._open = goes_on
        self._due = len(self._open) + GRAIN
        return rows

    def _look(self, *, partial: bool = False) -> list[Row]:
        self.looked += self.size
        done = cut(self._lines, self._carry, self.paper, partial=partial)
        self._begun = self._begun or bool(done.rows)
        self._lines = done.lines
        self._carry = done.carry if self._begun else done.carry._replace(gap=False)
        self._size = sum(len(line) + 1 for line in self._lines)
        self._next = self._size + (self._size // 4 if self._size > LARGE else 0)
        return done.rows

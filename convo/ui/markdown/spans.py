"""Words in a style, and how they fill the rows of a terminal.

A row never depends on what comes after it: words are put where there is room, in order. That is
what lets the upper rows of a paragraph be printed while the lower ones are still being written.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from convo.ui.answer import CONTROLS, INVISIBLE, spelled
from convo.ui.medium import width

MARK = "\ufdd0"
"""Stands at the place where a text was cut; no character, so that no text has it."""

NARROW = re.compile(r"\n| +|[^ \n]+")
CLOSING = (
    "\u3001\u3002\uff0c\uff0e\uff01\uff1f\uff1b\uff1a\uff09\u300d\u300f\u3011\u3009\u300b\u3015\u2019\u201d\u2026\u30fc"
)
"""What does not stand first in a row."""

OTHER = re.compile(rf"[{CONTROLS}{INVISIBLE}\ufdd0]")
"""What a terminal would obey, and our own mark."""


class Paper(NamedTuple):
    """What an answer is laid out for.

    width:   columns that may be filled
    colour:  whether styles are shown
    boxes:   whether more than ASCII can be drawn
    links:   whether the terminal makes words clickable
    """

    width: int = 80
    colour: bool = False
    boxes: bool = True
    links: bool = False


class Span(NamedTuple):
    """Words in one style: the numbers of an SGR sequence; `link` is where a click leads."""

    words: str
    style: str = ""
    link: str = ""


Row: TypeAlias = tuple[Span, ...]


def clean(words: str) -> str:
    """`words` without what a terminal would obey; it was spelled out before, so this comes from an entity."""
    return OTHER.sub(lambda found: "" if found[0] == MARK else spelled(found), words)


def columns(row: Iterable[Span]) -> int:
    return sum(width(span.words) for span in row)


def drawn(row: Row, paper: Paper) -> str:
    """`row` as it is written to a terminal; it leaves no style behind."""
    return "".join(_drawn(span, paper) for span in joined(row))


def joined(row: Iterable[Span]) -> Iterator[Span]:
    """The same words in as few spans as will do."""
    held: Span | None = None
    for span in row:
        if held and held[1:] == span[1:]:
            held = held._replace(words=held.words + span.words)
            continue
        if held:
            yield held
        held = span
    if held:
        yield held


def wrapped(spans: Iterable[Span], room: int) -> list[Row]:
    """`spans` in rows of at most `room` columns, broken at spaces and between wide characters.

    A word that is wider than a row is broken where the row ends. No row at all for no words.
    """
    filling = _Filling(max(1, room))
    for span in spans:
        for piece in pieces(span.words):
            filling.take(span._replace(words=piece))
    return filling.rows()


def pieces(words: str) -> Iterator[str]:
    """Line breaks, runs of spaces, words, and wide characters one by one."""
    for found in NARROW.findall(words):
        if found.isascii() or found[0] in " \n":
            yield found
        else:
            yield from _by_width(found)


def broken(spans: Iterable[Span], room: int) -> list[Row]:
    """`spans` in rows of `room` columns, broken wherever a row is full. One row at least."""
    rows, row, left = [], list[Span](), room
    for span in spans:
        for part in _parts(span.words, left, room):
            taken = width(part)
            if taken > left:
                rows.append(tuple(row))
                row, left = [], room
            row.append(span._replace(words=part))
            left -= taken
    return [*rows, tuple(row)]


class _Filling:
    """Fills rows, one piece after the other; the columns that row, space and word take are kept beside them."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._rows: list[Row] = []
        self._row: list[Span] = []
        self._space: list[Span] = []
        self._word: list[Span] = []
        self._filled = self._wide = 0

    def take(self, span: Span) -> None:
        if span.words == "\n":
            self._end_word()
            self._end_row()
        elif span.words[0] == " ":
            self._end_word()
            self._space.append(span)
        else:
            alone = _is_wide(span.words[0])
            if alone:
                self._end_word()
            self._word.append(span)
            self._wide += width(span.words)
            if alone:
                self._end_word()

    def rows(self) -> list[Row]:
        self._end_word()
        return [*self._rows, tuple(self._row)] if self._row else self._rows

    def _end_row(self) -> None:
        self._rows.append(tuple(self._row))
        self._row, self._space, self._filled = [], [], 0

    def _end_word(self) -> None:
        if not self._word:
            return
        space = columns(self._space)
        if self._row and self._filled + space + self._wide > self._room:
            self._end_row()
        if self._row:
            self._row += self._space
            self._filled += space
        self._row += self._word
        self._filled += self._wide
        if self._filled > self._room:
            *full, last = broken(self._row, self._room)
            self._rows += full
            self._row, self._filled = list(last), columns(last)
        self._space, self._word, self._wide = [], [], 0


def _by_width(word: str) -> Iterator[str]:
    """Runs of narrow characters, and each wide one with what belongs behind it."""
    held = ""
    for sign in word:
        wide = _is_wide(sign)
        breaks = (wide and sign not in CLOSING) or (held and _is_wide(held[0]) and width(sign) and sign not in CLOSING)
        if held and breaks:
            yield held
            held = ""
        held += sign
    yield held


def _is_wide(sign: str) -> bool:
    return sign > "\u10ff" and width(sign) > 1


def _parts(words: str, left: int, room: int) -> Iterator[str]:
    """`words` in parts of which each fits: the first into `left`, the others into `room`."""
    if width(words) <= left:
        yield words
        return
    held, used = "", 0
    for sign in words:
        taken = width(sign)
        if held and used + taken > left:
            yield held
            held, used, left = "", 0, room
        held += sign
        used += taken
    yield held


def _drawn(span: Span, paper: Paper) -> str:
    words = span.words
    if paper.colour and span.style:
        words = f"\x1b[{span.style}m{words}\x1b[0m"
    if paper.links and span.link:
        words = f"\x1b]8;;{span.link}\x1b\\{words}\x1b]8;;\x1b\\"
    return words

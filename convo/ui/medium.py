"""What the output can show.

A terminal has a width, perhaps colours and perhaps the characters that lines are drawn with; a
pipe has no width and gets no colour, whatever reads it. Everything that is printed is laid out for
one of these values and so can be tried without a terminal.
"""

import os
import re
import shutil
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, TextIO

STYLES = {"bold": "1", "dim": "2", "bad": "31", "good": "32", "id": "33"}
DRAWN = "│├┌─●○→…█▓▒░"
"""What the screens use beyond ASCII; an encoding either has all of it or gets the plain forms."""

BARS = {"█": "#", "▓": "=", "▒": "+", "░": "-"}

PLAIN = str.maketrans({"│": "|", "├": "|", "┌": ",", "─": "-", "●": "*", "○": "o", "→": ">", "…": "~", "·": "-"} | BARS)

NOT_ONE = re.compile("[^\x00-\xac\xae-\u02ff\u2010-\u2027\u2500-\u259f]")
"""What may take more or less than one column: all but Latin letters, the signs between words, and what we draw with."""


class Medium(NamedTuple):
    """Where text goes.

    width:   columns of the terminal; None for a pipe or a file, where nothing is cut
    colour:  whether styles are shown
    boxes:   whether the characters of `DRAWN` can be encoded
    """

    width: int | None = None
    colour: bool = False
    boxes: bool = True

    def paint(self, words: str, style: str) -> str:
        """`words` in a style of `STYLES`, where there are any."""
        return f"\x1b[{STYLES[style]}m{words}\x1b[0m" if self.colour and words else words

    def drawn(self, lines: str) -> str:
        """Characters of ours that lines are drawn with, in the form that can be shown."""
        return lines if self.boxes else lines.translate(PLAIN)


def medium_of(stream: TextIO, environ: Mapping[str, str]) -> Medium:
    """What `stream` can show."""
    terminal = stream.isatty()
    return Medium(
        width=shutil.get_terminal_size().columns if terminal else None,
        colour=terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb",
        boxes=_encodes(stream.encoding or "ascii"),
    )


def drawn_on(stream: TextIO) -> Medium:
    """What `stream` can show, without colours: its words go on through somebody who spells out what is no text."""
    return medium_of(stream, os.environ)._replace(colour=False)


def width(words: str) -> int:
    """How many columns `words` take in a terminal."""
    return len(words) if words.isascii() else len(words) + sum(_columns(sign) - 1 for sign in NOT_ONE.findall(words))


def cut(words: str, room: int, more: str = "…") -> str:
    """`words` in at most `room` columns, with `more` at the end where something was left out."""
    if width(words) <= room:
        return words
    if words.isascii():
        return (words[: max(0, room - len(more))].rstrip() + more)[:room] if room > 0 else ""
    kept, left = "", room - len(more)
    for sign in words:
        left -= _columns(sign)
        if left < 0:
            break
        kept += sign
    return (kept.rstrip() + more)[:room] if room > 0 else ""


def wrapped(line: str, columns: int) -> Iterator[str]:
    """`line` in lines of at most `columns`, broken at blanks; the next ones stand in its indent and two columns more.

    A word that is longer than a line stays whole.
    """
    body = line.lstrip(" ")
    indent = " " * (len(line) - len(body))
    first, *more = body.split(" ")
    now = indent + first
    for word in more:
        if width(now) + 1 + width(word) <= columns:
            now = f"{now} {word}"
        else:
            yield now.rstrip()
            now = f"{indent}  {word}"
    yield now


def fitted(words: str, columns: int | None) -> str:
    """`words`, each of their lines `wrapped` where it is longer; None: as they are."""
    lines = words.split("\n")
    return "\n".join(
        line if columns is None or width(line) <= columns else "\n".join(wrapped(line, columns)) for line in lines
    )


def padded(words: str, room: int, *, right: bool = False) -> str:
    """`words` in exactly `room` columns; they do not take more."""
    space = " " * (room - width(words))
    return space + words if right else words + space


@lru_cache(4096)
def _columns(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def _encodes(encoding: str) -> bool:
    try:
        DRAWN.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True

"""Text output for terminals, pipes and files.

`DisplayOptions` holds the width, colors and characters that a stream supports; a pipe has no width and no colors.
`escape_control_chars` must be applied to all text that a model, a file or another user wrote.
Also tables that drop columns to fit, lines with labels, and `AnswerPrinter`, which writes the text of an answer to
stdout and everything else to stderr.
"""

import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Protocol, TextIO, TypeAlias

from convo.history.items import Item, StreamEvent, decode_json_escapes, item_preview, item_text, item_type

SGR_STYLES = {"bold": "1", "dim": "2", "bad": "31", "good": "32", "id": "33"}
BOX_CHARS = "│├┌─●○→…█▓▒░"
"""What the screens use beyond ASCII; an encoding either has all of it or gets the plain forms."""

ASCII_BARS = {"█": "#", "▓": "=", "▒": "+", "░": "-"}

ASCII_FALLBACKS = str.maketrans(
    {"│": "|", "├": "|", "┌": ",", "─": "-", "●": "*", "○": "o", "→": ">", "…": "~", "·": "-"} | ASCII_BARS
)

VARIABLE_WIDTH_CHAR = re.compile("[^\x00-\xac\xae-\u02ff\u2010-\u2027\u2500-\u259f]")
"""What may take more or less than one column: all but Latin letters, the signs between words, and what we draw with."""


class DisplayOptions(NamedTuple):
    """Where text goes.

    width:   columns of the terminal; None for a pipe or a file, where nothing is cut
    colour:  whether styles are shown
    boxes:   whether the characters of `BOX_CHARS` can be encoded
    """

    width: int | None = None
    colour: bool = False
    boxes: bool = True

    def paint(self, words: str, style: str) -> str:
        """`words` in a style of `SGR_STYLES`, where there are any."""
        return f"\x1b[{SGR_STYLES[style]}m{words}\x1b[0m" if self.colour and words else words

    def drawn(self, lines: str) -> str:
        """Characters of ours that lines are drawn with, in the form that can be shown."""
        return lines if self.boxes else lines.translate(ASCII_FALLBACKS)


def detect_display(stream: TextIO, environ: Mapping[str, str]) -> DisplayOptions:
    """What `stream` can show."""
    terminal = stream.isatty()
    return DisplayOptions(
        width=shutil.get_terminal_size().columns if terminal else None,
        colour=terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb",
        boxes=_can_encode(stream.encoding or "ascii"),
    )


def detect_display_without_color(stream: TextIO) -> DisplayOptions:
    """What `stream` can show, without colours: its words go on through somebody who spells out what is no text."""
    return detect_display(stream, os.environ)._replace(colour=False)


def text_width(words: str) -> int:
    """How many columns `words` take in a terminal."""
    return (
        len(words)
        if words.isascii()
        else len(words) + sum(_char_width(sign) - 1 for sign in VARIABLE_WIDTH_CHAR.findall(words))
    )


def truncate_text(words: str, room: int, more: str = "…") -> str:
    """`words` in at most `room` columns, with `more` at the end where something was left out."""
    if text_width(words) <= room:
        return words
    if words.isascii():
        return (words[: max(0, room - len(more))].rstrip() + more)[:room] if room > 0 else ""
    kept, left = "", room - len(more)
    for sign in words:
        left -= _char_width(sign)
        if left < 0:
            break
        kept += sign
    return (kept.rstrip() + more)[:room] if room > 0 else ""


def wrap_line(line: str, columns: int) -> Iterator[str]:
    """`line` in lines of at most `columns`, broken at blanks; the next ones stand in its indent and two columns more.

    A word that is longer than a line stays whole.
    """
    body = line.lstrip(" ")
    indent = " " * (len(line) - len(body))
    first, *more = body.split(" ")
    now = indent + first
    for word in more:
        if text_width(now) + 1 + text_width(word) <= columns:
            now = f"{now} {word}"
        else:
            yield now.rstrip()
            now = f"{indent}  {word}"
    yield now


def wrap_text(words: str, columns: int | None) -> str:
    """`words`, each of their lines `wrap_line` where it is longer; None: as they are."""
    lines = words.split("\n")
    return "\n".join(
        line if columns is None or text_width(line) <= columns else "\n".join(wrap_line(line, columns))
        for line in lines
    )


def pad_text(words: str, room: int, *, right: bool = False) -> str:
    """`words` in exactly `room` columns; they do not take more."""
    space = " " * (room - text_width(words))
    return space + words if right else words + space


@lru_cache(4096)
def _char_width(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def _can_encode(encoding: str) -> bool:
    try:
        BOX_CHARS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


COLUMN_GAP = 2
MIN_LAST_COLUMN_WIDTH = 12
"""Columns of the last cell below which other columns go first."""


class Column(NamedTuple):
    """One column; `cells` has a string for every line.

    right:  figures end at the same place
    goes:   when there is no room, the one with the smallest figure goes first; None: it stays
    style:  of `convo.terminal.terminal.SGR_STYLES`, for all of its cells
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
        return max(map(text_width, (self.head, *self.cells)))


class Table(NamedTuple):
    """Columns that fit; the last one takes what room is left.

    said:  (head, cell) of the columns that went because they say the same on every line
    """

    columns: tuple[Column, ...]
    said: tuple[tuple[str, str], ...] = ()


def fit_columns(columns: Sequence[Column], medium: DisplayOptions) -> Table:
    """`columns` without those that go because the medium is narrow. The last column stays."""
    kept = [column._replace(cells=tuple(map(escape_control_chars, column.cells))) for column in columns]
    said: list[tuple[str, str]] = []
    for column in sorted(kept, key=_drop_key):
        if column.goes is None or not _is_too_wide(kept, medium):
            break
        kept.remove(column)
        if column.same is not None:
            said.append((column.head, column.same))
    order = [column.head for column in columns]
    return Table(tuple(kept), tuple(sorted(said, key=lambda pair: order.index(pair[0]))))


def table_lines(table: Table, medium: DisplayOptions) -> Iterator[str]:
    """The heads and then every line, no wider than the medium."""
    rooms = [column.room for column in table.columns[:-1]]
    yield medium.paint(
        _format_row([column.head for column in table.columns], table, rooms, DisplayOptions(medium.width)), "dim"
    )
    for at in range(len(table.columns[-1].cells)):
        yield _format_row([column.cells[at] for column in table.columns], table, rooms, medium)


def _format_row(cells: Sequence[str], table: Table, rooms: Sequence[int], medium: DisplayOptions) -> str:
    """One line; a cell that begins within the medium's width and does not end there is cut."""
    shown: list[str] = []
    left = 10**9 if medium.width is None else medium.width
    for at, (cell, column) in enumerate(zip(cells, table.columns, strict=True)):
        room = max(0, left)
        words = truncate_text(cell, room)
        if at < len(rooms):
            words = pad_text(words, min(rooms[at], room), right=column.right)
        left -= text_width(words) + COLUMN_GAP
        shown.append(medium.paint(words, column.style) if column.style else words)
    return (" " * COLUMN_GAP).join(shown).rstrip()


def _drop_key(column: Column) -> tuple[bool, int]:
    """Who leaves first: what says nothing new, then as named."""
    stays = column.goes is None
    return (stays or column.same is None, 1_000 if column.goes is None else column.goes)


def _is_too_wide(columns: Sequence[Column], medium: DisplayOptions) -> bool:
    if medium.width is None:
        return False
    words = min(columns[-1].room, MIN_LAST_COLUMN_WIDTH)
    return sum(column.room + COLUMN_GAP for column in columns[:-1]) + words > medium.width


LABEL_INDENT = 4
"""Columns before and behind a label."""

MAX_UNCONFIRMED_SHOWN = 3
"""Unacknowledged items that are named; the others are counted."""

NO_LABEL_STYLES: Mapping[str, str] = MappingProxyType({})

KeyValue = tuple[str, str]
"""A label, or "" to go on with the one before, and what it says."""


def key_value_lines(
    rows: Iterable[KeyValue], medium: DisplayOptions, styles: Mapping[str, str] = NO_LABEL_STYLES
) -> Iterator[str]:
    """The lines, their words one below the other and wrapped where the terminal ends.

    styles:  of `convo.terminal.terminal.SGR_STYLES`, by label; the others are dim
    """
    kept = [(label, escape_control_chars(words)) for label, words in rows]
    wide = max((len(label) for label, _ in kept), default=0)
    for label, words in kept:
        for at, line in enumerate(_wrap_value(words, medium, wide + LABEL_INDENT)):
            beside = medium.paint(f"{label:<{wide}}", styles.get(label, "dim")) if at == 0 else " " * wide
            yield f"  {beside}  {line}".rstrip()


def _wrap_value(words: str, medium: DisplayOptions, indent: int) -> list[str]:
    """`words` in lines that fit behind an indent; a word that is longer than a line stays whole."""
    if medium.width is None or text_width(words) <= medium.width - indent:
        return [words]
    found = [""]
    for word in words.split(" "):
        longer = f"{found[-1]} {word}" if found[-1] else word
        if text_width(longer) <= medium.width - indent:
            found[-1] = longer
        else:
            found.append(word)
    return [line for line in found if line]


def unconfirmed_rows(items: Sequence[Item], run: str = "") -> Iterator[KeyValue]:
    """What was said and not confirmed, in words; first what an open run waits for, where there is one."""
    if run:
        yield "waiting", run
    if not items:
        yield from () if run else [("waiting", "nothing is unacknowledged")]
        return
    yield "" if run else "waiting", f"{format_count(len(items))} unacknowledged"
    for item in items[:MAX_UNCONFIRMED_SHOWN]:
        yield "", f"{item.get('role') or item_type(item)}: {item_preview(item)}"
    if len(items) > MAX_UNCONFIRMED_SHOWN:
        yield "", f"and {len(items) - MAX_UNCONFIRMED_SHOWN} more"


def format_count(number: int, one: str = "item") -> str:
    """Figure and noun: "1 item", "1,024 items"."""
    return f"{number:,} {one}" + ("" if number == 1 else "s")


CONTROL_CHARS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
"""What a terminal obeys, and what turns the order of characters round."""

INVISIBLE_CHARS = (
    r"\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
"""Invisible characters: they make different words look alike, or hide words in others. Joiners of scripts
and of emoji, and the marks of direction of single characters, are not among them: text needs these."""

CONTROL_CHAR = re.compile(f"[{CONTROL_CHARS}]")
UNSAFE_CHAR = re.compile(f"[{CONTROL_CHARS}{INVISIBLE_CHARS}]")

UNANNOUNCED_TYPES = ("reasoning", "compaction")
"""Kinds of items that are no words to anybody."""

TEXT_DELTA_EVENTS = ("response.output_text.delta", "response.refusal.delta")
ANSWER_END_EVENTS = ("response.completed", "response.incomplete")


FormatReasoning: TypeAlias = Callable[[Item], str]
"""Makes of a reasoning item the line that is announced; "" for none."""


class AnswerRenderer(Protocol):
    """What the words of an answer are laid out on."""

    def say(self, words: str) -> None:
        """Show `words`, in which control characters are spelled out."""
        ...

    def end(self) -> None:
        """Leave the cursor at the beginning of a line; what comes next is another text."""
        ...


class AnswerPrinter:
    """Takes the events of one answer and prints its words.

    live:       print every piece when it comes; else each item when it is whole
    open_line:  whether what was printed last does not end its line
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        live: bool,
        silent: Container[str] = UNANNOUNCED_TYPES,
        sheet: AnswerRenderer | None = None,
        folded: FormatReasoning | None = None,
    ) -> None:
        """Print on `out`, and announce on `err` what is not made of words; `silent` kinds are not announced.

        sheet:   takes the words in place of `out`
        folded:  what is announced of reasoning; None for nothing
        """
        self._sheet, self._folded = sheet, folded
        self._out, self._err, self._live, self._silent = out, err, live, silent
        self.open_line = False
        self._shown: set[int] = set()
        self._part: tuple[int, int] | None = None

    def take(self, event: StreamEvent) -> None:
        kind_of_event = event["type"]
        if kind_of_event in TEXT_DELTA_EVENTS and self._live:
            self._piece(event)
        elif kind_of_event == "response.output_item.done":
            self._item(event.get("output_index", 0), event["item"])
        elif kind_of_event in ANSWER_END_EVENTS and not self._shown:  # an endpoint that tells the whole alone
            for at, item in enumerate(event["response"].get("output") or ()):
                self._item(at, item)
        if kind_of_event in ANSWER_END_EVENTS:  # the next answer counts from the beginning
            self._shown, self._part = set(), None

    def end(self) -> None:
        """Finish the last line, whether the answer was whole or not."""
        if self.open_line and self._sheet:
            self._sheet.end()
            self.open_line = False
        elif self.open_line:
            self._say("\n")

    def _piece(self, event: StreamEvent) -> None:
        part = event.get("output_index", 0), event.get("content_index", 0)
        if event["delta"]:
            if self._part and self._part != part and self._part[0] == part[0]:
                self._say("\n")  # the next part of one message, set apart as `text` does it
            self._shown.add(part[0])
            self._part = part
            self._say(event["delta"])

    def _item(self, at: int, item: Item) -> None:
        if item_type(item) == "message":
            if at not in self._shown:
                self._say(item_text(item))
            self.end()
        elif item_type(item) == "reasoning" and self._folded:
            self._announce(self._folded(item))
        elif item_type(item) not in self._silent:
            self._announce(escape_control_chars(describe_item(item)))
        self._shown.add(at)

    def _announce(self, line: str) -> None:
        if line:
            self.end()
            self._err.write(line + "\n")
            self._err.flush()

    def _say(self, words: str) -> None:
        if words and self._sheet:
            self._sheet.say(escape_control_chars(words))
            self.open_line = True
        elif words:
            self._out.write(
                escape_control_chars(words) if self._out.isatty() else CONTROL_CHAR.sub(escape_char_match, words)
            )
            self._out.flush()
            self.open_line = not words.endswith("\n")


def describe_item(item: Item) -> str:
    """One line about an item that is not made of words."""
    said = decode_json_escapes(str(item.get("arguments") or ""))
    return " ".join(str(part) for part in (f"[{item_type(item)}]", item.get("name"), said) if part)


def escape_control_chars(words: str) -> str:
    """`words` with control characters and invisible ones spelled out; line breaks and tabs stay."""
    return UNSAFE_CHAR.sub(escape_char_match, words)


def escape_char_match(found: re.Match[str]) -> str:
    """One character as Python writes it."""
    code = ord(found[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

"""Text output for terminals, pipes and files.

`DisplayOptions` has the width, colors and characters that a stream supports; a pipe has no width and no colors.
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
"""Non-ASCII characters of the screens; an encoding that lacks one of them gets the ASCII forms."""

ASCII_BARS = {"█": "#", "▓": "=", "▒": "+", "░": "-"}

ASCII_FALLBACKS = str.maketrans(
    {"│": "|", "├": "|", "┌": ",", "─": "-", "●": "*", "○": "o", "→": ">", "…": "~", "·": "-"} | ASCII_BARS
)

VARIABLE_WIDTH_CHAR = re.compile("[^\x00-\xac\xae-\u02ff\u2010-\u2027\u2500-\u259f]")
"""Characters that may take more or less than one column: all except Latin letters, punctuation, lines, blocks."""


class DisplayOptions(NamedTuple):
    """The abilities of an output stream.

    width:          columns of the terminal; None for a pipe or a file, where nothing is cut
    has_color:      whether styles are shown
    has_box_chars:  whether the characters of `BOX_CHARS` can be encoded
    """

    width: int | None = None
    colour: bool = False
    boxes: bool = True

    def paint(self, words: str, style: str) -> str:
        """Wrap `text` in a style of `SGR_STYLES`, if the stream has styles."""
        return f"\x1b[{SGR_STYLES[style]}m{words}\x1b[0m" if self.colour and words else words

    def drawn(self, lines: str) -> str:
        """Replace our box-drawing characters by ASCII if the stream cannot encode them."""
        return lines if self.boxes else lines.translate(ASCII_FALLBACKS)


def detect_display(stream: TextIO, environ: Mapping[str, str]) -> DisplayOptions:
    """Detect the abilities of `stream`."""
    terminal = stream.isatty()
    return DisplayOptions(
        width=shutil.get_terminal_size().columns if terminal else None,
        colour=terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb",
        boxes=_can_encode(stream.encoding or "ascii"),
    )


def detect_display_without_color(stream: TextIO) -> DisplayOptions:
    """Detect the abilities of `stream` except colors, for text that is escaped after it is styled."""
    return detect_display(stream, os.environ)._replace(colour=False)


def text_width(words: str) -> int:
    """Return the terminal columns of `text`."""
    return (
        len(words)
        if words.isascii()
        else len(words) + sum(_char_width(sign) - 1 for sign in VARIABLE_WIDTH_CHAR.findall(words))
    )


def truncate_text(words: str, room: int, more: str = "…") -> str:
    """Cut `text` to at most `columns`, with `ellipsis` at the end of a cut text."""
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
    """Wrap `line` at blanks to at most `columns`; continuation lines get its indent and two more columns.

    A word that is longer than a line is not split.
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
    """Apply `wrap_line` to each longer line of `text`; `columns` None returns it unchanged."""
    lines = words.split("\n")
    return "\n".join(
        line if columns is None or text_width(line) <= columns else "\n".join(wrap_line(line, columns))
        for line in lines
    )


def pad_text(words: str, room: int, *, right: bool = False) -> str:
    """Pad `text` to exactly `columns`; it must not be wider."""
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
"""Width of the last column below which other columns are dropped first."""


class Column(NamedTuple):
    """One column of a table; `cells` has a string for every line.

    align_right:  for numbers
    drop_order:   on a narrow display the column with the lowest value is dropped first; None: never dropped
    style:        one of `SGR_STYLES`, for all cells
    """

    head: str
    cells: Sequence[str]
    right: bool = False
    goes: int | None = None
    style: str | None = None

    @property
    def same(self) -> str | None:
        """The cell that all lines share; None if they differ or if there is only one line."""
        return self.cells[0] if len(self.cells) > 1 and len(set(self.cells)) == 1 else None

    @property
    def room(self) -> int:
        return max(map(text_width, (self.head, *self.cells)))


class Table(NamedTuple):
    """Columns that fit the display; the last one gets the remaining width.

    common_cells:  (heading, cell) of the dropped columns whose cells are all equal
    """

    columns: tuple[Column, ...]
    said: tuple[tuple[str, str], ...] = ()


def fit_columns(columns: Sequence[Column], medium: DisplayOptions) -> Table:
    """Escape all cells, and drop columns until the table fits the display. The last column stays."""
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
    """Yield the headings, then every line, no wider than the display."""
    rooms = [column.room for column in table.columns[:-1]]
    yield medium.paint(
        _format_row([column.head for column in table.columns], table, rooms, DisplayOptions(medium.width)), "dim"
    )
    for at in range(len(table.columns[-1].cells)):
        yield _format_row([column.cells[at] for column in table.columns], table, rooms, medium)


def _format_row(cells: Sequence[str], table: Table, rooms: Sequence[int], medium: DisplayOptions) -> str:
    """Format one line; a cell that crosses the right edge of the display is cut."""
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
    """Sort key of the columns to drop: first those whose cells are all equal, then by drop order."""
    stays = column.goes is None
    return (stays or column.same is None, 1_000 if column.goes is None else column.goes)


def _is_too_wide(columns: Sequence[Column], medium: DisplayOptions) -> bool:
    if medium.width is None:
        return False
    words = min(columns[-1].room, MIN_LAST_COLUMN_WIDTH)
    return sum(column.room + COLUMN_GAP for column in columns[:-1]) + words > medium.width


LABEL_INDENT = 4
"""Columns before and after a label."""

MAX_UNCONFIRMED_SHOWN = 3
"""Unconfirmed items that are listed; the others are counted."""

NO_LABEL_STYLES: Mapping[str, str] = MappingProxyType({})

KeyValue = tuple[str, str]
"""A label, or "" for another line of the label before it, and the value."""


def key_value_lines(
    rows: Iterable[KeyValue], medium: DisplayOptions, styles: Mapping[str, str] = NO_LABEL_STYLES
) -> Iterator[str]:
    """Yield the rows as lines, with the values aligned and wrapped at the right edge.

    styles:  style of `SGR_STYLES` by label; other labels are dim
    """
    kept = [(label, escape_control_chars(words)) for label, words in rows]
    wide = max((len(label) for label, _ in kept), default=0)
    for label, words in kept:
        for at, line in enumerate(_wrap_value(words, medium, wide + LABEL_INDENT)):
            beside = medium.paint(f"{label:<{wide}}", styles.get(label, "dim")) if at == 0 else " " * wide
            yield f"  {beside}  {line}".rstrip()


def _wrap_value(words: str, medium: DisplayOptions, indent: int) -> list[str]:
    """Wrap `text` to the width after an indent; a word that is longer than a line is not split."""
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
    """Yield the rows for the open run, if there is one, and for the unconfirmed items."""
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
    """Format a number with its noun: "1 item", "1,024 items"."""
    return f"{number:,} {one}" + ("" if number == 1 else "s")


CONTROL_CHARS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
"""Control characters of terminals, and characters that override the direction of text."""

INVISIBLE_CHARS = (
    r"\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
"""Invisible characters, which make different words look alike or hide text in others.

The joiners of scripts and emoji and the direction marks of single characters are not included: text needs them.
"""

CONTROL_CHAR = re.compile(f"[{CONTROL_CHARS}]")
UNSAFE_CHAR = re.compile(f"[{CONTROL_CHARS}{INVISIBLE_CHARS}]")

UNANNOUNCED_TYPES = ("reasoning", "compaction")
"""Item types that are not announced."""

TEXT_DELTA_EVENTS = ("response.output_text.delta", "response.refusal.delta")
ANSWER_END_EVENTS = ("response.completed", "response.incomplete")


FormatReasoning: TypeAlias = Callable[[Item], str]
"""Formats the line that announces a reasoning item; "" announces nothing."""


class AnswerRenderer(Protocol):
    """Lays out the text of an answer."""

    def say(self, words: str) -> None:
        """Print `text`; its control characters are escaped already."""
        ...

    def end(self) -> None:
        """Finish the text, with the cursor at the start of a line; the next text is a new one."""
        ...


class AnswerPrinter:
    """Prints the text of one answer from its events.

    live:           print every delta on arrival; otherwise each item when it is complete
    has_open_line:  whether the printed text ends within a line
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
        """Print text to `out`, and announce other items on `err`, except the types in `unannounced`.

        renderer:          gets the text instead of `out`
        format_reasoning:  formats the announcement of reasoning; None announces nothing
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
        elif kind_of_event in ANSWER_END_EVENTS and not self._shown:  # the endpoint sent only the complete response
            for at, item in enumerate(event["response"].get("output") or ()):
                self._item(at, item)
        if kind_of_event in ANSWER_END_EVENTS:  # the next response counts its items from 0
            self._shown, self._part = set(), None

    def end(self) -> None:
        """Finish the last line, whether the answer is complete or not."""
        if self.open_line and self._sheet:
            self._sheet.end()
            self.open_line = False
        elif self.open_line:
            self._say("\n")

    def _piece(self, event: StreamEvent) -> None:
        part = event.get("output_index", 0), event.get("content_index", 0)
        if event["delta"]:
            if self._part and self._part != part and self._part[0] == part[0]:
                self._say("\n")  # separate the parts of a message as `item_text` does
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
    """Describe an item that has no text in one line."""
    said = decode_json_escapes(str(item.get("arguments") or ""))
    return " ".join(str(part) for part in (f"[{item_type(item)}]", item.get("name"), said) if part)


def escape_control_chars(words: str) -> str:
    """Escape control characters and invisible characters; line breaks and tabs stay."""
    return UNSAFE_CHAR.sub(escape_char_match, words)


def escape_char_match(found: re.Match[str]) -> str:
    """Escape one character as Python writes it."""
    code = ord(found[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

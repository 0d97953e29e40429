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
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO, TypeAlias

from convo.history.items import Item, StreamEvent, decode_json_escapes, item_preview, item_text, item_type

if TYPE_CHECKING:
    from convo.terminal.waiting import WaitingLine

SGR_STYLES = {"bold": "1", "dim": "2", "bad": "31", "good": "32", "warn": "33", "id": "36"}
BOX_CHARS = "│├┌─╭╮╰╯●○→…█▓▒░✓✗⊘‖"
"""Non-ASCII characters of the screens; an encoding that lacks one of them gets the ASCII forms."""

ASCII_BARS = {"█": "#", "▓": "=", "▒": "+", "░": "-"}

ASCII_FALLBACKS = str.maketrans(
    {"│": "|", "├": "|", "┌": ",", "─": "-", "●": "*", "○": "o", "→": ">", "…": "~", "·": "-"}
    | {"╭": "+", "╮": "+", "╰": "+", "╯": "+", "✓": "+", "✗": "x", "⊘": "-", "‖": "="}
    | ASCII_BARS
)

VARIABLE_WIDTH_CHAR = re.compile("[^\x00-\xac\xae-\u02ff\u2010-\u2027\u2500-\u259f]")
"""Characters that may take more or less than one column: all except Latin letters, punctuation, lines, blocks."""


class DisplayOptions(NamedTuple):
    """The abilities of an output stream.

    width:            columns of the terminal; None for a pipe or a file, where nothing is cut
    has_color:        whether styles are shown
    has_box_chars:    whether the characters of `BOX_CHARS` can be encoded
    has_all_columns:  whether tables show all columns in full, also wider than the terminal
    """

    width: int | None = None
    has_color: bool = False
    has_box_chars: bool = True
    has_all_columns: bool = False

    @property
    def table_width(self) -> int | None:
        """The columns that a table may take; None for any number."""
        return None if self.has_all_columns else self.width

    def apply_style(self, text: str, style: str) -> str:
        """Wrap `text` in a style of `SGR_STYLES`, if the stream has styles."""
        return f"\x1b[{SGR_STYLES[style]}m{text}\x1b[0m" if self.has_color and text else text

    def translate_box_chars(self, lines: str) -> str:
        """Replace our box-drawing characters by ASCII if the stream cannot encode them."""
        return lines if self.has_box_chars else lines.translate(ASCII_FALLBACKS)


def detect_display(stream: TextIO, environ: Mapping[str, str]) -> DisplayOptions:
    """Detect the abilities of `stream`."""
    is_terminal = stream.isatty()
    return DisplayOptions(
        width=shutil.get_terminal_size().columns if is_terminal else None,
        has_color=is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb",
        has_box_chars=_can_encode(stream.encoding or "ascii"),
    )


def detect_display_without_color(stream: TextIO) -> DisplayOptions:
    """Detect the abilities of `stream` except colors, for text that is escaped after it is styled."""
    return detect_display(stream, os.environ)._replace(has_color=False)


def text_width(text: str) -> int:
    """Return the terminal columns of `text`."""
    return (
        len(text)
        if text.isascii()
        else len(text) + sum(_char_width(char) - 1 for char in VARIABLE_WIDTH_CHAR.findall(text))
    )


def truncate_text(text: str, columns: int, ellipsis: str = "…") -> str:
    """Cut `text` to at most `columns`, with `ellipsis` at the end of a cut text."""
    if text_width(text) <= columns:
        return text
    if text.isascii():
        return (text[: max(0, columns - len(ellipsis))].rstrip() + ellipsis)[:columns] if columns > 0 else ""
    shown, remaining = "", columns - len(ellipsis)
    for char in text:
        remaining -= _char_width(char)
        if remaining < 0:
            break
        shown += char
    return (shown.rstrip() + ellipsis)[:columns] if columns > 0 else ""


def cut_start(text: str, columns: int) -> str:
    """Cut the start of `text` so that the rest fits in `columns`."""
    while text and text_width(text) > columns:
        text = text[max(1, (text_width(text) - columns) // 2) :]
    return text


def wrap_line(line: str, columns: int) -> Iterator[str]:
    """Wrap `line` at blanks to at most `columns`; continuation lines get its indent and two more columns.

    A word that is longer than a line is not split.
    """
    body = line.lstrip(" ")
    indent = " " * (len(line) - len(body))
    first, *words = body.split(" ")
    current = indent + first
    for word in words:
        if text_width(current) + 1 + text_width(word) <= columns:
            current = f"{current} {word}"
        else:
            yield current.rstrip()
            current = f"{indent}  {word}"
    yield current


def wrap_text(text: str, columns: int | None) -> str:
    """Apply `wrap_line` to each longer line of `text`; `columns` None returns it unchanged."""
    lines = text.split("\n")
    return "\n".join(
        line if columns is None or text_width(line) <= columns else "\n".join(wrap_line(line, columns))
        for line in lines
    )


def pad_text(text: str, columns: int, *, align_right: bool = False) -> str:
    """Pad `text` to exactly `columns`; it must not be wider."""
    padding = " " * (columns - text_width(text))
    return padding + text if align_right else text + padding


@lru_cache(4096)
def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _can_encode(encoding: str) -> bool:
    try:
        BOX_CHARS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


COLUMN_GAP = 2
MIN_LAST_COLUMN_WIDTH = 12
"""Width of a last column of text below which other columns are dropped first.

A last column of numbers, or one that can be dropped itself, counts with its full width: it is not cut.
"""


class Column(NamedTuple):
    """One column of a table; `cells` has a string for every line.

    align_right:  for numbers
    drop_order:   on a narrow display the column with the lowest value is dropped first; None: never dropped
    style:        one of `SGR_STYLES`, for all cells
    start_styles: (number of first characters, style) of a cell, instead of `style`; None for a cell without
    """

    heading: str
    cells: Sequence[str]
    align_right: bool = False
    drop_order: int | None = None
    style: str | None = None
    start_styles: Sequence[tuple[int, str] | None] = ()

    @property
    def common_cell(self) -> str | None:
        """The cell that all lines share; None if they differ or if there is only one line."""
        return self.cells[0] if len(self.cells) > 1 and len(set(self.cells)) == 1 else None

    @property
    def width(self) -> int:
        return max(map(text_width, (self.heading, *self.cells)))


class Table(NamedTuple):
    """Columns that fit the display; the last one gets the remaining width.

    common_cells:  (heading, cell) of the dropped columns whose cells are all equal
    """

    columns: tuple[Column, ...]
    common_cells: tuple[tuple[str, str], ...] = ()


def fit_columns(columns: Sequence[Column], display: DisplayOptions) -> Table:
    """Escape all cells, and drop columns until the table fits the display."""
    kept = [column._replace(cells=tuple(map(escape_control_chars, column.cells))) for column in columns]
    common_cells: list[tuple[str, str]] = []
    for column in sorted(kept, key=_drop_key):
        if column.drop_order is None or not _is_too_wide(kept, display):
            break
        kept.remove(column)
        if column.common_cell is not None:
            common_cells.append((column.heading, column.common_cell))
    order = [column.heading for column in columns]
    return Table(tuple(kept), tuple(sorted(common_cells, key=lambda pair: order.index(pair[0]))))


def table_lines(table: Table, display: DisplayOptions) -> Iterator[str]:
    """Yield the headings, then every line, no wider than the display."""
    widths = [column.width for column in table.columns[: None if table.columns[-1].align_right else -1]]
    yield display.apply_style(_format_row(table, None, widths, display._replace(has_color=False)), "dim")
    for index in range(len(table.columns[-1].cells)):
        yield _format_row(table, index, widths, display)


def render_table(columns: Sequence[Column], display: DisplayOptions) -> str:
    """Render a table that fits the display."""
    return display.translate_box_chars("\n".join(table_lines(fit_columns(columns, display), display)))


def _format_row(table: Table, row: int | None, widths: Sequence[int], display: DisplayOptions) -> str:
    """Format one line, or the headings for `row` None; a cell that crosses the right edge of the display is cut."""
    shown: list[str] = []
    remaining = 10**9 if display.table_width is None else display.table_width
    for index, column in enumerate(table.columns):
        available = max(0, remaining)
        text = truncate_text(column.heading if row is None else column.cells[row], available)
        padding = ""
        if index < len(widths):
            width = min(widths[index], available)
            padding = " " * (width - text_width(text))
            remaining -= width + COLUMN_GAP
        start_style = column.start_styles[row] if row is not None and column.start_styles else None
        if start_style:
            length, style = start_style
            text = display.apply_style(text[:length], style) + text[length:]
        padded = padding + text if column.align_right else text + padding
        shown.append(display.apply_style(padded, column.style) if column.style and not start_style else padded)
    return (" " * COLUMN_GAP).join(shown).rstrip()


def _drop_key(column: Column) -> tuple[bool, int]:
    """Sort key of the columns to drop: first those whose cells are all equal, then by drop order."""
    is_required = column.drop_order is None
    return (is_required or column.common_cell is None, 1_000 if column.drop_order is None else column.drop_order)


def _is_too_wide(columns: Sequence[Column], display: DisplayOptions) -> bool:
    if display.table_width is None:
        return False
    last, last_width = columns[-1], columns[-1].width
    if last.drop_order is None and not last.align_right:
        last_width = min(last_width, MIN_LAST_COLUMN_WIDTH)
    return sum(column.width + COLUMN_GAP for column in columns[:-1]) + last_width > display.table_width


LABEL_INDENT = 4
"""Columns before and after a label."""

MAX_UNCONFIRMED_SHOWN = 3
"""Unconfirmed items that are listed; the others are counted."""

NO_LABEL_STYLES: Mapping[str, str] = MappingProxyType({})
NO_SIGNS: Mapping[str, str] = MappingProxyType({})

KeyValue = tuple[str, str]
"""A label, or "" for another line of the label before it, and the value."""


def key_value_lines(
    rows: Iterable[KeyValue],
    display: DisplayOptions,
    styles: Mapping[str, str] = NO_LABEL_STYLES,
    *,
    signs: Mapping[str, str] = NO_SIGNS,
    min_label_width: int = 0,
) -> Iterator[str]:
    """Yield the rows as lines, with the values aligned and wrapped at the right edge.

    styles:  style of `SGR_STYLES` by label; other labels are dim
    signs:   the sign before a label, one column wide and styled
    """
    entries = [(label, escape_control_chars(value)) for label, value in rows]
    label_width = max([min_label_width, *(len(label) for label, _ in entries)])
    for label, value in entries:
        for index, line in enumerate(_wrap_value(value, display, label_width + LABEL_INDENT)):
            prefix = (
                display.apply_style(f"{label:<{label_width}}", styles.get(label, "dim"))
                if index == 0
                else " " * label_width
            )
            sign = signs.get(label) if index == 0 else None
            yield f"{sign or ' '} {prefix}  {line}".rstrip()


def render_key_values(
    rows: Iterable[KeyValue],
    display: DisplayOptions,
    styles: Mapping[str, str] = NO_LABEL_STYLES,
    *,
    signs: Mapping[str, str] = NO_SIGNS,
) -> str:
    """Render `key_value_lines` for the display."""
    return display.translate_box_chars("\n".join(key_value_lines(rows, display, styles, signs=signs)))


def _wrap_value(text: str, display: DisplayOptions, indent: int) -> list[str]:
    """Wrap `text` to the width after an indent; a word that is longer than a line is not split."""
    if display.width is None or text_width(text) <= display.width - indent:
        return [text]
    lines = [""]
    for word in text.split(" "):
        candidate = f"{lines[-1]} {word}" if lines[-1] else word
        if text_width(candidate) <= display.width - indent:
            lines[-1] = candidate
        else:
            lines.append(word)
    return [line for line in lines if line]


def unconfirmed_rows(items: Sequence[Item], open_run: str = "") -> Iterator[KeyValue]:
    """Yield the rows for the open run, if there is one, and for the unconfirmed items."""
    if open_run:
        yield "run", open_run
    yield "unconfirmed", format_count(len(items)) if items else "none"
    for item in items[:MAX_UNCONFIRMED_SHOWN]:
        yield "", f"{item.get('role') or item_type(item)}: {item_preview(item)}"
    if len(items) > MAX_UNCONFIRMED_SHOWN:
        yield "", f"and {len(items) - MAX_UNCONFIRMED_SHOWN} more"


def format_count(number: int, noun: str = "item") -> str:
    """Format a number with its noun: "1 item", "1,024 items"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


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
REASONING_DELTA_EVENTS = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
ANSWER_END_EVENTS = ("response.completed", "response.incomplete")


FormatReasoning: TypeAlias = Callable[[Item], str]
"""Formats the line that announces a reasoning item; "" announces nothing."""


class AnswerRenderer(Protocol):
    """Lays out the text of an answer."""

    def write(self, text: str) -> None:
        """Print `text`; its control characters are escaped already."""
        ...

    def finish(self) -> None:
        """Finish the text, with the cursor at the start of a line; the next text is a new one."""
        ...


class AnswerPrinter:
    """Prints the text of one answer from its events.

    is_streamed:    print every delta on arrival; otherwise each item when it is complete
    has_open_line:  whether the printed text ends within a line
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        is_streamed: bool,
        unannounced: Container[str] = UNANNOUNCED_TYPES,
        renderer: AnswerRenderer | None = None,
        format_reasoning: FormatReasoning | None = None,
        waiting_line: "WaitingLine | None" = None,
    ) -> None:
        """Print text to `out`, and announce other items on `err`, except the types in `unannounced`.

        renderer:          gets the text instead of `out`
        format_reasoning:  formats the announcement of reasoning; None announces nothing
        waiting_line:      hidden before anything is printed; shows the reasoning while it arrives
        """
        self._waiting_line = waiting_line
        self._renderer, self._format_reasoning = renderer, format_reasoning
        self._out, self._err, self._is_streamed, self._unannounced = out, err, is_streamed, unannounced
        self.has_open_line = False
        self._shown_indexes: set[int] = set()
        self._current_part: tuple[int, int] | None = None

    @property
    def is_at_line_start(self) -> bool:
        """Whether the cursor is at the start of a line."""
        return not self.has_open_line

    def print_event(self, event: StreamEvent) -> None:
        event_type = event["type"]
        if event_type in TEXT_DELTA_EVENTS and self._is_streamed:
            self._print_delta(event)
        elif event_type in REASONING_DELTA_EVENTS and self._waiting_line:
            self._waiting_line.add_detail(event["delta"])
        elif event_type == "response.output_item.done":
            self._print_item(event.get("output_index", 0), event["item"])
        elif (
            event_type in ANSWER_END_EVENTS and not self._shown_indexes
        ):  # the endpoint sent only the complete response
            for index, item in enumerate(event["response"].get("output") or ()):
                self._print_item(index, item)
        if event_type in ANSWER_END_EVENTS:  # the next response counts its items from 0
            self._shown_indexes, self._current_part = set(), None

    def finish(self) -> None:
        """Finish the last line, whether the answer is complete or not."""
        if self.has_open_line and self._renderer:
            self._renderer.finish()
            self.has_open_line = False
        elif self.has_open_line:
            self._write("\n")

    def _print_delta(self, event: StreamEvent) -> None:
        part = event.get("output_index", 0), event.get("content_index", 0)
        if event["delta"]:
            if self._current_part and self._current_part != part and self._current_part[0] == part[0]:
                self._write("\n")  # separate the parts of a message as `item_text` does
            self._shown_indexes.add(part[0])
            self._current_part = part
            self._write(event["delta"])

    def _print_item(self, index: int, item: Item) -> None:
        if item_type(item) == "message":
            if index not in self._shown_indexes:
                self._write(item_text(item))
            self.finish()
        elif item_type(item) == "reasoning" and self._format_reasoning:
            self._announce(self._format_reasoning(item))
        elif item_type(item) not in self._unannounced:
            self._announce(escape_control_chars(describe_item(item)))
        self._shown_indexes.add(index)

    def _announce(self, line: str) -> None:
        if line:
            self.finish()
            self._prepare_output()
            self._err.write(line + "\n")
            self._err.flush()

    def _prepare_output(self) -> None:
        if self._waiting_line:
            self._waiting_line.hide()

    def _write(self, text: str) -> None:
        if text and self._renderer:
            if self._waiting_line:
                self._waiting_line.hide_spinner()  # the renderer draws above the footer
            self._renderer.write(escape_control_chars(text))
            self.has_open_line = True
        elif text:
            self._prepare_output()
            self._out.write(
                escape_control_chars(text) if self._out.isatty() else CONTROL_CHAR.sub(escape_char_match, text)
            )
            self._out.flush()
            self.has_open_line = not text.endswith("\n")


def describe_item(item: Item) -> str:
    """Describe an item that has no text in one line."""
    arguments = decode_json_escapes(str(item.get("arguments") or ""))
    return " ".join(str(part) for part in (f"[{item_type(item)}]", item.get("name"), arguments) if part)


def escape_control_chars(text: str) -> str:
    """Escape control characters and invisible characters; line breaks and tabs stay."""
    return UNSAFE_CHAR.sub(escape_char_match, text)


def escape_char_match(match: re.Match[str]) -> str:
    """Escape one character as Python writes it."""
    code = ord(match[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

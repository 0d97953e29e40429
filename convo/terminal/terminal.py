"""Text output for terminals, pipes and files.

`DisplayOptions` has the width, colors and characters that a stream supports; a pipe has no width and no colors.
`escape_control_chars` must be applied to all text that a model, a file or another user wrote.
Also tables that drop columns to fit (rich paints them on a terminal, `rich_output`), lines with labels, and
`AnswerPrinter`, which writes the text of an answer to stdout and everything else to stderr.
"""

import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO, TypeAlias
from urllib.parse import quote

from convo.history.items import Item, StreamEvent, decode_json_escapes, item_preview, item_text, item_type
from convo.terminal.theme import ColorSystemName, detect_color_system, detect_links, get_sgr_parameters

if TYPE_CHECKING:
    from convo.terminal.waiting import WaitingLine

DUMB_TERMINALS = ("dumb", "unknown")
"""Values of TERM for terminals without cursor control."""

BOX_CHARS = "│├└┌─╭╮╰╯●○→…█▓▒░✓✗⊘‖"
"""Non-ASCII characters of the screens; an encoding that lacks one of them gets the ASCII forms."""

ASCII_BARS = {"█": "#", "▓": "=", "▒": "+", "░": "-"}

ASCII_FALLBACKS = str.maketrans(
    {"│": "|", "├": "|", "└": "`", "┌": ",", "─": "-", "●": "*", "○": "o", "→": ">", "…": "~", "·": "-"}
    | {"╭": "+", "╮": "+", "╰": "+", "╯": "+", "✓": "+", "✗": "x", "⊘": "-", "‖": "="}
    | ASCII_BARS
)

VARIABLE_WIDTH_CHAR = "[^\x00-\xac\xae-\u02ff\u2010-\u2027\u2500-\u259f]"
"""Characters that may take more or less than one column: all except Latin letters, punctuation, lines, blocks."""


CLICKABLE_URL = re.compile(r"(?:https?|file)://[!-~]{1,2000}")
"""A URL that is safe in a control sequence: printable ASCII without blanks."""

ADDRESS = r"(?<![^\s('\"])(?:https?://|/)[^\s'\"<>()]*[^\s'\"<>().,;:]"
"""A web address, or what may be an absolute path."""

SGR_SEQUENCE = re.compile(r"\x1b\[[\d;]*m")
LINK_SEQUENCE = re.compile(r"\x1b\]8;[^\x1b]*\x1b\\")


def to_link_url(address: str) -> str | None:
    """Return the URL of a web address or of an existing file; None for other text."""
    if not address.startswith("/"):
        return address
    return f"file://{quote(address)}" if os.path.exists(address) else None


class DisplayOptions(NamedTuple):
    """The abilities of an output stream.

    width:            columns of the terminal; None for a pipe or a file, where nothing is cut
    has_color:        whether styles are shown
    has_box_chars:    whether the characters of `BOX_CHARS` can be encoded
    has_all_columns:  whether tables show all columns in full, also wider than the terminal
    has_links:        whether the terminal has clickable links
    """

    width: int | None = None
    has_color: bool = False
    has_box_chars: bool = True
    has_all_columns: bool = False
    color_system: ColorSystemName = "standard"
    has_links: bool = False

    @property
    def table_width(self) -> int | None:
        """The columns that a table may take; None for any number."""
        return None if self.has_all_columns else self.width

    def apply_style(self, text: str, style: str) -> str:
        """Wrap `text` in a style of the theme, if the stream has styles."""
        if not (self.has_color and text):
            return text
        return f"\x1b[{get_sgr_parameters(style, self.color_system)}m{text}\x1b[0m"

    def link_text(self, text: str, url: str | None) -> str:
        """Make `text` clickable, if the terminal has links and `url` is a plain address; its width does not change."""
        if not (self.has_links and text and url and CLICKABLE_URL.fullmatch(url)):
            return text
        return f"\x1b]8;;{url}\x1b\\{text}\x1b]8;;\x1b\\"

    def link_addresses(self, line: str) -> str:
        """Make the web addresses and the absolute paths of existing files in an escaped line clickable."""
        if not self.has_links:
            return line
        return re.sub(ADDRESS, lambda match: self.link_text(match[0], to_link_url(match[0])), line)

    def translate_box_chars(self, lines: str) -> str:
        """Replace our box-drawing characters by ASCII if the stream cannot encode them."""
        return lines if self.has_box_chars else lines.translate(ASCII_FALLBACKS)


def detect_display(stream: TextIO, environ: Mapping[str, str]) -> DisplayOptions:
    """Detect the abilities of `stream`."""
    has_box_chars = _can_encode(stream.encoding or "ascii")
    if not stream.isatty():
        return DisplayOptions(has_box_chars=has_box_chars)
    has_color = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return DisplayOptions(
        width=shutil.get_terminal_size().columns,
        has_color=has_color,
        has_box_chars=has_box_chars,
        color_system=detect_color_system(environ),
        has_links=has_color and detect_links(environ),
    )


def detect_display_without_color(stream: TextIO) -> DisplayOptions:
    """Detect the abilities of `stream` except colors, for text that is escaped after it is styled."""
    return detect_display(stream, os.environ)._replace(has_color=False, has_links=False)


def text_width(text: str) -> int:
    """Return the terminal columns of `text`."""
    return (
        len(text)
        if text.isascii()
        else len(text) + sum(_char_width(char) - 1 for char in re.findall(VARIABLE_WIDTH_CHAR, text))
    )


def styled_width(line: str) -> int:
    """Return the terminal columns of a line with styles and links."""
    return text_width(SGR_SEQUENCE.sub("", LINK_SEQUENCE.sub("", line)))


def count_rows(lines: Iterable[str], columns: int) -> int:
    """Return the rows that lines with styles and links take on a terminal."""
    return sum(max(1, -(-styled_width(line) // max(1, columns))) for line in lines)


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


MIN_SPLIT_COLUMNS = 8
"""Columns of a line from which on `wrap_text` splits a longer word; on a narrower one it would be in many pieces."""

WORD_BREAKS = (re.compile("/"), re.compile("[-_?&]"))
"""Characters after which a word that is longer than a line is split, the best ones first."""


CONVO_COMMAND = r"(?<=[ (])(?:[A-Z_]+=\S+ )?convo [^;)\n]+"
"""A command of convo in a sentence, up to the end of its clause."""

NO_BREAK_BLANK = "\0"
"""Replaces a blank at which a text must not be wrapped, until it is wrapped; no escaped text contains it."""


def wrap_line(line: str, columns: int, *, splits_words: bool = False) -> Iterator[str]:
    """Wrap `line` at blanks to at most `columns`; continuation lines get its indent and two more columns.

    A word with a `NO_BREAK_BLANK` is never split. If it does not fit after the indent, the indent is reduced; if it is
    longer than a line, the terminal wraps it.

    splits_words:  also split a word that is longer than a line, to keep the indent
    """
    body = line.lstrip(" ")
    indent = " " * (len(line) - len(body))
    word_columns = columns - len(indent) - 2
    is_split = splits_words and word_columns >= MIN_SPLIT_COLUMNS
    current = indent
    for index, word in enumerate(body.split(" ")):
        is_long_command = NO_BREAK_BLANK in word and text_width(word) > columns
        if index and (text_width(current) + 1 + text_width(word) <= columns or is_long_command):
            current = f"{current} {word}"
            continue
        if index:
            yield current.rstrip()
            current = f"{indent}  "
            if NO_BREAK_BLANK in word:
                current = current[: max(0, columns - text_width(word))]
        *pieces, last = _split_word(word, word_columns) if is_split and NO_BREAK_BLANK not in word else [word]
        for piece in pieces:
            yield current + piece
            current = f"{indent}  "
        current += last
    yield current


def wrap_text(text: str, columns: int | None) -> str:
    """Apply `wrap_line` to each longer line of `text`, and split longer words; `columns` None returns it unchanged."""
    lines = text.split("\n")
    return "\n".join(
        line
        if columns is None or text_width(line) <= columns
        else "\n".join(wrap_line(line, columns, splits_words=True))
        for line in lines
    )


def wrap_sentence(
    sentence: str, columns: int | None, *, splits_words: bool = False, keeps_commands: bool = True
) -> str:
    """Apply `wrap_line` to each line of an escaped sentence.

    columns:         None returns the sentence unchanged
    keeps_commands:  whether a command of convo, up to the end of its clause, is not split, so that it can be copied
    """
    if columns is None:
        return sentence
    text = sentence
    if keeps_commands:
        text = re.sub(CONVO_COMMAND, lambda match: match[0].replace(" ", NO_BREAK_BLANK), sentence)
    lines = (line for part in text.split("\n") for line in wrap_line(part, columns, splits_words=splits_words))
    return "\n".join(lines).replace(NO_BREAK_BLANK, " ")


def _split_word(word: str, columns: int) -> list[str]:
    """Split a word into pieces of at most `columns`; a character that is wider is a piece of its own.

    A piece ends after a separator of `WORD_BREAKS` in the second half of its line, if there is one.
    """
    pieces: list[str] = []
    while text_width(word) > columns:
        end = _find_word_end(word, columns)
        pieces.append(word[:end])
        word = word[end:]
    return [*pieces, word] if word or not pieces else pieces


def _find_word_end(word: str, columns: int) -> int:
    """Return the length of the first piece of a word that is wider than `columns`."""
    end, width, second_half = 0, 0, 0
    for char in word:
        width += _char_width(char)
        if end and width > columns:
            break
        end += 1
        second_half = end if 2 * width <= columns else second_half
    for separator in WORD_BREAKS:
        if ends := [match.end() for match in separator.finditer(word, second_half, end)]:
            return ends[-1]
    return end


def pad_text(text: str, columns: int) -> str:
    """Pad `text` to exactly `columns`; it must not be wider."""
    return text + " " * (columns - text_width(text))


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


def cut_after_word(text: str, columns: int) -> str:
    """Cut `text` to at most `columns`, after a word unless that leaves too many columns empty, and end it with "…"."""
    cut = truncate_text(text, columns)
    kept = cut.removesuffix("…")
    if cut == text or text[len(kept) : len(kept) + 1] == " ":
        return cut
    words = kept.rpartition(" ")[0].rstrip()
    is_short_word = text_width(words) + 1 + MAX_EMPTY_CUT_COLUMNS >= columns
    return f"{words}…" if is_short_word and 2 * text_width(words) >= columns else cut


MAX_EMPTY_CUT_COLUMNS = 4
"""Columns that a cut after a word may leave empty; a longer word is cut itself, since the space is there for it."""


COLUMN_GAP = 2

BOX_GAP = 3
"""Columns between two cells in a box: a line with a blank on both sides."""

BOX_EDGES = 4
"""Columns of the left and the right edge of a box, with their blanks."""

MIN_BOX_COLUMNS = 60
"""Columns of a terminal from which on tables have a box; a narrower one needs the space for the cells."""

MIN_BOXED_TEXT_COLUMNS = 20
"""Columns to which a box may cut the last column."""

MAX_BOXED_ROWS = 200
"""Rows up to which a table has a box, which rich paints.

It takes 75 to 100 us a cell, also with given widths and in pieces of 100 rows: 1.7 s for 2,000 rows of 8 columns, where
`table_lines` takes 18 ms.
"""

MIN_LAST_COLUMN_WIDTH = 12
"""Width of a last column of text below which other columns are dropped first.

A last column of numbers, or one that can be dropped itself, counts with its full width: it is not cut.
"""

MIN_HEADING_WIDTH = 4
"""Columns of the heading of narrow numbers that are left where nothing else can be cut."""


class Column(NamedTuple):
    """One column of a table; `cells` has a string for every line.

    align_right:  for numbers
    drop_order:   on a narrow display the column with the lowest value is dropped first; None: never dropped
    min_width:    the width to which texts, such as names, may be cut; None: other columns are dropped instead
    style:        a style of the theme, for all cells
    links:        the URL of each cell, on a terminal with links; None for a cell without
    start_styles: (number of first characters, style) of a cell, instead of `style`; None for a cell without
    """

    heading: str
    cells: Sequence[str]
    align_right: bool = False
    drop_order: int | None = None
    style: str | None = None
    start_styles: Sequence[tuple[int, str] | None] = ()
    min_width: int | None = None
    links: Sequence[str | None] = ()

    @property
    def common_cell(self) -> str | None:
        """The cell that all lines share; None if they differ or if there is only one line."""
        return self.cells[0] if len(self.cells) > 1 and len(set(self.cells)) == 1 else None

    @property
    def width(self) -> int:
        return max(map(text_width, (self.heading, *self.cells)))

    def fit_cell(self, row: int | None, width: int) -> tuple[str, int]:
        """Return a cell, or the heading for `row` None, in at most `width`, and its own width.

        A number is shown as a whole or not.
        """
        cell = self.heading if row is None else self.cells[row]
        cell_width = text_width(cell)
        if cell_width <= width:
            return cell, cell_width
        cut = "…"[:width] if self.align_right and row is not None else cut_after_word(cell, width)
        return cut, text_width(cut)

    def least_width(self, *, is_last: bool) -> int:
        """The width without which other columns are dropped first."""
        is_flexible_end = is_last and self.drop_order is None and not self.align_right
        min_width = MIN_LAST_COLUMN_WIDTH if self.min_width is None and is_flexible_end else self.min_width
        return self.width if min_width is None else min(self.width, min_width)


class Table(NamedTuple):
    """Columns that fit the display.

    widths:        of the columns
    common_cells:  (heading, cell) of the dropped columns whose cells are all equal
    is_boxed:      whether there is space for a box
    """

    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    common_cells: tuple[tuple[str, str], ...] = ()
    is_boxed: bool = False


def fit_columns(columns: Sequence[Column], display: DisplayOptions, *, is_boxed: bool = False) -> Table:
    """Escape all cells, and drop columns until the table fits the display."""
    kept = [column._replace(cells=tuple(map(escape_control_chars, column.cells))) for column in columns]
    common_cells: list[tuple[str, str]] = []
    gap, edges = (BOX_GAP, BOX_EDGES) if is_boxed else (COLUMN_GAP, 0)
    table_width = None if display.table_width is None else display.table_width - edges
    for column in sorted(kept, key=_drop_key):
        if column.drop_order is None or not _is_too_wide(kept, table_width, gap):
            break
        kept.remove(column)
        if column.common_cell is not None:
            common_cells.append((column.heading, column.common_cell))
    while table_width is not None and (gap + 1) * len(kept) - gap > max(1, table_width):
        kept.pop()
    order = [column.heading for column in columns]
    common_cells.sort(key=lambda pair: order.index(pair[0]))
    return Table(tuple(kept), _choose_widths(kept, table_width, gap), tuple(common_cells), is_boxed)


def table_lines(table: Table, display: DisplayOptions) -> Iterator[str]:
    """Yield the headings, then one line for each row, without a box, no wider than the display."""
    yield display.apply_style(_format_row(table, None, display._replace(has_color=False)), "dim")
    for index in range(len(table.columns[-1].cells)):
        yield _format_row(table, index, display)


def render_table(columns: Sequence[Column], display: DisplayOptions) -> str:
    """Render a table that fits the display."""
    table = fit_box(columns, display)
    lines: Iterable[str] = table_lines(table, display)
    if table.is_boxed:
        from convo.terminal.rich_output import boxed_lines

        lines = boxed_lines(table, display)
    return display.translate_box_chars("\n".join(lines))


def fit_box(columns: Sequence[Column], display: DisplayOptions) -> Table:
    """Fit a table into a box, or without one where a box would cost a column or cut a name.

    Only the last column may lose some text to a box. A table has none on a pipe, in a narrow terminal, or if it is long
    or wider than the terminal.
    """
    table = fit_columns(columns, display)
    if display.width is None or display.width < MIN_BOX_COLUMNS or len(columns[0].cells) > MAX_BOXED_ROWS:
        return table
    boxed = fit_columns(columns, display, is_boxed=True)
    width = sum(boxed.widths) + BOX_GAP * (len(boxed.widths) - 1) + BOX_EDGES
    is_uncut = boxed.widths[:-1] == table.widths[:-1] and boxed.widths[-1] >= min(
        table.widths[-1], MIN_BOXED_TEXT_COLUMNS
    )
    return boxed if is_uncut and width <= display.width else table


def _format_row(table: Table, row: int | None, display: DisplayOptions) -> str:
    """Format one line, or the headings for `row` None. Texts are cut after a word; a number is shown as a whole."""
    shown: list[str] = []
    for index, (column, width) in enumerate(zip(table.columns, table.widths, strict=True)):
        text, own_width = column.fit_cell(row, width)
        is_padded = column.align_right or index < len(table.columns) - 1
        padding = " " * (width - own_width) if is_padded else ""
        start_style = column.start_styles[row] if row is not None and column.start_styles else None
        if start_style:
            length, style = start_style
            rest = display.apply_style(text[length:], column.style) if column.style else text[length:]
            text = display.apply_style(text[:length], style) + rest
        if row is not None and column.links:
            text = display.link_text(text, column.links[row])
        padded = padding + text if column.align_right else text + padding
        shown.append(display.apply_style(padded, column.style) if column.style and not start_style else padded)
    return (" " * COLUMN_GAP).join(shown).rstrip()


def _drop_key(column: Column) -> tuple[bool, int]:
    """Sort key of the columns to drop: first those whose cells are all equal, then by drop order."""
    is_required = column.drop_order is None
    return (is_required or column.common_cell is None, 1_000 if column.drop_order is None else column.drop_order)


def _is_too_wide(columns: Sequence[Column], table_width: int | None, gap: int) -> bool:
    if table_width is None:
        return False
    least = sum(column.least_width(is_last=index == len(columns) - 1) for index, column in enumerate(columns))
    return least + gap * (len(columns) - 1) > table_width


def _choose_widths(columns: Sequence[Column], table_width: int | None, gap: int) -> tuple[int, ...]:
    """Return the widths of the columns.

    Where they do not fit, the texts that may be cut lose their ends first, from the last column to the first; then the
    headings of numbers; then, on a display of a few columns, the widest ones.
    """
    widths = [column.width for column in columns]
    if table_width is None:
        return tuple(widths)
    last = len(columns) - 1
    excess = sum(widths) + gap * last - table_width
    least = [column.least_width(is_last=index == last) for index, column in enumerate(columns)]
    headings = [
        max(MIN_HEADING_WIDTH, *map(text_width, column.cells)) if column.align_right else least[index]
        for index, column in enumerate(columns)
    ]
    for limits in (least, headings):
        for index in range(last, -1, -1):
            cut = max(0, min(excess, widths[index] - limits[index]))
            widths[index] -= cut
            excess -= cut
    while excess > 0 and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
        excess -= 1
    return tuple(widths)


LABEL_MARGIN = 2
"""Blanks before a label."""

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
    folded_labels: Container[str] = (),
    bold_labels: Container[str] = (),
) -> Iterator[str]:
    """Yield the rows as lines, with the values aligned and wrapped at the right edge.

    styles:         style of the theme by label; other labels are dim
    bold_labels:    labels whose values begin with a bold word
    signs:          the sign before a label, one column wide and styled
    folded_labels:  labels whose values, such as names, are split rather than shown below their label
    """
    entries = [(label, escape_control_chars(value)) for label, value in rows]
    label_width = max([min_label_width, *(len(label) for label, _ in entries)])
    for label, value in entries:
        indent = label_width + LABEL_INDENT
        is_below = False
        if label not in folded_labels and display.width is not None:
            longest = max(map(text_width, value.split(" ")))
            is_below = display.width - indent < longest <= display.width - LABEL_INDENT
        if is_below:
            indent = LABEL_INDENT  # a long id is shown as a whole below its label
        lines = [*([""] if is_below else []), *_wrap_value(value, display, indent)]
        if label in bold_labels:
            word, blank, rest = lines[0].partition(" ")
            lines[0] = display.apply_style(word, "bold") + blank + rest
        for index, line in enumerate(lines):
            if index == 0:
                styled_label = display.apply_style(f"{label:<{label_width}}", styles.get(label, "dim"))
                yield f"{signs.get(label) or ' '} {styled_label}  {display.link_addresses(line)}".rstrip()
            elif line:
                yield " " * indent + display.link_addresses(line)


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
    """Wrap `text` to the width after an indent; only a word that is longer than a line is split."""
    if display.width is None or text_width(text) <= display.width - indent:
        return [text]
    columns = max(1, display.width - indent)
    lines = [""]
    for word in text.split(" "):
        candidate = f"{lines[-1]} {word}" if lines[-1] else word
        if text_width(candidate) <= columns:
            lines[-1] = candidate
        else:
            lines += _split_word(word, columns)
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
    r"\u00ad\u115f\u1160\u180e\u200b\u2028\u2029\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
"""Invisible characters, which make different words look alike or hide text in others.

The joiners of scripts and emoji and the direction marks of single characters are not included: text needs them.
"""

CONTROL_CHAR = f"[{CONTROL_CHARS}]"
UNSAFE_CHAR = re.compile(f"[{CONTROL_CHARS}{INVISIBLE_CHARS}]")

UNANNOUNCED_TYPES = ("reasoning", "compaction")
"""Item types that are not announced."""

TEXT_DELTA_EVENTS = ("response.output_text.delta", "response.refusal.delta")
REASONING_DELTA_EVENTS = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
ANSWER_END_EVENTS = ("response.completed", "response.incomplete")


FormatReasoning: TypeAlias = Callable[[Item, float | None], str]
"""Formats the line that announces a reasoning item and its duration in seconds, if known; "" announces nothing."""


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
        elif event_type == "response.output_item.added" and self._waiting_line:
            if item_type(event["item"]) == "reasoning":
                self._waiting_line.begin_reasoning()
        elif event_type in REASONING_DELTA_EVENTS and self._waiting_line:
            self._waiting_line.add_reasoning(event["delta"])
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
            seconds = self._waiting_line.end_reasoning() if self._waiting_line else None
            line = self._format_reasoning(item, seconds)
            self._announce(f"{line}\n" if line and self._renderer else line)  # a blank line before the answer
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
                escape_control_chars(text) if self._out.isatty() else re.sub(CONTROL_CHAR, escape_char_match, text)
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

"""Text output for terminals, pipes and files.

`DisplayOptions` has the width, colors and characters that a stream supports; a pipe has no width and no colors.
`escape_control_chars` must be applied to all text that a model, a file or another user wrote.
Also lines with labels. `tables` has tables and panels, `answer` prints an answer.
"""

import os
import re
import shutil
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TextIO
from urllib.parse import quote

from convo.history.items import Item, item_preview, item_type
from convo.terminal.theme import ColorSystemName, detect_color_system, detect_links, get_sgr_parameters

DUMB_TERMINALS = ("dumb", "unknown")
"""Values of TERM for terminals without cursor control."""

BOX_CHARS = "│├└┌─╭╮╰╯●○→…█▓▒░✓✗⊘‖☐☑"
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

SGR_SEQUENCE = re.compile(r"\x1b\[[\d;]*[mK]")
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
    # Not a lookup for each character: that was measurable in histories of 10,000 items.
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


CONVO_COMMAND = r"(?<=[ (])(?:[A-Z_]+=\S+ )?(?:uv run |uvx --from \S+ )?convo [^;)\n]+"
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


def unwrap_paragraphs(text: str) -> str:
    """Return `text` with each paragraph as one line; lines that begin with a blank stay as they are."""
    # A line that ends with a colon is a heading.
    return re.sub(r"(?m)^(\S.*[^:\n])\n(?=\S)", r"\1 ", text)


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
    value_style: str | None = None,
) -> Iterator[str]:
    """Yield the rows as lines, with the values aligned and wrapped at the right edge.

    styles:         style of the theme by label; other labels are dim
    bold_labels:    labels whose values begin with a bold word
    signs:          the sign before a label, one column wide and styled
    folded_labels:  labels whose values, such as names, are split rather than shown below their label
    value_style:    style of the theme for all values
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
        lines = [display.link_addresses(line) for line in lines]
        if value_style:
            lines = [line and display.apply_style(line, value_style) for line in lines]
        for index, line in enumerate(lines):
            if index == 0:
                styled_label = display.apply_style(f"{label:<{label_width}}", styles.get(label, "dim"))
                yield f"{signs.get(label) or ' '} {styled_label}  {line}".rstrip()
            elif line:
                yield " " * indent + line


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


MIN_SHORT_ID_CHARS = 8
"""Characters of an id after its type prefix, unless two ids begin alike."""


def shorten_ids(ids: Sequence[str]) -> dict[str, str]:
    """Shorten all ids to the smallest common length at which they still differ."""
    longest = max(map(len, ids), default=0)
    for size in range(MIN_SHORT_ID_CHARS, longest):
        short = {id_: _shorten_id(id_, size) for id_ in ids}
        if len(set(short.values())) == len(set(ids)):
            return short
    return {id_: id_ for id_ in ids}


def _shorten_id(id_: str, size: int) -> str:
    kind, underscore, rest = id_.partition("_")
    return f"{kind}{underscore}{rest[:size]}"


CONTROL_CHARS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
"""Control characters of terminals, and characters that override the direction of text."""

# With U+2028 and U+2029: some programs behind a terminal begin a new line at them.
INVISIBLE_CHARS = (
    r"\u00ad\u115f\u1160\u180e\u200b\u2028\u2029\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
"""Invisible characters, which make different words look alike or hide text in others.

The joiners of scripts and emoji and the direction marks of single characters are not included: text needs them.
"""

CONTROL_CHAR = f"[{CONTROL_CHARS}]"
UNSAFE_CHAR = re.compile(f"[{CONTROL_CHARS}{INVISIBLE_CHARS}]")


def escape_control_chars(text: str) -> str:
    """Escape control characters and invisible characters; line breaks and tabs stay."""
    return UNSAFE_CHAR.sub(escape_char_match, text)


def escape_answer(text: str, out: TextIO) -> str:
    """Return the text of an answer for `out`: for a program, invisible characters and changes of direction stay."""
    return escape_control_chars(text) if out.isatty() else re.sub(CONTROL_CHAR, escape_char_match, text)


def escape_char_match(match: re.Match[str]) -> str:
    """Escape one character as Python writes it."""
    code = ord(match[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

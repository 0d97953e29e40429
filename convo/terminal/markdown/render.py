"""Markdown source to rows of styled text, with markdown-it and Pygments.

Headings keep their "#", and without colors emphasis keeps its marks. Code starts at the left margin. A table keeps
the column widths of its first rows. Reference links, HTML and math are shown as source.
A container whose start was printed is reopened by a stub: its marker and `CUT_MARK`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from pygments.lexer import ExtendedRegexLexer, Lexer, LexerContext, RegexLexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, String
from pygments.token import Token as PygmentsToken
from pygments.util import ClassNotFound

from convo.terminal.terminal import CONTROL_CHARS, INVISIBLE_CHARS, escape_char_match, text_width

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode as Node


CUT_MARK = "\ufdd0"
"""Marks a cut in the source: a noncharacter, which `MarkdownStream` replaces in its input."""

TEXT_PIECE = re.compile(r"\n| +|[^ \n]+")
NO_ROW_START_CHARS = (
    "\u3001\u3002\uff0c\uff0e\uff01\uff1f\uff1b\uff1a\uff09\u300d\u300f\u3011\u3009\u300b\u3015\u2019\u201d\u2026\u30fc"
)
"""Characters that must not begin a row."""

UNPRINTABLE_CHAR = re.compile(rf"[{CONTROL_CHARS}{INVISIBLE_CHARS}\ufdd0]")
"""Control characters, invisible characters and `CUT_MARK`."""


class MarkdownOptions(NamedTuple):
    """Options of the layout.

    width:          columns of a row
    has_color:      whether styles are shown
    has_box_chars:  whether non-ASCII characters can be drawn
    has_links:      whether the terminal supports hyperlinks
    """

    width: int = 80
    has_color: bool = False
    has_box_chars: bool = True
    has_links: bool = False


class Span(NamedTuple):
    """Text in one style: `style` has the numbers of an SGR sequence, `link` the target of a hyperlink."""

    text: str
    style: str = ""
    link: str = ""


StyledRow: TypeAlias = tuple[Span, ...]


def escape_decoded_text(text: str) -> str:
    """Escape control characters that decoding an entity produced; those in the source are escaped already."""
    return UNPRINTABLE_CHAR.sub(lambda found: "" if found[0] == CUT_MARK else escape_char_match(found), text)


def row_width(row: Iterable[Span]) -> int:
    return sum(text_width(span.text) for span in row)


def encode_row(row: StyledRow, options: MarkdownOptions) -> str:
    """Encode a row for the terminal; styles are reset at its end."""
    return "".join(_encode_span(span, options) for span in merge_spans(row))


def merge_spans(row: Iterable[Span]) -> Iterator[Span]:
    """Merge adjacent spans with equal style and link."""
    held: Span | None = None
    for span in row:
        if held and held[1:] == span[1:]:
            held = held._replace(text=held.text + span.text)
            continue
        if held:
            yield held
        held = span
    if held:
        yield held


def wrap_spans(spans: Iterable[Span], columns: int) -> list[StyledRow]:
    """Wrap spans to rows of at most `columns`, at spaces and between wide characters.

    A word that is wider than a row is split at its end. Returns no row for no text.
    """
    filling = _RowFiller(max(1, columns))
    for span in spans:
        for piece in split_pieces(span.text):
            filling.add(span._replace(text=piece))
    return filling.finish()


def split_pieces(text: str) -> Iterator[str]:
    """Split `text` into line breaks, runs of spaces, words, and single wide characters."""
    for found in TEXT_PIECE.findall(text):
        if found.isascii() or found[0] in " \n":
            yield found
        else:
            yield from _split_by_width(found)


def break_spans(spans: Iterable[Span], columns: int) -> list[StyledRow]:
    """Break spans into rows of `columns`, anywhere a row is full. Returns at least one row."""
    rows, row, left = [], list[Span](), columns
    for span in spans:
        for part in _split_to_fit(span.text, left, columns):
            taken = text_width(part)
            if taken > left:
                rows.append(tuple(row))
                row, left = [], columns
            row.append(span._replace(text=part))
            left -= taken
    return [*rows, tuple(row)]


class _RowFiller:
    """Fills rows piece by piece, and tracks the width of the row, the space and the word."""

    def __init__(self, room: int) -> None:
        self._max_width = room
        self._rows: list[StyledRow] = []
        self._row: list[Span] = []
        self._space: list[Span] = []
        self._word: list[Span] = []
        self._row_width = self._word_width = 0

    def add(self, span: Span) -> None:
        if span.text == "\n":
            self._end_word()
            self._end_row()
        elif span.text[0] == " ":
            self._end_word()
            self._space.append(span)
        else:
            alone = _is_wide_char(span.text[0])
            if alone:
                self._end_word()
            self._word.append(span)
            self._word_width += text_width(span.text)
            if alone:
                self._end_word()

    def finish(self) -> list[StyledRow]:
        self._end_word()
        return [*self._rows, tuple(self._row)] if self._row else self._rows

    def _end_row(self) -> None:
        self._rows.append(tuple(self._row))
        self._row, self._space, self._row_width = [], [], 0

    def _end_word(self) -> None:
        if not self._word:
            return
        space = row_width(self._space)
        if self._row and self._row_width + space + self._word_width > self._max_width:
            self._end_row()
        if self._row:
            self._row += self._space
            self._row_width += space
        self._row += self._word
        self._row_width += self._word_width
        if self._row_width > self._max_width:
            *full, last = break_spans(self._row, self._max_width)
            self._rows += full
            self._row, self._row_width = list(last), row_width(last)
        self._space, self._word, self._word_width = [], [], 0


def _split_by_width(word: str) -> Iterator[str]:
    """Split a word into runs of narrow characters, and wide characters each with the characters bound to them."""
    held = ""
    for sign in word:
        wide = _is_wide_char(sign)
        breaks = (wide and sign not in NO_ROW_START_CHARS) or (
            held and _is_wide_char(held[0]) and text_width(sign) and sign not in NO_ROW_START_CHARS
        )
        if held and breaks:
            yield held
            held = ""
        held += sign
    yield held


def _is_wide_char(sign: str) -> bool:
    return sign > "\u10ff" and text_width(sign) > 1


def _split_to_fit(text: str, left: int, room: int) -> Iterator[str]:
    """Split `text` into parts of which the first fits into `left` columns and the others into `room`."""
    if text_width(text) <= left:
        yield text
        return
    held, used = "", 0
    for sign in text:
        taken = text_width(sign)
        if held and used + taken > left:
            yield held
            held, used, left = "", 0, room
        held += sign
        used += taken
    yield held


def _encode_span(span: Span, options: MarkdownOptions) -> str:
    words = span.text
    if options.has_color and span.style:
        words = f"\x1b[{span.style}m{words}\x1b[0m"
    if options.has_links and span.link:
        words = f"\x1b]8;;{span.link}\x1b\\{words}\x1b]8;;\x1b\\"
    return words


TableCell: TypeAlias = Sequence[Span]
TableLine: TypeAlias = Sequence[TableCell]

MIN_CELL_COLUMNS = 5
"""Columns below which a cell is unreadable."""

LAYOUT_ROWS = 24
"""Rows after which the column widths of a table are fixed and its rows are printed."""


class TableLayout(NamedTuple):
    """Layout of a table.

    widths:      of its columns; empty if the table is printed as a list
    alignments:  "left", "right" or "center" for each column
    """

    widths: tuple[int, ...]
    alignments: tuple[str, ...]


def compute_table_layout(lines: Sequence[TableLine], alignments: Sequence[str], room: int) -> TableLayout:
    """Compute the layout of a table from its first lines, including the head."""
    widest = [max(_cell_width(line[at]) for line in lines if at < len(line)) for at in range(len(alignments))]
    left = room - 3 * (len(alignments) - 1)
    if left < min(MIN_CELL_COLUMNS * len(alignments), sum(widest)):
        return TableLayout((), tuple(alignments))
    return TableLayout(tuple(_share_width(widest, left)), tuple(alignments))


def render_table_head(head: TableLine, layout: TableLayout, options: MarkdownOptions) -> list[StyledRow]:
    if not layout.widths:
        return []
    dash, cross = ("─", "─┼─") if options.has_box_chars else ("-", "-+-")
    rule = Span(cross.join(dash * width for width in layout.widths), DIM_STYLE)
    return [*_render_cells(head, layout, options), (rule,)]


def render_table_line(
    head: TableLine, line: TableLine, layout: TableLayout, options: MarkdownOptions, room: int
) -> list[StyledRow]:
    """Render one line of the table; `room` is the width available."""
    if layout.widths:
        return _render_cells(line, layout, options)
    told = [row for name, cell in zip(head, line, strict=False) for row in _render_as_list(name, cell, room)]
    return [*told, ()]


def _render_as_list(name: TableCell, cell: TableCell, room: int) -> list[StyledRow]:
    first, *more = wrap_spans([*name, Span(": "), *cell], room - 2) or [()]
    return [first, *((Span("  "), *row) for row in more)]


def _render_cells(line: TableLine, layout: TableLayout, options: MarkdownOptions) -> list[StyledRow]:
    cells = [wrap_spans(cell, width) for cell, width in zip(line, layout.widths, strict=False)]
    height = max((len(cell) for cell in cells), default=0) or 1
    return [
        _join_cells([cell[at] if at < len(cell) else () for cell in cells], layout, options) for at in range(height)
    ]


def _join_cells(cells: Sequence[StyledRow], layout: TableLayout, options: MarkdownOptions) -> StyledRow:
    between = Span(" │ " if options.has_box_chars else " | ", DIM_STYLE)
    row: list[Span] = []
    for at, (cell, width, side) in enumerate(zip(cells, layout.widths, layout.alignments, strict=False)):
        space = width - row_width(cell)
        before = {"right": space, "center": space // 2}.get(side, 0)
        after = 0 if at == len(layout.widths) - 1 else space - before
        row += [*([between] if at else []), Span(" " * before), *cell, Span(" " * after)]
    return tuple(span for span in row if span.text)


def _cell_width(cell: TableCell) -> int:
    return max((row_width(row) for row in wrap_spans(cell, 1_000)), default=1)


def _share_width(widest: Sequence[int], room: int) -> list[int]:
    """Distribute the width: narrow columns get their full width, wide ones share the rest."""
    widths, left, open_columns = [0] * len(widest), room, len(widest)
    for at in sorted(range(len(widest)), key=lambda at: widest[at]):
        widths[at] = min(widest[at], left // open_columns)
        left -= widths[at]
        open_columns -= 1
    return widths


TOKEN_STYLES = {
    Comment: "2",
    Keyword: "35",
    Keyword.Constant: "36",
    Number: "36",
    String: "32",
    String.Escape: "33",
    Name.Function: "34",
    Name.Class: "34",
    Name.Decorator: "33",
    Name.Builtin: "36",
    Name.Tag: "35",
    Name.Attribute: "34",
    Generic.Deleted: "31",
    Generic.Inserted: "32",
    Generic.Heading: "1",
    Generic.Subheading: "1",
    Generic.Prompt: "2",
}
"""SGR numbers of the terminal's own colors, which suit its background; other tokens have no color."""

COMMENT_ENDS = {"/*": "*/", "<!--": "-->", "{-": "-}", "(*": "*)"}
"""Delimiters of multi-line comments that lexers match as one token."""


EXCLUDED_LANGUAGES = ("mcschema",)
"""Languages whose lexers do not terminate on foreign lines; all others of Pygments 2.21 were tried."""


class LexerState(NamedTuple):
    """Lexer state between two lines.

    stack:        states of the lexer, innermost last
    comment_end:  the delimiter that ends the open comment; "" outside a comment
    """

    lexer: Lexer | None
    stack: tuple[str, ...] = ("root",)
    comment_end: str = ""


def make_lexer_state(language: str) -> LexerState:
    """Make the state for code in `language`, as named by a fence; unknown languages have no colors."""
    return LexerState(_find_lexer(language.lower()))


def highlight_line(line: str, state: LexerState) -> tuple[list[Span], LexerState]:
    """Highlight one line. Returns its spans and the state for the next line."""
    if state.lexer is None or not line.strip():
        return [Span(line)], state
    if state.comment_end:
        inside, closes, rest = line.partition(state.comment_end)
        if not closes:
            return [Span(line, TOKEN_STYLES[Comment])], state
        spans, after = highlight_line(rest, state._replace(comment_end=""))
        return [Span(inside + closes, TOKEN_STYLES[Comment]), *spans], after
    found, stack = _tokenize_line(state.lexer, line, state.stack)
    for opens, closes in COMMENT_ENDS.items():
        at = line.rfind(opens)
        if at >= 0 and closes not in line[at + 2 :] and _has_open_comment(state, line, closes):
            before, _ = _tokenize_line(state.lexer, line[:at], state.stack)
            return [*_token_spans(before), Span(line[at:], TOKEN_STYLES[Comment])], state._replace(comment_end=closes)
    return list(_token_spans(found)), state._replace(stack=stack)


def _has_open_comment(state: LexerState, line: str, closes: str) -> bool:
    """Whether `line` ends inside a comment: closing one there must make its last token a comment."""
    assert state.lexer
    kinds = [kind for kind, words in _tokenize_line(state.lexer, line + closes, state.stack)[0] if words.strip()]
    return kinds[-1] in Comment


def _tokenize_line(lexer: Lexer, line: str, stack: tuple[str, ...]) -> tuple[list[tuple[Any, str]], tuple[str, ...]]:
    """Tokenize one line. Returns token types with their text, and the state stack after it."""
    if isinstance(lexer, RegexLexer) and not isinstance(lexer, ExtendedRegexLexer):
        context = LexerContext(line + "\n", 0, list(stack))
        try:
            found = list(ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context))
            return [(kind, words) for _, kind, words in found], tuple(context.stack[:20])
        except TypeError:  # the lexer has callbacks that accept no context
            pass
    return [(kind, words) for _, kind, words in lexer.get_tokens_unprocessed(line + "\n")], ("root",)


def _token_spans(found: list[tuple[Any, str]]) -> Iterator[Span]:
    for kind, words in found:
        if words := words.rstrip("\n"):
            yield Span(words, _token_style(kind))


@cache
def _token_style(kind: Any) -> str:
    while kind not in TOKEN_STYLES and kind is not PygmentsToken:
        kind = kind.parent
    return TOKEN_STYLES.get(kind, "")


@cache
def _find_lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language) if language and language not in EXCLUDED_LANGUAGES else None
    except ClassNotFound:
        return None


LIST_NODE_TYPES = ("bullet_list", "ordered_list")
CONTAINER_NODE_TYPES = (*LIST_NODE_TYPES, "list_item", "blockquote")

BLANK_LINE = re.compile(r"[\s>]*")
QUOTE_PREFIX = re.compile(r" {0,3}> ?")
LIST_ITEM_PREFIX = re.compile(r"( *(?:[-+*]|\d{1,9}[.)]))( *)(.?)")

INDENTED_CODE_SPACES = 5
"""Spaces after a marker from which on all but one belong to indented code."""


class OpenContainer(NamedTuple):
    """An open container.

    marker:  prefix of its first line, after the prefixes of the outer containers
    prefix:  prefix of its other lines
    number:  of an item in an ordered list
    """

    marker: str
    prefix: str
    number: int | None = None


def build_stub_lines(containers: Sequence[OpenContainer]) -> list[str]:
    """Build the lines that reopen the containers."""
    lines, before = list[str](), ""
    for frame in containers:
        lines.append(f"{before}{frame.marker}{CUT_MARK}")
        before += frame.prefix
        lines.append(before.rstrip())
    return lines


def container_prefix(containers: Sequence[OpenContainer]) -> str:
    return "".join(frame.prefix for frame in containers)


def strip_container_prefix(line: str, containers: Sequence[OpenContainer]) -> str:
    """Remove the prefixes of the containers from `line`."""
    for frame in containers:
        line = QUOTE_PREFIX.sub("", line, count=1) if frame.prefix == "> " else line[len(frame.prefix) :]
    return line


def find_open_containers(
    path: Sequence["Node"], lines: Sequence[str], containers: Sequence[OpenContainer], numbers: dict[int, int]
) -> list[OpenContainer]:
    """Find the containers on `path`; those that begin with a stub are taken from `containers`."""
    found: list[OpenContainer] = []
    for node in path:
        if node.type not in ("list_item", "blockquote"):
            continue
        if has_leading_stub(node) and len(found) < len(containers):
            frame = containers[len(found)]
        elif node.type == "blockquote":
            frame = OpenContainer("> ", "> ")
        else:
            frame = _list_item_container(strip_container_prefix(lines[first_line_index(node)], found))
        found.append(frame._replace(number=numbers.get(id(node))))
    return found


def _list_item_container(line: str) -> OpenContainer:
    match = LIST_ITEM_PREFIX.match(line)
    marker, space, rest = match.groups() if match else ("-", " ", "")
    wide = len(marker) + (len(space) if rest and len(space) < INDENTED_CODE_SPACES else 1)
    return OpenContainer(f"{marker:<{wide}}", " " * wide)


def close_list_item(item: OpenContainer) -> OpenContainer:
    """Give an item a prefix that ends farther right than any marker, so that nothing is added to it."""
    marker = item.marker.rstrip() + " " * (INDENTED_CODE_SPACES - 1)
    return item._replace(marker=marker, prefix=" " * len(marker))


def first_line_index(node: "Node") -> int:
    return node.map[0] if node.map else 0


def is_blank_line(line: str) -> bool:
    """Whether `line` is empty except for quote markers."""
    return BLANK_LINE.fullmatch(line) is not None


def is_stub(node: "Node") -> bool:
    return node.type == "paragraph" and node.children[0].content == CUT_MARK


def has_leading_stub(node: "Node") -> bool:
    """Whether the start of a container was printed before."""
    while node.type in CONTAINER_NODE_TYPES and node.children:
        node = node.children[0]
    return is_stub(node)


VERBATIM_NODE_TYPES = ("fence", "code_block", "html_block", "math_block")
"""Blocks whose lines are shown unchanged."""

MIN_LIST_COLUMNS = 8
"""Minimum columns of text in nested lists, at any depth."""

MAX_RULE_COLUMNS = 40
"""Columns of a thematic break."""


class CarriedParagraph(NamedTuple):
    """The incomplete last row of a paragraph at its cut."""

    row: StyledRow = ()


class CarriedCode(NamedTuple):
    """Verbatim lines that continue; the first `skipped_lines` of them were printed."""

    lexer_state: LexerState
    skipped_lines: int


class CarriedTable(NamedTuple):
    """A table whose head was printed."""

    layout: TableLayout


CarriedBlock: TypeAlias = CarriedParagraph | CarriedCode | CarriedTable


class RenderState(NamedTuple):
    """State between the printed text and the rest.

    containers:     open lists and quotes, outermost first
    has_gap:        whether an empty line precedes the rest
    carried_block:  the block that continues
    """

    containers: tuple[OpenContainer, ...] = ()
    has_gap: bool = False
    carried_block: CarriedBlock | None = None


class BlockRenderer:
    """Renders one piece of source.

    carried_block:   the state of the last block, if it is cut after the rendered text
    item_numbers:    numbers of the items of ordered lists, by the id() of their nodes
    full_row_count:  rows of the paragraph that was cut
    """

    def __init__(
        self,
        root: "Node",
        lines: Sequence[str],
        options: MarkdownOptions,
        state: RenderState,
        *,
        open_end: bool = False,
    ) -> None:
        """Prepare the rendering; `open_end` leaves code at the end open unless its closing line is there."""
        self.carried_block, self.full_row_count = state.carried_block, 0
        self.item_numbers = number_list_items(root, state)
        self._root, self._lines, self._options = root, lines, options
        self._has_gap, self._initial_block = state.has_gap, state.carried_block
        self._is_start = True
        self._open_node = path_to_last_block(root)[-1] if open_end else None
        self._stop_node: Node | None = None
        self._max_chars: int | None = None

    def render(self, *, stop_node: "Node | None" = None, max_chars: int | None = None) -> list[StyledRow]:
        """Render all rows.

        stop_node:  a block at the end: it, and containers that begin with it, are left out
        max_chars:  render only so many characters of the last paragraph, and of these only full rows
        """
        self._stop_node, self._max_chars = stop_node, max_chars
        if max_chars is not None:
            self._open_node = path_to_last_block(self._root)[-1]
        return list(self._render_children(self._root, self._options.width))

    def _render_children(self, node: "Node", room: int) -> Iterator[StyledRow]:
        for at, child in enumerate(node.children):
            if self._is_stop(child):
                return
            if is_stub(child):
                continue
            if not has_leading_stub(child):
                if self._has_gap_before(child, inner=at > 0):
                    yield ()
                self._is_start = False
            yield from self._render_block(child, room)

    def _is_stop(self, node: "Node") -> bool:
        """Whether `node` is the stop node, or begins with it."""
        while node is not self._stop_node and node.type in CONTAINER_NODE_TYPES and node.children:
            node = node.children[0]
        return node is self._stop_node

    def _has_gap_before(self, node: "Node", *, inner: bool) -> bool:
        """Whether an empty line precedes `node` in the source."""
        if self._is_start:
            return self._has_gap and self._initial_block is None
        return inner and is_blank_line(self._lines[first_line_index(node) - 1])

    def _render_block(self, node: "Node", room: int) -> Iterator[StyledRow]:
        match node.type:
            case "bullet_list" | "ordered_list":
                yield from self._render_children(node, room)
            case "list_item":
                yield from self._render_list_item(node, room)
            case "blockquote":
                yield from self._render_quote(node, room)
            case _:
                carried, self._initial_block = self._initial_block, None
                yield from self._render_leaf(node, carried, room)

    def _render_leaf(self, node: "Node", carried: CarriedBlock | None, room: int) -> Iterator[StyledRow]:
        if isinstance(carried, CarriedParagraph) and node.type != "paragraph":
            yield carried.row
        match node.type:
            case "paragraph":
                yield from self._render_paragraph(
                    node, carried.row if isinstance(carried, CarriedParagraph) else (), room
                )
            case "heading":
                words = render_inline(node.children[0].content.replace(CUT_MARK, ""), self._options, "1")
                yield from wrap_spans([Span(f"{'#' * int(node.tag[1:])} ", DIM_STYLE), *words], room)
            case "hr":
                yield (Span(("─" if self._options.has_box_chars else "-") * min(room, MAX_RULE_COLUMNS), DIM_STYLE),)
            case "table":
                yield from self._render_table(node, carried.layout if isinstance(carried, CarriedTable) else None, room)
            case _:
                yield from self._render_verbatim(node, carried if isinstance(carried, CarriedCode) else None)

    def _render_list_item(self, node: "Node", room: int) -> Iterator[StyledRow]:
        marker, begun = self._item_marker(node), has_leading_stub(node)
        wide = len(marker.text)
        for row in self._render_children(node, max(MIN_LIST_COLUMNS, room - wide)):
            yield (Span(" " * wide), *row) if begun and row else (marker, *row) if not begun else ()
            begun = True
        if not begun:
            yield (Span(marker.text.rstrip()),)

    def _render_quote(self, node: "Node", room: int) -> Iterator[StyledRow]:
        bar, begun = Span("│ " if self._options.has_box_chars else "> ", DIM_STYLE), has_leading_stub(node)
        for row in self._render_children(node, max(MIN_LIST_COLUMNS, room - 2)):
            yield (bar, *row)
            begun = True
        if not begun:
            yield (bar,)

    def _item_marker(self, node: "Node") -> Span:
        number = self.item_numbers.get(id(node))
        if number is not None:
            return Span(f"{number}{node.markup} ")
        return Span("• " if self._options.has_box_chars else "- ")

    def _render_paragraph(self, node: "Node", begun: StyledRow, room: int) -> Iterator[StyledRow]:
        words = node.children[0].content.removeprefix(CUT_MARK)
        upto = self._max_chars if node is self._open_node else None
        rows = wrap_spans([*begun, *render_inline(words[:upto], self._options)], room)
        if upto is not None:
            self.carried_block = CarriedParagraph(() if words[upto] == "\n" else rows.pop())
            self.full_row_count = len(rows)
        yield from rows

    def _render_verbatim(self, node: "Node", begun: CarriedCode | None) -> Iterator[StyledRow]:
        lines = node.content.replace(CUT_MARK, "").split("\n")[:-1]
        framed = node.type in ("fence", "code_block")
        language = node.info.split()[0] if node.info.strip() else ""
        if framed and not begun:
            yield self._code_rule(escape_decoded_text(language))
        ink = begun.lexer_state if begun else make_lexer_state(language if framed else "")
        for line in lines[begun.skipped_lines if begun else 0 :]:
            row, ink = highlight_line(line, ink)
            yield tuple(span for span in row if span.text)
        self.carried_block = CarriedCode(ink, 0 if node.type == "fence" else 1)
        if framed and (node is not self._open_node or is_closed_fence(node)):
            yield self._code_rule("")

    def _code_rule(self, language: str) -> StyledRow:
        """Return the rule above and below code; the language is in it, so that screen readers announce it."""
        rule = "──" if self._options.has_box_chars else "--"
        return (Span(f"{rule} {language}".rstrip(), DIM_STYLE),)

    def _render_table(self, node: "Node", layout: TableLayout | None, room: int) -> Iterator[StyledRow]:
        cells = [
            [
                render_inline(cell.children[0].content, self._options, "1" if cell.type == "th" else "")
                for cell in line.children
            ]
            for part in node.children
            for line in part.children
        ]
        head, *lines = cells
        if layout is None:
            sides = [
                str(cell.attrs.get("style", "")).removeprefix("text-align:")
                for cell in node.children[0].children[0].children
            ]
            layout = compute_table_layout([head, *lines[:LAYOUT_ROWS]], sides, room)
            yield from render_table_head(head, layout, self._options)
        self.carried_block = CarriedTable(layout)
        for line in lines:
            yield from render_table_line(head, line, layout, self._options, room)


def path_to_last_block(root: "Node") -> list["Node"]:
    """Return the nodes from the outermost block to the last one; the root alone if there is no block."""
    path = [root]
    while path[-1].children and path[-1].type in ("root", *CONTAINER_NODE_TYPES):
        path.append(path[-1].children[-1])
    return path[1:] or path


def is_closed_fence(node: "Node") -> bool:
    """Whether a fence has its closing line."""
    first, end = node.map or (0, 0)
    return node.type == "fence" and end - first == node.content.count("\n") + 2


def number_list_items(root: "Node", state: RenderState) -> dict[int, int]:
    """Number the items of all ordered lists, by the id() of their nodes; continued lists keep their numbers."""
    going_on: dict[int, int] = {}
    level = root.children
    for frame in state.containers:
        if level and has_leading_stub(level[0]) and frame.number is not None:
            going_on[id(level[0])] = frame.number
        level = _nodes_after_stub(level)
    return dict(_iter_item_numbers(root, going_on))


def _nodes_after_stub(level: list["Node"]) -> list["Node"]:
    """Return the nodes after the stub in the first container."""
    inner = level[0].children if level else []
    if level and level[0].type in LIST_NODE_TYPES:
        inner = inner[0].children
    return inner[1:]


def _iter_item_numbers(node: "Node", going_on: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    start = going_on.get(id(node), node.attrs.get("start", 1) if node.type == "ordered_list" else 0)
    for at, child in enumerate(node.children if node.type in ("root", *CONTAINER_NODE_TYPES) else ()):
        if node.type == "ordered_list":
            yield id(child), int(start) + at
        yield from _iter_item_numbers(child, going_on)


INLINE_STYLES = {"em": "3", "strong": "1", "s": "9"}
CODE_STYLE = "36"
LINK_STYLE = "4"
DIM_STYLE = "2"

CLICKABLE_SCHEMES = ("http", "https", "mailto", "ftp")

ADDRESS_LIKE = re.compile(r"://|^www\.|\.(?:com|dev|io|net|org)\b", re.IGNORECASE)
"""Matches link text that looks like an address; the actual target is then shown too."""


def render_inline(text: str, options: MarkdownOptions, style: str = "") -> list[Span]:
    """Render the inline content of a block that has the style `style`."""
    return _InlineRenderer(options, style).render(parse_inline(text))


def to_plain_text(text: str) -> str:
    """Return `text` without marks and styles."""
    return "".join(span.text for span in render_inline(text, MarkdownOptions(has_color=True, has_links=True)))


class _InlineRenderer:
    """Collects the spans of an inline token sequence."""

    def __init__(self, options: MarkdownOptions, style: str) -> None:
        self._options = options
        self._styles = [style] if style else []
        self._spans: list[Span] = []
        self._links: list[tuple[str, int]] = []

    def render(self, tokens: Sequence[Token]) -> list[Span]:
        for token in tokens:
            self._add_token(token)
        return self._spans

    def _add_token(self, token: Token) -> None:
        name, _, edge = token.type.rpartition("_")
        match token.type:
            case "softbreak" | "hardbreak":
                self._add_text("\n")
            case "code_inline":
                self._add_text(token.content if self._options.has_color else _code_with_ticks(token), CODE_STYLE)
            case "image":
                self._add_image(token)
            case "link_open":
                self._links.append((str(token.attrGet("href") or ""), len(self._spans)))
            case "link_close":
                self._end_link()
            case _ if name in INLINE_STYLES and edge in ("open", "close"):
                self._toggle_style(token, INLINE_STYLES[name], is_opening=edge == "open")
            case _:
                self._add_text(token.content)

    def _add_text(self, text: str, style: str = "") -> None:
        link = self._links[-1][0] if self._links else ""
        styles = [*self._styles, *([LINK_STYLE] if link else []), *([style] if style else [])]
        if text:
            self._spans.append(
                Span(escape_decoded_text(text), ";".join(styles), link if _is_clickable_link(link) else "")
            )

    def _toggle_style(self, token: Token, style: str, *, is_opening: bool) -> None:
        if is_opening:
            self._styles.append(style)
        else:
            self._styles.remove(style)
        if not self._options.has_color:
            self._add_text(token.markup)

    def _add_image(self, token: Token) -> None:
        self._links.append((str(token.attrGet("src") or ""), len(self._spans)))
        self._add_text(to_plain_text(token.content) or "image")
        self._end_link()

    def _end_link(self) -> None:
        link, first = self._links.pop()
        said = "".join(span.text for span in self._spans[first:])
        if not link or _is_same_address(said, link):
            return
        if not (self._options.has_links and _is_clickable_link(link)) or ADDRESS_LIKE.search(said):
            self._add_text(f" ({link})")


def _code_with_ticks(token: Token) -> str:
    inner = f" {token.content} " if token.content[:1] == "`" or token.content[-1:] == "`" else token.content
    return f"{token.markup}{inner}{token.markup}"


def _is_clickable_link(link: str) -> bool:
    return link.partition(":")[0].lower() in CLICKABLE_SCHEMES and link.isascii() and link.isprintable()


def _is_same_address(said: str, link: str) -> bool:
    return unquote(said) in (unquote(link), unquote(link).removeprefix("mailto:"))


INLINE_MATH = re.compile(
    r"""\$\$(?!\$).{1,500}?\$\$"""
    r"""|\$(?![\s$])[^$\n]{0,200}(?<![\s\\])\$(?!\d)"""
    r"""|\\\(.{1,500}?\\\)"""
    r"""|\\\[.{1,500}?\\\]""",
    re.DOTALL,
)
"""Inline math; as in Pandoc, no blank inside the dollars and no digit after them, so that prices do not match."""

MAX_NESTING = 200
"""Nesting depth up to which blocks are parsed; `MAX_OPEN_CONTAINERS` in `stream` keeps all text below it."""

MATH_ENDS = {"$$": "$$", "\\[": "\\]"}


def parse_blocks(lines: Sequence[str]) -> SyntaxTreeNode:
    """Parse `lines` into blocks, without their inline content."""
    tokens: list[Token] = []
    reader = _make_parser()
    reader.block.parse("".join(f"{line}\n" for line in lines), reader, {}, tokens)
    return SyntaxTreeNode(tokens)


def parse_inline(text: str) -> list[Token]:
    """Parse the inline content of a block into tokens."""
    tokens: list[Token] = []
    reader = _make_parser()
    reader.inline.parse(text, reader, {}, tokens)
    return tokens


@cache
def _make_parser() -> MarkdownIt:
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable(["reference", "lheading"])
    reader.options["maxNesting"] = MAX_NESTING
    reader.inline.ruler.before("escape", "math", _math_rule)
    reader.block.ruler.before("fence", "math_block", _math_block_rule, {"alt": ["paragraph", "blockquote", "list"]})
    return reader


def _math_rule(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    found = INLINE_MATH.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    if not silent:
        state.push("math", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _math_block_rule(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Match a block of math.

    It begins with a line that starts with an opening delimiter, and ends with a line that ends with the closing one or
    before an empty line.
    """
    if state.is_code_block(first):
        return False
    line = _source_line(state, first)
    closing = MATH_ENDS.get(line[:2])
    if closing is None or closing in line[2:].rstrip()[:-2]:
        return False
    if silent:
        return True
    end = first + 1
    if len(line) < 4 or not line.endswith(closing):
        while end < last and not state.isEmpty(end) and state.sCount[end] >= state.blkIndent:
            end += 1
            if _source_line(state, end - 1).endswith(closing):
                break
    token = state.push("math_block", "", 0)
    token.content = state.getLines(first, end, state.blkIndent, True)
    token.map = [first, end]
    state.line = end
    return True


def _source_line(state: StateBlock, at: int) -> str:
    return state.src[state.bMarks[at] + state.tShift[at] : state.eMarks[at]].rstrip()

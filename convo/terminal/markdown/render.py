"""Markdown source to rows of styled text, with markdown-it and Pygments.

Without colors headings and emphasis keep their marks. Code starts at the left margin. A table keeps
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
    return UNPRINTABLE_CHAR.sub(lambda match: "" if match[0] == CUT_MARK else escape_char_match(match), text)


def row_width(row: Iterable[Span]) -> int:
    return sum(text_width(span.text) for span in row)


def encode_row(row: StyledRow, options: MarkdownOptions) -> str:
    """Encode a row for the terminal; styles are reset at its end."""
    return "".join(_encode_span(span, options) for span in merge_spans(row))


def merge_spans(row: Iterable[Span]) -> Iterator[Span]:
    """Merge adjacent spans with equal style and link."""
    current: Span | None = None
    for span in row:
        if current and current[1:] == span[1:]:
            current = current._replace(text=current.text + span.text)
            continue
        if current:
            yield current
        current = span
    if current:
        yield current


def wrap_spans(spans: Iterable[Span], columns: int) -> list[StyledRow]:
    """Wrap spans to rows of at most `columns`, at spaces and between wide characters.

    A word that is wider than a row is split at its end. Returns no row for no text.
    """
    filler = _RowFiller(max(1, columns))
    for span in spans:
        for piece in split_pieces(span.text):
            filler.add(span._replace(text=piece))
    return filler.finish()


def split_pieces(text: str) -> Iterator[str]:
    """Split `text` into line breaks, runs of spaces, words, and single wide characters."""
    for piece in TEXT_PIECE.findall(text):
        if piece.isascii() or piece[0] in " \n":
            yield piece
        else:
            yield from _split_by_width(piece)


def break_spans(spans: Iterable[Span], columns: int) -> list[StyledRow]:
    """Break spans into rows of `columns`, anywhere a row is full. Returns at least one row."""
    rows, row, free_columns = [], list[Span](), columns
    for span in spans:
        for part in _split_to_fit(span.text, free_columns, columns):
            width = text_width(part)
            if width > free_columns:
                rows.append(tuple(row))
                row, free_columns = [], columns
            row.append(span._replace(text=part))
            free_columns -= width
    return [*rows, tuple(row)]


class _RowFiller:
    """Fills rows piece by piece, and tracks the width of the row, the space and the word."""

    def __init__(self, max_width: int) -> None:
        self._max_width = max_width
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
            is_wide = _is_wide_char(span.text[0])
            if is_wide:
                self._end_word()
            self._word.append(span)
            self._word_width += text_width(span.text)
            if is_wide:
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
    piece = ""
    for char in word:
        is_wide = _is_wide_char(char)
        is_break = (is_wide and char not in NO_ROW_START_CHARS) or (
            piece and _is_wide_char(piece[0]) and text_width(char) and char not in NO_ROW_START_CHARS
        )
        if piece and is_break:
            yield piece
            piece = ""
        piece += char
    yield piece


def _is_wide_char(char: str) -> bool:
    return char > "\u10ff" and text_width(char) > 1


def _split_to_fit(text: str, free_columns: int, columns: int) -> Iterator[str]:
    """Split `text` into parts of which the first fits into `free_columns` and the others into `columns`."""
    if text_width(text) <= free_columns:
        yield text
        return
    part, part_width = "", 0
    for char in text:
        width = text_width(char)
        if part and part_width + width > free_columns:
            yield part
            part, part_width, free_columns = "", 0, columns
        part += char
        part_width += width
    yield part


def _encode_span(span: Span, options: MarkdownOptions) -> str:
    text = span.text
    if options.has_color and span.style:
        text = f"\x1b[{span.style}m{text}\x1b[0m"
    if options.has_links and span.link:
        text = f"\x1b]8;;{span.link}\x1b\\{text}\x1b]8;;\x1b\\"
    return text


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


def compute_table_layout(lines: Sequence[TableLine], alignments: Sequence[str], width: int) -> TableLayout:
    """Compute the layout of a table from its first lines, including the head."""
    max_widths = [
        max(_cell_width(line[index]) for line in lines if index < len(line)) for index in range(len(alignments))
    ]
    available = width - 3 * (len(alignments) - 1)
    if available < min(MIN_CELL_COLUMNS * len(alignments), sum(max_widths)):
        return TableLayout((), tuple(alignments))
    return TableLayout(tuple(_share_width(max_widths, available)), tuple(alignments))


def render_table_head(head: TableLine, layout: TableLayout, options: MarkdownOptions) -> list[StyledRow]:
    if not layout.widths:
        return []
    dash, cross = ("─", "─┼─") if options.has_box_chars else ("-", "-+-")
    rule = Span(cross.join(dash * width for width in layout.widths), DIM_STYLE)
    return [*_render_cells(head, layout, options), (rule,)]


def render_table_line(
    head: TableLine, line: TableLine, layout: TableLayout, options: MarkdownOptions, width: int
) -> list[StyledRow]:
    """Render one line of the table; `width` is the width available."""
    if layout.widths:
        return _render_cells(line, layout, options)
    rows = [row for heading, cell in zip(head, line, strict=False) for row in _render_as_list(heading, cell, width)]
    return [*rows, ()]


def _render_as_list(heading: TableCell, cell: TableCell, width: int) -> list[StyledRow]:
    first, *rest = wrap_spans([*heading, Span(": "), *cell], width - 2) or [()]
    return [first, *((Span("  "), *row) for row in rest)]


def _render_cells(line: TableLine, layout: TableLayout, options: MarkdownOptions) -> list[StyledRow]:
    cells = [wrap_spans(cell, width) for cell, width in zip(line, layout.widths, strict=False)]
    height = max((len(cell) for cell in cells), default=0) or 1
    return [
        _join_cells([cell[index] if index < len(cell) else () for cell in cells], layout, options)
        for index in range(height)
    ]


def _join_cells(cells: Sequence[StyledRow], layout: TableLayout, options: MarkdownOptions) -> StyledRow:
    separator = Span(" │ " if options.has_box_chars else " | ", DIM_STYLE)
    row: list[Span] = []
    for index, (cell, width, alignment) in enumerate(zip(cells, layout.widths, layout.alignments, strict=False)):
        padding = width - row_width(cell)
        before = {"right": padding, "center": padding // 2}.get(alignment, 0)
        after = 0 if index == len(layout.widths) - 1 else padding - before
        row += [*([separator] if index else []), Span(" " * before), *cell, Span(" " * after)]
    return tuple(span for span in row if span.text)


def _cell_width(cell: TableCell) -> int:
    return max((row_width(row) for row in wrap_spans(cell, 1_000)), default=1)


def _share_width(max_widths: Sequence[int], width: int) -> list[int]:
    """Distribute the width: narrow columns get their full width, wide ones share the rest."""
    widths, remaining, open_columns = [0] * len(max_widths), width, len(max_widths)
    for index in sorted(range(len(max_widths)), key=lambda index: max_widths[index]):
        widths[index] = min(max_widths[index], remaining // open_columns)
        remaining -= widths[index]
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
        comment, closing, rest = line.partition(state.comment_end)
        if not closing:
            return [Span(line, TOKEN_STYLES[Comment])], state
        spans, next_state = highlight_line(rest, state._replace(comment_end=""))
        return [Span(comment + closing, TOKEN_STYLES[Comment]), *spans], next_state
    tokens, stack = _tokenize_line(state.lexer, line, state.stack)
    for opening, closing in COMMENT_ENDS.items():
        start = line.rfind(opening)
        if start >= 0 and closing not in line[start + 2 :] and _has_open_comment(state, line, closing):
            tokens_before, _ = _tokenize_line(state.lexer, line[:start], state.stack)
            return [*_token_spans(tokens_before), Span(line[start:], TOKEN_STYLES[Comment])], state._replace(
                comment_end=closing
            )
    return list(_token_spans(tokens)), state._replace(stack=stack)


def _has_open_comment(state: LexerState, line: str, closing: str) -> bool:
    """Whether `line` ends inside a comment: closing one there must make its last token a comment."""
    assert state.lexer
    token_types = [
        token_type for token_type, text in _tokenize_line(state.lexer, line + closing, state.stack)[0] if text.strip()
    ]
    return token_types[-1] in Comment


def _tokenize_line(lexer: Lexer, line: str, stack: tuple[str, ...]) -> tuple[list[tuple[Any, str]], tuple[str, ...]]:
    """Tokenize one line. Returns token types with their text, and the state stack after it."""
    if isinstance(lexer, RegexLexer) and not isinstance(lexer, ExtendedRegexLexer):
        context = LexerContext(line + "\n", 0, list(stack))
        try:
            tokens = list(ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context))
            return [(token_type, text) for _, token_type, text in tokens], tuple(context.stack[:20])
        except TypeError:  # the lexer has callbacks that accept no context
            pass
    return [(token_type, text) for _, token_type, text in lexer.get_tokens_unprocessed(line + "\n")], ("root",)


def _token_spans(tokens: list[tuple[Any, str]]) -> Iterator[Span]:
    for token_type, text in tokens:
        if text := text.rstrip("\n"):
            yield Span(text, _token_style(token_type))


@cache
def _token_style(token_type: Any) -> str:
    while token_type not in TOKEN_STYLES and token_type is not PygmentsToken:
        token_type = token_type.parent
    return TOKEN_STYLES.get(token_type, "")


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
    lines, prefix = list[str](), ""
    for container in containers:
        lines.append(f"{prefix}{container.marker}{CUT_MARK}")
        prefix += container.prefix
        lines.append(prefix.rstrip())
    return lines


def container_prefix(containers: Sequence[OpenContainer]) -> str:
    return "".join(container.prefix for container in containers)


def strip_container_prefix(line: str, containers: Sequence[OpenContainer]) -> str:
    """Remove the prefixes of the containers from `line`."""
    for container in containers:
        line = QUOTE_PREFIX.sub("", line, count=1) if container.prefix == "> " else line[len(container.prefix) :]
    return line


def find_open_containers(
    path: Sequence["Node"], lines: Sequence[str], containers: Sequence[OpenContainer], numbers: dict[int, int]
) -> list[OpenContainer]:
    """Find the containers on `path`; those that begin with a stub are taken from `containers`."""
    open_containers: list[OpenContainer] = []
    for node in path:
        if node.type not in ("list_item", "blockquote"):
            continue
        if has_leading_stub(node) and len(open_containers) < len(containers):
            container = containers[len(open_containers)]
        elif node.type == "blockquote":
            container = OpenContainer("> ", "> ")
        else:
            container = _list_item_container(strip_container_prefix(lines[first_line_index(node)], open_containers))
        open_containers.append(container._replace(number=numbers.get(id(node))))
    return open_containers


def _list_item_container(line: str) -> OpenContainer:
    match = LIST_ITEM_PREFIX.match(line)
    marker, spaces, rest = match.groups() if match else ("-", " ", "")
    width = len(marker) + (len(spaces) if rest and len(spaces) < INDENTED_CODE_SPACES else 1)
    return OpenContainer(f"{marker:<{width}}", " " * width)


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

    def _render_children(self, node: "Node", width: int) -> Iterator[StyledRow]:
        for index, child in enumerate(node.children):
            if self._is_stop(child):
                return
            if is_stub(child):
                continue
            if not has_leading_stub(child):
                if self._has_gap_before(child, has_previous=index > 0):
                    yield ()
                self._is_start = False
            yield from self._render_block(child, width)

    def _is_stop(self, node: "Node") -> bool:
        """Whether `node` is the stop node, or begins with it."""
        while node is not self._stop_node and node.type in CONTAINER_NODE_TYPES and node.children:
            node = node.children[0]
        return node is self._stop_node

    def _has_gap_before(self, node: "Node", *, has_previous: bool) -> bool:
        """Whether an empty line precedes `node` in the source."""
        if self._is_start:
            return self._has_gap and self._initial_block is None
        return has_previous and is_blank_line(self._lines[first_line_index(node) - 1])

    def _render_block(self, node: "Node", width: int) -> Iterator[StyledRow]:
        match node.type:
            case "bullet_list" | "ordered_list":
                yield from self._render_children(node, width)
            case "list_item":
                yield from self._render_list_item(node, width)
            case "blockquote":
                yield from self._render_quote(node, width)
            case _:
                carried, self._initial_block = self._initial_block, None
                yield from self._render_leaf(node, carried, width)

    def _render_leaf(self, node: "Node", carried: CarriedBlock | None, width: int) -> Iterator[StyledRow]:
        if isinstance(carried, CarriedParagraph) and node.type != "paragraph":
            yield carried.row
        match node.type:
            case "paragraph":
                yield from self._render_paragraph(
                    node, carried.row if isinstance(carried, CarriedParagraph) else (), width
                )
            case "heading":
                level = int(node.tag[1:])
                style = HEADING_STYLES[min(level, len(HEADING_STYLES)) - 1]
                spans = render_inline(node.children[0].content.replace(CUT_MARK, ""), self._options, style)
                yield from wrap_spans(spans if self._options.has_color else [Span(f"{'#' * level} "), *spans], width)
            case "hr":
                yield (Span(("─" if self._options.has_box_chars else "-") * min(width, MAX_RULE_COLUMNS), DIM_STYLE),)
            case "table":
                yield from self._render_table(
                    node, carried.layout if isinstance(carried, CarriedTable) else None, width
                )
            case _:
                yield from self._render_verbatim(node, carried if isinstance(carried, CarriedCode) else None)

    def _render_list_item(self, node: "Node", width: int) -> Iterator[StyledRow]:
        marker, is_started = self._item_marker(node), has_leading_stub(node)
        indent = len(marker.text)
        for row in self._render_children(node, max(MIN_LIST_COLUMNS, width - indent)):
            yield (Span(" " * indent), *row) if is_started and row else (marker, *row) if not is_started else ()
            is_started = True
        if not is_started:
            yield (Span(marker.text.rstrip()),)

    def _render_quote(self, node: "Node", width: int) -> Iterator[StyledRow]:
        bar, is_started = Span("│ " if self._options.has_box_chars else "> ", DIM_STYLE), has_leading_stub(node)
        for row in self._render_children(node, max(MIN_LIST_COLUMNS, width - 2)):
            yield (bar, *row)
            is_started = True
        if not is_started:
            yield (bar,)

    def _item_marker(self, node: "Node") -> Span:
        number = self.item_numbers.get(id(node))
        if number is not None:
            return Span(f"{number}{node.markup} ")
        return Span("• " if self._options.has_box_chars else "- ")

    def _render_paragraph(self, node: "Node", carried_row: StyledRow, width: int) -> Iterator[StyledRow]:
        text = node.children[0].content.removeprefix(CUT_MARK)
        max_chars = self._max_chars if node is self._open_node else None
        rows = wrap_spans([*carried_row, *render_inline(text[:max_chars], self._options)], width)
        if max_chars is not None:
            self.carried_block = CarriedParagraph(() if text[max_chars] == "\n" else rows.pop())
            self.full_row_count = len(rows)
        yield from rows

    def _render_verbatim(self, node: "Node", carried: CarriedCode | None) -> Iterator[StyledRow]:
        lines = node.content.replace(CUT_MARK, "").split("\n")[:-1]
        is_code = node.type in ("fence", "code_block")
        language = node.info.split()[0] if node.info.strip() else ""
        if is_code and not carried:
            yield self._code_rule(escape_decoded_text(language))
        lexer_state = carried.lexer_state if carried else make_lexer_state(language if is_code else "")
        for line in lines[carried.skipped_lines if carried else 0 :]:
            row, lexer_state = highlight_line(line, lexer_state)
            yield tuple(span for span in row if span.text)
        self.carried_block = CarriedCode(lexer_state, 0 if node.type == "fence" else 1)
        if is_code and (node is not self._open_node or is_closed_fence(node)):
            yield self._code_rule("")

    def _code_rule(self, language: str) -> StyledRow:
        """Return the rule above and below code; the language is in it, so that screen readers announce it."""
        rule = "──" if self._options.has_box_chars else "--"
        return (Span(f"{rule} {language}".rstrip(), DIM_STYLE),)

    def _render_table(self, node: "Node", layout: TableLayout | None, width: int) -> Iterator[StyledRow]:
        cells = [
            [
                render_inline(cell.children[0].content, self._options, "1" if cell.type == "th" else "")
                for cell in line.children
            ]
            for section in node.children
            for line in section.children
        ]
        head, *lines = cells
        if layout is None:
            alignments = [
                str(cell.attrs.get("style", "")).removeprefix("text-align:")
                for cell in node.children[0].children[0].children
            ]
            layout = compute_table_layout([head, *lines[:LAYOUT_ROWS]], alignments, width)
            yield from render_table_head(head, layout, self._options)
        self.carried_block = CarriedTable(layout)
        for line in lines:
            yield from render_table_line(head, line, layout, self._options, width)


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
    continued_numbers: dict[int, int] = {}
    nodes = root.children
    for container in state.containers:
        if nodes and has_leading_stub(nodes[0]) and container.number is not None:
            continued_numbers[id(nodes[0])] = container.number
        nodes = _nodes_after_stub(nodes)
    return dict(_iter_item_numbers(root, continued_numbers))


def _nodes_after_stub(nodes: list["Node"]) -> list["Node"]:
    """Return the nodes after the stub in the first container."""
    children = nodes[0].children if nodes else []
    if nodes and nodes[0].type in LIST_NODE_TYPES:
        children = children[0].children
    return children[1:]


def _iter_item_numbers(node: "Node", continued_numbers: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    start = continued_numbers.get(id(node), node.attrs.get("start", 1) if node.type == "ordered_list" else 0)
    for index, child in enumerate(node.children if node.type in ("root", *CONTAINER_NODE_TYPES) else ()):
        if node.type == "ordered_list":
            yield id(child), int(start) + index
        yield from _iter_item_numbers(child, continued_numbers)


HEADING_STYLES = ("1;4", "1", "1;2")
"""Styles of headings by level; the last one for all deeper levels."""

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
        link, start = self._links.pop()
        text = "".join(span.text for span in self._spans[start:])
        if not link or _is_same_address(text, link):
            return
        if not (self._options.has_links and _is_clickable_link(link)) or ADDRESS_LIKE.search(text):
            self._add_text(f" ({link})")


def _code_with_ticks(token: Token) -> str:
    content = f" {token.content} " if token.content[:1] == "`" or token.content[-1:] == "`" else token.content
    return f"{token.markup}{content}{token.markup}"


def _is_clickable_link(link: str) -> bool:
    return link.partition(":")[0].lower() in CLICKABLE_SCHEMES and link.isascii() and link.isprintable()


def _is_same_address(text: str, link: str) -> bool:
    return unquote(text) in (unquote(link), unquote(link).removeprefix("mailto:"))


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
    parser = _make_parser()
    parser.block.parse("".join(f"{line}\n" for line in lines), parser, {}, tokens)
    return SyntaxTreeNode(tokens)


def parse_inline(text: str) -> list[Token]:
    """Parse the inline content of a block into tokens."""
    tokens: list[Token] = []
    parser = _make_parser()
    parser.inline.parse(text, parser, {}, tokens)
    return tokens


@cache
def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable(["reference", "lheading"])
    parser.options["maxNesting"] = MAX_NESTING
    parser.inline.ruler.before("escape", "math", _math_rule)
    parser.block.ruler.before("fence", "math_block", _math_block_rule, {"alt": ["paragraph", "blockquote", "list"]})
    return parser


def _math_rule(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    match = INLINE_MATH.match(state.src, state.pos, state.posMax)
    if not match:
        return False
    if not silent:
        state.push("math", "", 0).content = match[0]
    state.pos = match.end()
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


def _source_line(state: StateBlock, index: int) -> str:
    return state.src[state.bMarks[index] + state.tShift[index] : state.eMarks[index]].rstrip()

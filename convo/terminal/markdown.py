"""Markdown of an answer, rendered by rich while it streams.

A finished block is printed once, and only the open one is drawn again. Code, lists and tables are printed in parts:
`CODE_BATCH_LINES` lines, an item, `TABLE_BATCH_ROWS` rows. The result does not depend on how the text was split into
deltas. Without colors headings, emphasis and code keep their marks. HTML, math and reference links are shown as source.

`render_blocks` renders lines, `MarkdownStream` cuts off the finished part of a text, `RowPainter` writes the
difference to the terminal, and `MarkdownRenderer` limits how often.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TextIO
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, String
from pygments.token import Token as TokenType
from pygments.util import ClassNotFound
from rich import box, markdown
from rich.cells import chop_cells
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme
from rich.table import Table
from rich.text import Text

from convo.terminal.terminal import CONTROL_CHARS, INVISIBLE_CHARS, count_rows, escape_char_match, text_width
from convo.terminal.theme import ColorSystemName, get_rich_style, make_rich_theme
from convo.terminal.waiting import MAX_FOOTER_ROWS

if TYPE_CHECKING:
    from convo.terminal.waiting import Footer

CODE_BATCH_LINES = 16
"""Lines of code that are printed together."""

TABLE_BATCH_ROWS = 24
"""Rows of a table that are printed together. The first ones determine the widths of the columns."""

MAX_TEXT_CHARS = 4_000
"""Characters of a line, a paragraph or a quote after which it is printed as if it had ended."""

MAX_BLOCK_CHARS = 20_000
"""The same for other blocks: one item of a list, for example."""

PLAIN_TEXT_MARK = "\ufdd0"
"""A noncharacter before a line that is nested too deeply: it makes the line text. It is never printed."""

UNPRINTABLE_CHAR = re.compile(rf"[{CONTROL_CHARS}{INVISIBLE_CHARS}{PLAIN_TEXT_MARK}]")

MIN_ITEM_COLUMNS = 12
"""Columns below which the text of an item or a quote is not indented further."""

MIN_FIRST_COLUMNS = 4
"""Columns below which it does not begin in the row of its mark."""

MAX_RULE_COLUMNS = 40

MARKDOWN_STYLES = {
    "markdown.em": "italic",
    "markdown.strong": "bold",
    "markdown.s": "strike",
    "markdown.code": "id",
    "markdown.link_url": "underline",
    "markdown.h1": "bold underline id",
    "markdown.h2": "bold id",
    "markdown.h3": "bold italic id",
    **{f"markdown.h{level}": "italic id" for level in range(4, 7)},
    "markdown.hr": "dim",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
    "markdown.paragraph": "none",
    "markdown.item": "none",
    "markdown.block_quote": "none",
    "markdown.code_block": "none",
}


@lru_cache(8)
def get_style(name: str, color_system: ColorSystemName) -> Style:
    """Return a style of the theme for rich."""
    return Style.parse(get_rich_style(name, color_system))


CODE_THEMES = {"truecolor": "github-dark", "256": "github-dark"}
"""Themes with a background of their own: their contrast is the same on a light and on a dark terminal."""

TERMINAL_COLORS_THEME = "ansi_dark"
"""The theme for terminals of 16 colors, which has no background."""


COLOR_SYSTEMS: Mapping[ColorSystemName, ColorSystem] = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}


class MarkdownOptions(NamedTuple):
    """Options of the layout.

    width:          columns of a row
    has_color:      whether styles are shown
    has_box_chars:  whether non-ASCII characters can be drawn
    has_links:      whether the terminal supports hyperlinks
    has_gutter:     whether text is indented below the mark of its answer; code is not, so that it can be copied
    folds_code:     whether each row fits the width; otherwise the terminal wraps a long line of code
    """

    width: int = 80
    has_color: bool = False
    has_box_chars: bool = True
    has_links: bool = False
    color_system: ColorSystemName = "standard"
    has_gutter: bool = False
    folds_code: bool = False


# -- source to tokens --------------------------------------------------------------------------------

INLINE_MATH = re.compile(
    r"""\$\$(?!\$).{1,500}?\$\$"""
    r"""|\$(?![\s$])[^$\n]{0,200}(?<![\s\\])\$(?!\d)"""
    r"""|\\\(.{1,500}?\\\)"""
    r"""|\\\[.{1,500}?\\\]""",
    re.DOTALL,
)
"""Inline math; as in Pandoc, no blank inside the dollars and no digit after them, so that prices do not match."""

MATH_ENDS = {"$$": "$$", "\\[": "\\]"}

MAX_NESTING = 200
MAX_INDENT = 60
DEEP_PREFIX = re.compile(r"(?: {0,3}(?:>|(?:[-+*]|\d{1,9}[.)])(?= ))){20,}")
LIST_OR_QUOTE_MARK = re.compile(r">|[-+*](?: |$)|\d{1,9}[.)](?: |$)")
"""Limits of nesting: 20 marks in one line, and marks that are indented by more than `MAX_INDENT`, are text."""

BRACKETS = re.compile(r"[\[\]]")
MAX_OPEN_BRACKETS = 20
"""Open brackets above which a text has no links: the parser searches the end of each in the rest of the text."""

CLICKABLE_SCHEMES = ("http", "https", "mailto", "ftp")

ADDRESS_LIKE = re.compile(r"://|^www\.|\.(?:com|dev|io|net|org)\b", re.IGNORECASE)
"""Matches link text that looks like an address; the actual target is then shown too."""

EMPHASIS_TAGS = ("em", "strong", "s")


class Block(NamedTuple):
    """A top-level block: its tokens, and the range of its lines."""

    tokens: list[Token]
    start: int
    end: int

    @property
    def type(self) -> str:
        return self.tokens[0].type

    @property
    def is_open_fence(self) -> bool:
        """Whether it is code without its closing line."""
        return self.type == "fence" and self.end - self.start != self.tokens[0].content.count("\n") + 2


def parse_blocks(lines: Sequence[str]) -> list[Block]:
    """Parse lines into top-level blocks, without their inline content."""
    tokens: list[Token] = []
    parser = _make_parser()
    parser.block.parse("".join(f"{line}\n" for line in lines), parser, {}, tokens)
    blocks: list[Block] = []
    first = 0
    for index, token in enumerate(tokens):
        if token.level == 0 and token.nesting <= 0:
            start, end = tokens[first].map or [0, 0]
            blocks.append(Block(tokens[first : index + 1], start, end))
            first = index + 1
    return blocks


def limit_nesting(line: str) -> str:
    """Return a line without tabs; one that would be nested too deeply becomes text."""
    line = line.replace(PLAIN_TEXT_MARK, "\ufffd").expandtabs(4)
    text = line.lstrip(" ")
    is_deep = DEEP_PREFIX.match(line) or (len(line) - len(text) > MAX_INDENT and LIST_OR_QUOTE_MARK.match(text))
    if not is_deep or not text.strip("-* "):  # a rule is not nested
        return line
    return f"{line[: len(line) - len(text)]}{PLAIN_TEXT_MARK}{text}"


@lru_cache(2)
def _make_parser(*, has_links: bool = True) -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    # A reference may be defined after its link was printed, and HTML would be hidden: both stay source.
    parser.disable(["reference", "lheading", "html_block", "html_inline", *([] if has_links else ["link", "image"])])
    parser.options["maxNesting"] = MAX_NESTING
    parser.inline.ruler.before("escape", "math", _math_rule)
    parser.block.ruler.before("fence", "math_block", _math_block_rule, {"alt": ["paragraph", "blockquote", "list"]})
    return parser


def _count_open_brackets(content: str) -> int:
    """Return the largest number of brackets that are open at once, without regard to escapes and code."""
    count = largest = 0
    for bracket in BRACKETS.findall(content):
        count = count + 1 if bracket == "[" else max(0, count - 1)
        largest = max(largest, count)
    return largest


def _math_rule(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    match = INLINE_MATH.match(state.src, state.pos, state.posMax)
    if not match:
        return False
    if not silent:
        _push_text(state, match[0])
    state.pos = match.end()
    return True


def _push_text(state: StateInline, text: str) -> None:
    for index, line in enumerate(text.split("\n")):
        if index:
            state.push("hardbreak", "br", 0)
        state.push("text", "", 0).content = line


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
    token.content = state.getLines(first, end, state.blkIndent, False).rstrip("\n")
    token.map = [first, end]
    state.line = end
    return True


def _source_line(state: StateBlock, index: int) -> str:
    return state.src[state.bMarks[index] + state.tShift[index] : state.eMarks[index]].rstrip()


def _parse_inline(content: str, options: MarkdownOptions) -> list[Token]:
    """Parse the inline content of a block into the tokens that rich shows."""
    tokens: list[Token] = []
    parser = _make_parser(has_links=_count_open_brackets(content) <= MAX_OPEN_BRACKETS)
    parser.inline.parse(content.replace(PLAIN_TEXT_MARK, ""), parser, {}, tokens)
    return list(_iter_shown_tokens(tokens, options))


def _iter_shown_tokens(tokens: Iterable[Token], options: MarkdownOptions) -> Iterator[Token]:
    """Yield inline tokens for rich: line breaks stay, images are text, and a link that cannot be clicked shows its URL.

    Without colors the marks of emphasis and code are text.
    """
    links: list[tuple[str, list[str]]] = []
    for token in tokens:
        token.content = UNPRINTABLE_CHAR.sub(escape_char_match, token.content)
        if links:
            links[-1][1].append(token.content)
        if token.type == "softbreak":
            yield Token("hardbreak", "br", 0)
        elif token.type == "image":
            url, text = str(token.attrGet("src") or ""), _plain_text(token.content) or "image"
            yield _text_token(text if _is_same_address(text, url) else f"{text} ({url})")
        elif token.type == "link_open":
            links.append((str(token.attrGet("href") or ""), []))
            is_clickable = options.has_links and _is_clickable(links[-1][0])
            yield token if is_clickable else Token("link_open", "a", 1)
        elif token.type == "link_close":
            url, texts = links.pop()
            text, is_clickable = "".join(texts), options.has_links and _is_clickable(url)
            yield token
            if url and not _is_same_address(text, url) and (not is_clickable or ADDRESS_LIKE.search(text)):
                yield _text_token(f" ({UNPRINTABLE_CHAR.sub(escape_char_match, url)})")
        elif not options.has_color and token.type == "code_inline":
            padding = " " if "`" in (token.content[:1], token.content[-1:]) else ""
            yield _text_token(f"{token.markup}{padding}{token.content}{padding}{token.markup}")
        elif token.type == "text_special" or (not options.has_color and token.tag in EMPHASIS_TAGS):
            yield _text_token(token.content or token.markup)
        else:
            yield token


def _text_token(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _plain_text(source: str) -> str:
    """Return the text of inline Markdown without its marks."""
    tokens: list[Token] = []
    parser = _make_parser(has_links=_count_open_brackets(source) <= MAX_OPEN_BRACKETS)
    parser.inline.parse(source, parser, {}, tokens)
    return "".join(token.content for token in tokens)


def _is_clickable(url: str) -> bool:
    return url.partition(":")[0].lower() in CLICKABLE_SCHEMES and url.isascii() and url.isprintable()


def _is_same_address(text: str, url: str) -> bool:
    return unquote(text) in (unquote(url), unquote(url).removeprefix("mailto:"))


# -- code --------------------------------------------------------------------------------------------

MAX_CONTEXT_LINES = 200
"""Lines before a batch that its lexer reads again, for a token of several lines."""

EXCLUDED_LANGUAGES = ("mcschema",)
"""Languages whose lexers do not terminate on foreign lines; all others of Pygments 2.21 were tried."""


class CodeState(NamedTuple):
    """The state between two batches of code.

    language:  as the fence names it
    context:   lines before the batch, from one at which the lexer was outside of texts and comments
    """

    language: str
    context: tuple[str, ...] = ()


def render_code(
    lines: Sequence[str], state: CodeState, options: MarkdownOptions, indent: int = 0
) -> tuple[list[str], CodeState]:
    """Render lines of code in batches, without the rows above and below. Returns the rows and the next state.

    A line is one row, which the terminal wraps: a selected command that is wrapped here would be copied as two.

    indent:  columns before the code
    """
    rows: list[str] = []
    theme = get_code_theme(options)
    for start in range(0, len(lines), CODE_BATCH_LINES):
        batch = tuple(_clean_code(line) for line in lines[start : start + CODE_BATCH_LINES])
        text, restart = _highlight([*state.context, *batch], state.language if options.has_color else "", theme)
        for line in text.split("\n", allow_blank=True)[len(state.context) : len(state.context) + len(batch)]:
            parts = _fold_line(line, max(1, options.width - indent)) if options.folds_code else [line]
            rows += [_render_code_row(part, theme, options, indent) for part in parts]
        context = (*state.context, *batch)[restart:]
        state = state._replace(context=context if len(context) <= MAX_CONTEXT_LINES else ())
    return rows, state


def _fold_line(line: Text, columns: int) -> list[Text]:
    """Divide a line of code as a terminal of `columns` wraps it."""
    return list(line.divide(accumulate(map(len, chop_cells(line.plain, columns)[:-1]))))


ERASE_TO_EDGE = "\x1b[K"
"""Fills the row up to the edge of the terminal with the background."""


def _render_code_row(line: Text, theme: SyntaxTheme, options: MarkdownOptions, indent: int) -> str:
    """Render a line of code; its background reaches the edge, also if the terminal wraps the line."""
    background, columns = theme.get_background_style(), options.width + RIGHT_MARGIN_COLUMNS
    # Without a lexer the text has no color, and that of a light terminal cannot be read on the dark background.
    line.stylize_before(theme.get_style_for_token(TokenType) + background)
    row = _encode_segments(line.render(_make_console(options)), options)
    # At a full row the cursor is on its last character, which would be erased.
    is_full = line.cell_len and (indent + line.cell_len) % columns == 0
    if is_full or not background:
        return row
    return row + background.render(ERASE_TO_EDGE, color_system=COLOR_SYSTEMS[options.color_system], legacy_windows=True)


def render_code_edge(language: str, options: MarkdownOptions, indent: int = 0) -> list[str]:
    """Render the row above code, with its language, or the row below it, for which `language` is "".

    A background needs no rows at the edges: there is only the one with the language.
    """
    theme, label = get_code_theme(options), _clean_code(language)
    if not theme.get_background_style():
        rule = Text.assemble(
            (f"{'──' if options.has_box_chars else '--'} {label}".rstrip(), get_style("dim", options.color_system))
        )
        return [_encode_segments(rule.render(_make_console(options)), options)]
    if not label:
        return []
    text = Text.assemble((label, theme.get_style_for_token(Comment)))
    text.truncate(max(1, options.width - indent))
    return [_render_code_row(text, theme, options, indent)]


def get_code_theme(options: MarkdownOptions) -> SyntaxTheme:
    name = CODE_THEMES.get(options.color_system, TERMINAL_COLORS_THEME) if options.has_color else TERMINAL_COLORS_THEME
    return Syntax.get_theme(name)


def _clean_code(line: str) -> str:
    return line.replace(PLAIN_TEXT_MARK, "")


def _highlight(lines: Sequence[str], language: str, theme: SyntaxTheme) -> tuple[Text, int]:
    """Highlight code. Returns it, and the last line that can be the first for a lexer."""
    code, lexer = "\n".join(lines), _find_lexer(language)
    if lexer is None:
        return Text(code), len(lines)
    text, restart, number, is_line_start = Text(), 0, 0, True
    for _, token_type, value in lexer.get_tokens_unprocessed(f"{code}\n"):
        is_multiline_type = token_type in String or token_type in Comment
        if is_line_start and number and not (is_multiline_type or value[:1].isspace()):
            restart = number
        text.append(value, theme.get_style_for_token(token_type))
        number += value.count("\n")
        is_line_start = value.endswith("\n")
    # The line break that was added for the lexer.
    text.right_crop()
    return (text, restart) if text.plain == code else (Text(code), len(lines))  # some lexers lose characters


@lru_cache(64)
def _find_lexer(language: str) -> Lexer | None:
    name = language.lower()
    if not name or name in EXCLUDED_LANGUAGES:
        return None
    try:
        return get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


# -- blocks to rows ----------------------------------------------------------------------------------


class TableLayout(NamedTuple):
    """Widths of the columns of a table; empty if its rows are shown as lists."""

    widths: tuple[int, ...] = ()


class Continuation(NamedTuple):
    """The finished output that the first open block continues.

    has_gap:      whether an empty row precedes it
    item_number:  of the first item, for an ordered list that is continued
    table:        the layout of a table whose head was printed
    """

    has_gap: bool = False
    item_number: int | None = None
    table: TableLayout | None = None


NO_CONTINUATION = Continuation()

GUTTER = "  "
"""The columns of the mark of an answer, before each row of its text."""

CODE_BLOCK_TYPES = ("fence", "code_block")


def render_blocks(
    lines: Sequence[str], options: MarkdownOptions, continuation: Continuation = NO_CONTINUATION
) -> list[str]:
    """Render lines as rows for the terminal."""
    rows: list[str] = []
    for index, block in enumerate(parse_blocks(lines)):
        before = continuation if index == 0 else NO_CONTINUATION
        if before.has_gap or (index and is_blank(lines[block.start - 1])):
            rows.append("")
        rows += render_block(block, lines, options, before)
    return rows


def render_block(
    block: Block, lines: Sequence[str], options: MarkdownOptions, continuation: Continuation = NO_CONTINUATION
) -> list[str]:
    """Render one block of `lines` as rows. The layout of a table is then `table_layout` of the renderer."""
    renderer = _get_block_renderer(options)
    renderer.lines, renderer.table_layout = lines, continuation.table
    renderer.parsed = list(_iter_rendered_tokens(block.tokens, options))
    if continuation.item_number is not None and block.type == "ordered_list_open":
        renderer.parsed[0].attrSet("start", continuation.item_number)
    console = _make_console(options)
    gutter = GUTTER if options.has_gutter and block.type not in CODE_BLOCK_TYPES else ""
    segments = console.render(renderer, console.options.update(width=options.width - len(gutter)))
    rows = [_encode_segments(line, options) for line in Segment.split_lines(segments)]
    return [row and gutter + row for row in rows]


def is_blank(line: str) -> bool:
    """Return whether a line is empty; the marks of quotes do not count."""
    return not line.strip(" >")


def _iter_rendered_tokens(tokens: Iterable[Token], options: MarkdownOptions) -> Iterator[Token]:
    for token in tokens:
        if token.type == "inline":
            token.children = _parse_inline(token.content, options)
        yield token


@lru_cache(8)
def _make_console(options: MarkdownOptions) -> Console:
    return Console(
        width=options.width,
        color_system=options.color_system if options.has_color else None,
        force_terminal=True,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        theme=make_rich_theme(options.color_system, MARKDOWN_STYLES),
    )


def _encode_segments(segments: Iterable[Segment], options: MarkdownOptions) -> str:
    """Encode a row for the terminal. Styles are reset at its end; blanks without a style are removed there."""
    color_system = COLOR_SYSTEMS[options.color_system] if options.has_color else None
    parts = []
    # rich ends and begins a style at each piece: a heading of nine columns had nine sequences more than needed.
    for text, style, control in Segment.simplify(segments):
        if control or text == "\n":
            continue
        # legacy_windows leaves out rich's own link, whose id is random: equal rows would differ, and be drawn again.
        rendered = style.render(text, color_system=color_system, legacy_windows=True) if style else text
        if style and style.link and options.has_links:
            rendered = f"\x1b]8;;{style.link}\x1b\\{rendered}\x1b]8;;\x1b\\"
        parts.append(rendered)
    return "".join(parts).rstrip(" ")


class _BlockRenderer(markdown.Markdown):
    """Renders the tokens of one block; `lines` are its source, with which elements find empty lines between them."""

    lines: Sequence[str]
    table_layout: TableLayout | None

    def __init__(self, options: MarkdownOptions) -> None:
        super().__init__("", hyperlinks=True)
        self.options = options


@lru_cache(8)
def _get_block_renderer(options: MarkdownOptions) -> _BlockRenderer:
    return _BlockRenderer(options)


class _Element:
    """The start of every element: its renderer and the token from which it was created."""

    # rich prints an empty line before an element that sets it; here the gaps are those of the source.
    new_line: ClassVar[bool] = False
    renderer: _BlockRenderer
    token: Token

    @classmethod
    def create(cls, markdown: markdown.Markdown, token: Token) -> Any:
        assert isinstance(markdown, _BlockRenderer)
        element = cls()
        element.renderer, element.token = markdown, token
        return element

    @property
    def has_gap(self) -> bool:
        """Whether an empty line precedes the element in the source."""
        start = self.token.map[0] if self.token.map else 0
        return bool(start) and is_blank(self.renderer.lines[start - 1])


class _Paragraph(_Element, markdown.TextElement):
    style_name = "markdown.paragraph"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify, self.text.overflow = None, "fold"
        yield self.text


class _Heading(_Paragraph):
    def on_enter(self, context: markdown.MarkdownContext) -> None:
        self.style_name = f"markdown.{self.token.tag}"
        super().on_enter(context)
        if not self.renderer.options.has_color:
            self.text.append(f"{'#' * int(self.token.tag[1:])} ")


class _Math(_Element, markdown.TextElement):
    style_name = "markdown.paragraph"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(_clean_code(self.token.content), overflow="fold")


class _Rule(_Element, markdown.MarkdownElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        char = "─" if self.renderer.options.has_box_chars else "-"
        yield Text(char * min(options.max_width, MAX_RULE_COLUMNS), "markdown.hr")


class _Code(_Element, markdown.TextElement):
    style_name = "markdown.code_block"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        layout, language = self.renderer.options, get_language(self.token)
        indent = layout.width - options.max_width
        rows, _ = render_code(self.token.content.split("\n")[:-1], CodeState(language), layout, indent)
        for row in [*render_code_edge(language, layout, indent), *rows, *render_code_edge("", layout, indent)]:
            yield from (Segment(row), Segment("\n"))


def get_language(fence: Token) -> str:
    return fence.info.split()[0] if fence.info.strip() else ""


class _Container(_Element, markdown.TextElement):
    """An element with other blocks in it."""

    def __init__(self) -> None:
        self.elements: list[Any] = []

    def on_child_close(self, context: markdown.MarkdownContext, child: markdown.MarkdownElement) -> bool:
        self.elements.append(child)
        return False

    def render_indented(
        self, console: Console, options: ConsoleOptions, first: Segment, others: Segment
    ) -> Iterator[Segment]:
        """Yield the rows of the blocks after a prefix, with an empty row where the source has an empty line.

        On a narrow display only the first row has the prefix, and a mark without space for text has its own row.
        """
        mark_columns, new_line = text_width(first.text), Segment("\n")
        is_narrow = options.max_width - mark_columns < MIN_ITEM_COLUMNS
        prefix: Segment | None = first
        if options.max_width - mark_columns < MIN_FIRST_COLUMNS:
            yield from (first, new_line)
            prefix = None
        for index, element in enumerate(self.elements):
            if index and element.has_gap:
                yield from (Segment("") if is_narrow else others, new_line)
            width = options.max_width - (mark_columns if prefix or not is_narrow else 0)
            # `render_lines` would cut code that the terminal wraps.
            for row in Segment.split_lines(console.render(element, options.update(width=width))):
                yield from (prefix or (Segment("") if is_narrow else others), *row, new_line)
                prefix = None
        if prefix:
            yield from (Segment(first.text.rstrip(), first.style), new_line)


class _Quote(_Container):
    style_name = "markdown.block_quote"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bar = Segment(
            "│ " if self.renderer.options.has_box_chars else "> ", get_style("dim", self.renderer.options.color_system)
        )
        yield from self.render_indented(console, options, bar, bar)


class _Item(_Container):
    style_name = "markdown.item"

    def take_task_mark(self) -> str:
        """Remove the mark of a task from the text, and return it: "[ ] " or "[x] ", else ""."""
        first = self.elements[0] if self.elements else None
        if not isinstance(first, _Paragraph) or first.text.plain[:4].lower() not in TASK_MARKS:
            return ""
        mark, first.text = first.text.plain[:4].lower(), first.text[4:]
        return mark


TASK_MARKS = {"[ ] ": ("☐ ", "dim"), "[x] ": ("☑ ", "good")}
"""The mark of an open and of a finished task, and its style."""


class _List(_Container):
    style_name = "markdown.item"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        number = int(self.token.attrs.get("start", 1))
        layout = self.renderer.options
        bullet = "• " if layout.has_box_chars else "- "
        for index, item in enumerate(self.elements):
            if index and item.has_gap:
                yield Segment("\n")
            is_ordered = self.token.type == "ordered_list_open"
            mark, style = f"{number + index}{self.token.markup} " if is_ordered else bullet, "id"
            has_task_signs = layout.has_color and layout.has_box_chars
            if not is_ordered and has_task_signs and (task_mark := item.take_task_mark()):
                mark, style = TASK_MARKS[task_mark]
            first = Segment(mark, get_style(style, layout.color_system))
            yield from item.render_indented(console, options, first, Segment(" " * len(mark)))


class _TableHead(markdown.TableHeaderElement):
    new_line = False


class _TableBody(markdown.TableBodyElement):
    new_line = False


class _TableRow(markdown.TableRowElement):
    new_line = False


class _TableCell(markdown.TableDataElement):
    new_line = False


class _Table(_Element, markdown.TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = self._cells(self.header.row) if self.header and self.header.row else []
        rows = [self._cells(row) for row in self.body.rows] if self.body else []
        for cell in head:
            cell.stylize("markdown.table.header")
        has_head = self.renderer.table_layout is not None
        for start in range(0, len(rows) if has_head else max(1, len(rows)), TABLE_BATCH_ROWS):
            batch = [(*row, *(Text() for _ in head[len(row) :])) for row in rows[start : start + TABLE_BATCH_ROWS]]
            layout = compute_table_layout(
                [*([] if has_head else [head]), *batch], head, options.max_width, self.renderer.table_layout
            )
            self.renderer.table_layout = layout
            if layout.widths:
                yield self._make_table(head, batch, layout, has_head=has_head)
            else:
                yield from self._render_as_list(head, batch)
            has_head = True

    def _cells(self, row: markdown.TableRowElement) -> list[Text]:
        return [cell.content for cell in row.cells]

    def _make_table(
        self, head: Sequence[Text], rows: Sequence[Sequence[Text]], layout: TableLayout, *, has_head: bool
    ) -> Table:
        table = Table(
            box=box.MINIMAL if self.renderer.options.has_box_chars else box.ASCII,
            show_edge=False,
            pad_edge=False,
            show_header=not has_head,
            border_style="markdown.table.border",
        )
        for cell, width in zip(head, layout.widths, strict=True):
            table.add_column(cell, width=width, justify=cell.justify or "default", overflow="fold")
        for row in rows:
            table.add_row(*row[: len(head)])
        return table

    def _render_as_list(self, head: Sequence[Text], rows: Sequence[Sequence[Text]]) -> Iterator[Text]:
        for row in rows:
            for heading, cell in zip(head, row, strict=False):
                yield Text.assemble(heading, ": ", cell, overflow="fold")
            yield Text()


def compute_table_layout(
    rows: Sequence[Sequence[Text]], head: Sequence[Text], width: int, before: TableLayout | None
) -> TableLayout:
    """Compute the widths of the columns so that no word is broken; without such widths the rows are lists.

    before:  the layout of the rows above, which is kept if all words fit
    """
    columns = [[row[index] for row in rows] for index in range(len(head))]
    min_widths = [max((_longest_word(cell) for cell in column), default=1) or 1 for column in columns]
    if before and (not before.widths or all(map(int.__le__, min_widths, before.widths))):
        return before
    max_widths = [
        max((text_width(line) for cell in column for line in cell.plain.split("\n")), default=1) or 1
        for column in columns
    ]
    available = width - 3 * (len(head) - 1)
    if sum(min_widths) > available:
        return TableLayout()
    widths, free_columns = list(min_widths), available - sum(min_widths)
    for index in sorted(range(len(head)), key=lambda index: max_widths[index] - min_widths[index]):
        open_count = sum(widths[other] < max_widths[other] for other in range(len(head)))
        extra = min(max_widths[index] - widths[index], free_columns // max(1, open_count))
        widths[index] += extra
        free_columns -= extra
    return TableLayout(tuple(widths))


def _longest_word(cell: Text) -> int:
    return max(map(text_width, cell.plain.split()), default=0)


_BlockRenderer.elements = {
    "paragraph_open": _Paragraph,
    "heading_open": _Heading,
    "fence": _Code,
    "code_block": _Code,
    "math_block": _Math,
    "blockquote_open": _Quote,
    "hr": _Rule,
    "bullet_list_open": _List,
    "ordered_list_open": _List,
    "list_item_open": _Item,
    "table_open": _Table,
    "thead_open": _TableHead,
    "tbody_open": _TableBody,
    "tr_open": _TableRow,
    "td_open": _TableCell,
    "th_open": _TableCell,
}


# -- a text that arrives in pieces -------------------------------------------------------------------

LARGE_OPEN_CHARS = 2_000
"""Characters not printed yet, above which the text is parsed again only after it has grown by a quarter."""

LARGE_OPEN_LINES = 50
"""Lines not printed yet, above which the same applies: parsing takes 15 us for each line, also for a short one."""

ENDED_BLOCK_TYPES = ("heading_open", "hr", "fence")
"""Blocks to which no further line can belong; code without its closing line is treated separately."""

TEXT_BLOCK_TYPES = ("paragraph_open", "blockquote_open")

TABLE_HEAD_LINES = 2

AMBIGUOUS_LINE = re.compile(r"[-=+*#>|`~_\s:.)\d]*")
"""Matches a line of marks only: its meaning depends on its continuation."""


class MarkdownStream:
    """Renders an answer incrementally.

    options:         of the layout; a change applies to rows that were not returned yet
    examined_chars:  characters parsed so far, a measure of the cost
    """

    def __init__(self, options: MarkdownOptions) -> None:
        self.options, self.examined_chars = options, 0
        self._start_text()

    def _start_text(self) -> None:
        self._lines: list[str] = []
        self._last_line = ""
        self._continuation = NO_CONTINUATION
        self._fence: Token | None = None
        self._code = CodeState("")
        self._has_rows = False
        self._line_chars = self._next_cut_chars = 0

    @property
    def open_chars(self) -> int:
        """Characters received but not printed yet."""
        return self._line_chars + len(self._last_line)

    @property
    def open_lines(self) -> int:
        """Complete lines received but not printed yet."""
        return len(self._lines)

    def feed(self, text: str) -> list[str]:
        """Add text, whose control characters are escaped, and return the rows that it finished."""
        rows: list[str] = []
        first, *others = text.split("\n")
        self._last_line += first
        for line in others:
            rows += self._split_long_line()
            rows += self._end_line(self._last_line)
            self._last_line = line
        rows += self._split_long_line()
        return rows

    def render_open(self) -> list[str]:
        """Render the open text as it looks now, in rows that fit the width: they are erased one by one."""
        options = self.options._replace(folds_code=True)
        lines = [*self._lines, *([] if AMBIGUOUS_LINE.fullmatch(self._last_line) else [limit_nesting(self._last_line)])]
        self.examined_chars += self.open_chars
        if self._fence:
            return render_code(lines, self._code, options)[0]
        return render_blocks(lines, options, self._continuation)

    def finish(self) -> list[str]:
        """Return the rows of the open text; the next piece starts a new text."""
        rows = self._end_line(self._last_line) if self._last_line else []
        if self._fence:
            rows += self._render_code_lines() + render_code_edge("", self.options)
        else:
            rows += render_blocks(self._lines, self.options, self._continuation)
        self._start_text()
        return rows

    def _split_long_line(self) -> list[str]:
        rows: list[str] = []
        while len(self._last_line) > MAX_TEXT_CHARS:
            end = self._last_line.rfind(" ", MAX_TEXT_CHARS // 2, MAX_TEXT_CHARS) + 1 or MAX_TEXT_CHARS
            line, self._last_line = self._last_line[:end], self._last_line[end:]
            rows += self._end_line(line)
        return rows

    def _end_line(self, line: str) -> list[str]:
        line = limit_nesting(line)
        if self._fence:
            return self._end_code_line(line)
        self._lines.append(line)
        self._line_chars += len(line) + 1
        return self._cut_finished() if self._line_chars >= self._next_cut_chars else []

    def _end_code_line(self, line: str) -> list[str]:
        """Add a line of code, or end the code."""
        assert self._fence
        mark = self._fence.markup
        text = line.strip(" ")
        if len(line) - len(line.lstrip(" ")) < 4 and text.startswith(mark) and not text.strip(mark[0]):
            rows = self._render_code_lines() + render_code_edge("", self.options)
            self._fence = None
            return rows
        indent = min(len(line) - len(line.lstrip(" ")), self._fence.meta["indent"])
        self._lines.append(line[indent:])
        self._line_chars += len(line) + 1
        is_full = len(self._lines) == CODE_BATCH_LINES or self._line_chars > MAX_TEXT_CHARS
        return self._render_code_lines() if is_full else []

    def _render_code_lines(self) -> list[str]:
        self.examined_chars += self._line_chars
        rows, self._code = render_code(self._lines, self._code, self.options)
        self._lines, self._line_chars = [], 0
        return rows

    def _cut_finished(self) -> list[str]:
        """Render the blocks that no later text can change, and remove their lines."""
        self.examined_chars += self._line_chars
        blocks = parse_blocks(self._lines)
        if not blocks:
            self._set_open_lines([], Continuation(has_gap=self._has_rows))
            return []
        rows: list[str] = []
        for index, block in enumerate(blocks):
            continuation = self._continuation
            if index:
                continuation = Continuation(has_gap=is_blank(self._lines[block.start - 1]))
            is_last = index == len(blocks) - 1
            if is_last and block.is_open_fence:
                return [*rows, *self._begin_code(block, continuation)]
            if is_last and block.type not in ENDED_BLOCK_TYPES:
                return [*rows, *self._cut_open_block(block, continuation)]
            rows += self._render_part(block, continuation)
        has_gap = any(is_blank(line) for line in self._lines[blocks[-1].end :])
        self._set_open_lines([], Continuation(has_gap=has_gap))
        return rows

    def _begin_code(self, block: Block, continuation: Continuation) -> list[str]:
        fence = block.tokens[0]
        opening, *lines = self._lines[block.start :]
        fence.meta["indent"] = len(opening) - len(opening.lstrip(" "))
        self._fence, self._code = fence, CodeState(get_language(fence))
        self._set_open_lines([], NO_CONTINUATION)
        self._has_rows = True
        rows = [*([""] if continuation.has_gap else []), *render_code_edge(self._code.language, self.options)]
        for line in lines:
            rows += self._end_code_line(line)
        return rows

    def _cut_open_block(self, block: Block, continuation: Continuation) -> list[str]:
        """Render the finished items of the last list, the finished rows of the last table, or a block that is too long.

        The open lines are then the rest of the block.
        """
        lines, rows = self._lines, list[str]()
        item_starts = [
            token.map[0] for token in block.tokens if token.type == "list_item_open" and token.level == 1 and token.map
        ]
        row_count = (block.end - block.start - TABLE_HEAD_LINES) // TABLE_BATCH_ROWS * TABLE_BATCH_ROWS
        if len(item_starts) > 1:
            start = item_starts[-1]
            rows = self._render_part(parse_blocks(lines[:start])[-1], continuation)
            first_number = continuation.item_number
            if first_number is None:
                first_number = int(block.tokens[0].attrs.get("start", 1))
            next_number = first_number + len(item_starts) - 1 if block.type == "ordered_list_open" else None
            self._set_open_lines(lines[start:], Continuation(is_blank(lines[start - 1]), next_number))
        elif block.type == "table_open" and row_count > 0:
            head_end = block.start + TABLE_HEAD_LINES
            end = head_end + row_count
            rows = self._render_part(parse_blocks(lines[:end])[-1], continuation)
            layout = _get_block_renderer(self.options).table_layout
            self._set_open_lines([*lines[block.start : head_end], *lines[end:]], Continuation(table=layout))
        elif self.open_chars > (MAX_TEXT_CHARS if block.type in TEXT_BLOCK_TYPES else MAX_BLOCK_CHARS):
            rows = self._render_part(block, continuation)
            self._set_open_lines([], NO_CONTINUATION)
        else:
            self._set_open_lines(lines[block.start :], continuation)
        return rows

    def _render_part(self, block: Block, continuation: Continuation) -> list[str]:
        rows = render_block(block, self._lines, self.options, continuation)
        self._has_rows = True
        return ["", *rows] if continuation.has_gap else rows

    def _set_open_lines(self, lines: list[str], continuation: Continuation) -> None:
        self._lines, self._continuation = lines, continuation
        self._line_chars = sum(len(line) + 1 for line in lines)
        is_large = self._line_chars > LARGE_OPEN_CHARS or len(lines) > LARGE_OPEN_LINES
        self._next_cut_chars = self._line_chars + (self._line_chars // 4 if is_large else 0)
        if self._line_chars <= MAX_TEXT_CHARS:
            self._next_cut_chars = min(self._next_cut_chars, MAX_TEXT_CHARS + 1)


FRAME_INTERVAL_S = 0.04
"""Minimum seconds between two redraws."""

RIGHT_MARGIN_COLUMNS = 1
"""Free columns at the right: terminals differ in the cursor position after a full row."""

MIN_COLUMNS = 10


class MarkdownRenderer:
    """Renders the text of an answer as Markdown while it streams.

    stream:  the open text
    """

    def __init__(
        self,
        out: TextIO,
        options: MarkdownOptions,
        get_size: Callable[[], tuple[int, int]],
        footer: "Footer | None" = None,
        *,
        has_reflow: bool = False,
    ) -> None:
        """Start at the cursor; `get_size` returns the columns and rows of the terminal before each redraw.

        footer:      a line that stays below the text
        has_reflow:  whether a terminal that becomes narrower wraps its rows again, instead of cutting them
        """
        self._painter, self.stream, self._get_size = RowPainter(out, footer), MarkdownStream(options), get_size
        self._has_reflow = has_reflow
        self._finished_rows: list[str] = []
        self._throttle = Throttle(self._draw)
        self._shown_chars = 0
        self._is_marked = False

    def write(self, text: str) -> None:
        """Add text; its control characters are escaped already."""
        self._update_width()
        self._finished_rows += self.stream.feed(text)
        size = self.stream.open_chars
        is_small = size < LARGE_OPEN_CHARS and self.stream.open_lines < LARGE_OPEN_LINES
        if is_small or size * 4 > self._shown_chars * 5:
            self._throttle.schedule()

    def finish(self) -> None:
        """Print the rest of the text; the next `write` starts a new text."""
        self._throttle.cancel()
        self._update_width()
        self._finished_rows += self.stream.finish()
        self._paint([])
        self._shown_chars, self._is_marked = 0, False

    def _draw(self) -> None:
        self._update_width()
        self._shown_chars = self.stream.open_chars
        self._paint(self.stream.render_open())

    def _paint(self, open_rows: list[str]) -> None:
        """Draw the rows, with the mark of the answer in the gutter of the first one."""
        options, rows = self.stream.options, self._finished_rows or open_rows
        if options.has_gutter and not self._is_marked and rows and rows[0].startswith(GUTTER):
            sign = "●" if options.has_box_chars else "*"
            mark = get_style("id", options.color_system).render(sign, color_system=COLOR_SYSTEMS[options.color_system])
            rows[0] = f"{mark} {rows[0].removeprefix(GUTTER)}"
        self._is_marked = self._is_marked or bool(self._finished_rows)
        self._painter.update(self._finished_rows, open_rows, max(1, self._get_size()[1] - 1 - MAX_FOOTER_ROWS))
        self._finished_rows = []

    def _update_width(self) -> None:
        """Update the width; after a change the open rows are erased, and drawn again by the next update."""
        columns = self._get_size()[0]
        width = max(MIN_COLUMNS, columns - RIGHT_MARGIN_COLUMNS)
        if width != self.stream.options.width:
            self._painter.erase_open_rows(columns if self._has_reflow else None)
            self.stream.options = self.stream.options._replace(width=width)


class Throttle:
    """Runs a callback soon, at most once in `FRAME_INTERVAL_S`; without a running loop it runs at once."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback, self._last_run_at = callback, 0.0
        self._error: OSError | None = None
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self) -> None:
        """Schedule the callback. Raises the OSError of the last run."""
        if self._error:
            raise self._error
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._callback()
            return
        if self._timer is None:
            self._timer = loop.call_at(max(loop.time(), self._last_run_at + FRAME_INTERVAL_S), self._run)

    def cancel(self) -> None:
        """Cancel the scheduled run."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        self._last_run_at = asyncio.get_running_loop().time()
        try:
            self._callback()
        except OSError as error:  # raised by the next `schedule`
            self._error = error


class RowPainter:
    """Draws rows at the cursor, which stays at the end of the last open row."""

    def __init__(self, out: TextIO, footer: "Footer | None" = None) -> None:
        self._out, self._footer = out, footer
        self._open_rows: list[str] = []
        self._erasure = ""

    def update(self, finished: Sequence[str], open_rows: Sequence[str], max_rows: int = 24) -> None:
        """Print the finished rows above the open ones. Of the open rows only the last `max_rows` are shown.

        max_rows:  rows of the screen; the cursor cannot reach those that scrolled off
        """
        shown = list(open_rows[-max_rows:])
        rows = [*finished, *shown]
        end = "\n" if rows and not shown else ""
        self._write_above_footer(self._erasure + build_screen_update(self._open_rows, rows) + end)
        self._erasure = ""
        self._open_rows = shown

    def erase_open_rows(self, columns: int | None) -> None:
        """Erase the open rows with the next update, which draws all of them again.

        columns:  of a terminal that has wrapped the rows again; None: each is in one row still

        The cursor has stayed at the end of the last one. A row above the screen cannot be erased.
        """
        if self._open_rows:
            height = len(self._open_rows) if columns is None else count_rows(self._open_rows, columns)
            self._erasure = move_up(height - 1) + "\r\x1b[J"
        self._open_rows = []

    def _write_above_footer(self, text: str) -> None:
        if self._footer:
            text = self._footer.erase() + text + self._footer.draw()
            self._footer.has_known_cursor = True
        self._out.write(text)
        self._out.flush()


def build_screen_update(before: Sequence[str], after: Sequence[str]) -> str:
    """Build the output that turns the rows `before`, with the cursor at their end, into `after`."""
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    if same == len(before):
        return ("\n" if before and len(after) > same else "") + "\n".join(after[same:])
    if same == len(before) - 1 and len(after) > same and after[same].startswith(before[same]):
        return after[same][len(before[same]) :] + "".join(f"\n{row}" for row in after[same + 1 :])
    same = max(0, min(same, len(after) - 1))
    up = len(before) - 1 - same
    return move_up(up) + "\r\x1b[J" + "\n".join(after[same:])


def move_up(rows: int) -> str:
    """Return the output that moves the cursor up; its column stays."""
    return f"\x1b[{rows}A" if rows else ""

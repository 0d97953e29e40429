"""Markdown as a tree of allowed elements, for the inspector page.

The page builds its elements from these nodes, so no text is ever parsed as HTML. A node is a text, or

    {"tag": "a", "href": "https://example.com/", "children": [nodes]}

with one of `TAGS`. HTML is text, images are named and never loaded, and a link that is not http, https or mailto stays
as it was written. Time and result are bounded: a long inline text is not parsed, and above `MAX_TEXT_CHARS`,
`MAX_LINES` or `MAX_NODES` the whole text is plain.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from convo.history.items import Json

MAX_TEXT_CHARS, MAX_LINES = 50_000, 2_000
"""Characters and lines of a text above which it is plain: markdown-it takes up to 1.5 ms for a line."""

MAX_INLINE_CHARS, MAX_BRACKETS = 3_000, 100
"""Characters, and opening brackets, of a paragraph, heading or cell above which it is plain: markdown-it takes
quadratic time for them."""

MAX_NODES = 10_000
"""Elements above which a text is plain: the page would take too long to draw them."""

MAX_DEPTH, MAX_LINK_CHARS = 40, 2_000

TAGS = frozenset({
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "hr", "pre", "code", "em", "strong", "s",
    "a", "br", "table", "thead", "tbody", "tr", "th", "td",
})  # fmt: skip
"""The elements of a tree."""

TABLE_DELIMITER_ROW = re.compile(r"[-|: \t>*+.)0-9]*\|[-|: \t]*")

ALLOWED_LINK = re.compile(r"(https?://|mailto:)[!-~]+", re.IGNORECASE)


class RenderedMarkdown(NamedTuple):
    """A text as nodes; None with a note that says why it is plain."""

    nodes: Sequence[Json] | None
    note: str = ""


def render_markdown(text: str) -> RenderedMarkdown:
    """Render one text."""
    if len(text) > MAX_TEXT_CHARS or text.count("\n") > MAX_LINES:
        return RenderedMarkdown(None, f"plain text: longer than {MAX_TEXT_CHARS:,} characters or {MAX_LINES:,} lines")
    if _max_table_columns(text) * text.count("\n") > MAX_NODES:
        return RenderedMarkdown(None, f"plain text: a table with more than {MAX_NODES:,} cells")
    blocks, inline = _load_parsers()
    environment: dict[str, Json] = {}
    tokens = blocks.parse(text, environment)
    for token in tokens:
        if token.type != "inline":
            continue
        token.children = None
        if len(token.content) <= MAX_INLINE_CHARS and token.content.count("[") <= MAX_BRACKETS:
            (parsed,) = inline.parseInline(token.content, environment)
            token.children = parsed.children
    if sum(1 + len(token.children or ()) for token in tokens) > MAX_NODES:
        return RenderedMarkdown(None, f"plain text: more than {MAX_NODES:,} elements")
    return RenderedMarkdown(_build_nodes(tokens))


def _max_table_columns(text: str) -> int:
    """Return the most columns that a table can have: each row is filled to the columns of its delimiter row."""
    return max((line.count("|") + 1 for line in text.split("\n") if TABLE_DELIMITER_ROW.fullmatch(line)), default=0)


@cache
def _load_parsers() -> tuple[MarkdownIt, MarkdownIt]:
    """Return the parsers of blocks and of the text in them."""

    def make_parser() -> MarkdownIt:
        parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
        parser.validateLink = lambda url: len(url) <= MAX_LINK_CHARS and bool(ALLOWED_LINK.fullmatch(url))  # type: ignore[method-assign]
        return parser

    return make_parser().disable(["inline", "reference"]), make_parser()


def _build_nodes(tokens: Sequence[Token]) -> list[Json]:
    """Build the nodes; an element nested deeper than `MAX_DEPTH` is left out, and its text stays."""
    root: list[Json] = []
    stack: list[tuple[Token | None, list[Json]]] = [(None, root)]
    for token in _iter_flat(tokens):
        nodes = stack[-1][1]
        if token.nesting > 0:
            is_left_out = token.hidden or len(stack) > MAX_DEPTH  # hidden: the paragraph in an item of a tight list
            stack.append((None, nodes) if is_left_out else (token, []))
        elif token.nesting < 0:
            opened, children = stack.pop()
            if opened is None:
                continue
            if opened.tag == "a" and not ALLOWED_LINK.fullmatch(str(opened.attrGet("href"))):
                stack[-1][1].extend(children)  # an empty link
            else:
                stack[-1][1].append(_build_element(opened, children))
        elif token.type in ("fence", "code_block"):
            nodes.append({"tag": "pre", "children": [token.content.removesuffix("\n")]})
        elif token.type == "code_inline":
            nodes.append({"tag": "code", "children": [token.content]})
        elif token.type in ("hr", "hardbreak"):
            nodes.append({"tag": "hr" if token.type == "hr" else "br", "children": []})
        elif token.type == "softbreak":
            nodes.append("\n")
        elif token.type == "image":
            nodes.append(f"[image: {token.content or token.attrGet('src')}]")
        elif token.content:
            nodes.append(token.content)
    return root


def _iter_flat(tokens: Sequence[Token]) -> Iterator[Token]:
    """Iterate over the tokens, with those of a parsed text in place of it."""
    for token in tokens:
        if token.type == "inline" and token.children is not None:
            yield from token.children
        else:
            yield token


def _build_element(token: Token, children: list[Json]) -> Json:
    if token.tag not in TAGS:
        return {"tag": "p", "children": children}
    node: dict[str, Json] = {"tag": token.tag, "children": children}
    if token.tag == "a":
        node["href"] = str(token.attrGet("href"))
    elif token.tag == "ol" and token.attrGet("start") is not None:
        node["start"] = int(token.attrGet("start") or 1)
    return node

"""Markdown as markdown-it reads it, with three differences.

Math is left alone: what stands between dollar signs or LaTeX brackets is a piece of its own.
Definitions of reference links are text, because what was printed cannot be given a link later. For
the same reason no line below a paragraph makes a heading of it: dashes there are a rule.
"""

import re
from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

INLINE_MATH = re.compile(
    r"""\$\$(?!\$).{1,500}?\$\$"""
    r"""|\$(?![\s$])[^$\n]{0,200}(?<![\s\\])\$(?!\d)"""
    r"""|\\\(.{1,500}?\\\)"""
    r"""|\\\[.{1,500}?\\\]""",
    re.DOTALL,
)
"""Dollars as Pandoc reads them: no space inside, no digit behind, so that prices are none."""

DEEPEST = 200
"""Blocks within blocks; what is deeper is not read, so `reading` sees to it that nothing is."""

CLOSES = {"$$": "$$", "\\[": "\\]"}


def blocks(lines: Sequence[str]) -> SyntaxTreeNode:
    """The blocks of `lines`; what stands within them is not read yet."""
    tokens: list[Token] = []
    reader = _reader()
    reader.block.parse("".join(f"{line}\n" for line in lines), reader, {}, tokens)
    return SyntaxTreeNode(tokens)


def inline(words: str) -> list[Token]:
    """The pieces of a line or paragraph, in order."""
    tokens: list[Token] = []
    reader = _reader()
    reader.inline.parse(words, reader, {}, tokens)
    return tokens


@cache
def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable(["reference", "lheading"])
    reader.options["maxNesting"] = DEEPEST
    reader.inline.ruler.before("escape", "math", _math)
    reader.block.ruler.before("fence", "math_block", _math_block, {"alt": ["paragraph", "blockquote", "list"]})
    return reader


def _math(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    found = INLINE_MATH.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    if not silent:
        state.push("math", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _math_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """From a line that begins with an opening to one that ends with its closing, or to an empty line."""
    if state.is_code_block(first):
        return False
    line = _line(state, first)
    closing = CLOSES.get(line[:2])
    if closing is None or closing in line[2:].rstrip()[:-2]:
        return False
    if silent:
        return True
    end = first + 1
    if len(line) < 4 or not line.endswith(closing):
        while end < last and not state.isEmpty(end) and state.sCount[end] >= state.blkIndent:
            end += 1
            if _line(state, end - 1).endswith(closing):
                break
    token = state.push("math_block", "", 0)
    token.content = state.getLines(first, end, state.blkIndent, True)
    token.map = [first, end]
    state.line = end
    return True


def _line(state: StateBlock, at: int) -> str:
    return state.src[state.bMarks[at] + state.tShift[at] : state.eMarks[at]].rstrip()

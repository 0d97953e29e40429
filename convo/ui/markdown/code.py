"""Colours in code, a line at a time.

Pygments reads whole texts; code that is still being written has to be read line by line, and a line
that was printed cannot change its colours. So a line is read in the state in which the last one left
the lexer, as far as it has states; comments that it reads in one piece are followed here.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from pygments.lexer import ExtendedRegexLexer, Lexer, LexerContext, RegexLexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, String, Token
from pygments.util import ClassNotFound

from convo.ui.markdown.spans import Span

STYLES = {
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
"""SGR numbers of the terminal's own colours, so that they suit its background; what is not here has none."""

CLOSES = {"/*": "*/", "<!--": "-->", "{-": "-}", "(*": "*)"}
"""Comments over several lines that lexers read in one piece."""


ENDLESS = ("mcschema",)
"""Languages whose lexers never come to an end on lines that are not theirs; all others of Pygments 2.21 were tried."""


class Ink(NamedTuple):
    """What the next line is read with.

    stack:   the states that the lexer is in, the innermost last
    closes:  what ends the comment that is open
    """

    lexer: Lexer | None
    stack: tuple[str, ...] = ("root",)
    closes: str = ""


def ink(language: str) -> Ink:
    """For code in `language`, as it stands behind the opening of a fence; unknown ones have no colours."""
    return Ink(_lexer(language.lower()))


def coloured(line: str, ink: Ink) -> tuple[list[Span], Ink]:
    """`line` in colours, and what the line after it is read with."""
    if ink.lexer is None or not line.strip():
        return [Span(line)], ink
    if ink.closes:
        inside, closes, rest = line.partition(ink.closes)
        if not closes:
            return [Span(line, STYLES[Comment])], ink
        spans, after = coloured(rest, ink._replace(closes=""))
        return [Span(inside + closes, STYLES[Comment]), *spans], after
    found, stack = _read(ink.lexer, line, ink.stack)
    for opens, closes in CLOSES.items():
        at = line.rfind(opens)
        if at >= 0 and closes not in line[at + 2 :] and _opens_comment(ink, line, closes):
            before, _ = _read(ink.lexer, line[:at], ink.stack)
            return [*_spans(before), Span(line[at:], STYLES[Comment])], ink._replace(closes=closes)
    return list(_spans(found)), ink._replace(stack=stack)


def _opens_comment(ink: Ink, line: str, closes: str) -> bool:
    """Whether the end of `line` would be a comment if one were closed right behind it."""
    assert ink.lexer
    kinds = [kind for kind, words in _read(ink.lexer, line + closes, ink.stack)[0] if words.strip()]
    return kinds[-1] in Comment


def _read(lexer: Lexer, line: str, stack: tuple[str, ...]) -> tuple[list[tuple[Any, str]], tuple[str, ...]]:
    """The kinds and words of `line`, and the states after it."""
    if isinstance(lexer, RegexLexer) and not isinstance(lexer, ExtendedRegexLexer):
        context = LexerContext(line + "\n", 0, list(stack))
        try:
            found = list(ExtendedRegexLexer.get_tokens_unprocessed(lexer, context=context))
            return [(kind, words) for _, kind, words in found], tuple(context.stack[:20])
        except TypeError:  # a lexer with actions of its own, which know no context
            pass
    return [(kind, words) for _, kind, words in lexer.get_tokens_unprocessed(line + "\n")], ("root",)


def _spans(found: list[tuple[Any, str]]) -> Iterator[Span]:
    for kind, words in found:
        if words := words.rstrip("\n"):
            yield Span(words, _style(kind))


@cache
def _style(kind: Any) -> str:
    while kind not in STYLES and kind is not Token:
        kind = kind.parent
    return STYLES.get(kind, "")


@cache
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language) if language and language not in ENDLESS else None
    except ClassNotFound:
        return None

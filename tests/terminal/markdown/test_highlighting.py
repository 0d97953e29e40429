"""Highlighting of code that is read line by line."""

import pytest
from pygments.token import Comment, String

from convo.terminal.markdown.render import TOKEN_STYLES, Span, highlight_line, make_lexer_state


def styles(language: str, code: str) -> list[list[tuple[str, str]]]:
    """The tokens of each line, with their styles."""
    state, lines = make_lexer_state(language), []
    for line in code.split("\n"):
        spans, state = highlight_line(line, state)
        assert "".join(span.text for span in spans) == line
        lines.append([(span.text, span.style) for span in spans])
    return lines


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("js", "let a /* one\ntwo\nthree */ = 1"),
        ("c", "int a; /* one\ntwo\nthree */ int b;"),
        ("html", "<p><!-- one\ntwo\nthree --></p>"),
        ("css", "a { } /* one\ntwo\nthree */ b { }"),
        ("rust", "let a; /* one\ntwo\nthree */ let b;"),
        ("haskell", "a = 1 {- one\ntwo\nthree -} "),
    ],
)
def test_a_comment_may_span_lines(language: str, code: str) -> None:
    first, second, third = styles(language, code)
    assert first[-1][1] == second[0][1] == third[0][1] == TOKEN_STYLES[Comment]
    assert second == [("two", TOKEN_STYLES[Comment])]
    assert len(third) > 1


def test_a_string_may_span_lines() -> None:
    lines = styles("python", 'a = """one\ntwo\n"""\nb = 1')
    assert lines[1] == [("two", TOKEN_STYLES[String])]
    assert ("1", "36") in lines[3]


def test_text_that_resembles_a_comment_is_not_highlighted() -> None:
    lines = styles("js", 'let a = "/*"\nlet b = 1')
    assert ("let", "35") in lines[1]


@pytest.mark.parametrize("language", ["", "nosuchlanguage", "text", "mcschema"])
def test_an_unknown_language_is_not_highlighted(language: str) -> None:
    assert highlight_line("if x: pass", make_lexer_state(language))[0] == [Span("if x: pass")]


LEXERS = ("bash", "c++", "console", "diff", "go", "html+jinja", "ini", "java", "json", "kotlin", "lua", "make", "md")
MORE = (
    "nginx",
    "perl",
    "php",
    "powershell",
    "ruby",
    "scala",
    "sql",
    "swift",
    "tex",
    "toml",
    "ts",
    "xml",
    "yaml",
    "zig",
)


@pytest.mark.parametrize("language", [*LEXERS, *MORE])
def test_highlighting_keeps_every_character(language: str) -> None:
    styles(language, "a = 'b' # c\n  if (x) { /* y\n```\n<!-- z -->\n\n*/ \"unclosed\n$ ls -l | `x` \\\n- k: v é日")

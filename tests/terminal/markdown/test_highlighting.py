"""Highlighting of code that is read in batches."""

import re

import pyte
import pytest
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, Punctuation, String, Token
from rich.color import Color

from convo.terminal.markdown import (
    CODE_BATCH_LINES,
    COLOR_SYSTEMS,
    CodeState,
    MarkdownOptions,
    get_code_theme,
    render_code,
)
from convo.terminal.theme import ColorSystemName
from tests.terminal.markdown.markdown_layout import terminal_output

OPTIONS = MarkdownOptions(width=80, has_color=True)
COMMENT, STRING, KEYWORD = "2", "33", "94"
"""Styles of the theme for terminals of 16 colors."""

SGR = re.compile(r"\x1b\[([\d;]*)m")


def styled_words(row: str) -> list[tuple[str, str]]:
    """The words of a row, each with its style."""
    pieces = SGR.split(row)
    styles = ["", *pieces[1::2]]
    return [(word, style) for text, style in zip(pieces[::2], styles, strict=True) for word in text.split()]


def highlight(language: str, *lines: str) -> list[list[tuple[str, str]]]:
    return [styled_words(row) for row in render_code(lines, CodeState(language), OPTIONS)[0]]


def filler(count: int) -> list[str]:
    return [f"x{number} = {number}" for number in range(count)]


@pytest.mark.parametrize(
    ("language", "opening", "closing"),
    [
        ("js", "let a /* one", "three */ = 1"),
        ("c", "int a; /* one", "three */ int b;"),
        ("html", "<p><!-- one", "three --></p>"),
        ("css", "a { } /* one", "three */ b { }"),
        ("rust", "let a; /* one", "three */ let b;"),
        ("haskell", "a = 1 {- one", "three -} "),
    ],
)
def test_a_comment_may_span_lines(language: str, opening: str, closing: str) -> None:
    first, second, third = highlight(language, opening, "two", closing)
    assert first[-1][1] == second[0][1] == third[0][1] != ""
    assert first[0][1] != first[-1][1]


@pytest.mark.parametrize("lines_before", [0, CODE_BATCH_LINES - 3, CODE_BATCH_LINES - 2, CODE_BATCH_LINES - 1])
def test_a_text_may_span_batches(lines_before: int) -> None:
    code = [*filler(lines_before), "def f():", '    a = """one', "two", '"""', "b = 1"]
    rows = highlight("python", *code)[lines_before:]
    assert [style for _, style in rows[2]] == [style for _, style in rows[1][-1:]] == [STRING]
    assert dict(rows[4])["b"] != STRING


def test_the_lexer_reads_no_more_lines_again_than_it_needs() -> None:
    _, state = render_code(filler(10 * CODE_BATCH_LINES), CodeState("python"), OPTIONS)
    assert len(state.context) == 1
    _, state = render_code(['"""', *filler(10 * CODE_BATCH_LINES)], CodeState("python"), OPTIONS)
    assert len(state.context) == 1 + 10 * CODE_BATCH_LINES
    _, state = render_code(['"""', *filler(30 * CODE_BATCH_LINES)], CodeState("python"), OPTIONS)
    assert len(state.context) < 200


def test_text_that_resembles_a_comment_is_not_highlighted() -> None:
    lines = highlight("js", 'let a = "/*"', "let b = 1")
    assert lines[1][0] == lines[0][0]
    assert lines[1][0][1] != ""


@pytest.mark.parametrize("language", ["", "nosuchlanguage", "text", "mcschema"])
def test_an_unknown_language_is_not_highlighted(language: str) -> None:
    assert render_code(["if x: pass"], CodeState(language), OPTIONS)[0] == ["if x: pass"]


@pytest.mark.parametrize("columns", [20, 40])
def test_code_has_one_background_up_to_the_edge_where_the_terminal_has_256_colors(columns: int) -> None:
    """Also where a line fills its last row, where the terminal wraps it, and in an item of a list."""
    lines = ["x = 1", "", *("日" * length for length in (9, 10, 11)), *("y" * length for length in range(16, 42))]
    code = "\n".join(["```py", *lines, "```"])
    text = f"Above.\n\n{code}\n\n- " + code.replace("\n", "\n  ")
    sequences = terminal_output([text], columns, has_color=True, color_system="truecolor", has_gutter=True)
    screen = pyte.Screen(columns, 200)
    pyte.Stream(screen).feed(sequences.replace("\n", "\r\n"))
    rows = [[screen.buffer[row][column] for column in range(columns)] for row in range(screen.cursor.y)]
    code_rows = [row for row in rows if row[-1].bg == "0d1117"]
    assert all(cell.bg == "0d1117" for row in code_rows for cell in row[4:])
    assert {[cell.bg for cell in row].index("0d1117") for row in code_rows} == {0, 4}
    assert not any(cell.bg == "0d1117" for row in rows if row not in code_rows for cell in row)
    shown = "".join(cell.data for row in code_rows for cell in row)
    assert "".join(shown.split()).count("".join(lines).replace(" ", "")) == 2


def test_code_of_an_unknown_language_can_be_read_on_its_background() -> None:
    options = MarkdownOptions(width=20, has_color=True, color_system="truecolor")
    (row,), _ = render_code(["x = 1"], CodeState(""), options)
    assert row.startswith("\x1b[38;2;230;237;243;48;2;13;17;23mx = 1")


TOKEN_TYPES = (Token, Comment, Keyword, Name, Name.Function, Name.Class, Name.Tag, Name.Attribute, Name.Decorator)
MORE_TOKEN_TYPES = (String, String.Doc, String.Escape, Number, Operator, Punctuation, Generic.Deleted, Generic.Inserted)


def luminance(color: Color, color_system: ColorSystemName) -> float:
    """The relative luminance of a color as the terminal shows it (WCAG 2)."""
    channels = [value / 255 for value in color.downgrade(COLOR_SYSTEMS[color_system]).get_truecolor()]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("color_system", ["256", "truecolor"])
def test_the_contrast_of_every_color_of_code_is_at_least_four_and_a_half(color_system: ColorSystemName) -> None:
    theme = get_code_theme(OPTIONS._replace(color_system=color_system))
    background = theme.get_background_style().bgcolor
    assert background
    for token_type in (*TOKEN_TYPES, *MORE_TOKEN_TYPES):
        color = theme.get_style_for_token(token_type).color
        assert color
        darker, lighter = sorted(luminance(shown, color_system) for shown in (color, background))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, token_type


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
    code = "a = 'b' # c\n  if (x) { /* y\n```\n<!-- z -->\n\n*/ \"unclosed\n$ ls -l | `x` \\\n- k: v é日"
    rows, _ = render_code(code.split("\n"), CodeState(language), OPTIONS)
    assert [SGR.sub("", row) for row in rows] == code.split("\n")

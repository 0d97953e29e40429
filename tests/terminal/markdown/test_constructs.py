"""The rendering of each Markdown construct, with and without colours."""

import pytest

from convo.terminal.markdown import MarkdownOptions
from tests.terminal.markdown.markdown_layout import render_streamed, render_whole

PLAIN_OPTIONS = MarkdownOptions(width=39)
"""Without colours: emphasized text keeps its markers."""

SHAPES = {
    "a heading keeps its markers": ("## The *end*", ["## The *end*"]),
    "an underline makes no heading": ("title\n---", ["title", "─" * 39]),
    "lines are broken at spaces": ("one " * 12, ["one one one one one one one one one one", "one one"]),
    "a line break stays one": ("one\n  two\\\nthree", ["one", "two", "three"]),
    "emphasis": ("*a* __b__ ~~c~~ `d`", ["*a* __b__ ~~c~~ `d`"]),
    "an item is continued below its text": ("- one\n  two\n\n  three", ["• one", "  two", "", "  three"]),
    "an ordered list is numbered consecutively": ("3. a\n3. b\n9) c", ["3. a", "4. b", "9) c"]),
    "lists within lists": ("- a\n  1. b\n     - c", ["• a", "  1. b", "     • c"]),
    "a task": ("- [ ] a\n- [x] b", ["• [ ] a", "• [x] b"]),
    "a quote": ("> a\n> > b", ["│ a", "│ │ b"]),
    "code": ("```py\nx = 1\n```\n\n    y", ["── py", "x = 1", "──", "", "──", "y", "──"]),
    "code in an item": ("- a\n  ```\n  b\n  ```", ["• a", "  ──", "  b", "  ──"]),
    "a long line of code is one row, which the terminal wraps": (
        f"```\n{'x = 1 ' * 20}\n```\n- ```\n  {'x = 1 ' * 20}\n  ```",
        ["──", ("x = 1 " * 20).rstrip(), "──", "• ──", f"  {'x = 1 ' * 20}".rstrip(), "  ──"],
    ),
    "a link": ("[a](http://b.c)", ["a (http://b.c)"]),
    "a link that is its own address": ("<http://b.c> [d@e.f](mailto:d@e.f)", ["http://b.c d@e.f"]),
    "a picture": ("![a *b*](http://c.d)", ["a b (http://c.d)"]),
    "a reference link": ("[a][b]\n\n[b]: http://c", ["[a][b]", "", "[b]: http://c"]),
    "HTML": ("<b>\n*a*\n\nc<br>d", ["<b>", "*a*", "", "c<br>d"]),
    "math": ("$a*b*c$ and \\(a*b*c\\)\n$$\n- x*y*z\n$$", ["$a*b*c$ and \\(a*b*c\\)", "$$", "- x*y*z", "$$"]),
    "prices are no math": ("from $5 *to* $6", ["from $5 *to* $6"]),
    "an entity for a control character": ("a&#27;b&#155;c", ["a\ufffdb\ufffdc"]),
    "a table": (
        "| a | b |\n|---|--:|\n| c d | 1 |\n| e | 23 |",
        ["a   │  b", "────┼───", "c d │  1", "e   │ 23"],
    ),
    "a table of many rows has one head": (
        "| a | b |\n|---|--:|\n" + "\n".join(f"| c | {row} |" for row in range(10, 60)),
        ["a │  b", "──┼───", *(f"c │ {row}" for row in range(10, 60))],
    ),
    "a cell that is too wide is wrapped": (
        f"| a | b |\n|---|---|\n| c | {'word ' * 9}|",
        ["a │ b", "──┼────────────────────────────────────", "c │ word word word word word word word", "  │ word word"],
    ),
    "a table of too many columns is rendered as a list": (
        "|a|b|c|d|e|f|g|h|i|j|\n|-|-|-|-|-|-|-|-|-|-|\n|12345|12345|12345|12345|12345|12345|12345|12345|12345|12345|",
        [*(f"{name}: 12345" for name in "abcdefghij"), ""],
    ),
    "wide characters are broken anywhere": ("日" * 19 + "。本", ["日" * 19, "。本"]),
    "nested markers in code": (f"```\n  {'> ' * 25}\n```", ["──", f"  {'> ' * 25}".rstrip(), "──"]),
    "an empty line is kept": ("# a\nb\n\n\n- c\n\n- d", ["# a", "b", "", "• c", "", "• d"]),
}


@pytest.mark.parametrize(("source", "rows"), SHAPES.values(), ids=SHAPES)
def test_without_colour_the_structure_is_visible(source: str, rows: list[str]) -> None:
    assert render_whole(source, PLAIN_OPTIONS) == render_streamed([source], PLAIN_OPTIONS) == rows


COLOURED = {
    "*a* **b** `c`": "\x1b[3ma\x1b[0m \x1b[1mb\x1b[0m \x1b[36mc\x1b[0m",
    "***a***": "\x1b[1;3ma\x1b[0m",
    "# a *b*": "\x1b[1;4;36ma \x1b[0m\x1b[1;3;4;36mb\x1b[0m",
    "## a *b*": "\x1b[1;36ma \x1b[0m\x1b[1;3;36mb\x1b[0m",
    "### a": "\x1b[1;3;36ma\x1b[0m",
    "###### a": "\x1b[3;36ma\x1b[0m",
    "- a": "\x1b[36m• \x1b[0ma",
    "12. a": "\x1b[36m12. \x1b[0ma",
    "- [ ] a": "\x1b[2m☐ \x1b[0ma",
    "- [X] **a**": "\x1b[32m☑ \x1b[0m\x1b[1ma\x1b[0m",
    "- [x](http://b.c)": "\x1b[36m• \x1b[0m\x1b[4mx\x1b[0m (http://b.c)",
    "[a](http://b.c)": "\x1b[4ma\x1b[0m (http://b.c)",
}


@pytest.mark.parametrize(("source", "row"), COLOURED.items())
def test_with_colour_markup_becomes_styles_that_are_reset(source: str, row: str) -> None:
    assert render_whole(source, MarkdownOptions(has_color=True)) == [row]


def test_a_link_is_clickable_where_the_terminal_supports_it() -> None:
    options = MarkdownOptions(has_links=True)
    assert render_whole("[a](http://b.c/d)", options) == ["\x1b]8;;http://b.c/d\x1b\\a\x1b]8;;\x1b\\"]


@pytest.mark.parametrize(
    "link", ["[http://good.com](http://bad.com)", "[good.com](http://bad.com)", "[a](file:///etc)"]
)
def test_a_url_is_shown_where_the_link_text_would_hide_it(link: str) -> None:
    assert link.rpartition("(")[2] in render_whole(link, MarkdownOptions(has_links=True))[0]


def test_without_unicode_plain_characters_are_used() -> None:
    text = "- a\n\n> b\n\n***\n\n```\nc\n```\n\n|d|e|\n|-|-|\n|f|g|"
    rows = render_whole(text, MarkdownOptions(39, has_box_chars=False))
    assert rows == ["- a", "", "> b", "", "-" * 39, "", "--", "c", "--", "", "d | e", "--+--", "f | g"]


def test_a_deeply_nested_list_leaves_space_for_text() -> None:
    text = "\n".join(f"{'  ' * depth}- item {depth}" for depth in range(18))
    assert all(f"item {depth}" in row for depth, row in enumerate(render_whole(text, MarkdownOptions(20))))


DEEP = {
    "marks in a line": ">" * 300 + " deep\n\nnext",
    "lists in a line": "- " * 300 + "deep\n\nnext",
    "lists in lists": "\n".join(f"{'  ' * depth}- at {depth}" for depth in range(120)) + " deep\n\nnext",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_text_nested_too_deeply_for_its_structure_is_still_shown(text: str) -> None:
    rows = render_streamed([text], PLAIN_OPTIONS)
    assert any("deep" in row for row in rows)
    assert rows[-1] == "next"


def test_lists_that_are_indented_too_far_are_text() -> None:
    text = "\n".join(f"{'  ' * depth}- at {depth}" for depth in range(33)) + "\n\nnext"
    rows = [row.strip() for row in render_streamed([text], MarkdownOptions(width=119))]
    assert rows == [*(f"• at {depth}" for depth in range(31)), "- at 31", "- at 32", "", "next"]

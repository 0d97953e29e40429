"""A text that arrives in pieces is rendered as the complete text is."""

import io
import re
from importlib.metadata import distributions
from random import Random

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convo.terminal.markdown import MarkdownOptions, MarkdownRenderer
from tests.terminal.markdown.markdown_layout import (
    COLUMNS,
    CORPUS,
    displayed_lines,
    piece_sizes,
    render_streamed,
    render_whole,
    screen_file,
    split_by_sizes,
    terminal_output,
)

MARKS = ("", "", "", "  ", "   ", "    ", "> ", "- ", "  - ", "1. ", "> > ")

LINES = (
    *("- a", "* b", "1. one", "2. two", "10) ten", "-", "1.", "- - x", "> - > 1. x", "- [ ] task", ""),
    *("```", "```py", "~~~", "    code", "$$", "x = 1", "$$ a $$", "\\[", "\\]", "<div>", "</div>", "<!-- c", "-->"),
    *("| a | b |", "|---|--:|", "| 1 | 2 | 3", "a | b", "--- | ---", "---", "===", "***", "# head", "## head *x*"),
    *("**bold** *em* `code`", "**open", "close**", "`open", "[l](http://x.y/z)", "[a]: http://b", "![i](u)"),
    *(
        "long words " * 20,
        "word" * 40,
        "日本語テキスト。続く" * 12,
        "text $a*b$ c",
        "back\\",
        "  both  ",
        "a\tb",
        "&amp;",
    ),
)
"""Contents of blocks, complete and incomplete."""


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Lines of one or several blocks, in containers that match or do not."""
    pairs = draw(st.lists(st.tuples(st.sampled_from(MARKS), st.sampled_from(LINES)), min_size=1, max_size=14))
    return "\n".join(mark + line for mark, line in pairs).rstrip("\n")


option_strategy = st.builds(
    MarkdownOptions,
    width=st.sampled_from((20, 39, 79, 119)),
    has_color=st.booleans(),
    has_box_chars=st.just(True),
    has_links=st.just(False),
    color_system=st.sampled_from(("standard", "truecolor")),
    has_gutter=st.booleans(),
)
"""Two color systems with one theme cannot be tried in one process: a style of rich keeps the codes of the first one."""


@pytest.mark.parametrize("name", CORPUS)
@settings(max_examples=4)
@given(sizes=piece_sizes, options=option_strategy)
def test_a_text_of_the_corpus_is_rendered_the_same_in_any_pieces(
    name: str, sizes: list[int], options: MarkdownOptions
) -> None:
    assert render_streamed(split_by_sizes(CORPUS[name], sizes), options) == render_whole(CORPUS[name], options)


@settings(max_examples=40)
@given(text=texts(), sizes=piece_sizes, options=option_strategy)
def test_random_blocks_are_rendered_the_same_in_any_pieces(
    text: str, sizes: list[int], options: MarkdownOptions
) -> None:
    assert render_streamed(split_by_sizes(text, sizes), options) == render_whole(text, options)


@pytest.mark.parametrize(("before", "continuation"), [("", ""), ("Some words.\n", ""), ("> ", "> "), ("- ", "  ")])
def test_table_headings_of_several_rows_stay_in_the_table(before: str, continuation: str) -> None:
    rows = [f"| {' | '.join(['a head of many words'] * 5)} |", f"|{'---|' * 5}", "| 1 | 2 | 3 | 4 | 5 |"]
    text = before + f"\n{continuation}".join(rows)
    expected = render_whole(text, MarkdownOptions(39))
    assert any("┼" in row for row in expected)
    for size in (1, 3, 1_000):
        assert render_streamed(split_by_sizes(text, [size]), MarkdownOptions(39)) == expected


@pytest.mark.full
@settings(max_examples=1_000)
@given(text=texts(), sizes=piece_sizes, options=option_strategy)
def test_a_thousand_texts_are_rendered_the_same_in_any_pieces(
    text: str, sizes: list[int], options: MarkdownOptions
) -> None:
    assert render_streamed(split_by_sizes(text, sizes), options) == render_whole(text, options)


@pytest.mark.full
def test_package_descriptions_are_rendered_the_same_in_any_pieces() -> None:
    """A hundred documents of other projects, a megabyte in all."""
    descriptions = {distribution.name: distribution.read_text("METADATA") or "" for distribution in distributions()}
    documents = {name: text.partition("\n\n")[2] for name, text in descriptions.items() if "text/markdown" in text}
    rng = Random(1)
    failures = []
    for name, text in documents.items():
        options, sizes = MarkdownOptions(rng.choice((39, 79, 119))), rng.choices((1, 2, 3, 5, 8, 13, 50, 400), k=5)
        if render_streamed(split_by_sizes(text, sizes), options) != render_whole(text, options):
            failures.append((name, options.width, sizes))
    assert len(documents) > 20
    assert failures == []


@pytest.mark.full
@pytest.mark.parametrize("name", CORPUS)
@settings(max_examples=30)
@given(sizes=piece_sizes, options=option_strategy)
def test_the_corpus_is_rendered_the_same_in_many_more_pieces(
    name: str, sizes: list[int], options: MarkdownOptions
) -> None:
    text = CORPUS[name] * 3
    assert render_streamed(split_by_sizes(text, sizes), options) == render_whole(text, options)


@settings(max_examples=5)
@given(
    name=st.sampled_from(sorted(CORPUS)),
    sizes=piece_sizes,
    columns=st.sampled_from(COLUMNS),
    colour=st.booleans(),
)
def test_the_final_screen_equals_that_of_the_complete_text(
    name: str, sizes: list[int], columns: int, colour: bool
) -> None:
    rows = render_whole(CORPUS[name], MarkdownOptions(columns - 1, colour))
    output = terminal_output(split_by_sizes(CORPUS[name], sizes), columns, has_color=colour)
    assert displayed_lines(output, columns) == displayed_lines("\n".join(rows), columns)


@pytest.mark.parametrize("columns", COLUMNS)
def test_the_rendered_screen_equals_the_recorded_one(columns: int) -> None:
    """`python -m tests.terminal.markdown.markdown_layout` writes the file; read it before you commit it."""
    assert (
        displayed_lines(terminal_output([CORPUS["everything"]], columns), columns)
        == screen_file(columns).read_text().splitlines()
    )


def test_no_row_above_the_open_block_is_drawn_again() -> None:
    """The cursor never goes higher than the rows of one block: 12 rows of a paragraph at 40 columns."""
    output = terminal_output(split_by_sizes(CORPUS["prose"], [5]), 40)
    ups = [int(rows) for rows in re.findall(r"\x1b\[(\d+)A", output)]
    paragraphs = [len(render_whole(text, MarkdownOptions(39))) for text in CORPUS["prose"].split("\n\n")]
    assert 0 < max(ups) < max(paragraphs)


class ResizableTerminal(io.StringIO):
    """A terminal emulator that can be resized; `has_reflow`: it wraps its rows again, instead of cutting them."""

    def __init__(self, columns: int, *, has_reflow: bool) -> None:
        super().__init__()
        self.has_reflow = has_reflow
        self._open(columns, "")

    def _open(self, columns: int, text: str) -> None:
        self.screen = pyte.Screen(columns, 40)
        self._stream = pyte.Stream(self.screen)
        self._stream.feed(text)

    def write(self, text: str) -> int:
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    @property
    def rows(self) -> list[str]:
        """The rows up to the cursor."""
        return [row.rstrip() for row in self.screen.display[: self.screen.cursor.y + 1]]

    def get_size(self) -> tuple[int, int]:
        return self.screen.columns, self.screen.lines

    def resize(self, columns: int) -> None:
        if self.has_reflow:
            row, column = self.rows[-1], self.screen.cursor.x
            self._open(columns, "\r\n".join([*self.rows[:-1], row.ljust(column)]))
        else:
            self.screen.resize(40, columns)


PARAGRAPHS = ["The first paragraph is finished.", "Then " + "short words " * 20, "- an item " + "of a list " * 12]


@pytest.mark.parametrize("has_reflow", [True, False])
@pytest.mark.parametrize("widths", [(80, 33), (33, 80), (70, 47, 61, 30), (34, 90, 34)])
def test_after_a_resize_the_open_block_is_drawn_again_in_place(widths: tuple[int, ...], has_reflow: bool) -> None:
    """Every block is resized while it is open; its rows are neither torn nor repeated, and nothing above is lost."""
    terminal = ResizableTerminal(widths[0], has_reflow=has_reflow)
    renderer = MarkdownRenderer(terminal, MarkdownOptions(), terminal.get_size, has_reflow=has_reflow)
    for index, paragraph in enumerate(PARAGRAPHS):
        pieces = split_by_sizes(paragraph, [-(-len(paragraph) // len(widths))])
        for width, piece in zip(widths, pieces, strict=True):
            if width != terminal.screen.columns:
                terminal.resize(width)
            renderer.write(piece)
        renderer.write("\n\n" if index < len(PARAGRAPHS) - 1 else "")
    renderer.finish()
    shown = " ".join(" ".join(terminal.rows).split())
    assert shown == " ".join(" ".join(PARAGRAPHS).replace("- an", "• an").split())

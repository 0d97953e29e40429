"""A corpus of Markdown texts, functions that render them, and an emulated terminal.

render_whole(text, options)             every block at once, by one parse: the expected result for any pieces
render_streamed(pieces, options)        the same text through a `MarkdownStream`
displayed_lines(sequences, columns)     all lines of an emulated terminal, including those that scrolled off
"""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyte
from hypothesis import strategies as st

from convo.terminal.markdown import MarkdownOptions, MarkdownRenderer, MarkdownStream, limit_nesting, render_blocks

HERE = Path(__file__).parent

CORPUS = {path.stem: path.read_text("utf-8") for path in sorted((HERE / "corpus").iterdir())}

COLUMNS = (40, 80, 120)


def render_whole(text: str, options: MarkdownOptions) -> list[str]:
    """Render `text` with one parse of all of it."""
    lines = [limit_nesting(line) for line in text.removesuffix("\n").split("\n")]
    while lines and not lines[0].strip():
        lines.pop(0)
    return render_blocks(lines, options)


def render_streamed(pieces: Iterable[str], options: MarkdownOptions) -> list[str]:
    """The finished rows of a text that arrives in `pieces`; the open rows are rendered after each piece."""
    stream, rows = MarkdownStream(options), []
    for piece in pieces:
        rows += stream.feed(piece)
        stream.render_open()
    return [*rows, *stream.finish()]


def split_by_sizes(text: str, sizes: Iterable[int]) -> Iterator[str]:
    """`text` in pieces of these sizes, repeated."""
    size_list = list(sizes)
    start = index = 0
    while start < len(text):
        size = size_list[index % len(size_list)]
        yield text[start : start + size]
        start, index = start + size, index + 1


piece_sizes = st.lists(st.sampled_from((1, 2, 3, 5, 8, 13, 50, 400, 10_000)), min_size=1, max_size=6)


def terminal_output(pieces: Iterable[str], columns: int, **render_options: Any) -> str:
    """The output of a `MarkdownRenderer` to a terminal of `columns`."""
    out = io.StringIO()
    renderer = MarkdownRenderer(out, MarkdownOptions(**render_options), lambda: (columns, 24))
    for piece in pieces:
        renderer.write(piece)
    renderer.finish()
    return out.getvalue()


def displayed_lines(sequences: str, columns: int) -> list[str]:
    """All lines of an emulated terminal, oldest first, without the empty lines at the end."""
    screen = pyte.HistoryScreen(columns, 24, history=100_000)
    pyte.Stream(screen).feed(sequences.replace("\n", "\r\n"))
    scrolled = ["".join(line[column].data for column in range(columns)) for line in screen.history.top]
    lines = [line.rstrip() for line in (*scrolled, *screen.display)]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def screen_file(columns: int) -> Path:
    """The file with the recorded screen of `everything.md`."""
    return HERE / "screens" / f"everything.{columns}.txt"


if __name__ == "__main__":
    for columns in COLUMNS:
        screen_file(columns).parent.mkdir(exist_ok=True)
        screen_lines = displayed_lines(terminal_output([CORPUS["everything"]], columns), columns)
        screen_file(columns).write_text("".join(f"{line}\n" for line in screen_lines), "utf-8")

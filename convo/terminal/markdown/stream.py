"""Incremental rendering: cut off the finished part, redraw the rest.

`MarkdownStream` keeps the open part of the text, `cut_finished` cuts off the part that no later text can change,
`RowPainter` writes the difference to the terminal, and `MarkdownRenderer` limits redraws to one per 40 ms.
An emphasis mark that is not closed within 500 characters is text; a line of over 2,000 characters is broken.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from convo.terminal.markdown import render
from convo.terminal.markdown.render import (
    CUT_MARK,
    VERBATIM_NODE_TYPES,
    BlockRenderer,
    MarkdownOptions,
    RenderState,
    StyledRow,
    break_spans,
    build_stub_lines,
    close_list_item,
    container_prefix,
    encode_row,
    find_open_containers,
    first_line_index,
    is_blank_line,
    is_stub,
    number_list_items,
    parse_blocks,
    parse_inline,
    path_to_last_block,
    strip_container_prefix,
)
from convo.terminal.terminal import text_width

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode as Node


MAX_OPEN_MARK_CHARS = 500
"""Characters after which an unclosed mark is plain text."""

MAX_LINE_CHARS = 2_000
"""Characters after which a line is broken."""

MIN_PARAGRAPH_ROWS = 2
"""Minimum rows of a paragraph before its upper rows are cut off."""

OPENING_MARK = re.compile(
    r"(?:\*+|~~+)(?=[^\s*~])|(?<!\w)_+(?=[^\s_])|`|<(?=[A-Za-z/!?])|\[(?![^\[\]]*\](?!\())|\\[(\[]"
    r"|\$\$|\$(?=[^\s$])(?=.{0,200}\Z)",
    re.DOTALL,
)
"""Matches a mark that later text may close."""

CUT_POINT = re.compile(r"(?<=\S) (?=\S)|(?<![\s\\])\n(?=\S)|(?<=[\u2e80-\uffdc])(?=[\u3041-\u9fff\uac00-\ud7a3])")
"""Matches a point where a paragraph can be cut: a space, a line break, between two wide characters."""


TABLE_RULE = re.compile(r"[\s|:-]*")
"""Matches the line below the head of a table, also an incomplete one."""


class CutResult(NamedTuple):
    """The finished rows, the remaining source lines, and the state between them."""

    rows: list[StyledRow]
    lines: list[str]
    carry: RenderState


def cut_finished(
    lines: Sequence[str], carry: RenderState, paper: MarkdownOptions, *, partial: bool = False
) -> CutResult:
    """Render the finished part and cut it off.

    has_partial_line:  whether the last line is incomplete; its end always remains
    """
    root = parse_blocks(lines)
    if not root.children:
        return (
            CutResult([], list(lines), carry) if partial or not lines else CutResult([], [], carry._replace(gap=True))
        )
    done = _cut_closed_blocks(root, lines, carry, paper)
    if done.carry is not carry:
        root = parse_blocks(done.lines)
    more = _cut_open_block(root, done, paper, partial=partial)
    return more._replace(rows=[*done.rows, *more.rows])


def continuation_prefix(lines: Sequence[str], carry: RenderState) -> str:
    """Return the prefix of a line that continues the last one in its containers."""
    path = path_to_last_block(parse_blocks(lines))
    return container_prefix(find_open_containers(path, lines, carry.frames, {}))


def _cut_closed_blocks(root: "Node", lines: Sequence[str], carry: RenderState, paper: MarkdownOptions) -> CutResult:
    """Cut off all blocks except the last, open one."""
    path = path_to_last_block(root)
    at = len(path) - 1
    while at and path[at] is path[at - 1].children[0]:
        at -= 1
    block, first = path[at], first_line_index(path[at])
    if first <= len(build_stub_lines(carry.frames)) or is_stub(block):
        return CutResult([], list(lines), carry)
    rendering = BlockRenderer(root, lines, paper, carry)
    rows = rendering.rows(before=block)
    frames = find_open_containers(path[:at], lines, carry.frames, rendering.numbers)
    if block.type == "list_item":  # the item before it stays, so that the list continues
        *_, item = find_open_containers([*path[:at], path[at - 1].children[-2]], lines, carry.frames, rendering.numbers)
        frames.append(close_list_item(item))
    left = [*build_stub_lines(frames), *lines[first:]]
    return CutResult(rows, left, RenderState(tuple(frames), is_blank_line(lines[first - 1])))


def _cut_open_block(root: "Node", done: CutResult, paper: MarkdownOptions, *, partial: bool) -> CutResult:
    """Cut off the finished part of the open block."""
    path = path_to_last_block(root)
    leaf, unchanged = path[-1], done._replace(rows=[])
    if leaf.type == "paragraph" and not is_stub(leaf):
        return _cut_paragraph(root, unchanged, paper)
    if leaf.type not in (*VERBATIM_NODE_TYPES, "table"):
        return unchanged
    first, stub = first_line_index(leaf), 2 if leaf.type == "table" else 1
    end = min(_content_end(leaf), len(done.lines) - partial)
    while end > first and is_blank_line(done.lines[end - 1]):  # it may turn out to follow the block
        end -= 1
    least = render.LAYOUT_ROWS if leaf.type == "table" and not done.carry.leaf else 1
    if end - first - stub < least:
        return unchanged
    upper = done.lines[:end]
    rendering = BlockRenderer(parse_blocks(upper), upper, paper, done.carry, open_end=True)
    frames = find_open_containers(path, done.lines, done.carry.frames, number_list_items(root, done.carry))
    again = [
        f"{container_prefix(frames)}{strip_container_prefix(line, frames)}" for line in upper[first : first + stub]
    ]
    rows = rendering.rows()
    return CutResult(
        rows, [*build_stub_lines(frames), *again, *done.lines[end:]], RenderState(tuple(frames), leaf=rendering.leaf)
    )


def _content_end(leaf: "Node") -> int:
    """Return the index of the line after the content of a block, its closing line excluded."""
    if leaf.type == "table":
        return leaf.map[1] if leaf.map else 0
    return first_line_index(leaf) + leaf.content.count("\n") + (1 if leaf.type == "fence" else -1)


def _cut_paragraph(root: "Node", done: CutResult, paper: MarkdownOptions) -> CutResult:
    """Cut off the full rows of the last paragraph."""
    path = path_to_last_block(root)
    content = path[-1].children[0].content
    words = content.removeprefix(CUT_MARK)
    place = _find_cut_point(words) if text_width(words) > MIN_PARAGRAPH_ROWS * paper.width else None
    if place is None:
        return done
    rendering = BlockRenderer(root, done.lines, paper, done.carry)
    rows = rendering.rows(upto=place)
    if not rendering.full:
        return done
    frames = find_open_containers(path, done.lines, done.carry.frames, rendering.numbers)
    gap = words[place] in " \n"
    left = words[place + gap :]
    at = first_line_index(path[-1]) + words[: place + gap].count("\n")
    line, end = left.partition("\n")[0], done.lines[at]
    again = f"{container_prefix(frames)}{CUT_MARK}{' ' * gap}{line}{end[len(end.rstrip()) :]}"
    lines = [*build_stub_lines(frames), again, *done.lines[at + 1 :]]
    return CutResult(rows, lines, RenderState(tuple(frames), leaf=rendering.leaf))


def _find_cut_point(words: str) -> int | None:
    """Find a point where a cut does not change the meaning of either half; None if there is none."""
    end = len(words) - _table_head_chars(words)
    places = [found.start() for found in CUT_POINT.finditer(words, 0, end) if found.start()]
    settled = (place for place in _sample_points(places) if has_balanced_marks(words[:place]))
    place = next(settled, None)
    if place is None and len(words) > 2 * MAX_OPEN_MARK_CHARS:
        old = [place for place in places if place < len(words) - MAX_OPEN_MARK_CHARS]
        place = next((place for place in _sample_points(old) if _is_unchanged_by_cut(words, place)), None)
        place = old[-1] if place is None and old and len(words) > 2 * MAX_LINE_CHARS else place
    return place


def _table_head_chars(words: str) -> int:
    """Count the characters at the end that may be a table head: a line that begins with "|", and the rule below it."""
    *above, last = words.rsplit("\n", 2)
    if not last.lstrip().startswith("|") or len(last) >= MAX_LINE_CHARS:
        return 0
    if above and TABLE_RULE.fullmatch(last) and above[-1].lstrip().startswith("|") and len(above[-1]) < MAX_LINE_CHARS:
        return len(above[-1]) + 1 + len(last)
    return len(last)


def _sample_points(places: Sequence[int]) -> list[int]:
    """Return up to four of `places`, the last one first."""
    return [places[-1 - len(places) * eighths // 8] for eighths in (0, 2, 4, 6)] if places else []


def has_balanced_marks(words: str) -> bool:
    """Whether no mark in `text` can still be closed by later text."""
    said = "".join(
        token.content if token.type == "text" else token.markup if token.markup in ("\\(", "\\[") else "x"
        for token in parse_inline(words)
    )
    return not OPENING_MARK.search(said[-MAX_OPEN_MARK_CHARS:])


def _is_unchanged_by_cut(words: str, place: int) -> bool:
    """Whether a cut at `place` leaves the inline content unchanged."""
    return _inline_signature(words[:place]) + _inline_signature(words[place:]) == _inline_signature(words)


def _inline_signature(words: str) -> str:
    return "".join(token.content if token.type == "text" else f"\0{token.type}" for token in parse_inline(words))


CHECK_INTERVAL_CHARS = 48
"""Characters of a line between two checks."""

LARGE_OPEN_CHARS = 2_000
"""Open characters above which the text is checked only after it has grown by a quarter."""

AMBIGUOUS_LINE = re.compile(r"[-=+*#>|`~_\s:.)\d]*")
"""Matches a line of marks only: its meaning depends on its continuation."""

MAX_OPEN_CONTAINERS = 40
DEEP_PREFIX = re.compile(r"(?: {0,3}(?:>|(?:[-+*]|\d{1,9}[.)])(?= ))){20,}")
"""Limits of open lists and quotes, and of their markers in one line; text beyond them is no structure."""


class MarkdownStream:
    """Renders an answer incrementally.

    options:         of the layout; a change applies to rows that were not returned yet
    examined_chars:  characters parsed so far, a measure of the cost
    """

    def __init__(self, paper: MarkdownOptions) -> None:
        self.paper, self.looked = paper, 0
        self._lines: list[str] = []
        self._open = ""
        self._carry = RenderState()
        self._begun = False
        self._size = self._due = self._next = 0

    def take(self, piece: str) -> list[StyledRow]:
        """Add a piece of text, whose control characters are escaped, and return the rows that it finished."""
        rows: list[StyledRow] = []
        at = 0
        while at < len(piece):
            room = max(1, self._due - len(self._open))
            end = piece.find("\n", at, at + room)
            part = piece[at : at + room] if end < 0 else piece[at:end]
            self._open += part.replace(CUT_MARK, "\ufffd")
            at += len(part) + (end >= 0)
            if end >= 0:
                rows += self._end_line()
            elif len(self._open) >= self._due:
                rows += self._within()
        return rows

    def open(self) -> list[StyledRow]:
        """Render the open text as it looks now; no row exceeds the width of `options`."""
        shown = [] if AMBIGUOUS_LINE.fullmatch(self._open) else [self._line()]
        lines = [*self._lines, *shown]
        self.looked += sum(map(len, lines))
        rows = BlockRenderer(parse_blocks(lines), lines, self.paper, self._carry, open_end=True).rows()
        return [part for row in rows for part in break_spans(row, self.paper.width)]

    def end(self) -> list[StyledRow]:
        """Return the rows of the open text; the next piece starts a new text."""
        lines = [*self._lines, *([self._line()] if self._open else [])]
        rows = BlockRenderer(parse_blocks(lines), lines, self.paper, self._carry).rows()
        self._lines, self._open, self._carry, self._begun = [], "", RenderState(), False
        self._size = self._due = self._next = 0
        return rows

    @property
    def size(self) -> int:
        """Open characters."""
        return self._size + len(self._open)

    def _line(self) -> str:
        """Return the open line; one with too many container markers becomes plain text."""
        line = self._open.expandtabs(4)
        words = line.lstrip()
        deep = DEEP_PREFIX.match(line) or (
            len(self._carry.frames) >= MAX_OPEN_CONTAINERS and len(line) - len(words) > MAX_OPEN_CONTAINERS
        )
        if not deep or not words.strip("-* ") or words.startswith(CUT_MARK):
            return line
        return f"{line[: -len(words)]}{CUT_MARK}{words}"

    def _end_line(self) -> list[StyledRow]:
        self._lines.append(self._line())
        self._size += len(self._open) + 1
        self._open, self._due = "", CHECK_INTERVAL_CHARS
        return self._look() if self._size >= self._next else []

    def _within(self) -> list[StyledRow]:
        """Check an incomplete line."""
        rows: list[StyledRow] = []
        if self.size >= self._next:
            self._lines.append(self._line())
            rows = self._look(partial=True)
            self._open = self._lines.pop()
            self._size -= len(self._open)
        if len(self._open) > MAX_LINE_CHARS:
            goes_on = continuation_prefix([*self._lines, self._open], self._carry)
            rows += self._end_line()
            self._open = goes_on
        self._due = len(self._open) + CHECK_INTERVAL_CHARS
        return rows

    def _look(self, *, partial: bool = False) -> list[StyledRow]:
        self.looked += self.size
        done = cut_finished(self._lines, self._carry, self.paper, partial=partial)
        self._begun = self._begun or bool(done.rows)
        self._lines = done.lines
        self._carry = done.carry if self._begun else done.carry._replace(gap=False)
        self._size = sum(len(line) + 1 for line in self._lines)
        self._next = self._size + (self._size // 4 if self._size > LARGE_OPEN_CHARS else 0)
        return done.rows


FRAME_INTERVAL_S = 0.04
"""Minimum seconds between two redraws."""

RIGHT_MARGIN_COLUMNS = 1
"""Free columns at the right: terminals differ in the cursor position after a full row."""

MIN_COLUMNS = 10


class MarkdownRenderer:
    """Renders the text of an answer as Markdown while it streams.

    stream:  the open text
    """

    def __init__(self, out: TextIO, paper: MarkdownOptions, columns: Callable[[], int]) -> None:
        """Start at the cursor; `get_columns` returns the width of the terminal before each redraw."""
        self._painter, self.reading, self._columns = RowPainter(out), MarkdownStream(paper), columns
        self._finished: list[StyledRow] = []
        self._often = Throttle(self._show)
        self._shown = 0

    def say(self, words: str) -> None:
        """Add text; its control characters are escaped already."""
        self._fit()
        self._finished += self.reading.take(words)
        size = self.reading.size
        if size < LARGE_OPEN_CHARS or size * 4 > self._shown * 5:
            self._often.soon()

    def end(self) -> None:
        """Print the rest of the text; the next `write` starts a new text."""
        self._often.stop()
        self._fit()
        self._finished += self.reading.end()
        self._painter.show(self._drawn(self._finished), [])
        self._finished, self._shown = [], 0

    def _show(self) -> None:
        self._fit()
        self._shown = self.reading.size
        self._painter.show(self._drawn(self._finished), self._drawn(self.reading.open()))
        self._finished = []

    def _drawn(self, rows: Sequence[StyledRow]) -> list[str]:
        return [encode_row(row, self.reading.paper) for row in rows]

    def _fit(self) -> None:
        """Update the width; after a change the position of the open rows is unknown."""
        width = max(MIN_COLUMNS, self._columns() - RIGHT_MARGIN_COLUMNS)
        if width != self.reading.paper.width:
            self._painter.forget()
            self.reading.paper = self.reading.paper._replace(width=width)


class Throttle:
    """Runs a callback soon, at most once in `FRAME_INTERVAL_S`; without a running loop it runs at once."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act, self._last = act, 0.0
        self._gone: OSError | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Schedule the callback. Raises the OSError of the last run."""
        if self._gone:
            raise self._gone
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._act()
            return
        if self._waiting is None:
            self._waiting = loop.call_at(max(loop.time(), self._last + FRAME_INTERVAL_S), self._do)

    def stop(self) -> None:
        """Cancel the scheduled run."""
        if self._waiting:
            self._waiting.cancel()
            self._waiting = None

    def _do(self) -> None:
        self._waiting = None
        self._last = asyncio.get_running_loop().time()
        try:
            self._act()
        except OSError as gone:  # raised by the next `schedule`
            self._gone = gone


MAX_REDRAWN_ROWS = 6
"""Open rows that are redrawn."""


class RowPainter:
    """Draws rows at the cursor, which stays at the end of the last open row."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._open: list[str] = []

    def show(self, finished: Sequence[str], still_open: Sequence[str]) -> None:
        """Print the finished rows above the open ones; of the open rows only the last `MAX_REDRAWN_ROWS` are shown."""
        shown = list(still_open[-MAX_REDRAWN_ROWS:])
        rows = [*finished, *shown]
        self._out.write(build_screen_update(self._open, rows))
        if rows and not shown:
            self._out.write("\n")
        self._out.flush()
        self._open = shown

    def forget(self) -> None:
        """Leave the open rows on the screen and continue below them: their position is unknown."""
        if self._open:
            self._out.write("\n")
        self._open = []


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
    return (f"\x1b[{up}A" if up else "") + "\r\x1b[J" + "\n".join(after[same:])

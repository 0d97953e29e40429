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
    state: RenderState


def cut_finished(
    lines: Sequence[str], state: RenderState, options: MarkdownOptions, *, has_partial_line: bool = False
) -> CutResult:
    """Render the finished part and cut it off.

    has_partial_line:  whether the last line is incomplete; its end always remains
    """
    root = parse_blocks(lines)
    if not root.children:
        return (
            CutResult([], list(lines), state)
            if has_partial_line or not lines
            else CutResult([], [], state._replace(has_gap=True))
        )
    done = _cut_closed_blocks(root, lines, state, options)
    if done.state is not state:
        root = parse_blocks(done.lines)
    more = _cut_open_block(root, done, options, has_partial_line=has_partial_line)
    return more._replace(rows=[*done.rows, *more.rows])


def continuation_prefix(lines: Sequence[str], state: RenderState) -> str:
    """Return the prefix of a line that continues the last one in its containers."""
    path = path_to_last_block(parse_blocks(lines))
    return container_prefix(find_open_containers(path, lines, state.containers, {}))


def _cut_closed_blocks(root: "Node", lines: Sequence[str], state: RenderState, options: MarkdownOptions) -> CutResult:
    """Cut off all blocks except the last, open one."""
    path = path_to_last_block(root)
    at = len(path) - 1
    while at and path[at] is path[at - 1].children[0]:
        at -= 1
    block, first = path[at], first_line_index(path[at])
    if first <= len(build_stub_lines(state.containers)) or is_stub(block):
        return CutResult([], list(lines), state)
    rendering = BlockRenderer(root, lines, options, state)
    rows = rendering.render(stop_node=block)
    frames = find_open_containers(path[:at], lines, state.containers, rendering.item_numbers)
    if block.type == "list_item":  # the item before it stays, so that the list continues
        *_, item = find_open_containers(
            [*path[:at], path[at - 1].children[-2]], lines, state.containers, rendering.item_numbers
        )
        frames.append(close_list_item(item))
    left = [*build_stub_lines(frames), *lines[first:]]
    return CutResult(rows, left, RenderState(tuple(frames), is_blank_line(lines[first - 1])))


def _cut_open_block(root: "Node", done: CutResult, options: MarkdownOptions, *, has_partial_line: bool) -> CutResult:
    """Cut off the finished part of the open block."""
    path = path_to_last_block(root)
    leaf, unchanged = path[-1], done._replace(rows=[])
    if leaf.type == "paragraph" and not is_stub(leaf):
        return _cut_paragraph(root, unchanged, options)
    if leaf.type not in (*VERBATIM_NODE_TYPES, "table"):
        return unchanged
    first, stub = first_line_index(leaf), 2 if leaf.type == "table" else 1
    end = min(_content_end(leaf), len(done.lines) - has_partial_line)
    while end > first and is_blank_line(done.lines[end - 1]):  # it may turn out to follow the block
        end -= 1
    least = render.LAYOUT_ROWS if leaf.type == "table" and not done.state.carried_block else 1
    if end - first - stub < least:
        return unchanged
    upper = done.lines[:end]
    rendering = BlockRenderer(parse_blocks(upper), upper, options, done.state, open_end=True)
    frames = find_open_containers(path, done.lines, done.state.containers, number_list_items(root, done.state))
    again = [
        f"{container_prefix(frames)}{strip_container_prefix(line, frames)}" for line in upper[first : first + stub]
    ]
    rows = rendering.render()
    return CutResult(
        rows,
        [*build_stub_lines(frames), *again, *done.lines[end:]],
        RenderState(tuple(frames), carried_block=rendering.carried_block),
    )


def _content_end(leaf: "Node") -> int:
    """Return the index of the line after the content of a block, its closing line excluded."""
    if leaf.type == "table":
        return leaf.map[1] if leaf.map else 0
    return first_line_index(leaf) + leaf.content.count("\n") + (1 if leaf.type == "fence" else -1)


def _cut_paragraph(root: "Node", done: CutResult, options: MarkdownOptions) -> CutResult:
    """Cut off the full rows of the last paragraph."""
    path = path_to_last_block(root)
    content = path[-1].children[0].content
    words = content.removeprefix(CUT_MARK)
    place = _find_cut_point(words) if text_width(words) > MIN_PARAGRAPH_ROWS * options.width else None
    if place is None:
        return done
    rendering = BlockRenderer(root, done.lines, options, done.state)
    rows = rendering.render(max_chars=place)
    if not rendering.full_row_count:
        return done
    frames = find_open_containers(path, done.lines, done.state.containers, rendering.item_numbers)
    gap = words[place] in " \n"
    left = words[place + gap :]
    at = first_line_index(path[-1]) + words[: place + gap].count("\n")
    line, end = left.partition("\n")[0], done.lines[at]
    again = f"{container_prefix(frames)}{CUT_MARK}{' ' * gap}{line}{end[len(end.rstrip()) :]}"
    lines = [*build_stub_lines(frames), again, *done.lines[at + 1 :]]
    return CutResult(rows, lines, RenderState(tuple(frames), carried_block=rendering.carried_block))


def _find_cut_point(text: str) -> int | None:
    """Find a point where a cut does not change the meaning of either half; None if there is none."""
    end = len(text) - _table_head_chars(text)
    places = [found.start() for found in CUT_POINT.finditer(text, 0, end) if found.start()]
    settled = (place for place in _sample_points(places) if has_balanced_marks(text[:place]))
    place = next(settled, None)
    if place is None and len(text) > 2 * MAX_OPEN_MARK_CHARS:
        old = [place for place in places if place < len(text) - MAX_OPEN_MARK_CHARS]
        place = next((place for place in _sample_points(old) if _is_unchanged_by_cut(text, place)), None)
        place = old[-1] if place is None and old and len(text) > 2 * MAX_LINE_CHARS else place
    return place


def _table_head_chars(text: str) -> int:
    """Count the characters at the end that may be a table head: a line that begins with "|", and the rule below it."""
    *above, last = text.rsplit("\n", 2)
    if not last.lstrip().startswith("|") or len(last) >= MAX_LINE_CHARS:
        return 0
    if above and TABLE_RULE.fullmatch(last) and above[-1].lstrip().startswith("|") and len(above[-1]) < MAX_LINE_CHARS:
        return len(above[-1]) + 1 + len(last)
    return len(last)


def _sample_points(places: Sequence[int]) -> list[int]:
    """Return up to four of `places`, the last one first."""
    return [places[-1 - len(places) * eighths // 8] for eighths in (0, 2, 4, 6)] if places else []


def has_balanced_marks(text: str) -> bool:
    """Whether no mark in `text` can still be closed by later text."""
    said = "".join(
        token.content if token.type == "text" else token.markup if token.markup in ("\\(", "\\[") else "x"
        for token in parse_inline(text)
    )
    return not OPENING_MARK.search(said[-MAX_OPEN_MARK_CHARS:])


def _is_unchanged_by_cut(text: str, place: int) -> bool:
    """Whether a cut at `place` leaves the inline content unchanged."""
    return _inline_signature(text[:place]) + _inline_signature(text[place:]) == _inline_signature(text)


def _inline_signature(text: str) -> str:
    return "".join(token.content if token.type == "text" else f"\0{token.type}" for token in parse_inline(text))


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

    def __init__(self, options: MarkdownOptions) -> None:
        self.options, self.examined_chars = options, 0
        self._complete_lines: list[str] = []
        self._last_line = ""
        self._state = RenderState()
        self._has_rows = False
        self._complete_chars = self._next_check_chars = self._next_cut_chars = 0

    def feed(self, piece: str) -> list[StyledRow]:
        """Add a piece of text, whose control characters are escaped, and return the rows that it finished."""
        rows: list[StyledRow] = []
        at = 0
        while at < len(piece):
            room = max(1, self._next_check_chars - len(self._last_line))
            end = piece.find("\n", at, at + room)
            part = piece[at : at + room] if end < 0 else piece[at:end]
            self._last_line += part.replace(CUT_MARK, "\ufffd")
            at += len(part) + (end >= 0)
            if end >= 0:
                rows += self._end_line()
            elif len(self._last_line) >= self._next_check_chars:
                rows += self._check_partial_line()
        return rows

    def render_open(self) -> list[StyledRow]:
        """Render the open text as it looks now; no row exceeds the width of `options`."""
        shown = [] if AMBIGUOUS_LINE.fullmatch(self._last_line) else [self._bounded_line()]
        lines = [*self._complete_lines, *shown]
        self.examined_chars += sum(map(len, lines))
        rows = BlockRenderer(parse_blocks(lines), lines, self.options, self._state, open_end=True).render()
        return [part for row in rows for part in break_spans(row, self.options.width)]

    def finish(self) -> list[StyledRow]:
        """Return the rows of the open text; the next piece starts a new text."""
        lines = [*self._complete_lines, *([self._bounded_line()] if self._last_line else [])]
        rows = BlockRenderer(parse_blocks(lines), lines, self.options, self._state).render()
        self._complete_lines, self._last_line, self._state, self._has_rows = [], "", RenderState(), False
        self._complete_chars = self._next_check_chars = self._next_cut_chars = 0
        return rows

    @property
    def open_chars(self) -> int:
        """Open characters."""
        return self._complete_chars + len(self._last_line)

    def _bounded_line(self) -> str:
        """Return the open line; one with too many container markers becomes plain text."""
        line = self._last_line.expandtabs(4)
        words = line.lstrip()
        deep = DEEP_PREFIX.match(line) or (
            len(self._state.containers) >= MAX_OPEN_CONTAINERS and len(line) - len(words) > MAX_OPEN_CONTAINERS
        )
        if not deep or not words.strip("-* ") or words.startswith(CUT_MARK):
            return line
        return f"{line[: -len(words)]}{CUT_MARK}{words}"

    def _end_line(self) -> list[StyledRow]:
        self._complete_lines.append(self._bounded_line())
        self._complete_chars += len(self._last_line) + 1
        self._last_line, self._next_check_chars = "", CHECK_INTERVAL_CHARS
        return self._cut_finished() if self._complete_chars >= self._next_cut_chars else []

    def _check_partial_line(self) -> list[StyledRow]:
        """Check an incomplete line."""
        rows: list[StyledRow] = []
        if self.open_chars >= self._next_cut_chars:
            self._complete_lines.append(self._bounded_line())
            rows = self._cut_finished(has_partial_line=True)
            self._last_line = self._complete_lines.pop()
            self._complete_chars -= len(self._last_line)
        if len(self._last_line) > MAX_LINE_CHARS:
            goes_on = continuation_prefix([*self._complete_lines, self._last_line], self._state)
            rows += self._end_line()
            self._last_line = goes_on
        self._next_check_chars = len(self._last_line) + CHECK_INTERVAL_CHARS
        return rows

    def _cut_finished(self, *, has_partial_line: bool = False) -> list[StyledRow]:
        self.examined_chars += self.open_chars
        done = cut_finished(self._complete_lines, self._state, self.options, has_partial_line=has_partial_line)
        self._has_rows = self._has_rows or bool(done.rows)
        self._complete_lines = done.lines
        self._state = done.state if self._has_rows else done.state._replace(has_gap=False)
        self._complete_chars = sum(len(line) + 1 for line in self._complete_lines)
        self._next_cut_chars = self._complete_chars + (
            self._complete_chars // 4 if self._complete_chars > LARGE_OPEN_CHARS else 0
        )
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

    def __init__(self, out: TextIO, options: MarkdownOptions, get_columns: Callable[[], int]) -> None:
        """Start at the cursor; `get_columns` returns the width of the terminal before each redraw."""
        self._painter, self.stream, self._get_columns = RowPainter(out), MarkdownStream(options), get_columns
        self._finished_rows: list[StyledRow] = []
        self._throttle = Throttle(self._draw)
        self._shown_chars = 0

    def write(self, text: str) -> None:
        """Add text; its control characters are escaped already."""
        self._update_width()
        self._finished_rows += self.stream.feed(text)
        size = self.stream.open_chars
        if size < LARGE_OPEN_CHARS or size * 4 > self._shown_chars * 5:
            self._throttle.schedule()

    def finish(self) -> None:
        """Print the rest of the text; the next `write` starts a new text."""
        self._throttle.cancel()
        self._update_width()
        self._finished_rows += self.stream.finish()
        self._painter.update(self._encode_rows(self._finished_rows), [])
        self._finished_rows, self._shown_chars = [], 0

    def _draw(self) -> None:
        self._update_width()
        self._shown_chars = self.stream.open_chars
        self._painter.update(self._encode_rows(self._finished_rows), self._encode_rows(self.stream.render_open()))
        self._finished_rows = []

    def _encode_rows(self, rows: Sequence[StyledRow]) -> list[str]:
        return [encode_row(row, self.stream.options) for row in rows]

    def _update_width(self) -> None:
        """Update the width; after a change the position of the open rows is unknown."""
        width = max(MIN_COLUMNS, self._get_columns() - RIGHT_MARGIN_COLUMNS)
        if width != self.stream.options.width:
            self._painter.leave_open_rows()
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
        except OSError as gone:  # raised by the next `schedule`
            self._error = gone


MAX_REDRAWN_ROWS = 6
"""Open rows that are redrawn."""


class RowPainter:
    """Draws rows at the cursor, which stays at the end of the last open row."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._open_rows: list[str] = []

    def update(self, finished: Sequence[str], open_rows: Sequence[str]) -> None:
        """Print the finished rows above the open ones; of the open rows only the last `MAX_REDRAWN_ROWS` are shown."""
        shown = list(open_rows[-MAX_REDRAWN_ROWS:])
        rows = [*finished, *shown]
        self._out.write(build_screen_update(self._open_rows, rows))
        if rows and not shown:
            self._out.write("\n")
        self._out.flush()
        self._open_rows = shown

    def leave_open_rows(self) -> None:
        """Leave the open rows on the screen and continue below them: their position is unknown."""
        if self._open_rows:
            self._out.write("\n")
        self._open_rows = []


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

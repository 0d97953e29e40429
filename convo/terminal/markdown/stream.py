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
    closed_cut = _cut_closed_blocks(root, lines, state, options)
    if closed_cut.state is not state:
        root = parse_blocks(closed_cut.lines)
    open_cut = _cut_open_block(root, closed_cut, options, has_partial_line=has_partial_line)
    return open_cut._replace(rows=[*closed_cut.rows, *open_cut.rows])


def continuation_prefix(lines: Sequence[str], state: RenderState) -> str:
    """Return the prefix of a line that continues the last one in its containers."""
    path = path_to_last_block(parse_blocks(lines))
    return container_prefix(find_open_containers(path, lines, state.containers, {}))


def _cut_closed_blocks(root: "Node", lines: Sequence[str], state: RenderState, options: MarkdownOptions) -> CutResult:
    """Cut off all blocks except the last, open one."""
    path = path_to_last_block(root)
    index = len(path) - 1
    while index and path[index] is path[index - 1].children[0]:
        index -= 1
    block, start = path[index], first_line_index(path[index])
    if start <= len(build_stub_lines(state.containers)) or is_stub(block):
        return CutResult([], list(lines), state)
    renderer = BlockRenderer(root, lines, options, state)
    rows = renderer.render(stop_node=block)
    containers = find_open_containers(path[:index], lines, state.containers, renderer.item_numbers)
    if block.type == "list_item":  # the item before it stays, so that the list continues
        *_, item = find_open_containers(
            [*path[:index], path[index - 1].children[-2]], lines, state.containers, renderer.item_numbers
        )
        containers.append(close_list_item(item))
    remaining = [*build_stub_lines(containers), *lines[start:]]
    return CutResult(rows, remaining, RenderState(tuple(containers), is_blank_line(lines[start - 1])))


def _cut_open_block(root: "Node", cut: CutResult, options: MarkdownOptions, *, has_partial_line: bool) -> CutResult:
    """Cut off the finished part of the open block."""
    path = path_to_last_block(root)
    leaf, unchanged = path[-1], cut._replace(rows=[])
    if leaf.type == "paragraph" and not is_stub(leaf):
        return _cut_paragraph(root, unchanged, options)
    if leaf.type not in (*VERBATIM_NODE_TYPES, "table"):
        return unchanged
    start, stub_count = first_line_index(leaf), 2 if leaf.type == "table" else 1
    end = min(_content_end(leaf), len(cut.lines) - has_partial_line)
    while end > start and is_blank_line(cut.lines[end - 1]):  # it may turn out to follow the block
        end -= 1
    min_lines = render.LAYOUT_ROWS if leaf.type == "table" and not cut.state.carried_block else 1
    if end - start - stub_count < min_lines:
        return unchanged
    finished_lines = cut.lines[:end]
    renderer = BlockRenderer(parse_blocks(finished_lines), finished_lines, options, cut.state, open_end=True)
    containers = find_open_containers(path, cut.lines, cut.state.containers, number_list_items(root, cut.state))
    repeated_lines = [
        f"{container_prefix(containers)}{strip_container_prefix(line, containers)}"
        for line in finished_lines[start : start + stub_count]
    ]
    rows = renderer.render()
    return CutResult(
        rows,
        [*build_stub_lines(containers), *repeated_lines, *cut.lines[end:]],
        RenderState(tuple(containers), carried_block=renderer.carried_block),
    )


def _content_end(leaf: "Node") -> int:
    """Return the index of the line after the content of a block, its closing line excluded."""
    if leaf.type == "table":
        return leaf.map[1] if leaf.map else 0
    return first_line_index(leaf) + leaf.content.count("\n") + (1 if leaf.type == "fence" else -1)


def _cut_paragraph(root: "Node", cut: CutResult, options: MarkdownOptions) -> CutResult:
    """Cut off the full rows of the last paragraph."""
    path = path_to_last_block(root)
    content = path[-1].children[0].content
    text = content.removeprefix(CUT_MARK)
    position = _find_cut_point(text) if text_width(text) > MIN_PARAGRAPH_ROWS * options.width else None
    if position is None:
        return cut
    renderer = BlockRenderer(root, cut.lines, options, cut.state)
    rows = renderer.render(max_chars=position)
    if not renderer.full_row_count:
        return cut
    containers = find_open_containers(path, cut.lines, cut.state.containers, renderer.item_numbers)
    gap = text[position] in " \n"
    remaining = text[position + gap :]
    index = first_line_index(path[-1]) + text[: position + gap].count("\n")
    line, source_line = remaining.partition("\n")[0], cut.lines[index]
    continued_line = (
        f"{container_prefix(containers)}{CUT_MARK}{' ' * gap}{line}{source_line[len(source_line.rstrip()) :]}"
    )
    lines = [*build_stub_lines(containers), continued_line, *cut.lines[index + 1 :]]
    return CutResult(rows, lines, RenderState(tuple(containers), carried_block=renderer.carried_block))


def _find_cut_point(text: str) -> int | None:
    """Find a point where a cut does not change the meaning of either half; None if there is none."""
    end = len(text) - _table_head_chars(text)
    positions = [match.start() for match in CUT_POINT.finditer(text, 0, end) if match.start()]
    balanced = (position for position in _sample_points(positions) if has_balanced_marks(text[:position]))
    position = next(balanced, None)
    if position is None and len(text) > 2 * MAX_OPEN_MARK_CHARS:
        old_positions = [position for position in positions if position < len(text) - MAX_OPEN_MARK_CHARS]
        position = next(
            (position for position in _sample_points(old_positions) if _is_unchanged_by_cut(text, position)), None
        )
        position = (
            old_positions[-1] if position is None and old_positions and len(text) > 2 * MAX_LINE_CHARS else position
        )
    return position


def _table_head_chars(text: str) -> int:
    """Count the characters at the end that may be a table head: a line that begins with "|", and the rule below it."""
    *above, last = text.rsplit("\n", 2)
    if not last.lstrip().startswith("|") or len(last) >= MAX_LINE_CHARS:
        return 0
    if above and TABLE_RULE.fullmatch(last) and above[-1].lstrip().startswith("|") and len(above[-1]) < MAX_LINE_CHARS:
        return len(above[-1]) + 1 + len(last)
    return len(last)


def _sample_points(positions: Sequence[int]) -> list[int]:
    """Return up to four of `places`, the last one first."""
    return [positions[-1 - len(positions) * eighths // 8] for eighths in (0, 2, 4, 6)] if positions else []


def has_balanced_marks(text: str) -> bool:
    """Whether no mark in `text` can still be closed by later text."""
    plain_text = "".join(
        token.content if token.type == "text" else token.markup if token.markup in ("\\(", "\\[") else "x"
        for token in parse_inline(text)
    )
    return not OPENING_MARK.search(plain_text[-MAX_OPEN_MARK_CHARS:])


def _is_unchanged_by_cut(text: str, position: int) -> bool:
    """Whether a cut at `position` leaves the inline content unchanged."""
    return _inline_signature(text[:position]) + _inline_signature(text[position:]) == _inline_signature(text)


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

    def feed(self, text: str) -> list[StyledRow]:
        """Add text, whose control characters are escaped, and return the rows that it finished."""
        rows: list[StyledRow] = []
        position = 0
        while position < len(text):
            limit = max(1, self._next_check_chars - len(self._last_line))
            end = text.find("\n", position, position + limit)
            part = text[position : position + limit] if end < 0 else text[position:end]
            self._last_line += part.replace(CUT_MARK, "\ufffd")
            position += len(part) + (end >= 0)
            if end >= 0:
                rows += self._end_line()
            elif len(self._last_line) >= self._next_check_chars:
                rows += self._check_partial_line()
        return rows

    def render_open(self) -> list[StyledRow]:
        """Render the open text as it looks now; no row exceeds the width of `options`."""
        open_lines = [] if AMBIGUOUS_LINE.fullmatch(self._last_line) else [self._bounded_line()]
        lines = [*self._complete_lines, *open_lines]
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
        text = line.lstrip()
        is_deep = DEEP_PREFIX.match(line) or (
            len(self._state.containers) >= MAX_OPEN_CONTAINERS and len(line) - len(text) > MAX_OPEN_CONTAINERS
        )
        if not is_deep or not text.strip("-* ") or text.startswith(CUT_MARK):
            return line
        return f"{line[: -len(text)]}{CUT_MARK}{text}"

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
            prefix = continuation_prefix([*self._complete_lines, self._last_line], self._state)
            rows += self._end_line()
            self._last_line = prefix
        self._next_check_chars = len(self._last_line) + CHECK_INTERVAL_CHARS
        return rows

    def _cut_finished(self, *, has_partial_line: bool = False) -> list[StyledRow]:
        self.examined_chars += self.open_chars
        cut = cut_finished(self._complete_lines, self._state, self.options, has_partial_line=has_partial_line)
        self._has_rows = self._has_rows or bool(cut.rows)
        self._complete_lines = cut.lines
        self._state = cut.state if self._has_rows else cut.state._replace(has_gap=False)
        self._complete_chars = sum(len(line) + 1 for line in self._complete_lines)
        self._next_cut_chars = self._complete_chars + (
            self._complete_chars // 4 if self._complete_chars > LARGE_OPEN_CHARS else 0
        )
        return cut.rows


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
        except OSError as error:  # raised by the next `schedule`
            self._error = error


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

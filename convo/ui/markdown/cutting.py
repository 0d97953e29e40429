"""What of a text is finished.

Markdown is made of lines, and what came later never opens again what was closed. So everything
before the last open block can be printed, and of that block what its own kind lets go: whole lines
of code, rows of a table, full rows of a paragraph. What stays is short, and reads as the whole did.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from convo.ui.markdown import tables
from convo.ui.markdown.frames import closed, first_line, frames_of, inside, is_blank, is_stub, prefix, stubs
from convo.ui.markdown.parsing import blocks, inline
from convo.ui.markdown.rendering import VERBATIM, Carry, Rendering, numbered, opened
from convo.ui.markdown.spans import MARK, Paper, Row
from convo.ui.medium import width

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode as Node

SPAN = 500
"""Characters after which a mark that was not closed is a mark and nothing else."""

LONG = 2_000
"""Characters after which a line is broken."""

FULL = 2
"""Rows that a paragraph has before its upper ones are let go."""

OPENS = re.compile(
    r"(?:\*+|~~+)(?=[^\s*~])|(?<!\w)_+(?=[^\s_])|`|<(?=[A-Za-z/!?])|\[(?![^\[\]]*\](?!\())|\\[(\[]"
    r"|\$\$|\$(?=[^\s$])(?=.{0,200}\Z)",
    re.DOTALL,
)
"""What may be the beginning of something that is closed later."""

PLACE = re.compile(r"(?<=\S) (?=\S)|(?<![\s\\])\n(?=\S)|(?<=[\u2e80-\uffdc])(?=[\u3041-\u9fff\uac00-\ud7a3])")
"""Where a paragraph can be cut: a space, a line break, between two wide characters."""


RULE = re.compile(r"[\s|:-]*")
"""The line below the heads of a table, as far as it has come."""


class Cut(NamedTuple):
    """What is finished, laid out, and what is left."""

    rows: list[Row]
    lines: list[str]
    carry: Carry


def cut(lines: Sequence[str], carry: Carry, paper: Paper, *, partial: bool = False) -> Cut:
    """Cut off what is finished.

    partial:  the last line is not whole yet; it stays, if it only in part does
    """
    root = blocks(lines)
    if not root.children:
        return Cut([], list(lines), carry) if partial or not lines else Cut([], [], carry._replace(gap=True))
    done = _before_the_last(root, lines, carry, paper)
    if done.carry is not carry:
        root = blocks(done.lines)
    more = _of_the_last(root, done, paper, partial=partial)
    return more._replace(rows=[*done.rows, *more.rows])


def end_of_line(lines: Sequence[str], carry: Carry) -> str:
    """How a line begins that goes on with the last one, whatever containers that is in."""
    path = opened(blocks(lines))
    return prefix(frames_of(path, lines, carry.frames, {}))


def _before_the_last(root: "Node", lines: Sequence[str], carry: Carry, paper: Paper) -> Cut:
    """Cut off every block but the one that is open."""
    path = opened(root)
    at = len(path) - 1
    while at and path[at] is path[at - 1].children[0]:
        at -= 1
    block, first = path[at], first_line(path[at])
    if first <= len(stubs(carry.frames)) or is_stub(block):
        return Cut([], list(lines), carry)
    rendering = Rendering(root, lines, paper, carry)
    rows = rendering.rows(before=block)
    frames = frames_of(path[:at], lines, carry.frames, rendering.numbers)
    if block.type == "list_item":  # the item before it stays, so that the list goes on
        *_, item = frames_of([*path[:at], path[at - 1].children[-2]], lines, carry.frames, rendering.numbers)
        frames.append(closed(item))
    left = [*stubs(frames), *lines[first:]]
    return Cut(rows, left, Carry(tuple(frames), is_blank(lines[first - 1])))


def _of_the_last(root: "Node", done: Cut, paper: Paper, *, partial: bool) -> Cut:
    """Cut off what the open block itself lets go."""
    path = opened(root)
    leaf, unchanged = path[-1], done._replace(rows=[])
    if leaf.type == "paragraph" and not is_stub(leaf):
        return _paragraph(root, unchanged, paper)
    if leaf.type not in (*VERBATIM, "table"):
        return unchanged
    first, stub = first_line(leaf), 2 if leaf.type == "table" else 1
    end = min(_end(leaf), len(done.lines) - partial)
    while end > first and is_blank(done.lines[end - 1]):  # it may turn out to stand behind the block
        end -= 1
    least = tables.SETTLED if leaf.type == "table" and not done.carry.leaf else 1
    if end - first - stub < least:
        return unchanged
    upper = done.lines[:end]
    rendering = Rendering(blocks(upper), upper, paper, done.carry, open_end=True)
    frames = frames_of(path, done.lines, done.carry.frames, numbered(root, done.carry))
    again = [f"{prefix(frames)}{inside(line, frames)}" for line in upper[first : first + stub]]
    rows = rendering.rows()
    return Cut(rows, [*stubs(frames), *again, *done.lines[end:]], Carry(tuple(frames), leaf=rendering.leaf))


def _end(leaf: "Node") -> int:
    """The line behind the last one of its content that is no end of it."""
    if leaf.type == "table":
        return leaf.map[1] if leaf.map else 0
    return first_line(leaf) + leaf.content.count("\n") + (1 if leaf.type == "fence" else -1)


def _paragraph(root: "Node", done: Cut, paper: Paper) -> Cut:
    """Cut off the full rows of the paragraph at the end."""
    path = opened(root)
    content = path[-1].children[0].content
    words = content.removeprefix(MARK)
    place = _place(words) if width(words) > FULL * paper.width else None
    if place is None:
        return done
    rendering = Rendering(root, done.lines, paper, done.carry)
    rows = rendering.rows(upto=place)
    if not rendering.full:
        return done
    frames = frames_of(path, done.lines, done.carry.frames, rendering.numbers)
    gap = words[place] in " \n"
    left = words[place + gap :]
    at = first_line(path[-1]) + words[: place + gap].count("\n")
    line, end = left.partition("\n")[0], done.lines[at]
    again = f"{prefix(frames)}{MARK}{' ' * gap}{line}{end[len(end.rstrip()) :]}"
    lines = [*stubs(frames), again, *done.lines[at + 1 :]]
    return Cut(rows, lines, Carry(tuple(frames), leaf=rendering.leaf))


def _place(words: str) -> int | None:
    """Where a paragraph can be cut so that both halves mean what they mean together; None for nowhere."""
    end = len(words) - _heads(words)
    places = [found.start() for found in PLACE.finditer(words, 0, end) if found.start()]
    settled = (place for place in _some(places) if is_settled(words[:place]))
    place = next(settled, None)
    if place is None and len(words) > 2 * SPAN:
        old = [place for place in places if place < len(words) - SPAN]
        place = next((place for place in _some(old) if _means_the_same(words, place)), None)
        place = old[-1] if place is None and old and len(words) > 2 * LONG else place
    return place


def _heads(words: str) -> int:
    """Characters at the end that may be the heads of a table: a line that begins with a bar, and what rules it off."""
    *above, last = words.rsplit("\n", 2)
    if not last.lstrip().startswith("|") or len(last) >= LONG:
        return 0
    if above and RULE.fullmatch(last) and above[-1].lstrip().startswith("|") and len(above[-1]) < LONG:
        return len(above[-1]) + 1 + len(last)
    return len(last)


def _some(places: Sequence[int]) -> list[int]:
    """A few of `places`, the last first."""
    return [places[-1 - len(places) * eighths // 8] for eighths in (0, 2, 4, 6)] if places else []


def is_settled(words: str) -> bool:
    """Whether no mark in `words` waits for another one."""
    said = "".join(
        token.content if token.type == "text" else token.markup if token.markup in ("\\(", "\\[") else "x"
        for token in inline(words)
    )
    return not OPENS.search(said[-SPAN:])


def _means_the_same(words: str, place: int) -> bool:
    """Whether both sides of `place` say together what `words` say."""
    return _said(words[:place]) + _said(words[place:]) == _said(words)


def _said(words: str) -> str:
    return "".join(token.content if token.type == "text" else f"\0{token.type}" for token in inline(words))

"""Lists and quotes that go on when their beginning is printed and forgotten.

What is left of a text is read again without what was printed. So that a line of a list is still a
line of it, each container that is open is begun anew by a stub: its marker and a mark of ours.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from convo.ui.markdown.spans import MARK

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode as Node

LISTS = ("bullet_list", "ordered_list")
CONTAINERS = (*LISTS, "list_item", "blockquote")

BLANK = re.compile(r"[\s>]*")
QUOTE = re.compile(r" {0,3}> ?")
ITEM = re.compile(r"( *(?:[-+*]|\d{1,9}[.)]))( *)(.?)")

INDENTED_CODE = 5
"""Spaces behind a marker: all but one of them belong to code."""


class Frame(NamedTuple):
    """A container that is open.

    marker:  how its first line begins, behind those of the containers around it
    prefix:  how its other lines begin
    number:  of an item in an ordered list
    """

    marker: str
    prefix: str
    number: int | None = None


def stubs(frames: Sequence[Frame]) -> list[str]:
    """The lines that begin `frames` anew."""
    lines, before = list[str](), ""
    for frame in frames:
        lines.append(f"{before}{frame.marker}{MARK}")
        before += frame.prefix
        lines.append(before.rstrip())
    return lines


def prefix(frames: Sequence[Frame]) -> str:
    return "".join(frame.prefix for frame in frames)


def inside(line: str, frames: Sequence[Frame]) -> str:
    """What stands in `line` behind the marks of the containers that it is in."""
    for frame in frames:
        line = QUOTE.sub("", line, count=1) if frame.prefix == "> " else line[len(frame.prefix) :]
    return line


def frames_of(
    path: Sequence["Node"], lines: Sequence[str], frames: Sequence[Frame], numbers: dict[int, int]
) -> list[Frame]:
    """The containers of `path`; those that begin with a stub are among `frames`."""
    found: list[Frame] = []
    for node in path:
        if node.type not in ("list_item", "blockquote"):
            continue
        if begins_with_stub(node) and len(found) < len(frames):
            frame = frames[len(found)]
        elif node.type == "blockquote":
            frame = Frame("> ", "> ")
        else:
            frame = _item(inside(lines[first_line(node)], found))
        found.append(frame._replace(number=numbers.get(id(node))))
    return found


def _item(line: str) -> Frame:
    match = ITEM.match(line)
    marker, space, rest = match.groups() if match else ("-", " ", "")
    wide = len(marker) + (len(space) if rest and len(space) < INDENTED_CODE else 1)
    return Frame(f"{marker:<{wide}}", " " * wide)


def closed(item: Frame) -> Frame:
    """An item that nothing is added to: its words begin farther right than a marker can."""
    marker = item.marker.rstrip() + " " * (INDENTED_CODE - 1)
    return item._replace(marker=marker, prefix=" " * len(marker))


def first_line(node: "Node") -> int:
    return node.map[0] if node.map else 0


def is_blank(line: str) -> bool:
    """Whether nothing but the marks of quotes stands in `line`."""
    return BLANK.fullmatch(line) is not None


def is_stub(node: "Node") -> bool:
    return node.type == "paragraph" and node.children[0].content == MARK


def begins_with_stub(node: "Node") -> bool:
    """Whether the beginning of a container was printed before."""
    while node.type in CONTAINERS and node.children:
        node = node.children[0]
    return is_stub(node)

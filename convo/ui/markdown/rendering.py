"""Blocks as rows.

One walk through the tree, in the order of the text. It stops before the block that is still open, if
it is told to, and it begins in the middle of one where the beginning was printed before: `Carry`
says what has been.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from convo.ui.markdown import code, tables
from convo.ui.markdown.frames import CONTAINERS, LISTS, Frame, begins_with_stub, first_line, is_blank, is_stub
from convo.ui.markdown.inlines import DIM, spans
from convo.ui.markdown.spans import MARK, Paper, Row, Span, clean, wrapped

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode as Node

VERBATIM = ("fence", "code_block", "html_block", "math_block")
"""Blocks whose lines are shown as they stand."""

LEAST = 8
"""Columns that the words in a list within lists have, however deep it is."""

RULE = 40
"""Columns of a thematic break."""


class Prose(NamedTuple):
    """The row of a paragraph that was not full when the paragraph was cut."""

    row: Row = ()


class Code(NamedTuple):
    """Verbatim lines that go on; the first `skip` of them were shown."""

    ink: code.Ink
    skip: int


class Table(NamedTuple):
    """A table whose head was shown."""

    form: tables.Form


Leaf: TypeAlias = Prose | Code | Table


class Carry(NamedTuple):
    """What was printed of a text whose remainder is laid out.

    frames:  lists and quotes that are open, the outermost first
    gap:     whether an empty line stands before what comes next
    leaf:    what was shown of the block that goes on
    """

    frames: tuple[Frame, ...] = ()
    gap: bool = False
    leaf: Leaf | None = None


class Rendering:
    """Lays out one piece of source.

    leaf:     what to carry on when the last block is cut behind what was laid out
    numbers:  of the items of ordered lists, by the identity of their nodes
    full:     rows of the paragraph that was cut
    """

    def __init__(
        self, root: "Node", lines: Sequence[str], paper: Paper, carry: Carry, *, open_end: bool = False
    ) -> None:
        """Prepare; with `open_end` code at the end is not closed unless its closing line is there."""
        self.leaf, self.full = carry.leaf, 0
        self.numbers = numbered(root, carry)
        self._root, self._lines, self._paper = root, lines, paper
        self._gap, self._carried = carry.gap, carry.leaf
        self._fresh = True
        self._open = opened(root)[-1] if open_end else None
        self._stop: Node | None = None
        self._upto: int | None = None

    def rows(self, *, before: "Node | None" = None, upto: int | None = None) -> list[Row]:
        """All rows.

        before:  a block at the end: it, and what begins with it, is left out
        upto:    of the paragraph at the end so many characters alone, and of these the full rows
        """
        self._stop, self._upto = before, upto
        if upto is not None:
            self._open = opened(self._root)[-1]
        return list(self._children(self._root, self._paper.width))

    # -- the walk ---------------------------------------------------------------------------------

    def _children(self, node: "Node", room: int) -> Iterator[Row]:
        for at, child in enumerate(node.children):
            if self._stopped(child):
                return
            if is_stub(child):
                continue
            if not begins_with_stub(child):
                if self._gap_before(child, inner=at > 0):
                    yield ()
                self._fresh = False
            yield from self._block(child, room)

    def _stopped(self, node: "Node") -> bool:
        """Whether `node` is, or begins with, what is left out."""
        while node is not self._stop and node.type in CONTAINERS and node.children:
            node = node.children[0]
        return node is self._stop

    def _gap_before(self, node: "Node", *, inner: bool) -> bool:
        """Whether the source has an empty line there."""
        if self._fresh:
            return self._gap and self._carried is None
        return inner and is_blank(self._lines[first_line(node) - 1])

    def _block(self, node: "Node", room: int) -> Iterator[Row]:
        match node.type:
            case "bullet_list" | "ordered_list":
                yield from self._children(node, room)
            case "list_item":
                yield from self._item(node, room)
            case "blockquote":
                yield from self._quote(node, room)
            case _:
                carried, self._carried = self._carried, None
                yield from self._leaf(node, carried, room)

    def _leaf(self, node: "Node", carried: Leaf | None, room: int) -> Iterator[Row]:
        if isinstance(carried, Prose) and node.type != "paragraph":
            yield carried.row
        match node.type:
            case "paragraph":
                yield from self._paragraph(node, carried.row if isinstance(carried, Prose) else (), room)
            case "heading":
                words = spans(node.children[0].content.replace(MARK, ""), self._paper, "1")
                yield from wrapped([Span(f"{'#' * int(node.tag[1:])} ", DIM), *words], room)
            case "hr":
                yield (Span(("─" if self._paper.boxes else "-") * min(room, RULE), DIM),)
            case "table":
                yield from self._table(node, carried.form if isinstance(carried, Table) else None, room)
            case _:
                yield from self._verbatim(node, carried if isinstance(carried, Code) else None)

    # -- the blocks -------------------------------------------------------------------------------

    def _item(self, node: "Node", room: int) -> Iterator[Row]:
        marker, begun = self._marker(node), begins_with_stub(node)
        wide = len(marker.words)
        for row in self._children(node, max(LEAST, room - wide)):
            yield (Span(" " * wide), *row) if begun and row else (marker, *row) if not begun else ()
            begun = True
        if not begun:
            yield (Span(marker.words.rstrip()),)

    def _quote(self, node: "Node", room: int) -> Iterator[Row]:
        bar, begun = Span("│ " if self._paper.boxes else "> ", DIM), begins_with_stub(node)
        for row in self._children(node, max(LEAST, room - 2)):
            yield (bar, *row)
            begun = True
        if not begun:
            yield (bar,)

    def _marker(self, node: "Node") -> Span:
        number = self.numbers.get(id(node))
        if number is not None:
            return Span(f"{number}{node.markup} ")
        return Span("• " if self._paper.boxes else "- ")

    def _paragraph(self, node: "Node", begun: Row, room: int) -> Iterator[Row]:
        words = node.children[0].content.removeprefix(MARK)
        upto = self._upto if node is self._open else None
        rows = wrapped([*begun, *spans(words[:upto], self._paper)], room)
        if upto is not None:
            self.leaf = Prose(() if words[upto] == "\n" else rows.pop())
            self.full = len(rows)
        yield from rows

    def _verbatim(self, node: "Node", begun: Code | None) -> Iterator[Row]:
        lines = node.content.replace(MARK, "").split("\n")[:-1]
        framed = node.type in ("fence", "code_block")
        language = node.info.split()[0] if node.info.strip() else ""
        if framed and not begun:
            yield self._edge(clean(language))
        ink = begun.ink if begun else code.ink(language if framed else "")
        for line in lines[begun.skip if begun else 0 :]:
            row, ink = code.coloured(line, ink)
            yield tuple(span for span in row if span.words)
        self.leaf = Code(ink, 0 if node.type == "fence" else 1)
        if framed and (node is not self._open or is_closed(node)):
            yield self._edge("")

    def _edge(self, language: str) -> Row:
        """The rule above and below code; a screen reader has the language in it."""
        rule = "──" if self._paper.boxes else "--"
        return (Span(f"{rule} {language}".rstrip(), DIM),)

    def _table(self, node: "Node", form: tables.Form | None, room: int) -> Iterator[Row]:
        cells = [
            [spans(cell.children[0].content, self._paper, "1" if cell.type == "th" else "") for cell in line.children]
            for part in node.children
            for line in part.children
        ]
        head, *lines = cells
        if form is None:
            sides = [
                str(cell.attrs.get("style", "")).removeprefix("text-align:")
                for cell in node.children[0].children[0].children
            ]
            form = tables.form([head, *lines[: tables.SETTLED]], sides, room)
            yield from tables.head_rows(head, form, self._paper)
        self.leaf = Table(form)
        for line in lines:
            yield from tables.line_rows(head, line, form, self._paper, room)


def opened(root: "Node") -> list["Node"]:
    """The way to the last block, from the outermost in; the root itself where there is none."""
    path = [root]
    while path[-1].children and path[-1].type in ("root", *CONTAINERS):
        path.append(path[-1].children[-1])
    return path[1:] or path


def is_closed(node: "Node") -> bool:
    """Whether a fence has its closing line."""
    first, end = node.map or (0, 0)
    return node.type == "fence" and end - first == node.content.count("\n") + 2


def numbered(root: "Node", carry: Carry) -> dict[int, int]:
    """The numbers of the items of all ordered lists; those that go on do so where they were."""
    going_on: dict[int, int] = {}
    level = root.children
    for frame in carry.frames:
        if level and begins_with_stub(level[0]) and frame.number is not None:
            going_on[id(level[0])] = frame.number
        level = _inside(level)
    return dict(_counted(root, going_on))


def _inside(level: list["Node"]) -> list["Node"]:
    """What stands behind the stub in the container that comes first."""
    inner = level[0].children if level else []
    if level and level[0].type in LISTS:
        inner = inner[0].children
    return inner[1:]


def _counted(node: "Node", going_on: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    start = going_on.get(id(node), node.attrs.get("start", 1) if node.type == "ordered_list" else 0)
    for at, child in enumerate(node.children if node.type in ("root", *CONTAINERS) else ()):
        if node.type == "ordered_list":
            yield id(child), int(start) + at
        yield from _counted(child, going_on)

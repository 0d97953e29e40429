"""Two histories or two requests on a screen, and where they part.

Where the two part is said first, because it decides what the prompt cache is worth; only then comes
what stands behind it, side by side.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from convo.inspection.requests import Parted, Request
from convo.inspection.sides import Compared, Pair
from convo.items import Item, first_words
from convo.ui.answer import safe
from convo.ui.inspecting import label
from convo.ui.labelled import Line, counted, labelled
from convo.ui.medium import Medium, cut, padded

ROOM = 60
"""Columns of each side where there is no terminal."""

MARKS = {"same": " ", "changed": "|", "only a": "<", "only b": ">"}
STYLES = {"changed": "bold", "only a": "bad", "only b": "good"}

RUN = 3
"""So many items in a row that are the same behind the first difference are named; of more, the number."""


class Side(NamedTuple):
    """One history: what it is called, who holds it, and its items."""

    name: str
    owner: str
    items: Sequence[Item]


def histories(a: Side, b: Side, found: Compared, medium: Medium) -> str:
    """Both sides, where they part, and everything behind that side by side."""
    head = [("A", _side(a)), ("B", _side(b)), ("", _where(a, b, found))]
    shown = [*labelled(head, medium), *([] if found.alike else ["", *_beside(found, medium)])]
    if not found.alike:
        shown += ["", "  " + ", ".join(_sum(found))]
    return medium.drawn("\n".join(shown))


def requests(a: Request, b: Request, found: Parted, medium: Medium) -> str:
    """The first byte that differs, and what the beginning before it was worth."""
    return medium.drawn("\n".join(labelled([*_requests(a, b, found), *_cache(found)], medium)))


def _side(side: Side) -> str:
    return f"{side.name}, {counted(len(side.items))}, {side.owner}"


def _where(a: Side, b: Side, found: Compared) -> str:
    if found.alike:
        return f"both say the same: {counted(found.same)}"
    alike = f"{counted(found.same)} the same" if found.same else "nothing at the beginning is the same"
    if found.path:
        return f"{alike}; item {found.same + 1} differs in {found.path}"
    if found.same < min(len(a.items), len(b.items)):
        return f"{alike}; item {found.same + 1} is another one"
    longer = "B" if len(b.items) > len(a.items) else "A"
    return f"{alike}; {longer} goes on from there"


def _sum(found: Compared) -> Iterator[str]:
    yield f"only in A {found.many('only a'):,}"
    yield f"only in B {found.many('only b'):,}"
    yield f"different {found.many('changed'):,}"
    yield f"the same again {found.many('same'):,}"


def _beside(found: Compared, medium: Medium) -> Iterator[str]:
    room = ROOM if medium.width is None else max(16, (medium.width - 5) // 2)
    yield medium.paint(f"  {padded('A', room)}   {'B'}", "dim")
    for run in _runs(found.rest):
        if len(run) > RUN and run[0].mark == "same":
            yield medium.paint(f"  {counted(len(run))} the same", "dim")
            continue
        for pair in run:
            yield _line(pair, found, room, medium)


def _runs(rest: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Neighbours with the same mark."""
    run: list[Pair] = []
    for pair in rest:
        if run and run[-1].mark != pair.mark:
            yield run
            run = []
        run.append(pair)
    if run:
        yield run


def _line(pair: Pair, found: Compared, room: int, medium: Medium) -> str:
    left, right = _item(pair.a, found.a, room), _item(pair.b, found.b, room)
    words = f"  {padded(left, room)} {MARKS[pair.mark]} {right}".rstrip()
    return medium.paint(words, STYLES[pair.mark]) if pair.mark in STYLES else words


def _item(at: int | None, items: Sequence[Item], room: int) -> str:
    if at is None:
        return ""
    begins = f"{at + 1:>4}  {label(items[at])}: "
    return cut(begins + safe(first_words(items[at], max(8, room - len(begins)))), room)


def _requests(a: Request, b: Request, found: Parted) -> Iterator[Line]:
    for name, request, size in (("A", a, found.sizes[0]), ("B", b, found.sizes[1])):
        before = f", behind {counted(len(request.before))} of its owner" if request.before else ""
        yield name, f"{request.name}, {request.model or 'a file'}, {size:,} bytes{before}"
    if found.byte is None:
        yield "differs", "nowhere: both are the same, byte for byte"
        return
    yield "differs", f"at byte {found.byte:,}, in {found.path}"
    yield "A has", found.a or "(nothing)"
    yield "B has", found.b or "(nothing)"


def _cache(found: Parted) -> Iterator[Line]:
    yield "alike", f"{found.prefix} tokens at the beginning of what both models were shown"
    yield "expected", f"at most {found.expected:,} of them cached"
    said = "nothing was reported"
    if found.reported:
        said = f"{found.reported.cached:,} cached of {found.reported.input:,} input tokens of B"
    yield "reported", said

"""Views of a comparison: two histories side by side, or two requests.

The first difference is printed first, because the prompt cache can reuse nothing after it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from convo.history.items import Item, item_preview
from convo.inspect.diff import DiffPair, HistoryDiff, RequestDiff, SentRequest
from convo.terminal.inspect_view import format_item_label
from convo.terminal.terminal import (
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    format_count,
    key_value_lines,
    pad_text,
    truncate_text,
)

DEFAULT_SIDE_COLUMNS = 60
"""Columns of each side where the output is no terminal."""

DIFF_MARKS = {"same": " ", "changed": "|", "only a": "<", "only b": ">"}
DIFF_STYLES = {"changed": "bold", "only a": "bad", "only b": "good"}

MAX_EQUAL_ITEMS_SHOWN = 3
"""Consecutive equal items after the first difference that are listed; a longer group is replaced by its count."""


class DiffSide(NamedTuple):
    """One history of a comparison: its name, the owner of its state, and its items."""

    name: str
    owner: str
    items: Sequence[Item]


def render_history_diff(a: DiffSide, b: DiffSide, found: HistoryDiff, medium: DisplayOptions) -> str:
    """Render both histories, their first difference, and everything after it side by side."""
    head = [("A", _format_side(a)), ("B", _format_side(b)), ("", _describe_difference(a, b, found))]
    shown = [*key_value_lines(head, medium), *([] if found.alike else ["", *_side_by_side_lines(found, medium)])]
    if not found.alike:
        shown += ["", "  " + ", ".join(_diff_counts(found))]
    return medium.drawn("\n".join(shown))


def render_request_diff(a: SentRequest, b: SentRequest, found: RequestDiff, medium: DisplayOptions) -> str:
    """Render the first byte that differs, and how much of the common prefix was cached."""
    return medium.drawn("\n".join(key_value_lines([*_request_rows(a, b, found), *_cache_rows(found)], medium)))


def _format_side(side: DiffSide) -> str:
    return f"{side.name}, {format_count(len(side.items))}, {side.owner}"


def _describe_difference(a: DiffSide, b: DiffSide, found: HistoryDiff) -> str:
    if found.alike:
        return f"both say the same: {format_count(found.same)}"
    alike = f"{format_count(found.same)} the same" if found.same else "nothing at the beginning is the same"
    if found.path:
        return f"{alike}; item {found.same + 1} differs in {found.path}"
    if found.same < min(len(a.items), len(b.items)):
        return f"{alike}; item {found.same + 1} is another one"
    longer = "B" if len(b.items) > len(a.items) else "A"
    return f"{alike}; {longer} goes on from there"


def _diff_counts(found: HistoryDiff) -> Iterator[str]:
    yield f"only in A {found.many('only a'):,}"
    yield f"only in B {found.many('only b'):,}"
    yield f"different {found.many('changed'):,}"
    yield f"the same again {found.many('same'):,}"


def _side_by_side_lines(found: HistoryDiff, medium: DisplayOptions) -> Iterator[str]:
    room = DEFAULT_SIDE_COLUMNS if medium.width is None else max(16, (medium.width - 5) // 2)
    yield medium.paint(f"  {pad_text('A', room)}   {'B'}", "dim")
    for run in _group_by_status(found.rest):
        if len(run) > MAX_EQUAL_ITEMS_SHOWN and run[0].mark == "same":
            yield medium.paint(f"  {format_count(len(run))} the same", "dim")
            continue
        for pair in run:
            yield _format_pair(pair, found, room, medium)


def _group_by_status(rest: Sequence[DiffPair]) -> Iterator[list[DiffPair]]:
    """Group consecutive pairs with the same mark."""
    run: list[DiffPair] = []
    for pair in rest:
        if run and run[-1].mark != pair.mark:
            yield run
            run = []
        run.append(pair)
    if run:
        yield run


def _format_pair(pair: DiffPair, found: HistoryDiff, room: int, medium: DisplayOptions) -> str:
    left, right = _format_item(pair.a, found.a, room), _format_item(pair.b, found.b, room)
    words = f"  {pad_text(left, room)} {DIFF_MARKS[pair.mark]} {right}".rstrip()
    return medium.paint(words, DIFF_STYLES[pair.mark]) if pair.mark in DIFF_STYLES else words


def _format_item(at: int | None, items: Sequence[Item], room: int) -> str:
    if at is None:
        return ""
    begins = f"{at + 1:>4}  {format_item_label(items[at])}: "
    return truncate_text(begins + escape_control_chars(item_preview(items[at], max(8, room - len(begins)))), room)


def _request_rows(a: SentRequest, b: SentRequest, found: RequestDiff) -> Iterator[KeyValue]:
    for name, request, size in (("A", a, found.sizes[0]), ("B", b, found.sizes[1])):
        before = f", behind {format_count(len(request.before))} of its owner" if request.before else ""
        yield name, f"{request.name}, {request.model or 'a file'}, {size:,} bytes{before}"
    if found.byte is None:
        yield "differs", "nowhere: both are the same, byte for byte"
        return
    yield "differs", f"at byte {found.byte:,}, in {found.path}"
    yield "A has", found.a or "(nothing)"
    yield "B has", found.b or "(nothing)"


def _cache_rows(found: RequestDiff) -> Iterator[KeyValue]:
    yield "alike", f"{found.prefix} tokens at the beginning of what both models were shown"
    yield "expected", f"at most {found.expected:,} of them cached"
    said = "nothing was reported"
    if found.reported:
        said = f"{found.reported.cached:,} cached of {found.reported.input:,} input tokens of B"
    yield "reported", said

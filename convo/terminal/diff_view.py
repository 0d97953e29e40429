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
    render_key_values,
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


def render_history_diff(a: DiffSide, b: DiffSide, diff: HistoryDiff, display: DisplayOptions) -> str:
    """Render both histories, their first difference, and everything after it side by side."""
    head = [("A", _format_side(a)), ("B", _format_side(b)), ("", _describe_difference(a, b, diff))]
    lines = [*key_value_lines(head, display), *([] if diff.is_equal else ["", *_side_by_side_lines(diff, display)])]
    if not diff.is_equal:
        lines += ["", "  " + ", ".join(_diff_counts(diff))]
    return display.translate_box_chars("\n".join(lines))


def render_request_diff(a: SentRequest, b: SentRequest, diff: RequestDiff, display: DisplayOptions) -> str:
    """Render the first byte that differs, and how much of the common prefix was cached."""
    return render_key_values([*_request_rows(a, b, diff), *_cache_rows(diff)], display)


def _format_side(side: DiffSide) -> str:
    return f"{side.name}, {format_count(len(side.items))}, {side.owner}"


def _describe_difference(a: DiffSide, b: DiffSide, diff: HistoryDiff) -> str:
    if diff.is_equal:
        return f"identical: {format_count(diff.common_count)}"
    prefix = f"common prefix: {format_count(diff.common_count)}" if diff.common_count else "no common prefix"
    if diff.path:
        return f"{prefix}; item {diff.common_count + 1} differs in {diff.path}"
    if diff.common_count < min(len(a.items), len(b.items)):
        return f"{prefix}; item {diff.common_count + 1} differs"
    longer = "B" if len(b.items) > len(a.items) else "A"
    return f"{prefix}; {longer} has more items"


def _diff_counts(diff: HistoryDiff) -> Iterator[str]:
    yield f"{diff.count_pairs('only a'):,} only in A"
    yield f"{diff.count_pairs('only b'):,} only in B"
    yield f"{diff.count_pairs('changed'):,} changed"
    yield f"{diff.count_pairs('same'):,} identical after the first difference"


def _side_by_side_lines(diff: HistoryDiff, display: DisplayOptions) -> Iterator[str]:
    columns = DEFAULT_SIDE_COLUMNS if display.width is None else max(16, (display.width - 5) // 2)
    yield display.apply_style(f"  {pad_text('A', columns)}   {'B'}", "dim")
    for group in _group_by_status(diff.pairs):
        if len(group) > MAX_EQUAL_ITEMS_SHOWN and group[0].status == "same":
            yield display.apply_style(f"  {format_count(len(group))} identical", "dim")
            continue
        for pair in group:
            yield _format_pair(pair, diff, columns, display)


def _group_by_status(pairs: Sequence[DiffPair]) -> Iterator[list[DiffPair]]:
    """Group consecutive pairs with the same status."""
    group: list[DiffPair] = []
    for pair in pairs:
        if group and group[-1].status != pair.status:
            yield group
            group = []
        group.append(pair)
    if group:
        yield group


def _format_pair(pair: DiffPair, diff: HistoryDiff, columns: int, display: DisplayOptions) -> str:
    left, right = _format_item(pair.a, diff.a, columns), _format_item(pair.b, diff.b, columns)
    line = f"  {pad_text(left, columns)} {DIFF_MARKS[pair.status]} {right}".rstrip()
    return display.apply_style(line, DIFF_STYLES[pair.status]) if pair.status in DIFF_STYLES else line


def _format_item(index: int | None, items: Sequence[Item], columns: int) -> str:
    if index is None:
        return ""
    label = f"{index + 1:>4}  {format_item_label(items[index])}: "
    return truncate_text(
        label + escape_control_chars(item_preview(items[index], max(8, columns - len(label)))), columns
    )


def _request_rows(a: SentRequest, b: SentRequest, diff: RequestDiff) -> Iterator[KeyValue]:
    for name, request, size in (("A", a, diff.sizes_bytes[0]), ("B", b, diff.sizes_bytes[1])):
        prepended = (
            f", {format_count(len(request.prepended_items))} prepended by the server" if request.prepended_items else ""
        )
        yield name, f"{request.name}, {request.model or 'a file'}, {size:,} bytes{prepended}"
    if diff.byte_offset is None:
        yield "difference", "none, the requests are byte-identical"
        return
    yield "difference", f"at byte {diff.byte_offset:,}, in {diff.path}"
    yield "A has", diff.a or "(nothing)"
    yield "B has", diff.b or "(nothing)"


def _cache_rows(diff: RequestDiff) -> Iterator[KeyValue]:
    yield "prefix", f"{diff.common_prefix} tokens at the start of both inputs are the same"
    yield "expected", f"at most {diff.expected_cached_tokens:,} of them cached"
    reported = "not reported"
    if diff.reported_usage:
        reported = (
            f"{diff.reported_usage.cached_tokens:,} cached of {diff.reported_usage.input_tokens:,} input tokens of B"
        )
    yield "reported", reported

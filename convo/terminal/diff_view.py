"""Views of a comparison: two histories, or two requests.

The first difference is printed first, because the prompt cache can reuse nothing after it. A terminal shows a unified
diff of two histories; a pipe gets both side by side, in a form that programs may rely on.
"""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import NamedTuple

from convo.history.canonical import normalize_item
from convo.history.items import (
    Item,
    decode_json_escapes,
    is_client_call,
    item_preview,
    item_type,
    searchable_text,
)
from convo.inspect.diff import DiffPair, HistoryDiff, RequestDiff, SentRequest, common_text_length
from convo.terminal.inspect_view import format_item_label
from convo.terminal.terminal import (
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    format_count,
    key_value_lines,
    pad_text,
    render_key_values,
    text_width,
    truncate_text,
    wrap_line,
)

DEFAULT_SIDE_COLUMNS = 60
"""Columns of each side."""

DIFF_MARKS = {"same": " ", "changed": "|", "only a": "<", "only b": ">"}

MAX_EQUAL_ITEMS_SHOWN = 3
"""Consecutive equal items after the first difference that are listed; a longer group is replaced by its count."""


MARK_STYLES = {"-": "bad", "+": "good"}
"""Style of an item, by its mark in a unified diff."""

MAX_ITEM_LINES = 8
"""Lines of an item in a unified diff; a longer text is cut, around the first difference of two changed items."""

MAX_CONTEXT_LINES = 3
"""Lines of an equal item in a unified diff."""

CHANGE_START, CHANGE_END = "\ufff9", "\ufffb"
"""Marks around the changed words of a text. They take no column, and an escaped text cannot contain them."""

CHANGE_MARK = re.compile(f"([{CHANGE_START}{CHANGE_END}])")
DIFF_WORD = re.compile(r"\w+|\s+|[^\w\s]")

MAX_COMPARED_CHARS = 1_000
"""Characters of each changed text, from the first shown one, whose words are compared."""

MIN_WORD_SIMILARITY = 0.5
"""Minimum similarity, 0 to 1, of two texts whose changed words are marked."""

MAX_LABEL_COLUMNS = 40
TAB_COLUMNS = 4


class DiffSide(NamedTuple):
    """One history of a comparison: its name, the owner of its state, and its items."""

    name: str
    owner: str
    items: Sequence[Item]


def render_history_diff(a: DiffSide, b: DiffSide, diff: HistoryDiff, display: DisplayOptions) -> str:
    """Render both histories, their first difference, and everything after it."""
    lines = _table_lines(a, b, diff, display) if display.width is None else _unified_lines(a, b, diff, display)
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


def _table_lines(a: DiffSide, b: DiffSide, diff: HistoryDiff, display: DisplayOptions) -> Iterator[str]:
    """Yield the lines of both histories side by side, for a pipe."""
    yield from key_value_lines(
        [("A", _format_side(a)), ("B", _format_side(b)), ("", _describe_difference(a, b, diff))], display
    )
    if diff.is_equal:
        return
    yield from ("", f"  {pad_text('A', DEFAULT_SIDE_COLUMNS)}   B")
    for group in _group_by_status(diff.pairs):
        if len(group) > MAX_EQUAL_ITEMS_SHOWN and group[0].status == "same":
            yield f"  {format_count(len(group))} identical"
            continue
        for pair in group:
            yield _format_pair(pair, diff, DEFAULT_SIDE_COLUMNS)
    yield from ("", "  " + ", ".join(_diff_counts(diff)))


def _unified_lines(a: DiffSide, b: DiffSide, diff: HistoryDiff, display: DisplayOptions) -> Iterator[str]:
    """Yield the lines of a unified diff, for a terminal."""
    columns = display.width or 1
    for mark, name, side in (("-", "A", a), ("+", "B", b)):
        head = f"{mark * 3} {side.name} ({name}): {format_count(len(side.items))}, {side.owner}"
        for line in wrap_line(escape_control_chars(head), columns, splits_words=True):
            yield display.apply_style(line, MARK_STYLES[mark])
    description = _describe_difference(a, b, diff)
    if diff.is_equal:
        yield from wrap_line(f"  {description}", columns, splits_words=True)
        return
    for line in wrap_line(f"@@ {description} @@", columns, splits_words=True):
        yield display.apply_style(line, "id")
    yield ""
    groups = [*_group_by_status(diff.pairs)]
    if diff.common_count:
        yield from _equal_lines([DiffPair(diff.common_count - 1, diff.common_count - 1, "same")], diff, display)
    for group in groups:
        if group[0].status == "same":
            yield from _equal_lines(group, diff, display, is_last=group is groups[-1])
            continue
        for pair in group:
            yield from _pair_lines(pair, diff, display)
    yield ""
    yield from _count_lines(diff, display)


COUNT_STYLES = ("bad", "good", "warn", "dim")
"""Style of each of the counts below a unified diff."""


def _count_lines(diff: HistoryDiff, display: DisplayOptions) -> Iterator[str]:
    """Yield the counts above zero; a line ends after one of them, unless a count is wider than the terminal."""
    columns = (display.width or 1) - 1
    parts: list[str] = []
    length = 0
    for text, style in zip(_diff_counts(diff), COUNT_STYLES, strict=True):
        if text.startswith("0 "):
            continue
        if parts and length + 2 + len(text) > columns:
            yield ", ".join(parts) + ","
            parts, length = [], 0
        *lines, last = wrap_line(text, columns) if len(text) > columns else [text]
        yield from (display.apply_style(line, style) for line in lines)
        parts.append(display.apply_style(last, style))
        length += len(last) + 2
    yield ", ".join(parts)


def _equal_lines(
    group: Sequence[DiffPair], diff: HistoryDiff, display: DisplayOptions, *, is_last: bool = False
) -> Iterator[str]:
    """Yield the number of equal items, and the last of them where a difference follows."""
    if len(group) > 1:
        count = f"  {len(group):,} identical items" + ("" if is_last else "; the last one:")
        yield display.apply_style(truncate_text(count, display.width or 1), "dim")
    index = group[-1].a
    if index is not None and not (is_last and len(group) > 1):
        item = diff.a[index]
        yield from _item_lines(" ", index, item, _item_diff_text(item), display, MAX_CONTEXT_LINES)


def _pair_lines(pair: DiffPair, diff: HistoryDiff, display: DisplayOptions) -> Iterator[str]:
    """Yield the lines of two changed items, or of an item that only one history has."""
    sides = [
        (mark, index, items[index])
        for mark, index, items in (("-", pair.a, diff.a), ("+", pair.b, diff.b))
        if index is not None
    ]
    texts, starts = [_item_diff_text(item) for _, _, item in sides], [0] * len(sides)
    if len(sides) == 2 and _item_short_label(sides[0][2]) == _item_short_label(sides[1][2]):
        if texts[0].split() == texts[1].split():  # another field differs, or only blanks
            values = [json.dumps(normalize_item(item), sort_keys=True) for _, _, item in sides]
            texts = [escape_control_chars(decode_json_escapes(value)) for value in values]
        common_length, columns = common_text_length(texts[0], texts[1]), (display.width or 1)
        starts = [_find_shown_start(text, common_length, columns) for text in texts]
        texts = _mark_changed_words(texts, min(starts)) if display.has_color else texts
    for (mark, index, item), text, start in zip(sides, texts, starts, strict=True):
        yield from _item_lines(mark, index, item, text, display, MAX_ITEM_LINES, start)


def _item_lines(
    mark: str, index: int, item: Item, text: str, display: DisplayOptions, max_lines: int, start: int = 0
) -> Iterator[str]:
    """Yield an item of a unified diff with the mark before each line; the end of a long text is cut.

    start:  the first character that is shown
    """
    columns = max(1, (display.width or 1) - 2)
    head = f"{index + 1} {_item_short_label(item)}: "
    shown = f"… {text[start:]}" if start else text
    lines = [*islice(_wrap_item_text(head, shown, columns), max_lines + 1)]
    if len(lines) > max_lines or len(shown) > _max_wrapped_chars(columns):
        lines[max_lines - 1 :] = [truncate_text(f"  … {len(text):,} characters in all", columns)]
    is_changed = False
    for line in lines:
        pieces = CHANGE_MARK.split(f"{mark} {line}".rstrip())
        styled = ""
        for piece in pieces:
            if piece in (CHANGE_START, CHANGE_END):
                is_changed = piece == CHANGE_START
            elif piece:
                shown = f"\x1b[7m{piece}" if is_changed else piece
                styled += display.apply_style(shown, MARK_STYLES[mark]) if mark in MARK_STYLES else shown
        yield styled


def _wrap_item_text(head: str, text: str, columns: int) -> Iterator[str]:
    """Wrap the text of an item to `columns`, with an indent in all lines except the first."""
    shown = text[: _max_wrapped_chars(columns)].replace("\t", " " * TAB_COLUMNS)
    for number, line in enumerate(shown.split("\n")):
        body = line.lstrip(" ")
        indent = 2 + min(len(line) - len(body), columns // 4)
        full_line = f"{head}{body}" if number == 0 else " " * indent + body
        if text_width(full_line) <= columns:
            yield full_line
        else:
            yield from wrap_line(full_line, columns, splits_words=True)


def _max_wrapped_chars(columns: int) -> int:
    """Return how many characters of an item are wrapped: more than fit, also where some take no column."""
    return 4 * columns * MAX_ITEM_LINES


def _find_shown_start(text: str, common_length: int, columns: int) -> int:
    """Return where a text that begins as another one is shown from, so that the first lines have the difference."""
    common = text[: min(common_length, columns * MAX_ITEM_LINES)]
    if len([*islice(_wrap_item_text("", common, columns), MAX_ITEM_LINES)]) < MAX_ITEM_LINES // 2:
        return 0
    start = max(0, common_length - columns)
    return max(start, text.find(" ", start, common_length) + 1)


def _mark_changed_words(texts: Sequence[str], start: int) -> list[str]:
    """Put marks around the words that differ in two texts, from `start` on, if the texts are similar."""
    words_by_side = [DIFF_WORD.findall(text[start : start + MAX_COMPARED_CHARS]) for text in texts]
    matcher = SequenceMatcher(None, words_by_side[0], words_by_side[1], autojunk=False)
    if matcher.ratio() < MIN_WORD_SIMILARITY:
        return [*texts]
    marked = [text[:start] for text in texts]
    for tag, *ranges in matcher.get_opcodes():
        for side, (first, last) in enumerate((ranges[:2], ranges[2:])):
            words = "".join(words_by_side[side][first:last])
            marked[side] += words if tag == "equal" or not words else f"{CHANGE_START}{words}{CHANGE_END}"
    return [text + rest[start + MAX_COMPARED_CHARS :] for text, rest in zip(marked, texts, strict=True)]


def _item_diff_text(item: Item) -> str:
    """Return the complete text of an item, escaped: of a call its name and arguments, without text its JSON."""
    text = searchable_text(item)
    if is_client_call(item):
        text = decode_json_escapes(text).replace("\n", " ", 1)
    return escape_control_chars(text or decode_json_escapes(json.dumps(item)))


def _item_short_label(item: Item) -> str:
    """Return the role of a message, the type of another item."""
    return truncate_text(escape_control_chars(str(item.get("role") or item_type(item))), MAX_LABEL_COLUMNS)


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


def _format_pair(pair: DiffPair, diff: HistoryDiff, columns: int) -> str:
    left, right = _format_item(pair.a, diff.a, columns), _format_item(pair.b, diff.b, columns)
    return f"  {pad_text(left, columns)} {DIFF_MARKS[pair.status]} {right}".rstrip()


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

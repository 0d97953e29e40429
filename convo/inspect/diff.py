"""Diffs: two histories, two requests, two JSON values.

Histories are compared by digest and aligned again after the first difference. Requests are compared byte by byte in
canonical order, because a provider's prompt cache needs an identical prefix.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, AnyStr, Literal, NamedTuple

from convo.history.canonical import digest, normalize_item
from convo.history.items import Item, Json, searchable_text
from convo.history.request_body import SentBody
from convo.history.tree import first_difference
from convo.report import Count, Wire
from convo.usage.cache_rules import find_cache_rules
from convo.usage.cost import Usage
from convo.usage.counting import TOKENIZER_ENCODING, TokenCount, count_tokens
from convo.usage.model_info import find_model_window

DiffStatus = Literal["same", "changed", "only a", "only b"]


class DiffPair(NamedTuple):
    """One row: the indexes of an item in both histories; null if a history has no such item."""

    a: int | None
    b: int | None
    status: Annotated[DiffStatus, Wire("mark")]


class JsonDifference(NamedTuple):
    """The first difference of two JSON values.

    path:         "content[0].text"; "" for the whole value
    byte_offset:  in the value at the path, as its text or its JSON
    a, b:         an excerpt of each side at the difference
    """

    path: str
    byte_offset: Annotated[Count, Wire("byte")]
    a: str
    b: str


def diff_json(first: Json, second: Json) -> JsonDifference | None:
    """Return the first difference of two values; None if they are equal."""
    path = _first_difference_path(first, second)
    if path is None:
        return None
    a, b = (_text_or_json(_value_at_path(value, path)).encode("utf-8", "replace") for value in (first, second))
    excerpts = _excerpt(first, second, path), _excerpt(second, first, path)
    return JsonDifference(_format_json_path(path), common_text_length(a, b), *excerpts)


class HistoryDiff(NamedTuple):
    """The comparison of two histories.

    common_count:  number of equal items at the start
    path:          JSON path of the first difference within an item: "content[0].text"; "" if one history has ended
    pairs:         everything after `common_count`
    """

    a: Sequence[Item]
    b: Sequence[Item]
    common_count: int
    path: str
    pairs: tuple[DiffPair, ...]

    @property
    def is_equal(self) -> bool:
        return not self.pairs

    def count_pairs(self, status: DiffStatus) -> int:
        """Count the pairs with one status."""
        return sum(pair.status == status for pair in self.pairs)


def diff_histories(a: Sequence[Item], b: Sequence[Item]) -> HistoryDiff:
    """Compare two histories, oldest items first."""
    difference = first_difference(a, b)
    if difference is None:
        return HistoryDiff(a, b, len(a), "", ())
    item_a, item_b = difference.a, difference.b
    path = (
        ""
        if item_a is None or item_b is None
        else _format_json_path(_first_difference_path(normalize_item(item_a), normalize_item(item_b)) or ())
    )
    return HistoryDiff(a, b, difference.shared_count, path, tuple(_diff_pairs(a, b, difference.shared_count)))


class FirstDifference(NamedTuple):
    """The first items that differ.

    item_index:  position of the items
    path:        path of the difference in the item
    """

    item_index: Annotated[Count, Wire("at")]
    path: str | None
    a: Item | None
    b: Item | None


class HistoryDiffReport(NamedTuple):
    """The differences of two histories.

    common_count:  number of equal items at the beginning
    """

    common_count: Annotated[Count, Wire("same")]
    first: FirstDifference | None
    pairs: Annotated[Sequence[DiffPair], Wire("rest")]


def build_history_diff_report(diff: HistoryDiff) -> HistoryDiffReport:
    index, a, b = diff.common_count, diff.a, diff.b
    first_items = a[index] if index < len(a) else None, b[index] if index < len(b) else None
    first = None if diff.is_equal else FirstDifference(index, diff.path or None, *first_items)
    return HistoryDiffReport(index, first, diff.pairs)


def _diff_pairs(a: Sequence[Item], b: Sequence[Item], start: int) -> Iterator[DiffPair]:
    if start in (len(a), len(b)):  # one history has ended: nothing to align
        yield from (DiffPair(index, None, "only a") for index in range(start, len(a)))
        yield from (DiffPair(None, index, "only b") for index in range(start, len(b)))
        return
    digests_a, digests_b = [digest(item) for item in a[start:]], [digest(item) for item in b[start:]]
    for tag, start_a, end_a, start_b, end_b in SequenceMatcher(None, digests_a, digests_b).get_opcodes():
        paired = min(end_a - start_a, end_b - start_b)
        status: DiffStatus = "same" if tag == "equal" else "changed"
        yield from (DiffPair(start + start_a + index, start + start_b + index, status) for index in range(paired))
        yield from (DiffPair(start + index, None, "only a") for index in range(start_a + paired, end_a))
        yield from (DiffPair(None, start + index, "only b") for index in range(start_b + paired, end_b))


KeyOrder = Callable[[Iterable[str]], Sequence[str]]


class Missing:
    """A placeholder for a value that one side lacks."""


MISSING = Missing()


def _sorted_json_text(value: Json) -> str:
    """Return the canonical text of a value: sorted keys, no spaces, characters unescaped."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _first_difference_path(first: Json, second: Json, order: KeyOrder = sorted) -> tuple[str | int, ...] | None:
    """Return the keys and indexes that lead to the first difference; None if there is none.

    order:  sorts the keys of the outermost objects; deeper keys are sorted by name
    """
    if isinstance(first, dict) and isinstance(second, dict):
        return _first_difference_below(order({*first, *second}), first.get, second.get)
    if isinstance(first, list) and isinstance(second, list):
        indexes = range(max(len(first), len(second)))
        return _first_difference_below(indexes, _index_getter(first), _index_getter(second))
    return None if _is_same_scalar(first, second) else ()


def common_text_length(first: AnyStr, second: AnyStr) -> int:
    """Return the length of the common prefix, in characters or bytes."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _format_json_path(path: Iterable[str | int]) -> str:
    """Format a path for people and for `jq`: input[3].content[0].text"""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _value_at_path(value: Json, path: Iterable[str | int]) -> Json | Missing:
    """Return the value at `path`; `MISSING` if there is none."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return value


def _first_difference_below(
    steps: Iterable[str | int], get_first: Callable[..., Json], get_second: Callable[..., Json]
) -> tuple[str | int, ...] | None:
    for step in steps:
        first, second = get_first(step, MISSING), get_second(step, MISSING)
        if first is second:
            continue
        path = _first_difference_path(first, second)
        if path is not None:
            return (step, *path)
    return None


def _index_getter(values: Sequence[Json]) -> Callable[[int, Missing], Json]:
    return lambda index, default: values[index] if index < len(values) else default


def _is_same_scalar(first: Json, second: Json) -> bool:
    """Whether two values that are not both objects or both lists have the same text: 1 is not 1.0, nor true."""
    return type(first) is type(second) and first == second


PROMPT_FIELD_ORDER = (
    *("model", "tools", "functions", "text", "response_format", "instructions", "system"),
    *("conversation", "previous_response_id", "input", "messages"),
)
"""The fields of a request in the order in which a model receives them; other fields follow by name."""

EXCERPT_CONTEXT_CHARS = 24
"""Characters shown on each side of a difference."""


@dataclass(frozen=True)
class SentRequest:
    """One request.

    name:             `resp_...`, or the file that holds it
    model:            "provider/model"; the provider is "" if unknown
    body:             the request as it was sent
    prepended_items:  the items that its owner prepended to its input
    usage:            as the endpoint reported it
    translation:      a note, if it was recorded in the form of another API than the Responses API
    sent:             the body as its client sent it, of a recorded request
    """

    name: str
    model: str
    body: Mapping[str, Json]
    prepended_items: Sequence[Item] = ()
    usage: Usage | None = None
    translation: str | None = None
    sent: SentBody | None = None

    @property
    def input_items(self) -> list[Item]:
        """Every item that the model received; entries of `input` that are not objects are left out."""
        input_value = self.body.get("input")
        if isinstance(input_value, str):
            return [*self.prepended_items, {"role": "user", "content": input_value}]
        return [
            *self.prepended_items,
            *(item for item in (input_value if isinstance(input_value, list) else ()) if isinstance(item, dict)),
        ]


class RequestDiff(NamedTuple):
    """The first difference of two requests, and its effect on the prompt cache.

    byte_offset:             of the first difference in their canonical texts; None if they are equal
    path:                    JSON path of the difference: "input[3].content[0].text"
    a, b:                    an excerpt of each side at the difference
    sizes_bytes:             of both texts
    common_prefix:           tokens that both models received before the first difference
    expected_cached_tokens:  tokens of the prefix that the provider may have cached
    reported_usage:          cached and input tokens as the provider reported them; None if it did not
    """

    byte_offset: int | None
    path: str
    a: str
    b: str
    sizes_bytes: tuple[int, int]
    common_prefix: TokenCount
    expected_cached_tokens: int
    reported_usage: Usage | None


def sort_request_fields(names: Iterable[str]) -> list[str]:
    """Sort the fields of a request in the order of its canonical text."""
    positions = {name: position for position, name in enumerate(PROMPT_FIELD_ORDER)}
    return sorted(names, key=lambda name: (positions.get(name, len(positions)), name))


def _canonical_request_bytes(body: Mapping[str, Json]) -> bytes:
    """Serialize a request canonically: compact UTF-8, with an order of fields that does not depend on its source."""
    fields = (f"{_sorted_json_text(name)}:{_sorted_json_text(body[name])}" for name in sort_request_fields(body))
    return ("{" + ",".join(fields) + "}").encode("utf-8", "surrogatepass")


def choose_compared_bodies(first: SentRequest, second: SentRequest) -> tuple[Mapping[str, Json], Mapping[str, Json]]:
    """Return the bodies as their clients sent them if both were recorded in one protocol, else the rebuilt ones."""
    if first.sent and second.sent and first.sent.protocol == second.sent.protocol:
        return first.sent.body, second.sent.body
    return first.body, second.body


def diff_requests(first: SentRequest, second: SentRequest) -> RequestDiff:
    """Compare two requests. `second` is the later one, whose prefix may have been cached."""
    first_body, second_body = choose_compared_bodies(first, second)
    first_bytes, second_bytes = _canonical_request_bytes(first_body), _canonical_request_bytes(second_body)
    path = _first_difference_path(dict(first_body), dict(second_body), sort_request_fields)
    prefix = _count_common_prefix_tokens(first, second)
    return RequestDiff(
        byte_offset=None if path is None else common_text_length(first_bytes, second_bytes),
        path="" if path is None else _format_json_path(path),
        a="" if path is None else _excerpt(first_body, second_body, path),
        b="" if path is None else _excerpt(second_body, first_body, path),
        sizes_bytes=(len(first_bytes), len(second_bytes)),
        common_prefix=prefix,
        expected_cached_tokens=_max_cached_tokens(prefix.tokens, second.model),
        reported_usage=second.usage,
    )


def _count_common_prefix_tokens(first: SentRequest, second: SentRequest) -> TokenCount:
    """Count the tokens at the start that both models received."""
    if first.model != second.model:
        return TokenCount(0, is_estimate=False)
    window = find_model_window(second.model)
    tokens, is_estimate = 0, window is None or window.counted != TOKENIZER_ENCODING
    for name in ("tools", "text", "instructions"):
        first_value, second_value = first.body.get(name), second.body.get(name)
        common = _common_text(first_value, second_value)
        count = count_tokens((), common)
        tokens, is_estimate = tokens + count.tokens, is_estimate or count.is_estimate
        if first_value != second_value:
            return TokenCount(tokens, is_estimate)
    input_count = _count_common_items(first.input_items, second.input_items)
    return TokenCount(tokens + input_count.tokens, is_estimate or input_count.is_estimate)


def _max_cached_tokens(prefix: int, model: str) -> int:
    """Return the most tokens of a common prefix that a provider may have cached."""
    rules = find_cache_rules(model, {})
    return 0 if prefix < (rules.min_tokens or 0) else prefix // rules.step_tokens * rules.step_tokens


class RequestDiffReport(NamedTuple):
    """The comparison of two requests.

    byte_offset:    position of the first difference; null if there is none
    sizes_bytes:    size of each request
    prefix_tokens:  tokens of the common prefix
    """

    byte_offset: Annotated[int | None, Wire("byte")]
    path: str | None
    a: Json
    b: Json
    sizes_bytes: Annotated[tuple[int, int], Wire("bytes")]
    prefix_tokens: Count
    estimated: bool
    expected_cached_tokens: Count
    reported_cached_tokens: int | None
    reported_input_tokens: int | None


def build_request_diff_report(diff: RequestDiff) -> RequestDiffReport:
    reported = diff.reported_usage
    return RequestDiffReport(
        diff.byte_offset,
        diff.path or None,
        diff.a,
        diff.b,
        diff.sizes_bytes,
        diff.common_prefix.tokens,
        diff.common_prefix.is_estimate,
        diff.expected_cached_tokens,
        reported.cached_tokens if reported else None,
        reported.input_tokens if reported else None,
    )


def _count_common_items(first: Sequence[Item], second: Sequence[Item]) -> TokenCount:
    length = min(len(first), len(second))
    same_count = next((index for index in range(length) if first[index] != second[index]), length)
    common_text = ""
    if same_count < length and (first[same_count].get("type"), first[same_count].get("role")) == (
        second[same_count].get("type"),
        second[same_count].get("role"),
    ):
        common_text = _common_text(searchable_text(first[same_count]), searchable_text(second[same_count]))
    items_count, text_count = count_tokens(first[:same_count]), count_tokens((), common_text)
    return TokenCount(items_count.tokens + text_count.tokens, items_count.is_estimate or text_count.is_estimate)


def _common_text(first: Json, second: Json) -> str:
    """Return the common prefix of two parts of a prompt, as text."""
    first_text, second_text = _text_or_json(first), _text_or_json(second)
    return first_text[: common_text_length(first_text, second_text)]


def _text_or_json(value: Json | Missing) -> str:
    if value is None or isinstance(value, Missing):
        return ""
    return value if isinstance(value, str) else _sorted_json_text(value)


def _excerpt(value: Json, other: Json, path: tuple[str | int, ...]) -> str:
    """Return a few characters around the first difference between `value` and `other`."""
    text, other_text = _text_or_json(_value_at_path(value, path)), _text_or_json(_value_at_path(other, path))
    start = common_text_length(text, other_text)
    low, high = max(0, start - EXCERPT_CONTEXT_CHARS), start + EXCERPT_CONTEXT_CHARS
    return ("…" if low else "") + text[low:high] + ("…" if high < len(text) else "")


def describe_drift(record_items: Sequence[Item], owner_items: Sequence[Item], owner: str) -> str:
    """Describe the difference between a record of a history and the history itself; "" if there is none.

    record_items:  the confirmed items of the record
    owner_items:   the items that the owner stores
    owner:         its name in the sentence: "the conversation", "the file"
    """
    difference = first_difference(record_items, owner_items)
    if difference is None:
        return ""
    if difference.a is None:
        return f"{owner} has {_format_item_count(len(owner_items) - difference.shared_count)} more than this record"
    if difference.b is None:
        return f"{owner} lacks {_format_item_count(len(record_items) - difference.shared_count)} that this record has"
    return f"{owner} and this record differ from item {difference.shared_count + 1} on"


def _format_item_count(count: int) -> str:
    return f"{count:,} item" + ("" if count == 1 else "s")

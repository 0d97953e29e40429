"""Diffs: two histories, two requests, two JSON values.

Histories are compared by digest and aligned again after the first difference. Requests are compared byte by byte in
canonical order, because a provider's prompt cache needs an identical prefix.
Cache rule: https://github.com/openai/openai-cookbook, examples/Prompt_Caching_201.ipynb, 1.1
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import AnyStr, Literal, NamedTuple

from convo.history.canonical import digest, normalize_item
from convo.history.items import Item, Json, searchable_text
from convo.history.tree import first_difference
from convo.usage.counting import TOKENIZER_ENCODING, TokenCount, Usage, count_tokens
from convo.usage.models import find_model_window

DiffStatus = Literal["same", "changed", "only a", "only b"]


class DiffPair(NamedTuple):
    """One line: the places of an item in both histories, from 0; None where one has nothing there."""

    a: int | None
    b: int | None
    mark: DiffStatus


class HistoryDiff(NamedTuple):
    """Two histories, compared.

    same:   how many items they begin with alike
    path:   where the first two items that differ do so, "content[0].text"; "" where one history has ended
    rest:   everything behind `same`
    """

    a: Sequence[Item]
    b: Sequence[Item]
    same: int
    path: str
    rest: tuple[DiffPair, ...]

    @property
    def alike(self) -> bool:
        return not self.rest

    def many(self, mark: DiffStatus) -> int:
        """How many lines of `rest` are of one kind."""
        return sum(pair.mark == mark for pair in self.rest)


def diff_histories(a: Sequence[Item], b: Sequence[Item]) -> HistoryDiff:
    """Compare two histories, oldest items first."""
    found = first_difference(a, b)
    if found is None:
        return HistoryDiff(a, b, len(a), "", ())
    ours, theirs = found.ours, found.theirs
    path = (
        ""
        if ours is None or theirs is None
        else format_json_path(first_difference_path(normalize_item(ours), normalize_item(theirs)) or ())
    )
    return HistoryDiff(a, b, found.at, path, tuple(_diff_pairs(a, b, found.at)))


def history_diff_to_json(found: HistoryDiff) -> dict[str, Json]:
    """The object that programs get."""
    at, a, b = found.same, found.a, found.b
    first = {
        "at": at,
        "path": found.path or None,
        "a": a[at] if at < len(a) else None,
        "b": b[at] if at < len(b) else None,
    }
    return {
        "same": at,
        "first": None if found.alike else first,
        "rest": [{"a": pair.a, "b": pair.b, "mark": pair.mark} for pair in found.rest],
    }


def _diff_pairs(a: Sequence[Item], b: Sequence[Item], start: int) -> Iterator[DiffPair]:
    if start in (len(a), len(b)):  # nothing to lay beside each other
        yield from (DiffPair(at, None, "only a") for at in range(start, len(a)))
        yield from (DiffPair(None, at, "only b") for at in range(start, len(b)))
        return
    ours, theirs = [digest(item) for item in a[start:]], [digest(item) for item in b[start:]]
    for tag, low, high, begin, end in SequenceMatcher(None, ours, theirs).get_opcodes():
        both = min(high - low, end - begin)
        mark: DiffStatus = "same" if tag == "equal" else "changed"
        yield from (DiffPair(start + low + at, start + begin + at, mark) for at in range(both))
        yield from (DiffPair(start + at, None, "only a") for at in range(low + both, high))
        yield from (DiffPair(None, start + at, "only b") for at in range(begin + both, end))


KeyOrder = Callable[[Iterable[str]], Sequence[str]]


class Missing:
    """Stands where one of the values has nothing."""


MISSING = Missing()


def sorted_json_text(value: Json) -> str:
    """The canonical text of a value: keys sorted, no space, characters as they are."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def first_difference_path(one: Json, other: Json, order: KeyOrder = sorted) -> tuple[str | int, ...] | None:
    """The keys and indices that lead to the first difference; None when there is none.

    order:  in which the keys of the outermost objects stand; deeper ones are sorted
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return _first_difference_below(order({*one, *other}), one.get, other.get)
    if isinstance(one, list) and isinstance(other, list):
        longer = range(max(len(one), len(other)))
        return _first_difference_below(longer, _index_getter(one), _index_getter(other))
    return None if _is_same_scalar(one, other) else ()


def common_prefix_size(one: AnyStr, other: AnyStr) -> int:
    """How many characters, or bytes, two texts begin with alike."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def format_json_path(path: Iterable[str | int]) -> str:
    """A path for people and for `jq`: input[3].content[0].text"""
    said = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return said.removeprefix(".")


def value_at_path(value: Json, path: Iterable[str | int]) -> Json | Missing:
    """What stands at the end of `path`; `MISSING` where it leads nowhere."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return value


def _first_difference_below(
    steps: Iterable[str | int], one: Callable[..., Json], other: Callable[..., Json]
) -> tuple[str | int, ...] | None:
    for step in steps:
        ours, theirs = one(step, MISSING), other(step, MISSING)
        if ours is theirs:
            continue
        below = first_difference_path(ours, theirs)
        if below is not None:
            return (step, *below)
    return None


def _index_getter(values: Sequence[Json]) -> Callable[[int, Missing], Json]:
    return lambda at, none: values[at] if at < len(values) else none


def _is_same_scalar(one: Json, other: Json) -> bool:
    """Whether two values that are not both objects or both lists have the same text: 1 is not 1.0, nor true."""
    return type(one) is type(other) and one == other


PROMPT_FIELD_ORDER = ("model", "tools", "text", "instructions", "conversation", "previous_response_id", "input")
"""The fields of a request in the order in which a model is shown them; the others follow by name."""

MIN_CACHED_TOKENS, CACHE_STEP_TOKENS = 1024, 128
"""OpenAI keeps beginnings of so many tokens or more, in steps of so many, for its models before
`OTHER_CACHE_RULE_MODELS`.
source: https://github.com/openai/openai-cookbook, examples/Prompt_Caching_201.ipynb, 1.1"""

OTHER_CACHE_RULE_MODELS = ("openai/gpt-5.6", "openai/gpt-6")
"""How the names of models begin that keep beginnings in another way."""

EXCERPT_CONTEXT_CHARS = 24
"""Characters shown at each side of a difference."""


@dataclass(frozen=True)
class SentRequest:
    """One request.

    name:    what it is called: `resp_...`, or the file that holds it
    model:   "provider/model"; the provider is "" where nobody knows it
    body:    as it travelled
    before:  the items that its owner put before its input
    usage:   as the endpoint reported it
    """

    name: str
    model: str
    body: Mapping[str, Json]
    before: Sequence[Item] = ()
    usage: Usage | None = None

    @property
    def shown(self) -> list[Item]:
        """Every item that the model was shown; what is no item is none."""
        said = self.body.get("input")
        if isinstance(said, str):
            return [*self.before, {"role": "user", "content": said}]
        return [*self.before, *(item for item in (said if isinstance(said, list) else ()) if isinstance(item, dict))]


class RequestDiff(NamedTuple):
    """Where two requests part.

    byte:      the first that differs, from 0, in their canonical texts; None when they are the same
    path:      what it belongs to: "input[3].content[0].text"
    a, b:      what stands there, a few characters of it
    sizes:     the bytes of both texts
    prefix:    tokens that both models were shown alike before the first difference
    expected:  how many of them the provider may have kept from the first for the second
    reported:  how many it said it had, of how many input tokens; None where it said nothing
    """

    byte: int | None
    path: str
    a: str
    b: str
    sizes: tuple[int, int]
    prefix: TokenCount
    expected: int
    reported: Usage | None


def sort_request_fields(names: Iterable[str]) -> list[str]:
    """The fields of a request in the order of their canonical text."""
    known = {name: at for at, name in enumerate(PROMPT_FIELD_ORDER)}
    return sorted(names, key=lambda name: (known.get(name, len(known)), name))


def canonical_request_bytes(body: Mapping[str, Json]) -> bytes:
    """The text of a request as it travels: compact UTF-8, and in an order that does not depend on who wrote it."""
    fields = (f"{sorted_json_text(name)}:{sorted_json_text(body[name])}" for name in sort_request_fields(body))
    return ("{" + ",".join(fields) + "}").encode("utf-8", "surrogatepass")


def diff_requests(first: SentRequest, second: SentRequest) -> RequestDiff:
    """Compare two requests; `second` is the later one, whose beginning may have been kept."""
    ours, theirs = canonical_request_bytes(first.body), canonical_request_bytes(second.body)
    path = first_difference_path(dict(first.body), dict(second.body), sort_request_fields)
    prefix = count_common_prefix_tokens(first, second)
    return RequestDiff(
        byte=None if path is None else common_prefix_size(ours, theirs),
        path="" if path is None else format_json_path(path),
        a="" if path is None else _excerpt(first.body, second.body, path),
        b="" if path is None else _excerpt(second.body, first.body, path),
        sizes=(len(ours), len(theirs)),
        prefix=prefix,
        expected=max_cached_tokens(prefix.tokens, first.model, second.model),
        reported=second.usage,
    )


def count_common_prefix_tokens(first: SentRequest, second: SentRequest) -> TokenCount:
    """Tokens at the beginning of what both models were shown that are the same."""
    if first.model != second.model:
        return TokenCount(0, estimated=False)
    window = find_model_window(second.model)
    tokens, estimated = 0, window is None or window.counted != TOKENIZER_ENCODING
    for part in ("tools", "text", "instructions"):
        ours, theirs = first.body.get(part), second.body.get(part)
        shared = _common_text(ours, theirs)
        counted = count_tokens((), shared)
        tokens, estimated = tokens + counted.tokens, estimated or counted.estimated
        if ours != theirs:
            return TokenCount(tokens, estimated)
    found = _count_common_items(first.shown, second.shown)
    return TokenCount(tokens + found.tokens, estimated or found.estimated)


def max_cached_tokens(prefix: int, first_model: str, second_model: str) -> int:
    """How many tokens of a shared beginning a provider may have kept; OpenAI's rule, and others' at most."""
    if first_model != second_model:
        return 0
    if not second_model.startswith("openai/") or second_model.startswith(OTHER_CACHE_RULE_MODELS):
        return prefix
    return prefix // CACHE_STEP_TOKENS * CACHE_STEP_TOKENS if prefix >= MIN_CACHED_TOKENS else 0


def request_diff_to_json(found: RequestDiff) -> dict[str, Json]:
    """The object that programs get."""
    reported = found.reported
    return {
        "byte": found.byte,
        "path": found.path or None,
        "a": found.a,
        "b": found.b,
        "bytes": list(found.sizes),
        "prefix_tokens": found.prefix.tokens,
        "estimated": found.prefix.estimated,
        "expected_cached_tokens": found.expected,
        "reported_cached_tokens": reported.cached if reported else None,
        "reported_input_tokens": reported.input if reported else None,
    }


def _count_common_items(ours: Sequence[Item], theirs: Sequence[Item]) -> TokenCount:
    least = min(len(ours), len(theirs))
    same = next((at for at in range(least) if ours[at] != theirs[at]), least)
    begun = ""
    if same < least and (ours[same].get("type"), ours[same].get("role")) == (
        theirs[same].get("type"),
        theirs[same].get("role"),
    ):
        begun = _common_text(searchable_text(ours[same]), searchable_text(theirs[same]))
    whole, counted = count_tokens(ours[:same]), count_tokens((), begun)
    return TokenCount(whole.tokens + counted.tokens, whole.estimated or counted.estimated)


def _common_text(ours: Json, theirs: Json) -> str:
    """What two parts of a prompt begin with alike, as text."""
    one, other = _text_or_json(ours), _text_or_json(theirs)
    return one[: common_prefix_size(one, other)]


def _text_or_json(value: Json | Missing) -> str:
    if value is None or isinstance(value, Missing):
        return ""
    return value if isinstance(value, str) else sorted_json_text(value)


def _excerpt(value: Mapping[str, Json], other: Mapping[str, Json], path: tuple[str | int, ...]) -> str:
    """A few characters around the place where `value` differs from `other`."""
    words, beside = _text_or_json(value_at_path(value, path)), _text_or_json(value_at_path(other, path))
    start = common_prefix_size(words, beside)
    low, high = max(0, start - EXCERPT_CONTEXT_CHARS), start + EXCERPT_CONTEXT_CHARS
    return ("…" if low else "") + words[low:high] + ("…" if high < len(words) else "")


def describe_drift(ours: Sequence[Item], theirs: Sequence[Item], owner: str) -> str:
    """What differs between a record of a history and the history itself; "" when nothing does.

    ours:    what the record says was confirmed
    theirs:  what the owner has
    owner:   its name in the sentence: "the conversation", "the file"
    """
    found = first_difference(ours, theirs)
    if found is None:
        return ""
    if found.ours is None:
        return f"{owner} holds {_format_item_count(len(theirs) - found.at)} more than this record"
    if found.theirs is None:
        return f"{owner} lacks {_format_item_count(len(ours) - found.at)} that this record has"
    return f"{owner} and this record differ from item {found.at + 1} on"


def _format_item_count(count: int) -> str:
    return f"{count:,} item" + ("" if count == 1 else "s")

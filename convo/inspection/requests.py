"""Two requests as they were sent, and what their beginning is worth to the prompt cache.

A provider keeps what a model made of the beginning of a prompt, and charges less for it when the
next prompt begins alike, to the byte. So one changed character near the start costs the whole
prompt again. Here the two texts are compared as they travelled, and what both models were shown
alike is set beside what the provider said it had kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from convo.inspection.pointing import Nothing, at, begin_alike, first_path, text, written
from convo.items import Item, Json, searchable
from convo.tokens import VOCABULARY, Count, Usage, count, window_of

SHOWN_FIRST = ("model", "tools", "text", "instructions", "conversation", "previous_response_id", "input")
"""The fields of a request in the order in which a model is shown them; the others follow by name."""

LEAST_CACHED, STEP = 1024, 128
"""OpenAI keeps beginnings of so many tokens or more, in steps of so many, for its models before `OTHERWISE`.
source: https://github.com/openai/openai-cookbook, examples/Prompt_Caching_201.ipynb, 1.1"""

OTHERWISE = ("openai/gpt-5.6", "openai/gpt-6")
"""How the names of models begin that keep beginnings in another way."""

AROUND = 24
"""Characters shown at each side of a difference."""


@dataclass(frozen=True)
class Request:
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


class Parted(NamedTuple):
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
    prefix: Count
    expected: int
    reported: Usage | None


def in_order(names: Iterable[str]) -> list[str]:
    """The fields of a request in the order of their canonical text."""
    known = {name: at for at, name in enumerate(SHOWN_FIRST)}
    return sorted(names, key=lambda name: (known.get(name, len(known)), name))


def canonical(body: Mapping[str, Json]) -> bytes:
    """The text of a request as it travels: compact UTF-8, and in an order that does not depend on who wrote it."""
    fields = (f"{text(name)}:{text(body[name])}" for name in in_order(body))
    return ("{" + ",".join(fields) + "}").encode("utf-8", "surrogatepass")


def parted(first: Request, second: Request) -> Parted:
    """Compare two requests; `second` is the later one, whose beginning may have been kept."""
    ours, theirs = canonical(first.body), canonical(second.body)
    path = first_path(dict(first.body), dict(second.body), in_order)
    prefix = alike(first, second)
    return Parted(
        byte=None if path is None else begin_alike(ours, theirs),
        path="" if path is None else written(path),
        a="" if path is None else _excerpt(first.body, second.body, path),
        b="" if path is None else _excerpt(second.body, first.body, path),
        sizes=(len(ours), len(theirs)),
        prefix=prefix,
        expected=kept(prefix.tokens, first.model, second.model),
        reported=second.usage,
    )


def alike(first: Request, second: Request) -> Count:
    """Tokens at the beginning of what both models were shown that are the same."""
    if first.model != second.model:
        return Count(0, estimated=False)
    window = window_of(second.model)
    tokens, estimated = 0, window is None or window.counted != VOCABULARY
    for part in ("tools", "text", "instructions"):
        ours, theirs = first.body.get(part), second.body.get(part)
        shared = _shared(ours, theirs)
        counted = count((), shared)
        tokens, estimated = tokens + counted.tokens, estimated or counted.estimated
        if ours != theirs:
            return Count(tokens, estimated)
    found = _items_alike(first.shown, second.shown)
    return Count(tokens + found.tokens, estimated or found.estimated)


def kept(prefix: int, first_model: str, second_model: str) -> int:
    """How many tokens of a shared beginning a provider may have kept; OpenAI's rule, and others' at most."""
    if first_model != second_model:
        return 0
    if not second_model.startswith("openai/") or second_model.startswith(OTHERWISE):
        return prefix
    return prefix // STEP * STEP if prefix >= LEAST_CACHED else 0


def as_json(found: Parted) -> dict[str, Json]:
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


def _items_alike(ours: Sequence[Item], theirs: Sequence[Item]) -> Count:
    least = min(len(ours), len(theirs))
    same = next((at for at in range(least) if ours[at] != theirs[at]), least)
    begun = ""
    if same < least and (ours[same].get("type"), ours[same].get("role")) == (
        theirs[same].get("type"),
        theirs[same].get("role"),
    ):
        begun = _shared(searchable(ours[same]), searchable(theirs[same]))
    whole, counted = count(ours[:same]), count((), begun)
    return Count(whole.tokens + counted.tokens, whole.estimated or counted.estimated)


def _shared(ours: Json, theirs: Json) -> str:
    """What two parts of a prompt begin with alike, as text."""
    one, other = _words(ours), _words(theirs)
    return one[: begin_alike(one, other)]


def _words(value: Json | Nothing) -> str:
    if value is None or isinstance(value, Nothing):
        return ""
    return value if isinstance(value, str) else text(value)


def _excerpt(value: Mapping[str, Json], other: Mapping[str, Json], path: tuple[str | int, ...]) -> str:
    """A few characters around the place where `value` differs from `other`."""
    words, beside = _words(at(value, path)), _words(at(other, path))
    start = begin_alike(words, beside)
    low, high = max(0, start - AROUND), start + AROUND
    return ("…" if low else "") + words[low:high] + ("…" if high < len(words) else "")

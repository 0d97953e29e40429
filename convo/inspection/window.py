"""What fills a model's window, part by part.

A model is shown its tools, its instructions and a list of items; who puts the items there differs by
owner, and every one of them takes its tokens all the same. Parts are counted here, from what is known
before anything is sent; what an endpoint counts itself is one figure for all of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from convo.items import Item, Json, is_assistant, is_user, kind
from convo.tokens import VOCABULARY, Count, Window, count


class Part(NamedTuple):
    """One part of a window.

    items:   how many: items, or tools
    """

    name: str
    items: int
    tokens: Count


class Filling(NamedTuple):
    """All parts of a window together.

    by:      who counted: "the endpoint", the vocabulary's name, or "estimate"
    window:  of the model; None where nobody wrote it down
    """

    parts: tuple[Part, ...]
    total: Count
    by: str
    window: Window | None = None

    @property
    def left(self) -> int | None:
        """Tokens that are free, never less than none; None where the window is not known."""
        return None if self.window is None else max(0, self.window.context - self.total.tokens)


ENDPOINT, ESTIMATE = "the endpoint", "estimate"

KINDS: Mapping[str, Callable[[Item], bool]] = {
    "your messages": is_user,
    "answers": is_assistant,
    "reasoning": lambda item: kind(item) == "reasoning",
    "compaction": lambda item: kind(item) == "compaction",
    "system messages": lambda item: kind(item) == "message",
    "calls and outputs": lambda item: True,
}
"""Items by what they are; each belongs to the first that it is."""


def requested(before: Sequence[Item], owner: str, body: Mapping[str, Json], window: Window | None) -> tuple[Part, ...]:
    """The parts of a request: what its owner puts before it, and what travels.

    owner:  what the first part is called
    """
    kept = [_items(owner, before, window)] if before else []
    return (*_around(body, window), *kept, _items("input", body.get("input") or (), window))


def by_kind(items: Iterable[Item], body: Mapping[str, Json], window: Window | None) -> tuple[Part, ...]:
    """The parts of a window by what they are, whoever puts them there; kinds without items are left out.

    items:  all that the model is shown
    body:   the request, for its instructions and tools
    """
    sorted_out: dict[str, list[Item]] = {name: [] for name in KINDS}
    for item in items:
        sorted_out[next(name for name, fits in KINDS.items() if fits(item))].append(item)
    return (*_around(body, window), *(_items(name, found, window) for name, found in sorted_out.items() if found))


def filled(parts: tuple[Part, ...], window: Window | None, counted: int | None = None) -> Filling:
    """The parts together. `counted` is the endpoint's own figure, where it gave one."""
    if counted is not None:
        return Filling(parts, Count(counted, estimated=False), ENDPOINT, window)
    tokens, estimated = sum(part.tokens.tokens for part in parts), any(part.tokens.estimated for part in parts)
    return Filling(parts, Count(tokens, estimated), ESTIMATE if estimated else VOCABULARY, window)


def as_json(filling: Filling) -> dict[str, Json]:
    """The object that programs get."""
    window = filling.window
    return {
        "parts": [
            {"part": part.name, "items": part.items, "tokens": part.tokens.tokens, "estimated": part.tokens.estimated}
            for part in filling.parts
        ],
        "tokens": filling.total.tokens,
        "estimated": filling.total.estimated,
        "counted_by": filling.by,
        "window": None if window is None else window.context,
        "left": filling.left,
    }


def _around(body: Mapping[str, Json], window: Window | None) -> list[Part]:
    """What stands beside the items, where there is any."""
    tools, instructions = body.get("tools") or (), body.get("instructions")
    named = [Part("tools", len(tools), _count(count((), tools=tools), window))] if tools else []
    said = [Part("instructions", 1, _count(count((), instructions), window))] if instructions else []
    return named + said


def _items(name: str, items: Sequence[Item], window: Window | None) -> Part:
    return Part(name, len(items), _count(count(items), window))


def _count(found: Count, window: Window | None) -> Count:
    """`found`, as the estimate that it is where the vocabulary is another one than the model's."""
    return found._replace(estimated=found.estimated or window is None or window.counted != VOCABULARY)

"""Two histories side by side: what they share, where they part, and what each has behind that.

Items are compared by digest, so an answer that came back in another form is still itself. Behind the
first difference they are laid beside one another again wherever they say the same: a compaction in
the middle, an answer that only the server has, a message that was edited all show as what they are.
"""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from convo.history import first_difference
from convo.inspection.pointing import first_path, written
from convo.items import Item, Json, digest, normal

Mark = Literal["same", "changed", "only a", "only b"]


class Pair(NamedTuple):
    """One line: the places of an item in both histories, from 0; None where one has nothing there."""

    a: int | None
    b: int | None
    mark: Mark


class Compared(NamedTuple):
    """Two histories, compared.

    same:   how many items they begin with alike
    path:   where the first two items that differ do so, "content[0].text"; "" where one history has ended
    rest:   everything behind `same`
    """

    a: Sequence[Item]
    b: Sequence[Item]
    same: int
    path: str
    rest: tuple[Pair, ...]

    @property
    def alike(self) -> bool:
        return not self.rest

    def many(self, mark: Mark) -> int:
        """How many lines of `rest` are of one kind."""
        return sum(pair.mark == mark for pair in self.rest)


def compared(a: Sequence[Item], b: Sequence[Item]) -> Compared:
    """Compare two histories, oldest items first."""
    found = first_difference(a, b)
    if found is None:
        return Compared(a, b, len(a), "", ())
    ours, theirs = found.ours, found.theirs
    path = "" if ours is None or theirs is None else written(first_path(normal(ours), normal(theirs)) or ())
    return Compared(a, b, found.at, path, tuple(_rest(a, b, found.at)))


def as_json(found: Compared) -> dict[str, Json]:
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


def _rest(a: Sequence[Item], b: Sequence[Item], start: int) -> Iterator[Pair]:
    if start in (len(a), len(b)):  # nothing to lay beside each other
        yield from (Pair(at, None, "only a") for at in range(start, len(a)))
        yield from (Pair(None, at, "only b") for at in range(start, len(b)))
        return
    ours, theirs = [digest(item) for item in a[start:]], [digest(item) for item in b[start:]]
    for tag, low, high, begin, end in SequenceMatcher(None, ours, theirs).get_opcodes():
        both = min(high - low, end - begin)
        mark: Mark = "same" if tag == "equal" else "changed"
        yield from (Pair(start + low + at, start + begin + at, mark) for at in range(both))
        yield from (Pair(start + at, None, "only a") for at in range(low + both, high))
        yield from (Pair(None, start + at, "only b") for at in range(begin + both, end))

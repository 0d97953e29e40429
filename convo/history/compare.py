"""Where two histories part.

They are compared by digest, item by item: an answer that came back without its id, or in the
easy form, is still the same answer. Keys would call every such item another history.
"""

from collections.abc import Sequence
from typing import NamedTuple

from convo.items import Item, digest


class Difference(NamedTuple):
    """The first place at which two histories differ; None where one of them has ended.

    at:  how many items they share before it
    """

    at: int
    ours: Item | None
    theirs: Item | None


def same(one: Item, other: Item) -> bool:
    """Whether two items mean the same, whichever form they are in."""
    return one == other or digest(one) == digest(other)


def common(ours: Sequence[Item], theirs: Sequence[Item]) -> int:
    """How many items the two histories share from the start."""
    for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if not same(one, other):
            return at
    return min(len(ours), len(theirs))


def first_difference(ours: Sequence[Item], theirs: Sequence[Item]) -> Difference | None:
    """The first difference, or None when both say the same."""
    at = common(ours, theirs)
    if at == len(ours) == len(theirs):
        return None
    return Difference(at, ours[at] if at < len(ours) else None, theirs[at] if at < len(theirs) else None)

"""Leaving the oldest turns out of what a model is shown.

Nothing is written and nothing is lost: the history stays whole, and the next model may see all of it.
Only whole turns go, oldest first; instructions stay wherever they stand, and so does the last turn,
since without it nobody would have asked anything.
"""

from collections.abc import Sequence
from itertools import pairwise

from convo.compaction.cutting import is_instruction, turns
from convo.items import Item


def within(items: Sequence[Item], sizes: Sequence[int], room: int) -> tuple[Item, ...] | None:
    """As many of the last turns of `items` as fit, behind the instructions of those that do not.

    sizes:    tokens of each item
    room:     tokens of all of them together
    returns:  None when not even the last turn fits
    """
    standing = [is_instruction(item) for item in items]
    need = sum(sizes)
    for begin, end in pairwise((*turns(items), len(items))):
        if need <= room:
            return tuple(item for at, item in enumerate(items) if at >= begin or standing[at])
        need -= sum(sizes[at] for at in range(begin, end) if not standing[at])
    return None if items else ()


def last_turn(items: Sequence[Item]) -> tuple[Item, ...]:
    """The last turn of `items`, behind the instructions of those before it."""
    begin = turns(items)[-1] if items else 0
    return tuple(item for at, item in enumerate(items) if at >= begin or is_instruction(item))

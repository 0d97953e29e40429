"""What a summary takes the place of, and what stays as it was said.

    standing   system and developer messages: they hold for what comes, so they are never summarised
    folded     what the summary is made of and takes the place of
    said       the newest of the folded words of the user, which stay beside the summary word for word
    kept       the end of the history: what the model is about to answer

A fold is made of what the model sees, in which an earlier summary is a message like others: it is
folded again, and is nobody's own words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from convo.compaction.cutting import cuts, is_instruction, turns
from convo.compaction.summary import is_summary
from convo.items import Item, is_user

SAID = 20_000
"""Tokens of the user's own words that stay beside a summary."""


@dataclass(frozen=True, slots=True)
class Fold:
    """A history in four parts, each oldest first; `said` are among `folded` too."""

    standing: tuple[Item, ...]
    folded: tuple[Item, ...]
    said: tuple[Item, ...]
    kept: tuple[Item, ...]


def fold(items: Sequence[Item], sizes: Sequence[int], *, keep: int | None = None, said: int = SAID) -> Fold:
    """What to do with each of `items`.

    sizes:  tokens of each item
    keep:   None: everything is folded. Else the last turn is kept as it is; where it takes more tokens
            than these it is cut between its steps, and only as many of the last ones are kept
    said:   tokens of the user's words that stay beside the summary
    """
    end = len(items) if keep is None else _begin_of_end(items, sizes, keep)
    early = [(item, size) for item, size in zip(items[:end], sizes, strict=False) if not is_instruction(item)]
    return Fold(
        standing=tuple(filter(is_instruction, items[:end])),
        folded=tuple(item for item, _ in early),
        said=_newest([(item, size) for item, size in early if is_user(item) and not is_summary(item)], said),
        kept=tuple(items[end:]),
    )


def _begin_of_end(items: Sequence[Item], sizes: Sequence[int], keep: int) -> int:
    """Where the last turn begins, or the earliest of its steps from which on it takes no more than `keep`."""
    if not items:
        return 0
    begin = turns(items)[-1]
    need, places = sum(sizes[begin:]), [place for place in cuts(items) if begin <= place < len(items)]
    for place, following in pairwise((*places, len(items))):
        if need <= keep:
            return place
        need -= sum(sizes[place:following])
    return places[-1]


def _newest(messages: Sequence[tuple[Item, int]], room: int) -> tuple[Item, ...]:
    """As many of the last messages as fit."""
    chosen: list[Item] = []
    for item, size in reversed(messages):
        room -= size
        if room < 0:
            break
        chosen.append(item)
    return tuple(reversed(chosen))

"""Where the turns of a conversation are, and what a handle with a turn's number stands for.

A turn is what a person said and all that came of it: thoughts, calls, their outputs, the answer. A
history is cut between turns and nowhere else, so a response's parallel calls stay with their outputs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from convo.compaction import turns
from convo.errors import NotFound
from convo.history import Link, Path
from convo.items import Item
from convo.stores.contract import Store
from convo.strategies import Held, undo

if TYPE_CHECKING:
    from convo.inspection import Known


def after_turn(items: Sequence[Item], number: int) -> int:
    """How many items stand before the end of a turn.

    number:  from 1; 0 is the beginning, -1 the end of the last turn but one
    raises:  NotFound  there are not so many turns
    """
    ends = [*turns(items), len(items)] if items else [0]
    many = len(ends) - 1
    at = number if number >= 0 else many + number
    if not 0 <= at <= many:
        raise NotFound("turn", str(number), hint=f"choose a turn from 0, the beginning, to {many}, the last")
    return ends[at]


async def around(cut: Path, last: Link | None, store: Store) -> tuple[Link | None, Link | None]:
    """The link that went on from the end of `cut`, and the one before it, on the line that ends with `last`."""
    keys = {cut.root, *cut.keys}
    began: Link | None = None
    seen: set[str] = set()
    while last is not None and last.head not in keys and last.id not in seen:
        seen.add(last.id)
        began, last = last, await store.link(last.parent) if last.parent else None
    return began, last


def before_the_last(held: Held, last: Link | None) -> int:
    """Where the last turn begins: what nobody confirmed goes first, and never half of a turn."""
    at = len(undo(held, last).path)
    return max((place for place in turns(held.path.items) if place <= at), default=0)


def items_of(known: "Known", number: int | None) -> tuple[Item, ...]:
    """What was said up to the end of a turn; all of it for None. raises: NotFound"""
    items = known.path.items
    return items if number is None else items[: after_turn(items, number)]

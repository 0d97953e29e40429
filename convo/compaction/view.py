"""A history as a model sees it, once what was sealed in it is open.

The last compaction item stands for everything before it. Of that, only messages are shown which the
item does not cover: what a client put there afterwards, or left there in plain sight. An item that a
provider sealed cannot be opened here. It is shown to that provider as it is, behind the messages of
users and instructions that came before it.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from convo.compaction.cutting import is_instruction
from convo.compaction.sealed import Sealed, short
from convo.compaction.summary import stands_for
from convo.items import Item, is_user

Open: TypeAlias = Callable[[Item], Sealed | None]
"""What is sealed in a compaction item; None in one that somebody else made."""


def last_compaction(items: Sequence[Item]) -> int | None:
    """Where the last compaction item stands."""
    return next((at for at in range(len(items) - 1, -1, -1) if items[at].get("type") == "compaction"), None)


def seen(items: Sequence[Item], open_: Open) -> tuple[Item, ...]:
    """What a model is shown of `items`. raises: what `open_` raises"""
    at = last_compaction(items)
    if at is None:
        return tuple(items)
    sealed = open_(items[at])
    if sealed is None:
        return (*filter(_stays, seen(items[:at], open_)), *items[at:])
    beside = (item for item in items[:at] if _stays(item) and short(item) not in sealed.covers)
    return (*beside, *opened(sealed), *items[at + 1 :])


def opened(sealed: Sealed) -> tuple[Item, ...]:
    """The items that stand for one compaction."""
    summary = () if sealed.summary is None else (stands_for(sealed.summary),)
    return (*sealed.before, *summary, *sealed.after)


def covered(items: Sequence[Item], open_: Open, *, beside: Sequence[Item] = ()) -> frozenset[str]:
    """The names of the messages that a compaction of all of `items` takes the place of.

    beside:  messages that go on standing for themselves
    """
    at = last_compaction(items)
    earlier = None if at is None else open_(items[at])
    found = {short(item) for item in items if _stays(item)} | (earlier.covers if earlier else set())
    return frozenset(found - {short(item) for item in beside})


def _stays(item: Item) -> bool:
    return is_user(item) or is_instruction(item)

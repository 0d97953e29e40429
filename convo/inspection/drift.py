"""Where a record and its owner have come apart, in one sentence."""

from collections.abc import Sequence

from convo.history import first_difference
from convo.items import Item


def drift(ours: Sequence[Item], theirs: Sequence[Item], owner: str) -> str:
    """What differs between a record of a history and the history itself; "" when nothing does.

    ours:    what the record says was confirmed
    theirs:  what the owner has
    owner:   its name in the sentence: "the conversation", "the file"
    """
    found = first_difference(ours, theirs)
    if found is None:
        return ""
    if found.ours is None:
        return f"{owner} holds {_items(len(theirs) - found.at)} more than this record"
    if found.theirs is None:
        return f"{owner} lacks {_items(len(ours) - found.at)} that this record has"
    return f"{owner} and this record differ from item {found.at + 1} on"


def _items(count: int) -> str:
    return f"{count:,} item" + ("" if count == 1 else "s")

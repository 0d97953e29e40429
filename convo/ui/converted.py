"""What became of a conversation that was handed to another owner, on a screen.

The losses come first, by kind and place, because they are the reason to go back; what was made
comes below.
"""

from collections.abc import Iterator, Sequence

from convo.history import OWNERS, Strategy
from convo.strategies.carrying import Loss
from convo.ui.labelled import Line, counted, labelled
from convo.ui.medium import Medium

NAMED = 6
"""Places of one loss that are named; the others are counted."""


def report(losses: Sequence[Loss], notes: Sequence[str], medium: Medium) -> str:
    """What does not go over as it is, one line a kind of it."""
    rows = [(f"{loss.effect}", f"{loss.code}: {loss.why} ({places(loss)})") for loss in losses]
    rows += [("note", note) for note in notes]
    return medium.drawn("\n".join(labelled(rows or [("losses", "everything goes over as it is")], medium)))


def places(loss: Loss) -> str:
    """Where a loss is, in words: "items 3, 5 and 9", "items 1, 2, 3, 4, 5, 6 and 20 more"."""
    first, more = [str(at) for at in loss.places[:NAMED]], len(loss.places) - NAMED
    if len(loss.places) == 1:
        return f"item {first[0]}"
    last = f"{more} more" if more > 0 else first.pop()
    return f"items {', '.join(first)} and {last}"


def result(rows: Iterator[Line] | Sequence[Line], medium: Medium) -> str:
    return medium.drawn("\n".join(labelled(list(rows), medium)))


def facts(name: str, strategy: Strategy, handle: str | None, items: int, waiting: int) -> Iterator[Line]:
    """What a new session is, in a few lines."""
    owner = OWNERS[strategy]
    yield "session", name
    yield "owner", f"{owner.words} (--{strategy})"
    if handle:
        yield "handle", handle
    elif owner.remembers:
        yield "handle", "none yet: the first turn makes it, and sends everything"
    yield "items", counted(items) + (f", of them {waiting} unacknowledged" if waiting else "")

"""Lines that begin with a label, as the head of a screen has them."""

from collections.abc import Iterable, Iterator, Sequence

from convo.items import Item, first_words, kind
from convo.ui.answer import safe
from convo.ui.medium import Medium, cut

MOST = 3
"""Unacknowledged items that are named; the others are counted."""

Line = tuple[str, str]
"""A label, or "" to go on with the one before, and what it says."""


def labelled(rows: Iterable[Line], medium: Medium) -> Iterator[str]:
    """The lines, their words one below the other."""
    kept = [(label, safe(words)) for label, words in rows]
    wide = max((len(label) for label, _ in kept), default=0)
    for label, words in kept:
        room = words if medium.width is None else cut(words, max(0, medium.width - wide - 4))
        yield f"  {medium.paint(f'{label:<{wide}}', 'dim')}  {room}".rstrip()


def waiting(items: Sequence[Item]) -> Iterator[Line]:
    """What was said and not confirmed, in words."""
    if not items:
        yield "waiting", "nothing is unacknowledged"
        return
    yield "waiting", f"{counted(len(items))} unacknowledged"
    for item in items[:MOST]:
        yield "", f"{item.get('role') or kind(item)}: {first_words(item)}"
    if len(items) > MOST:
        yield "", f"and {len(items) - MOST} more"


def counted(number: int, one: str = "item") -> str:
    """Figure and noun: "1 item", "1,024 items"."""
    return f"{number:,} {one}" + ("" if number == 1 else "s")

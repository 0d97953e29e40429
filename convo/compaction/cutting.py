"""Where a history may be cut.

A call and its output travel together, and so do a thought and what it led to: a history with half of
either is refused by every server. A cut is a place that has no such pair on both its sides. A turn
begins at a cut where a person speaks, and the calls that the model makes on the way to its answer are
in it. System and developer messages belong to no turn: they hold for all of them. A summary stands in a
user's message and is nobody's turn: what is said behind it begins one.
"""

from collections.abc import Sequence
from itertools import accumulate

from convo.compaction.summary import is_summary
from convo.items import Item, call_id, is_user, kind
from convo.items.kinds import ANSWERED_BY, OUTPUTS

APPROVAL = "mcp_approval_request"
APPROVED = "mcp_approval_response"


def is_instruction(item: Item) -> bool:
    """Whether `item` is a system or developer message."""
    return kind(item) == "message" and item.get("role") in ("system", "developer")


def cuts(items: Sequence[Item]) -> tuple[int, ...]:
    """Every place at which `items` may be cut, as how many stand before it; both ends are among them."""
    crossed = _crossed(items)
    return tuple(place for place in range(len(items) + 1) if not crossed[place])


def turns(items: Sequence[Item]) -> tuple[int, ...]:
    """Where each turn begins, oldest first; the first one begins at 0, whoever speaks there."""
    crossed = _crossed(items)
    begun = [place for place in range(1, len(items)) if not crossed[place] and _begins(items, place)]
    return (0, *begun) if items else ()


def _begins(items: Sequence[Item], place: int) -> bool:
    """Whether a person begins to speak here; several messages in a row are one beginning."""
    if not is_user(items[place]) or is_summary(items[place]):
        return False
    before = place - 1
    while before >= 0 and is_instruction(items[before]):
        before -= 1
    return before >= 0 and (not is_user(items[before]) or is_summary(items[before]))


def _crossed(items: Sequence[Item]) -> list[int]:
    """At each place, how many pairs have one half before it and the other behind."""
    steps = [0] * (len(items) + 2)
    asked: dict[str, int] = {}
    for at, item in enumerate(items):
        what = kind(item)
        if what == "reasoning" and at + 1 < len(items):
            _span(steps, at, at + 1)
        named = _pair(item, what)
        if named is None:
            continue
        if what in ANSWERED_BY or what == APPROVAL:
            asked[named] = at
        elif named in asked:
            _span(steps, asked[named], at)
    return list(accumulate(steps))


def _span(steps: list[int], first: int, last: int) -> None:
    steps[first + 1] += 1
    steps[last + 1] -= 1


def _pair(item: Item, what: str) -> str | None:
    """What ties an item to its other half, if its kind has one; a local shell's output has its call's id as its own."""
    if what == APPROVAL:
        return _string(item.get("id"))
    if what == APPROVED:
        return _string(item.get("approval_request_id"))
    if what in ANSWERED_BY or what in OUTPUTS:
        return call_id(item) or (_string(item.get("id")) if what == "local_shell_call_output" else None)
    return None


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None

"""What the owner may have taken although nobody told us.

A request to a conversation can be carried out and its answer lost: the connection broke, the
person stopped it, the process was killed. Sending it again would say everything twice. So the
owner's own tail, the items after those that it confirmed, is read and compared first.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import dropwhile

from convo.history import common, same
from convo.items import Item, is_user
from convo.strategies.held import Held


def reconcile(held: Held, tail: Sequence[Item]) -> Held:
    """`held` with the owner's tail on its path, and behind it only what the owner lacks.

    tail:  the owner's items after the mark, oldest first; items of other writers may be among them
    """
    if not tail:
        return held
    rest = _lacking([node.item for node in held.unacknowledged], tail)
    confirmed = held.path.upto(held.mark).grow(tail)
    return replace(held, path=confirmed.grow(rest), mark=confirmed.head)


def after_mark(held: Held, newest_first: Sequence[Item]) -> list[Item] | None:
    """The owner's items behind the mark, oldest first; None when they do not reach back to it."""
    if held.mark == held.path.root:
        return list(reversed(newest_first))
    known = held.path.upto(held.mark).nodes[-1].item
    for at, item in enumerate(newest_first):
        if _is(item, known):
            return list(reversed(newest_first[:at]))
    return None


def _lacking(said: list[Item], tail: Sequence[Item]) -> list[Item]:
    """What of `said` the owner does not have. A partial gives way to the whole answer."""
    if not said:
        return said
    start = next((at for at, item in enumerate(tail) if same(item, said[0])), len(tail))
    taken = common(said, tail[start:])
    rest = said[taken:]
    answered = taken and len(tail) > start + taken
    return list(dropwhile(lambda item: not is_user(item), rest)) if answered else rest


def _is(item: Item, known: Item) -> bool:
    """Two answers may say the same; their ids tell them apart where both have one."""
    ids = (item.get("id"), known.get("id"))
    return ids[0] == ids[1] if all(ids) else same(item, known)

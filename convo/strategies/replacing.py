"""Another history in place of the one that is held: what stands where, and what waits for its owner.

What was said behind the point up to which the history was compacted stands behind the window, whoever
said it and whenever. A chain begins anew: nobody has acknowledged any of it. Every other owner has what
it had before, in a shorter form.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from convo.errors import Conflict
from convo.history import OWNERS, Path, Strategy, common
from convo.items import Item, plain, resendable
from convo.strategies.held import Held


def replaced(held: Held, point: Path, window: Sequence[Item]) -> Held:
    """`held` with `window` in place of all up to `point`.

    raises:  Conflict  what is held no longer begins like `point`: somebody went back, or edited it
    """
    later = behind(held.path, point)
    confirmed = max(0, held.path.place(held.mark) - len(point))
    path = Path(held.path.root).grow(fresh(window, held.strategy))
    marked = path.grow(fresh(later[:confirmed], held.strategy))
    whole = marked.grow(later[confirmed:])
    if held.strategy is Strategy.CHAIN:
        return replace(held, path=whole, mark=path.root, handle=None)
    return replace(held, path=whole, mark=marked.head)


def behind(path: Path, point: Path) -> tuple[Item, ...]:
    """What stands on `path` behind `point`, also where its items came back in another form.

    raises:  Conflict
    """
    shared = path.shared(point)
    if shared < len(point):
        shared += common(path.items[shared : len(point)], point.items[shared:])
    if shared < len(point):
        raise Conflict(
            "the history was changed while it was compacted: what was folded is no longer what is there",
            hint="compact it again",
        )
    return path.items[len(point) :]


def fresh(items: Iterable[Item], strategy: Strategy) -> tuple[Item, ...]:
    """`items` as their owner can be given them anew: a server's ids mean nothing outside its own list."""
    if not OWNERS[strategy].remembers:
        return tuple(items)
    formed = (resendable(item) for item in items)
    return tuple(sent for item in formed if item is not None and (sent := plain(item)) is not None)

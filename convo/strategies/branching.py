"""Going back: /retry asks the last input again, /undo takes it away. Heads move, nothing is lost.

As long as the last input is unacknowledged, both only cut the local path. After a confirmed turn
the client's own history is cut the same way, and a chain goes back to the response before, where
the next turn forks. A conversation's items belong to its endpoint and cannot be cut from here.
"""

from dataclasses import replace

from convo.errors import Usage, WrongOwner
from convo.history import Link, Path, Strategy
from convo.items import Item, is_user
from convo.strategies.held import Held


def retry(held: Held, last: Link | None) -> Held:
    """`held` as it was when the last input was sent, without what came after it.

    last:    the last confirmed link, where there is one
    raises:  Usage  nothing was said;  WrongOwner  a conversation has confirmed it already
    """
    if held.unacknowledged:
        kept = held.path.first(_after_last_user(held.path))
        if len(kept) > held.path.place(held.mark):
            return replace(held, path=kept)
    back = _before(held, last)
    inputs = held.path.upto(last.saw) if last and held.remembers else held.path.first(_after_last_user(held.path))
    return replace(back, path=inputs)


def undo(held: Held, last: Link | None) -> Held:
    """`held` without the last turn.

    raises:  as for `retry`
    """
    if held.unacknowledged:
        return replace(held, path=held.path.upto(held.mark))
    return _before(held, last)


def _before(held: Held, last: Link | None) -> Held:
    """`held` before its last confirmed turn."""
    if held.strategy is Strategy.CONVERSATION and len(held.path):
        raise WrongOwner(
            "the last turn belongs to the conversation at its endpoint and cannot be taken back here",
            hint="convo convert, to own the history yourself",
        )
    if held.strategy is Strategy.CHAIN and last:
        path = held.path.first(held.path.place(last.saw) - last.sent)
        return replace(held, path=path, mark=path.head, handle=last.previous_response_id)
    path = held.path.first(_turn_start(held.path))
    if len(path) == len(held.path):
        raise Usage("nothing was said yet", hint="type a message")
    return replace(held, path=path, mark=path.head)


def _after_last_user(path: Path) -> int:
    """How many nodes lead up to and include the last user's message; 0 when there is none."""
    return next((at for at in range(len(path), 0, -1) if is_user(_item(path, at))), 0)


def _turn_start(path: Path) -> int:
    """How many nodes stand before the last run of user's messages."""
    at = _after_last_user(path)
    if not at:
        return len(path)
    while at and is_user(_item(path, at)):
        at -= 1
    return at


def _item(path: Path, place: int) -> Item:
    return path.nodes[place - 1].item

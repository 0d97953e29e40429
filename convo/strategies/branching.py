"""Going back: /retry asks the last input again, /undo takes it away. Heads move, nothing is lost.

As long as the last input is unacknowledged, both only cut the local path. After a confirmed turn
the client's own history is cut the same way, and a chain goes back to the response before, where
the next turn forks. A conversation's items belong to its endpoint and cannot be cut from here.
Nothing goes back behind a compaction: what it stands for is another branch, with a handle of its own.
"""

from dataclasses import replace

from convo.errors import Usage, WrongOwner
from convo.history import Link, Path, Strategy
from convo.items import Item, is_user, kind
from convo.strategies.held import Held, answered


def retry(held: Held, last: Link | None) -> Held:
    """`held` as it was when the last input was sent, without what came after it.

    last:    the last confirmed link, where there is one
    raises:  Usage  nothing was said;  WrongOwner  a conversation has confirmed it already
    """
    if held.unacknowledged:
        kept = held.path.first(_after_last_user(held.path))
        if len(kept) > max(held.path.place(held.mark), floor(held.path)):
            return replace(held, path=kept)
    back = _before(held, last)
    inputs = held.path.upto(last.saw) if last and held.remembers else held.path.first(_after_last_user(held.path))
    return replace(back, path=inputs)


def undo(held: Held, last: Link | None) -> Held:
    """`held` without the last turn.

    raises:  as for `retry`
    """
    if held.unacknowledged:
        return replace(held, path=_unanswered(held))
    return _before(held, last)


def _unanswered(held: Held) -> Path:
    """The path without what was said last: a new root may begin with turns that nobody has to answer again.

    raises:  Usage  nothing stands behind a compaction
    """
    kept = max(answered(held), held.path.place(held.mark), floor(held.path))
    return _shorter(held.path, kept if kept < len(held.path) else _turn_start(held.path))


def _before(held: Held, last: Link | None) -> Held:
    """`held` before its last confirmed turn."""
    if held.strategy is Strategy.CONVERSATION and len(held.path):
        raise WrongOwner(
            "the last turn belongs to the conversation at its endpoint and cannot be taken back here",
            hint=f"convo convert {held.handle} --to session, and take it back there",
        )
    if _begun_anew(held) or (held.strategy is Strategy.CHAIN and last and not last.previous_response_id):
        path = _shorter(held.path, _turn_start(held.path))
        return replace(held, path=path, mark=path.root, handle=None)
    if held.strategy is Strategy.CHAIN and last:
        path = held.path.first(held.path.place(last.saw) - last.sent)
        return replace(held, path=path, mark=path.head, handle=last.previous_response_id)
    path = _shorter(held.path, _turn_start(held.path))
    return replace(held, path=path, mark=path.head)


def _begun_anew(held: Held) -> bool:
    """Whether a chain is to be given a history that no response stands for yet."""
    return held.strategy is Strategy.CHAIN and held.mark == held.path.root and bool(len(held.path))


def _shorter(path: Path, count: int) -> Path:
    """raises: Usage  there is nothing to take back"""
    if count == len(path):
        since = "since it was compacted" if floor(path) else "yet"
        raise Usage(f"nothing was said {since}", hint="type a message")
    return path.first(count)


def floor(path: Path) -> int:
    """How many nodes lead up to and include the last compaction."""
    return next((at for at in range(len(path), 0, -1) if _folds(_item(path, at))), 0)


def _folds(item: Item) -> bool:
    from convo.compaction import is_summary  # for who goes back; a list of sessions does not

    return kind(item) == "compaction" or is_summary(item)


def _after_last_user(path: Path) -> int:
    """How many nodes lead up to and include the last user's message; 0 when there is none."""
    return next((at for at in range(len(path), 0, -1) if is_user(_item(path, at))), 0)


def _turn_start(path: Path) -> int:
    """How many nodes stand before the last run of user's messages, which ends at a compaction."""
    at, least = _after_last_user(path), floor(path)
    if at <= least:
        return len(path)
    while at > least and is_user(_item(path, at)):
        at -= 1
    return at


def _item(path: Path, place: int) -> Item:
    return path.nodes[place - 1].item

"""Undo, rewind and replacement of a history. Heads move, nothing is deleted.

A client-side history is cut locally. A chain continues from an earlier response, and the next turn forks. Confirmed
items of a conversation cannot be undone here. Nothing goes back before a compaction: that history is another branch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from convo.errors import Conflict, InvalidUsage, WrongOwner
from convo.history.items import Item, is_user_message, item_type, to_resendable, to_sendable
from convo.history.records import STRATEGY_INFO, Link, Strategy
from convo.history.tree import Path, common_prefix_length
from convo.strategies.state import ConversationState, last_answer_depth


def undo_last_answer(held: ConversationState, last: Link | None) -> ConversationState:
    """`held` as it was when the last input was sent, without what came after it.

    last:    the last confirmed link, where there is one
    raises:  InvalidUsage  nothing was said;  WrongOwner  a conversation has confirmed it already
    """
    if held.unacknowledged:
        kept = held.path.first(_last_user_depth(held.path))
        if len(kept) > max(held.path.place(held.mark), compaction_depth(held.path)):
            return replace(held, path=kept)
    back = _before_last_confirmed_turn(held, last)
    inputs = held.path.upto(last.saw) if last and held.remembers else held.path.first(_last_user_depth(held.path))
    return replace(back, path=inputs)


def undo_last_turn(held: ConversationState, last: Link | None) -> ConversationState:
    """`held` without the last turn.

    raises:  as for `retry`
    """
    if held.unacknowledged:
        return replace(held, path=_without_last_input(held))
    return _before_last_confirmed_turn(held, last)


def _without_last_input(held: ConversationState) -> Path:
    """The path without what was said last: a new root may begin with turns that nobody has to answer again.

    raises:  InvalidUsage  nothing stands behind a compaction
    """
    kept = max(last_answer_depth(held), held.path.place(held.mark), compaction_depth(held.path))
    return _shorten_path(held.path, kept if kept < len(held.path) else _last_turn_start(held.path))


def _before_last_confirmed_turn(held: ConversationState, last: Link | None) -> ConversationState:
    """`held` before its last confirmed turn."""
    if held.strategy is Strategy.CONVERSATION and len(held.path):
        raise WrongOwner(
            "the last turn belongs to the conversation at its endpoint and cannot be taken back here",
            hint=f"convo convert {held.handle} --to session, and take it back there",
        )
    if _is_restarted_chain(held) or (held.strategy is Strategy.CHAIN and last and not last.previous_response_id):
        path = _shorten_path(held.path, _last_turn_start(held.path))
        return replace(held, path=path, mark=path.root, handle=None)
    if held.strategy is Strategy.CHAIN and last:
        path = held.path.first(held.path.place(last.saw) - last.sent)
        return replace(held, path=path, mark=path.head, handle=last.previous_response_id)
    path = _shorten_path(held.path, _last_turn_start(held.path))
    return replace(held, path=path, mark=path.head)


def _is_restarted_chain(held: ConversationState) -> bool:
    """Whether a chain is to be given a history that no response stands for yet."""
    return held.strategy is Strategy.CHAIN and held.mark == held.path.root and bool(len(held.path))


def _shorten_path(path: Path, count: int) -> Path:
    """raises: InvalidUsage  there is nothing to take back"""
    if count == len(path):
        since = "since it was compacted" if compaction_depth(path) else "yet"
        raise InvalidUsage(f"nothing was said {since}", hint="type a message")
    return path.first(count)


def compaction_depth(path: Path) -> int:
    """How many nodes lead up to and include the last compaction."""
    return next((at for at in range(len(path), 0, -1) if _is_compaction(_item_at(path, at))), 0)


def _is_compaction(item: Item) -> bool:
    from convo.compaction.window import is_summary  # for who goes back; a list of sessions does not

    return item_type(item) == "compaction" or is_summary(item)


def _last_user_depth(path: Path) -> int:
    """How many nodes lead up to and include the last user's message; 0 when there is none."""
    return next((at for at in range(len(path), 0, -1) if is_user_message(_item_at(path, at))), 0)


def _last_turn_start(path: Path) -> int:
    """How many nodes stand before the last run of user's messages, which ends at a compaction."""
    at, least = _last_user_depth(path), compaction_depth(path)
    if at <= least:
        return len(path)
    while at > least and is_user_message(_item_at(path, at)):
        at -= 1
    return at


def _item_at(path: Path, place: int) -> Item:
    return path.nodes[place - 1].item


def rewind_to_depth(held: ConversationState, at: int, began: Link | None) -> ConversationState:
    """`held` as it stood after its first `at` nodes.

    at:      between two turns
    began:   the link that went on from there, where there is one
    raises:  WrongOwner  a conversation has confirmed what stands behind it
             InvalidUsage       nothing stands behind it, it lies before a compaction, or a chain has no response there
    """
    if at == len(held.path):
        raise InvalidUsage("nothing stands behind that turn", hint="/rewind N, with an earlier one")
    path = held.path.first(at)
    if at < compaction_depth(held.path):
        raise InvalidUsage("what was said before a compaction is another branch", hint="convo inspect shows it")
    if at >= held.path.place(held.mark):
        return replace(held, path=path)
    if held.strategy is Strategy.CONVERSATION:
        raise WrongOwner(
            "these turns belong to the conversation at its endpoint and cannot be taken back here",
            hint=f"convo convert {held.handle} --to session, and take them back there",
        )
    if held.strategy is Strategy.CHAIN:
        return _rewind_chain(held, at, began)
    return replace(held, path=path, mark=path.head)


def _rewind_chain(held: ConversationState, at: int, began: Link | None) -> ConversationState:
    """A chain goes on from the response that ended there; one that began behind it begins anew, and says all again."""
    path = held.path.first(at)
    if at == 0 or (began is not None and began.previous_response_id is None):
        return replace(held, path=path, mark=path.root, handle=None)
    if began is None or held.path.place(began.saw) - began.sent != at:
        raise InvalidUsage("no response of this chain ends there", hint="convo inspect shows where they end")
    return replace(held, path=path, mark=path.head, handle=began.previous_response_id)


def replace_history(held: ConversationState, point: Path, window: Sequence[Item]) -> ConversationState:
    """`held` with `window` in place of all up to `point`.

    raises:  Conflict  what is held no longer begins like `point`: somebody went back, or edited it
    """
    later = items_after_point(held.path, point)
    confirmed = max(0, held.path.place(held.mark) - len(point))
    path = Path(held.path.root).grow(items_for_owner(window, held.strategy))
    marked = path.grow(items_for_owner(later[:confirmed], held.strategy))
    whole = marked.grow(later[confirmed:])
    if held.strategy is Strategy.CHAIN:
        return replace(held, path=whole, mark=path.root, handle=None)
    return replace(held, path=whole, mark=marked.head)


def items_after_point(path: Path, point: Path) -> tuple[Item, ...]:
    """What stands on `path` behind `point`, also where its items came back in another form.

    raises:  Conflict
    """
    shared = path.shared(point)
    if shared < len(point):
        shared += common_prefix_length(path.items[shared : len(point)], point.items[shared:])
    if shared < len(point):
        raise Conflict(
            "the history was changed while it was compacted: what was folded is no longer what is there",
            hint="compact it again",
        )
    return path.items[len(point) :]


def items_for_owner(items: Iterable[Item], strategy: Strategy) -> tuple[Item, ...]:
    """`items` as their owner can be given them anew: a server's ids mean nothing outside its own list."""
    if not STRATEGY_INFO[strategy].remembers:
        return tuple(items)
    formed = (to_resendable(item) for item in items)
    return tuple(sent for item in formed if item is not None and (sent := to_sendable(item)) is not None)

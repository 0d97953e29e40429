"""Undo, rewind and replacement of a history. Heads move, nothing is deleted.

A client-side history is cut locally. A chain continues from an earlier response, and the next turn forks. Confirmed
items of a conversation cannot be undone here. Undo stops at a compaction: the history before it is another branch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from convo.errors import Conflict, InvalidUsage, WrongOwner
from convo.history.items import Item, is_user_message, item_type, to_resendable, to_sendable
from convo.history.records import STRATEGY_INFO, Link, Strategy
from convo.history.tree import Path, common_prefix_length
from convo.strategies.state import ConversationState, last_answer_depth


def undo_last_answer(state: ConversationState, last: Link | None) -> ConversationState:
    """Return `state` as of the last input, without the items after it.

    last:  the last confirmed link, if any
    Raises InvalidUsage when there is no input, and WrongOwner when a conversation has confirmed the turn.
    """
    if state.unconfirmed_nodes:
        kept = state.path.first(_last_user_depth(state.path))
        if len(kept) > max(state.path.depth(state.confirmed_head), compaction_depth(state.path)):
            return replace(state, path=kept)
    back = _before_last_confirmed_turn(state, last)
    inputs = (
        state.path.up_to(last.input_head)
        if last and state.is_server_side
        else state.path.first(_last_user_depth(state.path))
    )
    return replace(back, path=inputs)


def undo_last_turn(state: ConversationState, last: Link | None) -> ConversationState:
    """Return `state` without the last turn. Raises the errors of `undo_last_answer`."""
    if state.unconfirmed_nodes:
        return replace(state, path=_without_last_input(state))
    return _before_last_confirmed_turn(state, last)


def _without_last_input(held: ConversationState) -> Path:
    """Return the path without the last input. Complete turns before it stay, also where a new root begins with them.

    Raises InvalidUsage when there is no input after the last compaction.
    """
    kept = max(last_answer_depth(held), held.path.depth(held.confirmed_head), compaction_depth(held.path))
    return _shorten_path(held.path, kept if kept < len(held.path) else _last_turn_start(held.path))


def _before_last_confirmed_turn(held: ConversationState, last: Link | None) -> ConversationState:
    if held.strategy is Strategy.CONVERSATION and len(held.path):
        raise WrongOwner(
            "the last turn belongs to the conversation at its endpoint and cannot be taken back here",
            hint=f"convo convert {held.handle} --to session, and take it back there",
        )
    if _is_restarted_chain(held) or (held.strategy is Strategy.CHAIN and last and not last.previous_response_id):
        path = _shorten_path(held.path, _last_turn_start(held.path))
        return replace(held, path=path, confirmed_head=path.root, handle=None)
    if held.strategy is Strategy.CHAIN and last:
        path = held.path.first(held.path.depth(last.input_head) - last.sent_count)
        return replace(held, path=path, confirmed_head=path.head, handle=last.previous_response_id)
    path = _shorten_path(held.path, _last_turn_start(held.path))
    return replace(held, path=path, confirmed_head=path.head)


def _is_restarted_chain(held: ConversationState) -> bool:
    """Return whether a chain has a history for which there is no response yet."""
    return held.strategy is Strategy.CHAIN and held.confirmed_head == held.path.root and bool(len(held.path))


def _shorten_path(path: Path, count: int) -> Path:
    """Return the first `count` nodes. Raises InvalidUsage when that is the whole path."""
    if count == len(path):
        since = "since it was compacted" if compaction_depth(path) else "yet"
        raise InvalidUsage(f"nothing was said {since}", hint="type a message")
    return path.first(count)


def compaction_depth(path: Path) -> int:
    """Return the number of nodes up to and including the last compaction."""
    return next((at for at in range(len(path), 0, -1) if _is_compaction(_item_at(path, at))), 0)


def _is_compaction(item: Item) -> bool:
    from convo.compaction.window import is_summary  # imported here, since a list of sessions does not need it

    return item_type(item) == "compaction" or is_summary(item)


def _last_user_depth(path: Path) -> int:
    """Return the number of nodes up to and including the last user message; 0 without one."""
    return next((at for at in range(len(path), 0, -1) if is_user_message(_item_at(path, at))), 0)


def _last_turn_start(path: Path) -> int:
    """Return the number of nodes before the last run of user messages, which ends at a compaction."""
    at, least = _last_user_depth(path), compaction_depth(path)
    if at <= least:
        return len(path)
    while at > least and is_user_message(_item_at(path, at)):
        at -= 1
    return at


def _item_at(path: Path, place: int) -> Item:
    return path.nodes[place - 1].item


def rewind_to_depth(state: ConversationState, depth: int, next_link: Link | None) -> ConversationState:
    """Return `state` as of its first `depth` nodes.

    depth:      between two turns
    next_link:  the link that continued from there, if any
    Raises WrongOwner when a conversation has confirmed the nodes after it, and InvalidUsage when there are none,
    when `depth` is before a compaction, or when no response of a chain ends there.
    """
    if depth == len(state.path):
        raise InvalidUsage("nothing stands behind that turn", hint="/rewind N, with an earlier one")
    path = state.path.first(depth)
    if depth < compaction_depth(state.path):
        raise InvalidUsage("what was said before a compaction is another branch", hint="convo inspect shows it")
    if depth >= state.path.depth(state.confirmed_head):
        return replace(state, path=path)
    if state.strategy is Strategy.CONVERSATION:
        raise WrongOwner(
            "these turns belong to the conversation at its endpoint and cannot be taken back here",
            hint=f"convo convert {state.handle} --to session, and take them back there",
        )
    if state.strategy is Strategy.CHAIN:
        return _rewind_chain(state, depth, next_link)
    return replace(state, path=path, confirmed_head=path.head)


def _rewind_chain(held: ConversationState, at: int, began: Link | None) -> ConversationState:
    """Rewind a chain to the response that ended there.

    A chain whose first response is later starts anew, and sends the whole history again.
    """
    path = held.path.first(at)
    if at == 0 or (began is not None and began.previous_response_id is None):
        return replace(held, path=path, confirmed_head=path.root, handle=None)
    if began is None or held.path.depth(began.input_head) - began.sent_count != at:
        raise InvalidUsage("no response of this chain ends there", hint="convo inspect shows where they end")
    return replace(held, path=path, confirmed_head=path.head, handle=began.previous_response_id)


def replace_history(state: ConversationState, point: Path, replacement: Sequence[Item]) -> ConversationState:
    """Return `state` with `replacement` in place of all items up to `point`.

    Raises Conflict when the history no longer begins with `point`: it was rewound or edited.
    """
    later = items_after_point(state.path, point)
    confirmed = max(0, state.path.depth(state.confirmed_head) - len(point))
    path = Path(state.path.root).append(items_for_owner(replacement, state.strategy))
    marked = path.append(items_for_owner(later[:confirmed], state.strategy))
    whole = marked.append(later[confirmed:])
    if state.strategy is Strategy.CHAIN:
        return replace(state, path=whole, confirmed_head=path.root, handle=None)
    return replace(state, path=whole, confirmed_head=marked.head)


def items_after_point(path: Path, point: Path) -> tuple[Item, ...]:
    """Return the items on `path` after `point`; items before it may have another form.

    Raises Conflict when `path` does not begin with `point`.
    """
    shared = path.common_depth(point)
    if shared < len(point):
        shared += common_prefix_length(path.items[shared : len(point)], point.items[shared:])
    if shared < len(point):
        raise Conflict(
            "the history was changed while it was compacted: what was folded is no longer what is there",
            hint="compact it again",
        )
    return path.items[len(point) :]


def items_for_owner(items: Iterable[Item], strategy: Strategy) -> tuple[Item, ...]:
    """Return `items` in the form that their owner accepts as new: a server's ids are valid only in its own list."""
    if not STRATEGY_INFO[strategy].is_server_side:
        return tuple(items)
    formed = (to_resendable(item) for item in items)
    return tuple(sent for item in formed if item is not None and (sent := to_sendable(item)) is not None)

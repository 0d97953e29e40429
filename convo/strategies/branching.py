"""Undo, rewind and replacement of a history. Heads move, nothing is deleted.

The part that the owner has confirmed is undone by the strategy. Undo stops at a compaction: the history before it is
another branch.
"""

from collections.abc import Sequence
from dataclasses import replace

from convo.errors import Conflict, InvalidUsage
from convo.history.items import Item
from convo.history.pairing import output_index_by_call
from convo.history.records import Link
from convo.history.tree import Path, common_prefix_length
from convo.strategies.kept_prefix import merge_updates
from convo.strategies.strategy import (
    ConversationState,
    compaction_depth,
    last_answer_depth,
    last_turn_start,
    last_user_depth,
    shorten_path,
)


def undo_last_answer(state: ConversationState, last_link: Link | None) -> ConversationState:
    """Return `state` as of the last input, without the items after it.

    last_link:  the last confirmed link, if any
    Raises InvalidUsage when there is no input, and WrongOwner when a conversation has confirmed the turn.
    """
    if state.unconfirmed_nodes:
        shortened = state.path.first(last_user_depth(state.path))
        if len(shortened) > max(state.path.depth(state.confirmed_head), compaction_depth(state.path)):
            return replace(state, path=shortened)
    undone = state.owner.undo_confirmed_turn(state, last_link)
    input_path = (
        state.path.up_to(last_link.input_head)
        if last_link and state.is_server_side
        else state.path.first(last_user_depth(state.path))
    )
    return replace(undone, path=input_path)


def undo_last_turn(state: ConversationState, last_link: Link | None) -> ConversationState:
    """Return `state` without the last turn. Raises the errors of `undo_last_answer`."""
    if state.unconfirmed_nodes:
        return replace(state, path=_without_last_input(state))
    return state.owner.undo_confirmed_turn(state, last_link)


def _without_last_input(state: ConversationState) -> Path:
    """Return the path without the last input. Complete turns before it stay, also where a new root begins with them.

    Raises InvalidUsage when there is no input after the last compaction.
    """
    depth = max(last_answer_depth(state), state.path.depth(state.confirmed_head), compaction_depth(state.path))
    return shorten_path(state.path, depth if depth < len(state.path) else last_turn_start(state.path))


def rewind_to_depth(state: ConversationState, depth: int, next_link: Link | None) -> ConversationState:
    """Return `state` as of its first `depth` nodes.

    depth:      between two turns
    next_link:  the link that continued from there, if any
    Raises WrongOwner when a conversation has confirmed the nodes after it, and InvalidUsage when there are none,
    when `depth` is before a compaction, or when no response of a chain ends there.
    """
    if depth == len(state.path):
        raise InvalidUsage("no turn follows that turn", hint="/rewind N, with an earlier turn")
    path = state.path.first(depth)
    if depth < compaction_depth(state.path):
        raise InvalidUsage("the history before a compaction is another branch", hint="convo inspect shows it")
    if depth >= state.path.depth(state.confirmed_head):
        return replace(state, path=path)
    return state.owner.rewind_confirmed(state, depth, next_link)


def replace_history(state: ConversationState, point: Path, replacement: Sequence[Item]) -> ConversationState:
    """Return `state` with `replacement` in place of all items up to `point`.

    An unconfirmed output whose call was replaced is left out.

    Raises Conflict when the history no longer begins with `point`: it was rewound or edited.
    """
    later = items_after_point(state.path, point)
    confirmed = max(0, state.path.depth(state.confirmed_head) - len(point))
    convert = state.owner.to_new_items
    # OpenAI says to re-add configuration updates after a compaction: its window lacks them, too.
    updates = merge_updates(point.items)
    replacement = replacement if merge_updates(replacement) == updates else [*replacement, *updates]
    path = Path(state.path.root).append([*convert(replacement), *convert(later[:confirmed])])
    new_path = path.append(later[confirmed:])
    orphans = {output for call, output in output_index_by_call(new_path.items).items() if call < 0}
    unconfirmed = [item for index, item in enumerate(new_path.items[len(path) :], len(path)) if index not in orphans]
    return state.owner.replace_path(state, path.append(unconfirmed), len(path))


def items_after_point(path: Path, point: Path) -> tuple[Item, ...]:
    """Return the items on `path` after `point`; items before it may have another form.

    Raises Conflict when `path` does not begin with `point`.
    """
    shared = path.common_depth(point)
    if shared < len(point):
        shared += common_prefix_length(path.items[shared : len(point)], point.items[shared:])
    if shared < len(point):
        raise Conflict(
            "the history changed during the compaction",
            hint="compact it again",
        )
    return path.items[len(point) :]

"""Conversation state, and the owner that a handle belongs to.

`ConversationState` is the value between a session record and every decision of a strategy. All nodes after
`confirmed_head` are unconfirmed, so a failed turn needs no rollback. `resp_` and `conv_` ids belong to the endpoint, a
path is a replay file, anything else is a session's name or id.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from convo.errors import InvalidUsage, WrongOwner
from convo.history.items import Item, Json, is_assistant_message, is_client_output, is_valid_id, item_type
from convo.history.records import STRATEGY_INFO, Strategy
from convo.history.tree import Key, Node, Path


@dataclass(frozen=True)
class ConversationState:
    """A conversation as the client or the store knows it.

    path:            all items, the input of the next turn included
    confirmed_head:  the last node that the owner confirmed; the nodes after it are unconfirmed
    handle:          the `conv_...` or `resp_...` to continue; None before there is one
    """

    strategy: Strategy
    path: Path
    confirmed_head: Key
    handle: str | None = None

    @property
    def unconfirmed_nodes(self) -> tuple[Node, ...]:
        """The nodes after the confirmed head. Raises Conflict when the path does not contain it."""
        return self.path.after(self.confirmed_head)

    @property
    def is_server_side(self) -> bool:
        """Whether the owner stores the history itself."""
        return STRATEGY_INFO[self.strategy].is_server_side


def last_answer_depth(state: ConversationState) -> int:
    """Return the number of nodes up to the last complete response after the confirmed head; 0 without one.

    Only a new root has a response there: it begins with a history of another owner.
    """
    confirmed = state.path.depth(state.confirmed_head)
    return next(
        (at for at in range(len(state.path), confirmed, -1) if is_complete_answer(state.path.nodes[at - 1].item)), 0
    )


def is_complete_answer(item: Item) -> bool:
    """Return whether an item is complete model output."""
    from_client = is_client_output(item) or (item_type(item) == "message" and not is_assistant_message(item))
    return not from_client and item.get("status") in (None, "completed")


@dataclass(frozen=True, slots=True)
class RequestInput:
    """The input of one request.

    items:         in the form in which they are sent
    node_count:    nodes at the end of the path that they represent
    state_fields:  the fields of the request for the state: previous_response_id, conversation, store, include
    """

    items: Sequence[Item]
    node_count: int
    state_fields: Mapping[str, Json]


TURN_HANDLE_PATTERN = re.compile(r"(.+)@(-?\d{1,9})", re.ASCII)
"""A handle and a turn number."""


@dataclass(frozen=True, slots=True)
class OwnerSelection:
    """The owner that the flags select.

    strategy:          named, or implied by the handle; None: that of the session's record
    handle:            None for a new conversation
    use_last_session:  continue the session used last
    """

    strategy: Strategy | None
    handle: str | None = None
    use_last_session: bool = False


def select_owner(flags: Collection[Strategy], handle: str | None, *, use_last_session: bool = False) -> OwnerSelection:
    """Decide the owner from the flags `--replay --session --conversation --chain --from -c`.

    Raises WrongOwner for two owners or a handle of another owner than the flag, and InvalidUsage for -c together
    with --from or a malformed id.
    """
    if handle:
        check_handle(handle)
    belongs = owner_of_handle(handle) if handle else None
    if len(flags) > 1:
        named = " and ".join(f"--{flag}" for flag in sorted(flags))
        raise WrongOwner(
            f"one owner a conversation: {named} exclude each other{_owner_clause(handle)}", hint=_flags_hint(belongs)
        )
    if use_last_session and handle:
        raise InvalidUsage("-c goes on with the session used last; --from names another", hint="use one of them")
    strategy = next(iter(flags), None)
    if strategy and handle and belongs not in (strategy, Strategy.SESSION) and _is_certain_mismatch(strategy, belongs):
        raise WrongOwner(
            f"--{strategy} takes {STRATEGY_INFO[strategy].handle_format}{_owner_clause(handle)}",
            hint=_flags_hint(belongs),
        )
    return OwnerSelection(strategy or _implied_strategy(belongs), handle, use_last_session)


def parse_turn_handle(handle: str) -> tuple[str, int | None]:
    """Split "HANDLE@N" into HANDLE and N; N is None without one. N counts from 1; -1 is all but the last turn."""
    found = TURN_HANDLE_PATTERN.fullmatch(handle)
    return (found[1], int(found[2])) if found else (handle, None)


def check_handle(handle: str) -> None:
    """Raise InvalidUsage for a malformed id of a response or a conversation, such as "conv_1/../../admin"."""
    if owner_of_handle(handle) in ID_NAMES and not is_valid_id(handle):
        shown = repr(handle[:64])[1:-1] + ("..." if len(handle) > 64 else "")
        raise InvalidUsage(
            f"'{shown}' is not the id of a {ID_NAMES[owner_of_handle(handle)]}",
            hint="convo sessions lists what there is",
        )


ID_NAMES = {Strategy.CHAIN: "response", Strategy.CONVERSATION: "conversation"}
"""For each owner whose handles are ids: the kind of object they identify."""


def owner_of_handle(handle: str) -> Strategy:
    """Return the owner of handles of this form."""
    for strategy, owner in STRATEGY_INFO.items():
        if owner.handle_prefix and handle.startswith(owner.handle_prefix):
            return strategy
    if handle.endswith(".json") or "/" in handle or "\\" in handle:
        return Strategy.REPLAY
    return Strategy.SESSION


def _is_certain_mismatch(strategy: Strategy, belongs: Strategy | None) -> bool:
    """Return whether the owners differ for certain: only ids prove an owner, files and sessions may have any name."""
    certain = {Strategy.CONVERSATION, Strategy.CHAIN}
    return belongs in certain or strategy in certain


def _implied_strategy(belongs: Strategy | None) -> Strategy | None:
    """Return the strategy that a handle implies; a session's name implies none, its record has it."""
    return None if belongs is Strategy.SESSION else belongs


def _owner_clause(handle: str | None) -> str:
    if not handle:
        return ""
    belongs = owner_of_handle(handle)
    return f"; {handle!r} belongs to {STRATEGY_INFO[belongs].description} (--{belongs})"


def _flags_hint(belongs: Strategy | None) -> str:
    return f"--{belongs} --from HANDLE" if belongs else "convo chat --help"

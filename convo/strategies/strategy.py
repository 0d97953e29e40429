"""Conversation state, and the four strategies.

`ConversationState` is the value between a session record and every decision. All nodes after `confirmed_head` are
unconfirmed, so a failed turn needs no rollback. One class for each strategy decides everything that depends on the
owner of the state; `STRATEGIES` maps the names to them.

    replay, session     the client owns the history: a request has the whole path, store=false
    conversation        the endpoint's Conversations API owns it: the unconfirmed items, conversation=conv_...
    chain               its Responses API owns it: the unconfirmed items, previous_response_id=resp_...

`confirmed_head` moves only when a response confirms it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, NamedTuple

from convo.errors import InvalidUsage, StateIgnored, WrongOwner
from convo.history.items import (
    CONFIGURATION_TYPES,
    Item,
    Json,
    Response,
    is_assistant_message,
    is_client_output,
    is_compaction,
    is_model_item,
    is_user_message,
    item_type,
    to_resendable,
    to_sendable,
)
from convo.history.pairing import output_index_by_call
from convo.history.records import Link, Strategy
from convo.history.tree import Key, Node, Path


@dataclass(frozen=True)
class ConversationState:
    """A conversation as the client or the store knows it.

    path:            all items, the input of the next turn included
    confirmed_head:  the last node that the owner confirmed; the nodes after it are unconfirmed
    handle:          the `conv_...` or `resp_...` to continue, or the replay file; None before there is one
    """

    strategy: Strategy
    path: Path
    confirmed_head: Key
    handle: str | None = None

    @property
    def owner(self) -> "StateStrategy":
        """The decisions that depend on the owner."""
        return STRATEGIES[self.strategy]

    @property
    def unconfirmed_nodes(self) -> tuple[Node, ...]:
        """The nodes after the confirmed head. Raises Conflict when the path does not contain it."""
        return self.path.after(self.confirmed_head)

    @property
    def is_server_side(self) -> bool:
        """Whether the owner stores the history itself."""
        return self.owner.is_server_side

    @property
    def prepended_nodes(self) -> tuple[Node, ...]:
        """The nodes that the owner prepends to a request; none where the client owns the history."""
        return tuple(self.path.up_to(self.confirmed_head).nodes) if self.is_server_side else ()


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


class RetryAction(Enum):
    """Whether a failed request may be sent again."""

    NO = "no"
    YES = "yes"
    READ_FIRST = "read the owner's tail first"


NOTHING_STORED = "nothing was stored, so it is safe to retry"
"""The reason of a retry without a risk: the request was rejected, or its owner is not the endpoint."""


class RetryDecision(NamedTuple):
    """Whether to send again, and the reason as text."""

    action: RetryAction
    reason: str


# -- the strategies -------------------------------------------------------------------------------


class StateStrategy:
    """Everything that depends on the owner of the state. Pure: no I/O.

    description:         the owner, for messages
    storage_description: where the history is saved, for the first line of a chat
    handle_format:       of the handles of its conversations
    handle_prefix:       of ids at the endpoint; "" for owners at the client
    id_noun:             the kind of object that such an id identifies
    is_server_side:      whether the endpoint stores the history, so that a turn sends only new items
    uses_file:           whether the history is a JSON file, which other programs may send as it is
    uses_conversation:   whether the history is one list at the endpoint: created before the first request, shared with
                         other clients, with one head that is neither forked nor undone
    uses_response:       whether a request continues from a response, and the handle changes with each one; an earlier
                         response can be continued too, which is a fork
    unknown_outcome:     the decision to retry when the endpoint may or may not have processed the request
    """

    description: ClassVar[str]
    storage_description: ClassVar[str]
    handle_format: ClassVar[str]
    handle_prefix: ClassVar[str] = ""
    id_noun: ClassVar[str] = ""
    is_server_side: ClassVar[bool] = False
    uses_file: ClassVar[bool] = False
    uses_conversation: ClassVar[bool] = False
    uses_response: ClassVar[bool] = False
    unknown_outcome: ClassVar[RetryDecision]

    def build_input(
        self, state: ConversationState, *, store: bool = False, encrypt_reasoning: bool = False
    ) -> RequestInput:
        """Build the input of the next request.

        store:              keep a copy at the endpoint although the client owns the history
        encrypt_reasoning:  the model reasons, and can return its reasoning encrypted
        Raises Conflict when the path does not contain the confirmed head.
        """
        raise NotImplementedError

    def to_new_items(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """Return `items` in the form that the owner accepts as new."""
        raise NotImplementedError

    def apply_response(
        self, state: ConversationState, request_input: RequestInput, response: Response
    ) -> ConversationState:
        """Return the state after a response: its output on the path, and the confirmed head after it."""
        raise NotImplementedError

    def validate_response(self, response: Response) -> None:
        """Raise StateIgnored for a response from which the conversation cannot continue."""

    def undo_confirmed_turn(self, state: ConversationState, last_link: Link | None) -> ConversationState:
        """Return `state` without its last turn, which is confirmed. Raises WrongOwner, InvalidUsage.

        last_link:  the last confirmed link, if any
        """
        path = shorten_path(state.path, last_turn_start(state.path))
        return replace(state, path=path, confirmed_head=path.head)

    def rewind_confirmed(self, state: ConversationState, depth: int, next_link: Link | None) -> ConversationState:
        """Return `state` as of its first `depth` nodes, which are confirmed. Raises WrongOwner, InvalidUsage.

        next_link:  the link that continued from there, if any
        """
        path = state.path.first(depth)
        return replace(state, path=path, confirmed_head=path.head)

    def confirmed_at_start(self, count: int) -> int:
        """Return how many of `count` confirmed items of another history are confirmed in one that begins with them."""
        return count

    def replace_path(self, state: ConversationState, path: Path, confirmed_count: int) -> ConversationState:
        """Return `state` with `path`, a new root of which the first nodes were confirmed under the old one."""
        return replace(state, path=path, confirmed_head=path.first(confirmed_count).head)


class ClientSideStrategy(StateStrategy):
    """The client owns the history. Every item keeps its first form; a request has all of them."""

    unknown_outcome = RetryDecision(RetryAction.YES, NOTHING_STORED)

    def build_input(
        self, state: ConversationState, *, store: bool = False, encrypt_reasoning: bool = False
    ) -> RequestInput:
        state_fields: dict[str, Json] = {"store": store}
        # A 400 for a model that does not reason.
        if encrypt_reasoning and not store:
            state_fields["include"] = ["reasoning.encrypted_content"]
        # Derived: only new items are converted. All of them took 114,000 Python calls in turn 1,000, now a turn makes
        # 5,600.
        return RequestInput(state.path.items.derive(_make_resendable_step), len(state.path), state_fields)

    def to_new_items(self, items: Iterable[Item]) -> tuple[Item, ...]:
        return tuple(items)

    def apply_response(
        self, state: ConversationState, request_input: RequestInput, response: Response
    ) -> ConversationState:
        path = state.path.append(response.get("output") or ())
        return replace(state, path=path, confirmed_head=path.head)


class ReplayStrategy(ClientSideStrategy):
    """The application owns the history: a JSON file."""

    description = "the application: a JSON file"
    storage_description = "saved to a file"
    handle_format = "a file"
    uses_file = True


class SessionStrategy(ClientSideStrategy):
    """The local store owns the history."""

    description = "the local store"
    storage_description = "saved locally"
    handle_format = "a session's name or id"


class ServerSideStrategy(StateStrategy):
    """The endpoint owns the history. A request has the unconfirmed items and names what it continues."""

    is_server_side = True

    def state_fields(self, handle: str | None) -> dict[str, Json]:
        """Return the fields of a request that name the history to continue."""
        raise NotImplementedError

    def build_input(
        self, state: ConversationState, *, store: bool = False, encrypt_reasoning: bool = False
    ) -> RequestInput:
        nodes = state.unconfirmed_nodes
        forms = to_sendable_forms([node.item for node in nodes])
        items = tuple(item for item in forms if item is not None)
        return RequestInput(items, len(nodes), self.state_fields(state.handle))

    def to_new_items(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """Return `items` without the server's ids, which are valid only in its own list."""
        return to_resendable_items(items)

    def apply_response(
        self, state: ConversationState, request_input: RequestInput, response: Response
    ) -> ConversationState:
        """Return the state after a response.

        The owner's copy has the input in the form in which it was sent, and so does the path, so that both are the
        same nodes.
        """
        confirmed = state.path.up_to(state.confirmed_head)
        path = confirmed.append(request_input.items).append(response.get("output") or ())
        return replace(state, path=path, confirmed_head=path.head)


class ConversationStrategy(ServerSideStrategy):
    """The endpoint's Conversations API owns the history: one list of items."""

    description = "the endpoint's Conversations API"
    storage_description = f"saved by {description}"
    handle_format = "conv_..."
    handle_prefix = "conv_"
    id_noun = "conversation"
    uses_conversation = True
    unknown_outcome = RetryDecision(RetryAction.READ_FIRST, "the endpoint may have processed it")

    def state_fields(self, handle: str | None) -> dict[str, Json]:
        return {"conversation": handle}

    def undo_confirmed_turn(self, state: ConversationState, last_link: Link | None) -> ConversationState:
        if not len(state.path):
            return super().undo_confirmed_turn(state, last_link)
        raise WrongOwner(
            "the endpoint stores the last turn, so it cannot be undone here",
            hint=f"convo convert {state.handle} --to session, then undo it there",
        )

    def rewind_confirmed(self, state: ConversationState, depth: int, next_link: Link | None) -> ConversationState:
        raise WrongOwner(
            "the endpoint stores these turns, so they cannot be undone here",
            hint=f"convo convert {state.handle} --to session, then undo them there",
        )


class ChainStrategy(ServerSideStrategy):
    """The endpoint's Responses API owns the history: each response names the previous one.

    A chain can begin with a history for which there is no response yet: nothing is confirmed, and the first request
    sends all of it.
    """

    description = "the endpoint's Responses API"
    storage_description = f"saved by {description}"
    handle_format = "resp_..."
    handle_prefix = "resp_"
    id_noun = "response"
    uses_response = True
    unknown_outcome = RetryDecision(RetryAction.YES, "a second response would only be a fork")

    def state_fields(self, handle: str | None) -> dict[str, Json]:
        return {"previous_response_id": handle} if handle else {}

    def apply_response(
        self, state: ConversationState, request_input: RequestInput, response: Response
    ) -> ConversationState:
        """Return the state after a response, which the next request continues."""
        return replace(
            super().apply_response(state, request_input, response), handle=response.get("id") or state.handle
        )

    def validate_response(self, response: Response) -> None:
        if not response.get("id"):
            raise StateIgnored("the response has no id, and a chain needs one to continue")

    def undo_confirmed_turn(self, state: ConversationState, last_link: Link | None) -> ConversationState:
        is_restarted = state.confirmed_head == state.path.root and len(state.path)
        if is_restarted or (last_link and not last_link.previous_response_id):
            return self._restart(state, shorten_path(state.path, last_turn_start(state.path)))
        if last_link is None:
            return super().undo_confirmed_turn(state, last_link)
        path = state.path.first(state.path.depth(last_link.input_head) - last_link.sent_count)
        return replace(state, path=path, confirmed_head=path.head, handle=last_link.previous_response_id)

    def rewind_confirmed(self, state: ConversationState, depth: int, next_link: Link | None) -> ConversationState:
        """Return `state` as of the response that ended there; before the first response the chain restarts."""
        path = state.path.first(depth)
        if depth == 0 or (next_link is not None and next_link.previous_response_id is None):
            return self._restart(state, path)
        if next_link is None or state.path.depth(next_link.input_head) - next_link.sent_count != depth:
            raise InvalidUsage("no response of this chain ends there", hint="convo inspect shows the responses")
        return replace(state, path=path, confirmed_head=path.head, handle=next_link.previous_response_id)

    def confirmed_at_start(self, count: int) -> int:
        return 0

    def replace_path(self, state: ConversationState, path: Path, confirmed_count: int) -> ConversationState:
        return self._restart(state, path)

    def _restart(self, state: ConversationState, path: Path) -> ConversationState:
        """Return `state` with `path` and without a response: the next request sends the whole path."""
        return replace(state, path=path, confirmed_head=path.root, handle=None)


STRATEGIES: dict[Strategy, StateStrategy] = {
    Strategy.REPLAY: ReplayStrategy(),
    Strategy.SESSION: SessionStrategy(),
    Strategy.CONVERSATION: ConversationStrategy(),
    Strategy.CHAIN: ChainStrategy(),
}


# -- forms of items -------------------------------------------------------------------------------


def to_resendable_items(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return `items` in the form in which a client sends them to an endpoint that does not have them."""
    resendable = (to_resendable(item) for item in to_sendable_forms(tuple(items)) if item is not None)
    return tuple(item for item in resendable if item is not None)


def _make_resendable_step() -> Callable[[Sequence[Item]], tuple[Item, ...]]:
    return to_resendable_items


def to_sendable_forms(items: Sequence[Item]) -> list[Item | None]:
    """Return each item in the form for a server that never confirmed it; None for one that is left out.

    A server refuses the output of a call that is left out, and reasoning that no item of the model follows.
    """
    forms = [to_sendable(item) for item in items]
    for call_index, output_index in output_index_by_call(items).items():
        if call_index >= 0 and forms[call_index] is None:
            forms[output_index] = None
    is_followed = False
    for index, item in reversed(list(enumerate(items))):
        if forms[index] is None:
            continue
        if item_type(item) == "reasoning":
            forms[index] = item if is_followed else None
        else:
            is_followed = is_model_item(item)
    return forms


# -- turns on a path ------------------------------------------------------------------------------


def last_answer_depth(state: ConversationState) -> int:
    """Return the number of nodes up to the last complete response after the confirmed head; 0 without one.

    Only a new root has a response there: it begins with a history of another owner.
    """
    confirmed = state.path.depth(state.confirmed_head)
    return next(
        (
            depth
            for depth in range(len(state.path), confirmed, -1)
            if is_complete_answer(state.path.nodes[depth - 1].item)
        ),
        0,
    )


def is_complete_answer(item: Item) -> bool:
    """Return whether an item is complete model output."""
    is_message = item_type(item) == "message" and not is_assistant_message(item)
    from_client = is_message or is_client_output(item) or item_type(item) in CONFIGURATION_TYPES
    return not from_client and item.get("status") in (None, "completed")


def compaction_depth(path: Path) -> int:
    """Return the number of nodes up to and including the last compaction."""
    return next((depth for depth in range(len(path), 0, -1) if is_compaction(path.nodes[depth - 1].item)), 0)


def last_user_depth(path: Path) -> int:
    """Return the number of nodes up to and including the last user message; 0 without one."""
    return next((depth for depth in range(len(path), 0, -1) if is_user_message(path.nodes[depth - 1].item)), 0)


def last_turn_start(path: Path) -> int:
    """Return the number of nodes before the last run of user messages, which ends at a compaction."""
    depth, least_depth = last_user_depth(path), compaction_depth(path)
    if depth <= least_depth:
        return len(path)
    while depth > least_depth and is_user_message(path.nodes[depth - 1].item):
        depth -= 1
    return depth


def shorten_path(path: Path, count: int) -> Path:
    """Return the first `count` nodes. Raises InvalidUsage when that is the whole path."""
    if count == len(path):
        since = "since the compaction" if compaction_depth(path) else "yet"
        raise InvalidUsage(f"the conversation has no message {since}", hint="type a message")
    return path.first(count)

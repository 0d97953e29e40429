"""The body of a request, retries, and items that a response left out.

A retry is safe where the endpoint stores nothing; on a conversation the owner's latest items are read first and merged
with `reconcile`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile

from convo.errors import (
    NO_CONNECTION,
    ConvoError,
    KeyRefused,
    ModelFault,
    PrefixChanged,
    TryLater,
    Unreachable,
    Unreadable,
)
from convo.history.items import (
    Item,
    Json,
    get_call_id,
    is_model_item,
    is_user_message,
    item_type,
    to_sendable,
)
from convo.history.pairing import (
    OUTPUT_BY_CALL,
    build_text_output,
    open_client_calls,
    output_index_by_call,
    program_call_id,
)
from convo.history.records import Strategy
from convo.history.tree import JoinedList, common_prefix_length, is_same_item
from convo.strategies.strategy import (
    NOTHING_STORED,
    STRATEGIES,
    ConversationState,
    RequestInput,
    RetryAction,
    RetryDecision,
    last_user_depth,
)


def build_request_body(
    request_input: RequestInput, *, model: str, instructions: str | None, parameters: Mapping[str, Json]
) -> dict[str, Json]:
    """Build the request body. The field is in every request that has instructions: no owner keeps it for the next."""
    instruction_field = {"instructions": instructions} if instructions else {}
    body = {
        "model": model,
        **instruction_field,
        "input": JoinedList(request_input.items),
        **request_input.state_fields,
        **parameters,
    }
    include = [*request_input.state_fields.get("include", ()), *(parameters.get("include") or ())]
    return {**body, "include": list(dict.fromkeys(include))} if include else body


def add_cache_options(body: Mapping[str, Json], options: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return `body` with further `prompt_cache_options`."""
    return (
        {**body, "prompt_cache_options": {**(body.get("prompt_cache_options") or {}), **options}} if options else body
    )


def apply_cancellation(state: ConversationState, output: Sequence[Item]) -> ConversationState:
    """Return the state after a cancelled response: its partial output as incomplete items, the same confirmed head."""
    partial = ({**item, "status": "incomplete"} for item in output if to_sendable({**item, "status": "incomplete"}))
    return replace(state, path=state.path.append(partial))


NOT_RUN_MESSAGE = "The tool was not run."


def build_open_call_outputs(state: ConversationState, new_items: Sequence[Item]) -> tuple[Item, ...]:
    """Return an output for each call since the last user message that neither the history nor `new_items` answers.

    A server refuses a message after a call without one. A call that was cut is answered only if the owner has it: it is
    not sent otherwise.
    """
    owned_depth = state.path.depth(state.confirmed_head) if state.is_server_side else 0
    start = last_user_depth(state.path)
    nodes = enumerate(state.path.nodes[start:], start)
    known = [node.item for depth, node in nodes if depth < owned_depth or to_sendable(node.item)]
    answers = [item for item in new_items if not is_model_item(item)]
    return tuple(build_text_output(call, NOT_RUN_MESSAGE) for call in open_client_calls((*known, *answers)))


def answer_owned_calls(state: ConversationState) -> ConversationState:
    """Return `state` with an output before its unconfirmed input for each call that only its owner knew of."""
    unconfirmed = [node.item for node in state.unconfirmed_nodes]
    if not unconfirmed:
        return state
    confirmed_path = state.path.up_to(state.confirmed_head)
    outputs = build_open_call_outputs(replace(state, path=confirmed_path), unconfirmed)
    return replace(state, path=confirmed_path.append((*outputs, *unconfirmed)))


OUTPUT_TYPES = frozenset(OUTPUT_BY_CALL.values())


def newest_sendable_items(items: Sequence[Item], limit: int | None) -> list[Item]:
    """Return the sendable items among the newest `limit` of `items`; None: among all."""
    newest = items if limit is None else items[max(len(items) - limit, 0) :]
    return _drop_unpaired_items(newest, is_truncated=len(newest) < len(items))


def _drop_unpaired_items(items: Sequence[Item], *, is_truncated: bool) -> list[Item]:
    """Return `items` without calls that have no output, and without the reasoning directly before those calls.

    A program without its output is dropped with all its calls. Of two outputs of one call the later one is kept.

    is_truncated:  older items were left out, so an output without its call is dropped; otherwise it is kept, for the
                   owner to reject
    """
    found = output_index_by_call(items)
    outputs = set(found.values())
    lost = {get_call_id(item) for at, item in enumerate(items) if item_type(item) == "program" and at not in found}
    kept: list[Item] = []
    for at, item in enumerate(items):
        program = program_call_id(item)
        owned = program is not None and program in lost
        if owned or (
            item_type(item) in OUTPUT_BY_CALL and at not in found and not (program and _is_pending_shell_call(item))
        ):
            while kept and item_type(kept[-1]) == "reasoning":
                kept.pop()
        elif item_type(item) not in OUTPUT_TYPES or (at in outputs and not (is_truncated and found.get(-1 - at) == at)):
            kept.append(item)
    return kept


def drop_superseded_outputs(items: Sequence[Item]) -> list[Item]:
    """Return `items` with one output for each call, the later one."""
    output_indexes = set(output_index_by_call(items).values())
    return [item for index, item in enumerate(items) if item_type(item) not in OUTPUT_TYPES or index in output_indexes]


def _is_pending_shell_call(item: Item) -> bool:
    """Return whether a call of the provider's shell may still lack its output."""
    return item_type(item) == "shell_call" and item.get("status") in (None, "in_progress")


def decide_retry(strategy: Strategy, failure: ConvoError) -> RetryDecision:
    """Decide whether to retry after an attempt that failed before the first output event."""
    if not isinstance(failure, TryLater | Unreachable):
        return RetryDecision(RetryAction.NO, "the same request would be rejected again")
    # Four tries against a closed port kept a person waiting for seven seconds.
    if failure.code == NO_CONNECTION:
        return RetryDecision(RetryAction.NO, "there is no connection")
    if failure.code == "conversation_locked" or failure.status == 429:
        return RetryDecision(RetryAction.YES, NOTHING_STORED)
    return STRATEGIES[strategy].unknown_outcome


UNSENT_CODES = (NO_CONNECTION, "model_not_found", PrefixChanged.code)


def is_unsent_request(failure: ConvoError) -> bool:
    """Return whether no model was called: no connection, an unknown model, or a refused key, prefix or request."""
    return failure.code in UNSENT_CODES or isinstance(failure, KeyRefused | ModelFault | Unreadable)


def reconcile(state: ConversationState, tail: Sequence[Item]) -> ConversationState:
    """Return `state` with the owner's tail on its path, followed by the items that the owner lacks.

    tail:  the owner's items after the confirmed head, oldest first; items of other clients may be among them
    """
    if not tail:
        return state
    missing = _missing_at_owner([node.item for node in state.unconfirmed_nodes], tail)
    confirmed = state.path.up_to(state.confirmed_head).append(tail)
    return replace(state, path=confirmed.append(missing), confirmed_head=confirmed.head)


def items_after_confirmed(state: ConversationState, newest_first: Sequence[Item]) -> list[Item] | None:
    """Return the owner's items after the confirmed head, oldest first; None when they do not reach back to it."""
    if state.confirmed_head == state.path.root:
        return list(reversed(newest_first))
    confirmed_item = state.path.up_to(state.confirmed_head).nodes[-1].item
    for index, item in enumerate(newest_first):
        if _is_same_answer(item, confirmed_item):
            return list(reversed(newest_first[:index]))
    return None


def _missing_at_owner(unconfirmed: list[Item], tail: Sequence[Item]) -> list[Item]:
    """Return the items of `unconfirmed` that the owner lacks.

    A partial response is dropped where the owner has the complete one.
    """
    if not unconfirmed:
        return unconfirmed
    start = next((index for index, item in enumerate(tail) if is_same_item(item, unconfirmed[0])), len(tail))
    shared_count = common_prefix_length(unconfirmed, tail[start:])
    remaining = unconfirmed[shared_count:]
    is_answered = len(tail) > start + shared_count
    return list(dropwhile(lambda item: not is_user_message(item), remaining)) if is_answered else remaining


def _is_same_answer(item: Item, other: Item) -> bool:
    """Compare two items by id where both have one, since two responses may have the same text."""
    ids = (item.get("id"), other.get("id"))
    return ids[0] == ids[1] if all(ids) else is_same_item(item, other)

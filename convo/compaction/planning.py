"""Compaction planning: when to compact, by which method, and which turns to keep.

    in place    the endpoint compacts its own conversation; the handle stays
    previous    the endpoint of a chain compacts by response id; no item is sent
    input       an endpoint with a compaction API is sent the items
    summary     any model writes a plain summary, which becomes a message of the history

Instructions are never summarized. Nothing is compacted while a call has no output. Pure functions, no I/O.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from convo.compaction.window import (
    cut_points,
    is_instruction,
    summary_message,
    turn_starts,
)
from convo.errors import InvalidUsage, StateFault
from convo.history.items import (
    MCP_APPROVAL_REQUEST,
    Item,
    is_client_call,
    is_incomplete_item,
    is_summary,
    is_user_message,
    item_type,
)
from convo.history.pairing import output_index_by_call, pair_id
from convo.history.records import Strategy
from convo.history.tree import Key, Path
from convo.strategies.strategy import STRATEGIES
from convo.usage.cost import Usage


class CompactionMode(StrEnum):
    """The requested input of a compaction."""

    AUTO = "auto"
    PREVIOUS = "previous_response_id"
    INPUT = "input"


class CompactionMethod(StrEnum):
    """The method of a compaction."""

    IN_PLACE = "in place"
    PREVIOUS = "previous_response_id"
    INPUT = "input"
    SUMMARY = "summary"


class CompactionOptions(NamedTuple):
    """The options of a compaction.

    focus:       the subject that a summary covers in most detail
    keep_turns:  how many of the last turns stay unchanged
    """

    mode: CompactionMode = CompactionMode.AUTO
    focus: str | None = None
    keep_turns: int = 0


class HistorySnapshot(NamedTuple):
    """The history to compact.

    path:              all that its owner has confirmed
    is_embedded:       its endpoint is convo's own
    stored_responses:  the responses that the endpoint can look up, by the node at which each of them ended
    """

    strategy: Strategy
    path: Path
    is_embedded: bool
    stored_responses: Mapping[Key, str]


class CompactionPlan(NamedTuple):
    """The plan of a compaction.

    compacted_items:       replaced by the result, oldest first
    kept_items:            the turns after it that stay
    previous_response_id:  the response whose whole context is compacted
    """

    method: CompactionMethod
    compacted_items: tuple[Item, ...]
    kept_items: tuple[Item, ...] = ()
    previous_response_id: str | None = None
    focus: str | None = None


def plan_compaction(snapshot: HistorySnapshot, options: CompactionOptions) -> CompactionPlan:
    """Choose the method, and the items to compact.

    Raises StateFault when a call has no output, and InvalidUsage when there is nothing to compact or the requested
    mode is not possible.
    """
    items = snapshot.path.items
    _check_no_pending_calls(items, is_server_side=STRATEGIES[snapshot.strategy].is_server_side)
    cut = _compacted_count(items, options.keep_turns)
    if not any(map(_is_compactable, items[:cut])):
        raise InvalidUsage(
            "nothing to compact before the kept turns" if options.keep_turns else "nothing to compact yet",
            hint="use a smaller --keep-last" if options.keep_turns else "continue the conversation first",
        )
    previous = snapshot.stored_responses.get(snapshot.path.first(cut).head)
    method = _choose_method(snapshot, options, items[:cut], previous)
    return CompactionPlan(
        method, items[:cut], items[cut:], previous if method is CompactionMethod.PREVIOUS else None, options.focus
    )


def plan_from_items(plan: CompactionPlan, *, is_embedded: bool) -> CompactionPlan:
    """Return the plan with the client's own items, for an endpoint that no longer has the chain."""
    method = (
        CompactionMethod.SUMMARY
        if is_embedded and not _has_compaction_item(plan.compacted_items)
        else CompactionMethod.INPUT
    )
    return CompactionPlan(method, plan.compacted_items, plan.kept_items, None, plan.focus)


def build_replacements(plan: CompactionPlan, item_tokens: Sequence[int], summary: str) -> tuple[tuple[Item, ...], ...]:
    """Return the possible replacements of the history with a summary, the longer one first.

    item_tokens:  tokens of each compacted item
    """
    parts = split_for_summary(plan.compacted_items, item_tokens)
    alternatives = (parts.user_messages, ()) if parts.user_messages else ((),)
    return tuple(
        (*parts.instructions, *user_messages, summary_message(summary), *plan.kept_items)
        for user_messages in alternatives
    )


def _check_no_pending_calls(items: Sequence[Item], *, is_server_side: bool) -> None:
    """Raise StateFault for a call without an output. A call that was cut needs one only where the server has it."""
    with_output = output_index_by_call(items)
    for index, item in enumerate(items):
        if index in with_output:
            continue
        if item_type(item) == MCP_APPROVAL_REQUEST:
            raise StateFault(
                f"{item.get('name')} needs approval ({item.get('id')})",
                hint="approve or reject it first, then compact",
            )
        if is_client_call(item) and (is_server_side or not is_incomplete_item(item)):
            raise StateFault(
                f"call {pair_id(item)} of {item.get('name') or item_type(item)} has no output",
                hint="send a message or run convo repair, then compact",
            )


def _compacted_count(items: Sequence[Item], keep_turns: int) -> int:
    """Return the number of items to compact, so that `keep_turns` whole turns stay."""
    starts = turn_starts(items)
    if not keep_turns:
        return len(items)
    return starts[-keep_turns] if keep_turns < len(starts) else 0


def _is_compactable(item: Item) -> bool:
    """Return whether compacting the item saves space: an earlier compaction alone does not."""
    return (
        item_type(item) != "compaction"
        and not is_user_message(item)
        and item.get("role") not in ("system", "developer")
    )


def _choose_method(
    snapshot: HistorySnapshot, options: CompactionOptions, compacted_items: Sequence[Item], previous: str | None
) -> CompactionMethod:
    strategy = STRATEGIES[snapshot.strategy]
    if options.mode is CompactionMode.PREVIOUS:
        _check_previous_response(snapshot, options, previous)
        return CompactionMethod.PREVIOUS
    if options.focus:
        if _has_compaction_item(compacted_items):
            raise InvalidUsage(
                "an earlier compaction is encrypted, so --focus cannot apply to it", hint="compact without --focus"
            )
        return CompactionMethod.SUMMARY
    if options.mode is CompactionMode.AUTO and strategy.uses_conversation and not options.keep_turns:
        return CompactionMethod.IN_PLACE
    if options.mode is CompactionMode.AUTO and strategy.uses_response and previous:
        return CompactionMethod.PREVIOUS
    return (
        # A summary needs text, and an earlier compaction item is encrypted: only its endpoint reads it.
        CompactionMethod.SUMMARY
        if snapshot.is_embedded and not _has_compaction_item(compacted_items)
        else CompactionMethod.INPUT
    )


def _check_previous_response(snapshot: HistorySnapshot, options: CompactionOptions, previous: str | None) -> None:
    if options.focus:
        raise InvalidUsage("--focus and --mode previous_response_id cannot be used together", hint="use --mode input")
    if STRATEGIES[snapshot.strategy].uses_conversation:
        raise InvalidUsage("a conversation cannot be compacted by response id", hint="use --mode auto")
    if previous is None:
        raise InvalidUsage(
            "the endpoint stores no response at the end of this history: it was edited, or sent with store=false",
            hint="use --mode input",
        )


def _has_compaction_item(items: Sequence[Item]) -> bool:
    return any(item_type(item) == "compaction" for item in items)


CompactionThreshold: TypeAlias = float | int
"""Up to 1: a fraction of the context window; more than 1: tokens; 0: never."""


def tokens_if_over_threshold(threshold: CompactionThreshold, usage: Usage | None, window: int | None) -> int | None:
    """Return the tokens of the history if they reach the threshold, otherwise None.

    usage:   of the last response
    window:  tokens of the model's context window, if known
    """
    bound = threshold_tokens(threshold, window)
    if usage is None or bound is None:
        return None
    return usage.input_tokens + usage.output_tokens if usage.input_tokens + usage.output_tokens >= bound else None


def threshold_tokens(threshold: CompactionThreshold, window: int | None) -> int | None:
    """Return the threshold in tokens; None without one."""
    if threshold <= 0:
        return None
    if threshold > 1:
        return int(threshold)
    return None if window is None else int(window * threshold)


def truncate_to_fit(items: Sequence[Item], item_tokens: Sequence[int], limit_tokens: int) -> tuple[Item, ...] | None:
    """Return as many of the last turns of `items` as fit, after the instructions of the turns that are left out.

    item_tokens:   tokens of each item
    limit_tokens:  tokens of all of them together
    Returns None when not even the last turn fits.
    """
    are_instructions = [is_instruction(item) for item in items]
    needed_tokens = sum(item_tokens)
    for start, end in pairwise((*turn_starts(items), len(items))):
        if needed_tokens <= limit_tokens:
            return tuple(item for index, item in enumerate(items) if index >= start or are_instructions[index])
        needed_tokens -= sum(item_tokens[index] for index in range(start, end) if not are_instructions[index])
    return None if items else ()


def keep_last_turn(items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the last turn of `items`, after the instructions of the turns before it."""
    start = turn_starts(items)[-1] if items else 0
    return tuple(item for index, item in enumerate(items) if index >= start or is_instruction(item))


MAX_USER_MESSAGE_TOKENS = 20_000
"""Tokens of the user's own messages that are kept with a summary."""


class HistorySplit(NamedTuple):
    """A history in four parts, each oldest first; `user_messages` are in `summarized_items` too."""

    instructions: tuple[Item, ...]
    summarized_items: tuple[Item, ...]
    user_messages: tuple[Item, ...]
    kept_items: tuple[Item, ...]


def split_for_summary(
    items: Sequence[Item],
    item_tokens: Sequence[int],
    *,
    keep_tokens: int | None = None,
    user_message_tokens: int = MAX_USER_MESSAGE_TOKENS,
) -> HistorySplit:
    """Split `items` for a summary.

    item_tokens:          tokens of each item
    keep_tokens:          None: everything is summarized. Otherwise the last turn is kept; if it has more tokens
                          than this, it is cut between its steps, and only as many of the last steps are kept as fit
    user_message_tokens:  tokens of the user's messages that are kept with the summary
    """
    end = len(items) if keep_tokens is None else _kept_start(items, item_tokens, keep_tokens)
    summarized = [
        (item, size) for item, size in zip(items[:end], item_tokens, strict=False) if not is_instruction(item)
    ]
    return HistorySplit(
        instructions=tuple(filter(is_instruction, items[:end])),
        summarized_items=tuple(item for item, _ in summarized),
        user_messages=_newest_that_fit(
            [(item, size) for item, size in summarized if is_user_message(item) and not is_summary(item)],
            user_message_tokens,
        ),
        kept_items=tuple(items[end:]),
    )


def _kept_start(items: Sequence[Item], sizes: Sequence[int], keep_tokens: int) -> int:
    """Return the start of the last turn, or of its earliest step from which on it has at most `keep_tokens` tokens."""
    if not items:
        return 0
    start = turn_starts(items)[-1]
    needed_tokens, cuts = sum(sizes[start:]), [cut for cut in cut_points(items) if start <= cut < len(items)]
    for cut, next_cut in pairwise((*cuts, len(items))):
        if needed_tokens <= keep_tokens:
            return cut
        needed_tokens -= sum(sizes[cut:next_cut])
    return cuts[-1]


def _newest_that_fit(messages: Sequence[tuple[Item, int]], remaining_tokens: int) -> tuple[Item, ...]:
    chosen: list[Item] = []
    for item, size in reversed(messages):
        remaining_tokens -= size
        if remaining_tokens < 0:
            break
        chosen.append(item)
    return tuple(reversed(chosen))

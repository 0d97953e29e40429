"""Lint rules for calls and their outputs.

A call without output gets an "interrupted" output of the matching type, or is dropped if convo cannot create one
(screenshots, hosted calls).
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile

from convo.history.items import (
    MCP_APPROVAL_REQUEST,
    MCP_APPROVAL_RESPONSE,
    Item,
    describe_item_type,
    is_assistant_message,
    is_client_call,
    is_incomplete_item,
    item_type,
)
from convo.history.pairing import (
    ALL_PAIRS,
    OUTPUT_BY_HOSTED_CALL,
    RESPONSE_BY_APPROVAL_REQUEST,
    SEARCH_CALL,
    SEARCH_OUTPUT,
    build_text_output,
    pair_id,
    program_call_id,
)
from convo.lint.chain import continue_before
from convo.lint.model import (
    ItemEdits,
    LintIssue,
    LintView,
    RepairChange,
    apply_edits,
    item_issues,
)

CALL_WITHOUT_OUTPUT = "call-without-output"

INTERRUPTED_MESSAGE = "The call was interrupted before it gave an output."


def check_call_without_output(view: LintView) -> Iterator[LintIssue]:
    """Report each call without a later output.

    An incomplete call is reported only if the items are sent verbatim: otherwise it is not sent as a call.

    An approval request may stay pending as long as no item of another type follows, a program as long as only its
    calls and their outputs do. OpenAI accepts a search that it ran without the output.
    """
    yield from _check_split_pairs(view)
    last_index = max(
        (index for index, item in enumerate(view.items) if item_type(item) not in RESPONSE_BY_APPROVAL_REQUEST),
        default=-1,
    )
    for index, item in view.items_of_type(*ALL_PAIRS):
        call_id = pair_id(item)
        if (
            index in view.output_indexes
            or call_id in view.pending_call_ids
            or (call_id is None and item_type(item) not in OUTPUT_BY_HOSTED_CALL)
            or (item_type(item) == SEARCH_CALL and item.get("execution") == "server")
        ):
            continue
        if item_type(item) in RESPONSE_BY_APPROVAL_REQUEST and index > last_index:
            continue
        later = view.items[index + 1 :] if item_type(item) == "program" else ()
        if later and all(program_call_id(one) == call_id for one in later):
            continue
        if view.is_sent_verbatim or not is_incomplete_item(item):
            yield LintIssue(
                f"{_call_label(item)} has no {_answer_noun(item)}",
                index,
                _pair_id_field(item),
            )


def _check_split_pairs(view: LintView) -> Iterator[LintIssue]:
    """Report each call in a request to DeepSeek that a message separates from its output: there it has no output."""
    if view.scope or "deepseek" not in (view.model or ""):
        return
    answers = [index for index, item in view.items_of_type("message") if is_assistant_message(item)]
    for index, output_index in view.output_indexes.items():
        if index >= 0 and bisect(answers, index) != bisect(answers, output_index):
            call = view.items[index]
            message = f"a message is between {_call_label(call)} and its output, which DeepSeek refuses"
            yield LintIssue(message, index, _pair_id_field(call), related_indexes=(output_index,))


def check_output_without_call(view: LintView) -> Iterator[LintIssue]:
    """Report each output without an earlier call, and each output that a later output of its call replaces.

    A call that was cut is not sent, unless a server owns it, and so its output has no call.
    If a server owns items that were not read, a missing call is not reported: it may be among them.
    """
    for index, call_index in view.call_indexes.items():
        item = view.items[index]
        call_id, kind = pair_id(item), item_type(item)
        if call_index >= 0:
            if call_id is not None and view.output_indexes[call_index] != index:
                message = f"{_call_noun(item)} {call_id} also has a later {_answer_noun(item)}"
                yield LintIssue(message, index, _pair_id_field(item))
            elif _is_cut(view, call_index) and not view.has_unread_items:
                message = f"this {describe_item_type(item)} has a {_call_noun(item)} that was cut: {call_id}"
                yield LintIssue(message, index, _pair_id_field(item))
        elif not view.has_unread_items and (call_id is not None or kind == SEARCH_OUTPUT):
            call = "call" if call_id is None else f"{_call_noun(item)} {call_id}"
            yield LintIssue(f"this {describe_item_type(item)} has no earlier {call}", index, _pair_id_field(item))


def _is_cut(view: LintView, index: int) -> bool:
    return is_incomplete_item(view.items[index]) and index >= view.server_count


def _call_label(item: Item) -> str:
    return f"{describe_item_type(item)} {pair_id(item) or ''}".rstrip()


def _answer_noun(item: Item) -> str:
    return "response" if item_type(item) in (MCP_APPROVAL_REQUEST, MCP_APPROVAL_RESPONSE) else "output"


def _call_noun(item: Item) -> str:
    return "request" if item_type(item) in RESPONSE_BY_APPROVAL_REQUEST.values() else "call"


def _pair_id_field(item: Item) -> str:
    """Return the JSON path of the id that pairs a call with its output."""
    return {"mcp_approval_request": ".id", "mcp_approval_response": ".approval_request_id"}.get(
        item_type(item), ".call_id"
    )


def fix_call_without_output(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Add an "interrupted" output for each call, after the batch of calls that the call belongs to.

    A call is dropped if a later response in the batch has a call with its id, which the output would answer. A call
    whose output only the provider can create is dropped as well; a program is dropped with its calls. An output that
    a message separates from its call is moved.
    """
    if split := {index: issue.related_indexes[0] for index, issue in item_issues(issues) if issue.related_indexes}:
        moved = {index: [view.items[output_index]] for index, output_index in split.items()}
        return apply_edits(view, ItemEdits(dict.fromkeys(split.values()), moved)), [
            RepairChange(CALL_WITHOUT_OUTPUT, "moved", "its output follows it now", view.source_indexes[index])
            for index in split
        ]
    batches = _batch_ends(view)
    insert_after = {index: max(batches[index], view.server_count - 1) for index, _ in item_issues(issues)}
    for index, issue in item_issues(issues):
        if index < view.server_count and not _can_be_closed(view, index, insert_after[index]):
            return continue_before(view, index, CALL_WITHOUT_OUTPUT, issue.message)
    insertions: dict[int, list[Item]] = {}
    dropped: dict[int, None] = {}
    changes = []
    for index, issue in item_issues(issues):
        call = view.items[index]
        if index in dropped:
            continue
        if _can_be_closed(view, index, insert_after[index]):
            insertions.setdefault(insert_after[index], []).append(build_text_output(call, INTERRUPTED_MESSAGE))
            changes.append(
                RepairChange(
                    CALL_WITHOUT_OUTPUT,
                    "added",
                    f"{issue.message}: an 'interrupted' output was added",
                    view.source_indexes[index],
                )
            )
        else:
            for drop_index in (index, *_program_call_indexes(view, call)):
                if drop_index not in dropped:
                    dropped[drop_index] = None
                    reason = f"{issue.message}, and none can be created"
                    changes.append(
                        RepairChange(CALL_WITHOUT_OUTPUT, "dropped", reason, view.source_indexes[drop_index])
                    )
    return apply_edits(view, ItemEdits(dropped, insertions)), changes


def _can_be_closed(view: LintView, index: int, last_index: int) -> bool:
    """Whether convo can create an output after item `last_index` that answers this call.

    It cannot for a screenshot, for a call that the provider answers, and for one that was cut before it was complete.
    """
    call, batch = view.items[index], view.items[index + 1 : last_index + 1]
    kind, call_id = item_type(call), pair_id(call)
    is_answered_by_client = kind == MCP_APPROVAL_REQUEST or (is_client_call(call) and kind != "computer_call")
    if is_incomplete_item(call):
        later_items: Iterable[Item] = batch
    else:
        later_items = dropwhile(lambda item: item_type(item) in ALL_PAIRS and not is_incomplete_item(item), batch)
    return (
        is_answered_by_client
        and not _is_cut(view, index)
        and not any(item_type(item) == kind and pair_id(item) == call_id for item in later_items)
    )


def _program_call_indexes(view: LintView, call: Item) -> Iterator[int]:
    """Yield the indexes of the calls that a program made, and of their outputs."""
    if item_type(call) == "program":
        yield from (
            index for index, item in enumerate(view.items) if program_call_id(item) == pair_id(call) is not None
        )


def _batch_ends(view: LintView) -> list[int]:
    """Return for each item the index of the last item in its batch of consecutive calls and outputs."""
    ends = list(range(len(view.items)))
    pair_types = {*ALL_PAIRS, *ALL_PAIRS.values()}
    for index in range(len(ends) - 2, -1, -1):
        if item_type(view.items[index + 1]) in pair_types:
            ends[index] = ends[index + 1]
    return ends

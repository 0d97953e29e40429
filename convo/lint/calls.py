"""Lint rules for calls and their outputs.

A call without output gets an "interrupted" output of the matching type, or is dropped if convo cannot create one
(screenshots, hosted calls).
"""

import json
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile

from convo.history.items import (
    MCP_APPROVAL_REQUEST,
    MCP_APPROVAL_RESPONSE,
    Item,
    Json,
    describe_item_type,
    is_assistant_message,
    is_incomplete_item,
    item_type,
)
from convo.history.pairing import (
    ALL_PAIRS,
    OUTPUT_BY_HOSTED_CALL,
    RESPONSE_BY_APPROVAL_REQUEST,
    SEARCH_CALL,
    SEARCH_OUTPUT,
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

    If a server owns items that were not read, a missing call is not reported: it may be among them.
    """
    for index, call_index in view.call_indexes.items():
        item = view.items[index]
        call_id, kind = pair_id(item), item_type(item)
        if call_index >= 0:
            if call_id is not None and view.output_indexes[call_index] != index:
                message = f"{_call_noun(item)} {call_id} also has a later {_answer_noun(item)}"
                yield LintIssue(message, index, _pair_id_field(item))
        elif not view.has_unread_items and (call_id is not None or kind == SEARCH_OUTPUT):
            call = "call" if call_id is None else f"{_call_noun(item)} {call_id}"
            yield LintIssue(f"this {describe_item_type(item)} has no earlier {call}", index, _pair_id_field(item))


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
            insertions.setdefault(insert_after[index], []).append(
                INTERRUPTED_OUTPUTS[item_type(call)](str(pair_id(call)))
            )
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
    """Whether convo can create an output after item `last_index` that answers this call."""
    batch = view.items[index : last_index + 1]
    kind, call_id = item_type(batch[0]), pair_id(batch[0])
    if is_incomplete_item(batch[0]):
        later_items: Iterable[Item] = batch[1:]
    else:
        later_items = dropwhile(lambda item: item_type(item) in ALL_PAIRS and not is_incomplete_item(item), batch[1:])
    return kind in INTERRUPTED_OUTPUTS and not any(
        item_type(item) == kind and pair_id(item) == call_id for item in later_items
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


def _output_builder(output_kind: str) -> Callable[[str], dict[str, Json]]:
    return lambda name: {"type": output_kind, "call_id": name, "output": INTERRUPTED_MESSAGE}


def _shell_output(name: str) -> dict[str, Json]:
    result = {"stdout": "", "stderr": INTERRUPTED_MESSAGE, "outcome": {"type": "exit", "exit_code": 130}}
    return {"type": "shell_call_output", "call_id": name, "output": [result]}


def _patch_output(name: str) -> dict[str, Json]:
    return {**_output_builder("apply_patch_call_output")(name), "status": "failed"}


def _local_shell_output(name: str) -> dict[str, Json]:
    return {"type": "local_shell_call_output", "id": name, "output": json.dumps({"output": INTERRUPTED_MESSAGE})}


def _approval_response(name: str) -> dict[str, Json]:
    return {
        "type": "mcp_approval_response",
        "approval_request_id": name,
        "approve": False,
        "reason": INTERRUPTED_MESSAGE,
    }


INTERRUPTED_OUTPUTS: Mapping[str, Callable[[str], dict[str, Json]]] = {
    "function_call": _output_builder("function_call_output"),
    "custom_tool_call": _output_builder("custom_tool_call_output"),
    "local_shell_call": _local_shell_output,
    "shell_call": _shell_output,
    "apply_patch_call": _patch_output,
    "mcp_approval_request": _approval_response,
}
"""The builder of an "interrupted" output, by type of the call."""

"""Lint rules for single items and pairs: required fields, ids, arguments, calls and outputs.

Unknown item types are not checked: they may be newer than this list. Truncated arguments are closed. A call
without output gets an "interrupted" output of the matching type, or is dropped if convo cannot create one
(screenshots, hosted calls).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from convo.history.items import OPTIONAL_ID_TYPES, Item, Json, item_type
from convo.history.pairing import OUTPUT_BY_HOSTED_CALL, RESPONSE_BY_APPROVAL_REQUEST, pair_id, program_call_id
from convo.history.tree import is_same_item
from convo.lint.chain import continue_before
from convo.lint.model import (
    COUNTERPART_TYPES,
    ItemEdits,
    LintIssue,
    LintView,
    RepairChange,
    apply_edits,
    is_incomplete_item,
    item_issues,
)

FOREIGN_ID_TYPES = frozenset({"item_reference", "local_shell_call_output"})
"""Item types whose `id` names another item."""


def check_duplicate_item_id(view: LintView) -> Iterator[LintIssue]:
    """Report each item whose id an earlier item has."""
    first_index: dict[str, int] = {}
    for index, item in enumerate(view.items):
        item_id = item.get("id")
        if not isinstance(item_id, str) or item_type(item) in FOREIGN_ID_TYPES:
            continue
        if item_id in first_index and index >= view.server_count:
            yield LintIssue(
                f"{item_id} is the id of an earlier item", index, ".id", related_indexes=(first_index[item_id],)
            )
        first_index.setdefault(item_id, index)


def fix_duplicate_item_id(view: LintView, faults: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop each copy, and each item that requires its id; remove the `id` of the others."""
    replacements: dict[int, Item | None] = {}
    changes = []
    for index, fault in item_issues(faults):
        item, (first,) = view.items[index], fault.related_indexes
        is_copy = is_same_item(item, view.items[first]) or item_type(item) not in OPTIONAL_ID_TYPES
        replacements[index] = None if is_copy else {key: value for key, value in item.items() if key != "id"}
        reason = fault.message if is_copy else f"{fault.message} with other content: the id was removed"
        action = "dropped" if is_copy else "replaced"
        changes.append(RepairChange("duplicate-item-id", action, reason, view.source_indexes[index]))
    return apply_edits(view, ItemEdits(replacements)), changes


MESSAGE_ROLES = ("user", "assistant", "system", "developer")


def _is_string(value: Json) -> bool:
    return isinstance(value, str)


def _is_string_or_parts(value: Json) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(part, dict) for part in value))


def _is_present(value: Json) -> bool:
    return value is not None


def _is_role(value: Json) -> bool:
    return value in MESSAGE_ROLES


REQUIRED_FIELDS: Mapping[str, Mapping[str, Callable[[Json], bool]]] = {
    "message": {"role": _is_role, "content": _is_string_or_parts},
    "function_call": {"call_id": _is_string, "name": _is_string},
    "function_call_output": {"call_id": _is_string, "output": _is_string_or_parts},
    "custom_tool_call": {"call_id": _is_string, "name": _is_string, "input": _is_string},
    "custom_tool_call_output": {"call_id": _is_string, "output": _is_string_or_parts},
    "computer_call": {"call_id": _is_string},
    "computer_call_output": {"call_id": _is_string, "output": _is_present},
    "compaction": {"encrypted_content": _is_string},
    "item_reference": {"id": _is_string},
}
"""The required fields of each item type, with the test of their value."""


def check_malformed_item(view: LintView) -> Iterator[LintIssue]:
    """Report each item that lacks a type or a field that its type requires."""
    for index, item in view.items_of_type("unknown"):
        if view.sent_flags[index] and not _is_reference(item):
            yield LintIssue("the item has neither a type nor a role", index)
    for kind, required in REQUIRED_FIELDS.items():
        for index in view.indexes_by_type.get(kind, ()):
            yield from _check_required_fields(view, index, required)


def _check_required_fields(
    view: LintView, index: int, required: Mapping[str, Callable[[Json], bool]]
) -> Iterator[LintIssue]:
    item = view.items[index]
    invalid_field = next((name for name, is_valid in required.items() if not is_valid(item.get(name))), None)
    if invalid_field is not None and view.sent_flags[index]:
        yield LintIssue(
            f"{item_type(item).replace('_', ' ')} {_describe_wrong_field(invalid_field, item.get(invalid_field))}",
            index,
            f".{invalid_field}",
        )


def _describe_wrong_field(name: str, value: Json) -> str:
    if value is None:
        return f"has no {name}"
    if name == "role" and isinstance(value, str):
        return f"has the invalid role {value!r}"
    return f"has a value of the wrong type in {name}"


def _is_reference(item: Item) -> bool:
    """Whether an item is an item reference, whose `type` is optional."""
    return isinstance(item.get("id"), str) and all(value is None for key, value in item.items() if key != "id")


ARGUMENTS_FIELD = ".arguments"

CLOSING_BRACKETS = {"{": "}", "[": "]"}


def check_invalid_arguments(view: LintView) -> Iterator[LintIssue]:
    """Report each function call whose arguments are not one JSON object."""
    for index, item in view.items_of_type("function_call"):
        problem = _describe_invalid_arguments(item.get("arguments")) if view.sent_flags[index] else ""
        if problem:
            yield LintIssue(f"the arguments of {item.get('name') or 'a call'} {problem}", index, ARGUMENTS_FIELD)


def fix_invalid_arguments(view: LintView, faults: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Close truncated arguments; replace arguments that are not an object by `{}`."""
    replacements: dict[int, Item] = {}
    changes = []
    for index, fault in item_issues(faults):
        item = view.items[index]
        text = _repair_arguments(item.get("arguments"))
        replacements[index] = {**{key: value for key, value in item.items() if key != "status"}, "arguments": text}
        reason = (
            f"{fault.message}: they are now {text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + '...'}"
        )
        changes.append(RepairChange("invalid-arguments", "replaced", reason, view.source_indexes[index]))
    return apply_edits(view, ItemEdits(replacements)), changes


MAX_SHOWN_CHARS = 60
"""Characters of the repaired arguments in the list of changes."""


def _repair_arguments(arguments: Json) -> str:
    """Return `arguments` as the text of a JSON object, as complete as they can be parsed; else `{}`."""
    if isinstance(arguments, dict):
        return json.dumps(arguments)
    text = _first_json_value(arguments) or close_json_object(arguments) if isinstance(arguments, str) else ""
    return text if not _describe_invalid_arguments(text) else "{}"


def _first_json_value(text: str) -> str:
    """Return the JSON value at the start of `text`; "" if it is incomplete."""
    stripped = text.lstrip()
    try:
        return stripped[: json.JSONDecoder().raw_decode(stripped)[1]]
    except (ValueError, RecursionError):
        return ""


def close_json_object(text: str) -> str:
    """Close a truncated JSON object after the last complete value in it."""
    open_: list[str] = []
    closable_end = 0  # end of the longest prefix that can be closed; its open brackets are still open at the end
    in_string = escaped = False
    for index, char in enumerate(text):
        if in_string:
            in_string, escaped = escaped or char != '"', char == "\\" and not escaped
        elif char == '"':
            in_string = True
        elif char in CLOSING_BRACKETS:
            open_.append(CLOSING_BRACKETS[char])
        elif char in "}]" and open_:
            open_.pop()
        if not in_string and char in "{[}],":
            closable_end = index + (char != ",")
    return _close_whole_text(text, in_string, escaped, open_) or text[:closable_end] + "".join(reversed(open_))


def _close_whole_text(text: str, in_string: bool, escaped: bool, open_: Sequence[str]) -> str:
    """Return all of `text` with its open string and brackets closed; "" if that is not valid."""
    quoted = (text[:-1] if escaped else text) + '"' if in_string else text
    candidate = quoted + "".join(reversed(open_))
    return "" if _describe_invalid_arguments(candidate) else candidate


def _describe_invalid_arguments(arguments: Json) -> str:
    """Return the error in `arguments` as the end of a sentence; "" if they are valid."""
    if not isinstance(arguments, str):
        return "are missing" if arguments is None else "are not a string"
    try:
        value = json.loads(arguments)
    except json.JSONDecodeError as error:
        return "are truncated" if _is_truncated(arguments, error) else f"are not JSON: {error.msg.lower()}"
    except (ValueError, RecursionError):
        return "cannot be parsed as JSON"
    return "" if isinstance(value, dict) else "are not a JSON object"


def _is_truncated(arguments: str, error: json.JSONDecodeError) -> bool:
    return error.pos >= len(arguments.rstrip()) or error.msg.startswith("Unterminated")


CALL_WITHOUT_OUTPUT = "call-without-output"

INTERRUPTED_MESSAGE = "The call was interrupted before it gave an output."


def check_call_without_output(view: LintView) -> Iterator[LintIssue]:
    """Report each call without a later output.

    An incomplete call is reported only if the items are sent verbatim: otherwise it is not sent as a call.

    An output answers one call: of several earlier calls with its id, the last. An approval request may stay
    pending as long as no item of another type follows.
    """
    last_index = max(
        (index for index, item in enumerate(view.items) if item_type(item) not in RESPONSE_BY_APPROVAL_REQUEST),
        default=-1,
    )
    for index, item in view.items_of_type(*COUNTERPART_TYPES):
        call_id = pair_id(item)
        if (
            index in view.output_indexes
            or call_id in view.pending_call_ids
            or (call_id is None and item_type(item) not in OUTPUT_BY_HOSTED_CALL)
        ):
            continue
        if item_type(item) in RESPONSE_BY_APPROVAL_REQUEST and index > last_index:
            continue
        if view.is_sent_verbatim or not is_incomplete_item(item):
            yield LintIssue(
                f"{_call_label(item)} has no {_answer_noun(item)}",
                index,
                _pair_id_field(item),
            )


def check_output_without_call(view: LintView) -> Iterator[LintIssue]:
    """Report each output without an earlier call, and each output that a later output of its call replaces.

    If a server owns items that were not read, a missing call is not reported: it may be among them.
    """
    yield from _check_superseded_outputs(view)
    if view.has_unread_items:
        return
    expected: set[tuple[str, str | None]] = set()
    searches = 0
    for index, item in view.items_of_type(*COUNTERPART_TYPES, *COUNTERPART_TYPES.values()):
        call_id, kind = pair_id(item), item_type(item)
        if kind in COUNTERPART_TYPES:
            expected.add((COUNTERPART_TYPES[kind], call_id))
            searches += kind == "tool_search_call" and call_id is None
        elif call_id is None:
            searches -= kind == "tool_search_output"
            if kind == "tool_search_output" and searches < 0:
                searches = 0
                yield LintIssue(f"this {_type_words(item)} has no earlier call", index, ".call_id")
        elif (kind, call_id) not in expected:
            yield LintIssue(
                f"this {_type_words(item)} has no earlier {_call_noun(item)} {call_id}", index, _pair_id_field(item)
            )


def _check_superseded_outputs(view: LintView) -> Iterator[LintIssue]:
    """Report each output whose call has a later output; a call has one output."""
    output_by_call = {call_index: index for call_index, index in view.output_indexes.items() if call_index >= 0}
    current: dict[tuple[str, str], int] = {}
    for index, item, call_id in view.paired_items:
        kind = item_type(item)
        if kind in COUNTERPART_TYPES:
            current[COUNTERPART_TYPES[kind], call_id] = index
        elif (kind, call_id) in current and output_by_call.get(current[kind, call_id]) != index:
            yield LintIssue(
                f"{_call_noun(item)} {call_id} also has a later {_answer_noun(item)}", index, _pair_id_field(item)
            )


def _call_label(item: Item) -> str:
    return f"{_type_words(item)} {pair_id(item) or ''}".rstrip()


def _answer_noun(item: Item) -> str:
    return "response" if item_type(item) in RESPONSE_BY_APPROVAL_REQUEST else "output"


def _call_noun(item: Item) -> str:
    return "request" if item_type(item) in RESPONSE_BY_APPROVAL_REQUEST.values() else "call"


def _pair_id_field(item: Item) -> str:
    """Return the JSON path of the id that pairs a call with its output."""
    return {"mcp_approval_request": ".id", "mcp_approval_response": ".approval_request_id"}.get(
        item_type(item), ".call_id"
    )


def fix_call_without_output(view: LintView, faults: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Add an "interrupted" output for each call, after the batch of calls that the call belongs to.

    A call is dropped if a later call in the batch has its id: an output could not tell which of them it answers. A call
    whose output only the provider can create is dropped as well; a program is dropped with its calls.
    """
    batches = _batch_ends(view)
    insert_after = {index: max(batches[index], view.server_count - 1) for index, _ in item_issues(faults)}
    for index, fault in item_issues(faults):
        if index < view.server_count and not _can_be_closed(view, index, insert_after[index]):
            return continue_before(view, index, CALL_WITHOUT_OUTPUT, fault.message)
    insertions: dict[int, list[Item]] = {}
    dropped: dict[int, None] = {}
    changes = []
    for index, fault in item_issues(faults):
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
                    f"{fault.message}: an 'interrupted' output was added",
                    view.source_indexes[index],
                )
            )
        else:
            for drop_index in (index, *_program_call_indexes(view, call)):
                if drop_index not in dropped:
                    dropped[drop_index] = None
                    reason = f"{fault.message}, and none can be created"
                    changes.append(
                        RepairChange(CALL_WITHOUT_OUTPUT, "dropped", reason, view.source_indexes[drop_index])
                    )
    return apply_edits(view, ItemEdits(dropped, insertions)), changes


def _can_be_closed(view: LintView, index: int, last_index: int) -> bool:
    """Whether convo can create an output after item `last_index` that answers only this call."""
    call = view.items[index]
    kind, call_id = item_type(call), pair_id(call)
    return kind in INTERRUPTED_OUTPUTS and not any(
        item_type(item) == kind and pair_id(item) == call_id for item in view.items[index + 1 : last_index + 1]
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
    pair_types = {*COUNTERPART_TYPES, *COUNTERPART_TYPES.values()}
    for index in range(len(ends) - 2, -1, -1):
        if item_type(view.items[index + 1]) in pair_types:
            ends[index] = ends[index + 1]
    return ends


def _type_words(item: Item) -> str:
    return item_type(item).replace("_", " ")


def _output_builder(output_kind: str, *, by: str = "call_id") -> Callable[[str], dict[str, Json]]:
    return lambda name: {"type": output_kind, by: name, "output": INTERRUPTED_MESSAGE}


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

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
    first: dict[str, int] = {}
    for at, item in enumerate(view.items):
        found = item.get("id")
        if not isinstance(found, str) or item_type(item) in FOREIGN_ID_TYPES:
            continue
        if found in first and at >= view.server_count:
            yield LintIssue(f"{found} is the id of an earlier item", at, ".id", related_indexes=(first[found],))
        first.setdefault(found, at)


def fix_duplicate_item_id(view: LintView, faults: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop each copy, and each item that requires its id; remove the `id` of the others."""
    new: dict[int, Item | None] = {}
    changes = []
    for at, fault in item_issues(faults):
        item, (first,) = view.items[at], fault.related_indexes
        copied = is_same_item(item, view.items[first]) or item_type(item) not in OPTIONAL_ID_TYPES
        new[at] = None if copied else {key: value for key, value in item.items() if key != "id"}
        why = fault.message if copied else f"{fault.message} with other content: the id was removed"
        action = "dropped" if copied else "replaced"
        changes.append(RepairChange("duplicate-item-id", action, why, view.source_indexes[at]))
    return apply_edits(view, ItemEdits(new)), changes


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
    for at, item in view.items_of_type("unknown"):
        if view.sent_flags[at] and not _is_reference(item):
            yield LintIssue("the item has neither a type nor a role", at)
    for named, needs in REQUIRED_FIELDS.items():
        for at in view.indexes_by_type.get(named, ()):
            yield from _check_required_fields(view, at, needs)


def _check_required_fields(view: LintView, at: int, needs: Mapping[str, Callable[[Json], bool]]) -> Iterator[LintIssue]:
    item = view.items[at]
    wrong = next((name for name, right in needs.items() if not right(item.get(name))), None)
    if wrong is not None and view.sent_flags[at]:
        yield LintIssue(
            f"{item_type(item).replace('_', ' ')} {_describe_wrong_field(wrong, item.get(wrong))}", at, f".{wrong}"
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
    for at, item in view.items_of_type("function_call"):
        wrong = _describe_invalid_arguments(item.get("arguments")) if view.sent_flags[at] else ""
        if wrong:
            yield LintIssue(f"the arguments of {item.get('name') or 'a call'} {wrong}", at, ARGUMENTS_FIELD)


def fix_invalid_arguments(view: LintView, faults: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Close truncated arguments; replace arguments that are not an object by `{}`."""
    new: dict[int, Item] = {}
    changes = []
    for at, fault in item_issues(faults):
        item = view.items[at]
        text = _repair_arguments(item.get("arguments"))
        new[at] = {**{key: value for key, value in item.items() if key != "status"}, "arguments": text}
        why = (
            f"{fault.message}: they are now {text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + '...'}"
        )
        changes.append(RepairChange("invalid-arguments", "replaced", why, view.source_indexes[at]))
    return apply_edits(view, ItemEdits(new)), changes


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
    begun = text.lstrip()
    try:
        return begun[: json.JSONDecoder().raw_decode(begun)[1]]
    except (ValueError, RecursionError):
        return ""


def close_json_object(text: str) -> str:
    """Close a truncated JSON object after the last complete value in it."""
    open_: list[str] = []
    left = 0  # end of the longest prefix that can be closed; its open brackets are still open at the end
    in_string = escaped = False
    for at, sign in enumerate(text):
        if in_string:
            in_string, escaped = escaped or sign != '"', sign == "\\" and not escaped
        elif sign == '"':
            in_string = True
        elif sign in CLOSING_BRACKETS:
            open_.append(CLOSING_BRACKETS[sign])
        elif sign in "}]" and open_:
            open_.pop()
        if not in_string and sign in "{[}],":
            left = at + (sign != ",")
    return _close_whole_text(text, in_string, escaped, open_) or text[:left] + "".join(reversed(open_))


def _close_whole_text(text: str, in_string: bool, escaped: bool, open_: Sequence[str]) -> str:
    """Return all of `text` with its open string and brackets closed; "" if that is not valid."""
    ended = (text[:-1] if escaped else text) + '"' if in_string else text
    candidate = ended + "".join(reversed(open_))
    return "" if _describe_invalid_arguments(candidate) else candidate


def _describe_invalid_arguments(arguments: Json) -> str:
    """Return the error in `arguments` as the end of a sentence; "" if they are valid."""
    if not isinstance(arguments, str):
        return "are missing" if arguments is None else "are not a string"
    try:
        found = json.loads(arguments)
    except json.JSONDecodeError as wrong:
        return "are truncated" if _is_truncated(arguments, wrong) else f"are not JSON: {wrong.msg.lower()}"
    except (ValueError, RecursionError):
        return "cannot be parsed as JSON"
    return "" if isinstance(found, dict) else "are not a JSON object"


def _is_truncated(arguments: str, wrong: json.JSONDecodeError) -> bool:
    return wrong.pos >= len(arguments.rstrip()) or wrong.msg.startswith("Unterminated")


CALL_WITHOUT_OUTPUT = "call-without-output"

INTERRUPTED_MESSAGE = "The call was interrupted before it gave an output."


def check_call_without_output(view: LintView) -> Iterator[LintIssue]:
    """Report each call without a later output.

    An incomplete call is reported only if the items are sent verbatim: otherwise it is not sent as a call.

    An output answers one call: of several earlier calls with its id, the last. An approval request may stay
    pending as long as no item of another type follows.
    """
    last = max(
        (at for at, item in enumerate(view.items) if item_type(item) not in RESPONSE_BY_APPROVAL_REQUEST), default=-1
    )
    for at, item in view.items_of_type(*COUNTERPART_TYPES):
        name = pair_id(item)
        if (
            at in view.output_indexes
            or name in view.pending_call_ids
            or (name is None and item_type(item) not in OUTPUT_BY_HOSTED_CALL)
        ):
            continue
        if item_type(item) in RESPONSE_BY_APPROVAL_REQUEST and at > last:
            continue
        if view.is_sent_verbatim or not is_incomplete_item(item):
            yield LintIssue(
                f"{_call_label(item)} has no {_answer_noun(item)}",
                at,
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
    for at, item in view.items_of_type(*COUNTERPART_TYPES, *COUNTERPART_TYPES.values()):
        name, kind = pair_id(item), item_type(item)
        if kind in COUNTERPART_TYPES:
            expected.add((COUNTERPART_TYPES[kind], name))
            searches += kind == "tool_search_call" and name is None
        elif name is None:
            searches -= kind == "tool_search_output"
            if kind == "tool_search_output" and searches < 0:
                searches = 0
                yield LintIssue(f"this {_type_words(item)} has no earlier call", at, ".call_id")
        elif (kind, name) not in expected:
            yield LintIssue(
                f"this {_type_words(item)} has no earlier {_call_noun(item)} {name}", at, _pair_id_field(item)
            )


def _check_superseded_outputs(view: LintView) -> Iterator[LintIssue]:
    """Report each output whose call has a later output; a call has one output."""
    last = {place: at for place, at in view.output_indexes.items() if place >= 0}
    current: dict[tuple[str, str], int] = {}
    for at, item, name in view.paired_items:
        kind = item_type(item)
        if kind in COUNTERPART_TYPES:
            current[COUNTERPART_TYPES[kind], name] = at
        elif (kind, name) in current and last.get(current[kind, name]) != at:
            yield LintIssue(
                f"{_call_noun(item)} {name} also has a later {_answer_noun(item)}", at, _pair_id_field(item)
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
    place = {at: max(batches[at], view.server_count - 1) for at, _ in item_issues(faults)}
    for at, fault in item_issues(faults):
        if at < view.server_count and not _can_be_closed(view, at, place[at]):
            return continue_before(view, at, CALL_WITHOUT_OUTPUT, fault.message)
    insertions: dict[int, list[Item]] = {}
    dropped: dict[int, None] = {}
    changes = []
    for at, fault in item_issues(faults):
        call = view.items[at]
        if at in dropped:
            continue
        if _can_be_closed(view, at, place[at]):
            insertions.setdefault(place[at], []).append(INTERRUPTED_OUTPUTS[item_type(call)](str(pair_id(call))))
            changes.append(
                RepairChange(
                    CALL_WITHOUT_OUTPUT,
                    "added",
                    f"{fault.message}: an 'interrupted' output was added",
                    view.source_indexes[at],
                )
            )
        else:
            for also in (at, *_program_call_indexes(view, call)):
                if also not in dropped:
                    dropped[also] = None
                    why = f"{fault.message}, and none can be created"
                    changes.append(RepairChange(CALL_WITHOUT_OUTPUT, "dropped", why, view.source_indexes[also]))
    return apply_edits(view, ItemEdits(dropped, insertions)), changes


def _can_be_closed(view: LintView, at: int, place: int) -> bool:
    """Whether convo can create an output after item `place` that answers only this call."""
    call = view.items[at]
    kind, name = item_type(call), pair_id(call)
    return kind in INTERRUPTED_OUTPUTS and not any(
        item_type(one) == kind and pair_id(one) == name for one in view.items[at + 1 : place + 1]
    )


def _program_call_indexes(view: LintView, call: Item) -> Iterator[int]:
    """Yield the indexes of the calls that a program made, and of their outputs."""
    if item_type(call) == "program":
        yield from (at for at, item in enumerate(view.items) if program_call_id(item) == pair_id(call) is not None)


def _batch_ends(view: LintView) -> list[int]:
    """Return for each item the index of the last item in its batch of consecutive calls and outputs."""
    ends = list(range(len(view.items)))
    either = {*COUNTERPART_TYPES, *COUNTERPART_TYPES.values()}
    for at in range(len(ends) - 2, -1, -1):
        if item_type(view.items[at + 1]) in either:
            ends[at] = ends[at + 1]
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

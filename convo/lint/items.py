"""Lint rules for single items: required fields, ids, arguments.

Unknown item types are not checked: they may be newer than this list. Truncated arguments are closed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from convo.history.items import OPTIONAL_ID_TYPES, Item, Json, item_type
from convo.history.tree import is_same_item
from convo.lint.model import (
    ItemEdits,
    LintIssue,
    LintView,
    RepairChange,
    apply_edits,
    item_issues,
    without_id,
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


def fix_duplicate_item_id(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Drop each copy, and each item that requires its id; remove the `id` of the others."""
    replacements: dict[int, Item | None] = {}
    changes = []
    for index, issue in item_issues(issues):
        item, (first,) = view.items[index], issue.related_indexes
        is_copy = is_same_item(item, view.items[first]) or item_type(item) not in OPTIONAL_ID_TYPES
        replacements[index] = None if is_copy else without_id(item)
        reason = issue.message if is_copy else f"{issue.message} with other content: the id was removed"
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
            # Codex sends such outputs, for example the objective of a goal.
            if kind == "function_call_output" and _is_standalone_output(view.items[index]):
                continue
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


def _is_standalone_output(item: Item) -> bool:
    """Whether a client added this output without a call; it names its tool instead of a call."""
    has_output = _is_string_or_parts(item.get("output"))
    return has_output and item.get("call_id") is None and isinstance(item.get("name"), str)


def _is_reference(item: Item) -> bool:
    """Whether an item is an item reference, whose `type` is optional."""
    return isinstance(item.get("id"), str) and all(value is None for key, value in item.items() if key != "id")


OWN_TYPE_BY_FOREIGN_TYPE: Mapping[str, str] = {
    # Chat Completions
    "text": "input_text",
    "image_url": "input_image",
    "file": "input_file",
    # Anthropic's Messages
    "image": "input_image",
    "document": "input_file",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "function_call",
    "tool_result": "function_call_output",
}
"""Types of parts and blocks in other APIs, which OpenAI refuses, each with the type in the Responses API."""


def check_foreign_part(view: LintView) -> Iterator[LintIssue]:
    """Report parts, blocks and fields of other APIs."""
    for index, item in enumerate(view.items):
        if not view.sent_flags[index]:
            continue
        if item_type(item) in OWN_TYPE_BY_FOREIGN_TYPE:
            yield LintIssue(_describe_foreign_type(item_type(item)), index, ".type")
        if item_type(item) == "message" and item.get("tool_calls"):
            yield LintIssue("tool_calls belong to Chat Completions: each call is an item here", index, ".tool_calls")
        for field, number, part in _iter_parts(item):
            if item_type(part) in OWN_TYPE_BY_FOREIGN_TYPE:
                yield LintIssue(_describe_foreign_type(item_type(part)), index, f".{field}[{number}].type")
            elif isinstance(part.get("image_url"), dict):
                message = "image_url is an object, as in Chat Completions, and not a string"
                yield LintIssue(message, index, f".{field}[{number}].image_url")


def _describe_foreign_type(name: str) -> str:
    return f"the type {name!r} belongs to another API; here it is {OWN_TYPE_BY_FOREIGN_TYPE[name]!r}"


def _iter_parts(item: Item) -> Iterator[tuple[str, int, dict[str, Json]]]:
    """Yield the parts of a message or an output: the field, their index in it, and the part."""
    for field in ("content", "output"):
        parts = item.get(field)
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, dict):
                yield field, number, part


def fix_foreign_part(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Convert texts and images. Other parts and blocks have no fix: convo cannot know where they belong."""
    replacements: dict[int, Item] = {}
    changes = []
    for index in dict.fromkeys(index for index, _ in item_issues(issues)):
        item = view.items[index]
        fields: dict[str, list[Json]] = {field: list(item[field]) for field, _, _ in _iter_parts(item)}
        for field, number, part in _iter_parts(item):
            fields[field][number] = _to_own_part(part, is_answer=item.get("role") == "assistant")
        if {**item, **fields} != item:
            replacements[index] = {**item, **fields}
            reason = "its texts and images have the form of the Responses API now"
            changes.append(RepairChange("foreign-part", "replaced", reason, view.source_indexes[index]))
    return apply_edits(view, ItemEdits(replacements)), changes


def _to_own_part(part: dict[str, Json], *, is_answer: bool) -> dict[str, Json]:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "output_text" if is_answer else "input_text", "text": text}
        case {"type": "image_url" | "input_image", "image_url": {"url": str(url), **rest}}:
            return {"type": "input_image", "image_url": url, "detail": rest.get("detail") or "auto"}
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return {"type": "input_image", "image_url": f"data:{kind};base64,{data}", "detail": "auto"}
    return part


ARGUMENTS_FIELD = ".arguments"

CLOSING_BRACKETS = {"{": "}", "[": "]"}


def check_invalid_arguments(view: LintView) -> Iterator[LintIssue]:
    """Report each function call whose arguments are not one JSON object."""
    for index, item in view.items_of_type("function_call"):
        problem = _describe_invalid_arguments(item.get("arguments")) if view.sent_flags[index] else ""
        if problem:
            yield LintIssue(f"the arguments of {item.get('name') or 'a call'} {problem}", index, ARGUMENTS_FIELD)


def fix_invalid_arguments(view: LintView, issues: Sequence[LintIssue]) -> tuple[LintView, list[RepairChange]]:
    """Close truncated arguments; replace arguments that are not an object by `{}`."""
    replacements: dict[int, Item] = {}
    changes = []
    for index, issue in item_issues(issues):
        item = view.items[index]
        text = _repair_arguments(item.get("arguments"))
        replacements[index] = {**{key: value for key, value in item.items() if key != "status"}, "arguments": text}
        reason = (
            f"{issue.message}: they are now {text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + '...'}"
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
    # The brackets are joined once, at the end: joined at each of them, repair did not end for a long run of brackets.
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

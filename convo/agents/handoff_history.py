"""The history that the next agent receives: filtered, or nested as a summary in one message.

The text between `<CONVERSATION HISTORY>` markers is identical to the Agents SDK's. Summaries found in the history
are expanded first, so nothing is summarized twice. Only assistant messages are taken for summaries. Messages
of the last turn stay as they are; its calls, outputs and reasoning become text. The conversation is not changed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from convo.errors import InputFault
from convo.history.items import Item, Json, is_user_message, item_type


@dataclass(frozen=True, slots=True)
class HistoryMarkers:
    """The lines before and after the records of a summary."""

    start: str = "<CONVERSATION HISTORY>"
    end: str = "</CONVERSATION HISTORY>"


DEFAULT_HISTORY_MARKERS = HistoryMarkers()

SUMMARY_PREAMBLE = "For context, here is the conversation so far between the user and the previous agent:"
KNOWN_SUMMARY_PREAMBLES = {SUMMARY_PREAMBLE, "For context, here is the conversation so far:"}
"""The first lines that releases of the Agents SDK have written above the marker."""

EMPTY_SUMMARY = "(no previous turns recorded)"

MESSAGE_ROLES = {"assistant", "developer", "system", "user"}

PRIVATE_FIELDS = ("_agents_tool_description", "_agents_tool_title", "created_by")
"""Metadata that the Agents SDK or a server adds to an item; no part of its content."""


def summarize_transcript(
    transcript: Sequence[Item], markers: HistoryMarkers = DEFAULT_HISTORY_MARKERS
) -> dict[str, Json]:
    """Build one assistant message that contains the whole transcript as text."""
    records = (f"{number}. {_format_record(item)}" for number, item in enumerate(transcript, start=1))
    lines = (SUMMARY_PREAMBLE, markers.start, *(records if transcript else (EMPTY_SUMMARY,)), markers.end)
    return {"role": "assistant", "content": "\n".join(lines)}


def handoff_history_mapper(
    start: str = DEFAULT_HISTORY_MARKERS.start, end: str = DEFAULT_HISTORY_MARKERS.end
) -> Callable[[list[Any]], list[Any]]:
    """Return a `handoff_history_mapper` for the `RunConfig` of the Agents SDK, with these lines around the summary.

    It returns one assistant message with the whole transcript as text; earlier summaries are expanded first.
    """
    markers = HistoryMarkers(start, end)
    return lambda transcript: [summarize_transcript(expand_summaries(transcript, markers), markers)]


def expand_summaries(items: Iterable[Item], markers: HistoryMarkers = DEFAULT_HISTORY_MARKERS) -> list[Item]:
    """Return `items` with every summary replaced by its records."""
    flat: list[Item] = []
    for item in items:
        body = _find_summary_body(item, markers)
        flat += [remove_private_fields(item)] if body is None else _parse_summary_body(body)
    return flat


def remove_private_fields(item: Item) -> Item:
    """Return `item` without its `PRIVATE_FIELDS`."""
    if not any(field in item for field in PRIVATE_FIELDS):
        return item
    return {field: value for field, value in item.items() if field not in PRIVATE_FIELDS}


# -- formatting a summary ------------------------------------------------------------------------


def _format_record(item: Item) -> str:
    item, role = remove_private_fields(item), item.get("role")
    if isinstance(role, str) and _is_one_line(item):
        name = item.get("name")
        payload = item.get("content")
        return f"{role} ({name}): {payload or ''}" if isinstance(name, str) and name else f"{role}: {payload or ''}"
    payload = {field: value for field, value in item.items() if field != "provider_data"}
    return json.dumps(payload, ensure_ascii=False, default=str)


def _is_one_line(item: Item) -> bool:
    """Return whether a message fits one line; its role and name are input too and can contain line breaks."""
    content = item.get("content")
    parts = (item.get("role"), item.get("name"), content)
    return (content is None or isinstance(content, str)) and not any(
        "\n" in part or "\r" in part for part in parts if isinstance(part, str)
    )


# -- parsing a summary ---------------------------------------------------------------------------


def _find_summary_body(item: Item, markers: HistoryMarkers) -> str | None:
    """Return the records of a summary, as text; None for any other item."""
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, str):
        return None
    preamble, newline, wrapped = content.partition("\n")
    start, end = f"{markers.start}\n", f"\n{markers.end}"
    if (
        not newline
        or preamble not in KNOWN_SUMMARY_PREAMBLES
        or not wrapped.startswith(start)
        or not wrapped.endswith(end)
    ):
        return None
    return wrapped[len(start) : -len(end)]


def _parse_summary_body(body: str) -> list[Item]:
    return [item for record in _split_records(body) if (item := _parse_record(record)) is not None]


def _split_records(body: str) -> Iterator[str]:
    """Split a summary into numbered records; a line without a number continues the record, as in early releases.

    Only a line feed ends a line here: a message on one line can contain other separators, which must not split it.
    """
    current: list[str] = []
    is_numbered = False
    for line in body.split("\n"):
        if not line.strip():
            continue
        has_number = _record_number_end(line.lstrip()) is not None
        if current and (has_number or not is_numbered):
            yield "\n".join(current)
            current = []
        if not current:
            is_numbered = has_number
        current.append(line.rstrip() if current else line.strip())
    if current:
        yield "\n".join(current)


def _record_number_end(record: str) -> int | None:
    """Return the index after the number of a record; None if it has none."""
    dot = record.find(".")
    return dot + 1 if dot != -1 and record[:dot].isdigit() else None


def _parse_record(record: str) -> Item | None:
    text = record[_record_number_end(record) or 0 :].lstrip()
    if (item := _parse_object(text)) is not None:
        return remove_private_fields(item)
    role, colon, rest = text.partition(":")
    if not colon:
        return _make_message(text, "") if _is_role_only(text) else None
    role, rest = role.strip(), rest.strip()
    if not role:
        return None
    fields = _parse_object(rest) if _role_without_name(role) not in MESSAGE_ROLES else None
    return (
        remove_private_fields({**fields, "type": _role_without_name(role)})
        if fields is not None
        else _make_message(role, rest)
    )


def _parse_object(text: str) -> dict[str, Json] | None:
    try:
        parsed = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return {field: value for field, value in parsed.items() if field != "provider_data"} if parsed is not None else None


def _is_role_only(text: str) -> bool:
    """Return whether a record is only a role, as early releases wrote a message without content."""
    role = text[: text.rfind("(")].strip() if text.endswith(")") and "(" in text else text
    return role in MESSAGE_ROLES


def _role_without_name(role: str) -> str:
    return _split_role(role)[0]


def _split_role(role: str) -> tuple[str, str | None]:
    name = role[role.rfind("(") + 1 : -1].strip() if role.endswith(")") and "(" in role else ""
    return (role[: role.rfind("(")].strip() or "developer", name) if name else (role, None)


def _make_message(role: str, content: str) -> dict[str, Json]:
    plain, name = _split_role(role)
    return {"role": plain, **({"name": name} if name else {}), "content": content}


HistoryMapper: TypeAlias = Callable[[list[Item]], list[Item]]
"""Build the whole input of the next agent from the flat transcript."""

TEXT_ONLY_TYPES = {"function_call", "function_call_output", "reasoning"}
"""Types that always become text: as items, they would lack their counterpart once that is text."""

PROGRAM_TYPES = {"program", "program_output"}
APPROVAL_ITEM_TYPE = "tool_approval_item"


@dataclass(frozen=True, slots=True)
class HandoffTranscript:
    """The conversation at a handoff.

    history:  the input of the run, as the model of the previous agent received it
    before:   the items that the run added before this turn
    new:      the items that this turn added, with the call and the output of the handoff
    input:    the items that a filter puts in place of `new`, for the model only; None: `new` itself
    """

    history: tuple[Item, ...]
    before: tuple[Item, ...] = ()
    new: tuple[Item, ...] = ()
    input: tuple[Item, ...] | None = None


SDK_FIELD_ORDER = {
    "function_call": ("arguments", "call_id", "name", "type", "id"),
    "function_call_output": ("call_id", "output", "type"),
    "reasoning": ("id", "summary", "type"),
    "message": ("id", "content", "role", "status", "type"),
}
"""The first fields of an item in a summary of the Agents SDK, in its order; the others keep the server's order."""


def to_sdk_form(item: Item) -> Item:
    """Return `item` as the Agents SDK has it: its fields in the SDK's order, a text of the user in the short form."""
    content = item.get("content")
    if is_user_message(item) and isinstance(content, list) and len(content) == 1:
        (part,) = content
        if isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "input_text":
            return {"content": part["text"], "role": "user"}
    first = SDK_FIELD_ORDER.get(item_type(item), ())
    return {**{name: item[name] for name in first if name in item}, **item}


def build_handoff_input(transcript: object) -> tuple[Item, ...]:
    """Return the input of the next agent without a summary: the whole transcript, or the one that a filter returned.

    Raises InputFault if a filter returned another type.
    """
    if not isinstance(transcript, HandoffTranscript):
        raise InputFault(f"an input filter returned {type(transcript).__name__}", hint="return a HandoffTranscript")
    new = transcript.new if transcript.input is None else transcript.input
    return (*transcript.history, *transcript.before, *new)


def nest_handoff_history(
    transcript: HandoffTranscript,
    mapper: HistoryMapper | None = None,
    markers: HistoryMarkers = DEFAULT_HISTORY_MARKERS,
) -> tuple[Item, ...]:
    """Return the input of the next agent with the history as a summary.

    mapper:  a mapper of the user: it receives the flat transcript and returns the input

    Raises InputFault if the mapper does not return a list of items.
    """
    flat = expand_summaries(transcript.history, markers)
    before = [_to_input_item(item) for item in transcript.before if item_type(item) != APPROVAL_ITEM_TYPE]
    new = [_to_input_item(item) for item in transcript.new if item_type(item) != APPROVAL_ITEM_TYPE]
    if mapper is None:
        verbatim = [*map(_is_verbatim_before_turn, before), *map(_is_verbatim_in_turn, new)]
        return tuple(_interleave_summaries(flat, [*before, *new], verbatim, markers))
    mapped = mapper([*flat, *before, *new])
    if not isinstance(mapped, list) or not all(isinstance(item, dict) for item in mapped):
        raise InputFault("the history mapper did not return a list of items", hint="return a list of items")
    return tuple(mapped)


def _interleave_summaries(
    unsummarized: list[Item], items: Sequence[Item], verbatim: Sequence[bool], markers: HistoryMarkers
) -> list[Item]:
    """Keep the verbatim items in place and replace each sequence of other items by a summary."""
    result: list[Item] = []
    for item, is_verbatim in zip(items, verbatim, strict=True):
        if not is_verbatim:
            unsummarized.append(item)
            continue
        if unsummarized or not result:
            result.append(summarize_transcript(unsummarized, markers))
            unsummarized = []
        result.append(item)
    return [*result, summarize_transcript(unsummarized, markers)] if unsummarized or not result else result


def _to_input_item(item: Item) -> Item:
    """Return `item` as input, without private fields and without a `status` of None."""
    item = remove_private_fields(item)
    if "status" in item and item["status"] is None:
        return {field: value for field, value in item.items() if field != "status"}
    return item


def _is_verbatim_before_turn(item: Item) -> bool:
    return not (_is_program_item(item) or item.get("role") == "assistant" or item.get("type") in TEXT_ONLY_TYPES)


def _is_verbatim_in_turn(item: Item) -> bool:
    return not _is_program_item(item) and (bool(item.get("role")) or item.get("type") not in TEXT_ONLY_TYPES)


def _is_program_item(item: Item) -> bool:
    """Return whether an item belongs to a hosted program, whose transcript cannot be divided."""
    caller = item.get("caller")
    return item.get("type") in PROGRAM_TYPES or (isinstance(caller, dict) and caller.get("type") == "program")

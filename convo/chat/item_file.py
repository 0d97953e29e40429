"""Read and write files of items.

[item, item, ...]                                a replay file
{"input": [...], "previous_response_id": ...}    a request body; an input that is text is a user message
{"object": "list", "data": [...]}                a list response of an endpoint
item                                             JSONL, one item a line
item
A conversation that convo exported is read too.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from shlex import quote

from convo.chat.files import REPLAY_FILE_HINT, ReplayFile, format_os_error, read_whole_stream, write_atomic
from convo.errors import InputFault, InvalidUsage, NotFound, Unreadable
from convo.history.canonical import describe_json_error
from convo.history.items import Item, Json, item_type, user_message
from convo.inspect.serialize import ConversationDocument, document_from_json, document_from_lines, is_document

UNNAMED_FILE = "the file"
"""The file name in errors of a text whose caller puts the name in front itself."""

WRAPPER_FIELDS = ("payload", "response", "message", "item", "event", "data", "record", "part")
"""Members of the records in other programs' logs; no item of the API has an object in one of them."""


@dataclass(frozen=True)
class ItemFile:
    """The items of a file, and the form they were stored in.

    text:            the content of the file
    list_field:      the member of an object that has the list; "" when the file is a bare list
    request_fields:  the other members of that object
    is_export:       the file is an exported conversation with links, which refer to items by position
    """

    items: tuple[Item, ...]
    text: str
    list_field: str = ""
    request_fields: Mapping[str, Json] = field(default_factory=dict)
    is_export: bool = False


def read_item_file(path: str) -> ItemFile:
    """Return the items of a file. Raises NotFound, Unreadable."""
    if os.path.isdir(os.path.expanduser(path)):
        raise Unreadable(f"{path} is a folder, not a replay file", hint="choose a file in it")
    try:
        with Path(os.path.expanduser(path)).open("rb") as file:
            text = StringIO(read_whole_stream(file).decode("utf-8-sig"), newline=None).read()
    except FileNotFoundError as error:
        raise NotFound("file", path, hint="check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {format_os_error(error)}") from error
    return parse_item_file(path, text)


def check_new_item_file(path: str) -> ReplayFile:
    """Return a file that can be created.

    Raises InvalidUsage when the path exists, and the errors of `ReplayFile.check_writable`.
    """
    file = ReplayFile(path)
    if file.exists():
        raise InvalidUsage(f"{path} already exists", hint="choose another name; existing files are not overwritten")
    file.check_writable()
    return file


def write_item_file(path: str, items: Sequence[Item], source: ItemFile | None = None) -> None:
    """Write `items` to a new file, atomically, in the form of `source`: with the fields around its list.

    Raises the errors of `check_new_item_file`, and StoreReadOnly, StoreFull, StoreFault; then there is no file.
    """
    file = check_new_item_file(path)
    if source and source.list_field and not source.is_export:
        write_atomic(file.path, json.dumps({**source.request_fields, source.list_field: list(items)}, indent=1) + "\n")
    elif path.endswith(".jsonl"):
        write_atomic(file.path, "".join(json.dumps(item) + "\n" for item in items))
    else:
        file.write(items)


def parse_item_file(file_name: str, text: str) -> ItemFile:
    """Return the items of a text. Raises Unreadable for an empty text, invalid JSON or JSON lines, and invalid items.

    file_name:  for error messages
    """
    if not text.strip():
        raise Unreadable(f"{file_name} is empty", hint=REPLAY_FILE_HINT)
    try:
        content: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _parse_rows(file_name, text, _load_json_lines(file_name, text, error))
    if is_document(content):
        return ItemFile(_parse_export(file_name, document_from_json, content), text, "items", is_export=True)
    if isinstance(content, dict) and ("type" in content or "role" in content):
        return ItemFile(_validate_items(file_name, [content]), text)
    list_field = next((name for name in ("input", "data") if isinstance(content, dict) and name in content), "")
    if not list_field:
        return ItemFile(_validate_items(file_name, content), text)
    request_fields = {name: value for name, value in content.items() if name != list_field}
    if list_field == "data" and content.get("has_more"):
        raise Unreadable(
            f"{file_name} is one page of a list (has_more is true), not the whole history",
            hint="request the other pages, too (order=asc, limit=100, after=LAST_ID), and join their data in one list",
        )
    value = content[list_field]
    items = [user_message(value)] if list_field == "input" and isinstance(value, str) else value
    return ItemFile(_validate_items(file_name, items), text, list_field, request_fields)


def _parse_rows(file_name: str, text: str, rows: Sequence[Json]) -> ItemFile:
    if rows and is_document(rows[0]):
        return ItemFile(_parse_export(file_name, document_from_lines, rows), text, is_export=True)
    return ItemFile(_validate_items(file_name, rows), text)


def _parse_export(file_name: str, parse: Callable[[Json], ConversationDocument], value: Json) -> tuple[Item, ...]:
    try:
        return parse(value).items
    except InputFault as error:
        raise Unreadable(f"{file_name}: {error.message}", hint=error.hint) from error


def _load_json_lines(file_name: str, text: str, error: Exception) -> list[Json]:
    """Parse a text that is not JSON as a whole as JSON lines. Raises Unreadable."""
    # Not splitlines: U+2028 within a text, which JSON allows, would cut an item in two.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    values = []
    for number, line in lines:
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError) as line_error:
            message = (
                f"{file_name}, line {number}, is not JSON: {describe_json_error(line_error)}"
                if values
                else f"{file_name} is not JSON: {describe_json_error(error)}"
            )
            if not values and line.lstrip().lower().startswith(("<!doctype html", "<html")):
                hint = f"convo import {quote(file_name)}, if convo exported this page; then use the session"
            else:
                hint = "fix the file, which may be incomplete, or choose another file"
            if values and number == lines[-1][0]:
                hint = f"convo import {quote(file_name)} --skip-incomplete, which leaves out the line, or fix the file"
            raise Unreadable(message, hint=hint) from line_error
    return values


def _validate_items(file_name: str, value: Json) -> tuple[Item, ...]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Unreadable(f"{file_name} is not a list of items", hint=REPLAY_FILE_HINT)
    prefix = "" if file_name == UNNAMED_FILE else f"{file_name}: "
    for number, item in enumerate(value, 1):
        if item_type(item) == "unknown":
            raise Unreadable(f"{prefix}item {number} has neither a type nor a role", hint=REPLAY_FILE_HINT)
        if wrapper := _find_wrapper_field(item):
            jq_filter = 'select(.type == "response_item") | .payload' if wrapper == "payload" else f".{wrapper}"
            raise Unreadable(
                f"{prefix}item {number} is a {item_type(item)!r} record with a {wrapper}, not an item of the API",
                hint=f"extract the items first: jq -c '{jq_filter}' FILE > items.jsonl",
            )
    return tuple(value)


def _find_wrapper_field(item: Item) -> str | None:
    """Return the member that makes `item` a record of another program's log; None for an item of any type.

    Items of unknown types are items too. Logs put an object into each line: an event's response, a rollout's
    payload, a transcript's message.
    """
    return next((name for name in WRAPPER_FIELDS if isinstance(item.get(name), dict)), None)

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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from shlex import quote

from convo.chat.files import (
    REPLAY_FILE_HINT,
    format_os_error,
    format_replay_file,
    is_regular_file,
    read_whole_stream,
    resolve_links,
    write_atomic,
)
from convo.chat.state_file import STATE_FIELDS
from convo.errors import InputFault, InvalidUsage, NotFound, StoreReadOnly, Unreadable
from convo.history.canonical import describe_json_error
from convo.history.items import Item, Json, item_type, user_message
from convo.inspect.serialize import (
    ConversationDocument,
    document_from_json,
    document_from_lines,
    document_to_lines,
    format_document,
    format_json_lines,
    is_document,
    replace_items,
)

UNNAMED_FILE = "the file"
"""The file name in errors of a text whose caller puts the name in front itself."""

WRAPPER_FIELDS = frozenset({"payload", "response", "message", "item", "event", "data", "record", "part"})
"""Members of the records in other programs' logs; no item of the API has an object in one of them."""


@dataclass(frozen=True)
class ItemFile:
    """The items of a file, and the form they were stored in.

    text:            the content of the file
    list_field:      the member of an object that has the list; "" when the file is a bare list
    request_fields:  the other members of that object
    export:          the exported conversation that the file contains
    has_lines:       the file has one item a line
    """

    items: tuple[Item, ...]
    text: str
    list_field: str = ""
    request_fields: Mapping[str, Json] = field(default_factory=dict)
    export: ConversationDocument | None = None
    has_lines: bool = False


class ReplayFile:
    """One replay file, which people may edit; a missing file is an empty conversation.

    It is written in the form in which it was read; a new one is a list of items.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self._form: ItemFile | None = None
        self._last_stamp: tuple[int, int, int] | None = None

    def exists(self) -> bool:
        """Return whether the path exists, a broken link included."""
        return os.path.lexists(self.path)

    def is_changed(self) -> bool:
        """Return whether another program wrote the file since the last read or write here."""
        return self._last_stamp != self._read_stamp()

    def read(self) -> list[Item]:
        """Return the items of the file. Raises Unreadable."""
        self._last_stamp = self._read_stamp()
        try:
            if not is_regular_file(self.path):
                return []
            # Editors on Windows begin a file with a byte order mark.
            text = self.path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise Unreadable(f"{self.path} cannot be read: {format_os_error(error)}") from error
        if not text.strip():
            return []
        file = parse_item_file(str(self.path), text)
        self._form = replace(file, items=(), text="")  # a chat that is open for long keeps no copy of its file
        return list(file.items)

    def read_valid(self) -> list[Item]:
        """Return the items of the file for a request. Raises Unreadable for an invalid item or message."""
        items = self.read()
        for number, item in enumerate(items, 1):
            fault = _find_item_fault(item)
            if fault:
                raise Unreadable(f"{self.path}: item {number} {fault}", hint=REPLAY_FILE_HINT)
        return items

    def write(self, items: Sequence[Item]) -> None:
        """Replace the items of the file by `items`, atomically; a new file gets mode 0600.

        Raises StoreReadOnly, StoreFull, StoreFault; the file is then unchanged.
        """
        write_atomic(resolve_links(self.path), format_item_file(items, self._form))
        self._last_stamp = self._read_stamp()

    def check_writable(self) -> None:
        """Check, before anything is sent, that the file can be written. Raises Unreadable and the errors of `write`."""
        target = resolve_links(self.path)
        folder = target.parent
        if not os.path.isdir(folder):
            raise Unreadable(f"{folder} is not a folder, so {target.name} cannot be written there")
        try:
            is_file = is_regular_file(target)
        except OSError as error:
            raise Unreadable(f"{target} cannot be reached: {format_os_error(error)}") from error
        if not os.access(folder, os.W_OK) or (is_file and not os.access(target, os.W_OK)):
            raise StoreReadOnly(f"{target} cannot be written", hint="choose another file, or make it writable")

    def _read_stamp(self) -> tuple[int, int, int] | None:
        with suppress(OSError):
            info = self.path.stat()
            return info.st_mtime_ns, info.st_size, info.st_ino
        return None


def _find_item_fault(item: Item) -> str | None:
    """Return why a server would refuse an item; of the types, only messages are checked further."""
    if item_type(item) == "unknown":
        return "has neither a type nor a role"
    if item_type(item) == "message" and not isinstance(item.get("role"), str):
        return "is a message without a role"
    if item_type(item) == "message" and not isinstance(item.get("content"), str | list):
        return "is a message without content"
    return None


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
    if path.endswith(".jsonl") and not (source and source.list_field):
        write_atomic(file.path, format_json_lines(items))
    else:
        write_atomic(file.path, format_item_file(items, source if source and not source.export else None))


def format_item_file(items: Sequence[Item], form: ItemFile | None) -> str:
    """Return the text of a file with `items` in the form of another file; a list without one."""
    if form and form.export:
        document = replace_items(form.export, items)
        return format_document(document) if form.list_field else format_json_lines(document_to_lines(document))
    if form and form.list_field:
        return json.dumps({**form.request_fields, form.list_field: list(items)}, indent=1) + "\n"
    return format_json_lines(items) if form and form.has_lines else format_replay_file(items)


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
        document = _parse_export(file_name, document_from_json, content)
        return ItemFile(document.items, text, "items", export=document)
    if isinstance(content, dict) and ("type" in content or "role" in content):
        return ItemFile(_validate_items(file_name, [content]), text, has_lines=True)
    list_field = next((name for name in ("input", "data") if isinstance(content, dict) and name in content), "")
    if not list_field:
        _check_not_run_state(file_name, content)
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


def _check_not_run_state(file_name: str, content: Json) -> None:
    """Raise JavaScriptRunState or Unreadable for a paused run."""
    if not isinstance(content, dict) or content.keys().isdisjoint(STATE_FIELDS):
        return
    from convo.runstate.reader import is_javascript, make_javascript_error

    if is_javascript(content):
        raise make_javascript_error(content).in_file(file_name)
    problem = f"{file_name} is a RunState of the Agents SDK, which is not a list of items"
    raise Unreadable(problem, hint=f"convo inspect {quote(file_name)}, or convo import {quote(file_name)}")


def _parse_rows(file_name: str, text: str, rows: Sequence[Json]) -> ItemFile:
    if rows and is_document(rows[0]):
        document = _parse_export(file_name, document_from_lines, rows)
        return ItemFile(document.items, text, export=document)
    return ItemFile(_validate_items(file_name, rows), text, has_lines=True)


def _parse_export(file_name: str, parse: Callable[[Json], ConversationDocument], value: Json) -> ConversationDocument:
    try:
        return parse(value)
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
            hint = f"extract the items first: jq -c '.{wrapper}' FILE > items.jsonl"
            if prefix and wrapper in ("payload", "message"):
                hint = f"convo import {quote(file_name)}, if Codex or Claude Code wrote it; then use the session"
            raise Unreadable(
                f"{prefix}item {number} is a {item_type(item)!r} record with a {wrapper}, not an item of the API",
                hint=hint,
            )
    return tuple(value)


def _find_wrapper_field(item: Item) -> str | None:
    """Return the member that makes `item` a record of another program's log; None for an item of any type.

    Items of unknown types are items too. Logs put an object into each line: an event's response, a rollout's
    payload, a transcript's message.
    """
    if WRAPPER_FIELDS.isdisjoint(item):  # a file with 10,000 items is read for each turn
        return None
    return next((name for name in sorted(WRAPPER_FIELDS) if isinstance(item.get(name), dict)), None)

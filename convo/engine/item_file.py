"""Items in a file, in whichever form somebody keeps them.

[item, item, ...]                                a replay file
{"input": [...], "previous_response_id": ...}    a request, as it would be sent
{"object": "list", "data": [...]}                what an endpoint answered when it was asked for items
item                                             JSONL: one item a line
item
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from shlex import quote

from convo.engine.named_file import all_of
from convo.engine.replay_file import LOOKS_LIKE, ReplayFile
from convo.engine.whole_file import put, why
from convo.errors import InputFault, NotFound, Unreadable, Usage
from convo.inspection.document import Document, from_lines, from_whole, is_document
from convo.items import Item, Json, kind

UNNAMED = "it"
"""The name of a text for a caller that puts the file's name in front itself."""

WRAPPERS = ("payload", "response", "message", "item", "event", "data", "record", "part")
"""Members of the records in other programs' logs; no item of the API has an object there."""


@dataclass(frozen=True)
class ItemFile:
    """What was read.

    text:     the file, as it was read
    member:   the member of an object that holds the list; "" where the list is all there is
    request:  the other fields of that object
    exported: it is a conversation with its links, in which places are counted
    """

    items: tuple[Item, ...]
    text: str
    member: str = ""
    request: Mapping[str, Json] = field(default_factory=dict)
    exported: bool = False


def read_items(place: str) -> ItemFile:
    """The items of a file. raises: NotFound, Unreadable"""
    if os.path.isdir(os.path.expanduser(place)):
        raise Unreadable(f"{place} is a folder, not a replay file", hint="name a file in it")
    try:
        with Path(os.path.expanduser(place)).open("rb") as opened:
            text = StringIO(all_of(opened).decode("utf-8-sig"), newline=None).read()
    except FileNotFoundError as wrong:
        raise NotFound("file", place, hint="convo sessions") from wrong
    except (OSError, UnicodeDecodeError) as wrong:
        raise Unreadable(f"{place} cannot be read: {why(wrong)}") from wrong
    return understood(place, text)


def check_free(place: str) -> ReplayFile:
    """A file that can be made at `place`. raises: Usage  there is one already; as `ReplayFile.check`"""
    file = ReplayFile(place)
    if file.exists():
        raise Usage(f"{place} is there already", hint="choose another name; nothing is written over")
    file.check()
    return file


def write_items(place: str, items: Sequence[Item], like: ItemFile | None = None) -> None:
    """Put `items` in a new file, atomically: what they were the member of is put around them again.

    raises:  as `check_free`; StoreReadOnly, StoreFull, StoreFault  there is no file
    """
    file = check_free(place)
    if like and like.member and not like.exported:
        put(file.place, json.dumps({**like.request, like.member: list(items)}, indent=1) + "\n")
    elif place.endswith(".jsonl"):
        put(file.place, "".join(json.dumps(item) + "\n" for item in items))
    else:
        file.write(items)


def understood(place: str, text: str) -> ItemFile:
    """The items that a text stands for; `place` is its name. raises: Unreadable  also of what has other lines"""
    if not text.strip():
        raise Unreadable(f"{place} is empty", hint=LOOKS_LIKE)
    try:
        found: Json = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        return _of_lines(place, text, _by_line(place, text, wrong))
    if is_document(found):
        return ItemFile(_exported(place, from_whole, found), text, "items", exported=True)
    if isinstance(found, dict) and ("type" in found or "role" in found):
        return ItemFile(_checked(place, [found]), text)
    member = next((name for name in ("input", "data") if isinstance(found, dict) and name in found), "")
    if not member:
        return ItemFile(_checked(place, found), text)
    rest = {name: value for name, value in found.items() if name != member}
    return ItemFile(_checked(place, found[member]), text, member, rest)


def _of_lines(place: str, text: str, found: Sequence[Json]) -> ItemFile:
    if found and is_document(found[0]):
        return ItemFile(_exported(place, from_lines, found), text, exported=True)
    return ItemFile(_checked(place, found), text)


def _exported(place: str, read: Callable[[Json], Document], found: Json) -> tuple[Item, ...]:
    try:
        return read(found).items
    except InputFault as wrong:
        raise Unreadable(f"{place}: {wrong.message}", hint=wrong.hint) from wrong


def _by_line(place: str, text: str, wrong: Exception) -> list[Json]:
    """The items of a file that is no JSON as a whole, one a line. raises: Unreadable"""
    rows = [(number, row) for number, row in enumerate(text.split("\n"), 1) if row.strip()]
    found = []
    for number, row in rows:
        try:
            found.append(json.loads(row))
        except (ValueError, RecursionError) as broken:
            said = f"{place}, line {number}, is not JSON: {broken}" if found else f"{place} is not JSON: {wrong}"
            if not found and row.lstrip().lower().startswith(("<!doctype html", "<html")):
                hint = f"convo import {quote(place)}, if convo wrote this page; then name the session"
            else:
                hint = "it may be half written; mend it, or name another file"
            raise Unreadable(said, hint=hint) from broken
    return found


def _checked(place: str, found: Json) -> tuple[Item, ...]:
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise Unreadable(f"{place} holds no list of items", hint=LOOKS_LIKE)
    where = "" if place == UNNAMED else f"{place}: "
    for number, item in enumerate(found, 1):
        if kind(item) == "unknown":
            raise Unreadable(f"{where}item {number} has neither a type nor a role", hint=LOOKS_LIKE)
        if wrapper := _wrapper(item):
            inside = 'select(.type == "response_item") | .payload' if wrapper == "payload" else f".{wrapper}"
            raise Unreadable(
                f"{where}item {number} is a {kind(item)!r} record with a {wrapper}, not an item of the API",
                hint=f"take the items out first: jq -c '{inside}' FILE > items.jsonl",
            )
    return tuple(found)


def _wrapper(item: Item) -> str | None:
    """The member that makes `item` a record of another program's log; None for an item, whatever its type.

    Items of unknown types are items too. Logs put an object into each line: an event's response, a rollout's
    payload, a transcript's message.
    """
    return next((name for name in WRAPPERS if isinstance(item.get(name), dict)), None)

"""From bytes to a document, and no further than JSON goes.

A state comes from another process, often over a network, and decides which tools will run. So its
text is read as strictly as any reader could: UTF-8 without a mark, one object, every key once, no
NaN, no number that Python would round to infinity or refuse, no depth that ends a reader. What
two readers could understand differently is refused, with the place where it stands.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from math import isinf
from typing import NamedTuple

from convo.errors import BadState
from convo.items import Json
from convo.runstate.paths import Step, path

BYTES = 64 * 1024 * 1024
"""More than this is no state; one of 5,000 items has 4 million."""

PLACES = 750_000
"""More members and elements than this, in all objects and lists together, would fill the memory and the second
that a refusal may take; one of 5,000 items has 110,000."""

LEVELS = 400
"""How deep objects and lists may stand in one another; a state of its own needs eight."""

SCANNED = 1_000_000
"""Characters in which the place of a fault is looked for; past them only its line is told."""

WINDOW = 1024 * 1024
"""Bytes that are counted in at a time."""

NO_COUNT = bytes(set(range(256)) - set(b',[{"'))

MARKS = (
    (b"\xef\xbb\xbf", "a UTF-8 byte order mark, which no release reads"),
    (b"\xff\xfe", "a UTF-16 byte order mark; a state is UTF-8"),
    (b"\xfe\xff", "a UTF-16 byte order mark; a state is UTF-8"),
)

TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
NO_NUMBER = re.compile(r"-?(?:NaN|Infinity)")


def parse(data: bytes) -> dict[str, Json]:
    """The document that `data` is. raises: BadState  with the place of whatever is wrong"""
    text = _decoded(data)
    if not text.strip():
        raise BadState("$", "is empty; a state is one JSON object")
    if _is_crowded(data):
        raise BadState("$", f"holds more than {PLACES:,} members of objects and lists, which no state does")
    document = _loaded(text)
    if not isinstance(document, dict):
        raise BadState("$", f"is {kind(document)}, not an object")
    if _depth(document) > LEVELS:
        raise _too_deep(text)
    return document


def kind(value: Json) -> str:
    """What `value` is, in JSON's words."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return "null" if value is None else names[type(value)]


def _decoded(data: bytes) -> str:
    if len(data) > BYTES:
        raise BadState("$", f"has {len(data):,} bytes; the most that is read is {BYTES:,}")
    for mark, words in MARKS:
        if data.startswith(mark):
            raise BadState("$", f"begins with {words}", hint="write the file again as plain UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as wrong:
        text = data[: wrong.start].decode("utf-8")
        raise BadState(place(text, wrong.start), f"is not UTF-8 at byte {wrong.start}") from wrong


def _is_crowded(data: bytes) -> bool:
    """Whether it holds more than `PLACES`: one for each comma and each bracket that opens, outside strings."""
    if sum(map(data.count, (b",", b"[", b"{"))) <= PLACES:
        return False
    counted = 0
    for marks in _outside(data):
        counted += marks
        if counted > PLACES:
            return True
    return False


def _outside(data: bytes) -> Iterator[int]:
    """How many marks stand outside strings, one window after the other.

    What is escaped goes first, so that every quote left opens a string or closes one; strings without a
    mark in them go next, and of the others every second piece between quotes stands outside.
    """
    at = inside = 0
    while at < len(data):
        window = data[at : at + WINDOW]
        if (len(window) - len(window.rstrip(b"\\"))) % 2:
            window = data[at : at + WINDOW + 1]
        at += len(window)
        whole = window.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = whole.translate(None, NO_COUNT).replace(b'""', b"").split(b'"')
        yield sum(map(len, pieces[inside::2]))
        inside = (inside + len(pieces) - 1) % 2


def _loaded(text: str) -> Json:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as wrong:
        raise _too_deep(text) from wrong
    except json.JSONDecodeError as wrong:
        words = f"is where the JSON goes wrong: {wrong.msg.lower()} (line {wrong.lineno}, column {wrong.colno})"
        raise BadState(place(text, wrong.pos), words) from wrong
    except _Odd as wrong:
        raise _odd(text, wrong) from None
    except ValueError as wrong:
        raise BadState(_first(text, _too_long), "is a number of more digits than can be read") from wrong


class _Odd(ValueError):
    """What JSON's grammar lets pass, or Python's, and a state may not hold."""


class _Twice(_Odd):
    """A key stands twice in one object."""


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Twice
    return members


def _no_number(token: str) -> Json:
    raise _Odd(token)


def _finite(token: str) -> float:
    number = float(token)
    if isinf(number):
        raise _Odd(token)
    return number


def _odd(text: str, wrong: _Odd) -> BadState:
    if isinstance(wrong, _Twice):
        where = next((found for found in _twice(text)), "$")
        return BadState(where, "stands twice; readers differ on which of them counts")
    token = str(wrong)
    if NO_NUMBER.fullmatch(token):
        return BadState(_first(text, lambda found: found == token), f"is {token}, which is not JSON")
    return BadState(_first(text, lambda found: found == token), "is a number too large to keep")


def _depth(document: Json) -> int:
    """How many levels of objects and lists there are; stops counting past `LEVELS`."""
    levels, level = 0, [document]
    while level and levels <= LEVELS:
        levels += 1
        level = [
            value
            for holder in level
            for value in (holder.values() if type(holder) is dict else holder)
            if type(value) is dict or type(value) is list
        ]
    return levels


# -- where in the text something stands --------------------------------------------------------------


class Found(NamedTuple):
    """One token of the text: the way to it as it stood when it began, and whether it is a key."""

    at: int
    mark: str
    way: Sequence[Step | None]
    is_key: bool


def place(text: str, offset: int) -> str:
    """The JSON path of what begins at or before `offset`; of the whole where that is far into the text."""
    way: list[Step] = []
    if offset > SCANNED:
        return path(way)
    for found in _tokens(text):
        if found.at >= offset:
            break
        way = _known(found.way)
    return path(way)


def _tokens(text: str) -> Iterator[Found]:
    """Every token, with a way that is reused: who keeps it copies it."""
    way: list[Step | None] = []
    for match in TOKEN.finditer(text, 0, SCANNED):
        mark = match[0]
        is_key = mark[0] == '"' and bool(way) and way[-1] is None
        if is_key:
            way[-1] = _key(mark)
        elif mark == "," and way:
            last = way[-1]
            way[-1] = last + 1 if isinstance(last, int) else None
        elif mark in "}]" and way:
            way.pop()
        yield Found(match.start(), mark, way, is_key)
        if mark in "{[":
            way.append(None if mark == "{" else 0)


def _key(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token[1:-1]


def _known(way: Sequence[Step | None]) -> list[Step]:
    return [step for step in way if step is not None]


def _too_deep(text: str) -> BadState:
    deep = next((found.way for found in _tokens(text) if len(found.way) > LEVELS), ())
    return BadState(path(_known(deep)[:8]) + "…", f"is nested deeper than {LEVELS} levels")


def _first(text: str, fits: Callable[[str], bool]) -> str:
    """The path of the first token that `fits`."""
    return next((path(_known(found.way)) for found in _tokens(text) if fits(found.mark)), "$")


def _too_long(token: str) -> bool:
    return len(token) > 4000 and token.lstrip("-").isdecimal()


def _twice(text: str) -> Iterator[str]:
    """The paths of the keys that an object has already."""
    seen: list[set[str]] = []
    for found in _tokens(text):
        while len(seen) > len(found.way):
            seen.pop()
        while len(seen) < len(found.way):
            seen.append(set())
        key = found.way[-1] if found.is_key else None
        if isinstance(key, str):
            if key in seen[-1]:
                yield path(_known(found.way))
            seen[-1].add(key)

"""In which line of a file each item begins, for whoever shows findings in it.

JSON that was read does not know where it stood, so the text is gone through once more, and only as
far as to tell where one item ends and the next begins.
"""

import json
from collections.abc import Iterator

from convo.items import Json

SPACE = " \t\r\n"
DECODER = json.JSONDecoder()


def lines(text: str, field: str = "") -> tuple[int, ...]:
    """The line of each item of a list, the first is 1; of no more items than can be told apart.

    text:   JSON that was read before, or a JSON object a line
    field:  the member that holds the list, where `text` is one object
    """
    begun, at, counted = [], 0, 1
    for start in _starts(text, field):
        counted += text.count("\n", at, start)
        begun.append(counted)
        at = start
    return tuple(begun)


def _starts(text: str, field: str) -> Iterator[int]:
    at = _skip(text, 0)
    if field:
        at = _member(text, at, field)
    inside = text[at : at + 1] == "["
    at = _skip(text, at + 1 if inside else at)
    while at < len(text) and text[at] != "]":
        yield at
        at = _skip(text, _end(text, at))
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)


def _member(text: str, at: int, field: str) -> int:
    """Where the value of an object's member begins."""
    at = _skip(text, at + 1)
    while at < len(text) and text[at] == '"':
        name, at = _value(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if name == field:
            return at
        at = _skip(text, _end(text, at))
        at = _skip(text, at + 1)
    return len(text)


def _end(text: str, at: int) -> int:
    return _value(text, at)[1]


def _value(text: str, at: int) -> tuple[Json, int]:
    return DECODER.raw_decode(text, at)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in SPACE:
        at += 1
    return at

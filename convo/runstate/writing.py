"""From a state back to text, the one writer there is.

A line for every member of the document and of its context, and for every element of its lists, so
that two files can be compared by eye and by `diff`, and a file of thousands of items is written in
milliseconds. Characters beyond ASCII are escaped, as every release escapes them.
"""

import json

from convo.errors import BadState
from convo.items import Json
from convo.runstate.state import State

ENCODER = json.JSONEncoder(allow_nan=False)

OPENED = 2
"""How many levels are written a member a line."""


def text(state: State) -> str:
    """`state` as JSON text; read again it is equal as JSON values. raises: BadState"""
    try:
        return _opened(state.document, OPENED, "") + "\n"
    except (RecursionError, ValueError) as wrong:
        raise BadState("$", f"cannot be written as JSON: {wrong}") from wrong


def _opened(value: Json, levels: int, indent: str) -> str:
    if not levels or not value or not isinstance(value, dict | list):
        return ENCODER.encode(value)
    deeper = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + ENCODER.encode(one) for one in value) + f"\n{indent}]"
    members = (f"{deeper}{ENCODER.encode(key)}: {_opened(below, levels - 1, deeper)}" for key, below in value.items())
    return "{\n" + ",\n".join(members) + f"\n{indent}}}"

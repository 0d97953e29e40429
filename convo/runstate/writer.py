"""Serialize a RunState as JSON text.

One line for each member of the document and of its context and each element of its lists, so files can be diffed.
"""

import json
import re

from convo.errors import InvalidRunState
from convo.history.items import Json
from convo.runstate.run_state import RunState

STATE_ENCODER = json.JSONEncoder(allow_nan=False)

EXPANDED_LEVELS = 2
"""Levels of objects that are written with one member on each line."""


def serialize_run_state(state: RunState) -> str:
    """Serialize `state` as JSON text; parsing it gives equal JSON values. Raises InvalidRunState."""
    try:
        if state.written_document is not state.document:
            return write_compact_json(state.written_document) + "\n"
        return _serialize_value(state.document, EXPANDED_LEVELS, "") + "\n"
    except (RecursionError, ValueError) as error:
        raise InvalidRunState("$", f"cannot be written as JSON: {error}") from error


def write_compact_json(value: Json) -> str:
    """Write JSON as `JSON.stringify` does. Raises ValueError or RecursionError."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _serialize_value(value: Json, levels: int, indent: str) -> str:
    if not levels or not value or not isinstance(value, dict | list):
        return STATE_ENCODER.encode(value)
    deeper = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + STATE_ENCODER.encode(element) for element in value) + f"\n{indent}]"
    members = (
        f"{deeper}{STATE_ENCODER.encode(key)}: {_serialize_value(member, levels - 1, deeper)}"
        for key, member in value.items()
    )
    return "{\n" + ",\n".join(members) + f"\n{indent}}}"

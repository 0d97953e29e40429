"""What a model wrote as arguments, read and checked against what it was asked for.

A model makes mistakes, and can mend them when it is told which. So a mistake is no error of ours
but a value: the words go back as the call's output, name every field that does not fit and say
what it has to be.
"""

import json
from dataclasses import dataclass

from convo.items import Json
from convo.tools.forms import Mismatch
from convo.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Wrong:
    """Arguments that do not fit; `words` are for the model."""

    words: str


def read_arguments(tool: Tool, written: str) -> dict[str, object] | Wrong:
    """The arguments by name, as the function takes them; for a tool that reads them itself, as JSON says them.

    written:  as the model wrote it; nothing at all stands for no arguments
    """
    try:
        value = PARSER.decode(written.strip() or "{}")
    except (ValueError, RecursionError) as mistake:
        return _wrong(tool, f"they are not JSON ({_mistake(mistake)})")
    if not isinstance(value, dict):
        return _wrong(tool, "they must be one JSON object")
    if tool.record is None:
        return value
    try:
        return tool.record.read(value, "")
    except (Mismatch, RecursionError) as mistake:
        return _wrong(tool, _mistake(mistake))


def _wrong(tool: Tool, what: str) -> Wrong:
    return Wrong(f"Invalid arguments for tool {tool.title}: {what}. Call it again with arguments that fit its schema.")


def _mistake(mistake: Exception) -> str:
    return "nested too deep" if isinstance(mistake, RecursionError) else str(mistake)


def _refuse(constant: str) -> Json:
    raise ValueError(f"{constant} is no JSON number")


PARSER = json.JSONDecoder(parse_constant=_refuse)

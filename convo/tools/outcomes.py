"""What a model is told of a call that ended: the tool's answer as text, or the words for a failure.

The words are those of the Agents SDK, so that a run that changes hands reads the same.
"""

import json

from convo.items import Json
from convo.tools.tool import FAILED

NOT_APPROVED = "Tool execution was not approved."
"""What a model is told of a call that a person rejected without a reason."""

PARTS = {"input_text", "input_image", "input_file"}
"""Content that travels as it is; a list of it is an output of several parts."""

__all__ = ["FAILED", "NOT_APPROVED", "output_text", "timed_out"]


def timed_out(tool: str, timeout_s: float) -> str:
    return f"Tool '{tool}' timed out after {timeout_s:g} seconds."


def output_text(value: object) -> Json:
    """What a tool returned, as the `output` of its item: text as it is, content parts, else JSON, else its `str`."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [value]
    if parts and all(isinstance(part, dict) and part.get("type") in PARTS for part in parts):
        return parts
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)

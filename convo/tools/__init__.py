"""Tools: typed Python functions that a model may call, as values.

Read `tool` first (the decorator, names, arguments), then `schema` (types to JSON Schema and back). Nothing here runs
a tool; `convo.agent_runner.user_code` does.
"""

from convo.tools.schema import Form, Mismatch, ParsedDocstring, Record, form, made_by, parse_docstring
from convo.tools.tool import (
    FAILED,
    NO_VALUES,
    NOT_APPROVED,
    Approval,
    Context,
    Hosted,
    Lookup,
    Namespace,
    Tool,
    Toolbox,
    Wrong,
    definitions,
    lookup_of,
    output_text,
    read_arguments,
    timed_out,
    tool,
    toolbox,
)

__all__ = [
    "FAILED",
    "NOT_APPROVED",
    "NO_VALUES",
    "Approval",
    "Context",
    "Form",
    "Hosted",
    "Lookup",
    "Mismatch",
    "Namespace",
    "ParsedDocstring",
    "Record",
    "Tool",
    "Toolbox",
    "Wrong",
    "definitions",
    "form",
    "lookup_of",
    "made_by",
    "output_text",
    "parse_docstring",
    "read_arguments",
    "timed_out",
    "tool",
    "toolbox",
]

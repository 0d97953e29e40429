"""Tools: typed Python functions that a model may call, as values.

Read `tool` first (the decorator, names, arguments), then `schema` (types to JSON Schema and back). Nothing here runs
a tool; `convo.agent_runner.user_code` does.
"""

from convo.tools.schema import (
    Mismatch,
    ObjectSchema,
    ParsedDocstring,
    TypeSchema,
    call_converter,
    parse_docstring,
    type_schema,
)
from convo.tools.tool import (
    FAILED,
    NO_VALUES,
    NOT_APPROVED,
    Approval,
    Context,
    Hosted,
    InvalidArguments,
    Lookup,
    Namespace,
    Tool,
    Toolbox,
    output_text,
    read_arguments,
    timeout_message,
    tool,
    tool_definitions,
    tool_lookup,
    toolbox,
)

__all__ = [
    "FAILED",
    "NOT_APPROVED",
    "NO_VALUES",
    "Approval",
    "Context",
    "Hosted",
    "InvalidArguments",
    "Lookup",
    "Mismatch",
    "Namespace",
    "ObjectSchema",
    "ParsedDocstring",
    "Tool",
    "Toolbox",
    "TypeSchema",
    "call_converter",
    "output_text",
    "parse_docstring",
    "read_arguments",
    "timeout_message",
    "tool",
    "tool_definitions",
    "tool_lookup",
    "toolbox",
    "type_schema",
]

"""Fields of the Agents SDK's classes: which of them a run of convo honours, and which it refuses by name.

Every public field of the classes below stands in a table. None: convo honours it, or it has no effect
on a run here (the comment says why). A text: convo refuses a value other than the default, and the
text says what was refused. A field that stands in no table is new: a value other than its default is
refused, because leaving it out would run something else than what was written.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from convo.errors import Unsupported

PACKAGE = "agents"
"""The import name of the Agents SDK."""

HINT = "leave it out, or run it with the Agents SDK"

Fields: TypeAlias = Mapping[str, str | None]

AGENT: Fields = {
    "name": None,
    "handoff_description": None,
    "tools": None,
    "mcp_servers": "MCP servers",
    "mcp_config": None,  # read for mcp_servers alone
    "instructions": None,
    "prompt": "a stored prompt",
    "handoffs": None,
    "model": None,
    "model_settings": None,
    "input_guardrails": None,
    "output_guardrails": None,
    "output_type": None,
    "hooks": "lifecycle hooks",
    "tool_use_behavior": None,
    "reset_tool_choice": None,
}

HANDOFF: Fields = {
    "tool_name": None,
    "tool_description": None,
    "input_json_schema": None,
    "on_invoke_handoff": None,
    "agent_name": None,
    "input_filter": "an input filter",
    "nest_handoff_history": None,
    "strict_json_schema": None,
    "is_enabled": None,
}

INPUT_GUARDRAIL: Fields = {"guardrail_function": None, "name": None, "run_in_parallel": None}
OUTPUT_GUARDRAIL: Fields = {"guardrail_function": None, "name": None}

CALLERS = "callers other than the model"

TOOLS: Mapping[str, Fields] = {
    "FunctionTool": {
        "name": None,
        "description": None,
        "params_json_schema": None,
        "on_invoke_tool": None,
        "strict_json_schema": None,
        "is_enabled": None,
        "tool_input_guardrails": "tool guardrails",
        "tool_output_guardrails": "tool guardrails",
        "needs_approval": None,
        "timeout_seconds": None,
        "timeout_behavior": None,
        "timeout_error_function": "a custom timeout message",
        "defer_loading": None,
        "custom_data_extractor": "custom data",
        "allowed_callers": CALLERS,
        "output_json_schema": "an output schema",
    },
    "FileSearchTool": {
        "vector_store_ids": None,
        "max_num_results": None,
        "include_search_results": None,
        "ranking_options": None,
        "filters": None,
    },
    "WebSearchTool": {
        "user_location": None,
        "filters": None,
        "search_context_size": None,
        "external_web_access": None,
        "search_content_types": None,
        "image_settings": None,
    },
    "HostedMCPTool": {"tool_config": None, "on_approval_request": "a function that decides approvals"},
    "CodeInterpreterTool": {"tool_config": None},
    "ImageGenerationTool": {"tool_config": None},
    "ToolSearchTool": {"description": None, "execution": None, "parameters": None},
    "ShellTool": {
        "executor": "a shell on this machine",
        "name": None,
        "needs_approval": "its own approval rule",
        "on_approval": "a function that decides approvals",
        "environment": None,
        "allowed_callers": CALLERS,
    },
}
"""The tools that a run of convo can offer, by the SDK's class."""

NOT_PERFORMED: Mapping[str, str] = {
    "ComputerTool": "a computer",
    "LocalShellTool": "a local shell",
    "ApplyPatchTool": "patches to files",
    "CustomTool": "a custom tool, whose input is plain text",
    "ProgrammaticToolCallingTool": "programs that call tools",
}
"""The tools whose calls a run of convo cannot perform, and so does not offer."""


def sdk_classes(found: object) -> Iterator[type]:
    """The Agents SDK's own classes that `found` is an instance of, nearest first."""
    for kind in type(found).__mro__:
        if kind.__module__.partition(".")[0] == PACKAGE:
            yield kind


def sdk_class(found: object) -> type | None:
    """The nearest class of the Agents SDK that `found` is an instance of."""
    return next(sdk_classes(found), None)


def check_fields(what: str, found: Any, known: Fields) -> None:
    """Refuse the fields of `found` that a run of convo would not honour.

    what:    names the object in the error: "tool 'refund'"
    raises:  Unsupported  a field that is refused, or one that is not known, has a value other than its default
    """
    kind = sdk_class(found)
    declared = dataclasses.fields(kind) if kind is not None and dataclasses.is_dataclass(kind) else ()
    for field in declared:
        words = known.get(field.name, f"the field {field.name}")
        if words is None or field.name.startswith("_") or not field.init:
            continue
        if not _is_unset(getattr(found, field.name, None), field):
            raise Unsupported("convo", f"{words} ({what})", param=field.name, hint=HINT)


def _is_unset(value: object, field: "dataclasses.Field[Any]") -> bool:
    if value is None or (isinstance(value, str | list | tuple | dict | set) and not value):
        return True
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return value is default or (type(value) is type(default) and value == default)

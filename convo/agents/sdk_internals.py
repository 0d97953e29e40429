"""What the Agents SDK keeps in private names and has no public API for.

Each name is read here alone, and only where a run would otherwise differ without a word: settings for all agents, the
target of a handoff, the settings of an agent tool, which are in the closure of its function, the namespace or the MCP
server of a tool, and the classes that perform the calls of tools that are no functions. An object without the name
counts as one without the value.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from convo.agents.sdk_run import SDK_PACKAGE, UNSUPPORTED_HINT, SdkRun
from convo.errors import Unsupported
from convo.history.items import Json


def has_default_client() -> bool:
    """Return whether the application set a client or a key for all agents."""
    shared = import_module(f"{SDK_PACKAGE}.models._openai_shared")
    return any(getattr(shared, f"get_default_openai_{name}", lambda: None)() is not None for name in ("client", "key"))


def list_ignored_settings(agents: Iterable[Any], run: SdkRun) -> list[str]:
    """Return a sentence for each setting of the SDK that a run of convo ignores."""
    tracing = getattr(import_module(f"{SDK_PACKAGE}.tracing.setup"), "GLOBAL_TRACE_PROVIDER", None)
    processors = getattr(getattr(tracing, "_multi_processor", None), "_processors", ())
    uses_responses = import_module(f"{SDK_PACKAGE}.models._openai_shared").get_use_responses_by_default()
    sentences = {
        "set_default_openai_api is ignored: the provider's setting api chooses it": not uses_responses
        and not has_default_client(),
        "the model setting retry is ignored: convo and the client of a model repeat requests by their own rules": any(
            agent.model_settings.resolve(run.get("model_settings")).retry for agent in agents
        ),
        "trace processors are not called: convo stores each run (convo inspect)": any(
            type(processor).__name__ != "BatchTraceProcessor" for processor in processors
        ),
    }
    return [sentence for sentence, is_ignored in sentences.items() if is_ignored]


def get_handoff_agent(handoff: Any) -> Any:
    """Return the target of a handoff, to which it has only a weak reference; None without one."""
    reference = getattr(handoff, "_agent_ref", None)
    return reference() if callable(reference) else None


def get_namespace(tool: Any) -> tuple[str | None, str]:
    """Return the namespace of a function tool and its description."""
    return getattr(tool, "_tool_namespace", None), getattr(tool, "_tool_namespace_description", None) or ""


def get_mcp_binding(tool: Any) -> Any:
    """Return the values of `ServerTool` of a tool of an MCP server."""
    return getattr(tool, "_mcp_tool_binding", (tool.name, tool.name, None))


def is_agent_tool(tool: Any) -> bool:
    """Return whether `Agent.as_tool` made a tool."""
    return bool(getattr(tool, "_is_agent_tool", False))


EXECUTORS = {
    "ShellTool": ("ShellAction", "ToolRunShellCall"),
    "LocalShellTool": ("LocalShellAction", "ToolRunLocalShellCall"),
    "ApplyPatchTool": ("ApplyPatchAction", "ToolRunApplyPatchCall"),
    "CustomTool": ("CustomToolAction", "ToolRunCustom"),
}
"""Tools that are no functions -> the SDK's classes that perform a call of them."""


class Executor(NamedTuple):
    """The classes that perform a call with the executor that the agent brings."""

    action: Any
    make_call: Callable[[Any, Any], Any]


def find_executor(tool: Any) -> Executor | None:
    """Return the classes that perform the calls of a tool; None for a function and a hosted tool.

    Raises Unsupported if the installed SDK does not have them.
    """
    class_name = type(tool).__name__
    if class_name not in EXECUTORS or getattr(tool, "executor", tool) is None:
        return None
    action, call = EXECUTORS[class_name]
    try:
        actions = import_module(f"{SDK_PACKAGE}.run_internal.tool_actions")
        steps = import_module(f"{SDK_PACKAGE}.run_internal.run_steps")
        return Executor(getattr(actions, action), getattr(steps, call))
    except (ImportError, AttributeError) as error:
        hint = "run it with the Agents SDK, or install another version of it"
        raise Unsupported("convo", f"{class_name} of this version of the Agents SDK", hint=hint) from error


AGENT_TOOL_SETTINGS = {
    "session": "its own session",
    "conversation_id": "its own conversation",
    "previous_response_id": "its own previous response",
    "run_config": "its own run configuration",
    "on_stream": "an event listener",
    "custom_output_extractor": "a custom output extractor",
}
"""Variables in the closure of an agent tool -> the text of the error if one is set."""

READ_AGENT_TOOL_SETTINGS = {
    *("max_turns", "hooks", "should_capture_tool_input", "params_adapter", "schema_info", "input_builder"),
}
"""The other variables in it that are read."""

DEFAULT_MAX_TURNS = 10
"""Model calls of an agent tool without its own limit."""

DEFAULT_ERROR_FUNCTION = "default_tool_error_function"
"""The SDK's default message for a failure, which is ours too."""


class AgentToolSettings(NamedTuple):
    """Settings of an agent tool.

    reports_failures:  the model receives a message about a failure; otherwise the run fails
    """

    agent: Any
    max_turns: int
    reports_failures: bool
    hooks: Any
    read_input: Callable[[str], Awaitable[tuple[Json, Any]]] | None


def read_agent_tool_settings(tool: Any) -> AgentToolSettings:
    """Read the agent and the settings of an agent tool. Raises Unsupported for settings that convo does not know."""
    where = f"(tool {tool.name!r})"
    agent, variables = getattr(tool, "_agent_instance", None), _read_closure_variables(tool.on_invoke_tool)
    if agent is None or not AGENT_TOOL_SETTINGS.keys() | READ_AGENT_TOOL_SETTINGS <= variables.keys():
        raise Unsupported("convo", f"this kind of agent tool {where}", hint=UNSUPPORTED_HINT)
    for name, description in AGENT_TOOL_SETTINGS.items():
        if variables[name] is not None and variables[name] is not False:
            raise Unsupported("convo", f"an agent tool with {description} {where}", hint=UNSUPPORTED_HINT)
    failure = getattr(tool, "_failure_error_function", None)
    if failure is not None and getattr(failure, "__name__", "") != DEFAULT_ERROR_FUNCTION:
        raise Unsupported("convo", f"an agent tool with a custom failure message {where}", hint=UNSUPPORTED_HINT)
    default = bool(getattr(tool, "_use_default_failure_error_function", False))
    max_turns = variables["max_turns"] or DEFAULT_MAX_TURNS
    return AgentToolSettings(
        agent, max_turns, default or failure is not None, variables["hooks"], _make_input_reader(variables)
    )


def _make_input_reader(variables: Mapping[str, Any]) -> Callable[[str], Awaitable[tuple[Json, Any]]] | None:
    """Return the function that makes the input of an agent tool with parameters of its own; None for a usual one."""
    if not variables["should_capture_tool_input"]:
        return None
    adapter, resolve = variables["params_adapter"], import_module(f"{SDK_PACKAGE}.agent_tool_input")

    async def read_input(arguments: str) -> tuple[Json, Any]:
        values = adapter.dump_python(adapter.validate_json(arguments or "{}"), mode="json")
        return values, await resolve.resolve_agent_tool_input(
            params=values, schema_info=variables["schema_info"], input_builder=variables["input_builder"]
        )

    return read_input


def _read_closure_variables(function: Any) -> Mapping[str, Any]:
    """Return the closure variables of a tool's function, which may be wrapped in one that handles failures."""
    inner: Callable[..., Any] = getattr(function, "_invoke_tool_impl", function)
    return inspect.getclosurevars(inner).nonlocals if inspect.isfunction(inner) else {}

"""Run configuration, and its validation against the owner of the state.

All that can be checked before a run is rejected before it starts: an owner that stores the
history accepts no rewritten history, so no handoff filter, no session limit and no output
guardrail; and no agent may leave the endpoint that has the history.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from convo.agents.agent import Agent, CustomModel
from convo.agents.graph import AgentTool, Graph
from convo.agents.handoffs import HandoffDefaults, build_handoff_tools, plan_handoff
from convo.agents.sdk import ForeignInputFilter
from convo.chat.turn import RequestOptions
from convo.endpoints.base import Endpoint
from convo.errors import InputFault, InvalidUsage, NotCanonical, Unsupported, WrongOwner
from convo.history.canonical import item_hash
from convo.history.items import Item, Json
from convo.history.records import Strategy
from convo.runs.state import RunLimits, ToolCall
from convo.stores.base import Store
from convo.strategies.strategy import STRATEGIES
from convo.tools.tool import NO_VALUES, Context, Hosted, Tool, tool_definitions, toolbox

RESERVED_SETTINGS = frozenset(
    {"input", "model", "instructions", "tools", "previous_response_id", "conversation", "stream"}
)
"""Fields of a request that the owner and the run set; an agent's settings may not contain them."""

CLIENT_TOOL_TYPES = frozenset({"function", "local_shell", "apply_patch", "computer", "computer_use_preview", "custom"})
"""Types of hosted tools whose calls the client must run; a run calls only its own functions."""

OWN_HISTORY_HINT = "remove it, or keep the history locally with --session or --replay"
"""The hint before the first message; afterwards the hint is a command that converts the conversation."""


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """The request options and the endpoint of a model."""

    options: RequestOptions
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class ModelInput:
    """The argument and the return value of an input filter: exactly the input of one model call."""

    items: list[Item]
    instructions: str | None = None


def noop_test_hook(point: str) -> None:
    """Do nothing; a test ends the process here."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The configuration of a run, for all that its agents do not set.

    limits:                  model calls of a run, and calls that run concurrently
    handoff_defaults:        nesting, mapper, markers and filter of handoffs
    input_filter:            ModelInput -> ModelInput, sync or async, before every model call; or a
                             `call_model_input_filter` of the Agents SDK as a `ForeignInputFilter`;
                             with a server-side history it receives, and may change, only the items that the owner lacks
    session_limit:           how many of the newest stored items precede new input; session and replay only
    session_input_callback:  (stored items, new items) -> the model's input, sync or async; session and replay only
    sdk_session:             a session of the Agents SDK: its items precede the first turn of a new session, and it
                             receives those of each run
    tool_input:              as in `Context`
    format_rejection:        (call, context) -> the output for the model of a call that was rejected without a message
    values:                  context values of the application, for tools, guardrails and instructions: a mapping, or
                             any object
    context_serializer:      returns a mapping of `values` for a RunState
    start_agent:             the agent that begins the next run; None: the one that answered last
    resolve_model:           returns the route of an agent's own model; None: every agent uses the chat's route
    open_scratch_store:      returns an empty store that ends with the process, for nested runs
    agents_source:           where the application loaded the agents from; stored with the run for the application alone
    test_hook:               called with a name between any two effects; a test ends the process there
    """

    limits: RunLimits = field(default_factory=RunLimits)
    handoff_defaults: HandoffDefaults = field(default_factory=HandoffDefaults)
    input_filter: Callable[[ModelInput], Any] | ForeignInputFilter | None = None
    session_limit: int | None = None
    session_input_callback: Callable[[list[Item], list[Item]], Any] | None = None
    sdk_session: Any = None
    tool_input: Json = None
    format_rejection: Callable[[ToolCall, Context], Any] | None = None
    values: Any = field(default_factory=lambda: NO_VALUES)
    context_serializer: Callable[[Any], Any] | None = None
    start_agent: str | None = None
    resolve_model: Callable[[str | CustomModel], ModelRoute] | None = None
    open_scratch_store: Callable[[], Store] | None = None
    agents_source: Mapping[str, Json] | None = None
    test_hook: Callable[[str], None] = noop_test_hook


def validate_run_config(
    graph: Graph,
    config: RunConfig,
    strategy: Strategy,
    options: RequestOptions,
    endpoint: Endpoint,
    own_history_hint: str = OWN_HISTORY_HINT,
) -> None:
    """Reject a configuration that the owner of the state does not allow.

    own_history_hint:  how to make the client own the history
    Raises WrongOwner for the cases in the module docstring, NotFound for an unknown `start_agent`,
    InvalidUsage for an agent's model without a route, InputFault for tools with one name, and Unsupported for a
    hosted tool that the client must run.
    """
    is_server_side = STRATEGIES[strategy].is_server_side
    _validate_limits(config)
    if config.start_agent is not None:
        graph[config.start_agent]
    if is_server_side and (config.session_limit is not None or config.session_input_callback is not None):
        raise _make_wrong_owner("a session limit or session input callback", strategy, own_history_hint)
    if config.sdk_session is not None and strategy is not Strategy.SESSION:
        raise _make_wrong_owner("a session of the Agents SDK", strategy, "use --session, or --sdk-session none")
    for tool in options.parameters.get("tools") or ():
        if _is_client_tool(tool):
            raise Unsupported(
                "a run",
                f"the tool {tool.get('type')!r} in the parameters",
                hint="name a function with --tool FILE.py:NAME",
            )
    for identity, agent in graph.agents.items():
        toolbox(agent.functions)
        tool_definitions(agent.tools)
        build_handoff_tools(graph, identity)
        for handoff in agent.ways:
            plan_handoff(
                handoff,
                config.handoff_defaults,
                is_server_history=is_server_side,
                agent_names=(agent.name, graph[str(handoff.to)].name),
            )
        if is_server_side and agent.output_guardrails:
            raise _make_wrong_owner(f"an output guardrail (agent {agent.name!r})", strategy, own_history_hint)
        _validate_settings(agent)
        _validate_hosted_tools(agent)
        _validate_model(agent, config, is_server_side, options, endpoint, own_history_hint)
        for tool in agent.functions:
            if isinstance(tool, AgentTool):
                _validate_nested_run(tool, config, options, endpoint)


def _validate_nested_run(tool: AgentTool, config: RunConfig, options: RequestOptions, endpoint: Endpoint) -> None:
    """Validate the agents of an agent tool: they work on a history that the run itself owns."""
    if config.open_scratch_store is None:
        raise InvalidUsage(
            f"the nested run of tool {tool.title!r} has no store", hint="set open_scratch_store in the RunConfig"
        )
    validate_run_config(tool.graph, make_nested_config(tool, config), Strategy.SESSION, options, endpoint)


def make_nested_config(tool: AgentTool, config: RunConfig) -> RunConfig:
    """Return the configuration of the nested run of a call of `tool`."""
    limits = replace(config.limits, max_turns=tool.max_turns)
    return replace(
        config,
        limits=limits,
        session_limit=None,
        session_input_callback=None,
        sdk_session=None,
        start_agent=None,
        agents_source=None,
    )


def _validate_limits(config: RunConfig) -> None:
    limits = config.limits
    if limits.max_parallel_calls < 1 or (limits.max_turns is not None and limits.max_turns < 1):
        raise InvalidUsage("a run needs at least one turn and one parallel call", hint="remove the limit")
    if config.session_limit is not None and config.session_limit < 0:
        raise InvalidUsage("a session limit is 0 or more items", hint="use 0 to send no stored items")
    if config.session_input_callback is not None and not callable(config.session_input_callback):
        raise InvalidUsage("a session input callback must be a function", hint="name a function as file.py:name")


def _validate_hosted_tools(agent: Agent) -> None:
    """Reject a hosted tool whose calls the client must run."""
    for tool in agent.tools:
        if not isinstance(tool, Tool) and _is_client_tool(tool):
            tool_type = tool["type"]
            raise Unsupported(
                "a run", f"the tool {tool_type!r} of agent {agent.name!r}", hint="use a function tool instead"
            )


def _is_client_tool(tool: Hosted) -> bool:
    if tool.get("type") == "shell":
        return bool((tool.get("environment") or {}).get("type", "local") == "local")
    if tool.get("type") == "tool_search":
        return bool(tool.get("execution") == "client")
    return tool.get("type") in CLIENT_TOOL_TYPES


def _validate_settings(agent: Agent) -> None:
    reserved_names = sorted(RESERVED_SETTINGS & agent.settings.keys())
    if reserved_names:
        raise WrongOwner(
            f"the settings of agent {agent.name!r} contain {reserved_names[0]!r}, which only the run can set",
            hint="remove it; --session, --conversation and --chain choose the owner",
        )
    try:
        item_hash({"settings": dict(agent.settings)})
    except NotCanonical as error:
        raise InputFault(
            f"the settings of agent {agent.name!r} are not JSON: {error.message}",
            hint="use only JSON values: they become fields of a request",
        ) from error


def _validate_model(
    agent: Agent,
    config: RunConfig,
    is_server_side: bool,
    options: RequestOptions,
    endpoint: Endpoint,
    own_history_hint: str,
) -> None:
    if agent.model is None or agent.model in (options.model, options.wire_model):
        return
    if config.resolve_model is None:
        raise InvalidUsage(
            f"agent {agent.name!r} uses the model {agent.model!r}, but this run uses only {options.model!r}",
            hint="remove its model, or choose that model with -m",
        )
    scope = config.resolve_model(agent.model).endpoint.scope
    if is_server_side and scope != endpoint.scope:
        raise WrongOwner(
            f"agent {agent.name!r} uses a model at {scope}, but {endpoint.scope} stores the history",
            hint=own_history_hint,
        )


def _make_wrong_owner(subject: str, strategy: Strategy, own_history_hint: str) -> WrongOwner:
    return WrongOwner(
        f"{subject} cannot be used with --{strategy}: {STRATEGIES[strategy].description} stores the history",
        hint=own_history_hint,
    )

"""Run configuration, and what the owner of the state does not allow.

Everything that can be known before a run starts is rejected before it starts: an owner that
stores the history accepts no rewritten history, so no handoff filter, no session limit and no
output guardrail; and no agent may leave the endpoint that has the history.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from convo.agents.agent import Agent
from convo.agents.graph import AgentTool, Graph
from convo.agents.handoffs import HandoffDefaults, build_handoff_tools, plan_handoff
from convo.agents.sdk import ForeignInputFilter
from convo.chat.turn import RequestOptions
from convo.endpoints.base import Endpoint
from convo.errors import InputFault, InvalidUsage, NotCanonical, Unsupported, WrongOwner
from convo.history.canonical import item_hash
from convo.history.items import Item, Json
from convo.history.records import STRATEGY_INFO, Strategy
from convo.runs.state import RunLimits
from convo.stores.base import Store
from convo.tools.tool import NO_VALUES, Hosted, Tool, definitions, toolbox

RESERVED_SETTINGS = frozenset(
    {"input", "model", "instructions", "tools", "previous_response_id", "conversation", "stream"}
)
"""Fields of a request that an agent's settings may not say: the owner and the run do."""

CLIENT_TOOL_TYPES = frozenset({"function", "local_shell", "apply_patch", "computer", "computer_use_preview", "custom"})
"""Types of hosted tools whose calls the client has to perform, which a run does for functions of its own alone."""

OWN_HISTORY_HINT = "take it out, or own the history with --session or --replay"
"""The next step where nothing has been said yet; afterwards it is a command that hands the history over."""


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """Who answers for a model: how it is asked, and its endpoint."""

    asking: RequestOptions
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What an input filter gets, and has to return: exactly what its model call sends."""

    items: list[Item]
    instructions: str | None = None


def noop_test_hook(place: str) -> None:
    """No test ends the process."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """How a run behaves, where its agents do not say.

    limits:         model calls a run, calls at once
    habits:         how it hands over: nesting, mapper, markers, filter
    input_filter:   ModelInput -> ModelInput, sync or async, before every model call; or a `call_model_input_filter`
                    of the Agents SDK as a `ForeignInputFilter`;
                    under an owner that remembers it sees, and may change, only what the owner lacks
    session_limit:  how many of the newest kept items precede new input; session and replay only
    session_input:  (kept items, new items) -> the model's input, sync or async; session and replay only
    values:         the application's own, for tools, guardrails and instructions
    route:          who answers for an agent's own model; None: every agent is asked as the chat is
    scratch:        an empty store that keeps nothing beyond this process, for runs inside a call
    origin:         how the application got the agents: kept beside the run, and read by the application alone
    at:             called with a name between every two effects: where a test ends the process
    """

    limits: RunLimits = field(default_factory=RunLimits)
    habits: HandoffDefaults = field(default_factory=HandoffDefaults)
    input_filter: Callable[[ModelInput], Any] | ForeignInputFilter | None = None
    session_limit: int | None = None
    session_input: Callable[[list[Item], list[Item]], Any] | None = None
    values: Mapping[str, Json] = field(default_factory=lambda: NO_VALUES)
    route: Callable[[str], ModelRoute] | None = None
    scratch: Callable[[], Store] | None = None
    origin: Mapping[str, Json] | None = None
    at: Callable[[str], None] = noop_test_hook


def validate_run_config(
    graph: Graph,
    conduct: RunConfig,
    strategy: Strategy,
    asking: RequestOptions,
    endpoint: Endpoint,
    own_it: str = OWN_HISTORY_HINT,
) -> None:
    """Refuse what this owner does not allow.

    own_it:  how the person comes to own the history
    raises:  WrongOwner  named above;  InvalidUsage  an agent's model that nobody here answers for
             InputFault  tools that a call could not tell apart
             Unsupported  a hosted tool whose calls a run does not perform
    """
    remembers = STRATEGY_INFO[strategy].remembers
    _validate_limits(conduct)
    if remembers and (conduct.session_limit is not None or conduct.session_input is not None):
        raise _make_wrong_owner("a session's limit or input callback", strategy, own_it)
    for identity, agent in graph.agents.items():
        toolbox(agent.functions)
        definitions(agent.tools)
        build_handoff_tools(graph, identity)
        for way in agent.ways:
            plan_handoff(way, conduct.habits, remembers=remembers, names=(agent.name, graph[str(way.to)].name))
        if remembers and agent.output_guardrails:
            raise _make_wrong_owner(f"an output guardrail (agent {agent.name!r})", strategy, own_it)
        _validate_settings(agent)
        _validate_hosted_tools(agent)
        _validate_model(agent, conduct, remembers, asking, endpoint, own_it)
        for tool in agent.functions:
            if isinstance(tool, AgentTool):
                _validate_nested_run(tool, conduct, asking, endpoint)


def _validate_nested_run(tool: AgentTool, conduct: RunConfig, asking: RequestOptions, endpoint: Endpoint) -> None:
    """The agents behind a tool work on a history that the run itself owns."""
    if conduct.scratch is None:
        raise InvalidUsage(f"nothing here holds the run inside of tool {tool.title!r}", hint="hand in a store for it")
    validate_run_config(tool.inside, make_nested_config(tool, conduct), Strategy.SESSION, asking, endpoint)


def make_nested_config(tool: AgentTool, conduct: RunConfig) -> RunConfig:
    """How the run inside a call of `tool` behaves."""
    limits = replace(conduct.limits, max_turns=tool.max_turns)
    return replace(conduct, limits=limits, session_limit=None, session_input=None, origin=None)


def _validate_limits(conduct: RunConfig) -> None:
    limits = conduct.limits
    if limits.parallel < 1 or (limits.max_turns is not None and limits.max_turns < 1):
        raise InvalidUsage("a run needs at least one turn, and room for one call", hint="leave the limit out")
    if conduct.session_limit is not None and conduct.session_limit < 0:
        raise InvalidUsage("a session's limit is a number of items", hint="0 sends none of them")
    if conduct.session_input is not None and not callable(conduct.session_input):
        raise InvalidUsage("a session's input callback is no function", hint="name a function, as file.py:name")


def _validate_hosted_tools(agent: Agent) -> None:
    """Refuse to offer a tool whose calls would have to be run by the client."""
    for tool in agent.tools:
        if not isinstance(tool, Tool) and _is_client_tool(tool):
            kind = tool["type"]
            raise Unsupported(
                "a run", f"the tool {kind!r} of agent {agent.name!r}", hint="offer a function of your own instead"
            )


def _is_client_tool(tool: Hosted) -> bool:
    if tool["type"] == "shell":
        return bool((tool.get("environment") or {}).get("type", "local") == "local")
    if tool["type"] == "tool_search":
        return bool(tool.get("execution") == "client")
    return tool["type"] in CLIENT_TOOL_TYPES


def _validate_settings(agent: Agent) -> None:
    wrong = sorted(RESERVED_SETTINGS & agent.settings.keys())
    if wrong:
        raise WrongOwner(
            f"the settings of agent {agent.name!r} say {wrong[0]!r}, which is the run's to say",
            hint="take it out; --session, --conversation and --chain choose the owner",
        )
    try:
        item_hash({"settings": dict(agent.settings)})
    except NotCanonical as no_json:
        raise InputFault(
            f"the settings of agent {agent.name!r} are no JSON: {no_json.message}", hint="they are fields of a request"
        ) from no_json


def _validate_model(
    agent: Agent, conduct: RunConfig, remembers: bool, asking: RequestOptions, endpoint: Endpoint, own_it: str
) -> None:
    if agent.model is None or agent.model in (asking.model, asking.wire_model):
        return
    if conduct.route is None:
        raise InvalidUsage(
            f"agent {agent.name!r} is asked as {agent.model!r}, and this run asks {asking.model!r} alone",
            hint="take its model out, or choose it with -m",
        )
    other = conduct.route(agent.model).endpoint.scope
    if remembers and other != endpoint.scope:
        raise WrongOwner(
            f"agent {agent.name!r} is asked at {other}, and the history belongs to {endpoint.scope}",
            hint=own_it,
        )


def _make_wrong_owner(what: str, strategy: Strategy, own_it: str) -> WrongOwner:
    return WrongOwner(
        f"{what} does not go with --{strategy}: {STRATEGY_INFO[strategy].words} has the history", hint=own_it
    )

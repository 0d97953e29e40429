"""How a run behaves beyond what its agents say, and what an owner does not allow.

Everything that can be known before a run begins is refused before it begins: an owner that
remembers takes no rewritten history, so no filter, no limit and no guardrail over an answer that it
already holds; and no agent may leave its endpoint.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from convo.agents import Agent, AgentTool, ForeignInputFilter, Graph
from convo.endpoints.contract import Endpoint
from convo.engine.turn import Asking
from convo.errors import InputFault, NotCanonical, Unsupported, Usage, WrongOwner
from convo.handoffs import Habits, offers, plan
from convo.history import OWNERS, Strategy
from convo.items import Item, Json, hash_of
from convo.run import Limits
from convo.stores.contract import Store
from convo.tools import NO_VALUES, Hosted, Tool, definitions, toolbox

OURS = frozenset({"input", "model", "instructions", "tools", "previous_response_id", "conversation", "stream"})
"""Fields of a request that an agent's settings may not say: the owner and the run do."""

CLIENT_TOOLS = frozenset({"function", "local_shell", "apply_patch", "computer", "computer_use_preview", "custom"})
"""Types of hosted tools whose calls the client has to perform, which a run does for functions of its own alone."""

OWN_IT = "take it out, or own the history with --session or --replay"
"""The next step where nothing has been said yet; afterwards it is a command that hands the history over."""


@dataclass(frozen=True, slots=True)
class Route:
    """Who answers for a model: how it is asked, and its endpoint."""

    asking: Asking
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What an input filter gets, and has to return: exactly what its model call sends."""

    items: list[Item]
    instructions: str | None = None


def nowhere(place: str) -> None:
    """No test ends the process."""


@dataclass(frozen=True, slots=True)
class Conduct:
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

    limits: Limits = field(default_factory=Limits)
    habits: Habits = field(default_factory=Habits)
    input_filter: Callable[[ModelInput], Any] | ForeignInputFilter | None = None
    session_limit: int | None = None
    session_input: Callable[[list[Item], list[Item]], Any] | None = None
    values: Mapping[str, Json] = field(default_factory=lambda: NO_VALUES)
    route: Callable[[str], Route] | None = None
    scratch: Callable[[], Store] | None = None
    origin: Mapping[str, Json] | None = None
    at: Callable[[str], None] = nowhere


def check(
    graph: Graph, conduct: Conduct, strategy: Strategy, asking: Asking, endpoint: Endpoint, own_it: str = OWN_IT
) -> None:
    """Refuse what this owner does not allow.

    own_it:  how the person comes to own the history
    raises:  WrongOwner  named above;  Usage  an agent's model that nobody here answers for
             InputFault  tools that a call could not tell apart
             Unsupported  a hosted tool whose calls a run does not perform
    """
    remembers = OWNERS[strategy].remembers
    _numbers(conduct)
    if remembers and (conduct.session_limit is not None or conduct.session_input is not None):
        raise _refused("a session's limit or input callback", strategy, own_it)
    for identity, agent in graph.agents.items():
        toolbox(agent.functions)
        definitions(agent.tools)
        offers(graph, identity)
        for way in agent.ways:
            plan(way, conduct.habits, remembers=remembers, names=(agent.name, graph[str(way.to)].name))
        if remembers and agent.output_guardrails:
            raise _refused(f"an output guardrail (agent {agent.name!r})", strategy, own_it)
        _settings(agent)
        _hosted(agent)
        _model(agent, conduct, remembers, asking, endpoint, own_it)
        for tool in agent.functions:
            if isinstance(tool, AgentTool):
                _inside(tool, conduct, asking, endpoint)


def _inside(tool: AgentTool, conduct: Conduct, asking: Asking, endpoint: Endpoint) -> None:
    """The agents behind a tool work on a history that the run itself owns."""
    if conduct.scratch is None:
        raise Usage(f"nothing here holds the run inside of tool {tool.title!r}", hint="hand in a store for it")
    check(tool.inside, inside(tool, conduct), Strategy.SESSION, asking, endpoint)


def inside(tool: AgentTool, conduct: Conduct) -> Conduct:
    """How the run inside a call of `tool` behaves."""
    limits = replace(conduct.limits, max_turns=tool.max_turns)
    return replace(conduct, limits=limits, session_limit=None, session_input=None, origin=None)


def _numbers(conduct: Conduct) -> None:
    limits = conduct.limits
    if limits.parallel < 1 or (limits.max_turns is not None and limits.max_turns < 1):
        raise Usage("a run needs at least one turn, and room for one call", hint="leave the limit out")
    if conduct.session_limit is not None and conduct.session_limit < 0:
        raise Usage("a session's limit is a number of items", hint="0 sends none of them")
    if conduct.session_input is not None and not callable(conduct.session_input):
        raise Usage("a session's input callback is no function", hint="name a function, as file.py:name")


def _hosted(agent: Agent) -> None:
    """Refuse to offer a tool whose calls would have to be run by the client."""
    for tool in agent.tools:
        if not isinstance(tool, Tool) and _is_for_the_client(tool):
            kind = tool["type"]
            raise Unsupported(
                "a run", f"the tool {kind!r} of agent {agent.name!r}", hint="offer a function of your own instead"
            )


def _is_for_the_client(tool: Hosted) -> bool:
    if tool["type"] == "shell":
        return bool((tool.get("environment") or {}).get("type", "local") == "local")
    if tool["type"] == "tool_search":
        return bool(tool.get("execution") == "client")
    return tool["type"] in CLIENT_TOOLS


def _settings(agent: Agent) -> None:
    wrong = sorted(OURS & agent.settings.keys())
    if wrong:
        raise WrongOwner(
            f"the settings of agent {agent.name!r} say {wrong[0]!r}, which is the run's to say",
            hint="take it out; --session, --conversation and --chain choose the owner",
        )
    try:
        hash_of({"settings": dict(agent.settings)})
    except NotCanonical as no_json:
        raise InputFault(
            f"the settings of agent {agent.name!r} are no JSON: {no_json.message}", hint="they are fields of a request"
        ) from no_json


def _model(agent: Agent, conduct: Conduct, remembers: bool, asking: Asking, endpoint: Endpoint, own_it: str) -> None:
    if agent.model is None or agent.model in (asking.model, asking.wire_model):
        return
    if conduct.route is None:
        raise Usage(
            f"agent {agent.name!r} is asked as {agent.model!r}, and this run asks {asking.model!r} alone",
            hint="take its model out, or choose it with -m",
        )
    other = conduct.route(agent.model).endpoint.scope
    if remembers and other != endpoint.scope:
        raise WrongOwner(
            f"agent {agent.name!r} is asked at {other}, and the history belongs to {endpoint.scope}",
            hint=own_it,
        )


def _refused(what: str, strategy: Strategy, own_it: str) -> WrongOwner:
    return WrongOwner(f"{what} does not go with --{strategy}: {OWNERS[strategy].words} has the history", hint=own_it)

"""How one agent is asked: its own words, tools, handoffs and settings over those of the chat.

All of it is asked anew before every model call: instructions may be a function, and a tool or a
handoff may be on in one turn and off in the next. What was not offered cannot be called.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from convo.agents import Agent, Graph
from convo.endpoints.contract import Endpoint
from convo.engine.conduct import Conduct, Route
from convo.engine.theirs import told_by, told_whether
from convo.engine.turn import Asking
from convo.errors import RunFailed
from convo.handoffs import Offer, offers
from convo.items import Json
from convo.run import Answered, Ask
from convo.tools import Context, Hosted, Tool, Toolbox, definitions, toolbox


@dataclass(frozen=True, slots=True)
class Asked:
    """One model call of a run, and what it offered."""

    asking: Asking
    endpoint: Endpoint
    tools: Toolbox
    handoffs: Mapping[str, str]

    def answered(self, output: tuple[Any, ...]) -> Answered:
        return Answered(output, self.tools, self.handoffs)


async def asked(
    graph: Graph, ask: Ask, base: Route, conduct: Conduct, context: Context, session: str | None = None
) -> Asked:
    """How `ask` is asked now.

    base:     how the chat asks
    context:  what the agent's functions may know of the run
    session:  the id of the session that asks; None where nothing is sent
    raises:   RunFailed  a function of the agent raised;  InputFault  two tools of one name
    """
    agent = graph[ask.agent]
    tools = [one for one in agent.tools if await _is_on(one, context)]
    ways = [offer for offer in offers(graph, ask.agent) if await _is_on(offer.way, context)]
    route = _route(agent, base, conduct)
    settings = agent.settings_for(route.asking.wire_model)
    parameters = _parameters(agent, settings, ask, route.asking.parameters, tools, ways)
    if agent.cache_key and session and _is_official(route.endpoint.scope.url):
        parameters.setdefault("prompt_cache_key", session_cache_key(session))
    asking = replace(
        route.asking,
        instructions=await _instructions(agent, context, base.asking),
        parameters=parameters,
        store=bool(settings.get("store", route.asking.store)),
    )
    functions = toolbox(one for one in tools if isinstance(one, Tool))
    return Asked(asking, route.endpoint, functions, {offer.name: offer.to for offer in ways})


def session_cache_key(session: str) -> str:
    """The `prompt_cache_key` that the Agents SDK generates for requests of a session."""
    return f"agents-sdk:session:{sha256(session.encode()).hexdigest()[:32]}"


def _is_official(url: str) -> bool:
    """Whether the Agents SDK takes a base URL for OpenAI's own."""
    parts = urlsplit(url)
    return parts.scheme == "https" and parts.hostname == "api.openai.com"


def _route(agent: Agent, base: Route, conduct: Conduct) -> Route:
    if agent.model is None or conduct.route is None or agent.model in (base.asking.model, base.asking.wire_model):
        return base
    return conduct.route(agent.model)


async def _is_on(one: Any, context: Context) -> bool:
    """Whether a tool or handoff is offered now; a hosted tool always is."""
    enabled = getattr(one, "enabled", True)
    if not callable(enabled):
        return bool(enabled)
    return await told_whether("what says whether a tool is on", "tool_failed", enabled, context)


async def _instructions(agent: Agent, context: Context, asking: Asking) -> str | None:
    """The agent's own words; without any those of the chat."""
    said = agent.instructions
    if callable(said):
        said = await told_by(f"the instructions of agent {agent.name!r}", "instructions", said, context)
        if not isinstance(said, str | None):
            raise RunFailed(f"the instructions of agent {agent.name!r} are no text", code="instructions")
    return said if said is not None else asking.instructions


def _parameters(
    agent: Agent,
    settings: Mapping[str, Json],
    ask: Ask,
    parameters: Mapping[str, Json],
    tools: list[Tool | Hosted],
    ways: list[Offer],
) -> dict[str, Json]:
    """The fields of the request: the chat's, and the agent's over them."""
    settings = {name: value for name, value in settings.items() if name != "store"}
    if ask.free:
        settings.pop("tool_choice", None)
    fields = {**parameters, **settings}
    offered = [*definitions(tools), *(offer.definition for offer in ways)]
    if offered:
        fields["tools"] = offered
    else:
        fields.pop("parallel_tool_calls", None)  # servers refuse it without tools
    if agent.output is not None:
        fields["text"] = {**(fields.get("text") or {}), "format": agent.output.format}
    return fields

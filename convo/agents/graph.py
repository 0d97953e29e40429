"""The agents that a run can reach, by identity, and agents used as tools.

Agents that share a name get the identities `Name`, `Name#2`, ... in the order of their handoffs, nearest first (the
Agents SDK numbers them differently). An `AgentTool` runs its own graph inside one tool call.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from convo.agents.agent import Agent
from convo.errors import InputFault, NotFound
from convo.history.items import Json
from convo.tools.tool import FAILED, Approval, Tool, tool


@dataclass(frozen=True, slots=True)
class Graph:
    """Agents by identity; the handoffs of each agent name identities.

    start:  the identity of the agent that a run begins with
    """

    start: str
    agents: Mapping[str, Agent]

    def __getitem__(self, identity: str) -> Agent:
        """Return the agent of an identity. Raises NotFound."""
        try:
            return self.agents[identity]
        except KeyError:
            raise NotFound("agent", identity, hint=f"choose one of {', '.join(self.agents)}") from None

    def find_identity(self, name: str) -> str:
        """Return the identity of the agent that a user names, in any case. Raises NotFound."""
        same = [identity for identity in self.agents if identity.casefold() == name.casefold()]
        identity = same[0] if len(same) == 1 else name
        self[identity]
        return identity

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Names that several agents share."""
        counts = Counter(agent.name for agent in self.agents.values())
        return tuple(name for name, count in counts.items() if count > 1)


def graph(start: Agent, *others: Agent) -> Graph:
    """Build the graph of all agents that `start` can reach.

    others:  further agents that handoffs may name

    Raises NotFound for a name that no agent has, and InputFault for a name that several agents have.
    """
    agents_by_name = _collect_agents([start, *others]).by_name
    registry = AgentRegistry([start])
    for agent in registry.agents:
        registry.add(_list_handoff_targets(agent, agents_by_name))
    identities = assign_identities([agent.name for agent in registry.agents])
    agents = {
        identity: replace(
            agent,
            handoffs=tuple(
                replace(handoff, to=identities[registry.index_of(target)])
                for handoff, target in zip(agent.ways, _list_handoff_targets(agent, agents_by_name), strict=True)
            ),
        )
        for identity, agent in zip(identities, registry.agents, strict=True)
    }
    return Graph(identities[0], agents)


class AgentRegistry:
    """Agents in the order in which they were added, without duplicates; equal agents are one.

    An agent has no hash, and comparing it compares all agents that it can hand off to, so only agents of one name are
    compared.
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self.agents: list[Agent] = []
        self.by_name: dict[str, list[Agent]] = {}
        self._indexes: dict[str, list[int]] = {}
        self.add(agents)

    def add(self, agents: Iterable[Agent]) -> None:
        """Append the agents that are not in the registry yet."""
        for agent in agents:
            same_name = self.by_name.setdefault(agent.name, [])
            if agent not in same_name:
                self._indexes.setdefault(agent.name, []).append(len(self.agents))
                self.agents.append(agent)
                same_name.append(agent)

    def index_of(self, agent: Agent) -> int:
        """Return the index of an agent in the registry."""
        return self._indexes[agent.name][self.by_name[agent.name].index(agent)]


def _collect_agents(agents: list[Agent]) -> AgentRegistry:
    """Collect `agents` and all agents that their handoffs contain as values."""
    registry = AgentRegistry(agents)
    for agent in registry.agents:
        registry.add(handoff.to for handoff in agent.ways if isinstance(handoff.to, Agent))
    return registry


def _list_handoff_targets(agent: Agent, agents_by_name: Mapping[str, list[Agent]]) -> list[Agent]:
    return [
        handoff.to if isinstance(handoff.to, Agent) else _find_agent_by_name(agent, handoff.to, agents_by_name)
        for handoff in agent.ways
    ]


def _find_agent_by_name(agent: Agent, name: str, agents_by_name: Mapping[str, list[Agent]]) -> Agent:
    matches = agents_by_name.get(name, [])
    if not matches:
        raise NotFound(
            "agent",
            name,
            hint=f"add it, or correct the handoff of agent {agent.name!r}; known agents: {', '.join(agents_by_name)}",
        )
    if len(matches) > 1:
        raise InputFault(
            f"agent {agent.name!r} has a handoff to {name!r}, which is the name of {len(matches)} agents",
            hint="use the Agent object instead of its name, or rename one agent",
        )
    return matches[0]


def assign_identities(names: Sequence[str]) -> list[str]:
    """Return an identity for each name; a numbered identity that is another agent's name is skipped."""
    reserved, used = set(names), dict[str, None]()
    last_number: dict[str, int] = {}
    for name in names:
        identity, number = name, last_number.get(name, 1)
        while identity in used or (number > 1 and identity in reserved):
            number += 1
            identity = f"{name}#{number}"
        last_number[name] = number
        used[identity] = None
    return list(used)


@dataclass(frozen=True, slots=True)
class AgentTool(Tool):
    """A tool that runs a graph of agents; `run` is not called.

    graph:      the agents of that run
    max_turns:  model calls of that run; None: no limit
    read_input: returns the values of the arguments, and the input of the run: text or items; None: `input` is the text
    """

    graph: Graph = field(default_factory=lambda: Graph("", {}))
    max_turns: int | None = 10
    read_input: Callable[[str], Awaitable[tuple[Json, Any]]] | None = None


def agent_tool(
    agent: Agent | Graph,
    name: str | None = None,
    description: str | None = None,
    *,
    needs_approval: Approval = False,
    max_turns: int | None = 10,
    failure: Callable[[Exception], str] | None = lambda error: FAILED,
) -> AgentTool:
    """Offer `agent` as a tool that takes its input as text.

    agent:        of a graph, the run starts with its first agent
    name:         None: the agent's own, with the characters that a tool's name allows
    description:  None: the agent's own

    Raises the errors of `graph`.
    """

    def ask(input: str) -> str:  # noqa: A002  the model sees the parameter's name
        raise NotImplementedError(input)

    agent_graph = agent if isinstance(agent, Graph) else graph(agent)
    first_agent = agent_graph[agent_graph.start]
    tool_name = name or re.sub(r"[^a-zA-Z0-9_]", "_", first_agent.name).lower()
    tool_description = first_agent.description if description is None else description
    base = tool(name=tool_name, description=tool_description, needs_approval=needs_approval, failure=failure)(ask)
    values: Mapping[str, object] = {member.name: getattr(base, member.name) for member in fields(base)}
    return AgentTool(**values, graph=agent_graph, max_turns=max_turns)  # type: ignore[arg-type]

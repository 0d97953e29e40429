"""The agents that a run can reach, by identity, and agents used as tools.

Agents that share a name get the identities `Name`, `Name#2`, ... in the order of their handoffs, nearest first (the
Agents SDK numbers them differently). An `AgentTool` runs its own graph inside one tool call.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from convo.agents.agent import Agent
from convo.errors import InputFault, NotFound
from convo.tools.tool import FAILED, Approval, Tool, tool


@dataclass(frozen=True, slots=True)
class Graph:
    """Agents by identity; the handoffs of each agent name identities.

    start:  the identity of the first agent
    """

    start: str
    agents: Mapping[str, Agent]

    def __getitem__(self, identity: str) -> Agent:
        """Return the agent of an identity. Raises NotFound."""
        try:
            return self.agents[identity]
        except KeyError:
            raise NotFound("agent", identity, hint=f"choose one of {', '.join(self.agents)}") from None

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
    named = _collect_agents([start, *others]).by_name
    reached = AgentRegistry([start])
    for agent in reached.agents:
        reached.add(_list_handoff_targets(agent, named))
    identities = assign_identities([agent.name for agent in reached.agents])
    found = {
        identity: replace(
            agent,
            handoffs=tuple(
                replace(way, to=identities[reached.index_of(target)])
                for way, target in zip(agent.ways, _list_handoff_targets(agent, named), strict=True)
            ),
        )
        for identity, agent in zip(identities, reached.agents, strict=True)
    }
    return Graph(identities[0], found)


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
            alike = self.by_name.setdefault(agent.name, [])
            if agent not in alike:
                self._indexes.setdefault(agent.name, []).append(len(self.agents))
                self.agents.append(agent)
                alike.append(agent)

    def index_of(self, agent: Agent) -> int:
        """Return the index of an agent in the registry."""
        return self._indexes[agent.name][self.by_name[agent.name].index(agent)]


def _collect_agents(agents: list[Agent]) -> AgentRegistry:
    """Collect `agents` and all agents that their handoffs contain as values."""
    found = AgentRegistry(agents)
    for agent in found.agents:
        found.add(way.to for way in agent.ways if isinstance(way.to, Agent))
    return found


def _list_handoff_targets(agent: Agent, named: Mapping[str, list[Agent]]) -> list[Agent]:
    return [way.to if isinstance(way.to, Agent) else _find_agent_by_name(agent, way.to, named) for way in agent.ways]


def _find_agent_by_name(agent: Agent, name: str, named: Mapping[str, list[Agent]]) -> Agent:
    found = named.get(name, [])
    if not found:
        raise NotFound(
            "agent",
            name,
            hint=f"add it, or correct the handoff of agent {agent.name!r}; known agents: {', '.join(named)}",
        )
    if len(found) > 1:
        raise InputFault(
            f"agent {agent.name!r} has a handoff to {name!r}, which is the name of {len(found)} agents",
            hint="use the Agent object instead of its name, or rename one agent",
        )
    return found[0]


def assign_identities(names: Sequence[str]) -> list[str]:
    """Return an identity for each name; a numbered identity that is another agent's name is skipped."""
    taken, used = set(names), dict[str, None]()
    last: dict[str, int] = {}
    for name in names:
        identity, number = name, last.get(name, 1)
        while identity in used or (number > 1 and identity in taken):
            number += 1
            identity = f"{name}#{number}"
        last[name] = number
        used[identity] = None
    return list(used)


@dataclass(frozen=True, slots=True)
class AgentTool(Tool):
    """A tool that runs a graph of agents; `run` is not called.

    inside:     the agents of that run
    max_turns:  model calls of that run; None: no limit
    """

    inside: Graph = field(default_factory=lambda: Graph("", {}))
    max_turns: int | None = 10


def agent_tool(
    agent: Agent | Graph,
    name: str | None = None,
    description: str | None = None,
    *,
    needs_approval: Approval = False,
    max_turns: int | None = 10,
    failure: Callable[[Exception], str] | None = lambda raised: FAILED,
) -> AgentTool:
    """Offer `agent` as a tool that takes its input as text.

    agent:        of a graph, the run starts with its first agent
    name:         None: the agent's own, with the characters that a tool's name allows
    description:  None: the agent's own

    Raises the errors of `graph`.
    """

    def ask(input: str) -> str:  # noqa: A002  the model sees the parameter's name
        raise NotImplementedError(input)

    inside = agent if isinstance(agent, Graph) else graph(agent)
    first = inside[inside.start]
    called = name or re.sub(r"[^a-zA-Z0-9_]", "_", first.name).lower()
    words = first.description if description is None else description
    made = tool(name=called, description=words, needs_approval=needs_approval, failure=failure)(ask)
    said: Mapping[str, object] = {one.name: getattr(made, one.name) for one in fields(made)}
    return AgentTool(**said, inside=inside, max_turns=max_turns)  # type: ignore[arg-type]

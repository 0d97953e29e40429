"""The agents that a run can reach, each under a name of its own.

Two agents may share a name; they are still two. The first that is found keeps the name as its
identity, the next is `Name#2`, and so on, in the order in which handoffs are declared, nearest
first. (The Agents SDK numbers them by another order, which only it can compute.)
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from convo.agents.agent import Agent
from convo.errors import InputFault, NotFound


@dataclass(frozen=True, slots=True)
class Graph:
    """Agents by identity; in each the handoffs name identities.

    start:  the identity of the agent that answers first
    """

    start: str
    agents: Mapping[str, Agent]

    def __getitem__(self, identity: str) -> Agent:
        """The agent of an identity. raises: NotFound"""
        try:
            return self.agents[identity]
        except KeyError:
            raise NotFound("agent", identity, hint=f"there are {', '.join(self.agents)}") from None

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Names that several agents share."""
        counts = Counter(agent.name for agent in self.agents.values())
        return tuple(name for name, count in counts.items() if count > 1)


def graph(start: Agent, *others: Agent) -> Graph:
    """Everything that `start` can reach.

    others:  agents that may be meant by name only
    raises:  NotFound    a name that no agent has
             InputFault  a name that several have
    """
    named = _by_reference([start, *others]).named
    reached = Roll([start])
    for agent in reached.agents:
        reached.add(_targets(agent, named))
    identities = identities_of([agent.name for agent in reached.agents])
    found = {
        identity: replace(
            agent,
            handoffs=tuple(
                replace(way, to=identities[reached.place(target)])
                for way, target in zip(agent.ways, _targets(agent, named), strict=True)
            ),
        )
        for identity, agent in zip(identities, reached.agents, strict=True)
    }
    return Graph(identities[0], found)


class Roll:
    """Agents in the order in which they were found, each once; two that are equal are one.

    An agent has no hash, and is as large as all to which it hands over: only those of one name are compared.
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self.agents: list[Agent] = []
        self.named: dict[str, list[Agent]] = {}
        self._places: dict[str, list[int]] = {}
        self.add(agents)

    def add(self, agents: Iterable[Agent]) -> None:
        """Put those at the end that are not here yet."""
        for agent in agents:
            alike = self.named.setdefault(agent.name, [])
            if agent not in alike:
                self._places.setdefault(agent.name, []).append(len(self.agents))
                self.agents.append(agent)
                alike.append(agent)

    def place(self, agent: Agent) -> int:
        """Where an agent that is here stands, from 0."""
        return self._places[agent.name][self.named[agent.name].index(agent)]


def _by_reference(agents: list[Agent]) -> Roll:
    """`agents` and all that they hold as values."""
    found = Roll(agents)
    for agent in found.agents:
        found.add(way.to for way in agent.ways if isinstance(way.to, Agent))
    return found


def _targets(agent: Agent, named: Mapping[str, list[Agent]]) -> list[Agent]:
    return [way.to if isinstance(way.to, Agent) else _meant(agent, way.to, named) for way in agent.ways]


def _meant(agent: Agent, name: str, named: Mapping[str, list[Agent]]) -> Agent:
    found = named.get(name, [])
    if not found:
        raise NotFound("agent", name, hint=f"agent {agent.name!r} hands over to it; there are {', '.join(named)}")
    if len(found) > 1:
        raise InputFault(
            f"agent {agent.name!r} hands over to {name!r}, and {len(found)} agents are called so",
            hint="hand over to the agent itself, or rename one",
        )
    return found[0]


def identities_of(names: Sequence[str]) -> list[str]:
    """An identity for each name; a number that an agent is really called by is left out."""
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

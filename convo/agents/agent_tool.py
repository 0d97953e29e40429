"""An agent that another agent asks as it asks a tool.

It does not take the conversation over, as with a handoff: it is asked one thing, works in a run of
its own inside the call, and its final answer is the call's output. Where that run has to wait for a
person, the outer one waits with it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from convo.agents.agent import Agent
from convo.agents.graph import Graph, graph
from convo.tools import FAILED, Approval, Tool, tool


@dataclass(frozen=True, slots=True)
class AgentTool(Tool):
    """A tool behind which a run of agents stands; `run` is not called.

    inside:     the agents of that run
    max_turns:  its model calls; None: as many as it likes
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

    agent:        a graph: the one that it starts with
    name:         None: the agent's own, as a tool's name may be written
    description:  None: the agent's own
    raises:       as `graph`
    """

    def ask(input: str) -> str:  # noqa: A002  the parameter's name is what the model sees
        raise NotImplementedError(input)

    inside = agent if isinstance(agent, Graph) else graph(agent)
    first = inside[inside.start]
    called = name or re.sub(r"[^a-zA-Z0-9_]", "_", first.name).lower()
    words = first.description if description is None else description
    made = tool(name=called, description=words, needs_approval=needs_approval, failure=failure)(ask)
    said: Mapping[str, object] = {one.name: getattr(made, one.name) for one in fields(made)}
    return AgentTool(**said, inside=inside, max_turns=max_turns)  # type: ignore[arg-type]

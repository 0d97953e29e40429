"""Agents: who answers, as values.

Read `agent` for what an agent is, `output` for answers that have to fit a schema, `graph` for the
agents that a run can reach and how two of one name are told apart, `tables` for agents written in
TOML, `foreign` for those made with an installed Agents SDK (with `foreign_fields`, the tables of what is
honoured and what is refused, `foreign_context`, `foreign_settings` and `foreign_behind`), and
`agent_tool` for an agent that another one may ask as it asks a tool.
"""

from convo.agents.agent import AfterTools, Agent, Guardrail, Handoff, Instructions
from convo.agents.agent_tool import AgentTool, agent_tool
from convo.agents.foreign import foreign_agents, from_object
from convo.agents.foreign_filter import ForeignInputFilter, is_foreign_filter
from convo.agents.graph import Graph, graph
from convo.agents.output import Output, output, plain_json
from convo.agents.tables import from_tables

__all__ = [
    "AfterTools",
    "Agent",
    "AgentTool",
    "ForeignInputFilter",
    "Graph",
    "Guardrail",
    "Handoff",
    "Instructions",
    "Output",
    "agent_tool",
    "foreign_agents",
    "from_object",
    "from_tables",
    "graph",
    "is_foreign_filter",
    "output",
    "plain_json",
]

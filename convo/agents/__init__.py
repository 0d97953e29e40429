"""Agents as values: agents, guardrails, handoffs, and the agents that a run can reach.

Read `agent` first, then `graph`. `toml` parses agents from a file. `sdk` converts agents of an installed Agents SDK and
raises Unsupported for each feature that convo does not run.
"""

from convo.agents.agent import AfterTools, Agent, Guardrail, Handoff, Instructions, Output, output, plain_json
from convo.agents.graph import AgentTool, Graph, agent_tool, graph
from convo.agents.sdk import ForeignInputFilter, foreign_agents, from_object, is_foreign_filter
from convo.agents.toml import from_tables

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

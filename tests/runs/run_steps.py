"""Functions that build runs and their events, and apply the events."""

from collections.abc import Iterable
from typing import Any

from convo.agents.agent import Agent, Guardrail
from convo.agents.graph import graph
from convo.agents.handoffs import build_handoff_tools
from convo.history.items import Item
from convo.runs.machine import step_run
from convo.runs.state import ModelResponded, Run, RunEffect, RunEvent, RunLimits, RunStarted, ToolReturned, create_run
from convo.tools.tool import Tool, tool, toolbox


def echo_text(text: str) -> str:
    """A tool that needs no approval."""
    return text


def make_tool(name: str, **settings: Any) -> Tool:
    return tool(name=name, **settings)(echo_text)


FREE, GUARDED = make_tool("free"), make_tool("guarded", needs_approval=True)
CONDITIONAL = make_tool("asked", needs_approval=lambda context, arguments: True)


def guard(name: str, *, parallel: bool = True) -> Guardrail:
    """A guardrail that always passes."""
    return Guardrail(name, lambda context, text: None, parallel)


def make_run(*agents: Agent, **limits: Any) -> Run:
    return create_run(graph(*agents), RunLimits(**limits))


def call(call_id: str, name: str = "free", arguments: str = '{"text": "x"}', **fields: Any) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **fields}


def model_response(run: Run, *output: Item) -> ModelResponded:
    """A response to a request that offered all tools and handoffs of the agent."""
    handoffs = {offer.name: offer.target for offer in build_handoff_tools(run.graph, run.agent)}
    return ModelResponded(output, toolbox(run.current_agent.functions), handoffs)


def apply_events(run: Run, *events: RunEvent) -> tuple[Run, tuple[RunEffect, ...]]:
    """Apply all `events`; returns the run after them and the effects of the last one."""
    effects: tuple[RunEffect, ...] = ()
    for event in events:
        run, effects = step_run(run, event)
    return run, effects


def outputs(items: Iterable[Item]) -> dict[str, Any]:
    return {item["call_id"]: item["output"] for item in items}


DESK = Agent("desk", tools=(FREE, GUARDED, CONDITIONAL))


def started_run(*agents: Agent, **limits: int | None) -> Run:
    return apply_events(make_run(*(agents or (DESK,)), **limits), RunStarted())[0]


def paused_run() -> Run:
    """A paused run of two calls: `free` has run, `guarded` needs approval."""
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1"), call("c2", "guarded")), ToolReturned("c1", "one"))
    return run

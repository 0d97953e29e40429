"""Short ways to say what a run is told, and to read what it asks for."""

from collections.abc import Iterable
from typing import Any

from convo.agents.agent import Agent
from convo.agents.graph import graph
from convo.agents.handoffs import build_handoff_tools
from convo.history.items import Item
from convo.runs.machine import step_run
from convo.runs.state import ModelResponded, Run, RunEffect, RunEvent, RunLimits, RunStarted, ToolReturned, create_run
from convo.tools.tool import Tool, tool, toolbox


def plain(text: str) -> str:
    """A tool that anybody may call."""
    return text


def made(name: str, **settings: Any) -> Tool:
    return tool(name=name, **settings)(plain)


FREE, GUARDED = made("free"), made("guarded", needs_approval=True)
ASKED = made("asked", needs_approval=lambda context, arguments: True)


def run_of(*agents: Agent, **limits: Any) -> Run:
    return create_run(graph(*agents), RunLimits(**limits))


def call(call_id: str, name: str = "free", arguments: str = '{"text": "x"}', **more: Any) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def says(words: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}


def answer(run: Run, *output: Item) -> ModelResponded:
    """An answer to a request that offered everything that the agent has."""
    ways = {offer.name: offer.target for offer in build_handoff_tools(run.graph, run.agent)}
    return ModelResponded(output, toolbox(run.current_agent.functions), ways)


def told(run: Run, *events: RunEvent) -> tuple[Run, tuple[RunEffect, ...]]:
    """`run` after all of `events`, and what the last one asked for."""
    effects: tuple[RunEffect, ...] = ()
    for event in events:
        run, effects = step_run(run, event)
    return run, effects


def outputs(items: Iterable[Item]) -> dict[str, Any]:
    return {item["call_id"]: item["output"] for item in items}


DESK = Agent("desk", tools=(FREE, GUARDED, ASKED))


def asked(*agents: Agent, **limits: int | None) -> Run:
    return told(run_of(*(agents or (DESK,)), **limits), RunStarted())[0]


def paused() -> Run:
    """One call has run, one waits for a person, in this order of calls: free, guarded."""
    run = asked()
    run, _ = told(run, answer(run, call("c1"), call("c2", "guarded")), ToolReturned("c1", "one"))
    return run

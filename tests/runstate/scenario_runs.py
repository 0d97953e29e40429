"""The agents of a snapshot's scenario as agents of convo, with tools that return the same outputs as in the SDK."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from convo.agents.agent import Agent, Guardrail, Handoff
from convo.agents.graph import AgentTool, Graph, agent_tool, graph
from convo.agents.handoffs import build_handoff_tools
from convo.history.items import Item
from convo.history.records import Strategy
from convo.runs.machine import step_run
from convo.runs.state import (
    AppendToHistory,
    ApprovalDecided,
    HandoffCompleted,
    ModelResponded,
    NestedRun,
    NestedRunPaused,
    Phase,
    PrepareHandoff,
    Run,
    RunEffect,
    RunResumed,
    RunStarted,
    RunTool,
    ToolCall,
    ToolReturned,
    create_run,
)
from convo.runstate.run_items import ModelCall
from convo.tools.tool import Hosted, Namespace, Tool, toolbox
from tests.runstate.sdk import final_message, function_output

ANYTHING = {"type": "object", "properties": {}, "additionalProperties": True}


def scenario_graph(scenario: dict[str, Any]) -> Graph:
    """Return the graph of a scenario; its start is the agent that starts the run."""
    return graph(_make_agents(scenario)[scenario["spec"]["root"]])


def _make_agents(scenario: dict[str, Any]) -> dict[str, Agent]:
    spec = scenario["spec"]
    agents: dict[str, Agent] = {}
    for name in spec["order"]:
        agent = _agent(spec["agents"][name], agents)
        late = (replace(one, deferred=one.title == spec.get("deferred")) for one in agent.functions)
        agents[name] = replace(agent, tools=(*late, *(one for one in agent.tools if not isinstance(one, Tool))))
    return agents


def _agent(spec: dict[str, Any], agents: dict[str, Agent]) -> Agent:
    passes = (Guardrail("_passes", lambda context, value: None),)
    behaviour = spec.get("tool_use_behavior")
    return Agent(
        spec["name"],
        spec["instructions"],
        tools=tuple(one for tool in spec.get("tools", []) for one in _tools(tool, agents)),
        handoffs=tuple(_handoff(one, agents) for one in spec.get("handoffs", [])),
        input_guardrails=passes if spec.get("input_guardrail") else (),
        output_guardrails=passes if spec.get("output_guardrail") else (),
        after_tools="first output" if behaviour == "stop_on_first_tool" else "ask again",
    )


def _handoff(spec: Any, agents: dict[str, Agent]) -> Handoff:
    if isinstance(spec, str):
        return Handoff(agents[spec])
    return Handoff(agents[spec["agent"]], tool_name=spec["tool_name"])


def _tools(spec: dict[str, Any], agents: dict[str, Agent]) -> list[Tool | Hosted]:
    match spec["kind"]:
        case "function":
            return [_function(spec, spec["name"])]
        case "local_mcp":
            return [_function(spec, name, {"type": "object", "properties": {}}) for name in spec["tools"]]
        case "agent_tool":
            needs = spec.get("needs_approval", False)
            return [agent_tool(agents[spec["agent"]], spec["name"], f"{spec['name']} tool", needs_approval=needs)]
        case "hosted_mcp":
            return [{"type": "mcp", "server_label": spec["server_label"]}]
    return []


def _function(spec: dict[str, Any], name: str, parameters: dict[str, Any] = ANYTHING) -> Tool:
    space = spec.get("namespace")
    return Tool(
        name,
        f"{name} tool",
        parameters,
        lambda context, value: function_output({**spec, "name": name}, value),
        strict=False,
        takes_context=True,
        needs_approval=spec.get("needs_approval", False),
        namespace=Namespace(space, f"{space} tools") if space else None,
    )


def resume_scenario(run: Run) -> tuple[Run, list[Item]]:
    """Approve everything and run up to the next model call or the end; return the run and the appended items."""
    for call in run.pending:
        run, _ = step_run(run, ApprovalDecided(call.id, approve=True))
    return perform_effects(*step_run(run, RunResumed()))


def perform_effects(run: Run, effects: Iterable[RunEffect], model: "Model | None" = None) -> tuple[Run, list[Item]]:
    """Perform effects up to a model call, a pause or the end; return the run and the appended items.

    model:  responds to the agents that are used as tools
    """
    added: list[Item] = []
    remaining = list(effects)
    while remaining:
        match remaining.pop(0):
            case RunTool(call):
                run, more = step_run(run, _call_tool(call, model))
                remaining += more
            case PrepareHandoff():
                run, more = step_run(run, HandoffCompleted())
                remaining += more
            case AppendToHistory(items):
                added += items
    return run, added


def _call_tool(call: ToolCall, model: "Model | None") -> ToolReturned | NestedRunPaused:
    tool = call.tool
    assert tool
    if not isinstance(tool, AgentTool) or model is None:
        output = function_output({"name": tool.name}, call.arguments) if isinstance(tool, AgentTool) else None
        output = output or tool.run(None, call.arguments)
        return ToolReturned(call.id, output if isinstance(output, str) else json.dumps(output))
    if call.nested_run:
        nested = ScenarioRun(call.nested_run.run, list(call.nested_run.items), model)
        nested.resume()
    else:
        input_items: list[Item] = [{"role": "user", "content": json.loads(call.arguments)["input"]}]
        nested = ScenarioRun(create_run(tool.graph), input_items, model)
        nested.start()
    if nested.run.phase is Phase.PAUSED:
        return NestedRunPaused(call.id, NestedRun(nested.run, tuple(nested.items)))
    return ToolReturned(call.id, nested.run.output)


@dataclass
class ScenarioRun:
    """A scenario that convo runs: the run, its model calls and its items.

    items:  the input and the output of the model
    confirmed_count:  how many of them the owner has stored; None if it stores no history
    """

    run: Run
    items: list[Item]
    model: "Model"
    confirmed_count: int | None = None
    turns: list[ModelCall] = field(default_factory=list)

    def start(self) -> None:
        self.run, _ = step_run(self.run, RunStarted())
        self._run_until_stopped()

    def resume(self) -> None:
        """Resume a paused run with its decisions and add the tool outputs to its last model call."""
        self.run, added = perform_effects(*step_run(self.run, RunResumed()), self.model)
        self.items += added
        if self.turns:
            self.turns[-1] = replace(self.turns[-1], added_items=added)
        self._run_until_stopped()

    def _run_until_stopped(self) -> None:
        while self.run.phase is Phase.CALLING_MODEL:
            number = self.model.request_count
            output = self.model.answer(
                str(self.run.current_agent.instructions), self.items[self.confirmed_count or 0 :]
            )
            handoffs = {
                handoff_tool.name: handoff_tool.target
                for handoff_tool in build_handoff_tools(self.run.graph, self.run.agent)
            }
            event = ModelResponded(tuple(output), toolbox(self.run.current_agent.functions), handoffs)
            agent = self.run.agent
            self.run, added = perform_effects(*step_run(self.run, event), self.model)
            self.items += output
            self.confirmed_count = None if self.confirmed_count is None else len(self.items)
            self.items += added
            self.turns.append(ModelCall(agent, output, added, f"resp_{number:03}", tokens(number)))


@dataclass
class Model:
    """A model that returns the responses of a script, then all tool outputs of a request; it keeps the requests."""

    script: list[list[Item]]
    request_count: int = 0
    requests: list[list[Item]] = field(default_factory=list)

    def answer(self, instructions: str, items: list[Item]) -> list[Item]:
        self.requests.append(items)
        number, self.request_count = self.request_count, self.request_count + 1
        if number < len(self.script):
            return self.script[number]
        return [final_message(number, instructions, [dict(item) for item in items])]


def tokens(number: int) -> dict[str, int]:
    """Return the usage that the SDK's scripted model reports for its response of this number."""
    return {"input_tokens": 10 + number, "output_tokens": 3 + number, "total_tokens": 13 + 2 * number}


def scenario_owner(spec: dict[str, Any], request_count: int) -> tuple[Strategy, str | None]:
    """Return the owner of a scenario's history and its handle after this many model calls."""
    if spec["run"].get("conversation_id"):
        return Strategy.CONVERSATION, spec["run"]["conversation_id"]
    if spec["run"].get("auto_previous_response_id"):
        return Strategy.CHAIN, f"resp_{request_count - 1:03}"
    return Strategy.SESSION, None

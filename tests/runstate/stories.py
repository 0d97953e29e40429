"""The agents of a snapshot's story as convo's own, with tools that answer as the SDK's do there."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from convo.agents import Agent, Graph, Guardrail, Handoff, graph
from convo.handoffs import offers
from convo.items import Item
from convo.run import (
    Answered,
    Append,
    Begin,
    Decided,
    Effect,
    HandedOver,
    HandOver,
    Phase,
    Resume,
    Returned,
    Run,
    Start,
    decide,
)
from convo.runstate.making import Turn
from convo.tools import Hosted, Namespace, Tool, toolbox
from tests.runstate.sdk import answered

ANYTHING = {"type": "object", "properties": {}, "additionalProperties": True}


def agents(story: dict[str, Any]) -> Graph:
    """The graph of a story, whose first agent is the one that the run began with."""
    spec = story["spec"]
    made: dict[str, Agent] = {}
    for name in spec["order"]:
        agent = _agent(spec["agents"][name], made)
        late = (replace(one, deferred=one.title == spec.get("deferred")) for one in agent.functions)
        made[name] = replace(agent, tools=(*late, *(one for one in agent.tools if not isinstance(one, Tool))))
    return graph(made[spec["root"]])


def _agent(spec: dict[str, Any], made: dict[str, Agent]) -> Agent:
    passes = (Guardrail("_passes", lambda context, said: None),)
    behaviour = spec.get("tool_use_behavior")
    return Agent(
        spec["name"],
        spec["instructions"],
        tools=tuple(one for tool in spec.get("tools", []) for one in _tools(tool)),
        handoffs=tuple(_handoff(one, made) for one in spec.get("handoffs", [])),
        input_guardrails=passes if spec.get("input_guardrail") else (),
        output_guardrails=passes if spec.get("output_guardrail") else (),
        after_tools="first output" if behaviour == "stop_on_first_tool" else "ask again",
    )


def _handoff(spec: Any, made: dict[str, Agent]) -> Handoff:
    if isinstance(spec, str):
        return Handoff(made[spec])
    return Handoff(made[spec["agent"]], tool_name=spec["tool_name"])


def _tools(spec: dict[str, Any]) -> list[Tool | Hosted]:
    match spec["kind"]:
        case "function":
            return [_function(spec, spec["name"])]
        case "local_mcp":
            return [_function(spec, name, {"type": "object", "properties": {}}) for name in spec["tools"]]
        case "agent_tool":
            return [_function(spec, spec["name"])]
        case "hosted_mcp":
            return [{"type": "mcp", "server_label": spec["server_label"]}]
    return []


def _function(spec: dict[str, Any], name: str, parameters: dict[str, Any] = ANYTHING) -> Tool:
    space = spec.get("namespace")
    return Tool(
        name,
        f"{name} tool",
        parameters,
        lambda context, written: answered({**spec, "name": name}, written),
        strict=False,
        takes_context=True,
        needs_approval=spec.get("needs_approval", False),
        namespace=Namespace(space, f"{space} tools") if space else None,
    )


def go_on(run: Run) -> tuple[Run, list[Item]]:
    """`run` until it asks its model or ends, with everything approved; and what was added to the conversation."""
    for call in run.pending:
        run, _ = decide(run, Decided(call.id, approve=True))
    return performed(*decide(run, Resume()))


def performed(run: Run, effects: Iterable[Effect]) -> tuple[Run, list[Item]]:
    """`run` once what it asked for is done, up to a model call, a pause or its end; and what was added meanwhile."""
    added: list[Item] = []
    todo = list(effects)
    while todo:
        match todo.pop(0):
            case Start(call):
                assert call.tool
                given = call.tool.run(None, call.arguments)
                run, more = decide(run, Returned(call.id, given if isinstance(given, str) else json.dumps(given)))
                todo += more
            case HandOver():
                run, more = decide(run, HandedOver())
                todo += more
            case Append(items):
                added += items
    return run, added


@dataclass
class Told:
    """A story that convo tells, up to its pause: the run, and the model calls so far."""

    run: Run
    turns: list[Turn] = field(default_factory=list)

    def until_it_pauses(self, script: list[list[Item]]) -> None:
        """Play the script's answers, each with the effects that follow it."""
        self.run, _ = decide(self.run, Begin())
        for number, output in enumerate(script):
            agent, ways = self.run.agent, {offer.name: offer.to for offer in offers(self.run.graph, self.run.agent)}
            event = Answered(tuple(output), toolbox(self.run.current.functions), ways)
            self.run, added = performed(*decide(self.run, event))
            usage = {"input_tokens": 10 + number, "output_tokens": 3 + number, "total_tokens": 13 + 2 * number}
            self.turns.append(Turn(agent, output, added, f"resp_{number:03}", usage))
            if self.run.phase is Phase.PAUSED:
                return

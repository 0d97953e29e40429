"""The SDK pauses, convo decides and the SDK finishes: the same requests as if the SDK had decided.

For each owner of the history: parallel calls, handoffs, nested agents used as tools, tools in
namespaces and deferred tools; approved, rejected with a reason, and each as a sticky decision.
"""

import json
from typing import Any

import agents
import pytest
from agents import Agent, RunConfig, Runner, RunState, SQLiteSession

from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict
from convo.runstate.reader import parse_run_state
from convo.runstate.writer import serialize_run_state
from tests.combinations import rotated_combinations
from tests.runstate.sdk import MAX_ROUNDS, Script, graph, memory_session
from tests.runstate.test_sdk_decisions import no_logging

__all__ = ["no_logging"]

Spec = dict[str, Any]


def call(number: int, name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    fields = {"name": name, "arguments": json.dumps(arguments), "status": "completed"}
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", **fields, **more}


def tool(name: str, *, needs_approval: bool = True, **more: Any) -> dict[str, Any]:
    return {"kind": "function", "name": name, "needs_approval": needs_approval, **more}


def agent_tool(agent: str, *, needs_approval: bool = False) -> dict[str, Any]:
    return {"kind": "agent_tool", "agent": agent, "name": f"ask_{agent}", "needs_approval": needs_approval}


def spec(order: str, agents_: dict[str, Any], script: list[Any], **more: Any) -> Spec:
    """Return a scenario whose agents are named by their keys in upper case; the last one of `order` starts."""
    agents = {key: {"name": key.upper(), "instructions": key, **rest} for key, rest in agents_.items()}
    return {
        "order": list(order),
        "root": order[-1],
        "agents": agents,
        "script": script,
        "input": "x",
        "run": {},
        **more,
    }


ONE_AGENT = {"a": {"tools": [tool("drop")]}}
HANDOFF_AGENTS: dict[str, Any] = {
    "a": {"handoffs": ["b"], "tools": [tool("auto", needs_approval=False)]},
    "b": {"tools": [tool("drop"), tool("more", needs_approval=False)]},
}
HANDOFF_SCRIPT = [
    [call(0, "auto", {"a": 1})],
    [call(1, "transfer_to_b", {})],
    [call(2, "drop", {"id": 1}), call(3, "more", {})],
    [call(4, "drop", {"id": 5})],
]

SCENARIOS = {
    "the same tool twice, then again": spec(
        "a", ONE_AGENT, [[call(0, "drop", {"id": 1}), call(1, "drop", {"id": 2})], [call(2, "drop", {"id": 3})]]
    ),
    "a handoff under replay": spec("ba", HANDOFF_AGENTS, HANDOFF_SCRIPT),
    "a handoff under a session": spec("ba", HANDOFF_AGENTS, HANDOFF_SCRIPT, session={"id": "s", "history": []}),
    "a handoff under a conversation": spec("ba", HANDOFF_AGENTS, HANDOFF_SCRIPT, run={"conversation_id": "conv_1"}),
    "a handoff under a chain": spec("ba", HANDOFF_AGENTS, HANDOFF_SCRIPT, run={"auto_previous_response_id": True}),
    "agents used as tools in one another": spec(
        "cba",
        {"a": {"tools": [agent_tool("b")]}, "b": {"tools": [agent_tool("c")]}, "c": {"tools": [tool("drop")]}},
        [[call(0, "ask_b", {"input": "1"})], [call(1, "ask_c", {"input": "2"})], [call(2, "drop", {"id": 1})]],
    ),
    "two agents used as tools beside other calls": spec(
        "cba",
        {
            "a": {"tools": [agent_tool("b"), agent_tool("c"), tool("own"), tool("auto", needs_approval=False)]},
            "b": {"tools": [tool("drop_b")]},
            "c": {"tools": [tool("drop_c")]},
        },
        [
            [
                call(0, "ask_b", {"input": "1"}),
                call(1, "own", {}),
                call(2, "auto", {}),
                call(3, "ask_c", {"input": "2"}),
            ],
            [call(4, "drop_b", {"id": 1})],
            [call(5, "drop_c", {"id": 1})],
        ],
    ),
    "an approved agent tool that pauses": spec(
        "ba",
        {"a": {"tools": [agent_tool("b", needs_approval=True), tool("drop")]}, "b": {"tools": [tool("drop")]}},
        [[call(0, "ask_b", {"input": "1"})], [call(1, "drop", {"id": 1})]],
    ),
    "tools in a namespace and deferred ones": spec(
        "a",
        {"a": {"tools": [tool("late"), tool("drop", namespace="crm")]}},
        [
            [call(0, "late", {}, namespace="late"), call(1, "drop", {}, namespace="crm")],
            [call(2, "late", {}, namespace="late")],
        ],
        deferred="late",
    ),
    "arguments that are hard to repeat": spec(
        "a",
        ONE_AGENT,
        [[call(0, "drop", {"n": 1e22, "f": 1.0, "big": 2**70, "u": "é\u2028😀", "none": {"a": [None]}})]],
    ),
    "hosted tools": spec(
        "a",
        {"a": {"tools": [{"kind": "hosted_mcp", "server_label": "srv"}, tool("drop")]}},
        [
            [
                {"type": "mcp_approval_request", "id": "m1", "name": "t", "server_label": "srv", "arguments": "{}"},
                {
                    "type": "mcp_approval_request",
                    "id": "m2",
                    "name": "t",
                    "server_label": "srv",
                    "arguments": '{"a": 1}',
                },
                call(0, "drop", {}),
            ]
        ],
    ),
}

VERDICTS = {
    "approved": ApprovalVerdict(approve=True),
    "always approved": ApprovalVerdict(approve=True, always=True),
    "rejected with a reason": ApprovalVerdict(approve=False, message="no way"),
    "always rejected": ApprovalVerdict(approve=False, always=True),
}


def decide_in_convo(text: str, verdict: ApprovalVerdict) -> str:
    state = parse_run_state(text.encode())
    return serialize_run_state(apply_verdict(state, state.pending, verdict))


def decide_with_sdk(state: Any, verdict: ApprovalVerdict) -> str:
    for item in state.get_interruptions():
        if verdict.approve:
            state.approve(item, always_approve=verdict.always)
        else:
            state.reject(item, always_reject=verdict.always, rejection_message=verdict.message)
    return str(state.to_string())


def decisions_of(text: str) -> Any:
    """Return the decisions of a state and of its nested states; the records are sorted, as their order may differ."""
    document = json.loads(text)
    context, steps = document["context"], document["last_processed_response"]["functions"]
    lists = [context.get("hosted_mcp_approvals", []), context.get("function_tool_approvals", [])]
    return {
        "by tool": context["approvals"],
        "ledger": context["tool_invocations"],
        "lists": [sorted(map(json.dumps, one)) for one in lists],
        "inside": [decisions_of(json.dumps(one["agent_run_state"])) for one in steps if "agent_run_state" in one],
    }


class Run:
    """One scenario run to its end; the SDK or convo decides at each pause."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.model = spec, Script(spec["script"], 0)
        self.root: Agent[Any] = graph({"spec": spec}, self.model)
        if spec.get("deferred"):
            self.root.tools[0].defer_loading = True  # type: ignore[union-attr]
            self.root.tools.append(agents.ToolSearchTool())
        self.rounds = 0

    async def finish(self, verdict: ApprovalVerdict, *, convo: bool) -> tuple[Any, ...]:
        with memory_session(self.spec) as session:
            return await self._finish(verdict, session, convo=convo)

    async def _finish(self, verdict: ApprovalVerdict, session: SQLiteSession | None, *, convo: bool) -> tuple[Any, ...]:
        settings = RunConfig(tracing_disabled=True)
        result: Any = await Runner.run(
            self.root, self.spec["input"], run_config=settings, session=session, **self.spec["run"]
        )
        while result.interruptions and self.rounds < MAX_ROUNDS:
            self.rounds += 1
            text = result.to_state().to_string()
            sdk_state = decide_with_sdk(await RunState.from_string(self.root, text), verdict)
            convo_state = decide_in_convo(text, verdict)
            assert decisions_of(convo_state) == decisions_of(sdk_state)
            state: Any = await RunState.from_string(self.root, convo_state if convo else sdk_state)
            result = await Runner.run(self.root, state, run_config=settings, session=session)
        return result.final_output, self.model.requests, self.rounds


@pytest.mark.parametrize(("scenario", "verdict"), rotated_combinations(SCENARIOS, VERDICTS))
async def test_the_sdk_finishes_as_if_it_had_decided_itself(scenario: str, verdict: str) -> None:
    """At each pause both write the same decisions, and both runs have the same result."""
    result = await Run(SCENARIOS[scenario]).finish(VERDICTS[verdict], convo=True)
    assert result == await Run(SCENARIOS[scenario]).finish(VERDICTS[verdict], convo=False)
    assert result[2] > 0

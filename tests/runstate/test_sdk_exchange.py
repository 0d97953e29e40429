"""Convo pauses and the SDK finishes, and the reverse: the same result as if one of them had run everything.

Request by request, for each owner of the history: parallel calls, handoffs, tools in namespaces,
deferred tools, hosted tools; approved, rejected with a reason, and each as a sticky decision.
"""

from typing import Any

import agents as sdk
import pytest
from agents import RunConfig, Runner, RunState

from convo.history.items import Item
from convo.runs.machine import step_run
from convo.runs.state import ApprovalDecided, Run, create_run
from convo.runstate.approvals import apply_verdict
from convo.runstate.export import export_run_state
from convo.runstate.format import ApprovalVerdict, iter_states
from convo.runstate.import_ import import_run_state
from convo.runstate.reader import build_state_report, parse_run_state
from convo.runstate.relabel import relabel_state
from convo.runstate.run_items import ModelCall, RunTranscript
from convo.runstate.writer import serialize_run_state
from tests.combinations import rotated_combinations
from tests.runstate import scenario_runs
from tests.runstate.scenario_runs import Model, ScenarioRun, scenario_owner
from tests.runstate.sdk import Script, graph, memory_session
from tests.runstate.test_import import item_digests
from tests.runstate.test_sdk_decisions import no_logging
from tests.runstate.test_sdk_pause_and_finish import SCENARIOS as BASE_SCENARIOS
from tests.runstate.test_sdk_pause_and_finish import VERDICTS, call, spec, tool
from tests.runstate.test_sdk_pause_and_finish import Run as SdkRun

__all__ = ["no_logging"]

Spec = dict[str, Any]

HANDOFF_BESIDE_CALL: Spec = spec(
    "ba",
    {"a": {"handoffs": ["b"], "tools": [tool("drop"), tool("auto", asks=False)]}, "b": {"tools": [tool("drop")]}},
    [
        [call(0, "auto", {}), call(1, "drop", {"id": 1}), call(2, "transfer_to_b", {})],
        [call(3, "drop", {"id": 2})],
    ],
)
REASONING_BESIDE_CALLS: Spec = spec(
    "a",
    {"a": {"tools": [tool("drop"), tool("auto", asks=False)]}},
    [
        [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
            call(0, "auto", {}),
        ],
        [
            {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "hm"}]},
            {
                "type": "message",
                "id": "msg_9",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "one moment", "annotations": []}],
            },
            call(1, "drop", {"id": 1}),
        ],
    ],
)
SCENARIOS = {
    **BASE_SCENARIOS,
    "a handoff beside a pending call": HANDOFF_BESIDE_CALL,
    "reasoning and text beside calls": REASONING_BESIDE_CALLS,
}

APPROVED_AGENT_TOOL = "an approved agent tool that pauses"
WITH_AGENT_TOOLS = {
    APPROVED_AGENT_TOOL,
    "agents used as tools in one another",
    "two agents used as tools beside other calls",
}
"""Scenarios whose pending calls are in an agent used as a tool."""

WITHOUT_AGENT_TOOLS = [name for name in SCENARIOS if name not in WITH_AGENT_TOOLS]


def decide_in_convo(run: Run, verdict: ApprovalVerdict) -> Run:
    for one in run.pending:
        if one in run.pending:
            run, _ = step_run(run, ApprovalDecided(one.id, verdict.approve, verdict.message, verdict.always))
    return run


def pause_in_convo(spec: Spec) -> ScenarioRun:
    """Run a scenario with convo up to its first pause."""
    server = spec["run"].get("conversation_id") or spec["run"].get("auto_previous_response_id")
    input_items: list[Item] = [{"role": "user", "content": spec["input"]}]
    scenario_run = ScenarioRun(
        create_run(scenario_runs.scenario_graph({"spec": spec})),
        input_items,
        Model(spec["script"]),
        0 if server else None,
    )
    scenario_run.start()
    return scenario_run


def run_transcript(spec: Spec, scenario_run: ScenarioRun, **more: Any) -> RunTranscript:
    strategy, handle = scenario_owner(spec, scenario_run.model.request_count)
    return RunTranscript([{"role": "user", "content": spec["input"]}], scenario_run.turns, strategy, handle, **more)


class Sdk:
    """The SDK with the agents, tools and script of a scenario."""

    def __init__(self, spec: Spec, request_count: int = 0) -> None:
        self.spec, self.model = spec, Script(spec["script"], request_count)
        self.root = graph({"spec": spec}, self.model)
        self.settings = RunConfig(tracing_disabled=True)
        if spec.get("deferred"):
            self.root.tools[0].defer_loading = True  # type: ignore[union-attr]
            self.root.tools.append(sdk.ToolSearchTool())

    async def pause(self) -> str:
        with memory_session(self.spec) as session:
            result: Any = await Runner.run(
                self.root, self.spec["input"], run_config=self.settings, session=session, **self.spec["run"]
            )
        assert result.interruptions
        return str(result.to_state().to_string())

    async def finish(self, text: str, verdict: ApprovalVerdict) -> tuple[Any, ...]:
        """Resume the serialized state to the end with one verdict at every pause; return output and requests."""
        result: Any = await Runner.run(self.root, await RunState.from_string(self.root, text), run_config=self.settings)
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                if verdict.approve:
                    state.approve(item, always_approve=verdict.always)
                else:
                    state.reject(item, always_reject=verdict.always, rejection_message=verdict.message)
            result = await Runner.run(self.root, state, run_config=self.settings)
        return result.final_output, self.model.requests


@pytest.mark.parametrize(("scenario", "verdict"), rotated_combinations(WITHOUT_AGENT_TOOLS, VERDICTS))
async def test_the_sdk_finishes_what_convo_paused_as_if_it_had_paused_itself(scenario: str, verdict: str) -> None:
    spec, decision = SCENARIOS[scenario], VERDICTS[verdict]
    scenario_run = pause_in_convo(spec)
    text = serialize_run_state(
        export_run_state(decide_in_convo(scenario_run.run, decision), run_transcript(spec, scenario_run))
    )
    output, requests, _ = await SdkRun(spec).finish(decision, convo=False)
    assert await Sdk(spec, scenario_run.model.request_count).finish(text, decision) == (
        output,
        requests[scenario_run.model.request_count :],
    )


@pytest.mark.parametrize(("scenario", "verdict"), rotated_combinations(WITHOUT_AGENT_TOOLS, VERDICTS))
async def test_convo_finishes_what_the_sdk_paused_as_if_the_sdk_had_resumed_it(scenario: str, verdict: str) -> None:
    """Every request has the items of the SDK's request, with the outputs in the order of their calls."""
    spec, decision = SCENARIOS[scenario], VERDICTS[verdict]
    scenario_run, _ = await pause_in_sdk(spec)
    while scenario_run.run.pending:
        scenario_run.run = decide_in_convo(scenario_run.run, decision)
        scenario_run.resume()
    output, requests, _ = await SdkRun(spec).finish(decision, convo=False)
    sdk_requests = requests[len(requests) - len(scenario_run.model.requests) :]
    assert [item_digests(one) for one in scenario_run.model.requests] == [
        item_digests(one["input"]) for one in sdk_requests
    ]
    assert sorted(str(scenario_run.run.output)) == sorted(output)


@pytest.mark.parametrize("scenario", WITHOUT_AGENT_TOOLS)
async def test_a_run_that_changes_sides_at_every_pause_ends_the_same(scenario: str) -> None:
    """The SDK pauses; convo resumes, and pauses again or ends; the SDK parses that state and resumes it."""
    spec, decision = SCENARIOS[scenario], VERDICTS["approved"]
    scenario_run, base = await pause_in_sdk(spec)
    scenario_run.run = decide_in_convo(scenario_run.run, decision)
    scenario_run.resume()
    exported = export_run_state(scenario_run.run, run_transcript(spec, scenario_run, base=base))
    again = parse_run_state(serialize_run_state(exported).encode())
    output, requests, _ = await SdkRun(spec).finish(decision, convo=False)
    calls, tokens = len(requests), sum(13 + 2 * number for number in range(scenario_run.model.request_count))
    assert (build_state_report(again).current_turn, again.usage["total_tokens"]) == (
        scenario_run.model.request_count,
        tokens,
    )
    if scenario_run.run.pending:
        finished = serialize_run_state(
            export_run_state(decide_in_convo(scenario_run.run, decision), run_transcript(spec, scenario_run, base=base))
        )
        end, later = await Sdk(spec, scenario_run.model.request_count).finish(finished, decision)
        assert sorted(end) == sorted(output)
        assert len(later) == calls - scenario_run.model.request_count
    else:
        assert (again.document["current_step"], scenario_run.model.request_count) == (None, calls)
        assert await RunState.from_string(Sdk(spec).root, serialize_run_state(exported))


async def pause_in_sdk(spec: Spec) -> tuple[ScenarioRun, Any]:
    """Pause a scenario with the SDK and import the state; return the scenario in convo and the original state."""
    base = parse_run_state((await Sdk(spec).pause()).encode())
    imported = import_run_state(base, scenario_runs.scenario_graph({"spec": spec}))
    (*_, last) = base.document["model_responses"]
    confirmed = imported.confirmed_count if imported.handle else None
    scenario_run = ScenarioRun(
        imported.run, list(imported.items), Model(spec["script"], len(base.document["model_responses"])), confirmed
    )
    scenario_run.turns.append(ModelCall(imported.run.agent, last["output"]))
    return scenario_run, base


# -- agents used as tools ---------------------------------------------------------------------------


@pytest.mark.parametrize(("scenario", "verdict"), rotated_combinations(sorted(WITH_AGENT_TOOLS), VERDICTS))
async def test_convo_finishes_agent_tools_that_the_sdk_paused(scenario: str, verdict: str) -> None:
    spec, decision = SCENARIOS[scenario], VERDICTS[verdict]
    scenario_run, base = await pause_in_sdk(spec)
    request_count = sum(len(one.value["model_responses"]) for one in iter_states(base.document))
    scenario_run.model = Model(spec["script"], request_count)
    while scenario_run.run.pending:
        scenario_run.run = decide_in_convo(scenario_run.run, decision)
        scenario_run.resume()
    output, requests, _ = await SdkRun(spec).finish(decision, convo=False)
    assert sorted(map(item_digests, scenario_run.model.requests)) == sorted(
        item_digests(one["input"]) for one in requests[request_count:]
    )
    assert sorted(str(scenario_run.run.output)) == sorted(output)


@pytest.mark.parametrize(
    ("scenario", "verdict"), rotated_combinations(sorted(WITH_AGENT_TOOLS - {APPROVED_AGENT_TOOL}), VERDICTS)
)
async def test_the_sdk_finishes_agent_tools_that_convo_paused(scenario: str, verdict: str) -> None:
    spec, decision = SCENARIOS[scenario], VERDICTS[verdict]
    scenario_run = pause_in_convo(spec)
    state = export_run_state(decide_in_convo(scenario_run.run, decision), run_transcript(spec, scenario_run))
    assert len(list(iter_states(state.document))) > 1
    output, requests, _ = await SdkRun(spec).finish(decision, convo=False)
    end, later = await Sdk(spec, scenario_run.model.request_count).finish(serialize_run_state(state), decision)
    assert end == output
    sdk_inputs = sorted(item_digests(one["input"]) for one in requests[scenario_run.model.request_count :])
    assert sorted(item_digests(one["input"]) for one in later) == sdk_inputs


@pytest.mark.parametrize("scenario", sorted(WITH_AGENT_TOOLS))
async def test_undecided_agent_tools_round_trip_between_the_sdk_and_convo(scenario: str) -> None:
    """Convo decides and exports over the SDK's state; the SDK resumes it like the original."""
    spec, decision = SCENARIOS[scenario], VERDICTS["approved"]
    scenario_run, base = await pause_in_sdk(spec)
    request_count = sum(len(one.value["model_responses"]) for one in iter_states(base.document))
    output, requests, _ = await SdkRun(spec).finish(decision, convo=False)
    exported = export_run_state(
        decide_in_convo(scenario_run.run, decision), run_transcript(spec, scenario_run, base=base)
    )
    assert await Sdk(spec, request_count).finish(serialize_run_state(exported), decision) == (
        output,
        requests[request_count:],
    )


@pytest.mark.parametrize("label", ["1.15", "1.18", "1.21"])
def test_a_sticky_decision_in_an_agent_tool_does_not_apply_to_the_outer_agent(label: str) -> None:
    """Both agents have a tool of that name."""
    spec = SCENARIOS[APPROVED_AGENT_TOOL]
    scenario_run = pause_in_convo(spec)
    scenario_run.run = decide_in_convo(scenario_run.run, VERDICTS["approved"])
    scenario_run.resume()
    state, _ = relabel_state(export_run_state(scenario_run.run, run_transcript(spec, scenario_run)), label)
    (pending_call,) = state.list_undecided()
    run = import_run_state(
        apply_verdict(state, (pending_call,), VERDICTS["always approved"]), scenario_run.run.graph
    ).run
    (call,) = run.calls
    assert call.nested_run
    assert (run.sticky_decisions, call.nested_run.run.sticky_decisions) == ({}, {("B", ("bare", "drop")): True})

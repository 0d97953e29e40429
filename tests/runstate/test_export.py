"""Exported states of runs of convo: their content under every label, and the runs that cannot be exported."""

import json
from dataclasses import replace

import pytest

from convo.agents.agent import Agent
from convo.agents.graph import graph
from convo.errors import InputFault, InvalidUsage, StateFault
from convo.history.items import assistant_message
from convo.history.records import Strategy
from convo.runs.machine import step_run
from convo.runs.serialize import recover_run
from convo.runs.state import ApprovalDecided, InputAdded, RunLimits, RunStarted, ToolReturned, create_run
from convo.runstate.approvals import edit_arguments
from convo.runstate.export import export_run_state
from convo.runstate.import_ import import_run_state
from convo.runstate.reader import parse_run_state
from convo.runstate.relabel import relabel_state
from convo.runstate.run_items import ModelCall, RunTranscript
from convo.runstate.versions import LABELS
from convo.runstate.writer import serialize_run_state
from tests.runs.run_steps import GUARDED, apply_events, call, make_run, model_response
from tests.runs.run_steps import make_tool as tool_made
from tests.runstate import scenario_runs, snapshots
from tests.runstate.scenario_runs import Model, ScenarioRun
from tests.runstate.test_sdk_decisions import no_logging
from tests.runstate.test_sdk_exchange import Sdk, decide_in_convo, pause_in_convo, run_transcript
from tests.runstate.test_sdk_pause_and_finish import SCENARIOS, VERDICTS, Run

__all__ = ["no_logging"]

SCENARIO = "a handoff under replay"
NEWER_MEMBERS = ("context.tool_invocations", "generated_session_item_indexes")
"""Members that older labels do not have; resuming gives the same result without them."""


@pytest.mark.parametrize("label", LABELS)
async def test_an_exported_state_is_read_under_every_label_and_ends_the_same(label: str) -> None:
    spec, decision = SCENARIOS[SCENARIO], VERDICTS["approved"]
    scenario_run = pause_in_convo(spec)
    older, losses = relabel_state(
        export_run_state(decide_in_convo(scenario_run.run, decision), run_transcript(spec, scenario_run)), label
    )
    end, _ = await Sdk(spec, scenario_run.model.request_count).finish(serialize_run_state(older), decision)
    output, _, _ = await Run(spec).finish(decision, convo=False)
    assert end == output
    assert {loss.path for loss in losses} <= {f"$.{key}" for key in NEWER_MEMBERS}


async def test_input_added_at_a_pause_is_sent_at_the_same_place_under_every_label() -> None:
    spec = SCENARIOS["the same tool twice, then again"]
    scenario_run = pause_in_convo(spec)
    late = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and quickly"}]}
    run, _ = step_run(scenario_run.run, InputAdded((late,)))
    scenario_run.run = decide_in_convo(run, VERDICTS["approved"])
    scenario_run.resume()
    state = export_run_state(
        decide_in_convo(scenario_run.run, VERDICTS["approved"]), run_transcript(spec, scenario_run)
    )
    sent = []
    for label in ("1.21", "1.15", "1.13", "1.0"):
        _, requests = await Sdk(spec, scenario_run.model.request_count).finish(
            serialize_run_state(relabel_state(state, label)[0]), VERDICTS["approved"]
        )
        sent.append(requests[0]["input"])
    assert [item for item in sent[0] if item.get("role") == "user"][-1] == late
    assert sent[0] == sent[1] == sent[2] == sent[3]


async def test_edited_arguments_are_those_that_the_sdk_runs() -> None:
    spec = SCENARIOS["the same tool twice, then again"]
    scenario_run = pause_in_convo(spec)
    run, _ = step_run(scenario_run.run, ApprovalDecided("call_0", approve=True, arguments='{"id": 9}'))
    text = serialize_run_state(
        export_run_state(decide_in_convo(run, VERDICTS["approved"]), run_transcript(spec, scenario_run))
    )
    _, requests = await Sdk(spec, scenario_run.model.request_count).finish(text, VERDICTS["approved"])
    outputs = [item["output"] for item in requests[0]["input"] if "output" in item]
    assert outputs == ['drop=>{"id":9}', 'drop=>{"id":2}']
    with pytest.raises(
        InvalidUsage, match=r"^the arguments of .+ cannot be edited: a server stores the original call$"
    ):
        export_run_state(run, replace(run_transcript(spec, scenario_run), strategy=Strategy.CHAIN, handle="resp_000"))


def test_unmodelled_members_stay_in_a_state_that_is_resumed() -> None:
    document = snapshots.document("custom_data", "1.21")
    document |= {"sandbox": {"id": "box"}, "x_of_somebody": [1], "trace": {"id": "trace_1"}}
    document["context"]["x_of_somebody"] = {"a": 1}
    base = parse_run_state(json.dumps(document).encode())
    entry = next(one for one in snapshots.entries_of_label("1.21") if one["scenario"] == "custom_data")
    found = import_run_state(base, scenario_runs.scenario_graph(snapshots.load_scenario(entry["file"])))
    (*_, last) = document["model_responses"]
    scenario_run = ScenarioRun(decide_in_convo(found.run, VERDICTS["approved"]), list(found.items), Model([]))
    scenario_run.turns.append(ModelCall(found.run.agent, last["output"]))
    scenario_run.resume()
    after = export_run_state(
        scenario_run.run, RunTranscript((), scenario_run.turns, found.strategy, found.handle, base=base)
    ).document
    for key in ("sandbox", "x_of_somebody", "trace", "original_input", "input_guardrail_results"):
        assert after[key] == document[key]
    assert after["context"]["x_of_somebody"] == {"a": 1}
    items = [item for item in document["generated_items"] if item["type"] != "tool_approval_item"]
    assert after["generated_items"][: len(items)] == items
    assert any("custom_data" in item for item in items)
    assert after["model_responses"][: len(document["model_responses"])] == document["model_responses"]


def test_context_values_round_trip_or_are_refused() -> None:
    scenario_run = pause_in_convo(SCENARIOS[SCENARIO])
    values = {"user": "kim", "ünï": [1, 2.5, None, {"a": True}]}
    state = parse_run_state(
        serialize_run_state(
            export_run_state(scenario_run.run, run_transcript(SCENARIOS[SCENARIO], scenario_run, context_values=values))
        ).encode()
    )
    assert import_run_state(state, scenario_run.run.graph).context_values == values
    with pytest.raises(InputFault, match=r"^the context's 'who' is not JSON, so it cannot be restored$"):
        export_run_state(
            scenario_run.run, run_transcript(SCENARIOS[SCENARIO], scenario_run, context_values={"who": object()})
        )


# -- runs that cannot be exported -----------------------------------------------------------------------


def test_a_graph_with_duplicate_agent_names_is_not_exported() -> None:
    twin = Agent("b", "Otherwise.")
    run = create_run(graph(Agent("a", handoffs=(twin, Agent("b")))))
    with pytest.raises(
        InputFault, match=r"^several agents are named 'b', and only the Agents SDK can number them$"
    ) as error:
        export_run_state(run, RunTranscript(()))
    assert error.value.hint == "give each agent a unique name"


def test_a_call_with_an_unknown_outcome_is_not_exported() -> None:
    run, _ = apply_events(make_run(Agent("desk", tools=(tool_made("free"),))), RunStarted())
    run, _ = apply_events(run, model_response(run, call("c1")))
    with pytest.raises(StateFault, match=r"^a run that is running tools cannot be written as a RunState$") as error:
        export_run_state(run, RunTranscript(()))
    assert error.value.hint == "wait until the run pauses or ends"
    run, _ = recover_run(run, {})
    with pytest.raises(
        StateFault, match=r"^call c1 was started and its outcome is unknown; the Agents SDK would run it again$"
    ) as error:
        export_run_state(run, RunTranscript(()))
    assert error.value.hint == "supply the output of the call, or approve running it again, then resume"


def test_runs_between_two_turns_and_finished_runs_are_exported_as_such() -> None:
    desk = Agent("desk", tools=(GUARDED,))
    run, _ = apply_events(make_run(desk, max_turns=3), RunStarted())
    state = export_run_state(run, RunTranscript([{"role": "user", "content": "hi"}]))
    assert state.document["current_step"] == {"type": "next_step_run_again"}
    assert (state.document["current_turn"], state.document["max_turns"]) == (0, 3)
    restored = import_run_state(state, run.graph).run
    assert (restored.calls, restored.limits) == ((), RunLimits(max_turns=3))
    finished_run, _ = apply_events(run, model_response(run, assistant_message("bye")))
    state = export_run_state(
        finished_run,
        RunTranscript([{"role": "user", "content": "hi"}], [ModelCall("desk", [assistant_message("bye")])]),
    )
    assert import_run_state(state, run.graph).run.output == "bye"


def test_tools_that_ran_before_the_pause_are_not_run_again() -> None:
    desk = Agent("desk", tools=(GUARDED, tool_made("free")))
    run, _ = apply_events(make_run(desk), RunStarted())
    output = [{**call("c1", "guarded"), "id": "fc_1"}, {**call("c2"), "id": "fc_2"}]
    run, _ = apply_events(run, model_response(run, *output), ToolReturned("c2", "two"))
    state = export_run_state(run, RunTranscript([{"role": "user", "content": "hi"}], [ModelCall("desk", output)]))
    ledger = state.document["context"]["tool_invocations"]
    assert {name: one["completed"] for name, one in ledger.items()} == {"c1": False, "c2": True}
    assert import_run_state(state, run.graph).run.calls == run.calls
    assert edit_arguments(state, state.pending[0], '{"text": "y"}').pending[0].call.arguments == '{"text": "y"}'

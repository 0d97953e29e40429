"""Nested runs of agents as tools: paused with the outer run, decided through it, and stored in it."""

import json

import pytest

from convo.agents.agent import Agent
from convo.agents.graph import agent_tool, graph
from convo.errors import IllegalTransition, InputFault, InvalidRunState, NotFound
from convo.runs.machine import build_missing_outputs, step_run
from convo.runs.serialize import recover_run, run_from_json, run_to_json
from convo.runs.state import (
    AppendToHistory,
    ApprovalDecided,
    CancelRequested,
    NestedRun,
    NestedRunPaused,
    PauseRun,
    Phase,
    Run,
    RunResumed,
    RunStarted,
    RunTool,
    Stage,
    ToolOutputSupplied,
    ToolReturned,
)
from convo.runs.stored_approvals import apply_decisions, list_pending_approvals
from tests.runs.run_steps import FREE, GUARDED, apply_events, call, make_run, model_response, outputs

CLERK = Agent("clerk", tools=(GUARDED,))
ASK_CLERK = agent_tool(CLERK, "ask_clerk", "Ask the clerk.")
BOSS = Agent("boss", tools=(ASK_CLERK, FREE))


def clerk_run(*call_ids: str) -> NestedRun:
    """The nested run of the clerk, in which these calls are pending."""
    run, _ = apply_events(make_run(CLERK), RunStarted())
    calls = tuple(call(call_id, "guarded") for call_id in call_ids)
    return NestedRun(step_run(run, model_response(run, *calls))[0], ({"role": "user", "content": "hi"}, *calls))


def paused_run(*call_ids: str) -> Run:
    """The run of the boss, paused because calls of the clerk are pending."""
    run, _ = apply_events(make_run(BOSS), RunStarted())
    run, _ = apply_events(
        run, model_response(run, call("c1", "ask_clerk", '{"input": "hi"}'), call("c2")), ToolReturned("c2", "two")
    )
    return step_run(run, NestedRunPaused("c1", clerk_run(*(call_ids or ("i1",)))))[0]


def paused_with_two_clerks() -> Run:
    """The run of the boss with two paused clerks, whose pending calls have the same id."""
    run, _ = apply_events(make_run(BOSS), RunStarted())
    calls = [call(call_id, "ask_clerk", '{"input": "hi"}') for call_id in ("c1", "c2")]
    return apply_events(
        run, model_response(run, *calls), NestedRunPaused("c1", clerk_run("i1")), NestedRunPaused("c2", clerk_run("i1"))
    )[0]


def test_an_agent_as_a_tool_takes_its_input_as_text() -> None:
    tool = agent_tool(Agent("Tax clerk", description="Knows taxes."))
    assert (tool.name, tool.description, list(tool.parameters["properties"])) == (
        "tax_clerk",
        "Knows taxes.",
        ["input"],
    )
    assert tool.graph.start == "Tax clerk"


def test_an_outer_run_pauses_with_its_nested_run() -> None:
    run = paused_run()
    assert run.phase is Phase.PAUSED
    assert [(agent, one.id) for agent, one in run.pending_with_agents] == [("clerk", "i1")]
    assert step_run(run, RunResumed())[1] == (PauseRun(run.pending),)


def test_a_decision_in_a_nested_run_restarts_the_outer_call_with_the_stored_nested_run() -> None:
    run, effects = apply_events(paused_run(), ApprovalDecided("i1", approve=True), RunResumed())
    (start,) = effects
    assert isinstance(start, RunTool)
    assert [one.id for one in run.calls_at(Stage.RUNNING)] == [start.call.id] == ["c1"]
    assert start.call.nested_run
    assert [one.id for one in start.call.nested_run.run.calls_at(Stage.READY)] == ["i1"]
    run, effects = apply_events(run, ToolReturned("c1", "one"))
    assert isinstance(effects[0], AppendToHistory)
    assert outputs(effects[0].items) == {"c1": "one", "c2": "two"}


def test_of_several_nested_approvals_one_decision_is_enough_to_resume() -> None:
    run, effects = apply_events(paused_run("i1", "i2"), ApprovalDecided("i2", approve=False), RunResumed())
    assert effects == (PauseRun(run.pending),)
    _, effects = apply_events(run, ApprovalDecided("i1", approve=True), RunResumed())
    assert [type(effect) for effect in effects] == [RunTool]


def test_a_decision_on_an_unknown_call_is_refused() -> None:
    with pytest.raises(IllegalTransition, match="there is no call i9"):
        step_run(paused_run(), ApprovalDecided("i9", approve=True))
    with pytest.raises(InputFault, match="Invalid arguments"):
        step_run(paused_run(), ApprovalDecided("i1", approve=True, arguments="{}"))


@pytest.mark.parametrize("call_id", ["c1", "c2", "i1"])
def test_an_ambiguous_call_id_refers_to_the_pending_call(call_id: str) -> None:
    """Models number the calls of each run anew; the calls of the outer run need no decision."""
    run = paused_run(call_id)
    document = json.loads(json.dumps(run_to_json(run)))
    decision = ApprovalDecided(call_id, approve=True)
    after, effects = apply_events(run, decision, RunResumed())
    assert [one.id for one in after.calls_at(Stage.RUNNING)] == ["c1"]
    assert [type(effect) for effect in effects] == [RunTool]
    assert run_from_json(apply_decisions(document, [decision]), graph(BOSS)) == apply_events(run, decision)[0]


def test_calls_of_two_nested_runs_with_the_same_id_are_decided_one_after_the_other() -> None:
    run = paused_with_two_clerks()
    document = json.loads(json.dumps(run_to_json(run)))
    events = (ApprovalDecided("i1", approve=True), ApprovalDecided("i1", approve=False, message="no"))
    after, _ = apply_events(run, *events)
    nested_calls = [one.nested_run.run.calls[0] for one in after.calls if one.nested_run]
    assert [one.stage for one in nested_calls] == [Stage.READY, Stage.DONE]
    assert run_from_json(apply_decisions(document, events), graph(BOSS)) == after
    message = (
        "^a run that is paused does not accept ApprovalDecided: "
        "call i1 is ambiguous: 2 runs have a decided call with this id$"
    )
    with pytest.raises(IllegalTransition, match=message):
        apply_events(after, ApprovalDecided("i1", approve=True))
    with pytest.raises(IllegalTransition, match=message):
        apply_decisions(apply_decisions(document, events), [ApprovalDecided("i1", approve=True)])


def test_a_decision_in_a_nested_run_can_be_changed_until_the_run_is_resumed() -> None:
    run = paused_run("i1", "i2")
    document = json.loads(json.dumps(run_to_json(run)))
    events = (ApprovalDecided("i1", approve=True), ApprovalDecided("i1", approve=False, message="no"))
    after, _ = apply_events(run, *events)
    assert after.calls[0].nested_run
    assert [one.approved for one in after.calls[0].nested_run.run.calls] == [False, None]
    assert [(agent, one.id) for agent, one in after.decidable_with_agents] == [("clerk", "i1"), ("clerk", "i2")]
    assert [one.id for one in after.pending] == ["i2"]
    assert run_from_json(apply_decisions(document, events), graph(BOSS)) == after


def test_a_call_that_runs_again_needs_no_decision_even_if_its_nested_run_does() -> None:
    run, effects = apply_events(paused_run("i1", "i2"), ApprovalDecided("i1", approve=True), RunResumed())
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["c1"]
    assert (run.pending, run.decidable_with_agents) == ((), ())


def test_a_decision_two_levels_deep_can_be_changed() -> None:
    chief = Agent("chief", tools=(agent_tool(BOSS, "ask_boss"),))
    run, _ = apply_events(make_run(chief), RunStarted())
    run, _ = apply_events(
        run,
        model_response(run, call("b1", "ask_boss", '{"input": "hi"}')),
        NestedRunPaused("b1", NestedRun(paused_run("i1", "i2"), ())),
    )
    document = json.loads(json.dumps(run_to_json(run)))
    events = (ApprovalDecided("i1", approve=True), ApprovalDecided("i1", approve=False))
    after, effects = apply_events(run, *events, RunResumed())
    assert effects == (PauseRun(after.pending),)
    assert [one.id for one in after.pending] == ["i2"]
    assert run_from_json(apply_decisions(document, events), graph(chief)) == apply_events(run, *events)[0]
    after, effects = apply_events(after, ApprovalDecided("i2", approve=True), RunResumed())
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["b1"]


def test_a_nested_call_of_unknown_outcome_can_be_given_its_output() -> None:
    inner = clerk_run("i1")
    resumed, _ = apply_events(inner.run, ApprovalDecided("i1", approve=True), RunResumed())
    unknown, _ = recover_run(resumed, {})
    run, _ = apply_events(make_run(BOSS), RunStarted())
    run, _ = apply_events(
        run,
        model_response(run, call("c1", "ask_clerk", '{"input": "hi"}')),
        NestedRunPaused("c1", NestedRun(unknown, ())),
    )
    run, effects = apply_events(run, ToolOutputSupplied("i1", "out"), RunResumed())
    assert [type(effect) for effect in effects] == [RunTool]


def test_a_nested_run_is_stored_in_its_call() -> None:
    run = paused_run()
    document = json.loads(json.dumps(run_to_json(run)))
    assert run_from_json(document, graph(BOSS)) == run
    with pytest.raises(NotFound, match="ask_clerk"):
        run_from_json(document, graph(Agent("boss", tools=(FREE,))))


def test_a_nested_run_of_a_removed_agent_tool_is_refused() -> None:
    run = paused_run()
    document = json.loads(json.dumps(run_to_json(run)))
    document["batch"][1]["inner"] = document["batch"][0]["inner"]
    with pytest.raises(
        InvalidRunState, match=r"^\$\.batch\[1\] has a nested run, but its tool is no longer an agent$"
    ) as caught:
        run_from_json(document, graph(BOSS))
    assert caught.value.hint == "resume with the code that the run was stored with, or start a new run"


def test_nested_approvals_are_listed_and_decided_without_the_agents() -> None:
    run = paused_run("i1", "i2")
    document = json.loads(json.dumps(run_to_json(run)))
    assert [(one.agent, one.call_id) for one in list_pending_approvals(document)] == [("clerk", "i1"), ("clerk", "i2")]
    events = (ApprovalDecided("i1", approve=True), ApprovalDecided("i2", approve=False, message="no"))
    assert run_from_json(apply_decisions(document, events), graph(BOSS)) == apply_events(run, *events)[0]
    with pytest.raises(IllegalTransition):
        apply_decisions(document, [ApprovalDecided("i9", approve=True)])


def test_a_run_stopped_during_a_nested_pause_reports_an_unknown_outcome() -> None:
    run, _ = step_run(paused_run(), CancelRequested())
    items = [one.item for one in run.calls]
    texts = [item["output"] for item in build_missing_outputs(run, items)]
    assert texts == ["The tool was started, and its outcome is unknown.", "two"]

"""Approvals in a run: pending calls, decisions, and the effects of approval and rejection."""

from dataclasses import replace

import pytest

from convo.errors import IllegalTransition, InputFault
from convo.history.items import assistant_message
from convo.runs.state import (
    AppendToHistory,
    ApprovalDecided,
    ApprovalEvaluated,
    CallModel,
    EvaluateApproval,
    FailRun,
    InputAdded,
    PauseRun,
    Phase,
    RunFailure,
    RunResumed,
    RunTool,
    ToolOutputSupplied,
    ToolReturned,
)
from tests.runs.run_steps import apply_events, call, model_response, outputs, paused_run, started_run


def test_when_one_tool_executed_and_one_is_pending_the_next_input_has_both_outputs_in_call_order() -> None:
    run = started_run()
    run, effects = apply_events(run, model_response(run, call("c1", "guarded"), call("c2")), ToolReturned("c2", "two"))
    assert run.phase is Phase.PAUSED
    assert [one.id for one in run.pending] == ["c1"]
    assert effects == (PauseRun(run.pending),)
    run, effects = apply_events(run, ApprovalDecided("c1", approve=True), RunResumed())
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["c1"]
    run, effects = apply_events(run, ToolReturned("c1", "one"))
    assert isinstance(effects[0], AppendToHistory)
    assert list(outputs(effects[0].items)) == ["c1", "c2"]


def test_when_a_paused_state_is_resumed_without_a_decision_the_same_interruption_returns() -> None:
    run = paused_run()
    resumed, effects = apply_events(run, RunResumed())
    assert resumed == run
    assert effects == (PauseRun(run.pending),)


def test_when_approved_the_tool_runs_once_and_only_the_new_model_call_counts_as_a_turn() -> None:
    run = paused_run()
    run, effects = apply_events(run, ApprovalDecided("c2", approve=True), RunResumed())
    assert ([type(effect) for effect in effects], run.turn) == ([RunTool], 1)
    run, effects = apply_events(run, ToolReturned("c2", "two"))
    assert isinstance(effects[0], AppendToHistory)
    assert outputs(effects[0].items)["c2"] == "two"
    assert (effects[1], run.turn) == (CallModel("desk", 2, omit_tool_choice=True), 2)


@pytest.mark.parametrize(("message", "output"), [(None, "Tool execution was not approved."), ("too dear", "too dear")])
def test_when_rejected_the_tool_does_not_run_and_its_output_says_so(message: str | None, output: str) -> None:
    run, effects = apply_events(paused_run(), ApprovalDecided("c2", approve=False, message=message), RunResumed())
    assert isinstance(effects[0], AppendToHistory)
    assert outputs(effects[0].items)["c2"] == output
    assert run.phase is Phase.CALLING_MODEL


def test_when_max_turns_was_reached_before_the_pause_the_approved_tool_runs_but_no_model_is_called() -> None:
    run = started_run(max_turns=1)
    run, effects = apply_events(
        run, model_response(run, call("c1", "guarded")), ApprovalDecided("c1", approve=True), RunResumed()
    )
    assert [type(effect) for effect in effects] == [RunTool]
    run, effects = apply_events(run, ToolReturned("c1", "x"))
    assert [type(effect) for effect in effects] == [AppendToHistory, FailRun]
    assert run.failure == RunFailure("max_turns", "Max turns (1) exceeded")


def test_when_one_checkpoint_is_approved_and_resumed_the_other_does_not_change() -> None:
    run = paused_run()
    before = repr(run)
    apply_events(run, ApprovalDecided("c2", approve=True, always=True), RunResumed())
    assert repr(run) == before


def test_when_input_was_added_to_a_paused_state_it_follows_the_tool_outputs_once() -> None:
    added = {"role": "user", "content": "and quickly"}
    run, effects = apply_events(paused_run(), InputAdded((added,)), ApprovalDecided("c2", approve=False), RunResumed())
    assert [effect.items for effect in effects if isinstance(effect, AppendToHistory)][-1] == (added,)
    assert [type(effect) for effect in effects] == [AppendToHistory, AppendToHistory, CallModel]
    run, effects = apply_events(run, model_response(run, call("c3")), ToolReturned("c3", "x"))
    assert [type(effect) for effect in effects] == [AppendToHistory, CallModel]


def test_when_input_is_added_to_a_finished_run_it_is_refused() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, assistant_message("done")))
    with pytest.raises(IllegalTransition, match="a run that is done does not accept InputAdded"):
        apply_events(run, InputAdded(()))


def test_when_approved_always_later_calls_of_the_same_tool_by_the_same_agent_need_no_approval() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1", "guarded"), call("c2", "guarded")))
    run, effects = apply_events(run, ApprovalDecided("c1", approve=True, always=True), RunResumed())
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["c1", "c2"]
    run, _ = apply_events(run, ToolReturned("c1", "x"), ToolReturned("c2", "x"))
    assert [type(effect) for effect in apply_events(run, model_response(run, call("c3", "guarded")))[1]] == [RunTool]
    other = replace(run, sticky_decisions={("elsewhere", ("bare", "guarded")): True})
    assert apply_events(other, model_response(run, call("c3", "guarded")))[0].phase is Phase.PAUSED


def test_when_rejected_always_later_calls_are_rejected_without_a_decision() -> None:
    run = started_run()
    run, _ = apply_events(
        run, model_response(run, call("c1", "guarded")), ApprovalDecided("c1", approve=False, always=True), RunResumed()
    )
    run, effects = apply_events(
        run,
        model_response(run, call("c2", "guarded"), call("c3", "asked")),
        ApprovalEvaluated("c3", needs_approval=False),
    )
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["c3"]
    run, effects = apply_events(run, ToolReturned("c3", "x"))
    assert isinstance(effects[0], AppendToHistory)
    assert outputs(effects[0].items)["c2"] == "Tool execution was not approved."


def test_a_function_decides_whether_a_call_needs_approval() -> None:
    run = started_run()
    run, effects = apply_events(run, model_response(run, call("c1", "asked"), call("c2", "asked")))
    assert ([type(effect) for effect in effects], run.phase) == (
        [EvaluateApproval, EvaluateApproval],
        Phase.CHECKING_APPROVALS,
    )
    run, effects = apply_events(run, ApprovalEvaluated("c2", needs_approval=True))
    assert effects == ()
    run, effects = apply_events(run, ApprovalEvaluated("c1", needs_approval=False))
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["c1"]
    run, _ = apply_events(run, ToolReturned("c1", "x"))
    assert [one.id for one in run.pending] == ["c2"]


def test_the_arguments_of_one_call_may_be_edited_and_must_match_the_schema() -> None:
    run = paused_run()
    with pytest.raises(InputFault, match="text: must be a string") as caught:
        apply_events(run, ApprovalDecided("c2", approve=True, arguments='{"text": 1}'))
    assert caught.value.hint == "pass arguments that match the tool's schema"
    with pytest.raises(InputFault, match="only for one approved function call"):
        apply_events(run, ApprovalDecided("c2", approve=True, always=True, arguments='{"text": "y"}'))
    run, effects = apply_events(run, ApprovalDecided("c2", approve=True, arguments='{"text": "y"}'), RunResumed())
    assert [effect.call.arguments for effect in effects if isinstance(effect, RunTool)] == ['{"text": "y"}']


def test_an_approval_request_of_a_hosted_tool_is_answered_with_its_own_item_type() -> None:
    request = {"type": "mcp_approval_request", "id": "m1", "server_label": "s", "name": "n", "arguments": "{}"}
    run = started_run()
    run, effects = apply_events(run, model_response(run, request))
    assert effects == (PauseRun(run.pending),)
    run, effects = apply_events(run, ApprovalDecided("m1", approve=False, message="no", always=True), RunResumed())
    verdict = {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": False, "reason": "no"}
    assert effects[0] == AppendToHistory((verdict,))
    run, effects = apply_events(run, model_response(run, {**request, "id": "m2"}))
    assert effects[0] == AppendToHistory(({**verdict, "approval_request_id": "m2"},))
    assert isinstance(effects[1], CallModel)


@pytest.mark.parametrize("approve", [True, False])
def test_the_response_to_a_request_for_approval_has_a_reason_only_if_there_is_one(approve: bool) -> None:
    request = {"type": "mcp_approval_request", "id": "m1", "server_label": "s", "name": "n", "arguments": "{}"}
    run = started_run()
    run, effects = apply_events(run, model_response(run, request), ApprovalDecided("m1", approve=approve), RunResumed())
    verdict = {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": approve}
    assert effects[0] == AppendToHistory((verdict,))


def test_a_decision_on_a_call_that_is_not_pending_is_refused() -> None:
    with pytest.raises(
        IllegalTransition, match=r"^a run that is paused does not accept ApprovalDecided: there is no call c9$"
    ):
        apply_events(paused_run(), ApprovalDecided("c9", approve=True))
    with pytest.raises(
        IllegalTransition, match=r"^a run that is paused does not accept ApprovalDecided: call c1: done$"
    ):
        apply_events(paused_run(), ApprovalDecided("c1", approve=True))
    for event in (ToolOutputSupplied("c2", ""), ToolOutputSupplied("c1", "")):
        with pytest.raises(IllegalTransition, match="does not accept ToolOutputSupplied: call "):
            apply_events(paused_run(), event)


def test_a_later_sticky_decision_removes_the_message_of_a_sticky_rejection() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1", "guarded"), call("c2", "guarded"), call("c3", "asked")))
    run, _ = apply_events(run, ApprovalEvaluated("c3", needs_approval=True))
    run, _ = apply_events(
        run, *(ApprovalDecided(call_id, approve=False, message=call_id, always=True) for call_id in ("c1", "c3"))
    )
    guarded, other = ("desk", ("bare", "guarded")), ("desk", ("bare", "asked"))
    assert dict(run.sticky_rejection_messages) == {guarded: "c1", other: "c3"}
    assert run.calls[1].output == {"type": "function_call_output", "call_id": "c2", "output": "c1"}
    assert not run.calls[1].has_run
    for approve in (True, False):
        changed, _ = apply_events(run, ApprovalDecided("c2", approve=approve, always=True))
        assert dict(changed.sticky_rejection_messages) == {other: "c3"}
        assert dict(changed.sticky_decisions) == {guarded: approve, other: False}
    unchanged, _ = apply_events(run, ApprovalDecided("c2", approve=True))
    assert dict(unchanged.sticky_rejection_messages) == {guarded: "c1", other: "c3"}


@pytest.mark.parametrize(
    "event",
    [
        ApprovalDecided("c2", approve=False, arguments='{"text": "y"}'),
        ApprovalDecided("c2", approve=True, always=True, arguments='{"text": "y"}'),
        ApprovalDecided("m1", approve=True, arguments="{}"),
    ],
)
def test_arguments_are_edited_only_for_one_approved_function_call(event: ApprovalDecided) -> None:
    request = {"type": "mcp_approval_request", "id": "m1", "server_label": "s", "name": "n", "arguments": "{}"}
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c2", "guarded"), request))
    with pytest.raises(InputFault, match=r"^arguments can be changed only for one approved function call$") as caught:
        apply_events(run, event)
    assert caught.value.hint == "approve the call without --always"

"""What waits for a person: asked once, decided once, and performed or refused as they said."""

from dataclasses import replace

import pytest

from convo.errors import IllegalMove, InputFault
from convo.run import (
    Append,
    Ask,
    Decided,
    Fail,
    Failure,
    Judge,
    Judged,
    Pause,
    Phase,
    Resume,
    Returned,
    Said,
    Start,
)
from tests.run.driving import answer, asked, call, outputs, paused, says, told


def test_when_one_tool_executed_and_one_is_pending_the_next_input_has_both_outputs_in_call_order() -> None:
    run = asked()
    run, effects = told(run, answer(run, call("c1", "guarded"), call("c2")), Returned("c2", "two"))
    assert run.phase is Phase.PAUSED
    assert [one.id for one in run.pending] == ["c1"]
    assert effects == (Pause(run.pending),)
    run, effects = told(run, Decided("c1", approve=True), Resume())
    assert [effect.call.id for effect in effects if isinstance(effect, Start)] == ["c1"]
    run, effects = told(run, Returned("c1", "one"))
    assert isinstance(effects[0], Append)
    assert list(outputs(effects[0].items)) == ["c1", "c2"]


def test_when_a_paused_state_is_resumed_without_a_decision_the_same_interruption_returns() -> None:
    run = paused()
    again, effects = told(run, Resume())
    assert again == run
    assert effects == (Pause(run.pending),)


def test_when_approved_the_tool_runs_once_and_the_turn_grows_only_for_the_new_model_call() -> None:
    run = paused()
    run, effects = told(run, Decided("c2", approve=True), Resume())
    assert ([type(effect) for effect in effects], run.turn) == ([Start], 1)
    run, effects = told(run, Returned("c2", "two"))
    assert isinstance(effects[0], Append)
    assert outputs(effects[0].items)["c2"] == "two"
    assert (effects[1], run.turn) == (Ask("desk", 2, free=True), 2)


@pytest.mark.parametrize(("message", "words"), [(None, "Tool execution was not approved."), ("too dear", "too dear")])
def test_when_rejected_the_tool_does_not_run_and_its_output_says_so(message: str | None, words: str) -> None:
    run, effects = told(paused(), Decided("c2", approve=False, message=message), Resume())
    assert isinstance(effects[0], Append)
    assert outputs(effects[0].items)["c2"] == words
    assert run.phase is Phase.ASKING


def test_when_max_turns_was_reached_before_the_pause_the_approved_tool_runs_but_no_model_is_asked() -> None:
    run = asked(max_turns=1)
    run, effects = told(run, answer(run, call("c1", "guarded")), Decided("c1", approve=True), Resume())
    assert [type(effect) for effect in effects] == [Start]
    run, effects = told(run, Returned("c1", "x"))
    assert [type(effect) for effect in effects] == [Append, Fail]
    assert run.failure == Failure("max_turns", "Max turns (1) exceeded")


def test_when_one_checkpoint_is_approved_and_resumed_the_other_does_not_change() -> None:
    run = paused()
    kept = repr(run)
    told(run, Decided("c2", approve=True, always=True), Resume())
    assert repr(run) == kept


def test_when_input_was_added_to_a_paused_state_it_follows_the_tool_outputs_once() -> None:
    late = {"role": "user", "content": "and quickly"}
    run, effects = told(paused(), Said((late,)), Decided("c2", approve=False), Resume())
    assert [effect.items for effect in effects if isinstance(effect, Append)][-1] == (late,)
    assert [type(effect) for effect in effects] == [Append, Append, Ask]
    run, effects = told(run, answer(run, call("c3")), Returned("c3", "x"))
    assert [type(effect) for effect in effects] == [Append, Ask]


def test_when_input_is_added_to_a_finished_run_it_is_refused() -> None:
    run = asked()
    run, _ = told(run, answer(run, says("done")))
    with pytest.raises(IllegalMove, match="a run that is done cannot take Said"):
        told(run, Said(()))


def test_when_approved_always_later_calls_of_the_same_tool_by_the_same_agent_run_without_asking() -> None:
    run = asked()
    run, _ = told(run, answer(run, call("c1", "guarded"), call("c2", "guarded")))
    run, effects = told(run, Decided("c1", approve=True, always=True), Resume())
    assert [effect.call.id for effect in effects if isinstance(effect, Start)] == ["c1", "c2"]
    run, _ = told(run, Returned("c1", "x"), Returned("c2", "x"))
    assert [type(effect) for effect in told(run, answer(run, call("c3", "guarded")))[1]] == [Start]
    other = replace(run, always={("elsewhere", ("bare", "guarded")): True})
    assert told(other, answer(run, call("c3", "guarded")))[0].phase is Phase.PAUSED


def test_when_rejected_always_later_calls_are_rejected_without_asking() -> None:
    run = asked()
    run, _ = told(run, answer(run, call("c1", "guarded")), Decided("c1", approve=False, always=True), Resume())
    run, effects = told(run, answer(run, call("c2", "guarded"), call("c3", "asked")), Judged("c3", needed=False))
    assert [effect.call.id for effect in effects if isinstance(effect, Start)] == ["c3"]
    run, effects = told(run, Returned("c3", "x"))
    assert isinstance(effects[0], Append)
    assert outputs(effects[0].items)["c2"] == "Tool execution was not approved."


def test_a_function_says_whether_a_call_needs_approval() -> None:
    run = asked()
    run, effects = told(run, answer(run, call("c1", "asked"), call("c2", "asked")))
    assert ([type(effect) for effect in effects], run.phase) == ([Judge, Judge], Phase.CLEARING)
    run, effects = told(run, Judged("c2", needed=True))
    assert effects == ()
    run, effects = told(run, Judged("c1", needed=False))
    assert [effect.call.id for effect in effects if isinstance(effect, Start)] == ["c1"]
    run, _ = told(run, Returned("c1", "x"))
    assert [one.id for one in run.pending] == ["c2"]


def test_a_person_may_change_the_arguments_of_one_call_and_they_have_to_fit() -> None:
    run = paused()
    with pytest.raises(InputFault, match="text: must be a string"):
        told(run, Decided("c2", approve=True, arguments='{"text": 1}'))
    with pytest.raises(InputFault, match="only one approved call"):
        told(run, Decided("c2", approve=True, always=True, arguments='{"text": "y"}'))
    run, effects = told(run, Decided("c2", approve=True, arguments='{"text": "y"}'), Resume())
    assert [effect.call.arguments for effect in effects if isinstance(effect, Start)] == ['{"text": "y"}']


def test_a_hosted_tools_request_is_a_persons_to_decide_and_answered_with_its_own_kind() -> None:
    request = {"type": "mcp_approval_request", "id": "m1", "server_label": "s", "name": "n", "arguments": "{}"}
    run = asked()
    run, effects = told(run, answer(run, request))
    assert effects == (Pause(run.pending),)
    run, effects = told(run, Decided("m1", approve=False, message="no", always=True), Resume())
    verdict = {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": False, "reason": "no"}
    assert effects[0] == Append((verdict,))
    run, effects = told(run, answer(run, {**request, "id": "m2"}))
    assert [type(effect) for effect in effects] == [Append, Ask]


def test_a_decision_on_a_call_that_does_not_wait_is_refused() -> None:
    with pytest.raises(IllegalMove, match="there is no call c9"):
        told(paused(), Decided("c9", approve=True))
    with pytest.raises(IllegalMove, match="call c1: it has an output"):
        told(paused(), Decided("c1", approve=True))

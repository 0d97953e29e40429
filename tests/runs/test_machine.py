"""A run from its first word to its end: what it asks for, in which order, and what it keeps."""

from dataclasses import replace

import pytest
from agents import Agent as SdkAgent

from convo.agents.agent import Agent, Guardrail, output
from convo.errors import IllegalTransition
from convo.runs.serialize import apply_call_log, recover_run
from convo.runs.state import (
    AppendToHistory,
    ApprovalDecided,
    CallModel,
    CancelRequested,
    CancelTasks,
    CheckInputGuardrail,
    CheckOutputGuardrail,
    EffectFailed,
    FailRun,
    FinishRun,
    GuardrailPassed,
    GuardrailTripped,
    HandoffCompleted,
    PauseRun,
    Phase,
    PrepareHandoff,
    RunFailure,
    RunResumed,
    RunStarted,
    RunTool,
    Stage,
    ToolOutputSupplied,
    ToolReturned,
)
from convo.tools.tool import Namespace
from tests.runs.run_steps import (
    DESK,
    FREE,
    GUARDED,
    apply_events,
    assistant_message,
    call,
    make_run,
    make_tool,
    model_response,
    outputs,
    paused_run,
    started_run,
)

# -- one model call a turn ------------------------------------------------------------------------


def test_an_answer_without_calls_is_the_end() -> None:
    run, effects = apply_events(make_run(DESK), RunStarted())
    assert effects == (CallModel("desk", 1),)
    run, effects = apply_events(run, model_response(run, assistant_message("hello")))
    assert effects == (FinishRun("desk", "hello"),)
    assert (run.phase, run.turn) == (Phase.DONE, 1)


def test_tools_run_beside_each_other_within_a_bound_and_outputs_are_appended_in_call_order() -> None:
    run = started_run(max_parallel_calls=2)
    run, effects = apply_events(run, model_response(run, call("c1"), call("c2"), call("c3")))
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["c1", "c2"]
    run, effects = apply_events(run, ToolReturned("c2", "two"))
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["c3"]
    run, effects = apply_events(run, ToolReturned("c3", "three"))
    assert effects == ()
    run, effects = apply_events(run, ToolReturned("c1", "one"))
    assert isinstance(effects[0], AppendToHistory)
    assert list(outputs(effects[0].items).items()) == [("c1", "one"), ("c2", "two"), ("c3", "three")]
    assert effects[1] == CallModel("desk", 2, omit_tool_choice=True)


def test_arguments_that_do_not_fit_go_back_to_the_model_and_nothing_runs() -> None:
    run = started_run()
    run, effects = apply_events(
        run, model_response(run, call("c1", arguments='{"text": 1}'), call("c2", "guarded", "{}"))
    )
    assert isinstance(effects[0], AppendToHistory)
    assert [words.split(":")[0] for words in outputs(effects[0].items).values()] == [
        "Invalid arguments for tool free",
        "Invalid arguments for tool guarded",
    ]
    assert effects[1] == CallModel("desk", 2, omit_tool_choice=True)


@pytest.mark.parametrize(
    ("item", "code", "words"),
    [
        (call("c1", "lost"), "model_behavior", "Tool lost not found in agent desk"),
        (call("c1", namespace="crm"), "model_behavior", "Tool crm.free not found in agent desk"),
        ({"type": "computer_call", "call_id": "c1"}, "unsupported", "Calls of type computer_call are not supported"),
        ({"type": "function_call", "name": "free"}, "model_behavior", "A call has no id"),
        ({"type": "mcp_approval_request", "id": "m"}, "model_behavior", "has no id, server or tool name"),
    ],
)
def test_a_call_that_nobody_can_perform_fails_the_run_before_anything_ran(
    item: dict[str, str], code: str, words: str
) -> None:
    run = started_run()
    run, effects = apply_events(run, model_response(run, call("c0"), item))
    assert run.failure is not None
    assert run.failure.code == code
    assert words in run.failure.message
    assert effects == (FailRun(run.failure),)


def test_two_calls_of_one_id_fail_the_run() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1"), call("c1")))
    with pytest.raises(IllegalTransition, match="a run that is failed does not accept CancelRequested"):
        apply_events(run, CancelRequested())


def test_max_turns_is_reached_by_model_calls() -> None:
    run = started_run(max_turns=1)
    run, effects = apply_events(run, model_response(run, call("c1")), ToolReturned("c1", "one"))
    assert isinstance(effects[0], AppendToHistory)
    assert effects[1] == FailRun(RunFailure("max_turns", "Max turns (1) exceeded"))


def test_a_tool_without_words_for_its_failure_ends_the_run_and_what_still_runs() -> None:
    run = started_run()
    run, effects = apply_events(run, model_response(run, call("c1"), call("c2")), EffectFailed("tool", "no disk"))
    assert effects == (CancelTasks(), FailRun(RunFailure("tool", "no disk")))


# -- tool choice ----------------------------------------------------------------------------------


def test_a_forced_tool_is_forced_once_for_the_agent_that_used_one() -> None:
    run = started_run()
    run, effects = apply_events(
        run, model_response(run, call("c1"), {"type": "web_search_call", "id": "w"}), ToolReturned("c1", "x")
    )
    assert effects[-1] == CallModel("desk", 2, omit_tool_choice=True)
    assert run.used_tools == {"desk": ("free", "web_search")}
    kept = Agent("desk", tools=(FREE,), reset_tool_choice=False)
    run = started_run(kept)
    assert apply_events(run, model_response(run, call("c1")), ToolReturned("c1", "x"))[1][-1] == CallModel(
        "desk", 2, omit_tool_choice=False
    )


def test_the_tracker_names_tools_as_a_person_knows_them() -> None:
    spaced, deferred = make_tool("open", namespace=Namespace("crm", "")), make_tool("late", deferred=True)
    run = started_run(Agent("desk", tools=(spaced, deferred)))
    run, _ = apply_events(
        run, model_response(run, call("c1", "open", namespace="crm"), call("c2", "late", namespace="late"))
    )
    assert run.used_tools == {"desk": ("crm.open", "late")}


# -- what follows tools ---------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["first output", frozenset({"free"})])
def test_a_tools_output_may_be_the_answer(after: object) -> None:
    run = started_run(replace(DESK, after_tools=after))  # type: ignore[arg-type]
    run, effects = apply_events(
        run, model_response(run, call("c1"), call("c2")), ToolReturned("c2", "two"), ToolReturned("c1", "one")
    )
    assert isinstance(effects[0], AppendToHistory)
    assert effects[1] == FinishRun("desk", "one")


def test_the_output_of_another_tool_is_not_the_answer_nor_is_a_rejection() -> None:
    run = started_run(replace(DESK, after_tools=frozenset({"guarded"})))
    run, effects = apply_events(run, model_response(run, call("c1")), ToolReturned("c1", "one"))
    assert effects[-1] == CallModel("desk", 2, omit_tool_choice=True)
    run, effects = apply_events(
        run, model_response(run, call("c2", "guarded")), ApprovalDecided("c2", approve=False), RunResumed()
    )
    assert effects[-1] == CallModel("desk", 3, omit_tool_choice=True)


def test_an_answer_has_to_fit_its_schema() -> None:
    run = started_run(Agent("desk", output=output(list[int])))
    assert apply_events(run, model_response(run, assistant_message('{"response": [1]}')))[1] == (
        FinishRun("desk", [1]),
    )
    wrong = apply_events(run, model_response(run, assistant_message("one")))[0].failure
    assert wrong == RunFailure("model_behavior", "The final output does not match its schema: the output is not JSON")
    assert apply_events(run, model_response(run, {"type": "reasoning", "id": "r"}))[1] == (CallModel("desk", 2),)


# -- handoffs -------------------------------------------------------------------------------------

BILLING = Agent("billing", tools=(FREE,), handoffs=("triage",))
TRIAGE = Agent("triage", tools=(FREE, GUARDED), handoffs=(BILLING, Agent("returns")))


def test_a_handoff_happens_once_the_other_calls_of_its_answer_are_done() -> None:
    run = started_run(TRIAGE)
    run, effects = apply_events(run, model_response(run, call("h1", "transfer_to_billing", ""), call("c1", "guarded")))
    assert [type(effect) for effect in effects] == [PauseRun]
    run, effects = apply_events(run, ApprovalDecided("c1", approve=True), RunResumed(), ToolReturned("c1", "x"))
    assert isinstance(effects[0], AppendToHistory)
    assert outputs(effects[0].items) == {"h1": '{"assistant": "billing"}', "c1": "x"}
    assert isinstance(effects[1], PrepareHandoff)
    assert (effects[1].source, effects[1].target, run.phase) == ("triage", "billing", Phase.HANDING_OFF)
    run, effects = apply_events(run, HandoffCompleted())
    assert effects == (CallModel("billing", 2, omit_tool_choice=False),)


def test_of_several_handoffs_the_first_is_taken_and_the_others_are_told() -> None:
    run = started_run(TRIAGE)
    run, effects = apply_events(
        run, model_response(run, call("h1", "transfer_to_returns", ""), call("h2", "transfer_to_billing", ""))
    )
    assert isinstance(effects[0], AppendToHistory)
    assert outputs(effects[0].items) == {
        "h1": '{"assistant": "returns"}',
        "h2": "Multiple handoffs detected, ignoring this one.",
    }
    assert apply_events(run, HandoffCompleted())[0].agent == "returns"


def test_a_handoff_that_was_not_offered_fails_the_run() -> None:
    run = started_run(TRIAGE)
    event = replace(model_response(run, call("h1", "transfer_to_billing", "")), handoffs={})
    assert apply_events(run, event)[0].failure == RunFailure(
        "model_behavior", "Tool transfer_to_billing not found in agent triage"
    )


# -- guardrails -----------------------------------------------------------------------------------


def guard(name: str, *, parallel: bool = True) -> Guardrail:
    return Guardrail(name, lambda context, said: None, parallel)


CAREFUL = Agent(
    "careful",
    tools=(FREE,),
    input_guardrails=(guard("beside"), guard("before", parallel=False)),
    output_guardrails=(guard("short"), guard("polite")),
)


def test_input_guardrails_stand_before_the_first_model_call_or_beside_it() -> None:
    run, effects = apply_events(make_run(CAREFUL), RunStarted())
    assert effects == (CheckInputGuardrail("careful", 1),)
    run, effects = apply_events(run, GuardrailPassed(1))
    assert effects == (CheckInputGuardrail("careful", 0), CallModel("careful", 1))


def test_no_tool_runs_before_every_input_guardrail_has_spoken() -> None:
    """The SDK runs them beside each other, and a tool may have run when the guardrail says no."""
    run, _ = apply_events(make_run(CAREFUL), RunStarted(), GuardrailPassed(1))
    run, effects = apply_events(run, model_response(run, call("c1")))
    assert effects == ()
    with pytest.raises(IllegalTransition, match="the response was received already"):
        apply_events(run, model_response(run, call("c1")))
    assert [type(effect) for effect in apply_events(run, GuardrailPassed(0))[1]] == [RunTool]
    run, effects = apply_events(run, GuardrailTripped(0, "rude"))
    assert effects == (CancelTasks(), FailRun(RunFailure("input_guardrail", "Guardrail beside tripped: rude")))


def test_input_guardrails_are_asked_once_a_run() -> None:
    run, _ = apply_events(make_run(CAREFUL), RunStarted(), GuardrailPassed(1), GuardrailPassed(0))
    run, effects = apply_events(run, model_response(run, call("c1")), ToolReturned("c1", "x"))
    assert [type(effect) for effect in effects] == [AppendToHistory, CallModel]


def test_output_guardrails_see_the_final_answer_before_anybody_else() -> None:
    run, _ = apply_events(make_run(CAREFUL), RunStarted(), GuardrailPassed(1), GuardrailPassed(0))
    run, effects = apply_events(run, model_response(run, assistant_message("hi")))
    assert effects == (CheckOutputGuardrail("careful", 0, "hi"), CheckOutputGuardrail("careful", 1, "hi"))
    passing, effects = apply_events(run, GuardrailPassed(1), GuardrailPassed(0))
    assert (effects, passing.phase) == ((FinishRun("careful", "hi"),), Phase.DONE)
    run, effects = apply_events(run, GuardrailPassed(0), GuardrailTripped(1, "rude"))
    assert effects[-1] == FailRun(RunFailure("output_guardrail", "Guardrail polite tripped: rude"))
    with pytest.raises(IllegalTransition):
        apply_events(run, GuardrailPassed(0))


# -- another process ------------------------------------------------------------------------------


def test_a_call_that_started_and_left_no_result_comes_back_as_a_decision() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1"), call("c2"), call("c3")))
    run, effects = recover_run(run, {"c2": "two"})
    assert {one.id: one.stage for one in run.calls} == {
        "c1": Stage.OUTCOME_UNKNOWN,
        "c2": Stage.DONE,
        "c3": Stage.OUTCOME_UNKNOWN,
    }
    assert effects == (PauseRun(run.pending),)
    run, effects = apply_events(run, ToolOutputSupplied("c1", "one"), ApprovalDecided("c3", approve=True), RunResumed())
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["c3"]
    run, effects = apply_events(run, ToolReturned("c3", "three"))
    assert isinstance(effects[0], AppendToHistory)
    assert list(outputs(effects[0].items).items()) == [("c1", "one"), ("c2", "two"), ("c3", "three")]


def test_a_run_catches_up_with_the_starts_and_ends_that_came_after_it_was_kept() -> None:
    run = started_run(max_parallel_calls=1)
    run, _ = apply_events(run, model_response(run, *(call(f"c{n}") for n in range(4))))
    stages = {"c0": Stage.DONE, "c1": Stage.DONE, "c2": Stage.RUNNING, "c3": Stage.READY}
    later = apply_call_log(run, {"c0", "c1", "c2"}, {"c0": "zero", "c1": "one"})
    assert {one.id: one.stage for one in later.calls} == stages
    assert later == apply_events(run, ToolReturned("c0", "zero"), ToolReturned("c1", "one"))[0]
    done, _ = apply_events(run, *(ToolReturned(f"c{n}", "") for n in range(4)))
    assert apply_call_log(done, {"c3"}, {}) == done


def test_a_call_of_unknown_outcome_that_is_not_run_again_says_so() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1")))
    run, _ = recover_run(run, {})
    run, effects = apply_events(run, ApprovalDecided("c1", approve=False), RunResumed())
    assert isinstance(effects[0], AppendToHistory)
    assert outputs(effects[0].items) == {"c1": "The tool was started, and its outcome is unknown."}


def test_when_every_result_was_kept_the_run_goes_on_by_itself() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1")))
    run, effects = recover_run(run, {"c1": "one"})
    assert [type(effect) for effect in effects] == [AppendToHistory, CallModel]


def test_what_does_nothing_twice_is_asked_for_again() -> None:
    new = make_run(CAREFUL)
    assert recover_run(new, {}) == (new, ())
    guarding, effects = apply_events(new, RunStarted())
    assert recover_run(guarding, {}) == (guarding, effects)
    asking, effects = apply_events(guarding, GuardrailPassed(1))
    assert recover_run(asking, {}) == (asking, effects)
    held, _ = apply_events(asking, model_response(asking, assistant_message("hi")))
    assert recover_run(held, {})[1] == (CheckInputGuardrail("careful", 0),)
    checking, effects = apply_events(held, GuardrailPassed(0))
    assert recover_run(checking, {}) == (checking, effects)
    run = paused_run()
    assert recover_run(run, {}) == (run, (PauseRun(run.pending),))
    run = started_run()
    clearing, effects = apply_events(run, model_response(run, call("c1", "asked")))
    assert recover_run(clearing, {}) == (clearing, effects)
    run = started_run(TRIAGE)
    handing, effects = apply_events(run, model_response(run, call("h1", "transfer_to_billing", "")))
    assert recover_run(handing, {}) == (handing, effects[1:])


def test_a_stopped_run_takes_nothing_more() -> None:
    run, effects = apply_events(started_run(), CancelRequested())
    assert effects == (CancelTasks(),)
    with pytest.raises(IllegalTransition):
        apply_events(run, model_response(started_run(), assistant_message("late")))


def test_the_same_defaults_as_in_the_agents_sdk() -> None:
    from agents.run_config import DEFAULT_MAX_TURNS

    assert make_run(DESK).limits.max_turns == DEFAULT_MAX_TURNS
    assert SdkAgent(name="a").reset_tool_choice == DESK.reset_tool_choice

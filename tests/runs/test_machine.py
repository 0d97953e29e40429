"""The state machine of a run: the effects of each event, in order, and the final state."""

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any, get_args

import pytest
from agents import Agent as SdkAgent

from convo.agents.agent import Agent, output
from convo.errors import IllegalTransition
from convo.history.items import assistant_message
from convo.runs.machine import build_missing_outputs
from convo.runs.serialize import apply_call_log, pause_interrupted_run, recover_run
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
    NestedRun,
    PauseRun,
    Phase,
    PrepareHandoff,
    Run,
    RunEffect,
    RunEvent,
    RunFailure,
    RunLimits,
    RunResumed,
    RunStarted,
    RunTool,
    Stage,
    ToolCall,
    ToolOutputSupplied,
    ToolReturned,
)
from convo.tools.tool import Namespace
from tests.runs.run_steps import (
    DESK,
    FREE,
    GUARDED,
    apply_events,
    call,
    guard,
    make_run,
    make_tool,
    model_response,
    outputs,
    paused_run,
    started_run,
)

UNKNOWN, NOT_RUN = "The tool was started, and its outcome is unknown.", "The run ended before this tool was called."
REQUEST = {"type": "mcp_approval_request", "id": "m1", "server_label": "crm", "name": "drop", "arguments": "{}"}

# -- model calls and tool calls -------------------------------------------------------------------


def test_an_answer_without_calls_ends_the_run() -> None:
    run, effects = apply_events(make_run(DESK), RunStarted())
    assert effects == (CallModel("desk", 1),)
    run, effects = apply_events(run, model_response(run, assistant_message("hello")))
    assert effects == (FinishRun("desk", "hello"),)
    assert (run.phase, run.turn) == (Phase.DONE, 1)


def test_tools_run_in_parallel_within_a_limit_and_outputs_are_appended_in_call_order() -> None:
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


def test_invalid_arguments_are_reported_to_the_model_and_nothing_runs() -> None:
    run = started_run()
    run, effects = apply_events(
        run, model_response(run, call("c1", arguments='{"text": 1}'), call("c2", "guarded", "{}"))
    )
    assert isinstance(effects[0], AppendToHistory)
    assert [text.split(":")[0] for text in outputs(effects[0].items).values()] == [
        "Invalid arguments for tool free",
        "Invalid arguments for tool guarded",
    ]
    assert effects[1] == CallModel("desk", 2, omit_tool_choice=True)


@pytest.mark.parametrize(
    ("item", "code", "message"),
    [
        (call("c1", "lost"), "model_behavior", "Tool lost not found in agent desk"),
        (call("c1", namespace="crm"), "model_behavior", "Tool crm.free not found in agent desk"),
        (call("c1", namespace="free"), "model_behavior", "Tool free not found in agent desk"),
        (call("c1", "transfer_to_desk"), "model_behavior", "Tool transfer_to_desk not found in agent desk"),
        ({"type": "function_call", "call_id": "c1"}, "model_behavior", "Tool None not found in agent desk"),
        ({"type": "computer_call", "call_id": "c1"}, "unsupported", "Calls of type computer_call are not supported"),
        ({"type": "function_call", "name": "free"}, "model_behavior", "A call has no id"),
        (REQUEST | {"id": None}, "model_behavior", "An MCP approval request has no id, server or tool name"),
        (REQUEST | {"server_label": None}, "model_behavior", "An MCP approval request has no id, server or tool name"),
        (REQUEST | {"name": None}, "model_behavior", "An MCP approval request has no id, server or tool name"),
    ],
)
def test_a_call_that_cannot_be_performed_fails_the_run_before_anything_runs(
    item: dict[str, str], code: str, message: str
) -> None:
    run = started_run()
    run, effects = apply_events(run, model_response(run, call("c0"), item))
    assert run.failure == RunFailure(code, message)
    assert (effects, run.phase, run.calls) == ((FailRun(run.failure),), Phase.FAILED, ())


def test_two_calls_with_the_same_id_fail_the_run() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1"), call("c1")))
    assert run.failure == RunFailure("model_behavior", "Two calls have the id c1")
    with pytest.raises(IllegalTransition, match="a run that is failed does not accept CancelRequested"):
        apply_events(run, CancelRequested())


def test_model_calls_count_towards_max_turns() -> None:
    run = started_run(max_turns=1)
    run, effects = apply_events(run, model_response(run, call("c1")), ToolReturned("c1", "one"))
    assert isinstance(effects[0], AppendToHistory)
    assert effects[1] == FailRun(RunFailure("max_turns", "Max turns (1) exceeded"))


def test_a_run_without_max_turns_continues() -> None:
    run = started_run(max_turns=None)
    for turn in range(1, 12):
        assert run.turn == turn
        run, effects = apply_events(run, model_response(run, call("c1")), ToolReturned("c1", "one"))
        assert isinstance(effects[1], CallModel)


def test_a_tool_without_a_failure_message_fails_the_run_and_cancels_running_tools() -> None:
    run = started_run()
    run, effects = apply_events(run, model_response(run, call("c1"), call("c2")), EffectFailed("tool", "no disk"))
    assert effects == (CancelTasks(), FailRun(RunFailure("tool", "no disk")))


def message(*parts: dict[str, str]) -> dict[str, object]:
    return {"type": "message", "role": "assistant", "content": list(parts)}


OUTPUT_TEXT = {"type": "output_text", "text": "b"}


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([assistant_message("one"), assistant_message("two")], "two"),
        ([assistant_message("one"), {"type": "reasoning", "id": "r"}], "one"),
        ([{"role": "assistant", "content": "plain"}], "plain"),
        ([message({"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"})], "ab"),
        ([message({"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"})], "a"),
        ([message({"type": "refusal", "refusal": "I cannot."})], "I cannot."),
        ([message({"type": "output_text"})], ""),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "assistant", "content": [None, {"type": "summary_text", "text": "a"}, OUTPUT_TEXT]}], "b"),
        ([{"role": "user", "content": "not the model's"}], ""),
        ([], ""),
    ],
)
def test_the_text_of_the_last_message_is_the_final_output(output: list[dict[str, object]], text: str) -> None:
    run = started_run()
    run, effects = apply_events(run, model_response(run, *output))
    assert effects == (FinishRun("desk", text),)
    assert run.output == text


@pytest.mark.parametrize(("needs_approval", "stage"), [(False, Stage.RUNNING), (True, Stage.PENDING)])
def test_a_tool_that_parses_its_own_arguments_gets_any_text(needs_approval: bool, stage: Stage) -> None:
    tool = replace(FREE, record=None, needs_approval=needs_approval)
    run = started_run(Agent("desk", tools=(tool,)))
    run, _ = apply_events(run, model_response(run, call("c1", arguments="not JSON")))
    assert [(one.stage, one.arguments) for one in run.calls] == [(stage, "not JSON")]


def test_an_approval_function_is_not_called_with_arguments_that_are_not_json() -> None:
    tool = replace(FREE, record=None, needs_approval=lambda context, arguments: False)
    run = started_run(Agent("desk", tools=(tool,)))
    run, _ = apply_events(run, model_response(run, call("c1", arguments="not JSON"), call("c2")))
    assert [one.stage for one in run.calls] == [Stage.PENDING, Stage.CHECKING_APPROVAL]


def test_a_call_with_empty_arguments_is_valid() -> None:
    run = started_run(Agent("desk", tools=(replace(FREE, record=None),)))
    run, _ = apply_events(run, model_response(run, call("c1", arguments=None), REQUEST | {"arguments": None}))  # type: ignore[arg-type]
    assert [one.arguments for one in run.calls] == ["", ""]


def test_a_call_that_the_provider_ran_is_not_run_again() -> None:
    run = started_run()
    provider_items = ({"type": "shell_call", "call_id": "s1"}, {"type": "shell_call_output", "call_id": "s1"})
    items = (*provider_items, {"type": "shell_call_output"}, call("c1"), REQUEST)
    run, effects = apply_events(run, model_response(run, *items))
    assert [one.id for one in run.calls] == ["c1", "m1"]
    assert [effect.call.id for effect in effects if isinstance(effect, RunTool)] == ["c1"]


def test_a_lowered_limit_starts_no_call_while_more_calls_are_running() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, *(call(f"c{n}") for n in range(9))))
    assert [one.stage for one in run.calls] == [Stage.RUNNING] * 8 + [Stage.READY]
    run = replace(run, limits=replace(run.limits, max_parallel_calls=2))
    run, effects = apply_events(run, ToolReturned("c0", "zero"))
    assert effects == ()
    assert len(run.calls_at(Stage.RUNNING)) == 7


def test_the_output_of_a_call_names_its_caller() -> None:
    caller = {"type": "program", "caller_id": "p"}
    run = started_run()
    run, effects = apply_events(run, model_response(run, call("c1", caller=caller)), ToolReturned("c1", "one"))
    output = {"type": "function_call_output", "call_id": "c1", "output": "one", "caller": caller}
    assert effects[0] == AppendToHistory((output,))


@pytest.mark.parametrize(
    ("item", "output"),
    [
        (call("c1"), {"type": "function_call_output", "call_id": "c1", "output": "one"}),
        (call("c2"), {"type": "function_call_output", "call_id": "c2", "output": UNKNOWN}),
        (call("c3"), {"type": "function_call_output", "call_id": "c3", "output": NOT_RUN}),
        (call("c9"), {"type": "function_call_output", "call_id": "c9", "output": NOT_RUN}),
        (
            REQUEST,
            {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": False, "reason": NOT_RUN},
        ),
        (
            {"type": "computer_call", "call_id": "k1"},
            {"type": "computer_call_output", "call_id": "k1", "output": NOT_RUN},
        ),
        ({"type": "web_search_call", "id": "w1"}, None),
        ({"type": "tool_search_call", "call_id": "t1", "execution": "server"}, None),
        ({"type": "mcp_approval_response", "approval_request_id": "m9", "approve": True}, None),
        (assistant_message("hi"), None),
    ],
)
def test_a_call_without_an_output_gets_one_when_the_run_ends(
    item: dict[str, object], output: dict[str, object] | None
) -> None:
    run = started_run(max_parallel_calls=1)
    run, _ = apply_events(run, model_response(run, *(call(f"c{n}") for n in (1, 2, 3))), ToolReturned("c1", "one"))
    assert build_missing_outputs(run, [item]) == ((output,) if output else ())
    assert output is None or build_missing_outputs(run, [item, output]) == ()


# -- tool choice ----------------------------------------------------------------------------------


def test_a_forced_tool_is_forced_only_until_its_agent_used_a_tool() -> None:
    run = started_run()
    hosted = ({"type": "web_search_call", "id": "w"}, {"type": "tool_search_call", "execution": "server"})
    run, effects = apply_events(run, model_response(run, call("c1"), *hosted), ToolReturned("c1", "x"))
    assert effects[-1] == CallModel("desk", 2, omit_tool_choice=True)
    assert run.used_tools == {"desk": ("free", "web_search")}
    agent = Agent("desk", tools=(FREE,), reset_tool_choice=False)
    run = started_run(agent)
    assert apply_events(run, model_response(run, call("c1")), ToolReturned("c1", "x"))[1][-1] == CallModel(
        "desk", 2, omit_tool_choice=False
    )


def test_the_tool_tracker_uses_qualified_names() -> None:
    namespaced, deferred = make_tool("open", namespace=Namespace("crm", "")), make_tool("late", deferred=True)
    run = started_run(Agent("desk", tools=(namespaced, deferred)))
    run, _ = apply_events(
        run, model_response(run, call("c1", "open", namespace="crm"), call("c2", "late", namespace="late"))
    )
    assert run.used_tools == {"desk": ("crm.open", "late")}


# -- after the tool calls -------------------------------------------------------------------------


def test_a_tool_in_a_namespace_may_give_the_final_output_under_either_name() -> None:
    namespaced = make_tool("open", namespace=Namespace("crm", ""))
    for name in ("open", "crm.open"):
        run = started_run(Agent("desk", tools=(namespaced, FREE), after_tools=frozenset({name, "free"})))
        response = model_response(run, call("c1", "open", namespace="crm"))
        run, effects = apply_events(run, response, ToolReturned("c1", "one"))
        assert effects[-1] == FinishRun("desk", "one")


@pytest.mark.parametrize("after", ["first output", frozenset({"free"})])
def test_a_tool_output_may_be_the_final_output(after: object) -> None:
    run = started_run(replace(DESK, after_tools=after))  # type: ignore[arg-type]
    run, effects = apply_events(
        run, model_response(run, call("c1"), call("c2")), ToolReturned("c2", "two"), ToolReturned("c1", "one")
    )
    assert isinstance(effects[0], AppendToHistory)
    assert effects[1] == FinishRun("desk", "one")


def test_neither_the_output_of_another_tool_nor_a_rejection_is_the_final_output() -> None:
    run = started_run(replace(DESK, after_tools=frozenset({"guarded"})))
    run, effects = apply_events(run, model_response(run, call("c1")), ToolReturned("c1", "one"))
    assert effects[-1] == CallModel("desk", 2, omit_tool_choice=True)
    run, effects = apply_events(
        run, model_response(run, call("c2", "guarded")), ApprovalDecided("c2", approve=False), RunResumed()
    )
    assert effects[-1] == CallModel("desk", 3, omit_tool_choice=True)


def test_an_answer_must_match_its_schema() -> None:
    run = started_run(Agent("desk", output=output(list[int])))
    assert apply_events(run, model_response(run, assistant_message('{"response": [1]}')))[1] == (
        FinishRun("desk", [1]),
    )
    error = apply_events(run, model_response(run, assistant_message("one")))[0].failure
    assert error == RunFailure("model_behavior", "The final output does not match its schema: the output is not JSON")
    assert apply_events(run, model_response(run, {"type": "reasoning", "id": "r"}))[1] == (CallModel("desk", 2),)


@pytest.mark.parametrize("agent", [Agent("desk", output=output(list[int])), Agent("desk", follows_sdk=True)])
def test_a_refusal_fails_the_run(agent: Agent) -> None:
    run = started_run(agent)
    refusal = {"type": "refusal", "refusal": "I cannot."}
    failed = apply_events(run, model_response(run, {"type": "message", "role": "assistant", "content": [refusal]}))[0]
    assert failed.failure == RunFailure("model_refusal", "The model refused to answer: I cannot.")


# -- handoffs -------------------------------------------------------------------------------------

BILLING = Agent("billing", tools=(FREE,), handoffs=("triage",))
TRIAGE = Agent("triage", tools=(FREE, GUARDED), handoffs=(BILLING, Agent("returns")))


def test_a_handoff_happens_after_the_other_calls_of_its_answer_ended() -> None:
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


def test_of_several_handoffs_the_first_is_taken_and_the_others_get_an_error() -> None:
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
    first = run.calls[0]
    assert [first] == list(run.calls)
    assert (first.lookup, first.target, first.arguments) == (("handoff", "transfer_to_returns"), "returns", "")
    namespaced = call("h1", "transfer_to_returns", "", namespace="crm")
    failed, _ = apply_events(started_run(TRIAGE), model_response(started_run(TRIAGE), namespaced))
    assert failed.failure == RunFailure("model_behavior", "Tool crm.transfer_to_returns not found in agent triage")


def test_a_handoff_that_was_not_offered_fails_the_run() -> None:
    run = started_run(TRIAGE)
    event = replace(model_response(run, call("h1", "transfer_to_billing", "")), handoffs={})
    assert apply_events(run, event)[0].failure == RunFailure(
        "model_behavior", "Tool transfer_to_billing not found in agent triage"
    )


# -- guardrails -----------------------------------------------------------------------------------


CAREFUL = Agent(
    "careful",
    tools=(FREE,),
    input_guardrails=(guard("beside"), guard("before", parallel=False)),
    output_guardrails=(guard("short"), guard("polite")),
)


def test_input_guardrails_run_before_or_parallel_to_the_first_model_call() -> None:
    run, effects = apply_events(make_run(CAREFUL), RunStarted())
    assert effects == (CheckInputGuardrail("careful", 1),)
    run, effects = apply_events(run, GuardrailPassed(1))
    assert effects == (CheckInputGuardrail("careful", 0), CallModel("careful", 1))


def test_no_tool_runs_before_every_input_guardrail_has_finished() -> None:
    """In the Agents SDK tools run in parallel to guardrails, so a tool may have run when a guardrail trips."""
    run, _ = apply_events(make_run(CAREFUL), RunStarted(), GuardrailPassed(1))
    run, effects = apply_events(run, model_response(run, call("c1")))
    assert effects == ()
    message = "^a run that is calling the model does not accept ModelResponded: the response was received already$"
    with pytest.raises(IllegalTransition, match=message):
        apply_events(run, model_response(run, call("c1")))
    assert [type(effect) for effect in apply_events(run, GuardrailPassed(0))[1]] == [RunTool]
    run, effects = apply_events(run, GuardrailTripped(0, "rude"))
    assert effects == (CancelTasks(), FailRun(RunFailure("input_guardrail", "Guardrail beside tripped: rude")))


def test_a_response_that_fails_the_run_cancels_running_guardrails() -> None:
    run, _ = apply_events(make_run(CAREFUL), RunStarted(), GuardrailPassed(1))
    run, effects = apply_events(run, model_response(run, call("c1", "lost")))
    failure = RunFailure("model_behavior", "Tool lost not found in agent careful")
    assert (effects, run.open_guardrails) == ((CancelTasks(), FailRun(failure)), frozenset())


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((GuardrailPassed(0),), "a run that is checking the input does not accept GuardrailPassed: guardrail 0 is not"),
        ((GuardrailTripped(0, ""),), "a run that is checking the input does not accept GuardrailTripped: guardrail 0"),
        ((GuardrailPassed(1), GuardrailPassed(1)), "a run that is calling the model does not accept GuardrailPassed:"),
        ((ToolReturned("c1", ""),), "a run that is checking the input does not accept ToolReturned$"),
    ],
)
def test_an_unexpected_result_is_refused(events: tuple[object, ...], message: str) -> None:
    with pytest.raises(IllegalTransition, match=f"^{message}"):
        apply_events(make_run(CAREFUL), RunStarted(), *events)  # type: ignore[arg-type]


def test_input_guardrails_run_once_per_run() -> None:
    run, _ = apply_events(make_run(CAREFUL), RunStarted(), GuardrailPassed(1), GuardrailPassed(0))
    run, effects = apply_events(run, model_response(run, call("c1")), ToolReturned("c1", "x"))
    assert [type(effect) for effect in effects] == [AppendToHistory, CallModel]


def test_output_guardrails_check_the_final_output_before_it_is_returned() -> None:
    run, _ = apply_events(make_run(CAREFUL), RunStarted(), GuardrailPassed(1), GuardrailPassed(0))
    run, effects = apply_events(run, model_response(run, assistant_message("hi")))
    assert effects == (CheckOutputGuardrail("careful", 0, "hi"), CheckOutputGuardrail("careful", 1, "hi"))
    passing, effects = apply_events(run, GuardrailPassed(1), GuardrailPassed(0))
    assert (effects, passing.phase) == ((FinishRun("careful", "hi"),), Phase.DONE)
    run, effects = apply_events(run, GuardrailPassed(0), GuardrailTripped(1, "rude"))
    assert effects[-1] == FailRun(RunFailure("output_guardrail", "Guardrail polite tripped: rude"))
    with pytest.raises(IllegalTransition):
        apply_events(run, GuardrailPassed(0))


# -- recovery in another process ------------------------------------------------------------------


def test_a_call_that_started_and_has_no_output_needs_a_decision() -> None:
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


def test_recovery_applies_the_starts_and_ends_of_calls_since_the_last_write() -> None:
    run = started_run(max_parallel_calls=1)
    run, _ = apply_events(run, model_response(run, *(call(f"c{n}") for n in range(4))))
    stages = {"c0": Stage.DONE, "c1": Stage.DONE, "c2": Stage.RUNNING, "c3": Stage.READY}
    recovered = apply_call_log(run, {"c0", "c1", "c2"}, {"c0": "zero", "c1": "one"})
    assert {one.id: one.stage for one in recovered.calls} == stages
    assert recovered == apply_events(run, ToolReturned("c0", "zero"), ToolReturned("c1", "one"))[0]
    done, _ = apply_events(run, *(ToolReturned(f"c{n}", "") for n in range(4)))
    assert apply_call_log(done, {"c3"}, {}) == done


def test_the_call_log_changes_neither_a_rejected_call_nor_a_paused_run() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1", "guarded"), call("c2", "guarded")))
    run, _ = apply_events(run, ApprovalDecided("c1", approve=False), ApprovalDecided("c2", approve=True))
    assert apply_call_log(run, {"c1", "c2"}, {"c1": "one", "c2": "two"}) == run
    run, _ = apply_events(run, RunResumed())
    assert apply_call_log(run, {"c1", "c2"}, {"c1": "one"}) == run


def test_a_run_without_a_process_is_paused_at_its_calls() -> None:
    run = started_run(max_parallel_calls=2)
    assert pause_interrupted_run(run, {}) == run
    run, _ = apply_events(run, model_response(run, *(call(f"c{n}") for n in range(3))))
    paused_run = pause_interrupted_run(run, {"c0": "zero"})
    assert paused_run.phase is Phase.PAUSED
    assert {one.id: one.stage for one in paused_run.calls} == {
        "c0": Stage.DONE,
        "c1": Stage.OUTCOME_UNKNOWN,
        "c2": Stage.READY,
    }


@pytest.mark.parametrize(("reason", "output"), [(None, UNKNOWN), ("Ask Kim.", f"{UNKNOWN} Ask Kim.")])
def test_a_call_of_unknown_outcome_that_is_not_run_again_has_an_output_that_says_so(
    reason: str | None, output: str
) -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1")))
    run, _ = recover_run(run, {})
    run, effects = apply_events(run, ApprovalDecided("c1", approve=False, message=reason), RunResumed())
    assert isinstance(effects[0], AppendToHistory)
    assert outputs(effects[0].items) == {"c1": output}


def test_when_every_output_was_stored_the_run_continues_without_a_decision() -> None:
    run = started_run()
    run, _ = apply_events(run, model_response(run, call("c1")))
    run, effects = recover_run(run, {"c1": "one"})
    assert [type(effect) for effect in effects] == [AppendToHistory, CallModel]


def test_an_effect_that_is_safe_to_repeat_is_requested_again() -> None:
    new = make_run(CAREFUL)
    assert recover_run(new, {}) == (new, ())
    guarding, effects = apply_events(new, RunStarted())
    assert recover_run(guarding, {}) == (guarding, effects)
    calling, effects = apply_events(guarding, GuardrailPassed(1))
    assert recover_run(calling, {}) == (calling, effects)
    responded, _ = apply_events(calling, model_response(calling, assistant_message("hi")))
    assert recover_run(responded, {})[1] == (CheckInputGuardrail("careful", 0),)
    checking, effects = apply_events(responded, GuardrailPassed(0))
    assert recover_run(checking, {}) == (checking, effects)
    run = paused_run()
    assert recover_run(run, {}) == (run, (PauseRun(run.pending),))
    run = started_run()
    clearing, effects = apply_events(run, model_response(run, call("c1", "asked")))
    assert recover_run(clearing, {}) == (clearing, effects)
    run = started_run(TRIAGE)
    handing, effects = apply_events(run, model_response(run, call("h1", "transfer_to_billing", "")))
    assert recover_run(handing, {}) == (handing, effects[1:])


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in (Run, ToolCall, RunFailure, RunLimits, NestedRun, *get_args(RunEvent), *get_args(RunEffect))
        if fields(kind)
    ],
)
def test_the_state_the_events_and_the_effects_of_a_run_are_immutable(kind: type[Any]) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(object.__new__(kind), fields(kind)[0].name, None)


def test_a_stopped_run_accepts_no_event() -> None:
    run, effects = apply_events(started_run(), CancelRequested())
    assert effects == (CancelTasks(),)
    with pytest.raises(IllegalTransition):
        apply_events(run, model_response(started_run(), assistant_message("late")))


def test_the_defaults_equal_those_of_the_agents_sdk() -> None:
    from agents.run_config import DEFAULT_MAX_TURNS

    assert make_run(DESK).limits.max_turns == DEFAULT_MAX_TURNS
    assert SdkAgent(name="a").reset_tool_choice == DESK.reset_tool_choice

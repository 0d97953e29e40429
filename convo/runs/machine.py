"""The state machine of an agent run: `step_run` applies an event and returns the effects to perform.

`TRANSITIONS` lists which event is allowed in which phase and the phases it can lead to; anything else raises
IllegalTransition and changes nothing. All functions are pure. Outputs are appended in the order of their calls,
all at once, after the last call of a response completed. A call of a tool that was not offered fails the run.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from convo.agents.handoffs import IGNORED_HANDOFF_OUTPUT, format_handoff_output
from convo.errors import IllegalTransition, InputFault
from convo.history.items import (
    MCP_APPROVAL_REQUEST,
    MCP_APPROVAL_RESPONSE,
    Item,
    Json,
    is_assistant_message,
    is_client_call,
    item_text,
    item_type,
)
from convo.history.pairing import build_text_output, open_client_calls, output_index_by_call, pair_id
from convo.runs.state import (
    PENDING_STAGES,
    TERMINAL_PHASES,
    AppendToHistory,
    ApprovalDecided,
    ApprovalEvaluated,
    CallModel,
    CancelRequested,
    CancelTasks,
    CheckInputGuardrail,
    CheckOutputGuardrail,
    EffectFailed,
    EvaluateApproval,
    FailRun,
    FinishRun,
    GuardrailPassed,
    GuardrailTripped,
    HandoffCompleted,
    InputAdded,
    ModelResponded,
    NestedRun,
    NestedRunPaused,
    PauseRun,
    Phase,
    PrepareHandoff,
    Run,
    RunEffect,
    RunEvent,
    RunFailure,
    RunResumed,
    RunStarted,
    RunTool,
    Stage,
    ToolCall,
    ToolOutputSupplied,
    ToolReturned,
)
from convo.tools.schema import Mismatch
from convo.tools.tool import NOT_APPROVED, InvalidArguments, Lookup, Tool, read_arguments, tool_lookup

StepResult: TypeAlias = tuple[Run, tuple[RunEffect, ...]]


def _on_run_started(run: Run, event: RunStarted) -> StepResult:
    guardrails = run.current_agent.input_guardrails
    indexes = [index for index, guardrail in enumerate(guardrails) if not guardrail.parallel]
    if not indexes:
        return _request_model_call(run)
    run = replace(run, phase=Phase.CHECKING_INPUT, open_guardrails=frozenset(indexes))
    return run, tuple(CheckInputGuardrail(run.agent, index) for index in indexes)


def _on_guardrail_passed(run: Run, event: GuardrailPassed) -> StepResult:
    run = _remove_guardrail(run, event.guardrail_index, event)
    if run.open_guardrails or (run.phase is Phase.CALLING_MODEL and not run.has_response):
        return run, ()
    if run.phase is Phase.CHECKING_INPUT:
        return _request_model_call(run)
    return _process_response(run) if run.phase is Phase.CALLING_MODEL else _finish_run(run)


def _on_guardrail_tripped(run: Run, event: GuardrailTripped) -> StepResult:
    side = "output" if run.phase is Phase.CHECKING_OUTPUT else "input"
    guardrails = run.current_agent.output_guardrails if side == "output" else run.current_agent.input_guardrails
    run = _remove_guardrail(run, event.guardrail_index, event)
    return _fail_run(
        run,
        f"{side}_guardrail",
        f"Guardrail {guardrails[event.guardrail_index].name} tripped: {event.reason}",
        cancel_tasks=True,
    )


def _on_model_responded(run: Run, event: ModelResponded) -> StepResult:
    if run.has_response:
        raise IllegalTransition(run.phase, "ModelResponded", "the response was received already")
    calls = parse_tool_calls(run, event)
    if isinstance(calls, RunFailure):
        return _fail_run(run, calls.code, calls.message, cancel_tasks=bool(run.open_guardrails))
    refusal = extract_refusal(event)
    # In the Agents SDK a refusal is an error. Another agent answers with it, as a chat without agents does.
    if refusal and not calls and (run.current_agent.follows_sdk or run.current_agent.output):
        message = f"The model refused to answer: {refusal}"
        return _fail_run(run, MODEL_REFUSAL, message, cancel_tasks=bool(run.open_guardrails))
    names = dict.fromkeys((*run.used_tools.get(run.agent, ()), *iter_used_tool_names(event)))
    used_tools = {**run.used_tools, run.agent: tuple(names)} if names else run.used_tools
    run = replace(run, calls=calls, text=extract_last_message_text(event), used_tools=used_tools, has_response=True)
    return (run, ()) if run.open_guardrails else _process_response(run)


def _on_approval_evaluated(run: Run, event: ApprovalEvaluated) -> StepResult:
    call = _require_call(run, event.call_id, (Stage.CHECKING_APPROVAL,), event)
    run = run.replace_call(_apply_approval_policy(run, call, event.needs_approval))
    return (run, ()) if run.calls_at(Stage.CHECKING_APPROVAL) else run_ready_calls(run)


def _on_tool_returned(run: Run, event: ToolReturned) -> StepResult:
    call = _require_call(run, event.call_id, (Stage.RUNNING,), event)
    return run_ready_calls(run.replace_call(complete_call(call, event.output)))


def _on_nested_run_paused(run: Run, event: NestedRunPaused) -> StepResult:
    call = _require_call(run, event.call_id, (Stage.RUNNING,), event)
    return run_ready_calls(run.replace_call(replace(call, stage=Stage.NESTED_RUN_PAUSED, nested_run=event.nested_run)))


def _on_effect_failed(run: Run, event: EffectFailed) -> StepResult:
    return _fail_run(run, event.code, event.message, cancel_tasks=True)


def _on_approval_decided(run: Run, event: ApprovalDecided) -> StepResult:
    """Record a decision. Nothing runs before `RunResumed`, and until then a later decision replaces it."""
    outer = _find_enclosing_call(run, event.call_id)
    if outer and outer.nested_run:
        return run.replace_call(
            _with_nested_run(outer, outer.nested_run, _on_approval_decided(outer.nested_run.run, event)[0])
        ), ()
    call = run.find_call(event.call_id)
    if call is None or not call.is_decided:
        call = _require_call(run, event.call_id, PENDING_STAGES, event)
    is_function = call.tool is not None and call.tool.definition is None
    if event.arguments is not None and (not event.approve or event.always or not is_function):
        raise InputFault(
            "arguments can be changed only for one approved function call", hint="approve the call without --always"
        )
    run = run.replace_call(_apply_decision(call, event))
    if not event.always:
        return run, ()
    tool_key = run.agent, call.lookup
    messages = {key: message for key, message in run.sticky_rejection_messages.items() if key != tool_key}
    if not event.approve and event.message is not None:
        messages[tool_key] = event.message
    run = replace(
        run, sticky_decisions={**run.sticky_decisions, tool_key: event.approve}, sticky_rejection_messages=messages
    )
    for other in run.calls_at(Stage.PENDING):
        if other.lookup == call.lookup:
            run = run.replace_call(_apply_decision(other, event))
    return run, ()


def _on_tool_output_supplied(run: Run, event: ToolOutputSupplied) -> StepResult:
    outer = _find_enclosing_call(run, event.call_id)
    if outer and outer.nested_run:
        return run.replace_call(
            _with_nested_run(outer, outer.nested_run, _on_tool_output_supplied(outer.nested_run.run, event)[0])
        ), ()
    call = _require_call(run, event.call_id, (Stage.OUTCOME_UNKNOWN,), event)
    return run.replace_call(complete_call(call, event.output)), ()


def _on_input_added(run: Run, event: InputAdded) -> StepResult:
    return replace(run, staged_items=(*run.staged_items, *event.items)), ()


def _on_run_resumed(run: Run, event: RunResumed) -> StepResult:
    """Run the ready calls; a call with a paused nested run becomes ready once that run can resume."""
    resumable = (
        call for call in run.calls_at(Stage.NESTED_RUN_PAUSED) if call.nested_run and _can_resume(call.nested_run.run)
    )
    return run_ready_calls(_replace_calls(run, (replace(call, stage=Stage.READY) for call in resumable)))


def _on_handoff_completed(run: Run, event: HandoffCompleted) -> StepResult:
    (call,) = run.calls
    assert call.target is not None
    return _request_model_call(replace(run, agent=call.target, calls=()))


def _on_cancel_requested(run: Run, event: CancelRequested) -> StepResult:
    return replace(run, phase=Phase.CANCELLED), (CancelTasks(),)


def _request_model_call(run: Run, *earlier_effects: RunEffect) -> StepResult:
    """Request one model call; the first one also starts the input guardrails that run in parallel to it."""
    effects = (*earlier_effects, AppendToHistory(run.staged_items)) if run.staged_items else earlier_effects
    run = replace(run, staged_items=(), calls=(), has_response=False, text=None)
    if run.limits.max_turns is not None and run.turn >= run.limits.max_turns:
        failed, failure_effects = _fail_run(run, "max_turns", f"Max turns ({run.limits.max_turns}) exceeded")
        return failed, (*effects, *failure_effects)
    guardrails = run.current_agent.input_guardrails if run.turn == 0 else ()
    indexes = [index for index, guardrail in enumerate(guardrails) if guardrail.parallel]
    run = replace(run, phase=Phase.CALLING_MODEL, turn=run.turn + 1, open_guardrails=frozenset(indexes))
    return run, (*effects, *(CheckInputGuardrail(run.agent, index) for index in indexes), build_model_call(run))


def build_model_call(run: Run) -> CallModel:
    return CallModel(
        run.agent,
        run.turn,
        omit_tool_choice=run.current_agent.reset_tool_choice and bool(run.used_tools.get(run.agent)),
    )


def run_ready_calls(run: Run) -> StepResult:
    """Start ready calls up to the limit of parallel calls. If none runs, pause the run or complete its calls."""
    free_slots = run.limits.max_parallel_calls - len(run.calls_at(Stage.RUNNING))
    starting = run.calls_at(Stage.READY)[: max(free_slots, 0)]
    for call in starting:
        run = run.replace_call(replace(call, stage=Stage.RUNNING))
    if run.calls_at(Stage.RUNNING):
        return replace(run, phase=Phase.RUNNING_TOOLS), tuple(RunTool(call) for call in starting)
    if run.pending:
        return replace(run, phase=Phase.PAUSED), (PauseRun(run.pending),)
    return _complete_calls(run)


def _complete_calls(run: Run) -> StepResult:
    """Append the outputs of all calls, then hand off, finish or request the next model call."""
    handoffs = run.calls_at(Stage.HANDOFF)
    for call in handoffs:
        text = (
            format_handoff_output(run.graph[str(call.target)].name) if call is handoffs[0] else IGNORED_HANDOFF_OUTPUT
        )
        run = run.replace_call(replace(call, output=build_function_call_output(call, text)))
    append = AppendToHistory(tuple(call.output for call in run.calls if call.output is not None))
    if handoffs:
        call = handoffs[0]
        run = replace(run, phase=Phase.HANDING_OFF, calls=(call,))
        return run, (append, PrepareHandoff(call, run.agent, str(call.target)))
    for call in run.calls:
        if call.output is not None and call.has_run and _is_final_output(run, call):
            return _accept_final_output(run, call.output["output"], append)
    return _request_model_call(run, append)


def _accept_final_output(run: Run, output: Json, *earlier_effects: RunEffect) -> StepResult:
    """Check the final output with the output guardrails, or finish the run if there are none."""
    indexes = range(len(run.current_agent.output_guardrails))
    run = replace(run, output=output, calls=(), open_guardrails=frozenset(indexes), phase=Phase.CHECKING_OUTPUT)
    checks = tuple(CheckOutputGuardrail(run.agent, index, output) for index in indexes)
    if checks:
        return run, (*earlier_effects, *checks)
    finished, finish_effects = _finish_run(run)
    return finished, (*earlier_effects, *finish_effects)


def _fail_run(run: Run, code: str, message: str, *, cancel_tasks: bool = False) -> StepResult:
    failure = RunFailure(code, message)
    failed = replace(run, phase=Phase.FAILED, failure=failure, open_guardrails=frozenset())
    return failed, (CancelTasks(), FailRun(failure)) if cancel_tasks else (FailRun(failure),)


def complete_call(call: ToolCall, output: Json) -> ToolCall:
    """Return `call` with the output of its tool."""
    return replace(
        call, stage=Stage.DONE, output=build_function_call_output(call, output), has_run=True, nested_run=None
    )


def _process_response(run: Run) -> StepResult:
    """Process a response that passed every guardrail."""
    if run.calls:
        run = _replace_calls(run, (_apply_sticky_rejection(run, call) for call in run.calls_at(Stage.PENDING)))
        unevaluated = run.calls_at(Stage.CHECKING_APPROVAL)
        return (
            (replace(run, phase=Phase.CHECKING_APPROVALS), tuple(map(EvaluateApproval, unevaluated)))
            if unevaluated
            else run_ready_calls(run)
        )
    schema = run.current_agent.output
    if schema is None:
        return _accept_final_output(run, run.text or "")
    if not run.text:
        return _request_model_call(run)
    try:
        return _accept_final_output(run, schema.value(run.text))
    except Mismatch as error:
        return _fail_run(run, MODEL_BEHAVIOR, f"The final output does not match its schema: {error}")


def _replace_calls(run: Run, changed_calls: Iterable[ToolCall]) -> Run:
    for call in changed_calls:
        run = run.replace_call(call)
    return run


def _apply_sticky_rejection(run: Run, call: ToolCall) -> ToolCall:
    """Return `call` with the output of a rejection if a sticky decision rejects its tool."""
    tool_key = run.agent, call.lookup
    if run.sticky_decisions.get(tool_key) is not False:
        return call
    return replace(
        call,
        stage=Stage.DONE,
        output=build_function_call_output(call, run.sticky_rejection_messages.get(tool_key, NOT_APPROVED)),
    )


def _apply_approval_policy(run: Run, call: ToolCall, needs_approval: bool) -> ToolCall:
    pending = replace(call, stage=Stage.PENDING)
    return _apply_sticky_rejection(run, pending) if needs_approval else replace(call, stage=Stage.READY)


def _apply_decision(call: ToolCall, event: ApprovalDecided) -> ToolCall:
    """Apply a decision to a call. For a call with an unknown outcome it is final: the tool runs again or not."""
    call = replace(call, approved=None if call.stage is Stage.OUTCOME_UNKNOWN else event.approve)
    if call.tool is None:
        item = build_mcp_approval_response(call, event.approve, None if event.approve else event.message)
        return replace(call, stage=Stage.DONE, output=item)
    if not event.approve:
        return replace(call, stage=Stage.DONE, output=build_rejection_output(call, event.message))
    if event.arguments is None:
        return replace(call, stage=Stage.READY, output=None)
    parsed = read_arguments(call.tool, event.arguments)
    if isinstance(parsed, InvalidArguments):
        raise InputFault(parsed.message, hint="pass arguments that match the tool's schema")
    return replace(call, stage=Stage.READY, arguments=event.arguments, output=None)


def _find_enclosing_call(run: Run, call_id: str) -> ToolCall | None:
    """Return the call whose nested run has the call `call_id`; None if no nested run has it.

    A model numbers its calls from the start in each run, so a call of a nested run can have the id of an outer call
    that is not pending. Raises IllegalTransition if several nested runs have decided calls with this id.
    """
    direct_call = run.find_call(call_id)
    if direct_call and direct_call.stage in PENDING_STAGES:
        return None
    nested_runs = [(call, call.nested_run.run) for call in run.calls_at(Stage.NESTED_RUN_PAUSED) if call.nested_run]
    pending_matches = (
        call for call, inner in nested_runs if any(call_id == pending_call.id for pending_call in inner.pending)
    )
    match = next(pending_matches, None)
    if match or direct_call:
        return match
    decided_matches = [call for call, inner in nested_runs if _contains_call(inner, call_id)]
    if len(decided_matches) > 1:
        raise IllegalTransition(
            run.phase,
            "ApprovalDecided",
            f"call {call_id} is ambiguous: {len(decided_matches)} runs have a decided call with this id",
        )
    return decided_matches[0] if decided_matches else None


def _contains_call(run: Run, call_id: str) -> bool:
    return run.find_call(call_id) is not None or _find_enclosing_call(run, call_id) is not None


def _with_nested_run(call: ToolCall, nested_run: NestedRun, run: Run) -> ToolCall:
    return replace(call, nested_run=replace(nested_run, run=run))


def _can_resume(run: Run) -> bool:
    nested_runs = (call.nested_run.run for call in run.calls_at(Stage.NESTED_RUN_PAUSED) if call.nested_run)
    return not run.pending or bool(run.calls_at(Stage.READY)) or any(map(_can_resume, nested_runs))


def _is_final_output(run: Run, call: ToolCall) -> bool:
    after_tools = run.current_agent.after_tools
    if call.tool is not None and call.tool.definition is not None:
        return False
    is_listed = (
        isinstance(after_tools, frozenset) and call.tool is not None and {call.tool.name, call.tool.title} & after_tools
    )
    return after_tools == "first output" or bool(is_listed)


def _finish_run(run: Run) -> StepResult:
    return replace(run, phase=Phase.DONE), (FinishRun(run.agent, run.output),)


def _require_call(run: Run, call_id: str, stages: tuple[Stage, ...], event: object) -> ToolCall:
    call = run.find_call(call_id)
    if call is None:
        raise IllegalTransition(run.phase, type(event).__name__, f"there is no call {call_id}")
    if call.stage not in stages:
        raise IllegalTransition(run.phase, type(event).__name__, f"call {call_id}: {call.stage}")
    return call


def _remove_guardrail(run: Run, guardrail_index: int, event: object) -> Run:
    if guardrail_index not in run.open_guardrails:
        raise IllegalTransition(run.phase, type(event).__name__, f"guardrail {guardrail_index} is not running")
    return replace(run, open_guardrails=run.open_guardrails - {guardrail_index})


_AFTER_CALL_MODEL = {Phase.CALLING_MODEL, Phase.FAILED}
_AFTER_COMPLETE_CALLS = {*_AFTER_CALL_MODEL, Phase.HANDING_OFF, Phase.CHECKING_OUTPUT, Phase.DONE}
_AFTER_RUN_CALLS = {*_AFTER_COMPLETE_CALLS, Phase.RUNNING_TOOLS, Phase.PAUSED}
_AFTER_RESPONSE = {*_AFTER_RUN_CALLS, Phase.CHECKING_APPROVALS}

_FALLIBLE_PHASES = (
    Phase.CHECKING_INPUT,
    Phase.CALLING_MODEL,
    Phase.CHECKING_APPROVALS,
    Phase.RUNNING_TOOLS,
    Phase.HANDING_OFF,
    Phase.CHECKING_OUTPUT,
)
"""Phases with an effect in progress that can fail."""

TRANSITIONS: dict[tuple[Phase, type], set[Phase]] = {
    (Phase.NEW, RunStarted): {*_AFTER_CALL_MODEL, Phase.CHECKING_INPUT},
    (Phase.CHECKING_INPUT, GuardrailPassed): {*_AFTER_CALL_MODEL, Phase.CHECKING_INPUT},
    (Phase.CHECKING_INPUT, GuardrailTripped): {Phase.FAILED},
    (Phase.CALLING_MODEL, GuardrailPassed): _AFTER_RESPONSE,
    (Phase.CALLING_MODEL, GuardrailTripped): {Phase.FAILED},
    (Phase.CALLING_MODEL, ModelResponded): _AFTER_RESPONSE,
    (Phase.CHECKING_APPROVALS, ApprovalEvaluated): _AFTER_RESPONSE,
    (Phase.RUNNING_TOOLS, ToolReturned): _AFTER_RUN_CALLS,
    (Phase.RUNNING_TOOLS, NestedRunPaused): {Phase.RUNNING_TOOLS, Phase.PAUSED},
    (Phase.PAUSED, ApprovalDecided): {Phase.PAUSED},
    (Phase.PAUSED, ToolOutputSupplied): {Phase.PAUSED},
    (Phase.PAUSED, InputAdded): {Phase.PAUSED},
    (Phase.PAUSED, RunResumed): _AFTER_RUN_CALLS,
    (Phase.HANDING_OFF, HandoffCompleted): _AFTER_CALL_MODEL,
    (Phase.CHECKING_OUTPUT, GuardrailPassed): {Phase.CHECKING_OUTPUT, Phase.DONE},
    (Phase.CHECKING_OUTPUT, GuardrailTripped): {Phase.FAILED},
    **{(phase, EffectFailed): {Phase.FAILED} for phase in _FALLIBLE_PHASES},
    **{(phase, CancelRequested): {Phase.CANCELLED} for phase in Phase if phase not in TERMINAL_PHASES},
}
"""(phase, type of event) -> the phases that can follow."""

EVENT_HANDLERS: dict[type, Callable[[Run, Any], StepResult]] = {
    RunStarted: _on_run_started,
    GuardrailPassed: _on_guardrail_passed,
    GuardrailTripped: _on_guardrail_tripped,
    ModelResponded: _on_model_responded,
    ApprovalEvaluated: _on_approval_evaluated,
    ToolReturned: _on_tool_returned,
    NestedRunPaused: _on_nested_run_paused,
    EffectFailed: _on_effect_failed,
    ApprovalDecided: _on_approval_decided,
    ToolOutputSupplied: _on_tool_output_supplied,
    InputAdded: _on_input_added,
    RunResumed: _on_run_resumed,
    HandoffCompleted: _on_handoff_completed,
    CancelRequested: _on_cancel_requested,
}


def step_run(run: Run, event: RunEvent) -> StepResult:
    """Advance a run by one event and return the effects to perform, in order.

    Raises IllegalTransition if the event is not allowed in this phase, and InputFault for a decision that the call does
    not accept.
    """
    event_type = type(event)
    if (run.phase, event_type) not in TRANSITIONS:
        raise IllegalTransition(run.phase, event_type.__name__)
    return EVENT_HANDLERS[event_type](run, event)


MODEL_BEHAVIOR = "model_behavior"
MODEL_REFUSAL = "model_refusal"

OUTCOME_UNKNOWN_MESSAGE = "The tool was started, and its outcome is unknown."
"""Output for the model of a call with an unknown outcome that a person decided not to run again."""


def parse_tool_calls(run: Run, response: ModelResponded) -> tuple[ToolCall, ...] | RunFailure:
    """Parse the calls of a response, in order; return a RunFailure for a call that the run cannot perform."""
    calls: dict[str, ToolCall] = {}
    completed = output_index_by_call(response.output)  # by the provider, such as calls of its own shell
    for index, item in enumerate(response.output):
        if not (is_client_call(item) or item_type(item) == MCP_APPROVAL_REQUEST) or index in completed:
            continue
        call = _parse_tool_call(run, response, item)
        if isinstance(call, RunFailure):
            return call
        if call.id in calls:
            return RunFailure(MODEL_BEHAVIOR, f"Two calls have the id {call.id}")
        calls[call.id] = call
    return tuple(calls.values())


def extract_last_message_text(response: ModelResponded) -> str | None:
    """Return the text of the last message of a response; None if it has no message."""
    last = next((item for item in reversed(response.output) if is_assistant_message(item)), None)
    return None if last is None else _message_text(last)


def extract_refusal(response: ModelResponded) -> str:
    """Return the refusal in the last message of a response; "" if it has none."""
    last = next((item for item in reversed(response.output) if is_assistant_message(item)), {})
    content = last.get("content")
    parts = content if isinstance(content, list) else []
    refusals = (part.get("refusal") for part in parts if isinstance(part, dict) and part.get("type") == "refusal")
    return "".join(str(refusal or "") for refusal in refusals)


def iter_used_tool_names(response: ModelResponded) -> Iterator[str]:
    """Iterate over the names of the tools that a response used, with hosted tools and handoffs."""
    for item in response.output:
        if tool := response.tools.find(item):
            yield tool.title
        elif item_type(item) == "function_call":
            yield str(item.get("name"))
        elif item_type(item).endswith("_call") and item_type(item) != "tool_search_call":
            yield item_type(item).removesuffix("_call")


def build_function_call_output(call: ToolCall, output: Json) -> Item:
    """Build the output item of a call. If a program made the call, the output names the same `caller`.

    output:  of a tool that is no function, the item itself, or a text in its place
    """
    if item_type(call.item) != "function_call":
        # Exit code 1: as the Agents SDK rejects a shell call.
        return output if isinstance(output, dict) else build_text_output(call.item, str(output), exit_code=1)
    caller = {"caller": call.item["caller"]} if call.item.get("caller") else {}
    return {"type": "function_call_output", "call_id": call.id, "output": output, **caller}


def build_rejection_output(call: ToolCall, reason: str | None) -> Item:
    """Build the output item of a rejected call, or of a call with an unknown outcome that is not run again."""
    if call.stage is Stage.OUTCOME_UNKNOWN:
        return build_function_call_output(
            call, f"{OUTCOME_UNKNOWN_MESSAGE} {reason}" if reason else OUTCOME_UNKNOWN_MESSAGE
        )
    return build_function_call_output(call, reason or NOT_APPROVED)


def build_mcp_approval_response(call: ToolCall, approve: bool, reason: str | None) -> Item:
    """Build the response item to an MCP approval request."""
    response = {"type": MCP_APPROVAL_RESPONSE, "approval_request_id": call.id, "approve": approve}
    return {**response, "reason": reason} if reason else response


def _parse_tool_call(run: Run, response: ModelResponded, item: Item) -> ToolCall | RunFailure:
    tool, call_id = response.tools.find(item), pair_id(item)
    if item_type(item) == MCP_APPROVAL_REQUEST and tool is None:
        return _parse_mcp_request(run, item)
    if call_id is None:
        return RunFailure(MODEL_BEHAVIOR, "A call has no id")
    if item_type(item) != "function_call":
        if tool is None:
            return RunFailure("unsupported", f"Calls of type {item_type(item)} are not supported")
        shown = json.dumps({field: item[field] for field in EFFECT_FIELDS if item.get(field) is not None})
        return classify_call(run, ToolCall(item, call_id, Stage.READY, tool_lookup(tool), tool, arguments=shown))
    name, arguments = str(item.get("name")), str(item.get("arguments") or "")
    if not item.get("namespace") and name in response.handoffs:
        target = response.handoffs[name]
        run.graph[target]  # raises NotFound for an unknown agent
        return ToolCall(item, call_id, Stage.HANDOFF, ("handoff", name), target=target, arguments=arguments)
    if tool is None:
        return RunFailure(
            MODEL_BEHAVIOR, f"Tool {_qualified_tool_name(item)} not found in agent {run.current_agent.name}"
        )
    return classify_call(run, ToolCall(item, call_id, Stage.READY, tool_lookup(tool), tool, arguments=arguments))


EFFECT_FIELDS = ("name", "action", "operation", "input", "arguments")
"""The fields that say what the call of a tool that is no function does, for a person who approves it."""


def classify_call(run: Run, call: ToolCall) -> ToolCall:
    """Return `call` in its first stage: done for invalid arguments, else as its approval rule requires."""
    tool = call.tool
    assert tool
    arguments = read_arguments(tool, call.arguments)
    if isinstance(arguments, InvalidArguments) and tool.record is not None:
        return replace(call, stage=Stage.DONE, output=build_function_call_output(call, arguments.message))
    return replace(
        call,
        stage=_initial_stage(run, call.lookup, tool, has_valid_arguments=not isinstance(arguments, InvalidArguments)),
    )


def _initial_stage(run: Run, lookup: Lookup, tool: Tool, *, has_valid_arguments: bool) -> Stage:
    """Return the stage of a new call. A tool with a sticky rejection is PENDING here; its output is added later."""
    if tool.needs_approval is False:
        return Stage.READY
    if run.sticky_decisions.get((run.agent, lookup)):
        return Stage.READY
    return Stage.CHECKING_APPROVAL if callable(tool.needs_approval) and has_valid_arguments else Stage.PENDING


def _parse_mcp_request(run: Run, item: Item) -> ToolCall | RunFailure:
    call_id, server, name = (item.get(field) for field in ("id", "server_label", "name"))
    if not (isinstance(call_id, str) and isinstance(server, str) and isinstance(name, str)):
        return RunFailure(MODEL_BEHAVIOR, "An MCP approval request has no id, server or tool name")
    call = ToolCall(item, call_id, Stage.PENDING, ("mcp", server, name), arguments=str(item.get("arguments") or ""))
    decision = run.sticky_decisions.get((run.agent, call.lookup))
    if decision is None:
        return call
    return replace(
        call,
        stage=Stage.DONE,
        output=build_mcp_approval_response(call, decision, run.sticky_rejection_messages.get((run.agent, call.lookup))),
    )


def _qualified_tool_name(item: Item) -> str:
    namespace = item.get("namespace")
    return f"{namespace}.{item.get('name')}" if namespace and namespace != item.get("name") else str(item.get("name"))


def _message_text(message: Item) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = [part for part in content or () if isinstance(part, dict) and part.get("type") == "output_text"]
    return "".join(str(part.get("text") or "") for part in parts) or item_text(message)


NOT_RUN_MESSAGE = "The run ended before this tool was called."


def build_missing_outputs(run: Run, items: Iterable[Item]) -> tuple[Item, ...]:
    """Build outputs for the calls in `items` that have none, in order.

    items:  the items since the last model call, with its response
    """
    open_calls = open_client_calls(items)
    return tuple(_build_missing_output(item, run.find_call(str(pair_id(item)))) for item in open_calls)


def _build_missing_output(item: Item, call: ToolCall | None) -> Item:
    if call is not None and call.output is not None:
        return call.output
    started = call is not None and call.stage in (Stage.RUNNING, Stage.OUTCOME_UNKNOWN, Stage.NESTED_RUN_PAUSED)
    return build_text_output(item, OUTCOME_UNKNOWN_MESSAGE if started else NOT_RUN_MESSAGE)

"""Random events: the transition table allows each step or the event is refused, and no effect is requested twice."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from convo.agents.agent import Agent
from convo.errors import IllegalTransition, InputFault
from convo.history.items import Item, assistant_message
from convo.runs.machine import TRANSITIONS, step_run
from convo.runs.serialize import recover_run
from convo.runs.state import (
    AppendToHistory,
    ApprovalDecided,
    ApprovalEvaluated,
    CallModel,
    CancelRequested,
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
    PauseRun,
    Phase,
    PrepareHandoff,
    Run,
    RunEffect,
    RunEvent,
    RunResumed,
    RunStarted,
    RunTool,
    ToolOutputSupplied,
    ToolReturned,
)
from tests.runs.run_steps import CONDITIONAL, FREE, GUARDED, call, guard, make_run, model_response

ENDS = {Phase.DONE, Phase.FAILED, Phase.CANCELLED}


SECOND = Agent("second", tools=(FREE, GUARDED, CONDITIONAL), handoffs=("first",))
FIRST = Agent(
    "first",
    tools=(FREE, GUARDED, CONDITIONAL),
    handoffs=(SECOND,),
    input_guardrails=(guard("beside"), guard("before", parallel=False)),
    output_guardrails=(guard("short"), guard("polite")),
)

IDS = st.sampled_from(["c0", "c1", "c2", "m0"])
INDEXES = st.integers(0, 2)
ARGUMENTS = st.sampled_from(['{"text": "x"}', '{"text": 1}', "{"])
NAMES = st.sampled_from(["free", "guarded", "asked", "over"])
HOSTED = {"type": "mcp_approval_request", "server_label": "s", "name": "n", "arguments": "{}"}
TOOL_CALLS = st.one_of(
    st.builds(lambda name, written: (name, written), NAMES, ARGUMENTS),
    st.just(("hosted", "")),
)
RESPONSES = st.lists(TOOL_CALLS, max_size=4)
SOME_CALLS = st.lists(TOOL_CALLS, min_size=1, max_size=4)

UNEXPECTED_EVENTS = st.one_of(
    st.sampled_from([RunStarted(), RunResumed(), HandoffCompleted(), InputAdded(({"role": "user"},))]),
    st.builds(GuardrailPassed, INDEXES),
    st.builds(ApprovalEvaluated, IDS, st.booleans()),
    st.builds(ToolReturned, IDS, st.just("out")),
    st.builds(ToolOutputSupplied, IDS, st.just("out")),
    st.builds(ApprovalDecided, IDS, st.booleans(), st.none(), st.booleans(), st.one_of(st.none(), ARGUMENTS)),
)

ENDING_EVENTS = st.one_of(
    st.sampled_from([EffectFailed("x", "y"), CancelRequested(), ModelResponded((assistant_message("hi"),))]),
    st.builds(GuardrailTripped, INDEXES, st.just("no")),
)
STEPS = st.lists(st.tuples(SOME_CALLS, st.one_of(st.none(), st.none(), UNEXPECTED_EVENTS)), min_size=4, max_size=40)
"""Steps of a run: the calls of the next model response, and sometimes an unexpected event that comes first."""


@dataclass
class Log:
    """All effects that a run requested, and the effects that are still open."""

    requested: Counter[Any] = field(default_factory=Counter)
    open_effects: list[RunEffect] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    serial: int = 0
    ends: int = 0

    def record(self, run: Run, effects: tuple[RunEffect, ...]) -> None:
        for effect in effects:
            key = self._key(run, effect)
            if key:
                self.requested[key] += 1
                self.open_effects.append(effect)
            self.ends += isinstance(effect, FinishRun | FailRun)
            if isinstance(effect, AppendToHistory) and any("output" in item for item in effect.items):
                assert [item["call_id"] for item in effect.items if "call_id" in item] == self.order
        if run.phase in ENDS:
            self.open_effects.clear()

    def _key(self, run: Run, effect: RunEffect) -> tuple[object, ...] | None:
        match effect:
            case CallModel(_, turn):
                return "ask", turn
            case RunTool(one) | EvaluateApproval(one):
                return type(effect), one.id
            case PrepareHandoff(one):
                return "over", one.id
            case CheckInputGuardrail(_, index) | CheckOutputGuardrail(_, index):
                return type(effect), index
        return None


def expected_event(log: Log, run: Run, calls: list[tuple[str, str]]) -> RunEvent | None:
    """The event that a correct engine reports next for the open effects."""
    if run.phase is Phase.NEW:
        return RunStarted()
    if run.phase is Phase.PAUSED:
        return RunResumed()
    if not log.open_effects:
        return None
    effect = log.open_effects[0]
    match effect:
        case CallModel():
            return build_response(log, run, calls)
        case RunTool(one):
            return ToolReturned(one.id, f"out {one.id}")
        case EvaluateApproval(one):
            return ApprovalEvaluated(one.id, needs_approval=one.id.endswith("1"))
        case PrepareHandoff():
            return HandoffCompleted()
        case CheckInputGuardrail(_, index) | CheckOutputGuardrail(_, index):
            return GuardrailPassed(index)
    return None


def build_response(log: Log, run: Run, calls: list[tuple[str, str]]) -> RunEvent:
    items: list[Item] = [assistant_message("hi")]
    for name, arguments in calls:
        log.serial += 1
        if name == "hosted":
            items.append({**HOSTED, "id": f"m{log.serial}"})
        else:
            handoff = "transfer_to_second" if run.agent == "first" else "transfer_to_first"
            items.append(call(f"c{log.serial}", handoff if name == "over" else name, arguments))
    return model_response(run, *items)


def step(run: Run, event: RunEvent) -> tuple[Run, tuple[RunEffect, ...]] | None:
    """Apply one event; None if it is refused. A refused event changes nothing, an accepted one is in the table."""
    before = repr(run)
    try:
        after, effects = step_run(run, event)
    except (IllegalTransition, InputFault):
        assert repr(run) == before
        return None
    assert repr(run) == before
    assert after.phase in TRANSITIONS[run.phase, type(event)]
    assert after.phase is Phase.FAILED or after.turn - run.turn == sum(isinstance(one, CallModel) for one in effects)
    return after, effects


@given(st.lists(RESPONSES, min_size=3, max_size=15), st.lists(st.one_of(UNEXPECTED_EVENTS, ENDING_EVENTS), max_size=20))
def test_any_sequence_of_events_is_applied_by_the_transition_table_or_refused(
    responses: list[list[tuple[str, str]]], events: list[RunEvent]
) -> None:
    run, log = make_run(FIRST, max_turns=6, max_parallel_calls=2), Log()
    for calls in responses:
        run = apply_and_log(log, run, expected_event(log, run, calls))
    for event in events:
        result = step(run, event)
        assert result is None or (run.phase, type(event)) in TRANSITIONS
        run = result[0] if result else run


@given(STEPS, st.none() | st.tuples(st.integers(0, 40), ENDING_EVENTS))
def test_every_effect_is_requested_once_and_outputs_are_appended_in_call_order(
    script: list[tuple[list[tuple[str, str]], RunEvent | None]], ending: tuple[int, RunEvent] | None
) -> None:
    run, log = make_run(FIRST, max_turns=6, max_parallel_calls=2), Log()
    for index, (calls, unexpected) in enumerate(script):
        run = apply_and_log(log, run, unexpected)
        run = apply_and_log(log, run, expected_event(log, run, calls))
        if ending and ending[0] == index:
            run = apply_and_log(log, run, ending[1])
    assert [key for key, count in log.requested.items() if count > 1] == []
    if run.phase is Phase.DONE:
        assert not log.open_effects


def apply_and_log(log: Log, run: Run, event: RunEvent | None) -> Run:
    """Apply `event` and log the requested effects; returns `run` unchanged if the event is refused."""
    result = step(run, event) if event else None
    if event is None or result is None:
        return run
    if isinstance(event, ModelResponded):
        log.order = [item["call_id"] for item in event.output if "call_id" in item]
    log.open_effects = [effect for effect in log.open_effects if not completes(event, effect)]
    log.record(*result)
    return result[0]


def completes(event: RunEvent, effect: RunEffect) -> bool:
    match effect:
        case CallModel():
            return isinstance(event, ModelResponded)
        case RunTool(one):
            return isinstance(event, ToolReturned) and event.call_id == one.id
        case EvaluateApproval(one):
            return isinstance(event, ApprovalEvaluated) and event.call_id == one.id
        case PrepareHandoff():
            return isinstance(event, HandoffCompleted)
        case CheckInputGuardrail(_, index) | CheckOutputGuardrail(_, index):
            return isinstance(event, GuardrailPassed) and event.guardrail_index == index
    return False


@given(st.lists(RESPONSES, max_size=6), st.sets(st.integers(0, 40), max_size=6))
def test_an_engine_that_performs_every_effect_always_finishes_the_run(
    responses: list[list[tuple[str, str]]], kills: set[int]
) -> None:
    """Every approval is granted, and the process is killed and restarted at the steps in `kills`."""
    run, log = make_run(FIRST, max_turns=8), Log()
    script = [*responses, []]
    for index in range(200):
        if run.phase in ENDS:
            break
        if index in kills:
            run, effects = recover_run(run, {})
            log.open_effects = [one for one in effects if not isinstance(one, AppendToHistory | PauseRun)]
        for one in run.pending if run.phase is Phase.PAUSED else ():
            result = step(run, ApprovalDecided(one.id, approve=True))
            run = result[0] if result else run
        awaits_model = bool(log.open_effects) and isinstance(log.open_effects[0], CallModel)
        event = expected_event(log, run, script.pop(0) if awaits_model and script else [])
        assert event is not None
        run = apply_and_log(log, run, event)
    assert run.phase in (Phase.DONE, Phase.FAILED)
    assert log.ends == 1


def test_the_transition_table_has_every_phase_and_every_event() -> None:
    event_types = {kind for _, kind in TRANSITIONS}
    assert {phase for phase, _ in TRANSITIONS} == set(Phase) - ENDS
    assert event_types == set(RunEvent.__args__)
    assert set().union(*TRANSITIONS.values()) == set(Phase) - {Phase.NEW}

"""What each event does to a run, where the table lets it happen.

Everything ends in one of four ways on: `ask` the model, `work` on the calls of its answer, `close`
the batch once each call has its output, `settle` a final answer. Outputs are added in the order of
the calls, all at once, when the batch closes: whatever order they came in, and however often the
run was paused between.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from convo.errors import IllegalMove, InputFault
from convo.handoffs import IGNORED, transferred
from convo.items import Json
from convo.run.answers import BEHAVIOR, calls_of, output_item, turned_down, used_in, verdict_item, words_of
from convo.run.effects import (
    Append,
    Ask,
    CheckInput,
    CheckOutput,
    Effect,
    Fail,
    Finish,
    Halt,
    HandOver,
    Judge,
    Pause,
    Start,
)
from convo.run.events import (
    Answered,
    Begin,
    Broke,
    Decided,
    Given,
    HandedOver,
    Judged,
    Passed,
    PausedInside,
    Resume,
    Returned,
    Said,
    Stop,
    Tripped,
)
from convo.run.state import OPEN, Call, Failure, Inner, Phase, Run, Stage
from convo.tools import NOT_APPROVED, Mismatch, Wrong, read_arguments

Move: TypeAlias = tuple[Run, tuple[Effect, ...]]


def began(run: Run, event: Begin) -> Move:
    guards = run.current.input_guardrails
    first = [place for place, guard in enumerate(guards) if not guard.parallel]
    if not first:
        return ask(run)
    run = replace(run, phase=Phase.GUARDING, guards=frozenset(first))
    return run, tuple(CheckInput(run.agent, place) for place in first)


def passed(run: Run, event: Passed) -> Move:
    run = _spoken(run, event.place, event)
    if run.guards or (run.phase is Phase.ASKING and not run.answered):
        return run, ()
    if run.phase is Phase.GUARDING:
        return ask(run)
    return _taken(run) if run.phase is Phase.ASKING else _finished(run)


def tripped(run: Run, event: Tripped) -> Move:
    side = "output" if run.phase is Phase.CHECKING else "input"
    guards = run.current.output_guardrails if side == "output" else run.current.input_guardrails
    run = _spoken(run, event.place, event)
    return fail(run, f"{side}_guardrail", f"Guardrail {guards[event.place].name} tripped: {event.reason}", halt=True)


def answered(run: Run, event: Answered) -> Move:
    if run.answered:
        raise IllegalMove(run.phase, "Answered", "the model has answered")
    calls = calls_of(run, event)
    if isinstance(calls, Failure):
        return fail(run, calls.code, calls.message, halt=bool(run.guards))
    names = dict.fromkeys((*run.used.get(run.agent, ()), *used_in(event)))
    used = {**run.used, run.agent: tuple(names)} if names else run.used
    run = replace(run, batch=calls, text=words_of(event), used=used, answered=True)
    return (run, ()) if run.guards else _taken(run)


def judged(run: Run, event: Judged) -> Move:
    call = _known(run, event.call_id, (Stage.JUDGING,), event)
    run = run.put(_after_judging(run, call, event.needed))
    return (run, ()) if run.at(Stage.JUDGING) else work(run)


def returned(run: Run, event: Returned) -> Move:
    call = _known(run, event.call_id, (Stage.STARTED,), event)
    return work(run.put(ended(call, event.output)))


def paused_inside(run: Run, event: PausedInside) -> Move:
    call = _known(run, event.call_id, (Stage.STARTED,), event)
    return work(run.put(replace(call, stage=Stage.INSIDE, inner=event.inner)))


def broke(run: Run, event: Broke) -> Move:
    return fail(run, event.code, event.message, halt=True)


def decided(run: Run, event: Decided) -> Move:
    """Record a decision; nothing runs before `Resume`. Until then another decision may take its place."""
    outer = _around(run, event.call_id)
    if outer and outer.inner:
        return run.put(_within(outer, outer.inner, decided(outer.inner.run, event)[0])), ()
    call = run.call(event.call_id)
    if call is None or not call.is_decided:
        call = _known(run, event.call_id, OPEN, event)
    if event.arguments is not None and (not event.approve or event.always or call.tool is None):
        raise InputFault("only one approved call of a function takes other arguments", hint="approve it, this once")
    run = run.put(_verdict(call, event))
    if not event.always:
        return run, ()
    tool = run.agent, call.lookup
    reasons = {key: words for key, words in run.reasons.items() if key != tool}
    if not event.approve and event.message is not None:
        reasons[tool] = event.message
    run = replace(run, always={**run.always, tool: event.approve}, reasons=reasons)
    for other in run.at(Stage.WAITING):
        if other.lookup == call.lookup:
            run = run.put(_verdict(other, event))
    return run, ()


def given(run: Run, event: Given) -> Move:
    outer = _around(run, event.call_id)
    if outer and outer.inner:
        return run.put(_within(outer, outer.inner, given(outer.inner.run, event)[0])), ()
    call = _known(run, event.call_id, (Stage.UNKNOWN,), event)
    return run.put(ended(call, event.output)), ()


def said(run: Run, event: Said) -> Move:
    return replace(run, staged=(*run.staged, *event.items)), ()


def resumed(run: Run, event: Resume) -> Move:
    """A run inside a call is gone on with once something was decided in it."""
    inside = (call for call in run.at(Stage.INSIDE) if call.inner and _may_go_on(call.inner.run))
    return work(_each(run, (replace(call, stage=Stage.READY) for call in inside)))


def handed_over(run: Run, event: HandedOver) -> Move:
    (call,) = run.batch
    assert call.to is not None
    return ask(replace(run, agent=call.to, batch=()))


def stopped(run: Run, event: Stop) -> Move:
    return replace(run, phase=Phase.STOPPED), (Halt(),)


# -- the four ways on -----------------------------------------------------------------------------


def ask(run: Run, *before: Effect) -> Move:
    """One more model call; with the first one the guardrails that stand beside it."""
    effects = (*before, Append(run.staged)) if run.staged else before
    run = replace(run, staged=(), batch=(), answered=False, text=None)
    if run.limits.max_turns is not None and run.turn >= run.limits.max_turns:
        failed, end = fail(run, "max_turns", f"Max turns ({run.limits.max_turns}) exceeded")
        return failed, (*effects, *end)
    guards = run.current.input_guardrails if run.turn == 0 else ()
    beside = [place for place, guard in enumerate(guards) if guard.parallel]
    run = replace(run, phase=Phase.ASKING, turn=run.turn + 1, guards=frozenset(beside))
    return run, (*effects, *(CheckInput(run.agent, place) for place in beside), asking(run))


def asking(run: Run) -> Ask:
    return Ask(run.agent, run.turn, free=run.current.reset_tool_choice and bool(run.used.get(run.agent)))


def work(run: Run) -> Move:
    """Start what may run, as many as there is room for; pause, or close the batch, when nothing does."""
    room = run.limits.parallel - len(run.at(Stage.STARTED))
    starts = run.at(Stage.READY)[: max(room, 0)]
    for call in starts:
        run = run.put(replace(call, stage=Stage.STARTED))
    if run.at(Stage.STARTED):
        return replace(run, phase=Phase.WORKING), tuple(Start(call) for call in starts)
    if run.pending:
        return replace(run, phase=Phase.PAUSED), (Pause(run.pending),)
    return close(run)


def close(run: Run) -> Move:
    """Every call has its output, or hands over."""
    over = run.at(Stage.HANDOFF)
    for call in over:
        words = transferred(run.graph[str(call.to)].name) if call is over[0] else IGNORED
        run = run.put(replace(call, output=output_item(call, words)))
    append = Append(tuple(call.output for call in run.batch if call.output is not None))
    if over:
        call = over[0]
        run = replace(run, phase=Phase.HANDING, batch=(call,))
        return run, (append, HandOver(call, run.agent, str(call.to)))
    for call in run.batch:
        if call.output is not None and call.ran and _is_final(run, call):
            return settle(run, call.output["output"], append)
    return ask(run, append)


def settle(run: Run, output: Json, *before: Effect) -> Move:
    """A final answer, and the guardrails that look at it."""
    places = range(len(run.current.output_guardrails))
    run = replace(run, output=output, batch=(), guards=frozenset(places), phase=Phase.CHECKING)
    checks = tuple(CheckOutput(run.agent, place, output) for place in places)
    if checks:
        return run, (*before, *checks)
    done, end = _finished(run)
    return done, (*before, *end)


def fail(run: Run, code: str, message: str, *, halt: bool = False) -> Move:
    failure = Failure(code, message)
    failed = replace(run, phase=Phase.FAILED, failure=failure, guards=frozenset())
    return failed, (Halt(), Fail(failure)) if halt else (Fail(failure),)


def ended(call: Call, output: Json) -> Call:
    """`call` with what its tool gave."""
    return replace(call, stage=Stage.DONE, output=output_item(call, output), ran=True, inner=None)


# -- pieces ---------------------------------------------------------------------------------------


def _taken(run: Run) -> Move:
    """An answer that every guardrail has let pass."""
    if run.batch:
        run = _each(run, (_rejected(run, call) for call in run.at(Stage.WAITING)))
        judging = run.at(Stage.JUDGING)
        return (replace(run, phase=Phase.CLEARING), tuple(map(Judge, judging))) if judging else work(run)
    schema = run.current.output
    if schema is None:
        return settle(run, run.text or "")
    if not run.text:
        return ask(run)
    try:
        return settle(run, schema.value(run.text))
    except Mismatch as wrong:
        return fail(run, BEHAVIOR, f"The answer does not fit its schema: {wrong}")


def _each(run: Run, calls: Iterable[Call]) -> Run:
    for call in calls:
        run = run.put(call)
    return run


def _rejected(run: Run, call: Call) -> Call:
    """`call` with its output, where its tool was rejected for good."""
    tool = run.agent, call.lookup
    if run.always.get(tool) is not False:
        return call
    return replace(call, stage=Stage.DONE, output=output_item(call, run.reasons.get(tool, NOT_APPROVED)))


def _after_judging(run: Run, call: Call, needed: bool) -> Call:
    waiting = replace(call, stage=Stage.WAITING)
    return _rejected(run, waiting) if needed else replace(call, stage=Stage.READY)


def _verdict(call: Call, event: Decided) -> Call:
    """Apply a decision to a call. One on an unknown outcome is final: it says whether the tool runs a second time."""
    call = replace(call, verdict=None if call.stage is Stage.UNKNOWN else event.approve)
    if call.tool is None:
        item = verdict_item(call, event.approve, None if event.approve else event.message)
        return replace(call, stage=Stage.DONE, output=item)
    if not event.approve:
        return replace(call, stage=Stage.DONE, output=turned_down(call, event.message))
    if event.arguments is None:
        return replace(call, stage=Stage.READY, output=None)
    found = read_arguments(call.tool, event.arguments)
    if isinstance(found, Wrong):
        raise InputFault(found.words, hint="give arguments that fit the tool's schema")
    return replace(call, stage=Stage.READY, arguments=event.arguments, output=None)


def _around(run: Run, call_id: str) -> Call | None:
    """The call in whose own run that call waits, or else is; None where it is none of an inner run's.

    Models number their calls anew in each run, so one inside may have the id of another, which does not wait.
    """
    own = run.call(call_id)
    if own and own.stage in OPEN:
        return None
    inside = [(call, call.inner.run) for call in run.at(Stage.INSIDE) if call.inner]
    waits = (call for call, inner in inside if any(call_id == one.id for one in inner.pending))
    found = next(waits, None)
    if found or own:
        return found
    holds = [call for call, inner in inside if _holds(inner, call_id)]
    if len(holds) > 1:
        raise IllegalMove(run.phase, "Decided", f"call {call_id} is decided in {len(holds)} runs; it could mean either")
    return holds[0] if holds else None


def _holds(run: Run, call_id: str) -> bool:
    return run.call(call_id) is not None or _around(run, call_id) is not None


def _within(call: Call, inner: Inner, run: Run) -> Call:
    return replace(call, inner=replace(inner, run=run))


def _may_go_on(run: Run) -> bool:
    inside = (call.inner.run for call in run.at(Stage.INSIDE) if call.inner)
    return not run.pending or bool(run.at(Stage.READY)) or any(map(_may_go_on, inside))


def _is_final(run: Run, call: Call) -> bool:
    after = run.current.after_tools
    named = isinstance(after, frozenset) and call.tool is not None and {call.tool.name, call.tool.title} & after
    return after == "first output" or bool(named)


def _finished(run: Run) -> Move:
    return replace(run, phase=Phase.DONE), (Finish(run.agent, run.output),)


def _known(run: Run, call_id: str, stages: tuple[Stage, ...], event: object) -> Call:
    call = run.call(call_id)
    if call is None:
        raise IllegalMove(run.phase, type(event).__name__, f"there is no call {call_id}")
    if call.stage not in stages:
        raise IllegalMove(run.phase, type(event).__name__, f"call {call_id}: {call.stage}")
    return call


def _spoken(run: Run, place: int, event: object) -> Run:
    if place not in run.guards:
        raise IllegalMove(run.phase, type(event).__name__, f"guardrail {place} has nothing to say")
    return replace(run, guards=run.guards - {place})

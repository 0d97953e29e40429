"""Whatever a run is told, it moves by the table or refuses, and asks for nothing twice."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from convo.agents import Agent, Guardrail
from convo.errors import IllegalMove, InputFault
from convo.items import Item
from convo.run import (
    MOVES,
    Answered,
    Append,
    Ask,
    Begin,
    Broke,
    CheckInput,
    CheckOutput,
    Decided,
    Effect,
    Event,
    Fail,
    Finish,
    Given,
    HandedOver,
    HandOver,
    Judge,
    Judged,
    Passed,
    Pause,
    Phase,
    Resume,
    Returned,
    Run,
    Said,
    Start,
    Stop,
    Tripped,
    decide,
    recover,
)
from tests.run.driving import ASKED, FREE, GUARDED, answer, call, run_of, says

ENDS = {Phase.DONE, Phase.FAILED, Phase.STOPPED}


def guard(name: str, *, parallel: bool = True) -> Guardrail:
    return Guardrail(name, lambda context, said: None, parallel)


SECOND = Agent("second", tools=(FREE,), handoffs=("first",))
FIRST = Agent(
    "first",
    tools=(FREE, GUARDED, ASKED),
    handoffs=(SECOND,),
    input_guardrails=(guard("beside"), guard("before", parallel=False)),
    output_guardrails=(guard("short"), guard("polite")),
)

IDS = st.sampled_from(["c0", "c1", "c2", "m0"])
PLACES = st.integers(0, 2)
WRITTEN = st.sampled_from(['{"text": "x"}', '{"text": 1}', "{"])
NAMES = st.sampled_from(["free", "guarded", "asked", "transfer_to_second", "transfer_to_first"])
HOSTED = {"type": "mcp_approval_request", "server_label": "s", "name": "n", "arguments": "{}"}
KINDS = st.one_of(
    st.builds(lambda name, written: (name, written), NAMES, WRITTEN),
    st.sampled_from([("hosted", ""), ("lost", ""), ("hosted", "")]),
)
ANSWERS = st.lists(KINDS, max_size=4)

LIKELY = st.one_of(ANSWERS, st.just("resume"), st.just("right"))
"""What a faithful engine would report, an answer of these calls where one is asked for."""

UNLIKELY = st.one_of(
    st.sampled_from([Begin(), Resume(), HandedOver(), Broke("x", "y"), Stop(), Said(({"role": "user"},))]),
    st.builds(Passed, PLACES),
    st.builds(Tripped, PLACES, st.just("no")),
    st.builds(Judged, IDS, st.booleans()),
    st.builds(Returned, IDS, st.just("out")),
    st.builds(Given, IDS, st.just("out")),
    st.builds(Decided, IDS, st.booleans(), st.none(), st.booleans(), st.one_of(st.none(), WRITTEN)),
    st.just(Answered((says("hi"),))),
)


@dataclass
class Log:
    """Everything that a run asked for, and what of it is still open."""

    asked: Counter[Any] = field(default_factory=Counter)
    opened: list[Effect] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    serial: int = 0

    def take(self, run: Run, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            key = self._key(run, effect)
            if key:
                self.asked[key] += 1
                self.opened.append(effect)
            if isinstance(effect, Append) and any("output" in item for item in effect.items):
                assert [item["call_id"] for item in effect.items if "call_id" in item] == self.order
        if run.phase in ENDS:
            self.opened.clear()

    def _key(self, run: Run, effect: Effect) -> tuple[object, ...] | None:
        match effect:
            case Ask(_, turn):
                return "ask", turn
            case Start(one) | Judge(one):
                return type(effect), one.id
            case HandOver(one):
                return "over", one.id
            case CheckInput(_, place) | CheckOutput(_, place):
                return type(effect), place
        return None


def right(log: Log, run: Run, calls: list[tuple[str, str]]) -> Event | None:
    """What a faithful engine reports next of what is open."""
    if run.phase is Phase.NEW:
        return Begin()
    if run.phase is Phase.PAUSED:
        return Resume()
    if not log.opened:
        return None
    effect = log.opened[0]
    match effect:
        case Ask():
            return answered(log, run, calls)
        case Start(one):
            return Returned(one.id, f"out {one.id}")
        case Judge(one):
            return Judged(one.id, needed=one.id.endswith("1"))
        case HandOver():
            return HandedOver()
        case CheckInput(_, place) | CheckOutput(_, place):
            return Passed(place)
    return None


def answered(log: Log, run: Run, calls: list[tuple[str, str]]) -> Event:
    items: list[Item] = [says("hi")]
    log.order = []
    for name, written in calls:
        log.serial += 1
        if name == "hosted":
            items.append({**HOSTED, "id": f"m{log.serial}"})
        else:
            items.append(call(f"c{log.serial}", name, written))
            log.order.append(f"c{log.serial}")
    return answer(run, *items)


def step(run: Run, event: Event) -> tuple[Run, tuple[Effect, ...]] | None:
    """One move; None where it was refused. What is refused changes nothing, what is not is in the table."""
    before = repr(run)
    try:
        after, effects = decide(run, event)
    except (IllegalMove, InputFault):
        assert repr(run) == before
        return None
    assert repr(run) == before
    assert after.phase in MOVES[run.phase, type(event)]
    assert after.phase is Phase.FAILED or after.turn - run.turn == sum(isinstance(one, Ask) for one in effects)
    return after, effects


@given(
    st.lists(st.one_of(UNLIKELY, st.just(Begin())), max_size=30),
    st.sampled_from([FIRST, replace(FIRST, input_guardrails=())]),
)
@settings(max_examples=300, deadline=None)
def test_any_sequence_of_events_either_moves_by_the_table_or_is_refused(events: list[Event], first: Agent) -> None:
    run = run_of(first)
    for event in events:
        moved = step(run, event)
        assert moved is None or (run.phase, type(event)) in MOVES
        if moved is not None:
            run = moved[0]


@given(st.lists(st.one_of(LIKELY, UNLIKELY), max_size=60))
@settings(max_examples=300, deadline=None)
def test_every_effect_is_asked_for_once_and_outputs_are_appended_in_call_order(script: list[Any]) -> None:
    run, log = run_of(FIRST, max_turns=6, parallel=2), Log()
    for said in script:
        calls = said if isinstance(said, list) else []
        event = right(log, run, calls) if isinstance(said, list | str) else said
        if event is None:
            continue
        moved = step(run, event)
        if moved is None:
            continue
        if log.opened:
            log.opened = [one for one in log.opened if not answers(event, one)]
        run = moved[0]
        log.take(run, moved[1])
    assert [key for key, count in log.asked.items() if count > 1] == []
    if run.phase is Phase.DONE:
        assert not log.opened


def answers(event: Event, effect: Effect) -> bool:
    match effect:
        case Ask():
            return isinstance(event, Answered)
        case Start(one):
            return isinstance(event, Returned) and event.call_id == one.id
        case Judge(one):
            return isinstance(event, Judged) and event.call_id == one.id
        case HandOver():
            return isinstance(event, HandedOver)
        case CheckInput(_, place) | CheckOutput(_, place):
            return isinstance(event, Passed) and event.place == place
    return False


@given(st.lists(ANSWERS, max_size=6), st.sets(st.integers(0, 40), max_size=6))
@settings(max_examples=150, deadline=None)
def test_a_faithful_engine_always_brings_a_run_to_an_end(
    answers_: list[list[tuple[str, str]]], kills: set[int]
) -> None:
    """With every approval given, and the process killed and begun again now and then."""
    run, log = run_of(FIRST, max_turns=8), Log()
    script = [*answers_, []]
    ends: list[Effect] = []
    for at in range(200):
        if run.phase in ENDS:
            break
        if at in kills:
            run, effects = recover(run, {})
            log.opened = [one for one in effects if not isinstance(one, Append | Pause)]
            if any(isinstance(one, Ask) for one in effects) and run.phase is Phase.ASKING:
                log.order = []
        for one in run.pending if run.phase is Phase.PAUSED else ():
            moved = step(run, Decided(one.id, approve=True))
            run = moved[0] if moved else run
        asking = bool(log.opened) and isinstance(log.opened[0], Ask)
        event = right(log, run, script.pop(0) if asking and script else [])
        assert event is not None
        moved = step(run, event)
        assert moved is not None
        log.opened = [one for one in log.opened if not answers(event, one)]
        run = moved[0]
        log.take(run, moved[1])
        ends += [one for one in moved[1] if isinstance(one, Finish | Fail)]
    assert run.phase in ENDS
    assert len(ends) == 1


def test_the_table_names_every_phase_and_every_event() -> None:
    told = {kind for _, kind in MOVES}
    assert {phase for phase, _ in MOVES} == set(Phase) - ENDS
    assert told == set(Event.__args__)
    assert set().union(*MOVES.values()) == set(Phase) - {Phase.NEW}

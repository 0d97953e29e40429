"""How a run goes on in another process, from what was kept of it.

Whatever does nothing twice is asked for again: the model (its owner knows what it has), a
guardrail, a filter. A call is not. One that started and whose result was kept has its output; one
that started and left none comes back as a decision, because only a person can know whether it may
run again.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import replace

from convo.items import Json
from convo.run.effects import CheckInput, CheckOutput, Effect, HandOver, Judge, Pause
from convo.run.moves import Move, asking, ended, work
from convo.run.state import Call, Phase, Run, Stage


def caught_up(run: Run, started: Container[str], results: Mapping[str, Json]) -> Run:
    """`run`, of which an older stand was kept than of its ledger, with every call that started or ended since.

    started:  the calls that began; those of `results` ended, by call id
    """

    def now(call: Call) -> Call:
        if call.stage in (Stage.READY, Stage.STARTED) and call.id in results:
            return ended(call, results[call.id])
        begun = call.stage is Stage.READY and call.id in started
        return replace(call, stage=Stage.STARTED) if begun else call

    return replace(run, batch=tuple(map(now, run.batch))) if run.phase is Phase.WORKING else run


def at_rest(run: Run, results: Mapping[str, Json]) -> Run:
    """`run` in a form that can be stored while no process runs it: as `recover`, and nothing is started.

    results:  outputs that were kept of calls that had started, by call id
    """
    if run.phase is not Phase.WORKING:
        return run
    for call in run.at(Stage.STARTED):
        known = call.id in results
        run = run.put(ended(call, results[call.id]) if known else replace(call, stage=Stage.UNKNOWN))
    return replace(run, phase=Phase.PAUSED)


def recover(run: Run, results: Mapping[str, Json]) -> Move:
    """`run` as it stands when nobody performs anything any more, and what to ask for again.

    results:  outputs that were kept of calls that had started, by call id
    """
    if run.phase is Phase.WORKING:
        return _calls(run, results)
    again = AGAIN.get(run.phase)
    return run, again(run) if again else ()


def _calls(run: Run, results: Mapping[str, Json]) -> Move:
    for call in run.at(Stage.STARTED):
        known = call.id in results
        run = run.put(ended(call, results[call.id]) if known else replace(call, stage=Stage.UNKNOWN))
    return work(run)


def _asking(run: Run) -> tuple[Effect, ...]:
    checks = tuple(CheckInput(run.agent, place) for place in sorted(run.guards))
    return checks if run.answered else (*checks, asking(run))


AGAIN: dict[Phase, Callable[[Run], tuple[Effect, ...]]] = {
    Phase.GUARDING: lambda run: tuple(CheckInput(run.agent, place) for place in sorted(run.guards)),
    Phase.ASKING: _asking,
    Phase.CLEARING: lambda run: tuple(map(Judge, run.at(Stage.JUDGING))),
    Phase.PAUSED: lambda run: (Pause(run.pending),),
    Phase.HANDING: lambda run: tuple(HandOver(call, run.agent, str(call.to)) for call in run.batch),
    Phase.CHECKING: lambda run: tuple(CheckOutput(run.agent, place, run.output) for place in sorted(run.guards)),
}

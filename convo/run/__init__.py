"""The run of agents as a machine: what may happen where, and what has to be done about it.

Read `state` for what a run is, `events` for what it can be told and `effects` for what it asks for;
`table` is the machine itself, `moves` what each event does, `answers` what a model's answer asks
for, `closing` how calls are answered that nothing came of; `keeping` is how a run becomes JSON,
`inbox` what is read of that without its agents, and `recovering` how it goes on in another process.
Everything is a plain function over frozen values: the engine performs the effects and reports what
came of them.
"""

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
    Event,
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
from convo.run.keeping import kept, taken
from convo.run.recovering import at_rest, recover
from convo.run.state import Call, Failure, Inner, Limits, Phase, Run, Stage, begin
from convo.run.table import MOVES, decide

__all__ = [
    "MOVES",
    "Answered",
    "Append",
    "Ask",
    "Begin",
    "Broke",
    "Call",
    "CheckInput",
    "CheckOutput",
    "Decided",
    "Effect",
    "Event",
    "Fail",
    "Failure",
    "Finish",
    "Given",
    "Halt",
    "HandOver",
    "HandedOver",
    "Inner",
    "Judge",
    "Judged",
    "Limits",
    "Passed",
    "Pause",
    "PausedInside",
    "Phase",
    "Resume",
    "Returned",
    "Run",
    "Said",
    "Stage",
    "Start",
    "Stop",
    "Tripped",
    "at_rest",
    "begin",
    "decide",
    "kept",
    "recover",
    "taken",
]

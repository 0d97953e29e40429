"""The machine: which event may come where, and where it may lead.

The table is the code, the picture and the list of cases of the tests. What is not in it is refused
and changes nothing; what is in it and still makes no sense (a call that is not there, a guardrail
that has spoken) is refused by the move itself.
"""

from collections.abc import Callable
from typing import Any

from convo.errors import IllegalMove
from convo.run import moves
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
from convo.run.moves import Move
from convo.run.state import ENDED, Phase, Run

_ASKED = {Phase.ASKING, Phase.FAILED}
_CLOSED = {*_ASKED, Phase.HANDING, Phase.CHECKING, Phase.DONE}
_WORKED = {*_CLOSED, Phase.WORKING, Phase.PAUSED}
_TAKEN = {*_WORKED, Phase.CLEARING}

_PERFORMED = (Phase.GUARDING, Phase.ASKING, Phase.CLEARING, Phase.WORKING, Phase.HANDING, Phase.CHECKING)
"""Where something has been asked for that can go wrong."""

MOVES: dict[tuple[Phase, type], set[Phase]] = {
    (Phase.NEW, Begin): {*_ASKED, Phase.GUARDING},
    (Phase.GUARDING, Passed): {*_ASKED, Phase.GUARDING},
    (Phase.GUARDING, Tripped): {Phase.FAILED},
    (Phase.ASKING, Passed): _TAKEN,
    (Phase.ASKING, Tripped): {Phase.FAILED},
    (Phase.ASKING, Answered): _TAKEN,
    (Phase.CLEARING, Judged): _TAKEN,
    (Phase.WORKING, Returned): _WORKED,
    (Phase.WORKING, PausedInside): {Phase.WORKING, Phase.PAUSED},
    (Phase.PAUSED, Decided): {Phase.PAUSED},
    (Phase.PAUSED, Given): {Phase.PAUSED},
    (Phase.PAUSED, Said): {Phase.PAUSED},
    (Phase.PAUSED, Resume): _WORKED,
    (Phase.HANDING, HandedOver): _ASKED,
    (Phase.CHECKING, Passed): {Phase.CHECKING, Phase.DONE},
    (Phase.CHECKING, Tripped): {Phase.FAILED},
    **{(phase, Broke): {Phase.FAILED} for phase in _PERFORMED},
    **{(phase, Stop): {Phase.STOPPED} for phase in Phase if phase not in ENDED},
}
"""(where a run stands, what it is told): where it may stand then."""

WORK: dict[type, Callable[[Run, Any], Move]] = {
    Begin: moves.began,
    Passed: moves.passed,
    Tripped: moves.tripped,
    Answered: moves.answered,
    Judged: moves.judged,
    Returned: moves.returned,
    PausedInside: moves.paused_inside,
    Broke: moves.broke,
    Decided: moves.decided,
    Given: moves.given,
    Said: moves.said,
    Resume: moves.resumed,
    HandedOver: moves.handed_over,
    Stop: moves.stopped,
}


def decide(run: Run, event: Event) -> Move:
    """The run after `event`, and what has to be done now, in this order.

    raises:  IllegalMove  it cannot happen here; the run stays as it is
             InputFault   a person's decision says something that its call does not take
    """
    kind = type(event)
    if (run.phase, kind) not in MOVES:
        raise IllegalMove(run.phase, kind.__name__)
    return WORK[kind](run, event)

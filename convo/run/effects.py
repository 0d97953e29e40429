"""What a run asks for. The engine performs each once and reports what came of it.

effect         what to do                                                          told as
CheckInput     ask an input guardrail of the first agent                           Passed, Tripped
Ask            one model call, by the owner's strategy                             Answered, Broke
Judge          ask a tool's own function whether this call needs approval          Judged
Start          note the start, durably, and only then run the call                 Returned, PausedInside, Broke
Append         add items to the conversation, in this order, before what follows
HandOver       make the next agent's input: a filter, a summary, or nothing        HandedOver, Broke
Pause          keep the run, and show the calls that wait                          Decided, Given, Said, Resume
CheckOutput    ask an output guardrail of the agent that answered                  Passed, Tripped
Halt           stop what still runs; nothing that it says counts any more
Finish, Fail   the end
"""

from dataclasses import dataclass
from typing import TypeAlias

from convo.items import Item, Json
from convo.run.state import Call, Failure


@dataclass(frozen=True, slots=True)
class CheckInput:
    """place: in the first agent's list of input guardrails."""

    agent: str
    place: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One model call.

    free:  leave the agent's own `tool_choice` out: it has used a tool already
    """

    agent: str
    turn: int
    free: bool = False


@dataclass(frozen=True, slots=True)
class Judge:
    call: Call


@dataclass(frozen=True, slots=True)
class Start:
    call: Call


@dataclass(frozen=True, slots=True)
class Append:
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    call: Call
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Pause:
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class CheckOutput:
    """place: in that agent's list of output guardrails."""

    agent: str
    place: int
    output: Json


@dataclass(frozen=True, slots=True)
class Halt:
    pass


@dataclass(frozen=True, slots=True)
class Finish:
    agent: str
    output: Json


@dataclass(frozen=True, slots=True)
class Fail:
    failure: Failure


Effect: TypeAlias = CheckInput | Ask | Judge | Start | Append | HandOver | Pause | CheckOutput | Halt | Finish | Fail

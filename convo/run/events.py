"""What a run can be told. Each is the answer to an effect, or what a person did.

The run machine never looks anything up: whatever it goes by comes in with an event. So all that can
happen to a run stands here, and in the table that says where it may.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from convo.items import Item, Json
from convo.run.state import Inner
from convo.tools import Toolbox


@dataclass(frozen=True, slots=True)
class Begin:
    """Somebody said something; go."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A guardrail has nothing against it; `place` as in its effect."""

    place: int


@dataclass(frozen=True, slots=True)
class Tripped:
    """A guardrail says no, and why."""

    place: int
    reason: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A model's whole answer.

    output:    its items, in order
    tools:     the tools that the request offered, and no others: what was off then cannot be called
    handoffs:  the handoffs that it offered: the tool's name, and to whom
    """

    output: tuple[Item, ...]
    tools: Toolbox = Toolbox({})  # noqa: RUF009  (it is frozen)
    handoffs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether a call needs approval, as its tool's own function says."""

    call_id: str
    needed: bool


@dataclass(frozen=True, slots=True)
class Returned:
    """A call ended; `output` is what its model is told: the tool's answer, or words for a failure or a timeout."""

    call_id: str
    output: Json


@dataclass(frozen=True, slots=True)
class PausedInside:
    """The run inside a call waits for a person."""

    call_id: str
    inner: Inner


@dataclass(frozen=True, slots=True)
class Broke:
    """What was asked for went wrong, and the run with it: a request, a tool without words for it, a filter."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A person decided on a call; where its outcome is unknown, to approve means to run it again.

    message:    what the model is told of a rejection
    always:     the same for every call of this tool by this agent
    arguments:  in place of the model's own
    """

    call_id: str
    approve: bool
    message: str | None = None
    always: bool = False
    arguments: str | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """A person says what came of a call whose outcome was unknown."""

    call_id: str
    output: Json


@dataclass(frozen=True, slots=True)
class Said:
    """A person adds input at a pause; it follows the outputs."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on with what has been decided."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The next agent's input stands."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The person, or the process, wants an end now."""


Event: TypeAlias = (
    Begin
    | Passed
    | Tripped
    | Answered
    | Judged
    | Returned
    | PausedInside
    | Broke
    | Decided
    | Given
    | Said
    | Resume
    | HandedOver
    | Stop
)

"""What a run is: where it stands, whose turn it is, and the calls of the answer that is being worked on.

The conversation is not in here: its owner keeps it. A run only knows what it still has to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from convo.agents import Agent, Graph
from convo.items import Item, Json
from convo.tools import Lookup, Tool


class Phase(StrEnum):
    """Where a run stands."""

    NEW = "new"
    GUARDING = "guarding its input"
    ASKING = "asking the model"
    CLEARING = "finding out what needs approval"
    WORKING = "running tools"
    PAUSED = "paused"
    HANDING = "handing over"
    CHECKING = "checking its answer"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


ENDED = {Phase.DONE, Phase.FAILED, Phase.STOPPED}


class Stage(StrEnum):
    """How far one call is."""

    JUDGING = "it is asked whether it needs approval"
    WAITING = "a person has to decide"
    READY = "it may run"
    STARTED = "it runs"
    UNKNOWN = "it ran, and nobody knows what came of it"
    INSIDE = "it is a run of its own, in which a person has to decide"
    DONE = "it has an output"
    HANDOFF = "it hands over, once the others are done"


OPEN = (Stage.WAITING, Stage.UNKNOWN)
"""A person has to say what becomes of such a call."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the answer that is being worked on.

    item:       as the model made it
    lookup:     its tool's name in layers; for a hosted tool's request its server and name
    tool:       None for a handoff and for a hosted tool's request
    to:         the identity that a handoff leads to
    arguments:  as they are run with
    output:     the item that answers it, once there is one
    ran:        the output is the tool's own
    inner:      the run inside it, once that was paused: its tool is another agent
    verdict:    a person approved (True) or rejected (False) it at this pause; None: nobody decided
    """

    item: Item
    id: str
    stage: Stage
    lookup: Lookup
    tool: Tool | None = None
    to: str | None = None
    arguments: str = ""
    output: Item | None = None
    ran: bool = False
    inner: "Inner | None" = None
    verdict: bool | None = None

    @property
    def is_decided(self) -> bool:
        """Whether a person decided on it and nothing has run since, so that the decision can still be changed."""
        return self.verdict is not None and not self.ran and self.stage in (Stage.READY, Stage.DONE)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed.

    code:  "max_turns", "input_guardrail", "output_guardrail", "model_behavior", or that of the error
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Limits:
    """max_turns: model calls; parallel: how many calls run at once."""

    max_turns: int | None = 10
    parallel: int = 8


@dataclass(frozen=True, slots=True)
class Run:
    """A run between two events.

    agent:     the identity of the agent whose turn it is
    turn:      model calls so far; a resume without one does not count
    batch:     the calls of the last answer, in its order
    guards:    the places of the guardrails that have not said anything yet, in the agent's list of them
    answered:  the model did, and guardrails beside it are still to speak
    text:      the words of its answer
    used:      tools that each agent used, by identity; a forced tool is forced once
    always:    sticky decisions, by agent and tool
    reasons:   what the model is told of a sticky rejection, where the person said it
    staged:    input that was added at a pause and follows the outputs
    output:    the final answer's value, once there is one
    """

    graph: Graph
    agent: str
    limits: Limits = Limits()
    phase: Phase = Phase.NEW
    turn: int = 0
    batch: tuple[Call, ...] = ()
    guards: frozenset[int] = frozenset()
    answered: bool = False
    text: str | None = None
    used: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    always: Mapping[tuple[str, Lookup], bool] = field(default_factory=dict)
    reasons: Mapping[tuple[str, Lookup], str] = field(default_factory=dict)
    staged: tuple[Item, ...] = ()
    output: Json = None
    failure: Failure | None = None

    @property
    def current(self) -> Agent:
        return self.graph[self.agent]

    @property
    def pending(self) -> tuple[Call, ...]:
        """The calls that wait for a person, those of runs inside a call among them."""
        return tuple(call for _, call in self.waiting)

    @property
    def waiting(self) -> "tuple[tuple[str, Call], ...]":
        """The same, each with the identity of the agent that asks."""
        found: list[tuple[str, Call]] = []
        for call in self.batch:
            if call.stage in OPEN:
                found.append((self.agent, call))
            elif call.stage is Stage.INSIDE and call.inner:
                found += call.inner.run.waiting
        return tuple(found)

    @property
    def decidable(self) -> "tuple[tuple[str, Call], ...]":
        """The calls that wait, and those decided at this pause, in order; each with the identity of its agent."""
        found: list[tuple[str, Call]] = []
        for call in self.batch:
            if call.stage in OPEN or call.is_decided:
                found.append((self.agent, call))
            elif call.stage is Stage.INSIDE and call.inner:
                found += call.inner.run.decidable
        return tuple(found)

    def at(self, stage: Stage) -> tuple[Call, ...]:
        return tuple([call for call in self.batch if call.stage is stage])

    def call(self, call_id: str) -> Call | None:
        return next((call for call in self.batch if call.id == call_id), None)

    def put(self, call: Call) -> "Run":
        """This run with `call` in the place of the one with its id."""
        at = [one.id for one in self.batch].index(call.id)
        return replace(self, batch=(*self.batch[:at], call, *self.batch[at + 1 :]))


@dataclass(frozen=True, slots=True)
class Inner:
    """A run inside a call, and what was said in it; it owns its history itself."""

    run: Run
    items: tuple[Item, ...]


def begin(graph: Graph, limits: Limits = Limits()) -> Run:
    """A run that has not begun."""
    return Run(graph, graph.start, limits)

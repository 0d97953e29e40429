"""State, events and effects of an agent run, as frozen values.

`Run` is the state of the machine: its phase, whose turn it is, and the tool calls of the last response.
An event is the result of an effect or an action of a person. An effect is work that the run asks for; the
agent runner performs it and reports the result as an event. The conversation is not stored here: its owner has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from convo.agents.agent import Agent
from convo.agents.graph import Graph
from convo.history.items import Item, Json
from convo.tools.tool import Lookup, Tool, Toolbox


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


TERMINAL_PHASES = {Phase.DONE, Phase.FAILED, Phase.STOPPED}


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


PENDING_STAGES = (Stage.WAITING, Stage.UNKNOWN)
"""A person has to say what becomes of such a call."""


@dataclass(frozen=True, slots=True)
class ToolCall:
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
    inner: "NestedRun | None" = None
    verdict: bool | None = None

    @property
    def is_decided(self) -> bool:
        """Whether a person decided on it and nothing has run since, so that the decision can still be changed."""
        return self.verdict is not None and not self.ran and self.stage in (Stage.READY, Stage.DONE)


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why a run failed.

    code:  "max_turns", "input_guardrail", "output_guardrail", "model_behavior", or that of the error
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RunLimits:
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
    limits: RunLimits = RunLimits()
    phase: Phase = Phase.NEW
    turn: int = 0
    batch: tuple[ToolCall, ...] = ()
    guards: frozenset[int] = frozenset()
    answered: bool = False
    text: str | None = None
    used: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    always: Mapping[tuple[str, Lookup], bool] = field(default_factory=dict)
    reasons: Mapping[tuple[str, Lookup], str] = field(default_factory=dict)
    staged: tuple[Item, ...] = ()
    output: Json = None
    failure: RunFailure | None = None

    @property
    def current(self) -> Agent:
        return self.graph[self.agent]

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a person, those of runs inside a call among them."""
        return tuple(call for _, call in self.waiting)

    @property
    def waiting(self) -> "tuple[tuple[str, ToolCall], ...]":
        """The same, each with the identity of the agent that asks."""
        found: list[tuple[str, ToolCall]] = []
        for call in self.batch:
            if call.stage in PENDING_STAGES:
                found.append((self.agent, call))
            elif call.stage is Stage.INSIDE and call.inner:
                found += call.inner.run.waiting
        return tuple(found)

    @property
    def decidable(self) -> "tuple[tuple[str, ToolCall], ...]":
        """The calls that wait, and those decided at this pause, in order; each with the identity of its agent."""
        found: list[tuple[str, ToolCall]] = []
        for call in self.batch:
            if call.stage in PENDING_STAGES or call.is_decided:
                found.append((self.agent, call))
            elif call.stage is Stage.INSIDE and call.inner:
                found += call.inner.run.decidable
        return tuple(found)

    def at(self, stage: Stage) -> tuple[ToolCall, ...]:
        return tuple([call for call in self.batch if call.stage is stage])

    def call(self, call_id: str) -> ToolCall | None:
        return next((call for call in self.batch if call.id == call_id), None)

    def put(self, call: ToolCall) -> "Run":
        """This run with `call` in the place of the one with its id."""
        at = [one.id for one in self.batch].index(call.id)
        return replace(self, batch=(*self.batch[:at], call, *self.batch[at + 1 :]))


@dataclass(frozen=True, slots=True)
class NestedRun:
    """A run inside a call, and what was said in it; it owns its history itself."""

    run: Run
    items: tuple[Item, ...]


def create_run(graph: Graph, limits: RunLimits = RunLimits()) -> Run:
    """A run that has not begun."""
    return Run(graph, graph.start, limits)


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Somebody said something; go."""


@dataclass(frozen=True, slots=True)
class GuardrailPassed:
    """A guardrail has nothing against it; `place` as in its effect."""

    place: int


@dataclass(frozen=True, slots=True)
class GuardrailTripped:
    """A guardrail says no, and why."""

    place: int
    reason: str


@dataclass(frozen=True, slots=True)
class ModelResponded:
    """A model's whole answer.

    output:    its items, in order
    tools:     the tools that the request offered, and no others: what was off then cannot be called
    handoffs:  the handoffs that it offered: the tool's name, and to whom
    """

    output: tuple[Item, ...]
    tools: Toolbox = Toolbox({})  # noqa: RUF009  (it is frozen)
    handoffs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApprovalEvaluated:
    """Whether a call needs approval, as its tool's own function says."""

    call_id: str
    needed: bool


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A call ended; `output` is what its model is told: the tool's answer, or words for a failure or a timeout."""

    call_id: str
    output: Json


@dataclass(frozen=True, slots=True)
class NestedRunPaused:
    """The run inside a call waits for a person."""

    call_id: str
    inner: NestedRun


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """What was asked for went wrong, and the run with it: a request, a tool without words for it, a filter."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
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
class ToolOutputSupplied:
    """A person says what came of a call whose outcome was unknown."""

    call_id: str
    output: Json


@dataclass(frozen=True, slots=True)
class InputAdded:
    """A person adds input at a pause; it follows the outputs."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class RunResumed:
    """Go on with what has been decided."""


@dataclass(frozen=True, slots=True)
class HandoffCompleted:
    """The next agent's input stands."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The person, or the process, wants an end now."""


RunEvent: TypeAlias = (
    RunStarted
    | GuardrailPassed
    | GuardrailTripped
    | ModelResponded
    | ApprovalEvaluated
    | ToolReturned
    | NestedRunPaused
    | EffectFailed
    | ApprovalDecided
    | ToolOutputSupplied
    | InputAdded
    | RunResumed
    | HandoffCompleted
    | CancelRequested
)


@dataclass(frozen=True, slots=True)
class CheckInputGuardrail:
    """place: in the first agent's list of input guardrails."""

    agent: str
    place: int


@dataclass(frozen=True, slots=True)
class CallModel:
    """One model call.

    free:  leave the agent's own `tool_choice` out: it has used a tool already
    """

    agent: str
    turn: int
    free: bool = False


@dataclass(frozen=True, slots=True)
class EvaluateApproval:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class RunTool:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class AppendToHistory:
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class PrepareHandoff:
    call: ToolCall
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class PauseRun:
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class CheckOutputGuardrail:
    """place: in that agent's list of output guardrails."""

    agent: str
    place: int
    output: Json


@dataclass(frozen=True, slots=True)
class CancelTasks:
    pass


@dataclass(frozen=True, slots=True)
class FinishRun:
    agent: str
    output: Json


@dataclass(frozen=True, slots=True)
class FailRun:
    failure: RunFailure


RunEffect: TypeAlias = (
    CheckInputGuardrail
    | CallModel
    | EvaluateApproval
    | RunTool
    | AppendToHistory
    | PrepareHandoff
    | PauseRun
    | CheckOutputGuardrail
    | CancelTasks
    | FinishRun
    | FailRun
)

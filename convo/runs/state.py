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
    """The phase of a run."""

    NEW = "new"
    CHECKING_INPUT = "checking the input"
    CALLING_MODEL = "calling the model"
    CHECKING_APPROVALS = "checking approvals"
    RUNNING_TOOLS = "running tools"
    PAUSED = "paused"
    HANDING_OFF = "handing off"
    CHECKING_OUTPUT = "checking the output"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL_PHASES = {Phase.DONE, Phase.FAILED, Phase.CANCELLED}


class Stage(StrEnum):
    """The stage of one tool call."""

    CHECKING_APPROVAL = "checking whether it needs approval"
    PENDING = "pending approval"
    READY = "ready to run"
    RUNNING = "running"
    OUTCOME_UNKNOWN = "started, outcome unknown"
    NESTED_RUN_PAUSED = "nested run paused for approval"
    DONE = "done"
    HANDOFF = "handoff after the other calls"


PENDING_STAGES = (Stage.PENDING, Stage.OUTCOME_UNKNOWN)
"""Stages that need a person's decision."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of the current response.

    item:        as the model made it
    lookup:      the lookup of its tool; for an MCP approval request its server and name
    tool:        None for a handoff and for an MCP approval request
    target:      the identity of the agent that a handoff leads to
    arguments:   as the tool receives them: the model's, or edited ones
    output:      the output item, once there is one
    has_run:     the output is the tool's own
    nested_run:  the paused run of a tool that is an agent
    approved:    a person approved (True) or rejected (False) it at this pause; None: undecided
    """

    item: Item
    id: str
    stage: Stage
    lookup: Lookup
    tool: Tool | None = None
    target: str | None = None
    arguments: str = ""
    output: Item | None = None
    has_run: bool = False
    nested_run: "NestedRun | None" = None
    approved: bool | None = None

    @property
    def is_decided(self) -> bool:
        """Whether a person decided on it and it has not run since, so the decision can still be changed."""
        return self.approved is not None and not self.has_run and self.stage in (Stage.READY, Stage.DONE)


@dataclass(frozen=True, slots=True)
class RunFailure:
    """The reason why a run failed.

    code:  "max_turns", "input_guardrail", "output_guardrail", "model_behavior", "model_refusal", the reason of a
           response that was cut, or the code of the error
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of a run.

    max_turns:           model calls; None: no limit
    max_parallel_calls:  tool calls that run at the same time
    """

    max_turns: int | None = 10
    max_parallel_calls: int = 8


@dataclass(frozen=True, slots=True)
class Run:
    """A run between two events.

    agent:                      the identity of the current agent
    turn:                       model calls so far; a resume without one does not count
    calls:                      the calls of the last response, in order
    open_guardrails:            indexes, in the agent's list, of the guardrails without a result
    has_response:               the model responded, and parallel guardrails may still be open
    text:                       the text of the response
    used_tools:                 tools that each agent used, by identity; a forced tool is forced only once
    sticky_decisions:           approved (True) or rejected (False), by agent and tool
    sticky_rejection_messages:  output for the model of a sticky rejection, if the person gave a message
    staged_items:               input that was added at a pause; it follows the outputs
    output:                     the value of the final output, once there is one
    """

    graph: Graph
    agent: str
    limits: RunLimits = RunLimits()
    phase: Phase = Phase.NEW
    turn: int = 0
    calls: tuple[ToolCall, ...] = ()
    open_guardrails: frozenset[int] = frozenset()
    has_response: bool = False
    text: str | None = None
    used_tools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sticky_decisions: Mapping[tuple[str, Lookup], bool] = field(default_factory=dict)
    sticky_rejection_messages: Mapping[tuple[str, Lookup], str] = field(default_factory=dict)
    staged_items: tuple[Item, ...] = ()
    output: Json = None
    failure: RunFailure | None = None

    @property
    def current_agent(self) -> Agent:
        return self.graph[self.agent]

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that need a decision, with those of nested runs."""
        return tuple(call for _, call in self.pending_with_agents)

    @property
    def pending_with_agents(self) -> tuple[tuple[str, ToolCall], ...]:
        """The pending calls, each with the identity of its agent."""
        pending: list[tuple[str, ToolCall]] = []
        for call in self.calls:
            if call.stage in PENDING_STAGES:
                pending.append((self.agent, call))
            elif call.stage is Stage.NESTED_RUN_PAUSED and call.nested_run:
                pending += call.nested_run.run.pending_with_agents
        return tuple(pending)

    @property
    def decidable_with_agents(self) -> tuple[tuple[str, ToolCall], ...]:
        """The calls that are pending or were decided at this pause, in order, each with the identity of its agent."""
        decidable: list[tuple[str, ToolCall]] = []
        for call in self.calls:
            if call.stage in PENDING_STAGES or call.is_decided:
                decidable.append((self.agent, call))
            elif call.stage is Stage.NESTED_RUN_PAUSED and call.nested_run:
                decidable += call.nested_run.run.decidable_with_agents
        return tuple(decidable)

    def calls_at(self, stage: Stage) -> tuple[ToolCall, ...]:
        return tuple([call for call in self.calls if call.stage is stage])

    def find_call(self, call_id: str) -> ToolCall | None:
        return next((call for call in self.calls if call.id == call_id), None)

    def replace_call(self, call: ToolCall) -> "Run":
        """Return the run with `call` in place of the call with the same id."""
        index = [other.id for other in self.calls].index(call.id)
        return replace(self, calls=(*self.calls[:index], call, *self.calls[index + 1 :]))


@dataclass(frozen=True, slots=True)
class NestedRun:
    """The run of an agent used as a tool, and its items; it owns its history itself."""

    run: Run
    items: tuple[Item, ...]


def create_run(graph: Graph, limits: RunLimits = RunLimits()) -> Run:
    """Create a run that has not started."""
    return Run(graph, graph.start, limits)


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The user sent input: start the run."""


@dataclass(frozen=True, slots=True)
class GuardrailPassed:
    """A guardrail passed; `guardrail_index` as in its effect."""

    guardrail_index: int


@dataclass(frozen=True, slots=True)
class GuardrailTripped:
    """A guardrail tripped, for a reason."""

    guardrail_index: int
    reason: str


@dataclass(frozen=True, slots=True)
class ModelResponded:
    """The complete response of a model.

    output:    its items, in order
    tools:     the tools that the request offered; a tool that was disabled then cannot be called
    handoffs:  the handoffs that the request offered: name of the tool -> identity of the agent
    """

    output: tuple[Item, ...]
    tools: Toolbox = Toolbox({})  # noqa: RUF009  (it is frozen)
    handoffs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApprovalEvaluated:
    """Whether a call needs approval, as the tool's own function decided."""

    call_id: str
    needs_approval: bool


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A call completed; `output` is for the model: the tool's output, or the text of a failure or timeout."""

    call_id: str
    output: Json


@dataclass(frozen=True, slots=True)
class NestedRunPaused:
    """The nested run of a call needs a decision."""

    call_id: str
    nested_run: NestedRun


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """An effect failed, and the run with it: a request, a tool without a failure message, a filter."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """A person decided on a call; to approve a call with an unknown outcome means to run it again.

    message:    output for the model of a rejection
    always:     the decision applies to every call of this tool by this agent
    arguments:  edited arguments that replace the model's
    """

    call_id: str
    approve: bool
    message: str | None = None
    always: bool = False
    arguments: str | None = None


@dataclass(frozen=True, slots=True)
class ToolOutputSupplied:
    """A person supplied the output of a call with an unknown outcome."""

    call_id: str
    output: Json


@dataclass(frozen=True, slots=True)
class InputAdded:
    """A person added input at a pause; it follows the outputs."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class RunResumed:
    """Resume the run with the decisions made."""


@dataclass(frozen=True, slots=True)
class HandoffCompleted:
    """The input of the next agent is complete."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The user or the process cancels the run."""


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
    """Check the input with a guardrail.

    guardrail_index:  index in the first agent's list of input guardrails
    """

    agent: str
    guardrail_index: int


@dataclass(frozen=True, slots=True)
class CallModel:
    """One model call.

    omit_tool_choice:  leave out the agent's own `tool_choice`: it has used a tool already
    """

    agent: str
    turn: int
    omit_tool_choice: bool = False


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
    """Check the final output with a guardrail.

    guardrail_index:  index in the agent's list of output guardrails
    """

    agent: str
    guardrail_index: int
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

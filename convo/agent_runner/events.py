"""The events that a run yields between those of the model; `convo chat --jsonl` prints them."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from convo.history.items import Json
from convo.runs.state import GuardrailTripped, Phase, Run, RunFailure, Stage, ToolCall


class StartedEvent(TypedDict):
    """A run was started or resumed."""

    type: Literal["convo.started"]
    run: str
    agent: str


class ToolStartedEvent(TypedDict):
    """A call starts; its start has been stored.

    tool:       name of the tool, for display
    arguments:  as written by the model
    """

    type: Literal["convo.tool_started"]
    call_id: str
    tool: str
    agent: str
    arguments: str


class ToolOutputEvent(TypedDict):
    """The output of a call; it has been stored.

    tool:    name of the tool, for display
    output:  output for the model: text, or a list of content parts
    """

    type: Literal["convo.tool_output"]
    call_id: str
    tool: str
    agent: str
    output: Json


class HandoffEvent(TypedDict):
    """A handoff to another agent."""

    type: Literal["convo.handoff"]
    call_id: str
    source: str
    target: str


class GuardrailEvent(TypedDict):
    """A guardrail tripped; convo.failed follows."""

    type: Literal["convo.guardrail"]
    side: str
    name: str
    reason: str | None


class WarningEvent(TypedDict):
    """A warning for the user."""

    type: Literal["convo.warning"]
    message: str


class PendingCallEvent(TypedDict):
    """A call that needs a decision.

    tool:     name of the tool, for display
    unknown:  whether the call was started and its outcome is unknown
    """

    call_id: str
    tool: str
    agent: str
    arguments: str
    unknown: bool


class PausedEvent(TypedDict):
    """The run paused: calls need a decision."""

    type: Literal["convo.paused"]
    run: str
    pending: Sequence[PendingCallEvent]


class FinishedEvent(TypedDict):
    """The end of a run; `output` is the final output."""

    type: Literal["convo.finished"]
    run: str
    agent: str
    output: Json


class FailedEvent(TypedDict):
    """The end of a run that failed; the error is raised after it, and is the next line."""

    type: Literal["convo.failed"]
    run: str
    code: str
    message: str


def get_call_title(call: ToolCall) -> str:
    """Return the display name of a call's tool."""
    return call.tool.title if call.tool else ".".join(call.lookup[1:])


def make_guardrail_event(run: Run, event: GuardrailTripped) -> GuardrailEvent:
    side = "output" if run.phase is Phase.CHECKING_OUTPUT else "input"
    guardrails = run.current_agent.output_guardrails if side == "output" else run.current_agent.input_guardrails
    name = guardrails[event.guardrail_index].name
    return {"type": "convo.guardrail", "side": side, "name": name, "reason": event.reason}


def make_warning_event(message: str) -> WarningEvent:
    return {"type": "convo.warning", "message": message}


def make_tool_started_event(call: ToolCall, agent: str) -> ToolStartedEvent:
    return {
        "type": "convo.tool_started",
        "call_id": call.id,
        "tool": get_call_title(call),
        "agent": agent,
        "arguments": call.arguments,
    }


def make_tool_output_event(call: ToolCall, agent: str) -> ToolOutputEvent:
    output = (call.output or {}).get("output")
    return {
        "type": "convo.tool_output",
        "call_id": call.id,
        "tool": get_call_title(call),
        "agent": agent,
        "output": output,
    }


def make_paused_event(run: Run, run_id: str) -> PausedEvent:
    """Return the event for a pause, with all pending calls."""
    pending: list[PendingCallEvent] = [
        {
            "call_id": call.id,
            "tool": get_call_title(call),
            "agent": agent,
            "arguments": call.arguments,
            "unknown": call.stage is Stage.OUTCOME_UNKNOWN,
        }
        for agent, call in run.pending_with_agents
    ]
    return {"type": "convo.paused", "run": run_id, "pending": pending}


def make_failed_event(failure: RunFailure, run_id: str) -> FailedEvent:
    return {"type": "convo.failed", "run": run_id, "code": failure.code, "message": failure.message}

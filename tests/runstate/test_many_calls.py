"""Export of and decisions on many pending calls take linear time, measured in function calls."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from convo.agents.agent import Agent
from convo.agents.graph import graph
from convo.runs.machine import step_run
from convo.runs.state import ApprovalDecided, ModelResponded, Run, RunStarted, create_run
from convo.runstate.approvals import apply_verdict
from convo.runstate.export import export_run_state
from convo.runstate.format import ApprovalVerdict
from convo.runstate.reader import build_state_report
from convo.runstate.run_items import ModelCall, RunTranscript
from convo.runstate.run_state import RunState
from convo.tools.tool import toolbox
from tests.call_count import CallCount
from tests.runs.run_steps import make_tool as tool_made

FEW, MANY = 50, 200
PAY = tool_made("pay", needs_approval=True)


def pause_run(calls: int) -> Run:
    """Return a paused run with this many pending calls of one response."""
    agents = graph(Agent("till", tools=(PAY,)))
    run, _ = step_run(create_run(agents), RunStarted())
    return step_run(
        run, ModelResponded(tuple(call_fields(number) for number in range(calls)), toolbox(agents["till"].functions))
    )[0]


def call_fields(number: int) -> dict[str, str]:
    fields = {"id": f"fc_{number}", "call_id": f"call_{number}", "name": "pay"}
    return {"type": "function_call", **fields, "arguments": json.dumps({"text": str(number)})}


def export_run(run: Run) -> RunState:
    return export_run_state(
        run, RunTranscript([{"role": "user", "content": "pay"}], [ModelCall("till", [call.item for call in run.calls])])
    )


def decide_alternately(run: Run) -> Run:
    """Approve every other pending call and reject the others."""
    for number, call in enumerate(run.pending):
        run, _ = step_run(run, ApprovalDecided(call.id, approve=number % 2 == 0))
    return run


def rewritten(run: Run) -> RunState:
    """Export the run again, with its own exported state as the base."""
    return export_run_state(run, RunTranscript([], base=export_run(run)))


def steps(function: Callable[[Any], object], argument: object) -> int:
    with CallCount() as counter:
        function(argument)
    return counter.total


@pytest.mark.parametrize("write", [export_run, rewritten])
@pytest.mark.parametrize(
    "make_run", [pause_run, lambda calls: decide_alternately(pause_run(calls))], ids=["undecided", "decided"]
)
def test_writing_a_pause_takes_linear_time_in_its_calls(
    make_run: Callable[[int], Run], write: Callable[[Run], RunState]
) -> None:
    few, many = (steps(write, make_run(calls)) for calls in (FEW, MANY))
    assert many < 1.1 * few * MANY / FEW


@pytest.mark.parametrize(
    "verdict", [ApprovalVerdict(approve=True), ApprovalVerdict(False, "no"), ApprovalVerdict(False, always=True)]
)
def test_deciding_on_all_calls_takes_linear_time(verdict: ApprovalVerdict) -> None:
    few, many = (
        steps(lambda state: apply_verdict(state, state.pending, verdict), export_run(pause_run(calls)))
        for calls in (FEW, MANY)
    )
    assert many < 1.1 * few * MANY / FEW


@pytest.mark.parametrize(
    "verdict", [ApprovalVerdict(approve=True), ApprovalVerdict(False, "no"), ApprovalVerdict(False, always=True)]
)
def test_deciding_all_at_once_equals_deciding_one_by_one(verdict: ApprovalVerdict) -> None:
    state = export_run(decide_alternately(pause_run(6)))
    single = state
    for one in state.pending:
        single = apply_verdict(single, (one,), verdict)
    assert apply_verdict(state, state.pending, verdict).document == single.document
    assert len(build_state_report(single).decisions) == 6

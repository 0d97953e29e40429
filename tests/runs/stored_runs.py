"""Runs in every phase and every stage of a call, with an event that each unfinished run accepts.

The files in `stored/` contain these runs as JSON; its README names the code that wrote them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from convo.agents.agent import Agent, Guardrail, output
from convo.agents.graph import Graph, agent_tool, graph
from convo.history.items import assistant_message
from convo.runs.serialize import recover_run
from convo.runs.state import (
    ApprovalDecided,
    ApprovalEvaluated,
    CancelRequested,
    EffectFailed,
    GuardrailPassed,
    HandoffCompleted,
    InputAdded,
    ModelResponded,
    NestedRun,
    NestedRunPaused,
    Phase,
    Run,
    RunEvent,
    RunLimits,
    RunResumed,
    RunStarted,
    ToolOutputSupplied,
    ToolReturned,
    create_run,
)
from tests.runs.run_steps import CONDITIONAL, FREE, GUARDED, apply_events, call, model_response


@dataclass(frozen=True)
class Receipt:
    cents: int


def passing_guardrail(context: Any, text: Any) -> None:
    """A guardrail that always passes."""


CLERK = Agent("clerk", tools=(GUARDED,))
ASK_CLERK = agent_tool(CLERK, "ask_clerk", "Ask the clerk.")
BILLING = Agent(
    "billing", tools=(FREE,), output=output(Receipt), output_guardrails=(Guardrail("polite", passing_guardrail),)
)
DESK = Agent(
    "desk",
    tools=(FREE, GUARDED, CONDITIONAL, ASK_CLERK),
    handoffs=(BILLING,),
    input_guardrails=(Guardrail("beside", passing_guardrail), Guardrail("before", passing_guardrail, parallel=False)),
    output_guardrails=(Guardrail("short", passing_guardrail), Guardrail("polite", passing_guardrail)),
)
GRAPH: Graph = graph(DESK)
HOSTED = {"type": "mcp_approval_request", "id": "m1", "server_label": "crm", "name": "erase", "arguments": "{}"}


def new_run() -> Run:
    return create_run(GRAPH, RunLimits(max_turns=6, max_parallel_calls=2))


def calling_model() -> Run:
    """A model call is running, and all input guardrails have passed."""
    return apply_events(new_run(), RunStarted(), GuardrailPassed(1), GuardrailPassed(0))[0]


def answered_before_guardrail() -> Run:
    """The model has responded, and a parallel guardrail has not finished."""
    run, _ = apply_events(new_run(), RunStarted(), GuardrailPassed(1))
    return apply_events(
        run,
        model_response(run, assistant_message("One moment."), call("c1"), call("c2", "asked"), call("c3", "guarded")),
    )[0]


def checking_approvals() -> Run:
    return apply_events(answered_before_guardrail(), GuardrailPassed(0))[0]


def running_tools() -> Run:
    """Of five calls one is done, two are running, one is ready and one needs approval."""
    run = calling_model()
    calls = [call(f"c{n}") for n in (1, 2, 3, 4)]
    return apply_events(
        run, model_response(run, *calls, call("c5", "guarded")), ToolReturned("c1", {"rows": [1, 2.5, None]})
    )[0]


def paused() -> Run:
    """Two calls need approval: one by its definition, one after an evaluation of its approval function."""
    return apply_events(checking_approvals(), ApprovalEvaluated("c2", needs_approval=True), ToolReturned("c1", "one"))[
        0
    ]


def paused_for_provider() -> Run:
    run = calling_model()
    return apply_events(
        run, model_response(run, HOSTED), InputAdded(({"type": "message", "role": "user", "content": "quick"},))
    )[0]


def unknown_outcome() -> Run:
    """The process ended while two calls were running; the output of one is known."""
    return recover_run(apply_events(running_tools(), ToolReturned("c2", "two"))[0], {"c4": "four"})[0]


def paused_nested() -> Run:
    """A call in the nested run of the clerk needs approval."""
    inner, _ = apply_events(create_run(ASK_CLERK.graph), RunStarted())
    nested_call = call("i1", "guarded")
    inner, _ = apply_events(inner, model_response(inner, nested_call))
    run = calling_model()
    run, _ = apply_events(
        run, model_response(run, call("c1", "ask_clerk", '{"input": "hi"}'), call("c2")), ToolReturned("c2", "two")
    )
    return apply_events(run, NestedRunPaused("c1", NestedRun(inner, ({"role": "user", "content": "hi"}, nested_call))))[
        0
    ]


def handing_off() -> Run:
    run = calling_model()
    return apply_events(
        run, model_response(run, call("c1"), call("h1", "transfer_to_billing", "{}")), ToolReturned("c1", "one")
    )[0]


def always_approved() -> Run:
    """One tool is approved always, another is rejected always."""
    run, _ = apply_events(
        paused(), ApprovalDecided("c3", approve=True, always=True), ApprovalDecided("c2", approve=False, always=True)
    )
    return apply_events(run, RunResumed())[0]


def checking_output() -> Run:
    """The final output is an instance of a Python class."""
    run, _ = apply_events(handing_off(), HandoffCompleted())
    return apply_events(run, model_response(run, assistant_message('{"cents": 7}')))[0]


def done() -> Run:
    run = calling_model()
    return apply_events(run, model_response(run, assistant_message("Done.")), GuardrailPassed(0), GuardrailPassed(1))[0]


@dataclass(frozen=True)
class StoredRun:
    """A stored run, and how it continues.

    event:  an event that it accepts; None if the run has ended
    phase:  the phase after the event
    """

    make: Callable[[], Run]
    event: RunEvent | None = None
    phase: Phase | None = None


RUNS: Mapping[str, StoredRun] = {
    "new": StoredRun(new_run, RunStarted(), Phase.CHECKING_INPUT),
    "guarding": StoredRun(lambda: apply_events(new_run(), RunStarted())[0], GuardrailPassed(1), Phase.CALLING_MODEL),
    "asking": StoredRun(calling_model, ModelResponded((assistant_message("Done."),)), Phase.CHECKING_OUTPUT),
    "asking_answered": StoredRun(answered_before_guardrail, GuardrailPassed(0), Phase.CHECKING_APPROVALS),
    "clearing": StoredRun(checking_approvals, ApprovalEvaluated("c2", needs_approval=False), Phase.RUNNING_TOOLS),
    "working": StoredRun(running_tools, ToolReturned("c2", "two"), Phase.RUNNING_TOOLS),
    "paused": StoredRun(paused, RunResumed(), Phase.PAUSED),
    "paused_for_provider": StoredRun(paused_for_provider, ApprovalDecided("m1", approve=True), Phase.PAUSED),
    "paused_unknown": StoredRun(unknown_outcome, ToolOutputSupplied("c3", "three"), Phase.PAUSED),
    "paused_inside": StoredRun(paused_nested, ApprovalDecided("i1", approve=True), Phase.PAUSED),
    "handing": StoredRun(handing_off, HandoffCompleted(), Phase.CALLING_MODEL),
    "always": StoredRun(always_approved, ToolReturned("c3", "three"), Phase.CALLING_MODEL),
    "checking": StoredRun(checking_output, GuardrailPassed(0), Phase.DONE),
    "done": StoredRun(done),
    "failed": StoredRun(lambda: apply_events(calling_model(), EffectFailed("server_error", "No answer."))[0]),
    "stopped": StoredRun(lambda: apply_events(running_tools(), CancelRequested())[0]),
}
"""Runs in every phase and stage."""


def approved() -> Run:
    return apply_events(paused(), ApprovalDecided("c3", approve=True))[0]


def rejected() -> Run:
    return apply_events(paused(), ApprovalDecided("c3", approve=False, message="Ask me on Monday.", always=True))[0]


def approved_nested() -> Run:
    return apply_events(paused_nested(), ApprovalDecided("i1", approve=True))[0]


DECIDED: Mapping[str, StoredRun] = {
    "always": RUNS["always"],
    "approved": StoredRun(approved, ApprovalDecided("c3", approve=False), Phase.PAUSED),
    "rejected": StoredRun(rejected, ApprovalDecided("c2", approve=True), Phase.PAUSED),
    "approved_inside": StoredRun(approved_nested, RunResumed(), Phase.RUNNING_TOOLS),
}
"""Runs with verdicts of decisions."""


def without_verdicts(run: Run) -> Run:
    """`run` without verdicts, as stored before runs had them."""
    return replace(run, calls=tuple(replace(one, approved=None) for one in run.calls))

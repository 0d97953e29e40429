"""Runs in every phase and every stage of a call, and an event that each of them can take.

The files in `stored/` hold these runs as JSON; its README says which code wrote them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from convo.agents.agent import Agent, Guardrail, output
from convo.agents.graph import Graph, agent_tool, graph
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
from tests.runs.driving import ASKED, FREE, GUARDED, answer, call, says, told


@dataclass(frozen=True)
class Receipt:
    cents: int


def silent(context: Any, said: Any) -> None:
    """A guardrail without objections."""


CLERK = Agent("clerk", tools=(GUARDED,))
ASK_CLERK = agent_tool(CLERK, "ask_clerk", "Ask the clerk.")
BILLING = Agent("billing", tools=(FREE,), output=output(Receipt), output_guardrails=(Guardrail("polite", silent),))
DESK = Agent(
    "desk",
    tools=(FREE, GUARDED, ASKED, ASK_CLERK),
    handoffs=(BILLING,),
    input_guardrails=(Guardrail("beside", silent), Guardrail("before", silent, parallel=False)),
    output_guardrails=(Guardrail("short", silent), Guardrail("polite", silent)),
)
GRAPH: Graph = graph(DESK)
HOSTED = {"type": "mcp_approval_request", "id": "m1", "server_label": "crm", "name": "erase", "arguments": "{}"}


def begun() -> Run:
    return create_run(GRAPH, RunLimits(max_turns=6, max_parallel_calls=2))


def asking() -> Run:
    """The model is asked, and no guardrail is left."""
    return told(begun(), RunStarted(), GuardrailPassed(1), GuardrailPassed(0))[0]


def answered_early() -> Run:
    """The model has answered, and a guardrail beside it has not."""
    run, _ = told(begun(), RunStarted(), GuardrailPassed(1))
    return told(run, answer(run, says("One moment."), call("c1"), call("c2", "asked"), call("c3", "guarded")))[0]


def clearing() -> Run:
    return told(answered_early(), GuardrailPassed(0))[0]


def working() -> Run:
    """Of five calls one is done, two run, one may run and one needs approval."""
    run = asking()
    calls = [call(f"c{n}") for n in (1, 2, 3, 4)]
    return told(run, answer(run, *calls, call("c5", "guarded")), ToolReturned("c1", {"rows": [1, 2.5, None]}))[0]


def paused() -> Run:
    """Two calls need approval, one of them a provider's."""
    return told(clearing(), ApprovalEvaluated("c2", needs_approval=True), ToolReturned("c1", "one"))[0]


def paused_for_provider() -> Run:
    run = asking()
    return told(run, answer(run, HOSTED), InputAdded(({"type": "message", "role": "user", "content": "quick"},)))[0]


def unknown() -> Run:
    """A process ended while two calls ran; the result of one is known."""
    return recover_run(told(working(), ToolReturned("c2", "two"))[0], {"c4": "four"})[0]


def inside() -> Run:
    """A call needs approval in the run of the clerk."""
    inner, _ = told(create_run(ASK_CLERK.graph), RunStarted())
    asked = call("i1", "guarded")
    inner, _ = told(inner, answer(inner, asked))
    run = asking()
    run, _ = told(run, answer(run, call("c1", "ask_clerk", '{"input": "hi"}'), call("c2")), ToolReturned("c2", "two"))
    return told(run, NestedRunPaused("c1", NestedRun(inner, ({"role": "user", "content": "hi"}, asked))))[0]


def handing() -> Run:
    run = asking()
    return told(run, answer(run, call("c1"), call("h1", "transfer_to_billing", "{}")), ToolReturned("c1", "one"))[0]


def always() -> Run:
    """A tool is approved for good, another one rejected."""
    run, _ = told(
        paused(), ApprovalDecided("c3", approve=True, always=True), ApprovalDecided("c2", approve=False, always=True)
    )
    return told(run, RunResumed())[0]


def checking() -> Run:
    """The answer is a value that only Python can hold."""
    run, _ = told(handing(), HandoffCompleted())
    return told(run, answer(run, says('{"cents": 7}')))[0]


def done() -> Run:
    run = asking()
    return told(run, answer(run, says("Done.")), GuardrailPassed(0), GuardrailPassed(1))[0]


@dataclass(frozen=True)
class Stored:
    """A run that is stored, and how it continues.

    event:  one that it can take; None where the run has ended
    phase:  of the run after it
    """

    make: Callable[[], Run]
    event: RunEvent | None = None
    phase: Phase | None = None


RUNS: Mapping[str, Stored] = {
    "new": Stored(begun, RunStarted(), Phase.CHECKING_INPUT),
    "guarding": Stored(lambda: told(begun(), RunStarted())[0], GuardrailPassed(1), Phase.CALLING_MODEL),
    "asking": Stored(asking, ModelResponded((says("Done."),)), Phase.CHECKING_OUTPUT),
    "asking_answered": Stored(answered_early, GuardrailPassed(0), Phase.CHECKING_APPROVALS),
    "clearing": Stored(clearing, ApprovalEvaluated("c2", needs_approval=False), Phase.RUNNING_TOOLS),
    "working": Stored(working, ToolReturned("c2", "two"), Phase.RUNNING_TOOLS),
    "paused": Stored(paused, RunResumed(), Phase.PAUSED),
    "paused_for_provider": Stored(paused_for_provider, ApprovalDecided("m1", approve=True), Phase.PAUSED),
    "paused_unknown": Stored(unknown, ToolOutputSupplied("c3", "three"), Phase.PAUSED),
    "paused_inside": Stored(inside, ApprovalDecided("i1", approve=True), Phase.PAUSED),
    "handing": Stored(handing, HandoffCompleted(), Phase.CALLING_MODEL),
    "always": Stored(always, ToolReturned("c3", "three"), Phase.CALLING_MODEL),
    "checking": Stored(checking, GuardrailPassed(0), Phase.DONE),
    "done": Stored(done),
    "failed": Stored(lambda: told(asking(), EffectFailed("server_error", "No answer."))[0]),
    "stopped": Stored(lambda: told(working(), CancelRequested())[0]),
}
"""Runs in every phase and stage."""


def approved() -> Run:
    return told(paused(), ApprovalDecided("c3", approve=True))[0]


def rejected() -> Run:
    return told(paused(), ApprovalDecided("c3", approve=False, message="Ask me on Monday.", always=True))[0]


def approved_inside() -> Run:
    return told(inside(), ApprovalDecided("i1", approve=True))[0]


DECIDED: Mapping[str, Stored] = {
    "always": RUNS["always"],
    "approved": Stored(approved, ApprovalDecided("c3", approve=False), Phase.PAUSED),
    "rejected": Stored(rejected, ApprovalDecided("c2", approve=True), Phase.PAUSED),
    "approved_inside": Stored(approved_inside, RunResumed(), Phase.RUNNING_TOOLS),
}
"""Runs with verdicts of decisions."""


def without_verdicts(run: Run) -> Run:
    """`run` as it was before a verdict was stored."""
    return replace(run, calls=tuple(replace(one, approved=None) for one in run.calls))

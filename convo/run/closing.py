"""How the calls of a run that ended too early are answered, so that its conversation can go on.

A history with a call that nobody answered is refused by every server. So a run that failed or was
stopped answers what it leaves open: with the tool's own output where there is one, else with words.
"""

from collections.abc import Iterable

from convo.items import Item, call_id, is_call, is_output, kind
from convo.run.answers import HOSTED_REQUEST, OUTCOME_UNKNOWN
from convo.run.state import Call, Run, Stage

NOT_RUN = "The run ended before this tool was called."


def closing(run: Run, said: Iterable[Item]) -> tuple[Item, ...]:
    """Outputs for the calls in `said` that have none, in their order.

    said:  what was said since the model was last asked, its answer among it
    """
    said = tuple(said)
    answered = {call_id(item) for item in said if is_output(item)}
    answered |= {item.get("approval_request_id") for item in said}
    open_calls = (item for item in said if _named(item) and _named(item) not in answered)
    return tuple(_output(item, run.call(str(_named(item)))) for item in open_calls)


def _named(item: Item) -> str | None:
    return item.get("id") if kind(item) == HOSTED_REQUEST else call_id(item) if is_call(item) else None


def _output(item: Item, call: Call | None) -> Item:
    if call is not None and call.output is not None:
        return call.output
    if kind(item) == HOSTED_REQUEST:
        return {"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": False, "reason": NOT_RUN}
    started = call is not None and call.stage in (Stage.STARTED, Stage.UNKNOWN, Stage.INSIDE)
    words = OUTCOME_UNKNOWN if started else NOT_RUN
    return {"type": f"{kind(item)}_output", "call_id": call_id(item), "output": words}

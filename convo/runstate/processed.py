"""The last answer of a run, as a state says what waits of it and what would run.

What waits is shown as it was asked for, in the words of the state that the run comes from where
there is one; what would run stands beside it, and must be the same. An agent used as a tool waits
with a whole state of its own, and what waits in it waits around it as well.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from convo.items import Item, Json, call_id
from convo.run import Call, Phase, Run, Stage
from convo.runstate import run_items
from convo.runstate.nested import INTERRUPTION, interruptions
from convo.runstate.run_items import Speaker
from convo.runstate.state import State

UNPERFORMED = (
    *("computer_actions", "custom_tool_actions", "local_shell_actions", "shell_actions", "apply_patch_actions"),
)


def waits(call: Call) -> bool:
    """Whether a state asks for this call; one that was refused waits there with a decision, and words for the model."""
    return call.stage not in (Stage.HANDOFF, Stage.INSIDE) and not call.ran


def step(run: Run, waiting: list[Json]) -> Json:
    if run.phase is Phase.DONE:
        return None
    if not run.batch:
        return {"type": "next_step_run_again"}
    data = {"interruptions": waiting, "response_accepted": False, "llm_end_hooks_started": True}
    return {"type": INTERRUPTION, "data": data}


def waiting_inside(inside: Mapping[str, State]) -> Iterator[Json]:
    """What waits in agents used as tools, which waits in the run around them as well."""
    for state in inside.values():
        yield from (one.value for one in interruptions(state.document))


def processed(
    run: Run, base: Mapping[str, Json], answer: Sequence[Item] | None, asked: list[Json], inside: Mapping[str, State]
) -> Json:
    """The last answer as it would be worked on.

    answer:  its items; None where it is the base's last one still
    """
    if not run.batch:
        return None
    if answer is None:
        last = base["last_processed_response"]
        return {**last, "functions": _functions(run, last.get("functions") or (), inside), "interruptions": asked}
    over = [call for call in run.batch if call.stage is Stage.HANDOFF]
    return {
        "new_items": list(run_items.answered(Speaker(run.graph, run.agent), answer)),
        "tools_used": [call.tool.title if call.tool else call.lookup[-1] for call in run.batch],
        "functions": _functions(run, (run_items.action(call) for call in run.batch if call.tool), inside),
        **{key: [] for key in UNPERFORMED},
        "handoffs": [{"tool_call": dict(call.item), "handoff": {"tool_name": call.lookup[-1]}} for call in over],
        "mcp_approval_requests": [run_items.request(call) for call in run.batch if call.lookup[0] == "mcp"],
        "interruptions": asked,
        "mcp_tool_bindings": {},
    }


def _functions(run: Run, actions: Iterable[Mapping[str, Json]], inside: Mapping[str, State]) -> list[Json]:
    """The functions that were called, with the states of the agents behind them as they are now."""
    made_of: list[Json] = []
    calls = {call.id: call for call in run.batch}
    for action in actions:
        call = calls.get(str(call_id(action["tool_call"])))
        kept = {key: value for key, value in action.items() if key != "agent_run_state" or call is None}
        within = {"agent_run_state": inside[call.id].document} if call and call.id in inside else {}
        made_of.append({**kept, **within})
    return made_of

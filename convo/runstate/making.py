"""A state of the newest label out of a run of convo's own, for the Agents SDK to go on with.

A run only knows what it still has to do; what was said stands in the history, and what was asked
in its links. Put together they are a state: the input that the run began with, what each answer
added, the calls that wait, what was decided on them, and the owner. It is read again before it is
given out, as strictly as one from anywhere else. A run that goes on from a foreign state is written
over that state, so that whatever convo does not model stays in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from convo.errors import BadState, InputFault, StateFault
from convo.history import Strategy
from convo.items import Json, call_id, digest, is_output, is_user
from convo.run import Call, Inner, Phase, Run, Stage
from convo.run.state import OPEN
from convo.runstate import run_items
from convo.runstate.account import Account, Turn, turns
from convo.runstate.batch import inner as nested
from convo.runstate.batch import last_answer, named_by
from convo.runstate.deciding import decided
from convo.runstate.editing import edited
from convo.runstate.lasting import for_good
from convo.runstate.nested import interruptions
from convo.runstate.processed import processed, step, waiting_inside, waits
from convo.runstate.reading import LABEL, of
from convo.runstate.records import Verdict
from convo.runstate.relabel import relabelled
from convo.runstate.run_items import APPROVAL, Speaker
from convo.runstate.state import State, view
from convo.runstate.totals import response, usage
from convo.runstate.values import context
from convo.runstate.versions import NEWEST
from convo.runstate.whose import identity_in
from convo.tools import NOT_APPROVED

STEPS = {Phase.PAUSED, Phase.DONE, Phase.NEW, Phase.ASKING}
"""Where a run can be written down: nothing of it is under way that a reader would have to know of."""

EMPTY = (
    *("input_guardrail_results", "output_guardrail_results"),
    *("tool_input_guardrail_results", "tool_output_guardrail_results"),
)
PASSING = {
    *("pending_session_write", "current_turn_persisted_item_count"),
    "current_response_generated_item_ownership",
}
"""What a state says of its last answer alone, and what is over once there is another one."""


def made(run: Run, account: Account) -> State:
    """`run` as a state of the newest label; `convo.runstate.relabel` moves it to an older one.

    raises:  InputFault  agents share a name, or the application's values are not JSON
             StateFault  the run stands where no reader could go on with it
             Usage       changed arguments, where the endpoint has the call as the model made it
             BadState    the turns do not fit the run
    """
    _check(run, account)
    return for_good(_said(of(_document(run, account)), run.batch), run)


def _check(run: Run, account: Account) -> None:
    if run.graph.duplicates and (account.base or not account.own):
        raise InputFault(
            f"several agents are called {run.graph.duplicates[0]!r}, and only the Agents SDK can number them",
            hint="give each agent a name of its own",
        )
    unknown = run.at(Stage.UNKNOWN)
    if unknown and not account.unknown:
        raise StateFault(
            f"call {unknown[0].id} was started and its outcome is unknown; the Agents SDK would run it again",
            hint="say what came of it, or that it may run again, and go on",
        )
    if run.phase not in STEPS or (run.phase is Phase.ASKING and run.answered):
        raise StateFault(f"a run that is {run.phase} cannot be written as a RunState", hint="let it pause, or end")


# -- what was decided since the calls were made ------------------------------------------------------


def _said(state: State, calls: Iterable[Call]) -> State:
    """The state with what a person said of the calls that it waits for."""
    waiting = {one.id: one for one in state.pending}
    said = [call for call in calls if call.id in waiting and call.stage not in OPEN]
    for call in said:
        if call.tool is not None and call.arguments != str(call.item.get("arguments") or ""):
            state = edited(state, waiting[call.id], call.arguments)
    waiting = {one.id: one for one in state.pending}
    verdicts = sorted(((_verdict(call), waiting[call.id]) for call in said), key=lambda one: one[0].approve)
    for verdict, alike in groupby(verdicts, itemgetter(0)):
        state = decided(state, (one for _, one in alike), verdict)
    return state


def _verdict(call: Call) -> Verdict:
    if call.output is None:
        return Verdict(approve=True)
    if call.tool is None:
        return Verdict(bool(call.output.get("approve")), call.output.get("reason"))
    words = call.output.get("output")
    return Verdict(approve=False, message=None if words == NOT_APPROVED else words)


# -- the document ---------------------------------------------------------------------------------


def _document(run: Run, account: Account) -> dict[str, Json]:
    base = relabelled(account.base, NEWEST.label)[0].document if account.base else {}
    told = _since(base, run.agent, account.turns) if base else account.turns
    fresh = told[1:] if base else told
    inside = {call.id: _inside(call, call.inner, account, base) for call in run.at(Stage.INSIDE) if call.inner}
    speaker = Speaker(run.graph, run.agent)
    shown = {named_by(one.value["raw_item"]): one.value for one in interruptions(base)}
    own = [shown.get(call.id) or run_items.waiting(speaker, call) for call in run.batch if waits(call)]
    asked = [*own, *waiting_inside(inside)]
    answer = fresh[-1].output if fresh else None
    begun = [*inside, *(call.id for call in run.at(Stage.UNKNOWN))]
    session = _items(run, told, base, base.get("session_items") or base.get("generated_items") or ())
    summed = account.summed and max(0, account.summed - len(account.turns) + len(told))
    seen = {} if summed else base
    kept = _items(run, told[summed:], seen, seen.get("generated_items") or ())
    answers = [*(base.get("model_responses") or ()), *(_response(turn) for turn in fresh)]
    return {
        LABEL: NEWEST.label,
        **{key: [] for key in EMPTY},
        "trace": None,
        **{key: value for key, value in base.items() if key != LABEL and not (fresh and key in PASSING)},
        "current_turn": run.turn - (run.phase is Phase.ASKING),
        "current_agent": speaker.reference,
        "original_input": seen.get("original_input", [dict(item) for item in account.before]),
        "pending_input": [dict(item) for item in run.staged],
        "model_responses": answers,
        "context": _context(account, base.get("context") or {}, [*session, *own], fresh, begun),
        "tool_use_tracker": {
            identity_in(Speaker(run.graph, one).reference): list(names) for one, names in run.used.items()
        },
        "max_turns": run.limits.max_turns,
        "no_active_agent_run": True,
        **_owner(account, base),
        "generated_prompt_cache_key": base.get("generated_prompt_cache_key"),
        "reasoning_item_id_policy": base.get("reasoning_item_id_policy"),
        "generated_items": [*kept, *own],
        "session_items": [*session, *own],
        **_places(base, session, kept, len(own)),
        "current_step": step(run, asked),
        "last_model_response": answers[-1] if answers else None,
        "last_processed_response": processed(run, base, answer, asked, inside),
    }


def _inside(call: Call, inner: Inner, account: Account, base: Mapping[str, Json]) -> State:
    """The state of the run inside a call, over the one that the base has of it."""
    there = nested(base).get(call.id)
    first = next((at for at, item in enumerate(inner.items) if not is_user(item)), len(inner.items))
    told = turns(inner.run.graph, inner.run.graph.start, inner.items[first:])
    if told and inner.run.batch:
        told[-1] = replace(told[-1], agent=inner.run.agent)
    within = view(there.value) if there else None
    return made(inner.run, Account(inner.items[:first], told, values=account.values, base=within, own=account.own))


def _since(base: Mapping[str, Json], agent: str, told: Sequence[Turn]) -> list[Turn]:
    """The turns from the base's last answer on; that one is put in front where nobody has said it again."""
    last = last_answer(base)
    meant = [digest(item) for item in last]
    same = [at for at, turn in enumerate(told) if turn.output and [digest(item) for item in turn.output] == meant]
    if same:
        return list(told[same[-1] :])
    if told and not told[0].output:
        return [replace(told[0], output=last), *told[1:]]
    return [Turn(told[0].agent if told else agent, last), *told]


def _items(run: Run, told: Sequence[Turn], base: Mapping[str, Json], there: Iterable[Mapping[str, Any]]) -> list[Any]:
    """The run items of the turns, after those that the base holds; an output that is there already stays as it is."""
    items: list[Any] = [item for item in there if item["type"] != APPROVAL]
    held = {call_id(item["raw_item"]) for item in items if is_output(item["raw_item"])}
    for number, turn in enumerate(told):
        speaker = Speaker(run.graph, turn.agent)
        items += () if base and not number else run_items.answered(speaker, turn.output)
        after = [item for item in turn.after if not (is_output(item) and call_id(item) in held)]
        items += run_items.followed(speaker, turn.output, after)
    if told:
        done = [call.output for call in run.batch if call.output and call.ran and call.id not in held]
        items += run_items.followed(Speaker(run.graph, run.agent), told[-1].output, done)
    return items


def _places(base: Mapping[str, Json], session: list[Any], kept: list[Any], waiting: int) -> dict[str, Json]:
    """Which session item each generated one is, and which of them a summary repeats; approvals took places before."""
    start = len(session) - len(kept)
    same = [start + at if session[start + at] == item else None for at, item in enumerate(kept)]
    before = [item["type"] == APPROVAL for item in base.get("session_items") or ()]
    refs = base.get("nested_history_owned_session_item_refs") or ()
    return {
        "generated_session_item_indexes": [*same, *range(len(session), len(session) + waiting)],
        "nested_history_owned_session_item_refs": [
            {**ref, "index": ref["index"] - sum(before[: ref["index"]])} for ref in refs
        ],
    }


def _response(turn: Turn) -> dict[str, Json]:
    return response([dict(item) for item in turn.output], turn.response_id, turn.usage)


def _context(
    account: Account,
    base: Mapping[str, Any],
    items: list[Any],
    fresh: Sequence[Turn],
    begun: Iterable[str],
) -> dict[str, Json]:
    done = {str(call_id(item["raw_item"])) for item in items if is_output(item["raw_item"])}
    try:
        ledger = run_items.bindings(items, done)
    except ValueError as wrong:
        raise BadState("$.context.tool_invocations", f"cannot bind a call: {wrong}") from wrong
    for call, entry in (base.get("tool_invocations") or {}).items():
        over = {"executed": True, "completed": True} if call in done else {}
        ledger[call] = {**entry, **over}
    for call in begun:
        ledger[call] = {**ledger[call], "executed": True}
    return {
        "approvals": {},
        **base,
        "usage": usage(base.get("usage"), [turn.usage for turn in fresh]),
        "tool_invocations": ledger,
        **context(account.values, base),
    }


def _owner(account: Account, base: Mapping[str, Json]) -> dict[str, Json]:
    chained = account.strategy is Strategy.CHAIN
    given = base.get("previous_response_id") is not None and not base.get("auto_previous_response_id")
    return {
        "conversation_id": account.handle if account.strategy is Strategy.CONVERSATION else None,
        "previous_response_id": account.handle if chained else None,
        "auto_previous_response_id": chained and not given,
    }

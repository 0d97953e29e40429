"""Export a run of convo as a RunState of the newest label, for the Agents SDK to resume.

Combines the run with its transcript (history, model calls, owner) and validates the result like any other state.
If the run was imported, `RunTranscript.base` is the state it came from, and members that convo does not model are kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from convo.errors import InputFault, InvalidRunState, StateFault
from convo.history.canonical import digest
from convo.history.items import Item, Json, get_call_id, is_client_output, is_user_message
from convo.runs.state import PENDING_STAGES, NestedRun, Phase, Run, Stage, ToolCall
from convo.runstate import run_items
from convo.runstate.agents import get_agent_identity, write_sticky_decisions
from convo.runstate.approvals import apply_verdict, edit_arguments
from convo.runstate.calls import answerable_call_id, find_open_nested_states, read_last_response
from convo.runstate.format import APPROVAL_ITEM, INTERRUPTION_STEP, ApprovalVerdict, iter_interruptions
from convo.runstate.reader import SCHEMA_VERSION_KEY, run_state_from_json
from convo.runstate.relabel import relabel_state
from convo.runstate.run_items import (
    GraphAgent,
    ModelCall,
    RunTranscript,
    build_context_members,
    split_model_calls,
)
from convo.runstate.state import RunState, wrap_document
from convo.runstate.versions import NEWEST_VERSION
from convo.strategies.state import STRATEGIES
from convo.tools.tool import NOT_APPROVED

EXPORTABLE_PHASES = {Phase.PAUSED, Phase.DONE, Phase.NEW, Phase.CALLING_MODEL}
"""Phases without anything in progress that a reader would have to know about."""

EMPTY_LISTS = (
    *("input_guardrail_results", "output_guardrail_results"),
    *("tool_input_guardrail_results", "tool_output_guardrail_results"),
)
LAST_RESPONSE_MEMBERS = {
    *("pending_session_write", "current_turn_persisted_item_count"),
    "current_response_generated_item_ownership",
}
"""Members about the last response only; they are removed when there is a newer one."""


def export_run_state(run: Run, account: RunTranscript) -> RunState:
    """Export `run` as a state of the newest label; `convo.runstate.relabel` converts it to an older one.

    Raises InputFault if agents share a name or a context value is not JSON, StateFault if a reader could not resume the
    run, InvalidUsage if arguments were edited and the server has the original call, and InvalidRunState if the model
    calls do not fit the run.
    """
    _check_exportable(run, account)
    return write_sticky_decisions(_write_decisions(run_state_from_json(_build_document(run, account)), run.calls), run)


def _check_exportable(run: Run, account: RunTranscript) -> None:
    if run.graph.duplicates and (account.base or not account.convo_only):
        raise InputFault(
            f"several agents are named {run.graph.duplicates[0]!r}, and only the Agents SDK can number them",
            hint="give each agent a unique name",
        )
    unknown = run.calls_at(Stage.OUTCOME_UNKNOWN)
    if unknown and not account.allow_unknown_outcomes:
        raise StateFault(
            f"call {unknown[0].id} was started and its outcome is unknown; the Agents SDK would run it again",
            hint="supply the output of the call, or approve running it again, then resume",
        )
    if run.phase not in EXPORTABLE_PHASES or (run.phase is Phase.CALLING_MODEL and run.has_response):
        raise StateFault(
            f"a run that is {run.phase} cannot be written as a RunState", hint="wait until the run pauses or ends"
        )


# -- decisions since the calls were made -----------------------------------------------------------


def _write_decisions(state: RunState, calls: Iterable[ToolCall]) -> RunState:
    """Write the decisions and edited arguments of pending calls to the state."""
    waiting = {one.id: one for one in state.pending}
    said = [call for call in calls if call.id in waiting and call.stage not in PENDING_STAGES]
    for call in said:
        if call.tool is not None and call.arguments != str(call.item.get("arguments") or ""):
            state = edit_arguments(state, waiting[call.id], call.arguments)
    waiting = {one.id: one for one in state.pending}
    verdicts = sorted(((_verdict_from_call(call), waiting[call.id]) for call in said), key=lambda one: one[0].approve)
    for verdict, alike in groupby(verdicts, itemgetter(0)):
        state = apply_verdict(state, (one for _, one in alike), verdict)
    return state


def _verdict_from_call(call: ToolCall) -> ApprovalVerdict:
    if call.output is None:
        return ApprovalVerdict(approve=True)
    if call.tool is None:
        return ApprovalVerdict(bool(call.output.get("approve")), call.output.get("reason"))
    words = call.output.get("output")
    return ApprovalVerdict(approve=False, message=None if words == NOT_APPROVED else words)


# -- the document ---------------------------------------------------------------------------------


def _build_document(run: Run, account: RunTranscript) -> dict[str, Json]:
    base = relabel_state(account.base, NEWEST_VERSION.label)[0].document if account.base else {}
    told = _model_calls_since_base(base, run.agent, account.model_calls) if base else account.model_calls
    fresh = told[1:] if base else told
    inside = {
        call.id: _export_nested_run(call, call.nested_run, account, base)
        for call in run.calls_at(Stage.NESTED_RUN_PAUSED)
        if call.nested_run
    }
    speaker = GraphAgent(run.graph, run.agent)
    shown = {answerable_call_id(one.value["raw_item"]): one.value for one in iter_interruptions(base)}
    own = [
        shown.get(call.id) or run_items.build_approval_item(speaker, call)
        for call in run.calls
        if is_interruption(call)
    ]
    asked = [*own, *iter_nested_interruptions(inside)]
    answer = fresh[-1].output if fresh else None
    begun = [*inside, *(call.id for call in run.calls_at(Stage.OUTCOME_UNKNOWN))]
    session = _build_run_items(run, told, base, base.get("session_items") or base.get("generated_items") or ())
    summed = account.summarized_calls and max(0, account.summarized_calls - len(account.model_calls) + len(told))
    seen = {} if summed else base
    kept = _build_run_items(run, told[summed:], seen, seen.get("generated_items") or ())
    answers = [
        *(base.get("model_responses") or ()),
        *(build_model_response([dict(item) for item in turn.output], turn.response_id, turn.usage) for turn in fresh),
    ]
    return {
        SCHEMA_VERSION_KEY: NEWEST_VERSION.label,
        **{key: [] for key in EMPTY_LISTS},
        "trace": None,
        **{
            key: value
            for key, value in base.items()
            if key != SCHEMA_VERSION_KEY and not (fresh and key in LAST_RESPONSE_MEMBERS)
        },
        "current_turn": run.turn - (run.phase is Phase.CALLING_MODEL),
        "current_agent": speaker.reference,
        "original_input": seen.get("original_input", [dict(item) for item in account.input_items]),
        "pending_input": [dict(item) for item in run.staged_items],
        "model_responses": answers,
        "context": _build_context(account, base.get("context") or {}, [*session, *own], fresh, begun),
        "tool_use_tracker": {
            get_agent_identity(GraphAgent(run.graph, one).reference): list(names)
            for one, names in run.used_tools.items()
        },
        "max_turns": run.limits.max_turns,
        "no_active_agent_run": True,
        **_build_owner(account, base),
        "generated_prompt_cache_key": base.get("generated_prompt_cache_key"),
        "reasoning_item_id_policy": base.get("reasoning_item_id_policy"),
        "generated_items": [*kept, *own],
        "session_items": [*session, *own],
        **_build_session_indexes(base, session, kept, len(own)),
        "current_step": build_current_step(run, asked),
        "last_model_response": answers[-1] if answers else None,
        "last_processed_response": build_processed_response(run, base, answer, asked, inside),
    }


def _export_nested_run(call: ToolCall, inner: NestedRun, account: RunTranscript, base: Mapping[str, Json]) -> RunState:
    """Export the nested run of a call; its base is the nested state of the base document."""
    there = find_open_nested_states(base).get(call.id)
    first = next((at for at, item in enumerate(inner.items) if not is_user_message(item)), len(inner.items))
    told = split_model_calls(inner.run.graph, inner.run.graph.start, inner.items[first:])
    if told and inner.run.calls:
        told[-1] = replace(told[-1], agent=inner.run.agent)
    within = wrap_document(there.value) if there else None
    return export_run_state(
        inner.run,
        RunTranscript(
            inner.items[:first], told, context_values=account.context_values, base=within, convo_only=account.convo_only
        ),
    )


def _model_calls_since_base(base: Mapping[str, Json], agent: str, told: Sequence[ModelCall]) -> list[ModelCall]:
    """Return the model calls from the base's last response on; a transcript without that response gets it prepended."""
    last = read_last_response(base)
    meant = [digest(item) for item in last]
    same = [at for at, turn in enumerate(told) if turn.output and [digest(item) for item in turn.output] == meant]
    if same:
        return list(told[same[-1] :])
    if told and not told[0].output:
        return [replace(told[0], output=last), *told[1:]]
    return [ModelCall(told[0].agent if told else agent, last), *told]


def _build_run_items(
    run: Run, told: Sequence[ModelCall], base: Mapping[str, Json], there: Iterable[Mapping[str, Any]]
) -> list[Any]:
    """Build the run items of the model calls after those of the base; an output that the base has stays unchanged."""
    items: list[Any] = [item for item in there if item["type"] != APPROVAL_ITEM]
    held = {get_call_id(item["raw_item"]) for item in items if is_client_output(item["raw_item"])}
    for number, turn in enumerate(told):
        speaker = GraphAgent(run.graph, turn.agent)
        items += () if base and not number else run_items.build_response_items(speaker, turn.output)
        after = [item for item in turn.added_items if not (is_client_output(item) and get_call_id(item) in held)]
        items += run_items.build_followup_items(speaker, turn.output, after)
    if told:
        done = [call.output for call in run.calls if call.output and call.has_run and call.id not in held]
        items += run_items.build_followup_items(GraphAgent(run.graph, run.agent), told[-1].output, done)
    return items


def _build_session_indexes(
    base: Mapping[str, Json], session: list[Any], kept: list[Any], waiting: int
) -> dict[str, Json]:
    """Map generated items to session items, and correct the base's indexes of items that a summary repeats.

    The base's indexes counted approval items, which are removed.
    """
    start = len(session) - len(kept)
    same = [start + at if session[start + at] == item else None for at, item in enumerate(kept)]
    before = [item["type"] == APPROVAL_ITEM for item in base.get("session_items") or ()]
    refs = base.get("nested_history_owned_session_item_refs") or ()
    return {
        "generated_session_item_indexes": [*same, *range(len(session), len(session) + waiting)],
        "nested_history_owned_session_item_refs": [
            {**ref, "index": ref["index"] - sum(before[: ref["index"]])} for ref in refs
        ],
    }


def _build_context(
    account: RunTranscript,
    base: Mapping[str, Any],
    items: list[Any],
    fresh: Sequence[ModelCall],
    begun: Iterable[str],
) -> dict[str, Json]:
    done = {str(get_call_id(item["raw_item"])) for item in items if is_client_output(item["raw_item"])}
    try:
        ledger = run_items.build_ledger(items, done)
    except ValueError as wrong:
        raise InvalidRunState("$.context.tool_invocations", f"lacks the entry of a call: {wrong}") from wrong
    for call, entry in (base.get("tool_invocations") or {}).items():
        over = {"executed": True, "completed": True} if call in done else {}
        ledger[call] = {**entry, **over}
    for call in begun:
        ledger[call] = {**ledger[call], "executed": True}
    return {
        "approvals": {},
        **base,
        "usage": total_usage(base.get("usage"), [turn.usage for turn in fresh]),
        "tool_invocations": ledger,
        **build_context_members(account.context_values, base),
    }


def _build_owner(account: RunTranscript, base: Mapping[str, Json]) -> dict[str, Json]:
    owner = STRATEGIES[account.strategy]
    given = base.get("previous_response_id") is not None and not base.get("auto_previous_response_id")
    return {
        "conversation_id": account.handle if owner.uses_conversation else None,
        "previous_response_id": account.handle if owner.uses_response else None,
        "auto_previous_response_id": owner.uses_response and not given,
    }


UNSUPPORTED_ACTION_LISTS = (
    *("computer_actions", "custom_tool_actions", "local_shell_actions", "shell_actions", "apply_patch_actions"),
)


def is_interruption(call: ToolCall) -> bool:
    """Return whether the state lists this call as pending; a rejected call is listed too, with its decision."""
    return call.stage not in (Stage.HANDOFF, Stage.NESTED_RUN_PAUSED) and not call.has_run


def build_current_step(run: Run, waiting: list[Json]) -> Json:
    if run.phase is Phase.DONE:
        return None
    if not run.calls:
        return {"type": "next_step_run_again"}
    data = {"interruptions": waiting, "response_accepted": False, "llm_end_hooks_started": True}
    return {"type": INTERRUPTION_STEP, "data": data}


def iter_nested_interruptions(inside: Mapping[str, RunState]) -> Iterator[Json]:
    """Iterate over the interruptions of nested states, which are interruptions of the outer run too."""
    for state in inside.values():
        yield from (one.value for one in iter_interruptions(state.document))


def build_processed_response(
    run: Run,
    base: Mapping[str, Json],
    answer: Sequence[Item] | None,
    approval_items: list[Json],
    nested_states: Mapping[str, RunState],
) -> Json:
    """Build the last response as processed by the SDK, with its calls as actions.

    answer:  its items; None if it is still the base's last response
    """
    if not run.calls:
        return None
    if answer is None:
        last = base["last_processed_response"]
        return {
            **last,
            "functions": _build_function_actions(run, last.get("functions") or (), nested_states),
            "interruptions": approval_items,
        }
    over = [call for call in run.calls if call.stage is Stage.HANDOFF]
    return {
        "new_items": list(run_items.build_response_items(GraphAgent(run.graph, run.agent), answer)),
        "tools_used": [call.tool.title if call.tool else call.lookup[-1] for call in run.calls],
        "functions": _build_function_actions(
            run, (run_items.build_function_action(call) for call in run.calls if call.tool), nested_states
        ),
        **{key: [] for key in UNSUPPORTED_ACTION_LISTS},
        "handoffs": [{"tool_call": dict(call.item), "handoff": {"tool_name": call.lookup[-1]}} for call in over],
        "mcp_approval_requests": [run_items.build_mcp_request(call) for call in run.calls if call.lookup[0] == "mcp"],
        "interruptions": approval_items,
        "mcp_tool_bindings": {},
    }


def _build_function_actions(
    run: Run, actions: Iterable[Mapping[str, Json]], inside: Mapping[str, RunState]
) -> list[Json]:
    """Build the actions of function calls, with the current nested states."""
    made_of: list[Json] = []
    calls = {call.id: call for call in run.calls}
    for action in actions:
        call = calls.get(str(get_call_id(action["tool_call"])))
        kept = {key: value for key, value in action.items() if key != "agent_run_state" or call is None}
        within = {"agent_run_state": inside[call.id].document} if call and call.id in inside else {}
        made_of.append({**kept, **within})
    return made_of


TOKEN_FIELDS = ("input_tokens", "output_tokens", "total_tokens")
TOKEN_DETAILS = {
    "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}

UsageJson = Mapping[str, Any]


def build_model_response(output: list[Json], response_id: str | None, usage_json: UsageJson | None) -> dict[str, Json]:
    """Build the entry of one response."""
    return {
        "usage": _count_usage([usage_json], entries=False),
        "output": output,
        "response_id": response_id,
        "request_id": None,
    }


def total_usage(base_usage: UsageJson | None, answers: Iterable[UsageJson | None]) -> dict[str, Json]:
    """Sum the usage of the base and of the run's own responses."""
    return (
        _add_usage(base_usage, _count_usage(list(answers), entries=True))
        if base_usage
        else _count_usage(list(answers), entries=True)
    )


def _count_usage(answers: list[UsageJson | None], *, entries: bool) -> dict[str, Json]:
    said = [one for one in answers if one]
    return {
        "requests": len(answers),
        **{key: sum(one.get(key) or 0 for one in said) for key in TOKEN_FIELDS},
        **{name: [_sum_details(said, name)] for name in TOKEN_DETAILS},
        "request_usage_entries": [_build_usage_entry(one) for one in said] if entries else [],
    }


def _sum_details(said: Iterable[UsageJson], name: str) -> dict[str, int]:
    counted = dict(TOKEN_DETAILS[name])
    for one in said:
        for key, value in (one.get(name) or {}).items():
            counted[key] = counted.get(key, 0) + (value if isinstance(value, int) else 0)
    return counted


def _build_usage_entry(one: UsageJson) -> dict[str, Json]:
    return {
        **{key: one.get(key) or 0 for key in TOKEN_FIELDS},
        **{name: _sum_details([one], name) for name in TOKEN_DETAILS},
    }


def _add_usage(before: UsageJson, more: dict[str, Json]) -> dict[str, Json]:
    """Add two usages; other members of the first one stay."""
    counts = {key: (before.get(key) or 0) + more[key] for key in ("requests", *TOKEN_FIELDS)}
    details = {name: [_sum_details([*(before.get(name) or ()), *more[name]], name)] for name in TOKEN_DETAILS}
    entries = [*(before.get("request_usage_entries") or ()), *more["request_usage_entries"]]
    return {**before, **counts, **details, "request_usage_entries": entries}

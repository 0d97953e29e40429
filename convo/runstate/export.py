"""Export a run of convo as a RunState of the newest label, for the Agents SDK to resume.

Combines the run with its transcript (history, model calls, owner) and validates the result like any other state.
If the run was imported, `RunTranscript.base` is the state it came from, and members that convo does not model are kept.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from convo.errors import InputFault, InvalidRunState, InvalidUsage, StateFault
from convo.history.canonical import digest
from convo.history.items import (
    MCP_APPROVAL_REQUEST,
    Item,
    Json,
    get_call_id,
    is_client_output,
    is_user_message,
    item_type,
)
from convo.history.records import Strategy
from convo.runs.machine import complete_call
from convo.runs.state import PENDING_STAGES, NestedRun, Phase, Run, Stage, ToolCall
from convo.runstate import run_items
from convo.runstate.agents import get_agent_identity, write_sticky_decisions
from convo.runstate.approvals import apply_verdict, edit_arguments
from convo.runstate.calls import (
    answerable_call_id,
    find_last_outputs,
    find_open_nested_states,
    read_last_response,
)
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
from convo.runstate.run_state import RunState, wrap_document
from convo.runstate.versions import NEWEST_VERSION
from convo.strategies.strategy import STRATEGIES
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


def export_run_state(run: Run, transcript: RunTranscript) -> RunState:
    """Export `run` as a state of the newest label; `convo.runstate.relabel` converts it to an older one.

    Raises InputFault if agents share a name or a context value is not JSON, StateFault if a reader could not resume the
    run, InvalidUsage if arguments were edited and the server has the original call, and InvalidRunState if the model
    calls do not fit the run.
    """
    _check_exportable(run, transcript)
    state = run_state_from_json(_build_document(run, transcript))
    return _write_decisions(
        write_sticky_decisions(state, run), run.calls
    )  # a call's own decision overrides a sticky one


def check_reexportable(run: Run, base: RunState, values: Any) -> None:
    """Check that a run that was just imported from `base` can be exported again, before and after its tools run.

    Members that convo does not model are kept unchanged, so a state that the import accepts may still be impossible to
    export. A run that convo can store but not export is not refused.

    Raises InvalidRunState.
    """
    transcript = RunTranscript(
        (), (), Strategy.SESSION, context_values=values, base=base, convo_only=True, allow_unknown_outcomes=True
    )
    runnable = (call for call in run.calls if call.tool and call.stage in (Stage.PENDING, Stage.READY))
    # The approved tools ran, and then the next state could not be written.
    after_tools = run
    for call in runnable:
        after_tools = after_tools.replace_call(complete_call(call, ""))
    try:
        export_run_state(run, transcript)
        export_run_state(after_tools, transcript)
    except InvalidRunState as error:
        problem = error.message.removeprefix(f"{error.path} ")
        raise InvalidRunState(error.path, f"{problem}; so this state could not be written again") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        problem = f"has a member of an unknown form, so it could not be written again ({type(error).__name__}: {error})"
        raise InvalidRunState("$", problem) from error
    except (InputFault, StateFault, InvalidUsage):
        return


def _check_exportable(run: Run, transcript: RunTranscript) -> None:
    if run.graph.duplicates and (transcript.base or not transcript.convo_only):
        raise InputFault(
            f"several agents are named {run.graph.duplicates[0]!r}, and only the Agents SDK can number them",
            hint="give each agent a unique name",
        )
    unknown = run.calls_at(Stage.OUTCOME_UNKNOWN)
    if unknown and not transcript.allow_unknown_outcomes:
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
    pending = {pending_call.id: pending_call for pending_call in state.pending}
    decided = [call for call in calls if call.id in pending and call.stage not in PENDING_STAGES]
    for call in decided:
        if call.tool is not None and call.arguments != str(call.item.get("arguments") or ""):
            state = edit_arguments(state, pending[call.id], call.arguments)
    pending = {pending_call.id: pending_call for pending_call in state.pending}
    verdicts = sorted(
        ((_verdict_from_call(call), pending[call.id]) for call in decided),
        key=lambda pair: pair[0].approve,
    )
    for verdict, group in groupby(verdicts, itemgetter(0)):
        state = apply_verdict(state, (pending_call for _, pending_call in group), verdict)
    return state


def _verdict_from_call(call: ToolCall) -> ApprovalVerdict:
    if call.output is None:
        return ApprovalVerdict(approve=True)
    if call.tool is None:
        return ApprovalVerdict(bool(call.output.get("approve")), call.output.get("reason"))
    text = call.output.get("output")
    return ApprovalVerdict(approve=False, message=None if text == NOT_APPROVED else text)


# -- the document ---------------------------------------------------------------------------------


def _build_document(run: Run, transcript: RunTranscript) -> dict[str, Json]:
    base = relabel_state(transcript.base, NEWEST_VERSION.label)[0].document if transcript.base else {}
    model_calls = _model_calls_since_base(base, run.agent, transcript.model_calls) if base else transcript.model_calls
    new_calls = model_calls[1:] if base else model_calls
    nested_states = {
        call.id: _export_nested_run(call, call.nested_run, transcript, base)
        for call in run.calls_at(Stage.NESTED_RUN_PAUSED)
        if call.nested_run
    }
    speaker = GraphAgent(run.graph, run.agent)
    approval_items = {answerable_call_id(match.value["raw_item"]): match.value for match in iter_interruptions(base)}
    interruptions = [
        approval_items.get(call.id) or run_items.build_approval_item(speaker, call)
        for call in run.calls
        if is_interruption(call)
    ]
    all_interruptions = [*interruptions, *iter_nested_interruptions(nested_states)]
    last_output = new_calls[-1].output if new_calls else None
    started_ids = [*nested_states, *(call.id for call in run.calls_at(Stage.OUTCOME_UNKNOWN))]
    session_items = _build_run_items(
        run, model_calls, base, base.get("session_items") or base.get("generated_items") or ()
    )
    summarized_count = transcript.summarized_calls and max(
        0, transcript.summarized_calls - len(transcript.model_calls) + len(model_calls)
    )
    visible_base = {} if summarized_count else base
    generated_items = _build_run_items(
        run, model_calls[summarized_count:], visible_base, visible_base.get("generated_items") or ()
    )
    responses = [
        *(base.get("model_responses") or ()),
        *(
            build_model_response([dict(item) for item in model_call.output], model_call.response_id, model_call.usage)
            for model_call in new_calls
        ),
    ]
    return {
        SCHEMA_VERSION_KEY: NEWEST_VERSION.label,
        **{key: [] for key in EMPTY_LISTS},
        "trace": None,
        **{
            key: value
            for key, value in base.items()
            if key != SCHEMA_VERSION_KEY and not (new_calls and key in LAST_RESPONSE_MEMBERS)
        },
        "current_turn": run.turn - (run.phase is Phase.CALLING_MODEL),
        "current_agent": speaker.reference,
        "original_input": visible_base.get("original_input", [dict(item) for item in transcript.input_items]),
        "pending_input": [dict(item) for item in run.staged_items],
        "model_responses": responses,
        "context": _build_context(
            transcript, base.get("context") or {}, [*session_items, *interruptions], new_calls, started_ids
        ),
        "tool_use_tracker": {
            get_agent_identity(GraphAgent(run.graph, identity).reference): list(names)
            for identity, names in run.used_tools.items()
        },
        "max_turns": run.limits.max_turns,
        "no_active_agent_run": True,
        **_build_owner(transcript, base),
        "generated_prompt_cache_key": base.get("generated_prompt_cache_key"),
        "reasoning_item_id_policy": base.get("reasoning_item_id_policy"),
        "generated_items": [*generated_items, *interruptions],
        "session_items": [*session_items, *interruptions],
        **_build_session_indexes(base, session_items, generated_items, len(interruptions)),
        "current_step": build_current_step(run, all_interruptions),
        "last_model_response": responses[-1] if responses else None,
        "last_processed_response": build_processed_response(run, base, last_output, all_interruptions, nested_states),
    }


def _export_nested_run(
    call: ToolCall, nested_run: NestedRun, transcript: RunTranscript, base: Mapping[str, Json]
) -> RunState:
    """Export the nested run of a call; its base is the nested state of the base document."""
    match = find_open_nested_states(base).get(call.id)
    input_count = next(
        (index for index, item in enumerate(nested_run.items) if not is_user_message(item)), len(nested_run.items)
    )
    model_calls = split_model_calls(nested_run.run.graph, nested_run.run.graph.start, nested_run.items[input_count:])
    if model_calls and nested_run.run.calls:
        model_calls[-1] = replace(model_calls[-1], agent=nested_run.run.agent)
    nested_base = wrap_document(match.value) if match else None
    return export_run_state(
        nested_run.run,
        RunTranscript(
            nested_run.items[:input_count],
            model_calls,
            context_values=transcript.context_values,
            context_serializer=transcript.context_serializer,
            base=nested_base,
            convo_only=transcript.convo_only,
        ),
    )


def _model_calls_since_base(base: Mapping[str, Json], agent: str, model_calls: Sequence[ModelCall]) -> list[ModelCall]:
    """Return the model calls from the base's last response on; a transcript without that response gets it prepended."""
    last_output = read_last_response(base)
    last_digests = [digest(item) for item in last_output]
    matches = [
        index
        for index, model_call in enumerate(model_calls)
        if model_call.output and [digest(item) for item in model_call.output] == last_digests
    ]
    if matches:
        return list(model_calls[matches[-1] :])
    if model_calls and not model_calls[0].output:
        return [replace(model_calls[0], output=last_output), *model_calls[1:]]
    return [ModelCall(model_calls[0].agent if model_calls else agent, last_output), *model_calls]


def _build_run_items(
    run: Run, model_calls: Sequence[ModelCall], base: Mapping[str, Json], base_items: Iterable[Mapping[str, Any]]
) -> list[Any]:
    """Build the run items of the model calls after those of the base; an output that the base has stays unchanged."""
    items: list[Any] = [item for item in base_items if item["type"] != APPROVAL_ITEM]
    base_ids = set(find_last_outputs(items).values()) if base else set()  # of outputs of the base's last response
    answered_ids: set[str] = set()
    for index, model_call in enumerate(model_calls):
        speaker = GraphAgent(run.graph, model_call.agent)
        items += () if base and not index else run_items.build_response_items(speaker, model_call.output)
        answered_ids = set() if index else base_ids
        added_items = [
            item
            for item in model_call.added_items
            if not (is_client_output(item) and get_call_id(item) in answered_ids)
        ]
        items += run_items.build_followup_items(speaker, model_call.output, added_items)
    if model_calls:
        outputs = [call.output for call in run.calls if call.output and call.has_run and call.id not in answered_ids]
        items += run_items.build_followup_items(GraphAgent(run.graph, run.agent), model_calls[-1].output, outputs)
    return items


def _build_session_indexes(
    base: Mapping[str, Json], session_items: list[Any], generated_items: list[Any], pending_count: int
) -> dict[str, Json]:
    """Map generated items to session items, and correct the base's indexes of items that a summary repeats.

    The base's indexes counted approval items, which are removed.
    """
    start = len(session_items) - len(generated_items)
    indexes = [
        start + index if session_items[start + index] == item else None for index, item in enumerate(generated_items)
    ]
    are_approval_items = [item["type"] == APPROVAL_ITEM for item in base.get("session_items") or ()]
    refs = base.get("nested_history_owned_session_item_refs") or ()
    return {
        "generated_session_item_indexes": [*indexes, *range(len(session_items), len(session_items) + pending_count)],
        "nested_history_owned_session_item_refs": [
            {**ref, "index": ref["index"] - sum(are_approval_items[: ref["index"]])} for ref in refs
        ],
    }


def _build_context(
    transcript: RunTranscript,
    base: Mapping[str, Any],
    items: list[Any],
    new_calls: Sequence[ModelCall],
    started_ids: Iterable[str],
) -> dict[str, Json]:
    outputs = find_last_outputs(items)
    completed_ids = {call_id for index, call_id in outputs.items() if is_client_output(items[index]["raw_item"])}
    try:
        ledger = run_items.build_ledger(items, completed_ids)
    except ValueError as error:
        raise InvalidRunState("$.context.tool_invocations", f"lacks the entry of a call: {error}") from error
    for call_id, entry in (base.get("tool_invocations") or {}).items():
        flags = {"executed": True, "completed": True} if call_id in completed_ids else {}
        ledger[call_id] = {**entry, **flags}
    for call_id in started_ids:
        ledger[call_id] = {**ledger[call_id], "executed": True}
    return {
        "approvals": {},
        **base,
        "usage": total_usage(base.get("usage"), [model_call.usage for model_call in new_calls]),
        "tool_invocations": ledger,
        **build_context_members(transcript.context_values, base, transcript.context_serializer),
    }


def _build_owner(transcript: RunTranscript, base: Mapping[str, Json]) -> dict[str, Json]:
    strategy = STRATEGIES[transcript.strategy]
    is_explicit = base.get("previous_response_id") is not None and not base.get("auto_previous_response_id")
    return {
        "conversation_id": transcript.handle if strategy.uses_conversation else None,
        "previous_response_id": transcript.handle if strategy.uses_response else None,
        "auto_previous_response_id": strategy.uses_response and not is_explicit,
    }


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


def iter_nested_interruptions(nested_states: Mapping[str, RunState]) -> Iterator[Json]:
    """Iterate over the interruptions of nested states, which are interruptions of the outer run too."""
    for state in nested_states.values():
        yield from (match.value for match in iter_interruptions(state.document))


def build_processed_response(
    run: Run,
    base: Mapping[str, Json],
    output: Sequence[Item] | None,
    approval_items: list[Json],
    nested_states: Mapping[str, RunState],
) -> Json:
    """Build the last response as processed by the SDK, with its calls as actions.

    output:  its items; None if it is still the base's last response
    """
    if not run.calls:
        return None
    if output is None:
        last = base["last_processed_response"]
        return {
            **last,
            "functions": _build_function_actions(run, last.get("functions") or (), nested_states),
            "interruptions": approval_items,
        }
    handoffs = [call for call in run.calls if call.stage is Stage.HANDOFF]
    return {
        "new_items": list(run_items.build_response_items(GraphAgent(run.graph, run.agent), output)),
        "tools_used": [call.tool.title if call.tool else call.lookup[-1] for call in run.calls],
        "functions": _build_function_actions(
            run,
            (run_items.build_function_action(call) for call in run.calls if call.tool and not call.tool.definition),
            nested_states,
        ),
        **{
            f"{kind}_actions": [
                {"tool_call": dict(call.item), kind: run_items.describe_tool(call.tool)}
                for call in run.calls
                if call.tool and item_type(call.item) == f"{kind}_call"
            ]
            for kind in ("computer", "custom_tool", "local_shell", "shell", "apply_patch")
        },
        "handoffs": [{"tool_call": dict(call.item), "handoff": {"tool_name": call.lookup[-1]}} for call in handoffs],
        "mcp_approval_requests": [
            run_items.build_mcp_request(call) for call in run.calls if item_type(call.item) == MCP_APPROVAL_REQUEST
        ],
        "interruptions": approval_items,
        "mcp_tool_bindings": {call.id: list(call.tool.origin) for call in run.calls if call.tool and call.tool.origin},
    }


def _build_function_actions(
    run: Run, actions: Iterable[Mapping[str, Json]], nested_states: Mapping[str, RunState]
) -> list[Json]:
    """Build the actions of function calls, with the current nested states."""
    built_actions: list[Json] = []
    calls = {call.id: call for call in run.calls}
    for action in actions:
        call = calls.get(str(get_call_id(action["tool_call"])))
        members = {key: value for key, value in action.items() if key != "agent_run_state" or call is None}
        nested_state = {"agent_run_state": nested_states[call.id].document} if call and call.id in nested_states else {}
        built_actions.append({**members, **nested_state})
    return built_actions


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


def total_usage(base_usage: UsageJson | None, response_usages: Iterable[UsageJson | None]) -> dict[str, Json]:
    """Sum the usage of the base and of the run's own responses."""
    return (
        _add_usage(base_usage, _count_usage(list(response_usages), entries=True))
        if base_usage
        else _count_usage(list(response_usages), entries=True)
    )


def _count_usage(usages: list[UsageJson | None], *, entries: bool) -> dict[str, Json]:
    reported = [usage for usage in usages if usage]
    return {
        "requests": len(usages),
        **{key: sum(usage.get(key) or 0 for usage in reported) for key in TOKEN_FIELDS},
        **{name: [_sum_details(reported, name)] for name in TOKEN_DETAILS},
        "request_usage_entries": [_build_usage_entry(usage) for usage in reported] if entries else [],
    }


def _sum_details(usages: Iterable[UsageJson], name: str) -> dict[str, int]:
    """Sum the details of usages: those of an endpoint are an object, those of a RunState a list of objects."""
    totals = dict(TOKEN_DETAILS[name])
    for usage in usages:
        details = usage.get(name)
        for part in details if isinstance(details, list) else [details]:
            for key, value in part.items() if isinstance(part, Mapping) else ():
                totals[key] = totals.get(key, 0) + (value if isinstance(value, int) else 0)
    return totals


def _build_usage_entry(usage: UsageJson) -> dict[str, Json]:
    return {
        **{key: usage.get(key) or 0 for key in TOKEN_FIELDS},
        **{name: _sum_details([usage], name) for name in TOKEN_DETAILS},
    }


def _add_usage(base_usage: UsageJson, addition: dict[str, Json]) -> dict[str, Json]:
    """Add two usages; other members of the first one stay."""
    counts = {key: (base_usage.get(key) or 0) + addition[key] for key in ("requests", *TOKEN_FIELDS)}
    details = {name: [_sum_details([base_usage, addition], name)] for name in TOKEN_DETAILS}
    entries = [*(base_usage.get("request_usage_entries") or ()), *addition["request_usage_entries"]]
    return {**base_usage, **counts, **details, "request_usage_entries": entries}

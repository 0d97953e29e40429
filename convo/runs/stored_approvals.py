"""List and decide the pending approvals of a stored run without loading its agents.

Reads and changes the JSON document of `runs.serialize` only, so it works on a machine that does not have the
agents' code. Whether edited arguments fit the tool's schema is checked when the run is resumed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from convo.errors import IllegalTransition, InputFault, InvalidRunState, UnknownSchema
from convo.history.items import Item, Json
from convo.runs.machine import build_function_call_output, build_mcp_approval_response, build_rejection_output
from convo.runs.serialize import (
    CHANGED_CODE_HINT,
    KNOWN_DOCUMENT_VERSIONS,
    PHASE_BY_WORD,
    PHASE_WORDS,
    RUN_DOCUMENT_VERSION,
    STAGE_BY_WORD,
    STAGE_WORDS,
)
from convo.runs.state import PENDING_STAGES, ApprovalDecided, Phase, Stage, ToolCall, ToolOutputSupplied

RunDocument = Mapping[str, Any]

PENDING_STAGE_WORDS = tuple(STAGE_WORDS[stage] for stage in PENDING_STAGES)
PENDING_WORD, OUTCOME_UNKNOWN_WORD = STAGE_WORDS[Stage.PENDING], STAGE_WORDS[Stage.OUTCOME_UNKNOWN]
READY_WORD, DONE_WORD, NESTED_RUN_WORD = (
    STAGE_WORDS[Stage.READY],
    STAGE_WORDS[Stage.DONE],
    STAGE_WORDS[Stage.NESTED_RUN_PAUSED],
)
PAUSED_WORD = PHASE_WORDS[Phase.PAUSED]


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A tool call that needs a person's decision.

    tool:             the name shown to a person: `refund`, `crm.refund`
    arguments:        as the model wrote them, or as they were edited
    agent:            the identity of the agent that made the call
    outcome_unknown:  the call had started, and its outcome is unknown
    is_hosted:        the provider runs the tool
    approved:         decided at this pause and not performed yet: True or False; None: undecided
    turns:            of a stored run: the current turns of the runs that contain the call, outermost first. A model
                      may use the id of a call again in a later turn
    aliases:          of a RunState: other names of the tool that a decision may use
    """

    call_id: str
    tool: str
    arguments: str
    agent: str
    outcome_unknown: bool
    is_hosted: bool
    approved: bool | None = None
    turns: tuple[int, ...] = field(default=(), compare=False)
    aliases: tuple[str, ...] = field(default=(), compare=False)


def list_pending_approvals(document: RunDocument) -> tuple[PendingApproval, ...]:
    """Return the undecided calls of a stored run; none unless it is paused. Raises UnknownSchema, InvalidRunState."""
    return tuple(call for call in list_decidable_approvals(document) if call.approved is None)


def list_decidable_approvals(document: RunDocument) -> tuple[PendingApproval, ...]:
    """Return the pending calls and those decided at this pause, whose decision can still be changed.

    Raises the errors of `list_pending_approvals`.
    """
    return _list_decidable(document, ())


def _list_decidable(document: RunDocument, outer_turns: tuple[int, ...]) -> tuple[PendingApproval, ...]:
    """Return the decidable calls of a run; `outer_turns` are the turns of the runs that contain it, outermost first."""
    if document.get("version") is None:
        raise InvalidRunState("$.version", "is missing", hint=CHANGED_CODE_HINT)
    if document["version"] != RUN_DOCUMENT_VERSION:
        raise UnknownSchema("$.version", repr(document["version"])[:20], KNOWN_DOCUMENT_VERSIONS)
    try:
        if document["phase"] != PAUSED_WORD:
            return ()
        return tuple(_iter_decidable(document, outer_turns))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InvalidRunState("$", f"is not a complete run ({error!r})", hint=CHANGED_CODE_HINT) from error


def _iter_decidable(document: RunDocument, outer_turns: tuple[int, ...]) -> Iterator[PendingApproval]:
    """Iterate over the decidable calls of a paused run, with those of nested runs."""
    batch, turns = document["batch"], (*outer_turns, document["turn"])
    for call in batch:
        if call["stage"] in PENDING_STAGE_WORDS or _is_decided(call):
            yield _parse_pending_approval(call, document["agent"], turns)
        elif call["stage"] == NESTED_RUN_WORD:
            yield from _list_decidable(call["inner"]["run"], turns)


def _is_decided(call: RunDocument) -> bool:
    """Return `ToolCall.is_decided` of a call in a document."""
    return call.get("verdict") is not None and not call["ran"] and call["stage"] in (READY_WORD, DONE_WORD)


def apply_decisions(document: RunDocument, events: Sequence[ApprovalDecided | ToolOutputSupplied]) -> dict[str, Json]:
    """Return `document` with every decision applied; no tool runs.

    Raises IllegalTransition if the run is not paused or a call is not pending, InputFault for arguments that are not a
    JSON object or cannot be edited, and the errors of `list_pending_approvals`.
    """
    list_pending_approvals(document)  # raises for a document of another version or form
    changed = dict(document)
    for event in events:
        changed = _apply_event(changed, event)
    return changed


def _apply_event(document: dict[str, Json], event: ApprovalDecided | ToolOutputSupplied) -> dict[str, Json]:
    """Apply one decision, also to a call of a nested run."""
    call = _find_enclosing_call(document, event.call_id)
    if call is not None:
        inner = {**call["inner"], "run": _apply_event(call["inner"]["run"], event)}
        return _replace_call(document, {**call, "inner": inner})
    return (
        _apply_supplied_output(document, event)
        if isinstance(event, ToolOutputSupplied)
        else _apply_decision(document, event)
    )


def match_decisions(
    document: RunDocument, changed: RunDocument, events: Sequence[ApprovalDecided]
) -> list[tuple[PendingApproval, ApprovalDecided]]:
    """Return the calls that `events` decided, each as it was decided and with its event.

    changed:  the result of `apply_decisions`. A sticky decision also decided the other pending calls of its tool.
    """
    calls, remaining = list_decidable_approvals(document), list(list_decidable_approvals(changed))
    event_by_id = {event.call_id: event for event in events}
    sticky_events = {
        (call.agent, call.tool): event_by_id[call.call_id]
        for call in calls
        if call.call_id in event_by_id and event_by_id[call.call_id].always
    }
    decided = []
    for call in calls:
        key = (call.call_id, call.agent, call.tool)
        current = next((one for one in remaining if (one.call_id, one.agent, one.tool) == key), None)
        if current:
            remaining.remove(current)
        is_changed = current is None or (current.approved, current.arguments) != (call.approved, call.arguments)
        is_unique = sum(one.call_id == call.call_id for one in calls) == 1
        event = event_by_id.get(call.call_id) or sticky_events.get((call.agent, call.tool))
        if event and (is_changed or (is_unique and event.call_id == call.call_id)):
            arguments = call.arguments if event.arguments is None else event.arguments
            decided.append((replace(call, arguments=arguments), event))
    return decided


def _find_enclosing_call(document: RunDocument, call_id: str) -> RunDocument | None:
    """Return the call whose nested run has the call `call_id` pending or decided; None if no nested run has it.

    Raises IllegalTransition if several nested runs have decided calls with this id.
    """
    direct_call = next((call for call in document["batch"] if call["id"] == call_id), None)
    if direct_call and direct_call["stage"] in PENDING_STAGE_WORDS:
        return None
    paused_calls = [call for call in document["batch"] if call["stage"] == NESTED_RUN_WORD]
    pending_matches = (
        call
        for call in paused_calls
        if any(call_id == approval.call_id for approval in list_pending_approvals(call["inner"]["run"]))
    )
    match = next(pending_matches, None)
    if match or direct_call:
        return match
    decided_matches = [
        call
        for call in paused_calls
        if any(call_id == approval.call_id for approval in list_decidable_approvals(call["inner"]["run"]))
    ]
    if len(decided_matches) > 1:
        reason = f"call {call_id} is ambiguous: {len(decided_matches)} runs have a decided call with this id"
        raise IllegalTransition(PHASE_BY_WORD[document["phase"]], "ApprovalDecided", reason)
    return decided_matches[0] if decided_matches else None


def pending_approval_from_call(call: ToolCall, agent: str) -> PendingApproval:
    """Build a PendingApproval from a call of a loaded run."""
    outcome_unknown = call.stage is Stage.OUTCOME_UNKNOWN
    approved = call.approved if call.is_decided else None
    is_hosted = call.tool is None
    return PendingApproval(
        call.id,
        format_lookup(call.lookup),
        call.arguments,
        agent,
        outcome_unknown=outcome_unknown,
        is_hosted=is_hosted,
        approved=approved,
    )


def _parse_pending_approval(call: RunDocument, agent: str, turns: tuple[int, ...]) -> PendingApproval:
    is_hosted = call["tool"] is None
    for text in (call["id"], call["arguments"], agent, *call["lookup"]):
        if not isinstance(text, str):
            raise TypeError(f"a call has {type(text).__name__} in place of a text")
    return PendingApproval(
        call_id=call["id"],
        tool=format_lookup(call["lookup"]),
        arguments=call["arguments"],
        agent=agent,
        outcome_unknown=call["stage"] == OUTCOME_UNKNOWN_WORD,
        is_hosted=is_hosted,
        approved=call["verdict"] if _is_decided(call) else None,
        turns=turns,
    )


def format_lookup(lookup: Sequence[str]) -> str:
    """Return the dotted name of a tool from its lookup, without the kind of the lookup."""
    return ".".join(lookup[1:])


def _apply_supplied_output(document: dict[str, Json], event: ToolOutputSupplied) -> dict[str, Json]:
    call = _require_pending_call(document, event.call_id, event, (OUTCOME_UNKNOWN_WORD,))
    completed = {
        **call,
        "stage": DONE_WORD,
        "output": build_function_call_output(_to_tool_call(call), event.output),
        "ran": True,
    }
    return _replace_call(document, completed)


def _apply_decision(document: dict[str, Json], event: ApprovalDecided) -> dict[str, Json]:
    decided = (
        candidate for candidate in document["batch"] if candidate["id"] == event.call_id and _is_decided(candidate)
    )
    call = next(decided, None) or _require_pending_call(document, event.call_id, event, PENDING_STAGE_WORDS)
    _check_arguments(call, event)
    document = _replace_call(document, _decide_call(call, event))
    if not event.always:
        return document
    for other in document["batch"]:
        if other["stage"] == PENDING_WORD and other["lookup"] == call["lookup"]:
            document = _replace_call(document, _decide_call(other, event))
    return {
        **document,
        "always": [*_other_sticky_decisions(document, call), _build_sticky_decision(document, call, event)],
    }


def _check_arguments(call: RunDocument, event: ApprovalDecided) -> None:
    if event.arguments is None:
        return
    if not event.approve or event.always or call["tool"] is None:
        raise InputFault(
            "arguments can be changed only for one approved function call", hint="approve the call without --always"
        )
    try:
        is_object = isinstance(json.loads(event.arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise InputFault(
            f"the arguments for {event.call_id} are not a JSON object", hint="pass a JSON object; nothing was changed"
        )


def _decide_call(call: RunDocument, event: ApprovalDecided) -> dict[str, Json]:
    call = {key: value for key, value in call.items() if key != "verdict"}
    if call["stage"] != OUTCOME_UNKNOWN_WORD:
        call["verdict"] = event.approve
    if call["tool"] is None:
        response = build_mcp_approval_response(
            _to_tool_call(call), event.approve, None if event.approve else event.message
        )
        return {**call, "stage": DONE_WORD, "output": response}
    if not event.approve:
        return {**call, "stage": DONE_WORD, "output": build_rejection_output(_to_tool_call(call), event.message)}
    arguments = call["arguments"] if event.arguments is None else event.arguments
    return {**call, "stage": READY_WORD, "arguments": arguments, "output": None}


def _other_sticky_decisions(document: RunDocument, call: RunDocument) -> list[Json]:
    tool_key = document["agent"], call["lookup"]
    return [decision for decision in document["always"] if (decision["agent"], decision["lookup"]) != tool_key]


def _build_sticky_decision(document: RunDocument, call: RunDocument, event: ApprovalDecided) -> dict[str, Json]:
    decision = {"agent": document["agent"], "lookup": call["lookup"], "tool": call["tool"], "approve": event.approve}
    return decision if event.approve or event.message is None else {**decision, "message": event.message}


def _require_pending_call(document: RunDocument, call_id: str, event: object, stages: Sequence[str]) -> RunDocument:
    match = next((call for call in document["batch"] if call["id"] == call_id), None)
    if match is None or document["phase"] != PAUSED_WORD or match["stage"] not in stages:
        reason = f"there is no call {call_id}" if match is None else f"call {call_id}: {STAGE_BY_WORD[match['stage']]}"
        raise IllegalTransition(PHASE_BY_WORD[document["phase"]], type(event).__name__, reason)
    return match  # type: ignore[no-any-return]


def _replace_call(document: dict[str, Json], call: RunDocument) -> dict[str, Json]:
    batch = [dict(call) if other["id"] == call["id"] else other for other in document["batch"]]
    return {**document, "batch": batch}


def _to_tool_call(call: RunDocument) -> ToolCall:
    """Build a ToolCall with only the fields that its output items need."""
    item: Item = call["item"]
    return ToolCall(item, call["id"], STAGE_BY_WORD[call["stage"]], tuple(call["lookup"]), arguments=call["arguments"])

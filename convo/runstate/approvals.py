"""Approve, reject and edit the pending calls of a RunState document.

A decision is written where readers of the document's own label look for it. Edited arguments replace every copy of
the call and its ledger entry. A decision that the label cannot express raises InvalidUsage before anything changes.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from convo.errors import InvalidRunState, InvalidUsage, NotFound
from convo.history.items import Item, Json
from convo.runstate.document import (
    PathSteps,
    format_path,
    get_path,
    iter_path_matches,
    parse_path_pattern,
    replace_path,
)
from convo.runstate.format import (
    LEDGER_PATH,
    RUN_ITEM_PATTERNS,
    ApprovalVerdict,
    RecordSlot,
    Version,
    add_verdict,
    get_sticky_decision,
)
from convo.runstate.identity import ARGUMENT_FIELDS, parse_state_call
from convo.runstate.state import PendingCall, RunState
from convo.runstate.versions import REJECTION_MESSAGE_SINCE, VERSION_BY_LABEL, find_record_slots
from convo.runstate.versions.v1_15 import build_ledger_entry

CALL_APPROVAL_WINS_SINCE = VERSION_BY_LABEL["1.16"]
"""The first label in which approving one call overrides the sticky rejection of its tool."""

ALL_CALLS = "all"


def apply_verdict(state: RunState, calls: Iterable[PendingCall], verdict: ApprovalVerdict) -> RunState:
    """Return `state` with one verdict on each of `calls`, which are pending in it.

    Raises InvalidUsage if the label cannot express the decision, and InvalidRunState if a call lacks the data for its
    ledger entry.
    """
    document = state.document
    asked = defaultdict[PathSteps, list[PendingCall]](list)
    for one in calls:
        for holder in dict.fromkeys((one.state_path,) if state.is_bound else ((), one.state_path)):
            asked[holder].append(one)  # before 1.15 the outermost state has their decisions too
    for holder, its in asked.items():
        document = replace_path(document, holder, _apply_in_document(state, get_path(document, holder), its, verdict))
    return RunState(document, state.version)


def select_pending_calls(state: RunState, selector: str) -> tuple[PendingCall, ...]:
    """Return the pending calls that `selector` names: an id, a tool or "all".

    An id selects its call, decided or not. A tool's name and "all" select undecided calls only, so they never override
    an earlier decision. Raises NotFound if no pending call has this id or tool.
    """
    by_id = tuple(one for one in state.pending if one.id == selector)
    if by_id:
        return by_id
    if selector == ALL_CALLS:
        return state.list_undecided()
    of_tool = tuple(one for one in state.pending if selector in (one.call.tool_name, *one.call.record_keys))
    found = tuple(one for one in of_tool if one.id not in state.verdicts)
    if not of_tool:
        waiting = ", ".join(one.id for one in state.pending)
        raise NotFound(
            "pending call", selector, hint=f"choose one of {waiting}" if waiting else "the state has no pending calls"
        )
    return found


def _apply_in_document(state: RunState, kept: Json, calls: Sequence[PendingCall], verdict: ApprovalVerdict) -> Json:
    """Apply a verdict to the calls of one state, with one change for each record."""
    if state.is_bound:
        kept = _add_ledger_entries(kept, calls)
    noting = defaultdict[RecordSlot, list[PendingCall]](list)
    for one in calls:
        kept, slots = find_record_slots(state.version, kept, one.call, always=verdict.always)
        if verdict.always and one.call.is_hosted and not (one.call.name and one.call.raw.get("server_label")):
            raise InvalidUsage(f"{one.id} does not name its tool and server, so a decision cannot be permanent")
        for slot in slots:
            noting[slot].append(one)
    for slot, its in noting.items():
        record = get_path(kept, slot.steps) or {}
        _check_verdict_supported(state.version, its[0], record, verdict)
        lasting = ApprovalVerdict(verdict.approve, verdict.message, verdict.always and slot.can_be_sticky)
        scope = its[-1].call.scope_digest() if state.is_bound else None
        kept = replace_path(kept, slot.steps, add_verdict(record, [one.id for one in its], lasting, scope))
    return kept


def _add_ledger_entries(document: Json, calls: Sequence[PendingCall]) -> Json:
    ledger = get_path(document, LEDGER_PATH) or {}
    fresh = {one.id: _require_ledger_entry(one) for one in calls if one.id not in ledger}
    return replace_path(document, LEDGER_PATH, {**ledger, **fresh}) if fresh else document


def _require_ledger_entry(one: PendingCall) -> Json:
    where: PathSteps = (*one.item_path, "raw_item")
    try:
        bound = build_ledger_entry(one.call)
    except ValueError as wrong:
        raise InvalidRunState(format_path(where), f"cannot be approved or rejected: {wrong}") from wrong
    if bound is None:
        raise InvalidRunState(
            format_path(where), "does not name its tool and arguments, so it cannot be approved or rejected"
        )
    return bound


def _check_verdict_supported(version: Version, one: PendingCall, record: Json, verdict: ApprovalVerdict) -> None:
    """Raise InvalidUsage if readers of this label would ignore a part of the decision."""
    if verdict.message is not None and version.number < REJECTION_MESSAGE_SINCE.number:
        raise InvalidUsage(
            f"a state with label {version.label} cannot contain the reason of a rejection",
            hint=f"remove the reason, or write a newer label with --schema {REJECTION_MESSAGE_SINCE.label}",
        )
    overruled = verdict.approve and not verdict.always and get_sticky_decision(record) is False
    if overruled and version.number < CALL_APPROVAL_WINS_SINCE.number:
        raise InvalidUsage(
            f"{one.call.tool_name} is rejected always, and for readers of {version.label} that overrides {one.id}",
            hint=f"approve it with --always, or write a newer label with --schema {CALL_APPROVAL_WINS_SINCE.label}",
        )


EDITABLE_CALL_TYPES = {"function_call", "custom_tool_call"}
"""Calls whose arguments are one string and whose tool the client runs."""

CALL_COPY_PATTERNS = tuple(
    parse_path_pattern(words)
    for words in (
        *(f"{holder}.raw_item" for holder in RUN_ITEM_PATTERNS),
        "last_processed_response.functions[].tool_call",
        "last_processed_response.custom_tool_actions[].tool_call",
        "model_responses[].output[]",
        "last_model_response.output[]",
        "original_input[]",
        "pending_session_write.items[]",
    )
)


def edit_arguments(state: RunState, pending_call: PendingCall, arguments: str) -> RunState:
    """Return `state` with the arguments of a pending call replaced; earlier decisions on the call stay.

    arguments:  of a function, a JSON object as text; of a custom tool, any text

    Raises InvalidUsage for a call or state that cannot be edited, and InvalidRunState for arguments of another form.
    """
    _check_editable(state, pending_call)
    if pending_call.call.is_function:
        _check_json_object(arguments)
    document = state.document
    for holder in _iter_enclosing_states(pending_call.state_path):
        for way in tuple(_iter_call_copies(get_path(document, holder), pending_call.call.raw)):
            field = ARGUMENT_FIELDS[pending_call.call.type]
            document = replace_path(document, (*holder, *way, field), arguments)
    if state.is_bound:
        document = _rebind_call(document, pending_call)
    return RunState(document, state.version)


def _check_editable(state: RunState, one: PendingCall) -> None:
    for holder in _iter_enclosing_states(one.state_path):
        inner = get_path(state.document, holder)
        if inner.get("conversation_id") or inner.get("previous_response_id") or inner.get("auto_previous_response_id"):
            raise InvalidUsage(
                f"the arguments of {one.id} cannot be edited: a server stores the original call",
                hint="reject the call, and give the arguments to use in the reason",
            )
    if one.call.type not in EDITABLE_CALL_TYPES:
        raise InvalidUsage(
            f"the arguments of {one.id}, a {one.call.type}, cannot be edited", hint="approve or reject it"
        )


def _check_json_object(arguments: str) -> None:
    try:
        wrong = None if isinstance(json.loads(arguments), dict) else "are not a JSON object"
    except (ValueError, RecursionError):
        wrong = "are not JSON"
    if wrong:
        raise InvalidRunState(
            "$", f"is the start of the edited arguments, which {wrong}", hint="pass a JSON object; nothing was changed"
        )


def _iter_enclosing_states(holder: PathSteps) -> Iterator[PathSteps]:
    """Iterate over the outermost state and each state down to `holder`: each repeats the pending calls of the next."""
    yield ()
    for end, step in enumerate(holder, 1):
        if step == "agent_run_state":
            yield holder[:end]


def _iter_call_copies(document: Json, raw: Item) -> Iterator[PathSteps]:
    """Iterate over the places where a document repeats a call."""
    for steps in CALL_COPY_PATTERNS:
        for way, value in iter_path_matches(document, steps):
            if isinstance(value, dict) and all(value.get(key) == raw.get(key) for key in ("type", "call_id", "name")):
                yield way


def _rebind_call(document: Json, one: PendingCall) -> Json:
    item = get_path(document, one.item_path)
    call = parse_state_call(item["raw_item"], item)
    assert call is not None
    try:
        bound = build_ledger_entry(call)
    except ValueError as wrong:
        raise InvalidRunState(format_path((*one.item_path, "raw_item")), f"has no ledger entry: {wrong}") from wrong
    return replace_path(document, (*one.state_path, *LEDGER_PATH, one.id), bound)

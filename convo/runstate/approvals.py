"""Approve, reject and edit the pending calls of a RunState document.

A decision is written where readers of the document's own label look for it. Edited arguments replace every copy of
the call and its ledger entry. A decision that the label cannot express raises InvalidUsage before anything changes.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from convo.errors import InvalidRunState, InvalidUsage
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
from convo.runstate.javascript import JavaScriptState
from convo.runstate.run_state import PendingCall, RunState
from convo.runstate.versions import REJECTION_MESSAGE_SINCE, VERSION_BY_LABEL, find_record_slots
from convo.runstate.versions.v1_15 import build_ledger_entry

CALL_APPROVAL_WINS_SINCE = VERSION_BY_LABEL["1.16"]
"""The first label in which approving one call overrides the sticky rejection of its tool."""


def apply_verdict(state: RunState, calls: Iterable[PendingCall], verdict: ApprovalVerdict) -> RunState:
    """Return `state` with one verdict on each of `calls`, which are pending in it.

    Raises InvalidUsage if the label cannot express the decision, and InvalidRunState if a call lacks the data for its
    ledger entry.
    """
    if isinstance(state, JavaScriptState):
        return state.decide(calls, verdict)
    document = state.document
    calls_by_state = defaultdict[PathSteps, list[PendingCall]](list)
    for call in calls:
        for state_path in dict.fromkeys((call.state_path,) if state.is_bound else ((), call.state_path)):
            calls_by_state[state_path].append(call)  # before 1.15 the outermost state has their decisions too
    for state_path, state_calls in calls_by_state.items():
        document = replace_path(
            document, state_path, _apply_in_document(state, get_path(document, state_path), state_calls, verdict)
        )
    return RunState(document, state.version)


def _apply_in_document(state: RunState, document: Json, calls: Sequence[PendingCall], verdict: ApprovalVerdict) -> Json:
    """Apply a verdict to the calls of one state, with one change for each record."""
    if state.is_bound:
        document = _add_ledger_entries(document, calls)
    # Not one call after the other: each decision copied the ledger and all decisions before it.
    calls_by_slot = defaultdict[RecordSlot, list[PendingCall]](list)
    for call in calls:
        document, slots = find_record_slots(state.version, document, call.call, always=verdict.always)
        if verdict.always and call.call.is_hosted and not (call.call.name and call.call.raw.get("server_label")):
            raise InvalidUsage(f"{call.id} does not name its tool and server, so a decision cannot be permanent")
        for slot in slots:
            calls_by_slot[slot].append(call)
    for slot, slot_calls in calls_by_slot.items():
        record = get_path(document, slot.steps) or {}
        _check_verdict_supported(state.version, slot_calls[0], record, verdict)
        slot_verdict = ApprovalVerdict(verdict.approve, verdict.message, verdict.always and slot.can_be_sticky)
        scope = slot_calls[-1].call.scope_digest() if state.is_bound else None
        document = replace_path(
            document, slot.steps, add_verdict(record, [call.id for call in slot_calls], slot_verdict, scope)
        )
    return document


def _add_ledger_entries(document: Json, calls: Sequence[PendingCall]) -> Json:
    ledger = get_path(document, LEDGER_PATH) or {}
    new_entries = {call.id: _require_ledger_entry(call) for call in calls if call.id not in ledger}
    return replace_path(document, LEDGER_PATH, {**ledger, **new_entries}) if new_entries else document


def _require_ledger_entry(call: PendingCall) -> Json:
    path: PathSteps = (*call.item_path, "raw_item")
    try:
        entry = build_ledger_entry(call.call)
    except ValueError as error:
        raise InvalidRunState(format_path(path), f"cannot be approved or rejected: {error}") from error
    if entry is None:
        raise InvalidRunState(
            format_path(path), "does not name its tool and arguments, so it cannot be approved or rejected"
        )
    return entry


def _check_verdict_supported(version: Version, call: PendingCall, record: Json, verdict: ApprovalVerdict) -> None:
    """Raise InvalidUsage if readers of this label would ignore a part of the decision."""
    if verdict.message is not None and version.number < REJECTION_MESSAGE_SINCE.number:
        raise InvalidUsage(
            f"a state with label {version.label} cannot contain the reason of a rejection",
            hint=f"remove the reason, or write a newer label with --schema {REJECTION_MESSAGE_SINCE.label}",
        )
    is_override = verdict.approve and not verdict.always and get_sticky_decision(record) is False
    if is_override and version.number < CALL_APPROVAL_WINS_SINCE.number:
        raise InvalidUsage(
            f"{call.call.tool_name} is rejected always, and for readers of {version.label} that overrides {call.id}",
            hint=f"approve it with --always, or write a newer label with --schema {CALL_APPROVAL_WINS_SINCE.label}",
        )


EDITABLE_CALL_TYPES = {"function_call", "custom_tool_call"}
"""Calls whose arguments are one string and whose tool the client runs."""

CALL_COPY_PATTERNS = tuple(
    parse_path_pattern(pattern)
    for pattern in (
        *(f"{item_pattern}.raw_item" for item_pattern in RUN_ITEM_PATTERNS),
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
    if isinstance(state, JavaScriptState):
        raise InvalidUsage(
            "the arguments of a call of the JavaScript SDK cannot be edited", hint="approve or reject it"
        )
    _check_editable(state, pending_call)
    if pending_call.call.is_function:
        _check_json_object(arguments)
    document = state.document
    for state_path in _iter_enclosing_states(pending_call.state_path):
        for steps in tuple(_iter_call_copies(get_path(document, state_path), pending_call.call.raw)):
            field = ARGUMENT_FIELDS[pending_call.call.type]
            document = replace_path(document, (*state_path, *steps, field), arguments)
    if state.is_bound:
        document = _rebind_call(document, pending_call)
    return RunState(document, state.version)


def _check_editable(state: RunState, call: PendingCall) -> None:
    for state_path in _iter_enclosing_states(call.state_path):
        document = get_path(state.document, state_path)
        if (
            document.get("conversation_id")
            or document.get("previous_response_id")
            or document.get("auto_previous_response_id")
        ):
            raise InvalidUsage(
                f"the arguments of {call.id} cannot be edited: a server stores the original call",
                hint="reject the call, and give the arguments to use in the reason",
            )
    if call.call.type not in EDITABLE_CALL_TYPES:
        raise InvalidUsage(
            f"the arguments of {call.id}, a {call.call.type}, cannot be edited", hint="approve or reject it"
        )


def _check_json_object(arguments: str) -> None:
    try:
        problem = None if isinstance(json.loads(arguments), dict) else "are not a JSON object"
    except (ValueError, RecursionError):
        problem = "are not JSON"
    if problem:
        raise InvalidRunState(
            "$",
            f"is the start of the edited arguments, which {problem}",
            hint="pass a JSON object; nothing was changed",
        )


def _iter_enclosing_states(state_path: PathSteps) -> Iterator[PathSteps]:
    """Iterate over the states from the outermost to `state_path`: each repeats the pending calls of the next."""
    yield ()
    for end, step in enumerate(state_path, 1):
        if step == "agent_run_state":
            yield state_path[:end]


def _iter_call_copies(document: Json, raw: Item) -> Iterator[PathSteps]:
    """Iterate over the places where a document repeats a call."""
    for steps in CALL_COPY_PATTERNS:
        for path, value in iter_path_matches(document, steps):
            if isinstance(value, dict) and all(value.get(key) == raw.get(key) for key in ("type", "call_id", "name")):
                yield path


def _rebind_call(document: Json, pending_call: PendingCall) -> Json:
    item = get_path(document, pending_call.item_path)
    call = parse_state_call(item["raw_item"], item)
    assert call is not None
    try:
        entry = build_ledger_entry(call)
    except ValueError as error:
        raise InvalidRunState(
            format_path((*pending_call.item_path, "raw_item")), f"has no ledger entry: {error}"
        ) from error
    return replace_path(document, (*pending_call.state_path, *LEDGER_PATH, pending_call.id), entry)

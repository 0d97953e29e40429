"""1.15: a decision counts for one call as it was shown, not for its id alone (first written by 0.20.0).

The ledger `context.tool_invocations` binds the id of a call to digests of its tool and of its effect. A sticky record
has the digest of its tool. Hosted tools have records of their own, and the state of an agent used as a tool contains
the decisions on its own calls.
"""

from collections.abc import Iterator

from convo.history.items import Json
from convo.runstate.document import PathMatch, format_path, get_path, remove_path, replace_path
from convo.runstate.format import (
    APPROVAL_ITEM,
    INPUT_RUN_ITEM,
    LEDGER_PATH,
    LocatedRecord,
    RecordSlot,
    RecordSlots,
    RelabelLoss,
    RelabelResult,
    Version,
    get_sticky_decision,
    iter_interruptions,
    iter_nested_states,
    iter_unresolved_calls,
    list_decided_call_ids,
    merge_record_at,
)
from convo.runstate.identity import StateCall, parse_state_call
from convo.runstate.versions.v1_0 import APPROVALS_PATH, find_approval_records

HOSTED_APPROVALS_PATH = ("context", "hosted_mcp_approvals")
RUN_AGAIN_STEP = "next_step_run_again"


def build_ledger_entry(call: StateCall, *, executed: bool = False) -> dict[str, Json] | None:
    """Build the ledger entry of a call without an output; None if the call lacks data."""
    binding = call.binding()
    if binding is None:
        return None
    flags = {"executed": executed, "completed": False}
    return {"type": call.type, "approval_scope": binding.scope, "fingerprint": binding.fingerprint, **flags}


def _find_hosted_records(document: Json) -> Iterator[LocatedRecord]:
    for index, record in enumerate(get_path(document, HOSTED_APPROVALS_PATH) or []):
        identity = record["identity"]
        is_duplicate = identity.get("type") == "query"
        yield LocatedRecord(
            (*HOSTED_APPROVALS_PATH, index, "decision"),
            _hosted_tool_key(identity),
            record["decision"],
            is_hosted=True,
            is_duplicate=is_duplicate,
        )


def _hosted_tool_key(identity: Json) -> str:
    return str(identity.get("tool_name") or identity.get("request_id"))


def _find_slots(document: Json, call: StateCall, always: bool) -> RecordSlots | None:
    if not call.is_hosted:
        return None
    server = {"type": "server_tool", "server_label": call.raw.get("server_label"), "tool_name": call.raw.get("name")}
    query = {"type": "query", "tool_name": call.tool_name, "request_id": call.id}
    slots = []
    for identity, is_sticky in ((server, True), (query, False)):
        document, index = _ensure_record(document, identity)
        slots.append(RecordSlot((*HOSTED_APPROVALS_PATH, index, "decision"), can_be_sticky=is_sticky))
    return document, tuple(slots)


def _ensure_record(document: Json, identity: Json) -> tuple[Json, int]:
    """Return the document with a record for `identity`, and the record's index."""
    records = get_path(document, HOSTED_APPROVALS_PATH) or []
    for index, record in enumerate(records):
        if record["identity"] == identity:
            return document, index
    empty = {"identity": identity, "decision": {"approved": [], "rejected": []}}
    return replace_path(document, HOSTED_APPROVALS_PATH, [*records, empty]), len(records)


def _find_run_again_step(document: Json) -> Iterator[PathMatch]:
    if get_path(document, ("current_step", "type")) == RUN_AGAIN_STEP:
        yield PathMatch(("current_step", "type"), RUN_AGAIN_STEP)


# -- to the label before -----------------------------------------------------------------------------


def _to_older(document: Json) -> RelabelResult:
    losses: list[RelabelLoss] = []
    document = _move_input_items(document)
    if any(_find_run_again_step(document)):
        document = {**document, "current_step": None}  # as older releases wrote it at the same point
    if get_path(document, LEDGER_PATH):
        reason = "labels before 1.15 approve a call by its id alone, also with other arguments"
        losses.append(
            RelabelLoss(format_path(LEDGER_PATH), f"{len(get_path(document, LEDGER_PATH))} bound calls", reason)
        )
    document = remove_path(remove_path(document, LEDGER_PATH), ("current_step", "data", "llm_end_hooks_started"))
    for located in _find_hosted_records(document):
        if not located.is_duplicate:
            document = _merge_into_approvals(document, located)
    document = remove_path(document, HOSTED_APPROVALS_PATH)
    for steps, child in iter_nested_states(document):
        for key, record in (get_path(child, APPROVALS_PATH) or {}).items():
            document = _merge_into_approvals(document, LocatedRecord((), key, record))
        document = replace_path(document, (*steps, *APPROVALS_PATH), {})
    return document, tuple(losses)


def _move_input_items(document: Json) -> Json:
    """Move input added during the run, and all items before it, to the original input.

    Older readers ignore such run items; as input they are sent in the same position.
    """
    items = document.get("generated_items") or []
    end = max((count for count, item in enumerate(items, 1) if item.get("type") == INPUT_RUN_ITEM), default=0)
    if not end:
        return document
    original_input = document["original_input"]
    input_items = [{"role": "user", "content": original_input}] if isinstance(original_input, str) else original_input
    moved = [item["raw_item"] for item in items[:end] if item.get("type") != APPROVAL_ITEM]
    changed = {**document, "original_input": [*input_items, *moved], "generated_items": items[end:]}
    return remove_path(
        remove_path(changed, ("generated_session_item_indexes",)), ("nested_history_owned_session_item_refs",)
    )


def _merge_into_approvals(document: Json, located_record: LocatedRecord) -> Json:
    """Merge a record into the one of its tool in `context.approvals`."""
    record = {key: value for key, value in located_record.record.items() if key != "sticky_scope"}
    return merge_record_at(document, (*APPROVALS_PATH, located_record.key), record)


# -- from the label before ---------------------------------------------------------------------------


def _from_older(document: Json) -> RelabelResult:
    document = _move_nested_decisions(document)
    ledger = dict(get_path(document, LEDGER_PATH) or {})
    nested_ids = {call.id for _, child in iter_nested_states(document) for call in _iter_pending_calls(child)}
    for call in (*_iter_pending_calls(document), *iter_unresolved_calls(document)):
        if (
            call.id
            and call.id not in ledger
            and call.id not in nested_ids
            and (entry := _build_pending_entry(document, call))
        ):
            ledger[call.id] = entry
    document = replace_path(document, LEDGER_PATH, ledger)
    return _bind_records(document)


def _build_pending_entry(document: Json, call: StateCall) -> dict[str, Json] | None:
    nested_call_ids = {
        get_path(document, (*steps[:-1], "tool_call", "call_id")) for steps, _ in iter_nested_states(document)
    }
    return build_ledger_entry(call, executed=call.id in nested_call_ids)


def _iter_pending_calls(document: Json) -> Iterator[StateCall]:
    for item in iter_interruptions(document):
        call = parse_state_call(item.value.get("raw_item"), item.value)
        if call is not None:
            yield call


def _move_nested_decisions(document: Json) -> Json:
    """Move the decisions on calls of agents used as tools to the nested states."""
    for steps, child in iter_nested_states(document):
        for call in _iter_pending_calls(child):
            for key in call.record_keys:
                record = get_path(document, (*APPROVALS_PATH, key))
                if record:
                    document = replace_path(document, (*steps, *APPROVALS_PATH, key), record)
                    document = remove_path(document, (*APPROVALS_PATH, key))
    return document


def _bind_records(document: Json) -> RelabelResult:
    """Add the tool's digest to sticky records, and move the records of hosted tools."""
    losses: list[RelabelLoss] = []
    calls = {key: call for call in _iter_pending_calls(document) for key in call.record_keys}
    ledger_ids = set(get_path(document, LEDGER_PATH) or {})
    for located in tuple(find_approval_records(document)):
        call = calls.get(located.key)
        if call is not None and call.is_hosted:
            document = _move_hosted_record(document, located, call)
        elif get_sticky_decision(located.record) is not None or located.record.get("approved") is False:
            document, loss = _bind_sticky_record(document, located, call)
            losses += loss
        elif (
            not {*list_decided_call_ids(located.record, "approved"), *list_decided_call_ids(located.record, "rejected")}
            <= ledger_ids
        ):
            document = remove_path(document, located.steps)
            reason = "from 1.15 on a decision needs its call; these calls have ended, so the decision is not needed"
            losses.append(RelabelLoss(format_path(located.steps), f"decisions on calls of {located.key}", reason))
    return document, tuple(losses)


def _bind_sticky_record(
    document: Json, located_record: LocatedRecord, call: StateCall | None
) -> tuple[Json, list[RelabelLoss]]:
    scope = call.scope_digest() if call else None
    if scope:
        return replace_path(document, located_record.steps, {**located_record.record, "sticky_scope": scope}), []
    reason = (
        "no call of this tool is pending, so the decision cannot be bound to it; the next call needs approval again"
    )
    return remove_path(document, located_record.steps), [
        RelabelLoss(format_path(located_record.steps), f"a permanent decision on {located_record.key}", reason)
    ]


def _move_hosted_record(document: Json, located_record: LocatedRecord, call: StateCall) -> Json:
    """Move a decision on a hosted tool to its place in this label, as a decision on one call."""
    document = remove_path(document, located_record.steps)
    slot_result = _find_slots(document, call, False)
    assert slot_result is not None
    document, slots = slot_result
    record = {
        key: value
        for key, value in located_record.record.items()
        if key in ("approved", "rejected", "rejection_messages")
    }
    by_call = {**record, **{side: list_decided_call_ids(record, side) for side in ("approved", "rejected")}}
    for slot in slots:
        document = replace_path(document, slot.steps, by_call)
    return document


VERSION = Version(
    "1.15",
    "0.20.0",
    "a decision is bound to its call by a fingerprint; input can be pending; hosted tools have their own decisions",
    keys=(
        "context.tool_invocations",
        "context.hosted_mcp_approvals",
        "context.approvals.*.sticky_scope",
        "pending_input",
        "current_step.data.response_accepted",
        "current_step.data.llm_end_hooks_started",
    ),
    find_values=_find_run_again_step,
    to_older=_to_older,
    from_older=_from_older,
    find_records=_find_hosted_records,
    find_slots=_find_slots,
)

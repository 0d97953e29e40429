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
from convo.runstate.versions.v1_0 import APPROVALS_PATH

HOSTED_APPROVALS_PATH = ("context", "hosted_mcp_approvals")
RUN_AGAIN_STEP = "next_step_run_again"


def build_ledger_entry(call: StateCall, *, executed: bool = False) -> dict[str, Json] | None:
    """Build the ledger entry of a call without an output; None if the call lacks data."""
    binding = call.binding()
    if binding is None:
        return None
    marks = {"executed": executed, "completed": False}
    return {"type": call.type, "approval_scope": binding.scope, "fingerprint": binding.fingerprint, **marks}


def _find_hosted_records(document: Json) -> Iterator[LocatedRecord]:
    for index, one in enumerate(get_path(document, HOSTED_APPROVALS_PATH) or []):
        identity = one["identity"]
        echo = identity.get("type") == "query"
        yield LocatedRecord(
            (*HOSTED_APPROVALS_PATH, index, "decision"),
            _hosted_tool_key(identity),
            one["decision"],
            is_hosted=True,
            is_duplicate=echo,
        )


def _hosted_tool_key(identity: Json) -> str:
    return str(identity.get("tool_name") or identity.get("request_id"))


def _find_slots(document: Json, call: StateCall, always: bool) -> RecordSlots | None:
    if not call.is_hosted:
        return None
    server = {"type": "server_tool", "server_label": call.raw.get("server_label"), "tool_name": call.raw.get("name")}
    asked = {"type": "query", "tool_name": call.tool_name, "request_id": call.id}
    slots = []
    for identity, lasting in ((server, True), (asked, False)):
        document, index = _ensure_record(document, identity)
        slots.append(RecordSlot((*HOSTED_APPROVALS_PATH, index, "decision"), can_be_sticky=lasting))
    return document, tuple(slots)


def _ensure_record(document: Json, identity: Json) -> tuple[Json, int]:
    """Return the document with a record for `identity`, and the record's index."""
    records = get_path(document, HOSTED_APPROVALS_PATH) or []
    for index, one in enumerate(records):
        if one["identity"] == identity:
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
        why = "labels before 1.15 approve a call by its id alone, whatever its arguments are"
        losses.append(RelabelLoss(format_path(LEDGER_PATH), f"{len(get_path(document, LEDGER_PATH))} bound calls", why))
    document = remove_path(remove_path(document, LEDGER_PATH), ("current_step", "data", "llm_end_hooks_started"))
    for kept in _find_hosted_records(document):
        if not kept.is_duplicate:
            document = _merge_into_approvals(document, kept)
    document = remove_path(document, HOSTED_APPROVALS_PATH)
    for way, child in iter_nested_states(document):
        for key, record in (get_path(child, APPROVALS_PATH) or {}).items():
            document = _merge_into_approvals(document, LocatedRecord((), key, record))
        document = replace_path(document, (*way, *APPROVALS_PATH), {})
    return document, tuple(losses)


def _move_input_items(document: Json) -> Json:
    """Move input added during the run, and all items before it, to the original input.

    Older readers ignore such run items; as input they are sent in the same position.
    """
    items = document.get("generated_items") or []
    end = max((at for at, item in enumerate(items, 1) if item.get("type") == INPUT_RUN_ITEM), default=0)
    if not end:
        return document
    begun = document["original_input"]
    before = [{"role": "user", "content": begun}] if isinstance(begun, str) else begun
    said = [item["raw_item"] for item in items[:end] if item.get("type") != APPROVAL_ITEM]
    changed = {**document, "original_input": [*before, *said], "generated_items": items[end:]}
    return remove_path(
        remove_path(changed, ("generated_session_item_indexes",)), ("nested_history_owned_session_item_refs",)
    )


def _merge_into_approvals(document: Json, kept: LocatedRecord) -> Json:
    """Merge a record into the one of its tool in `context.approvals`."""
    record = {key: value for key, value in kept.record.items() if key != "sticky_scope"}
    return merge_record_at(document, (*APPROVALS_PATH, kept.key), record)


# -- from the label before ---------------------------------------------------------------------------


def _from_older(document: Json) -> RelabelResult:
    document = _move_nested_decisions(document)
    ledger = dict(get_path(document, LEDGER_PATH) or {})
    inner = {call.id for _, child in iter_nested_states(document) for call in _iter_pending_calls(child)}
    for call in (*_iter_pending_calls(document), *iter_unresolved_calls(document)):
        if (
            call.id
            and call.id not in ledger
            and call.id not in inner
            and (bound := _build_pending_entry(document, call))
        ):
            ledger[call.id] = bound
    document = replace_path(document, LEDGER_PATH, ledger)
    return _bind_records(document)


def _build_pending_entry(document: Json, call: StateCall) -> dict[str, Json] | None:
    holds = {get_path(document, (*way[:-1], "tool_call", "call_id")) for way, _ in iter_nested_states(document)}
    return build_ledger_entry(call, executed=call.id in holds)


def _iter_pending_calls(document: Json) -> Iterator[StateCall]:
    for item in iter_interruptions(document):
        call = parse_state_call(item.value.get("raw_item"), item.value)
        if call is not None:
            yield call


def _move_nested_decisions(document: Json) -> Json:
    """Move the decisions on calls of agents used as tools to the nested states."""
    for way, child in iter_nested_states(document):
        for call in _iter_pending_calls(child):
            for key in call.record_keys:
                record = get_path(document, (*APPROVALS_PATH, key))
                if record:
                    document = replace_path(document, (*way, *APPROVALS_PATH, key), record)
                    document = remove_path(document, (*APPROVALS_PATH, key))
    return document


def _bind_records(document: Json) -> RelabelResult:
    """Add the tool's digest to sticky records, and move the records of hosted tools."""
    losses: list[RelabelLoss] = []
    calls = {key: call for call in _iter_pending_calls(document) for key in call.record_keys}
    known = set(get_path(document, LEDGER_PATH) or {})
    for kept in tuple(_find_approval_records(document)):
        call = calls.get(kept.key)
        if call is not None and call.is_hosted:
            document = _move_hosted_record(document, kept, call)
        elif get_sticky_decision(kept.record) is not None or kept.record.get("approved") is False:
            document, loss = _bind_sticky_record(document, kept, call)
            losses += loss
        elif (
            not {*list_decided_call_ids(kept.record, "approved"), *list_decided_call_ids(kept.record, "rejected")}
            <= known
        ):
            document = remove_path(document, kept.steps)
            why = "from 1.15 on a decision needs its call; these calls have ended, so the decision is not needed"
            losses.append(RelabelLoss(format_path(kept.steps), f"decisions on calls of {kept.key}", why))
    return document, tuple(losses)


def _find_approval_records(document: Json) -> Iterator[LocatedRecord]:
    for key, record in (get_path(document, APPROVALS_PATH) or {}).items():
        yield LocatedRecord((*APPROVALS_PATH, key), key, record)


def _bind_sticky_record(document: Json, kept: LocatedRecord, call: StateCall | None) -> tuple[Json, list[RelabelLoss]]:
    scope = call.scope_digest() if call else None
    if scope:
        return replace_path(document, kept.steps, {**kept.record, "sticky_scope": scope}), []
    why = "no call of this tool is pending, so the decision cannot be bound to it; the next call needs approval again"
    return remove_path(document, kept.steps), [
        RelabelLoss(format_path(kept.steps), f"a permanent decision on {kept.key}", why)
    ]


def _move_hosted_record(document: Json, kept: LocatedRecord, call: StateCall) -> Json:
    """Move a decision on a hosted tool to its place in this label, as a decision on one call."""
    document = remove_path(document, kept.steps)
    found = _find_slots(document, call, False)
    assert found is not None
    document, slots = found
    record = {key: value for key, value in kept.record.items() if key in ("approved", "rejected", "rejection_messages")}
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

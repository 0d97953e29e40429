"""1.15: a decision counts for one call as it was shown, not for its id alone (first written by 0.20.0).

The ledger `context.tool_invocations` binds the id of a call to digests of its tool and of what it
would do. A record that holds for good carries the digest of its tool. Hosted tools have records of
their own, and the state of an agent used as a tool keeps the decisions on its own calls.
"""

from collections.abc import Iterator

from convo.items import Json
from convo.runstate.identity import Call, call_of
from convo.runstate.nested import children, interruptions, unresolved
from convo.runstate.paths import Place, at, path, replaced, without
from convo.runstate.records import Kept, for_good, ids, merged
from convo.runstate.version import Change, Loss, Room, Slot, Version
from convo.runstate.versions.v1_0 import APPROVALS

LEDGER = ("context", "tool_invocations")
HOSTED = ("context", "hosted_mcp_approvals")
AGAIN = "next_step_run_again"
INPUT = "input_item"


def entry(call: Call, *, executed: bool = False) -> dict[str, Json] | None:
    """The ledger's entry for a call that has no output yet; None where the call does not say enough."""
    binding = call.binding()
    if binding is None:
        return None
    marks = {"executed": executed, "completed": False}
    return {"type": call.type, "approval_scope": binding.scope, "fingerprint": binding.fingerprint, **marks}


def _hosted(document: Json) -> Iterator[Kept]:
    for index, one in enumerate(at(document, HOSTED) or []):
        identity = one["identity"]
        echo = identity.get("type") == "query"
        yield Kept((*HOSTED, index, "decision"), _named(identity), one["decision"], hosted=True, echo=echo)


def _named(identity: Json) -> str:
    return str(identity.get("tool_name") or identity.get("request_id"))


def _room(document: Json, call: Call, always: bool) -> Room | None:
    if not call.is_hosted:
        return None
    server = {"type": "server_tool", "server_label": call.raw.get("server_label"), "tool_name": call.raw.get("name")}
    asked = {"type": "query", "tool_name": call.tool, "request_id": call.id}
    slots = []
    for identity, lasting in ((server, True), (asked, False)):
        document, index = _listed(document, identity)
        slots.append(Slot((*HOSTED, index, "decision"), for_good=lasting))
    return document, tuple(slots)


def _listed(document: Json, identity: Json) -> tuple[Json, int]:
    """The document with a record for `identity`, and its number."""
    records = at(document, HOSTED) or []
    for index, one in enumerate(records):
        if one["identity"] == identity:
            return document, index
    empty = {"identity": identity, "decision": {"approved": [], "rejected": []}}
    return replaced(document, HOSTED, [*records, empty]), len(records)


def _again(document: Json) -> Iterator[Place]:
    if at(document, ("current_step", "type")) == AGAIN:
        yield Place(("current_step", "type"), AGAIN)


# -- to the label before -----------------------------------------------------------------------------


def _older(document: Json) -> Change:
    losses: list[Loss] = []
    document = _as_begun(document)
    if any(_again(document)):
        document = {**document, "current_step": None}  # what older releases wrote at the same point
    if at(document, LEDGER):
        why = "labels before 1.15 approve a call by its id alone, whatever it would do"
        losses.append(Loss(path(LEDGER), f"{len(at(document, LEDGER))} bound calls", why))
    document = without(without(document, LEDGER), ("current_step", "data", "llm_end_hooks_started"))
    for kept in _hosted(document):
        if not kept.echo:
            document = _by_name(document, kept)
    document = without(document, HOSTED)
    for way, child in children(document):
        for key, record in (at(child, APPROVALS) or {}).items():
            document = _by_name(document, Kept((), key, record))
        document = replaced(document, (*way, *APPROVALS), {})
    return document, tuple(losses)


def _as_begun(document: Json) -> Json:
    """The document with words that came during the run, and all before them, in the input that it began with.

    Older readers pass such run items over; as input they are sent at the same place.
    """
    items = document.get("generated_items") or []
    end = max((at for at, item in enumerate(items, 1) if item.get("type") == INPUT), default=0)
    if not end:
        return document
    begun = document["original_input"]
    before = [{"role": "user", "content": begun}] if isinstance(begun, str) else begun
    said = [item["raw_item"] for item in items[:end] if item.get("type") != "tool_approval_item"]
    changed = {**document, "original_input": [*before, *said], "generated_items": items[end:]}
    return without(without(changed, ("generated_session_item_indexes",)), ("nested_history_owned_session_item_refs",))


def _by_name(document: Json, kept: Kept) -> Json:
    """The document with a record under its tool's name, beside what is there."""
    record = {key: value for key, value in kept.record.items() if key != "sticky_scope"}
    there = at(document, (*APPROVALS, kept.key))
    return replaced(document, (*APPROVALS, kept.key), merged(there, record) if there else record)


# -- from the label before ---------------------------------------------------------------------------


def _newer(document: Json) -> Change:
    document = _handed_down(document)
    ledger = dict(at(document, LEDGER) or {})
    inner = {call.id for _, child in children(document) for call in _waiting(child)}
    for call in (*_waiting(document), *unresolved(document)):
        if call.id and call.id not in ledger and call.id not in inner and (bound := _entry(document, call)):
            ledger[call.id] = bound
    document = replaced(document, LEDGER, ledger)
    return _bound(document)


def _entry(document: Json, call: Call) -> dict[str, Json] | None:
    holds = {at(document, (*way[:-1], "tool_call", "call_id")) for way, _ in children(document)}
    return entry(call, executed=call.id in holds)


def _waiting(document: Json) -> Iterator[Call]:
    for item in interruptions(document):
        call = call_of(item.value.get("raw_item"), item.value)
        if call is not None:
            yield call


def _handed_down(document: Json) -> Json:
    """The document with the decisions on calls of agents used as tools in those agents' own states."""
    for way, child in children(document):
        for call in _waiting(child):
            for key in call.keys:
                record = at(document, (*APPROVALS, key))
                if record:
                    document = replaced(document, (*way, *APPROVALS, key), record)
                    document = without(document, (*APPROVALS, key))
    return document


def _bound(document: Json) -> Change:
    """The document with every record that holds for good tied to its tool, and those for hosted tools moved."""
    losses: list[Loss] = []
    calls = {key: call for call in _waiting(document) for key in call.keys}
    known = set(at(document, LEDGER) or {})
    for kept in tuple(_by_tool(document)):
        call = calls.get(kept.key)
        if call is not None and call.is_hosted:
            document = _moved(document, kept, call)
        elif for_good(kept.record) is not None or kept.record.get("approved") is False:
            document, loss = _tied(document, kept, call)
            losses += loss
        elif not {*ids(kept.record, "approved"), *ids(kept.record, "rejected")} <= known:
            document = without(document, kept.steps)
            why = "from 1.15 on a decision needs its call; these calls are over and nobody asks for them again"
            losses.append(Loss(path(kept.steps), f"decisions on calls of {kept.key}", why))
    return document, tuple(losses)


def _by_tool(document: Json) -> Iterator[Kept]:
    for key, record in (at(document, APPROVALS) or {}).items():
        yield Kept((*APPROVALS, key), key, record)


def _tied(document: Json, kept: Kept, call: Call | None) -> tuple[Json, list[Loss]]:
    scope = call.scope() if call else None
    if scope:
        return replaced(document, kept.steps, {**kept.record, "sticky_scope": scope}), []
    why = "no call of this tool is pending, so the decision cannot be bound to it; it is asked again"
    return without(document, kept.steps), [Loss(path(kept.steps), f"a decision on {kept.key} for good", why)]


def _moved(document: Json, kept: Kept, call: Call) -> Json:
    """The document with a decision on a hosted tool where this label keeps it; for one call alone."""
    document = without(document, kept.steps)
    found = _room(document, call, False)
    assert found is not None
    document, slots = found
    record = {key: value for key, value in kept.record.items() if key in ("approved", "rejected", "rejection_messages")}
    by_call = {**record, **{side: ids(record, side) for side in ("approved", "rejected")}}
    for slot in slots:
        document = replaced(document, slot.steps, by_call)
    return document


VERSION = Version(
    "1.15",
    "0.20.0",
    "a decision is bound to its call by a fingerprint; input may wait; hosted tools have their own decisions",
    keys=(
        "context.tool_invocations",
        "context.hosted_mcp_approvals",
        "context.approvals.*.sticky_scope",
        "pending_input",
        "current_step.data.response_accepted",
        "current_step.data.llm_end_hooks_started",
    ),
    values=_again,
    older=_older,
    newer=_newer,
    reads=_hosted,
    room=_room,
)

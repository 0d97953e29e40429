"""Decisions on the pending calls of a stored run: saved in the run, and logged in the same transaction.

`convo approvals` and the inspector page decide with `save_decisions`. No tool runs and no agents are loaded:
`convo resume` continues the run with the decisions, or the chat that waits for them. A process that performs the run,
such as a chat, logs its own decisions with `build_log_entries`, and finds those of others with `wait_for_decisions`
and `load_new_decisions`.

No lease is needed: a decision is committed only over the revision of the run that it was made on, so of several
decisions on one call the first that is committed counts, and a run that was resumed meanwhile is not changed.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

from convo.errors import AlreadyDecided, Conflict, ConvoError, NotFound
from convo.history.records import AgentRun, ApprovalDecision
from convo.report import to_json
from convo.runs.state import ApprovalDecided, ToolOutputSupplied
from convo.runs.stored_approvals import (
    PendingApproval,
    RunDocument,
    apply_decisions,
    list_decidable_approvals,
    match_decisions,
)
from convo.runtime import Clock
from convo.stores.base import Store, Transaction

DECISION_POLL_INTERVAL_S = 0.5
"""Seconds between two reads of the log while a chat waits for a decision."""

MAX_RUN_DECISIONS = 1000
"""Newest log entries of a run in which a decision is looked up."""


async def save_decisions(
    store: Store,
    run: AgentRun,
    events: Sequence[ApprovalDecided],
    *,
    now: float,
    decided_by: str | None = None,
    source: str = "command",
) -> list[ApprovalDecision]:
    """Save decisions in a run as it was loaded, append them to the log, and return the logged entries.

    run:                      its calls are those that were shown; changes of other calls since then are kept
    now, decided_by, source:  as in the entries

    Raises AlreadyDecided if a call was decided since then, Conflict if the run was resumed, NotFound if it was deleted,
    and the errors of `apply_decisions`.
    """
    while True:
        document = apply_decisions(run.document, events)
        entries = build_log_entries(
            run.id, run.document, document, events, now=now, decided_by=decided_by, source=source
        )
        changed = run._replace(revision=run.revision + 1, document=document, changed_at=now)
        try:
            await store.commit(Transaction(agent_run=changed, approval_decisions=tuple(entries)))
        except Conflict:
            current = await store.agent_run(run.id)
            if current is None:
                raise NotFound("run", run.id) from None
            if current.revision == run.revision:
                raise
            await check_calls_unchanged(store, run.document, current, events)
            run = current
        else:
            return entries


async def check_calls_unchanged(
    store: Store, document: RunDocument, current: AgentRun, events: Sequence[ApprovalDecided | ToolOutputSupplied]
) -> None:
    """Check that the calls of `events` are as in an earlier document of the run.

    Raises AlreadyDecided if one was decided since then, and Conflict if the run was resumed, even if it is paused again
    at a call with the same id.
    """
    call_ids = {event.call_id for event in events}
    decisions = await load_new_decisions(store, document, current)
    if decision := next((one for one in decisions if one.call_id in call_ids), None):
        raise make_already_decided_error(decision)
    shown, remaining = (
        {(call, call.turns) for call in list_decidable_approvals(run_document) if call.call_id in call_ids}
        for run_document in (document, current.document)
    )
    if current.status != "paused" or not shown <= remaining:
        raise make_run_continued_error(current.id)


def make_already_decided_error(decision: ApprovalDecision) -> AlreadyDecided:
    message = f"{decision.call_id} was already {describe_decision(decision)}"
    return AlreadyDecided(message, to_json(build_decision_report(decision)))


def make_run_continued_error(run_id: str) -> Conflict:
    """Build the error for a run that another process resumed or ended."""
    return Conflict(f"{run_id} was continued by another process", hint=f"convo inspect {run_id}")


async def load_new_decisions(store: Store, document: RunDocument, current: AgentRun) -> list[ApprovalDecision]:
    """Load the newest decision on each call that was decided since an earlier document of the run, in their order.

    A decision that a version of convo without a log made is in the result without a name.
    """
    changed_calls = find_changed_calls(document, current.document)
    logged = await store.approval_decisions(current.id, limit=MAX_RUN_DECISIONS) if changed_calls else ()
    decisions = []
    for call, approved in changed_calls:
        entry = next((one for one in logged if (one.call_id, one.agent) == (call.call_id, call.agent)), None)
        if entry is None and approved is not None:
            entry = ApprovalDecision(
                *(current.id, call.call_id, call.agent, call.tool, call.arguments, approved, current.changed_at),
                source="run",
            )
        if entry is not None:
            decisions.append(entry)
    return sorted(decisions, key=lambda one: one.decided_at)


def find_changed_calls(document: RunDocument, changed: RunDocument) -> list[tuple[PendingApproval, bool | None]]:
    """Return the calls of `document` that were decided differently since then, each with its decision in `changed`.

    The decision is None for a call that `changed` no longer lists, because the run was resumed.
    """
    remaining = list(list_decidable_approvals(changed))
    result: list[tuple[PendingApproval, bool | None]] = []
    for call in list_decidable_approvals(document):
        key = (call.call_id, call.agent, call.tool)
        current = next((one for one in remaining if (one.call_id, one.agent, one.tool) == key), None)
        if current is not None:
            remaining.remove(current)
        if current != call:
            result.append((call, current.approved if current else None))
    return result


async def wait_for_decisions(store: Store, run: AgentRun, clock: Clock) -> None:
    """Return as soon as another process has changed the run; it is polled while nothing changes.

    A store that cannot be read is polled again: the caller waits for a person meanwhile.
    """
    version: str | None = None
    newest: Sequence[ApprovalDecision] | None = None
    while True:
        try:
            version, last_version = await store.data_version(), version
            if version is None or version != last_version:
                newest, last_newest = await store.approval_decisions(run.id, limit=1), newest
                if newest != last_newest:
                    stored = await store.agent_run(run.id)  # at first too: it may have changed before this call
                    if stored is None or stored.revision != run.revision:
                        return
        except ConvoError:
            version = None
        await clock.sleep(DECISION_POLL_INTERVAL_S)


def describe_decision(decision: ApprovalDecision) -> str:
    """Describe a decision and who made it: "approved on the page by alice"."""
    place = {"page": " on the page", "command": " with convo approvals"}.get(decision.source, " in another process")
    name = f" by {decision.decided_by}" if decision.decided_by else ""
    verb = "approved" if decision.approved else "rejected"
    return f"{verb}{' always' if decision.is_sticky else ''}{place}{name}"


def build_log_entries(
    run_id: str,
    document: RunDocument,
    changed: RunDocument,
    events: Sequence[ApprovalDecided],
    *,
    now: float,
    decided_by: str | None,
    source: str,
) -> list[ApprovalDecision]:
    """Build the log entries of the decisions that changed the document of a run."""
    return [
        ApprovalDecision(
            *(run_id, call.call_id, call.agent, call.tool, call.arguments, event.approve, now, decided_by, source),
            is_sticky=event.always,
            reason=None if event.approve else event.message,
        )
        for call, event in match_decisions(document, changed, events)
    ]


def hash_arguments(arguments: str) -> str:
    """Return the digest of the exact arguments of a call: "sha256:" and 64 hex digits."""
    return f"sha256:{sha256(arguments.encode('utf-8', 'surrogatepass')).hexdigest()}"


def hash_pending_call(call: PendingApproval) -> str:
    """Return the digest of a call of a stored run: its agent, tool, arguments and turn."""
    parts = json.dumps([call.agent, call.tool, call.arguments, call.turns])
    return f"sha256:{sha256(parts.encode()).hexdigest()}"


class DecisionReport(NamedTuple):
    """A logged decision on a call of an agent run.

    arguments:         as decided: as written by the model, or as edited
    arguments_digest:  sha256: and 64 hex digits
    always:            whether it holds for every later call of the tool in the run
    reason:            of a rejection, for the model
    decided_at:        seconds since 1970
    decided_by:        name of the API key; null for a process with access to the store
    source:            page: the inspector page; command: convo approvals; run: the process of the run, such as a chat
    """

    run: str
    call_id: str
    agent: str
    tool_name: str
    arguments: str
    arguments_digest: str
    decision: Literal["approve", "reject"]
    always: bool
    reason: str | None
    decided_at: float
    decided_by: str | None
    source: str


def build_decision_report(decision: ApprovalDecision) -> DecisionReport:
    return DecisionReport(
        decision.run_id,
        decision.call_id,
        decision.agent,
        decision.tool,
        decision.arguments,
        hash_arguments(decision.arguments),
        "approve" if decision.approved else "reject",
        decision.is_sticky,
        decision.reason,
        decision.decided_at,
        decision.decided_by,
        decision.source,
    )

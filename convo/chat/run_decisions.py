"""Decisions on the pending calls of a stored run: saved in the run, and logged in the same transaction.

`convo approvals` and the inspector page decide through `lease_run` and `save_decisions`. No tool runs and no agents are
loaded: `convo resume` continues the run with the decisions. A process that performs the run, such as a chat, logs its
own decisions with `build_log_entries`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256

from convo.chat.session_record import acquire_session_lease
from convo.errors import Busy, NotFound
from convo.history.items import Json
from convo.runs.state import ApprovalDecided
from convo.runs.stored_approvals import RunDocument, apply_decisions, match_decisions
from convo.stores.base import AgentRun, ApprovalDecision, Store, Transaction


@asynccontextmanager
async def lease_run(store: Store, run: AgentRun) -> AsyncIterator[AgentRun]:
    """Hold the write lease of the run's session, and yield the run as it is stored now.

    Raises NotFound, and Busy for a session that is open in another process, where the decision can be made instead.
    """
    session = await store.session(run.session_id)
    if session is None:
        raise NotFound("session", run.session_id)
    try:
        lease = await acquire_session_lease(store, session)
    except Busy as busy:
        raise Busy(busy.name, busy.process, hint="decide in that chat, or close it first") from busy
    try:
        yield await store.agent_run(run.id) or run
    finally:
        await lease.release()


async def save_decisions(
    store: Store,
    run: AgentRun,
    events: Sequence[ApprovalDecided],
    *,
    now: float,
    decided_by: str | None = None,
    source: str = "command",
) -> list[ApprovalDecision]:
    """Save decisions in a run of `lease_run`, append them to the log, and return the logged entries.

    now, decided_by, source:  as in the entries

    Raises Conflict if the run changed meanwhile, and the errors of `apply_decisions`.
    """
    document = apply_decisions(run.document, events)
    decisions = build_log_entries(run.id, run.document, document, events, now=now, decided_by=decided_by, source=source)
    changed = replace(run, revision=run.revision + 1, document=document, changed_at=now)
    await store.commit(Transaction(agent_run=changed, approval_decisions=tuple(decisions)))
    return decisions


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


def arguments_digest(arguments: str) -> str:
    """Return the digest of the exact arguments of a call: "sha256:" and 64 hex digits."""
    return f"sha256:{sha256(arguments.encode('utf-8', 'surrogatepass')).hexdigest()}"


def decision_to_json(decision: ApprovalDecision) -> dict[str, Json]:
    """Return the JSON object of a logged decision; `decided_at` is in seconds since 1970."""
    return {
        "run": decision.run_id,
        "call_id": decision.call_id,
        "agent": decision.agent,
        "tool_name": decision.tool,
        "arguments": decision.arguments,
        "arguments_digest": arguments_digest(decision.arguments),
        "decision": "approve" if decision.approved else "reject",
        "always": decision.is_sticky,
        "reason": decision.reason,
        "decided_at": decision.decided_at,
        "decided_by": decision.decided_by,
        "source": decision.source,
    }

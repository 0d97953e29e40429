"""Response runs and their events, agent runs and their tool calls.

A run ends once: the second writer gets `Conflict`. Events are stored in the batches that they arrive in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from convo.errors import Conflict, InputFault, NotFound
from convo.history.items import StreamEvent
from convo.history.records import AgentCall, AgentRun, ApprovalDecision
from convo.stores import base
from convo.stores.base import UNCHANGED_DOCUMENT, Transaction
from convo.stores.codec import (
    ReadRows,
    decode_agent_call,
    decode_agent_run,
    decode_approval_decision,
    decode_event_batch,
    decode_rows,
    encode_approval_decision,
    encode_json,
)
from convo.stores.postgres import tenant_rows
from convo.stores.postgres.tenant_rows import Row, Statement, TenantConnection, decompress_body, encode_body, to_columns

DATABASE_TIME_SQL = "extract(epoch FROM clock_timestamp())::double precision"
"""The database's clock, seconds since 1970."""

UPSERT_RUN = (
    "INSERT INTO convo.runs (tenant, id) VALUES ($1, $2) ON CONFLICT (tenant, id) DO UPDATE SET ended_at = NULL"
)

END_RUN = f"UPDATE convo.runs SET ended_at = {DATABASE_TIME_SQL} WHERE tenant = $1 AND id = $2"
DELETE_EMPTY_RUN = "DELETE FROM convo.runs WHERE tenant = $1 AND id = $2 AND last < 0"

INSERT_EVENTS = """
WITH run AS (
    UPDATE convo.runs SET last = $4 WHERE tenant = $1 AND id = $2 AND ended_at IS NULL AND last < $3 RETURNING id
)
INSERT INTO convo.events (tenant, run, last, many, body) SELECT $1, id, $4, $5, $6 FROM run RETURNING 1
"""
"""Append a batch if the run is open and the batch's first event follows the last stored one."""

SELECT_OPEN_RUN = "SELECT last FROM convo.runs WHERE tenant = $1 AND id = $2 AND ended_at IS NULL"

SELECT_EVENTS = "SELECT body FROM convo.events WHERE tenant = $1 AND run = $2 AND last > $3 ORDER BY last"


def build_run_start(t: TenantConnection, response_id: str) -> Statement:
    """Open the run of a response."""
    return t.statement(UPSERT_RUN, tenant_rows.escape_name(response_id))


def build_run_end(t: TenantConnection, response_id: str) -> Iterable[Statement]:
    """End an open run; one without events is deleted."""
    yield t.statement(DELETE_EMPTY_RUN, tenant_rows.escape_name(response_id))
    yield t.statement(END_RUN, tenant_rows.escape_name(response_id))


def build_run_deletes(t: TenantConnection, responses: Sequence[str]) -> Iterable[Statement]:
    """Delete the runs of these responses (escaped ids), and their events."""
    yield t.statement("DELETE FROM convo.events WHERE tenant = $1 AND run = ANY($2::text[])", responses)
    yield t.statement("DELETE FROM convo.runs WHERE tenant = $1 AND id = ANY($2::text[])", responses)


async def insert_events(t: TenantConnection, response_id: str, events: Sequence[StreamEvent]) -> None:
    """Append events to an open run. Raises Conflict and InputFault."""
    run, batch = tenant_rows.escape_name(response_id), _encode_event_batch(events)
    if batch and await t.fetch_value(INSERT_EVENTS, run, *batch):
        return
    last_number = await t.fetch_value(SELECT_OPEN_RUN, run)
    if last_number is None:
        raise base.run_not_open_error(response_id)
    base.check_sequence_numbers(events, last_number)
    encode_json(list(events))
    if batch:
        raise Conflict(f"{response_id!a} took other events meanwhile")


def _encode_event_batch(events: Sequence[StreamEvent]) -> tuple[int, int, int, str] | None:
    """Return the first and last number of the events, their count and their text; None if they cannot be a batch."""
    try:
        last = base.check_sequence_numbers(events, -1)
        return (events[0]["sequence_number"], last, len(events), encode_json(list(events))) if events else None
    except (Conflict, InputFault):  # the error to raise depends on whether the run is open
        return None


async def select_events(t: TenantConnection, response_id: str, after: int) -> Sequence[StreamEvent]:
    rows = await t.fetch_all(SELECT_EVENTS, tenant_rows.escape_name(response_id), after)
    events = (event for (body,) in rows for event in decode_event_batch(response_id, body))
    return [event for event in events if event["sequence_number"] > after]


LOCK_AGENT_RUNS = """
SELECT id, revision FROM convo.agent_runs WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY id FOR UPDATE
"""

SELECT_SESSION_EXISTS = "SELECT 1 FROM convo.sessions WHERE tenant = $1 AND id = $2"

SELECT_AGENT_RUNS = """
SELECT id, session, revision, status, document, created_at, changed_at, state FROM convo.agent_runs WHERE tenant = $1
"""

INSERT_AGENT_RUN = """
INSERT INTO convo.agent_runs (tenant, id, session, revision, status, state, created_at, changed_at, document)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""

UPDATE_AGENT_RUN = """
UPDATE convo.agent_runs
SET (session, revision, status, state, created_at, changed_at, document)
    = ROW ($3, $4, $5, $6, $7, $8, coalesce($9, document))
WHERE tenant = $1 AND id = $2
"""

UPSERT_AGENT_CALLS = """
INSERT INTO convo.agent_calls (tenant, run, id, started_at, output, place)
SELECT $1, $2, id, started_at, output, place + coalesce((
    SELECT max(place) FROM convo.agent_calls WHERE tenant = $1 AND run = $2), 0)
FROM unnest($3::text[], $4::float8[], $5::text[], $6::integer[]) AS new (id, started_at, output, place)
ON CONFLICT (tenant, run, id) DO UPDATE SET (started_at, output) = ROW (excluded.started_at, excluded.output)
WHERE agent_calls.output IS NULL
"""

SELECT_AGENT_CALLS = (
    "SELECT id, started_at, output FROM convo.agent_calls WHERE tenant = $1 AND run = $2 ORDER BY started_at, place"
)

INSERT_APPROVAL_DECISIONS = """
INSERT INTO convo.approval_decisions (tenant, run, decided_at, place, body)
SELECT $1, $2, decided_at, place + coalesce((
    SELECT max(place) FROM convo.approval_decisions WHERE tenant = $1 AND run = $2), 0), body
FROM unnest($3::float8[], $4::text[], $5::integer[]) AS new (decided_at, body, place)
"""

SELECT_APPROVAL_DECISIONS = "SELECT run, decided_at, body FROM convo.approval_decisions WHERE tenant = $1"

DELETE_AGENT_RUNS = (
    "DELETE FROM convo.approval_decisions WHERE tenant = $1 AND run IN ("
    "SELECT id FROM convo.agent_runs WHERE tenant = $1 AND session = ANY($2::text[]))",
    "DELETE FROM convo.agent_calls WHERE tenant = $1 AND run IN ("
    "SELECT id FROM convo.agent_runs WHERE tenant = $1 AND session = ANY($2::text[]))",
    "DELETE FROM convo.agent_runs WHERE tenant = $1 AND session = ANY($2::text[])",
)


# -- reading --------------------------------------------------------------------------------------


async def select_agent_run(t: TenantConnection, run_id: str) -> AgentRun | None:
    """Return a run. Raises DamagedRow."""
    row = await t.fetch_row(f"{SELECT_AGENT_RUNS} AND id = $2", tenant_rows.escape_name(run_id))
    return agent_run_from_row(row) if row else None


async def select_agent_runs(
    t: TenantConnection, session: str | None, state: str | None, status: str | None, limit: int
) -> ReadRows[AgentRun]:
    """Return the runs that match all given filters, last changed first."""
    filters = {"session": session, "state": state, "status": status}
    conditions = {column: tenant_rows.escape_name(value) for column, value in filters.items() if value is not None}
    where = "".join(f" AND {column} = ${number}" for number, column in enumerate(conditions, start=3))
    newest_first = " ORDER BY changed_at DESC, id DESC LIMIT $2"
    row_count = limit
    while True:
        rows = await t.fetch_all(SELECT_AGENT_RUNS + where + newest_first, row_count, *conditions.values())
        read = decode_rows(agent_run_from_row, rows)
        if len(rows) < row_count or len(read.rows) >= limit:
            return read
        row_count = limit + len(read.damaged)


async def select_agent_calls(t: TenantConnection, run_id: str) -> Sequence[AgentCall]:
    """Return the tool calls of a run, in the order in which they started. Raises DamagedRow."""
    rows = await t.fetch_all(SELECT_AGENT_CALLS, tenant_rows.escape_name(run_id))
    return [agent_call_from_row(run_id, row) for row in rows]


async def select_approval_decisions(t: TenantConnection, run_id: str | None, limit: int) -> ReadRows[ApprovalDecision]:
    """Return the newest decisions of a run or of all runs, last decided first."""
    where, values = ("", ()) if run_id is None else (" AND run = $3", (tenant_rows.escape_name(run_id),))
    newest_first = " ORDER BY decided_at DESC, run DESC, place DESC LIMIT $2"
    rows = await t.fetch_all(SELECT_APPROVAL_DECISIONS + where + newest_first, limit, *values)
    return decode_rows(approval_decision_from_row, rows)


def approval_decision_from_row(row: Row) -> ApprovalDecision:
    """Return the decision of a row of `SELECT_APPROVAL_DECISIONS`. Raises DamagedRow."""
    run_id, decided_at, body = row
    return decode_approval_decision((tenant_rows.unescape_name(run_id), decided_at, body))


def agent_call_from_row(run_id: str, row: Row) -> AgentCall:
    """Return the tool call of a row of `SELECT_AGENT_CALLS`. Raises DamagedRow."""
    call_id, started_at, output = row
    return decode_agent_call(run_id, (tenant_rows.unescape_name(call_id), started_at, output))


def agent_run_from_row(row: Row) -> AgentRun:
    """Return the run of a row of `SELECT_AGENT_RUNS`. Raises DamagedRow."""
    run_id, session, revision, status, document, created_at, changed_at, state = row
    ids = tenant_rows.unescape_name(run_id), tenant_rows.unescape_name(session)
    columns = (revision, status, decompress_body(document), created_at, changed_at)
    return decode_agent_run((*ids, *columns, state and tenant_rows.unescape_name(state)))


# -- writing --------------------------------------------------------------------------------------


def build_agent_run_reads(t: TenantConnection, transaction: Transaction) -> Mapping[str, Statement]:
    """Return the queries that are needed before agent runs are written; none if the transaction has none."""
    run, statements = transaction.agent_run, {}
    run_ids = {*_referenced_run_ids(transaction), *((run.id,) if run else ())}
    if run_ids:
        statements["agent runs"] = t.statement(LOCK_AGENT_RUNS, sorted(map(tenant_rows.escape_name, run_ids)))
    if run and not _writes_own_session(transaction, run):
        statements["agent session"] = t.statement(SELECT_SESSION_EXISTS, tenant_rows.escape_name(run.session_id))
    return statements


def check_agent_run_revision(transaction: Transaction, results: Mapping[str, list[Row]]) -> None:
    """Check that a run has the revision after the stored one. Raises Conflict."""
    if transaction.agent_run:
        base.check_next_revision(transaction.agent_run, _stored_revisions(results).get(transaction.agent_run.id, 0))


def check_agent_run_references(transaction: Transaction, results: Mapping[str, list[Row]]) -> None:
    """Check that a run's session and each call's run exist. Raises NotFound."""
    run = transaction.agent_run
    if run and not _writes_own_session(transaction, run) and not results["agent session"]:
        raise NotFound("session", run.session_id)
    run_ids = {*_stored_revisions(results), *((run.id,) if run else ())}
    for run_id in _referenced_run_ids(transaction):
        if run_id not in run_ids:
            raise base.agent_run_not_found_error(run_id)


def _referenced_run_ids(transaction: Transaction) -> list[str]:
    """Return the ids of the runs to which the calls and the decisions of a transaction belong."""
    return [
        *(call.run_id for call in transaction.agent_calls),
        *(decision.run_id for decision in transaction.approval_decisions),
    ]


def build_agent_run_upsert(t: TenantConnection, new: AgentRun) -> Statement:
    """Write a run that was checked. Raises NotCanonical."""
    is_new = new.revision == 1
    return t.statement(
        INSERT_AGENT_RUN if is_new else UPDATE_AGENT_RUN,
        *(
            tenant_rows.escape_name(new.id),
            tenant_rows.escape_name(new.session_id),
            new.revision,
            new.status,
            tenant_rows.escape_optional_name(new.source_state_hash),
        ),
        *(
            new.created_at,
            new.changed_at,
            encode_body(dict(new.document)) if is_new or new.document is not UNCHANGED_DOCUMENT else None,
        ),
    )


def build_agent_call_upserts(t: TenantConnection, calls: Sequence[AgentCall]) -> Iterator[Statement]:
    """Write tool calls, except over stored ones that have ended. Raises NotCanonical."""
    for run in sorted({call.run_id for call in calls}):
        rows = [
            (
                tenant_rows.escape_name(call.call_id),
                call.started_at,
                encode_json(call.output) if call.has_ended else None,
                position,
            )
            for position, call in enumerate(_merge_agent_calls(call for call in calls if call.run_id == run), start=1)
        ]
        yield t.statement(UPSERT_AGENT_CALLS, tenant_rows.escape_name(run), *to_columns(rows, 4))


def build_approval_decision_inserts(t: TenantConnection, decisions: Sequence[ApprovalDecision]) -> Iterator[Statement]:
    """Append decisions to the log. Raises NotCanonical."""
    for run in sorted({decision.run_id for decision in decisions}):
        rows = [
            (decision.decided_at, encode_approval_decision(decision), position)
            for position, decision in enumerate((one for one in decisions if one.run_id == run), start=1)
        ]
        yield t.statement(INSERT_APPROVAL_DECISIONS, tenant_rows.escape_name(run), *to_columns(rows, 3))


def build_agent_run_deletes(t: TenantConnection, sessions: Sequence[str]) -> list[Statement]:
    """Delete the agent runs of these sessions (escaped ids), their calls and the decisions on them."""
    return [t.statement(sql, sessions) for sql in DELETE_AGENT_RUNS]


def _writes_own_session(transaction: Transaction, run: AgentRun) -> bool:
    return transaction.session is not None and transaction.session.id == run.session_id


def _stored_revisions(results: Mapping[str, list[Row]]) -> dict[str, int]:
    return {tenant_rows.unescape_name(run_id): revision for run_id, revision in results.get("agent runs", [])}


def _merge_agent_calls(calls: Iterable[AgentCall]) -> Iterable[AgentCall]:
    """Keep one call for each id, in the order of the first: one statement cannot write a row twice."""
    last: dict[str, AgentCall] = {}
    for call in calls:
        if call.call_id not in last or not last[call.call_id].has_ended:
            last[call.call_id] = call
    return last.values()

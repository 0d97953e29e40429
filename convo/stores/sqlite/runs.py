"""Response runs and their events, agent runs and their tool calls.

A run ends once: the second writer gets `Conflict`, and nothing that it sent is stored.
"""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from convo.errors import NotFound
from convo.history.items import StreamEvent
from convo.history.records import AgentCall, AgentRun, ApprovalDecision
from convo.stores import base
from convo.stores.base import UNCHANGED_DOCUMENT
from convo.stores.codec import (
    ReadRows,
    decode_agent_call,
    decode_agent_run,
    decode_approval_decision,
    decode_event,
    decode_rows,
    encode_approval_decision,
    encode_json,
)
from convo.stores.sqlite.tenant_rows import TenantConnection, database_time_s, to_query_name

SELECT_OPEN_RUN = """
SELECT links.n FROM links JOIN runs ON runs.link = links.n
WHERE links.tenant = ? AND links.id = ? AND ended_at IS NULL
"""

UPSERT_RUN = "INSERT INTO runs (tenant, link) VALUES (?, ?) ON CONFLICT (link) DO UPDATE SET ended_at = NULL"


def start_response_run(t: TenantConnection, response_id: str) -> None:
    """Open the run of a response. Raises NotFound."""
    n = t.fetch_value(
        "SELECT n FROM links WHERE tenant = ? AND id = ? AND saw IS NOT NULL",
        t.tenant_number,
        to_query_name(response_id),
    )
    if n is None:
        raise NotFound("response", response_id)
    t.execute(UPSERT_RUN, t.tenant_number, n)


def require_open_run(t: TenantConnection, response_id: str) -> int:
    """Return the rowid of a response whose run is open. Raises Conflict."""
    n: int | None = t.fetch_value(SELECT_OPEN_RUN, t.tenant_number, to_query_name(response_id))
    if n is None:
        raise base.run_not_open_error(response_id)
    return n


def end_response_run(t: TenantConnection, response: int) -> None:
    """End an open run; one without events is deleted."""
    if _last_event_number(t, response) is None:
        delete_response_run(t.db, response)
    else:
        t.execute("UPDATE runs SET ended_at = ? WHERE link = ?", database_time_s(t.db), response)


def delete_response_run(db: sqlite3.Connection, response: int) -> None:
    """Delete the run of a response and its events, if there is one."""
    db.execute("DELETE FROM events WHERE link = ?", (response,))
    db.execute("DELETE FROM runs WHERE link = ?", (response,))


def insert_events(t: TenantConnection, response_id: str, events: Sequence[StreamEvent]) -> None:
    """Append events to an open run. Raises Conflict and InputFault."""
    n = require_open_run(t, response_id)
    last_number = _last_event_number(t, n)
    base.check_sequence_numbers(events, -1 if last_number is None else last_number)
    rows = [(t.tenant_number, n, event["sequence_number"], encode_json(event)) for event in events]
    t.db.executemany("INSERT INTO events (tenant, link, number, body) VALUES (?, ?, ?, ?)", rows)


def _last_event_number(t: TenantConnection, response: int) -> int | None:
    number: int | None = t.fetch_value("SELECT max(number) FROM events WHERE link = ?", response)
    return number


def select_events(t: TenantConnection, response_id: str, after: int) -> Sequence[StreamEvent]:
    rows = t.fetch_records(
        "SELECT body FROM links JOIN events ON events.link = links.n WHERE links.tenant = ? AND id = ? AND number > ?"
        " ORDER BY number",
        *(t.tenant_number, to_query_name(response_id), after),
    )
    return [decode_event(response_id, body) for (body,) in rows]


SELECT_AGENT_RUNS = """
SELECT agent_runs.id, sessions.id, revision, status, body, created_at, changed_at, state
FROM agent_runs LEFT JOIN sessions ON sessions.n = agent_runs.session
    LEFT JOIN agent_documents ON run = agent_runs.n
WHERE agent_runs.tenant = ?
"""

UPSERT_AGENT_DOCUMENT = """
INSERT INTO agent_documents (tenant, run, body) VALUES (?, ?, ?) ON CONFLICT (run) DO UPDATE SET body = excluded.body
"""

UPSERT_AGENT_CALL = """
INSERT INTO agent_calls (tenant, run, id, started_at, output) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run, id) DO UPDATE SET (started_at, output) = (excluded.started_at, excluded.output)
WHERE agent_calls.output IS NULL
"""

SELECT_AGENT_CALLS = """
SELECT agent_calls.id, started_at, output FROM agent_runs JOIN agent_calls ON run = agent_runs.n
WHERE agent_runs.tenant = ? AND agent_runs.id = ? ORDER BY started_at, agent_calls.n
"""

INSERT_APPROVAL_DECISION = "INSERT INTO approval_decisions (tenant, run, decided_at, body) VALUES (?, ?, ?, ?)"

SELECT_APPROVAL_DECISIONS = """
SELECT agent_runs.id, decided_at, body FROM approval_decisions LEFT JOIN agent_runs ON agent_runs.n = run
WHERE approval_decisions.tenant = ?
"""


class AgentRunRow(NamedTuple):
    """The stored row of an agent run that a transaction writes."""

    rowid: int
    session: int
    revision: int


def select_agent_run(t: TenantConnection, run_id: str) -> AgentRun | None:
    """Return a run. Raises DamagedRow."""
    rows = t.fetch_records(SELECT_AGENT_RUNS + "AND agent_runs.id = ?", t.tenant_number, to_query_name(run_id))
    return decode_agent_run(rows[0]) if rows else None


def select_agent_runs(
    t: TenantConnection, session: str | None, state: str | None, status: str | None, limit: int
) -> ReadRows[AgentRun]:
    """Return the runs that match all given filters, last changed first."""
    filters = {"sessions.id": session, "state": state, "status": status}
    conditions = {column: to_query_name(value) for column, value in filters.items() if value is not None}
    where = "".join(f"AND {column} = ? " for column in conditions)
    newest_first = "ORDER BY changed_at DESC, agent_runs.n DESC LIMIT ?"
    row_count = limit
    while True:
        rows = t.fetch_records(
            f"{SELECT_AGENT_RUNS}{where}{newest_first}", t.tenant_number, *conditions.values(), row_count
        )
        read = decode_rows(decode_agent_run, rows)
        if len(rows) < row_count or len(read.rows) >= limit:
            return read
        row_count = limit + len(read.damaged)


def select_agent_calls(t: TenantConnection, run_id: str) -> Sequence[AgentCall]:
    """Return the tool calls of a run, in the order in which they started. Raises DamagedRow."""
    rows = t.fetch_records(SELECT_AGENT_CALLS, t.tenant_number, to_query_name(run_id))
    return [decode_agent_call(run_id, row) for row in rows]


def check_agent_run_revision(t: TenantConnection, new: AgentRun) -> AgentRunRow | None:
    """Return the stored row of a run; `new` must have the next revision. Raises Conflict."""
    row = t.fetch_row(
        "SELECT n, session, revision FROM agent_runs WHERE tenant = ? AND id = ?", t.tenant_number, new.id
    )
    stored = AgentRunRow(*row) if row else None
    base.check_next_revision(new, stored.revision if stored else 0)
    return stored


def upsert_agent_run(t: TenantConnection, new: AgentRun, stored: AgentRunRow | None) -> None:
    """Write a run over the row from `check_agent_run_revision`. Raises NotFound and NotCanonical."""
    row: dict[str, object] = {
        "session": _require_session_rowid(t, new.session_id, stored),
        "revision": new.revision,
        "status": new.status,
        "state": new.source_state_hash,
        "created_at": new.created_at,
        "changed_at": new.changed_at,
    }
    if stored:
        n = t.rowids["agent_runs", new.id] = stored.rowid
        t.update_row("agent_runs", n, row, {"session": stored.session})
    else:
        n = t.insert_row("agent_runs", new.id, row)
    if new.document is not UNCHANGED_DOCUMENT or stored is None:
        t.execute(UPSERT_AGENT_DOCUMENT, t.tenant_number, n, encode_json(dict(new.document)))


def _require_session_rowid(t: TenantConnection, session_id: str, stored: AgentRunRow | None) -> int:
    """Return the rowid of a run's session. Raises NotFound."""
    session = t.find_rowid("sessions", session_id)
    if stored and stored.session == session:  # a session with runs has a record
        return stored.session
    if session is None or t.fetch_value("SELECT 1 FROM sessions WHERE n = ? AND record IS NOT NULL", session) is None:
        raise NotFound("session", session_id)
    return session


def upsert_agent_call(t: TenantConnection, new: AgentCall) -> None:
    """Write a tool call of a run, unless the stored one has ended. Raises NotFound and NotCanonical."""
    run = t.find_rowid("agent_runs", new.run_id)
    if run is None:
        raise base.agent_run_not_found_error(new.run_id)
    t.execute(
        UPSERT_AGENT_CALL,
        t.tenant_number,
        run,
        new.call_id,
        new.started_at,
        encode_json(new.output) if new.has_ended else None,
    )


def insert_approval_decision(t: TenantConnection, new: ApprovalDecision) -> None:
    """Append a decision to the log. Raises NotFound and NotCanonical."""
    run = t.find_rowid("agent_runs", new.run_id)
    if run is None:
        raise base.agent_run_not_found_error(new.run_id)
    t.execute(INSERT_APPROVAL_DECISION, t.tenant_number, run, new.decided_at, encode_approval_decision(new))


def select_approval_decisions(t: TenantConnection, run_id: str | None, limit: int) -> ReadRows[ApprovalDecision]:
    """Return the newest decisions of a run or of all runs, last decided first."""
    where = "" if run_id is None else "AND agent_runs.id = ? "
    values = () if run_id is None else (to_query_name(run_id),)
    newest_first = "ORDER BY decided_at DESC, approval_decisions.n DESC LIMIT ?"
    rows = t.fetch_records(f"{SELECT_APPROVAL_DECISIONS}{where}{newest_first}", t.tenant_number, *values, limit)
    return decode_rows(decode_approval_decision, rows)


def delete_agent_runs(t: TenantConnection, session: int) -> None:
    """Delete the runs of a session, their calls and the decisions on them."""
    for (run,) in t.fetch_all("SELECT n FROM agent_runs WHERE session = ?", session):
        t.execute("DELETE FROM approval_decisions WHERE run = ?", run)
        t.execute("DELETE FROM agent_calls WHERE run = ?", run)
        t.execute("DELETE FROM agent_documents WHERE run = ?", run)
        t.execute_delete("DELETE FROM agent_runs WHERE n = ?", run)

"""Runs of agents as rows, and the ledgers of their calls.

A run is a small row that queries look at and a document that they do not. Both are replaced where they
stand, so a run of a thousand turns costs what its last one holds.
"""

from collections.abc import Sequence
from typing import NamedTuple

from convo.errors import NotFound
from convo.stores import rules
from convo.stores.contract import KEPT, AgentCall, AgentRun
from convo.stores.sqlite.tenant import Row, Tenant, asked
from convo.stores.verbatim import dumps, loads

RUNS = """
SELECT agent_runs.id, sessions.id, revision, status, body, created_at, changed_at, state
FROM agent_runs JOIN sessions ON sessions.n = agent_runs.session JOIN agent_documents ON run = agent_runs.n
WHERE agent_runs.tenant = ?
"""

DOCUMENT = """
INSERT INTO agent_documents (tenant, run, body) VALUES (?, ?, ?) ON CONFLICT (run) DO UPDATE SET body = excluded.body
"""

CALL = """
INSERT INTO agent_calls (tenant, run, id, started_at, output) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run, id) DO UPDATE SET (started_at, output) = (excluded.started_at, excluded.output)
WHERE agent_calls.output IS NULL
"""

CALLS = """
SELECT agent_calls.id, started_at, output FROM agent_runs JOIN agent_calls ON run = agent_runs.n
WHERE agent_runs.tenant = ? AND agent_runs.id = ? ORDER BY started_at, agent_calls.n
"""


class There(NamedTuple):
    """The row of a run, as a change finds it."""

    n: int
    session: int
    revision: int


def run(t: Tenant, run_id: str) -> AgentRun | None:
    found = t.row(RUNS + "AND agent_runs.id = ?", t.n, asked(run_id))
    return _run_of(found) if found else None


def runs(t: Tenant, session: str | None, state: str | None, status: str | None, limit: int) -> Sequence[AgentRun]:
    """Runs, changed last first: those that have what is asked for."""
    bounds = {"sessions.id": session, "state": state, "status": status}
    wanted = {column: asked(value) for column, value in bounds.items() if value is not None}
    where = "".join(f"AND {column} = ? " for column in wanted)
    newest_first = "ORDER BY changed_at DESC, agent_runs.n DESC LIMIT ?"
    return [_run_of(row) for row in t.all(f"{RUNS}{where}{newest_first}", t.n, *wanted.values(), limit)]


def calls(t: Tenant, run_id: str) -> Sequence[AgentCall]:
    """The ledger of a run, started first first."""
    return [
        AgentCall(run_id, call_id, started_at, output is not None, None if output is None else loads(output))
        for call_id, started_at, output in t.all(CALLS, t.n, asked(run_id))
    ]


def check(t: Tenant, new: AgentRun) -> There | None:
    """The row of a run that is there, whose revision `new` must follow. raises: Conflict"""
    found = t.row("SELECT n, session, revision FROM agent_runs WHERE tenant = ? AND id = ?", t.n, new.id)
    there = There(*found) if found else None
    rules.expect_revision(new, there.revision if there else 0)
    return there


def put(t: Tenant, new: AgentRun, there: There | None) -> None:
    """Write a run over the row that `check` found. raises: NotFound, NotCanonical"""
    row: dict[str, object] = {
        "session": _session(t, new.session, there),
        "revision": new.revision,
        "status": new.status,
        "state": new.state,
        "created_at": new.created_at,
        "changed_at": new.changed_at,
    }
    if there:
        n = t.numbers["agent_runs", new.id] = there.n
        t.update("agent_runs", n, row, {"session": there.session})
    else:
        n = t.insert("agent_runs", new.id, row)
    if new.document is not KEPT or there is None:
        t.run(DOCUMENT, t.n, n, dumps(dict(new.document)))


def _session(t: Tenant, session_id: str, there: There | None) -> int:
    """The number of a run's session. raises: NotFound"""
    session = t.number("sessions", session_id)
    if there and there.session == session:  # one that has runs has its record
        return there.session
    if session is None or t.one("SELECT 1 FROM sessions WHERE n = ? AND record IS NOT NULL", session) is None:
        raise NotFound("session", session_id)
    return session


def put_call(t: Tenant, new: AgentCall) -> None:
    """Write a call into the ledger of its run, unless it has ended there. raises: NotFound, NotCanonical"""
    number = t.number("agent_runs", new.run)
    if number is None:
        raise rules.no_agent_run(new.run)
    t.run(CALL, t.n, number, new.call_id, new.started_at, dumps(new.output) if new.ended else None)


def drop(t: Tenant, session: int) -> None:
    """Take the runs of a session, and their calls."""
    for (number,) in t.all("SELECT n FROM agent_runs WHERE session = ?", session):
        t.run("DELETE FROM agent_calls WHERE run = ?", number)
        t.run("DELETE FROM agent_documents WHERE run = ?", number)
        t.delete("DELETE FROM agent_runs WHERE n = ?", number)


def _run_of(row: Row) -> AgentRun:
    """A run from the columns of `RUNS`."""
    run_id, session, revision, status, body, created_at, changed_at, state = row
    return AgentRun(run_id, session, revision, status, loads(body), created_at, changed_at, state)

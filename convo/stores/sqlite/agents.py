"""Runs of agents as rows, and the ledgers of their calls.

A run is a small row that queries look at and a document that they do not. Both are replaced where they
stand, so a run of a thousand turns costs what its last one holds.
"""

from collections.abc import Sequence

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

ADD = """
INSERT INTO agent_runs (session, revision, status, state, created_at, changed_at, tenant, id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

REPLACE = """
UPDATE agent_runs SET (session, revision, status, state, created_at, changed_at) = (?, ?, ?, ?, ?, ?)
WHERE tenant = ? AND id = ?
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


def check(t: Tenant, new: AgentRun) -> None:
    """Make sure that a run follows the revision that is there. raises: Conflict"""
    found = t.one("SELECT revision FROM agent_runs WHERE tenant = ? AND id = ?", t.n, new.id)
    rules.expect_revision(new, found or 0)


def put(t: Tenant, new: AgentRun) -> None:
    """Write a run that was checked. raises: NotFound, NotCanonical"""
    session = t.one("SELECT n FROM sessions WHERE tenant = ? AND id = ? AND record IS NOT NULL", t.n, new.session)
    if session is None:
        raise NotFound("session", new.session)
    row = (session, new.revision, new.status, new.state, new.created_at, new.changed_at)
    t.run(ADD if new.revision == 1 else REPLACE, *row, t.n, new.id)
    if new.document is not KEPT or new.revision == 1:
        t.run(DOCUMENT, t.n, _number(t, new.id), dumps(dict(new.document)))


def put_call(t: Tenant, new: AgentCall) -> None:
    """Write a call into the ledger of its run, unless it has ended there. raises: NotFound, NotCanonical"""
    number = _number(t, new.run)
    if number is None:
        raise rules.no_agent_run(new.run)
    t.run(CALL, t.n, number, new.call_id, new.started_at, dumps(new.output) if new.ended else None)


def drop(t: Tenant, session: int) -> None:
    """Take the runs of a session, and their calls."""
    for (number,) in t.all("SELECT n FROM agent_runs WHERE session = ?", session):
        t.run("DELETE FROM agent_calls WHERE run = ?", number)
        t.run("DELETE FROM agent_documents WHERE run = ?", number)
        t.run("DELETE FROM agent_runs WHERE n = ?", number)


def _number(t: Tenant, run_id: str) -> int | None:
    found: int | None = t.one("SELECT n FROM agent_runs WHERE tenant = ? AND id = ?", t.n, run_id)
    return found


def _run_of(row: Row) -> AgentRun:
    """A run from the columns of `RUNS`."""
    run_id, session, revision, status, body, created_at, changed_at, state = row
    return AgentRun(run_id, session, revision, status, loads(body), created_at, changed_at, state)

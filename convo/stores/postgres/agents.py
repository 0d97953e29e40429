"""Runs of agents as rows, and the ledgers of their calls.

A run's row is locked by whoever writes it or its ledger, so revisions follow each other and calls are
counted one after the other, whichever machine writes them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from convo.errors import NotFound
from convo.stores import rules
from convo.stores.contract import KEPT, AgentCall, AgentRun, Change
from convo.stores.postgres import names
from convo.stores.postgres.bodies import item_of, packed
from convo.stores.postgres.tenant import Ask, Row, Tenant, columns
from convo.stores.verbatim import dumps, loads

THERE = """
SELECT id, revision FROM convo.agent_runs WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY id FOR UPDATE
"""

SESSION = "SELECT 1 FROM convo.sessions WHERE tenant = $1 AND id = $2"

RUNS = """
SELECT id, session, revision, status, document, created_at, changed_at, state FROM convo.agent_runs WHERE tenant = $1
"""

ADD = """
INSERT INTO convo.agent_runs (tenant, id, session, revision, status, state, created_at, changed_at, document)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""

REPLACE = """
UPDATE convo.agent_runs
SET (session, revision, status, state, created_at, changed_at, document)
    = ROW ($3, $4, $5, $6, $7, $8, coalesce($9, document))
WHERE tenant = $1 AND id = $2
"""

CALL = """
INSERT INTO convo.agent_calls (tenant, run, id, started_at, output, place)
SELECT $1, $2, id, started_at, output, place + coalesce((
    SELECT max(place) FROM convo.agent_calls WHERE tenant = $1 AND run = $2), 0)
FROM unnest($3::text[], $4::float8[], $5::text[], $6::integer[]) AS new (id, started_at, output, place)
ON CONFLICT (tenant, run, id) DO UPDATE SET (started_at, output) = ROW (excluded.started_at, excluded.output)
WHERE agent_calls.output IS NULL
"""

CALLS = "SELECT id, started_at, output FROM convo.agent_calls WHERE tenant = $1 AND run = $2 ORDER BY started_at, place"

DROP = (
    "DELETE FROM convo.agent_calls WHERE tenant = $1 AND run IN ("
    "SELECT id FROM convo.agent_runs WHERE tenant = $1 AND session = ANY($2::text[]))",
    "DELETE FROM convo.agent_runs WHERE tenant = $1 AND session = ANY($2::text[])",
)


# -- reading --------------------------------------------------------------------------------------


async def run(t: Tenant, run_id: str) -> AgentRun | None:
    found = await t.row(f"{RUNS} AND id = $2", names.written(run_id))
    return _run_of(found) if found else None


async def runs(t: Tenant, session: str | None, state: str | None, status: str | None, limit: int) -> Sequence[AgentRun]:
    """Runs, changed last first: those that have what is asked for."""
    bounds = {"session": session, "state": state, "status": status}
    wanted = {column: names.written(value) for column, value in bounds.items() if value is not None}
    where = "".join(f" AND {column} = ${number}" for number, column in enumerate(wanted, start=3))
    newest_first = " ORDER BY changed_at DESC, id DESC LIMIT $2"
    return [_run_of(row) for row in await t.all(RUNS + where + newest_first, limit, *wanted.values())]


async def calls(t: Tenant, run_id: str) -> Sequence[AgentCall]:
    """The ledger of a run, started first first."""
    return [
        AgentCall(
            run_id, names.read(call_id), started_at, output is not None, None if output is None else loads(output)
        )
        for call_id, started_at, output in await t.all(CALLS, names.written(run_id))
    ]


def _run_of(row: Row) -> AgentRun:
    """A run from the columns of `RUNS`."""
    run_id, session, revision, status, document, created_at, changed_at, state = row
    own = names.read(run_id), names.read(session)
    return AgentRun(*own, revision, status, item_of(document), created_at, changed_at, state and names.read(state))


# -- writing --------------------------------------------------------------------------------------


def questions(t: Tenant, change: Change) -> Mapping[str, Ask]:
    """What must be known of runs before they are written; nothing where the change has none."""
    run, asked = change.agent_run, {}
    if run or change.calls:
        named = {call.run for call in change.calls} | ({run.id} if run else set())
        asked["agent runs"] = t.ask(THERE, sorted(map(names.written, named)))
    if run and not _brings_session(change, run):
        asked["agent session"] = t.ask(SESSION, names.written(run.session))
    return asked


def check_revision(change: Change, told: Mapping[str, list[Row]]) -> None:
    """Make sure that a run follows the revision that is there. raises: Conflict"""
    if change.agent_run:
        rules.expect_revision(change.agent_run, _revisions(told).get(change.agent_run.id, 0))


def check_there(change: Change, told: Mapping[str, list[Row]]) -> None:
    """Make sure that a run has its session, and each call its run. raises: NotFound"""
    run = change.agent_run
    if run and not _brings_session(change, run) and not told["agent session"]:
        raise NotFound("session", run.session)
    there = {*_revisions(told), *((run.id,) if run else ())}
    for call in change.calls:
        if call.run not in there:
            raise rules.no_agent_run(call.run)


def put(t: Tenant, new: AgentRun) -> Ask:
    """Write a run that was checked. raises: NotCanonical"""
    is_new = new.revision == 1
    return t.ask(
        ADD if is_new else REPLACE,
        *(names.written(new.id), names.written(new.session), new.revision, new.status, names.maybe(new.state)),
        *(new.created_at, new.changed_at, packed(dict(new.document)) if is_new or new.document is not KEPT else None),
    )


def put_calls(t: Tenant, calls: Sequence[AgentCall]) -> Iterator[Ask]:
    """Write calls into the ledgers of their runs, but for those that have ended there. raises: NotCanonical"""
    for run in sorted({call.run for call in calls}):
        rows = [
            (names.written(call.call_id), call.started_at, dumps(call.output) if call.ended else None, place)
            for place, call in enumerate(_first_ends(call for call in calls if call.run == run), start=1)
        ]
        yield t.ask(CALL, names.written(run), *columns(rows, 4))


def drop(t: Tenant, sessions: Sequence[str]) -> list[Ask]:
    """Take the runs of these sessions, given as columns hold them, and their calls."""
    return [t.ask(sql, sessions) for sql in DROP]


def _brings_session(change: Change, run: AgentRun) -> bool:
    return change.session is not None and change.session.id == run.session


def _revisions(told: Mapping[str, list[Row]]) -> dict[str, int]:
    return {names.read(run_id): revision for run_id, revision in told.get("agent runs", [])}


def _first_ends(calls: Iterable[AgentCall]) -> Iterable[AgentCall]:
    """One call for each id, in the order of their first: one statement writes no row twice."""
    last: dict[str, AgentCall] = {}
    for call in calls:
        if call.call_id not in last or not last[call.call_id].ended:
            last[call.call_id] = call
    return last.values()

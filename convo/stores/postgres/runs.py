"""Runs as rows, and their events in the batches that they came in.

A run ends once: whoever comes second finds it closed, and nothing of what that one brought is kept.
"""

from collections.abc import Iterable, Sequence

from convo.errors import Conflict, InputFault
from convo.items import Event
from convo.stores import rules
from convo.stores.postgres import names
from convo.stores.postgres.tenant import Ask, Tenant
from convo.stores.verbatim import dumps, loads

NOW = "extract(epoch FROM clock_timestamp())::double precision"
"""Seconds since 1970 on the database's clock."""

START = "INSERT INTO convo.runs (tenant, id) VALUES ($1, $2) ON CONFLICT (tenant, id) DO UPDATE SET ended_at = NULL"

END = f"UPDATE convo.runs SET ended_at = {NOW} WHERE tenant = $1 AND id = $2"
FORGET_EMPTY = "DELETE FROM convo.runs WHERE tenant = $1 AND id = $2 AND last < 0"

APPEND = """
WITH run AS (
    UPDATE convo.runs SET last = $4 WHERE tenant = $1 AND id = $2 AND ended_at IS NULL AND last < $3 RETURNING id
)
INSERT INTO convo.events (tenant, run, last, many, body) SELECT $1, id, $4, $5, $6 FROM run RETURNING 1
"""
"""Keep a batch if the run is open and its first event comes behind the last that is kept."""

OPEN = "SELECT last FROM convo.runs WHERE tenant = $1 AND id = $2 AND ended_at IS NULL"

EVENTS = "SELECT body FROM convo.events WHERE tenant = $1 AND run = $2 AND last > $3 ORDER BY last"


def start(t: Tenant, response_id: str) -> Ask:
    """Open the run of a response."""
    return t.ask(START, names.written(response_id))


def end(t: Tenant, response_id: str) -> Iterable[Ask]:
    """End an open run; without events nothing of it is left."""
    yield t.ask(FORGET_EMPTY, names.written(response_id))
    yield t.ask(END, names.written(response_id))


def drop(t: Tenant, responses: Sequence[str]) -> Iterable[Ask]:
    """Take the runs of these responses, given as columns hold them, and their events."""
    yield t.ask("DELETE FROM convo.events WHERE tenant = $1 AND run = ANY($2::text[])", responses)
    yield t.ask("DELETE FROM convo.runs WHERE tenant = $1 AND id = ANY($2::text[])", responses)


async def append(t: Tenant, response_id: str, events: Sequence[Event]) -> None:
    """Keep events behind those that are there. raises: Conflict, InputFault"""
    run, batch = names.written(response_id), _batch(events)
    if batch and await t.one(APPEND, run, *batch):
        return
    kept = await t.one(OPEN, run)
    if kept is None:
        raise rules.not_running(response_id)
    rules.last_number(events, kept)
    dumps(list(events))
    if batch:
        raise Conflict(f"{response_id!a} took other events meanwhile")


def _batch(events: Sequence[Event]) -> tuple[int, int, int, str] | None:
    """The first and the last number of some events, how many there are, and their text; None if they are no batch."""
    try:
        last = rules.last_number(events, -1)
        return (events[0]["sequence_number"], last, len(events), dumps(list(events))) if events else None
    except (Conflict, InputFault):  # which of them to tell depends on whether the run is open
        return None


async def events(t: Tenant, response_id: str, after: int) -> Sequence[Event]:
    rows = await t.all(EVENTS, names.written(response_id), after)
    return [event for (body,) in rows for event in loads(body) if event["sequence_number"] > after]

"""Runs as rows, and their events.

A run ends once: whoever comes second finds it closed, and nothing of what that one brought is kept.
"""

import sqlite3
from collections.abc import Sequence

from convo.errors import NotFound
from convo.items import Event
from convo.stores import rules
from convo.stores.sqlite.tenant import Tenant, asked, now
from convo.stores.verbatim import dumps, loads

OPEN = """
SELECT links.n FROM links JOIN runs ON runs.link = links.n
WHERE links.tenant = ? AND links.id = ? AND ended_at IS NULL
"""

START = "INSERT INTO runs (tenant, link) VALUES (?, ?) ON CONFLICT (link) DO UPDATE SET ended_at = NULL"


def start(t: Tenant, response_id: str) -> None:
    """Open the run of a response. raises: NotFound"""
    n = t.one("SELECT n FROM links WHERE tenant = ? AND id = ? AND saw IS NOT NULL", t.n, asked(response_id))
    if n is None:
        raise NotFound("response", response_id)
    t.run(START, t.n, n)


def open_run(t: Tenant, response_id: str) -> int:
    """The number of a response whose run is open. raises: Conflict"""
    found: int | None = t.one(OPEN, t.n, asked(response_id))
    if found is None:
        raise rules.not_running(response_id)
    return found


def end(t: Tenant, response: int) -> None:
    """End an open run; without events nothing of it is left."""
    if _last(t, response) is None:
        drop(t.db, response)
    else:
        t.run("UPDATE runs SET ended_at = ? WHERE link = ?", now(t.db), response)


def drop(db: sqlite3.Connection, response: int) -> None:
    """Take the run of a response and its events, if there is one."""
    db.execute("DELETE FROM events WHERE link = ?", (response,))
    db.execute("DELETE FROM runs WHERE link = ?", (response,))


def append(t: Tenant, response_id: str, events: Sequence[Event]) -> None:
    """Keep events behind those that are there. raises: Conflict, InputFault"""
    n = open_run(t, response_id)
    kept = _last(t, n)
    rules.last_number(events, -1 if kept is None else kept)
    rows = [(t.n, n, event["sequence_number"], dumps(event)) for event in events]
    t.db.executemany("INSERT INTO events (tenant, link, number, body) VALUES (?, ?, ?, ?)", rows)


def _last(t: Tenant, response: int) -> int | None:
    found: int | None = t.one("SELECT max(number) FROM events WHERE link = ?", response)
    return found


def events(t: Tenant, response_id: str, after: int) -> Sequence[Event]:
    rows = t.all(
        "SELECT body FROM links JOIN events ON events.link = links.n WHERE links.tenant = ? AND id = ? AND number > ?"
        " ORDER BY number",
        *(t.n, asked(response_id), after),
    )
    return [loads(body) for (body,) in rows]

"""Links as rows.

What repeats from call to call is stored once: the parameters, and the route (model, strategy,
scope, conversation) with the form that usage has there, so that a link keeps only its figures. A
parent is a row even when nobody has recorded it, so that a family holds together across responses
that were made elsewhere or removed since.
"""

from collections.abc import Sequence
from hashlib import sha256

from convo.history import Key, Link
from convo.items import Json
from convo.stores import rules
from convo.stores.forms import link_of, previous_of, route_of
from convo.stores.sqlite import names
from convo.stores.sqlite.tenant import Columns, Tenant, asked
from convo.stores.sqlite.tree import node, seek
from convo.stores.sqlite.unneeded import drop_held
from convo.stores.verbatim import dumps

LINKS = """
SELECT links.id, parents.id, sessions.id, saw.key, head.key, links.sent, routes.body, links.status, links.created_at,
    links.previous, links.seconds, links.first_token_s, parameters.body, links.usage, links.error
FROM links
    JOIN nodes AS saw ON saw.n = links.saw
    JOIN nodes AS head ON head.n = links.head
    JOIN repeated AS routes ON routes.n = links.route
    LEFT JOIN links AS parents ON parents.n = links.parent
    LEFT JOIN sessions ON sessions.n = links.session
    LEFT JOIN repeated AS parameters ON parameters.n = links.parameters
"""

FAMILY = """
WITH RECURSIVE kin (n) AS (
    SELECT n FROM links WHERE tenant = ? AND id = ? AND saw IS NOT NULL
    UNION SELECT links.parent FROM kin JOIN links ON links.n = kin.n WHERE links.parent IS NOT NULL
    UNION SELECT links.n FROM kin JOIN links ON links.parent = kin.n
)
"""

HELD = ("saw", "head", "parent", "session", "route", "parameters")
"""The columns of a link that name other rows."""

HOLDS = f"SELECT n, {', '.join(HELD)} FROM links WHERE tenant = ? AND id = ?"  # noqa: S608 - our own columns


def link(t: Tenant, link_id: str) -> Link | None:
    found = t.row(LINKS + "WHERE links.tenant = ? AND links.id = ?", t.n, asked(link_id))
    return link_of(found) if found else None


def of_session(t: Tenant, session_id: str) -> Sequence[Link]:
    return _oldest_first(t, "WHERE links.tenant = ? AND sessions.id = ?", t.n, asked(session_id))


def answers(t: Tenant, saw: Sequence[Key]) -> Sequence[Link]:
    found = [place[0] for place in (seek(t, key) for key in saw) if place]
    return _oldest_first(t, "WHERE links.saw IN (SELECT value FROM json_each(?))", dumps(found)) if found else []


def family(t: Tenant, link_id: str) -> Sequence[Link]:
    return _oldest_first(t, "WHERE links.n IN (SELECT n FROM kin)", t.n, asked(link_id), before=FAMILY)


def of_conversation(t: Tenant, conversation_id: str) -> Sequence[Link]:
    routes = names.routes(t, conversation_id)
    return _oldest_first(t, f"WHERE links.route IN ({', '.join('?' for _ in routes)})", *routes)


def _oldest_first(t: Tenant, where: str, *values: object, before: str = "") -> list[Link]:
    return [link_of(row) for row in t.all(f"{before}{LINKS}{where} ORDER BY links.created_at, links.n", *values)]


def put(t: Tenant, new: Link) -> tuple[int, ...]:
    """Write a link, by the rules for one that is there; the nodes that it stood on before."""
    n, *holds = t.row(HOLDS, t.n, new.id) or (None,)
    before = dict(zip(HELD, holds, strict=False))
    there = link(t, new.id) if before.get("saw") else None
    made = rules.written(there, new)
    if there and there.status not in rules.UNFINISHED:
        filled = {"parent": number(t, made.parent), "session": _session(t, made.session)}
        t.update("links", n, {**filled, "first_token_s": made.first_token_s}, before)
        return ()
    row = _row(t, made)
    n = n or t.numbers.get(("links", made.id))  # a link may name itself as its parent
    if n is None:
        t.insert("links", made.id, row)
        return ()
    t.update("links", n, row, before)
    t.numbers["links", made.id] = n
    if there is None:
        return ()
    drop_held(t, *(before[column] if before[column] != row[column] else None for column in HELD[2:]))
    return before["saw"], before["head"]


def _row(t: Tenant, made: Link) -> Columns:
    """The columns of a link. raises: NotFound, NotCanonical"""
    route, figures = route_of(made)
    parameters = _once(t, made.parameters)[0] if made.parameters else None
    return {
        "parent": number(t, made.parent),
        "session": _session(t, made.session),
        "route": _route(t, route),
        "parameters": parameters,
        "saw": node(t, made.saw),
        "head": node(t, made.head),
        "sent": made.sent,
        "status": made.status,
        "created_at": made.created_at,
        "previous": previous_of(made),
        "seconds": made.seconds,
        "first_token_s": made.first_token_s,
        "usage": figures,
        "error": dumps(made.error) if made.error is not None else None,
    }


def _route(t: Tenant, route: Sequence[Json]) -> int:
    """The number of the way that a call took, which calls before it may have taken."""
    n, is_new = _once(t, route)
    if is_new:
        names.put_route(t, route, n)
    return n


def number(t: Tenant, link_id: str | None) -> int | None:
    """The number of a link, of which only the name may be known."""
    if link_id is None:
        return None
    return t.number("links", link_id) or t.insert("links", link_id, {})


def _session(t: Tenant, session_id: str | None) -> int | None:
    if session_id is None:
        return None
    return t.number("sessions", session_id) or t.insert("sessions", session_id, {})


def _once(t: Tenant, value: Json) -> tuple[int, bool]:
    """The number of JSON that is stored once, and whether it was not there before."""
    body = dumps(value)
    name = sha256(body.encode()).digest()
    found: int | None = t.one("SELECT n FROM repeated WHERE tenant = ? AND hash = ?", t.n, name)
    if found is not None:
        return found, False
    return t.add("INSERT INTO repeated (tenant, hash, body) VALUES (?, ?, ?)", t.n, name, body), True

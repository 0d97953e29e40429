"""What is old enough to go.

A dry run counts what a real one takes. That goes some hundred rows at a time, each time in a
transaction, so that nobody who writes meanwhile has to wait for all of it: the sessions first, then
the links that no session needs any more, then conversations.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from convo.history import Strategy
from convo.stores.sqlite import names, removing
from convo.stores.sqlite.tenant import Row, Tenant
from convo.stores.upkeep import Pruned
from convo.stores.verbatim import loads

OLD = """
WITH RECURSIVE running (link, session, route) AS (
    SELECT links.n, links.session, links.route FROM runs JOIN links ON links.n = runs.link
    WHERE runs.tenant = :tenant AND ended_at IS NULL
), old (n, link, head, mark, written) AS (
    SELECT n, link, head, mark, written FROM sessions
    WHERE tenant = :tenant AND record IS NOT NULL AND used_at < :before
        AND n NOT IN (SELECT session FROM running WHERE session IS NOT NULL)
)
"""
"""What the queries below begin with: the links in open runs, and the sessions to go."""

SESSIONS = "SELECT n, link, head, mark, written FROM old"

LINKS = """
, chained (n) AS (
    SELECT link FROM sessions WHERE tenant = :tenant AND link IS NOT NULL AND n NOT IN (SELECT n FROM old)
    UNION SELECT links.parent FROM chained JOIN links ON links.n = chained.n WHERE links.parent IS NOT NULL
)
SELECT links.n, saw, links.head, parent, session, route, parameters
FROM links LEFT JOIN sessions ON sessions.n = links.session
WHERE links.tenant = :tenant AND saw IS NOT NULL
    AND links.n NOT IN (SELECT n FROM chained) AND links.n NOT IN (SELECT link FROM running)
    AND (removed OR sessions.n IN (SELECT n FROM old) OR (record IS NULL AND links.created_at < :before))
"""

CONVERSATIONS = "SELECT n, head, id FROM conversations WHERE tenant = :tenant AND created_at < :before"

LIVING = """
SELECT 1 FROM links LEFT JOIN runs ON runs.link = links.n AND ended_at IS NULL
WHERE route = :route AND (created_at >= :before OR runs.link IS NOT NULL)
"""

KEPT = """
SELECT record FROM sessions WHERE tenant = :tenant AND record IS NOT NULL AND n NOT IN (SELECT n FROM old)
"""


AT_ONCE = 500
"""Rows of a kind that go in one transaction."""


class Old(NamedTuple):
    """What a pruning takes: rows as `removing.tidy` wants them."""

    sessions: list[Row]
    links: list[Row]
    conversations: list[Row]


def prune(t: Tenant, before: float) -> Pruned:
    """Take some of what was last used before this moment; nothing only where nothing is left."""
    old = _next(t, before)
    for session, *_ in old.sessions:
        removing.forget_session(t, session)
    for link, *_ in old.links:
        removing.forget_link(t, link)
    for conversation, head in old.conversations:
        removing.forget_conversation(t, conversation, head)
    if any(old):
        removing.tidy(t, sessions=old.sessions, links=old.links, conversations=old.conversations)
    return Pruned(*map(len, old))


def prunable(t: Tenant, before: float) -> Pruned:
    """How much there is to take."""
    return Pruned(*(len(list(find(t, before))) for find in FINDERS.values()))


def _next(t: Tenant, before: float) -> Old:
    old = Old([], [], [])
    for kind, find in FINDERS.items():
        if found := list(islice(find(t, before), AT_ONCE)):
            return old._replace(**{kind: found})
    return old


def _sessions(t: Tenant, before: float) -> Iterator[Row]:
    return t.db.execute(OLD + SESSIONS, {"tenant": t.n, "before": before})


def _links(t: Tenant, before: float) -> Iterator[Row]:
    return t.db.execute(OLD + LINKS, {"tenant": t.n, "before": before})


def _conversations(t: Tenant, before: float) -> Iterator[Row]:
    """The conversations that no session holds and that were not answered since."""
    bounds = {"tenant": t.n, "before": before}
    kept = t.db.execute(OLD + KEPT, bounds).fetchall()
    held = {handle for (record,) in kept if (handle := _handle(record))}
    for n, head, name in t.db.execute(CONVERSATIONS, bounds):
        if name not in held and not _lives(t, name, before):
            yield n, head


FINDERS: dict[str, Callable[[Tenant, float], Iterator[Row]]] = {
    "sessions": _sessions,
    "links": _links,
    "conversations": _conversations,
}
"""How the rows of each kind are found, in the order in which they go."""


def _lives(t: Tenant, conversation_id: str, before: float) -> bool:
    """Whether a conversation was answered since, or is answered now."""
    bounds = {"tenant": t.n, "before": before}
    routes = names.routes(t, conversation_id)
    return any(t.db.execute(LIVING, {**bounds, "route": route}).fetchone() for route in routes)


def _handle(record: str) -> str | None:
    """The conversation that a session goes on in."""
    strategy, *_, handle, _ = loads(record)
    return handle if strategy == Strategy.CONVERSATION else None

"""What is old enough to go.

It is chosen whole before the first of it goes, so that a dry run says what a real one does. Then
all of it goes in one transaction, as it would one by one.
"""

from typing import NamedTuple

from convo.history import Strategy
from convo.stores.contract import Pruned
from convo.stores.sqlite import names, removing
from convo.stores.sqlite.tenant import Row, Tenant
from convo.stores.verbatim import loads

OLD = """
WITH RECURSIVE running (link, session, route) AS (
    SELECT links.n, links.session, links.route FROM runs JOIN links ON links.n = runs.link
    WHERE runs.tenant = :tenant AND ended_at IS NULL
), old (n, head, mark, written) AS (
    SELECT n, head, mark, written FROM sessions
    WHERE tenant = :tenant AND record IS NOT NULL AND used_at < :before
        AND n NOT IN (SELECT session FROM running WHERE session IS NOT NULL)
)
"""
"""What the queries below begin with: the links in open runs, and the sessions to go."""

SESSIONS = "SELECT n, head, mark, written FROM old"

LINKS = """
, chained (n) AS (
    SELECT link FROM sessions WHERE tenant = :tenant AND link IS NOT NULL AND n NOT IN (SELECT n FROM old)
    UNION SELECT links.parent FROM chained JOIN links ON links.n = chained.n WHERE links.parent IS NOT NULL
)
SELECT links.n, saw, links.head FROM links LEFT JOIN sessions ON sessions.n = links.session
WHERE links.tenant = :tenant AND saw IS NOT NULL
    AND links.n NOT IN (SELECT n FROM chained) AND links.n NOT IN (SELECT link FROM running)
    AND (removed OR sessions.n IN (SELECT n FROM old) OR (record IS NULL AND links.created_at < :before))
"""

CONVERSATIONS = "SELECT n, head, id FROM conversations WHERE tenant = :tenant AND created_at < :before"

LIVING = """
SELECT 1 FROM links WHERE route = :route AND (created_at >= :before OR n IN (SELECT link FROM running))
"""

KEPT = """
SELECT record FROM sessions WHERE tenant = :tenant AND record IS NOT NULL AND n NOT IN (SELECT n FROM old)
"""


class Old(NamedTuple):
    """What a pruning takes: the number of each row, then the nodes that it stands on."""

    sessions: list[Row]
    links: list[Row]
    conversations: list[Row]


def prune(t: Tenant, before: float) -> Pruned:
    """Take what was last used before this moment."""
    old = _old(t, before)
    for session, *_ in old.sessions:
        removing.forget_session(t, session)
    for link, *_ in old.links:
        removing.forget_link(t, link)
    for conversation, head in old.conversations:
        removing.forget_conversation(t, conversation, head)
    if any(old):
        removing.tidy(t, [node for rows in old for row in rows for node in row[1:]])
    return count(old)


def prunable(t: Tenant, before: float) -> Pruned:
    """How much `prune` would take."""
    return count(_old(t, before))


def count(old: Old) -> Pruned:
    return Pruned(*map(len, old))


def _old(t: Tenant, before: float) -> Old:
    bounds = {"tenant": t.n, "before": before}
    sessions, links, conversations, kept = (
        t.db.execute(OLD + sql, bounds).fetchall() for sql in (SESSIONS, LINKS, CONVERSATIONS, KEPT)
    )
    held = {handle for (record,) in kept if (handle := _handle(record))}
    quiet = [row for row in conversations if row[2] not in held and not _lives(t, row[2], before)]
    return Old(sessions, links, [(n, head) for n, head, _ in quiet])


def _lives(t: Tenant, conversation_id: str, before: float) -> bool:
    """Whether a conversation was answered since, or is answered now."""
    ask = {"tenant": t.n, "before": before}
    routes = names.routes(t, conversation_id)
    return any(t.db.execute(OLD + LIVING, {**ask, "route": route}).fetchone() for route in routes)


def _handle(record: str) -> str | None:
    """The conversation that a session goes on in."""
    strategy, *_, handle, _ = loads(record)
    return handle if strategy == Strategy.CONVERSATION else None

"""What a handle begins, and what a word is in.

A search asks the index for items, best first, and the tree for who reaches them: a session does
when its record, or a link that it made, stands on a node behind the item. What the index names is
looked at once more, so that a hit holds the words whatever filled the index.
"""

from collections.abc import Iterator, Sequence

from convo.history import Key
from convo.items import Item
from convo.stores.contract import Found, Hit
from convo.stores.sqlite.records import numbered_session
from convo.stores.sqlite.tenant import Tenant
from convo.stores.sqlite.tree import words
from convo.stores.terms import density, phrases, terms_of
from convo.stores.verbatim import encodes, loads

BEHIND_ALL = "\U0010ffff"
"""Sorts behind every character that a name has."""

FOUND = """
SELECT * FROM (
    SELECT 'session', id, name, NULL FROM sessions
    WHERE tenant = :tenant AND record IS NOT NULL
        AND (id >= :first AND id < :last OR name >= :first AND name < :last)
    ORDER BY used DESC NULLS FIRST, used_at DESC, n DESC LIMIT :limit)
UNION ALL SELECT * FROM (
    SELECT 'response', id, NULL, saw FROM links
    WHERE tenant = :tenant AND saw IS NOT NULL AND id >= :first AND id < :last
    ORDER BY created_at DESC, n DESC LIMIT :limit)
UNION ALL SELECT * FROM (
    SELECT 'conversation', id, NULL, head FROM conversations
    WHERE tenant = :tenant AND id >= :first AND id < :last
    ORDER BY created_at DESC, n DESC LIMIT :limit)
UNION ALL SELECT * FROM (
    SELECT 'run', id, status, NULL FROM agent_runs
    WHERE tenant = :tenant AND id >= :first AND id < :last
    ORDER BY changed_at DESC, n DESC LIMIT :limit)
LIMIT :limit
"""

MATCHES = """
WITH RECURSIVE reached (n) AS (
    SELECT head FROM sessions WHERE tenant = :tenant AND record IS NOT NULL
    UNION SELECT mark FROM sessions WHERE tenant = :tenant AND record IS NOT NULL
    UNION SELECT written FROM sessions WHERE tenant = :tenant AND written IS NOT NULL
    UNION SELECT links.saw FROM links JOIN sessions ON sessions.n = links.session
        WHERE links.tenant = :tenant AND record IS NOT NULL
    UNION SELECT links.head FROM links JOIN sessions ON sessions.n = links.session
        WHERE links.tenant = :tenant AND record IS NOT NULL
    UNION SELECT nodes.parent FROM reached JOIN nodes ON nodes.n = reached.n WHERE nodes.parent IS NOT NULL
)
SELECT items.n FROM words JOIN items ON items.n = words.rowid
WHERE words MATCH :query AND items.tenant = :tenant
    AND EXISTS (SELECT 1 FROM nodes JOIN reached ON reached.n = nodes.n WHERE nodes.item = items.n)
ORDER BY words.rank
"""
"""Items that hold the words and that some session reaches, best first."""

REACHING = """
WITH RECURSIVE down (first, n) AS (
    SELECT n, n FROM nodes WHERE item = ?
    UNION ALL SELECT down.first, nodes.n FROM down JOIN nodes ON nodes.parent = down.n
), standing (session, first) AS (
    SELECT sessions.n, first FROM down JOIN sessions ON sessions.head = down.n
    UNION SELECT sessions.n, first FROM down JOIN sessions ON sessions.mark = down.n
    UNION SELECT sessions.n, first FROM down JOIN sessions ON sessions.written = down.n
    UNION SELECT links.session, first FROM down JOIN links ON links.saw = down.n
    UNION SELECT links.session, first FROM down JOIN links ON links.head = down.n
), places (session, first) AS (SELECT session, min(first) FROM standing GROUP BY session)
SELECT sessions.n, nodes.key
FROM places JOIN sessions ON sessions.n = places.session JOIN nodes ON nodes.n = places.first
WHERE sessions.record IS NOT NULL
ORDER BY sessions.used DESC NULLS FIRST, sessions.used_at DESC, sessions.n DESC
"""
"""The sessions that reach an item, last used first, each with the first place of it."""


def find(t: Tenant, prefix: str, limit: int) -> Sequence[Found]:
    if not encodes(prefix):
        return []
    bounds = {"tenant": t.n, "first": prefix, "last": prefix + BEHIND_ALL, "limit": limit}
    rows = t.db.execute(FOUND, bounds).fetchall()
    return [Found(kind, found, name or words(t, place)) for kind, found, name, place in rows]


def search(t: Tenant, sought: str, limit: int) -> Sequence[Hit]:
    hits: list[Hit] = []
    for n, item in _matches(t, phrases(sought)):
        hits += [Hit(numbered_session(t, session), Key(key.hex()), item) for session, key in t.all(REACHING, n)]
        if len(hits) >= limit:
            break
    return hits[:limit]


def _matches(t: Tenant, sought: tuple[str, ...]) -> Iterator[tuple[int, Item]]:
    """The items that hold every phrase, best first."""
    if not sought:
        return
    query = " ".join(f'"{phrase}"' for phrase in sought)
    for (n,) in t.db.execute(MATCHES, {"tenant": t.n, "query": query}):
        item = loads(t.one("SELECT body FROM items WHERE n = ?", n))
        if density(terms_of(item), sought):
            yield n, item

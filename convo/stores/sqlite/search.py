"""Find records by the prefix of a handle, and items by words.

The full-text index holds only terms, so each match is verified against the item's text. A session matches
when its record, or a link that it made, has the item on its path.
"""

from collections.abc import Iterator

from convo.errors import DamagedRow
from convo.history.canonical import is_utf8_encodable
from convo.history.items import Item
from convo.history.tree import Key
from convo.stores.base import HIGHEST_CHARACTER, HandleMatch, SearchHit
from convo.stores.codec import (
    InvalidColumn,
    ReadRows,
    damaged_row,
    decode_item,
    parse_search_phrases,
    phrase_density,
    tokenize_item,
)
from convo.stores.sqlite.records import select_session_by_rowid
from convo.stores.sqlite.tenant_rows import TenantConnection, fetch_records
from convo.stores.sqlite.tree import select_first_words

SELECT_HANDLES = """
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

SELECT_MATCHING_ITEMS = """
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
"""Items that contain all terms and that some session reaches, best first."""

SELECT_SESSIONS_OF_ITEM = """
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
"""The sessions that reach an item, last used first, each with the item's first node on its paths."""


def find_handles(t: TenantConnection, prefix: str, limit: int) -> ReadRows[HandleMatch]:
    found: ReadRows[HandleMatch] = ReadRows([], [])
    if not is_utf8_encodable(prefix):
        return found
    parameters = {"tenant": t.tenant_number, "first": prefix, "last": prefix + HIGHEST_CHARACTER, "limit": limit}
    for kind, record_id, name, node in fetch_records(t.db, SELECT_HANDLES, parameters):
        if not isinstance(record_id, str) or isinstance(name, bytes):
            found.damaged.append(damaged_row(kind, record_id, InvalidColumn("its name is invalid")))
            continue
        try:
            label = name or select_first_words(t, node)
        except DamagedRow as error:
            label = ""
            found.damaged.append(error)
        found.rows.append(HandleMatch(kind, record_id, label))
    return found


def search_items(t: TenantConnection, query: str, limit: int) -> ReadRows[SearchHit]:
    hits: ReadRows[SearchHit] = ReadRows([], [])
    for n, item in _matching_items(t, parse_search_phrases(query), hits.damaged):
        for session, key in t.fetch_all(SELECT_SESSIONS_OF_ITEM, n):
            try:
                hits.rows.append(SearchHit(select_session_by_rowid(t, session), Key(key.hex()), item))
            except DamagedRow as error:
                hits.damaged.append(error)
        if len(hits.rows) >= limit:
            break
    return hits._replace(rows=hits.rows[:limit])


def _matching_items(
    t: TenantConnection, phrases: tuple[str, ...], damaged: list[DamagedRow]
) -> Iterator[tuple[int, Item]]:
    """Iterate over the items that contain every phrase, best first; a damaged one is added to `damaged`."""
    if not phrases:
        return
    query = " ".join(f'"{phrase}"' for phrase in phrases)
    for (n,) in t.db.execute(SELECT_MATCHING_ITEMS, {"tenant": t.tenant_number, "query": query}):
        ((body,),) = t.fetch_records("SELECT body FROM items WHERE n = ?", n)
        try:
            item = decode_item(str(n), body)
        except DamagedRow as error:
            damaged.append(error)
            continue
        if phrase_density(tokenize_item(item), phrases):
            yield n, item

"""Find records by the prefix of a handle, and items by words.

The full-text index holds only terms, so each match is verified against the item's text. A session matches
when its record, or a link that it made, has the item on its path.
"""

from collections.abc import Mapping

from convo.errors import DamagedRow
from convo.history.canonical import is_utf8_encodable
from convo.history.items import Item
from convo.history.tree import Key
from convo.stores.base import HIGHEST_CHARACTER, HandleMatch, SearchResult
from convo.stores.codec import (
    InvalidColumn,
    ReadRows,
    damaged_row,
    decode_item,
    parse_search_phrases,
    phrase_density,
    tokenize_item,
)
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

MAX_REACHED_NODES = 100_000
"""Nodes below an item at which its owners are looked for, nearest first."""

MAX_RANKED_ITEMS = 1000
"""The newest items with the words, of which the best come first: to rank 300,000 items takes 0.6 seconds."""

SELECT_MATCHING_ITEMS = f"""
SELECT n, body FROM (
    SELECT items.n, items.body, words.rank FROM words CROSS JOIN items ON items.n = words.rowid
    WHERE words MATCH ? AND items.tenant = ? ORDER BY words.rowid DESC LIMIT {MAX_RANKED_ITEMS}
) ORDER BY rank, n
"""  # noqa: S608 - a constant
"""Items that contain all terms, best first; one may be reachable from no conversation any more."""

SELECT_OWNERS_OF_ITEM = f"""
WITH RECURSIVE down (first, n) AS (
    SELECT n, n FROM nodes WHERE item = :item
    UNION ALL SELECT down.first, nodes.n FROM down JOIN nodes ON nodes.parent = down.n
    LIMIT {MAX_REACHED_NODES}
), owners (id, first) AS (
    SELECT id, first FROM down JOIN sessions ON head = down.n OR mark = down.n OR written = down.n
    WHERE record IS NOT NULL
    UNION SELECT CASE WHEN session IS NULL THEN links.id ELSE (
        SELECT id FROM sessions WHERE n = session AND record IS NOT NULL
    ) END, first FROM down JOIN links ON saw = down.n OR head = down.n
    UNION SELECT id, first FROM down JOIN conversations ON head = down.n
)
SELECT id, nodes.key FROM (SELECT id, min(first) AS first FROM owners WHERE id IS NOT NULL GROUP BY id)
    JOIN nodes ON nodes.n = first
"""  # noqa: S608 - a constant
"""The sessions, responses without a session and conversations that reach an item, each with its first node."""


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


def search_items(t: TenantConnection, query: str, limit: int) -> tuple[SearchResult, list[DamagedRow]]:
    matches: list[tuple[Item, Mapping[str, Key]]] = []
    damaged: list[DamagedRow] = []
    phrases = parse_search_phrases(query)
    if not phrases:
        return SearchResult(matches), damaged
    match, row_count, match_count = " ".join(f'"{phrase}"' for phrase in phrases), 0, 0
    for n, body in t.db.execute(SELECT_MATCHING_ITEMS, (match, t.tenant_number)):
        if match_count == limit:
            return SearchResult(matches, is_limited=True), damaged
        row_count += 1
        try:
            item = decode_item(str(n), body)
        except DamagedRow as error:
            damaged.append(error)
            continue
        if phrase_density(tokenize_item(item), phrases):
            match_count += 1
            owners = fetch_records(t.db, SELECT_OWNERS_OF_ITEM, {"item": n})
            if owners:
                matches.append((item, {owner: Key(key.hex()) for owner, key in owners}))
    return SearchResult(matches, is_limited=row_count == MAX_RANKED_ITEMS), damaged

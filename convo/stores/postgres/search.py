"""Find records by the prefix of a handle, and items by words.

The index holds hashes of terms, so each match is verified against the item's text. Shorter items are read
first; results are ordered by phrase density.
"""

from collections.abc import AsyncIterator
from math import inf
from typing import NamedTuple
from uuid import UUID

from convo.errors import DamagedRow
from convo.history.items import Item
from convo.history.records import Session
from convo.history.tree import Key
from convo.stores.base import HIGHEST_CHARACTER, HandleMatch, SearchHit
from convo.stores.codec import ReadRows, parse_search_phrases, phrase_density, tokenize_item
from convo.stores.postgres import tenant_rows
from convo.stores.postgres.commit import hash_terms
from convo.stores.postgres.records import SESSION_COLUMNS, session_from_row
from convo.stores.postgres.tenant_rows import BEGIN_SNAPSHOT, TenantConnection, decode_body
from convo.stores.postgres.tree import NODE_KEY_SQL, first_words_of_body

ITEMS_PER_BATCH = 100
"""Items that are read and verified together."""

SELECT_HANDLES = """
SELECT kind, id, name, (
    SELECT body FROM convo.nodes JOIN convo.items ON items.tenant = $1 AND hash = item
    WHERE nodes.tenant = $1 AND nodes.id = place)
FROM (
    (SELECT 1 AS kind, id, name, NULL::uuid AS place,
        coalesce(used::double precision, 'infinity') AS at FROM convo.sessions
    WHERE tenant = $1 AND (id >= $2 AND id < $3 OR name >= $2 AND name < $3)
    ORDER BY used DESC NULLS FIRST, id DESC LIMIT $4)
    UNION ALL (SELECT 2, id, NULL, saw, created_at FROM convo.links
    WHERE tenant = $1 AND id >= $2 AND id < $3 ORDER BY created_at DESC, id DESC LIMIT $4)
    UNION ALL (SELECT 3, id, NULL, head, created_at FROM convo.conversations
    WHERE tenant = $1 AND id >= $2 AND id < $3 ORDER BY created_at DESC, id DESC LIMIT $4)
    UNION ALL (SELECT 4, id, status, NULL, changed_at FROM convo.agent_runs
    WHERE tenant = $1 AND id >= $2 AND id < $3 ORDER BY changed_at DESC, id DESC LIMIT $4)
) AS found ORDER BY kind, at DESC, id DESC LIMIT $4
"""

HANDLE_KINDS = {1: "session", 2: "response", 3: "conversation", 4: "run"}

SELECT_ANY_SESSION = "SELECT 1 FROM convo.sessions WHERE tenant = $1 LIMIT 1"

SELECT_MATCHING_ITEMS = """
SELECT item, (SELECT body FROM convo.items WHERE items.tenant = $1 AND hash = item) FROM convo.words
WHERE tenant = $1 AND terms @> $2::integer[] ORDER BY length, item LIMIT $3 OFFSET $4
"""

SELECT_SESSIONS_OF_ITEMS = f"""
WITH RECURSIVE down (item, first, id) AS (
    SELECT item, id, id FROM convo.nodes WHERE tenant = $1 AND item = ANY($2::uuid[])
    UNION ALL
    SELECT down.item, down.first, after.id FROM down JOIN LATERAL (
        SELECT id FROM convo.nodes WHERE tenant = $1 AND parent = down.id OFFSET 0
    ) AS after ON true
), standing (session, item, first) AS (
    SELECT sessions.id, item, first FROM down JOIN convo.sessions ON tenant = $1 AND head = down.id
    UNION SELECT sessions.id, item, first FROM down JOIN convo.sessions ON tenant = $1 AND mark = down.id
    UNION SELECT sessions.id, item, first FROM down JOIN convo.sessions ON tenant = $1 AND written = down.id
    UNION SELECT session, item, first FROM down JOIN convo.links ON tenant = $1 AND saw = down.id
    UNION SELECT session, item, first FROM down JOIN convo.links ON tenant = $1 AND head = down.id
), places (session, item, key) AS (
    SELECT DISTINCT ON (session, standing.item) session, standing.item, {NODE_KEY_SQL} FROM standing
        JOIN convo.nodes ON nodes.tenant = $1 AND nodes.id = first
    ORDER BY session, standing.item, depth, nodes.id
)
SELECT places.item, key, {SESSION_COLUMNS} FROM places
JOIN convo.sessions ON sessions.tenant = $1 AND sessions.id = session
"""
"""The sessions that reach items, each with the node of the item that is nearest to the root."""


class RankedHit(NamedTuple):
    """A hit with its phrase density."""

    density: float
    hit: SearchHit


def _last_use_rank(session: Session) -> float:
    """Return a session's use order; one without (last written by an older convo) sorts before all others."""
    return inf if session.use_order is None else session.use_order


async def find_handles(t: TenantConnection, prefix: str, limit: int) -> ReadRows[HandleMatch]:
    first = tenant_rows.escape_name(prefix)
    rows = await t.fetch_all(SELECT_HANDLES, first, first + HIGHEST_CHARACTER, limit)
    found: ReadRows[HandleMatch] = ReadRows([], [])
    for kind, stored_id, name, body in rows:
        record_id = tenant_rows.unescape_name(stored_id)
        try:
            label = tenant_rows.unescape_name(name or "") or first_words_of_body(f"of {record_id}", body)
        except DamagedRow as error:
            label = ""
            found.damaged.append(error)
        found.rows.append(HandleMatch(HANDLE_KINDS[kind], record_id, label))
    return found


async def search_items(t: TenantConnection, query: str, limit: int) -> ReadRows[SearchHit]:
    phrases = parse_search_phrases(query)
    await t.run_pipeline(BEGIN_SNAPSHOT)
    if not phrases or not await t.fetch_value(SELECT_ANY_SESSION):
        return ReadRows([], [])
    ranked: list[RankedHit] = []
    damaged: list[DamagedRow] = []
    async for batch in _ranked_batches(t, phrases, damaged):
        ranked += batch
        if len(ranked) >= limit:
            break
    ranked.sort(key=lambda ranked_hit: (-ranked_hit.density, -_last_use_rank(ranked_hit.hit.session)))
    return ReadRows([ranked_hit.hit for ranked_hit in ranked[:limit]], damaged)


async def _ranked_batches(
    t: TenantConnection, phrases: tuple[str, ...], damaged: list[DamagedRow]
) -> AsyncIterator[list[RankedHit]]:
    """Iterate over batches of items that contain every phrase; shorter items first, because they tend to be denser.

    A damaged item or session is added to `damaged`.
    """
    term_hashes = sorted({term_hash for phrase in phrases for term_hash in hash_terms(t, phrase)})
    skipped = 0
    while rows := await t.fetch_all(SELECT_MATCHING_ITEMS, term_hashes, ITEMS_PER_BATCH, skipped):
        items: dict[UUID, Item] = {}
        for item_id, body in rows:
            try:
                items[item_id] = decode_body(item_id.hex[:12], body)
            except DamagedRow as error:
                damaged.append(error)
        densities = {
            item_id: density
            for item_id, item in items.items()
            if (density := phrase_density(tokenize_item(item), phrases))
        }
        hit_rows = await t.fetch_all(SELECT_SESSIONS_OF_ITEMS, sorted(densities)) if densities else []
        batch: list[RankedHit] = []
        for item_id, key, *row in hit_rows:
            try:
                hit = SearchHit(session_from_row(tuple(row)), Key(key.hex()), items[item_id])
            except DamagedRow as error:
                damaged.append(error)
            else:
                batch.append(RankedHit(densities[item_id], hit))
        yield batch
        skipped += len(rows)

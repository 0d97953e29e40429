"""Find records by the prefix of a handle, and items by words.

The index holds hashes of terms, so each match is verified against the item's text. Shorter items are read
first; results are ordered by phrase density.
"""

from uuid import UUID

from convo.errors import DamagedRow
from convo.history.items import Item
from convo.history.tree import Key
from convo.stores.base import HIGHEST_CHARACTER, HandleMatch, SearchResult
from convo.stores.codec import ReadRows, parse_search_phrases, phrase_density, tokenize_item
from convo.stores.postgres import tenant_rows
from convo.stores.postgres.commit import hash_terms
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

SELECT_MATCHING_ITEMS = """
SELECT item, (SELECT body FROM convo.items WHERE items.tenant = $1 AND hash = item) FROM convo.words
WHERE tenant = $1 AND terms @> $2::integer[] ORDER BY length, item LIMIT $3 OFFSET $4
"""

OWNER_OF_LINK = """CASE WHEN session IS NULL THEN links.id ELSE (
        SELECT id FROM convo.sessions WHERE sessions.tenant = $1 AND sessions.id = links.session
    ) END"""
"""Null for a link of a session that was removed."""

SELECT_OWNERS_OF_ITEMS = f"""
WITH RECURSIVE down (item, first, id) AS (
    SELECT item, id, id FROM convo.nodes WHERE tenant = $1 AND item = ANY($2::uuid[])
    UNION ALL
    SELECT down.item, down.first, after.id FROM down JOIN LATERAL (
        SELECT id FROM convo.nodes WHERE tenant = $1 AND parent = down.id OFFSET 0
    ) AS after ON true
), owners (item, id, first) AS (
    SELECT item, sessions.id, first FROM down JOIN convo.sessions ON tenant = $1 AND head = down.id
    UNION SELECT item, sessions.id, first FROM down JOIN convo.sessions ON tenant = $1 AND mark = down.id
    UNION SELECT item, sessions.id, first FROM down JOIN convo.sessions ON tenant = $1 AND written = down.id
    UNION SELECT item, {OWNER_OF_LINK}, first FROM down JOIN convo.links ON tenant = $1 AND saw = down.id
    UNION SELECT item, {OWNER_OF_LINK}, first FROM down JOIN convo.links ON tenant = $1 AND head = down.id
    UNION SELECT item, conversations.id, first FROM down JOIN convo.conversations ON tenant = $1 AND head = down.id
)
SELECT DISTINCT ON (owners.item, owners.id) owners.item, owners.id, {NODE_KEY_SQL}
FROM owners JOIN convo.nodes ON nodes.tenant = $1 AND nodes.id = first
WHERE owners.id IS NOT NULL
ORDER BY owners.item, owners.id, depth, nodes.id
"""
"""The sessions, responses without a session and conversations that reach items, each with the nearest node."""


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


async def search_items(t: TenantConnection, query: str, limit: int) -> tuple[SearchResult, list[DamagedRow]]:
    phrases = parse_search_phrases(query)
    damaged: list[DamagedRow] = []
    await t.run_pipeline(BEGIN_SNAPSHOT)
    if not phrases:
        return SearchResult([]), damaged
    densities, items, is_limited = await _find_items(t, phrases, limit, damaged)
    places: dict[UUID, dict[str, Key]] = {}
    for item, owner, key in await t.fetch_all(SELECT_OWNERS_OF_ITEMS, sorted(densities)) if densities else []:
        places.setdefault(item, {})[tenant_rows.unescape_name(owner)] = Key(key.hex())
    best_first = sorted(places, key=densities.__getitem__, reverse=True)
    return SearchResult([(items[item], places[item]) for item in best_first], is_limited), damaged


async def _find_items(
    t: TenantConnection, phrases: tuple[str, ...], limit: int, damaged: list[DamagedRow]
) -> tuple[dict[UUID, float], dict[UUID, Item], bool]:
    """Return the density and the content of items that contain every phrase; shorter items are read first.

    At most `limit` items are returned, and whether there may be more.
    """
    term_hashes = sorted({term_hash for phrase in phrases for term_hash in hash_terms(t, phrase)})
    densities, items = dict[UUID, float](), dict[UUID, Item]()
    skipped = 0
    while rows := await t.fetch_all(SELECT_MATCHING_ITEMS, term_hashes, ITEMS_PER_BATCH, skipped):
        for item_id, body in rows:
            if len(densities) == limit:
                return densities, items, True
            try:
                item = decode_body(item_id.hex[:12], body)
            except DamagedRow as error:
                damaged.append(error)
                continue
            if density := phrase_density(tokenize_item(item), phrases):
                densities[item_id], items[item_id] = density, item
        skipped += len(rows)
    return densities, items, False

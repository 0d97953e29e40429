"""What a handle begins, and what a word is in.

A search asks the index for items that hold the terms, shortest first, and the tree for who reaches
them: a session does when its record, or a link that it made, stands on a node behind the item. What
the index names is looked at once more. Of those that hold the words the densest come first.
"""

from collections.abc import AsyncIterator, Sequence
from math import inf
from typing import NamedTuple

from convo.history import Key, Session
from convo.items import Item
from convo.stores.contract import Found, Hit
from convo.stores.postgres import names
from convo.stores.postgres.bodies import item_of
from convo.stores.postgres.changing import term_numbers
from convo.stores.postgres.records import SESSION, read_session
from convo.stores.postgres.tenant import SNAPSHOT, Tenant
from convo.stores.postgres.tree import KEY, words
from convo.stores.terms import density, phrases, terms_of

BEHIND_ALL = "\U0010ffff"
"""Sorts behind every character that a name has."""

BATCH = 100
"""Items that are looked at together."""

FOUND = """
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

KINDS = {1: "session", 2: "response", 3: "conversation", 4: "run"}

ANY_SESSION = "SELECT 1 FROM convo.sessions WHERE tenant = $1 LIMIT 1"

CANDIDATES = """
SELECT item, (SELECT body FROM convo.items WHERE items.tenant = $1 AND hash = item) FROM convo.words
WHERE tenant = $1 AND terms @> $2::integer[] ORDER BY length, item LIMIT $3 OFFSET $4
"""

REACHING = f"""
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
    SELECT DISTINCT ON (session, standing.item) session, standing.item, {KEY} FROM standing
        JOIN convo.nodes ON nodes.tenant = $1 AND nodes.id = first
    ORDER BY session, standing.item, depth, nodes.id
)
SELECT places.item, key, {SESSION} FROM places JOIN convo.sessions ON sessions.tenant = $1 AND sessions.id = session
"""
"""The sessions that reach items, each with the place of the item that is nearest to the root."""


class Ranked(NamedTuple):
    """A hit, and how good it is."""

    density: float
    hit: Hit


def by_use(session: Session) -> float:
    """The place of a session among the last used; one without a place was written by an older convo, and goes last."""
    return inf if session.use is None else session.use


async def find(t: Tenant, prefix: str, limit: int) -> Sequence[Found]:
    first = names.written(prefix)
    rows = await t.all(FOUND, first, first + BEHIND_ALL, limit)
    return [
        Found(KINDS[kind], names.read(found), names.read(name or "") or words(body)) for kind, found, name, body in rows
    ]


async def search(t: Tenant, sought: str, limit: int) -> Sequence[Hit]:
    cut = phrases(sought)
    await t.together(SNAPSHOT)
    if not cut or not await t.one(ANY_SESSION):
        return []
    ranked: list[Ranked] = []
    async for batch in _batches(t, cut):
        ranked += batch
        if len(ranked) >= limit:
            break
    ranked.sort(key=lambda one: (-one.density, -by_use(one.hit.session)))
    return [one.hit for one in ranked[:limit]]


async def _batches(t: Tenant, cut: tuple[str, ...]) -> AsyncIterator[list[Ranked]]:
    """What holds every phrase, some at a time; the shorter first, which tend to be the denser."""
    numbers = sorted({number for phrase in cut for number in term_numbers(t, phrase)})
    skipped = 0
    while rows := await t.all(CANDIDATES, numbers, BATCH, skipped):
        items = {name: item_of(body) for name, body in rows}
        dense = {name: rank for name, item in items.items() if (rank := density(terms_of(item), cut))}
        reaching = await t.all(REACHING, sorted(dense)) if dense else []
        yield [Ranked(dense[name], _hit(items[name], key, row)) for name, key, *row in reaching]
        skipped += len(rows)


def _hit(item: Item, key: bytes, row: Sequence[object]) -> Hit:
    return Hit(read_session(tuple(row)), Key(key.hex()), item)

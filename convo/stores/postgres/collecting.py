"""Taking out what nothing stands on any more.

Whoever comes here is alone among the tenant's writers. Places go from the end of a path backwards, a
whole path at a time: as far as each has no other child and no record stands on it.
"""

from collections.abc import Iterable
from uuid import UUID

from convo.stores import rules
from convo.stores.contract import Change
from convo.stores.postgres import names
from convo.stores.postgres.bodies import item_of
from convo.stores.postgres.tenant import Tenant, columns

FREE = """
parent IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND saw = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND head = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.sessions WHERE sessions.tenant = $1 AND head = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.sessions WHERE sessions.tenant = $1 AND mark = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.sessions WHERE sessions.tenant = $1 AND written = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.conversations WHERE conversations.tenant = $1 AND head = nodes.id)
"""

COLLECT = f"""
WITH RECURSIVE gone (id, parent, item) AS (
    SELECT id, parent, item FROM convo.nodes WHERE tenant = $1 AND id = ANY($2::uuid[]) AND {FREE}
        AND NOT EXISTS (SELECT 1 FROM convo.nodes AS child WHERE child.tenant = $1 AND child.parent = nodes.id)
    UNION ALL
    SELECT before.* FROM gone JOIN LATERAL (
        SELECT id, parent, item FROM convo.nodes WHERE tenant = $1 AND id = gone.parent AND {FREE} AND NOT EXISTS (
            SELECT 1 FROM convo.nodes AS child
            WHERE child.tenant = $1 AND child.parent = nodes.id AND child.id <> gone.id)
        LIMIT 1
    ) AS before ON true
)
DELETE FROM convo.nodes WHERE tenant = $1 AND id IN (SELECT id FROM gone) RETURNING id, parent, item
"""
"""Take paths that end at the given places; where two of them meet, both stop behind that place."""

UNUSED = """
SELECT hash FROM unnest($2::uuid[]) AS given (hash)
WHERE NOT EXISTS (SELECT 1 FROM convo.nodes WHERE tenant = $1 AND item = given.hash)
"""

ERASED = """
SELECT nodes.id, nodes.item, body FROM convo.nodes JOIN convo.items ON items.tenant = $1 AND hash = item
WHERE nodes.tenant = $1 AND nodes.id = ANY($2::uuid[])
"""

ERASE = """
UPDATE convo.nodes SET item = NULL, erased = old.own FROM unnest($2::uuid[], $3::text[]) AS old (id, own)
WHERE tenant = $1 AND nodes.id = old.id
"""


LEFT_BEHIND = """
WITH RECURSIVE old (id) AS (
    SELECT head FROM convo.links WHERE tenant = $1
        AND route IN (SELECT hash FROM convo.repeated WHERE repeated.tenant = $1 AND conversation = $3)
    UNION SELECT before.* FROM old JOIN LATERAL (
        SELECT parent FROM convo.nodes WHERE tenant = $1 AND id = old.id AND parent IS NOT NULL LIMIT 1
    ) AS before ON true
), own (id) AS (
    SELECT $4::uuid UNION ALL SELECT before.* FROM own JOIN LATERAL (
        SELECT parent FROM convo.nodes WHERE tenant = $1 AND id = own.id AND parent IS NOT NULL LIMIT 1
    ) AS before ON true
)
SELECT id FROM convo.nodes WHERE tenant = $1 AND id <> ALL($2::uuid[])
    AND item IN (SELECT item FROM convo.nodes WHERE tenant = $1 AND id = ANY($2::uuid[]))
    AND id IN (SELECT id FROM old) AND id NOT IN (SELECT id FROM own)
"""
"""Where else erased items stand: on the paths of a conversation's links, and no longer on its own."""


async def erase(t: Tenant, change: Change) -> list[UUID]:
    """Take the items out of the places that a change erases; their names, for they may stand nowhere any more."""
    if not change.erase:
        return []
    places = [names.half(key) for key in change.erase]
    if change.conversation:
        conversation = names.written(change.conversation.id), names.half(change.conversation.head)
        places += [place for (place,) in await t.all(LEFT_BEHIND, places, *conversation)]
    rows = await t.all(ERASED, places)
    own = [(place, names.written(rules.own_id(item_of(body)))) for place, _, body in rows]
    await t.together(t.ask(ERASE, *columns(own, 2)))
    return [item for _, item, _ in rows]


async def collect(t: Tenant, places: Iterable[UUID], items: Iterable[UUID] = ()) -> None:
    """Take those of `places` and `items` that nothing stands on, and what that leaves without need."""
    loose, unused = set(places), set(items)
    while loose:
        rows = await t.all(COLLECT, sorted(loose))
        loose = {parent for _, parent, _ in rows} - {place for place, _, _ in rows}
        unused |= {item for _, _, item in rows if item}
    if unused:
        dropped = [item for (item,) in await t.all(UNUSED, sorted(unused))]
        await t.together(
            t.ask("DELETE FROM convo.words WHERE tenant = $1 AND item = ANY($2::uuid[])", dropped),
            t.ask("DELETE FROM convo.items WHERE tenant = $1 AND hash = ANY($2::uuid[])", dropped),
        )

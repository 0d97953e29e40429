"""Items and nodes as rows.

A way back to the root asks for one node after the other by its own index, and says so (`LATERAL ...
LIMIT 1`): a planner that has not yet seen how large the table is would otherwise read all of it.
"""

from collections.abc import Sequence
from uuid import UUID

from convo.errors import ItemDeleted
from convo.history import Key, Node, Path, Prefix
from convo.items import Item, first_words
from convo.stores import rules
from convo.stores.postgres import names
from convo.stores.postgres.bodies import item_of, items_of
from convo.stores.postgres.tenant import Row, Tenant

KEY = "uuid_send(nodes.id) || uuid_send(nodes.rest)"
"""The whole key of a node, as bytes."""

PATH = f"""
WITH RECURSIVE up (id, parent, item, key) AS (
    SELECT id, parent, item, {KEY} FROM convo.nodes WHERE tenant = $1 AND id = $2 AND rest = $3
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, {KEY} FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
    WHERE up.id IS DISTINCT FROM $4::uuid
)
SELECT key, CASE WHEN id IS DISTINCT FROM $4::uuid THEN (
    SELECT body FROM convo.items WHERE tenant = $1 AND hash = up.item) END
FROM up
"""
"""Keys and items from a node back to another one, or else to the root: that one is the last row, without its item."""


async def path(t: Tenant, head: Key) -> Path:
    """The path to `head`. raises: NotFound, ItemDeleted"""
    if head == t.root:
        return Path(t.root)
    _, rows = await _way(t, head, None)
    return Path(t.root, Prefix(_nodes(rows)))


async def tail(t: Tenant, head: Key, after: Key) -> Sequence[Item]:
    """The items behind `after` on the path to `head`. raises: NotFound, Conflict, ItemDeleted"""
    if head == after == t.root:
        return []
    end, rows = await _way(t, head, after if names.is_key(after) else None)
    if end != after:
        raise rules.not_through(after)
    return [one.item for one in _nodes(rows)]


async def _way(t: Tenant, head: Key, after: Key | None) -> tuple[Key, list[Row]]:
    """Where the way back from `head` ended, at `after` or at the root; the rows behind that. raises: NotFound"""
    stop = names.half(after) if after else None
    rows = await t.all(PATH, names.half(head), names.rest(head), stop) if names.is_key(head) else []
    if not rows:
        raise rules.no_place(head)
    (end, _), *behind = rows[::-1]
    return Key(end.hex()), behind


def _nodes(rows: Sequence[Row]) -> Sequence[Node]:
    """The nodes of a way. raises: ItemDeleted"""
    keys, bodies = [Key(key.hex()) for key, _ in rows], [body for _, body in rows]
    if None in bodies:
        raise ItemDeleted(keys[bodies.index(None)])
    return list(map(Node, keys, items_of(bodies)))


def words(body: bytes | None) -> str:
    """The first words of an item; "" where there is none."""
    return first_words(item_of(body)) if body else ""


# -- items by their ids ---------------------------------------------------------------------------

CALLED = """
SELECT body, id FROM (
    SELECT body, NULL AS id, stored_at FROM convo.items WHERE tenant = $1 AND named = $2
    UNION ALL
    SELECT body, members.id, stored_at FROM convo.members
        JOIN convo.nodes ON nodes.tenant = $1 AND nodes.id = members.node
        JOIN convo.items ON items.tenant = $1 AND items.hash = nodes.item
    WHERE members.tenant = $1 AND members.named = $2
) AS called ORDER BY stored_at DESC
"""

STANDING = f"""
SELECT {KEY}, body FROM convo.nodes JOIN convo.items ON items.tenant = $1 AND items.hash = nodes.item
WHERE nodes.tenant = $1 AND nodes.id = $2
"""


async def item(t: Tenant, item_id: str) -> Item | None:
    """The item with this id, the one stored last if several have it."""
    for body, given in await t.all(CALLED, names.number(item_id)) if item_id else []:
        found = item_of(body)
        if item_id == (rules.own_id(found) if given is None else names.read(given)):
            return found
    return await _in_place(t, rules.place_in(item_id))


async def _in_place(t: Tenant, digits: str) -> Item | None:
    if not digits:
        return None
    found = await t.row(STANDING, UUID(hex=digits[: names.HALF]))
    return item_of(found[1]) if found and found[0].hex().startswith(digits) else None

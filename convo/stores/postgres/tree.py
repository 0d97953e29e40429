"""Items and nodes as rows.

A way back to the root asks for one node after the other by its own index, and says so (`LATERAL ...
LIMIT 1`): a planner that has not yet seen how large the table is would otherwise read all of it.
"""

from uuid import UUID

from convo.errors import ItemDeleted
from convo.history import Key, Node, Path
from convo.items import Item, first_words
from convo.stores import rules
from convo.stores.postgres import names
from convo.stores.postgres.bodies import item_of, items_of
from convo.stores.postgres.tenant import Tenant

KEY = "uuid_send(nodes.id) || uuid_send(nodes.rest)"
"""The whole key of a node, as bytes."""

PATH = f"""
WITH RECURSIVE up (id, parent, item, key) AS (
    SELECT id, parent, item, {KEY} FROM convo.nodes WHERE tenant = $1 AND id = $2 AND rest = $3
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, {KEY} FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
)
SELECT key, (SELECT body FROM convo.items WHERE tenant = $1 AND hash = up.item) FROM up
"""
"""Keys and items from a node back to the root."""


async def path(t: Tenant, head: Key) -> Path:
    """The path to `head`. raises: NotFound, ItemDeleted"""
    if head == t.root:
        return Path(t.root)
    rows = await t.all(PATH, names.half(head), names.rest(head)) if names.is_key(head) else []
    if not rows:
        raise rules.no_place(head)
    keys, bodies = [Key(key.hex()) for key, _ in rows[-2::-1]], [body for _, body in rows[-2::-1]]
    if None in bodies:
        raise ItemDeleted(keys[bodies.index(None)])
    return Path(t.root, tuple(map(Node, keys, items_of(bodies))))


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

"""Paths and items, read from the tree of nodes.

Queries walk to the root with `LATERAL ... LIMIT 1` per node: without table statistics the planner would
otherwise read the whole table.
"""

from collections.abc import Sequence
from uuid import UUID

from convo.errors import DamagedRow, ItemDeleted
from convo.history.items import Item, item_preview
from convo.history.tree import Key, Node, Path, Prefix
from convo.stores import base
from convo.stores.codec import ReadRows, decode_items, decode_rows
from convo.stores.postgres import tenant_rows
from convo.stores.postgres.tenant_rows import Row, TenantConnection, decode_body, decompress_body

NODE_KEY_SQL = "uuid_send(nodes.id) || uuid_send(nodes.rest)"
"""The whole key of a node, as bytes."""

SELECT_PATH = f"""
WITH RECURSIVE up (id, parent, item, key) AS (
    SELECT id, parent, item, {NODE_KEY_SQL} FROM convo.nodes WHERE tenant = $1 AND id = $2 AND rest = $3
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, {NODE_KEY_SQL} FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
    WHERE up.id IS DISTINCT FROM $4::uuid
)
SELECT key, CASE WHEN id IS DISTINCT FROM $4::uuid THEN (
    SELECT body FROM convo.items WHERE tenant = $1 AND hash = up.item) END
FROM up
"""
"""Keys and items from a node back to another one, or else to the root, which is the last row and has no item."""


SELECT_HEAD_AND_ERASED = f"""
SELECT {NODE_KEY_SQL} FROM convo.nodes WHERE tenant = $1 AND id = $2 AND rest = $3
UNION ALL (
    SELECT {NODE_KEY_SQL} FROM convo.nodes WHERE tenant = $1 AND item IS NULL AND parent IS NOT NULL
    LIMIT {base.MAX_ERASED_NODES}
)
"""
"""The keys for `base.is_intact`."""

SELECT_FIRST_ITEMS = """
WITH RECURSIVE up (parent, item, depth) AS (
    SELECT parent, item, depth FROM convo.nodes WHERE tenant = $1 AND id = $2 AND rest = $3
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT parent, item, depth FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
)
SELECT (SELECT body FROM convo.items WHERE tenant = $1 AND hash = item) FROM up WHERE depth <= $4 ORDER BY depth
"""
"""The bodies of the first items on the path to a node; the root has none."""


async def select_path(t: TenantConnection, head: Key, known: Path | None = None) -> Path:
    """Return the path to `head`. Raises NotFound, ItemDeleted and DamagedRow."""
    if head == t.root:
        return Path(t.root)
    if known is not None and known.head == head:
        rows = await t.fetch_all(SELECT_HEAD_AND_ERASED, tenant_rows.node_id(head), tenant_rows.node_rest(head))
        if base.is_intact(known, [key for (key,) in rows]):
            return known
    end, rows = await _select_path_rows(t, head, None)
    if end != t.root:
        raise DamagedRow("history", head[:12], "its beginning is missing")
    return Path(t.root, Prefix(_nodes_from_rows(rows)))


async def select_items_after(t: TenantConnection, head: Key, after: Key) -> Sequence[Item]:
    """Return the items after `after` on the path to `head`. Raises NotFound, Conflict, ItemDeleted and DamagedRow."""
    if head == after == t.root:
        return []
    end, rows = await _select_path_rows(t, head, after if tenant_rows.is_node_key(after) else None)
    if end != after:
        raise base.not_on_path_error(after)
    return [node.item for node in _nodes_from_rows(rows)]


async def _select_path_rows(t: TenantConnection, head: Key, after: Key | None) -> tuple[Key, list[Row]]:
    """Return the end of the walk from `head` (`after`, or the root), and the rows after it, oldest first.

    Raises NotFound.
    """
    stop = tenant_rows.node_id(after) if after else None
    rows = (
        await t.fetch_all(SELECT_PATH, tenant_rows.node_id(head), tenant_rows.node_rest(head), stop)
        if tenant_rows.is_node_key(head)
        else []
    )
    if not rows:
        raise base.node_not_found_error(head)
    (end, _), *path_rows = rows[::-1]
    return Key(end.hex()), path_rows


def _nodes_from_rows(rows: Sequence[Row]) -> Sequence[Node]:
    """Decode the nodes of a path. Raises ItemDeleted and DamagedRow."""
    keys, bodies = [Key(key.hex()) for key, _ in rows], [body for _, body in rows]
    if None in bodies:
        raise ItemDeleted(keys[bodies.index(None)])
    return list(map(Node, keys, decode_items(keys, list(map(decompress_body, bodies)))))


async def select_first_items(t: TenantConnection, head: Key, limit: int) -> ReadRows[Item]:
    """Return the first items on the path to `head`. Raises NotFound."""
    values = tenant_rows.node_id(head), tenant_rows.node_rest(head), limit
    rows = await t.fetch_all(SELECT_FIRST_ITEMS, *values) if tenant_rows.is_node_key(head) else []
    if not rows:
        raise base.node_not_found_error(head)
    return decode_rows(lambda row: decode_body(f"of {head[:12]}", row[0]), [row for row in rows if row[0] is not None])


def first_words_of_body(key: str, body: bytes | None) -> str:
    """Return the first words of an item; "" if there is none. Raises DamagedRow.

    key:  names the item in the error
    """
    return item_preview(decode_body(key, body)) if body is not None else ""


# -- items by their ids ---------------------------------------------------------------------------

SELECT_ITEMS_BY_HASH = """
SELECT body, id FROM (
    SELECT body, NULL AS id, stored_at FROM convo.items WHERE tenant = $1 AND named = $2
    UNION ALL
    SELECT body, members.id, stored_at FROM convo.members
        JOIN convo.nodes ON nodes.tenant = $1 AND nodes.id = members.node
        JOIN convo.items ON items.tenant = $1 AND items.hash = nodes.item
    WHERE members.tenant = $1 AND members.named = $2
) AS called ORDER BY stored_at DESC
"""

SELECT_ITEM_BY_HALF_KEY = f"""
SELECT {NODE_KEY_SQL}, body FROM convo.nodes JOIN convo.items ON items.tenant = $1 AND items.hash = nodes.item
WHERE nodes.tenant = $1 AND nodes.id = $2
"""


async def select_item(t: TenantConnection, item_id: str) -> Item | None:
    """Return the item with this id; if there are several, the one stored last."""
    for body, assigned_id in (
        await t.fetch_all(SELECT_ITEMS_BY_HASH, tenant_rows.hash_item_id(item_id)) if item_id else []
    ):
        item = decode_body(item_id, body)
        if item_id == (base.own_item_id(item) if assigned_id is None else tenant_rows.unescape_name(assigned_id)):
            return item
    return await _select_item_by_key(t, base.parse_key_prefix(item_id))


async def _select_item_by_key(t: TenantConnection, digits: str) -> Item | None:
    if not digits:
        return None
    row = await t.fetch_row(SELECT_ITEM_BY_HALF_KEY, UUID(hex=digits[: tenant_rows.HALF_KEY_DIGITS]))
    return decode_body(digits, row[1]) if row and row[0].hex().startswith(digits) else None

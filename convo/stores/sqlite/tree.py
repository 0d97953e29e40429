"""Items and nodes as rows.

An item is stored once per tenant, a node is its rowid, key, parent and item. A caller that removes a reference
to a node passes the node to `delete_unreferenced_nodes` in the same transaction.
"""

import json
from collections.abc import Iterable, Sequence

from convo.errors import DamagedRow, ItemDeleted
from convo.history.canonical import Hash, item_hash
from convo.history.items import MAX_TITLE_ITEMS, Item, item_preview
from convo.history.tree import Key, Node, Path, Prefix, child_key
from convo.stores import base
from convo.stores.base import AppendItems
from convo.stores.codec import ReadRows, decode_item, decode_items, encode_json, tokenize_item
from convo.stores.sqlite import tenant_rows
from convo.stores.sqlite.tenant_rows import Row, TenantConnection, key_to_blob, short_hash

SELECT_NODE = "SELECT n, item FROM nodes WHERE tenant = ? AND substr(key, 1, 16) = ? AND key = ?"

SELECT_PATH = """
WITH RECURSIVE up (n, parent, item, key) AS (
    SELECT n, parent, item, key FROM nodes WHERE n = :head
    UNION ALL
    SELECT nodes.n, nodes.parent, nodes.item, nodes.key FROM up JOIN nodes ON nodes.n = up.parent WHERE up.n <> :after
)
SELECT up.n, up.key, items.body FROM up LEFT JOIN items ON items.n = up.item AND up.n <> :after
"""
"""Keys and items from a node back to another one, or else to the root, which is the last row and has no item."""

SELECT_PATH_ROWIDS = """
WITH RECURSIVE up (n, parent) AS (
    SELECT n, parent FROM nodes WHERE n = ?
    UNION ALL
    SELECT nodes.n, nodes.parent FROM up JOIN nodes ON nodes.n = up.parent
)
SELECT n FROM up
"""
"""Rowids of the nodes from a head back to the root."""

SELECT_OTHER_NODES_OF_ITEM = """
WITH RECURSIVE old (n) AS (
    SELECT head FROM links WHERE route IN (SELECT value FROM json_each(:routes)) AND head IS NOT NULL
    UNION SELECT nodes.parent FROM old JOIN nodes ON nodes.n = old.n WHERE nodes.parent IS NOT NULL
), own (n) AS (
    SELECT :head UNION ALL SELECT nodes.parent FROM own JOIN nodes ON nodes.n = own.n WHERE nodes.parent IS NOT NULL
)
SELECT n FROM nodes WHERE item = (SELECT item FROM nodes WHERE n = :gone) AND n <> :gone
    AND n IN (SELECT n FROM old) AND n NOT IN (SELECT n FROM own)
"""

SELECT_HEAD_AND_ERASED = """
SELECT key FROM nodes WHERE tenant = :tenant AND substr(key, 1, 16) = substr(:key, 1, 16) AND key = :key
UNION ALL SELECT key FROM (
    SELECT key FROM nodes WHERE item IS NULL AND +tenant = :tenant AND parent IS NOT NULL LIMIT :limit
)
"""
"""The keys for `base.is_intact`; the plus keeps the tenant out of the choice of an index."""

NO_NODE = 0
"""No node has this rowid: a query that would stop at it continues to the root."""

CLEAR_TITLES = """
WITH RECURSIVE below (n, steps) AS (
    SELECT ?, 1 UNION ALL SELECT nodes.n, steps + 1 FROM below JOIN nodes ON nodes.parent = below.n WHERE steps < ?
)
UPDATE links SET title = NULL, tools = NULL WHERE saw IN (SELECT n FROM below) OR head IN (SELECT n FROM below)
"""
"""Clear the titles that may be from the item of a node; they are computed again from the items that are left."""

SELECT_NODE_USE = """
SELECT parent, item, parent IS NULL
    OR EXISTS (SELECT 1 FROM nodes AS child WHERE child.parent = nodes.n)
    OR EXISTS (SELECT 1 FROM links WHERE saw = nodes.n) OR EXISTS (SELECT 1 FROM links WHERE head = nodes.n)
    OR EXISTS (SELECT 1 FROM links WHERE sent_body = nodes.n)
    OR EXISTS (SELECT 1 FROM sessions WHERE head = nodes.n) OR EXISTS (SELECT 1 FROM sessions WHERE mark = nodes.n)
    OR EXISTS (SELECT 1 FROM sessions WHERE written = nodes.n)
    OR EXISTS (SELECT 1 FROM conversations WHERE head = nodes.n)
FROM nodes WHERE n = ?
"""


def node_rowid(t: TenantConnection, key: Key) -> int:
    """Return the rowid of the node with this key. Raises NotFound."""
    cached = t.rowids.get(("nodes", key))
    if cached is not None:
        return cached
    row = find_node(t, key)
    if row is None:
        raise base.node_not_found_error(key)
    n: int = row[0]
    return n


def find_node(t: TenantConnection, key: Key) -> Row | None:
    """Return the rowids of the node with this key and of its item; None if there is no such node."""
    blob = key_to_blob(key)
    row = t.fetch_row(SELECT_NODE, t.tenant_number, blob[:16], blob)
    if row is not None:
        t.rowids["nodes", key] = row[0]
    return row


def select_path(t: TenantConnection, head: Key, known: Path | None = None) -> Path:
    """Return the path to `head`. Raises NotFound, ItemDeleted and DamagedRow."""
    if head == t.root:
        return Path(t.root)
    if known is not None and known.head == head:
        parameters = {"tenant": t.tenant_number, "key": key_to_blob(head), "limit": base.MAX_ERASED_NODES}
        if base.is_intact(known, [key for (key,) in t.db.execute(SELECT_HEAD_AND_ERASED, parameters)]):
            return known
    end, rows = _select_path_rows(t, node_rowid(t, head), NO_NODE)
    if end != node_rowid(t, t.root):
        raise DamagedRow("history", head[:12], "its beginning is missing")
    return Path(t.root, Prefix(_nodes_from_rows(rows)))


def select_items_after(t: TenantConnection, head: Key, after: Key) -> Sequence[Item]:
    """Return the items after `after` on the path to `head`. Raises NotFound, Conflict, ItemDeleted and DamagedRow."""
    if head == after == t.root:
        return []
    start, after_row = node_rowid(t, head), find_node(t, after)
    if after_row is None:
        raise base.not_on_path_error(after)
    end, rows = _select_path_rows(t, start, after_row[0])
    if end != after_row[0]:
        raise base.not_on_path_error(after)
    return [node.item for node in _nodes_from_rows(rows)]


def _select_path_rows(t: TenantConnection, head: int, after: int) -> tuple[int, list[Row]]:
    """Return the end of the walk from `head` (`after`, or the root), and the rows after it, oldest first."""
    (end, _, _), *rows = tenant_rows.fetch_records(t.db, SELECT_PATH, {"head": head, "after": after})[::-1]
    return end, rows


def _nodes_from_rows(rows: Sequence[Row]) -> Sequence[Node]:
    """Decode the nodes of a path. Raises ItemDeleted and DamagedRow."""
    keys, bodies = [Key(key.hex()) for _, key, _ in rows], [body for _, _, body in rows]
    if None in bodies:
        raise ItemDeleted(keys[bodies.index(None)])
    return list(map(Node, keys, decode_items(keys, bodies)))


def select_node_item(t: TenantConnection, n: int | None) -> Item | None:
    """Return the item of a node; None if there is none. Raises DamagedRow."""
    rows = t.fetch_records("SELECT key, body FROM nodes JOIN items ON items.n = nodes.item WHERE nodes.n = ?", n)
    return next((decode_item(key.hex()[:12], body) for key, body in rows), None)


def select_first_items(t: TenantConnection, head: Key, limit: int) -> ReadRows[Item]:
    """Return the first items on the path to `head`. Raises NotFound."""
    rows = t.fetch_all(SELECT_PATH_ROWIDS, node_rowid(t, head))[:-1]
    read: ReadRows[Item] = ReadRows([], [])
    for (n,) in rows[: -limit - 1 : -1]:
        try:
            item = select_node_item(t, n)
        except DamagedRow as error:
            read.damaged.append(error)
        else:
            read.rows.extend([item] if item is not None else [])
    return read


def select_first_words(t: TenantConnection, n: int | None) -> str:
    """Return the first words of a node's item; "" if there is none. Raises DamagedRow."""
    item = select_node_item(t, n)
    return "" if item is None else item_preview(item)


def insert_missing_nodes(t: TenantConnection, append: AppendItems) -> int:
    """Insert the nodes that are not stored yet and return the rowid of the last. Raises NotFound."""
    node, key, is_new = node_rowid(t, append.after), append.after, False
    for item in append.items:
        hashed = item_hash(item)
        key = child_key(key, hashed)
        row = None if is_new else find_node(t, key)  # a new node has no children
        if row is None:
            node, is_new = _insert_node(t, node, _insert_missing_item(t, hashed, item), key), True
        else:
            node = row[0]
            if row[1] is None:
                item_rowid = _insert_missing_item(t, hashed, item)
                t.execute("UPDATE nodes SET item = ?, erased = NULL WHERE n = ?", item_rowid, node)
                tenant_rows.index_assigned_ids(t, node, item_rowid)
    return node


def _insert_node(t: TenantConnection, parent: int, item: int, key: Key) -> int:
    n = t.execute_insert(
        "INSERT INTO nodes (tenant, parent, item, key) VALUES (?, ?, ?, ?)",
        t.tenant_number,
        parent,
        item,
        key_to_blob(key),
    )
    t.rowids["nodes", key] = n
    return n


def _insert_missing_item(t: TenantConnection, hashed: Hash, item: Item) -> int:
    """Return the rowid of an item, which is inserted if it is new."""
    short = short_hash(hashed)
    stored: int | None = t.fetch_value("SELECT item FROM hashes WHERE tenant = ? AND hash = ?", t.tenant_number, short)
    if stored is not None:
        return stored
    n = t.execute_insert("INSERT INTO items (tenant, body) VALUES (?, ?)", t.tenant_number, encode_json(item))
    t.execute("INSERT INTO hashes (tenant, hash, item) VALUES (?, ?, ?)", t.tenant_number, short, n)
    tenant_rows.index_item_id(t, base.own_item_id(item), n)
    if terms := tokenize_item(item):
        t.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", n, terms)
    return n


def select_other_nodes_of_item(t: TenantConnection, node: int, routes: Sequence[int], head: int) -> list[int]:
    """Return other nodes of an erased node's item: on paths of links with these routes, not on the path to `head`."""
    values = {"gone": node, "routes": json.dumps(routes), "head": head}
    return [n for (n,) in t.db.execute(SELECT_OTHER_NODES_OF_ITEM, values).fetchall()]


def erase_item(t: TenantConnection, n: int) -> None:
    """Remove the item from a node."""
    rows = t.fetch_records("SELECT item, body FROM nodes JOIN items ON items.n = nodes.item WHERE nodes.n = ?", n)
    for item, body in rows:
        own_id = base.own_item_id(decode_item(str(item), body))
        t.execute("UPDATE nodes SET item = NULL, erased = ? WHERE n = ?", own_id, n)
        t.execute(CLEAR_TITLES, n, MAX_TITLE_ITEMS)
        tenant_rows.unindex_assigned_ids(t, n, item)
        _delete_unreferenced_item(t, item)


def delete_unreferenced_nodes(t: TenantConnection, nodes: Iterable[int]) -> None:
    """Delete those of `nodes` that nothing references, and their ancestors and items that this leaves unreferenced."""
    for start in nodes:
        n: int | None = start
        while n is not None:
            row = t.fetch_row(SELECT_NODE_USE, n)
            if row is None or row[2]:
                break
            t.execute_delete("DELETE FROM nodes WHERE n = ?", n)
            if row[1] is not None:
                _delete_unreferenced_item(t, row[1])
            n = row[0]


def _delete_unreferenced_item(t: TenantConnection, n: int) -> None:
    """Delete an item that has no node any more, and its terms."""
    if t.fetch_value("SELECT 1 FROM nodes WHERE item = ?", n):
        return
    ((body,),) = t.fetch_records("SELECT body FROM items WHERE n = ?", n)
    item = decode_item(str(n), body)
    if terms := tokenize_item(item):
        # A contentless FTS5 table deletes a row only with the terms that were inserted.
        t.execute("INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)", n, terms)
    tenant_rows.unindex_item_id(t, base.own_item_id(item), n)
    t.execute("DELETE FROM hashes WHERE tenant = ? AND hash = ?", t.tenant_number, short_hash(item_hash(item)))
    t.execute("DELETE FROM items WHERE n = ?", n)


DELETE_UNREFERENCED_LINK = """
DELETE FROM links WHERE n = ? AND saw IS NULL
    AND NOT EXISTS (SELECT 1 FROM links AS children WHERE children.parent = links.n)
    AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.link = links.n)
"""

DELETE_UNREFERENCED_SESSION = """
DELETE FROM sessions WHERE n = ? AND record IS NULL
    AND NOT EXISTS (SELECT 1 FROM links WHERE links.session = sessions.n)
"""

DELETE_UNREFERENCED_JSON = """
DELETE FROM repeated WHERE n = ?
    AND NOT EXISTS (SELECT 1 FROM links WHERE route = repeated.n)
    AND NOT EXISTS (SELECT 1 FROM links WHERE parameters = repeated.n)
RETURNING body
"""


def delete_unreferenced_link(t: TenantConnection, n: int) -> None:
    """Delete a link that has only an id, if nothing references it."""
    t.execute_delete(DELETE_UNREFERENCED_LINK, n)


def delete_unreferenced_session(t: TenantConnection, n: int) -> None:
    """Delete a session that has only an id, if nothing references it."""
    t.execute_delete(DELETE_UNREFERENCED_SESSION, n)


def _delete_unreferenced_json(t: TenantConnection, n: int) -> None:
    """Delete a route or parameters that no link has."""
    for (body,) in t.fetch_records(DELETE_UNREFERENCED_JSON, n):
        tenant_rows.unindex_json(t, body, n)


def delete_unreferenced_targets(
    t: TenantConnection, parent: int | None, session: int | None, *repeated: int | None
) -> None:
    """Delete the former targets of a link that nothing else references."""
    if parent is not None:
        delete_unreferenced_link(t, parent)
    if session is not None:
        delete_unreferenced_session(t, session)
    for n in repeated:
        if n is not None:
            _delete_unreferenced_json(t, n)

"""Items and nodes as rows.

An item is stored once for its tenant, a node is a few numbers and a key. A node that nothing
stands on any more is collected with its item in the transaction that left it so, and what is
before it after it; whoever removes a record hands in the nodes that it stood on.
"""

import json
from collections.abc import Iterable, Sequence

from convo.errors import ItemDeleted
from convo.history import Key, Node, Path, Prefix, child
from convo.items import Hash, Item, first_words, hash_of
from convo.stores import rules
from convo.stores.contract import Growth
from convo.stores.sqlite import names
from convo.stores.sqlite.tenant import Row, Tenant, blob
from convo.stores.terms import terms_of
from convo.stores.verbatim import dumps, loads

NODE = "SELECT n, item FROM nodes WHERE tenant = ? AND substr(key, 1, 16) = ? AND key = ?"

PATH = """
WITH RECURSIVE up (n, parent, item, key) AS (
    SELECT n, parent, item, key FROM nodes WHERE n = :head
    UNION ALL
    SELECT nodes.n, nodes.parent, nodes.item, nodes.key FROM up JOIN nodes ON nodes.n = up.parent WHERE up.n <> :after
)
SELECT up.n, up.key, items.body FROM up LEFT JOIN items ON items.n = up.item AND up.n <> :after
"""
"""Keys and items from a node back to another one, or else to the root: that one is the last row, without its item."""

LEFT_BEHIND = """
WITH RECURSIVE old (n) AS (
    SELECT head FROM links WHERE route IN (SELECT value FROM json_each(:routes)) AND head IS NOT NULL
    UNION SELECT nodes.parent FROM old JOIN nodes ON nodes.n = old.n WHERE nodes.parent IS NOT NULL
), own (n) AS (
    SELECT :head UNION ALL SELECT nodes.parent FROM own JOIN nodes ON nodes.n = own.n WHERE nodes.parent IS NOT NULL
)
SELECT n FROM nodes WHERE item = (SELECT item FROM nodes WHERE n = :gone) AND n <> :gone
    AND n IN (SELECT n FROM old) AND n NOT IN (SELECT n FROM own)
"""

NOWHERE = 0
"""No node has this number: a way that would stop there goes on to the root."""

NEEDED = """
SELECT parent, item, parent IS NULL
    OR EXISTS (SELECT 1 FROM nodes AS child WHERE child.parent = nodes.n)
    OR EXISTS (SELECT 1 FROM links WHERE saw = nodes.n) OR EXISTS (SELECT 1 FROM links WHERE head = nodes.n)
    OR EXISTS (SELECT 1 FROM sessions WHERE head = nodes.n) OR EXISTS (SELECT 1 FROM sessions WHERE mark = nodes.n)
    OR EXISTS (SELECT 1 FROM sessions WHERE written = nodes.n)
    OR EXISTS (SELECT 1 FROM conversations WHERE head = nodes.n)
FROM nodes WHERE n = ?
"""


def node(t: Tenant, key: Key) -> int:
    """The number of the node at `key`. raises: NotFound"""
    known = t.numbers.get(("nodes", key))
    if known is not None:
        return known
    found = seek(t, key)
    if found is None:
        raise rules.no_place(key)
    n: int = found[0]
    return n


def seek(t: Tenant, key: Key) -> Row | None:
    """The number of the node at `key` and that of its item; None when there is no such node."""
    raw = blob(key)
    found = t.row(NODE, t.n, raw[:16], raw)
    if found is not None:
        t.numbers["nodes", key] = found[0]
    return found


def path(t: Tenant, head: Key) -> Path:
    """The path to `head`. raises: NotFound, ItemDeleted"""
    if head == t.root:
        return Path(t.root)
    _, rows = _way(t, node(t, head), NOWHERE)
    return Path(t.root, Prefix(_nodes(rows)))


def tail(t: Tenant, head: Key, after: Key) -> Sequence[Item]:
    """The items behind `after` on the path to `head`. raises: NotFound, Conflict, ItemDeleted"""
    if head == after == t.root:
        return []
    start, found = node(t, head), seek(t, after)
    if found is None:
        raise rules.not_through(after)
    end, rows = _way(t, start, found[0])
    if end != found[0]:
        raise rules.not_through(after)
    return [one.item for one in _nodes(rows)]


def _way(t: Tenant, head: int, after: int) -> tuple[int, list[Row]]:
    """Where the way back from `head` ended, at `after` or at the root; the rows behind that, oldest first."""
    (end, _, _), *rows = t.db.execute(PATH, {"head": head, "after": after}).fetchall()[::-1]
    return end, rows


def _nodes(rows: Sequence[Row]) -> Sequence[Node]:
    """The nodes of a way. raises: ItemDeleted"""
    keys, bodies = [Key(key.hex()) for _, key, _ in rows], [body for _, _, body in rows]
    if None in bodies:
        raise ItemDeleted(keys[bodies.index(None)])
    return list(map(Node, keys, decoded(bodies)))


def decoded(bodies: Sequence[str]) -> Sequence[Item]:
    """Items from their texts; as one text they take half the time."""
    found: list[Item] = loads(f"[{','.join(bodies)}]")
    return found


def item(t: Tenant, n: int) -> Item | None:
    """The item at a node; None where there is none."""
    body = t.one("SELECT body FROM nodes JOIN items ON items.n = nodes.item WHERE nodes.n = ?", n)
    return loads(body) if body else None


def words(t: Tenant, n: int) -> str:
    """The first words of the item at a node; "" where there is none."""
    found = item(t, n)
    return "" if found is None else first_words(found)


def grow(t: Tenant, growth: Growth) -> int:
    """Make the nodes that are not there yet; the number of the last. raises: NotFound"""
    at, key, new = node(t, growth.after), growth.after, False
    for item in growth.items:
        hashed = hash_of(item)
        key = child(key, hashed)
        found = None if new else seek(t, key)  # nothing stands behind a node that was not there
        if found is None:
            at, new = _make(t, at, _keep(t, hashed, item), key), True
        else:
            at = found[0]
            if found[1] is None:
                kept = _keep(t, hashed, item)
                t.run("UPDATE nodes SET item = ?, erased = NULL WHERE n = ?", kept, at)
                names.put_given(t, at, kept)
    return at


def _make(t: Tenant, parent: int, item: int, key: Key) -> int:
    """The number of a new node."""
    n = t.add("INSERT INTO nodes (tenant, parent, item, key) VALUES (?, ?, ?, ?)", t.n, parent, item, blob(key))
    t.numbers["nodes", key] = n
    return n


def _keep(t: Tenant, hashed: Hash, item: Item) -> int:
    """The number of an item, which is stored if it is new."""
    found: int | None = t.one("SELECT item FROM hashes WHERE tenant = ? AND hash = ?", t.n, _raw(hashed))
    if found is not None:
        return found
    number = t.add("INSERT INTO items (tenant, body) VALUES (?, ?)", t.n, dumps(item))
    t.run("INSERT INTO hashes (tenant, hash, item) VALUES (?, ?, ?)", t.n, _raw(hashed), number)
    names.put(t, rules.own_id(item), number)
    if cut := terms_of(item):
        t.run("INSERT INTO words (rowid, terms) VALUES (?, ?)", number, cut)
    return number


def _raw(hashed: Hash) -> bytes:
    return bytes.fromhex(hashed.partition(":")[2])[:16]


def left_behind(t: Tenant, gone: int, routes: Sequence[int], head: int) -> list[int]:
    """The other nodes with the item of `gone` on the paths of links that took `routes`, without those up to `head`."""
    values = {"gone": gone, "routes": json.dumps(routes), "head": head}
    return [n for (n,) in t.db.execute(LEFT_BEHIND, values).fetchall()]


def erase(t: Tenant, n: int) -> None:
    """Take the item out of a node."""
    found = t.row("SELECT item, body FROM nodes JOIN items ON items.n = nodes.item WHERE nodes.n = ?", n)
    if found:
        item, body = found
        t.run("UPDATE nodes SET item = NULL, erased = ? WHERE n = ?", rules.own_id(loads(body)), n)
        names.drop_given(t, n, item)
        _drop(t, item)


def collect(t: Tenant, nodes: Iterable[int]) -> None:
    """Take those of `nodes` that nothing stands on, and what that leaves without need."""
    for start in nodes:
        n: int | None = start
        while n is not None:
            found = t.row(NEEDED, n)
            if found is None or found[2]:
                break
            t.delete("DELETE FROM nodes WHERE n = ?", n)
            if found[1] is not None:
                _drop(t, found[1])
            n = found[0]


def _drop(t: Tenant, item: int) -> None:
    """Take an item that stands nowhere any more, and its terms."""
    if t.one("SELECT 1 FROM nodes WHERE item = ?", item):
        return
    kept = loads(t.one("SELECT body FROM items WHERE n = ?", item))
    if cut := terms_of(kept):
        t.run("INSERT INTO words (words, rowid, terms) VALUES ('delete', ?, ?)", item, cut)
    names.drop(t, rules.own_id(kept), item)
    t.run("DELETE FROM hashes WHERE tenant = ? AND hash = ?", t.n, _raw(hash_of(kept)))
    t.run("DELETE FROM items WHERE n = ?", item)

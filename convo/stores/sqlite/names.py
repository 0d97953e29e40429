"""What is found by a name that stands inside something: items by their ids, routes by their conversation.

No name is written a second time. The table `names` keeps four bytes of its hash, and what that
leads to is looked at once more.
"""

from collections.abc import Sequence
from hashlib import sha256

from convo.items import Item, Json
from convo.stores import rules
from convo.stores.sqlite.tenant import Tenant
from convo.stores.verbatim import encodes, loads

CALLED = """
SELECT items.n, body FROM names JOIN items ON items.n = names.n
WHERE names.tenant = ? AND hash = ? ORDER BY items.n DESC
"""

GIVEN = "SELECT 1 FROM nodes JOIN members ON members.node = nodes.n WHERE nodes.item = ? AND members.id = ?"

STANDING = """
SELECT key, body FROM nodes JOIN items ON items.n = nodes.item
WHERE nodes.tenant = ? AND substr(key, 1, 16) = ?
"""

ROUTES = """
SELECT repeated.n, body FROM names JOIN repeated ON repeated.n = names.n
WHERE names.tenant = ? AND names.hash = ?
"""

HALF = 32
"""The digits of half a key, by which nodes are indexed."""

CONVERSATION = 5
"""Where its conversation stands in a route."""


# -- items ----------------------------------------------------------------------------------------


def item(t: Tenant, item_id: str) -> Item | None:
    """The item with this id, the one stored last if several have it."""
    for n, body in t.all(CALLED, t.n, _of_item(item_id)):
        found: Item = loads(body)
        if (item_id and rules.own_id(found) == item_id) or _is_given(t, item_id, n):
            return found
    return _in_place(t, rules.place_in(item_id))


def _in_place(t: Tenant, digits: str) -> Item | None:
    if not digits:
        return None
    found = t.row(STANDING, t.n, bytes.fromhex(digits[:HALF]))
    return loads(found[1]) if found and found[0].hex().startswith(digits) else None


def is_listed(t: Tenant, item_id: str, item: int) -> bool:
    """Whether the table `names` leads from this id to `item`."""
    return (
        t.one("SELECT 1 FROM names WHERE tenant = ? AND hash = ? AND n = ?", t.n, _of_item(item_id), item) is not None
    )


def is_route_listed(t: Tenant, conversation_id: str, route: int) -> bool:
    """Whether the table `names` leads from this conversation to `route`."""
    return _is_listed(t, _of_conversation(conversation_id), route)


def put(t: Tenant, item_id: str, item: int) -> None:
    """Let `item` be found by this id; "" is none."""
    if item_id:
        _put(t, _of_item(item_id), item)


def drop(t: Tenant, item_id: str, item: int) -> None:
    """Let `item` not be found by this id any more, unless a conversation gave it that."""
    if item_id and not _is_given(t, item_id, item):
        _drop(t, _of_item(item_id), item)


def put_given(t: Tenant, node: int, item: int) -> None:
    """Let `item`, which stands at `node` from now on, be found by the ids that conversations gave it there."""
    for (item_id,) in t.all("SELECT id FROM members WHERE node = ?", node):
        put(t, item_id, item)


def drop_given(t: Tenant, node: int, item: int) -> None:
    """Let `item`, which stood at `node`, not be found by what conversations gave it there alone."""
    for (item_id,) in t.all("SELECT id FROM members WHERE node = ?", node):
        drop(t, item_id, item)


def _is_given(t: Tenant, item_id: str, item: int) -> bool:
    return encodes(item_id) and t.one(GIVEN, item, item_id) is not None


# -- routes ---------------------------------------------------------------------------------------


def routes(t: Tenant, conversation_id: str) -> Sequence[int]:
    """The routes that lead through a conversation, also after it was removed."""
    found = t.all(ROUTES, t.n, _of_conversation(conversation_id))
    return [n for n, body in found if loads(body)[CONVERSATION] == conversation_id]


def put_route(t: Tenant, route: Json, n: int) -> None:
    if route[CONVERSATION] is not None:
        _put(t, _of_conversation(route[CONVERSATION]), n)


def drop_route(t: Tenant, route: Json, n: int) -> None:
    if route[CONVERSATION] is not None:
        _drop(t, _of_conversation(route[CONVERSATION]), n)


# -- their hashes ---------------------------------------------------------------------------------


def _is_listed(t: Tenant, hashed: int, n: int) -> bool:
    return t.one("SELECT 1 FROM names WHERE tenant = ? AND hash = ? AND n = ?", t.n, hashed, n) is not None


def _put(t: Tenant, hashed: int, n: int) -> None:
    t.run("INSERT OR IGNORE INTO names (tenant, hash, n) VALUES (?, ?, ?)", t.n, hashed, n)


def _drop(t: Tenant, hashed: int, n: int) -> None:
    t.run("DELETE FROM names WHERE tenant = ? AND hash = ? AND n = ?", t.n, hashed, n)


def _of_item(name: str) -> int:
    return _hash(b"item " + name.encode("utf-8", "surrogatepass"))


def _of_conversation(name: str) -> int:
    return _hash(b"conversation " + name.encode("utf-8", "surrogatepass"))


def _hash(name: bytes) -> int:
    return int.from_bytes(sha256(name).digest()[:4], "big", signed=True)

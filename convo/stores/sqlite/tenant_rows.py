"""The rows of one tenant: statements, rowids, and the index of ids.

A `TenantConnection` lives as long as one job and caches the rowids that the job found. The table `names` has four
bytes of the hash of each item id and conversation id, so every match is verified against the row that it leads to.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from convo.history.items import Item, Json
from convo.history.tree import Key, root_key
from convo.stores import base
from convo.stores.codec import decode_json, is_utf8_encodable

Row: TypeAlias = tuple[Any, ...]
"""What a query finds; SQLite's values are None, int, float, str and bytes."""

Columns: TypeAlias = Mapping[str, object]
"""Values of a row by the names of their columns."""

TableWithId: TypeAlias = Literal["sessions", "links", "agent_runs"]
"""Tables whose rows have an id."""

SELECT_ROWID: Mapping[TableWithId, str] = {
    "sessions": "SELECT n FROM sessions WHERE tenant = ? AND id = ?",
    "links": "SELECT n FROM links WHERE tenant = ? AND id = ?",
    "agent_runs": "SELECT n FROM agent_runs WHERE tenant = ? AND id = ?",
}


@dataclass(frozen=True, slots=True)
class TenantConnection:
    """A connection, and the number that the tenant's rows begin with; 0 before it has any.

    numbers:  what the job has found or made, by table and id, or key. They hold until it ends or deletes
    """

    db: sqlite3.Connection
    n: int
    root: Key
    numbers: dict[tuple[Literal[TableWithId, "nodes"], str], int] = field(default_factory=dict)

    @classmethod
    def known(cls, db: sqlite3.Connection, name: str) -> "TenantConnection":
        """The tenant as a reader finds it."""
        found = db.execute("SELECT n FROM tenants WHERE name = ?", (name,)).fetchone()
        return cls(db, found[0] if found else 0, root_key(name))

    @classmethod
    def made(cls, db: sqlite3.Connection, name: str) -> "TenantConnection":
        """The tenant as a writer needs it, with the root of its tree."""
        there = cls.known(db, name)
        if there.n:
            return there
        number = db.execute("INSERT INTO tenants (name) VALUES (?)", (name,)).lastrowid
        assert number is not None
        db.execute("INSERT INTO nodes (tenant, key) VALUES (?, ?)", (number, key_to_blob(there.root)))
        return cls(db, number, there.root)

    def all(self, sql: str, *values: object) -> list[Row]:
        return self.db.execute(sql, values).fetchall()

    def row(self, sql: str, *values: object) -> Row | None:
        found: Row | None = self.db.execute(sql, values).fetchone()
        return found

    def one(self, sql: str, *values: object) -> Any:
        """The first column of the first row; None when there is none."""
        found = self.row(sql, *values)
        return found[0] if found else None

    def run(self, sql: str, *values: object) -> sqlite3.Cursor:
        return self.db.execute(sql, values)

    def add(self, sql: str, *values: object) -> int:
        """The number of the row that an INSERT made."""
        number = self.db.execute(sql, values).lastrowid
        assert number is not None
        return number

    def number(self, table: TableWithId, row_id: str) -> int | None:
        """The number of the row with this id."""
        known = self.numbers.get((table, row_id))
        if known is not None:
            return known
        found: int | None = self.one(SELECT_ROWID[table], self.n, row_id)
        if found is not None:
            self.numbers[table, row_id] = found
        return found

    def insert(self, table: TableWithId, row_id: str, columns: Columns) -> int:
        """The number of a new row."""
        row = {"tenant": self.n, "id": row_id, **columns}
        values = ", ".join("?" for _ in row)
        n = self.add(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})", *row.values())  # noqa: S608 - our names
        self.numbers[table, row_id] = n
        return n

    def update(self, table: TableWithId, n: int, columns: Columns, before: Columns) -> None:
        """Write columns of a row, without those that are so `before`.

        Each column that is written costs a page of every index that has it, also when it stays what it was.
        """
        new = {column: value for column, value in columns.items() if column not in before or before[column] != value}
        written = ", ".join(f"{column} = ?" for column in new)
        self.run(f"UPDATE {table} SET {written} WHERE n = ?", *new.values(), n)  # noqa: S608 - our names

    def delete(self, sql: str, *values: object) -> None:
        """Take rows that `numbers` may name."""
        if self.run(sql, *values).rowcount:
            self.numbers.clear()


def database_time_s(db: sqlite3.Connection) -> float:
    """The database's own time, seconds since 1970. The statements of one job may see other instants: ask once."""
    return float(db.execute("SELECT (julianday('now') - 2440587.5) * 86400.0").fetchone()[0])


def key_to_blob(key: Key) -> bytes:
    """A key as it is stored; empty for what cannot be one."""
    try:
        raw = bytes.fromhex(key)
    except ValueError:
        return b""
    return raw if raw.hex() == key else b""


def to_query_name(name: str) -> str | None:
    """A name as a query asks for it: NULL, which equals nothing, when nothing can have that name."""
    return name if is_utf8_encodable(name) else None


SELECT_ITEMS_BY_HASH = """
SELECT items.n, body FROM names JOIN items ON items.n = names.n
WHERE names.tenant = ? AND hash = ? ORDER BY items.n DESC
"""

SELECT_MEMBER_OF_ITEM = (
    "SELECT 1 FROM nodes JOIN members ON members.node = nodes.n WHERE nodes.item = ? AND members.id = ?"
)

SELECT_ITEM_BY_HALF_KEY = """
SELECT key, body FROM nodes JOIN items ON items.n = nodes.item
WHERE nodes.tenant = ? AND substr(key, 1, 16) = ?
"""

SELECT_ROUTES_BY_HASH = """
SELECT repeated.n, body FROM names JOIN repeated ON repeated.n = names.n
WHERE names.tenant = ? AND names.hash = ?
"""

HALF_KEY_DIGITS = 32
"""The digits of half a key, by which nodes are indexed."""

ROUTE_CONVERSATION_INDEX = 5
"""Where its conversation stands in a route."""


# -- items ----------------------------------------------------------------------------------------


def select_item(t: TenantConnection, item_id: str) -> Item | None:
    """The item with this id, the one stored last if several have it."""
    for n, body in t.all(SELECT_ITEMS_BY_HASH, t.n, _hash_item_id(item_id)):
        found: Item = decode_json(body)
        if (item_id and base.own_item_id(found) == item_id) or _is_assigned_id(t, item_id, n):
            return found
    return _select_item_by_key(t, base.parse_key_prefix(item_id))


def _select_item_by_key(t: TenantConnection, digits: str) -> Item | None:
    if not digits:
        return None
    found = t.row(SELECT_ITEM_BY_HALF_KEY, t.n, bytes.fromhex(digits[:HALF_KEY_DIGITS]))
    return decode_json(found[1]) if found and found[0].hex().startswith(digits) else None


def is_item_indexed(t: TenantConnection, item_id: str, item: int) -> bool:
    """Whether the table `names` leads from this id to `item`."""
    return (
        t.one("SELECT 1 FROM names WHERE tenant = ? AND hash = ? AND n = ?", t.n, _hash_item_id(item_id), item)
        is not None
    )


def is_route_indexed(t: TenantConnection, conversation_id: str, route: int) -> bool:
    """Whether the table `names` leads from this conversation to `route`."""
    return _is_hash_indexed(t, _hash_conversation_id(conversation_id), route)


def index_item_id(t: TenantConnection, item_id: str, item: int) -> None:
    """Let `item` be found by this id; "" is none."""
    if item_id:
        _insert_hash(t, _hash_item_id(item_id), item)


def unindex_item_id(t: TenantConnection, item_id: str, item: int) -> None:
    """Let `item` not be found by this id any more, unless a conversation gave it that."""
    if item_id and not _is_assigned_id(t, item_id, item):
        _delete_hash(t, _hash_item_id(item_id), item)


def index_assigned_ids(t: TenantConnection, node: int, item: int) -> None:
    """Let `item`, which stands at `node` from now on, be found by the ids that conversations gave it there."""
    for (item_id,) in t.all("SELECT id FROM members WHERE node = ?", node):
        index_item_id(t, item_id, item)


def unindex_assigned_ids(t: TenantConnection, node: int, item: int) -> None:
    """Let `item`, which stood at `node`, not be found by what conversations gave it there alone."""
    for (item_id,) in t.all("SELECT id FROM members WHERE node = ?", node):
        unindex_item_id(t, item_id, item)


def _is_assigned_id(t: TenantConnection, item_id: str, item: int) -> bool:
    return is_utf8_encodable(item_id) and t.one(SELECT_MEMBER_OF_ITEM, item, item_id) is not None


# -- routes ---------------------------------------------------------------------------------------


def select_route_rowids(t: TenantConnection, conversation_id: str) -> Sequence[int]:
    """The routes that lead through a conversation, also after it was removed."""
    found = t.all(SELECT_ROUTES_BY_HASH, t.n, _hash_conversation_id(conversation_id))
    return [n for n, body in found if decode_json(body)[ROUTE_CONVERSATION_INDEX] == conversation_id]


def index_route(t: TenantConnection, route: Json, n: int) -> None:
    if route[ROUTE_CONVERSATION_INDEX] is not None:
        _insert_hash(t, _hash_conversation_id(route[ROUTE_CONVERSATION_INDEX]), n)


def unindex_route(t: TenantConnection, route: Json, n: int) -> None:
    if route[ROUTE_CONVERSATION_INDEX] is not None:
        _delete_hash(t, _hash_conversation_id(route[ROUTE_CONVERSATION_INDEX]), n)


# -- their hashes ---------------------------------------------------------------------------------


def _is_hash_indexed(t: TenantConnection, hashed: int, n: int) -> bool:
    return t.one("SELECT 1 FROM names WHERE tenant = ? AND hash = ? AND n = ?", t.n, hashed, n) is not None


def _insert_hash(t: TenantConnection, hashed: int, n: int) -> None:
    t.run("INSERT OR IGNORE INTO names (tenant, hash, n) VALUES (?, ?, ?)", t.n, hashed, n)


def _delete_hash(t: TenantConnection, hashed: int, n: int) -> None:
    t.run("DELETE FROM names WHERE tenant = ? AND hash = ? AND n = ?", t.n, hashed, n)


def _hash_item_id(name: str) -> int:
    return _hash_bytes(b"item " + name.encode("utf-8", "surrogatepass"))


def _hash_conversation_id(name: str) -> int:
    return _hash_bytes(b"conversation " + name.encode("utf-8", "surrogatepass"))


def _hash_bytes(name: bytes) -> int:
    return int.from_bytes(sha256(name).digest()[:4], "big", signed=True)

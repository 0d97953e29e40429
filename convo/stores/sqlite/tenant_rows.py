"""The rows of one tenant: statements, rowids, and the index of ids.

A `TenantConnection` is valid for one job and caches the rowids that the job found. The table `names` has four
bytes of the hash of each item id and conversation id, so every match is verified against the row that it leads to.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias

from convo.history.canonical import Hash, is_utf8_encodable
from convo.history.items import Item, Json
from convo.history.tree import Key, root_key
from convo.stores import base
from convo.stores.codec import UNDECODABLE, decode_item, decode_json, is_route

Row: TypeAlias = tuple[Any, ...]
"""A row of a result; SQLite's values are None, int, float, str and bytes."""

Columns: TypeAlias = Mapping[str, object]
"""Values of a row, by column name."""

TableWithId: TypeAlias = Literal["sessions", "links", "agent_runs"]
"""Tables whose rows have an id."""

SELECT_ROWID: Mapping[TableWithId, str] = {
    "sessions": "SELECT n FROM sessions WHERE tenant = ? AND id = ?",
    "links": "SELECT n FROM links WHERE tenant = ? AND id = ?",
    "agent_runs": "SELECT n FROM agent_runs WHERE tenant = ? AND id = ?",
}


class TenantConnection(NamedTuple):
    """A connection for the rows of one tenant.

    tenant_number:  first column of the tenant's rows; 0 if the tenant has none yet
    rowids:         rowids that the job found or created, by table and id, or key; valid until it ends or deletes rows
    """

    db: sqlite3.Connection
    tenant_number: int
    root: Key
    rowids: dict[tuple[Literal[TableWithId, "nodes"], str], int]

    @classmethod
    def find(cls, db: sqlite3.Connection, name: str) -> "TenantConnection":
        """Return the tenant for a read."""
        row = db.execute("SELECT n FROM tenants WHERE name = ?", (name,)).fetchone()
        return cls(db, row[0] if row else 0, root_key(name), {})

    @classmethod
    def find_or_create(cls, db: sqlite3.Connection, name: str) -> "TenantConnection":
        """Return the tenant for a write; it is created, with the root of its tree, if it is missing."""
        tenant = cls.find(db, name)
        if tenant.tenant_number:
            return tenant
        tenant_number = db.execute("INSERT INTO tenants (name) VALUES (?)", (name,)).lastrowid
        assert tenant_number is not None
        db.execute("INSERT INTO nodes (tenant, key) VALUES (?, ?)", (tenant_number, key_to_blob(tenant.root)))
        return cls(db, tenant_number, tenant.root, {})

    def fetch_all(self, sql: str, *values: object) -> list[Row]:
        return self.db.execute(sql, values).fetchall()

    def fetch_row(self, sql: str, *values: object) -> Row | None:
        row: Row | None = self.db.execute(sql, values).fetchone()
        return row

    def fetch_records(self, sql: str, *values: object) -> list[Row]:
        """Like `fetch_all`, but a text that is not UTF-8 becomes bytes, so that the other rows can be read."""
        return fetch_records(self.db, sql, values)

    def fetch_value(self, sql: str, *values: object) -> Any:
        """Return the first column of the first row; None if there is none."""
        row = self.db.execute(sql, values).fetchone()
        return row[0] if row else None

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
        return self.db.execute(sql, values)

    def execute_insert(self, sql: str, *values: object) -> int:
        """Run an INSERT and return the rowid."""
        rowid = self.db.execute(sql, values).lastrowid
        assert rowid is not None
        return rowid

    def find_rowid(self, table: TableWithId, row_id: str) -> int | None:
        """Return the rowid of the row with this id; None if there is none."""
        cached = self.rowids.get((table, row_id))
        if cached is not None:
            return cached
        rowid: int | None = self.fetch_value(SELECT_ROWID[table], self.tenant_number, row_id)
        if rowid is not None:
            self.rowids[table, row_id] = rowid
        return rowid

    def insert_row(self, table: TableWithId, row_id: str, columns: Columns) -> int:
        """Insert a row and return its rowid."""
        row = {"tenant": self.tenant_number, "id": row_id, **columns}
        placeholders = ", ".join("?" * len(row))
        n = self.execute_insert(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({placeholders})", *row.values())  # noqa: S608 - constant names
        self.rowids[table, row_id] = n
        return n

    def update_row(self, table: TableWithId, n: int, columns: Columns, before: Columns) -> None:
        """Write those columns of a row that differ from `before`.

        Each column that is written costs a page of every index that contains it, also when its value stays the same.
        """
        changed = {
            column: value for column, value in columns.items() if column not in before or before[column] != value
        }
        assignments = ", ".join(f"{column} = ?" for column in changed)
        self.execute(f"UPDATE {table} SET {assignments} WHERE n = ?", *changed.values(), n)  # noqa: S608 - constant names

    def execute_delete(self, sql: str, *values: object) -> None:
        """Delete rows whose rowids may be cached."""
        # SQLite may give the rowid of a deleted row to a new one.
        if self.execute(sql, *values).rowcount:
            self.rowids.clear()


INVALID_UTF8_MESSAGE = "Could not decode to UTF-8"
"""Start of Python's message for text in a row that is not UTF-8; that error has no code."""


def fetch_records(db: sqlite3.Connection, sql: str, parameters: Sequence[object] | Mapping[str, object]) -> list[Row]:
    """Return the rows of a query; a text that is not UTF-8 becomes bytes, which no decoder of a text accepts."""
    try:
        return db.execute(sql, parameters).fetchall()
    except (sqlite3.OperationalError, UnicodeDecodeError) as error:
        # The error has no code of SQLite, so it is told by its message.
        if isinstance(error, sqlite3.Error) and not str(error).startswith(INVALID_UTF8_MESSAGE):
            raise
        with invalid_text_as_bytes(db):
            return db.execute(sql, parameters).fetchall()


@contextmanager
def invalid_text_as_bytes(db: sqlite3.Connection) -> Iterator[None]:
    """Return a text that is not UTF-8 as bytes, for the block."""
    previous = db.text_factory
    db.text_factory = _decode_or_keep_text
    try:
        yield
    finally:
        db.text_factory = previous


def _decode_or_keep_text(text: bytes) -> str | bytes:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def database_time_s(db: sqlite3.Connection) -> float:
    """Return the database's clock, seconds since 1970.

    Each statement of a job may see another time, so call it once in a job.
    """
    # 2440587.5 is the Julian day of 1970; the clock of a store in memory replaces julianday (see `MemoryDatabase`).
    return float(db.execute("SELECT (julianday('now') - 2440587.5) * 86400.0").fetchone()[0])


def key_to_blob(key: Key) -> bytes:
    """Return a key as it is stored; empty for an invalid key."""
    try:
        blob = bytes.fromhex(key)
    except ValueError:
        return b""
    # fromhex also accepts upper case and spaces, which no key has.
    return blob if blob.hex() == key else b""


def short_hash(hashed: Hash) -> bytes:
    """Return the part of a hash that items are found by."""
    return bytes.fromhex(hashed.partition(":")[2])[:16]


def to_query_name(name: str) -> str | None:
    """Return a name as a query parameter: NULL, which equals nothing, if the name cannot be stored."""
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
"""Hex digits of half a key; the index of the nodes contains this half."""

ROUTE_CONVERSATION_INDEX = 5
"""Position of the conversation in a route."""


# -- items ----------------------------------------------------------------------------------------


def select_item(t: TenantConnection, item_id: str) -> Item | None:
    """Return the item with this id; if there are several, the one stored last."""
    for n, body in t.fetch_records(SELECT_ITEMS_BY_HASH, t.tenant_number, _hash_item_id(item_id)):
        item = decode_item(item_id, body)
        if (item_id and base.own_item_id(item) == item_id) or _is_assigned_id(t, item_id, n):
            return item
    return _select_item_by_key(t, base.parse_key_prefix(item_id))


def _select_item_by_key(t: TenantConnection, digits: str) -> Item | None:
    if not digits:
        return None
    rows = t.fetch_records(SELECT_ITEM_BY_HALF_KEY, t.tenant_number, bytes.fromhex(digits[:HALF_KEY_DIGITS]))
    return next((decode_item(digits, body) for key, body in rows if key.hex().startswith(digits)), None)


def is_item_indexed(t: TenantConnection, item_id: str, item: int) -> bool:
    """Return whether the table `names` has the entry of this id for `item`."""
    return _is_hash_indexed(t, _hash_item_id(item_id), item)


def is_route_indexed(t: TenantConnection, conversation_id: str, route: int) -> bool:
    """Return whether the table `names` has the entry of this conversation for `route`."""
    return _is_hash_indexed(t, _hash_conversation_id(conversation_id), route)


def index_item_id(t: TenantConnection, item_id: str, item: int) -> None:
    """Index `item` by this id; "" is none."""
    if item_id:
        _insert_hash(t, _hash_item_id(item_id), item)


def unindex_item_id(t: TenantConnection, item_id: str, item: int) -> None:
    """Remove the index entry of this id for `item`, unless a conversation assigned the id to it."""
    if item_id and not _is_assigned_id(t, item_id, item):
        _delete_hash(t, _hash_item_id(item_id), item)


def index_assigned_ids(t: TenantConnection, node: int, item: int) -> None:
    """Index `item`, the new item of `node`, by the ids that conversations assigned at this node."""
    for (item_id,) in t.fetch_all("SELECT id FROM members WHERE node = ?", node):
        index_item_id(t, item_id, item)


def unindex_assigned_ids(t: TenantConnection, node: int, item: int) -> None:
    """Remove the index entries for `item`, no longer at `node`, of ids that conversations assigned only there."""
    for (item_id,) in t.fetch_all("SELECT id FROM members WHERE node = ?", node):
        unindex_item_id(t, item_id, item)


def _is_assigned_id(t: TenantConnection, item_id: str, item: int) -> bool:
    return is_utf8_encodable(item_id) and t.fetch_value(SELECT_MEMBER_OF_ITEM, item, item_id) is not None


# -- routes ---------------------------------------------------------------------------------------


def select_route_rowids(t: TenantConnection, conversation_id: str) -> Sequence[int]:
    """Return the routes with this conversation, also after it was removed, and damaged ones that may have it."""
    rows = t.fetch_records(SELECT_ROUTES_BY_HASH, t.tenant_number, _hash_conversation_id(conversation_id))
    return [n for n, body in rows if _route_conversation(body, conversation_id) == conversation_id]


def _route_conversation(body: str | bytes, default: str) -> str | None:
    """Return the conversation of a route; `default` if the route is damaged."""
    try:
        route = decode_json(body)
    except UNDECODABLE:
        return default
    return route[ROUTE_CONVERSATION_INDEX] if is_route(route) else default


def index_route(t: TenantConnection, route: Json, n: int) -> None:
    if route[ROUTE_CONVERSATION_INDEX] is not None:
        _insert_hash(t, _hash_conversation_id(route[ROUTE_CONVERSATION_INDEX]), n)


def unindex_route(t: TenantConnection, route: Json, n: int) -> None:
    if route[ROUTE_CONVERSATION_INDEX] is not None:
        _delete_hash(t, _hash_conversation_id(route[ROUTE_CONVERSATION_INDEX]), n)


def unindex_json(t: TenantConnection, body: str | bytes, n: int) -> None:
    """Remove the index entry of deleted JSON if it was a route; the entry of a damaged route stays without effect."""
    try:
        route = decode_json(body)
    except UNDECODABLE:
        return
    if is_route(route):
        unindex_route(t, route, n)


# -- hashes of ids --------------------------------------------------------------------------------


def _is_hash_indexed(t: TenantConnection, hashed: int, n: int) -> bool:
    return (
        t.fetch_value("SELECT 1 FROM names WHERE tenant = ? AND hash = ? AND n = ?", t.tenant_number, hashed, n)
        is not None
    )


def _insert_hash(t: TenantConnection, hashed: int, n: int) -> None:
    t.execute("INSERT OR IGNORE INTO names (tenant, hash, n) VALUES (?, ?, ?)", t.tenant_number, hashed, n)


def _delete_hash(t: TenantConnection, hashed: int, n: int) -> None:
    t.execute("DELETE FROM names WHERE tenant = ? AND hash = ? AND n = ?", t.tenant_number, hashed, n)


def _hash_item_id(name: str) -> int:
    # The prefix keeps an item and a conversation of one name apart.
    return _hash_bytes(b"item " + name.encode("utf-8", "surrogatepass"))


def _hash_conversation_id(name: str) -> int:
    return _hash_bytes(b"conversation " + name.encode("utf-8", "surrogatepass"))


def _hash_bytes(name: bytes) -> int:
    return int.from_bytes(sha256(name).digest()[:4], "big", signed=True)

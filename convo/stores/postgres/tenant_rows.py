"""The rows of one tenant: statements, and values as they are stored in columns.

In every statement `$1` is the tenant's number. Statements that do not need each other's results are sent as one
pipeline, because round trips cost most. Names are escaped where text columns cannot store them, so that equal
prefixes stay equal. Bodies are compressed with zlib where that makes them shorter.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from convo.history.canonical import Hash
from convo.history.items import Item
from convo.history.tree import Key, root_key
from convo.stores.codec import decode_item, encode_json
from convo.stores.codec import escape_name as escape_name
from convo.stores.codec import unescape_name as unescape_name

Row: TypeAlias = tuple[Any, ...]
"""A row of a result; the values are None, int, float, str, bool, bytes and UUID."""

DatabaseConnection: TypeAlias = AsyncConnection[Row]


class Statement(NamedTuple):
    """A statement and its parameters."""

    sql: str
    values: tuple[object, ...] | None = None


BEGIN = Statement("BEGIN")
COMMIT = Statement("COMMIT")
BEGIN_SNAPSHOT = Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")


@dataclass(frozen=True, slots=True)
class TenantConnection:
    """A connection for the rows of one tenant; their first column is `tenant_number`."""

    db: DatabaseConnection
    name: str
    tenant_number: int
    root: Key

    @classmethod
    def from_name(cls, db: DatabaseConnection, name: str) -> "TenantConnection":
        root = root_key(name)
        return cls(db, name, _tenant_number(root), root)

    def statement(self, sql: str, *values: object) -> Statement:
        """Return a statement whose `$1` is the tenant."""
        return Statement(sql, (self.tenant_number, *values))

    async def run_pipeline(self, *statements: Statement) -> list[list[Row]]:
        """Run all statements in one round trip and return the rows of each."""
        return await run_pipeline(self.db, *statements)

    async def fetch_all(self, sql: str, *values: object) -> list[Row]:
        cursor = await self.db.execute(sql, (self.tenant_number, *values), binary=True)
        return await cursor.fetchall()

    async def fetch_row(self, sql: str, *values: object) -> Row | None:
        cursor = await self.db.execute(sql, (self.tenant_number, *values), binary=True)
        return await cursor.fetchone()

    async def fetch_value(self, sql: str, *values: object) -> Any:
        """Return the first column of the first row; None if there is none."""
        row = await self.fetch_row(sql, *values)
        return row[0] if row else None


def _tenant_number(root: Key) -> int:
    return int.from_bytes(bytes.fromhex(root[:16]), signed=True)


async def run_pipeline(db: DatabaseConnection, *statements: Statement) -> list[list[Row]]:
    async with db.pipeline():
        cursors = [await db.execute(statement.sql, statement.values) for statement in statements]
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


def to_columns(rows: Sequence[Sequence[object]], width: int) -> tuple[list[object], ...]:
    """Transpose rows into the arrays that `unnest` needs: `width` of them, also without rows."""
    return tuple([row[column] for row in rows] for column in range(width))


KEY_PATTERN = re.compile(r"[0-9a-f]{64}\Z")
HALF_KEY_DIGITS = 32
"""Hex digits of half a key."""


def escape_optional_name(name: str | None) -> str | None:
    return None if name is None else escape_name(name)


def node_id(key: Key) -> UUID:
    """Return the first half of a key, the id of its node."""
    return UUID(hex=key[:HALF_KEY_DIGITS])


def node_rest(key: Key) -> UUID:
    return UUID(hex=key[HALF_KEY_DIGITS:])


def is_node_key(key: str) -> bool:
    return KEY_PATTERN.match(key) is not None


def item_uuid(hashed: Hash) -> UUID:
    """Return half of an item's hash, the id of its row."""
    return UUID(hex=hashed.partition(":")[2][:HALF_KEY_DIGITS])


def json_uuid(text: str) -> UUID:
    """Return half of the hash of JSON that is stored once."""
    return UUID(bytes=sha256(text.encode()).digest()[:16])


def hash_item_id(name: str) -> int:
    """Return eight bytes of the hash of an item's id; an index contains them."""
    return int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], signed=True)


ZLIB_LEVEL = 1
"""Takes half the time of the next levels, for a twentieth more bytes."""

UNCOMPRESSED_PREFIX = b"{"


def encode_body(item: Item) -> bytes:
    """Return an item as it is stored. Raises NotCanonical."""
    text = encode_json(item).encode()
    compressed = zlib.compress(text, ZLIB_LEVEL)
    return compressed if len(compressed) < len(text) else text


def decode_body(key: str, body: bytes) -> Item:
    """Return the item that `encode_body` encoded. Raises DamagedRow.

    key:  names the item in the error
    """
    return decode_item(key, decompress_body(body))


def decompress_body(body: bytes) -> bytes:
    """Return the JSON that `encode_body` encoded; empty bytes, which are not JSON, if it cannot be decompressed."""
    if body.startswith(UNCOMPRESSED_PREFIX):
        return body
    try:
        return zlib.decompress(body)
    except zlib.error:
        return b""

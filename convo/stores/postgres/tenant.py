"""One connection with one tenant's eyes, for the length of one job.

In every statement `$1` is the tenant. Statements that do not wait for each other's answers travel
together: what costs is the way to the database and back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from psycopg import AsyncConnection

from convo.history import Key, root

Row: TypeAlias = tuple[Any, ...]
"""What a query finds: None, int, float, str, bool, bytes and UUID."""

Connection: TypeAlias = AsyncConnection[Row]


class Ask(NamedTuple):
    """A statement and its values."""

    sql: str
    values: tuple[object, ...] | None = None


BEGIN = Ask("BEGIN")
COMMIT = Ask("COMMIT")
SNAPSHOT = Ask("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")


@dataclass(frozen=True, slots=True)
class Tenant:
    """A connection, and the number that the tenant's rows begin with."""

    db: Connection
    name: str
    n: int
    root: Key

    @classmethod
    def of(cls, db: Connection, name: str) -> "Tenant":
        top = root(name)
        return cls(db, name, number_of(top), top)

    def ask(self, sql: str, *values: object) -> Ask:
        """A statement whose `$1` is the tenant."""
        return Ask(sql, (self.n, *values))

    async def together(self, *asked: Ask) -> list[list[Row]]:
        """What each statement finds; all of them make one round trip."""
        return await together(self.db, *asked)

    async def all(self, sql: str, *values: object) -> list[Row]:
        found = await self.db.execute(sql, (self.n, *values), binary=True)
        return await found.fetchall()

    async def row(self, sql: str, *values: object) -> Row | None:
        found = await self.db.execute(sql, (self.n, *values), binary=True)
        return await found.fetchone()

    async def one(self, sql: str, *values: object) -> Any:
        """The first column of the first row; None when there is none."""
        found = await self.row(sql, *values)
        return found[0] if found else None


def number_of(top: Key) -> int:
    """A tenant's number, from its root."""
    return int.from_bytes(bytes.fromhex(top[:16]), signed=True)


async def together(db: Connection, *asked: Ask) -> list[list[Row]]:
    async with db.pipeline():
        cursors = [await db.execute(one.sql, one.values) for one in asked]
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


def columns(rows: Sequence[Sequence[object]], width: int) -> tuple[list[object], ...]:
    """Rows as the columns that `unnest` takes; `width` of them, also when there is no row."""
    return tuple([row[at] for row in rows] for at in range(width))

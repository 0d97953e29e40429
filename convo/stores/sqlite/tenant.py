"""One tenant's rows, for the length of one job."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from convo.history import Key, root
from convo.stores.verbatim import encodes

Row: TypeAlias = tuple[Any, ...]
"""What a query finds; SQLite's values are None, int, float, str and bytes."""

Columns: TypeAlias = Mapping[str, object]
"""Values of a row by the names of their columns."""

Named: TypeAlias = Literal["sessions", "links", "agent_runs"]
"""Tables whose rows have an id."""

NUMBER: Mapping[Named, str] = {
    "sessions": "SELECT n FROM sessions WHERE tenant = ? AND id = ?",
    "links": "SELECT n FROM links WHERE tenant = ? AND id = ?",
    "agent_runs": "SELECT n FROM agent_runs WHERE tenant = ? AND id = ?",
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """A connection, and the number that the tenant's rows begin with; 0 before it has any.

    numbers:  what the job has found or made, by table and id, or key. They hold until it ends or deletes
    """

    db: sqlite3.Connection
    n: int
    root: Key
    numbers: dict[tuple[Literal[Named, "nodes"], str], int] = field(default_factory=dict)

    @classmethod
    def known(cls, db: sqlite3.Connection, name: str) -> "Tenant":
        """The tenant as a reader finds it."""
        found = db.execute("SELECT n FROM tenants WHERE name = ?", (name,)).fetchone()
        return cls(db, found[0] if found else 0, root(name))

    @classmethod
    def made(cls, db: sqlite3.Connection, name: str) -> "Tenant":
        """The tenant as a writer needs it, with the root of its tree."""
        there = cls.known(db, name)
        if there.n:
            return there
        number = db.execute("INSERT INTO tenants (name) VALUES (?)", (name,)).lastrowid
        assert number is not None
        db.execute("INSERT INTO nodes (tenant, key) VALUES (?, ?)", (number, blob(there.root)))
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

    def number(self, table: Named, row_id: str) -> int | None:
        """The number of the row with this id."""
        known = self.numbers.get((table, row_id))
        if known is not None:
            return known
        found: int | None = self.one(NUMBER[table], self.n, row_id)
        if found is not None:
            self.numbers[table, row_id] = found
        return found

    def insert(self, table: Named, row_id: str, columns: Columns) -> int:
        """The number of a new row."""
        row = {"tenant": self.n, "id": row_id, **columns}
        values = ", ".join("?" for _ in row)
        n = self.add(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})", *row.values())  # noqa: S608 - our names
        self.numbers[table, row_id] = n
        return n

    def update(self, table: Named, n: int, columns: Columns, before: Columns) -> None:
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


def now(db: sqlite3.Connection) -> float:
    """The database's own time, seconds since 1970. The statements of one job may see other instants: ask once."""
    return float(db.execute("SELECT (julianday('now') - 2440587.5) * 86400.0").fetchone()[0])


def blob(key: Key) -> bytes:
    """A key as it is stored; empty for what cannot be one."""
    try:
        raw = bytes.fromhex(key)
    except ValueError:
        return b""
    return raw if raw.hex() == key else b""


def asked(name: str) -> str | None:
    """A name as a query asks for it: NULL, which equals nothing, when nothing can have that name."""
    return name if encodes(name) else None

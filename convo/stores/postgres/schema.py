"""How a database comes to have convo's tables, and which version of them.

Migrations are numbered SQL files. All that are missing run in one transaction under a lock, so of
replicas that start together one runs them, and the others find them done. Whoever may not create
tables hands the same text to somebody who may.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from convo.errors import StoreTooNew
from convo.stores.postgres.faults import unmigrated
from convo.stores.postgres.tenant import Connection

SCHEMA = 3
"""The number of the last migration."""

LOCK = 0x636F6E76
"""What migrations lock: "conv" in ASCII."""

MIGRATIONS = Path(__file__).with_name("migrations")

PARTS = "SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('convo.sessions')"
"""Over how many partitions the tables are spread that are there."""

APPLIED = "SELECT coalesce(max(number), 0) FROM convo.migrations"

TABLE = re.compile(
    r"^CREATE TABLE (?P<name>\S+) \((?P<body>\n    tenant .*?\n)\)(?P<options> WITH \([^)]*\))?;", re.M | re.S
)
"""A table of tenants' rows, which can be spread; the others are the database's own."""


async def check(db: Connection, place: str) -> None:
    """Make sure that the tables are those of this convo. raises: StoreUnavailable, StoreTooNew"""
    found = await applied(db)
    if found > SCHEMA:
        raise StoreTooNew(place, found, SCHEMA)
    if found < SCHEMA:
        raise unmigrated(place)


async def applied(db: Connection) -> int:
    """The number of the last migration that ran; 0 before the first."""
    there = await (await db.execute("SELECT to_regclass('convo.migrations') IS NOT NULL")).fetchone()
    if not there or not there[0]:
        return 0
    return await _number(db, APPLIED)


async def migrate(db: Connection, place: str) -> Sequence[int]:
    """Run what is missing, whoever else tries; the numbers of what ran. raises: StoreTooNew

    New tables are spread over as many partitions as those that are there.
    """
    async with db.transaction():
        await db.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        found = await applied(db)
        if found > SCHEMA:
            raise StoreTooNew(place, found, SCHEMA)
        missing = range(found + 1, SCHEMA + 1)
        for number in missing:
            await db.execute(partitioned(script(number), await _number(db, PARTS)))
    return list(missing)


async def _number(db: Connection, sql: str) -> int:
    found = await (await db.execute(sql)).fetchone()
    return int(found[0]) if found else 0


def schema_sql(partitions: int = 0, *, above: int = 0) -> str:
    """What `migrate` would run, for whoever may create tables.

    partitions:  hash partitions of each tenant's table; 0: plain tables
    above:       the number of the last migration that ran already
    """
    numbers = range(above + 1, SCHEMA + 1)
    scripts = (partitioned(script(number), partitions) for number in numbers)
    return "BEGIN;\n\n" + "\n".join(scripts) + "\nCOMMIT;\n" if numbers else ""


def partitioned(text: str, partitions: int) -> str:
    """A migration whose tables are spread over so many hash partitions by tenant."""
    return TABLE.sub(lambda table: _spread(table, partitions), text) if partitions else text


def _spread(table: re.Match[str], partitions: int) -> str:
    name, options = table["name"], table["options"] or ""
    parts = (
        f"CREATE TABLE {name}_{part} PARTITION OF {name} FOR VALUES WITH"
        f" (MODULUS {partitions}, REMAINDER {part}){options};"
        for part in range(partitions)
    )
    return "\n".join((f"CREATE TABLE {name} ({table['body']}) PARTITION BY HASH (tenant);", *parts))


@cache
def script(number: int) -> str:
    """A migration, with the note that it ran."""
    (file,) = MIGRATIONS.glob(f"{number:04}_*.sql")
    return f"{file.read_text(encoding='utf-8')}\nINSERT INTO convo.migrations (number) VALUES ({number});\n"

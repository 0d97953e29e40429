"""What is done with the whole file, across its tenants.

For whoever has the file: what each tenant keeps, what is old, which answers a dead process left.
All of it stands beside the contract, because no conversation needs it.
"""

import sqlite3
from collections.abc import Iterator, Sequence

from convo.stores.contract import run_lease
from convo.stores.sqlite import runs
from convo.stores.sqlite.database import Database
from convo.stores.sqlite.pruning import prunable, prune
from convo.stores.sqlite.tenant import Tenant, now
from convo.stores.upkeep import Abandoned, Holdings, Observe, Pruned

ABANDONED = """
SELECT tenants.name, links.id FROM runs JOIN links ON links.n = runs.link JOIN tenants ON tenants.n = runs.tenant
WHERE ended_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM leases
    WHERE leases.tenant = runs.tenant AND leases.name = ? || links.id AND expires_at > ?)
"""

ENDED = "SELECT link FROM runs WHERE ended_at < ?"

COUNTS = {
    "sessions": "FROM sessions WHERE tenant = ? AND record IS NOT NULL",
    "responses": "FROM links WHERE tenant = ? AND saw IS NOT NULL",
    "conversations": "FROM conversations WHERE tenant = ?",
    "items": "FROM items WHERE tenant = ?",
    "places": "FROM nodes WHERE tenant = ? AND parent IS NOT NULL",
    "events": "FROM events WHERE tenant = ?",
    "runs": "FROM agent_runs WHERE tenant = ?",
}

BODIES = """
SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM (
    SELECT body FROM items WHERE tenant = :tenant
    UNION ALL SELECT body FROM repeated WHERE tenant = :tenant
    UNION ALL SELECT body FROM events WHERE tenant = :tenant
    UNION ALL SELECT body FROM agent_documents WHERE tenant = :tenant
    UNION ALL SELECT output FROM agent_calls WHERE tenant = :tenant
    UNION ALL SELECT record FROM sessions WHERE tenant = :tenant)
"""

BOUNDS = """
SELECT min(at), max(at) FROM (
    SELECT created_at AS at FROM links WHERE tenant = :tenant
    UNION ALL SELECT created_at FROM conversations WHERE tenant = :tenant)
"""

AROUND = {"sessions": 150, "responses": 120, "conversations": 80, "items": 8, "places": 45, "events": 8, "runs": 120}
"""Bytes of a row beside its body."""


class SqliteUpkeep:
    """The whole of one file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def migrate(self) -> Sequence[int]:
        return await self._database.migrate()

    async def check(self) -> None:
        await self._database.read(lambda db: db.execute("SELECT n FROM tenants LIMIT 1").fetchall())

    async def check_room(self) -> None:
        self._database.check_room()

    async def holdings(self) -> Sequence[Holdings]:
        return await self._database.read(lambda db: list(_holdings(db)))

    async def tenants(self) -> Sequence[str]:
        rows = await self._database.read(lambda db: db.execute("SELECT name FROM tenants ORDER BY name").fetchall())
        return [name for (name,) in rows]

    async def size(self) -> int | None:
        return self._database.size()

    def observe(self, observe: Observe) -> None:
        self._database.observe = observe

    async def prune(self, tenant: str, before: float, *, dry: bool) -> Pruned:
        if dry:
            return await self._database.read(lambda db: prunable(Tenant.known(db, tenant), before))
        found = [Pruned(0, 0, 0)]
        while len(found) == 1 or any(found[-1]):
            found.append(await self._database.write(lambda db: prune(Tenant.known(db, tenant), before), create=False))
        return Pruned(*map(sum, zip(*found, strict=True)))

    async def abandoned(self) -> Sequence[Abandoned]:
        return await self._database.read(_abandoned)

    async def forget_events(self, older_than_s: float) -> int:
        return await self._database.write(lambda db: _forget(db, older_than_s), create=False)

    async def secret(self, name: str, fresh: bytes) -> bytes:
        return await self._database.write(lambda db: _secret(db, name, fresh))


def _holdings(db: sqlite3.Connection) -> Iterator[Holdings]:
    for (name,) in db.execute("SELECT name FROM tenants ORDER BY name").fetchall():
        t = Tenant.known(db, name)
        rows = {kind: int(t.one(f"SELECT count(*) {rest}", t.n)) for kind, rest in COUNTS.items()}
        around = sum(many * AROUND[kind] for kind, many in rows.items())
        (said,), (oldest, newest) = (db.execute(sql, {"tenant": t.n}).fetchone() for sql in (BODIES, BOUNDS))
        if any(rows.values()):
            yield Holdings(name, rows, said + around, oldest, newest)


def _abandoned(db: sqlite3.Connection) -> list[Abandoned]:
    return [Abandoned(*row) for row in db.execute(ABANDONED, (run_lease(""), now(db))).fetchall()]


def _forget(db: sqlite3.Connection, older_than_s: float) -> int:
    before = now(db) - older_than_s
    old = db.execute(ENDED, (before,)).fetchall()
    for (response,) in old:
        runs.drop(db, response)
    db.execute("DELETE FROM leases WHERE expires_at < ?", (before,))
    return len(old)


def _secret(db: sqlite3.Connection, name: str, fresh: bytes) -> bytes:
    db.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)", (name, fresh))
    found: bytes = db.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()[0]
    return found

"""`StoreAdmin` over one SQLite file: statistics, pruning, abandoned runs, secrets."""

import sqlite3
from collections.abc import Iterator, Sequence

from convo.runtime import report_progress
from convo.stores.base import (
    AbandonedRun,
    DamagedRowObserver,
    PruneResult,
    TenantStats,
    TransactionObserver,
    check_not_recently_full,
    run_lease_name,
)
from convo.stores.sqlite import files, runs
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.gc import count_prunable, prune_batch
from convo.stores.sqlite.tenant_rows import TenantConnection, database_time_s

SELECT_ABANDONED_RUNS = """
SELECT tenants.name, links.id FROM runs JOIN links ON links.n = runs.link JOIN tenants ON tenants.n = runs.tenant
WHERE ended_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM leases
    WHERE leases.tenant = runs.tenant AND leases.name = ? || links.id AND expires_at > ?)
"""

SELECT_ENDED_RUNS = "SELECT link FROM runs WHERE ended_at < ?"

COUNT_CLAUSES = {
    "sessions": "FROM sessions WHERE tenant = ? AND record IS NOT NULL",
    "responses": "FROM links WHERE tenant = ? AND saw IS NOT NULL",
    "conversations": "FROM conversations WHERE tenant = ?",
    "items": "FROM items WHERE tenant = ?",
    "places": "FROM nodes WHERE tenant = ? AND parent IS NOT NULL",
    "events": "FROM events WHERE tenant = ?",
    "runs": "FROM agent_runs WHERE tenant = ?",
    "files": "FROM files WHERE tenant = ?",
}

SUM_BODY_BYTES = """
SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM (
    SELECT body FROM items WHERE tenant = :tenant
    UNION ALL SELECT body FROM repeated WHERE tenant = :tenant
    UNION ALL SELECT body FROM events WHERE tenant = :tenant
    UNION ALL SELECT body FROM agent_documents WHERE tenant = :tenant
    UNION ALL SELECT output FROM agent_calls WHERE tenant = :tenant
    UNION ALL SELECT record FROM sessions WHERE tenant = :tenant
    UNION ALL SELECT content FROM file_contents WHERE tenant = :tenant
    UNION ALL SELECT body FROM approval_decisions WHERE tenant = :tenant)
"""

SELECT_TIME_RANGE = """
SELECT min(at), max(at) FROM (
    SELECT created_at AS at FROM links WHERE tenant = :tenant
    UNION ALL SELECT created_at FROM conversations WHERE tenant = :tenant)
"""

ROW_OVERHEAD_BYTES = {
    "sessions": 150,
    "responses": 120,
    "conversations": 80,
    "items": 8,
    "places": 45,
    "events": 8,
    "runs": 120,
    "files": 160,
}
"""Estimated bytes of a row besides its body."""


class SqliteAdmin:
    """`StoreAdmin` over one SQLite file."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    messages = None

    async def migrate(self) -> Sequence[int]:
        from convo.stores.sqlite.request_list import complete_links  # most commands list no requests

        ran = await self._database.migrate()
        for tenant in await self.tenant_names():
            await complete_links(self._database, tenant)
        return ran

    async def check_ready(self) -> None:
        check_not_recently_full(self._database.full_at_s)
        self._database.check_disk_space()
        await self._database.read(lambda db: db.execute("SELECT n FROM tenants LIMIT 1").fetchall())

    async def check_disk_space(self) -> None:
        self._database.check_disk_space()

    async def tenant_stats(self) -> Sequence[TenantStats]:
        return await self._database.read(lambda db: list(_select_tenant_stats(db)))

    async def tenant_names(self) -> Sequence[str]:
        rows = await self._database.read(lambda db: db.execute("SELECT name FROM tenants ORDER BY name").fetchall())
        return [name for (name,) in rows]

    async def size_bytes(self) -> int | None:
        return self._database.size_bytes()

    def set_transaction_observer(self, observer: TransactionObserver) -> None:
        self._database.observer = observer

    def set_damaged_row_observer(self, observer: DamagedRowObserver) -> None:
        self._database.damaged_row_observer = observer

    async def prune(self, tenant: str, cutoff: float, *, dry_run: bool) -> PruneResult:
        if dry_run:
            return await self._database.read(lambda db: count_prunable(TenantConnection.find(db, tenant), cutoff))
        results = [PruneResult(0, 0, 0)]
        while len(results) == 1 or any(results[-1]):
            results.append(
                await self._database.write(
                    lambda db: prune_batch(TenantConnection.find(db, tenant), cutoff), create=False
                )
            )
            report_progress("records", sum(map(sum, results)))
        return PruneResult(*map(sum, zip(*results, strict=True)))

    async def abandoned_runs(self) -> Sequence[AbandonedRun]:
        return await self._database.read(_select_abandoned_runs)

    async def prune_events(self, older_than_s: float) -> int:
        return await self._database.write(lambda db: _prune_events(db, older_than_s), create=False)

    async def prune_files(self, now: float) -> int:
        return await self._database.write(lambda db: files.delete_expired_files(db, now), create=False)

    async def get_or_create_secret(self, name: str, new_secret: bytes) -> bytes:
        return await self._database.write(lambda db: _get_or_create_secret(db, name, new_secret))


def _select_tenant_stats(db: sqlite3.Connection) -> Iterator[TenantStats]:
    for (name,) in db.execute("SELECT name FROM tenants ORDER BY name").fetchall():
        t = TenantConnection.find(db, name)
        row_counts = {
            kind: int(t.fetch_value(f"SELECT count(*) {clause}", t.tenant_number))
            for kind, clause in COUNT_CLAUSES.items()
        }
        overhead_bytes = sum(count * ROW_OVERHEAD_BYTES[kind] for kind, count in row_counts.items())
        (body_bytes,), (oldest, newest) = (
            db.execute(sql, {"tenant": t.tenant_number}).fetchone() for sql in (SUM_BODY_BYTES, SELECT_TIME_RANGE)
        )
        if any(row_counts.values()):
            yield TenantStats(name, row_counts, body_bytes + overhead_bytes, oldest, newest)


def _select_abandoned_runs(db: sqlite3.Connection) -> list[AbandonedRun]:
    return [
        AbandonedRun(*row)
        for row in db.execute(SELECT_ABANDONED_RUNS, (run_lease_name(""), database_time_s(db))).fetchall()
    ]


def _prune_events(db: sqlite3.Connection, older_than_s: float) -> int:
    cutoff = database_time_s(db) - older_than_s
    ended_runs = db.execute(SELECT_ENDED_RUNS, (cutoff,)).fetchall()
    for (response,) in ended_runs:
        runs.delete_response_run(db, response)
    db.execute("DELETE FROM leases WHERE expires_at < ?", (cutoff,))
    return len(ended_runs)


def _get_or_create_secret(db: sqlite3.Connection, name: str, new_secret: bytes) -> bytes:
    db.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)", (name, new_secret))
    secret: bytes = db.execute("SELECT value FROM secrets WHERE name = ?", (name,)).fetchone()[0]
    return secret

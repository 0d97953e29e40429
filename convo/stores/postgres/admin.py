"""`StoreAdmin` over one PostgreSQL database: migrations, statistics, pruning, secrets."""

from collections.abc import AsyncGenerator, Sequence

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
from convo.stores.postgres import connection, files, gc, tenant_rows
from convo.stores.postgres.connection import PostgresDatabase
from convo.stores.postgres.request_list import complete_links
from convo.stores.postgres.runs import DATABASE_TIME_SQL
from convo.stores.postgres.tenant_rows import Row, Statement, TenantConnection, run_pipeline

ROW_OVERHEAD_BYTES = 100
"""Estimated bytes of a row besides its body."""

SELECT_TENANT_STATS = """
SELECT name,
    (SELECT count(*) FROM convo.sessions WHERE sessions.tenant = tenants.tenant),
    (SELECT count(*) FROM convo.links WHERE links.tenant = tenants.tenant),
    (SELECT count(*) FROM convo.conversations WHERE conversations.tenant = tenants.tenant),
    (SELECT count(*) FROM convo.items WHERE items.tenant = tenants.tenant),
    (SELECT count(*) FROM convo.nodes WHERE nodes.tenant = tenants.tenant AND depth > 0),
    (SELECT coalesce(sum(many), 0) FROM convo.events WHERE events.tenant = tenants.tenant)::bigint,
    (SELECT count(*) FROM convo.agent_runs WHERE agent_runs.tenant = tenants.tenant),
    (SELECT count(*) FROM convo.files WHERE files.tenant = tenants.tenant),
    ((SELECT coalesce(sum(octet_length(body)), 0) FROM convo.items WHERE items.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(body)), 0) FROM convo.repeated WHERE repeated.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(body)), 0) FROM convo.events WHERE events.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(document)), 0) FROM convo.agent_runs WHERE agent_runs.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(output)), 0) FROM convo.agent_calls
        WHERE agent_calls.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(content)), 0) FROM convo.file_contents
        WHERE file_contents.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(body)), 0) FROM convo.approval_decisions
        WHERE approval_decisions.tenant = tenants.tenant))::bigint,
    (SELECT least((SELECT min(created_at) FROM convo.links WHERE links.tenant = tenants.tenant),
        (SELECT min(created_at) FROM convo.conversations WHERE conversations.tenant = tenants.tenant))),
    (SELECT greatest((SELECT max(created_at) FROM convo.links WHERE links.tenant = tenants.tenant),
        (SELECT max(created_at) FROM convo.conversations WHERE conversations.tenant = tenants.tenant)))
FROM convo.tenants ORDER BY name
"""

SELECT_TENANT_NAMES = "SELECT name FROM convo.tenants ORDER BY name"

SELECT_SIZE_BYTES = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = 'convo'::regnamespace AND relkind = 'r'
"""
"""The server reads the sizes of tables and indexes from its file system; no row is read."""

ROW_KINDS = ("sessions", "responses", "conversations", "items", "places", "events", "runs", "files")

SELECT_ABANDONED_RUNS = f"""
SELECT name, id FROM convo.runs JOIN convo.tenants ON tenants.tenant = runs.tenant
WHERE ended_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM convo.leases
    WHERE leases.tenant = runs.tenant AND leases.name = $1 || runs.id AND expires_at > {DATABASE_TIME_SQL})
ORDER BY name, id
"""

DELETE_ENDED_RUNS = f"""
WITH old AS (
    SELECT tenant, id FROM convo.runs WHERE ended_at < {DATABASE_TIME_SQL} - $1::double precision
    ORDER BY tenant, id FOR UPDATE
), emptied AS (
    DELETE FROM convo.events USING old WHERE events.tenant = old.tenant AND run = old.id
)
DELETE FROM convo.runs USING old WHERE runs.tenant = old.tenant AND runs.id = old.id RETURNING 1
"""

DELETE_EXPIRED_LEASES = f"DELETE FROM convo.leases WHERE expires_at < {DATABASE_TIME_SQL} - $1::double precision"

INSERT_SECRET = "INSERT INTO convo.secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING"  # noqa: S105
SELECT_SECRET = "SELECT value FROM convo.secrets WHERE name = $1"  # noqa: S105


MESSAGE_CHANNEL = "convo_requests"
"""The channel of NOTIFY; through a pooler that shares connections between transactions nothing is received."""


class PostgresMessages:
    """`MessageChannel` by NOTIFY."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def send(self, message: str) -> None:
        statement = Statement("SELECT pg_notify($1, $2)", (MESSAGE_CHANNEL, message))
        await self._database.run(lambda db: run_pipeline(db, statement))

    async def receive(self) -> AsyncGenerator[str, None]:
        async with self._database.direct_connection() as db:
            await db.execute(f"LISTEN {MESSAGE_CHANNEL}")
            async for message in db.notifies():
                yield message.payload


class PostgresAdmin:
    """`StoreAdmin` over one PostgreSQL database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    @property
    def messages(self) -> PostgresMessages:
        return PostgresMessages(self._database)

    async def migrate(self) -> Sequence[int]:
        async with self._database.direct_connection() as db:
            ran = await connection.migrate_schema(db, self._database.location)
        for tenant in await self.tenant_names():
            await complete_links(self._database, tenant)
        return ran

    async def check_ready(self) -> None:
        check_not_recently_full(self._database.full_at_s)
        await self._database.run(lambda db: connection.check_schema_version(db, self._database.location))

    async def check_disk_space(self) -> None:
        """Do nothing: the client cannot see the server's disk; a full disk is an error of the write."""

    async def tenant_stats(self) -> Sequence[TenantStats]:
        rows = (
            await self._database.run(lambda db: run_pipeline(db, Statement(SELECT_TENANT_STATS)), no_time_limit=True)
        )[0]
        return [_tenant_stats_from_row(*row) for row in rows if any(row[1 : 1 + len(ROW_KINDS)])]

    async def tenant_names(self) -> Sequence[str]:
        rows = (await self._run_statements(Statement(SELECT_TENANT_NAMES)))[0]
        return [tenant_rows.unescape_name(name) for (name,) in rows]

    async def size_bytes(self) -> int | None:
        rows = (await self._run_statements(Statement(SELECT_SIZE_BYTES)))[0]
        return int(rows[0][0])

    def set_transaction_observer(self, observer: TransactionObserver) -> None:
        self._database.observer = observer

    def set_damaged_row_observer(self, observer: DamagedRowObserver) -> None:
        self._database.damaged_row_observer = observer

    async def prune(self, tenant: str, cutoff: float, *, dry_run: bool) -> PruneResult:
        if dry_run:
            return await self._database.run(
                lambda db: gc.count_prunable(TenantConnection.from_name(db, tenant), cutoff), no_time_limit=True
            )
        sessions, responses, conversations = [
            await self._prune_kind(tenant, choose, cutoff)
            for choose in (gc.find_old_sessions, gc.find_old_links, gc.find_old_conversations)
        ]
        file_count = await self._database.run(
            lambda db: files.delete_old_files(TenantConnection.from_name(db, tenant), cutoff), no_time_limit=True
        )
        return PruneResult(sessions, responses, conversations, file_count)

    async def _prune_kind(self, tenant: str, find_old_rows: gc.OldRowFinder, before: float) -> int:
        total = 0
        while count := await self._database.run(
            lambda db: gc.prune_batch(TenantConnection.from_name(db, tenant), find_old_rows, before), no_time_limit=True
        ):
            total += count
            report_progress("records", total)
        return total

    async def abandoned_runs(self) -> Sequence[AbandonedRun]:
        rows = (await self._run_statements(Statement(SELECT_ABANDONED_RUNS, (run_lease_name(""),))))[0]
        return [
            AbandonedRun(tenant_rows.unescape_name(tenant), tenant_rows.unescape_name(response))
            for tenant, response in rows
        ]

    async def prune_events(self, older_than_s: float) -> int:
        deleted_runs, _ = await self._run_statements(
            Statement(DELETE_ENDED_RUNS, (older_than_s,)), Statement(DELETE_EXPIRED_LEASES, (older_than_s,))
        )
        return len(deleted_runs)

    async def prune_files(self, now: float) -> int:
        return await self._database.run(lambda db: files.delete_expired_files(db, now))

    async def get_or_create_secret(self, name: str, new_secret: bytes) -> bytes:
        escaped_name = tenant_rows.escape_name(name)
        _, rows = await self._run_statements(
            Statement(INSERT_SECRET, (escaped_name, new_secret)), Statement(SELECT_SECRET, (escaped_name,))
        )
        return bytes(rows[0][0])

    async def _run_statements(self, *statements: Statement) -> list[list[Row]]:
        return await self._database.run(lambda db: run_pipeline(db, *statements))


def _tenant_stats_from_row(name: str, *figures: float) -> TenantStats:
    *counts, body_bytes, oldest, newest = figures
    row_counts = dict(zip(ROW_KINDS, map(int, counts), strict=True))
    return TenantStats(
        tenant_rows.unescape_name(name),
        row_counts,
        int(body_bytes) + ROW_OVERHEAD_BYTES * sum(row_counts.values()),
        oldest,
        newest,
    )

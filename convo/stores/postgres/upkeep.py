"""What is done across tenants.

For whoever runs the database: what each tenant keeps, what is old, which answers a dead replica
left. To look is one statement; to remove goes in pieces, so that others can write meanwhile.
"""

from collections.abc import Sequence
from functools import partial

from convo.stores.contract import run_lease
from convo.stores.postgres import names, pruning, schema
from convo.stores.postgres.database import Database
from convo.stores.postgres.runs import NOW
from convo.stores.postgres.tenant import Ask, Connection, Row, Tenant, together
from convo.stores.upkeep import Abandoned, Holdings, Observe, Pruned

AROUND = 100
"""Bytes that a row is taken to need around what it holds."""

HOLDINGS = """
SELECT name,
    (SELECT count(*) FROM convo.sessions WHERE sessions.tenant = tenants.tenant),
    (SELECT count(*) FROM convo.links WHERE links.tenant = tenants.tenant),
    (SELECT count(*) FROM convo.conversations WHERE conversations.tenant = tenants.tenant),
    (SELECT count(*) FROM convo.items WHERE items.tenant = tenants.tenant),
    (SELECT count(*) FROM convo.nodes WHERE nodes.tenant = tenants.tenant AND depth > 0),
    (SELECT coalesce(sum(many), 0) FROM convo.events WHERE events.tenant = tenants.tenant)::bigint,
    (SELECT count(*) FROM convo.agent_runs WHERE agent_runs.tenant = tenants.tenant),
    ((SELECT coalesce(sum(octet_length(body)), 0) FROM convo.items WHERE items.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(body)), 0) FROM convo.repeated WHERE repeated.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(body)), 0) FROM convo.events WHERE events.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(document)), 0) FROM convo.agent_runs WHERE agent_runs.tenant = tenants.tenant)
    + (SELECT coalesce(sum(octet_length(output)), 0) FROM convo.agent_calls
        WHERE agent_calls.tenant = tenants.tenant))::bigint,
    (SELECT least((SELECT min(created_at) FROM convo.links WHERE links.tenant = tenants.tenant),
        (SELECT min(created_at) FROM convo.conversations WHERE conversations.tenant = tenants.tenant))),
    (SELECT greatest((SELECT max(created_at) FROM convo.links WHERE links.tenant = tenants.tenant),
        (SELECT max(created_at) FROM convo.conversations WHERE conversations.tenant = tenants.tenant)))
FROM convo.tenants ORDER BY name
"""

TENANTS = "SELECT name FROM convo.tenants ORDER BY name"

SIZE = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = 'convo'::regnamespace AND relkind = 'r'
"""
"""The server asks its file system for the sizes of the tables and their indexes; no row is read."""

KINDS = ("sessions", "responses", "conversations", "items", "places", "events", "runs")

ABANDONED = f"""
SELECT name, id FROM convo.runs JOIN convo.tenants ON tenants.tenant = runs.tenant
WHERE ended_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM convo.leases WHERE leases.tenant = runs.tenant AND leases.name = $1 || runs.id AND expires_at > {NOW})
ORDER BY name, id
"""

FORGET = f"""
WITH old AS (
    SELECT tenant, id FROM convo.runs WHERE ended_at < {NOW} - $1::double precision ORDER BY tenant, id FOR UPDATE
), emptied AS (
    DELETE FROM convo.events USING old WHERE events.tenant = old.tenant AND run = old.id
)
DELETE FROM convo.runs USING old WHERE runs.tenant = old.tenant AND runs.id = old.id RETURNING 1
"""

FORGET_LEASES = f"DELETE FROM convo.leases WHERE expires_at < {NOW} - $1::double precision"

KEEP_SECRET = "INSERT INTO convo.secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING"  # noqa: S105
SECRET = "SELECT value FROM convo.secrets WHERE name = $1"  # noqa: S105


class PostgresUpkeep:
    """The database behind a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def migrate(self) -> Sequence[int]:
        async with self._database.alone() as db:
            return await schema.migrate(db, self._database.place)

    async def check(self) -> None:
        await self._database.run(lambda db: schema.check(db, self._database.place))

    async def check_room(self) -> None:
        """The server's disk is not seen from here; it says itself when it is full."""

    async def holdings(self) -> Sequence[Holdings]:
        rows = (await self._database.run(lambda db: together(db, Ask(HOLDINGS)), however_long=True))[0]
        return [_holdings(*row) for row in rows if any(row[1 : 1 + len(KINDS)])]

    async def tenants(self) -> Sequence[str]:
        rows = (await self._ask(Ask(TENANTS)))[0]
        return [names.read(name) for (name,) in rows]

    async def size(self) -> int | None:
        rows = (await self._ask(Ask(SIZE)))[0]
        return int(rows[0][0])

    def observe(self, observe: Observe) -> None:
        self._database.observe = observe

    async def prune(self, tenant: str, before: float, *, dry: bool) -> Pruned:
        if dry:
            return await self._database.run(lambda db: pruning.count(Tenant.of(db, tenant), before), however_long=True)
        conversations, sessions, responses = [
            await self._take(tenant, choose, before)
            for choose in (pruning.conversations, pruning.sessions, pruning.links)
        ]
        return Pruned(sessions, responses, conversations)

    async def _take(self, tenant: str, choose: pruning.Choice, before: float) -> int:
        taken = 0
        while some := await self._database.run(partial(_piece, tenant, choose, before), however_long=True):
            taken += some
        return taken

    async def abandoned(self) -> Sequence[Abandoned]:
        rows = (await self._ask(Ask(ABANDONED, (run_lease(""),))))[0]
        return [Abandoned(names.read(tenant), names.read(response)) for tenant, response in rows]

    async def forget_events(self, older_than_s: float) -> int:
        forgotten, _ = await self._ask(Ask(FORGET, (older_than_s,)), Ask(FORGET_LEASES, (older_than_s,)))
        return len(forgotten)

    async def secret(self, name: str, fresh: bytes) -> bytes:
        column = names.written(name)
        _, kept = await self._ask(Ask(KEEP_SECRET, (column, fresh)), Ask(SECRET, (column,)))
        return bytes(kept[0][0])

    async def _ask(self, *asked: Ask) -> list[list[Row]]:
        return await self._database.run(lambda db: together(db, *asked))


async def _piece(tenant: str, choose: pruning.Choice, before: float, db: Connection) -> int:
    return await pruning.take_piece(Tenant.of(db, tenant), choose, before)


def _holdings(name: str, *figures: float) -> Holdings:
    *counts, held, oldest, newest = figures
    rows = dict(zip(KINDS, map(int, counts), strict=True))
    return Holdings(names.read(name), rows, int(held) + AROUND * sum(rows.values()), oldest, newest)

"""Leases, which expire by the clock of the database."""

from convo.errors import Busy
from convo.stores.base import Lease, check_stored_name
from convo.stores.postgres import tenant_rows
from convo.stores.postgres.runs import DATABASE_TIME_SQL
from convo.stores.postgres.tenant_rows import TenantConnection

UPSERT_LEASE = f"""
INSERT INTO convo.leases (tenant, name, holder, expires_at)
VALUES ($1, $2, $3, {DATABASE_TIME_SQL} + $4::double precision)
ON CONFLICT (tenant, name) DO UPDATE SET (holder, expires_at) = (excluded.holder, excluded.expires_at)
    WHERE leases.expires_at <= {DATABASE_TIME_SQL} OR leases.holder = $3 OR leases.holder = $5
RETURNING expires_at
"""

SELECT_LEASE = "SELECT holder FROM convo.leases WHERE tenant = $1 AND name = $2"

SELECT_LIVE_LEASE = f"{SELECT_LEASE} AND expires_at > {DATABASE_TIME_SQL}"


async def acquire_lease(t: TenantConnection, name: str, holder: str, ttl_s: float, dead_holder: str | None) -> Lease:
    """Acquire or renew a lease. Raises Busy and NotCanonical."""
    check_stored_name(name)
    check_stored_name(holder)
    values = (
        tenant_rows.escape_name(name),
        tenant_rows.escape_name(holder),
        ttl_s,
        tenant_rows.escape_optional_name(dead_holder),
    )
    while (expires_at := await t.fetch_value(UPSERT_LEASE, *values)) is None:
        stored_holder = await t.fetch_value(SELECT_LEASE, tenant_rows.escape_name(name))
        if stored_holder is not None:
            raise Busy(name, tenant_rows.unescape_name(stored_holder))
    return Lease(name, holder, expires_at)


async def release_lease(t: TenantConnection, lease: Lease) -> None:
    delete_lease = "DELETE FROM convo.leases WHERE tenant = $1 AND name = $2 AND holder = $3"
    await t.run_pipeline(
        t.statement(delete_lease, tenant_rows.escape_name(lease.name), tenant_rows.escape_name(lease.holder))
    )


async def select_held_leases(t: TenantConnection) -> list[str]:
    rows = await t.fetch_all(f"SELECT name FROM convo.leases WHERE tenant = $1 AND expires_at > {DATABASE_TIME_SQL}")
    return [tenant_rows.unescape_name(name) for (name,) in rows]


async def select_lease_holder(t: TenantConnection, name: str) -> str | None:
    """Return the holder of a lease that has not expired."""
    stored_holder = await t.fetch_value(SELECT_LIVE_LEASE, tenant_rows.escape_name(name))
    return None if stored_holder is None else tenant_rows.unescape_name(stored_holder)

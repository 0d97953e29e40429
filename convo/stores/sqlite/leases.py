"""Leases, which expire by the clock of the machine that holds the file."""

from convo.errors import Busy
from convo.stores.base import Lease, check_stored_name
from convo.stores.sqlite.tenant_rows import TenantConnection, database_time_s, to_query_name


def acquire_lease(t: TenantConnection, name: str, holder: str, ttl_s: float, dead_holder: str | None) -> Lease:
    """Acquire or renew a lease. Raises Busy and NotCanonical."""
    check_stored_name(name)
    check_stored_name(holder)
    now = database_time_s(t.db)
    row = t.fetch_row("SELECT holder, expires_at FROM leases WHERE tenant = ? AND name = ?", t.tenant_number, name)
    if row and row[1] > now and row[0] not in (holder, dead_holder):
        raise Busy(name, row[0])
    t.execute(
        "INSERT INTO leases (tenant, name, holder, expires_at) VALUES (?, ?, ?, ?) ON CONFLICT (tenant, name)"
        " DO UPDATE SET (holder, expires_at) = (excluded.holder, excluded.expires_at)",
        *(t.tenant_number, name, holder, now + ttl_s),
    )
    return Lease(name, holder, now + ttl_s)


def release_lease(t: TenantConnection, lease: Lease) -> None:
    t.execute(
        "DELETE FROM leases WHERE tenant = ? AND name = ? AND holder = ?",
        t.tenant_number,
        to_query_name(lease.name),
        to_query_name(lease.holder),
    )


def select_held_leases(t: TenantConnection) -> list[str]:
    sql = "SELECT name FROM leases WHERE tenant = ? AND expires_at > ?"
    return [name for (name,) in t.fetch_records(sql, t.tenant_number, database_time_s(t.db))]


def select_lease_holder(t: TenantConnection, name: str) -> str | None:
    """Return the holder of a lease that has not expired."""
    row = t.fetch_row(
        "SELECT holder FROM leases WHERE tenant = ? AND name = ? AND expires_at > ?",
        t.tenant_number,
        to_query_name(name),
        database_time_s(t.db),
    )
    return str(row[0]) if row else None

"""The right to write, by the clock of the machine that holds the file."""

from convo.errors import Busy
from convo.stores import rules
from convo.stores.contract import Lease
from convo.stores.sqlite.tenant import Tenant, asked, now


def take(t: Tenant, name: str, holder: str, ttl_s: float, instead_of: str | None) -> Lease:
    """Take or renew a lease. raises: Busy, NotCanonical"""
    rules.check_name(name)
    rules.check_name(holder)
    moment = now(t.db)
    there = t.row("SELECT holder, expires_at FROM leases WHERE tenant = ? AND name = ?", t.n, name)
    if there and there[1] > moment and there[0] not in (holder, instead_of):
        raise Busy(name, there[0])
    t.run(
        "INSERT INTO leases (tenant, name, holder, expires_at) VALUES (?, ?, ?, ?) ON CONFLICT (tenant, name)"
        " DO UPDATE SET (holder, expires_at) = (excluded.holder, excluded.expires_at)",
        *(t.n, name, holder, moment + ttl_s),
    )
    return Lease(name, holder, moment + ttl_s)


def release(t: Tenant, lease: Lease) -> None:
    t.run(
        "DELETE FROM leases WHERE tenant = ? AND name = ? AND holder = ?", t.n, asked(lease.name), asked(lease.holder)
    )


def holder(t: Tenant, name: str) -> str | None:
    """Who has a lease that has not run out."""
    there = t.row(
        "SELECT holder FROM leases WHERE tenant = ? AND name = ? AND expires_at > ?", t.n, asked(name), now(t.db)
    )
    return str(there[0]) if there else None

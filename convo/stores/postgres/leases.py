"""The right to write, by the database's own clock."""

from convo.errors import Busy
from convo.stores import rules
from convo.stores.contract import Lease
from convo.stores.postgres import names
from convo.stores.postgres.runs import NOW
from convo.stores.postgres.tenant import Tenant

TAKE = f"""
INSERT INTO convo.leases (tenant, name, holder, expires_at) VALUES ($1, $2, $3, {NOW} + $4::double precision)
ON CONFLICT (tenant, name) DO UPDATE SET (holder, expires_at) = (excluded.holder, excluded.expires_at)
    WHERE leases.expires_at <= {NOW} OR leases.holder = $3 OR leases.holder = $5
RETURNING expires_at
"""

HOLDER = "SELECT holder FROM convo.leases WHERE tenant = $1 AND name = $2"

HOLDER_NOW = f"{HOLDER} AND expires_at > {NOW}"


async def take(t: Tenant, name: str, holder: str, ttl_s: float, instead_of: str | None) -> Lease:
    """Take or renew a lease. raises: Busy, NotCanonical"""
    rules.check_name(name)
    rules.check_name(holder)
    asked = names.written(name), names.written(holder), ttl_s, names.maybe(instead_of)
    while (until := await t.one(TAKE, *asked)) is None:
        there = await t.one(HOLDER, names.written(name))
        if there is not None:
            raise Busy(name, names.read(there))
    return Lease(name, holder, until)


async def release(t: Tenant, lease: Lease) -> None:
    released = "DELETE FROM convo.leases WHERE tenant = $1 AND name = $2 AND holder = $3"
    await t.together(t.ask(released, names.written(lease.name), names.written(lease.holder)))


async def holder(t: Tenant, name: str) -> str | None:
    """Who has a lease that has not run out."""
    there = await t.one(HOLDER_NOW, names.written(name))
    return None if there is None else names.read(there)

"""What is done across tenants, where nothing outlives the process."""

from collections.abc import Callable, Mapping, Sequence

from convo.stores.contract import run_lease
from convo.stores.memory.pruning import prune
from convo.stores.memory.tenant import Tenant
from convo.stores.upkeep import Abandoned, Holdings, Observe, Pruned
from convo.stores.verbatim import dumps

AROUND = 100
"""Bytes that a record is taken to need around what it holds."""


class MemoryUpkeep:
    """The tenants of one `MemoryStore`, by its clock."""

    def __init__(self, tenants: Mapping[str, Tenant], secrets: dict[str, bytes], now: Callable[[], float]) -> None:
        self._tenants, self._secrets, self._now = tenants, secrets, now

    async def migrate(self) -> Sequence[int]:
        return []

    async def check(self) -> None:
        """There is nothing that could be away."""

    async def check_room(self) -> None:
        """Memory has no disk."""

    async def holdings(self) -> Sequence[Holdings]:
        found = [_holdings(name, tenant) for name, tenant in sorted(self._tenants.items())]
        return [one for one in found if any(one.rows.values())]

    async def tenants(self) -> Sequence[str]:
        return sorted(self._tenants)

    async def size(self) -> int | None:
        return None

    def observe(self, observe: Observe) -> None:
        """Nothing here takes time that could be measured."""

    async def prune(self, tenant: str, before: float, *, dry: bool) -> Pruned:
        return prune(self._tenants[tenant], before, dry=dry) if tenant in self._tenants else Pruned(0, 0, 0)

    async def abandoned(self) -> Sequence[Abandoned]:
        return [
            Abandoned(name, response)
            for name, tenant in sorted(self._tenants.items())
            for response in tenant.runs.open()
            if not self._alive(tenant, response)
        ]

    def _alive(self, tenant: Tenant, response: str) -> bool:
        lease = tenant.leases.get(run_lease(response))
        return lease is not None and lease.expires_at > self._now()

    async def forget_events(self, older_than_s: float) -> int:
        before, forgotten = self._now() - older_than_s, 0
        for tenant in self._tenants.values():
            forgotten += tenant.runs.forget(before)
            tenant.leases = {name: lease for name, lease in tenant.leases.items() if lease.expires_at >= before}
        return forgotten

    async def secret(self, name: str, fresh: bytes) -> bytes:
        return self._secrets.setdefault(name, fresh)


def _holdings(name: str, tenant: Tenant) -> Holdings:
    texts = tenant.runs.texts()
    runs = list(tenant.agents.texts())
    made = [link.created_at for link in tenant.links.values()]
    made += [conversation.created_at for conversation in tenant.conversations.values()]
    rows = {
        "sessions": len(tenant.sessions),
        "responses": len(tenant.links),
        "conversations": len(tenant.conversations),
        "items": len(tenant.tree.bodies),
        "places": len(tenant.tree.places) - 1,
        "events": len(texts),
        "runs": len(tenant.agents.runs),
    }
    said = [body.text for body in tenant.tree.bodies.values()] + texts + runs
    said += [dumps(link.parameters) for link in tenant.links.values()]
    size = sum(len(text.encode()) for text in said) + AROUND * sum(rows.values())
    return Holdings(name, rows, size, min(made, default=None), max(made, default=None))

"""A lease that renews itself until it is released.

Leases expire on the store's clock. The lease of a process that died on this machine is taken over at once,
without waiting for it to expire.
"""

import asyncio
from contextlib import suppress

from convo.errors import Busy, StoreFault
from convo.runtime import is_process_dead
from convo.stores.base import Lease, Store


class LeaseGuard:
    """A lease that renews itself until it is released."""

    def __init__(self, store: Store, lease: Lease, ttl_s: float) -> None:
        self._store, self._lease, self._ttl_s = store, lease, ttl_s
        self._renewal_task = asyncio.create_task(self._renew())

    @classmethod
    async def acquire(cls, store: Store, name: str, holder: str, ttl_s: float) -> "LeaseGuard":
        """Acquire the right to write under `name`, `ttl_s` seconds at a time.

        holder:  a name from `convo.runtime`; holders of one process differ in the suffix

        Raises Busy if a running process holds it, or one that may be running on another machine.
        """
        try:
            lease = await store.acquire_lease(name, holder, ttl_s)
        except Busy as busy:
            if not is_process_dead(busy.process):
                raise
            # The store takes it over only from this holder: another process may have been faster.
            lease = await store.acquire_lease(name, holder, ttl_s, dead_holder=busy.process)
        return cls(store, lease, ttl_s)

    async def release(self) -> None:
        """Release the lease. If the store cannot be reached, it expires."""
        self._renewal_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._renewal_task
        with suppress(StoreFault):
            await self._store.release_lease(self._lease)

    async def _renew(self) -> None:
        while True:
            # Two renewals may fail before the lease expires.
            await asyncio.sleep(self._ttl_s / 3)
            # The next renewal tries again.
            with suppress(Busy, StoreFault):
                self._lease = await self._store.acquire_lease(self._lease.name, self._lease.holder, self._ttl_s)

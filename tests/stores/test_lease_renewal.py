"""A lease is renewed automatically, and taken over when the process of its holder is dead."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from convo.errors import Busy, StoreUnavailable
from convo.runtime import process_identity
from convo.stores.base import Lease, Store
from convo.stores.lease import LeaseGuard
from convo.stores.memory import MemoryStore

ALIVE = process_identity()
SHORT_S = 0.03
"""Seconds to live of a lease, so few that it is renewed at once."""


def dead_process(suffix: str = "") -> str:
    """Return the id of a dead process on this machine as a holder, with this suffix."""
    machine = ALIVE.partition(":")[0]
    return f"{machine}:4194305:1" + (f":{suffix}" if suffix else "")


class CountingStore:
    """Delegates to `store`. Renewals raise `failures` first, and the lease request number `count` sets `reached`."""

    def __init__(self, store: Store, count: int, failures: list[Exception] | None = None) -> None:
        self.store, self.count, self.failures = store, count, failures or []
        self.requests, self.reached = 0, asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def acquire_lease(self, name: str, holder: str, ttl_s: float, *, dead_holder: str | None = None) -> Lease:
        self.requests += 1
        if self.requests == self.count:
            self.reached.set()
        if self.requests > 1 and self.failures:
            raise self.failures.pop()
        return await self.store.acquire_lease(name, holder, ttl_s, dead_holder=dead_holder)


@pytest.fixture
async def held_lease(store: Store) -> AsyncIterator[LeaseGuard]:
    guard = await LeaseGuard.acquire(store, "chat", f"{ALIVE}:me", 60)
    yield guard
    await guard.release()


async def test_a_living_holder_keeps_the_lease_until_it_releases_it(store: Store, held_lease: LeaseGuard) -> None:
    with pytest.raises(Busy):
        await LeaseGuard.acquire(store, "chat", f"{ALIVE}:you", 60)
    await held_lease.release()
    await (await LeaseGuard.acquire(store, "chat", f"{ALIVE}:you", 60)).release()


async def test_a_lease_is_renewed_as_long_as_it_is_held(store: Store) -> None:
    """Longer than the time that a busy machine may take from a renewal to the request of another process."""
    counting_store = CountingStore(store, 4)
    guard = await LeaseGuard.acquire(counting_store, "chat", f"{ALIVE}:me", 1.5)
    await counting_store.reached.wait()
    with pytest.raises(Busy):
        await store.acquire_lease("chat", "you", 60)
    await guard.release()


async def test_a_lease_is_renewed_before_it_expires() -> None:
    """The timers of one event loop end in the order of their times, however busy the machine is."""
    counting_store = CountingStore(MemoryStore(), 2)
    guard = await LeaseGuard.acquire(counting_store, "chat", f"{ALIVE}:me", 0.3)
    await asyncio.sleep(0.3)
    assert counting_store.requests >= 2
    await guard.release()


@pytest.mark.parametrize("failure", [StoreUnavailable("locked for too long"), Busy("chat", "you")])
async def test_a_failed_renewal_is_retried(store: Store, failure: Exception) -> None:
    counting_store = CountingStore(store, 4, [failure])
    guard = await LeaseGuard.acquire(counting_store, "chat", f"{ALIVE}:me", SHORT_S)
    await counting_store.reached.wait()
    assert counting_store.failures == []
    await guard.release()


async def test_the_lease_of_a_dead_process_on_this_machine_is_taken_over_at_once(store: Store) -> None:
    await store.acquire_lease("chat", dead_process("it"), 3600)
    guard = await LeaseGuard.acquire(store, "chat", f"{ALIVE}:me", 60)
    with pytest.raises(Busy):
        await store.acquire_lease("chat", "you", 60)
    await guard.release()


async def test_of_two_processes_that_see_the_same_dead_holder_one_takes_over(store: Store) -> None:
    await store.acquire_lease("chat", dead_process(), 3600)
    results = await asyncio.gather(
        *(LeaseGuard.acquire(store, "chat", f"{ALIVE}:{number}", 60) for number in range(4)), return_exceptions=True
    )
    guards = [result for result in results if isinstance(result, LeaseGuard)]
    assert len(guards) == 1
    assert all(isinstance(result, Busy) for result in results if result is not guards[0])
    await guards[0].release()


async def test_a_holder_on_another_machine_may_be_alive(store: Store) -> None:
    await store.acquire_lease("chat", "elsewhere@1:4194305:1", 3600)
    with pytest.raises(Busy, match="elsewhere@1:4194305:1"):
        await LeaseGuard.acquire(store, "chat", ALIVE, 60)


async def test_a_lost_lease_is_not_released_by_its_former_holder(store: Store) -> None:
    lost = await LeaseGuard.acquire(store, "chat", dead_process("late"), 3600)
    new = await LeaseGuard.acquire(store, "chat", f"{ALIVE}:me", 60)
    await lost.release()
    with pytest.raises(Busy):
        await store.acquire_lease("chat", "you", 60)
    await new.release()


async def test_releasing_a_lease_of_a_closed_store_is_silent(store: Store) -> None:
    guard = await LeaseGuard.acquire(store, "chat", ALIVE, 60)
    await store.aclose()
    await guard.release()

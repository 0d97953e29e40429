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


def gone(who: str = "") -> str:
    """Return the id of a dead process on this machine as a holder, with `who` as its suffix."""
    machine = ALIVE.partition(":")[0]
    return f"{machine}:4194305:1" + (f":{who}" if who else "")


class Counted:
    """Delegates to `store`. Renewals raise `fails` first, and the lease request number `count` sets `enough`."""

    def __init__(self, store: Store, count: int, fails: list[Exception] | None = None) -> None:
        self.store, self.count, self.fails = store, count, fails or []
        self.asked, self.enough = 0, asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def acquire_lease(self, name: str, holder: str, ttl_s: float, *, dead_holder: str | None = None) -> Lease:
        self.asked += 1
        if self.asked == self.count:
            self.enough.set()
        if self.asked > 1 and self.fails:
            raise self.fails.pop()
        return await self.store.acquire_lease(name, holder, ttl_s, dead_holder=dead_holder)


@pytest.fixture
async def held(store: Store) -> AsyncIterator[LeaseGuard]:
    hold = await LeaseGuard.acquire(store, "chat", f"{ALIVE}:me", 60)
    yield hold
    await hold.release()


async def test_a_living_holder_keeps_the_lease_until_it_releases_it(store: Store, held: LeaseGuard) -> None:
    with pytest.raises(Busy):
        await LeaseGuard.acquire(store, "chat", f"{ALIVE}:you", 60)
    await held.release()
    await (await LeaseGuard.acquire(store, "chat", f"{ALIVE}:you", 60)).release()


async def test_a_lease_is_renewed_as_long_as_it_is_held(store: Store) -> None:
    counted = Counted(store, 4)
    hold = await LeaseGuard.acquire(counted, "chat", f"{ALIVE}:me", SHORT_S)
    await counted.enough.wait()
    with pytest.raises(Busy):
        await store.acquire_lease("chat", "you", 60)
    await hold.release()


async def test_a_lease_is_renewed_before_it_expires() -> None:
    counted = Counted(MemoryStore(), 2)
    guard = await LeaseGuard.acquire(counted, "chat", f"{ALIVE}:me", 0.6)
    async with asyncio.timeout(1.5):
        await counted.enough.wait()
    await guard.release()


@pytest.mark.parametrize("failure", [StoreUnavailable("locked for too long"), Busy("chat", "you")])
async def test_a_failed_renewal_is_retried(store: Store, failure: Exception) -> None:
    counted = Counted(store, 4, [failure])
    hold = await LeaseGuard.acquire(counted, "chat", f"{ALIVE}:me", SHORT_S)
    await counted.enough.wait()
    assert counted.fails == []
    await hold.release()


async def test_the_lease_of_a_dead_process_on_this_machine_is_taken_over_at_once(store: Store) -> None:
    await store.acquire_lease("chat", gone("it"), 3600)
    hold = await LeaseGuard.acquire(store, "chat", f"{ALIVE}:me", 60)
    with pytest.raises(Busy):
        await store.acquire_lease("chat", "you", 60)
    await hold.release()


async def test_of_two_processes_that_see_the_same_dead_holder_one_takes_over(store: Store) -> None:
    await store.acquire_lease("chat", gone(), 3600)
    got = await asyncio.gather(
        *(LeaseGuard.acquire(store, "chat", f"{ALIVE}:{number}", 60) for number in range(4)), return_exceptions=True
    )
    holds = [one for one in got if isinstance(one, LeaseGuard)]
    assert len(holds) == 1
    assert all(isinstance(one, Busy) for one in got if one is not holds[0])
    await holds[0].release()


async def test_a_holder_on_another_machine_may_be_alive(store: Store) -> None:
    await store.acquire_lease("chat", "elsewhere@1:4194305:1", 3600)
    with pytest.raises(Busy, match="elsewhere@1:4194305:1"):
        await LeaseGuard.acquire(store, "chat", ALIVE, 60)


async def test_a_lost_lease_is_not_released_by_its_former_holder(store: Store) -> None:
    hold = await LeaseGuard.acquire(store, "chat", gone("late"), 3600)
    new = await LeaseGuard.acquire(store, "chat", f"{ALIVE}:me", 60)
    await hold.release()
    with pytest.raises(Busy):
        await store.acquire_lease("chat", "you", 60)
    await new.release()


async def test_releasing_a_lease_of_a_closed_store_is_silent(store: Store) -> None:
    hold = await LeaseGuard.acquire(store, "chat", ALIVE, 60)
    await store.aclose()
    await hold.release()

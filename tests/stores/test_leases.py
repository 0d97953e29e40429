"""Leases: one holder at a time for each name, on every store."""

import pytest

from convo.errors import Busy, NotCanonical
from convo.stores.base import Lease, Store

EXPIRED_TTL_S = -1.0
"""Seconds to live of a lease that has already expired when it is acquired."""


async def test_a_lease_excludes_others_until_it_is_released(store: Store) -> None:
    lease = await store.acquire_lease("chat", "me", 60)

    with pytest.raises(Busy, match=r"'chat' is open in another process \(me\)"):
        await store.acquire_lease("chat", "you", 60)

    await store.release_lease(lease)
    assert (await store.acquire_lease("chat", "you", 60)).holder == "you"


async def test_the_holder_of_a_lease_can_be_read_without_acquiring_it(store: Store) -> None:
    assert await store.lease_holder("chat") is None
    lease = await store.acquire_lease("chat", "me", 60)
    await store.acquire_lease("other", "you", EXPIRED_TTL_S)

    assert [await store.lease_holder(name) for name in ("chat", "other", "a\ud800")] == ["me", None, None]
    assert await store.for_tenant("guest").lease_holder("chat") is None
    assert (await store.acquire_lease("chat", "me", 60)).holder == "me"

    await store.release_lease(lease)
    assert await store.lease_holder("chat") is None


async def test_a_holder_renews_its_lease(store: Store) -> None:
    first = await store.acquire_lease("chat", "me", 60)
    second = await store.acquire_lease("chat", "me", 120)

    assert second.expires_at > first.expires_at


async def test_an_expired_lease_is_free(store: Store) -> None:
    await store.acquire_lease("chat", "me", EXPIRED_TTL_S)

    assert (await store.acquire_lease("chat", "you", 60)).holder == "you"


async def test_only_the_named_dead_holder_is_replaced(store: Store) -> None:
    await store.acquire_lease("chat", "dead", 60)

    with pytest.raises(Busy):
        await store.acquire_lease("chat", "you", 60, dead_holder="somebody else")

    assert (await store.acquire_lease("chat", "you", 60, dead_holder="dead")).holder == "you"


async def test_a_lease_that_another_holder_acquired_cannot_be_released(store: Store) -> None:
    old = await store.acquire_lease("chat", "me", EXPIRED_TTL_S)
    await store.acquire_lease("chat", "you", 60)
    await store.release_lease(old)

    with pytest.raises(Busy):
        await store.acquire_lease("chat", "me", 60)


async def test_releasing_a_lease_that_was_never_acquired_does_nothing(store: Store) -> None:
    await store.release_lease(Lease("chat", "me", 0.0))

    assert (await store.acquire_lease("chat", "you", 60)).holder == "you"


async def test_leases_of_other_names_and_tenants_are_independent(store: Store) -> None:
    await store.acquire_lease("chat", "me", 60)

    assert (await store.acquire_lease("other", "you", 60)).holder == "you"
    assert (await store.for_tenant("guest").acquire_lease("chat", "you", 60)).holder == "you"


@pytest.mark.parametrize(("name", "holder"), [("\ud800", "me"), ("chat", "\ud800")])
async def test_a_lease_needs_names_that_can_be_stored(store: Store, name: str, holder: str) -> None:
    with pytest.raises(NotCanonical):
        await store.acquire_lease(name, holder, 60)

    await store.release_lease(Lease(name, holder, 0.0))


async def test_leases_are_removed_some_time_after_they_expire(store: Store) -> None:
    """The expired lease of a killed holder is removed. A lease that has not expired stays."""
    await store.acquire_lease("dead", "me", EXPIRED_TTL_S)
    await store.acquire_lease("alive", "me", 60)
    await store.admin.prune_events(0)

    assert (await store.acquire_lease("dead", "you", 60)).holder == "you"
    with pytest.raises(Busy):
        await store.acquire_lease("alive", "you", 60)

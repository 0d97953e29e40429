"""The endpoints of all tenants, as long as a server runs, and what somebody has to see to meanwhile.

Each tenant has one endpoint over its part of the store; models and what goes on without readers are
shared. Every few seconds the service looks after what others left: a response that nobody carries out
any more is marked failed, the events of what ended long ago go, and what a tenant wants kept no longer.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count

from convo.clock import Clock
from convo.config import Secret
from convo.endpoints.embedded.edges import Manner, Models
from convo.endpoints.embedded.endpoint import Embedded
from convo.endpoints.embedded.runs import Runs
from convo.errors import StoreFault
from convo.ids import NewId
from convo.items import Json
from convo.stores.contract import Store

SWEEP_S = 4.0
EVENTS_FOR_S = 3600.0
"""Seconds for which the events of a response can still be followed after its end."""

FORGETS = 15
"""Events are forgotten in every 15th round."""

SHARE_OF_TTL, PRUNE_AT_MOST_S = 10, 3600.0
"""What a tenant keeps for a time is looked through ten times in that time, and at least once an hour."""

LISTED_FOR_S = 60.0

Listed = Callable[[], Awaitable[Sequence[Mapping[str, Json]]]]
"""Asks who is there for their models; slow."""

TimeToLive = Callable[[str], float | None]
"""For how many seconds a tenant's state is kept; None for ever."""


class Service:
    """See `convo.endpoints.contract.Service`. Closing it closes the models, not the store.

    listed:  what can be asked for by name; asked again when a minute has passed
    ttl_s:   where something is to be kept for a time only
    seal_key:  seals compaction items; the database's own key does where there is none
    """

    def __init__(
        self,
        store: Store,
        models: Models,
        clock: Clock,
        new_id: NewId,
        *,
        listed: Listed,
        manner: Manner,
        ttl_s: TimeToLive | None = None,
        seal_key: Secret | None = None,
    ) -> None:
        self._store, self._models, self._clock, self._new_id = store, models, clock, new_id
        self._listed, self._manner, self._ttl_s = listed, manner, ttl_s
        self._seal_key = seal_key
        self._runs = Runs()
        self._endpoints: dict[str, Embedded] = {}
        self._pruned: dict[str, float] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._list: tuple[float, Sequence[Mapping[str, Json]]] | None = None
        self._asking = asyncio.Lock()

    def of(self, tenant: str) -> Embedded:
        self._sweeping = self._sweeping or asyncio.create_task(self._sweep_on())
        if tenant not in self._endpoints:
            store = self._store.of(tenant)
            self._endpoints[tenant] = Embedded(
                store,
                self._models,
                self._clock,
                self._new_id,
                runs=self._runs,
                manner=self._manner,
                seal_key=self._seal_key,
            )
        return self._endpoints[tenant]

    async def models(self) -> Sequence[Mapping[str, Json]]:
        async with self._asking:
            if self._list is None or self._clock.ticks() - self._list[0] > LISTED_FOR_S:
                self._list = self._clock.ticks(), await self._listed()
            return self._list[1]

    async def check(self) -> None:
        self._sweeping = self._sweeping or asyncio.create_task(self._sweep_on())
        await self._store.upkeep.check()

    async def aclose(self, grace_s: float = 0.0) -> None:
        self._runs.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self._runs.aclose(grace_s)
        await self._models.aclose()

    async def sweep(self, number: int = 0) -> None:
        """One round, the `number`th. raises: StoreFault"""
        for tenant, response_id in await self._store.upkeep.abandoned():
            if self._runs.here(response_id) is None:
                await self.of(tenant).mark_abandoned(response_id)
        if number % FORGETS == 0:
            await self._store.upkeep.forget_events(EVENTS_FOR_S)
        if self._ttl_s is not None:
            await self._prune(self._ttl_s)

    async def _prune(self, ttl: TimeToLive) -> None:
        """Remove what is older than its tenant's `ttl`, of each tenant whose last round is long enough ago."""
        now = self._clock.ticks()
        for tenant in await self._store.upkeep.tenants():
            ttl_s = ttl(tenant)
            if ttl_s is None or now - self._pruned.get(tenant, -math.inf) < prune_every_s(ttl_s):
                continue
            self._pruned[tenant] = now
            await self._store.upkeep.prune(tenant, self._clock.now() - ttl_s, dry=False)

    async def _sweep_on(self) -> None:
        for number in count():
            with suppress(StoreFault):
                await self.sweep(number)
            await self._clock.sleep(SWEEP_S)


def prune_every_s(ttl_s: float) -> float:
    """How many seconds lie between two removals of what is older than `ttl_s`; a round may come `SWEEP_S` later."""
    return min(max(ttl_s / SHARE_OF_TTL - SWEEP_S, 0.0), PRUNE_AT_MOST_S)

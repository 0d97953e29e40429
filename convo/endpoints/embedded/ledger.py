"""The events of a background response, kept a few at a time while they come.

Whoever follows the response reads what is kept here and nothing else, on this replica or another
one, so nobody is told what a restart could take back. The store also says when the run is over:
it takes no events of a run that somebody ended.
"""

import asyncio
from contextlib import suppress
from itertools import count

from convo.clock import Clock
from convo.endpoints.embedded.listening import Telling
from convo.errors import Conflict, NotFound, StoreFault
from convo.items import Event
from convo.stores.contract import Store

BEAT_S = 0.1
"""Seconds between two writings."""

LOOKS = 20
"""Beats without an event after which the store is asked whether the run is still open."""

OPEN = ("queued", "in_progress")


class Ledger:
    """What is told of one response, in order."""

    def __init__(self, store: Store, clock: Clock, response_id: str, told: Telling) -> None:
        self._store, self._clock, self._id, self._told = store, clock, response_id, told
        self._waiting: list[Event] = []
        self._doubtful = False
        self._writing = asyncio.Lock()
        self._news = asyncio.Event()

    def next_news(self) -> asyncio.Event:
        return self._news

    def ring(self) -> None:
        """Wake everybody who waits for news."""
        self._news.set()
        self._news = asyncio.Event()

    def add(self, event: Event) -> None:
        self._waiting.append(self._told(event))

    async def flush(self) -> None:
        """Keep what waits. raises: Conflict  the run is over;  StoreFault  it waits on"""
        async with self._writing:
            if self._doubtful:
                await self._leave_out_what_is_kept()
            if not self._waiting:
                return
            batch = tuple(self._waiting)
            self._doubtful = True
            await self._store.append(self._id, batch)
            self._doubtful = False
            del self._waiting[: len(batch)]
        self.ring()

    async def keep(self) -> None:
        """Keep what comes; returns when somebody else ended the run."""
        for beat in count(1):
            await self._clock.sleep(BEAT_S)
            with suppress(StoreFault):  # what waits is kept when the store is back
                if not await self._kept(look=beat % LOOKS == 0):
                    return

    async def _kept(self, *, look: bool) -> bool:
        """Whether the run goes on. raises: StoreFault"""
        try:
            if self._waiting:
                await self.flush()
            elif look:
                return await self._open()
        except (Conflict, NotFound):
            return await self._open()
        return True

    async def _open(self) -> bool:
        link = await self._store.link(self._id)
        return link is not None and link.status in OPEN

    async def _leave_out_what_is_kept(self) -> None:
        """A store that failed may have taken the last batch all the same."""
        last = self._waiting[0]["sequence_number"] - 1 if self._waiting else -1
        kept = await self._store.events(self._id, after=last)
        del self._waiting[: len(kept)]
        self._doubtful = False

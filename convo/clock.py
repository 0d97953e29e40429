"""The time, as something that can be handed in.

Only the edges ask for it: the engine when it begins and ends a turn, the embedded endpoint when
it stamps a response. Decisions take the figure. A test fixes it and moves it by hand.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        ...

    def ticks(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        return time.time()

    def ticks(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FixedClock:
    """Time that stands still until it is moved; a sleep moves it and returns at once."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now

    def ticks(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.move(seconds)
        await asyncio.sleep(0)

    def move(self, seconds: float) -> None:
        self._now += seconds

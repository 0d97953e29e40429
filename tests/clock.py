"""Clocks that a test controls, and counted ids, so that every run has the same times and ids."""

import asyncio
from collections import Counter

from convo.runtime import NewId, SystemClock


class FixedClock:
    """A clock that changes only by `advance`; `sleep` advances it and returns at once."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self.sleeps_s: list[float] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.sleeps_s.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Add `seconds` to the time."""
        self._now += seconds


HELD_S = 1e9
"""The `delay_s` of a script whose deltas wait until a test releases them, however long the test takes before."""


class ReplyClock(SystemClock):
    """The clock of the scripted models. The delay `HELD_S` ends when the delta is released."""

    def __init__(self) -> None:
        self._releases: float = 0
        self._condition = asyncio.Condition()

    async def sleep(self, seconds: float) -> None:
        if seconds < HELD_S:
            await super().sleep(seconds)
            return
        async with self._condition:
            await self._condition.wait_for(lambda: self._releases > 0)
            self._releases -= 1

    async def release(self, deltas: float) -> None:
        async with self._condition:
            self._releases += deltas
            self._condition.notify_all()


def counting_ids() -> NewId:
    """Return a function for ids that count for each prefix: "msg_1", "msg_2", "resp_1"."""
    counts: Counter[str] = Counter()

    def new_id(prefix: str) -> str:
        counts[prefix] += 1
        return f"{prefix}_{counts[prefix]}"

    return new_id

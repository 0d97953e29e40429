"""A fixed clock and counted ids, so that every run has the same times and ids."""

import asyncio
from collections import Counter

from convo.runtime import NewId


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


def counting_ids() -> NewId:
    """Return a function for ids that count for each prefix: "msg_1", "msg_2", "resp_1"."""
    counts: Counter[str] = Counter()

    def new_id(prefix: str) -> str:
        counts[prefix] += 1
        return f"{prefix}_{counts[prefix]}"

    return new_id

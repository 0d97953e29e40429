"""Rate limits: concurrent requests and requests per minute, per key and process, and the bytes of all bodies.

A minute is the last sixty seconds. A refused request does not count. Replicas do not share
limits.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from math import ceil
from weakref import WeakValueDictionary

from convo.config.sections import ServeLimits
from convo.errors import TryLater
from convo.server.errors import bodies_too_large_error

MINUTE_S = 60.0
CONCURRENCY_RETRY_S = 1.0
"""Retry-After, in seconds, if too many requests run at once: the end of a request is unknown."""


class RateLimits:
    """The rate limits of one process. `ticks` returns monotonic seconds."""

    def __init__(self, limits: ServeLimits, ticks: Callable[[], float]) -> None:
        self._limits, self._ticks = limits, ticks
        self._process_window = MinuteWindow()
        self._windows: dict[str, MinuteWindow] = {}
        self._running: dict[str, int] = {}

    def acquire(self, name: str) -> None:
        """Start a request of the key `name`; `release` ends it.

        Raises TryLater (429) with the seconds to wait; the request is then not counted.
        """
        (max_concurrent, max_per_minute), now = self._limits.for_key(name), self._ticks()
        running = self._running.get(name, 0)
        if 0 < max_concurrent <= running:
            raise _rate_limit_error(f"{max_concurrent} concurrent requests", running, CONCURRENCY_RETRY_S)
        window = self._windows.setdefault(name, MinuteWindow())
        # Both windows are checked before either counts the request: a refused one must not use up the other.
        window.check(max_per_minute, now, "requests per minute (RPM)")
        self._process_window.check(self._limits.process_per_minute, now, "requests per minute (RPM) of this server")
        for minute_window, limit in ((window, max_per_minute), (self._process_window, self._limits.process_per_minute)):
            if limit:
                minute_window.times.append(now)
        self._running[name] = running + 1

    def release(self, name: str) -> None:
        remaining = self._running[name] - 1
        if remaining:
            self._running[name] = remaining
        else:
            del self._running[name]


class MinuteWindow:
    """The times of the requests that were accepted in the last minute, oldest first."""

    def __init__(self) -> None:
        self.times: deque[float] = deque()

    def check(self, limit: int, now: float, description: str) -> None:
        """Raise TryLater if `limit` requests were accepted in the last minute; 0 is no limit."""
        while self.times and self.times[0] <= now - MINUTE_S:
            self.times.popleft()
        if 0 < limit <= len(self.times):
            raise _rate_limit_error(f"{limit} {description}", len(self.times), self.times[-limit] + MINUTE_S - now)


UNLIMITED_BODY_BYTES = 64 * 1024
"""A body up to this size is never refused for the large ones of others."""


class BodyBudget:
    """The bytes that the bodies of all running requests of one process may have together; 0: no limit.

    A request takes several times its body: the bytes, the parsed values, what is sent to the model and the store.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.taken_bytes = max_bytes or sys.maxsize, 0


class BodyShare:
    """The bytes of one request, or of one WebSocket, in the budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self._size_bytes = budget, 0

    def take(self, size_bytes: int) -> None:
        """Add received bytes. Raises TryLater (503) past the budget, unless no other request has a body."""
        size_bytes += self._size_bytes
        others_bytes = self._budget.taken_bytes - self._size_bytes
        is_past = others_bytes > 0 and others_bytes + size_bytes > self._budget.max_bytes
        if is_past and size_bytes > UNLIMITED_BODY_BYTES:
            raise bodies_too_large_error(self._budget.max_bytes)
        self._budget.taken_bytes, self._size_bytes = others_bytes + size_bytes, size_bytes

    def release(self, size_bytes: int | None = None) -> None:
        """Give back some bytes, or all of them."""
        size_bytes = self._size_bytes if size_bytes is None else size_bytes
        self._budget.taken_bytes -= size_bytes
        self._size_bytes -= size_bytes


def _rate_limit_error(limit: str, used: int, wait_s: float) -> TryLater:
    return TryLater(
        f"Rate limit reached: Limit {limit}, Used {used}. Please try again in {max(1, ceil(wait_s))}s",
        code="rate_limit_exceeded",
        status=429,
        retry_after_s=float(max(1, ceil(wait_s))),
    )


class TenantLocks:
    """One lock for each tenant, which exists while it is used."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def for_tenant(self, tenant: str) -> asyncio.Lock:
        """Return the lock of this tenant."""
        return self._locks.setdefault(tenant, asyncio.Lock())

"""Rate limits at their boundaries, with a clock that the tests advance."""

import pytest

from convo.config.sections import ServeLimits
from convo.errors import TryLater
from convo.server.rate_limits import RateLimits
from tests.clock import FixedClock


def acquire_error(limits: RateLimits, name: str = "alice") -> TryLater:
    with pytest.raises(TryLater) as caught:
        limits.acquire(name)
    return caught.value


def test_no_limit_is_no_limit() -> None:
    limits = RateLimits(ServeLimits(concurrent=0), FixedClock().monotonic)
    for _ in range(1000):
        limits.acquire("alice")


def test_a_minute_is_the_last_sixty_seconds() -> None:
    clock = FixedClock()
    limits = RateLimits(ServeLimits(per_minute=2), clock.monotonic)
    limits.acquire("alice")
    clock.advance(30)
    limits.acquire("alice")
    error = acquire_error(limits)
    assert error.message == "Rate limit reached: Limit 2 requests per minute (RPM), Used 2. Please try again in 30s"
    assert error.retry_after_s == 30.0
    clock.advance(29.5)
    assert acquire_error(limits).retry_after_s == 1.0
    clock.advance(0.5)
    limits.acquire("alice")
    assert acquire_error(limits).retry_after_s == 30.0


def test_a_refused_request_does_not_count() -> None:
    clock = FixedClock()
    limits = RateLimits(ServeLimits(concurrent=1, per_minute=2, process_per_minute=3), clock.monotonic)
    limits.acquire("alice")
    for _ in range(5):
        acquire_error(limits)
    limits.release("alice")
    limits.acquire("alice")
    limits.release("alice")
    acquire_error(limits)
    limits.acquire("bob")
    error = acquire_error(limits, "carol")
    assert error.message == (
        "Rate limit reached: Limit 3 requests per minute (RPM) of this server, Used 3. Please try again in 60s"
    )
    clock.advance(60)
    limits.acquire("carol")

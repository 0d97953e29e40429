"""Shielding coroutines from cancellation, the system clock, random ids and notices."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import anyio
import pytest

from convo.runtime import SystemClock, random_id, redirect_notices, send_notice, shielded

Commit: TypeAlias = Callable[[], Coroutine[Any, Any, str]]


async def record_steps(run: Callable[[Commit], Awaitable[str]]) -> list[str]:
    """Run a commit of two steps in a task that is cancelled twice between them; return the completed steps."""
    steps: list[str] = []
    started, go_on = asyncio.Event(), asyncio.Event()

    async def commit() -> str:
        steps.append("begun")
        started.set()
        await go_on.wait()
        steps.append("committed")
        return "result"

    task = asyncio.ensure_future(run(commit))
    await started.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    return steps


async def test_a_shielded_coroutine_completes_before_the_cancellation_is_raised() -> None:
    async def run(commit: Commit) -> str:
        async def nested() -> str:
            return await shielded(commit())

        return await shielded(nested())

    assert await record_steps(run) == ["begun", "committed"]


async def test_a_shielded_coroutine_returns_its_result_and_raises_its_errors() -> None:
    async def fail() -> None:
        raise OSError("disk")

    assert await shielded(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(OSError, match="disk"):
        await shielded(fail())


async def test_a_scope_of_anyio_does_not_shield_from_the_cancellation_of_a_task() -> None:
    async def run(commit: Commit) -> str:
        with anyio.CancelScope(shield=True):
            return await commit()
        raise AssertionError("the scope caught the cancellation")

    assert await record_steps(run) == ["begun"]


async def test_the_system_clock_is_that_of_the_operating_system() -> None:
    clock = SystemClock()
    before, monotonic_before = time.time(), time.monotonic()
    await clock.sleep(0.001)

    assert before + 0.001 <= clock.now() <= time.time() + 0.001
    assert monotonic_before + 0.001 <= clock.monotonic() <= time.monotonic()


def test_a_random_id_is_a_prefix_and_32_hex_digits() -> None:
    assert re.fullmatch(r"msg_[0-9a-f]{32}", random_id("msg"))
    assert random_id("msg") != random_id("msg")


def test_a_notice_is_sent_once_to_the_innermost_sink() -> None:
    outer: list[str] = []
    inner: list[str] = []
    send_notice("nobody listens")
    with redirect_notices(outer.append):
        send_notice("one")
        with redirect_notices(inner.append):
            send_notice("one")
            send_notice("one")
        send_notice("one")
        send_notice("two")
    send_notice("nobody listens")

    assert (outer, inner) == (["one", "two"], ["one"])

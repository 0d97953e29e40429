"""Shows one answer and lets the person stop it.

The answer runs in a task of its own and Ctrl-C cancels that task alone: the turn keeps what came
as a partial, and whoever called goes on. While it is being kept, a second Ctrl-C changes nothing.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from convo.errors import Interrupted
from convo.items import Event
from convo.ui.signals import on_signal

Result = TypeVar("Result")


async def watched(events: AsyncGenerator[Event, None], take: Callable[[Event], None]) -> None:
    """Hand every event to `take`. raises: as `waited`"""
    await waited(_run(events, take))


async def waited(work: Coroutine[Any, Any, Result]) -> Result:
    """What `work` comes to.

    raises:  Interrupted  Ctrl-C came first; a turn has been kept
             what `work` raises
    """
    task = asyncio.create_task(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            task.cancel()

    with on_signal(signal.SIGINT, stop):
        try:
            return await task
        except asyncio.CancelledError:
            if not stopped:
                raise
            raise Interrupted("stopped; what came so far is kept") from None


async def _run(events: AsyncGenerator[Event, None], take: Callable[[Event], None]) -> None:
    async with aclosing(events) as answer:
        async for event in answer:
            take(event)
            await asyncio.sleep(0)  # an answer that never waits must not keep Ctrl-C from being heard

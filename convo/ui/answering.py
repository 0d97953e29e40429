"""Shows one answer and lets the person stop it.

The answer runs in a task of its own and Ctrl-C cancels that task alone: the turn keeps what came
as a partial, and whoever called goes on.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from convo.errors import Interrupted
from convo.items import Event


async def watched(events: AsyncGenerator[Event, None], take: Callable[[Event], None]) -> None:
    """Hand every event to `take`.

    raises:  Interrupted  Ctrl-C came first; the turn has been kept
             what the turn raises
    """
    task = asyncio.create_task(_run(events, take))
    loop = asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    with suppress(NotImplementedError):  # no signals in this loop: Ctrl-C then ends the program
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
        raise Interrupted("stopped; what came so far is kept") from None
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


async def _run(events: AsyncGenerator[Event, None], take: Callable[[Event], None]) -> None:
    async with aclosing(events) as answer:
        async for event in answer:
            take(event)

"""What goes on in this process without anybody reading it, until the process is to end.

A background response, and an answer whose reader left, are tasks of their own. Whoever ends the
process lets them finish for a while; what is not done by then is told to stop, and each task marks
what it was doing before it goes.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from convo.errors import ConvoError, TryLater
from convo.items import Event

T = TypeVar("T")


class Running(Protocol):
    """A background response that this process carries out."""

    def next_news(self) -> asyncio.Event:
        """Is set when something of it was kept after this call, and at its end."""
        ...

    async def stop(self) -> None:
        """End it as cancelled, unless it ends by itself just now; returns when that is durable."""
        ...


class Runs:
    """The tasks of one process, for all its tenants."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], Callable[[], object]] = {}
        self._responses: dict[str, Running] = {}
        self._closing = False

    def check_open(self) -> None:
        """raises: TryLater  nothing is begun any more"""
        if self._closing:
            raise _shutting_down()

    def start(self, work: Coroutine[Any, Any, None], *, stop: Callable[[], object] | None = None) -> asyncio.Task[None]:
        """Carry `work` out; `stop` tells it to come to an end, where it is not to be cancelled."""
        task = asyncio.create_task(work)
        self._tasks[task] = stop or task.cancel
        task.add_done_callback(self._tasks.pop)
        return task

    def enter(self, response_id: str, running: Running) -> None:
        self._responses[response_id] = running

    def leave(self, response_id: str) -> None:
        self._responses.pop(response_id, None)

    def here(self, response_id: str) -> Running | None:
        """The background response of this id, if this process carries it out."""
        return self._responses.get(response_id)

    def close(self) -> None:
        """Begin nothing more."""
        self._closing = True

    async def aclose(self, grace_s: float) -> None:
        """Begin nothing more, and wait until everything that goes on has finished, or marked that it did not.

        grace_s:  seconds after which it is told to stop
        """
        self.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        while self._tasks:
            left = dict(self._tasks)
            for stop in left.values():
                stop()
            await asyncio.gather(*left, return_exceptions=True)


async def apart(events: AsyncGenerator[Event, None], runs: Runs) -> AsyncGenerator[Event, None]:
    """`events` from a task of their own, which goes on to their end when the reader leaves.

    raises:  what they raise, while somebody reads
    """
    told: asyncio.Queue[Event | ConvoError | None] = asyncio.Queue()
    task = runs.start(_tell(events, told))
    while (said := await told.get()) is not None:
        if isinstance(said, ConvoError):
            raise said
        yield said
    await task


async def _tell(events: AsyncGenerator[Event, None], told: "asyncio.Queue[Event | ConvoError | None]") -> None:
    try:
        async with aclosing(events):
            async for event in events:
                told.put_nowait(event)
    except ConvoError as fault:
        told.put_nowait(fault)
    except asyncio.CancelledError:
        told.put_nowait(_shutting_down())
        raise
    finally:
        told.put_nowait(None)


def _shutting_down() -> TryLater:
    return TryLater("The server is shutting down", code="server_shutting_down", retry_after_s=1.0)


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Carry `work` to its end, however often whoever waits for it is cancelled meanwhile.

    raises:  what `work` raises; else CancelledError, afterwards, if somebody was cancelled
    """
    task, cancelled = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as told:
            cancelled = told
    done = task.result()
    if cancelled:
        raise cancelled
    return done

"""What this process is answering, until the process is to end.

A background response is a task of its own. An answer with a reader runs in the reader's task, and ends
when its reader leaves. At the end of the process both may finish for a while; then they are stopped, and
each one records how far it came.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

from convo.errors import TryLater

T = TypeVar("T")


class Running(Protocol):
    """A background response that this process carries out."""

    def next_news(self) -> asyncio.Event:
        """Is set when something of it was kept after this call, and at its end."""
        ...

    async def stop(self) -> None:
        """End it as cancelled, unless it ends by itself just now; returns when that is durable."""
        ...


SETTLES_S = 0.05
"""How long a request waits for the answer before it, whose client may have left a moment ago."""

KEPT_S = 10.0
"""How long it waits for one that is being stored."""


class ForegroundAnswer:
    """One answer with a reader.

    response_id, conversation: None until they are known
    stopped:    the process ends, and the time for it is over
    closing:    the answer has ended or was cancelled, and is being stored
    suspended:  it waits for its reader, and cannot end by itself
    """

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.response_id: str | None = None
        self.conversation: str | None = None
        self.stopped = self.closing = self.suspended = False
        self.ended = asyncio.Event()
        self._task: asyncio.Task[object] | None = None

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` of the model, until `stop`. raises: TryLater  it was stopped"""
        if self.stopped:
            work.close()
            raise _shutting_down()
        self._task, self.suspended = asyncio.current_task(), False
        try:
            return await work
        except asyncio.CancelledError:
            if self.stopped and self._task is not None and self._task.uncancel() == 0:
                raise _shutting_down() from None
            raise
        finally:
            self._task, self.suspended = None, True

    def close(self) -> None:
        """The model is not waited for any more; the answer is being stored."""
        self.closing, self.suspended = True, False

    def stop(self) -> None:
        self.stopped = True
        if self._task is not None:
            self._task.cancel()


class Runs:
    """The tasks of one process, for all its tenants."""

    def __init__(self) -> None:
        self._foreground: set[ForegroundAnswer] = set()
        self._over = False
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

    @contextmanager
    def foreground(self, tenant: str) -> Iterator[ForegroundAnswer]:
        """Register an answer with a reader while the block runs."""
        answer = ForegroundAnswer(tenant)
        answer.stopped = self._over
        self._foreground.add(answer)
        try:
            yield answer
        finally:
            self._foreground.discard(answer)
            answer.ended.set()

    async def wait_until_ended(
        self, tenant: str, *, conversation: str | None = None, response_id: str | None = None
    ) -> bool:
        """Wait for an answer of this process that is about to end, as its client may have left.

        It is known by its conversation or by its own id. Returns whether such an answer ended.
        """
        named = conversation or response_id
        of_tenant = (one for one in self._foreground if one.tenant == tenant)
        found = next((one for one in of_tenant if named in (one.conversation, one.response_id)), None)
        if found is None or named is None:
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(found.ended.wait(), SETTLES_S)
        if found.closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(found.ended.wait(), KEPT_S)
        return found.ended.is_set()

    def close(self) -> None:
        """Begin nothing more."""
        self._closing = True

    async def aclose(self, grace_s: float) -> None:
        """Begin nothing more, and wait until everything that goes on has finished, or marked that it did not.

        grace_s:  seconds after which it is told to stop
        """
        self.close()
        if self._tasks or self._foreground:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await asyncio.gather(
                        *(asyncio.shield(task) for task in self._tasks),
                        *(answer.ended.wait() for answer in self._foreground),
                        return_exceptions=True,
                    )
        self._over = True
        for answer in tuple(self._foreground):
            answer.stop()
        while (left := self._unfinished()) or any(not answer.suspended for answer in self._foreground):
            for stop in left.values():
                stop()
            kept = [answer.ended.wait() for answer in self._foreground if not answer.suspended]
            await asyncio.gather(*left, *kept, return_exceptions=True)

    def _unfinished(self) -> dict[asyncio.Task[None], Callable[[], object]]:
        """Tasks that still run. One that is done stays in `_tasks` until the event loop calls its callback."""
        return {task: stop for task, stop in self._tasks.items() if not task.done()}


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

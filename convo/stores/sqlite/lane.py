"""The thread that owns a connection, and the jobs that wait for it.

To wake a thread costs more than most jobs do, and so does to wake an event loop. Whoever comes while
the thread is busy waits, and is taken together with everybody else who waits. They are told together
as well, in one message to their loop.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

Result = TypeVar("Result")
Job = Callable[[sqlite3.Connection], Result]

MOST = 64
"""So many are taken together; more would only make the first of them wait."""


@dataclass(slots=True, eq=False)
class Waiting(Generic[Result]):
    """One job, who waits for it, and what became of it.

    writes:  whether it changes something
    create:  whether to make the file for it
    """

    job: Job[Result]
    writes: bool
    create: bool
    told: "Future[Result] | None" = None
    result: Result | None = None
    wrong: BaseException | None = None


class Lane:
    """One thread. `work` is called in it with jobs to be done together, and notes what became of each."""

    def __init__(self, work: Callable[[Sequence[Waiting[Any]]], None]) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._work = work
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="convo-sqlite")
        self._lock, self._busy = Lock(), False
        self._queue: list[Waiting[Any]] = []

    async def done(self, one: Waiting[Result]) -> Result:
        """The result of a job when its turn has come. raises: what it raises"""
        from asyncio import get_running_loop

        one.told = get_running_loop().create_future()
        with self._lock:
            self._queue.append(one)
            begin, self._busy = not self._busy, True
        if begin:
            self._thread.submit(self._drain)
        return await one.told

    async def last(self, work: Callable[[], None]) -> None:
        """Do `work` behind everything that waits, and then nothing more."""
        from asyncio import get_running_loop

        try:
            await get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._thread.shutdown(wait=False)

    # -- in the thread ----------------------------------------------------------------------------

    def _drain(self) -> None:
        while taken := self._taken():
            wanted = [one for one in taken if one.told and not one.told.cancelled()]
            for writes in (False, True):  # who only looks does not wait for a disk: either may be first
                group = [one for one in wanted if one.writes is writes]
                self._work(group)
                _tell(group)

    def _taken(self) -> Sequence[Waiting[Any]]:
        with self._lock:
            taken, self._queue = self._queue[:MOST], self._queue[MOST:]
            self._busy = bool(taken)
        return taken


def _tell(group: Sequence[Waiting[Any]]) -> None:
    """Let each one's loop know, if it still runs."""
    by_loop: dict[AbstractEventLoop, list[Waiting[Any]]] = {}
    for one in group:
        if one.told:
            by_loop.setdefault(one.told.get_loop(), []).append(one)
    for loop, theirs in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_wake, theirs)


def _wake(group: Sequence[Waiting[Any]]) -> None:
    for one in group:
        if one.told is None or one.told.done():
            continue
        if one.wrong is not None:
            one.told.set_exception(one.wrong)
        else:
            one.told.set_result(one.result)

"""Calls what a person wrote: tools, guardrails, instructions, filters.

It may be sync or async, and may raise anything at all; none of that is an error of convo's. So
whatever comes of it is a value here, and whoever called says what it means. What is sync runs on a
thread where it could take long (`hands`), and the loop goes on beside it. While it runs `THEIRS` says
so, for whoever keeps what it prints apart from convo's own answer.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Final

from convo.engine import hands
from convo.errors import ConvoError, RunFailed

THEIRS: Final[ContextVar[bool]] = ContextVar("convo_theirs", default=False)
"""Whether what a person wrote is what runs now."""


@contextmanager
def as_theirs() -> Iterator[None]:
    """Whatever runs within is a person's own."""
    before = THEIRS.set(True)
    try:
        yield
    finally:
        THEIRS.reset(before)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a function returned, or else what it raised."""

    value: Any = None
    raised: BaseException | None = None


async def outcome(function: Callable[..., Any], *args: Any, thread: bool = False) -> Outcome:
    """Call a function and await its result if it is awaitable; cancelling stops the waiting.

    Named arguments come in a `functools.partial`, because any name may be one of the function's.

    thread:  run a plain function on a thread
    """
    if thread and not inspect.iscoroutinefunction(function):
        came = await on_thread(function, *args)
        return await _awaited(came.value) if inspect.isawaitable(came.value) else came

    async def work() -> Any:
        value = function(*args)
        return await value if inspect.isawaitable(value) else value

    return await _awaited(work())


async def _awaited(work: Awaitable[Any]) -> Outcome:
    """What came of `work`; cancelled itself is what came of it as well."""
    task = asyncio.ensure_future(_staying(work))
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    if task.cancelled():
        return Outcome(raised=asyncio.CancelledError())
    raised = task.exception()
    return Outcome(raised=raised) if raised else task.result()


async def _staying(work: Awaitable[Any]) -> Outcome:
    """`work` to its end; one that leaves the program ends itself only, and not the loop that it is carried out in."""
    try:
        with as_theirs():
            return Outcome(await work)
    except SystemExit as left:
        return Outcome(raised=left)


async def told_by(what: str, code: str, function: Callable[..., Any], *args: Any, thread: bool = False) -> Any:
    """What a function returns. raises: RunFailed  it raised;  ConvoError  what it raised, where that is one of ours"""
    came = await outcome(function, *args, thread=thread)
    if isinstance(came.raised, ConvoError):
        raise came.raised
    if came.raised is not None:
        raise RunFailed(f"{what} raised {spoken(came.raised)}", code=code) from came.raised
    return came.value


async def told_whether(what: str, code: str, function: Callable[..., Any], *args: Any) -> bool:
    """Whether a function says yes. raises: as `told_by`; RunFailed  what it returned is neither yes nor no"""
    came = came_of(bool, await told_by(what, code, function, *args))
    if came.raised is not None:
        raise RunFailed(f"{what} raised {spoken(came.raised)}", code=code) from came.raised
    return bool(came.value)


def spoken(raised: BaseException) -> str:
    """An error in words: what kind, and what it says, where it can say it."""
    words = came_of(str, raised).value
    return f"{type(raised).__name__}: {words}" if words else type(raised).__name__


def came_of(function: Callable[..., Any], *args: Any) -> Outcome:
    """Call a plain function here and now."""
    try:
        with as_theirs():
            return Outcome(function(*args))
    except BaseException as raised:  # noqa: BLE001 - whatever it is, it is what came of the function
        return Outcome(raised=raised)


def on_thread(function: Callable[..., Any], *args: Any) -> Awaitable[Outcome]:
    """Call a plain function on a thread that nobody has to wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Outcome] = loop.create_future()
    context = copy_context()

    def work() -> Outcome:
        return context.run(came_of, function, *args)

    def told(came: Outcome) -> None:
        with suppress(RuntimeError):  # whoever waited has left, and the loop with them
            loop.call_soon_threadsafe(settle, came)

    def settle(came: Outcome) -> None:
        if not future.done():
            future.set_result(came)

    hands.take(work, told)
    return future

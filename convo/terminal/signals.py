"""Signal handlers of a running command: Ctrl-C, SIGTERM and SIGHUP.

SIGTERM and SIGHUP cancel the whole command: what was received is stored, and the exit code is the one that shells
show for the signal.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

TERMINATION_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

SIGNAL_EXIT_BASE = 128

MAX_QUEUED_SIGNALS = 2
"""How often the loop may leave a signal waiting; a person who presses quickly gets so far."""


@contextmanager
def on_signal(number: int, act: Callable[[], None]) -> Iterator[None]:
    """Let a signal do `act` in the running loop, and nothing else.

    One that whoever started this process ignores, as `nohup` does, stays ignored; and only the
    main thread hears any.
    """
    loop = asyncio.get_running_loop()
    before = signal.getsignal(number)
    if before is signal.SIG_IGN:
        yield
        return
    waiting: list[int] = []

    def told(*_: object) -> None:
        if len(waiting) == MAX_QUEUED_SIGNALS:
            loop.set_exception_handler(lambda *_: None)  # what is cut off has nothing to tell
            apply_default_action(number)
        waiting.append(number)
        loop.call_soon_threadsafe(heard)

    def heard() -> None:
        waiting.pop()
        act()

    try:
        signal.signal(number, told)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before or signal.SIG_DFL)


def apply_default_action(number: int) -> None:
    """What a signal does that nobody handles. raises: KeyboardInterrupt"""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


async def run_until_terminated(work: Coroutine[Any, Any, int]) -> int:
    """Carry out `work`, and cancel it when this process is told to end.

    returns:  its exit code, or 128 and the number of the signal
    """
    task = asyncio.ensure_future(work)
    told: list[int] = []

    def end(number: int) -> None:
        if not told:
            task.cancel()
        told.append(number)

    with ExitStack() as heard:
        for number in TERMINATION_SIGNALS:
            heard.enter_context(on_signal(number, partial(end, number)))
        try:
            return await task
        except asyncio.CancelledError:
            if not told:
                raise
            return SIGNAL_EXIT_BASE + told[0]

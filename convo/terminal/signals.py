"""Signal handlers of a running command: Ctrl-C, SIGTERM and SIGHUP.

SIGTERM and SIGHUP cancel the whole command: received output is stored, and the exit code is the one that shells
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
"""Signals that the loop may leave unhandled; two quick key presses reach this number."""


_restorers: list[Callable[[], None]] = []
"""Called before the default action of a signal, which ends the process wherever it is."""

_restoring_signals: list[int] = []
"""The signal whose handler calls the restorers now; later ones are ignored until it takes effect."""


@contextmanager
def restore_before_default_action(restore: Callable[[], None]) -> Iterator[None]:
    """Call `restore` before the default action of a signal, until the context exits.

    It runs in the signal handler, wherever the process is, and again for each later signal.
    """
    _restorers.append(restore)
    try:
        yield
    finally:
        _restorers.remove(restore)


@contextmanager
def on_signal(number: int, callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` in the running loop when the signal arrives; its earlier handler does not run.

    A signal that the parent process set to be ignored, as `nohup` does, stays ignored. Outside the main thread
    nothing is installed, since only the main thread receives signals.
    """
    loop = asyncio.get_running_loop()
    old_handler = signal.getsignal(number)
    if old_handler is signal.SIG_IGN:
        yield
        return
    queued_signals: list[int] = []

    # Not loop.add_signal_handler: its callback waits for the loop, so nothing would end a loop that is blocked.
    def handle_signal(*_: object) -> None:
        if len(queued_signals) == MAX_QUEUED_SIGNALS:
            loop.set_exception_handler(lambda *_: None)  # a task that is cut off must print no error
            apply_default_action(number)
        queued_signals.append(number)
        # Unlike call_soon, this wakes a loop that waits for its sockets.
        loop.call_soon_threadsafe(run_callback)

    def run_callback() -> None:
        queued_signals.pop()
        callback()

    try:
        signal.signal(number, handle_signal)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, old_handler or signal.SIG_DFL)


def ignore_signal() -> None:
    """Do nothing: the foreground process receives the signal too."""


def apply_default_action(number: int) -> None:
    """Apply the default action of a signal. Raises KeyboardInterrupt for SIGINT."""
    if _restoring_signals:
        # With an interrupt every millisecond, later ones broke off the clean-up: bracketed paste stayed on in 7 of 13
        # runs.
        return
    _restoring_signals.append(number)
    try:
        for restore in _restorers:
            restore()
    finally:
        _restoring_signals.clear()
    if number == signal.SIGINT:
        signal.set_wakeup_fd(-1)  # Python would print an error for each signal after the loop has closed it
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


async def run_until_terminated(coroutine: Coroutine[Any, Any, int]) -> int:
    """Await `coroutine`, and cancel it when the process receives SIGTERM or SIGHUP.

    Returns the exit code of `coroutine`, or 128 + the number of the signal.
    """
    task = asyncio.ensure_future(coroutine)
    received: list[int] = []

    def cancel(number: int) -> None:
        if not received:
            task.cancel()
        received.append(number)

    with ExitStack() as handlers:
        for number in TERMINATION_SIGNALS:
            handlers.enter_context(on_signal(number, partial(cancel, number)))
        try:
            return await task
        except asyncio.CancelledError:
            if not received:
                # A second SIGTERM must not break off the storing of what has arrived.
                raise
            return SIGNAL_EXIT_BASE + received[0]

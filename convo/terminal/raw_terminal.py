"""Terminal input without echo, one key at a time.

Ctrl-C and Ctrl-Z keep their meaning. The previous mode is restored on exit.
"""

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

ECHO_FLAGS = termios.ECHO | termios.ICANON
NEWLINE_FLAGS = termios.ICRNL | termios.INLCR | termios.IGNCR

KEY_READ_BYTES = 1024
"""Bytes of one read."""


@contextmanager
def disable_echo(fd: int) -> Iterator[None]:
    """Turn off echo and line buffering until the context exits; Ctrl-C and Ctrl-Z keep their meaning."""
    try:
        before = termios.tcgetattr(fd)
    except termios.error:
        yield
        return
    now = termios.tcgetattr(fd)
    now[0] &= ~NEWLINE_FLAGS
    now[3] &= ~ECHO_FLAGS
    now[6][termios.VMIN] = 1
    termios.tcsetattr(fd, termios.TCSANOW, now)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(fd, termios.TCSANOW, before)


@contextmanager
def on_key(keys: bytes, callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` in the running loop when one of `keys` is pressed, until the context exits.

    Does nothing where stdin is no terminal, or where the process is in the background.
    """
    terminal = sys.stdin.fileno()
    if not os.isatty(terminal) or os.tcgetpgrp(terminal) != os.getpgrp():
        yield
        return
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        typed = os.read(terminal, KEY_READ_BYTES)
        if not typed:
            loop.remove_reader(terminal)
        if any(key in keys for key in typed):
            callback()

    with disable_echo(terminal):
        loop.add_reader(terminal, pressed)
        try:
            yield
        finally:
            loop.remove_reader(terminal)

"""A terminal that shows nothing of what is typed and hands it on key by key.

So an answer can come, or a screen be painted over, without letters of somebody's next thought in between.
Ctrl-C and Ctrl-Z stay what they are.
"""

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

UNECHOED = termios.ECHO | termios.ICANON
AS_TYPED = termios.ICRNL | termios.INLCR | termios.IGNCR

AT_ONCE = 1024
"""Bytes of one read."""


@contextmanager
def unechoed(terminal: int) -> Iterator[None]:
    """Show nothing of what is typed, and hand it on as it is typed; Ctrl-C and Ctrl-Z stay what they are."""
    try:
        before = termios.tcgetattr(terminal)
    except termios.error:
        yield
        return
    now = termios.tcgetattr(terminal)
    now[0] &= ~AS_TYPED
    now[3] &= ~UNECHOED
    now[6][termios.VMIN] = 1
    termios.tcsetattr(terminal, termios.TCSANOW, now)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(terminal, termios.TCSANOW, before)


@contextmanager
def on_key(keys: bytes, act: Callable[[], None]) -> Iterator[None]:
    """Let any of `keys` do `act` in the running loop, as long as this is open; nothing where nobody can press one."""
    terminal = sys.stdin.fileno()
    if not os.isatty(terminal) or os.tcgetpgrp(terminal) != os.getpgrp():
        yield
        return
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        typed = os.read(terminal, AT_ONCE)
        if not typed:
            loop.remove_reader(terminal)
        if any(key in keys for key in typed):
            act()

    with unechoed(terminal):
        loop.add_reader(terminal, pressed)
        try:
            yield
        finally:
            loop.remove_reader(terminal)

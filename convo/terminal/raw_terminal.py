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

ESCAPE_TIMEOUT_S = 0.1
"""Seconds after which an Esc is the key itself and not the start of an escape sequence."""

KEY_READ_BYTES = 1024
"""Bytes of one read."""


@contextmanager
def disable_echo(fd: int) -> Iterator[None]:
    """Turn off echo and line buffering until the context exits; Ctrl-C and Ctrl-Z keep their meaning."""
    try:
        old_mode = termios.tcgetattr(fd)
    except termios.error:
        yield
        return
    mode = termios.tcgetattr(fd)
    # Enter stays Ctrl-M: translated to Ctrl-J it would be a line break in a draft, and not send it.
    mode[0] &= ~NEWLINE_FLAGS
    mode[3] &= ~ECHO_FLAGS
    mode[6][termios.VMIN] = 1
    termios.tcsetattr(fd, termios.TCSANOW, mode)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(fd, termios.TCSANOW, old_mode)


RESTORE_SEQUENCES = b"\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m"
"""Bracketed paste off, automatic wrapping on, cursor shown, no style."""


def make_terminal_restorer(input_fd: int, output_fd: int) -> Callable[[], None]:
    """Return a function that sets the terminal to its present mode again, for a signal handler."""
    try:
        old_mode = termios.tcgetattr(input_fd)
    except termios.error:
        old_mode = None

    def restore() -> None:
        with suppress(OSError, termios.error):  # the terminal may be gone
            os.write(output_fd, RESTORE_SEQUENCES)
            if old_mode:
                termios.tcsetattr(input_fd, termios.TCSANOW, old_mode)

    return restore


def read_pending_input(fd: int) -> bytes:
    """Read the bytes that a terminal has received, also those of a line without its end; b"" if there are none.

    Reads nothing where the process is in the background.
    """
    try:
        # A process in the background that changes the terminal's mode is stopped by SIGTTOU.
        if os.tcgetpgrp(fd) != os.getpgrp():
            return b""
        old_mode = termios.tcgetattr(fd)
        mode = termios.tcgetattr(fd)
        mode[3] &= ~termios.ICANON
        mode[6][termios.VMIN] = mode[6][termios.VTIME] = 0
        termios.tcsetattr(fd, termios.TCSANOW, mode)
        try:
            return b"".join(iter(lambda: os.read(fd, KEY_READ_BYTES), b""))
        finally:
            termios.tcsetattr(fd, termios.TCSANOW, old_mode)
    except (termios.error, OSError):  # the terminal may be gone, or belong to another job
        return b""


@contextmanager
def on_key(keys: bytes, callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` in the running loop when one of `keys` is pressed, until the context exits.

    Does nothing where stdin is no terminal, or where the process is in the background.
    """
    fd = sys.stdin.fileno()
    if not os.isatty(fd) or os.tcgetpgrp(fd) != os.getpgrp():
        yield
        return
    loop = asyncio.get_running_loop()

    def read_keys() -> None:
        pressed_keys = os.read(fd, KEY_READ_BYTES)
        if not pressed_keys:
            # A terminal that hung up is readable for ever: the loop would call this function again at once.
            loop.remove_reader(fd)
        if any(key in keys for key in pressed_keys):
            callback()

    with disable_echo(fd):
        loop.add_reader(fd, read_keys)
        try:
            yield
        finally:
            loop.remove_reader(fd)

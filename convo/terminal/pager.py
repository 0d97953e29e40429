"""Paging of output that is taller than the terminal: $PAGER, else less.

Nothing is paged in a pipe, with TERM=dumb, or where no key can be pressed. Without a pager the lines are printed.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

from convo.terminal.terminal import LINK_SEQUENCE, count_rows

LESS_COMMAND = ("less",)
LESS_FLAGS = "FRX"
"""As git sets it: quit if the text fits, show colors, keep the screen."""

NO_PAGER_VALUES = ("", "cat")


def print_paged(text: str, environ: Mapping[str, str] = os.environ) -> None:
    """Print `text` on stdout, through a pager if it is taller than the terminal."""
    if command := find_pager(text, sys.stdout, environ):
        # Only the pager handles Ctrl-C; it would inherit SIG_IGN.
        old_handler = signal.signal(signal.SIGINT, lambda number, frame: None)
        try:
            if run_pager(text, command, sys.stdout, environ):
                return
        finally:
            signal.signal(signal.SIGINT, old_handler)
    sys.stdout.write(text)


def find_pager(text: str, out: TextIO, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the command of the pager for `text`; () if it fits on the terminal, or nothing is to be paged."""
    return _get_pager_command(environ) if _is_interactive(out, environ) and _is_too_tall(text) else ()


def _get_pager_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the pager command with its arguments; empty if nothing is to be paged."""
    value = environ.get("PAGER")
    if value is None:
        return LESS_COMMAND
    try:
        return () if value.strip() in NO_PAGER_VALUES else tuple(shlex.split(value))
    except ValueError:  # an unclosed quote
        return LESS_COMMAND


def _is_too_tall(text: str) -> bool:
    """Whether the text and the prompt after it are taller than the terminal."""
    columns, rows = shutil.get_terminal_size()
    return count_rows(text.rstrip("\n").split("\n"), columns) >= rows


def _is_interactive(out: TextIO, environ: Mapping[str, str]) -> bool:
    return out.isatty() and sys.stdin.isatty() and environ.get("TERM") != "dumb"


def run_pager(text: str, command: tuple[str, ...], out: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Run the pager. Returns False if it could not be started; closing it early is no error."""
    out.flush()
    try:
        process = _start_pager(command, out, environ)
    except OSError:
        return False
    with suppress(BrokenPipeError):
        process.communicate(LINK_SEQUENCE.sub("", text))  # not every pager shows links
    return True


def _start_pager(command: tuple[str, ...], out: TextIO, environ: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603  the user's own PAGER
        command,
        stdin=subprocess.PIPE,
        stdout=out,
        encoding=out.encoding,
        errors=out.errors,
        env={"LESS": LESS_FLAGS, **environ},
    )

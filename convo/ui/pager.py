"""What is taller than the terminal goes through a pager; nothing else does.

PAGER says which, as it does for git and man: with words behind it, or `cat` for none. Without it less
is taken, which leaves at once what fits and shows colours. Nothing is paged in a pipe, on TERM=dumb, or
where nobody could press a key. Where there is no pager the lines are simply printed.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

from convo.ui.medium import width

LESS = ("less",)
LESS_FLAGS = "FRX"
"""Leave what fits, show colours, keep the screen as it was; as git has it."""

NONE = ("", "cat")

UNSEEN = re.compile(r"\x1b\[[\d;]*m")


def show(text: str, environ: Mapping[str, str] = os.environ) -> None:
    """Print `text` on stdout, through a pager where it is taller than the terminal."""
    command = pager(environ) if _is_watched(environ) and taller(text, *shutil.get_terminal_size()) else ()
    if not command or not _paged(text, command, sys.stdout, environ):
        sys.stdout.write(text)


def pager(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The words of the command that PAGER names; none where nothing is to be paged."""
    said = environ.get("PAGER")
    if said is None:
        return LESS
    try:
        return () if said.strip() in NONE else tuple(shlex.split(said))
    except ValueError:  # a quote that is never closed
        return LESS


def taller(text: str, columns: int, rows: int) -> bool:
    """Whether `text` and the prompt behind it take more than `rows` lines of `columns`."""
    lines = text.rstrip("\n").split("\n")
    return sum(max(1, -(-width(UNSEEN.sub("", line)) // max(1, columns))) for line in lines) >= rows


def _is_watched(environ: Mapping[str, str]) -> bool:
    return sys.stdout.isatty() and sys.stdin.isatty() and environ.get("TERM") != "dumb"


def _paged(text: str, command: tuple[str, ...], out: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether there was such a pager; whoever leaves it early has read enough."""
    out.flush()
    try:
        process = _started(command, out, environ)
    except OSError:
        return False
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's own
    try:
        with suppress(BrokenPipeError):
            process.communicate(text)
    finally:
        signal.signal(signal.SIGINT, before)
    return True


def _started(command: tuple[str, ...], out: TextIO, environ: Mapping[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603  the person's own PAGER
        command,
        stdin=subprocess.PIPE,
        encoding=out.encoding,
        errors=out.errors,
        env={"LESS": LESS_FLAGS, **environ},
    )

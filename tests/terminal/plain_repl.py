"""`convo chat` with plain line editing, in this process: for tests that press no key but Enter.

    run_repl("-m", "scripted/echo", lines=["hello", "/usage"])     # a `CommandResult`; Ctrl-D follows the last line

`tests.terminal.pty_session` starts a process at a terminal, with the line editor.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from threading import Thread
from typing import IO, Any
from unittest.mock import patch

from convo.cli.app import run_command_line
from tests.command_runner import CommandResult, text_stream, written_text

END_OF_INPUT = "\x04"

PLAIN = {"CONVO_EDITING": "plain", "TERM": "xterm"}


def run_repl(*argv: str, lines: Sequence[str] = (), terminal: bool = False) -> CommandResult:
    """Run `convo chat ARGV` with `lines` typed at a terminal.

    terminal:  whether stderr is a terminal too, and not a file
    """
    out, err = text_stream(), text_stream()
    with ExitStack() as stack:
        keyboard, stdin = stack.enter_context(_open_terminal("r"))
        os.write(keyboard, ("".join(f"{line}\n" for line in lines) + END_OF_INPUT).encode())
        stack.enter_context(patch.object(sys, "stdin", stdin))
        stack.enter_context(patch.dict(os.environ, PLAIN))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(stack.enter_context(_terminal_copied_to(err)) if terminal else err))
        code = run_command_line(["chat", *argv])
    return CommandResult(code, written_text(out), written_text(err))


@contextmanager
def _terminal_copied_to(copy: IO[Any]) -> Iterator[IO[Any]]:
    """Open a terminal; `copy` has all of its output after the block."""
    with _open_terminal("w") as (screen, terminal):
        reader = Thread(target=lambda: copy.write(b"".join(iter(lambda: _read(screen), b"")).decode()))
        reader.start()
        try:
            yield terminal
        finally:
            terminal.close()  # ends the reader
            reader.join()


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 65_536)
    except OSError:  # Linux: EIO after the terminal is closed
        return b""


@contextmanager
def _open_terminal(mode: str) -> Iterator[tuple[int, IO[Any]]]:
    """Open a terminal without echo and without conversion of line ends; yields its other end, and itself."""
    import termios  # not on Windows

    other_end, descriptor = os.openpty()
    attributes = termios.tcgetattr(descriptor)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)
    try:
        with open(descriptor, mode, encoding="utf-8") as terminal:
            yield other_end, terminal
    finally:
        os.close(other_end)

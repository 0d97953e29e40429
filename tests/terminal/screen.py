"""The screen of a running command, cell by cell, in a terminal emulator.

    with open_screen("chat", *ECHO, columns=40) as screen:
        screen.type_keys("hello\r")
        screen.wait_for_prompt("session hello")    # waits until this is shown and the prompt is empty
        screen.text()                              # the screen, with times and ids masked

Waits depend on the shown screen, never on a fixed time.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyte

from tests.terminal.pty_process import end_process, spawn, wait_for_end
from tests.terminal.pty_session import TIMEOUT_S

ROWS = 30

MASKS = (
    (re.compile(r"(?<=resp_)[0-9a-f]+"), lambda match: "0" * len(match[0])),
    (re.compile(r"(?<=0 ││ {10})[0-9a-f]+(?= )"), lambda match: "0" * len(match[0])),  # continued in a panel
    (re.compile(r"\d+\.\d(?= s )"), lambda match: "0.0".rjust(len(match[0]))),
    (re.compile(r"(?<=ses_)[0-9a-f]+"), lambda match: "0" * len(match[0])),
    (re.compile(r"\d{4}-\d\d-\d\d"), lambda match: "2026-01-01"),
    (re.compile(r"(?<=\d\d:\d\d) +\d+\.\d(?= )"), lambda match: "0.0".rjust(len(match[0]))),
    (re.compile(r"\d\d:\d\d"), lambda match: "00:00"),
)
"""Patterns of text that differs between runs, and a replacement of the same width."""

WIDE_CELL = "\0"
"""The second cell of a wide character."""


class TerminalScreen:
    """The screen of one running command."""

    def __init__(self, child: Any, columns: int) -> None:
        self.child, self.screen = child, pyte.Screen(columns, ROWS)
        self.raw = ""
        self._stream = pyte.Stream(self.screen)

    def type_keys(self, keys: str) -> None:
        """Send `keys`, all at once."""
        self.child.send(keys)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Read output until `condition` is true. Raises AssertionError with the screen on a timeout or at the end."""
        import pexpect

        while not condition():
            try:
                piece = self.child.read_nonblocking(65_536, TIMEOUT_S)
            except (pexpect.TIMEOUT, pexpect.EOF) as error:
                raise AssertionError(f"{error}\n{self.text()}") from error
            self._feed(piece)

    def wait_for_text(self, text: str) -> None:
        """Wait until `text` is shown, perhaps wrapped, and everything is drawn."""
        self.wait_until(lambda: not self.screen.cursor.hidden and self._contains(text))

    def wait_for_prompt(self, text: str = "") -> None:
        """Wait until `text` is shown, perhaps wrapped, and the prompt is empty."""
        self.wait_until(lambda: self._has_prompt() and self._contains(text))

    def clear(self) -> None:
        """Clear the screen except for the prompt."""
        self.type_keys("\x0c")
        self.wait_until(lambda: self._has_prompt() and self.screen.cursor.y == 0)

    def wait_for_exit(self) -> int:
        """Read the output until the command ends; returns its exit code."""
        import pexpect

        self.child.expect(pexpect.EOF)
        self._feed(self.child.before)
        return wait_for_end(self.child)

    def resize(self, columns: int) -> None:
        """Change the width while the command is stopped and all that it drew for the old width has been read."""
        import pexpect

        os.kill(self.child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED)
        with suppress(pexpect.TIMEOUT):
            while True:
                self._feed(self.child.read_nonblocking(65_536, 0))
        self.child.setwinsize(ROWS, columns)
        self.screen.resize(ROWS, columns)
        os.kill(self.child.pid, signal.SIGCONT)

    def text(self) -> str:
        """The shown lines with masked times and ids, without blanks at their ends."""
        width, cells = self.screen.columns, self._cells()
        for pattern, replacement in MASKS:
            cells = pattern.sub(replacement, cells)
        lines = [cells[start : start + width].replace(WIDE_CELL, "").rstrip() for start in range(0, len(cells), width)]
        return "\n".join(lines).rstrip()

    def _feed(self, piece: str) -> None:
        self.raw += piece
        self._stream.feed(piece)

    def _has_prompt(self) -> bool:
        cursor = self.screen.cursor
        row = self.screen.buffer[cursor.y]
        return not cursor.hidden and cursor.x == 2 and [row[x].data for x in range(4)] == [">", " ", " ", " "]

    def _contains(self, text: str) -> bool:
        """Whether `text` is shown, in one line, wrapped at the edge, or in several lines."""
        cells = self._cells().replace(WIDE_CELL, "")
        return text in cells or text in " ".join(cells.split())

    def _cells(self) -> str:
        """All cells in order; a cell with several characters counts as its first one."""
        buffer, width = self.screen.buffer, self.screen.columns
        return "".join(buffer[y][x].data[:1] or WIDE_CELL for y in range(ROWS) for x in range(width))


@contextmanager
def open_screen(*argv: str, columns: int = 80, env: dict[str, str] | None = None) -> Iterator[TerminalScreen]:
    """The screen of one command in a terminal of `columns`."""
    environ = {**os.environ, "TERM": "xterm", "SHELL": "/bin/sh", "PAGER": "cat", **(env or {})}
    environ.pop("COLUMNS", None)
    child = spawn(*argv, env=environ, dimensions=(ROWS, columns), encoding="utf-8", timeout=TIMEOUT_S)
    try:
        yield TerminalScreen(child, columns)
    finally:
        end_process(child)

"""The real command in a real terminal, and a person who types.

    with at_terminal("chat", *ECHO) as person:
        shown = person.says("hello")        # types it, presses Enter, waits for the next prompt

The output of the terminal is returned as text, without control sequences.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cli.chat_commands import scripted_flags
from tests.terminal.pty_process import spawn

DRAWN = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|.\x08")
"""Control sequences, and a character before a backspace: no text."""

PROMPT = {"xterm": r">(?:\x08|\x1b\[0m\r+\n[^\r\n]*\x1b\[\d+D\x1b\[A)\x1b\[2C", "dumb": r"(?:^|\n)> $"}
"""The prompt as it is drawn by TERM: with the status line below it, or plain."""

TIMEOUT_S = 30

LONG = {"text": "one two three four five six seven eight nine ten " * 10}


def unwrapped(shown: str) -> str:
    """Text of a screen without its line breaks and indents."""
    return " ".join(shown.split())


def slow_model_flags(*after: dict[str, Any]) -> tuple[str, str]:
    """The flags of a model whose first answer takes half a minute; `after` are its other replies."""
    return scripted_flags(LONG, *after, chunk=4, delay_s=0.25)


class Person:
    """Types at one running command.

    shown:  the output since the previous wait
    """

    def __init__(self, child: Any, prompt: str) -> None:
        self.child, self.shown = child, ""
        self._prompt = re.compile(prompt)

    def sees(self, words: str) -> str:
        """Wait until exactly `words` are shown; returns the output up to them."""
        self.child.expect_exact(words)
        return self._shown(self.child.before + words)

    def is_asked(self) -> str:
        """Wait for the next prompt; returns the output before it."""
        self.child.expect(self._prompt)
        return self._shown(self.child.before)

    def types(self, keys: str) -> None:
        self.child.send(keys)

    def pastes(self, text: str) -> None:
        """Paste `text` as a terminal does with bracketed paste."""
        self.child.send(f"\x1b[200~{text}\x1b[201~")

    def says(self, line: str) -> str:
        """Type `line`, press Enter and wait for the next prompt; returns the output before it."""
        self.types(f"{line}\r")
        return self.is_asked()

    def presses(self, key: str) -> None:
        """Press Ctrl and `key`."""
        self.child.sendcontrol(key)

    def leaves(self) -> int:
        """Press Ctrl-D; returns the exit code."""
        self.presses("d")
        return self.ends()

    def ends(self) -> int:
        """Wait for the command to end; returns its exit code, or minus the signal that ended it."""
        import pexpect

        self.child.expect(pexpect.EOF)
        self._shown(self.child.before)
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus)

    def _shown(self, raw: str) -> str:
        self.shown = DRAWN.sub("", raw).replace("\r", "")
        return self.shown


@contextmanager
def at_terminal(
    *argv: str, columns: int = 80, term: str = "xterm", env: dict[str, str] | None = None, command: str = ""
) -> Iterator[Person]:
    """A person at a terminal of `columns`, in which one command runs.

    command:  a shell command to run instead of `argv`, in which "convo" is the real one
    """
    import pexpect

    environ = {**os.environ, "TERM": term, **(env or {})}
    environ.pop("COLUMNS", None)
    more: Any = {"dimensions": (24, columns), "encoding": "utf-8", "env": environ, "timeout": TIMEOUT_S}
    if command:
        words = ["-c", f'convo() {{ "{sys.executable}" -m convo "$@"; }}; {command}']
        child = pexpect.spawn("/bin/sh", words, **more)
    else:
        child = spawn(*argv, **more)
    try:
        yield Person(child, PROMPT[term])
    finally:
        child.close(force=True)

"""The real command in a real terminal, controlled by a test.

    with at_terminal("chat", *ECHO) as terminal:
        output = terminal.send_line("hello")    # types it, presses Enter, waits for the next prompt

The output of the terminal is returned as text, without control sequences.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cli.chat_commands import scripted_flags
from tests.terminal.pty_process import end_process, spawn, wait_for_end

CONTROL_SEQUENCES = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|.\x08")
"""Control sequences, and a character before a backspace: no text."""

FOOTER = re.compile(r"(?:\x1bD|\x1b\[A)*\x1b7.*?\x1b8", re.DOTALL)
"""The rows below an answer, as they are drawn between two parts of it."""

WAITING_LINE = re.compile(r"[^\n]* to stop[^\n]*\r\x1b\[(?:2K|J)")
"""The line that is shown during a wait, up to the sequence that erases it; on a busy machine any answer has one."""

PROMPT = {"xterm": r">(?:\x08|\x1b\[0m\r+\n[^\r\n]*\x1b\[\d+D\x1b\[A)\x1b\[2C", "dumb": r"(?:^|\n)> $"}
"""The prompt as it is drawn by TERM: with the status line below it, or plain."""

TIMEOUT_S = 30

LONG_REPLY = {"text": "one two three four five six seven eight nine ten " * 10}


def unwrap_lines(text: str) -> str:
    """Text of a screen without its line breaks and indents."""
    return " ".join(text.split())


def slow_model_flags(*after: dict[str, Any]) -> tuple[str, str]:
    """The flags of a model whose first answer takes half a minute; `after` are its other replies."""
    return scripted_flags(LONG_REPLY, *after, chunk=4, delay_s=0.25)


class PtySession:
    """One running command at a terminal.

    output:  the output since the previous wait
    """

    def __init__(self, child: Any, prompt: str) -> None:
        self.child, self.output = child, ""
        self._prompt = re.compile(prompt)

    def wait_for_text(self, text: str) -> str:
        """Wait until exactly `text` is shown; returns the output up to its end."""
        self.child.expect_exact(text)
        return self._update_output(self.child.before + text)

    def wait_for_prompt(self) -> str:
        """Wait for the next prompt; returns the output before it."""
        self.child.expect(self._prompt)
        return self._update_output(self.child.before)

    def type_keys(self, keys: str) -> None:
        self.child.send(keys)

    def paste(self, text: str) -> None:
        """Paste `text` as a terminal does with bracketed paste."""
        self.child.send(f"\x1b[200~{text}\x1b[201~")

    def send_line(self, line: str) -> str:
        """Type `line`, press Enter and wait for the next prompt; returns the output before it."""
        self.type_keys(f"{line}\r")
        return self.wait_for_prompt()

    def press_ctrl(self, key: str) -> None:
        """Press Ctrl and `key`."""
        self.child.sendcontrol(key)

    def end_session(self) -> int:
        """Press Ctrl-D; returns the exit code."""
        self.press_ctrl("d")
        return self.wait_for_exit()

    def wait_for_exit(self) -> int:
        """Wait for the command to end; returns its exit code, or minus the signal that ended it."""
        import pexpect

        self.child.expect(pexpect.EOF)
        self._update_output(self.child.before)
        return wait_for_end(self.child)

    def _update_output(self, raw: str) -> str:
        self.output = CONTROL_SEQUENCES.sub("", WAITING_LINE.sub("", FOOTER.sub("", raw))).replace("\r", "")
        return self.output


@contextmanager
def at_terminal(
    *argv: str, columns: int = 80, term: str = "xterm", env: dict[str, str] | None = None, command: str = ""
) -> Iterator[PtySession]:
    """Run one command in a terminal of `columns` while the block runs.

    command:  a shell command to run instead of `argv`, in which "convo" is the real one
    """
    import pexpect

    environ = {**os.environ, "TERM": term, "PAGER": "cat", **(env or {})}
    environ.pop("COLUMNS", None)
    more: Any = {"dimensions": (24, columns), "encoding": "utf-8", "env": environ, "timeout": TIMEOUT_S}
    if command:
        arguments = ["-c", f'convo() {{ "{sys.executable}" -m convo "$@"; }}; {command}']
        child = pexpect.spawn("/bin/sh", arguments, **more)
        child.delaybeforesend = None
    else:
        child = spawn(*argv, **more)
    try:
        yield PtySession(child, PROMPT[term])
    finally:
        end_process(child)

"""Reads what a person types, one message at a time.

With an editor where the terminal can be drawn on, and with the terminal's own line editing where it
cannot: TERM=dumb, or stderr in a file, where a drawing would only be in the way.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from convo.errors import Interrupted
from convo.ui.signals import on_signal

PROMPT = "> "

NOT_DRAWN_ON = ("dumb", "unknown")
"""What TERM says of a terminal that knows no cursor."""


class Reader(Protocol):
    """Something that messages come from. Whoever made it closes it."""

    async def line(self, prompt: str = PROMPT, default: str = "") -> str:
        """The next message; empty for nothing, or for a line that was thrown away.

        default:  what stands there to be changed, where a line can be changed
        raises:  EOFError     there will be no more
                 Interrupted  Ctrl-C, and nothing was typed
        """
        ...

    def close(self) -> None: ...


def terminal_reader(history: Path, words: Sequence[str]) -> Reader:
    """A reader at this terminal.

    history:  the file that remembers what was typed
    words:    what Tab completes
    """
    if os.environ.get("TERM") in NOT_DRAWN_ON or not sys.stderr.isatty():
        return Typewriter()
    from convo.ui.editor import Editor

    return Editor(history, words)


class Typewriter:
    """Reads with the line editing that the terminal itself has."""

    async def line(self, prompt: str = PROMPT, default: str = "") -> str:
        if default:
            on_screen(f"{default}\n")
        return await typed(prompt)

    def close(self) -> None:
        """Nothing was changed at the terminal."""


async def typed(question: str) -> str:
    """The line that a person types to `question`. raises: EOFError; Interrupted  Ctrl-C"""
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[bool] = loop.create_future()

    def settle(there: bool) -> None:
        if not heard.done():
            heard.set_result(there)

    on_screen(question)
    loop.add_reader(sys.stdin.fileno(), settle, True)
    try:
        with on_signal(signal.SIGINT, lambda: settle(False)):
            there = await heard
    finally:
        loop.remove_reader(sys.stdin.fileno())
    line = sys.stdin.buffer.readline().decode(sys.stdin.encoding, "replace") if there else ""
    if not line.endswith("\n"):
        on_screen("\n")
    if not there:
        raise Interrupted("nothing was typed")
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def on_screen(words: str) -> None:
    """Show `words` where a person sees them; a file needs no prompts."""
    if sys.stderr.isatty():
        sys.stderr.write(words)
        sys.stderr.flush()

"""Reads what a person types, one message at a time.

With an editor where the terminal can be drawn on, and with the terminal's own line editing where it
cannot: TERM=dumb, or stderr in a file, where a drawing would only be in the way. Who listens to a
screen instead of looking at it sets `editing` to "plain": then nothing is drawn twice either.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from convo.errors import Interrupted
from convo.ui.completing import Suggest
from convo.ui.signals import on_signal

PROMPT = "> "

NOT_DRAWN_ON = ("dumb", "unknown")
"""What TERM says of a terminal that knows no cursor."""


VI, PLAIN = "vi", "plain"
"""Values of the setting `editing`; any other is the editor with its usual keys."""


@dataclass(frozen=True, slots=True)
class At:
    """What a prompt is made with.

    history:  the file that remembers what was typed
    words:    what Tab completes
    editing:  the setting
    bar:      the line below the prompt, for so many columns; None for no line
    """

    history: Path
    words: Suggest
    editing: str = ""
    bar: Callable[[int], str] | None = None

    @property
    def vi(self) -> bool:
        return self.editing == VI


class Reader(Protocol):
    """Something that messages come from. Whoever made it closes it.

    pasted:  the texts in the last message that were not typed
    echoes:  whether the terminal shows what is typed while an answer comes
    """

    pasted: list[str]
    echoes: bool

    async def line(self, prompt: str = PROMPT, default: str = "") -> str:
        """The next message; empty for nothing, or for a line that was thrown away.

        default:  what stands there to be changed, where a line can be changed
        raises:  EOFError     there will be no more
                 Interrupted  Ctrl-C, and nothing was typed
        """
        ...

    def listening(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """While something else is done: `stop` is called for the key that stops it, the others wait."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """While another program has the terminal."""
        ...

    def close(self) -> None: ...


def terminal_reader(at: At) -> Reader:
    """A reader at this terminal."""
    if at.editing == PLAIN or os.environ.get("TERM") in NOT_DRAWN_ON or not sys.stderr.isatty():
        return Typewriter()
    from convo.ui.editor import Editor

    return Editor(at)


class Typewriter:
    """Reads with the line editing that the terminal itself has."""

    echoes = True

    def __init__(self) -> None:
        self.pasted: list[str] = []

    async def line(self, prompt: str = PROMPT, default: str = "") -> str:
        if default:
            on_screen(f"{default}\n")
        return await typed(prompt)

    def listening(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

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

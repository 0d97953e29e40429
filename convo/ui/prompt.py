"""Reads what a person types, one message at a time.

It draws on stderr, so that stdout stays the answer's. Ctrl-C throws a half-typed line away; at an
empty prompt it is handed on, and the loop decides what it means.
"""

import sys
from pathlib import Path
from typing import Protocol

LONGEST_HISTORY = 10_000


class Reader(Protocol):
    """Something that messages come from."""

    async def line(self) -> str:
        """The next message. raises: EOFError at the end, KeyboardInterrupt on Ctrl-C when empty"""
        ...


def terminal_reader(history: Path, words: list[str]) -> Reader:
    """A reader at this terminal.

    history:  the file that remembers what was typed; made 0600 when missing
    words:    what Tab completes after a slash
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.vt100 import Vt100_Output

    keys = KeyBindings()

    @keys.add("c-c")
    def stop(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    def remembered() -> History:
        try:
            history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            history.touch(mode=0o600, exist_ok=True)
        except OSError:
            return InMemoryHistory()
        return FileHistory(str(history))

    output = create_output(stdout=sys.stderr)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # a terminal that does not say where its cursor is would be warned about

    session: PromptSession[str] = PromptSession(
        history=remembered(),
        key_bindings=keys,
        completer=WordCompleter(words, sentence=True),
        complete_while_typing=False,
        output=output,
    )

    class Terminal:
        async def line(self) -> str:
            return await session.prompt_async("> ")

    return Terminal()

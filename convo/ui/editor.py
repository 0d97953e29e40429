"""A line editor with a history and completion, for terminals that can be drawn on.

It draws on stderr, so that stdout stays the answer's. A paste comes as one message: the terminal
brackets it, and its line breaks are text. The brackets stay on while an answer comes, because
people paste their next message then. The module takes long to load and is loaded for a terminal alone.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from convo.config import private
from convo.errors import Interrupted, StoreFault
from convo.ui.prompt import PROMPT


class Editor:
    """Reads messages; see `convo.ui.prompt.Reader`."""

    def __init__(self, history: Path, words: Sequence[str]) -> None:
        """Prepare a reader.

        history:  the file that remembers what was typed; made 0600 when missing
        words:    what Tab completes at the beginning of a line
        """
        self._screen = screen()
        self._session: PromptSession[str] = PromptSession(
            history=remembered(history),
            key_bindings=keys(),
            completer=WordCompleter(list(words), sentence=True),
            complete_while_typing=False,
            output=self._screen,
        )

    async def line(self, prompt: str = PROMPT, default: str = "") -> str:
        return as_characters(await self._session.prompt_async(prompt, default=default))

    def close(self) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._screen.leave_brackets()


class Screen(Vt100_Output):
    """A terminal that goes on bracketing what is pasted when the prompt is gone."""

    def disable_bracketed_paste(self) -> None:
        """Not between two prompts."""

    def leave_brackets(self) -> None:
        super().disable_bracketed_paste()
        self.flush()


def screen() -> Screen:
    made = Screen.from_pty(
        sys.stderr, term=os.environ.get("TERM"), default_color_depth=ColorDepth.from_env(), enable_bell=False
    )
    assert isinstance(made, Screen)
    made.enable_cpr = False  # a terminal that does not say where its cursor is would be warned about
    return made


def keys() -> KeyBindings:
    """Ctrl-C throws away what was typed; where nothing was, it is handed on."""
    bindings = KeyBindings()

    @bindings.add("c-c")
    @bindings.add("<sigint>")
    def stop(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.app.exit(result="")
        else:
            event.app.exit(exception=Interrupted("nothing was typed"))

    return bindings


class Remembered(FileHistory):
    """To remember is a convenience: a disk that is full costs the memory and nothing else."""

    def load_history_strings(self) -> Iterable[str]:
        with suppress(OSError):
            return list(super().load_history_strings())
        return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def remembered(place: Path) -> History:
    """What was typed before, in a file of this user's alone; in memory where that cannot be had."""
    try:
        private(place.parent)
        place.touch(mode=0o600, exist_ok=True)
    except (OSError, StoreFault):
        return InMemoryHistory()
    return Remembered(str(place))


def as_characters(line: str) -> str:
    """`line` with a replacement character for every byte that was none."""
    return line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

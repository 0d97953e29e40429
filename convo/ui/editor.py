"""A line editor with a history, completion and a bar below, for terminals that can be drawn on.

It draws on stderr, so that stdout stays the answer's. While an answer comes nothing is echoed into
it: Esc stops it, and whatever else is typed stands at the next prompt. The terminal goes on
bracketing what is pasted meanwhile. The module takes long to load and is loaded for a terminal alone.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from prompt_toolkit import PromptSession
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import is_done
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from convo.ui.editor_history import remembered
from convo.ui.editor_input import Keyboard
from convo.ui.editor_keys import keys
from convo.ui.editor_words import Completing
from convo.ui.prompt import PROMPT, At
from convo.ui.unechoed import unechoed

ALONE_S = 0.1
"""Seconds after which an Esc is the key itself and not the beginning of another key's sequence."""

MENU = 8
"""Rows that a menu takes at most, with the line that it belongs to."""

STYLE = Style.from_dict({"bar": "dim"})


class Editor:
    """Reads messages; see `convo.ui.prompt.Reader`."""

    echoes = False

    def __init__(self, at: At) -> None:
        self.pasted: list[str] = []
        self._screen, self._input = screen(), Keyboard(sys.stdin)
        self._at = at
        self._session = Session(
            history=remembered(at.history),
            key_bindings=keys(self.pasted.append),
            completer=Completing(at.words),
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            editing_mode=EditingMode.VI if at.vi else EditingMode.EMACS,
            enable_suspend=True,
            tempfile_suffix=".md",
            style=STYLE,
            input=self._input,
            output=self._screen,
        )
        self._session.app.ttimeoutlen = ALONE_S
        if at.bar:
            self._session.app.layout = self._with_bar(at.bar)

    async def line(self, prompt: str = PROMPT, default: str = "") -> str:
        self.pasted.clear()
        return as_characters(await self._session.prompt_async(prompt, default=default))

    def close(self) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._screen.leave_brackets()

    @contextmanager
    def listening(self, stop: Callable[[], None]) -> Iterator[None]:
        """Let Esc call `stop`, and keep what else is typed for the next prompt, as long as this is open."""
        loop, flush = asyncio.get_running_loop(), Later()

        def typed(presses: Sequence[KeyPress], alone: bool) -> None:
            if alone and presses and presses[-1].key == Keys.Escape:
                stop()
            else:
                store_typeahead(self._input, list(presses))

        def ready() -> None:
            flush.drop()
            typed(self._input.read_keys(), alone=False)
            flush.timer = loop.call_later(ALONE_S, lambda: typed(self._input.flush_keys(), alone=True))

        with unechoed(self._input.fileno()), self._input.attach(ready):
            try:
                yield
            finally:
                flush.drop()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Give the terminal to another program as long as this is open."""
        with self._input.detach(), self._input.cooked_mode():
            self._screen.leave_brackets()
            yield

    def _with_bar(self, bar: Callable[[int], str]) -> Layout:
        """The layout with one more line; the library's own waits for terminals to say where their cursor is."""
        app = self._session.app

        def words() -> str:
            return bar(app.output.get_size().columns)

        line = Window(FormattedTextControl(words, style="class:bar"), height=1, dont_extend_height=True)
        whole = HSplit([app.layout.container, ConditionalContainer(line, ~is_done)])
        return Layout(whole, focused_element=self._session.default_buffer)


class Session(PromptSession[str]):
    """A prompt that makes room for a menu when there is one to show, and as much as it takes."""

    @property
    def reserve_space_for_menu(self) -> int:
        state = self.default_buffer.complete_state
        there = len(state.completions) if state else 0
        return min(there + 1, MENU) if there > 1 else 0

    @reserve_space_for_menu.setter
    def reserve_space_for_menu(self, rows: int) -> None:
        """It follows from what there is to show."""


class Later:
    """Something that is to happen soon, unless something else happens first."""

    timer: asyncio.TimerHandle | None = None

    def drop(self) -> None:
        if self.timer:
            self.timer.cancel()


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


def as_characters(line: str) -> str:
    """`line` with a replacement character for every byte that was none."""
    return line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

"""A line that shows on a terminal that work goes on: a spinner, the elapsed time and the key that stops it.

It appears after a short delay, and again after each pause in the output. rich, which draws it, is imported then, in a
thread: an answer that begins at once does not need it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO

from convo.terminal.terminal import DUMB_TERMINALS, DisplayOptions, detect_display, escape_control_chars, truncate_text
from convo.terminal.theme import detect_reflow, make_rich_theme

if TYPE_CHECKING:
    from rich.console import Console
    from rich.spinner import Spinner


SHOW_DELAY_S = 0.4
"""Seconds without output after which the line appears."""

FRAME_INTERVAL_S = 0.1
MAX_REASONING_ROWS = 6
"""Rows of reasoning that are shown below the line while it arrives: the last ones."""

REASONING_INDENT = "  "
MAX_UNDRAWN_CHARS = 4_000
"""Characters of reasoning kept between two frames, from the end."""

ERASE_LINE = "\r\x1b[2K"
ERASE_BELOW = "\x1b[J"
"""Erases everything from the cursor to the end of the screen."""

INDEX, CURSOR_UP = "\x1bD", "\x1b[A"
"""Move the cursor down, where the last row scrolls, and up; the column stays."""

SAVE_CURSOR, RESTORE_CURSOR = "\x1b7", "\x1b8"


MAX_FOOTER_ROWS = 6
"""Rows below an answer: the elapsed time, the queued messages and the draft of the next one."""

MIN_STATUS_S = 1
"""Seconds before an answer shows how long it takes."""


class Footer:
    """Dim rows below the cursor while an answer streams.

    The cursor must be left of the last column: there a terminal remembers a line break, and drawing would lose it.

    render:            returns the rows for a number of columns
    status:            a row above them; "" for none
    is_active:         whether the rows may be drawn
    is_shown:          whether some are on the screen
    has_known_cursor:  whether the answer was drawn last, so that the cursor is at its end
    """

    def __init__(self, display: DisplayOptions) -> None:
        self.render: Callable[[int], list[str]] = lambda _: []
        self.status = ""
        self.is_active = self.is_shown = self.has_known_cursor = False
        self._display = display

    def erase(self) -> str:
        """Return the output that erases the rows, with the cursor above them."""
        was_shown, self.is_shown = self.is_shown, False
        return ERASE_BELOW if was_shown else ""

    def draw(self) -> str:
        """Return the output that draws the rows over those before, and leaves the cursor where it is."""
        size = get_terminal_size()
        # The last column stays free: some terminals wrap there.
        columns, max_rows = size.columns - 1, max(0, min(MAX_FOOTER_ROWS, size.lines - 3))
        rows = [*([self.status] if self.status else []), *self.render(columns)][:max_rows] if self.is_active else []
        was_shown, self.is_shown = self.is_shown, bool(rows)
        if not rows and not was_shown:
            return ""
        lines = [self._display.translate_box_chars(truncate_text(row, columns)) for row in rows]
        drawn = "".join(f"{INDEX}{ERASE_LINE}{self._display.apply_style(line, 'dim')}" for line in lines)
        # Down and up first: in the last row this scrolls, which must happen before the position is saved.
        scrolling = INDEX * len(rows) + CURSOR_UP * len(rows)
        return f"{scrolling}{SAVE_CURSOR}{drawn}{ERASE_BELOW}{RESTORE_CURSOR}"


class WaitingLine:
    """One line at the cursor, on stderr, while nothing else is printed; call `hide` before any other output.

    The last rows of reasoning that arrives are shown below it.

    is_enabled:        whether the line is ever shown
    stop_key:          the key that stops the work
    footer:            another line below it, and below the text of an answer
    preloaded_module:  imported once the line is shown, because the output that ends it needs it; "" for none
    """

    def __init__(self, out: TextIO, err: TextIO, *, is_enabled: bool = True) -> None:
        """Prepare the line; it is shown only if both streams are terminals whose cursor can be moved."""
        is_terminal = out.isatty() and err.isatty() and os.environ.get("TERM", "dumb") not in DUMB_TERMINALS
        self.is_enabled, self.stop_key, self._stream = is_enabled and is_terminal, "Ctrl-C", err
        self.preloaded_module = ""
        self._display = detect_display(err, os.environ)
        self.footer = Footer(self._display)
        self._is_allowed: Callable[[], bool] = lambda: False
        self._is_shown, self._has_output = False, False
        self._has_reflow, self._drawn_width, self._line_width = detect_reflow(os.environ), 0, 0
        self._reasoning, self._reasoning_rows = "", list[str]()
        self._reasoning_began_at: float | None = None
        self._spinner: tuple[Console, Spinner] | None = None

    def begin_reasoning(self) -> None:
        """Start the clock of a reasoning item, and its text."""
        self._reasoning, self._reasoning_rows = "", []
        if self.is_enabled:
            self._reasoning_began_at = asyncio.get_running_loop().time()

    def add_reasoning(self, text: str) -> None:
        """Add text of a reasoning item; its end is shown until the next output."""
        if self.is_enabled and self._reasoning_began_at is None:
            self.begin_reasoning()
        self._reasoning = (self._reasoning + text)[-MAX_UNDRAWN_CHARS:]

    def end_reasoning(self) -> float | None:
        """Return the duration of the reasoning item in seconds; None if it was not measured."""
        began_at, self._reasoning_began_at = self._reasoning_began_at, None
        return None if began_at is None else asyncio.get_running_loop().time() - began_at

    def hide(self) -> None:
        """Erase the line and the footer before other output; they appear again, the line after the delay."""
        self.hide_spinner()
        self.footer.has_known_cursor = False
        if erasure := self.footer.erase():
            self._stream.write(erasure)
            self._stream.flush()

    def hide_spinner(self) -> None:
        """Erase the line before text of an answer, whose renderer draws the footer again."""
        self._has_output, self._reasoning, self._reasoning_rows = True, "", []
        if self._is_shown:
            self._is_shown = False
            self.footer.erase()
            self._stream.write(self._move_to_start() + ERASE_BELOW)
            self._stream.flush()

    def refresh_footer(self) -> None:
        """Draw the footer with its present text, if the position of the cursor is known."""
        if self._is_shown and self._reasoning_rows:
            return  # the next frame draws it below the reasoning
        if self.footer.is_active and (self._is_shown or self.footer.has_known_cursor or self._is_allowed()):
            with suppress(OSError):  # the terminal may be gone
                self._stream.write(self.footer.erase() + self.footer.draw())
                self._stream.flush()

    @asynccontextmanager
    async def show(self, label: str, *, is_allowed: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
        """Show the line, with pauses, until the context exits.

        label:       the work: "waiting"
        is_allowed:  whether the line may be drawn now, because the cursor is at the start of a line
        """
        if not self.is_enabled:
            yield
            return
        self._is_allowed, self.footer.is_active, self.footer.status = is_allowed, True, ""
        self._reasoning_began_at = None
        drawing = asyncio.create_task(self._draw_repeatedly(label, is_allowed))
        try:
            yield
        finally:
            self.footer.is_active = False
            drawing.cancel()
            with suppress(asyncio.CancelledError, OSError):  # the terminal may be gone
                await drawing
            self.hide()

    async def _draw_repeatedly(self, label: str, is_allowed: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        started_at = silent_since = loop.time()
        while True:
            await asyncio.sleep(FRAME_INTERVAL_S)
            now = loop.time()
            self._update_status(now - started_at)
            if self._has_output or not is_allowed():
                self._has_output, silent_since = False, now
            elif now - silent_since >= SHOW_DELAY_S:
                if self._spinner is None:  # output may arrive during the import
                    await asyncio.to_thread(import_module, "rich.spinner")
                    self._spinner = self._make_spinner()
                    if self.preloaded_module:
                        preloading = loop.run_in_executor(None, import_module, self.preloaded_module)
                        preloading.add_done_callback(lambda done: done.exception())  # raised by the next import
                    continue
                work = label if self._reasoning_began_at is None else "reasoning"
                self._draw(*self._spinner, self._format_progress(work, now - started_at), now)
            elif not self.footer.is_shown:
                self.refresh_footer()

    def _format_progress(self, work: str, seconds: float) -> str:
        return f"{work} {format_seconds(seconds)} · {self.stop_key} to stop"

    def _update_status(self, seconds: float) -> None:
        """Update the row below the text of an answer that is rendered."""
        has_text = self.footer.has_known_cursor and not self._is_shown and seconds >= MIN_STATUS_S
        status = self._format_progress("answering", seconds) if has_text else ""
        if status != self.footer.status:
            self.footer.status = status
            self.refresh_footer()

    def _make_spinner(self) -> "tuple[Console, Spinner]":
        from rich.console import Console
        from rich.spinner import Spinner

        frames = "dots" if self._display.has_box_chars else "line"
        theme = make_rich_theme(self._display.color_system)
        return Console(file=self._stream, highlight=False, theme=theme), Spinner(frames, style="id")

    def _draw(self, console: "Console", spinner: "Spinner", text: str, now: float) -> None:
        from rich.text import Text

        frame = spinner.render(now)
        assert isinstance(frame, Text)
        line = Text.assemble(frame, " ", (self._display.translate_box_chars(text), "dim"), no_wrap=True)
        line.truncate(console.width - 1, overflow="ellipsis")
        rows = self._wrap_reasoning(console)
        is_resized = self._is_shown and console.width != self._drawn_width
        self._stream.write(self._move_to_start() + (ERASE_BELOW if is_resized else ERASE_LINE))
        console.print(line, end="")
        for row in rows:
            self._stream.write("\r\n" + ERASE_LINE + self._display.apply_style(row, "dim"))
        self.footer.status = ""
        self._stream.write(self.footer.draw())
        if rows:
            self._stream.write(f"\x1b[{len(rows)}A\x1b[{line.cell_len + 1}G")
        self._stream.flush()
        self._is_shown, self._drawn_width, self._line_width = True, console.width, line.cell_len

    def _move_to_start(self) -> str:
        """Return the output that moves the cursor to the start of the line, also where the terminal has wrapped it."""
        columns = get_terminal_size().columns
        is_wrapped = self._is_shown and self._has_reflow and columns < self._drawn_width
        rows = self._line_width // columns if is_wrapped else 0
        return (f"\x1b[{rows}A" if rows else "") + "\r"

    def _wrap_reasoning(self, console: "Console") -> list[str]:
        """Return the last rows of the reasoning. A full row is kept, so that text does not move while more arrives."""
        from rich.text import Text

        if self._reasoning_began_at is None:
            return []
        width = max(1, console.width - len(REASONING_INDENT) - 1)
        text = " ".join(escape_control_chars(self._reasoning).split())
        *full, last = [line.plain.rstrip() for line in Text(text).wrap(console, width)] or [""]
        if full:
            self._reasoning = last + (" " if self._reasoning[-1:].isspace() else "")
        max_rows = max(0, min(MAX_REASONING_ROWS, console.height - 4))
        self._reasoning_rows = [*self._reasoning_rows, *full][-MAX_REASONING_ROWS:]
        shown = [*self._reasoning_rows, *([last] if last else [])][-max_rows:] if max_rows else []
        return [REASONING_INDENT + truncate_text(row, width) for row in shown]


def format_seconds(seconds: float) -> str:
    """Format a duration in whole seconds: "7 s", "2 min 5 s"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"

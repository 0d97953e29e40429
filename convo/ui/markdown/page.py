"""One answer on a terminal: words in, rows out, not more often than an eye can follow.

Words may come a thousand times a second, and a terminal over a network draws a few times: so
drawings are put off and made together, and the longer the answer, the more rarely.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TextIO

from convo.ui.markdown.painting import Painter
from convo.ui.markdown.reading import LARGE, Reading
from convo.ui.markdown.spans import Paper, Row, drawn

FRAME_S = 0.04
"""Seconds between two drawings."""

MARGIN = 1
"""Columns at the right that stay free: a cursor behind a full row is where no two terminals agree."""

NARROWEST = 10


class Page:
    """Shows the words of an answer as Markdown while they come.

    reading:  what is still open of it, and what it cost
    """

    def __init__(self, out: TextIO, paper: Paper, columns: Callable[[], int]) -> None:
        """Begin where the cursor is; `columns` says before each drawing how wide the terminal is."""
        self._painter, self.reading, self._columns = Painter(out), Reading(paper), columns
        self._finished: list[Row] = []
        self._often = Often(self._show)
        self._shown = 0

    def say(self, words: str) -> None:
        """Show `words`, in which control characters are spelled out."""
        self._fit()
        self._finished += self.reading.take(words)
        size = self.reading.size
        if size < LARGE or size * 4 > self._shown * 5:
            self._often.soon()

    def end(self) -> None:
        """All words of a text were said; what is said next is another one."""
        self._often.stop()
        self._fit()
        self._finished += self.reading.end()
        self._painter.show(self._drawn(self._finished), [])
        self._finished, self._shown = [], 0

    def _show(self) -> None:
        self._fit()
        self._shown = self.reading.size
        self._painter.show(self._drawn(self._finished), self._drawn(self.reading.open()))
        self._finished = []

    def _drawn(self, rows: Sequence[Row]) -> list[str]:
        return [drawn(row, self.reading.paper) for row in rows]

    def _fit(self) -> None:
        """Take the width that the terminal has now; where it changed, what was open is somewhere else."""
        width = max(NARROWEST, self._columns() - MARGIN)
        if width != self.reading.paper.width:
            self._painter.forget()
            self.reading.paper = self.reading.paper._replace(width=width)


class Often:
    """Does something soon, and not more often than once in `FRAME_S`; at once where nothing runs beside it."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act, self._last = act, 0.0
        self._gone: OSError | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """See to it that it is done. raises: OSError  what the last time came to"""
        if self._gone:
            raise self._gone
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._act()
            return
        if self._waiting is None:
            self._waiting = loop.call_at(max(loop.time(), self._last + FRAME_S), self._do)

    def stop(self) -> None:
        """Forget what was to be done."""
        if self._waiting:
            self._waiting.cancel()
            self._waiting = None

    def _do(self) -> None:
        self._waiting = None
        self._last = asyncio.get_running_loop().time()
        try:
            self._act()
        except OSError as gone:  # whoever says the next words has to hear of it
            self._gone = gone

"""Whether an answer is laid out as Markdown, and where.

Only in a terminal that can be drawn on. A pipe or a file gets the words as the model said them, and so does
who asked for plain text or has the screen read aloud. What lays out is loaded with the first words of an
answer: nothing before it needs that.
"""

from collections.abc import Mapping
from shutil import get_terminal_size
from typing import TextIO

from convo.ui.answer import Sheet
from convo.ui.medium import medium_of
from convo.ui.prompt import NOT_DRAWN_ON

MARKDOWN, PLAIN = "markdown", "plain"
"""Values of the setting `answers`."""

CLICK_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty", "vscode", "Hyper", "Tabby", "rio", "WarpTerminal")
CLICK_TERMS = ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "foot-extra", "wezterm", "contour")
CLICK_VARIABLES = ("KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION", "DOMTERM")
VTE_SINCE = 5_000
"""What says that words can be clicked. No terminal can be asked, so it goes by what they are known for."""


def sheet_at(stream: TextIO, environ: Mapping[str, str]) -> Sheet | None:
    """A sheet in the terminal behind `stream`; None where words are printed as they are."""
    if not stream.isatty() or environ.get("TERM", "dumb") in NOT_DRAWN_ON:
        return None
    return Later(stream, environ)


class Later:
    """A page that is made when the first words are there."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._stream, self._environ = stream, environ
        self._page: Sheet | None = None

    def say(self, words: str) -> None:
        self._page = self._page or self._made()
        self._page.say(words)

    def end(self) -> None:
        if self._page:
            self._page.end()

    def _made(self) -> Sheet:
        from convo.ui.markdown.page import Page
        from convo.ui.markdown.spans import Paper

        medium = medium_of(self._stream, self._environ)
        links = clickable(self._environ)
        paper = Paper(colour=medium.colour, boxes=medium.boxes, links=links and medium.colour)
        return Page(self._stream, paper, lambda: get_terminal_size().columns)


def clickable(environ: Mapping[str, str]) -> bool:
    """Whether the terminal is known to make words clickable (OSC 8)."""
    if "TMUX" in environ or environ.get("TERM", "").startswith(("screen", "tmux")):
        return False
    vte = environ.get("VTE_VERSION", "")
    return (
        environ.get("TERM_PROGRAM") in CLICK_PROGRAMS
        or environ.get("TERM") in CLICK_TERMS
        or (vte.isdigit() and int(vte) >= VTE_SINCE)
        or any(name in environ for name in CLICK_VARIABLES)
    )

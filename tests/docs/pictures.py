"""The README's pictures, taken of real runs in a terminal.

    python -m tests.docs.pictures [NAME ...]       writes .github/pictures/NAME.svg, and page.png for "page"

A server on loopback answers where OpenAI's would. What differs from run to run (ids, seconds, the day) is left
as it came; `tests/test_pictures.py` compares the rest. The inspector page's is a PNG that Chromium takes.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from tests.command_runner import ROOT, run_in_process
from tests.conftest import LEAKS, TERMINAL
from tests.docs.pages import OPENAI
from tests.docs.svg import Cell, render_svg
from tests.docs.transcript import TranscriptRunner, masked
from tests.loopback_server import LoopbackServer, run_loopback_server
from tests.terminal.pty_process import spawn

if TYPE_CHECKING:
    import pyte

FOLDER = ROOT / ".github" / "pictures"
PAGE = "page"
WIDE, HIGH = 1180, 1400
"""The page's picture, in pixels."""

REPLIES = (
    {
        "text": "Begin at the opera house at nine, walk along the harbour and take the ferry to Bygdøy. "
        "Lunch at the fish hall, the sculpture park before sunset, and a concert in the evening."
    },
    {"text": "Then the Munch museum until noon, and the tram instead of the ferry.", "usage": {"cached": 25}},
    {"text": "Leave out the concert, and buy the day pass.", "usage": {"cached": 60}},
)

SETUP = """
$ convo chat -q --chain --name oslo "Plan a day in Oslo for two people who like art."
$ convo chat -q -c "And if it rains?"
$ convo chat -q --fork oslo@1 --name cheap "Make it cheaper."
$ convo chat -q --from oslo "And with children?"
"""

DIM, GREY = "\x1b[2m", "\x1b[90m"
"""The emulator knows no dim letters."""


class Picture(NamedTuple):
    """One picture: the command line, the terminal's size, and what somebody says at its prompt."""

    argv: Sequence[str]
    columns: int
    rows: int = 60
    says: Sequence[str] = ()


PICTURES = {
    "chat": Picture(("chat",), 100, says=("Plan a day in Oslo.", "And if it rains?", "/status")),
    "inspect": Picture(("inspect", "oslo", "--no-pager"), 100),
    "next": Picture(("next", "oslo", "Is there a ferry at night?"), 88),
    "race": Picture(("race", "Plan a day in Oslo.", "And if it rains?"), 88),
}


@contextmanager
def picture_conversations(folder: Path) -> Iterator[LoopbackServer]:
    """A home in which the conversations of the pictures were held, and the server that answers them."""
    (folder / "servers").mkdir()
    (folder / "here").mkdir()
    with run_loopback_server(folder / "servers") as server:
        server.replies(*REPLIES)
        environ = {"CONVO_HOME": str(folder / "home"), **server.environ}
        runner = TranscriptRunner(folder / "here", environ=environ)
        outputs = runner.run(f"```console{SETUP}```")
        assert runner.status == 0, outputs
        with patch.dict(os.environ, environ):
            yield server


def render_picture(picture: Picture, server: LoopbackServer) -> str:
    """The picture, as SVG."""
    import pyte

    drawn = chat_output(picture) if picture.says else command_output(picture)
    screen = pyte.Screen(picture.columns, picture.rows)
    pyte.Stream(screen).feed(drawn.replace(DIM, GREY).replace(server.url, OPENAI))
    title = " ".join(
        ["convo", *(f'"{word}"' if " " in word else word for word in picture.argv if word != "--no-pager")]
    )
    return render_svg(title, rows_of(screen))


def take_screenshot(folder: Path) -> bytes:
    """The inspector page with one request beside what its model saw, as PNG."""
    from tests.server.browser import chromium

    place = folder / "page.html"
    assert run_in_process("inspect", "oslo", "cheap", "--html", str(place)).exit == 0
    with chromium() as browser:
        page = browser.new_page(viewport={"width": WIDE, "height": HIGH})
        page.goto(place.as_uri())
        page.get_by_role("link", name="oslo").first.click()
        page.locator("tbody tr").nth(2).get_by_role("link").first.click()
        page.get_by_role("heading").last.wait_for()
        return page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDE, "height": HIGH})


def command_output(picture: Picture) -> str:
    """What the command writes into its terminal."""
    import pexpect

    environ = {name: value for name, value in os.environ.items() if name not in TERMINAL}
    environ |= {"TERM": "xterm-256color", "TZ": "UTC"}
    size = (picture.rows, picture.columns)
    child = spawn(*picture.argv, env=environ, dimensions=size, encoding="utf-8", timeout=60)
    child.expect(pexpect.EOF)
    child.close()
    return str(child.before)


def chat_output(picture: Picture) -> str:
    """The same for a chat, up to the prompt behind the last that is said."""
    from tests.terminal.screen import open_screen

    with open_screen(*picture.argv, columns=picture.columns) as screen:
        screen.shows_prompt()
        for words in picture.says:
            screen.types(f"{words}\r")
            screen.shows_prompt(words)
        return screen.raw


def rows_of(screen: "pyte.Screen") -> list[list[Cell]]:
    """The rows that show something, the last of them and all before it, without blanks at their ends."""
    rows = []
    for y in range(screen.lines):
        cells = [screen.buffer[y][x] for x in range(screen.columns)]
        signs = [Cell(cell.data, cell.fg, cell.bold, cell.reverse) for cell in cells]
        while signs and not signs[-1].data.strip():
            signs.pop()
        rows.append(signs)
    while rows and not rows[-1]:
        rows.pop()
    return rows


def picture_lines(picture: str) -> list[str]:
    """The lines of a picture as text, without what differs from run to run."""
    lines = re.findall(r'<text y="\d+">(.*?)</text>', picture)
    return [masked(unescape(" ".join(re.findall(r">([^<]*)<", line)))) for line in lines]


def main(names: list[str]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LEAKS) and name not in TERMINAL}
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, clean, clear=True),
        picture_conversations(Path(folder)) as server,
    ):
        for name in names or (*PICTURES, PAGE):
            if name == PAGE:
                (FOLDER / f"{name}.png").write_bytes(take_screenshot(Path(folder)))
            else:
                (FOLDER / f"{name}.svg").write_text(render_picture(PICTURES[name], server), encoding="utf-8")
            print(f".github/pictures/{name}")


if __name__ == "__main__":
    main(sys.argv[1:])

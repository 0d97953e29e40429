"""The pictures of the README, created from real runs in a terminal.

    python -m tests.docs.pictures [NAME ...]       write .github/pictures/NAME.svg; for "page" and "home" NAME.png

A server on loopback replaces OpenAI. Values that differ from run to run (ids, seconds, dates) are not masked in
a picture; `tests/test_pictures.py` compares the rest. The pictures of the inspector page are PNG screenshots of
Chromium.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
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
PAGE, HOME = "page", "home"
WIDE, HIGH, HOME_HIGH = 1280, 1400, 720
"""Width and heights of the pictures of the inspector page, in pixels."""

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

ROWS = 60
"""Lines of the terminal of a command; unused ones are not in the picture."""

DIM, GREY = "\x1b[2m", "\x1b[90m"
"""The terminal emulator does not support dim text, so pictures show it in grey."""


TOOLS = """
from convo.tools import tool


def find_order(order: str) -> str:
    "Find an order."
    return f"{order}: a lamp, 500 cents, delivered on Monday"


@tool(needs_approval=True)
def refund(order: str, cents: int) -> str:
    "Pay an order back."
    return f"paid {cents} cents back for {order}"
"""

TOOL_REPLIES = (
    {"call": {"name": "find_order", "call_id": "call_1", "arguments": {"order": "A1"}}},
    {"call": {"name": "refund", "call_id": "call_2", "arguments": {"order": "A1", "cents": 500}}},
    {"text": "Order **A1** is paid back:\n\n* the lamp, 500 cents\n* you will have the money on Friday"},
)


class Picture(NamedTuple):
    """One picture: the command line, the width of the terminal, and the lines typed in it.

    input:    each line with the text that the terminal shows after it; no text: an empty prompt
    replies:  of the server, from now on
    """

    argv: Sequence[str]
    columns: int = 100
    input: Sequence[tuple[str, str]] = ()
    replies: Sequence[Mapping[str, object]] = REPLIES


PICTURES = {
    "chat": Picture(
        ("chat", "--tool", "desk.py:find_order", "--tool", "desk.py:refund"),
        input=(("The lamp of order A1 is broken.", "decision:"), ("approve", "")),
        replies=TOOL_REPLIES,
    ),
    "inspect": Picture(("inspect", "oslo", "--no-pager")),
}


@contextmanager
def picture_conversations(folder: Path) -> Iterator[LoopbackServer]:
    """Create the conversations of the pictures in a new CONVO_HOME; yield the server that answers them."""
    (folder / "servers").mkdir()
    (folder / "here").mkdir()
    (folder / "here" / "desk.py").write_text(TOOLS, encoding="utf-8")
    with run_loopback_server(folder / "servers") as server:
        server.replies(*REPLIES)
        environ = {"CONVO_HOME": str(folder / "home"), **server.environ}
        runner = TranscriptRunner(folder / "here", environ=environ)
        outputs = runner.run(f"```console{SETUP}```")
        assert runner.status == 0, outputs
        with patch.dict(os.environ, environ), chdir(folder / "here"):
            yield server


def render_picture(picture: Picture, server: LoopbackServer) -> str:
    """Run the command of a picture and return the picture as SVG."""
    import pyte

    server.replies(*picture.replies)
    output = chat_output(picture) if picture.input else command_output(picture)
    screen = pyte.Screen(picture.columns, ROWS)
    pyte.Stream(screen).feed(output.replace(DIM, GREY).replace(server.url, OPENAI))
    title = " ".join(
        ["convo", *(f'"{word}"' if " " in word else word for word in picture.argv if word != "--no-pager")]
    )
    return render_svg(title, rows_of(screen))


def take_screenshot(folder: Path) -> bytes:
    """A PNG of the inspector page, which shows one request next to the context of the model."""
    from tests.server.browser import chromium

    path = folder / "page.html"
    assert run_in_process("inspect", "oslo", "cheap", "--html", str(path)).exit == 0
    with chromium() as browser:
        page = browser.new_page(viewport={"width": WIDE, "height": HIGH})
        page.goto(path.as_uri())
        page.get_by_role("link", name="oslo").first.click()
        page.locator("tbody tr").nth(2).get_by_role("link").first.click()
        page.get_by_role("heading").last.wait_for()
        return page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDE, "height": HIGH})


def take_home_screenshot() -> bytes:
    """A PNG of the home of the inspector page: the table of requests, with one of them beside it."""
    from tests.cli.serve_process import run_serve
    from tests.server.browser import chromium

    with run_serve() as server, chromium() as browser:
        page = browser.new_page(viewport={"width": WIDE, "height": HOME_HIGH})
        page.goto(str(server.http.base_url))
        page.get_by_role("link", name="And if it rains?").first.click()
        page.get_by_role("tabpanel").get_by_role("article").first.wait_for()
        return page.screenshot()


def command_output(picture: Picture) -> str:
    """The output of the command in a terminal."""
    import pexpect

    environ = {name: value for name, value in os.environ.items() if name not in TERMINAL}
    environ |= {"TERM": "xterm", "TZ": "UTC"}
    size = (ROWS, picture.columns)
    child = spawn(*picture.argv, env=environ, dimensions=size, encoding="utf-8", timeout=60)
    child.expect(pexpect.EOF)
    child.close()
    return str(child.before)


def chat_output(picture: Picture) -> str:
    """The output of a chat in a terminal, up to the prompt after the last message."""
    from tests.terminal.screen import open_screen

    with open_screen(*picture.argv, columns=picture.columns) as screen:
        screen.wait_for_prompt()
        for line, shown in picture.input:
            screen.type_keys(f"{line}\r")
            screen.wait_for_text(shown) if shown else screen.wait_for_prompt(line)
        return screen.raw


def rows_of(screen: "pyte.Screen") -> list[list[Cell]]:
    """The rows of the screen up to the last row with text, without trailing blanks."""
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
    """The lines of a picture as text, with values that differ from run to run masked."""
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
        for name in names or (*PICTURES, PAGE, HOME):
            if name in (PAGE, HOME):
                (FOLDER / f"{name}.png").write_bytes(
                    take_home_screenshot() if name == HOME else take_screenshot(Path(folder))
                )
            else:
                (FOLDER / f"{name}.svg").write_text(render_picture(PICTURES[name], server), encoding="utf-8")
            print(f".github/pictures/{name}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""When an answer is drawn, and what happens when that cannot be."""

import asyncio
import io

import pytest

from convo.ui.markdown.page import Page
from convo.ui.markdown.spans import Paper
from tests.ui.markdown.laying_out import on_screen


class Gone(io.StringIO):
    """A terminal that has been closed."""

    def write(self, words: str) -> int:
        raise OSError(5, "Input/output error")


async def drawn_by_now() -> None:
    """Wait until what was to be done at once has been done."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, done.set)
    await done.wait()


async def test_pieces_that_come_at_once_are_drawn_once() -> None:
    out = io.StringIO()
    page = Page(out, Paper(), lambda: 80)
    for piece in ("**o", "ne", "**"):
        page.say(piece)
    assert out.getvalue() == ""
    await drawn_by_now()
    assert out.getvalue() == "**one**"
    page.end()
    assert out.getvalue() == "**one**\n"


async def test_a_terminal_that_is_gone_is_told_of_with_the_next_words() -> None:
    page = Page(Gone(), Paper(), lambda: 80)
    page.say("a")
    await drawn_by_now()
    with pytest.raises(OSError, match="Input/output error"):
        page.say("b")


def test_one_page_takes_one_text_after_the_other() -> None:
    out = io.StringIO()
    page = Page(out, Paper(), lambda: 80)
    for text in ("```\nnot closed", "", "- a"):
        page.say(text)
        page.end()
    assert on_screen(out.getvalue(), 80) == ["──", "not closed", "──", "• a"]

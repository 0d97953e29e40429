"""The times at which an answer is drawn, and errors of the terminal."""

import asyncio
import io

import pytest

from convo.terminal.markdown import FRAME_INTERVAL_S, MarkdownOptions, MarkdownRenderer, Throttle
from tests.terminal.markdown.markdown_layout import displayed_lines


class ClosedTerminal(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


async def run_due_callbacks() -> None:
    """Wait until the callbacks that are due now have run."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, done.set)
    await done.wait()


async def run_ready_callbacks() -> None:
    """Run the event loop until the callbacks that are due now have run."""
    for _ in range(3):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future


async def test_pieces_that_arrive_together_are_drawn_once() -> None:
    out = io.StringIO()
    renderer = MarkdownRenderer(out, MarkdownOptions(), lambda: (80, 24))
    for piece in ("**o", "ne", "**"):
        renderer.write(piece)
    assert out.getvalue() == ""
    await run_due_callbacks()
    assert out.getvalue() == "**one**"
    renderer.finish()
    assert out.getvalue() == "**one**\n"


async def test_the_text_is_drawn_at_most_once_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    now, frames = [100.0], []
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    throttle = Throttle(lambda: frames.append(now[0]))
    for _ in range(3):
        throttle.schedule()
        await run_ready_callbacks()
    assert frames == [100.0]
    now[0] += FRAME_INTERVAL_S
    await run_ready_callbacks()
    assert frames == [100.0, 100.0 + FRAME_INTERVAL_S]


async def test_a_closed_terminal_is_reported_with_the_next_text() -> None:
    renderer = MarkdownRenderer(ClosedTerminal(), MarkdownOptions(), lambda: (80, 24))
    renderer.write("a")
    await run_due_callbacks()
    with pytest.raises(OSError, match="Input/output error"):
        renderer.write("b")


def test_a_renderer_can_be_used_for_several_texts() -> None:
    out = io.StringIO()
    renderer = MarkdownRenderer(out, MarkdownOptions(), lambda: (80, 24))
    for text in ("```\nnot closed", "", "- a"):
        renderer.write(text)
        renderer.finish()
    assert displayed_lines(out.getvalue(), 80) == ["──", "not closed", "──", "• a"]

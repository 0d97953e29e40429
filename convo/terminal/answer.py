"""One streamed answer in a terminal: rendering, cancellation, reasoning.

Markdown is rendered only where the cursor can be moved; a pipe or a file gets the text as the model wrote it.
The Markdown renderer is imported with the first text of an answer. Ctrl-C cancels the task of the answer alone and
raises Interrupted after the turn has saved its partial output.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from convo.errors import Interrupted
from convo.history.items import Item, StreamEvent, is_user_message, item_type
from convo.terminal.signals import on_signal
from convo.terminal.terminal import (
    DUMB_TERMINALS,
    AnswerRenderer,
    DisplayOptions,
    detect_display,
    format_count,
    truncate_text,
)
from convo.terminal.theme import detect_reflow
from convo.usage.counting import estimate_tokens

if TYPE_CHECKING:
    from convo.terminal.repl import Repl
    from convo.terminal.waiting import Footer


WorkResult = TypeVar("WorkResult")


async def consume_interruptibly(
    events: AsyncGenerator[StreamEvent, None], on_event: Callable[[StreamEvent], None]
) -> None:
    """Call `on_event` with each event. Raises the errors of `run_interruptibly`."""
    await run_interruptibly(_consume(events, on_event))


async def run_interruptibly(coroutine: Coroutine[Any, Any, WorkResult]) -> WorkResult:
    """Await `coroutine` and return its result; Ctrl-C cancels it.

    Raises Interrupted after Ctrl-C, once the turn has saved its partial output, and the errors of `coroutine`.
    """
    task = asyncio.create_task(coroutine)
    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        if not is_stopped:
            is_stopped = True
            task.cancel()

    with on_signal(signal.SIGINT, stop):
        try:
            return await task
        except asyncio.CancelledError:
            if not is_stopped:
                raise
            raise Interrupted("stopped; the output so far is saved") from None


async def _consume(events: AsyncGenerator[StreamEvent, None], on_event: Callable[[StreamEvent], None]) -> None:
    async with aclosing(events) as stream:
        async for event in stream:
            on_event(event)
            await asyncio.sleep(0)  # a stream that never suspends must not block the Ctrl-C handler


ANSWERS_MARKDOWN, ANSWERS_PLAIN = "markdown", "plain"
"""Values of the setting `answers`."""

MARKDOWN_MODULE = "convo.terminal.markdown"
"""The module that renders Markdown; it is imported while the model works."""


def make_answer_renderer(
    stream: TextIO, environ: Mapping[str, str], footer: "Footer | None" = None
) -> AnswerRenderer | None:
    """Make a Markdown renderer for `stream`; None unless it is a terminal with cursor control.

    footer:  a line that stays below the text
    """
    if not stream.isatty() or environ.get("TERM", "dumb") in DUMB_TERMINALS:
        return None
    return LazyMarkdownRenderer(stream, environ, footer)


class LazyMarkdownRenderer:
    """Markdown renderer that imports its parser with the first text."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str], footer: "Footer | None") -> None:
        self._stream, self._environ, self._footer = stream, environ, footer
        self._renderer: AnswerRenderer | None = None

    def write(self, text: str) -> None:
        self._renderer = self._renderer or self._make_renderer()
        self._renderer.write(text)

    def finish(self) -> None:
        if self._renderer:
            self._renderer.finish()

    def _make_renderer(self) -> AnswerRenderer:
        from convo.terminal.markdown import MarkdownOptions, MarkdownRenderer

        display = detect_display(self._stream, self._environ)
        options = MarkdownOptions(
            has_color=display.has_color,
            has_box_chars=display.has_box_chars,
            has_links=display.has_links,
            color_system=display.color_system,
        )
        return MarkdownRenderer(
            self._stream, options, get_terminal_size, self._footer, has_reflow=detect_reflow(self._environ)
        )


def reasoning_text(item: Item) -> str:
    """Return the text of a reasoning item, or else its summary; often it has neither, and the result is ""."""
    parts = item.get("content") or item.get("summary") or ()
    return "\n\n".join(str(part["text"]).strip() for part in parts if part.get("text"))


REASONING_COLUMNS = 80
"""Columns of the line about reasoning where the width is unknown."""


def format_reasoning_line(
    item: Item, seconds: float | None, display: DisplayOptions, *, has_slash_commands: bool = False
) -> str:
    """Format a reasoning item as one dim line: its estimated tokens and its duration; "" without text and duration.

    seconds:             the duration; None if unknown
    has_slash_commands:  whether /reasoning can be typed, which prints the text
    """
    text = reasoning_text(item).strip()
    parts = [f"~{format_count(estimate_tokens(item), 'token')}"] if text else []
    parts += [] if seconds is None else [f"{seconds:.1f} s"]
    if not parts:
        return ""
    columns = (display.width or REASONING_COLUMNS) - 1
    line = ", ".join(["reasoning", *parts])
    for hint in (" · /reasoning shows it", " · /reasoning"):
        if text and has_slash_commands and len(line + hint) <= columns:
            line += hint
            break
    return display.apply_style(display.translate_box_chars(truncate_text(line, columns)), "dim")


async def handle_reasoning(repl: "Repl", _: str) -> None:
    """Print the reasoning of the last turn."""
    texts = list(_last_turn_reasoning(repl.chat.state.path.items))
    if not texts:
        repl.print_message("  no reasoning in the last turn; many models do not return it")
    for text in texts:
        repl.print_message("\n".join(f"  {line}".rstrip() for line in text.split("\n")))


def _last_turn_reasoning(items: Sequence[Item]) -> Iterator[str]:
    last_user_index = max((index for index, item in enumerate(items) if is_user_message(item)), default=-1)
    for item in items[last_user_index + 1 :]:
        if item_type(item) == "reasoning" and (text := reasoning_text(item)):
            yield text

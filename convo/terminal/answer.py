"""One streamed answer in a terminal: rendering, cancellation, reasoning.

Markdown is rendered only where the cursor can be moved; a pipe or a file gets the text as the model wrote it.
The Markdown renderer is imported with the first text of an answer. Ctrl-C cancels the task of the answer alone and
raises Interrupted after the turn has saved its partial output.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Container, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeAlias, TypeVar

from convo.errors import Interrupted
from convo.history.items import Item, StreamEvent, decode_json_escapes, is_user_message, item_text, item_type
from convo.terminal.signals import on_signal
from convo.terminal.terminal import (
    DUMB_TERMINALS,
    DisplayOptions,
    detect_display,
    escape_answer,
    escape_control_chars,
    format_count,
    truncate_text,
)
from convo.terminal.theme import detect_reflow
from convo.usage.counting import estimate_tokens

if TYPE_CHECKING:
    from convo.terminal.waiting import Footer, WaitingLine


WorkResult = TypeVar("WorkResult")


UNANNOUNCED_TYPES = ("reasoning", "compaction")
"""Item types that are not announced."""

TEXT_DELTA_EVENTS = ("response.output_text.delta", "response.refusal.delta")
REASONING_DELTA_EVENTS = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
ANSWER_END_EVENTS = ("response.completed", "response.incomplete")


FormatReasoning: TypeAlias = Callable[[Item, float | None], str]
"""Formats the line that announces a reasoning item and its duration in seconds, if known; "" announces nothing."""


class AnswerRenderer(Protocol):
    """Lays out the text of an answer."""

    def write(self, text: str) -> None:
        """Print `text`; its control characters are escaped already."""
        ...

    def finish(self) -> None:
        """Finish the text, with the cursor at the start of a line; the next text is a new one."""
        ...


class AnswerPrinter:
    """Prints the text of one answer from its events.

    is_streamed:    print every delta on arrival; otherwise each item when it is complete
    has_open_line:  whether the printed text ends within a line
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        is_streamed: bool,
        unannounced: Container[str] = UNANNOUNCED_TYPES,
        renderer: AnswerRenderer | None = None,
        format_reasoning: FormatReasoning | None = None,
        waiting_line: "WaitingLine | None" = None,
    ) -> None:
        """Print text to `out`, and announce other items on `err`, except the types in `unannounced`.

        renderer:          gets the text instead of `out`
        format_reasoning:  formats the announcement of reasoning; None announces nothing
        waiting_line:      hidden before anything is printed; shows the reasoning while it arrives
        """
        self._waiting_line = waiting_line
        self._renderer, self._format_reasoning = renderer, format_reasoning
        self._out, self._err, self._is_streamed, self._unannounced = out, err, is_streamed, unannounced
        self.has_open_line = False
        self._shown_indexes: set[int] = set()
        self._current_part: tuple[int, int] | None = None

    @property
    def is_at_line_start(self) -> bool:
        """Whether the cursor is at the start of a line."""
        return not self.has_open_line

    def print_event(self, event: StreamEvent) -> None:
        event_type = event["type"]
        if event_type in TEXT_DELTA_EVENTS and self._is_streamed:
            self._print_delta(event)
        elif event_type == "response.output_item.added" and self._waiting_line:
            if item_type(event["item"]) == "reasoning":
                self._waiting_line.begin_reasoning()
        elif event_type in REASONING_DELTA_EVENTS and self._waiting_line:
            self._waiting_line.add_reasoning(event["delta"])
        elif event_type == "response.output_item.done":
            self._print_item(event.get("output_index", 0), event["item"])
        elif (
            event_type in ANSWER_END_EVENTS and not self._shown_indexes
        ):  # the endpoint sent only the complete response
            for index, item in enumerate(event["response"].get("output") or ()):
                self._print_item(index, item)
        if event_type in ANSWER_END_EVENTS:  # the next response counts its items from 0
            self._shown_indexes, self._current_part = set(), None

    def finish(self) -> None:
        """Finish the last line, whether the answer is complete or not."""
        if self.has_open_line and self._renderer:
            self._renderer.finish()
            self.has_open_line = False
        elif self.has_open_line:
            self._write("\n")

    def _print_delta(self, event: StreamEvent) -> None:
        part = event.get("output_index", 0), event.get("content_index", 0)
        if event["delta"]:
            if self._current_part and self._current_part != part and self._current_part[0] == part[0]:
                self._write("\n")  # separate the parts of a message as `item_text` does
            self._shown_indexes.add(part[0])
            self._current_part = part
            self._write(event["delta"])

    def _print_item(self, index: int, item: Item) -> None:
        if item_type(item) == "message":
            if index not in self._shown_indexes:
                self._write(item_text(item))
            self.finish()
        elif item_type(item) == "reasoning" and self._format_reasoning:
            seconds = self._waiting_line.end_reasoning() if self._waiting_line else None
            line = self._format_reasoning(item, seconds)
            self._announce(f"{line}\n" if line and self._renderer else line)  # a blank line before the answer
        elif item_type(item) not in self._unannounced:
            self._announce(escape_control_chars(describe_item(item)))
        self._shown_indexes.add(index)

    def _announce(self, line: str) -> None:
        if line:
            self.finish()
            self._prepare_output()
            self._err.write(line + "\n")
            self._err.flush()

    def _prepare_output(self) -> None:
        if self._waiting_line:
            self._waiting_line.hide()

    def _write(self, text: str) -> None:
        if text and self._renderer:
            if self._waiting_line:
                self._waiting_line.hide_spinner()  # the renderer draws above the footer
            self._renderer.write(escape_control_chars(text))
            self.has_open_line = True
        elif text:
            self._prepare_output()
            self._out.write(escape_answer(text, self._out))
            self._out.flush()
            self.has_open_line = not text.endswith("\n")


def describe_item(item: Item) -> str:
    """Describe an item that has no text in one line."""
    arguments = decode_json_escapes(str(item.get("arguments") or ""))
    return " ".join(str(part) for part in (f"[{item_type(item)}]", item.get("name"), arguments) if part)


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
        # A second Ctrl-C must not break off the storing of the partial output.
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
    stream: TextIO, environ: Mapping[str, str], footer: "Footer | None" = None, *, has_gutter: bool = False
) -> AnswerRenderer | None:
    """Make a Markdown renderer for `stream`; None unless it is a terminal with cursor control.

    footer:      lines that stay below the text
    has_gutter:  whether each answer has a mark, and its text is indented, where colors are shown
    """
    if not stream.isatty() or environ.get("TERM", "dumb") in DUMB_TERMINALS:
        return None
    return LazyMarkdownRenderer(stream, environ, footer, has_gutter=has_gutter)


class LazyMarkdownRenderer:
    """Markdown renderer that imports its parser with the first text."""

    def __init__(
        self, stream: TextIO, environ: Mapping[str, str], footer: "Footer | None", *, has_gutter: bool
    ) -> None:
        self._stream, self._environ, self._footer, self._has_gutter = stream, environ, footer, has_gutter
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
            has_gutter=self._has_gutter and display.has_color,
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


def iter_last_turn_reasoning(items: Sequence[Item]) -> Iterator[str]:
    """Yield the texts of the reasoning of the last turn."""
    last_user_index = max((index for index, item in enumerate(items) if is_user_message(item)), default=-1)
    for item in items[last_user_index + 1 :]:
        if item_type(item) == "reasoning" and (text := reasoning_text(item)):
            yield text

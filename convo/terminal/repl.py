"""REPL: the loop of an interactive chat.

Reads a line, runs a slash command, a shell command or a turn, and reports errors without ending the chat.
Input is saved before it is sent, so /retry works after any error. Ctrl-C or Esc cancels an answer; Ctrl-C twice at
an empty prompt, or Ctrl-D, exits. Messages that are typed during an answer are sent after it, in order.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeVar

from convo.chat.conversation import Chat
from convo.chat.history_nav import UndoStack
from convo.config.sections import Price
from convo.errors import ConvoError, Interrupted
from convo.history.items import (
    Item,
    Json,
    StreamEvent,
    is_assistant_message,
    is_compaction,
    is_summary,
    is_user_message,
    item_text,
    summary_text,
    user_message,
)
from convo.history.records import Link
from convo.runtime import collect_garbage_often
from convo.secrets import redact_secrets
from convo.terminal.answer import AnswerPrinter, AnswerRenderer, FormatReasoning, consume_interruptibly
from convo.terminal.message_queue import EMPTY_MESSAGE, TypedMessage
from convo.terminal.prompt import PROMPT, PromptReader
from convo.terminal.signals import on_signal, restore_before_default_action
from convo.terminal.slash_commands import (
    describe_missing_files,
    dispatch_command,
    format_attachment,
    load_mentioned_files,
    run_shell_line,
)
from convo.terminal.status_line import StatusLine, StatusLineState
from convo.terminal.statuses import format_failure
from convo.terminal.terminal import (
    DUMB_TERMINALS,
    DisplayOptions,
    detect_display,
    escape_control_chars,
    format_count,
    truncate_text,
    wrap_text,
)
from convo.terminal.waiting import WaitingLine

if TYPE_CHECKING:
    from convo.inspect.view import PathIndex
    from convo.terminal.agent_chat import AgentChat
    from convo.terminal.picker import PickerEntries


InputResult = TypeVar("InputResult")


MAX_ECHOED_LINES = 20
"""Lines of a queued message that are printed when it is sent."""

WARM_UP_DELAY_S = 0.05
"""Seconds for the prompt to appear; slow loading starts after that."""


class ReplHost(Protocol):
    """Interface of the command that runs the REPL."""

    def render_status(self, chat: Chat) -> str: ...

    async def render_next_request(self, chat: Chat, text: str) -> str: ...

    async def render_context_usage(self, chat: Chat) -> str: ...

    def print_receipt(self, chat: Chat) -> None: ...

    async def render_handle(self, chat: Chat, handle: str) -> str: ...

    async def switch_model(self, chat: Chat, model: str) -> None: ...

    async def warm_up(self, chat: Chat) -> None: ...

    def measure_loading(self, chat: Chat) -> None: ...

    def change_effort(self, chat: Chat, effort: str | None) -> None: ...

    def describe_effort(self, chat: Chat) -> str: ...

    async def compact_if_needed(self, chat: Chat) -> None: ...

    async def compact(self, chat: Chat, text: str) -> str: ...

    async def change_strategy(self, chat: Chat, owner: str) -> tuple[Chat, str]: ...

    async def fork(self, chat: Chat, number: int | None) -> Chat: ...

    async def open_new(self, chat: Chat, name: str) -> Chat: ...

    async def open_existing(self, chat: Chat, handle: str) -> Chat: ...

    async def render_recent_sessions(self, chat: Chat) -> str: ...

    async def load_conversation_entries(self, chat: Chat) -> "PickerEntries": ...

    async def load_model_entries(self, chat: Chat) -> "PickerEntries": ...

    async def rename(self, chat: Chat, name: str) -> None: ...

    async def export(self, chat: Chat, text: str) -> str: ...

    async def links(self, chat: Chat) -> Sequence[Link]: ...

    async def load_path_index(self, chat: Chat) -> "PathIndex": ...

    @property
    def prices(self) -> Mapping[str, Price]: ...

    async def load_status_line_state(self, chat: Chat) -> StatusLineState: ...

    def check_input_supported(self, chat: Chat, parts: Sequence[Json]) -> None: ...


class Repl:
    """One interactive chat.

    is_exiting:   set by a command that ends the chat
    undo_stack:   earlier heads of the conversation
    agent_chat:   the runs of agents; None without agents
    attachments:  names and content parts that are sent with the next message
    """

    def __init__(
        self,
        chat: Chat,
        reader: PromptReader,
        host: ReplHost,
        *,
        out: TextIO,
        err: TextIO,
        attachments: Iterable[tuple[str, dict[str, Json]]] = (),
        is_streamed: bool = True,
        quiet: bool = False,
        is_plain: bool = False,
        status_line: StatusLine | None = None,
        waiting_line: WaitingLine | None = None,
        renderer: AnswerRenderer | None = None,
        format_reasoning: FormatReasoning | None = None,
    ) -> None:
        """Prepare the loop.

        is_plain:      print lists where `pick` would be called
        status_line:   kept up to date for a reader that draws one
        waiting_line:  shown while an answer is waited for
        renderer:      receives the text of the answers
        """
        self.chat, self.host, self.reader, self.is_exiting = chat, host, reader, False
        self.undo_stack, self.attachments = UndoStack(), list(attachments)
        self.agent_chat: AgentChat | None = None
        self._out, self._err = out, err
        self._is_streamed, self._quiet, self._is_plain = is_streamed, quiet, is_plain
        self._status_line = status_line
        self._renderer, self._format_reasoning = renderer, format_reasoning
        self._waiting_line = waiting_line or WaitingLine(out, err, is_enabled=False)
        self._input_task: asyncio.Task[Any] | None = None
        self._has_interrupt = self._has_escape = self._has_answer = self._has_withdrawn_line = False
        chat.notify = self.notify

    @property
    def display(self) -> DisplayOptions:
        """The abilities of the terminal, colors included."""
        return detect_display(self._err, os.environ)

    async def run(self) -> int:
        """Run the loop until the user exits. Returns the exit code."""
        warm_up_task = asyncio.create_task(self._warm_up())
        try:
            with (
                on_signal(signal.SIGINT, self._on_interrupt),
                restore_before_default_action(self.reader.restore_terminal),
            ):
                try:
                    if not self._quiet:
                        self.show_last_turns()
                    if self.agent_chat:
                        await self._perform(self.agent_chat.resume_open_run())
                    code = await self._read_loop()
                    if left := len(self.reader.queue.messages):
                        self.print_message(f"{format_count(left, 'queued message')} not sent")
                    return code
                finally:
                    self.reader.close()
        finally:
            warm_up_task.cancel()
            with suppress(asyncio.CancelledError):
                await warm_up_task

    def show_last_turns(self) -> None:
        """Print the last turns, if there are any."""
        for line in last_turn_lines(self.chat.state.path.items, self.display):
            self._err.write(line + "\n")
        self._err.flush()

    async def _warm_up(self) -> None:
        """Warm up the endpoint while the user types; errors are reported by the first request.

        A chat can stay open all day, so garbage is collected more often from here on.
        """
        await asyncio.sleep(WARM_UP_DELAY_S)
        collect_garbage_often()
        with suppress(ConvoError):
            await self.host.warm_up(self.chat)

    async def _read_loop(self) -> int:
        has_warned = False
        while not self.is_exiting:
            if message := self.reader.queue.take_next():
                self.reader.begin_message(message)
                self._print_queued(message.text)
                await self._handle_line(message.text)
                continue
            await self._update_status_line()
            if self.reader.queue.is_held:
                count = format_count(len(self.reader.queue.messages), "queued message")
                self.notify(f"{count} not sent: Enter sends the one below, Ctrl-C discards it")
            try:
                line = await self.read_line(default=self.reader.queue.take_for_prompt())
            except EOFError:
                return 0
            except Interrupted:
                if has_warned:
                    return 130
                self.print_message("press Ctrl-C again or Ctrl-D to exit")
                has_warned = True
                continue
            has_warned = False
            if line.strip():
                await self._handle_line(line)
        return 0

    async def _update_status_line(self) -> None:
        """Update the status line; keep the old one if the state cannot be loaded."""
        if self._status_line:
            with suppress(ConvoError):
                state = await self.host.load_status_line_state(self.chat)
                self._status_line.state = state._replace(attachment_count=len(self.attachments))

    async def read_line(self, prompt: str = PROMPT, default: TypedMessage = EMPTY_MESSAGE) -> str:
        """Read a line. Raises the errors of the reader, and Interrupted also for a Ctrl-C before the prompt appears."""
        self.reader.queue.is_open = False
        return await self._read_input(self.reader.read_line(prompt, default))

    async def withdraw_line(self) -> str | None:
        """End `read_line` without an answer; see `PromptReader`. Messages that are typed next are not sent unseen."""
        self._has_withdrawn_line = True
        return await self.reader.withdraw_line()

    async def print_above(self, print_text: Callable[[], None]) -> bool:
        return await self.reader.print_above(print_text)

    @property
    def can_pick(self) -> bool:
        """Whether `pick` can be called; otherwise a command prints a list."""
        return self.reader.can_pick and not self._is_plain

    async def pick(self, entries: "PickerEntries") -> str | None:
        """Let the user choose an entry and return its value; None if the user cancelled."""
        self.reader.queue.is_open = False
        try:
            return await self._read_input(self.reader.pick(entries))
        except Interrupted:
            return None

    async def _read_input(self, reading: Coroutine[Any, Any, InputResult]) -> InputResult:
        """Await `reading`. Raises its errors, and Interrupted for a Ctrl-C that it does not handle itself."""
        task = asyncio.create_task(reading)
        self._input_task = task
        if self._has_interrupt:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if not self._has_interrupt:
                raise
            raise Interrupted("nothing was typed") from None
        finally:
            self._input_task, self._has_interrupt = None, False

    def _on_interrupt(self) -> None:
        """Handle a Ctrl-C that no answer handles: interrupt the current or the next prompt. A late Esc is ignored.

        Neither sends a queued message.
        """
        self.reader.queue.hold()
        if self._has_escape:
            self._has_escape = False
            return
        self._has_interrupt = True
        if self._input_task:
            self._input_task.cancel()

    def _on_escape(self) -> None:
        """Treat Esc as a Ctrl-C that only running work receives."""
        self._has_escape = True
        signal.raise_signal(signal.SIGINT)

    def begin_answer(self) -> None:
        """Print an empty line between the question and its answer; another one follows the answer.

        Messages that are typed from now on are queued.
        """
        self._has_answer = True
        self.reader.open_queue()
        self._print_empty_line()

    def _print_empty_line(self) -> None:
        if self._waiting_line.is_enabled:
            self.print_block("\n")

    async def show_answer(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        """Show one answer and its receipt. Raises the errors of the turn, and Interrupted."""
        previous_turn = self.chat.turn
        self.host.measure_loading(self.chat)
        self.begin_answer()
        printer = AnswerPrinter(
            self._out,
            self._err,
            is_streamed=self._is_streamed,
            renderer=self._renderer,
            format_reasoning=self._format_reasoning,
            waiting_line=self._waiting_line,
        )
        try:
            async with self._waiting_line.show("waiting", is_allowed=lambda: printer.is_at_line_start):
                await consume_interruptibly(events, printer.print_event)
        except Interrupted:
            if self.reader.has_echo and not printer.has_open_line:
                self.print_message("")  # the terminal has printed ^C
            raise
        finally:
            printer.finish()
            if self.chat.turn is not previous_turn:
                self._print_receipt()

    def _print_queued(self, text: str) -> None:
        """Print a queued message as the prompt shows a typed one."""
        lines = text.split("\n")
        self.print_block(
            "".join(f"{'  ' if index else PROMPT}{line}\n" for index, line in enumerate(lines[:MAX_ECHOED_LINES]))
        )
        if len(lines) > MAX_ECHOED_LINES:
            self.print_message(f"  ({len(lines) - MAX_ECHOED_LINES} more lines)")

    def print_message(self, text: str) -> None:
        """Print a message that is no part of an answer, wrapped to the terminal."""
        self.print_block(wrap_text(escape_control_chars(text), self.display.width) + "\n")

    def print_failure(self, message: str, hint: str) -> None:
        """Print an error and the next step."""
        text = format_failure(redact_secrets(message), redact_secrets(hint), self.display)
        self._waiting_line.hide()
        self._err.write(text + "\n")
        self._err.flush()

    def print_block(self, text: str) -> None:
        """Print text that is already laid out, or is meant to be copied."""
        self._write(escape_control_chars(text))

    def print_styled(self, text: str) -> None:
        """Print lines that are escaped and styled already."""
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        self._waiting_line.hide()
        self._err.write(text)
        self._err.flush()

    def send_control_sequence(self, sequence: str) -> bool:
        """Send a control sequence to the terminal. Returns whether it was sent."""
        can_send = bool(sequence) and self._err.isatty() and os.environ.get("TERM") not in DUMB_TERMINALS
        if can_send:
            self._err.write(sequence)
            self._err.flush()
        return can_send

    def print_first_message(self, text: str) -> None:
        """Print the message above the first prompt, unless --quiet is set: on a terminal dim, above an empty line."""
        if self._quiet or self.display.width is None:
            self.notify(text)
            return
        display = self.display
        lines = wrap_text(escape_control_chars(text), display.width).split("\n")
        self.print_styled("\n".join(display.apply_style(line, "dim") for line in lines) + "\n")

    def notify(self, text: str) -> None:
        """Print a message, unless --quiet is set."""
        if not self._quiet:
            self.print_message(text)

    async def _handle_line(self, line: str) -> None:
        self._has_escape = False
        self._has_answer = False
        text = line.lstrip()
        if text.startswith("//"):  # a message that begins with a slash is typed with two
            work = self._send_message(text.removeprefix("/"))
        elif text.startswith("/"):
            work = dispatch_command(self, line.strip())
        elif line.startswith("!"):
            work = run_shell_line(self, line)
        else:
            work = self._send_message(line)
        await self._perform(work)
        if self._has_answer:
            self._print_empty_line()

    async def _perform(self, work: Awaitable[None]) -> None:
        """Await `work` while Esc stops it, and report its errors. A message typed meanwhile may be held."""
        self._has_withdrawn_line = False
        with self.reader.watch_stop_key(self._on_escape):
            has_succeeded = await self._report_errors(work)
            self.reader.queue.is_open = self.reader.queue.is_forwarding = False
        is_paused = self.agent_chat is not None and bool(self.agent_chat.runner.pending_calls)
        if not has_succeeded or is_paused or self._has_withdrawn_line:
            self.reader.queue.hold()

    async def _report_errors(self, awaitable: Awaitable[None]) -> bool:
        """Await `awaitable`, and report its errors without ending the chat. Returns whether there was none."""
        try:
            await awaitable
        except Interrupted as interrupt:
            self.print_message(f"{interrupt.message}; /retry sends the message again, /undo undoes the turn")
        except ConvoError as error:
            self.print_failure(error.message, error.prompt_hint or error.hint)
        else:
            return True
        return False

    async def _send_message(self, text: str) -> None:
        old_head, attachments = (
            self.chat.state.path.head,
            [*self.attachments, *load_mentioned_files(text, self.reader.pasted_texts)],
        )
        self.host.check_input_supported(self.chat, [part for _, part in attachments])
        for name, part in attachments:
            self.notify(format_attachment(name, part))
        for line in describe_missing_files(text, self.reader.pasted_texts):
            self.notify(line)
        try:
            if not (self.agent_chat and self.agent_chat.runner.can_resume):
                await self.host.compact_if_needed(self.chat)
            items = [user_message(text, *(part for _, part in attachments))]
            await (self.agent_chat.send(items) if self.agent_chat else self.show_answer(self.chat.send(items)))
        finally:
            if self.chat.state.path.head != old_head:
                self.attachments.clear()

    def _print_receipt(self) -> None:
        if self.chat.turn and self.chat.turn.link:
            self.host.print_receipt(self.chat)


PREVIEW_TURNS = 2
MAX_PREVIEW_LINES = 6
"""Lines of each message."""

PREVIEW_COLUMNS = 80


def last_turn_lines(
    items: Sequence[Item],
    display: DisplayOptions,
    turns: int = PREVIEW_TURNS,
    max_message_lines: int = MAX_PREVIEW_LINES,
) -> Iterator[str]:
    """Yield the lines of the last turns; nothing without messages."""
    shown = [
        item
        for item in items
        if is_compaction(item) or ((is_user_message(item) or is_assistant_message(item)) and item_text(item).strip())
    ]
    user_indexes = [index for index, item in enumerate(shown) if is_user_message(item) and not is_compaction(item)]
    start = user_indexes[-turns] if len(user_indexes) >= turns else 0
    compaction_index = max((index for index, item in enumerate(shown) if is_compaction(item)), default=0)
    if not any(map(is_assistant_message, shown[:compaction_index])):  # it replaced the answers to the messages before
        start = max(start, compaction_index)
    earlier_count = sum(not is_compaction(item) for item in shown[:start])
    if earlier_count:
        line = f"… {format_count(earlier_count, 'earlier message')}"
        yield display.apply_style(display.translate_box_chars(line), "dim")
    for item in shown[start:]:
        yield from _message_lines(item, display, max_message_lines)


def _message_lines(item: Item, display: DisplayOptions, max_lines: int) -> Iterator[str]:
    """Yield the first lines of a message or a compaction; a message that a user typed begins with the prompt sign."""
    columns, is_typed = (display.width or PREVIEW_COLUMNS) - 2, is_user_message(item) and not is_compaction(item)
    lines = [line for line in escape_control_chars(_displayed_text(item)).expandtabs(4).split("\n") if line.strip()]
    for index, line in enumerate(lines[:max_lines]):
        prefix = "> " if index == 0 and is_typed else "  "
        yield display.apply_style(prefix + display.translate_box_chars(truncate_text(line, columns)), "dim")
    if len(lines) > max_lines:
        yield display.apply_style(display.translate_box_chars(f"  … {len(lines) - max_lines} more lines"), "dim")


def _displayed_text(item: Item) -> str:
    """Return the text of an item; for a user message without its attachments, for a compaction with its name."""
    if is_compaction(item):
        return f"summary: {summary_text(item)}" if is_summary(item) else "[compaction]"
    content = item.get("content")
    parts = [part for part in content if part.get("type") == "input_text"] if isinstance(content, list) else []
    return str(parts[0]["text"]) if is_user_message(item) and parts else item_text(item)

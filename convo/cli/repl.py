"""REPL: the loop of an interactive chat.

Reads a line, runs a slash command, a shell command or a turn, and reports errors without ending the chat.
Input is saved before it is sent, so /retry works after any error. Ctrl-C or Esc cancels an answer; Ctrl-C twice at
an empty prompt, or Ctrl-D, exits. Messages that are typed during an answer are sent after it, in order.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from convo.chat.conversation import Chat
from convo.chat.history_nav import UndoStack
from convo.chat.turn import RequestOptions
from convo.cli.context import ChatContext
from convo.config.sections import Price
from convo.config.settings import Settings
from convo.errors import ConvoError, Interrupted, InvalidUsage, StateFault, UnsupportedValue
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
from convo.history.records import Link, is_compaction_link
from convo.history.tree import Key, Path, Prefix, derive
from convo.runtime import collect_garbage_often
from convo.secrets import redact_secrets
from convo.terminal.answer import AnswerPrinter, consume_interruptibly
from convo.terminal.attachments import describe_missing_files, format_attachment, load_mentioned_files
from convo.terminal.message_queue import EMPTY_MESSAGE, TypedMessage
from convo.terminal.pager import find_pager, run_pager
from convo.terminal.prompt import PROMPT, Choice, PromptReader
from convo.terminal.signals import ignore_signal, on_signal, restore_before_default_action
from convo.terminal.status_line import StatusLine, StatusLineState, format_status_owner
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
from convo.usage.cost import Usage
from convo.usage.model_info import find_model_window, is_text_only_model

if TYPE_CHECKING:
    from convo.agent_runner.runner import AgentRunner
    from convo.chat.next_request import RequestTokenCounter
    from convo.cli.agent_run import RunPresenter
    from convo.endpoints.base import Endpoint
    from convo.inspect.context_window import ContextUsage
    from convo.strategies.strategy import RequestInput
    from convo.terminal.picker import PickerEntries


InputResult = TypeVar("InputResult")


MAX_ECHOED_LINES = 20
"""Lines of a queued message that are printed when it is sent."""

WARM_UP_DELAY_S = 0.05
"""Seconds for the prompt to appear; slow loading starts after that."""

RunCommand: TypeAlias = Callable[["Repl", str], Coroutine[Any, Any, None]]
"""Runs a slash command or a shell command, as typed: `convo.cli.slash_commands.run_prompt_command`."""


class Repl:
    """One interactive chat.

    context:        its settings, endpoint and lease
    is_exiting:     set by a command that ends the chat
    undo_stack:     earlier heads of the conversation
    links:          the links of its session
    agent_chat:     the runs of agents; None without agents
    attachments:    names and content parts that are sent with the next message
    counts_tokens:  an exact count was made, so that the next one loads no model
    """

    def __init__(
        self,
        chat: Chat,
        reader: PromptReader,
        context: ChatContext,
        run_command: RunCommand,
        *,
        attachments: Iterable[tuple[str, dict[str, Json]]] = (),
        status_line: StatusLine | None = None,
    ) -> None:
        """Prepare the loop. `status_line` is kept up to date for a reader that draws one."""
        self.chat, self.context, self.reader, self.is_exiting = chat, context, reader, False
        self.undo_stack, self.attachments, self.links = UndoStack(), list(attachments), SessionLinkCache()
        self.agent_chat: AgentChat | None = None
        self.counts_tokens = False
        self._compacted_context: tuple[Key, bool, int] | None = None
        self._run_command, self._status_line = run_command, status_line
        self._out, self._err = sys.stdout, sys.stderr
        self._quiet, self.waiting_line = context.output.quiet, context.output.waiting_line
        self._renderer, self._format_reasoning = context.get_answer_renderer(), context.get_reasoning_formatter()
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
        """Print the last turns, if there are any: as they were shown, or as dim text where answers have no colors."""
        items, display = self.chat.state.path.items, self.display
        if self._renderer is None or not display.has_color:
            for line in last_turn_lines(items, display):
                self.print_styled(line)
            return
        earlier_count, shown = select_last_turns(items)
        if earlier_count:
            self.print_styled(_format_earlier_count(earlier_count, display))
        for item in shown:
            if is_compaction(item):
                self.print_styled("\n".join(_message_lines(item, display, MAX_PREVIEW_LINES)) + "\n")
            elif is_user_message(item):
                self._print_sent(_displayed_text(item))
            else:
                self.print_block("\n")
                self._renderer.write(escape_control_chars(item_text(item)))
                self._renderer.finish()
                self.print_block("\n")

    async def _warm_up(self) -> None:
        """Warm up the endpoint while the user types; errors are reported by the first request.

        A chat can stay open all day, so garbage is collected more often from here on.
        """
        await asyncio.sleep(WARM_UP_DELAY_S)
        collect_garbage_often()
        with suppress(ConvoError):
            await self.context.warm_up(self.chat)

    async def _read_loop(self) -> int:
        has_warned = False
        while not self.is_exiting:
            if message := self.reader.queue.take_next():
                self.reader.begin_message(message)
                self._print_sent(message.text)
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
                state = await self.load_status_line_state()
                self._status_line.state = state._replace(attachment_count=len(self.attachments))

    async def read_line(
        self, prompt: str = PROMPT, default: TypedMessage = EMPTY_MESSAGE, choices: Sequence[Choice] = ()
    ) -> str:
        """Read a line. Raises the errors of the reader, and Interrupted also for a Ctrl-C before the prompt appears."""
        self.reader.queue.is_open = False
        return await self._read_input(self.reader.read_line(prompt, default, choices))

    async def withdraw_line(self) -> str | None:
        """End `read_line` without an answer; see `PromptReader`. Messages that are typed next are not sent unseen."""
        self._has_withdrawn_line = True
        return await self.reader.withdraw_line()

    async def print_above(self, print_text: Callable[[], None]) -> bool:
        return await self.reader.print_above(print_text)

    @property
    def can_pick(self) -> bool:
        """Whether `pick` can be called; otherwise a command prints a list."""
        return self.reader.can_pick and not self.context.output.is_plain

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
        if self.waiting_line.is_enabled:
            self.print_block("\n")

    async def show_answer(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        """Show one answer and its receipt. Raises the errors of the turn, and Interrupted."""
        previous_turn = self.chat.turn
        self.context.measure_loading(self.chat)
        self.begin_answer()
        printer = AnswerPrinter(
            self._out,
            self._err,
            is_streamed=self.context.output.is_streamed,
            renderer=self._renderer,
            format_reasoning=self._format_reasoning,
            waiting_line=self.waiting_line,
        )
        try:
            async with self.waiting_line.show("waiting", is_allowed=lambda: printer.is_at_line_start):
                await consume_interruptibly(events, printer.print_event)
        except Interrupted:
            if self.reader.has_echo and not printer.has_open_line:
                self.print_message("")  # the terminal has printed ^C
            raise
        finally:
            printer.finish()
            if self.chat.turn is not previous_turn:
                self._print_receipt()

    def _print_sent(self, text: str) -> None:
        """Print a message that was not typed at the prompt as the prompt shows a typed one."""
        lines, display = text.split("\n"), self.display
        for index, line in enumerate(lines[:MAX_ECHOED_LINES]):
            sign = "  " if index else display.apply_style(display.apply_style(PROMPT, "id"), "bold")
            self.print_styled(sign + display.apply_style(escape_control_chars(line), "bold"))
        if len(lines) > MAX_ECHOED_LINES:
            self.print_message(f"  ({len(lines) - MAX_ECHOED_LINES} more lines)")

    def print_message(self, text: str) -> None:
        """Print a message that is no part of an answer, wrapped to the terminal."""
        self.print_block(wrap_text(escape_control_chars(text), self.display.width) + "\n")

    def print_failure(self, message: str, hint: str) -> None:
        """Print an error and the next step."""
        text = format_failure(redact_secrets(message), redact_secrets(hint), self.display)
        self.waiting_line.hide()
        self._err.write(text + "\n")
        self._err.flush()

    def print_block(self, text: str) -> None:
        """Print text that is already laid out, or is meant to be copied."""
        self._write(escape_control_chars(text))

    async def print_long(self, text: str) -> None:
        """Print text that is laid out, through the pager if it is taller than the terminal."""
        command = find_pager(text, self._err) if self.can_pick else ()
        if command:
            # In a thread, because the lease is renewed meanwhile; the pager receives Ctrl-C itself.
            with on_signal(signal.SIGINT, ignore_signal), self.reader.release_terminal():
                if await asyncio.to_thread(run_pager, escape_control_chars(text), command, self._err):
                    return
        self.print_block(text)

    def print_styled(self, text: str) -> None:
        """Print lines that are escaped and styled already."""
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        self.waiting_line.hide()
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
        # A blank before "!" sends the line as a message.
        elif text.startswith("/") or line.startswith("!"):
            work = self._run_command(self, line)
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
        self.check_input_supported(attachments)
        for name, part in attachments:
            self.notify(format_attachment(name, part))
        for line in describe_missing_files(text, self.reader.pasted_texts):
            self.notify(line)
        try:
            if not (self.agent_chat and self.agent_chat.runner.can_resume):
                await self.context.compact_if_needed(self.chat)
            items = [user_message(text, *(part for _, part in attachments))]
            await (self.agent_chat.send(items) if self.agent_chat else self.show_answer(self.chat.send(items)))
        finally:
            if self.chat.state.path.head != old_head:
                self.attachments.clear()

    def _print_receipt(self) -> None:
        if self.chat.turn and self.chat.turn.link:
            self.context.print_receipt(self.chat)

    async def load_status_line_state(self) -> StatusLineState:
        """Return the values of the status line, after a compaction with the tokens of /context. Raises StoreFault."""
        chat, choice = self.chat, self.context.choice
        state = await self.links.load_status_line_state(chat, self.context.settings)
        last_link = chat.record.last_link
        if state.used_tokens is None or last_link is None or not is_compaction_link(last_link):
            return state
        is_counter_slow = choice is not None and choice.provider.api == "local"  # until it is loaded
        key = chat.state.path.head, self.counts_tokens or not is_counter_slow
        if self._compacted_context is None or self._compacted_context[:2] != key:
            _, usage = await self.measure_context(can_start_counter=key[1])
            self._compacted_context = (*key, usage.total.tokens)
        return state._replace(used_tokens=self._compacted_context[2])

    async def measure_context(self, *, can_start_counter: bool = True) -> tuple[str, "ContextUsage"]:
        """Return the model of the next request, and its use of the context window.

        can_start_counter:  a model on this machine may be loaded for an exact count
        """
        from convo.chat.next_request import measure_context_window, skip_remote_count

        chat = self.chat
        options, endpoint, request_input = chat.options, chat.deps.endpoint, None
        with suppress(StateFault):
            options, endpoint, request_input, _ = await self.prepare_next_request(())
        counter = self.choose_token_counter(endpoint) if can_start_counter else skip_remote_count
        usage = await measure_context_window(
            chat.load_state(), options, counter, self.context.settings.windows, request_input=request_input
        )
        return options.model, usage

    async def prepare_next_request(
        self, items: Sequence[Item]
    ) -> tuple[RequestOptions, "Endpoint", "RequestInput | None", Path | None]:
        """Return the options and the endpoint of the next request, and its input and its path if agents decide on it.

        Raises the errors of `AgentRunner.preview_request`.
        """
        if self.agent_chat is None:
            return self.chat.options, self.chat.deps.endpoint, None, None
        await self.agent_chat.presenter.switch_chat(self.chat)
        prepared = await self.agent_chat.runner.preview_request(items)
        return prepared.options, prepared.endpoint, prepared.request_input, prepared.input_path

    def choose_token_counter(self, endpoint: "Endpoint") -> "RequestTokenCounter":
        from convo.chat.next_request import make_endpoint_counter, skip_remote_count

        can_count = self.context.can_count_locally and endpoint is self.chat.deps.endpoint
        return make_endpoint_counter(endpoint) if can_count else skip_remote_count

    def check_input_supported(self, attachments: Iterable[tuple[str, Json]]) -> None:
        """Reject attachments that the model would reject, before anything is stored.

        Raises Unsupported for a model that takes text only, and WindowExceeded if the text parts alone, without the
        history, certainly exceed its context window.
        """
        model, parts = self.chat.options.model, [part for _, part in attachments]
        media = [MEDIA_NAMES[part["type"]] for part in parts if part.get("type") in MEDIA_NAMES]
        if media and is_text_only_model(model):
            raise UnsupportedValue(
                model,
                media[0],
                param="input",
                hint="choose another model with /model, or remove the attachment with /detach",
            )
        text_parts = [part for part in parts if part.get("type") == "input_text"]
        window = find_model_window(model, self.context.settings.windows)
        if window and text_parts:
            from convo.usage.window import describe_excess

            describe_excess([user_message("", *text_parts)], None, None, model, window)


MEDIA_NAMES: Mapping[str, str] = {"input_image": "images", "input_file": "files"}


MAX_NEW_LINKS = 16
"""Newest links that are read after a turn; if all of them are new, all are read."""


@dataclass
class SessionLinkCache:
    """The links of a session as its store has them; a new head reads only the newest."""

    _read_at: tuple[str, Key] = ("", Key(""))
    _links: Prefix[Link] = field(default_factory=Prefix)

    async def load_links(self, chat: Chat) -> Sequence[Link]:
        """Return the session's links, oldest first. Raises StoreFault."""
        key = chat.session.id, chat.state.path.head
        if not chat.record.is_saved:
            return ()
        if key != self._read_at:
            read_links, known = partial(chat.deps.store.links, chat.session.id), {each.id for each in self._links}
            # All of them were read after each turn: turn 400 took 27 ms of CPU, now 11.
            newest = await read_links(limit=MAX_NEW_LINKS) if self._links and key[0] == self._read_at[0] else ()
            new = [link for link in newest if link.id not in known]
            is_complete = len(new) < len(newest)  # one of them is known, so no other new one is older
            self._links = self._links.append(new) if is_complete else Prefix(await read_links())
            self._read_at = key
        return self._links

    async def load_status_line_state(self, chat: Chat, settings: Settings) -> StatusLineState:
        """Return the values of the status line. Raises StoreFault."""
        last_link = chat.record.last_link
        usage = Usage.from_json(last_link.usage) if last_link and chat.state.path else None
        window = find_model_window(chat.options.model, settings.windows) if usage else None
        cost_usd, is_cost_partial = _sum_known_costs(await self.load_links(chat), settings.prices)
        return StatusLineState(
            owner=format_status_owner(chat.session),
            model=chat.options.model,
            used_tokens=usage.input_tokens + usage.output_tokens if usage else None,
            context_window=window.context if window else None,
            cost_usd=cost_usd,
            is_cost_partial=is_cost_partial,
        )


def _sum_known_costs(links: Sequence[Link], prices: Mapping[str, Price]) -> tuple[float | None, bool]:
    """Return the sum of the known costs, None if none is known, and whether others are unknown."""
    if not links:
        return None, False
    costs = derive(links, _make_cost_step, tuple(prices.items()))
    known_costs = [cost for cost in costs if cost is not None]
    return (sum(known_costs) if known_costs else None), len(known_costs) < len(costs)


def _make_cost_step(prices: tuple[tuple[str, Price], ...]) -> Callable[[Sequence[Link]], list[float | None]]:
    """Return a step of `derive` for the costs of the links that reported their usage; None for an unknown price."""
    from convo.inspect.view import link_cost_usd  # a new conversation does not need the import

    by_model = dict(prices)
    return lambda links: [link_cost_usd(link, by_model) for link in links if Usage.from_json(link.usage)]


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
    earlier_count, shown = select_last_turns(items, turns)
    if earlier_count:
        yield _format_earlier_count(earlier_count, display)
    for item in shown:
        yield from _message_lines(item, display, max_message_lines)


def select_last_turns(items: Sequence[Item], turns: int = PREVIEW_TURNS) -> tuple[int, Sequence[Item]]:
    """Return the messages and the compactions of the last turns, and the number of the messages before them."""
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
    return sum(not is_compaction(item) for item in shown[:start]), shown[start:]


def _format_earlier_count(count: int, display: DisplayOptions) -> str:
    return display.apply_style(display.translate_box_chars(f"… {format_count(count, 'earlier message')}"), "dim")


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


# -- agents ----------------------------------------------------------------------------------------

HEAD_MOVING_COMMANDS = ("undo", "redo", "rewind", "fork", "owner", "model", "new", "clear", "resume")
"""Commands that would move the head, or change the owner, the model or the conversation, during an open run."""

COMMANDS_WITHOUT_AGENTS = {
    "edit": "undo the last turn with /undo and send a new message",
    "system": "each agent has its own instructions",
}
"""Commands that are not available with agents, and the hint for each; /system is, for an agent without instructions."""

OPEN_RUN_HINT = "/retry continues the run, /stop ends it"


class AgentChat:
    """The agent runs of an interactive chat.

    A message starts a run. When the run pauses, the user is asked for a decision on each pending call, and the run
    resumes after the last decision. Commands in `HEAD_MOVING_COMMANDS` are rejected during an open run.
    """

    def __init__(self, repl: Repl, presenter: "RunPresenter", display: DisplayOptions) -> None:
        self._repl, self.presenter, self._display = repl, presenter, display

    @property
    def runner(self) -> "AgentRunner":
        return self.presenter.runner

    @property
    def status(self) -> str:
        """The phase, the agent and the undecided calls of the newest run, as text."""
        run = self.runner.run
        pending = ", ".join(call.id for call in self.runner.pending_calls)
        return f"{run.phase}, agent {run.agent}" + (f"; needs approval: {pending}" if pending else "")

    async def list_tools(self) -> list[tuple[str, str]]:
        """Return the name and the description of each tool of the agent that answers next."""
        agent = self.runner.run.graph[await self.runner.find_next_agent()]
        return [(tool.name, tool.description) for tool in agent.functions]

    async def list_agents(self, chosen: str) -> list[str]:
        """Choose the next agent, unless `chosen` is "", and return a line for each agent, with * for the next one.

        Raises NotFound.
        """
        await self.presenter.switch_chat(self._repl.chat)
        if chosen:
            self.runner.choose_agent(chosen)
        next_agent = await self.runner.find_next_agent()
        return [f"{'*' if identity == next_agent else ' '} {identity}" for identity in self.runner.run.graph.agents]

    async def resume_open_run(self) -> None:
        """Ask for the decisions of a paused run; print a note about an interrupted one.

        Raises the errors of the run.
        """
        if self.runner.pending_calls:
            self._repl.print_message("the run of this conversation is paused")
            await self._ask_for_decisions()
        elif self.runner.can_resume:
            self._repl.print_message("the run of this conversation was interrupted; /retry continues it")

    async def send(self, items: Sequence[Item]) -> None:
        """Start a run; while one is paused, send nothing and ask for its decisions instead.

        Raises the errors of the run.
        """
        await self.presenter.switch_chat(self._repl.chat)
        if self.runner.pending_calls:
            self._repl.print_message("nothing was sent: the run is paused")
            await self._ask_for_decisions()
            return
        await self._show_run(self.runner.start(items))

    async def retry(self) -> None:
        """Continue a run that was stopped or that failed.

        Raises InvalidUsage if no run is open, and the errors of the run.
        """
        await self.presenter.switch_chat(self._repl.chat)
        if not self.runner.can_resume:
            raise InvalidUsage("no run is open", hint="send a message")
        if self.runner.pending_calls:
            await self._ask_for_decisions()
        else:
            await self._show_run(self.runner.resume())

    async def stop(self) -> None:
        """End the open run; it cannot be continued. Raises InvalidUsage if no run is open."""
        if not self.runner.can_resume:
            raise InvalidUsage("no run is open", hint="/status shows the state of the conversation")
        await self.runner.stop()
        self._repl.print_message("the run was stopped; the conversation continues from here")

    async def check_command(self, command: str) -> None:
        """Raise InvalidUsage for a command without meaning for agents, StateFault for one barred by the open run."""
        uses_chat_instructions = self.runner.run.graph[await self.runner.find_next_agent()].instructions is None
        if command in COMMANDS_WITHOUT_AGENTS and not (command == "system" and uses_chat_instructions):
            raise InvalidUsage(f"/{command} is not available with agents", hint=COMMANDS_WITHOUT_AGENTS[command])
        if command in HEAD_MOVING_COMMANDS and self.runner.can_resume:
            raise StateFault(f"/{command} is not available while a run is open", hint=OPEN_RUN_HINT)
        if command == "next" and self.runner.pending_calls:
            raise StateFault("the next request depends on the decisions about the pending calls", hint=OPEN_RUN_HINT)

    async def _show_run(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        self._repl.begin_answer()
        await self.presenter.show_events(events)
        await self._ask_for_decisions()

    async def _ask_for_decisions(self) -> None:
        """Ask for decisions and continue the run until it no longer pauses or the user leaves."""
        while self.runner.pending_calls:
            if not await self._ask_user():
                await self.presenter.report_exit()
                return
            self._repl.reader.open_queue()
            await self.presenter.show_events(self.runner.resume())

    async def _ask_user(self) -> bool:
        from convo.terminal.approval_prompt import ask_for_decisions

        repl = self._repl
        return await ask_for_decisions(self.runner, repl, repl.print_message, repl.print_styled, self._display)

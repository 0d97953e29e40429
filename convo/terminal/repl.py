"""REPL: the loop of an interactive chat.

Reads a line, runs a slash command, a shell command or a turn, and reports errors without ending the chat.
Input is saved before it is sent, so /retry works after any error. Ctrl-C or Esc cancels an answer; Ctrl-C twice at
an empty prompt, or Ctrl-D, exits.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TextIO

from convo.chat.conversation import Chat
from convo.chat.history_nav import UndoStack
from convo.config.sections import Price
from convo.config.values import redact_passwords
from convo.errors import ConvoError, Interrupted, NotFound
from convo.history.items import Item, Json, StreamEvent, is_assistant_message, is_user_message, item_text, user_message
from convo.history.records import Link
from convo.terminal.answer import consume_interruptibly
from convo.terminal.prompt import DUMB_TERMINALS, PROMPT, PromptReader
from convo.terminal.signals import on_signal
from convo.terminal.slash_commands import dispatch_command, format_attachment, load_mentioned_files, run_shell_line
from convo.terminal.status_line import StatusLine, StatusLineState
from convo.terminal.terminal import (
    AnswerPrinter,
    AnswerRenderer,
    DisplayOptions,
    FormatReasoning,
    detect_display,
    escape_control_chars,
    truncate_text,
    wrap_text,
)

if TYPE_CHECKING:
    from convo.terminal.agent_chat import AgentChat


WARM_UP_DELAY_S = 0.05
"""Seconds for the prompt to appear; slow loading starts after that."""

HINTS_IN_REPL = {NotFound.hint: "/resume lists what was used last"}
"""Hints that replace the shell's hints in a chat."""


class ReplHost(Protocol):
    """Interface of the command that runs the REPL."""

    def status(self, chat: Chat) -> str: ...

    async def next(self, chat: Chat, words: str) -> str: ...

    async def context(self, chat: Chat) -> str: ...

    def receipt(self, chat: Chat) -> str: ...

    async def inspect(self, chat: Chat, handle: str) -> str: ...

    async def switch(self, chat: Chat, model: str) -> None: ...

    async def prepare(self, chat: Chat) -> None: ...

    async def compact(self, chat: Chat, words: str) -> str: ...

    async def own(self, chat: Chat, owner: str) -> tuple[Chat, str]: ...

    async def fork(self, chat: Chat, number: int | None) -> Chat: ...

    async def new(self, chat: Chat, name: str) -> Chat: ...

    async def resume(self, chat: Chat, handle: str) -> Chat: ...

    async def recent(self, chat: Chat) -> str: ...

    async def rename(self, chat: Chat, name: str) -> None: ...

    async def export(self, chat: Chat, words: str) -> str: ...

    async def links(self, chat: Chat) -> Sequence[Link]: ...

    @property
    def prices(self) -> Mapping[str, Price]: ...

    async def standing(self, chat: Chat) -> StatusLineState: ...

    def check_takes(self, chat: Chat, parts: Sequence[Json]) -> None: ...


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
        look: ReplHost,
        *,
        out: TextIO,
        err: TextIO,
        along: Iterable[tuple[str, dict[str, Json]]] = (),
        live: bool = True,
        quiet: bool = False,
        bar: StatusLine | None = None,
        sheet: AnswerRenderer | None = None,
        folded: FormatReasoning | None = None,
    ) -> None:
        """Prepare the loop.

        status_line:  kept up to date for a reader that draws one
        renderer:     receives the text of the answers
        """
        self.chat, self.look, self.reader, self.leaving = chat, look, reader, False
        self.heads, self.along = UndoStack(), list(along)
        self.runs: AgentChat | None = None
        self._out, self._err = out, err
        self._live, self._quiet, self._bar = live, quiet, bar
        self._sheet, self._folded = sheet, folded
        self._reading: asyncio.Future[str] | None = None
        self._pressed = self._escaped = False
        chat.noted = self.note

    @property
    def medium(self) -> DisplayOptions:
        """The abilities of the terminal, colors included."""
        return detect_display(self._err, os.environ)

    async def run(self) -> int:
        """Run the loop until the user exits. Returns the exit code."""
        warming = asyncio.create_task(self._warm())
        try:
            with on_signal(signal.SIGINT, self._press):
                if not self._quiet:
                    self.show_last_turns()
                if self.runs:
                    await self._tried(self.runs.begin())
                return await self._talk()
        finally:
            self.reader.close()
            warming.cancel()
            with suppress(asyncio.CancelledError):
                await warming

    def show_last_turns(self) -> None:
        """Print the last turns, if there are any."""
        for line in last_turn_lines(self.chat.held.path.items, self.medium):
            self._err.write(line + "\n")
        self._err.flush()

    async def _warm(self) -> None:
        """Warm up the endpoint while the user types; errors are reported by the first request."""
        await asyncio.sleep(WARM_UP_DELAY_S)
        with suppress(ConvoError):
            await self.chat.edges.endpoint.warm(self.chat.asking.wire_model)

    async def _talk(self) -> int:
        warned = False
        while not self.leaving:
            await self._look_up()
            try:
                line = await self.typed()
            except EOFError:
                return 0
            except Interrupted:
                if warned:
                    return 130
                self.say("Ctrl-C again or Ctrl-D leaves")
                warned = True
                continue
            warned = False
            if line.strip():
                await self._carry_out(line)
        return 0

    async def _look_up(self) -> None:
        """Update the status line; keep the old one if the state cannot be loaded."""
        if self._bar:
            with suppress(ConvoError):
                standing = await self.look.standing(self.chat)
                self._bar.standing = standing._replace(along=len(self.along))

    async def typed(self, prompt: str = PROMPT, default: str = "") -> str:
        """Read a line. Raises the errors of the reader, and Interrupted also for a Ctrl-C before the prompt appears."""
        try:
            if self._pressed:
                raise Interrupted("nothing was typed")
            self._reading = asyncio.ensure_future(self.reader.line(prompt, default))
            return await self._reading
        except asyncio.CancelledError:
            if not self._pressed:
                raise
            raise Interrupted("nothing was typed") from None
        finally:
            self._reading, self._pressed = None, False

    def _press(self) -> None:
        """Handle a Ctrl-C that no answer handles: interrupt the current or the next prompt. A late Esc is ignored."""
        if self._escaped:
            self._escaped = False
            return
        self._pressed = True
        if self._reading:
            self._reading.cancel()

    def _escape(self) -> None:
        """Treat Esc as a Ctrl-C that only running work receives."""
        self._escaped = True
        signal.raise_signal(signal.SIGINT)

    async def answer(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        """Show one answer and its receipt. Raises the errors of the turn, and Interrupted."""
        before = self.chat.turn
        printer = AnswerPrinter(self._out, self._err, live=self._live, sheet=self._sheet, folded=self._folded)
        try:
            await consume_interruptibly(events, printer.take)
        except Interrupted:
            if self.reader.echoes and not printer.open_line:
                self.say("")  # the terminal has printed ^C
            raise
        finally:
            printer.end()
            if self.chat.turn is not before:
                self._after()

    def say(self, words: str) -> None:
        """Print a message that is no part of an answer, wrapped to the terminal."""
        self.show(wrap_text(escape_control_chars(words), self.medium.width) + "\n")

    def show(self, words: str) -> None:
        """Print text that is already laid out, or is meant to be copied."""
        self._err.write(escape_control_chars(words))
        self._err.flush()

    def to_terminal(self, sequence: str) -> bool:
        """Send a control sequence to the terminal. Returns whether it was sent."""
        told = bool(sequence) and self._err.isatty() and os.environ.get("TERM") not in DUMB_TERMINALS
        if told:
            self._err.write(sequence)
            self._err.flush()
        return told

    def note(self, words: str) -> None:
        """Print a message, unless --quiet is set."""
        if not self._quiet:
            self.say(words)

    async def _carry_out(self, line: str) -> None:
        self._escaped = False
        if is_slash_command(line):
            work = dispatch_command(self, line.strip())
        else:
            work = run_shell_line(self, line) if line.startswith("!") else self._ask(unescape_slash(line))
        with self.reader.listening(self._escape):
            await self._tried(work)

    async def _tried(self, work: Awaitable[None]) -> None:
        """Await `work`, and report its errors without ending the chat."""
        try:
            await work
        except Interrupted as stopped:
            self.say(f"{stopped.message}; /retry asks again, /undo takes it back")
        except ConvoError as error:
            self.say(redact_passwords(f"convo: {error.message}"))
            if error.hint:
                self.show(redact_passwords(f"  try: {HINTS_IN_REPL.get(error.hint, error.hint)}\n"))

    async def _ask(self, words: str) -> None:
        before, along = self.chat.held.path.head, [*self.along, *load_mentioned_files(words, self.reader.pasted)]
        self.look.check_takes(self.chat, [part for _, part in along])
        for name, part in along:
            self.note(format_attachment(name, part))
        try:
            if not (self.runs and self.runs.running.unfinished):
                await self.look.prepare(self.chat)
            said = [user_message(words, *(part for _, part in along))]
            await (self.runs.say(said) if self.runs else self.answer(self.chat.say(said)))
        finally:
            if self.chat.held.path.head != before:
                self.along.clear()

    def _after(self) -> None:
        if self.chat.turn and self.chat.turn.link:
            self.note(self.look.receipt(self.chat))


def is_slash_command(line: str) -> bool:
    """Whether `line` is a slash command and not a message; blanks before the slash are allowed."""
    return line.lstrip().startswith("/") and not line.lstrip().startswith("//")


def unescape_slash(line: str) -> str:
    """Return the message in `line`: one that begins with a slash is typed with two."""
    return line.lstrip().removeprefix("/") if line.lstrip().startswith("//") else line


PREVIEW_TURNS = 2
MAX_PREVIEW_LINES = 6
"""Lines of each message."""

PREVIEW_COLUMNS = 80


def last_turn_lines(items: Sequence[Item], medium: DisplayOptions, turns: int = PREVIEW_TURNS) -> Iterator[str]:
    """Yield the lines of the last turns; nothing without messages."""
    said = [item for item in items if (is_user_message(item) or is_assistant_message(item)) and item_text(item).strip()]
    asked = [at for at, item in enumerate(said) if is_user_message(item)]
    begin = asked[-turns] if len(asked) >= turns else 0
    if begin:
        yield medium.paint(medium.drawn(f"… {begin} earlier"), "dim")
    for item in said[begin:]:
        yield from _message_lines(item, medium)


def _message_lines(item: Item, medium: DisplayOptions) -> Iterator[str]:
    """Yield the first lines of a message; a user message begins with the prompt sign."""
    room = (medium.width or PREVIEW_COLUMNS) - 2
    lines = [line for line in escape_control_chars(_displayed_text(item)).expandtabs(4).split("\n") if line.strip()]
    for at, line in enumerate(lines[:MAX_PREVIEW_LINES]):
        mark = "> " if at == 0 and is_user_message(item) else "  "
        yield medium.paint(mark + medium.drawn(truncate_text(line, room)), "dim")
    if len(lines) > MAX_PREVIEW_LINES:
        yield medium.paint(medium.drawn(f"  … {len(lines) - MAX_PREVIEW_LINES} more lines"), "dim")


def _displayed_text(item: Item) -> str:
    """Return the text of an item; for a user message without its attachments."""
    content = item.get("content")
    parts = [part for part in content if part.get("type") == "input_text"] if isinstance(content, list) else []
    return str(parts[0]["text"]) if is_user_message(item) and parts else item_text(item)

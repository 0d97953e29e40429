"""The loop of an interactive chat: read, answer, and survive whatever goes wrong.

No error ends it. What was typed is in the store before it is sent, so after an error `/retry`
asks it again. Esc or Ctrl-C stops an answer; Ctrl-C at an empty prompt says how to leave, and the
second one in a row leaves. One that comes a moment too late for an answer does not end the chat, and
an Esc that does is nothing at all.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TextIO

from convo.config import Price
from convo.config.secret import without_passwords
from convo.engine.chat import Chat
from convo.engine.heads import Heads
from convo.errors import ConvoError, Interrupted, NotFound
from convo.history import Link
from convo.items import Event, Json, user
from convo.ui.along import parts_of, said_of
from convo.ui.answer import Fold, Printer, Sheet, safe
from convo.ui.answering import watched
from convo.ui.bar import Bar, Standing
from convo.ui.commands import obey
from convo.ui.earlier import last_turns
from convo.ui.medium import Medium, fitted, medium_of
from convo.ui.prompt import NOT_DRAWN_ON, PROMPT, Reader
from convo.ui.shelling import shell
from convo.ui.signals import on_signal

if TYPE_CHECKING:
    from convo.ui.runs import Runs

AFTER_PROMPT_S = 0.05
"""Seconds until the prompt stands; what takes long is loaded behind it."""

AT_THE_PROMPT = {NotFound.hint: "/resume lists what was used last"}
"""What takes the place of a step that a shell has."""


class Look(Protocol):
    """What the loop asks of the command that runs it."""

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

    async def standing(self, chat: Chat) -> Standing: ...

    def check_takes(self, chat: Chat, parts: Sequence[Json]) -> None: ...


class Conversing:
    """One interactive chat.

    leaving:  set by a command that ends it
    heads:    where the head of the conversation has been
    runs:     of agents, where they answer
    along:    what goes with the next message: names, and content parts
    """

    def __init__(
        self,
        chat: Chat,
        reader: Reader,
        look: Look,
        *,
        out: TextIO,
        err: TextIO,
        along: Iterable[tuple[str, dict[str, Json]]] = (),
        live: bool = True,
        quiet: bool = False,
        bar: Bar | None = None,
        sheet: Sheet | None = None,
        folded: Fold | None = None,
    ) -> None:
        """Prepare the loop; `bar` is kept up to date, where the reader draws one, and answers go to `sheet`."""
        self.chat, self.look, self.reader, self.leaving = chat, look, reader, False
        self.heads, self.along = Heads(), list(along)
        self.runs: Runs | None = None
        self._out, self._err = out, err
        self._live, self._quiet, self._bar = live, quiet, bar
        self._sheet, self._folded = sheet, folded
        self._reading: asyncio.Future[str] | None = None
        self._pressed = self._escaped = False
        chat.noted = self.note

    @property
    def medium(self) -> Medium:
        """What the terminal can show, with colours where it has them."""
        return medium_of(self._err, os.environ)

    async def run(self) -> int:
        """Talk until the person leaves; returns the exit code."""
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
        """Show what was said last, where something was."""
        for line in last_turns(self.chat.held.path.items, self.medium):
            self._err.write(line + "\n")
        self._err.flush()

    async def _warm(self) -> None:
        """Use the time until the first message; what goes wrong is told when it is asked."""
        await asyncio.sleep(AFTER_PROMPT_S)
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
        """Bring the bar up to date; one that cannot be had is none."""
        if self._bar:
            with suppress(ConvoError):
                standing = await self.look.standing(self.chat)
                self._bar.standing = standing._replace(along=len(self.along))

    async def typed(self, prompt: str = PROMPT, default: str = "") -> str:
        """What the person types next. raises: as a reader; Ctrl-C counts before the prompt stands, too"""
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
        """Ctrl-C where no answer and no prompt takes it: the prompt that comes does. An Esc is over."""
        if self._escaped:
            self._escaped = False
            return
        self._pressed = True
        if self._reading:
            self._reading.cancel()

    def _escape(self) -> None:
        """Esc is a Ctrl-C for whoever works at the moment, and for nobody else."""
        self._escaped = True
        signal.raise_signal(signal.SIGINT)

    async def answer(self, events: AsyncGenerator[Event, None]) -> None:
        """Show one answer and its receipt. raises: as the turn does; Interrupted"""
        before = self.chat.turn
        printer = Printer(self._out, self._err, live=self._live, sheet=self._sheet, folded=self._folded)
        try:
            await watched(events, printer.take)
        except Interrupted:
            if self.reader.echoes and not printer.open_line:
                self.say("")  # the terminal has shown ^C
            raise
        finally:
            printer.end()
            if self.chat.turn is not before:
                self._after()

    def say(self, words: str) -> None:
        """Tell the person something that is not the answer, in lines that fit."""
        self.show(fitted(safe(words), self.medium.width) + "\n")

    def show(self, words: str) -> None:
        """Show what is laid out already, or is to be copied as it stands."""
        self._err.write(safe(words))
        self._err.flush()

    def to_terminal(self, sequence: str) -> bool:
        """Let the terminal obey `sequence`; whether it was told."""
        told = bool(sequence) and self._err.isatty() and os.environ.get("TERM") not in NOT_DRAWN_ON
        if told:
            self._err.write(sequence)
            self._err.flush()
        return told

    def note(self, words: str) -> None:
        """Tell the person, unless they want to be told nothing but answers."""
        if not self._quiet:
            self.say(words)

    async def _carry_out(self, line: str) -> None:
        self._escaped = False
        if is_command(line):
            work = obey(self, line.strip())
        else:
            work = shell(self, line) if line.startswith("!") else self._ask(message(line))
        with self.reader.listening(self._escape):
            await self._tried(work)

    async def _tried(self, work: Awaitable[None]) -> None:
        """Carry out `work`; what goes wrong is told, and the chat goes on."""
        try:
            await work
        except Interrupted as stopped:
            self.say(f"{stopped.message}; /retry asks again, /undo takes it back")
        except ConvoError as error:
            self.say(without_passwords(f"convo: {error.message}"))
            if error.hint:
                self.show(without_passwords(f"  try: {AT_THE_PROMPT.get(error.hint, error.hint)}\n"))

    async def _ask(self, words: str) -> None:
        before, along = self.chat.held.path.head, [*self.along, *parts_of(words, self.reader.pasted)]
        self.look.check_takes(self.chat, [part for _, part in along])
        for name, part in along:
            self.note(said_of(name, part))
        try:
            if not (self.runs and self.runs.running.unfinished):
                await self.look.prepare(self.chat)
            said = [user(words, *(part for _, part in along))]
            await (self.runs.say(said) if self.runs else self.answer(self.chat.say(said)))
        finally:
            if self.chat.held.path.head != before:
                self.along.clear()

    def _after(self) -> None:
        if self.chat.turn and self.chat.turn.link:
            self.note(self.look.receipt(self.chat))


def is_command(line: str) -> bool:
    """Whether `line` is for the chat and not for the model, wherever its slash stands."""
    return line.lstrip().startswith("/") and not line.lstrip().startswith("//")


def message(line: str) -> str:
    """What `line` says to the model: a message that begins with a slash is written with two."""
    return line.lstrip().removeprefix("/") if line.lstrip().startswith("//") else line

"""The loop of an interactive chat: read, answer, and survive whatever goes wrong.

No error ends it. What was typed is in the store before it is sent, so after an error `/retry`
asks it again. Ctrl-C stops an answer; at an empty prompt it says how to leave, and the second one
in a row leaves. One that comes a moment too late for an answer does not end the chat.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TextIO

from convo.engine.chat import Chat
from convo.engine.heads import Heads
from convo.errors import ConvoError, Interrupted
from convo.items import Event, Json, user
from convo.ui.answer import Printer, safe
from convo.ui.answering import watched
from convo.ui.commands import obey
from convo.ui.prompt import PROMPT, Reader
from convo.ui.signals import on_signal

if TYPE_CHECKING:
    from convo.ui.runs import Runs

AFTER_PROMPT_S = 0.05
"""Seconds until the prompt stands; what takes long is loaded behind it."""


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


class Conversing:
    """One interactive chat.

    leaving:  set by a command that ends it
    heads:    where the head of the conversation has been
    runs:     of agents, where they answer
    """

    def __init__(
        self,
        chat: Chat,
        reader: Reader,
        look: Look,
        *,
        out: TextIO,
        err: TextIO,
        along: Sequence[Json] = (),
        live: bool = True,
        quiet: bool = False,
    ) -> None:
        """Prepare the loop; `along` are content parts that go with the first message."""
        self.chat, self.look, self.leaving = chat, look, False
        self.heads = Heads()
        self.runs: Runs | None = None
        self._reader, self._out, self._err = reader, out, err
        self._along, self._live, self._quiet = tuple(along), live, quiet
        self._reading: asyncio.Future[str] | None = None
        self._pressed = False
        chat.noted = self._note

    async def run(self) -> int:
        """Talk until the person leaves; returns the exit code."""
        warming = asyncio.create_task(self._warm())
        try:
            with on_signal(signal.SIGINT, self._press):
                if self.runs:
                    await self._tried(self.runs.begin())
                return await self._talk()
        finally:
            self._reader.close()
            warming.cancel()
            with suppress(asyncio.CancelledError):
                await warming

    async def _warm(self) -> None:
        """Use the time until the first message; what goes wrong is told when it is asked."""
        await asyncio.sleep(AFTER_PROMPT_S)
        with suppress(ConvoError):
            await self.chat.edges.endpoint.warm(self.chat.asking.wire_model)

    async def _talk(self) -> int:
        warned = False
        while not self.leaving:
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

    async def typed(self, prompt: str = PROMPT, default: str = "") -> str:
        """What the person types next. raises: as a reader; Ctrl-C counts before the prompt stands, too"""
        try:
            if self._pressed:
                raise Interrupted("nothing was typed")
            self._reading = asyncio.ensure_future(self._reader.line(prompt, default))
            return await self._reading
        except asyncio.CancelledError:
            if not self._pressed:
                raise
            raise Interrupted("nothing was typed") from None
        finally:
            self._reading, self._pressed = None, False

    def _press(self) -> None:
        """Ctrl-C where no answer and no prompt takes it: the prompt that comes does."""
        self._pressed = True
        if self._reading:
            self._reading.cancel()

    async def answer(self, events: AsyncGenerator[Event, None]) -> None:
        """Show one answer and its receipt. raises: as the turn does; Interrupted"""
        before = self.chat.turn
        printer = Printer(self._out, self._err, live=self._live)
        try:
            await watched(events, printer.take)
        except Interrupted:
            if not printer.open_line:
                self.say("")  # the terminal has shown ^C
            raise
        finally:
            printer.end()
            if self.chat.turn is not before:
                self._after()

    def say(self, words: str) -> None:
        """Tell the person something that is not the answer."""
        self._err.write(safe(words) + "\n")
        self._err.flush()

    def _note(self, words: str) -> None:
        if not self._quiet:
            self.say(words)

    async def _carry_out(self, line: str) -> None:
        await self._tried(obey(self, line.strip()) if is_command(line) else self._ask(message(line)))

    async def _tried(self, work: Awaitable[None]) -> None:
        """Carry out `work`; what goes wrong is told, and the chat goes on."""
        try:
            await work
        except Interrupted as stopped:
            self.say(f"{stopped.message}; /retry asks again, /undo takes it back")
        except ConvoError as error:
            self.say(f"convo: {error.message}" + (f"\n  try: {error.hint}" if error.hint else ""))

    async def _ask(self, words: str) -> None:
        before, along = self.chat.held.path.head, self._along
        try:
            if not (self.runs and self.runs.running.unfinished):
                await self.look.prepare(self.chat)
            said = [user(words, *along)]
            await (self.runs.say(said) if self.runs else self.answer(self.chat.say(said)))
        finally:
            if self.chat.held.path.head != before:
                self._along = ()

    def _after(self) -> None:
        if self.chat.turn and self.chat.turn.link:
            self._note(self.look.receipt(self.chat))


def is_command(line: str) -> bool:
    """Whether `line` is for the chat and not for the model, wherever its slash stands."""
    return line.lstrip().startswith("/") and not line.lstrip().startswith("//")


def message(line: str) -> str:
    """What `line` says to the model: a message that begins with a slash is written with two."""
    return line.lstrip().removeprefix("/") if line.lstrip().startswith("//") else line

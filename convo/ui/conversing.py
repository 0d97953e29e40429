"""The loop of an interactive chat: read, answer, and survive whatever goes wrong.

No error ends it. What was typed is in the store before it is sent, so after an error `/retry`
asks it again. Ctrl-C stops an answer; at an empty prompt it says how to leave, and the second one
in a row leaves.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Protocol, TextIO

from convo.engine.chat import Chat
from convo.errors import ConvoError, Interrupted
from convo.items import Event, user
from convo.ui.answer import Printer, safe
from convo.ui.answering import watched
from convo.ui.commands import obey
from convo.ui.prompt import Reader

AFTER_PROMPT_S = 0.05
"""Seconds until the prompt stands; what takes long is loaded behind it."""


class Look(Protocol):
    """What the loop asks of the command that runs it."""

    def status(self, chat: Chat) -> str: ...

    def next(self, chat: Chat, words: str) -> str: ...

    def receipt(self, chat: Chat) -> str: ...

    async def inspect(self, chat: Chat, handle: str) -> str: ...

    async def switch(self, chat: Chat, model: str) -> None: ...


class Conversing:
    """One interactive chat.

    leaving:  set by a command that ends it
    """

    def __init__(
        self,
        chat: Chat,
        reader: Reader,
        look: Look,
        *,
        out: TextIO,
        err: TextIO,
        live: bool = True,
        quiet: bool = False,
    ) -> None:
        self.chat, self.look, self.leaving = chat, look, False
        self._reader, self._out, self._err = reader, out, err
        self._live, self._quiet = live, quiet

    async def run(self) -> int:
        """Talk until the person leaves; returns the exit code."""
        warming = asyncio.create_task(self._warm())
        try:
            return await self._talk()
        finally:
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
                line = await self._reader.line()
            except EOFError:
                return 0
            except KeyboardInterrupt:
                if warned:
                    return 130
                self.say("Ctrl-C again or Ctrl-D leaves")
                warned = True
                continue
            warned = False
            if line.strip():
                await self._carry_out(line)
        return 0

    async def answer(self, events: AsyncGenerator[Event, None]) -> None:
        """Show one answer and its receipt. raises: as the turn does; Interrupted"""
        printer = Printer(self._out, self._err, live=self._live)
        try:
            await watched(events, printer.take)
        finally:
            printer.end()
            self._after()

    def say(self, words: str) -> None:
        """Tell the person something that is not the answer."""
        self._err.write(safe(words) + "\n")
        self._err.flush()

    async def _carry_out(self, line: str) -> None:
        try:
            if line.startswith("/") and not line.startswith("//"):
                await obey(self, line)
            else:
                await self.answer(self.chat.say([user(line.removeprefix("/") if line.startswith("//") else line)]))
        except Interrupted as stopped:
            self.say(f"{stopped.message}; /retry asks again, /undo takes it back")
        except ConvoError as error:
            self.say(f"convo: {error.message}" + (f"\n  try: {error.hint}" if error.hint else ""))

    def _after(self) -> None:
        turn = self.chat.turn
        if turn is None:
            return
        for note in turn.notes:
            self.say(note)
        if turn.link and not self._quiet:
            self.say(self.look.receipt(self.chat))

"""The commands that leave a conversation for another one, name it, or write it down.

Nothing is closed for good: what is left stays in the store as it stands, and /resume goes back to it.
"""

from typing import TYPE_CHECKING

from convo.errors import Usage
from convo.ui.labelled import counted

if TYPE_CHECKING:
    from convo.engine.chat import Chat
    from convo.ui.conversing import Conversing

CLEARED = "\x1b[H\x1b[2J"
"""Tells a terminal to begin a new screen; what scrolled away stays where it can be scrolled to."""


async def new(talk: "Conversing", name: str) -> None:
    _leave(talk, await talk.look.new(talk.chat, name))
    talk.say("a new conversation" + (f", {name}" if name else ""))


async def clear(talk: "Conversing", name: str) -> None:
    talk.to_terminal(CLEARED)
    await new(talk, name)


async def resume(talk: "Conversing", handle: str) -> None:
    if not handle:
        talk.show(await talk.look.recent(talk.chat) + "\n")
        return
    left = talk.chat.session.name
    _leave(talk, await talk.look.resume(talk.chat, handle))
    stays = f"; {left} stays where it stands" if left else ""
    talk.say(f"{talk.chat.session.name} goes on from {counted(len(talk.chat.held.path))}{stays}")
    talk.show_last_turns()


def _leave(talk: "Conversing", chat: "Chat") -> None:
    talk.chat = chat
    talk.along.clear()


async def rename(talk: "Conversing", name: str) -> None:
    if not name:
        raise Usage("/rename takes the new name", hint="/rename words-with-dashes")
    before = talk.chat.session.name
    await talk.look.rename(talk.chat, name)
    talk.say(f"{before} is now {name}" if before else f"it will be called {name}")


async def export(talk: "Conversing", words: str) -> None:
    talk.say(await talk.look.export(talk.chat, words))

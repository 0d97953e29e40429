"""The commands of a chat that move its head: back, forward again, aside, and over a message once more.

Nothing of what they leave is lost: the links that were made there keep it, and /redo takes it up
again until something else is said.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from convo.engine.heads import last_said
from convo.errors import Interrupted, Usage
from convo.history import Path
from convo.items import first_words, is_user, text, user
from convo.ui.labelled import counted

if TYPE_CHECKING:
    from convo.ui.conversing import Conversing

EDITED = "edit> "
"""The prompt behind which the last message stands to be changed."""


async def undo(talk: "Conversing", _: str) -> None:
    _tell(talk, await talk.heads.back(talk.chat), "took back")


async def rewind(talk: "Conversing", words: str) -> None:
    number = _number(words, "/rewind") if words else None
    _tell(talk, await talk.heads.back(talk.chat, number), "went back before")


async def redo(talk: "Conversing", _: str) -> None:
    _tell(talk, await talk.heads.forward(talk.chat), "took up again")


async def edit(talk: "Conversing", words: str) -> None:
    """Ask the last message again as it was changed; Ctrl-C and Ctrl-D at its prompt change nothing."""
    said = last_said(talk.chat)
    if not words:
        with suppress(EOFError, Interrupted):
            words = (await talk.typed(EDITED, text(said[-1]))).strip()
    if not words:
        talk.say("nothing was changed")
        return
    content = said[-1].get("content")
    along = [part for part in content if part.get("type") != "input_text"] if isinstance(content, list) else []
    await talk.heads.back(talk.chat)
    await talk.answer(talk.chat.say([*said[:-1], user(words, *along)]))


async def fork(talk: "Conversing", words: str) -> None:
    number = _number(words, "/fork") if words else None
    left = talk.chat.session.name
    talk.chat = await talk.look.fork(talk.chat, number)
    held = talk.chat.held
    talk.say(f"{talk.chat.session.name} goes on from {counted(len(held.path))}; {left} stays where it stands")


def _number(words: str, command: str) -> int:
    """raises: Usage  it is none"""
    try:
        return int(words)
    except ValueError:
        raise Usage(f"{command} takes a turn's number, not {words!r}", hint=f"{command} 1, or {command} -1") from None


def _tell(talk: "Conversing", before: Path, did: str) -> None:
    """Say what the head moved over and where it stands now; `before` is the path as it was."""
    now = talk.chat.held.path
    shared = before.shared(now)
    passed = before.nodes[shared:] if len(now) < len(before) else now.nodes[shared:]
    first = next((node.item for node in passed if is_user(node.item)), None)
    what = f'"{first_words(first)}"' if first else "the last turn"
    talk.say(f"{did} {what}; the next message goes on from {counted(len(now))}")

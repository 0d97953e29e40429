"""Compaction in a chat that is open: by itself before a message, and because somebody typed /compact.

Ctrl-C stops either, and the history is as it was.
"""

from collections.abc import Callable, Mapping

from convo.compaction import At
from convo.config import Room
from convo.engine.chat import Chat
from convo.errors import Interrupted
from convo.transfer.compacting import made, put
from convo.transfer.shortening import Shortening
from convo.ui.answering import waited
from convo.ui.compacted import one_line, wished

STOPPED = "not compacted: you stopped it"


def shortening(at: At, own: Mapping[str, Room]) -> Shortening:
    """What sees to one chat, by the setting `compact_at`; `own` are the windows that a person gave."""
    return Shortening(at, own)


async def prepared(chat: Chat, seeing: Shortening, note: Callable[[str], None]) -> None:
    """Let the history be short enough for another message; `note` is told first that it is compacted."""
    reached = seeing.due(chat)
    if reached is None:
        return
    try:
        done = await waited(seeing.shorten(chat, reached, note))
    except Interrupted:
        note(STOPPED)
        return
    if done:
        note(one_line(chat.session, done))


async def compacted(chat: Chat, words: str) -> str:
    """Compact as the words after /compact wish; what became of it. raises: as `made` and `put`"""
    wish, yes = wished(words)
    try:
        one = await waited(made(chat, wish, confirmed=yes))
    except Interrupted:
        return STOPPED
    return one_line(chat.session, await put(chat, one, confirmed=yes))

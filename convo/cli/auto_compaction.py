"""Compaction in an open chat: automatic before a message, and /compact.

Ctrl-C stops either and leaves the history as it was. Loaded with the first message, not with the prompt.
"""

from collections.abc import Callable

from convo.chat.conversation import Chat
from convo.errors import Interrupted
from convo.terminal.answer import run_interruptibly
from convo.terminal.report_views import format_compaction, parse_compact_arguments
from convo.transfer.compact import AutoCompaction, apply_compaction, prepare_compaction

COMPACTION_STOPPED = "compaction stopped; the history is unchanged"


async def compact_if_due(chat: Chat, auto_compaction: AutoCompaction, note: Callable[[str], None]) -> None:
    """Compact the history if it is too long for another message; `note` is called before the compaction."""
    reached = auto_compaction.check_due(chat)
    if reached is None:
        return
    try:
        done = await run_interruptibly(auto_compaction.compact_chat(chat, reached, note))
    except Interrupted:
        note(COMPACTION_STOPPED)
        return
    if done:
        note(format_compaction(chat.session, done))


async def compact_open_chat(chat: Chat, text: str) -> str:
    """Run /compact with its arguments and return the report.

    Raises the errors of `prepare_compaction` and `apply_compaction`.
    """
    wish, yes = parse_compact_arguments(text)
    try:
        one = await run_interruptibly(prepare_compaction(chat, wish, confirmed=yes))
    except Interrupted:
        return COMPACTION_STOPPED
    return format_compaction(chat.session, await apply_compaction(chat, one, confirmed=yes))

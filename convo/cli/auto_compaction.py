"""Compaction in an open chat: automatic before a message, and /compact.

Ctrl-C stops either and leaves the history as it was. Imported when a compaction is due or requested.
"""

from collections.abc import Callable

from convo.chat.conversation import Chat
from convo.errors import Interrupted
from convo.terminal.answer import run_interruptibly
from convo.terminal.report_views import format_compaction, parse_compact_arguments
from convo.transfer.auto_compaction import AutoCompaction, CompactionDue
from convo.transfer.compact import apply_compaction, prepare_compaction

COMPACTION_STOPPED = "compaction stopped; the history is unchanged"


async def compact_due_history(
    chat: Chat, due: CompactionDue, auto_compaction: AutoCompaction, notify: Callable[[str], None]
) -> None:
    """Compact a history that is too long for another message; `notify` is called before the compaction."""
    head = chat.session.head
    try:
        result = await run_interruptibly(auto_compaction.compact_chat(chat, due, notify))
    except Interrupted:  # a commit that has begun is completed first
        notify(COMPACTION_STOPPED if chat.session.head == head else "the history was compacted before the interrupt")
        return
    if result:
        notify(format_compaction(chat.session, result))


async def compact_open_chat(chat: Chat, text: str) -> str:
    """Run /compact with its arguments and return the report.

    Raises the errors of `prepare_compaction` and `apply_compaction`.
    """
    options, is_confirmed = parse_compact_arguments(text)
    try:
        prepared = await run_interruptibly(prepare_compaction(chat, options, confirmed=is_confirmed))
    except Interrupted:
        return COMPACTION_STOPPED
    return format_compaction(chat.session, await apply_compaction(chat, prepared, confirmed=is_confirmed))

"""A history that grows near its model's window is compacted before the next message, and that is announced.

What the client owns, and a chain, are compacted from here. A conversation's endpoint is asked to do it
itself, by `context_management` in the request, where it knows that; elsewhere the person is told, since
the conversation would get another handle. It is put off while a call waits for its output, and whatever
keeps it from being done keeps no message from being sent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from convo.compaction import At, Wish, due, is_summary
from convo.compaction.due import at_tokens
from convo.config import Room
from convo.engine.chat import Chat
from convo.errors import ConvoError, Interrupted
from convo.history import HERE, Link, Scope, Strategy
from convo.items import kind
from convo.strategies import Held
from convo.tokens import Usage, window_of
from convo.tokens.windows import NONE
from convo.transfer.compacting import COMPACTION, Compacted, made, put

MANAGING = ("openai.com", "azure.com")
"""Whose servers know `context_management`, beside convo's own."""

GROWTH = 1.1
"""What came to nothing is tried again when the history has grown by a tenth."""


@dataclass(frozen=True, slots=True)
class Due:
    """How much there is, and the bound that it reached, both in tokens; the window where it is known."""

    tokens: int
    bound: int
    window: int | None

    def __str__(self) -> str:
        part = f", {round(100 * self.tokens / self.window)} % of the window" if self.window else ""
        return f"the history takes {self.tokens:,} tokens{part}"


class Shortening:
    """Sees to one chat; `at` is the setting `compact_at`, `own` are the windows that a person gave."""

    def __init__(self, at: At, own: Mapping[str, Room] = NONE) -> None:
        self._at, self._own = at, own
        self._tried = 0.0

    def due(self, chat: Chat) -> Due | None:
        """Whether it is time. raises: nothing; no item is read"""
        last = chat.record.last
        if last is None or is_compaction(last) or _ends_compacted(chat.held):
            return None
        known = window_of(chat.asking.model, self._own)
        window = known.context if known else None
        tokens, bound = due(self._at, Usage.read(last.usage), window), at_tokens(self._at, window)
        return Due(tokens, bound, window) if tokens and bound and tokens >= self._tried else None

    async def shorten(self, chat: Chat, reached: Due, noted: Callable[[str], None]) -> Compacted | None:
        """Compact, or have it done; None where nothing stands in place of the history now.

        noted:  told beforehand what is done, and what keeps it from being done
        """
        self._tried = reached.tokens * GROWTH
        if chat.session.strategy is Strategy.CONVERSATION:
            noted(f"{reached}; {_left_to_the_endpoint(chat, reached)}")
            return None
        noted(f"{reached}: compacting it first; Ctrl-C leaves it as it is")
        try:
            return await put(chat, await made(chat, Wish()))
        except Interrupted:
            raise
        except ConvoError as wrong:
            noted(f"not compacted: {wrong.message}")
            return None


def is_compaction(link: Link) -> bool:
    """Whether a link is a compaction, and nothing was answered by it."""
    return link.parameters.get("context_management") == COMPACTION


def _ends_compacted(held: Held) -> bool:
    """Whether nothing was answered since the history was compacted: what it takes now, nobody has said."""
    confirmed = held.path.place(held.mark)
    last = held.path.nodes[confirmed - 1].item if confirmed else None
    return last is not None and (kind(last) == "compaction" or is_summary(last))


def _left_to_the_endpoint(chat: Chat, reached: Due) -> str:
    """Ask for it with every request from now on, where that is understood; what is told of it."""
    if not _manages(chat.edges.endpoint.scope):
        return "its endpoint does not compact by itself: convo compact HANDLE --yes goes on with a new conversation"
    wanted = [{"type": "compaction", "compact_threshold": reached.bound}]
    chat.asking = replace(chat.asking, parameters={**chat.asking.parameters, "context_management": wanted})
    return "its endpoint is asked to compact it"


def _manages(scope: Scope) -> bool:
    host = urlsplit(scope.url).hostname or ""
    return scope == HERE or any(host == one or host.endswith(f".{one}") for one in MANAGING)

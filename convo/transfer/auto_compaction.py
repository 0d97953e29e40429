"""Automatic compaction of a chat before a message.

A chat asks before each message; `convo.transfer.compact`, which is slow to import, is imported when it is due.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from convo.chat.conversation import Chat
from convo.compaction.planning import (
    CompactionOptions,
    CompactionThreshold,
    threshold_tokens,
    tokens_if_over_threshold,
)
from convo.config.sections import ContextLimits
from convo.errors import REPEAT_HINT, ConvoError, Interrupted
from convo.history.items import is_compaction
from convo.history.records import EMBEDDED_SCOPE, Scope, is_compaction_link
from convo.strategies.strategy import ConversationState
from convo.usage.cost import Usage
from convo.usage.model_info import NO_WINDOW_SETTINGS, find_model_window

if TYPE_CHECKING:
    from convo.transfer.compact import CompactionResult

CONTEXT_MANAGEMENT_HOSTS = ("openai.com", "azure.com")
"""Domains whose servers support `context_management`, in addition to convo's own endpoint."""

RETRY_GROWTH_FACTOR = 1.1
"""After a failure the next attempt waits until the history has grown by a tenth."""


class CompactionDue(NamedTuple):
    """The tokens of a history, the threshold that they reached, and the context window; None if unknown."""

    tokens: int
    threshold_tokens: int
    window_tokens: int | None

    def __str__(self) -> str:
        part = (
            f", {round(100 * self.tokens / self.window_tokens)} % of the context window" if self.window_tokens else ""
        )
        return f"the history has {self.tokens:,} tokens{part}"


class AutoCompaction:
    """Automatic compaction of one chat.

    threshold:        the setting `compact_at`
    window_settings:  context windows from the settings
    """

    def __init__(
        self, threshold: CompactionThreshold, window_settings: Mapping[str, ContextLimits] = NO_WINDOW_SETTINGS
    ) -> None:
        self._threshold, self._window_settings = threshold, window_settings
        self._retry_at_tokens = 0.0

    def check_due(self, chat: Chat) -> CompactionDue | None:
        """Return the reason to compact now, or None. Raises nothing and reads no item."""
        last_link = chat.record.last_link
        if last_link is None or is_compaction_link(last_link) or _is_just_compacted(chat.state):
            return None
        limits = find_model_window(chat.options.model, self._window_settings)
        window = limits.context if limits else None
        tokens, threshold = (
            tokens_if_over_threshold(self._threshold, Usage.from_json(last_link.usage), window),
            threshold_tokens(self._threshold, window),
        )
        return (
            CompactionDue(tokens, threshold, window)
            if tokens and threshold and tokens >= self._retry_at_tokens
            else None
        )

    async def compact_chat(
        self, chat: Chat, due: CompactionDue, notify: Callable[[str], None]
    ) -> "CompactionResult | None":
        """Compact `chat`, or ask its endpoint to. Returns None if the history was not replaced.

        notify:  called with a message before a compaction, and with the error that prevents one
        """
        self._retry_at_tokens = due.tokens * RETRY_GROWTH_FACTOR
        if chat.state.owner.uses_conversation:
            notify(f"{due}; {_request_endpoint_compaction(chat, due)}")
            return None
        from convo.transfer.compact import apply_compaction, prepare_compaction

        notify(f"{due}: compacting it first; Ctrl-C cancels")
        try:
            return await apply_compaction(chat, await prepare_compaction(chat, CompactionOptions()))
        except Interrupted:
            raise
        except ConvoError as error:
            hint = "" if error.hint in ("", REPEAT_HINT) else f"; try: {error.hint}"  # the next turn repeats it
            notify(f"not compacted: {error.message}{hint}")
            return None


def _is_just_compacted(state: ConversationState) -> bool:
    """Whether no response followed the compaction: the tokens of the new history are unknown until then."""
    confirmed_depth = state.path.depth(state.confirmed_head)
    last_item = state.path.nodes[confirmed_depth - 1].item if confirmed_depth else None
    return last_item is not None and is_compaction(last_item)


def _request_endpoint_compaction(chat: Chat, due: CompactionDue) -> str:
    """Add `context_management` to all later requests, if the server supports it. Returns a message for the user."""
    if not _has_context_management(chat.deps.endpoint.scope):
        return "its endpoint does not compact automatically: convo compact HANDLE --yes continues in a new conversation"
    context_management = [{"type": "compaction", "compact_threshold": due.threshold_tokens}]
    chat.options = replace(
        chat.options, parameters={**chat.options.parameters, "context_management": context_management}
    )
    return "its endpoint will compact it"


def _has_context_management(scope: Scope) -> bool:
    host = urlsplit(scope.url).hostname or ""
    return scope == EMBEDDED_SCOPE or any(
        host == domain or host.endswith(f".{domain}") for domain in CONTEXT_MANAGEMENT_HOSTS
    )

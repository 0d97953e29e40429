"""Tab completion at the prompt of a chat: commands, models, handles and files.

Only local data is offered; no server is called.
"""

from collections.abc import Sequence

from convo.cli.slash_commands import (
    EFFORT_ARGUMENT,
    HANDLE_ARGUMENT,
    MODEL_ARGUMENT,
    OWNER_ARGUMENT,
    SLASH_COMMANDS,
    get_argument_kind,
)
from convo.config.request_settings import REASONING_EFFORTS
from convo.config.settings import Settings
from convo.stores.base import Store
from convo.strategies.strategy import STRATEGIES
from convo.terminal.prompt import (
    COMMAND_NAME,
    FILE_ARGUMENT,
    Suggestion,
    filter_suggestions,
    find_completion_target,
    suggest_files,
)

MAX_OFFERED_SESSIONS = 200
"""Sessions that are offered, last used first."""


class ReplCompleter:
    """Completion for one chat."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings

    async def complete(self, text_before_cursor: str) -> tuple[int, Sequence[Suggestion]]:
        """Implement `convo.terminal.prompt.SuggestCompletions`. Raises StoreFault."""
        kind, word = find_completion_target(text_before_cursor, get_argument_kind)
        if kind == FILE_ARGUMENT:
            return len(word), suggest_files(word)
        return len(word), filter_suggestions(await self._list_offers(kind), word) if kind else ()

    async def _list_offers(self, argument_kind: str) -> Sequence[Suggestion]:
        if argument_kind == COMMAND_NAME:
            return [
                Suggestion(f"/{name} " if command.usage else f"/{name}", command.help)
                for name, command in SLASH_COMMANDS.items()
            ]
        if argument_kind == OWNER_ARGUMENT:
            return [Suggestion(str(strategy), owner.description) for strategy, owner in STRATEGIES.items()]
        if argument_kind == EFFORT_ARGUMENT:
            return [Suggestion(effort) for effort in REASONING_EFFORTS]
        if argument_kind == HANDLE_ARGUMENT:
            sessions = await self._store.sessions(limit=MAX_OFFERED_SESSIONS)
            return [Suggestion(session.name, str(session.strategy)) for session in sessions if session.name]
        return await self._list_model_offers() if argument_kind == MODEL_ARGUMENT else ()

    async def _list_model_offers(self) -> Sequence[Suggestion]:
        from convo.cli.picker_entries import list_selectable_models

        aliases = self._settings.aliases
        return [
            Suggestion(name, aliases.get(name, ""))
            for name in await list_selectable_models(self._store, self._settings)
        ]

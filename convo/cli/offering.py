"""What Tab offers at the prompt of a chat: commands, models and handles that are known here, files.

No server is asked: somebody waits. A model is known that has an alias, that a session was asked
with, or of which a window or a price is written down.
"""

from collections.abc import Sequence

from convo.config import Settings
from convo.history import OWNERS
from convo.stores.contract import Store
from convo.ui.commands import COMMANDS, HANDLE, MODEL, OWNER, taken
from convo.ui.completing import COMMAND, FILE, Offer, files, fitting, place

SESSIONS = 200
"""Sessions that are offered, last used first."""


class Offering:
    """Completes for one chat."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings

    async def suggest(self, before: str) -> tuple[int, Sequence[Offer]]:
        """See `convo.ui.completing.Suggest`. raises: StoreFault"""
        kind, word = place(before, taken)
        if kind == FILE:
            return len(word), files(word)
        return len(word), fitting(await self._of(kind), word) if kind else ()

    async def _of(self, kind: str) -> Sequence[Offer]:
        if kind == COMMAND:
            return [Offer(f"/{name} " if row.usage else f"/{name}", row.help) for name, row in COMMANDS.items()]
        if kind == OWNER:
            return [Offer(str(strategy), owner.words) for strategy, owner in OWNERS.items()]
        if kind == HANDLE:
            there = await self._store.sessions(limit=SESSIONS)
            return [Offer(session.name, str(session.strategy)) for session in there if session.name]
        return await self._models() if kind == MODEL else ()

    async def _models(self) -> Sequence[Offer]:
        from convo.ui.known_models import names

        asked = [session.model for session in await self._store.sessions(limit=SESSIONS)]
        aliases = [Offer(name, model) for name, model in self._settings.aliases.items()]
        known = dict.fromkeys([self._settings.model, *asked, *names(self._settings)])
        return [*aliases, *(Offer(name) for name in known)]

"""What the prompt of a chat shows and is asked about the conversation: the bar, the sums, the last sessions.

Links of a session are read once for each place that its head has been at, so that an idle prompt
reads nothing.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from convo.config import Price, Settings
from convo.engine.chat import Chat
from convo.errors import Unsupported, WindowExceeded
from convo.history import Key, Link
from convo.items import Json, user
from convo.stores.contract import Store
from convo.tokens import Usage, estimate, window_of
from convo.tokens.models import text_alone
from convo.ui.bar import Standing
from convo.ui.receipt import owner

RECENT = 10
"""Sessions that /resume lists."""

FORMS: Mapping[str, str] = {"input_image": "images", "input_file": "files"}


@dataclass
class Sums:
    """What a chat has used, as far as its store knows."""

    _at: tuple[str, Key] | None = None
    _links: Sequence[Link] = field(default=())

    async def links(self, chat: Chat) -> Sequence[Link]:
        """The session's links, oldest first. raises: StoreFault"""
        at = chat.session.id, chat.held.path.head
        if not chat.record.saved:
            return ()
        if at != self._at:
            self._links, self._at = await chat.edges.store.links(chat.session.id), at
        return self._links

    async def standing(self, chat: Chat, settings: Settings) -> Standing:
        """What the bar says. raises: StoreFault"""
        last = chat.record.last
        used = Usage.read(last.usage) if last and chat.held.path else None
        window = window_of(chat.asking.model, settings.windows) if used else None
        return Standing(
            owner=owner(chat.session) if chat.session.name else str(chat.session.strategy),
            model=chat.asking.model,
            tokens=used.input + used.output if used else None,
            window=window.context if window else None,
            cost_usd=_cost(await self.links(chat), settings.prices),
        )


def _cost(links: Sequence[Link], prices: Mapping[str, Price]) -> float | None:
    if not links:
        return None
    from convo.inspection.bill import bill  # for a new conversation, nothing has been asked

    spent = bill(links, prices)
    return spent.cost_usd if spent else None


def check_takes(model: str, parts: Sequence[Json], settings: Settings) -> None:
    """Refuse what this model would, before anything is stored.

    raises:  Unsupported     it takes words alone
             WindowExceeded  the parts alone are longer than its window
    """
    media = [FORMS[part["type"]] for part in parts if part.get("type") in FORMS]
    if media and text_alone(model):
        raise Unsupported(model, media[0], param="input", hint="/model with one that does, or /detach")
    words = [part for part in parts if part.get("type") == "input_text"]
    window, need = window_of(model, settings.windows), estimate(user("", *words)) if words else 0
    if window and need > window.context:
        raise WindowExceeded(model, need, window.context)


async def recent(store: Store) -> str:
    """The sessions used last, as a list."""
    from convo.engine.glance import glance
    from convo.ui.listing import listed
    from convo.ui.medium import medium_of

    there = [await glance(store, session) for session in await store.sessions(limit=RECENT)]
    if not there:
        return "  no conversations yet"
    return listed(there, medium_of(sys.stderr, os.environ)._replace(colour=False)) + "\n  /resume NAME goes on with one"

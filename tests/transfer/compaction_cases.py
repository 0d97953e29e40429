"""A conversation that is long enough to be compacted, for each strategy."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from convo.chat.conversation import Chat
from convo.chat.open import find_selected_session, open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.compaction.planning import CompactionOptions
from convo.endpoints.base import Endpoint
from convo.errors import StoreFault
from convo.history.items import Item, is_user_message, item_text, user_message
from convo.history.records import Strategy
from convo.runtime import random_id
from convo.stores.base import Store
from convo.strategies.selection import OwnerSelection
from convo.transfer.compact import CompactionResult, apply_compaction, prepare_compaction
from tests.clock import FixedClock
from tests.embedded_endpoint import make_embedded_endpoint
from tests.transfer.faults import FaultyProxy, StepFault

LONG = "and this goes on for quite a while, as people do when they explain something at length; " * 4
CLIENT_STRATEGIES = [Strategy.SESSION, Strategy.REPLAY]
SUMMARY = "They counted."
ANSWER = LONG * 3
"""The reply to every user message after the first. A summary request has one message, so its reply is SUMMARY."""
NAME = "talk"


@dataclass
class CompactionCase:
    """One store and one endpoint, both behind proxies that fail as `fault` says."""

    store: Store
    folder: Path
    fault: StepFault = field(default_factory=lambda: StepFault(lambda: StoreFault("struck")))

    def __post_init__(self) -> None:
        self.script = self.folder / "script.json"
        self.script.write_text(json.dumps({"replies": [{"text": SUMMARY}, {"text": ANSWER}]}), encoding="utf-8")
        store = cast(Store, FaultyProxy(self.store, self.fault))
        endpoint = cast(Endpoint, FaultyProxy(make_embedded_endpoint(self.store), self.fault))
        self.deps = ChatDeps(store, endpoint, FixedClock(), random_id)
        self.model = f"scripted/{self.script}"

    @property
    def file(self) -> Path:
        return self.folder / "talk.json"

    async def open(self, strategy: Strategy | None = None, handle: str = NAME) -> Chat:
        """Continue the conversation as another process would, or start a new one with `strategy`."""
        selection = OwnerSelection(strategy, str(self.file) if strategy is Strategy.REPLAY else None)
        session = None if strategy else await find_selected_session(self.store, OwnerSelection(None, handle))
        return await open_chat(
            selection, session, RequestOptions(self.model, self.model), self.deps, name=NAME if strategy else ""
        )

    async def start_chat(self, strategy: Strategy, turns: int = 3) -> Chat:
        """Start a conversation and send `turns` messages."""
        chat = await self.open(strategy)
        for number in range(1, turns + 1):
            await self.send(chat, f"{number} {LONG}")
        return chat

    async def send(self, chat: Chat, text: str) -> None:
        async for _ in chat.send([user_message(text)]):
            pass


async def compact(chat: Chat, options: CompactionOptions | None = None) -> CompactionResult:
    options = options or CompactionOptions()
    return await apply_compaction(chat, await prepare_compaction(chat, options, confirmed=True), confirmed=True)


def first_words(items: Sequence[Item]) -> list[str]:
    """Return the first word of each user message."""
    return [item_text(item).split()[0] for item in items if is_user_message(item)]


def read_items(file: Path) -> list[Item]:
    found: list[Item] = json.loads(file.read_text())
    return found


class ChangedEndpoint:
    """The same endpoint, except for the given methods."""

    def __init__(self, endpoint: Endpoint, **methods: Any) -> None:
        self._endpoint, self._methods = endpoint, methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._endpoint, name)


def change_endpoint(chat: Chat, **methods: Any) -> None:
    chat.deps = chat.deps._replace(endpoint=cast(Endpoint, ChangedEndpoint(chat.deps.endpoint, **methods)))

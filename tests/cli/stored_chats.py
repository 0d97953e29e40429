"""Create conversations in the store that the command line opens.

    write_chats(home, script)       runs a script and closes the store

The clock advances by a minute with each turn and is fixed otherwise; ids are numbered from 1.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from convo.chat.conversation import Chat
from convo.chat.open import open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.errors import ConvoError
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.stores.base import Store
from convo.stores.factory import open_store
from convo.strategies.selection import select_owner
from tests.chat.recording_endpoint import EndpointFault, RecordingEndpoint
from tests.clock import FixedClock, counting_ids
from tests.embedded_endpoint import make_embedded_endpoint

MODEL = "scripted/echo"
DATABASE = Path("data", "convo.db")
"""The path of the database relative to CONVO_HOME."""


@dataclass
class ChatWriter:
    """Opens conversations and sends messages in them."""

    store: Store
    endpoint: RecordingEndpoint
    deps: ChatDeps
    clock: FixedClock
    folder: Path

    async def chat(self, strategy: Strategy, name: str, *messages: str, handle: str | None = None) -> Chat:
        """Start a conversation and send `messages`. The replay file is talk.json unless `handle` names another."""
        if strategy is Strategy.REPLAY and handle is None:
            handle = str(self.folder / "talk.json")
        chat = await open_chat(
            select_owner([strategy], handle), None, RequestOptions(MODEL, MODEL), self.deps, name=name
        )
        for text in messages:
            await self.send(chat, text)
        return chat

    async def send(self, chat: Chat, text: str) -> None:
        self.clock.advance(60)
        async for _ in chat.send([user_message(text)]):
            pass

    async def retry(self, chat: Chat) -> None:
        self.clock.advance(60)
        async for _ in chat.retry():
            pass

    async def fail(self, chat: Chat, text: str, error: ConvoError) -> None:
        """Send a message whose request fails with `error`."""
        self.endpoint.faults.append(EndpointFault(error))
        try:
            await self.send(chat, text)
        except type(error):
            return
        raise AssertionError("it did not fail")

    async def other_client(self, text: str, **state: str) -> None:
        """Send a message as another client of the endpoint; `state`: previous_response_id or conversation."""
        self.clock.advance(60)
        async for _ in self.endpoint.create({"model": MODEL, "input": text, **state}):
            pass


ChatScript = Callable[[ChatWriter], Awaitable[object]]


def write_chats(home: Path, script: ChatScript, tenant: str = "local") -> None:
    """Run `script` with the store under `home`, then close the store."""

    async def write() -> None:
        store = open_store(f"sqlite:{home / DATABASE}", tenant=tenant)
        clock, new_id = FixedClock(), counting_ids()
        endpoint = RecordingEndpoint(make_embedded_endpoint(store, clock, new_id))
        await script(ChatWriter(store, endpoint, ChatDeps(store, endpoint, clock, new_id), clock, home.parent))
        await endpoint.aclose()
        await store.aclose()

    asyncio.run(write())


def chat_of(name: str, strategy: Strategy, *messages: str) -> ChatScript:
    """Return a script that starts one conversation and sends `messages`."""

    async def script(writer: ChatWriter) -> None:
        await writer.chat(strategy, name, *messages)

    return script

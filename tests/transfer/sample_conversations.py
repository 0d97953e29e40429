"""A sample conversation with many kinds of items, for each strategy, and a model that records its requests."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convo.chat.conversation import Chat
from convo.chat.open import find_selected_session, open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.chat.view_loader import load_handle_view
from convo.history.items import Item, StreamEvent, user_message
from convo.history.records import Session, Strategy
from convo.models.base import Model, ModelRequest
from convo.models.scripted import ScriptedModel
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import Clock, NewId
from convo.stores.base import Store
from convo.strategies.selection import select_owner
from convo.transfer.convert import ConversationSource, load_source
from tests.chat.recording_endpoint import RecordingEndpoint
from tests.clock import FixedClock, counting_ids

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}

ECHO = "scripted/echo"

SEALED = {"type": "reasoning", "id": "rs_sealed", "summary": [], "encrypted_content": "gAAAAsealed"}
RAIN = {
    "type": "message",
    "id": "msg_rain",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "It rains.", "annotations": []}],
}

REPLIES = (
    {"reasoning": "Oslo, then.", "call": {"name": "weather", "arguments": {"city": "Oslo"}, "call_id": "call_oslo"}},
    {"output": [SEALED, RAIN]},
    {"text": "A cat."},
    {"text": "A dog."},
)


class RecordingModel(ScriptedModel):
    """A scripted model that records its requests."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        super().__init__(clock, new_id)
        self.requests: list[ModelRequest] = []

    def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        self.requests.append(request)
        return super().respond(request)

    def __call__(self, name: str) -> tuple[Model, str]:
        return self, name.removeprefix("scripted/")


@dataclass
class ConversationHarness:
    """One store with its own endpoint, and methods that open conversations in it."""

    store: Store
    folder: Path
    clock: FixedClock = field(default_factory=FixedClock)

    def __post_init__(self) -> None:
        new_id = counting_ids()
        self.model = RecordingModel(self.clock, new_id)
        self.endpoint = RecordingEndpoint(EmbeddedEndpoint(self.store, self.model, self.clock, new_id))
        self.deps = ChatDeps(self.store, self.endpoint, self.clock, new_id)
        script = self.folder / "script.json"
        script.write_text(json.dumps({"replies": REPLIES}), encoding="utf-8")
        self.name = f"scripted/{script}"

    async def open(self, handle: str | None, strategy: Strategy | None = None) -> Chat:
        """Open a new chat, or continue one as another process would."""
        if handle is None and strategy is Strategy.REPLAY:
            handle = str(self.folder / "talk.json")
        selection = select_owner([strategy] if strategy else [], handle)
        session = await find_selected_session(self.store, selection)
        return await open_chat(selection, session, RequestOptions(self.name, self.name, "Be brief."), self.deps)

    async def sample_chat(self, strategy: Strategy) -> Chat:
        """A chat with a call and its output, plain and encrypted reasoning, images, an undone turn and a compaction."""
        chat = await self.open(None, strategy)
        await send_items(chat, user_message("Weather in Oslo?"))
        await send_items(chat, {"type": "function_call_output", "call_id": "call_oslo", "output": "rain"})
        if strategy is not Strategy.CONVERSATION:
            await send_items(chat, user_message("A wrong turn."))
            await chat.undo()
        body = {"model": self.name, "input": list(chat.state.path.items)}
        window: Sequence[Item] = (await self.endpoint.compact(body))["output"]
        compaction = next(item for item in window if item["type"] == "compaction")
        await send_items(chat, compaction, user_message("What is this?", IMAGE))
        await send_items(chat, user_message("And this?", IMAGE))
        return chat

    async def source(self, handle: str) -> ConversationSource:
        """Load the conversation as the source of a conversion."""
        return await load_source(await load_handle_view(self.store, handle), self.store, self.endpoint)

    async def session(self, name: str) -> Session:
        found = await self.store.session(name)
        assert found
        return found


async def send_items(chat: Chat, *items: Any) -> None:
    """Send `items` and read all events of the response."""
    async for _ in chat.send(items):
        pass

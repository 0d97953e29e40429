"""A chat with a real store, convo's own endpoint and the scripted model."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from convo.chat.conversation import Chat
from convo.chat.open import find_selected_session, open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.errors import ConvoError
from convo.history.items import Item, StreamEvent, item_text, user_message
from convo.history.records import Strategy
from convo.stores.base import Store
from convo.stores.factory import open_store
from convo.strategies.selection import select_owner
from tests.chat.recording_endpoint import RecordingEndpoint
from tests.chat.tool_log import ToolLog
from tests.clock import FixedClock, counting_ids
from tests.embedded_endpoint import make_embedded_endpoint


@dataclass
class ChatHarness:
    """One store, and chats on it that can be reopened as another process would."""

    store: Store
    endpoint: RecordingEndpoint
    folder: Path
    clock: FixedClock = field(default_factory=FixedClock)
    model: str = "scripted/echo"

    def __post_init__(self) -> None:
        self.deps = ChatDeps(self.store, self.endpoint, self.clock, counting_ids())

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return self.endpoint.bodies

    async def open(self, strategy: Strategy | None = None, handle: str | None = None, *, name: str = "") -> Chat:
        """Open a new chat, or an existing one as another process would."""
        if strategy is Strategy.REPLAY and handle is None:
            handle = str(self.folder / "talk.json")
        selection = select_owner([strategy] if strategy else [], handle)
        session = await find_selected_session(self.store, selection)
        return await open_chat(selection, session, RequestOptions(self.model, self.model), self.deps, name=name)


def message_and_hint(caught: pytest.ExceptionInfo[ConvoError]) -> tuple[str, str]:
    return caught.value.message, caught.value.hint


async def send(chat: Chat, text: str) -> str:
    """Send `text`, read the complete answer, and return its text."""
    return answer_text([event async for event in chat.send([user_message(text)])])


def answer_text(events: list[StreamEvent]) -> str:
    output: list[Item] = events[-1]["response"]["output"]
    return "".join(item_text(item) for item in output)


OpenStore = Callable[[str], Awaitable[Store]]


@pytest.fixture(params=["sqlite", pytest.param("memory", marks=pytest.mark.full)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_store("memory" if request.param == "memory" else f"sqlite:{tmp_path / 'convo.db'}")
    yield opened
    await opened.aclose()


@pytest.fixture(params=["streamed", "collected"])
def read_mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test twice: with the events of a run read one by one, and collected."""
    monkeypatch.setattr("tests.chat.agent_runs.READ_MODE", request.param)
    return str(request.param)


@pytest.fixture
def harness(store: Store, tmp_path: Path) -> ChatHarness:
    return ChatHarness(store, RecordingEndpoint(make_embedded_endpoint(store)), tmp_path)


@pytest.fixture
def tool_log() -> ToolLog:
    return ToolLog()

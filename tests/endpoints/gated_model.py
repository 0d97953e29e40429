"""A model that a test holds at a gate, so that something can happen in the middle of an answer.

Besides it a store that tells what was asked of it, and may fail.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from convo.errors import ConvoError
from convo.history.items import Item, StreamEvent
from convo.history.tree import Path
from convo.models.base import Model, ModelRequest
from convo.models.stream import ResponseEventWriter, make_usage
from convo.responses_api.deps import EndpointOptions
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import NewId
from convo.stores.base import AppendItems, Store, Transaction
from convo.stores.memory import MemoryStore
from tests.clock import FixedClock, counting_ids
from tests.endpoints.endpoint_calls import MODEL


class GatedModel:
    """A model that says a word, and the rest when it is told to.

    first:   an item that is whole before the first word
    fails:   what breaks it off behind the gate
    silent:  it waits at the gate before its first event
    """

    def __init__(self, *, first: Item | None = None, fails: ConvoError | None = None, silent: bool = False) -> None:
        self.gate, self.closed, self.request_received = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.requests: list[ModelRequest] = []
        self._first, self._fails, self._silent = first, fails, silent

    def __call__(self, name: str) -> tuple[Model, str]:
        return self, name

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        answer = ResponseEventWriter(counting_ids(), request.model)
        self.requests.append(request)
        self.request_received.set()
        try:
            if self._silent:
                await self.gate.wait()
            for event in answer.write_item(self._first) if self._first else ():
                yield event
            for event in answer.write_text("one "):
                yield event
            await self.gate.wait()
            if self._fails:
                raise self._fails
            for event in (*answer.write_text("two"), *answer.write_completed(make_usage(1, 2))):
                yield event
        finally:
            self.closed.set()

    async def warm(self, model: str) -> None: ...

    async def check_request(self, request: ModelRequest) -> None: ...

    async def count(self, request: ModelRequest) -> int | None:
        return None

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        return None

    async def aclose(self) -> None: ...


def open_gated_model() -> GatedModel:
    """A model that says everything at once."""
    model = GatedModel()
    model.gate.set()
    return model


def endpoint_over(
    store: Store, models: GatedModel, *, new_id: NewId | None = None, options: EndpointOptions | None = None
) -> EmbeddedEndpoint:
    """An endpoint whose time stands still and whose ids count."""
    return EmbeddedEndpoint(store, models, FixedClock(), new_id or counting_ids(), options=options)


@asynccontextmanager
async def started_response(
    endpoint: EmbeddedEndpoint, body: dict[str, object]
) -> AsyncIterator[AsyncGenerator[StreamEvent, None]]:
    """An answer whose first piece has come."""
    async with aclosing(endpoint.create({"model": MODEL, "input": "a", **body})) as answer:
        async for event in answer:
            if event["type"] == "response.output_text.delta":
                break
        yield answer


class RecordingStore(MemoryStore):
    """The real memory store; remembers what was asked of it, and may fail to commit."""

    def __init__(self, *, fails: ConvoError | None = None) -> None:
        super().__init__()
        self.commits: list[Transaction] = []
        self._fails = fails

    async def commit(self, transaction: Transaction) -> None:
        if self._fails:
            raise self._fails
        self.commits.append(transaction)
        await super().commit(transaction)


def append_path(path: Path) -> Transaction:
    """The change that puts `path` into a store."""
    return Transaction(appends=(AppendItems(path.root, path.items),))

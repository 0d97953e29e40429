"""A model that waits at a gate during its response, and a store that records its commits.

A test opens the gate after it has acted on the response in progress.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

from convo.errors import ConvoError
from convo.history.items import Item, Json, StreamEvent
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


class GatedModel(Model):
    """A model that streams one word, and the rest after `gate` is set.

    first:   a complete item to stream before the first word
    fails:   the error to raise after the gate
    silent:  whether to wait at the gate before the first event as well
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


def open_gated_model() -> GatedModel:
    """Return a model with an open gate: it streams the whole response at once."""
    model = GatedModel()
    model.gate.set()
    return model


async def no_models() -> Sequence[Mapping[str, Json]]:
    """The model list of a service without models."""
    return []


def endpoint_over(
    store: Store, models: GatedModel, *, new_id: NewId | None = None, options: EndpointOptions | None = None
) -> EmbeddedEndpoint:
    """Return an endpoint with a fixed clock and counting ids."""
    return EmbeddedEndpoint(store, models, FixedClock(), new_id or counting_ids(), options=options)


@asynccontextmanager
async def started_response(
    endpoint: EmbeddedEndpoint, body: dict[str, object]
) -> AsyncIterator[AsyncGenerator[StreamEvent, None]]:
    """Yield the event stream of a response after its first text delta."""
    async with aclosing(endpoint.create({"model": MODEL, "input": "a", **body})) as answer:
        async for event in answer:
            if event["type"] == "response.output_text.delta":
                break
        yield answer


class RecordingStore(MemoryStore):
    """A memory store that records its commits. `fails` is the error that every commit raises."""

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
    """Return the transaction that appends `path` to a store."""
    return Transaction(appends=(AppendItems(path.root, path.items),))

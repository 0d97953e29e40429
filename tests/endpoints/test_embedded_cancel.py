"""Cancellation of a response of the embedded endpoint: close, cancel, cancel twice, cancel before the start."""

import asyncio

import pytest

from convo.responses_api.deps import ActiveRuns
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.stores.base import Store, Transaction
from convo.stores.memory import MemoryStore
from tests.endpoints.endpoint_calls import events, texts
from tests.endpoints.gated_model import GatedModel, RecordingStore, endpoint_over, started_response


async def start_reading(endpoint: EmbeddedEndpoint) -> asyncio.Task[None]:
    """Return a task that reads a response and waits for the event after the first text delta."""
    waiting = asyncio.Event()

    async def read() -> None:
        async with started_response(endpoint, {}) as answer:
            waiting.set()
            await anext(answer)

    task = asyncio.create_task(read())
    await waiting.wait()
    return task


async def test_closing_the_stream_stops_the_model_and_stores_a_cancelled_response(store: Store) -> None:
    model = GatedModel()
    endpoint = endpoint_over(store, model)
    conversation = str((await endpoint.create_conversation())["id"])

    async with started_response(endpoint, {"conversation": conversation}):
        pass

    assert model.closed.is_set()
    stored = await endpoint.retrieve("resp_1")
    assert (stored["status"], stored["error"]) == ("cancelled", None)
    assert [item["status"] for item in stored["output"]] == ["incomplete"]
    assert texts(stored["output"]) == ["one "]
    assert (await endpoint.list_conversation_items(conversation)).items == []
    model.gate.set()
    assert (await events(endpoint, "b", previous_response_id="resp_1"))[-1]["type"] == "response.completed"
    assert texts(model.requests[-1].input) == ["a", "one ", "b"]


async def test_a_cancelled_task_stores_a_cancelled_response(store: Store) -> None:
    model = GatedModel()
    endpoint = endpoint_over(store, model)
    task = await start_reading(endpoint)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert model.closed.is_set()
    assert (await endpoint.retrieve("resp_1"))["status"] == "cancelled"


async def test_a_second_cancellation_still_stores_the_response() -> None:
    """The later cancellations arrive while the store still writes the cancelled response."""
    store, model = GatedStore(), GatedModel()
    endpoint = endpoint_over(store, model)
    task = await start_reading(endpoint)
    task.cancel()
    await store.writing.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await endpoint.retrieve("resp_1"))["status"] == "cancelled"


async def test_a_response_cancelled_before_its_start_stores_nothing() -> None:
    model, store = GatedModel(silent=True), RecordingStore()
    task = asyncio.create_task(events(endpoint_over(store, model), "a"))
    await model.request_received.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.commits == []


async def test_closing_with_store_false_stores_nothing() -> None:
    store = RecordingStore()
    async with started_response(endpoint_over(store, GatedModel()), {"store": False}):
        pass
    assert store.commits == []


async def test_closing_returns_if_a_task_ended_in_the_same_iteration_of_the_event_loop() -> None:
    """The task's callback runs in the next iteration. Since Python 3.12, `gather` does not wait for it."""
    runs, ended = ActiveRuns(), asyncio.Event()

    async def work() -> None:
        ended.set()

    task = runs.start_task(work())
    await asyncio.sleep(0)
    assert task.done()
    await runs.aclose(1.0)
    assert ended.is_set()


class GatedStore(MemoryStore):
    """A memory store that commits only after `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.writing = asyncio.Event(), asyncio.Event()

    async def commit(self, transaction: Transaction) -> None:
        self.writing.set()
        await self.gate.wait()
        await super().commit(transaction)

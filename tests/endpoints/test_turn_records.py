"""The record of a turn, the waits of a request, and refusals before and after the model call."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from convo.errors import NotFound, StoreFull, StreamBroken, TryLater
from convo.history.items import StreamEvent
from convo.history.records import Link
from convo.models.base import ModelRequest
from convo.models.stream import ResponseEventWriter, make_usage
from convo.responses_api.deps import ActiveRuns, EndpointOptions
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.stores.base import Transaction
from convo.stores.memory import MemoryStore
from convo.stores.sqlite.admin import SqliteAdmin
from tests.clock import FixedClock, counting_ids
from tests.endpoints.endpoint_calls import MODEL, TOOL, ask, events, refusal, texts, user_item
from tests.endpoints.gated_model import GatedModel, endpoint_over, open_gated_model

SERVER = EndpointOptions(is_server=True)
START = 1_700_000_000.0


async def read_link(store: MemoryStore, response_id: str = "resp_1") -> Link:
    link = await store.link(response_id)
    assert link is not None
    return link


# -- times, usage and ignored fields --------------------------------------------------------------


class TimedModel(GatedModel):
    """A model that takes two seconds to its first event and three more to its last."""

    def __init__(self, clock: FixedClock) -> None:
        super().__init__()
        self._clock = clock

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        answer = ResponseEventWriter(counting_ids(), request.model)
        self._clock.advance(2)
        for event in answer.write_text("one "):
            yield event
        self._clock.advance(3)
        for event in answer.write_completed(make_usage(1, 2)):
            yield event


class StillClock(FixedClock):
    """A fixed clock that `sleep` does not advance."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize("background", [False, True])
async def test_a_link_has_the_times_of_its_response(background: bool) -> None:
    store, clock = MemoryStore(), StillClock()
    endpoint = EmbeddedEndpoint(store, TimedModel(clock), clock, counting_ids())
    response = await ask(endpoint, "a", background=background)
    link = await read_link(store)
    assert (link.created_at, link.first_token_s, link.duration_s) == (START, 2.0, 5.0)
    assert (response["created_at"], response["completed_at"]) == (int(START), int(START) + 5)


class PartialModel(GatedModel):
    """A model of the provider "acme" that ignores `seed` and `top_k`."""

    provider = "acme"

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        return tuple(name for name in ("seed", "top_k") if name in request.parameters)


@pytest.mark.parametrize(
    ("model", "fields", "stored"),
    [
        ("acme/m", {}, {}),
        ("m", {}, {"convo.provider": "acme"}),
        ("acmes", {}, {"convo.provider": "acme"}),
        ("acme/m", {"seed": 1}, {"seed": 1, "ignored": ["seed"]}),
        (
            "acme/m",
            {"seed": 1, "stream_options": {"include_obfuscation": True}},
            {"seed": 1, "ignored": ["seed", "stream_options.include_obfuscation"]},
        ),
        ("acme/m", {"stream_options": {"include_obfuscation": False}}, {}),
    ],
    ids=str,
)
async def test_a_link_lists_the_fields_that_its_model_ignored_and_its_provider(
    model: str, fields: dict[str, Any], stored: dict[str, Any]
) -> None:
    store, partial = MemoryStore(), PartialModel()
    partial.gate.set()
    endpoint = endpoint_over(store, partial)
    got = await events(endpoint, "a", **{"model": model, **fields})
    assert (await read_link(store)).parameters == stored
    assert got[0].get("ignored") == stored.get("ignored")


async def test_a_request_that_only_prepares_has_no_provider_and_no_usage() -> None:
    store, partial = MemoryStore(), PartialModel()
    async with aclosing(
        endpoint_over(store, partial).connect().create({"model": "m", "input": "a", "generate": False})
    ) as got:
        *_, last = [event async for event in got]
    link = await read_link(store)
    assert (link.parameters, link.usage) == ({}, {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0})
    assert (last["response"]["status"], last["response"]["output"], partial.requests) == ("completed", [], [])


async def test_a_model_gets_the_fields_for_models_alone() -> None:
    model = open_gated_model()
    await ask(
        endpoint_over(MemoryStore(), model),
        "a",
        instructions="Be brief.",
        metadata={"a": "b"},
        truncation="disabled",
        temperature=0.5,
        tools=[TOOL],
    )
    assert model.requests[0].parameters == {"temperature": 0.5, "tools": [TOOL]}
    assert (model.requests[0].instructions, model.requests[0].model, texts(model.requests[0].input)) == (
        "Be brief.",
        MODEL,
        ["a"],
    )


class FloodingModel(GatedModel):
    """A model that streams a complete response without waiting."""

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        answer = ResponseEventWriter(counting_ids(), request.model)
        for _ in range(320):
            for event in answer.write_text("word "):
                yield event
        for event in answer.write_completed(make_usage(1, 2)):
            yield event


async def test_other_tasks_run_while_a_model_never_waits() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_turns())
    async with aclosing(endpoint_over(MemoryStore(), FloodingModel()).create({"model": MODEL, "input": "a"})) as answer:
        deltas = [turns async for event in answer if event["type"] == "response.output_text.delta"]
    task.cancel()
    assert len(deltas) == 320
    assert deltas[-1] - deltas[0] == 5


# -- checks before the model call -----------------------------------------------------------------


class FullDisk(MemoryStore):
    """A memory store whose check of disk space raises StoreFull."""

    def __init__(self) -> None:
        super().__init__()

        class Admin(SqliteAdmin):
            async def check_disk_space(self) -> None:
                raise StoreFull("no disk space is left")

        self.admin = Admin(self.database)


async def test_a_response_without_room_on_the_disk_is_refused_before_the_model_is_called() -> None:
    model = open_gated_model()
    endpoint = endpoint_over(FullDisk(), model)
    conversation = str((await endpoint.create_conversation())["id"])
    for body in ({}, {"conversation": conversation, "store": False}, {"background": True}):
        assert isinstance(await refusal(endpoint, "a", **body), StoreFull)
    assert model.requests == []
    assert (await ask(endpoint, "a", store=False))["status"] == "completed"


async def test_an_unknown_conversation_is_not_found_although_its_name_is_locked() -> None:
    store = MemoryStore()
    endpoint = endpoint_over(store, open_gated_model())
    await store.acquire_lease("writing conv_nope", "elsewhere:1:1:hold_1", 60)
    assert isinstance(await refusal(endpoint, "a", conversation="conv_nope"), NotFound)
    for request in (
        endpoint.update_conversation("conv_nope", {}),
        endpoint.delete_conversation("conv_nope"),
        endpoint.add_conversation_items("conv_nope", [user_item("a")]),
        endpoint.delete_conversation_item("conv_nope", "msg_1"),
    ):
        with pytest.raises(NotFound):
            await request


# -- after a client disconnects -------------------------------------------------------------------


class GatedStore(MemoryStore):
    """A memory store whose commits wait while `gate` is cleared."""

    def __init__(self) -> None:
        super().__init__()
        self.writing, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def commit(self, transaction: Transaction) -> None:
        self.writing.set()
        await self.gate.wait()
        await super().commit(transaction)


Request = Callable[[EmbeddedEndpoint, str], Awaitable[Any]]

CONVERSATION_REQUESTS: dict[str, tuple[Request, list[str]]] = {
    "add items": (lambda endpoint, name: endpoint.add_conversation_items(name, [user_item("b")]), ["a", "b"]),
    "update": (lambda endpoint, name: endpoint.update_conversation(name, {"a": "b"}), ["a"]),
    "respond": (lambda endpoint, name: ask(endpoint, "b", conversation=name), ["a", "b", "one two"]),
}
RESPONSE_REQUESTS: dict[str, Request] = {
    "retrieve": lambda endpoint, name: endpoint.retrieve(name),
    "list input items": lambda endpoint, name: endpoint.list_input_items(name),
    "delete": lambda endpoint, name: endpoint.delete(name),
    "continue": lambda endpoint, name: ask(endpoint, "b", previous_response_id=name),
}


async def disconnect_while_storing(
    store: GatedStore, model: GatedModel, **body: object
) -> tuple[EmbeddedEndpoint, asyncio.Task[None]]:
    """Return an endpoint whose client disconnected and the task that is storing the end of the response."""
    endpoint = endpoint_over(store, model, options=SERVER)
    started = asyncio.Event()

    async def read() -> None:
        async with aclosing(endpoint.create({"model": MODEL, "input": "a", **body})) as answer:
            async for event in answer:
                if event["type"] == "response.output_text.delta":
                    started.set()
                    store.writing.clear()
                    store.gate.clear()
                    return

    reader = asyncio.create_task(read())
    await started.wait()
    await store.writing.wait()
    model.gate.set()
    return endpoint, reader


async def release_commit(store: GatedStore, request: Awaitable[Any]) -> Any:
    """Let the commit proceed after `request` has started, and return the result of `request`."""
    task = asyncio.ensure_future(request)
    for _ in range(20):
        await asyncio.sleep(0)
    store.gate.set()
    return await task


@pytest.mark.parametrize("name", CONVERSATION_REQUESTS)
async def test_a_request_in_a_conversation_waits_until_the_response_before_it_is_stored(name: str) -> None:
    store, model = GatedStore(), GatedModel()
    conversation = str((await endpoint_over(store, open_gated_model()).create_conversation())["id"])
    endpoint, reader = await disconnect_while_storing(store, model, conversation=conversation)
    request, expected = CONVERSATION_REQUESTS[name]
    await release_commit(store, request(endpoint, conversation))
    await reader
    assert texts(await endpoint.list_conversation_items(conversation, order="asc")) == expected


async def test_a_list_of_a_conversation_waits_until_the_response_before_it_is_stored() -> None:
    store, model = GatedStore(), GatedModel()
    conversation = str((await endpoint_over(store, open_gated_model()).create_conversation())["id"])
    endpoint, reader = await disconnect_while_storing(store, model, conversation=conversation)
    listed = await release_commit(store, endpoint.list_conversation_items(conversation, order="asc"))
    await reader
    assert texts(listed) == ["a"]


@pytest.mark.parametrize("name", RESPONSE_REQUESTS)
async def test_a_request_for_a_response_waits_until_it_is_stored(name: str) -> None:
    store, model = GatedStore(), GatedModel()
    endpoint, reader = await disconnect_while_storing(store, model)
    await release_commit(store, RESPONSE_REQUESTS[name](endpoint, "resp_1"))
    await reader


async def test_a_conversation_of_another_tenant_is_not_waited_for() -> None:
    runs = ActiveRuns()
    with runs.track_foreground("alice") as run:
        run.conversation_id, run.response_id = "conv_1", "resp_1"
        assert not await runs.wait_until_ended("bob", conversation_id="conv_1")
        assert not await runs.wait_until_ended("alice", conversation_id="conv_2")
        assert not await runs.wait_until_ended("alice", response_id="resp_2")
        assert not await runs.wait_until_ended("alice")
        waiting = asyncio.create_task(runs.wait_until_ended("alice", response_id="resp_1"))
        await asyncio.sleep(0)
    assert await waiting
    assert not await runs.wait_until_ended("alice", response_id="resp_1")


async def test_a_request_waits_only_briefly_for_a_running_response() -> None:
    runs = ActiveRuns()
    with runs.track_foreground("alice") as run:
        run.response_id = "resp_1"
        async with asyncio.timeout(60):
            assert not await runs.wait_until_ended("alice", response_id="resp_1")


# -- shutdown -------------------------------------------------------------------------------------


async def test_a_process_that_shuts_down_starts_nothing() -> None:
    endpoint = endpoint_over(MemoryStore(), open_gated_model())
    connection = endpoint.connect()
    await endpoint.aclose()
    error = await refusal(endpoint, "a")
    assert (error.message, error.code, error.status) == ("The server is shutting down", "server_shutting_down", 503)
    assert isinstance(error, TryLater)
    assert error.retry_after_s == 1.0
    with pytest.raises(TryLater):
        await anext(connection.create({"model": MODEL, "input": "a"}))


async def test_a_task_is_cancelled_at_shutdown_or_stopped_by_its_own_way() -> None:
    runs, stopped = ActiveRuns(), asyncio.Event()

    async def forever() -> None:
        await asyncio.sleep(60)

    async def until_stopped() -> None:
        await stopped.wait()

    cancelled, ended = runs.start_task(forever()), runs.start_task(until_stopped(), stop=stopped.set)
    await runs.aclose(0.0)
    assert (cancelled.cancelled(), ended.cancelled(), ended.done()) == (True, False, True)


# -- streams that end too early -------------------------------------------------------------------


WHOLE = {"type": "message", "id": "msg_w", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]}


class ShortModel(GatedModel):
    """A model whose stream ends too early: before the first event if `empty`, else before the last."""

    def __init__(self, *, empty: bool) -> None:
        super().__init__()
        self._empty = empty

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        answer = ResponseEventWriter(counting_ids(), request.model)
        for event in () if self._empty else (*answer.write_item(WHOLE), *answer.write_text("two")):
            yield event


async def test_a_model_that_stops_before_its_first_event_is_an_error() -> None:
    error = await refusal(endpoint_over(MemoryStore(), ShortModel(empty=True)), "a")
    assert isinstance(error, StreamBroken)
    assert error.message == "the model's response ended before its first event"


async def test_a_model_that_stops_before_its_last_event_gives_an_incomplete_response_with_its_items() -> None:
    response = await ask(endpoint_over(MemoryStore(), ShortModel(empty=False)), "a")
    assert (response["status"], texts(response["output"])) == ("incomplete", ["one", "two"])
    assert response["output"][1]["status"] == "incomplete"
    assert (response["incomplete_details"], response["error"]) == ({"reason": "stream_ended"}, None)


async def test_a_background_response_without_a_first_event_fails() -> None:
    response = await ask(endpoint_over(MemoryStore(), ShortModel(empty=True)), "a", background=True)
    assert (response["status"], response["error"]["message"]) == (
        "failed",
        "the model's response ended before its first event",
    )

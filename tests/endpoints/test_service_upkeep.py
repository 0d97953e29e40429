"""Maintenance of a service: the model list, old events, pruning and token counts."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from convo.errors import NotFound, RequestRefused
from convo.history.items import Json
from convo.models.base import ModelRequest
from convo.responses_api.deps import EndpointOptions
from convo.responses_api.endpoint import EmbeddedEndpoint, EmbeddedService, TimeToLive, prune_interval_s
from convo.runtime import random_id
from convo.stores.memory import MemoryStore
from convo.stores.sqlite.admin import SqliteAdmin
from convo.usage.counting import count_tokens
from tests.clock import FixedClock, counting_ids
from tests.endpoints.endpoint_calls import MODEL, TOOL, ask, user_item
from tests.endpoints.gated_model import GatedModel, endpoint_over, no_models, open_gated_model


class RecordingAdmin(SqliteAdmin):
    """The administration of a memory store; records `older_than_s` of each prune of events."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store.database)
        self.event_ages_s: list[float] = []

    async def prune_events(self, older_than_s: float) -> int:
        self.event_ages_s.append(older_than_s)
        return await super().prune_events(older_than_s)


def open_service(store: MemoryStore, clock: FixedClock, ttl_s: TimeToLive | None = None) -> EmbeddedService:
    return EmbeddedService(
        store, open_gated_model(), clock, random_id, fetch_models=no_models, options=EndpointOptions(), ttl_s=ttl_s
    )


async def test_old_events_are_deleted_in_every_fifteenth_sweep() -> None:
    store = MemoryStore()
    admin = RecordingAdmin(store)
    store.admin = admin
    service = open_service(store, FixedClock())
    for number, count in ((0, 1), (1, 1), (14, 1), (15, 2), (16, 2), (30, 3)):
        await service.sweep(number)
        assert len(admin.event_ages_s) == count
    assert set(admin.event_ages_s) == {3600.0}
    await service.aclose()


@pytest.mark.parametrize(
    ("ttl_s", "interval_s"),
    [(10, 0.0), (40, 0.0), (50, 1.0), (60, 2.0), (36_000, 3596.0), (36_040, 3600.0), (10**9, 3600.0)],
)
def test_state_is_pruned_ten_times_in_its_time_and_at_least_once_an_hour(ttl_s: float, interval_s: float) -> None:
    assert prune_interval_s(ttl_s) == interval_s


async def test_the_list_of_models_is_a_minute_old_at_most() -> None:
    clock, calls = FixedClock(), 0

    async def fetch() -> Sequence[Mapping[str, Json]]:
        nonlocal calls
        calls += 1
        return [{"id": str(calls)}]

    store = MemoryStore()
    service = EmbeddedService(
        store, open_gated_model(), clock, random_id, fetch_models=fetch, options=EndpointOptions()
    )
    model_ids = []
    for seconds in (0, 60, 0.5, 60, 0.5):
        clock.advance(seconds)
        model_ids.append((await service.list_models())[0]["id"])
    assert model_ids == ["1", "1", "2", "2", "3"]
    await service.aclose()


class CountingModel(GatedModel):
    """A model that counts seven tokens for every request and records the requests."""

    async def count(self, request: ModelRequest) -> int | None:
        self.requests.append(request)
        return 7


async def test_tokens_are_counted_by_the_model_if_it_can_and_estimated_if_that_is_set() -> None:
    body = {"model": "m", "input": [user_item("hello")], "instructions": "Be brief.", "tools": [TOOL]}
    counting = CountingModel()
    assert await endpoint_over(MemoryStore(), counting).count_input_tokens(body) == 7
    assert counting.requests[0].instructions == "Be brief."
    assert counting.requests[0].parameters == {"tools": [TOOL]}
    not_counting = open_gated_model()
    assert await endpoint_over(MemoryStore(), not_counting).count_input_tokens(body) is None
    options = EndpointOptions(estimate_tokens=True)
    expected = count_tokens([user_item("hello")], "Be brief.", [TOOL]).tokens
    assert await endpoint_over(MemoryStore(), not_counting, options=options).count_input_tokens(body) == expected
    without_model = {name: value for name, value in body.items() if name != "model"}
    assert (
        await endpoint_over(MemoryStore(), not_counting, options=options).count_input_tokens(without_model) == expected
    )
    assert await endpoint_over(MemoryStore(), counting, options=options).count_input_tokens(body) == 7


class RecordingModel(GatedModel):
    """A model that records the models to warm and the requests to check."""

    def __init__(self) -> None:
        super().__init__()
        self.warmed: list[str] = []

    async def warm(self, model: str) -> None:
        self.warmed.append(model)

    async def check_request(self, request: ModelRequest) -> None:
        self.requests.append(request)


async def test_a_model_is_prepared_and_a_request_is_checked_without_a_response() -> None:
    model, store = RecordingModel(), MemoryStore()
    endpoint = EmbeddedEndpoint(store, model, FixedClock(), counting_ids())
    await endpoint.warm("any")
    await endpoint.check_request({"model": "any", "input": "a", "temperature": 0.5})
    assert model.warmed == ["any"]
    assert [(request.model, request.parameters) for request in model.requests] == [("any", {"temperature": 0.5})]
    assert endpoint.build_http_request({"model": "any"}) is None  # type: ignore[func-returns-value]  # the contract's return type
    assert await store.link("resp_1") is None


async def test_added_items_are_one_complete_page() -> None:
    endpoint = endpoint_over(MemoryStore(), open_gated_model())
    created = await endpoint.create_conversation([user_item("a")], {"k": "v"})
    assert created == {"id": "conv_1", "object": "conversation", "created_at": 1_700_000_000, "metadata": {"k": "v"}}
    added = await endpoint.add_conversation_items("conv_1", [user_item("b")])
    assert (added.has_more, [item["id"] for item in added.items]) == (False, ["msg_2"])
    await ask(endpoint, "c", model=MODEL, conversation="conv_1")
    assert [item["id"] for item in (await endpoint.list_conversation_items("conv_1", order="asc")).items][:2] == [
        "msg_1",
        "msg_2",
    ]


@pytest.mark.parametrize("start", ["the first endpoint", "a readiness check"])
async def test_the_sweeps_start_once_with_the_first_request(start: str) -> None:
    store = MemoryStore()
    admin = RecordingAdmin(store)
    store.admin = admin
    service = open_service(store, FixedClock())
    await asyncio.sleep(0)
    assert admin.event_ages_s == []
    for _ in range(2):
        if start == "the first endpoint":
            assert service.endpoint_for("guest") is service.endpoint_for("guest")
        else:
            await service.check_ready()
        for _ in range(5):
            await asyncio.sleep(0)
    assert admin.event_ages_s == [3600.0]
    await service.aclose()


class StoppedClock(FixedClock):
    """A clock on which a sleep never ends, so that only the test runs sweeps."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


async def test_an_unstored_background_response_can_be_polled_for_ten_minutes_and_is_then_deleted() -> None:
    store, clock = MemoryStore(), StoppedClock(1000.0)
    service = open_service(store, clock)
    endpoint = service.endpoint_for("local")
    body = {"model": MODEL, "input": "hi", "background": True, "store": False}
    stream = endpoint.create(body)
    response = (await anext(stream))["response"]
    await stream.aclose()
    assert (response["store"], response["background"]) == (False, True)
    cancelled = await endpoint.cancel(response["id"])
    assert cancelled["status"] in ("cancelled", "completed")
    with pytest.raises(RequestRefused):  # nothing may continue it
        await anext(endpoint.create({"model": MODEL, "input": "and?", "previous_response_id": response["id"]}))
    clock.advance(599)
    await service.sweep()
    assert (await endpoint.retrieve(response["id"]))["id"] == response["id"]
    assert [event["type"] async for event in endpoint.follow(response["id"])][-1].startswith("response.")
    clock.advance(2)
    with pytest.raises(NotFound):
        await endpoint.retrieve(response["id"])
    await service.sweep()
    assert await store.for_tenant("local").link(response["id"]) is None
    await service.aclose()

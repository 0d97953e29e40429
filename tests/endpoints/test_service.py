"""The service for all tenants: client disconnects, store errors, dead replicas and shutdown."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest

from convo.errors import DamagedRow, NotFound, RequestRefused, StoreFull, StoreUnavailable, StreamBroken, TryLater
from convo.history.items import Item, Json
from convo.history.records import Link
from convo.responses_api.background import CLOSE_RETRY_S
from convo.responses_api.deps import SPECIFICATION_EVENT_NAMES, EndpointOptions
from convo.responses_api.endpoint import EmbeddedService, TimeToLive
from convo.runtime import SystemClock, random_id
from convo.stores.base import Lease, Store, Transaction
from convo.stores.memory import MemoryStore
from tests.clock import FixedClock, counting_ids
from tests.endpoints.endpoint_calls import MODEL, ask, error_fields, events, refusal, texts, user_item
from tests.endpoints.gated_model import GatedModel, no_models, open_gated_model
from tests.stores.test_damaged_rows import execute

SERVER_OPTIONS = EndpointOptions(is_server=True)

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": "{}",
    "status": "completed",
}


def make_service(
    store: Store,
    models: GatedModel | None = None,
    *,
    options: EndpointOptions = SERVER_OPTIONS,
    ttl_s: TimeToLive | None = None,
) -> EmbeddedService:
    return EmbeddedService(
        store,
        models or open_gated_model(),
        SystemClock(),
        counting_ids(),
        fetch_models=no_models,
        options=options,
        ttl_s=ttl_s,
    )


async def disconnect_midway(service: EmbeddedService, **body: object) -> None:
    """Send a request and disconnect after the first text delta."""
    async with aclosing(service.endpoint_for("t").create({"model": MODEL, "input": "a", **body})) as answer:
        async for event in answer:
            if event.get("delta") == "one ":
                return


async def test_a_tenant_has_one_endpoint_and_cannot_access_another(store: Store) -> None:
    service = make_service(store)
    response = (await ask(service.endpoint_for("ann"), "a"))["id"]

    assert service.endpoint_for("ann") is service.endpoint_for("ann")
    assert (await service.endpoint_for("ann").retrieve(response))["id"] == response
    with pytest.raises(NotFound):
        await service.endpoint_for("bob").retrieve(response)
    await service.aclose()


# -- clients that disconnect ----------------------------------------------------------------------


async def test_a_complete_call_may_be_answered_or_ignored_after_its_client_disconnected(store: Store) -> None:
    model = GatedModel(first=CALL)
    service = make_service(store, model)
    await disconnect_midway(service)
    model.gate.set()
    output = {"type": "function_call_output", "call_id": "call_1", "output": "42"}

    assert [item["status"] for item in (await service.endpoint_for("t").retrieve("resp_1"))["output"]] == ["incomplete"]
    ignored = await events(service.endpoint_for("t"), "b", previous_response_id="resp_1")
    assert [item.get("type", "message") for item in model.requests[-1].input] == ["message", "message"]
    answered = await events(service.endpoint_for("t"), [output], previous_response_id="resp_1")
    assert [item.get("type") for item in model.requests[-1].input] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert (ignored[-1]["type"], answered[-1]["type"]) == ("response.completed", "response.completed")
    await service.aclose()


class GatedStore(MemoryStore):
    """A memory store that counts its commits and commits only after `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.writing, self.gate, self.commits = asyncio.Event(), asyncio.Event(), 0

    def for_tenant(self, tenant: str) -> "GatedStore":
        return self

    async def commit(self, transaction: Transaction) -> None:
        self.commits += 1
        self.writing.set()
        await self.gate.wait()
        await super().commit(transaction)


async def test_a_disconnect_while_the_response_is_stored_does_not_change_it() -> None:
    store, model = GatedStore(), GatedModel()
    model.gate.set()
    service = make_service(store, model)
    reader = asyncio.create_task(events(service.endpoint_for("t"), "a"))
    await store.writing.wait()
    reader.cancel()
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await reader

    assert store.commits == 1
    assert (await service.endpoint_for("t").retrieve("resp_1"))["status"] == "completed"
    await service.aclose()


class SlowLease(MemoryStore):
    """A memory store that returns an acquired lease only after `gate` is set, like a slow database."""

    def __init__(self) -> None:
        super().__init__()
        self.leased, self.gate = asyncio.Event(), asyncio.Event()

    def for_tenant(self, tenant: str) -> "SlowLease":
        return self

    async def acquire_lease(self, name: str, holder: str, ttl_s: float, *, dead_holder: str | None = None) -> Lease:
        lease = await super().acquire_lease(name, holder, ttl_s, dead_holder=dead_holder)
        self.leased.set()
        await self.gate.wait()
        return lease


async def test_a_disconnect_while_the_conversation_is_locked_leaves_no_lock() -> None:
    store = SlowLease()
    service = make_service(store)
    conversation = str((await service.endpoint_for("t").create_conversation())["id"])
    reader = asyncio.create_task(events(service.endpoint_for("t"), "a", conversation=conversation))
    await store.leased.wait()
    reader.cancel()
    await asyncio.sleep(0)
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await reader

    assert (await events(service.endpoint_for("t"), "b", conversation=conversation))[-1]["type"] == "response.completed"
    assert texts(await service.endpoint_for("t").list_conversation_items(conversation, order="asc")) == ["b", "one two"]
    await service.aclose()


async def test_a_request_waits_while_a_cancelled_response_is_stored() -> None:
    """The client has the response id, so the id must be found. The commit of the response unlocks the conversation."""
    store, model = GatedStore(), GatedModel()
    store.gate.set()
    service = make_service(store, model)
    conversation = str((await service.endpoint_for("t").create_conversation())["id"])
    reader = asyncio.create_task(disconnect_midway(service, conversation=conversation))
    store.gate.clear()
    store.writing.clear()
    await store.writing.wait()
    model.gate.set()
    retrieval = asyncio.create_task(service.endpoint_for("t").retrieve("resp_1"))
    continuation = asyncio.create_task(events(service.endpoint_for("t"), "b", conversation=conversation))
    await asyncio.sleep(0)
    store.gate.set()

    assert (await retrieval)["status"] == "cancelled"
    assert (await continuation)[-1]["type"] == "response.completed"
    await reader
    await service.aclose()


async def test_errors_reach_the_reader_unchanged(store: Store) -> None:
    model = GatedModel(fails=StreamBroken("the connection broke"), silent=True)
    model.gate.set()
    service = make_service(store, model)
    assert (
        await refusal(service.endpoint_for("t"), "a", previous_response_id="resp_x")
    ).code == "previous_response_not_found"
    assert (await events(service.endpoint_for("t"), "a"))[-1]["type"] == "response.failed"
    await service.aclose()


async def test_a_reader_that_is_cancelled_while_it_disconnects_still_ends_the_response(store: Store) -> None:
    model = GatedModel()
    service = make_service(store, model)
    answer = service.endpoint_for("t").create({"model": MODEL, "input": "a"})
    async for event in answer:
        if event["type"] == "response.output_text.delta":
            break
    closing = asyncio.create_task(answer.aclose())
    for _ in range(3):
        await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing

    assert model.closed.is_set()
    assert (await service.endpoint_for("t").retrieve("resp_1"))["status"] == "cancelled"
    await service.aclose()


# -- store errors ---------------------------------------------------------------------------------


class FailingStore(MemoryStore):
    """A memory store that raises `fault` for all tenants: on commits, and on reads of links unless `reads`."""

    fault: StoreFull | StoreUnavailable | None = None
    reads: bool = True
    failed_commits: int = 0

    def __init__(self) -> None:
        super().__init__()
        self.third_refusal = asyncio.Event()

    def for_tenant(self, tenant: str) -> "FailingStore":
        return self

    async def commit(self, transaction: Transaction) -> None:
        if self.fault:
            self.failed_commits += 1
            if self.failed_commits == 3:
                self.third_refusal.set()
            raise self.fault
        await super().commit(transaction)

    async def link(self, link_id: str) -> Link | None:
        if self.fault and not self.reads:
            raise self.fault
        return await super().link(link_id)


async def test_a_store_error_at_the_end_fails_the_response() -> None:
    failing = FailingStore()
    failing.fault = StoreFull("no room is left in /secret/place")
    service = make_service(failing)
    got = await events(service.endpoint_for("t"), "a")
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert got[-1]["type"] == "response.failed"
    assert got[-1]["response"]["error"] == {
        "code": "server_error",
        "message": "The server could not store this response.",
    }
    assert "/secret" not in str(got)
    await service.aclose()


async def test_a_store_error_at_the_end_is_a_503_without_streaming() -> None:
    failing = FailingStore()
    failing.fault = StoreUnavailable("no connection")
    service = make_service(failing)
    assert (await refusal(service.endpoint_for("t"), "a", stream=False)).status == 503
    await service.aclose()


async def test_an_unreachable_store_at_the_start_refuses_the_request() -> None:
    failing, model = FailingStore(), open_gated_model()
    service = make_service(failing, model)
    first = await ask(service.endpoint_for("t"), "a")
    failing.fault, failing.reads = StoreUnavailable("no connection"), False
    error = await refusal(service.endpoint_for("t"), "b", previous_response_id=first["id"])
    assert error.status == 503
    assert len(model.requests) == 1
    await service.aclose()


async def test_a_background_response_outlives_a_temporarily_unreachable_store() -> None:
    failing, model, clock = FailingStore(), GatedModel(), FixedClock()
    service = EmbeddedService(failing, model, clock, counting_ids(), fetch_models=no_models, options=SERVER_OPTIONS)
    async with aclosing(service.endpoint_for("t").create({"model": MODEL, "input": "a", "background": True})) as answer:
        async for event in answer:
            if event["type"] == "response.output_text.delta":
                break
    failing.fault = StoreUnavailable("no connection")
    model.gate.set()
    async with asyncio.timeout(60):
        await failing.third_refusal.wait()
    failing.fault = None
    async with aclosing(service.endpoint_for("t").follow("resp_1")) as following:
        got = [event async for event in following]
    await service.aclose()

    assert clock.sleeps_s.count(CLOSE_RETRY_S) >= 3
    assert got[-1]["type"] == "response.completed"
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert texts(got[-1]["response"]["output"]) == ["one two"]


# -- shutdown -------------------------------------------------------------------------------------


async def test_a_closing_service_starts_no_request_and_lets_running_ones_finish(store: Store) -> None:
    model = GatedModel()
    service = make_service(store, model)
    reader = asyncio.create_task(events(service.endpoint_for("t"), "a"))
    await model.request_received.wait()
    closing = asyncio.create_task(service.aclose(grace_s=60))
    await asyncio.sleep(0)

    error = await refusal(service.endpoint_for("t"), "b")
    model.gate.set()
    await closing

    assert (error.code, error.status) == ("server_shutting_down", 503)
    assert isinstance(error, TryLater)
    assert (await reader)[-1]["type"] == "response.completed"
    await service.aclose()


async def test_a_reader_of_a_response_that_exceeds_the_grace_period_gets_an_error(store: Store) -> None:
    model = GatedModel()
    service = make_service(store, model)
    reader = asyncio.create_task(refusal(service.endpoint_for("t"), "a"))
    await model.request_received.wait()
    await service.aclose(grace_s=0)
    assert (await reader).code == "server_shutting_down"


async def test_a_response_that_exceeds_the_grace_period_is_stored_as_cancelled_or_failed(store: Store) -> None:
    model = GatedModel()
    service = make_service(store, model)
    conversation = str((await service.endpoint_for("t").create_conversation())["id"])
    reader = asyncio.create_task(refusal(service.endpoint_for("t"), "a", conversation=conversation))
    await model.request_received.wait()
    await disconnect_midway(service, background=True)

    await service.aclose(grace_s=0)
    await reader

    foreground, background = [
        await service.endpoint_for("t").retrieve(response_id) for response_id in ("resp_1", "resp_2")
    ]
    assert (foreground["status"], background["status"]) == ("cancelled", "failed")
    assert background["error"]["message"] == "The server that ran this response stopped."
    assert texts(await service.endpoint_for("t").list_conversation_items(conversation)) == []
    assert await store.admin.abandoned_runs() == []
    await service.aclose()


# -- dead replicas and retention ------------------------------------------------------------------


async def store_abandoned_run(store: Store, response_id: str, earlier_id: str) -> None:
    """Store a background response with the input of an earlier one, as a dead replica leaves it: without a lease."""
    earlier = await store.link(earlier_id)
    assert earlier
    run = replace(earlier, id=response_id, status="in_progress", head=earlier.input_head)
    await store.commit(Transaction(links=(replace(run, parameters={"background": True}),), started_run_id=response_id))


async def test_the_background_responses_of_a_dead_replica_are_marked_failed_for_every_tenant(store: Store) -> None:
    service = make_service(store)
    for tenant in ("ann", "bob"):
        response_id = (await ask(service.endpoint_for(tenant), "a"))["id"]
        await store_abandoned_run(store.for_tenant(tenant), f"resp_of_{tenant}", response_id)

    await service.sweep()

    for tenant in ("ann", "bob"):
        failed = await service.endpoint_for(tenant).retrieve(f"resp_of_{tenant}")
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert await store.admin.abandoned_runs() == []
    await service.aclose()


async def test_a_deleted_item_or_a_damaged_row_keeps_no_other_run_of_a_dead_replica_open(store: Store) -> None:
    service, reported = make_service(store), list[DamagedRow]()
    store.admin.set_damaged_row_observer(reported.append)
    endpoint, tenant_store = service.endpoint_for("t"), store.for_tenant("t")
    conversation = str((await endpoint.create_conversation())["id"])
    response_id = (await ask(endpoint, "a", conversation=conversation))["id"]
    for number in range(2):
        await store_abandoned_run(tenant_store, f"resp_open_{number}", response_id)
    question = (await endpoint.list_conversation_items(conversation, order="asc")).items[0]
    await endpoint.delete_conversation_item(conversation, str(question["id"]))
    await execute(store, "UPDATE @links SET error = '{' WHERE id = 'resp_open_0'")

    await service.sweep()

    assert [error.key for error in reported] == ["resp_open_0"]
    failed = await tenant_store.link("resp_open_1")
    assert failed
    assert failed.status == "failed"
    await service.aclose()


async def test_a_background_response_that_still_runs_is_unchanged_by_a_sweep(store: Store) -> None:
    model = GatedModel()
    here, there = make_service(store, model), make_service(store)
    await disconnect_midway(here, background=True)
    await there.sweep()
    assert (await there.endpoint_for("t").retrieve("resp_1"))["status"] == "in_progress"
    await here.aclose()
    await there.aclose()


async def test_expired_responses_of_a_tenant_with_a_retention_time_are_removed() -> None:
    store, clock = MemoryStore(), FixedClock()
    service = EmbeddedService(
        store,
        open_gated_model(),
        clock,
        random_id,
        fetch_models=no_models,
        options=SERVER_OPTIONS,
        ttl_s={"short": 3600.0}.get,
    )
    short, long = [(await ask(service.endpoint_for(tenant), "a"))["id"] for tenant in ("short", "long")]
    clock.advance(4000)
    kept = (await ask(service.endpoint_for("short"), "b"))["id"]

    await service.sweep()

    with pytest.raises(NotFound):
        await service.endpoint_for("short").retrieve(short)
    assert (await service.endpoint_for("short").retrieve(kept))["id"] == kept
    assert (await service.endpoint_for("long").retrieve(long))["id"] == long
    await service.aclose()


async def test_an_unreachable_store_fails_the_readiness_check() -> None:
    store = MemoryStore()
    service = make_service(store)
    await service.check_ready()
    await store.aclose()
    with pytest.raises(StoreUnavailable):
        await service.check_ready()
    await service.aclose()


# -- model lists and event names ------------------------------------------------------------------


async def test_model_lists_are_fetched_at_most_once_a_minute(store: Store) -> None:
    fetch_times: list[float] = []
    clock = FixedClock()

    async def fetch() -> Sequence[Mapping[str, Json]]:
        fetch_times.append(clock.now())
        return [{"id": f"model-{len(fetch_times)}"}]

    service = EmbeddedService(store, open_gated_model(), clock, random_id, fetch_models=fetch, options=SERVER_OPTIONS)
    assert [(await service.list_models())[0]["id"] for _ in range(3)] == ["model-1"] * 3
    clock.advance(61)
    assert (await service.list_models())[0]["id"] == "model-2"
    await service.aclose()


REASONING: Item = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "x"}],
}


@pytest.mark.parametrize("background", [False, True])
async def test_reasoning_events_have_the_names_of_the_package_or_of_the_specification(
    store: Store, background: bool
) -> None:
    event_types = {}
    for name, event_names in (("openai", {}), ("specification", SPECIFICATION_EVENT_NAMES)):
        model = GatedModel(first=REASONING)
        model.gate.set()
        service = make_service(store.for_tenant(name), model, options=replace(SERVER_OPTIONS, event_names=event_names))
        got = await events(service.endpoint_for(name), "a", background=background)
        event_types[name] = {event["type"] for event in got if "reasoning" in event["type"]}
        await service.aclose()
    assert event_types == {
        "openai": {"response.reasoning_text.delta", "response.reasoning_text.done"},
        "specification": {"response.reasoning.delta", "response.reasoning.done"},
    }


# -- without a store ------------------------------------------------------------------------------


STATE_FIELDS: list[tuple[dict[str, object], str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"store": True}, "store"),
    ({"background": True}, "background"),
    ({"input": [user_item("a"), {"type": "item_reference", "id": "msg_1"}]}, "input[1]"),
]


@pytest.mark.parametrize(("body", "param"), STATE_FIELDS, ids=[param for _, param in STATE_FIELDS])
async def test_without_a_store_every_field_that_needs_one_is_refused_with_its_name(
    body: dict[str, object], param: str
) -> None:
    model = open_gated_model()
    service = make_service(MemoryStore(), model, options=EndpointOptions(stateless=True))
    error = await refusal(service.endpoint_for("t"), **{"request_input": "a", **body} if "input" not in body else body)
    assert error_fields(error) == ("unsupported_parameter", 400, param)
    assert "keeps no state" in error.message
    assert model.requests == []
    await service.aclose()


async def test_without_a_store_a_plain_request_is_answered_and_not_stored() -> None:
    service = make_service(MemoryStore(), options=EndpointOptions(stateless=True))
    endpoint = service.endpoint_for("t")
    response = await ask(endpoint, "a")
    assert (response["status"], response["store"]) == ("completed", False)
    for request in (
        endpoint.retrieve(response["id"]),
        endpoint.retrieve_conversation("conv_1"),
        endpoint.cancel("resp_1"),
    ):
        with pytest.raises(NotFound):
            await request
    assert (await refusal(endpoint, "b", conversation="conv_1")).code == "unsupported_parameter"
    await service.aclose()


async def test_without_a_store_there_are_no_conversations() -> None:
    service = make_service(MemoryStore(), options=EndpointOptions(stateless=True))
    with pytest.raises(RequestRefused, match="keeps no state") as caught:
        await service.endpoint_for("t").create_conversation()
    assert error_fields(caught.value) == ("unsupported_parameter", 400, "conversation")
    await service.aclose()


async def test_without_a_store_a_connection_still_continues_its_last_response() -> None:
    model = open_gated_model()
    service = make_service(MemoryStore(), model, options=EndpointOptions(stateless=True))
    connection = service.endpoint_for("t").connect()
    async with aclosing(connection.create({"model": MODEL, "input": "a"})) as answer:
        *_, last = [event async for event in answer]
    body = {"model": MODEL, "input": "b", "previous_response_id": last["response"]["id"]}
    async with aclosing(connection.create(body)) as answer:
        *_, last = [event async for event in answer]
    assert last["type"] == "response.completed"
    assert texts(model.requests[1].input) == ["a", "one two", "b"]
    await service.aclose()


async def test_a_retention_of_a_minute_is_applied_within_seconds_and_of_a_day_within_an_hour() -> None:
    store, clock = MemoryStore(), FixedClock()
    ttls = {"minute": 60.0, "day": 86_400.0}.get
    service = EmbeddedService(
        store, open_gated_model(), clock, random_id, fetch_models=no_models, options=SERVER_OPTIONS, ttl_s=ttls
    )
    await service.sweep(0)
    minute, day = [(await ask(service.endpoint_for(tenant), "a"))["id"] for tenant in ("minute", "day")]
    await service.sweep(1)

    clock.advance(61)
    await service.sweep(2)
    with pytest.raises(NotFound):
        await service.endpoint_for("minute").retrieve(minute)

    clock.advance(86_400)
    await service.sweep(3)
    late = (await ask(service.endpoint_for("day"), "b"))["id"]
    with pytest.raises(NotFound):
        await service.endpoint_for("day").retrieve(day)
    clock.advance(86_400 - 3500)
    await service.sweep(4)
    clock.advance(3501)
    await service.sweep(5)
    assert (await service.endpoint_for("day").retrieve(late))["id"] == late
    clock.advance(100)
    await service.sweep(6)
    with pytest.raises(NotFound):
        await service.endpoint_for("day").retrieve(late)
    await service.aclose()

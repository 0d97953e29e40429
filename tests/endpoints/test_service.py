"""The service for all tenants: client disconnects, store errors, dead replicas and shutdown."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest

from convo.errors import NotFound, RequestRefused, StoreFull, StoreUnavailable, StreamBroken, TryLater
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
from tests.endpoints.gated_model import GatedModel, open_gated_model

SERVED = EndpointOptions(is_server=True)

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": "{}",
    "status": "completed",
}
MESSAGE = {
    "type": "message",
    "id": "msg_0",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Before.", "annotations": []}],
}


async def nobody() -> Sequence[Mapping[str, Json]]:
    return []


def service(
    store: Store, models: GatedModel | None = None, *, manner: EndpointOptions = SERVED, ttl_s: TimeToLive | None = None
) -> EmbeddedService:
    return EmbeddedService(
        store,
        models or open_gated_model(),
        SystemClock(),
        counting_ids(),
        fetch_models=nobody,
        options=manner,
        ttl_s=ttl_s,
    )


async def left_in_the_middle(served: EmbeddedService, **body: object) -> None:
    """Send a request and disconnect after the first text delta."""
    async with aclosing(served.endpoint_for("t").create({"model": MODEL, "input": "a", **body})) as answer:
        async for event in answer:
            if event.get("delta") == "one ":
                return


async def test_a_tenant_has_one_endpoint_and_cannot_access_another(store: Store) -> None:
    served = service(store)
    response = (await ask(served.endpoint_for("ann"), "a"))["id"]

    assert served.endpoint_for("ann") is served.endpoint_for("ann")
    assert (await served.endpoint_for("ann").retrieve(response))["id"] == response
    with pytest.raises(NotFound):
        await served.endpoint_for("bob").retrieve(response)
    await served.aclose()


# -- clients that disconnect ----------------------------------------------------------------------


async def test_a_client_that_disconnects_cancels_its_response_and_the_conversation_keeps_the_sent_part(
    store: Store,
) -> None:
    """The last yielded event does not count as sent, because the reader did not request the next one."""
    model = GatedModel(first=MESSAGE)
    served = service(store, model)
    conversation = str((await served.endpoint_for("t").create_conversation())["id"])

    await left_in_the_middle(served, conversation=conversation)

    assert model.closed.is_set()
    kept = await served.endpoint_for("t").retrieve("resp_1")
    assert (kept["status"], texts(kept["output"])) == ("cancelled", ["Before."])
    assert texts(await served.endpoint_for("t").list_conversation_items(conversation, order="asc")) == ["a", "Before."]
    await served.aclose()


async def test_a_client_that_disconnects_before_the_first_event_keeps_its_input_in_the_conversation(
    store: Store,
) -> None:
    model = GatedModel(silent=True)
    served = service(store, model)
    conversation = str((await served.endpoint_for("t").create_conversation())["id"])
    reading = asyncio.create_task(events(served.endpoint_for("t"), "a", conversation=conversation))
    await model.request_received.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert model.closed.is_set()
    assert (await served.endpoint_for("t").retrieve("resp_1"))["status"] == "cancelled"
    assert texts(await served.endpoint_for("t").list_conversation_items(conversation, order="asc")) == ["a"]
    await served.aclose()


async def test_a_complete_call_may_be_answered_or_ignored_after_its_client_disconnected(store: Store) -> None:
    model = GatedModel(first=CALL)
    served = service(store, model)
    await left_in_the_middle(served)
    model.gate.set()
    output = {"type": "function_call_output", "call_id": "call_1", "output": "42"}

    assert [item["status"] for item in (await served.endpoint_for("t").retrieve("resp_1"))["output"]] == ["incomplete"]
    left = await events(served.endpoint_for("t"), "b", previous_response_id="resp_1")
    assert [item.get("type", "message") for item in model.requests[-1].input] == ["message", "message"]
    answered = await events(served.endpoint_for("t"), [output], previous_response_id="resp_1")
    assert [item.get("type") for item in model.requests[-1].input] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert (left[-1]["type"], answered[-1]["type"]) == ("response.completed", "response.completed")
    await served.aclose()


class Patient(MemoryStore):
    """A memory store that counts its commits and commits only after `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.writing, self.go_on, self.commits = asyncio.Event(), asyncio.Event(), 0

    def for_tenant(self, tenant: str) -> "Patient":
        return self

    async def commit(self, transaction: Transaction) -> None:
        self.commits += 1
        self.writing.set()
        await self.go_on.wait()
        await super().commit(transaction)


async def test_a_disconnect_while_the_response_is_stored_does_not_change_it() -> None:
    store, model = Patient(), GatedModel()
    model.gate.set()
    served = service(store, model)
    reading = asyncio.create_task(events(served.endpoint_for("t"), "a"))
    await store.writing.wait()
    reading.cancel()
    store.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert store.commits == 1
    assert (await served.endpoint_for("t").retrieve("resp_1"))["status"] == "completed"
    await served.aclose()


class SlowLease(MemoryStore):
    """A memory store that returns an acquired lease only after `go_on` is set, like a slow database."""

    def __init__(self) -> None:
        super().__init__()
        self.leased, self.go_on = asyncio.Event(), asyncio.Event()

    def for_tenant(self, tenant: str) -> "SlowLease":
        return self

    async def acquire_lease(self, name: str, holder: str, ttl_s: float, *, dead_holder: str | None = None) -> Lease:
        lease = await super().acquire_lease(name, holder, ttl_s, dead_holder=dead_holder)
        self.leased.set()
        await self.go_on.wait()
        return lease


async def test_a_disconnect_while_the_conversation_is_locked_leaves_no_lock() -> None:
    store = SlowLease()
    served = service(store)
    conversation = str((await served.endpoint_for("t").create_conversation())["id"])
    reading = asyncio.create_task(events(served.endpoint_for("t"), "a", conversation=conversation))
    await store.leased.wait()
    reading.cancel()
    await asyncio.sleep(0)
    store.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading

    assert (await events(served.endpoint_for("t"), "b", conversation=conversation))[-1]["type"] == "response.completed"
    assert texts(await served.endpoint_for("t").list_conversation_items(conversation, order="asc")) == ["b", "one two"]
    await served.aclose()


async def test_a_request_waits_while_a_cancelled_response_is_stored() -> None:
    """The client has the response id, so the id must be found. The commit of the response unlocks the conversation."""
    store, model = Patient(), GatedModel()
    store.go_on.set()
    served = service(store, model)
    conversation = str((await served.endpoint_for("t").create_conversation())["id"])
    reading = asyncio.create_task(left_in_the_middle(served, conversation=conversation))
    store.go_on.clear()
    store.writing.clear()
    await store.writing.wait()
    model.gate.set()
    asking = asyncio.create_task(served.endpoint_for("t").retrieve("resp_1"))
    going_on = asyncio.create_task(events(served.endpoint_for("t"), "b", conversation=conversation))
    await asyncio.sleep(0)
    store.go_on.set()

    assert (await asking)["status"] == "cancelled"
    assert (await going_on)[-1]["type"] == "response.completed"
    await reading
    await served.aclose()


async def test_an_unstored_response_is_cancelled_when_its_reader_disconnects(store: Store) -> None:
    model = GatedModel()
    served = service(store, model)
    await left_in_the_middle(served, store=False)
    assert model.closed.is_set()
    await served.aclose()


async def test_errors_reach_the_reader_unchanged(store: Store) -> None:
    model = GatedModel(fails=StreamBroken("the connection broke"), silent=True)
    model.gate.set()
    served = service(store, model)
    assert (
        await refusal(served.endpoint_for("t"), "a", previous_response_id="resp_x")
    ).code == "previous_response_not_found"
    assert (await events(served.endpoint_for("t"), "a"))[-1]["type"] == "response.failed"
    await served.aclose()


async def test_a_reader_that_is_cancelled_while_it_disconnects_still_ends_the_response(store: Store) -> None:
    model = GatedModel()
    served = service(store, model)
    answer = served.endpoint_for("t").create({"model": MODEL, "input": "a"})
    async for event in answer:
        if event["type"] == "response.output_text.delta":
            break
    leaving = asyncio.create_task(answer.aclose())
    for _ in range(3):
        await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving

    assert model.closed.is_set()
    assert (await served.endpoint_for("t").retrieve("resp_1"))["status"] == "cancelled"
    await served.aclose()


# -- store errors ---------------------------------------------------------------------------------


class Failing(MemoryStore):
    """A memory store that raises `fault` for all tenants: on commits, and on reads of links unless `reads`."""

    fault: StoreFull | StoreUnavailable | None = None
    reads: bool = True
    refused: int = 0

    def __init__(self) -> None:
        super().__init__()
        self.third_refusal = asyncio.Event()

    def for_tenant(self, tenant: str) -> "Failing":
        return self

    async def commit(self, transaction: Transaction) -> None:
        if self.fault:
            self.refused += 1
            if self.refused == 3:
                self.third_refusal.set()
            raise self.fault
        await super().commit(transaction)

    async def link(self, link_id: str) -> Link | None:
        if self.fault and not self.reads:
            raise self.fault
        return await super().link(link_id)


async def test_a_store_error_at_the_end_fails_the_response() -> None:
    failing = Failing()
    failing.fault = StoreFull("no room is left in /secret/place")
    served = service(failing)
    got = await events(served.endpoint_for("t"), "a")
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert got[-1]["type"] == "response.failed"
    assert got[-1]["response"]["error"] == {
        "code": "server_error",
        "message": "The server could not store this response.",
    }
    assert "/secret" not in str(got)
    await served.aclose()


async def test_a_store_error_at_the_end_is_a_503_without_streaming() -> None:
    failing = Failing()
    failing.fault = StoreUnavailable("no connection")
    served = service(failing)
    assert (await refusal(served.endpoint_for("t"), "a", stream=False)).status == 503
    await served.aclose()


async def test_an_unreachable_store_at_the_start_refuses_the_request() -> None:
    failing, model = Failing(), open_gated_model()
    served = service(failing, model)
    first = await ask(served.endpoint_for("t"), "a")
    failing.fault, failing.reads = StoreUnavailable("no connection"), False
    wrong = await refusal(served.endpoint_for("t"), "b", previous_response_id=first["id"])
    assert wrong.status == 503
    assert len(model.requests) == 1
    await served.aclose()


async def test_a_background_response_outlives_a_temporarily_unreachable_store() -> None:
    failing, model, clock = Failing(), GatedModel(), FixedClock()
    served = EmbeddedService(failing, model, clock, counting_ids(), fetch_models=nobody, options=SERVED)
    async with aclosing(served.endpoint_for("t").create({"model": MODEL, "input": "a", "background": True})) as answer:
        async for event in answer:
            if event["type"] == "response.output_text.delta":
                break
    failing.fault = StoreUnavailable("no connection")
    model.gate.set()
    async with asyncio.timeout(10):
        await failing.third_refusal.wait()
    failing.fault = None
    async with aclosing(served.endpoint_for("t").follow("resp_1")) as following:
        got = [event async for event in following]
    await served.aclose()

    assert clock.sleeps_s.count(CLOSE_RETRY_S) >= 3
    assert got[-1]["type"] == "response.completed"
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert texts(got[-1]["response"]["output"]) == ["one two"]


# -- shutdown -------------------------------------------------------------------------------------


async def test_a_closing_service_starts_no_request_and_lets_running_ones_finish(store: Store) -> None:
    model = GatedModel()
    served = service(store, model)
    reading = asyncio.create_task(events(served.endpoint_for("t"), "a"))
    await model.request_received.wait()
    ending = asyncio.create_task(served.aclose(grace_s=60))
    await asyncio.sleep(0)

    wrong = await refusal(served.endpoint_for("t"), "b")
    model.gate.set()
    await ending

    assert (wrong.code, wrong.status) == ("server_shutting_down", 503)
    assert isinstance(wrong, TryLater)
    assert (await reading)[-1]["type"] == "response.completed"
    await served.aclose()


async def test_a_reader_of_a_response_that_exceeds_the_grace_period_gets_an_error(store: Store) -> None:
    model = GatedModel()
    served = service(store, model)
    reading = asyncio.create_task(refusal(served.endpoint_for("t"), "a"))
    await model.request_received.wait()
    await served.aclose(grace_s=0)
    assert (await reading).code == "server_shutting_down"


async def test_a_response_that_exceeds_the_grace_period_is_stored_as_cancelled_or_failed(store: Store) -> None:
    model = GatedModel()
    served = service(store, model)
    conversation = str((await served.endpoint_for("t").create_conversation())["id"])
    waited_for = asyncio.create_task(refusal(served.endpoint_for("t"), "a", conversation=conversation))
    await model.request_received.wait()
    await left_in_the_middle(served, background=True)

    await served.aclose(grace_s=0)
    await waited_for

    waited, background = [await served.endpoint_for("t").retrieve(one) for one in ("resp_1", "resp_2")]
    assert (waited["status"], background["status"]) == ("cancelled", "failed")
    assert background["error"]["message"] == "The server that ran this response stopped."
    assert texts(await served.endpoint_for("t").list_conversation_items(conversation)) == []
    assert await store.admin.abandoned_runs() == []
    await served.aclose()


# -- dead replicas and retention ------------------------------------------------------------------


async def test_the_background_responses_of_a_dead_replica_are_marked_failed_for_every_tenant(store: Store) -> None:
    """The dead replica left an open run without an active lease."""
    served = service(store)
    for tenant in ("ann", "bob"):
        mine = store.for_tenant(tenant)
        done = (await ask(served.endpoint_for(tenant), "a"))["id"]
        link = await mine.link(done)
        assert link
        run = replace(link, id=f"resp_of_{tenant}", status="in_progress", head=link.input_head)
        await mine.commit(Transaction(links=(replace(run, parameters={"background": True}),), started_run_id=run.id))

    await served.sweep()

    for tenant in ("ann", "bob"):
        failed = await served.endpoint_for(tenant).retrieve(f"resp_of_{tenant}")
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert await store.admin.abandoned_runs() == []
    await served.aclose()


async def test_a_background_response_that_still_runs_is_unchanged_by_a_sweep(store: Store) -> None:
    model = GatedModel()
    here, there = service(store, model), service(store)
    await left_in_the_middle(here, background=True)
    await there.sweep()
    assert (await there.endpoint_for("t").retrieve("resp_1"))["status"] == "in_progress"
    await here.aclose()
    await there.aclose()


async def test_expired_responses_of_a_tenant_with_a_retention_time_are_removed() -> None:
    store, clock = MemoryStore(), FixedClock()
    served = EmbeddedService(
        store, open_gated_model(), clock, random_id, fetch_models=nobody, options=SERVED, ttl_s={"short": 3600.0}.get
    )
    short, long = [(await ask(served.endpoint_for(tenant), "a"))["id"] for tenant in ("short", "long")]
    clock.advance(4000)
    kept = (await ask(served.endpoint_for("short"), "b"))["id"]

    await served.sweep()

    with pytest.raises(NotFound):
        await served.endpoint_for("short").retrieve(short)
    assert (await served.endpoint_for("short").retrieve(kept))["id"] == kept
    assert (await served.endpoint_for("long").retrieve(long))["id"] == long
    await served.aclose()


async def test_an_unreachable_store_fails_the_readiness_check() -> None:
    store = MemoryStore()
    served = service(store)
    await served.check_ready()
    await store.aclose()
    with pytest.raises(StoreUnavailable):
        await served.check_ready()
    await served.aclose()


# -- model lists and event names ------------------------------------------------------------------


async def test_model_lists_are_fetched_at_most_once_a_minute(store: Store) -> None:
    asked: list[float] = []
    clock = FixedClock()

    async def listed() -> Sequence[Mapping[str, Json]]:
        asked.append(clock.now())
        return [{"id": f"model-{len(asked)}"}]

    served = EmbeddedService(store, open_gated_model(), clock, random_id, fetch_models=listed, options=SERVED)
    assert [(await served.list_models())[0]["id"] for _ in range(3)] == ["model-1"] * 3
    clock.advance(61)
    assert (await served.list_models())[0]["id"] == "model-2"
    await served.aclose()


THOUGHT: Item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]}


@pytest.mark.parametrize("background", [False, True])
async def test_reasoning_events_have_the_names_of_the_package_or_of_the_specification(
    store: Store, background: bool
) -> None:
    kinds = {}
    for name, renamed in (("openai", {}), ("specification", SPECIFICATION_EVENT_NAMES)):
        model = GatedModel(first=THOUGHT)
        model.gate.set()
        served = service(store.for_tenant(name), model, manner=replace(SERVED, event_names=renamed))
        got = await events(served.endpoint_for(name), "a", background=background)
        kinds[name] = {event["type"] for event in got if "reasoning" in event["type"]}
        await served.aclose()
    assert kinds == {
        "openai": {"response.reasoning_text.delta", "response.reasoning_text.done"},
        "specification": {"response.reasoning.delta", "response.reasoning.done"},
    }


# -- without a store ------------------------------------------------------------------------------


STATEFUL: list[tuple[dict[str, object], str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"store": True}, "store"),
    ({"background": True}, "background"),
    ({"input": [user_item("a"), {"type": "item_reference", "id": "msg_1"}]}, "input[1]"),
]


@pytest.mark.parametrize(("body", "param"), STATEFUL, ids=[param for _, param in STATEFUL])
async def test_without_a_store_every_field_that_needs_one_is_refused_with_its_name(
    body: dict[str, object], param: str
) -> None:
    model = open_gated_model()
    served = service(MemoryStore(), model, manner=EndpointOptions(stateless=True))
    wrong = await refusal(served.endpoint_for("t"), **{"said": "a", **body} if "input" not in body else body)
    assert error_fields(wrong) == ("unsupported_parameter", 400, param)
    assert "keeps no state" in wrong.message
    assert model.requests == []
    await served.aclose()


async def test_without_a_store_a_plain_request_is_answered_and_not_stored() -> None:
    served = service(MemoryStore(), manner=EndpointOptions(stateless=True))
    endpoint = served.endpoint_for("t")
    response = await ask(endpoint, "a")
    assert (response["status"], response["store"]) == ("completed", False)
    for gone in (
        endpoint.retrieve(response["id"]),
        endpoint.retrieve_conversation("conv_1"),
        endpoint.cancel("resp_1"),
    ):
        with pytest.raises(NotFound):
            await gone
    assert (await refusal(endpoint, "b", conversation="conv_1")).code == "unsupported_parameter"
    await served.aclose()


async def test_without_a_store_there_are_no_conversations() -> None:
    served = service(MemoryStore(), manner=EndpointOptions(stateless=True))
    with pytest.raises(RequestRefused, match="keeps no state") as wrong:
        await served.endpoint_for("t").create_conversation()
    assert error_fields(wrong.value) == ("unsupported_parameter", 400, "conversation")
    await served.aclose()


async def test_without_a_store_a_connection_still_continues_its_last_response() -> None:
    model = open_gated_model()
    served = service(MemoryStore(), model, manner=EndpointOptions(stateless=True))
    connection = served.endpoint_for("t").connect()
    async with aclosing(connection.create({"model": MODEL, "input": "a"})) as answer:
        *_, last = [event async for event in answer]
    body = {"model": MODEL, "input": "b", "previous_response_id": last["response"]["id"]}
    async with aclosing(connection.create(body)) as answer:
        *_, last = [event async for event in answer]
    assert last["type"] == "response.completed"
    assert texts(model.requests[1].input) == ["a", "one two", "b"]
    await served.aclose()


async def test_a_retention_of_a_minute_is_applied_within_seconds_and_of_a_day_within_an_hour() -> None:
    store, clock = MemoryStore(), FixedClock()
    ttls = {"minute": 60.0, "day": 86_400.0}.get
    served = EmbeddedService(
        store, open_gated_model(), clock, random_id, fetch_models=nobody, options=SERVED, ttl_s=ttls
    )
    await served.sweep(0)
    minute, day = [(await ask(served.endpoint_for(tenant), "a"))["id"] for tenant in ("minute", "day")]
    await served.sweep(1)

    clock.advance(61)
    await served.sweep(2)
    with pytest.raises(NotFound):
        await served.endpoint_for("minute").retrieve(minute)

    clock.advance(86_400)
    await served.sweep(3)
    late = (await ask(served.endpoint_for("day"), "b"))["id"]
    with pytest.raises(NotFound):
        await served.endpoint_for("day").retrieve(day)
    clock.advance(86_400 - 3500)
    await served.sweep(4)
    clock.advance(3501)
    await served.sweep(5)
    assert (await served.endpoint_for("day").retrieve(late))["id"] == late
    clock.advance(100)
    await served.sweep(6)
    with pytest.raises(NotFound):
        await served.endpoint_for("day").retrieve(late)
    await served.aclose()

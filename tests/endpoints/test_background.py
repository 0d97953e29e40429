"""Background responses: start, follow, cancel and recover, from any replica."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import pytest

from convo.errors import NotFound, RequestRefused, StreamBroken, TryLater
from convo.history.items import StreamEvent, user_message
from convo.history.tree import Path, root_key
from convo.responses_api.background import RUN_LEASE_TTL_S
from convo.responses_api.endpoint import EVENT_RETENTION_S, EmbeddedEndpoint
from convo.runtime import random_id
from convo.stores.base import AppendItems, Store, Transaction
from convo.stores.factory import open_store
from convo.stores.memory import MemoryStore
from tests.endpoints.endpoint_calls import MODEL, ask, error_fields, events, refusal, texts
from tests.endpoints.gated_model import GatedModel, endpoint_over, open_gated_model

WHOLE = {"type": "message", "id": "msg_w", "role": "assistant", "content": [{"type": "output_text", "text": "whole"}]}


async def start_background_response(endpoint: EmbeddedEndpoint, **body: Any) -> str:
    """Start a background response, disconnect after its first event, and return its id."""
    async with aclosing(endpoint.create({"model": MODEL, "input": "a", "background": True, **body})) as answer:
        async for event in answer:
            return str(event["response"]["id"])
    raise AssertionError("no event was received")


async def follow_response(endpoint: EmbeddedEndpoint, response_id: str, after: int | None = None) -> list[StreamEvent]:
    async with aclosing(endpoint.follow(response_id, after=after)) as following:
        return [event async for event in following]


async def wait_for_event(endpoint: EmbeddedEndpoint, response_id: str, kind: str) -> StreamEvent:
    """Follow a response and return its first event of type `kind`."""
    async with aclosing(endpoint.follow(response_id)) as following:
        async for event in following:
            if event["type"] == kind:
                return event
    raise AssertionError(f"no {kind}")


@pytest.fixture
async def replicas(tmp_path: File) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores that share one database, as two replicas do."""
    stores = open_store(f"sqlite:{tmp_path / 'convo.db'}"), open_store(f"sqlite:{tmp_path / 'convo.db'}")
    yield stores
    for store in stores:
        await store.aclose()


async def test_a_background_response_is_queued_and_stored_before_its_first_event(store: Store) -> None:
    endpoint = endpoint_over(store, GatedModel(silent=True))
    async with aclosing(endpoint.create({"model": MODEL, "input": "a", "background": True})) as answer:
        first = await anext(answer)
        link = await store.link("resp_1")
    await endpoint.aclose()

    assert link
    assert link.status in ("queued", "in_progress")
    assert (first["type"], first["sequence_number"]) == ("response.created", 0)
    assert (first["response"]["status"], first["response"]["background"]) == ("queued", True)


async def test_a_background_stream_has_the_queued_event_and_then_the_ordinary_events(store: Store) -> None:
    endpoint = endpoint_over(store, open_gated_model())
    async with aclosing(endpoint.create({"model": MODEL, "input": "a", "background": True})) as answer:
        got = [event async for event in answer]

    kinds = [event["type"] for event in got]
    assert kinds[:4] == [
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.output_item.added",
    ]
    assert kinds[-1] == "response.completed"
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert [event["response"]["status"] for event in got[:3]] == ["queued", "queued", "in_progress"]
    assert got[-1]["response"] == await endpoint.retrieve("resp_1")
    assert texts(got[-1]["response"]["output"]) == ["one two"]


async def test_the_last_event_is_generated_and_never_stored(store: Store) -> None:
    endpoint = endpoint_over(store, open_gated_model())
    response = await start_background_response(endpoint)
    all_events = await follow_response(endpoint, response)
    assert await store.events(response) == all_events[:-1]


async def test_a_conversation_is_locked_until_its_background_response_ends_and_then_updated(store: Store) -> None:
    model = GatedModel()
    endpoint = endpoint_over(store, model)
    conversation = str((await endpoint.create_conversation())["id"])
    response = await start_background_response(endpoint, conversation=conversation)

    locked = await refusal(endpoint, "b", conversation=conversation)
    before = await endpoint.list_conversation_items(conversation)
    model.gate.set()
    await follow_response(endpoint, response)

    assert isinstance(locked, TryLater)
    assert locked.code == "conversation_locked"
    assert before.items == []
    assert texts(await endpoint.list_conversation_items(conversation, order="asc")) == ["a", "one two"]
    assert (await ask(endpoint, "b", conversation=conversation))["status"] == "completed"


async def test_a_running_response_cannot_be_continued(store: Store) -> None:
    model = GatedModel()
    endpoint = endpoint_over(store, model)
    response = await start_background_response(endpoint)
    await wait_for_event(endpoint, response, "response.in_progress")

    error = await refusal(endpoint, "b", previous_response_id=response)
    model.gate.set()
    await follow_response(endpoint, response)

    assert "cannot be continued" in error.message
    assert error_fields(error) == ("invalid_request_error", 400, "previous_response_id")
    assert (await ask(endpoint, "b", previous_response_id=response))["status"] == "completed"


async def test_an_invalid_request_is_refused_before_anything_is_stored(store: Store) -> None:
    endpoint = endpoint_over(store, open_gated_model())
    error = await refusal(endpoint, "a", background=True, previous_response_id="resp_nope")
    assert error.code == "previous_response_not_found"
    assert await store.link("resp_1") is None
    assert await store.admin.abandoned_runs() == []


async def test_a_model_stream_that_breaks_at_any_time_fails_the_response(store: Store) -> None:
    model = GatedModel(fails=StreamBroken("the connection broke"))
    model.gate.set()
    endpoint = endpoint_over(store, model)
    last = (await follow_response(endpoint, await start_background_response(endpoint)))[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"] == {"code": "server_error", "message": "the connection broke"}


class GatedStore(MemoryStore):
    """A memory store that appends events only after `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.writing = asyncio.Event(), asyncio.Event()

    async def append_events(self, response_id: str, events: Sequence[StreamEvent]) -> None:
        self.writing.set()
        await self.gate.wait()
        await super().append_events(response_id, events)


async def test_events_received_while_the_store_is_slow_are_stored_once_and_in_order() -> None:
    store = GatedStore()
    endpoint = endpoint_over(store, open_gated_model())
    reader = asyncio.create_task(events(endpoint, "a", background=True))
    await store.writing.wait()
    for _ in range(50):  # the fixed clock advances, so the flush that runs every 0.1 s is due again
        await asyncio.sleep(0)
    store.gate.set()
    got = await reader
    assert got[-1]["type"] == "response.completed"
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert await store.events("resp_1") == got[:-1]


# -- cancellation ---------------------------------------------------------------------------------


async def test_cancelling_stops_the_model_and_keeps_the_partial_answer(store: Store) -> None:
    model = GatedModel(first=WHOLE)
    endpoint = endpoint_over(store, model)
    conversation = str((await endpoint.create_conversation())["id"])
    response = await start_background_response(endpoint, conversation=conversation)
    await wait_for_event(endpoint, response, "response.output_text.delta")

    cancelled = await endpoint.cancel(response)

    assert model.closed.is_set()
    assert (cancelled["status"], texts(cancelled["output"])) == ("cancelled", ["whole", "one "])
    assert (cancelled["error"], cancelled["incomplete_details"]) == (None, None)
    assert (await follow_response(endpoint, response))[-1]["response"] == cancelled
    assert (await endpoint.list_conversation_items(conversation)).items == []
    assert (await store.admin.abandoned_runs(), await endpoint.cancel(response)) == ([], cancelled)
    model.gate.set()
    assert (await ask(endpoint, "b", conversation=conversation))["status"] == "completed"


async def test_cancelling_a_finished_response_changes_nothing(store: Store) -> None:
    endpoint = endpoint_over(store, open_gated_model())
    last = (await follow_response(endpoint, await start_background_response(endpoint)))[-1]["response"]
    assert await endpoint.cancel(last["id"]) == last


async def test_another_tenant_cannot_follow_or_cancel_a_background_response(store: Store) -> None:
    model = GatedModel()
    endpoint, foreign = endpoint_over(store, model), endpoint_over(store.for_tenant("other"), model)
    response = await start_background_response(endpoint)
    for request in (foreign.cancel(response), follow_response(foreign, response), foreign.retrieve(response)):
        with pytest.raises(NotFound):
            await request
    await endpoint.aclose()


async def test_deleting_a_running_response_stops_its_model(store: Store) -> None:
    model = GatedModel()
    endpoint = endpoint_over(store, model)
    response = await start_background_response(endpoint)
    await wait_for_event(endpoint, response, "response.output_text.delta")
    await endpoint.delete(response)
    assert model.closed.is_set()
    with pytest.raises(NotFound):
        await endpoint.retrieve(response)


# -- two replicas ---------------------------------------------------------------------------------


async def test_another_replica_follows_a_background_response_to_its_end(replicas: tuple[Store, Store]) -> None:
    model = GatedModel()
    here, there = endpoint_over(replicas[0], model), endpoint_over(replicas[1], open_gated_model())
    response = await start_background_response(here)
    following = asyncio.create_task(follow_response(there, response))
    await wait_for_event(there, response, "response.output_text.delta")

    model.gate.set()

    assert await following == await follow_response(here, response)
    assert (await following)[-1]["type"] == "response.completed"


async def test_another_replica_cancels_a_background_response_and_its_model(replicas: tuple[Store, Store]) -> None:
    model = GatedModel(first=WHOLE)
    here, there = endpoint_over(replicas[0], model), endpoint_over(replicas[1], open_gated_model())
    response = await start_background_response(here)
    await wait_for_event(there, response, "response.output_text.delta")

    cancelled = await there.cancel(response)
    await model.closed.wait()

    assert (cancelled["status"], texts(cancelled["output"])) == ("cancelled", ["whole", "one "])
    assert (await follow_response(here, response))[-1]["response"] == cancelled
    await here.aclose()
    assert await here.retrieve(response) == cancelled


async def test_concurrent_ends_store_one_end(replicas: tuple[Store, Store]) -> None:
    """Both replicas cancel the response at the moment at which it completes."""
    model = GatedModel(first=WHOLE)
    here, there = endpoint_over(replicas[0], model), endpoint_over(replicas[1], open_gated_model())
    response = await start_background_response(here)
    await wait_for_event(there, response, "response.output_text.delta")

    model.gate.set()
    results = await asyncio.gather(here.cancel(response), there.cancel(response), there.cancel(response))

    ends = [(await follow_response(side, response))[-1] for side in (here, there)]
    assert [end["response"] for end in ends] == [results[0]] * 2
    assert list(results) == [results[0]] * 3
    assert results[0]["status"] in ("cancelled", "completed")
    assert await replicas[0].admin.abandoned_runs() == []
    await here.aclose()


async def test_a_background_response_whose_conversation_changed_fails_and_appends_nothing(store: Store) -> None:
    model = GatedModel()
    endpoint = endpoint_over(store, model)
    conversation = str((await endpoint.create_conversation())["id"])
    response = await start_background_response(endpoint, conversation=conversation)
    await wait_for_event(endpoint, response, "response.output_text.delta")
    stored = await store.conversation(conversation)
    assert stored
    path = Path(root_key(store.tenant)).append([user_message("meanwhile")])
    updated = replace(stored, head=path.head, item_ids=("msg_x",))
    appends = (AppendItems(path.root, path.items),)
    await store.commit(Transaction(appends=appends, conversation=updated, expected_conversation_head=stored.head))

    model.gate.set()

    last = (await follow_response(endpoint, response))[-1]
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "server_error")
    assert texts(await endpoint.list_conversation_items(conversation)) == ["meanwhile"]
    assert await store.admin.abandoned_runs() == []


async def test_after_a_restart_a_background_response_is_followed_from_the_store(replicas: tuple[Store, Store]) -> None:
    first = endpoint_over(replicas[0], open_gated_model())
    response = await start_background_response(first)
    all_events = await follow_response(first, response)
    await first.aclose()
    assert await follow_response(endpoint_over(replicas[1], open_gated_model()), response, after=2) == all_events[3:]


async def test_an_abandoned_background_response_is_marked_failed_by_another_replica() -> None:
    """The lease expires while the run is open, as after a kill. The response keeps the output received so far."""
    now = [0.0]
    store = MemoryStore(now=lambda: now[0])
    model = GatedModel(first=WHOLE)
    killed = endpoint_over(store, model, new_id=random_id)
    response = await start_background_response(killed)
    await wait_for_event(killed, response, "response.output_text.delta")
    assert await store.admin.abandoned_runs() == []
    now[0] += RUN_LEASE_TTL_S + 1

    other = endpoint_over(store, open_gated_model())
    abandoned = await store.admin.abandoned_runs()
    for one in abandoned:
        await other.mark_abandoned(one.response_id)

    assert [one.response_id for one in abandoned] == [response]
    failed = await other.retrieve(response)
    assert (failed["status"], texts(failed["output"])) == ("failed", ["whole", "one "])
    assert failed["error"] == {"code": "server_error", "message": "The server that ran this response stopped."}
    await model.closed.wait()
    assert await other.retrieve(response) == failed


async def test_expired_events_are_refused_and_the_response_stays(replicas: tuple[Store, Store]) -> None:
    endpoint = endpoint_over(replicas[0], open_gated_model())
    response = await start_background_response(endpoint)
    await follow_response(endpoint, response)

    assert await replicas[0].admin.prune_events(EVENT_RETENTION_S) == 0
    assert await replicas[0].admin.prune_events(-1) == 1

    with pytest.raises(RequestRefused) as caught:
        await follow_response(endpoint, response)
    assert "no longer stored" in caught.value.message
    assert (await endpoint.retrieve(response))["status"] == "completed"

"""A conversation of the embedded endpoint has one writer: a second one is refused, and a dead one blocks nobody."""

import asyncio
import socket
import sys
from dataclasses import replace

import pytest

from convo.errors import Conflict, TryLater
from convo.history.items import user_message
from convo.history.tree import Path, root_key
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.stores.base import Store
from convo.stores.memory import MemoryStore
from tests.clock import FixedClock
from tests.endpoints.endpoint_calls import ask, error_fields, refusal, texts, user_item
from tests.endpoints.gated_model import GatedModel, append_path, endpoint_over, open_gated_model, started_response
from tests.loopback_server import LoopbackModels


async def test_a_second_writer_gets_the_conflict_message_of_the_api_and_may_retry(store: Store) -> None:
    model = GatedModel()
    endpoint = endpoint_over(store, model)
    conversation = str((await endpoint.create_conversation([user_item("x")]))["id"])
    item_id = (await endpoint.list_conversation_items(conversation)).items[0]["id"]

    async with started_response(endpoint, {"conversation": conversation}) as answer:
        error = await refusal(endpoint, "b", conversation=conversation)
        for request in (
            endpoint.add_conversation_items(conversation, [user_item("c")]),
            endpoint.delete_conversation_item(conversation, item_id),
            endpoint.delete_conversation(conversation),
            endpoint.update_conversation(conversation, {}),
        ):
            with pytest.raises(TryLater):
                await request
        assert texts(await endpoint.list_conversation_items(conversation)) == ["x"]
        model.gate.set()
        assert [event["type"] async for event in answer][-1] == "response.completed"

    assert isinstance(error, TryLater)
    assert error_fields(error) == ("conversation_locked", 400, "conversation")
    assert error.message == (
        "Another process is currently operating on this conversation. Please retry in a few seconds"
    )
    assert (await ask(endpoint, "b", conversation=conversation))["status"] == "completed"


async def test_a_cancelled_response_unlocks_its_conversation(store: Store) -> None:
    model = GatedModel()
    endpoint = endpoint_over(store, model)
    conversation = str((await endpoint.create_conversation())["id"])
    async with started_response(endpoint, {"conversation": conversation}):
        pass
    model.gate.set()
    assert (await ask(endpoint, "b", conversation=conversation))["status"] == "completed"


async def test_a_failed_response_unlocks_its_conversation(embedded: EmbeddedEndpoint, scripts: LoopbackModels) -> None:
    conversation = (await embedded.create_conversation())["id"]
    scripts.replies({"error": {"message": "no", "status": 500}})
    await refusal(embedded, "a", conversation=conversation)
    scripts.replies({"text": "yes"})
    assert (await ask(embedded, "b", conversation=conversation))["status"] == "completed"


async def test_a_writer_on_another_machine_blocks_others_for_at_most_its_lease() -> None:
    clock = FixedClock()
    store = MemoryStore(now=clock.now)
    endpoint = endpoint_over(store, open_gated_model())
    conversation = str((await endpoint.create_conversation())["id"])
    await store.acquire_lease(f"writing {conversation}", "elsewhere:1:1:hold_1", 6)

    assert isinstance(await refusal(endpoint, "a", conversation=conversation), TryLater)
    clock.advance(6.1)
    assert (await ask(endpoint, "a", conversation=conversation))["status"] == "completed"


async def test_a_killed_writer_on_this_machine_blocks_nobody(store: Store) -> None:
    dead_process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await dead_process.wait()
    endpoint = endpoint_over(store, open_gated_model())
    conversation = str((await endpoint.create_conversation())["id"])
    await store.acquire_lease(f"writing {conversation}", f"{socket.gethostname()}:{dead_process.pid}:1:hold_1", 3600)

    assert (await ask(endpoint, "a", conversation=conversation))["status"] == "completed"


async def test_a_writer_that_lost_its_lease_fails_and_appends_nothing(store: Store) -> None:
    model = GatedModel()
    endpoint = endpoint_over(store, model)
    conversation = str((await endpoint.create_conversation())["id"])
    async with started_response(endpoint, {"conversation": conversation}) as answer:
        stored = await store.conversation(conversation)
        assert stored
        path = Path(root_key(store.tenant)).append([user_message("meanwhile")])
        updated = replace(stored, head=path.head, item_ids=("msg_x",))
        await store.commit(
            replace(append_path(path), conversation=updated, expected_conversation_head=stored.head),
        )
        model.gate.set()
        last = [event async for event in answer][-1]

    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "server_error")
    assert texts(await endpoint.list_conversation_items(conversation)) == ["meanwhile"]
    link = await store.link("resp_1")
    assert link
    assert link.error
    assert (link.status, link.error["code"]) == ("failed", Conflict.code)


async def test_deleting_the_previous_response_during_an_answer_loses_no_item(store: Store) -> None:
    model = open_gated_model()
    endpoint = endpoint_over(store, model)
    first = await ask(endpoint, "a")
    model.gate.clear()
    async with started_response(endpoint, {"previous_response_id": first["id"], "input": "b"}) as answer:
        await endpoint.delete(first["id"])
        model.gate.set()
        last = [event async for event in answer][-1]
    assert last["type"] == "response.completed"
    assert texts(await endpoint.list_input_items(last["response"]["id"], order="asc")) == ["a", "one two", "b"]

"""Turns of the embedded endpoint: when a response is durable, and which records remain after a failure."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest

from convo.errors import RequestRefused, StoreFull, StreamBroken, UnsupportedValue
from convo.history.items import StreamEvent, user_message
from convo.history.records import EMBEDDED_SCOPE, Link, Strategy
from convo.history.tree import Path, root_key
from convo.models.base import ModelRequest
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.stores.base import Store
from tests.clock import FixedClock, counting_ids
from tests.endpoints.endpoint_calls import MODEL, TOOL, ask, error_fields, events, refusal, texts, user_item
from tests.endpoints.gated_model import GatedModel, RecordingStore, append_path, endpoint_over, open_gated_model
from tests.loopback_server import LoopbackModels

# -- durability -----------------------------------------------------------------------------------


async def test_the_response_is_stored_before_the_last_event_is_sent(store: Store, scripts: LoopbackModels) -> None:
    endpoint = EmbeddedEndpoint(store, scripts, FixedClock(), counting_ids())
    conversation = str((await endpoint.create_conversation())["id"])
    states: list[tuple[str, bool, int]] = []
    async with aclosing(endpoint.create({"model": MODEL, "input": "a", "conversation": conversation})) as answer:
        async for event in answer:
            stored = await store.conversation(conversation)
            assert stored
            states.append((event["type"], await store.link("resp_1") is not None, len(stored.item_ids)))

    assert {(has_link, item_count) for _, has_link, item_count in states[:-1]} == {(False, 0)}
    assert states[-1] == ("response.completed", True, 2)


async def test_the_conversation_is_unlocked_when_the_last_event_is_sent(embedded: EmbeddedEndpoint) -> None:
    conversation = (await embedded.create_conversation())["id"]
    async with aclosing(embedded.create({"model": MODEL, "input": "a", "conversation": conversation})) as answer:
        async for event in answer:
            if event["type"] == "response.completed":
                assert (await ask(embedded, "b", conversation=conversation))["status"] == "completed"


async def test_a_link_records_the_input_the_sent_items_and_the_output(store: Store, embedded: EmbeddedEndpoint) -> None:
    first = await ask(embedded, [user_item("a"), user_item("b")], instructions="Be brief.", temperature=0.5)
    second = await ask(embedded, "c", previous_response_id=first["id"])

    links = [await store.link(one["id"]) for one in (first, second)]

    one, two = (link for link in links if link)
    path = await store.path(two.head)
    assert texts(path.items) == ["a", "b", "b", "c", "c"]
    assert (path.depth(one.input_head), path.depth(one.head), path.depth(two.input_head)) == (2, 3, 4)
    assert (one.sent_count, two.sent_count) == (2, 1)
    assert (one.parent_id, two.parent_id, two.previous_response_id) == (None, one.id, one.id)
    assert (one.strategy, one.session_id, one.scope, one.is_stored) == (Strategy.CHAIN, None, EMBEDDED_SCOPE, True)
    assert one.parameters == {"instructions": "Be brief.", "temperature": 0.5}
    assert two.parameters == {}
    assert one.usage == first["usage"]


async def test_items_are_stored_unchanged(store: Store, embedded: EmbeddedEndpoint) -> None:
    message = {"role": "user", "content": "a"}
    response = await ask(embedded, [message])
    link = await store.link(response["id"])
    assert link
    assert (await store.path(link.head)).items == (message, *response["output"])


async def test_a_turn_in_a_conversation_is_recorded_as_such(store: Store, embedded: EmbeddedEndpoint) -> None:
    conversation = (await embedded.create_conversation([user_item("a")]))["id"]
    response = await ask(embedded, "b", conversation=conversation)
    link = await store.link(response["id"])
    assert link
    assert (link.strategy, link.conversation_id, link.sent_count) == (Strategy.CONVERSATION, conversation, 1)
    stored = await store.conversation(conversation)
    assert stored
    assert stored.head == link.head


async def test_with_store_false_nothing_is_stored() -> None:
    store = RecordingStore()
    response = await ask(endpoint_over(store, open_gated_model()), "a", store=False)
    assert response["status"] == "completed"
    assert store.commits == []


async def test_a_refused_request_stores_nothing_and_calls_no_model(scripts: LoopbackModels) -> None:
    store = RecordingStore()
    endpoint = EmbeddedEndpoint(store, scripts, FixedClock(), counting_ids())
    for body in (
        {"tempreature": 1},
        {"previous_response_id": "resp_x"},
        {"conversation": "conv_x"},
    ):
        await refusal(endpoint, "a", **body)
    assert (store.commits, scripts.requests) == ([], [])


async def test_secrets_of_tools_are_sent_to_the_model_only(store: Store, scripts: LoopbackModels) -> None:
    endpoint = EmbeddedEndpoint(store, scripts, FixedClock(), counting_ids())
    tool = {
        "type": "mcp",
        "server_label": "s",
        "server_url": "https://me:hunter2@example.org/mcp",
        "authorization": "hunter2",
        "headers": {"X-Key": "hunter2"},
    }
    function = {**TOOL, "parameters": {"type": "object", "properties": {"authorization": {"type": "string"}}}}

    response = await ask(endpoint, "a", tools=[tool, function])

    link = await store.link(response["id"])
    assert link
    assert scripts.requests[0].parameters["tools"] == [tool, function]
    assert link.parameters["tools"] == [
        {"type": "mcp", "server_label": "s", "server_url": "https://example.org"},
        function,
    ]
    assert "hunter2" not in str(response)


# -- failures -------------------------------------------------------------------------------------


async def test_an_error_of_the_model_is_raised_unchanged(store: Store) -> None:
    class Refusing(GatedModel):
        async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
            raise UnsupportedValue("m", "images", param="input")
            yield {}

    error = await refusal(endpoint_over(store, Refusing()), "a")
    assert isinstance(error, UnsupportedValue)
    assert error_fields(error) == ("unsupported_value", 400, "input")


async def test_a_response_that_fails_in_the_middle_is_stored_with_the_text_that_arrived(store: Store) -> None:
    model = GatedModel(fails=StreamBroken("the model crashed"))
    model.gate.set()
    endpoint = endpoint_over(store, model)

    got = await events(endpoint, "a")

    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert got[-1]["type"] == "response.failed"
    assert got[-1]["response"]["error"] == {"code": "server_error", "message": "the model crashed"}
    partial = got[-1]["response"]["output"]
    assert [item["status"] for item in partial] == ["incomplete"]
    link = await store.link("resp_1")
    assert link
    assert link.status == "failed"
    assert (await store.path(link.head)).items[-1]["content"] == partial[0]["content"]
    assert link.error == {"code": "stream_broken", "message": "the model crashed"}


async def test_a_full_disk_at_the_end_is_raised_instead_of_the_last_event() -> None:
    store = RecordingStore(fails=StoreFull("no room is left"))
    got: list[str] = []

    async def read() -> None:
        async with aclosing(endpoint_over(store, open_gated_model()).create({"model": MODEL, "input": "a"})) as answer:
            async for event in answer:
                got.append(event["type"])  # noqa: PERF401 - the events before the error are checked

    with pytest.raises(StoreFull):
        await read()
    assert got[-1] == "response.output_item.done"


# -- links of other endpoints ---------------------------------------------------------------------


async def test_links_of_other_endpoints_and_attempts_are_not_retrieved(
    store: Store, embedded: EmbeddedEndpoint
) -> None:
    path = Path(root_key(store.tenant)).append([user_message("a")])
    own_link = Link("resp_a", path.head, path.head, 1, MODEL, Strategy.CHAIN, "completed", 1.0)
    links = (
        replace(own_link, id="resp_elsewhere", scope=EMBEDDED_SCOPE._replace(url="https://api.openai.com/v1")),
        replace(own_link, id="try_a"),
        replace(own_link, id="resp_unstored", is_stored=False),
    )
    await store.commit(replace(append_path(path), links=(own_link, *links)))

    assert (await embedded.retrieve("resp_a"))["status"] == "completed"
    for link in links:
        error = await refusal(embedded, "b", previous_response_id=link.id)
        assert isinstance(error, RequestRefused)
        assert error.code == "previous_response_not_found"

"""Connections of the embedded endpoint, and references to the stored items of a tenant."""

from contextlib import aclosing
from typing import Any

import pytest

from convo.endpoints.base import ResponsesConnection
from convo.errors import ConvoError, RequestRefused, StreamBroken
from convo.history.items import StreamEvent
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.stores.base import Store
from tests.endpoints.endpoint_calls import MODEL, ask, error_fields, refusal, texts, user_item
from tests.endpoints.gated_model import GatedModel, endpoint_over, open_gated_model
from tests.loopback_server import LoopbackModels


async def connection_events(
    connection: ResponsesConnection, request_input: Any = None, **body: Any
) -> list[StreamEvent]:
    fields = {} if request_input is None else {"input": request_input}
    async with aclosing(connection.create({"model": MODEL, **fields, **body})) as answer:
        return [event async for event in answer]


async def connection_error(connection: ResponsesConnection, request_input: Any = None, **body: Any) -> ConvoError:
    with pytest.raises(ConvoError) as caught:
        await connection_events(connection, request_input, **body)
    return caught.value


@pytest.mark.parametrize("stored", [True, False])
async def test_generate_false_prepares_the_next_request_without_calling_the_model(store: Store, stored: bool) -> None:
    model = open_gated_model()
    endpoint = endpoint_over(store, model)
    connection = endpoint.connect()

    first = await connection_events(connection, "a", generate=False, store=stored)
    second = await connection_events(connection, "b", previous_response_id="resp_1", store=stored)

    assert [event["type"] for event in first] == ["response.created", "response.in_progress", "response.completed"]
    response = first[-1]["response"]
    assert (response["status"], response["output"], response["usage"]["total_tokens"]) == ("completed", [], 0)
    assert [texts(request.input) for request in model.requests] == [["a", "b"]]
    assert second[-1]["response"]["previous_response_id"] == "resp_1"
    assert (await store.link("resp_1") is not None) == stored


async def test_prewarming_a_prompt_cache_generates_nothing_either(store: Store) -> None:
    model = open_gated_model()
    prepared = await connection_events(
        endpoint_over(store, model).connect(), "a", prompt_cache_options={"prewarm": True}
    )
    assert (prepared[-1]["response"]["output"], model.requests) == ([], [])


async def test_a_stored_response_can_continue_an_unstored_one(store: Store) -> None:
    endpoint = endpoint_over(store, open_gated_model())
    connection = endpoint.connect()
    await connection_events(connection, "a", store=False)
    await connection_events(connection, "b", previous_response_id="resp_1", store=True)

    listed = await endpoint.list_input_items("resp_2", order="asc")
    assert texts(listed) == ["a", "one two", "b"]
    assert (await ask(endpoint, "c", previous_response_id="resp_2"))["status"] == "completed"


async def test_a_stored_response_can_be_continued_outside_of_its_connection_until_it_is_deleted(store: Store) -> None:
    endpoint = endpoint_over(store, open_gated_model())
    connection = endpoint.connect()
    await connection_events(connection, "a")
    assert (await ask(endpoint, "b", previous_response_id="resp_1"))["status"] == "completed"
    await endpoint.delete("resp_1")
    assert (
        await connection_error(connection, "c", previous_response_id="resp_1")
    ).code == "previous_response_not_found"


async def test_a_continuation_that_fails_during_its_answer_drops_the_previous_response_too(store: Store) -> None:
    model = open_gated_model()
    endpoint = endpoint_over(store, model)
    connection = endpoint.connect()
    await connection_events(connection, "a", store=False)
    failing = GatedModel(fails=StreamBroken("the connection broke"))
    failing.gate.set()
    model.respond = failing.respond  # type: ignore[method-assign]

    failed = await connection_events(connection, "b", previous_response_id="resp_1", store=False)

    assert failed[-1]["type"] == "response.failed"
    assert (
        await connection_error(connection, "b", previous_response_id="resp_1")
    ).code == "previous_response_not_found"


async def test_an_unrelated_failed_request_keeps_the_previous_response(store: Store) -> None:
    connection = endpoint_over(store, open_gated_model()).connect()
    await connection_events(connection, "a", store=False)
    await connection_error(connection, "b", temperature=99)
    assert (await connection_events(connection, "b", previous_response_id="resp_1"))[-1]["type"] == "response.completed"


async def test_generate_is_an_unknown_parameter_outside_of_a_connection(store: Store) -> None:
    error = await refusal(endpoint_over(store, open_gated_model()), "a", generate=False)
    assert error_fields(error) == ("unknown_parameter", 400, "generate")


# -- references -----------------------------------------------------------------------------------


def item_reference(item_id: str) -> dict[str, Any]:
    return {"type": "item_reference", "id": item_id}


async def test_an_item_reference_may_name_an_item_of_any_origin(
    embedded: EmbeddedEndpoint, scripts: LoopbackModels
) -> None:
    """By its own id, by the id generated for a list of input items, and by its id in a conversation."""
    first = await ask(embedded, "a")
    (input_item,) = (await embedded.list_input_items(first["id"])).items
    conversation = str((await embedded.create_conversation([user_item("b")]))["id"])
    (conversation_item,) = (await embedded.list_conversation_items(conversation)).items
    output_id = first["output"][0]["id"]

    await ask(
        embedded,
        [
            item_reference(input_item["id"]),
            item_reference(output_id),
            item_reference(conversation_item["id"]),
            user_item("c"),
        ],
    )

    assert texts(scripts.requests[-1].input) == ["a", "a", "b", "c"]


async def test_a_reference_to_an_item_of_another_tenant_is_not_found(
    store: Store, embedded: EmbeddedEndpoint, scripts: LoopbackModels
) -> None:
    foreign = EmbeddedEndpoint(store.for_tenant("other"), scripts, SystemClock(), random_id)
    foreign_id = (await ask(foreign, "a"))["output"][0]["id"]
    error = await refusal(embedded, [item_reference(foreign_id)])
    assert error_fields(error) == ("invalid_request_error", 404, "input")
    assert f"Item with id '{foreign_id}' not found" in error.message


async def test_an_item_that_is_already_in_the_history_is_not_appended_again(
    embedded: EmbeddedEndpoint, scripts: LoopbackModels
) -> None:
    first = await ask(embedded, "a")
    output_id = first["output"][0]["id"]
    await ask(embedded, [item_reference(output_id), user_item("b")], previous_response_id=first["id"])
    assert texts(scripts.requests[-1].input) == ["a", "a", "b"]


async def test_repeated_references_add_one_item(embedded: EmbeddedEndpoint, scripts: LoopbackModels) -> None:
    output_id = (await ask(embedded, "a"))["output"][0]["id"]
    await ask(embedded, [item_reference(output_id), item_reference(output_id), user_item("b")])
    assert texts(scripts.requests[-1].input) == ["a", "b"]


async def test_items_can_be_added_to_a_conversation_by_reference(embedded: EmbeddedEndpoint) -> None:
    output_id = (await ask(embedded, "a"))["output"][0]["id"]
    conversation = str((await embedded.create_conversation([item_reference(output_id), user_item("b")]))["id"])
    assert texts(await embedded.list_conversation_items(conversation, order="asc")) == ["a", "b"]
    with pytest.raises(RequestRefused) as caught:
        await embedded.add_conversation_items(conversation, [item_reference("msg_nope")])
    assert error_fields(caught.value) == ("invalid_request_error", 404, "input")

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


async def over_it(connection: ResponsesConnection, said: Any = None, **body: Any) -> list[StreamEvent]:
    given = {} if said is None else {"input": said}
    async with aclosing(connection.create({"model": MODEL, **given, **body})) as answer:
        return [event async for event in answer]


async def refused(connection: ResponsesConnection, said: Any = None, **body: Any) -> ConvoError:
    with pytest.raises(ConvoError) as caught:
        await over_it(connection, said, **body)
    return caught.value


@pytest.mark.parametrize("stored", [True, False])
async def test_generate_false_prepares_the_next_request_without_calling_the_model(store: Store, stored: bool) -> None:
    model = open_gated_model()
    endpoint = endpoint_over(store, model)
    connection = endpoint.connect()

    prepared = await over_it(connection, "a", generate=False, store=stored)
    answered = await over_it(connection, "b", previous_response_id="resp_1", store=stored)

    assert [event["type"] for event in prepared] == ["response.created", "response.in_progress", "response.completed"]
    response = prepared[-1]["response"]
    assert (response["status"], response["output"], response["usage"]["total_tokens"]) == ("completed", [], 0)
    assert [texts(asked.input) for asked in model.requests] == [["a", "b"]]
    assert answered[-1]["response"]["previous_response_id"] == "resp_1"
    assert (await store.link("resp_1") is not None) == stored


async def test_prewarming_a_prompt_cache_generates_nothing_either(store: Store) -> None:
    model = open_gated_model()
    prepared = await over_it(endpoint_over(store, model).connect(), "a", prompt_cache_options={"prewarm": True})
    assert (prepared[-1]["response"]["output"], model.requests) == ([], [])


async def test_a_stored_response_can_continue_an_unstored_one(store: Store) -> None:
    endpoint = endpoint_over(store, open_gated_model())
    connection = endpoint.connect()
    await over_it(connection, "a", store=False)
    await over_it(connection, "b", previous_response_id="resp_1", store=True)

    listed = await endpoint.list_input_items("resp_2", order="asc")
    assert texts(listed) == ["a", "one two", "b"]
    assert (await ask(endpoint, "c", previous_response_id="resp_2"))["status"] == "completed"


async def test_a_stored_response_can_be_continued_outside_of_its_connection_until_it_is_deleted(store: Store) -> None:
    endpoint = endpoint_over(store, open_gated_model())
    connection = endpoint.connect()
    await over_it(connection, "a")
    assert (await ask(endpoint, "b", previous_response_id="resp_1"))["status"] == "completed"
    await endpoint.delete("resp_1")
    assert (await refused(connection, "c", previous_response_id="resp_1")).code == "previous_response_not_found"


async def test_a_continuation_that_fails_during_its_answer_drops_the_previous_response_too(store: Store) -> None:
    model = open_gated_model()
    endpoint = endpoint_over(store, model)
    connection = endpoint.connect()
    await over_it(connection, "a", store=False)
    failing = GatedModel(fails=StreamBroken("the connection broke"))
    failing.gate.set()
    model.respond = failing.respond  # type: ignore[method-assign]

    failed = await over_it(connection, "b", previous_response_id="resp_1", store=False)

    assert failed[-1]["type"] == "response.failed"
    assert (await refused(connection, "b", previous_response_id="resp_1")).code == "previous_response_not_found"


async def test_an_unrelated_failed_request_keeps_the_previous_response(store: Store) -> None:
    connection = endpoint_over(store, open_gated_model()).connect()
    await over_it(connection, "a", store=False)
    await refused(connection, "b", temperature=99)
    assert (await over_it(connection, "b", previous_response_id="resp_1"))[-1]["type"] == "response.completed"


NOT_OVER_A_CONNECTION: list[tuple[dict[str, Any], str]] = [
    ({"background": True}, "background"),
    ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
    ({"stream": False}, "stream"),
]


@pytest.mark.parametrize(("body", "param"), NOT_OVER_A_CONNECTION, ids=[param for _, param in NOT_OVER_A_CONNECTION])
async def test_a_parameter_of_http_is_refused_over_a_connection(store: Store, body: dict[str, Any], param: str) -> None:
    wrong = await refused(endpoint_over(store, open_gated_model()).connect(), "a", **body)
    assert error_fields(wrong) == ("unsupported_parameter", 400, param)


async def test_stream_true_is_accepted_over_a_connection(store: Store) -> None:
    assert (await over_it(endpoint_over(store, open_gated_model()).connect(), "a", stream=True))[-1][
        "type"
    ] == "response.completed"


async def test_generate_is_an_unknown_parameter_outside_of_a_connection(store: Store) -> None:
    wrong = await refusal(endpoint_over(store, open_gated_model()), "a", generate=False)
    assert error_fields(wrong) == ("unknown_parameter", 400, "generate")


# -- references -----------------------------------------------------------------------------------


def at(item_id: str) -> dict[str, Any]:
    return {"type": "item_reference", "id": item_id}


async def test_an_item_reference_may_name_an_item_of_any_origin(
    embedded: EmbeddedEndpoint, scripts: LoopbackModels
) -> None:
    """By its own id, by the id generated for a list of input items, and by its id in a conversation."""
    first = await ask(embedded, "a")
    (placed,) = (await embedded.list_input_items(first["id"])).items
    conversation = str((await embedded.create_conversation([user_item("b")]))["id"])
    (given,) = (await embedded.list_conversation_items(conversation)).items
    own = first["output"][0]["id"]

    await ask(embedded, [at(placed["id"]), at(own), at(given["id"]), user_item("c")])

    assert texts(scripts.requests[-1].input) == ["a", "a", "b", "c"]


async def test_a_reference_to_an_item_of_another_tenant_is_not_found(
    store: Store, embedded: EmbeddedEndpoint, scripts: LoopbackModels
) -> None:
    foreign = EmbeddedEndpoint(store.for_tenant("other"), scripts, SystemClock(), random_id)
    theirs = (await ask(foreign, "a"))["output"][0]["id"]
    wrong = await refusal(embedded, [at(theirs)])
    assert error_fields(wrong) == ("invalid_request_error", 404, "input")
    assert f"Item with id '{theirs}' not found" in wrong.message


async def test_an_item_that_is_already_in_the_history_is_not_appended_again(
    embedded: EmbeddedEndpoint, scripts: LoopbackModels
) -> None:
    first = await ask(embedded, "a")
    own = first["output"][0]["id"]
    await ask(embedded, [at(own), user_item("b")], previous_response_id=first["id"])
    assert texts(scripts.requests[-1].input) == ["a", "a", "b"]


async def test_repeated_references_add_one_item(embedded: EmbeddedEndpoint, scripts: LoopbackModels) -> None:
    own = (await ask(embedded, "a"))["output"][0]["id"]
    await ask(embedded, [at(own), at(own), user_item("b")])
    assert texts(scripts.requests[-1].input) == ["a", "b"]


async def test_items_can_be_added_to_a_conversation_by_reference(embedded: EmbeddedEndpoint) -> None:
    own = (await ask(embedded, "a"))["output"][0]["id"]
    conversation = str((await embedded.create_conversation([at(own), user_item("b")]))["id"])
    assert texts(await embedded.list_conversation_items(conversation, order="asc")) == ["a", "b"]
    with pytest.raises(RequestRefused) as wrong:
        await embedded.add_conversation_items(conversation, [at("msg_nope")])
    assert error_fields(wrong.value) == ("invalid_request_error", 404, "input")

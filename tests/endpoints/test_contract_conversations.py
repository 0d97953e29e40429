"""The endpoint contract, embedded and remote over HTTP: conversations."""

from typing import Any

import pytest

from convo.endpoints.base import Endpoint
from convo.errors import ConvoError, NotFound, RequestRefused
from tests.endpoints.endpoint_calls import TOOL, ask, error_fields, output_for, refusal, texts, user_item
from tests.loopback_server import LoopbackModels


async def create_conversation(endpoint: Endpoint, *messages: str) -> str:
    """Create a conversation with a user message for each of `messages` and return its id."""
    created = await endpoint.create_conversation([user_item(message) for message in messages])
    return str(created["id"])


async def conversation_texts(endpoint: Endpoint, conversation_id: str) -> list[str]:
    return texts(await endpoint.list_conversation_items(conversation_id, order="asc", limit=100))


async def test_a_conversation_is_created_retrieved_updated_and_deleted(endpoint: Endpoint) -> None:
    created = await endpoint.create_conversation(metadata={"topic": "a"})

    assert created["id"].startswith("conv_")
    assert (created["object"], created["metadata"]) == ("conversation", {"topic": "a"})
    assert await endpoint.retrieve_conversation(created["id"]) == created
    renamed = await endpoint.update_conversation(created["id"], {"topic": "b"})
    assert renamed == {**created, "metadata": {"topic": "b"}}
    assert await endpoint.retrieve_conversation(created["id"]) == renamed
    await endpoint.delete_conversation(created["id"])
    with pytest.raises(NotFound):
        await endpoint.retrieve_conversation(created["id"])


async def test_a_conversation_stores_the_input_and_output_of_its_responses(
    endpoint: Endpoint, script: LoopbackModels
) -> None:
    script.replies({"text": "Hello Ann."}, {"text": "Ann."})
    conversation = await create_conversation(endpoint)

    first = await ask(endpoint, "I am Ann", conversation=conversation)
    second = await ask(endpoint, "who am I?", conversation={"id": conversation})

    assert texts(script.requests[1].input) == ["I am Ann", "Hello Ann.", "who am I?"]
    assert await conversation_texts(endpoint, conversation) == ["I am Ann", "Hello Ann.", "who am I?", "Ann."]
    assert [one["conversation"] for one in (first, second)] == [{"id": conversation}] * 2
    assert second["previous_response_id"] is None
    assert await endpoint.retrieve(second["id"]) == second


async def test_items_of_a_conversation_are_listed_in_full_form_and_keep_their_ids(endpoint: Endpoint) -> None:
    created = await endpoint.create_conversation([user_item("a", id="msg_mine"), {"role": "assistant", "content": "b"}])
    response = await ask(endpoint, "c", conversation=created["id"])

    listed = (await endpoint.list_conversation_items(created["id"], order="asc")).items

    assert listed[0] == {
        "id": "msg_mine",
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "a"}],
        "status": "completed",
    }
    assert listed[1]["content"] == [{"type": "output_text", "text": "b"}]
    assert listed[3] == response["output"][0]
    assert all(item["id"].startswith("msg_") for item in listed)
    assert [await endpoint.retrieve_conversation_item(created["id"], item["id"]) for item in listed] == listed


async def test_input_items_of_a_response_equal_the_items_of_its_conversation(endpoint: Endpoint) -> None:
    conversation = await create_conversation(endpoint, "a")
    response = await ask(endpoint, "b", conversation=conversation)

    conversation_items = (await endpoint.list_conversation_items(conversation, order="asc")).items
    input_items = (await endpoint.list_input_items(response["id"], order="asc")).items

    assert input_items == conversation_items[:2]


async def test_added_items_are_returned_with_their_ids_and_come_last(
    endpoint: Endpoint, script: LoopbackModels
) -> None:
    conversation = await create_conversation(endpoint, "a")

    added = await endpoint.add_conversation_items(conversation, [user_item("b"), user_item("c", id="msg_c")])

    assert texts(added) == ["b", "c"]
    assert added.items[1]["id"] == "msg_c"
    assert (await endpoint.list_conversation_items(conversation, order="asc")).items[1:] == added.items
    await ask(endpoint, "d", conversation=conversation)
    assert texts(script.requests[0].input) == ["a", "b", "c", "d"]


async def test_equal_items_stay_separate(endpoint: Endpoint) -> None:
    conversation = await create_conversation(endpoint, "a", "a")
    twin = {"id": "msg_twin", **user_item("b")}
    await endpoint.add_conversation_items(conversation, [twin, twin])

    listed = (await endpoint.list_conversation_items(conversation, order="asc")).items

    assert texts(listed) == ["a", "a", "b", "b"]
    assert len({item["id"] for item in listed}) == 4
    assert listed[2]["id"] == "msg_twin"


@pytest.mark.parametrize("deleted", [0, 1, 2, 3])
async def test_a_deleted_item_is_removed_and_the_others_keep_their_ids(
    endpoint: Endpoint, script: LoopbackModels, deleted: int
) -> None:
    messages = ["a", "a", "b", "c"]
    conversation = await create_conversation(endpoint, *messages)
    before = (await endpoint.list_conversation_items(conversation, order="asc")).items

    answer = await endpoint.delete_conversation_item(conversation, before[deleted]["id"])

    remaining = [item for index, item in enumerate(before) if index != deleted]
    assert answer == await endpoint.retrieve_conversation(conversation)
    assert (await endpoint.list_conversation_items(conversation, order="asc")).items == remaining
    with pytest.raises(NotFound) as caught:
        await endpoint.retrieve_conversation_item(conversation, before[deleted]["id"])
    assert (caught.value.kind, caught.value.handle) == ("item", before[deleted]["id"])
    await ask(endpoint, "d", conversation=conversation)
    assert texts(script.requests[0].input) == [*texts(remaining), "d"]


async def test_a_chain_that_needs_a_deleted_item_is_refused_with_its_own_code(endpoint: Endpoint) -> None:
    conversation = await create_conversation(endpoint, "my secret")
    response = await ask(endpoint, "b", conversation=conversation)
    (oldest, *_) = (await endpoint.list_conversation_items(conversation, order="asc")).items

    await endpoint.delete_conversation_item(conversation, oldest["id"])

    error = await refusal(endpoint, "c", previous_response_id=response["id"])
    assert (error.code, error.status) == ("item_deleted", 400)
    assert "my secret" not in str(error)


async def test_a_response_is_retrieved_after_an_earlier_item_was_deleted(endpoint: Endpoint) -> None:
    """To retrieve a response, the endpoint reads only the output of that response."""
    conversation = await create_conversation(endpoint, "my secret")
    response = await ask(endpoint, "b", conversation=conversation)
    (oldest, *_) = (await endpoint.list_conversation_items(conversation, order="asc")).items

    await endpoint.delete_conversation_item(conversation, oldest["id"])

    assert await endpoint.retrieve(response["id"]) == response


async def test_a_response_whose_output_was_deleted_is_refused_with_its_own_code(endpoint: Endpoint) -> None:
    conversation = await create_conversation(endpoint)
    response = await ask(endpoint, "b", conversation=conversation)
    await endpoint.delete_conversation_item(conversation, response["output"][0]["id"])

    with pytest.raises(ConvoError) as caught:
        await endpoint.retrieve(response["id"])
    assert caught.value.code == "item_deleted"


async def test_a_second_deleted_item_is_removed_from_its_response_too(endpoint: Endpoint) -> None:
    conversation = (await endpoint.create_conversation([user_item("first")]))["id"]
    response = await ask(endpoint, "second", conversation=conversation)
    first, *_, answer = (await endpoint.list_conversation_items(conversation, order="asc")).items
    await endpoint.delete_conversation_item(conversation, first["id"])
    await endpoint.delete_conversation_item(conversation, answer["id"])

    with pytest.raises(ConvoError) as caught:
        await endpoint.retrieve(response["id"])
    assert caught.value.code == "item_deleted"


async def test_a_response_of_a_deleted_conversation_keeps_its_history(endpoint: Endpoint) -> None:
    conversation = await create_conversation(endpoint, "a")
    response = await ask(endpoint, "b", conversation=conversation)

    await endpoint.delete_conversation(conversation)

    assert texts(await endpoint.list_input_items(response["id"], order="asc")) == ["a", "b"]
    continuation = await ask(endpoint, "c", previous_response_id=response["id"])
    assert texts(await endpoint.list_input_items(continuation["id"], order="asc")) == ["a", "b", "b", "c"]


async def test_a_call_in_a_conversation_needs_its_output(endpoint: Endpoint, script: LoopbackModels) -> None:
    script.replies({"call": {"name": "weather", "call_id": "call_1"}}, {"text": "Cold."})
    conversation = await create_conversation(endpoint)
    response = await ask(endpoint, "weather?", conversation=conversation, tools=[TOOL])

    error = await refusal(endpoint, "never mind", conversation=conversation)
    answer = await ask(endpoint, [output_for(response["output"][0], "-3")], conversation=conversation)

    assert error.message == "No tool output found for function call call_1"
    assert texts(answer["output"]) == ["Cold."]


async def test_a_failed_response_leaves_the_conversation_unchanged(endpoint: Endpoint, script: LoopbackModels) -> None:
    script.replies({"text": "Half an", "error": {"code": "overloaded", "message": "Busy", "status": 503}})
    conversation = await create_conversation(endpoint, "a")

    failed = await ask(endpoint, "b", conversation=conversation)

    assert failed["status"] == "failed"
    assert await conversation_texts(endpoint, conversation) == ["a"]
    script.replies({"text": "ok"})
    await ask(endpoint, "b again", conversation=conversation)
    assert await conversation_texts(endpoint, conversation) == ["a", "b again", "ok"]


# -- refusals -------------------------------------------------------------------------------------


async def test_a_conversation_and_a_previous_response_exclude_each_other(endpoint: Endpoint) -> None:
    error = await refusal(endpoint, "a", previous_response_id="resp_x", conversation="conv_x")
    assert error_fields(error) == ("mutually_exclusive_parameters", 400, None)
    assert "'previous_response_id' or 'conversation'" in error.message


async def test_a_response_in_an_unknown_conversation_is_not_found(endpoint: Endpoint) -> None:
    error = await refusal(endpoint, "a", conversation="conv_nope")
    assert isinstance(error, NotFound)
    assert (error.kind, error.handle, error.status) == ("conversation", "conv_nope", 404)


async def test_an_unknown_conversation_is_not_found(endpoint: Endpoint) -> None:
    for request in (
        endpoint.retrieve_conversation("conv_nope"),
        endpoint.delete_conversation("conv_nope"),
        endpoint.update_conversation("conv_nope", {}),
        endpoint.list_conversation_items("conv_nope"),
        endpoint.retrieve_conversation_item("conv_nope", "msg_x"),
        endpoint.delete_conversation_item("conv_nope", "msg_x"),
        endpoint.add_conversation_items("conv_nope", [user_item("a")]),
    ):
        with pytest.raises(NotFound) as caught:
            await request
        assert (caught.value.kind, caught.value.handle) == ("conversation", "conv_nope")


async def test_the_conversation_of_another_tenant_is_not_found(endpoint: Endpoint, other_tenant: Endpoint) -> None:
    foreign_id = await create_conversation(other_tenant, "secret")

    assert isinstance(await refusal(endpoint, "a", conversation=foreign_id), NotFound)
    for request in (endpoint.retrieve_conversation(foreign_id), endpoint.list_conversation_items(foreign_id)):
        with pytest.raises(NotFound):
            await request


@pytest.mark.parametrize(("count", "too_many"), [(20, False), (21, True)])
async def test_at_most_twenty_items_are_added_at_once(endpoint: Endpoint, count: int, too_many: bool) -> None:
    items = [user_item(str(number)) for number in range(count)]
    conversation = await create_conversation(endpoint)

    for attempt in (
        lambda: endpoint.create_conversation(items),
        lambda: endpoint.add_conversation_items(conversation, items),
    ):
        if not too_many:
            await attempt()
            continue
        with pytest.raises(RequestRefused) as caught:
            await attempt()
        assert error_fields(caught.value) == ("array_above_max_length", 400, "items")
        assert "maximum length 20, but got an array with length 21" in caught.value.message
    assert len(await conversation_texts(endpoint, conversation)) == (0 if too_many else 20)


@pytest.mark.parametrize(
    ("metadata", "code", "param"),
    [
        ({str(number): "" for number in range(17)}, "object_above_max_properties", "metadata"),
        ({"long": "x" * 513}, "string_above_max_length", "metadata.long"),
        ({"number": 1}, "invalid_type", "metadata.number"),
    ],
)
async def test_metadata_has_at_most_sixteen_pairs_of_short_strings(
    endpoint: Endpoint, metadata: dict[str, Any], code: str, param: str
) -> None:
    conversation = await create_conversation(endpoint)
    for request in (
        endpoint.create_conversation(metadata=metadata),
        endpoint.update_conversation(conversation, metadata),
    ):
        with pytest.raises(RequestRefused) as caught:
            await request
        assert error_fields(caught.value) == (code, 400, param)
    assert error_fields(await refusal(endpoint, "a", metadata=metadata)) == (code, 400, param)


async def test_a_response_with_store_false_appends_its_items_and_is_not_stored(endpoint: Endpoint) -> None:
    conversation = await create_conversation(endpoint)

    response = await ask(endpoint, "a", conversation=conversation, store=False)

    assert (response["store"], response["conversation"]) == (False, {"id": conversation})
    assert len((await endpoint.list_conversation_items(conversation)).items) == 2
    with pytest.raises(NotFound):
        await endpoint.retrieve(response["id"])


MALFORMED = ("", ".", "..", "conv_1/../../admin", "conv_1\n  total  $0.00", "conv_1 x", "conv_\x1b[2J", "ü", "c" * 513)


@pytest.mark.parametrize("name", ["conversation", "previous_response_id"])
@pytest.mark.parametrize("handle", MALFORMED, ids=ascii)
async def test_a_malformed_id_in_a_request_is_refused_with_its_parameter(
    endpoint: Endpoint, name: str, handle: str
) -> None:
    error = await refusal(endpoint, "a", **{name: handle})
    assert error_fields(error) == ("invalid_value", 400, name)
    assert error.message.isprintable()
    assert len(error.message) < 300


@pytest.mark.parametrize("handle", MALFORMED[1:], ids=ascii)
async def test_a_malformed_id_is_not_found(endpoint: Endpoint, handle: str) -> None:
    for method in (endpoint.retrieve, endpoint.retrieve_conversation, endpoint.delete_conversation):
        with pytest.raises(NotFound) as caught:
            await method(handle)
        assert caught.value.message.isprintable() or "ü" in handle
    for request in (
        endpoint.list_conversation_items(handle),
        endpoint.retrieve_conversation_item(handle, "msg_1"),
        endpoint.delete_conversation_item(handle, "msg_1"),
    ):
        with pytest.raises(NotFound):
            await request


async def test_pages_of_a_conversation_start_after_an_item(endpoint: Endpoint) -> None:
    conversation = await create_conversation(endpoint, *"abcde")

    newest = await endpoint.list_conversation_items(conversation, limit=2)
    rest = await endpoint.list_conversation_items(conversation, after=newest.items[-1]["id"], limit=3)

    assert (texts(newest), newest.has_more) == (["e", "d"], True)
    assert (texts(rest), rest.has_more) == (["c", "b", "a"], False)

"""The endpoint contract, embedded and remote over HTTP: responses."""

from typing import Any

import pytest

from convo.endpoints.base import Endpoint
from convo.errors import ConvoError, NotFound, RequestRefused
from tests.endpoints.endpoint_calls import (
    MODEL,
    TOOL,
    EndpointPair,
    ask,
    error_fields,
    events,
    output_for,
    refusal,
    texts,
    user_item,
)
from tests.loopback_server import LoopbackModels


async def test_a_response_is_streamed_as_numbered_events_that_end_with_the_complete_response(
    endpoint: Endpoint, script: LoopbackModels
) -> None:
    script.replies({"text": "Hello there, how are you?"})

    got = await events(endpoint, "hi")

    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert [event["type"] for event in got if event["type"] != "response.output_text.delta"] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(event["delta"] for event in got if event["type"].endswith("delta")) == "Hello there, how are you?"
    last = got[-1]["response"]
    assert last["output"] == [event["item"] for event in got if event["type"] == "response.output_item.done"]
    assert (last["status"], last["error"], last["model"]) == ("completed", None, MODEL)


async def test_the_retrieved_response_equals_the_streamed_one(endpoint: Endpoint, script: LoopbackModels) -> None:
    script.replies({"call": {"name": "weather", "arguments": {"city": "Oslo"}}})
    parameters = {"tools": [TOOL], "temperature": 0.3, "metadata": {"a": "b"}, "instructions": "Be brief.", "user": "u"}

    streamed = await ask(endpoint, "hi", **parameters)

    assert await endpoint.retrieve(streamed["id"]) == streamed
    assert (streamed["temperature"], streamed["metadata"], streamed["user"]) == (0.3, {"a": "b"}, "u")


async def test_a_chain_keeps_the_history_and_not_the_instructions(endpoint: Endpoint, script: LoopbackModels) -> None:
    script.replies({"text": "Hello Ann."}, {"text": "Ann."})
    first = await ask(endpoint, "I am Ann", instructions="Speak like a pirate.")

    second = await ask(endpoint, "who am I?", previous_response_id=first["id"])

    assert texts(script.requests[1].input) == ["I am Ann", "Hello Ann.", "who am I?"]
    assert [request.instructions for request in script.requests] == ["Speak like a pirate.", None]
    assert (second["previous_response_id"], second["instructions"]) == (first["id"], None)


async def test_any_older_response_can_be_continued(endpoint: Endpoint, script: LoopbackModels) -> None:
    script.replies({"text": "one"}, {"text": "two"}, {"text": "three"})
    first = await ask(endpoint, "a")
    second = await ask(endpoint, "b", previous_response_id=first["id"])
    await ask(endpoint, "c", previous_response_id=second["id"])

    fork = await ask(endpoint, "B", previous_response_id=first["id"])

    assert texts(await endpoint.list_input_items(fork["id"], order="asc")) == ["a", "one", "B"]
    assert texts(await endpoint.list_input_items(second["id"], order="asc")) == ["a", "one", "b"]


@pytest.mark.parametrize("request_input", [None, [], ""])
async def test_a_chain_can_be_continued_with_empty_input(endpoint: Endpoint, request_input: Any) -> None:
    first = await ask(endpoint, "a")
    second = await ask(endpoint, request_input, previous_response_id=first["id"])
    assert texts(await endpoint.list_input_items(second["id"], order="asc")) == ["a", "a"]


SHORT_FORMS: list[Any] = [
    "hello",
    [{"role": "user", "content": "hello"}],
    [{"type": "message", "role": "user", "content": "hello"}],
    [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
]


@pytest.mark.parametrize("request_input", SHORT_FORMS)
async def test_input_text_may_have_every_short_form(
    endpoint: Endpoint, script: LoopbackModels, request_input: Any
) -> None:
    response = await ask(endpoint, request_input)

    (listed,) = (await endpoint.list_input_items(response["id"])).items
    assert listed["content"] == [{"type": "input_text", "text": "hello"}]
    assert (listed["type"], listed["role"], listed["status"]) == ("message", "user", "completed")
    assert texts(script.requests[0].input) == ["hello"]


async def test_an_assistant_message_may_be_sent_without_type_and_id(endpoint: Endpoint, script: LoopbackModels) -> None:
    first = await ask(endpoint, "tell me a joke", store=False)
    history = [
        user_item("tell me a joke"),
        *({"role": one["role"], "content": one["content"]} for one in first["output"]),
    ]

    await ask(endpoint, [*history, user_item("another")], store=False)

    assert texts(script.requests[1].input) == ["tell me a joke", "tell me a joke", "another"]


async def test_unknown_item_types_and_fields_are_stored_unchanged(endpoint: Endpoint, script: LoopbackModels) -> None:
    strange = {"type": "tea_ceremony", "id": "tea_1", "cups": 9007199254740993, "lid": None, "leaf": {"ä": [1.0]}}

    response = await ask(endpoint, [user_item("a", colour="red"), strange])

    listed = (await endpoint.list_input_items(response["id"], order="asc")).items
    assert listed[1] == strange
    assert listed[0]["colour"] == "red"
    assert script.requests[0].input[1] == strange


# -- tools ----------------------------------------------------------------------------------------


async def test_a_call_gets_its_output_on_the_chain(endpoint: Endpoint, script: LoopbackModels) -> None:
    script.replies({"call": {"name": "weather", "arguments": {"city": "Oslo"}}}, {"text": "Cold."})
    first = await ask(endpoint, "weather?", tools=[TOOL])
    (call,) = first["output"]

    answer = await ask(endpoint, [output_for(call, {"c": -3})], previous_response_id=first["id"])

    assert texts(answer["output"]) == ["Cold."]
    assert script.requests[1].input[1] == call


async def test_a_call_without_its_output_is_refused_before_the_model_is_called(
    endpoint: Endpoint, script: LoopbackModels
) -> None:
    script.replies({"call": {"name": "weather", "call_id": "call_7"}})
    first = await ask(endpoint, "weather?", tools=[TOOL])

    error = await refusal(endpoint, "never mind", previous_response_id=first["id"])

    assert error.message == "No tool output found for function call call_7"
    assert error_fields(error) == ("invalid_request_error", 400, "input")
    assert len(script.requests) == 1


async def test_an_output_without_its_call_is_refused_before_the_model_is_called(
    endpoint: Endpoint, script: LoopbackModels
) -> None:
    error = await refusal(endpoint, [user_item("hi"), output_for({"call_id": "call_9"}, 1)])
    assert error.message == "No tool call found for function call output with call_id call_9"
    assert error_fields(error) == ("invalid_request_error", 400, "input")
    assert script.requests == []


# -- stored responses -----------------------------------------------------------------------------


async def test_with_store_false_nothing_can_be_retrieved(endpoint: Endpoint) -> None:
    response = await ask(endpoint, "a", store=False)

    assert (response["store"], response["status"]) == (False, "completed")
    with pytest.raises(NotFound):
        await endpoint.retrieve(response["id"])
    error = await refusal(endpoint, "b", previous_response_id=response["id"])
    assert error_fields(error) == ("previous_response_not_found", 400, "previous_response_id")


async def test_an_unknown_previous_response_is_refused_with_the_message_of_the_api(endpoint: Endpoint) -> None:
    error = await refusal(endpoint, "b", previous_response_id="resp_nope")
    assert isinstance(error, RequestRefused)
    assert error.message == "Previous response with id 'resp_nope' not found"
    assert error_fields(error) == ("previous_response_not_found", 400, "previous_response_id")


async def test_the_response_of_another_tenant_is_not_found(endpoint: Endpoint, other_tenant: Endpoint) -> None:
    foreign_id = (await ask(other_tenant, "secret"))["id"]

    error = await refusal(endpoint, "b", previous_response_id=foreign_id)
    assert error_fields(error) == ("previous_response_not_found", 400, "previous_response_id")
    for method in (endpoint.retrieve, endpoint.delete, endpoint.list_input_items):
        with pytest.raises(NotFound):
            await method(foreign_id)
    assert (await other_tenant.retrieve(foreign_id))["id"] == foreign_id


async def test_a_child_of_a_deleted_response_can_be_continued(endpoint: Endpoint, script: LoopbackModels) -> None:
    script.replies({"text": "one"}, {"text": "two"}, {"text": "three"})
    first = await ask(endpoint, "a")
    second = await ask(endpoint, "b", previous_response_id=first["id"])

    await endpoint.delete(first["id"])

    with pytest.raises(NotFound):
        await endpoint.retrieve(first["id"])
    error = await refusal(endpoint, "c", previous_response_id=first["id"])
    assert error.code == "previous_response_not_found"
    third = await ask(endpoint, "c", previous_response_id=second["id"])
    assert texts(await endpoint.list_input_items(third["id"], order="asc")) == ["a", "one", "b", "two", "c"]


@pytest.mark.parametrize("handle", ["resp_nope", "conv_nope", "try_nope", "nope/../x"])
async def test_an_unknown_response_is_not_found(endpoint: Endpoint, handle: str) -> None:
    for method in (endpoint.retrieve, endpoint.delete, endpoint.list_input_items):
        with pytest.raises(NotFound) as caught:
            await method(handle)
        assert (caught.value.kind, caught.value.handle) == ("response", handle)


# -- input items ----------------------------------------------------------------------------------


async def test_input_items_are_listed_newest_first_in_pages(endpoint: Endpoint) -> None:
    response = await ask(endpoint, [user_item(str(number)) for number in range(5)])

    newest = await endpoint.list_input_items(response["id"], limit=2)
    rest = await endpoint.list_input_items(response["id"], after=newest.items[-1]["id"], limit=100)
    upward = await endpoint.list_input_items(response["id"], after=newest.items[-1]["id"], order="asc")

    assert (texts(newest), newest.has_more) == (["4", "3"], True)
    assert (texts(rest), rest.has_more) == (["2", "1", "0"], False)
    assert (texts(upward), upward.has_more) == (["4"], False)


async def test_items_without_an_id_have_the_same_generated_id_in_every_list(endpoint: Endpoint) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    request_input = [
        user_item("a", id="msg_mine"),
        call,
        output_for(call, 1),
        {"type": "reasoning", "summary": []},
        user_item("b"),
    ]
    first = await ask(endpoint, request_input)
    second = await ask(endpoint, "c", previous_response_id=first["id"])

    first_ids = [item["id"] for item in (await endpoint.list_input_items(first["id"], order="asc")).items]
    second_ids = [item["id"] for item in (await endpoint.list_input_items(second["id"], order="asc")).items]

    assert second_ids[:5] == first_ids
    assert [item_id.split("_")[0] for item_id in first_ids] == ["msg", "fc", "fc", "rs", "msg"]
    assert first_ids[0] == "msg_mine"
    assert second_ids[5] == first["output"][0]["id"]
    assert len(set(second_ids)) == len(second_ids)


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ({"limit": 0}, "integer_below_min_value", "limit"),
        ({"limit": 101}, "integer_above_max_value", "limit"),
        ({"after": "msg_nope"}, "invalid_value", "after"),
        ({"order": "sideways"}, "invalid_value", "order"),
    ],
)
async def test_the_page_size_has_limits(endpoint: Endpoint, query: dict[str, Any], code: str, param: str) -> None:
    response = await ask(endpoint, "a")
    with pytest.raises(RequestRefused) as caught:
        await endpoint.list_input_items(response["id"], **query)
    assert error_fields(caught.value) == (code, 400, param)


async def test_a_reference_to_an_item_of_the_history_adds_nothing(endpoint: Endpoint, script: LoopbackModels) -> None:
    first = await ask(endpoint, "a")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}

    second = await ask(endpoint, [reference, user_item("b")], previous_response_id=first["id"])

    assert texts(await endpoint.list_input_items(second["id"], order="asc")) == ["a", "a", "b"]
    assert all(item.get("type") != "item_reference" for item in script.requests[1].input)


@pytest.mark.parametrize("item_id", ["msg_gone", ""])
async def test_a_reference_to_an_unknown_item_is_refused(endpoint: Endpoint, item_id: str) -> None:
    error = await refusal(endpoint, [{"id": item_id}, user_item("b")])
    assert error.message.startswith(
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to"
    )
    assert error_fields(error) == ("invalid_request_error", 404, "input")


async def test_an_item_that_is_already_in_the_chain_is_refused(endpoint: Endpoint) -> None:
    first = await ask(endpoint, "a")
    error = await refusal(endpoint, [*first["output"], user_item("b")], previous_response_id=first["id"])
    item_id = first["output"][0]["id"]
    assert error.message == (
        f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again"
    )


# -- final statuses -------------------------------------------------------------------------------


async def test_a_response_truncated_at_its_token_limit_is_incomplete_and_can_be_continued(
    endpoint: Endpoint, script: LoopbackModels
) -> None:
    script.replies({"text": "one two three four"}, {"text": "five"})

    truncated = await ask(endpoint, "count", max_output_tokens=2)

    assert (truncated["status"], truncated["error"], truncated["completed_at"]) == ("incomplete", None, None)
    assert truncated["incomplete_details"] == {"reason": "max_output_tokens"}
    assert await endpoint.retrieve(truncated["id"]) == truncated
    await ask(endpoint, "go on", previous_response_id=truncated["id"])
    assert texts(script.requests[1].input) == ["count", "one two", "go on"]


async def test_an_error_before_the_first_event_is_raised_and_stores_nothing(
    endpoint: Endpoint, script: LoopbackModels, pair: EndpointPair
) -> None:
    busy = {"code": "overloaded", "message": "Too busy.", "status": 503, "retry_after_s": 4}
    script.replies({"error": busy})

    error = await refusal(endpoint, "a")

    assert (error.message, error.code, error.status) == ("Too busy", "overloaded", 503)
    assert getattr(error, "retry_after_s", None) == 4
    assert list(await pair.store.admin.tenant_stats()) == []

    script.replies({"text": "fine"})
    await ask(endpoint, "b")
    (stats,) = await pair.store.admin.tenant_stats()
    assert (stats.row_counts["responses"], stats.row_counts["items"]) == (1, 2)


async def test_a_response_whose_stream_breaks_is_failed_and_cannot_be_continued(
    endpoint: Endpoint, script: LoopbackModels
) -> None:
    script.replies({"text": "Half an ans", "error": {"code": "overloaded", "message": "Busy", "status": 503}})

    got = await events(endpoint, "a")

    failed = got[-1]["response"]
    assert (got[-1]["type"], failed["status"]) == ("response.failed", "failed")
    assert failed["error"] == {"code": "server_error", "message": "Busy"}
    assert await endpoint.retrieve(failed["id"]) == failed
    error = await refusal(endpoint, "b", previous_response_id=failed["id"])
    assert error.message == f"Previous response with id '{failed['id']}' is failed and cannot be continued"
    assert error_fields(error) == ("invalid_request_error", 400, "previous_response_id")


async def test_input_tokens_include_the_history(endpoint: Endpoint) -> None:
    first = await ask(endpoint, "one two")
    request = {"model": MODEL, "input": "three", "instructions": "four", "previous_response_id": first["id"]}
    assert await endpoint.count_input_tokens(request) == 6
    with pytest.raises(ConvoError) as caught:
        await endpoint.count_input_tokens({**request, "previous_response_id": "resp_nope"})
    assert caught.value.code == "previous_response_not_found"

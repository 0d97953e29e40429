"""The endpoint contract, embedded and remote: background responses, pages and connections."""

from contextlib import aclosing

import pytest

from convo.endpoints.base import Endpoint, ResponsesConnection
from convo.errors import ConvoError, NotFound, RequestRefused
from convo.history.items import StreamEvent
from tests.endpoints.endpoint_calls import MODEL, ask, error_fields, events, refusal, texts, user_item
from tests.loopback_server import LoopbackModels


async def follow(endpoint: Endpoint, response_id: str, after: int | None = None) -> list[StreamEvent]:
    async with aclosing(endpoint.follow(response_id, after=after)) as following:
        return [event async for event in following]


async def said(connection: ResponsesConnection, words: str, **body: object) -> dict[str, object]:
    """Return the final response to `words` over a connection."""
    async with aclosing(connection.create({"model": MODEL, "input": words, **body})) as answer:
        *_, last = [event async for event in answer]
    return dict(last["response"])


async def test_a_background_response_is_followed_from_any_event_to_its_end(endpoint: Endpoint) -> None:
    whole = await events(endpoint, "a", background=True)
    response = whole[-1]["response"]

    assert (response["background"], response["status"]) == (True, "completed")
    assert await follow(endpoint, response["id"]) == whole
    assert await follow(endpoint, response["id"], after=3) == whole[4:]
    assert await endpoint.cancel(response["id"]) == response


async def test_a_response_outside_the_background_cannot_be_followed_or_cancelled(endpoint: Endpoint) -> None:
    response = (await ask(endpoint, "a"))["id"]
    with pytest.raises(RequestRefused) as wrong:
        await endpoint.cancel(response)
    assert (wrong.value.message, wrong.value.status) == ("Cannot cancel a synchronous response", 400)
    with pytest.raises(RequestRefused):
        await follow(endpoint, response)


async def test_a_missing_response_cannot_be_followed_or_cancelled(endpoint: Endpoint) -> None:
    for what in (endpoint.cancel("resp_nope"), follow(endpoint, "resp_nope")):
        with pytest.raises(NotFound):
            await what


async def test_a_list_can_be_limited_by_before_and_after(endpoint: Endpoint) -> None:
    words = ["a", "b", "c", "d", "e"]
    conversation = str((await endpoint.create_conversation([user_item(one) for one in words]))["id"])
    ids = [item["id"] for item in (await endpoint.list_conversation_items(conversation, order="asc")).items]

    between = await endpoint.list_conversation_items(conversation, order="asc", after=ids[0], before=ids[3])
    first = await endpoint.list_conversation_items(conversation, order="asc", after=ids[0], before=ids[4], limit=2)
    ending = await endpoint.list_conversation_items(conversation, order="asc", before=ids[4], limit=2)
    newest = await endpoint.list_conversation_items(conversation, before=ids[2])

    assert (texts(between), between.has_more) == (["b", "c"], False)
    assert (texts(first), first.has_more) == (["b", "c"], True)
    assert (texts(ending), ending.has_more) == (["c", "d"], True)
    assert texts(newest) == ["e", "d"]


async def test_input_items_can_be_limited_by_before_and_after(endpoint: Endpoint) -> None:
    response = (await ask(endpoint, [user_item("a"), user_item("b"), user_item("c")]))["id"]
    ids = [item["id"] for item in (await endpoint.list_input_items(response)).items]
    assert texts(await endpoint.list_input_items(response, after=ids[0], before=ids[2])) == ["b"]
    with pytest.raises(ConvoError) as wrong:
        await endpoint.list_input_items(response, before="msg_nope")
    assert error_fields(wrong.value) == ("invalid_value", 400, "before")


# -- connections ----------------------------------------------------------------------------------


async def test_a_connection_continues_an_unstored_response(endpoint: Endpoint, script: LoopbackModels) -> None:
    script.replies({"text": "one"}, {"text": "two"}, {"text": "three"})
    connection = endpoint.connect()
    first = await said(connection, "a", store=False)
    second = await said(connection, "b", store=False, previous_response_id=first["id"])
    await said(connection, "c", store=False, previous_response_id=second["id"])

    assert texts(script.requests[-1].input) == ["a", "one", "b", "two", "c"]
    assert (second["previous_response_id"], second["store"]) == (first["id"], False)
    with pytest.raises(NotFound):
        await endpoint.retrieve(str(first["id"]))
    elsewhere = await refusal(endpoint, "d", previous_response_id=second["id"])
    assert elsewhere.code == "previous_response_not_found"


async def test_a_connection_keeps_its_last_response_only(endpoint: Endpoint) -> None:
    connection = endpoint.connect()
    first = await said(connection, "a", store=False)
    await said(connection, "b", store=False)
    with pytest.raises(RequestRefused) as wrong:
        await said(connection, "c", previous_response_id=first["id"])
    assert wrong.value.code == "previous_response_not_found"


async def test_a_failed_continuation_drops_the_previous_response(endpoint: Endpoint) -> None:
    connection = endpoint.connect()
    first = await said(connection, "a", store=False)
    for _ in range(2):
        with pytest.raises(RequestRefused) as wrong:
            await said(connection, "b", previous_response_id=first["id"], temperature=99)
    assert wrong.value.code == "decimal_above_max_value"
    with pytest.raises(RequestRefused) as gone:
        await said(connection, "b", previous_response_id=first["id"])
    assert gone.value.code == "previous_response_not_found"


async def test_two_connections_cannot_continue_responses_of_each_other(endpoint: Endpoint) -> None:
    mine, theirs = endpoint.connect(), endpoint.connect()
    first = await said(mine, "a", store=False)
    with pytest.raises(RequestRefused):
        await said(theirs, "b", previous_response_id=first["id"])
    assert (await said(mine, "b", previous_response_id=first["id"]))["status"] == "completed"

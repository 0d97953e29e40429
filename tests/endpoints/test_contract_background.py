"""The endpoint contract, embedded and remote: background responses, pages and connections."""

from contextlib import aclosing

import pytest

from convo.endpoints.base import Endpoint, ResponsesConnection
from convo.errors import ConvoError, NotFound, RequestRefused
from convo.history.items import StreamEvent
from tests.endpoints.endpoint_calls import MODEL, ask, error_fields, events, texts, user_item


async def follow(endpoint: Endpoint, response_id: str, after: int | None = None) -> list[StreamEvent]:
    async with aclosing(endpoint.follow(response_id, after=after)) as following:
        return [event async for event in following]


async def send(connection: ResponsesConnection, text: str, **body: object) -> dict[str, object]:
    """Return the final response to `text` over a connection."""
    async with aclosing(connection.create({"model": MODEL, "input": text, **body})) as answer:
        *_, last = [event async for event in answer]
    return dict(last["response"])


async def test_a_background_response_is_followed_from_any_event_to_its_end(endpoint: Endpoint) -> None:
    all_events = await events(endpoint, "a", background=True)
    response = all_events[-1]["response"]

    assert (response["background"], response["status"]) == (True, "completed")
    assert await follow(endpoint, response["id"]) == all_events
    assert await follow(endpoint, response["id"], after=3) == all_events[4:]
    assert await endpoint.cancel(response["id"]) == response


async def test_a_response_outside_the_background_cannot_be_followed_or_cancelled(endpoint: Endpoint) -> None:
    response = (await ask(endpoint, "a"))["id"]
    with pytest.raises(RequestRefused) as caught:
        await endpoint.cancel(response)
    assert (caught.value.message, caught.value.status) == ("Cannot cancel a synchronous response", 400)
    with pytest.raises(RequestRefused):
        await follow(endpoint, response)


async def test_a_missing_response_cannot_be_followed_or_cancelled(endpoint: Endpoint) -> None:
    for request in (endpoint.cancel("resp_nope"), follow(endpoint, "resp_nope")):
        with pytest.raises(NotFound):
            await request


async def test_a_list_can_be_limited_by_before_and_after(endpoint: Endpoint) -> None:
    messages = ["a", "b", "c", "d", "e"]
    conversation = str((await endpoint.create_conversation([user_item(message) for message in messages]))["id"])
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
    with pytest.raises(ConvoError) as caught:
        await endpoint.list_input_items(response, before="msg_nope")
    assert error_fields(caught.value) == ("invalid_value", 400, "before")


# -- connections ----------------------------------------------------------------------------------


async def test_a_connection_keeps_its_last_response_only(endpoint: Endpoint) -> None:
    connection = endpoint.connect()
    first = await send(connection, "a", store=False)
    await send(connection, "b", store=False)
    with pytest.raises(RequestRefused) as caught:
        await send(connection, "c", previous_response_id=first["id"])
    assert caught.value.code == "previous_response_not_found"


async def test_a_failed_continuation_drops_the_previous_response(endpoint: Endpoint) -> None:
    connection = endpoint.connect()
    first = await send(connection, "a", store=False)
    for _ in range(2):
        with pytest.raises(RequestRefused) as caught:
            await send(connection, "b", previous_response_id=first["id"], temperature=99)
    assert caught.value.code == "decimal_above_max_value"
    with pytest.raises(RequestRefused) as not_found:
        await send(connection, "b", previous_response_id=first["id"])
    assert not_found.value.code == "previous_response_not_found"

"""Connections over HTTP: the items of an unstored response are sent again with the next request."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import pytest

from convo.endpoints.remote import ResendingConnection
from convo.errors import RequestRefused, StreamBroken
from convo.history.items import Json, StreamEvent, user_message


class Server:
    """Answers each request with `events`; an exception among them is raised. `bodies` are the requests."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Json]] = []
        self.events: list[StreamEvent | Exception] = []

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        self.bodies.append(body)
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            yield event


def final_event(response_id: str, kind: str = "completed") -> StreamEvent:
    output = [{"type": "message", "id": f"msg_{response_id}"}]
    return {"type": f"response.{kind}", "response": {"id": response_id, "output": output}}


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def connection(server: Server) -> ResendingConnection:
    return ResendingConnection(server.create)


async def send(connection: ResendingConnection, **body: Any) -> list[StreamEvent]:
    async with aclosing(connection.create(body)) as events:
        return [event async for event in events]


@pytest.mark.parametrize("kind", ["completed", "incomplete"])
async def test_a_response_that_is_not_stored_is_sent_again_with_the_next_request(
    server: Server, connection: ResendingConnection, kind: str
) -> None:
    server.events = [{"type": "keepalive"}, final_event("r1", kind)]
    assert await send(connection, model="m", input="a", store=False) == server.events
    server.events = [final_event("r2", kind)]
    events = await send(connection, model="m", input=[user_message("b")], store=False, previous_response_id="r1")
    server.events = [final_event("r3")]
    await send(connection, model="m", input=None, store=False, previous_response_id="r2")

    assert server.bodies[0] == {"model": "m", "input": "a", "store": False}
    history = [user_message("a"), {"type": "message", "id": "msg_r1"}, user_message("b")]
    assert server.bodies[1] == {"model": "m", "input": history, "store": False}
    assert server.bodies[2]["input"] == [*history, {"type": "message", "id": "msg_r2"}]
    assert events == [
        {"type": f"response.{kind}", "response": {**final_event("r2")["response"], "previous_response_id": "r1"}}
    ]


async def test_a_response_of_another_id_is_continued_by_the_server(
    server: Server, connection: ResendingConnection
) -> None:
    server.events = [final_event("r1")]
    await send(connection, input="a", store=False)
    body = {"input": "b", "store": False, "previous_response_id": "r0"}
    server.events = [{"type": "response.failed", "response": {"id": "r2", "output": []}}]

    assert await send(connection, **body) == server.events
    assert server.bodies[1] == body
    server.events = [final_event("r3")]
    await send(connection, input="c", store=False, previous_response_id="r1")
    assert "previous_response_id" not in server.bodies[2]


@pytest.mark.parametrize(
    "last_event",
    [StreamBroken("gone"), final_event("r2", "failed"), final_event("r2")],
    ids=["an error", "a failed response", "a stored response"],
)
async def test_a_continuation_that_is_not_kept_discards_the_last_response(
    server: Server, connection: ResendingConnection, last_event: StreamEvent | StreamBroken
) -> None:
    server.events = [final_event("r1")]
    await send(connection, input="a", store=False)
    server.events = [last_event]
    if isinstance(last_event, Exception):
        with pytest.raises(StreamBroken):
            await send(connection, input="b", store=False, previous_response_id="r1")
    else:
        options = {"store": False} if last_event["type"] == "response.failed" else {}
        await send(connection, input="b", previous_response_id="r1", **options)

    server.events = [final_event("r3")]
    await send(connection, input="c", store=False, previous_response_id="r1")
    assert server.bodies[-1]["previous_response_id"] == "r1"


async def test_another_request_that_fails_keeps_the_last_response(
    server: Server, connection: ResendingConnection
) -> None:
    server.events = [final_event("r1")]
    await send(connection, input="a", store=False)
    server.events = [StreamBroken("gone")]
    with pytest.raises(StreamBroken):
        await send(connection, input="b")

    server.events = [final_event("r3")]
    await send(connection, input="c", previous_response_id="r1")
    assert "previous_response_id" not in server.bodies[-1]


async def test_a_continuation_that_is_closed_early_keeps_the_last_response(
    server: Server, connection: ResendingConnection
) -> None:
    server.events = [final_event("r1")]
    await send(connection, input="a", store=False)
    server.events = [{"type": "response.created", "response": {"id": "r2"}}, final_event("r2")]
    async with aclosing(connection.create({"input": "b", "previous_response_id": "r1", "store": False})) as events:
        await anext(events)

    await send(connection, input="c", previous_response_id="r1")
    assert "previous_response_id" not in server.bodies[-1]


async def test_state_cannot_be_prepared_over_http(server: Server, connection: ResendingConnection) -> None:
    with pytest.raises(RequestRefused, match=r"^Unsupported parameter: 'generate': .* over HTTP$") as caught:
        await send(connection, input="a", generate=False)

    assert caught.value.param == "generate"
    assert server.bodies == []
    await send(connection, input="a", generate=True)
    assert len(server.bodies) == 1

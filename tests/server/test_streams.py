"""Streams over HTTP: format, errors, disconnects, and background responses."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import pytest

from convo.endpoints.base import EndpointService, FileStorage
from convo.errors import StoreUnavailable, StreamBroken, TryLater
from convo.history.items import Json, StreamEvent
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway


def test_events_are_named_numbered_and_closed_by_done(shared_gateway: RunningGateway) -> None:
    got = shared_gateway.create_response({"model": "echo", "input": "hello there", "stream": True})
    *blocks, last, end = got.text.split("\n\n")
    events = [json.loads(block.partition("\ndata: ")[2]) for block in blocks]

    assert (last, end) == ("data: [DONE]", "")
    assert [block.partition("\n")[0] for block in blocks] == [f"event: {event['type']}" for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events][:2] == ["response.created", "response.in_progress"]
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "hello there"


def test_a_stream_disables_buffering_in_proxies(shared_gateway: RunningGateway) -> None:
    headers = shared_gateway.create_response({"model": "echo", "input": "hi", "stream": True}).headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache, no-transform", "no")


def test_without_stream_the_response_of_the_last_event_is_returned(gateway: RunningGateway) -> None:
    """The same code runs both: the last event of the stream has the same result."""
    gateway.script("one", {"text": "one two three"})
    streamed = gateway.events({"model": "one", "input": "hi", "max_output_tokens": 2})[-1]
    whole = gateway.create_response({"model": "one", "input": "hi", "max_output_tokens": 2}).json()

    assert (streamed["type"], whole["status"]) == ("response.incomplete", "incomplete")
    assert whole["incomplete_details"] == streamed["response"]["incomplete_details"]
    assert whole["usage"] == streamed["response"]["usage"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_before_the_first_event_is_a_plain_http_error(gateway: RunningGateway, stream: bool) -> None:
    gateway.script("refused", {"error": {"code": "overloaded", "message": "Busy", "status": 503}})
    got = gateway.create_response({"model": "refused", "input": "hi", "stream": stream})
    assert (got.status_code, got.headers["content-type"]) == (503, "application/json")
    assert got.json()["error"]["code"] == "overloaded"


def test_an_answer_that_breaks_off_ends_with_an_error_event(gateway: RunningGateway) -> None:
    gateway.script("broken", {"text": "Half an ans", "error": {"code": "overloaded", "message": "Busy"}})
    got = gateway.create_response({"model": "broken", "input": "hi", "stream": True})
    *_, last, done, _ = got.text.split("\n\n")
    assert (got.status_code, done) == (200, "data: [DONE]")
    assert last.startswith("event: response.failed\n")


# -- faulty services ------------------------------------------------------------------------------


class FaultyService:
    """A service that answers each request with `answer` and reports that its database cannot be reached."""

    def __init__(self, service: EndpointService, answer: Callable[[], AsyncGenerator[StreamEvent, None]]) -> None:
        self._service, self._answer = service, answer

    def endpoint_for(self, tenant: str) -> Any:
        return self

    def files_for(self, tenant: str) -> FileStorage:
        return self._service.files_for(tenant)

    def connect(self) -> Any:
        return self

    def create(self, body: Mapping[str, Json], *, is_steered: Any = None) -> AsyncGenerator[StreamEvent, None]:
        return self._answer()

    async def list_models(self) -> Sequence[Mapping[str, Json]]:
        raise StoreUnavailable("the database cannot be reached")

    async def check_ready(self) -> None:
        raise StoreUnavailable("the database cannot be reached")

    async def aclose(self, grace_s: float = 0.0) -> None:
        await self._service.aclose(grace_s)


def faulty_service(
    answer: Callable[[], AsyncGenerator[StreamEvent, None]],
) -> Callable[[EndpointService], EndpointService]:
    return lambda service: FaultyService(service, answer)


async def broken_stream() -> AsyncGenerator[StreamEvent, None]:
    yield {"type": "response.created", "response": {"id": "resp_1"}, "sequence_number": 0}
    raise StreamBroken("The upstream went away", code="stream_broken")


def test_an_error_after_the_first_event_is_one_event_in_both_forms(serve: Serve) -> None:
    """The specification nests the error, the openai package reads it flat: one object has both forms."""
    events = serve(wrap=faulty_service(broken_stream)).events({"model": "m", "input": "hi"})
    inner = {"message": "The upstream went away.", "type": "server_error", "param": None, "code": None}
    assert events[1] == {
        "type": "error",
        "sequence_number": 1,
        "code": None,
        "message": "The upstream went away.",
        "param": None,
        "error": inner,
    }


async def empty_stream() -> AsyncGenerator[StreamEvent, None]:
    no_events: tuple[StreamEvent, ...] = ()
    for event in no_events:
        yield event


@pytest.mark.parametrize("stream", [False, True])
def test_an_endpoint_without_events_is_a_bad_gateway(serve: Serve, stream: bool) -> None:
    got = serve(wrap=faulty_service(empty_stream)).create_response({"model": "m", "input": "hi", "stream": stream})
    assert (got.status_code, got.json()["error"]["message"]) == (502, "The response ended before its first event.")


async def unreachable_store() -> AsyncGenerator[StreamEvent, None]:
    raise StoreUnavailable("the database cannot be reached")
    yield {}


@pytest.mark.parametrize("stream", [False, True])
def test_an_unreachable_store_is_a_503(serve: Serve, stream: bool) -> None:
    gateway = serve(wrap=faulty_service(unreachable_store))
    got = gateway.create_response({"model": "m", "input": "hi", "stream": stream})
    assert (got.status_code, got.json()["error"]["code"]) == (503, "store_unavailable")
    assert [fault.message for fault in gateway.store_faults] == ["the database cannot be reached"]


def test_a_server_with_an_unreachable_store_is_alive_and_not_ready(serve: Serve) -> None:
    gateway = serve(wrap=faulty_service(unreachable_store))
    ready = gateway.http.get("/readyz")
    assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
    assert ready.json()["error"]["message"] == "The server is not ready. Please retry in a moment."
    assert (ready.json()["error"]["code"], "database" in ready.text) == ("not_ready", False)
    assert gateway.http.get("/healthz").status_code == 200


SECRET = "sk-upstream-secret"


async def unexpected_error() -> AsyncGenerator[StreamEvent, None]:
    raise RuntimeError(SECRET)
    yield {}


@pytest.mark.parametrize("stream", [False, True])
def test_an_unexpected_error_is_a_500_without_its_message(serve: Serve, stream: bool) -> None:
    gateway = serve(wrap=faulty_service(unexpected_error))
    got = gateway.create_response({"model": "m", "input": "hi", "stream": stream})
    health = gateway.http.get("/healthz")

    assert (got.status_code, health.status_code) == (500, 200)
    assert got.json()["error"] == {
        "message": "The server had an error while processing your request.",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
    assert [str(error) for error in gateway.unexpected_errors] == [SECRET]


def test_a_silent_model_is_kept_alive_by_comments_and_may_still_fail(serve: Serve) -> None:
    """The status is sent before the first comment, so the error is an event."""
    may_fail = threading.Event()

    async def late_error() -> AsyncGenerator[StreamEvent, None]:
        await asyncio.to_thread(may_fail.wait, 60)
        raise TryLater("Not now", code="overloaded", status=429)
        yield {}

    gateway = serve(wrap=faulty_service(late_error), keepalive_s=0.02)
    body = {"model": "m", "input": "hi", "stream": True}
    with gateway.http.stream("POST", "/v1/responses", json=body) as got:
        lines = got.iter_lines()
        comment = next(lines)
        may_fail.set()
        *_, last, done = [line for line in lines if line]
    assert (got.status_code, comment, done) == (200, ": still here", "data: [DONE]")
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "overloaded"


def test_a_stream_with_regular_events_has_no_comments(serve: Serve) -> None:
    gateway = serve(keepalive_s=1.0)
    gateway.script("slow", {"text": "word " * 60}, delay_s=0.02)
    assert ": still here" not in gateway.create_response({"model": "slow", "input": "hi", "stream": True}).text


# -- disconnects ----------------------------------------------------------------------------------


def disconnect_after(gateway: RunningGateway, body: dict[str, Any], *, after: bytes) -> None:
    """Send a request, wait until the bytes `after` arrive, and disconnect."""
    sent = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", gateway.port)) as client:
        head = "POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        client.sendall(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(sent), sent))
        got = b""
        while after not in got:
            got += client.recv(65536)


def test_a_disconnected_client_frees_its_request_slot(serve: Serve) -> None:
    gateway = serve(max_requests=1)
    gateway.script("slow", {"text": "word " * 500}, delay_s=0.05)
    disconnect_after(
        gateway, {"model": "slow", "input": "hi", "store": False, "stream": True}, after=b"response.created"
    )

    while gateway.create_response({"model": "echo", "input": "hi"}).status_code == 503:
        pass
    disconnected = next(exchange for exchange in gateway.exchanges if exchange.scope["method"] == "POST")
    assert disconnected.status in (200, 503)
    assert b"convo_streams_open 0.0" in gateway.http.get("/metrics").content


# -- background responses -------------------------------------------------------------------------


def test_a_background_response_returns_at_once_and_can_be_followed_from_any_event(
    stored_gateway: RunningGateway,
) -> None:
    stored_gateway.script("slow", {"text": "one two three"}, delay_s=0.02, chunk=4)
    response = stored_gateway.create_response({"model": "slow", "input": "hi", "background": True}).json()
    path = f"/v1/responses/{response['id']}?stream=true"
    whole = stream_events(stored_gateway, path)
    rest = stream_events(stored_gateway, f"{path}&starting_after={whole[3]['sequence_number']}")

    assert response["status"] in ("queued", "in_progress")
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    assert (rest, whole[-1]["type"]) == (whole[4:], "response.completed")


@pytest.mark.parametrize("beyond", [0, 1, 10**15])
def test_following_a_response_after_its_last_event_ends_at_once(stored_gateway: RunningGateway, beyond: int) -> None:
    """A client requests this when its connection broke between the last event and `[DONE]`."""
    response = stored_gateway.create_response({"model": "echo", "input": "hi", "background": True}).json()
    path = f"/v1/responses/{response['id']}?stream=true"
    last = stream_events(stored_gateway, path)[-1]["sequence_number"]
    got = stored_gateway.http.get(f"{path}&starting_after={last + beyond}")
    assert (got.status_code, got.text) == (200, "data: [DONE]\n\n")


def stream_events(gateway: RunningGateway, path: str) -> list[dict[str, Any]]:
    lines = gateway.http.get(path).text.splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_a_background_response_is_cancelled_from_another_request(stored_gateway: RunningGateway) -> None:
    stored_gateway.script("slow", {"text": "word " * 500}, delay_s=0.05)
    response = stored_gateway.create_response({"model": "slow", "input": "hi", "background": True}).json()
    stopped = stored_gateway.http.post(f"/v1/responses/{response['id']}/cancel").json()
    assert (stopped["id"], stopped["status"]) == (response["id"], "cancelled")


def test_a_background_response_that_is_streamed_outlives_its_stream(stored_gateway: RunningGateway) -> None:
    stored_gateway.script("slow", {"text": "word " * 20}, delay_s=0.02)
    body = {"model": "slow", "input": "hi", "background": True, "stream": True}
    with stored_gateway.http.stream("POST", "/v1/responses", json=body) as stream:
        lines = stream.iter_lines()
        response = next(json.loads(line[6:]) for line in lines if line.startswith("data: "))["response"]
    end = stream_events(stored_gateway, f"/v1/responses/{response['id']}?stream=true")[-1]
    assert (end["type"], end["response"]["id"]) == ("response.completed", response["id"])

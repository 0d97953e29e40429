"""WebSocket mode apart from the rules of the specification: access, limits, shutdown, metrics."""

import json
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus

from convo.errors import StreamBroken
from convo.history.items import StreamEvent
from convo.server.auth import KeysFile, create_api_key
from convo.server.websocket import WebSocketLimits
from tests.clock import HELD_S
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway
from tests.server.test_streams import faulty_service
from tests.server.websocket_client import WebSocketClient, connect_client, response_text

SLOW = {"text": "a b c d e f g h i j k l m n o p"}


def handshake_refusal(shared_gateway: RunningGateway, **more: Any) -> tuple[int, Any]:
    """Try to open a connection; return the status and the error code of the refusal."""
    with pytest.raises(InvalidStatus) as answer, connect_client(shared_gateway, **more):
        raise AssertionError("it was opened")
    response = answer.value.response
    return response.status_code, json.loads(response.body or b"")["error"]["code"]


def close_code(client: WebSocketClient) -> int:
    """Read until the server closes the connection; return the close code."""
    return close_frame(client)[0]


def close_frame(client: WebSocketClient) -> tuple[int, str]:
    """Read until the server closes the connection; return the close code and the reason."""
    with pytest.raises(ConnectionClosed) as end:
        deque(iter(client.receive, None), maxlen=0)
    assert end.value.rcvd is not None
    return end.value.rcvd.code, end.value.rcvd.reason


def poll_until(status: int, send: Callable[[], httpx2.Response]) -> Any:
    """Call `send` until its status is `status`, at most 5,000 times; return the JSON body."""
    responses = (send() for _ in range(5000))
    return next(response for response in responses if response.status_code == status).json()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


# -- access ----------------------------------------------------------------------------------------


def test_a_connection_needs_a_key_like_a_request(serve: Serve, keys: Path) -> None:
    key = create_api_key(keys, "alice")
    gateway = serve(keys=KeysFile(keys))

    assert handshake_refusal(gateway) == (401, None)
    assert handshake_refusal(gateway, key="wrong") == (401, "invalid_api_key")
    with connect_client(gateway, key=key) as client:
        assert response_text(client.turn(input="hi")) == "hi"


def test_state_of_another_key_is_not_found(serve: Serve, keys: Path) -> None:
    alice, bob = create_api_key(keys, "alice"), create_api_key(keys, "bob")
    gateway = serve(keys=KeysFile(keys))
    with connect_client(gateway, key=alice) as alice_client, connect_client(gateway, key=bob) as bob_client:
        first = alice_client.turn(input="hi")
        error = bob_client.turn(input="hi", previous_response_id=first["id"])
        assert error["error"]["code"] == "previous_response_not_found"


def test_a_revoked_key_starts_no_turn_on_an_open_connection(serve: Serve, keys: Path) -> None:
    alice, _ = create_api_key(keys, "alice"), create_api_key(keys, "bob")
    gateway = serve(keys=KeysFile(keys))
    with connect_client(gateway, key=alice) as client:
        assert response_text(client.turn(input="hi")) == "hi"
        keys.write_text(keys.read_text("utf-8").splitlines()[1] + "\n", encoding="utf-8")
        event = client.turn(input="hi")

    assert (event["status"], event["error"]["code"]) == (401, "invalid_api_key")


def test_a_web_page_cannot_open_a_connection(shared_gateway: RunningGateway) -> None:
    """A browser lets any page open a WebSocket to this machine, and sends the origin of the page in Origin."""
    assert handshake_refusal(shared_gateway, headers={"origin": "https://evil.example"}) == (403, "origin_not_allowed")
    assert handshake_refusal(shared_gateway, headers={"host": "evil.example"}) == (403, "host_not_allowed")


def test_no_other_path_accepts_a_websocket(shared_gateway: RunningGateway) -> None:
    assert handshake_refusal(shared_gateway, path="/v1/conversations") == (404, None)


KEY = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
VERSION = b"sec-websocket-version: 13\r\n"

INVALID_HANDSHAKES = {
    "another method": (b"POST /v1/responses", KEY + VERSION),
    "a path that is not ASCII": (b"GET /v1/\xa6", KEY + VERSION),
    "no key": (b"GET /v1/responses", VERSION),
    "a key that is not ASCII": (b"GET /v1/responses", KEY.replace(b"Z", b"\xf0") + VERSION),
    "a version that is not ASCII": (b"GET /v1/responses", KEY + b"sec-websocket-version: 13\xd8\r\n"),
    "another version": (b"GET /v1/responses", KEY + b"sec-websocket-version: 8\r\n"),
    "a body": (b"GET /v1/responses", KEY + VERSION + b"content-length: 2\r\n"),
    "a long header": (b"GET /v1/responses", KEY + VERSION + b"x-long: " + b"x" * 9000 + b"\r\n"),
    "many headers": (b"GET /v1/responses", KEY + VERSION + b"x-many: x\r\n" * 130),
}


@pytest.mark.parametrize(("request_line", "headers"), INVALID_HANDSHAKES.values(), ids=INVALID_HANDSHAKES)
def test_an_invalid_handshake_is_refused_with_a_message(
    shared_gateway: RunningGateway, request_line: bytes, headers: bytes
) -> None:
    upgrade = b"host: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    with socket.create_connection(("127.0.0.1", shared_gateway.port)) as connection:
        connection.sendall(request_line + b" HTTP/1.1\r\n" + upgrade + headers + b"\r\n")
        got = b"".join(iter(lambda: connection.recv(4096), b""))

    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert json.loads(body)["error"]["code"] in (
        "invalid_handshake",
        "invalid_request",
    )  # depends on the parser that reads it first


def test_a_query_parameter_is_refused_as_over_http(shared_gateway: RunningGateway) -> None:
    assert handshake_refusal(shared_gateway, path="/v1/responses?stream=true") == (400, "unknown_parameter")


# -- limits ----------------------------------------------------------------------------------------

INVALID_MESSAGES = {
    "not json": ("{", "invalid_request_error"),
    "no object": ("[]", "invalid_request_error"),
    "bytes": (b'{"type": "response.create"}', "invalid_json"),
    "too deep": ('{"input": ' + "[" * 30 + "]" * 30 + "}", "invalid_request_error"),
    "a key twice": ('{"type": "response.create", "type": "response.create"}', "invalid_request_error"),
    "too many items": (json.dumps({"input": [1] * 11}), "array_above_max_length"),
    "no type": ("{}", "missing_required_parameter"),
    "unknown field": (json.dumps({"type": "response.create", "foo": 1}), "unknown_parameter"),
}


def test_a_message_beyond_the_limits_is_refused_and_the_connection_stays(serve: Serve) -> None:
    gateway = serve(max_depth=20, max_body_bytes=4096, max_items=10)
    with connect_client(gateway) as client:
        for message, code in INVALID_MESSAGES.values():
            event = client.turn(message)
            assert (event["type"], event["error"]["code"]) == ("error", code)
            assert 400 <= event["status"] < 500
        assert response_text(client.turn(input="still there")) == "still there"


def test_a_message_that_is_too_large_closes_the_connection_while_it_arrives(serve: Serve) -> None:
    """Also a client that goes on sending receives the reason."""
    with connect_client(serve(max_body_bytes=4096)) as client:
        with pytest.raises(ConnectionClosed):
            client.socket.send("x" * 3000 for _ in range(10_000))
        assert close_code(client) == 1009


def test_a_text_that_is_not_utf8_closes_the_connection_and_is_not_reported_as_an_error_of_the_server(
    serve: Serve,
) -> None:
    gateway = serve()
    with connect_client(gateway) as client:
        client.socket.send(b"\xff", text=True)
        assert close_code(client) == 1007
    assert gateway.unexpected_errors == []


def test_the_number_of_queued_messages_is_limited(serve: Serve) -> None:
    gateway = serve(websocket_limits=WebSocketLimits(max_queued=2))
    gateway.script("slow", SLOW, chunk=1, delay_s=HELD_S)
    with connect_client(gateway) as client:
        client.send(model="slow", input="hi", store=False)
        client.receive()
        for word in ("one", "two", "three"):
            client.send(input=word, store=False)
        full = next(event for event in iter(client.receive, None) if event["type"] == "error")
        gateway.release_deltas()
        assert (full["status"], full["error"]["code"]) == (429, "websocket_queue_full")
        assert [response_text(client.receive_response()) for _ in range(3)] == [SLOW["text"], "one", "two"]


def test_a_turn_counts_as_a_concurrent_request(serve: Serve) -> None:
    gateway = serve(max_requests=1)
    gateway.script("slow", SLOW, chunk=1, delay_s=HELD_S)
    with connect_client(gateway) as client:
        client.send(model="slow", input="hi", store=False)
        client.receive()
        assert gateway.create_response({"model": "echo", "input": "hi"}).status_code == 503
        gateway.release_deltas()
        assert response_text(client.receive_response()) == SLOW["text"]
        assert gateway.create_response({"model": "echo", "input": "hi"}).status_code == 200
        assert handshake_refusal(gateway) == (503, "overloaded")


def test_a_client_that_reads_nothing_is_disconnected(serve: Serve) -> None:
    gateway = serve(max_requests=1, write_s=0.05)
    gateway.script("slow", {"text": "for ever " * 700_000}, chunk=100_000)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", gateway.port))
    with connect_client(gateway, sock=connection, max_queue=1, close_timeout=0.1) as client:
        client.send(model="slow", input="hi", store=False)
        client.receive()
        assert (
            response_text(poll_until(200, lambda: gateway.create_response({"model": "echo", "input": "free"})))
            == "free"
        )


def test_messages_are_not_compressed(shared_gateway: RunningGateway) -> None:
    with connect_client(shared_gateway, compression="deflate") as client:
        assert client.socket.protocol.extensions == []


def test_a_ping_is_answered_while_a_turn_runs(gateway: RunningGateway) -> None:
    gateway.script("slow", SLOW, chunk=1, delay_s=HELD_S)
    with connect_client(gateway) as client:
        client.send(model="slow", input="hi", store=False)
        client.receive()
        assert client.socket.ping().wait(timeout=30)
        gateway.release_deltas()
        assert response_text(client.receive_response()) == SLOW["text"]


def test_any_text_round_trips(shared_gateway: RunningGateway) -> None:
    text = 'é 漢字 🙂 \u2028 " \\ \ud800'
    with connect_client(shared_gateway) as client:
        client.send('{"type": "response.create", "model": "echo", "input": ' + json.dumps(text) + "}")
        assert response_text(client.receive_response()) == text


# -- disconnects and shutdown ----------------------------------------------------------------------


def test_a_client_that_disconnects_cancels_its_turn(gateway: RunningGateway) -> None:
    gateway.script("slow", SLOW, chunk=1, delay_s=HELD_S)
    with connect_client(gateway) as client:
        client.send(model="slow", input="hi")
        gateway.release_deltas(5)
        response_id = client.receive()["response"]["id"]

    stored = poll_until(200, lambda: gateway.http.get(f"/v1/responses/{response_id}"))
    assert stored["status"] == "cancelled"
    assert SLOW["text"].startswith(response_text(stored))


def test_a_client_that_disconnects_stops_a_turn_that_is_not_stored(serve: Serve) -> None:
    """The call of an endless model is cancelled, and its request slot is freed."""
    gateway = serve(max_requests=1)
    gateway.script("slow", {"text": "for ever " * 100_000}, chunk=1, delay_s=0.01)
    with connect_client(gateway) as client:
        client.send(model="slow", input="hi", store=False)
        client.receive()

    assert response_text(poll_until(200, lambda: gateway.create_response({"model": "echo", "input": "free"}))) == "free"


def test_a_stopping_server_finishes_the_running_turn_and_announces_its_end(gateway: RunningGateway) -> None:
    gateway.script("slow", SLOW, chunk=1, delay_s=HELD_S)
    with connect_client(gateway) as client, connect_client(gateway) as idle:
        client.send(model="slow", input="hi")
        client.send(input="never begun")
        client.receive()
        gateway.begin_shutdown()
        gateway.release_deltas()
        assert response_text(client.receive_response()) == SLOW["text"]
        assert [close_frame(client), close_frame(idle)] == [(1012, "the server is stopping")] * 2
    assert gateway.unexpected_errors == []


def test_a_stopping_server_waits_for_a_turn_no_longer_than_its_grace_period(serve: Serve) -> None:
    gateway = serve(grace_s=0.05)
    gateway.script("slow", {"text": "for ever " * 100_000}, chunk=1, delay_s=0.01)
    with connect_client(gateway) as client:
        client.send(model="slow", input="hi", store=False)
        client.receive()
        gateway.shut_down()
        assert close_code(client) == 1012
    assert gateway.unexpected_errors == []


# -- metrics and clients ---------------------------------------------------------------------------


def test_turns_are_counted_like_requests(gateway: RunningGateway) -> None:
    started = time.monotonic()
    with connect_client(gateway) as client:
        client.turn(input="hi")
        client.turn(input="hi", previous_response_id="resp_nobody")
        metrics = gateway.http.get("/metrics").text.splitlines()
    elapsed = time.monotonic() - started

    assert 'convo_requests_total{method="WEBSOCKET",route="/v1/responses",status="200"} 1.0' in metrics
    assert 'convo_requests_total{method="WEBSOCKET",route="/v1/responses",status="400"} 1.0' in metrics
    assert 'convo_first_event_seconds_count{route="/v1/responses"} 1.0' in metrics
    duration_line = next(
        line for line in metrics if line.startswith('convo_request_seconds_sum{route="/v1/responses"}')
    )
    assert 0 < float(duration_line.rpartition(" ")[2]) < elapsed
    assert "convo_streams_open 0.0" in metrics


async def two_events_and_a_fault() -> AsyncGenerator[StreamEvent, None]:
    for number, kind in enumerate(("response.created", "response.in_progress")):
        yield {"type": kind, "response": {"id": "resp_1"}, "sequence_number": number}
    raise StreamBroken("The upstream went away")


def test_an_error_in_a_turn_has_the_next_sequence_number_and_its_first_event_is_timed_once(serve: Serve) -> None:
    gateway = serve(wrap=faulty_service(two_events_and_a_fault))
    with connect_client(gateway) as client:
        client.send(input="hi")
        got = [client.receive() for _ in range(3)]
    assert [event.get("sequence_number") for event in got] == [0, 1, 2]
    assert got[-1]["type"] == "error"
    metrics = gateway.http.get("/metrics").text
    assert 'convo_first_event_seconds_count{route="/v1/responses"} 1.0' in metrics


def test_a_refused_connection_is_counted_by_its_status(gateway: RunningGateway) -> None:
    handshake_refusal(gateway, headers={"origin": "https://evil.example"})
    metrics = gateway.http.get("/metrics").text.splitlines()
    assert 'convo_requests_total{method="WEBSOCKET",route="/v1/responses",status="403"} 1.0' in metrics


def test_the_openai_package_takes_several_turns(shared_gateway: RunningGateway) -> None:
    client = OpenAI(
        base_url=shared_gateway.url, api_key="any", max_retries=0, http_client=httpx2.Client(trust_env=False)
    )
    with client, client.responses.connect() as connection:
        connection.response.create(model="echo", input="one", store=False)
        first = next(event for event in connection if event.type == "response.completed")
        connection.response.create(
            model="echo", input="two", store=False, previous_response_id=first.response.id, stream_id="main"
        )
        error_event = next(event for event in connection if event.type == "error")
        connection.response.create(model="echo", input="two", store=False, previous_response_id=first.response.id)
        second = next(event for event in connection if event.type == "response.completed")

    assert (first.response.output_text, second.response.output_text) == ("one", "two")
    assert (error_event.status, error_event.error.code, error_event.stream_id) == (
        400,
        "previous_response_not_found",
        "main",
    )


def open_raw_websocket(gateway: RunningGateway, receive_buffer_bytes: int | None = None) -> socket.socket:
    """Open a WebSocket without a library; return its socket after the handshake."""
    host, port = gateway.root.removeprefix("http://").split(":")
    connection = socket.socket()
    if receive_buffer_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    connection.connect((host, int(port)))
    connection.settimeout(30)
    connection.sendall(
        b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    while not connection.recv(1, socket.MSG_PEEK):
        pass
    assert b" 101 " in connection.recv(4096)
    return connection


def test_a_message_of_too_many_fragments_closes_the_connection(gateway: RunningGateway) -> None:
    """Fragments without data do not count for the size of the message, but each takes memory."""
    first, empty = b"\x01\x80\0\0\0\0", b"\x00\x80\0\0\0\0"
    with open_raw_websocket(gateway) as connection:
        with suppress(ConnectionError):
            connection.sendall(first + empty * 70_000)
        answer = connection.recv(4096)

    assert answer[:1] == b"\x88"
    assert int.from_bytes(answer[2:4], "big") == 1009


def test_pings_of_a_client_that_reads_nothing_are_not_answered(gateway: RunningGateway) -> None:
    """The answers would wait in memory. The small buffers leave few pings to be read and answered afterwards."""
    ping, count = b"\x89\xfd\0\0\0\0" + bytes(125), 120_000
    gateway.listener.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536
    )  # pings that wait are read later, and answered
    with open_raw_websocket(gateway, receive_buffer_bytes=4096) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        for _ in range(0, count, 1000):
            connection.sendall(ping * 1000)
        connection.sendall(b"\x88\x80\0\0\0\0")
        received = 0
        while piece := connection.recv(1 << 20):
            received += len(piece)

    assert 0 < received < count * 127 // 2

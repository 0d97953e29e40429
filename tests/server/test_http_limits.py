"""HTTP requests on a raw socket: limits for time and size, invalid syntax, and idle connections."""

import json
import socket
from typing import Any

import pytest

from convo.server import server
from convo.server.server import open_listening_socket
from tests.config.settings_inputs import make_settings
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway


def send_raw(gateway: RunningGateway, *pieces: bytes) -> tuple[bytes, Any]:
    """Send `pieces` and read until the server closes; return the status line and the JSON body."""
    with socket.create_connection(("127.0.0.1", gateway.port)) as client:
        for piece in pieces:
            client.sendall(piece)
        got = b""
        while more := client.recv(65536):
            got += more
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"\r\nx-request-id: req_" in head
    assert b"\r\nserver:" not in head.lower()
    return head.partition(b"\r\n")[0], json.loads(body)


def error_code(body: Any) -> str:
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return str(body["error"]["code"])


@pytest.mark.parametrize("raw", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"])
def test_an_incomplete_request_head_times_out(serve: Serve, raw: bytes) -> None:
    status, body = send_raw(serve(read_s=0.1), raw)
    assert (status, error_code(body)) == (b"HTTP/1.1 408 Request Timeout", "request_timeout")


def test_an_incomplete_request_body_times_out(serve: Serve) -> None:
    head = b"POST /v1/responses HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    status, body = send_raw(serve(read_s=0.1), head)
    assert (status, error_code(body)) == (b"HTTP/1.1 408 Request Timeout", "request_timeout")


LARGE_HEADS = {
    "one header": [b"GET / HTTP/1.1\r\na: " + b"x" * 2000 + b"\r\n\r\n"],
    "many headers": [b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000 + b"\r\n"],
    "a header without an end": [b"GET / HTTP/1.1\r\na: ", *[b"x" * 500] * 5],
    "a path without an end": [b"GET /", *[b"x" * 500] * 5],
}


@pytest.mark.parametrize("pieces", LARGE_HEADS.values(), ids=LARGE_HEADS)
def test_a_request_head_that_is_too_large_is_refused(serve: Serve, pieces: list[bytes]) -> None:
    status, body = send_raw(serve(max_header_bytes=1024), *pieces)
    assert (status, error_code(body)) == (b"HTTP/1.1 431 Request Header Fields Too Large", "headers_too_large")


INVALID_REQUESTS = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no method": b"NONSENSE / HTTP/1.1\r\n\r\n",
    "no length": b"POST /v1/responses HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    "a length and chunks": b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    "bytes in a path": b"GET /\xff HTTP/1.1\r\n\r\n",
    "a tunnel": b"CONNECT example.com:443 HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("raw", INVALID_REQUESTS.values(), ids=INVALID_REQUESTS)
def test_an_invalid_request_gets_the_error_object(shared_gateway: RunningGateway, raw: bytes) -> None:
    status, body = send_raw(shared_gateway, raw)
    assert (status, error_code(body)) == (b"HTTP/1.1 400 Bad Request", "invalid_request")


def test_requests_on_one_connection_are_answered_in_order(shared_gateway: RunningGateway) -> None:
    one = b"GET /v1/models/echo HTTP/1.1\r\nhost: localhost\r\n\r\n"
    two = b"GET /v1/models/nope HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", shared_gateway.port)) as client:
        client.sendall(one + two)
        got = b""
        while more := client.recv(65536):
            got += more
    assert got.index(b"200 OK") < got.index(b"404 Not Found")


def test_a_head_request_gets_no_body(shared_gateway: RunningGateway) -> None:
    got = shared_gateway.http.head("/healthz")
    assert (got.status_code, got.content, int(got.headers["content-length"]) > 0) == (200, b"", True)


def test_an_idle_connection_outlives_the_keep_alive_of_clients(gateway: RunningGateway) -> None:
    """Node's agents keep connections for up to a minute; if the server closes first, they write to a closed socket."""
    config = server.build_uvicorn_config(gateway.app, make_settings().serve, gateway.app.body_budget)
    assert config.timeout_keep_alive > 60


def test_a_websocket_names_its_protocol() -> None:
    """asyncio disables Nagle's algorithm only for this protocol; otherwise a body is sent 40 ms after its headers."""
    with open_listening_socket("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_client_that_reads_nothing_is_disconnected(serve: Serve) -> None:
    """Its request slot is freed, although it never closes the connection."""
    gateway = serve(write_s=0.1, max_requests=1)
    gateway.script("slow", {"text": "x" * 8_000_000}, chunk=8_000)  # larger than the socket buffers
    body = json.dumps({"model": "slow", "input": "hi", "stream": True, "store": False}).encode()
    head = b"POST /v1/responses HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", gateway.port))
        client.sendall(head + body)
        assert client.recv(17) == b"HTTP/1.1 200 OK\r\n"
        while gateway.create_response({"model": "echo", "input": "hi"}).status_code == 503:
            pass
    assert b"convo_streams_open 0.0" in gateway.http.get("/metrics").content

"""Shutdown: no new turn starts; running turns complete or are marked as cancelled."""

import asyncio
import json
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Send

from convo.server.server import GatewayServer
from tests.asgi_server import listen_on_free_port
from tests.clock import HELD_S
from tests.models.chat_server import delta, run_chat_server, send_head, send_piece
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway, run_gateway
from tests.server.relay_peers import shrink_buffers


def start_stream(gateway: RunningGateway, stack: ExitStack, **more: Any) -> tuple[dict[str, Any], Any]:
    """Start a stream and read its first event; return the response and an iterator over the remaining lines."""
    body = {"model": "slow", "input": "hi", "stream": True, **more}
    stream = stack.enter_context(gateway.http.stream("POST", "/v1/responses", json=body))
    lines = stream.iter_lines()
    first = next(json.loads(line[6:]) for line in lines if line.startswith("data: "))
    return first["response"], lines


def test_a_running_turn_completes(serve: Serve) -> None:
    gateway = serve(grace_s=20.0)
    gateway.script("slow", {"text": "word " * 30}, delay_s=HELD_S)
    with ExitStack() as stack:
        _, lines = start_stream(gateway, stack)
        gateway.begin_shutdown()
        gateway.release_deltas()
        rest = [line for line in lines if line]
    assert rest[-3].endswith("response.completed")
    assert rest[-1] == "data: [DONE]"


def test_no_new_turn_starts_meanwhile(serve: Serve) -> None:
    """The server tells the client to retry, is not ready, and completes the open stream."""
    gateway = serve(grace_s=20.0)
    gateway.script("slow", {"text": "word " * 60}, delay_s=HELD_S)
    with ExitStack() as stack:
        _, lines = start_stream(gateway, stack)
        gateway.run(set_shutting_down(gateway))
        got = gateway.create_response({"model": "echo", "input": "hi"})
        ready = gateway.http.get("/readyz")
        gateway.release_deltas()
        assert list(lines)
    assert (got.status_code, got.json()["error"]["code"], got.headers["retry-after"]) == (
        503,
        "server_shutting_down",
        "1",
    )
    assert ready.status_code == 503


async def set_shutting_down(gateway: RunningGateway) -> None:
    gateway.app.is_shutting_down = True


def test_a_turn_that_does_not_end_in_time_is_marked(tmp_path: Path) -> None:
    """Its stream ends with an error, and the next server returns the partial response."""
    url = f"sqlite:{tmp_path / 'convo.db'}"
    with run_gateway(tmp_path / "first", url, grace_s=0.2) as gateway, ExitStack() as stack:
        gateway.script("slow", {"text": "word " * 5000}, delay_s=0.02)
        response, lines = start_stream(gateway, stack)
        gateway.shut_down()
        *events, last, done = [line for line in lines if line.startswith("data: ")]
    with run_gateway(tmp_path / "second", url) as gateway:
        stored = gateway.http.get(f"/v1/responses/{response['id']}").json()
    assert (json.loads(last[6:])["error"]["code"], done) == ("server_shutting_down", "data: [DONE]")
    assert stored["status"] == "cancelled"
    (item,) = stored["output"]
    assert item["status"] == "incomplete"
    assert item["content"][0]["text"] == "".join(json.loads(line[6:]).get("delta", "") for line in events)


def test_a_client_that_does_not_read_is_disconnected_after_the_grace_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server stores the response before it ends, and logs nothing."""
    url = f"sqlite:{tmp_path / 'convo.db'}"
    body = json.dumps({"model": "slow", "input": "hi", "stream": True}).encode()
    head = b"POST /v1/responses HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    with run_gateway(tmp_path / "first", url, grace_s=0.1) as gateway, socket.socket() as client:
        gateway.script("slow", {"text": "word " * 20_000}, chunk=1000)  # larger than the socket buffers
        shrink_buffers(gateway.listener)
        shrink_buffers(client)
        client.connect(("127.0.0.1", gateway.port))
        client.sendall(head + body)
        received = b""
        while b"response.created" not in received:
            received += client.recv(1024)
        gateway.shut_down()
        gateway.thread.join()
    assert [record.getMessage() for record in caplog.records] == []
    assert gateway.unexpected_errors == []
    with run_gateway(tmp_path / "second", url) as gateway:
        (response_id,) = {*re.findall(rb"resp_\w+", received)}
        stored = gateway.http.get(f"/v1/responses/{response_id.decode()}").json()
    assert stored["status"] == "cancelled"


def test_a_request_whose_body_is_incomplete_is_refused_after_the_grace_time(tmp_path: Path) -> None:
    head = b"POST /v1/responses HTTP/1.1\r\ncontent-type: application/json\r\n"
    with run_gateway(tmp_path, grace_s=0.1) as gateway, socket.create_connection(("127.0.0.1", gateway.port)) as client:
        client.sendall(head + b"content-length: 20\r\nexpect: 100-continue\r\n\r\n{")
        assert client.recv(1024).startswith(b"HTTP/1.1 100 ")  # the server reads the body
        gateway.shut_down()
        response = b"".join(iter(partial(client.recv, 1024), b""))
    assert response.startswith(b"HTTP/1.1 503 ")
    assert b"server_shutting_down" in response
    assert gateway.unexpected_errors == []


@pytest.mark.parametrize("connect_pass", range(10))
async def test_a_connection_that_is_accepted_while_the_server_stops_is_closed(connect_pass: int) -> None:
    """The server is asked to stop in pass 5 of the event loop. The client sends nothing and does not disconnect."""

    async def application(scope: Any, receive: Receive, send: Send) -> None: ...

    listener, _ = listen_on_free_port()
    address = listener.getsockname()
    server = GatewayServer(uvicorn.Config(application, lifespan="off", ws="none", log_config=None))
    serve_task = asyncio.create_task(server.serve([listener]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0)
    client: socket.socket | None = None
    for event_loop_pass in range(10):
        if event_loop_pass == connect_pass:
            with suppress(ConnectionRefusedError):
                client = socket.create_connection(address)
        if event_loop_pass == 5:
            server.request_end()
        await asyncio.sleep(0)
    await serve_task
    if client:
        with client, suppress(ConnectionResetError):  # the listening socket was closed before it was accepted
            client.setblocking(False)
            assert client.recv(1) == b""


# -- requests that are passed through ---------------------------------------------------------------


def provider_toml(url: str) -> str:
    return f'fast = "up/own-name"\n[providers.up]\napi = "chat"\nbase_url = "{url}"\n'


CHAT_PATH, PASSED_BODY = "/v1/chat/completions", {"model": "fast", "messages": [{"role": "user", "content": "hi"}]}


def test_a_passed_through_stream_completes_in_the_grace_time(tmp_path: Path) -> None:
    is_stopping = threading.Event()

    async def answer(receive: Receive, send: Send) -> None:
        await send_head(send, 200, "text/event-stream")
        await send_piece(send, b"data: 1\n\n")
        await asyncio.to_thread(is_stopping.wait)
        await send_piece(send, b"data: [DONE]\n\n", more=False)

    with (
        run_chat_server() as upstream,
        run_gateway(tmp_path, grace_s=20.0, toml=provider_toml(upstream.url)) as gateway,
    ):
        upstream.answers.append(answer)
        with gateway.http.stream("POST", CHAT_PATH, json={**PASSED_BODY, "stream": True}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: 1"
            gateway.begin_shutdown()
            is_stopping.set()
            assert [line for line in lines if line] == ["data: [DONE]"]
    assert gateway.unexpected_errors == []


def test_a_passed_through_stream_that_does_not_end_in_time_ends_with_an_error(tmp_path: Path) -> None:
    with run_chat_server() as upstream, run_gateway(tmp_path, grace_s=0.1, toml=provider_toml(upstream.url)) as gateway:
        upstream.stall(delta(content="a"))
        with gateway.http.stream("POST", CHAT_PATH, json={**PASSED_BODY, "stream": True}) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            gateway.shut_down()
            (last,) = [line for line in lines if line]
        assert upstream.client_left.wait(30)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "server_shutting_down"
    assert gateway.unexpected_errors == []


@pytest.mark.parametrize("part", ["no head", "head", "head of a stream"])
def test_a_passed_through_request_without_a_response_in_time_is_refused(tmp_path: Path, part: str) -> None:
    async def answer(receive: Receive, send: Send) -> None:
        if part != "no head":
            await send_head(send, 200, "text/event-stream" if "stream" in part else "application/json")
        while (await receive())["type"] != "http.disconnect":
            pass

    with run_chat_server() as upstream, run_gateway(tmp_path, grace_s=0.1, toml=provider_toml(upstream.url)) as gateway:
        upstream.answers.append(answer)
        with ThreadPoolExecutor(1) as thread:
            request = thread.submit(gateway.http.post, CHAT_PATH, json={**PASSED_BODY, "stream": "stream" in part})
            assert upstream.request_received.wait(30)
            gateway.shut_down()
            got = request.result()
    assert (got.status_code, got.json()["error"]["code"]) == (503, "server_shutting_down")
    assert gateway.unexpected_errors == []

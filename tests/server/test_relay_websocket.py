"""The relay of WebSockets: handshakes, messages, closes, and the exchanges that are recorded."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request, Response

from convo.server.relay import Upstream
from tests.server.relay_peers import RunningRelay, run_test_relay

KEY = "sk-client-0123456789"


@asynccontextmanager
async def run_websocket_relay(handler: Any, **options: Any) -> AsyncIterator[RunningRelay]:
    async with serve(handler, "127.0.0.1", 0, **options) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with run_test_relay(Upstream("up", f"http://127.0.0.1:{port}/v1")) as relay:
            yield relay


def open_websocket(relay: RunningRelay, path: str = "/up/v1/responses", **options: Any) -> connect:
    return connect(f"ws://127.0.0.1:{relay.port}{path}", compression=None, proxy=None, **options)


def event(kind: str, number: int, **fields: Any) -> str:
    return json.dumps({"type": kind, "sequence_number": number, **fields})


async def test_messages_headers_subprotocols_and_closes_pass_in_both_directions() -> None:
    messages: list[str | bytes] = ["", "ä\n€", b"\x00\xff", "x" * 300_000, b"y" * 300_000]
    seen: dict[str, Any] = {}

    async def echo(connection: ServerConnection) -> None:
        assert connection.request
        seen.update(path=connection.request.path, headers=connection.request.headers)
        received = [await connection.recv() for _ in messages]
        for message in received:
            await connection.send(message)
        try:
            await connection.recv()
        except ConnectionClosed as closed:
            seen["close"] = closed.rcvd

    def add_header(connection: ServerConnection, request: Request, response: Response) -> None:
        response.headers["x-turn-state"] = "s1"

    headers = {"authorization": f"Bearer {KEY}", "openai-beta": "responses_websockets=2026-02-06"}
    async with run_websocket_relay(echo, subprotocols=["b"], process_response=add_header) as relay:
        async with open_websocket(
            relay, "/up/v1/responses?x=%2F", additional_headers=headers, subprotocols=["a", "b"]
        ) as client:
            for message in messages:
                await client.send(message)
            assert [await client.recv() for _ in messages] == messages
            assert client.response
            assert (client.subprotocol, client.response.headers["x-turn-state"]) == ("b", "s1")
            await client.close(4001, "done here")
        async with asyncio.timeout(60):
            while "close" not in seen:  # noqa: ASYNC110 - the test has no other task
                await asyncio.sleep(0.005)
    assert seen["path"] == "/v1/responses?x=%2F"
    assert {name: seen["headers"][name] for name in headers} == headers
    assert (seen["close"].code, seen["close"].reason) == (4001, "done here")
    assert relay.recorder.begun == []


async def test_the_last_messages_of_an_upstream_arrive_before_its_close() -> None:
    async def hang_up(connection: ServerConnection) -> None:
        await connection.recv()
        for number in range(20):
            await connection.send(event("response.output_text.delta", number))
        await connection.close(1012, "restart")

    async with run_websocket_relay(hang_up) as relay, open_websocket(relay) as client:
        await client.send('{"type":"response.create"}')
        assert [json.loads(await client.recv())["sequence_number"] for _ in range(20)] == list(range(20))
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1012, "restart")
        await relay.wait_for_records(1)
    response = relay.recorder.finished[0][1]
    assert (response.status, response.error) == (101, "the connection ended before the response")
    assert response.body.count(b"\n") == 20


async def test_each_turn_is_an_exchange_and_turns_with_a_stream_id_are_not_mixed() -> None:
    async def answer(connection: ServerConnection) -> None:
        first = json.loads(await connection.recv())
        assert first["input"] == "one"
        await connection.send(event("response.created", 0))
        await connection.send('{\n"sequence_number": 1,\n"type": "response.completed"}')
        assert json.loads(await connection.recv())["type"] == "response.steer"
        streams = [json.loads(await connection.recv())["stream_id"] for _ in range(2)]
        for kind in ("response.created", "response.completed"):
            for stream in streams:
                await connection.send(event(kind, 0, stream_id=stream))
        await connection.recv()

    async with (
        run_websocket_relay(answer) as relay,
        open_websocket(relay, additional_headers={"authorization": f"Bearer {KEY}"}) as client,
    ):
        await client.send(' { "type" : "response.create", "input": "one"}')
        received = [await client.recv(decode=True) for _ in range(2)]
        await relay.wait_for_records(1)
        await client.send('{"type": "response.steer", "input": []}')  # no exchange of its own
        for stream in ("a", "b"):
            await client.send(json.dumps({"input": stream, "type": "response.create", "stream_id": stream}))
        received += [await client.recv(decode=True) for _ in range(4)]
        await relay.wait_for_records(3)
    records = [(json.loads(request.body)["input"], response) for request, response in relay.recorder.finished]
    assert [name for name, _ in records] == ["one", "a", "b"]
    assert records[0][1].body.decode() == f"{received[0]}\n{received[1].replace(chr(10), ' ')}\n"
    for name, response in records[1:]:
        lines = [json.loads(line) for line in response.body.splitlines()]
        assert [(line["type"], line["stream_id"]) for line in lines] == [
            ("response.created", name),
            ("response.completed", name),
        ]
        assert response.error is None
    assert KEY not in repr(relay.recorder.finished)
    assert relay.relay.counts.relayed == 3


@pytest.mark.parametrize("status", [401, 426, 302])
async def test_a_refused_handshake_passes_with_its_status_and_body(status: int) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(status, '{"error": "no"}')
        response.headers["location"] = "http://127.0.0.1:9/elsewhere"
        return response

    async def unused(connection: ServerConnection) -> None: ...

    async with run_websocket_relay(unused, process_request=refuse) as relay:
        reply = await relay.send(
            "GET /up/v1/responses",
            [
                ("upgrade", "websocket"),
                ("connection", "upgrade"),
                ("sec-websocket-key", "eHh4eHh4eHh4eHh4eHh4eA=="),
                ("sec-websocket-version", "13"),
            ],
        )
    assert (reply.status, reply.body, reply.header("location")) == (
        status,
        b'{"error": "no"}',
        "http://127.0.0.1:9/elsewhere",
    )


async def test_a_websocket_without_an_upstream_or_of_a_web_page_is_refused() -> None:
    async def unused(connection: ServerConnection) -> None: ...

    async with run_test_relay(Upstream("off", "http://127.0.0.1:9/v1")) as relay:
        for status, options in ((502, {}), (403, {"origin": "https://evil.example"})):
            with pytest.raises(InvalidStatus) as refused:
                await open_websocket(relay, "/off/v1/responses", **options)
            assert refused.value.response.status_code == status


async def test_a_client_that_disappears_closes_the_upstream() -> None:
    closed = asyncio.Event()

    async def wait(connection: ServerConnection) -> None:
        await connection.send(event("response.created", 0))
        await connection.wait_closed()
        closed.set()

    async with run_websocket_relay(wait) as relay:
        client: ClientConnection = await open_websocket(relay)
        await client.recv()
        client.transport.abort()
        async with asyncio.timeout(60):
            await closed.wait()

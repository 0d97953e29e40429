"""A client that disconnects cancels its response: upstream, in the store and in the conversation."""

import asyncio
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests import databases
from tests.command_runner import Convo
from tests.server.gateway import RunningGateway, run_gateway
from tests.server.paced_upstream import Call, PacedUpstream, run_paced_upstream
from tests.server.websocket_client import connect_client

TYPICALLY_CLOSED_WITHIN_S = 0.5
CLOSED_WITHIN_S = 4.0
"""For a single disconnect, on a machine that other processes share. A keep-alive timeout would take five seconds."""

HANG_S = 30.0


@pytest.fixture(scope="module")
def upstream() -> Iterator[PacedUpstream]:
    with run_paced_upstream() as running:
        yield running


@pytest.fixture(scope="module", params=["sqlite", pytest.param("memory", marks=pytest.mark.full)])
def gateway(
    request: pytest.FixtureRequest, upstream: PacedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway in front of the paced server, over SQLite and in long runs also over the memory store."""
    folder = tmp_path_factory.mktemp("shop")
    url = "memory" if request.param == "memory" else f"sqlite:{folder / 'convo.db'}"
    with run_gateway(folder / "served", url, toml=upstream.settings) as running:
        yield running


numbers = iter(range(1, 10**9))


class Client:
    """One request on its own socket, read event by event."""

    def __init__(
        self, gateway: RunningGateway, model: str, *, path: str = "/v1/responses", port: int = 0, **body: Any
    ) -> None:
        self.text = f"ask {next(numbers)}"
        self.socket = socket.create_connection(("127.0.0.1", port or gateway.port))
        fields = {"model": f"up/{model}", "input": self.text, "stream": True, **body}
        content = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        self.socket.sendall(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(content), content))
        self.received = b""

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that have arrived completely."""
        whole = self.received.rpartition(b"\n\n")[0]
        return [json.loads(line[6:]) for line in whole.split(b"\n") if line.startswith(b"data: {")]

    @property
    def id(self) -> str:
        return str(self.events[0]["response"]["id"])

    @property
    def output(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "response.output_text.delta")

    def read(self, deltas: int) -> "Client":
        """Read until this number of text deltas has arrived; with 0, until the first event."""
        while not self.events or sum("output_text.delta" in event["type"] for event in self.events) < deltas:
            piece = self.socket.recv(65536)
            assert piece
            self.received += piece
        return self

    def read_to_the_end(self) -> None:
        while piece := self.socket.recv(65536):
            self.received += piece

    def close(self) -> float:
        self.socket.close()
        return time.monotonic()

    def half_close(self) -> float:
        """Close the sending half of the connection, and read the rest of the response."""
        self.socket.shutdown(socket.SHUT_WR)
        closed_at = time.monotonic()
        self.read_to_the_end()
        self.socket.close()
        return closed_at

    def reset(self) -> float:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return self.close()


class SocketClient:
    """One turn on its own WebSocket, read event by event."""

    def __init__(self, gateway: RunningGateway, model: str, conversation_id: str) -> None:
        self.text = f"ask {next(numbers)}"
        self.events: list[dict[str, Any]] = []
        self._stack = ExitStack()
        self._client = self._stack.enter_context(connect_client(gateway))
        self._client.send(model=f"up/{model}", input=self.text, conversation=conversation_id)

    @property
    def id(self) -> str:
        return str(self.events[0]["response"]["id"])

    @property
    def output(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "response.output_text.delta")

    def read(self, deltas: int) -> None:
        while not self.events or sum("output_text.delta" in event["type"] for event in self.events) < deltas:
            self.events.append(self._client.receive())

    def close(self) -> float:
        """Close the WebSocket with a closing handshake."""
        closed_at = time.monotonic()
        self._stack.close()
        return closed_at

    def cut(self) -> float:
        """Close the TCP connection without a closing handshake."""
        self._client.socket.socket.shutdown(socket.SHUT_RDWR)
        return self.close()


CLOSINGS: list[Callable[[Client], float]] = [Client.close, Client.half_close, Client.reset]


def closed_after(call: Call, since: float) -> float:
    assert call.closed.wait(HANG_S), "the upstream connection stayed open"
    assert call.closed_at is not None
    return call.closed_at - since


def create_conversation(gateway: RunningGateway) -> str:
    return str(gateway.http.post("/v1/conversations").json()["id"])


def conversation_messages(gateway: RunningGateway, conversation_id: str) -> list[tuple[str, str]]:
    listed = gateway.http.get(f"/v1/conversations/{conversation_id}/items?order=asc").json()["data"]
    return [(item["role"], item["content"][0]["text"]) for item in listed]


def stored_status_and_text(gateway: RunningGateway, response_id: str) -> tuple[str, str]:
    """Return the status and the text of a stored response. Fails if the response is not stored yet."""
    got = gateway.http.get(f"/v1/responses/{response_id}")
    assert got.status_code == 200, got.text
    response = got.json()
    return response["status"], "".join(part["text"] for item in response["output"] for part in item["content"])


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("close", CLOSINGS)
def test_a_client_that_closes_a_stream_cancels_it_at_once(
    gateway: RunningGateway, upstream: PacedUpstream, close: Callable[[Client], float]
) -> None:
    client = Client(gateway, "hold-3").read(3)
    closed_at = close(client)

    assert closed_after(upstream.call(client.text), closed_at) < CLOSED_WITHIN_S
    assert stored_status_and_text(gateway, client.id) == ("cancelled", "w0 w1 w2 ")
    assert not gateway.unexpected_errors


def test_the_stored_output_equals_the_sent_output(gateway: RunningGateway, upstream: PacedUpstream) -> None:
    """The client closes only its sending half, so it reads everything that the server sends."""
    client = Client(gateway, "words-1000000-1").read(5)  # more than it can send
    client.half_close()
    assert stored_status_and_text(gateway, client.id) == ("cancelled", client.output)
    assert 0 < len(client.output.split()) < 1_000_000


def test_a_conversation_stores_the_input_and_the_sent_output_and_is_unlocked_at_once(
    gateway: RunningGateway, upstream: PacedUpstream
) -> None:
    conversation_id = create_conversation(gateway)
    client = Client(gateway, "hold-2", conversation=conversation_id).read(2)
    client.close()
    response = gateway.create_response({"model": "echo", "input": "go on", "conversation": conversation_id})

    assert response.status_code == 200, response.text
    messages = [("user", client.text), ("assistant", "w0 w1 "), ("user", "go on"), ("assistant", "go on")]
    assert conversation_messages(gateway, conversation_id) == messages


def test_a_chain_continues_from_a_cancelled_response_at_once(gateway: RunningGateway, upstream: PacedUpstream) -> None:
    client = Client(gateway, "hold-1").read(1)
    client.close()
    text = f"and then {next(numbers)}"
    response = gateway.create_response({"model": "up/burst-1", "input": text, "previous_response_id": client.id})

    assert response.status_code == 200, response.text
    messages = [(message["role"], message["content"]) for message in upstream.call(text).body["messages"]]
    assert messages == [("user", client.text), ("assistant", "w0 "), ("user", text)]


def test_a_client_that_disconnects_before_the_first_event_cancels_the_request(
    gateway: RunningGateway, upstream: PacedUpstream
) -> None:
    conversation_id = create_conversation(gateway)
    client = Client(gateway, "silent", conversation=conversation_id)
    call = upstream.call(client.text)
    closed_at = client.close()

    assert closed_after(call, closed_at) < CLOSED_WITHIN_S
    assert conversation_messages(gateway, conversation_id) == [("user", client.text)]
    assert (
        gateway.create_response({"model": "echo", "input": "go on", "conversation": conversation_id}).status_code == 200
    )


def test_without_store_a_disconnect_cancels_the_request_and_stores_nothing(
    gateway: RunningGateway, upstream: PacedUpstream
) -> None:
    client = Client(gateway, "hold-1", store=False).read(1)
    closed_at = client.close()
    assert closed_after(upstream.call(client.text), closed_at) < CLOSED_WITHIN_S
    assert gateway.http.get(f"/v1/responses/{client.id}").status_code == 404


def test_without_store_a_conversation_still_gets_its_turn(gateway: RunningGateway, upstream: PacedUpstream) -> None:
    conversation_id = create_conversation(gateway)
    client = Client(gateway, "hold-1", store=False, conversation=conversation_id).read(1)
    client.close()
    assert conversation_messages(gateway, conversation_id) == [("user", client.text), ("assistant", "w0 ")]


def test_a_partial_function_call_is_not_appended(gateway: RunningGateway, upstream: PacedUpstream) -> None:
    conversation_id = create_conversation(gateway)
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    client = Client(gateway, "call", conversation=conversation_id, tools=tools).read(0)
    client.close()

    assert conversation_messages(gateway, conversation_id) == [("user", client.text)]
    assert (
        gateway.create_response({"model": "echo", "input": "go on", "conversation": conversation_id}).status_code == 200
    )


def test_an_answer_that_the_model_finished_is_stored_completely(
    gateway: RunningGateway, upstream: PacedUpstream
) -> None:
    """The client stops reading after the first events; the server has received the whole answer by then."""
    conversation_id = create_conversation(gateway)
    client = Client(gateway, "burst-40", conversation=conversation_id)
    call = upstream.call(client.text)
    assert call.closed.wait(HANG_S)
    client.read(1)
    gateway.run(let_the_server_read())
    client.close()
    assert conversation_messages(gateway, conversation_id) == [
        ("user", client.text),
        ("assistant", "".join(f"w{n} " for n in range(40))),
    ]


async def let_the_server_read() -> None:
    """Run 200 iterations of the server's event loop, so that it reads the bytes that have arrived at its sockets."""
    for _ in range(200):
        await asyncio.sleep(0)


def test_a_client_whose_connection_closes_late_cancels_late(gateway: RunningGateway, upstream: PacedUpstream) -> None:
    """A proxy between client and server closes its own connection later than the client."""
    listening = socket.create_server(("127.0.0.1", 0))
    client = Client(gateway, "hold-1", port=listening.getsockname()[1])
    inner, _ = listening.accept()
    with listening, inner, socket.create_connection(("127.0.0.1", gateway.port)) as outer:
        outer.sendall(inner.recv(65536))
        call = upstream.call(client.text)
        client.close()
        got = b""
        while b"output_text.delta" not in got:
            got += outer.recv(65536)
        assert not call.closed.is_set()
        outer.close()
        assert closed_after(call, time.monotonic()) < CLOSED_WITHIN_S


@pytest.mark.parametrize("size", [10, 300_000])
def test_a_disconnect_is_noticed_after_a_pipelined_request(
    gateway: RunningGateway, upstream: PacedUpstream, size: int
) -> None:
    client = Client(gateway, "hold-1").read(1)
    body = json.dumps({"model": "echo", "input": "x" * size}).encode()
    head = b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    client.socket.sendall(head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    closed_at = client.close()
    assert closed_after(upstream.call(client.text), closed_at) < CLOSED_WITHIN_S
    assert stored_status_and_text(gateway, client.id) == ("cancelled", "w0 ")


@pytest.mark.parametrize("api", ["responses", "anthropic"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_model_of_any_api_is_cancelled_before_its_first_event(
    upstream: PacedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, stream: bool
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-test")
    toml = f'[providers.up]\napi = "{api}"\nbase_url = "{upstream.url}"\nkey_env = "SOME_KEY"\n'
    with run_gateway(tmp_path / "served", toml=toml) as gateway:
        client = Client(gateway, "silent", stream=stream)
        with upstream.arrived:
            assert upstream.arrived.wait_for(lambda: any(client.text in str(one.body) for one in upstream.calls), 30)
        call = next(one for one in upstream.calls if client.text in str(one.body))
        closed_at = client.close()
        assert closed_after(call, closed_at) < CLOSED_WITHIN_S


# -- without a stream -----------------------------------------------------------------------------


@pytest.mark.parametrize("close", [Client.close, Client.reset])
def test_a_client_that_disconnects_from_an_unstreamed_request_cancels_it(
    gateway: RunningGateway, upstream: PacedUpstream, close: Callable[[Client], float]
) -> None:
    conversation_id = create_conversation(gateway)
    client = Client(gateway, "hold-2", conversation=conversation_id, stream=False)
    call = upstream.call(client.text)
    closed_at = close(client)

    assert closed_after(call, closed_at) < CLOSED_WITHIN_S
    assert conversation_messages(gateway, conversation_id) == [("user", client.text)]
    assert (
        gateway.create_response({"model": "echo", "input": "go on", "conversation": conversation_id}).status_code == 200
    )


# -- WebSocket ------------------------------------------------------------------------------------


@pytest.mark.parametrize("closing_handshake", [True, False])
def test_closing_a_websocket_cancels_its_turn(
    gateway: RunningGateway, upstream: PacedUpstream, closing_handshake: bool
) -> None:
    conversation_id, text = create_conversation(gateway), f"ask {next(numbers)}"
    with connect_client(gateway) as client:
        client.send(model="up/hold-2", input=text, conversation=conversation_id)
        events = [client.receive()]
        while sum(event["type"] == "response.output_text.delta" for event in events) < 2:
            events.append(client.receive())
        if not closing_handshake:
            client.socket.socket.shutdown(socket.SHUT_RDWR)
        closed_at = time.monotonic()

    assert closed_after(upstream.call(text), closed_at) < CLOSED_WITHIN_S
    assert conversation_messages(gateway, conversation_id) == [("user", text), ("assistant", "w0 w1 ")]
    assert stored_status_and_text(gateway, events[0]["response"]["id"]) == ("cancelled", "w0 w1 ")


# -- background, shutdown and compaction ----------------------------------------------------------


def test_a_background_response_continues_when_the_reader_of_its_stream_disconnects(
    gateway: RunningGateway, upstream: PacedUpstream
) -> None:
    client = Client(gateway, "words-20-5", background=True).read(1)
    client.close()
    assert upstream.call(client.text).closed.wait(HANG_S)
    stream_text = gateway.http.get(f"/v1/responses/{client.id}?stream=true").text
    assert "event: response.completed" in stream_text


def test_a_server_that_stops_appends_no_partial_answer(upstream: PacedUpstream, tmp_path: Path) -> None:
    """The client did not cause this: its conversation stays unchanged, and the client may retry."""
    url = f"sqlite:{tmp_path / 'convo.db'}"
    with run_gateway(tmp_path / "first", url, toml=upstream.settings, grace_s=0.1) as gateway:
        conversation_id = create_conversation(gateway)
        client = Client(gateway, "hold-2", conversation=conversation_id).read(2)
        gateway.shut_down()
        client.read_to_the_end()
        client.close()
    with run_gateway(tmp_path / "second", url, toml=upstream.settings) as gateway:
        assert conversation_messages(gateway, conversation_id) == []
        assert stored_status_and_text(gateway, client.id) == ("cancelled", "w0 w1 ")
    assert client.events[-1]["error"]["code"] == "server_shutting_down"


def test_a_client_that_disconnects_during_a_compaction_cancels_its_model(
    gateway: RunningGateway, upstream: PacedUpstream
) -> None:
    client = Client(gateway, "silent", path="/v1/responses/compact", stream=None)
    with upstream.arrived:
        assert upstream.arrived.wait_for(lambda: any(client.text in str(one.body) for one in upstream.calls), HANG_S)
        call = next(one for one in upstream.calls if client.text in str(one.body))
    closed_at = client.close()
    assert closed_after(call, closed_at) < CLOSED_WITHIN_S


# -- aborts under load ----------------------------------------------------------------------------


ABORT_METHODS = ("close", "half_close", "reset", "whole", "socket", "cut socket")
"""How a client under load disconnects. "whole" is a request without a stream; "socket" is a WebSocket."""


def abort_at_random(gateway: RunningGateway, upstream: PacedUpstream, count: int, concurrency: int) -> list[float]:
    """Abort requests under load and check each. Return the seconds until each upstream call closed, sorted."""
    rng, errors = random.Random(7), []
    durations: list[float] = []
    todo = iter(range(count))
    plans = [
        (ABORT_METHODS[index % len(ABORT_METHODS)], rng.randrange(30), rng.random() * 0.1) for index in range(count)
    ]

    def open_client(method: str, conversation_id: str) -> Client | SocketClient:
        if "socket" in method:
            return SocketClient(gateway, "words-60-3", conversation_id)
        return Client(gateway, "words-60-3", conversation=conversation_id, stream=method != "whole")

    def close(client: Client | SocketClient, method: str) -> float:
        if isinstance(client, SocketClient):
            return client.cut() if method == "cut socket" else client.close()
        return (
            client.half_close() if method == "half_close" else client.reset() if method == "reset" else client.close()
        )

    def abort_one(index: int) -> None:
        method, deltas, wait_s = plans[index]
        conversation_id = create_conversation(gateway)
        client = open_client(method, conversation_id)
        call = upstream.call(client.text)
        if method == "whole":
            time.sleep(wait_s)
        else:
            client.read(deltas)
        closed_at = close(client, method)
        durations.append(closed_after(call, closed_at))
        response = gateway.create_response({"model": "echo", "input": "go on", "conversation": conversation_id})
        assert response.status_code == 200, response.text
        messages = conversation_messages(gateway, conversation_id)
        assert messages[0] == ("user", client.text)
        assert messages[-2:] == [("user", "go on"), ("assistant", "go on")]
        answer = "".join(text for role, text in messages[1:-2] if role == "assistant")
        whole = "".join(f"w{n} " for n in range(60))
        if call.finished and answer == whole:
            return
        assert whole.startswith(answer)
        if method == "half_close":
            assert answer == client.output
        elif method == "whole":
            assert answer == ""
        else:
            assert answer.startswith(client.output)
            assert len(answer.split()) <= call.words
        if method != "whole":
            assert stored_status_and_text(gateway, client.id) == ("cancelled", answer)

    def worker() -> None:
        for index in todo:
            try:
                abort_one(index)
            except BaseException as error:
                errors.append(error)
                raise

    threads = [threading.Thread(target=worker) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert not gateway.unexpected_errors
    return sorted(durations)


def test_some_aborts_under_load_leave_no_lock_and_store_sent_output_only(
    gateway: RunningGateway, upstream: PacedUpstream
) -> None:
    durations = abort_at_random(gateway, upstream, 12, 4)
    assert durations[0] < TYPICALLY_CLOSED_WITHIN_S
    assert durations[-1] < CLOSED_WITHIN_S


def test_aborts_leave_a_store_that_passes_its_check(upstream: PacedUpstream, tmp_path: Path, convo: Convo) -> None:
    url = f"sqlite:{tmp_path / 'convo.db'}"
    with run_gateway(tmp_path / "served", url, toml=upstream.settings) as gateway:
        abort_at_random(gateway, upstream, 6, 3)
    result = convo("store", "check", "--store", url)
    assert result.exit == 0, result.out


@pytest.mark.full
@pytest.mark.parametrize(
    "kind", ["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))]
)
def test_a_hundred_random_aborts_under_load_leave_no_lock_and_store_sent_output_only(
    kind: str, upstream: PacedUpstream, tmp_path: Path, convo: Convo
) -> None:
    with ExitStack() as stack:
        url = kind
        if kind == "sqlite":
            url = f"sqlite:{tmp_path / 'convo.db'}"
        elif kind == "postgresql":
            url = stack.enter_context(databases.start_server()).url()
        with run_gateway(tmp_path / "served", url, toml=upstream.settings) as gateway:
            durations = abort_at_random(gateway, upstream, 102, 8)
        print(f"102 aborts, {kind}: upstream closed within {durations[-1] * 1000:.0f} ms at most")
        assert durations[-1] < CLOSED_WITHIN_S
        assert durations[51] < TYPICALLY_CLOSED_WITHIN_S
        if kind != "memory":
            assert convo("store", "check", "--store", url).exit == 0

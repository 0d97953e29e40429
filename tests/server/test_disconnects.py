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

CLOSED_WITHIN_S = 0.5


@pytest.fixture(scope="module")
def upstream() -> Iterator[PacedUpstream]:
    with run_paced_upstream() as running:
        yield running


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def shop(
    request: pytest.FixtureRequest, upstream: PacedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway in front of the paced server, over each local store."""
    folder = tmp_path_factory.mktemp("shop")
    url = "memory" if request.param == "memory" else f"sqlite:{folder / 'convo.db'}"
    with run_gateway(folder / "served", url, toml=upstream.settings) as running:
        yield running


numbers = iter(range(1, 10**9))


class Client:
    """One request on its own socket, read event by event."""

    def __init__(
        self, served: RunningGateway, model: str, *, path: str = "/v1/responses", port: int = 0, **body: Any
    ) -> None:
        self.text = f"ask {next(numbers)}"
        self.socket = socket.create_connection(("127.0.0.1", port or served.port))
        asked = {"model": f"up/{model}", "input": self.text, "stream": True, **body}
        sent = json.dumps({name: value for name, value in asked.items() if value is not None}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        self.socket.sendall(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(sent), sent))
        self.got = b""

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that have arrived completely."""
        whole = self.got.rpartition(b"\n\n")[0]
        return [json.loads(line[6:]) for line in whole.split(b"\n") if line.startswith(b"data: {")]

    @property
    def id(self) -> str:
        return str(self.events[0]["response"]["id"])

    @property
    def seen(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "response.output_text.delta")

    def read(self, deltas: int) -> "Client":
        """Read until this number of text deltas has arrived; with 0, until the first event."""
        while not self.events or sum("output_text.delta" in event["type"] for event in self.events) < deltas:
            piece = self.socket.recv(65536)
            assert piece
            self.got += piece
        return self

    def read_to_the_end(self) -> None:
        while piece := self.socket.recv(65536):
            self.got += piece

    def close(self) -> float:
        self.socket.close()
        return time.monotonic()

    def half_close(self) -> float:
        """Close the sending half of the connection, and read the rest of the response."""
        self.socket.shutdown(socket.SHUT_WR)
        closed = time.monotonic()
        self.read_to_the_end()
        self.socket.close()
        return closed

    def reset(self) -> float:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return self.close()


class SocketClient:
    """One turn on its own WebSocket, read event by event."""

    def __init__(self, served: RunningGateway, model: str, conversation: str) -> None:
        self.text = f"ask {next(numbers)}"
        self.events: list[dict[str, Any]] = []
        self._open = ExitStack()
        self._talk = self._open.enter_context(connect_client(served))
        self._talk.send(model=f"up/{model}", input=self.text, conversation=conversation)

    @property
    def id(self) -> str:
        return str(self.events[0]["response"]["id"])

    @property
    def seen(self) -> str:
        return "".join(event["delta"] for event in self.events if event["type"] == "response.output_text.delta")

    def read(self, deltas: int) -> None:
        while not self.events or sum("output_text.delta" in event["type"] for event in self.events) < deltas:
            self.events.append(self._talk.receive())

    def close(self) -> float:
        """Close the WebSocket with a closing handshake."""
        left = time.monotonic()
        self._open.close()
        return left

    def cut(self) -> float:
        """Close the TCP connection without a closing handshake."""
        self._talk.socket.socket.shutdown(socket.SHUT_RDWR)
        return self.close()


CLOSINGS: list[Callable[[Client], float]] = [Client.close, Client.half_close, Client.reset]


def closed_after(call: Call, since: float) -> float:
    assert call.closed.wait(5), "the upstream connection stayed open"
    assert call.closed_at is not None
    return call.closed_at - since


def conversation(served: RunningGateway) -> str:
    return str(served.http.post("/v1/conversations").json()["id"])


def items(served: RunningGateway, conversation_id: str) -> list[tuple[str, str]]:
    listed = served.http.get(f"/v1/conversations/{conversation_id}/items?order=asc").json()["data"]
    return [(item["role"], item["content"][0]["text"]) for item in listed]


def kept(served: RunningGateway, response_id: str) -> tuple[str, str]:
    """Return the status and the text of a stored response. Fails if the response is not stored yet."""
    got = served.http.get(f"/v1/responses/{response_id}")
    assert got.status_code == 200, got.text
    response = got.json()
    return response["status"], "".join(part["text"] for item in response["output"] for part in item["content"])


# -- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", CLOSINGS)
def test_a_client_that_closes_a_stream_cancels_it_at_once(
    shop: RunningGateway, upstream: PacedUpstream, leave: Callable[[Client], float]
) -> None:
    client = Client(shop, "hold-3").read(3)
    left = leave(client)

    assert closed_after(upstream.call(client.text), left) < CLOSED_WITHIN_S
    assert kept(shop, client.id) == ("cancelled", "w0 w1 w2 ")
    assert not shop.unexpected_errors


def test_the_stored_output_equals_the_sent_output(shop: RunningGateway, upstream: PacedUpstream) -> None:
    """The client closes only its sending half, so it reads everything that the server sends."""
    client = Client(shop, "words-400-1").read(5)
    client.half_close()
    assert kept(shop, client.id) == ("cancelled", client.seen)
    assert 0 < len(client.seen.split()) < 400


def test_a_conversation_stores_the_input_and_the_sent_output_and_is_unlocked_at_once(
    shop: RunningGateway, upstream: PacedUpstream
) -> None:
    made = conversation(shop)
    client = Client(shop, "hold-2", conversation=made).read(2)
    client.close()
    went_on = shop.ask({"model": "echo", "input": "go on", "conversation": made})

    assert went_on.status_code == 200, went_on.text
    said = [("user", client.text), ("assistant", "w0 w1 "), ("user", "go on"), ("assistant", "go on")]
    assert items(shop, made) == said


def test_a_chain_continues_from_a_cancelled_response_at_once(shop: RunningGateway, upstream: PacedUpstream) -> None:
    client = Client(shop, "hold-1").read(1)
    client.close()
    text = f"and then {next(numbers)}"
    after = shop.ask({"model": "up/burst-1", "input": text, "previous_response_id": client.id})

    assert after.status_code == 200, after.text
    messages = [(said["role"], said["content"]) for said in upstream.call(text).body["messages"]]
    assert messages == [("user", client.text), ("assistant", "w0 "), ("user", text)]


def test_a_client_that_disconnects_before_the_first_event_cancels_the_request(
    shop: RunningGateway, upstream: PacedUpstream
) -> None:
    made = conversation(shop)
    client = Client(shop, "silent", conversation=made)
    call = upstream.call(client.text)
    left = client.close()

    assert closed_after(call, left) < CLOSED_WITHIN_S
    assert items(shop, made) == [("user", client.text)]
    assert shop.ask({"model": "echo", "input": "go on", "conversation": made}).status_code == 200


def test_without_store_a_disconnect_cancels_the_request_and_stores_nothing(
    shop: RunningGateway, upstream: PacedUpstream
) -> None:
    client = Client(shop, "hold-1", store=False).read(1)
    left = client.close()
    assert closed_after(upstream.call(client.text), left) < CLOSED_WITHIN_S
    assert shop.http.get(f"/v1/responses/{client.id}").status_code == 404


def test_without_store_a_conversation_still_gets_its_turn(shop: RunningGateway, upstream: PacedUpstream) -> None:
    made = conversation(shop)
    client = Client(shop, "hold-1", store=False, conversation=made).read(1)
    client.close()
    assert items(shop, made) == [("user", client.text), ("assistant", "w0 ")]


def test_a_partial_function_call_is_not_appended(shop: RunningGateway, upstream: PacedUpstream) -> None:
    made = conversation(shop)
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    client = Client(shop, "call", conversation=made, tools=tools).read(0)
    client.close()

    assert items(shop, made) == [("user", client.text)]
    assert shop.ask({"model": "echo", "input": "go on", "conversation": made}).status_code == 200


def test_an_answer_that_the_model_finished_is_stored_completely(shop: RunningGateway, upstream: PacedUpstream) -> None:
    """The client stops reading after the first events; the server has received the whole answer by then."""
    made = conversation(shop)
    client = Client(shop, "burst-40", conversation=made)
    call = upstream.call(client.text)
    assert call.closed.wait(5)
    client.read(1)
    shop.run(let_the_server_read())
    client.close()
    assert items(shop, made) == [("user", client.text), ("assistant", "".join(f"w{n} " for n in range(40)))]


async def let_the_server_read() -> None:
    """Run 200 iterations of the server's event loop, so that it reads the bytes that have arrived at its sockets."""
    for _ in range(200):
        await asyncio.sleep(0)


def test_a_client_whose_connection_closes_late_cancels_late(shop: RunningGateway, upstream: PacedUpstream) -> None:
    """A proxy between client and server closes its own connection later than the client."""
    listening = socket.create_server(("127.0.0.1", 0))
    client = Client(shop, "hold-1", port=listening.getsockname()[1])
    inner, _ = listening.accept()
    with listening, inner, socket.create_connection(("127.0.0.1", shop.port)) as outer:
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
    shop: RunningGateway, upstream: PacedUpstream, size: int
) -> None:
    client = Client(shop, "hold-1").read(1)
    body = json.dumps({"model": "echo", "input": "x" * size}).encode()
    head = b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    client.socket.sendall(head + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    left = client.close()
    assert closed_after(upstream.call(client.text), left) < CLOSED_WITHIN_S
    assert kept(shop, client.id) == ("cancelled", "w0 ")


@pytest.mark.parametrize("api", ["responses", "anthropic"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_model_of_any_api_is_cancelled_before_its_first_event(
    upstream: PacedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str, stream: bool
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-test")
    toml = f'[providers.up]\napi = "{api}"\nbase_url = "{upstream.url}"\nkey_env = "SOME_KEY"\n'
    with run_gateway(tmp_path / "served", toml=toml) as served:
        client = Client(served, "silent", stream=stream)
        with upstream.arrived:
            assert upstream.arrived.wait_for(lambda: any(client.text in str(one.body) for one in upstream.calls), 30)
        call = next(one for one in upstream.calls if client.text in str(one.body))
        left = client.close()
        assert closed_after(call, left) < CLOSED_WITHIN_S


# -- without a stream -----------------------------------------------------------------------------


@pytest.mark.parametrize("leave", [Client.close, Client.reset])
def test_a_client_that_disconnects_from_an_unstreamed_request_cancels_it(
    shop: RunningGateway, upstream: PacedUpstream, leave: Callable[[Client], float]
) -> None:
    made = conversation(shop)
    client = Client(shop, "hold-2", conversation=made, stream=False)
    call = upstream.call(client.text)
    left = leave(client)

    assert closed_after(call, left) < CLOSED_WITHIN_S
    assert items(shop, made) == [("user", client.text)]
    assert shop.ask({"model": "echo", "input": "go on", "conversation": made}).status_code == 200


# -- WebSocket ------------------------------------------------------------------------------------


@pytest.mark.parametrize("politely", [True, False])
def test_closing_a_websocket_cancels_its_turn(shop: RunningGateway, upstream: PacedUpstream, politely: bool) -> None:
    made, text = conversation(shop), f"ask {next(numbers)}"
    with connect_client(shop) as client:
        client.send(model="up/hold-2", input=text, conversation=made)
        heard = [client.receive()]
        while sum(event["type"] == "response.output_text.delta" for event in heard) < 2:
            heard.append(client.receive())
        if not politely:
            client.socket.socket.shutdown(socket.SHUT_RDWR)
        left = time.monotonic()

    assert closed_after(upstream.call(text), left) < CLOSED_WITHIN_S
    assert items(shop, made) == [("user", text), ("assistant", "w0 w1 ")]
    assert kept(shop, heard[0]["response"]["id"]) == ("cancelled", "w0 w1 ")


# -- background, shutdown and compaction ----------------------------------------------------------


def test_a_background_response_continues_when_the_reader_of_its_stream_disconnects(
    shop: RunningGateway, upstream: PacedUpstream
) -> None:
    client = Client(shop, "words-20-5", background=True).read(1)
    client.close()
    assert upstream.call(client.text).closed.wait(5)
    followed = shop.http.get(f"/v1/responses/{client.id}?stream=true").text
    assert "event: response.completed" in followed


def test_a_server_that_stops_appends_no_partial_answer(upstream: PacedUpstream, tmp_path: Path) -> None:
    """The client did not cause this: its conversation stays unchanged, and the client may retry."""
    url = f"sqlite:{tmp_path / 'convo.db'}"
    with run_gateway(tmp_path / "first", url, toml=upstream.settings, grace_s=0.1) as served:
        made = conversation(served)
        client = Client(served, "hold-2", conversation=made).read(2)
        served.end()
        client.read_to_the_end()
        client.close()
    with run_gateway(tmp_path / "second", url, toml=upstream.settings) as served:
        assert items(served, made) == []
        assert kept(served, client.id) == ("cancelled", "w0 w1 ")
    assert client.events[-1]["error"]["code"] == "server_shutting_down"


def test_a_client_that_disconnects_during_a_compaction_cancels_its_model(
    shop: RunningGateway, upstream: PacedUpstream
) -> None:
    client = Client(shop, "silent", path="/v1/responses/compact", stream=None)
    with upstream.arrived:
        assert upstream.arrived.wait_for(lambda: any(client.text in str(one.body) for one in upstream.calls), 30)
        call = next(one for one in upstream.calls if client.text in str(one.body))
    left = client.close()
    assert closed_after(call, left) < CLOSED_WITHIN_S


# -- aborts under load ----------------------------------------------------------------------------


HOW = ("close", "half_close", "reset", "whole", "socket", "cut socket")
"""How a client under load disconnects. "whole" is a request without a stream; "socket" is a WebSocket."""


def abort_at_random(served: RunningGateway, upstream: PacedUpstream, count: int, at_once: int) -> float:
    """Abort requests under load and check each. Return the longest time in seconds until an upstream call closed."""
    chance, faults = random.Random(7), []
    slowest = [0.0]
    todo = iter(range(count))
    plans = [(HOW[at % len(HOW)], chance.randrange(30), chance.random() * 0.1) for at in range(count)]

    def begin(how: str, made: str) -> Client | SocketClient:
        if "socket" in how:
            return SocketClient(served, "words-60-3", made)
        return Client(served, "words-60-3", conversation=made, stream=how != "whole")

    def leave(client: Client | SocketClient, how: str) -> float:
        if isinstance(client, SocketClient):
            return client.cut() if how == "cut socket" else client.close()
        return client.half_close() if how == "half_close" else client.reset() if how == "reset" else client.close()

    def one(number: int) -> None:
        how, deltas, wait_s = plans[number]
        made = conversation(served)
        client = begin(how, made)
        call = upstream.call(client.text)
        if how == "whole":
            time.sleep(wait_s)
        else:
            client.read(deltas)
        left = leave(client, how)
        slowest[0] = max(slowest[0], closed_after(call, left))
        went_on = served.ask({"model": "echo", "input": "go on", "conversation": made})
        assert went_on.status_code == 200, went_on.text
        said = items(served, made)
        assert said[0] == ("user", client.text)
        assert said[-2:] == [("user", "go on"), ("assistant", "go on")]
        answer = "".join(words for role, words in said[1:-2] if role == "assistant")
        whole = "".join(f"w{n} " for n in range(60))
        if call.finished and answer == whole:
            return
        assert whole.startswith(answer)
        if how == "half_close":
            assert answer == client.seen
        elif how == "whole":
            assert answer == ""
        else:
            assert answer.startswith(client.seen)
            assert len(answer.split()) <= call.words
        if how != "whole":
            assert kept(served, client.id) == ("cancelled", answer)

    def work() -> None:
        for number in todo:
            try:
                one(number)
            except BaseException as fault:
                faults.append(fault)
                raise

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert not served.unexpected_errors
    return slowest[0]


def test_some_aborts_under_load_leave_no_lock_and_store_sent_output_only(
    shop: RunningGateway, upstream: PacedUpstream
) -> None:
    assert abort_at_random(shop, upstream, 12, 4) < CLOSED_WITHIN_S


def test_aborts_leave_a_store_that_passes_its_check(upstream: PacedUpstream, tmp_path: Path, convo: Convo) -> None:
    url = f"sqlite:{tmp_path / 'convo.db'}"
    with run_gateway(tmp_path / "served", url, toml=upstream.settings) as served:
        abort_at_random(served, upstream, 6, 3)
    checked = convo("store", "check", "--store", url)
    assert checked.exit == 0, checked.out


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
        with run_gateway(tmp_path / "served", url, toml=upstream.settings) as served:
            slowest = abort_at_random(served, upstream, 102, 8)
        print(f"102 aborts, {kind}: upstream closed within {slowest * 1000:.0f} ms at most")
        assert slowest < CLOSED_WITHIN_S
        if kind != "memory":
            assert convo("store", "check", "--store", url).exit == 0

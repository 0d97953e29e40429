"""Steering over a WebSocket: user input for a response that runs, with real clients and three kinds of upstream."""

import asyncio
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from starlette.types import Receive, Send

from convo.runtime import random_id
from convo.server.steering import MAX_ENDED_RESPONSES, ConnectionSteering, SteerLimits, TurnMessage
from convo.server.websocket import WebSocketLimits
from tests import databases
from tests.cli.serve_process import config_flags, run_serve
from tests.models.chat_server import (
    ChatServer,
    delta,
    event,
    finish,
    run_chat_server,
    send_head,
    send_piece,
    usage_fields,
)
from tests.models.chat_server import tool as call_delta
from tests.models.messages_events import message_events, text
from tests.models.messages_events import start as claude_start
from tests.models.messages_events import tool as tool_use
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway
from tests.server.test_recording import wait_for_rows
from tests.server.websocket_client import ManualClock, WebSocketClient, connect_client, response_text

PROVIDERS = """
[providers.chat]
api = "chat"
base_url = "{url}"
[providers.claude]
api = "anthropic"
base_url = "{url}"
[providers.native]
api = "responses"
base_url = "{url}"
"""
STEER = "Shorter, please."
KINDS = ("chat", "claude", "native")


class Gate:
    """A point of an upstream's answer that a test opens; `reached` is set when the answer waits there."""

    def __init__(self) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()

    async def wait(self) -> None:
        self.reached.set()
        assert await asyncio.to_thread(self.opened.wait, 30)


def stream_gated(upstream: ChatServer, *parts: Any) -> None:
    """Answer with chunks; at a gate the answer waits until the test opens it."""

    async def answer(receive: Receive, send: Send) -> None:
        await send_head(send, 200, "text/event-stream")
        for part in parts:
            if isinstance(part, Gate):
                await part.wait()
            else:
                await send_piece(send, part if isinstance(part, bytes) else event(part))
        await send_piece(send, b"data: [DONE]\n\n", more=False)

    upstream.answers.append(answer)


def native_message(words: str, number: int = 1) -> dict[str, Any]:
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}


def native_events(*items: dict[str, Any]) -> list[Any]:
    """Return the events of a native answer; each message is streamed in one delta."""
    shown = {"id": "resp_theirs", "status": "in_progress", "output": []}
    events: list[Any] = [{"type": "response.created", "response": shown}]
    for index, item in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}})
        if item["type"] == "message":
            words = {"type": "response.output_text.delta", "output_index": index, "content_index": 0}
            events.append({**words, "item_id": item["id"], "delta": item["content"][0]["text"], "logprobs": []})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    usage = {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15}
    return [*events, {"type": "response.completed", "response": {"output": list(items), "usage": usage}}]


def answer_parts(kind: str, words: str, gate: Gate | None = None) -> list[Any]:
    """Return the chunks of an answer; the gate is after its first text."""
    if kind == "chat":
        parts: list[Any] = [delta(content=words), finish("stop"), usage_fields()]
    elif kind == "claude":
        parts = message_events(text(0, words))
    else:
        parts = native_events(native_message(words))
    if gate is not None:
        first_text = next(
            index
            for index, part in enumerate(parts)
            if words in (part if isinstance(part, bytes) else event(part)).decode()
        )
        parts.insert(first_text + 1, gate)
    return parts


@pytest.fixture
def upstream() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


@pytest.fixture
def gateway(serve: Serve, upstream: ChatServer) -> RunningGateway:
    return serve(toml=PROVIDERS.format(url=upstream.url))


def receive_until(client: WebSocketClient, kind: str, count: int = 1) -> list[dict[str, Any]]:
    """Receive events up to the event `kind`, which occurs `count` times."""
    events: list[dict[str, Any]] = []
    while sum(received["type"] == kind for received in events) < count:
        events.append(client.receive())
    return events


def receive_to_end(client: WebSocketClient, count: int = 1) -> list[dict[str, Any]]:
    """Receive events up to the end of `count` responses."""
    events: list[dict[str, Any]] = []
    ends = ("response.completed", "response.incomplete", "response.failed", "error")
    while sum(received["type"] in ends for received in events) < count:
        events.append(client.receive())
    return events


def steer(client: WebSocketClient, response_id: str, steer_input: Any = STEER, **more: Any) -> None:
    client.send({"type": "response.steer", "previous_response_id": response_id, "input": steer_input, **more})


def start_and_steer(
    client: WebSocketClient, gate: Gate, model: str, *inputs: Any, **body: Any
) -> tuple[str, list[dict[str, Any]]]:
    """Start a response, steer it while it waits at the gate, then open the gate; return its id and the events."""
    client.send(model=model, input="Write a poem.", **body)
    events = receive_until(client, "response.created")
    response_id = events[0]["response"]["id"]
    assert gate.reached.wait(30)
    for steer_input in inputs or (STEER,):
        steer(client, response_id, steer_input)
    events += receive_until(client, "response.steer.accepted", len(inputs) or 1)
    gate.opened.set()
    return response_id, events


def user_texts(body: Any) -> list[str]:
    """Return the texts of the user in a request to an upstream of any kind."""
    messages = body.get("messages") or body.get("input") or ()
    texts = []
    for message in messages:
        if message.get("role") == "user":
            content = message["content"]
            texts.append(content if isinstance(content, str) else "".join(part.get("text", "") for part in content))
    return texts


def stored_texts(gateway: RunningGateway, response_id: str) -> list[str]:
    """Return the texts of a response's stored input, oldest first."""
    page = gateway.http.get(f"/v1/responses/{response_id}/input_items", params={"order": "asc"}).json()
    return ["".join(part["text"] for part in item.get("content", ())) for item in page["data"]]


# -- what happens ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def test_a_steered_text_is_finished_and_continued_with_the_input(
    serve: Serve, upstream: ChatServer, tmp_path: Path, kind: str, database: str
) -> None:
    url = f"sqlite:{tmp_path / 'convo.db'}" if database == "sqlite" else databases.new_database()
    gateway, gate = serve(url, toml=PROVIDERS.format(url=upstream.url)), Gate()
    stream_gated(upstream, *answer_parts(kind, "A long poem.", gate))
    stream_gated(upstream, *answer_parts(kind, "Short."))
    stream_gated(upstream, *answer_parts(kind, "Thanks."))
    with connect_client(gateway) as client:
        first, events = start_and_steer(client, gate, f"{kind}/any", metadata={"a": "b"}, temperature=0.5)
        events += receive_to_end(client, 2)
        second = events[-1]["response"]
        third = client.turn(model=f"{kind}/any", input="And now?", previous_response_id=second["id"])

    accepted = next(received for received in events if received["type"] == "response.steer.accepted")
    assert accepted["steer"] == {"id": accepted["steer"]["id"], "previous_response_id": first}
    assert accepted["steer"]["id"].startswith("steer_")
    ends = [received["response"] for received in events if received["type"] == "response.completed"]
    assert [response_text(response) for response in ends] == ["A long poem.", "Short."]
    assert (second["previous_response_id"], second["metadata"], second["temperature"]) == (first, {"a": "b"}, 0.5)
    second_start = next(
        index for index, received in enumerate(events) if index and received["type"] == "response.created"
    )
    numbers = [received["sequence_number"] for received in events]
    assert numbers == [*range(second_start), *range(len(events) - second_start)]

    assert stored_texts(gateway, second["id"]) == ["Write a poem.", "A long poem.", STEER]
    assert stored_texts(gateway, third["id"]) == ["Write a poem.", "A long poem.", STEER, "Short.", "And now?"]
    assert gateway.http.get(f"/v1/responses/{second['id']}").json() == second
    assert [user_texts(request.json) for request in upstream.requests] == [
        ["Write a poem."],
        ["Write a poem.", STEER],
        ["Write a poem.", STEER, "And now?"],
    ]
    assert upstream.requests[1].json["temperature"] == 0.5
    page = gateway.http.get(f"/inspect/api/conversations/{second['id']}").text
    assert STEER in page
    assert gateway.unexpected_errors == []


@pytest.mark.parametrize("kind", ["chat", "claude"])
def test_a_steered_response_ends_before_its_next_item(gateway: RunningGateway, upstream: ChatServer, kind: str) -> None:
    """The call that the model was about to make is not in the output, and the request to the model is closed."""
    gate, closed = Gate(), threading.Event()
    if kind == "chat":
        before = [event(delta(content="I look."))]
        after = [event(call_delta(0, call_id="call_1", name="look", arguments="{}"))]
    else:
        before, after = [claude_start(), *text(0, "I look.")], tool_use(1, "toolu_1", "look", "{}")

    async def answer(receive: Receive, send: Send) -> None:
        await send_head(send, 200, "text/event-stream")
        for piece in before:
            await send_piece(send, piece)
        await gate.wait()
        for piece in after:
            await send_piece(send, piece)
        while (await receive())["type"] != "http.disconnect":
            pass
        closed.set()

    upstream.answers.append(answer)
    stream_gated(upstream, *answer_parts(kind, "Fine."))
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    with connect_client(gateway) as client:
        first, events = start_and_steer(client, gate, f"{kind}/any", tools=[tool])
        events += receive_to_end(client, 2)

    assert closed.wait(30)
    steered = next(received["response"] for received in events if received["type"] == "response.incomplete")
    assert (steered["id"], steered["status"]) == (first, "incomplete")
    assert steered["incomplete_details"] == {"reason": "steered"}
    assert [item["type"] for item in steered["output"]] == ["message"]
    assert gateway.http.get(f"/v1/responses/{first}").json() == steered
    last = events[-1]["response"]
    assert (last["status"], response_text(last), last["previous_response_id"]) == ("completed", "Fine.", first)
    assert [tool["name"] for tool in last["tools"]] == ["look"]
    assert stored_texts(gateway, last["id"]) == ["Write a poem.", "I look.", STEER]
    assert user_texts(upstream.requests[1].json) == ["Write a poem.", STEER]


def test_a_native_server_is_stopped_between_the_items_of_its_own_tools(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    gate = Gate()
    events = native_events(search, native_message("Found.", 2))
    stream_gated(upstream, *events[:2], gate, *events[2:])
    stream_gated(upstream, *answer_parts("native", "Fine."))
    with connect_client(gateway) as client:
        _, received = start_and_steer(client, gate, "native/any", tools=[{"type": "web_search"}])
        received += receive_to_end(client, 2)

    steered = next(one["response"] for one in received if one["type"] == "response.incomplete")
    assert [item["type"] for item in steered["output"]] == ["web_search_call"]
    assert response_text(received[-1]["response"]) == "Fine."
    sent = upstream.requests[1].json["input"]
    assert [item.get("type") for item in sent] == ["message", "web_search_call", "message"]


def test_a_native_server_is_not_stopped_before_the_output_of_its_program(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    program = {"type": "program", "id": "prog_1", "call_id": "call_p", "code": "1 + 1", "fingerprint": "f"}
    output = {"type": "program_output", "id": "out_1", "call_id": "call_p", "result": "2", "status": "completed"}
    gate = Gate()
    events = native_events(program, output, native_message("Two.", 2))
    stream_gated(upstream, *events[:2], gate, *events[2:])
    stream_gated(upstream, *answer_parts("native", "Fine."))
    with connect_client(gateway) as client:
        _, received = start_and_steer(client, gate, "native/any", tools=[{"type": "programmatic_tool_calling"}])
        received += receive_to_end(client, 2)

    steered = next(one["response"] for one in received if one["type"] == "response.incomplete")
    assert [item["type"] for item in steered["output"]] == ["program", "program_output"]


def test_a_response_does_not_end_between_reasoning_and_its_message(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    gate = Gate()
    stream_gated(upstream, delta(reasoning_content="Hm."), gate, delta(content="Yes."), finish("stop"), usage_fields())
    stream_gated(upstream, *answer_parts("chat", "Fine."))
    with connect_client(gateway) as client:
        _, events = start_and_steer(client, gate, "chat/any")
        events += receive_to_end(client, 2)

    ends = [received["response"] for received in events if received["type"] == "response.completed"]
    assert [[item["type"] for item in response["output"]] for response in ends] == [
        ["reasoning", "message"],
        ["message"],
    ]


def test_several_inputs_are_committed_in_their_order(gateway: RunningGateway, upstream: ChatServer) -> None:
    gate = Gate()
    stream_gated(upstream, *answer_parts("chat", "A long poem.", gate))
    stream_gated(upstream, *answer_parts("chat", "Short."))
    parts = [{"type": "input_text", "text": "and "}, {"type": "input_text", "text": "in prose"}]
    with connect_client(gateway) as client:
        inputs = ["short", [{"role": "user", "content": parts}, {"type": "message", "role": "user", "content": "now"}]]
        _, events = start_and_steer(client, gate, "chat/any", *inputs)
        events += receive_to_end(client, 2)

    accepted = [one["steer"]["id"] for one in events if one["type"] == "response.steer.accepted"]
    assert len(set(accepted)) == 2
    last = events[-1]["response"]
    assert stored_texts(gateway, last["id"])[2:] == ["short", "and in prose", "now"]


def test_a_successor_can_be_steered_by_its_own_id(gateway: RunningGateway, upstream: ChatServer) -> None:
    gates = [Gate(), Gate()]
    for gate, words in zip(gates, ("One.", "Two."), strict=True):
        stream_gated(upstream, *answer_parts("chat", words, gate))
    stream_gated(upstream, *answer_parts("chat", "Three."))
    with connect_client(gateway) as client:
        first, _ = start_and_steer(client, gates[0], "chat/any", "first")
        second = receive_until(client, "response.created")[-1]["response"]["id"]
        assert gates[1].reached.wait(30)
        steer(client, first, "late")
        steer(client, second, "second")
        late = receive_until(client, "response.steer.accepted")[-2]
        gates[1].opened.set()
        last = receive_to_end(client, 2)[-1]["response"]

    assert (late["error"]["code"], late["steer"]["input"]) == ("response_already_completed", "late")
    assert last["previous_response_id"] == second
    assert stored_texts(gateway, last["id"]) == ["Write a poem.", "One.", "first", "Two.", "second"]


def test_a_recorded_chain_has_the_input_once(serve: Serve, upstream: ChatServer) -> None:
    """With `serve.record` the inspector shows it like a stored one."""
    gateway, gate = serve(toml=PROVIDERS.format(url=upstream.url), record=True), Gate()
    stream_gated(upstream, *answer_parts("chat", "A long poem.", gate))
    stream_gated(upstream, *answer_parts("chat", "Short."))
    with connect_client(gateway) as client:
        start_and_steer(client, gate, "chat/any", store=False)
        receive_to_end(client, 2)
    second, first = wait_for_rows(gateway, lambda data: [row["status"] for row in data] == ["completed"] * 2)
    view = gateway.http.get(f"/inspect/api/conversations/{second['session']}").json()
    assert [link["parent"] for link in view["links"]] == [None, first["id"]]
    assert view["items_at_head"] == 4
    assert json.dumps(view).count(STEER) == json.dumps(view).count("Write a poem.")
    assert second["session"] == first["session"]


@pytest.mark.parametrize("stateless", [False, True])
def test_a_chain_that_is_not_stored_is_steered_on_its_connection(
    serve: Serve, upstream: ChatServer, stateless: bool
) -> None:
    toml = PROVIDERS.format(url=upstream.url)
    gateway, gate = serve(toml=f'{toml}[state_storage]\ntype = "none"\n' if stateless else toml), Gate()
    stream_gated(upstream, *answer_parts("chat", "A long poem.", gate))
    stream_gated(upstream, *answer_parts("chat", "Short."))
    stream_gated(upstream, *answer_parts("chat", "Thanks."))
    with connect_client(gateway) as client:
        first, events = start_and_steer(client, gate, "chat/any", store=False, stream_id="left")
        events += receive_to_end(client, 2)
        second = events[-1]["response"]
        third = client.turn(
            model="chat/any", input="And now?", store=False, previous_response_id=second["id"], stream_id="left"
        )

    assert {received["stream_id"] for received in events} == {"left"}
    assert (second["previous_response_id"], second["store"]) == (first, False)
    assert response_text(third) == "Thanks."
    assert user_texts(upstream.requests[2].json) == ["Write a poem.", STEER, "And now?"]
    assert gateway.http.get(f"/v1/responses/{first}").status_code in (400, 404)


# -- input that the client has to send first -------------------------------------------------------

CALL = [call_delta(0, call_id="call_1", name="look", arguments='{"at": "it"}'), finish("tool_calls"), usage_fields()]
TOOLS = [
    {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}},
    {"type": "custom", "name": "free"},
]
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "seen"}


def start_call(upstream: ChatServer, *calls: dict[str, Any]) -> Gate:
    gate = Gate()
    stream_gated(upstream, delta(reasoning_content="Hm."), gate, *(calls or CALL[:1]), *CALL[1:])
    stream_gated(upstream, *answer_parts("chat", "Fine."))
    return gate


def test_input_waits_for_the_output_of_a_call_and_is_sent_before_it(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    custom = call_delta(1, call_id="call_2", name="free", arguments='{"input": "text"}')
    gate = start_call(upstream, CALL[0], custom)
    stream_gated(upstream, *answer_parts("chat", "Fine again."))
    with connect_client(gateway) as client:
        first, events = start_and_steer(client, gate, "chat/any", "one", "two", tools=TOOLS)
        events += receive_until(client, "response.steer.pending", 2)
        refused = client.turn(model="chat/any", input=[OUTPUT], previous_response_id=first, tools=TOOLS)
        outputs = [OUTPUT, {"type": "custom_tool_call_output", "call_id": "call_2", "output": "ok"}]
        last = client.turn(model="chat/any", input=outputs, previous_response_id=first, tools=TOOLS, temperature=0.2)
        again = client.turn(model="chat/any", input=outputs, previous_response_id=first, tools=TOOLS)

    pending = [received for received in events if received["type"] == "response.steer.pending"]
    assert [received["type"] for received in events].index("response.completed") < events.index(pending[0])
    assert [received["sequence_number"] for received in events] == list(range(len(events)))
    assert all(received["reason"] == "waiting_for_required_input" for received in pending)
    assert pending[0]["required_input"] == pending[1]["required_input"]
    assert pending[0]["required_input"] == [
        {"type": "function_call_output", "call_id": "call_1", "name": "look"},
        {"type": "custom_tool_call_output", "call_id": "call_2"},
    ]
    assert "No tool output found" in refused["error"]["message"]
    assert (response_text(last), last["temperature"]) == ("Fine.", 0.2)
    page = gateway.http.get(f"/v1/responses/{last['id']}/input_items", params={"order": "asc"}).json()["data"]
    shown = [item["type"] for item in page]
    assert shown[-4:] == ["message", "message", "function_call_output", "custom_tool_call_output"]
    sent = upstream.requests[1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert user_texts(upstream.requests[1].json) == ["Write a poem.", "one", "two"]
    assert response_text(again) == "Fine again."
    assert user_texts(upstream.requests[2].json) == ["Write a poem."]  # the queued input was used once


def test_no_pending_event_is_sent_if_the_output_has_already_arrived(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    gate = start_call(upstream)
    with connect_client(gateway) as client:
        client.send(model="chat/any", input="Look.", tools=TOOLS)
        first = receive_until(client, "response.created")[0]["response"]["id"]
        assert gate.reached.wait(30)
        steer(client, first)
        receive_until(client, "response.steer.accepted")
        client.send(model="chat/any", input=[OUTPUT], previous_response_id=first, tools=TOOLS)
        client.send({"type": "nothing"})  # refused after the messages before it are queued
        gate.opened.set()
        events = receive_to_end(client, 3)

    assert "response.steer.pending" not in [received["type"] for received in events]
    assert user_texts(upstream.requests[1].json) == ["Look.", STEER]


def test_queued_input_stays_on_its_stream(gateway: RunningGateway, upstream: ChatServer) -> None:
    gate = start_call(upstream)
    stream_gated(upstream, *answer_parts("chat", "Fine."))
    with connect_client(gateway) as client:
        first, _ = start_and_steer(client, gate, "chat/any", tools=TOOLS, stream_id="left")
        pending = receive_until(client, "response.steer.pending")[-1]
        for stream_id in ("right", "left"):
            client.turn(model="chat/any", input=[OUTPUT], previous_response_id=first, tools=TOOLS, stream_id=stream_id)

    assert pending["stream_id"] == "left"
    assert [user_texts(request.json) for request in upstream.requests[1:]] == [
        ["Write a poem."],
        ["Write a poem.", STEER],
    ]


@pytest.mark.needs("mcp")
@pytest.mark.parametrize("moment", ["calls", "next request"])
def test_an_mcp_loop_ends_after_its_calls(serve: Serve, upstream: ChatServer, moment: str) -> None:
    from tests.mcp_server import run_mcp_server

    gate = Gate()
    call = call_delta(0, call_id="call_1", name="mcp__math__add", arguments='{"a": 2, "b": 3}')
    before, after = ([gate], []) if moment == "calls" else ([], [gate])
    stream_gated(upstream, delta(reasoning_content="Hm."), *before, call, finish("tool_calls"), usage_fields())
    if after:
        stream_gated(upstream, *after, *answer_parts("chat", "Never shown."))
    stream_gated(upstream, *answer_parts("chat", "Fine."))
    with run_mcp_server() as mcp:
        gateway = serve(toml=f'{PROVIDERS.format(url=upstream.url)}[mcp.math]\nurl = "{mcp.url}"\n')
        tool = {"type": "mcp", "server_label": "math", "require_approval": "never"}
        with connect_client(gateway) as client:
            _, events = start_and_steer(client, gate, "chat/any", tools=[tool])
            events += receive_to_end(client, 2)
        assert mcp.calls == ["add"]

    steered, last = (
        received["response"] for received in events if "incomplete" in received["type"] or received is events[-1]
    )
    assert [item["type"] for item in steered["output"]] == ["mcp_list_tools", "reasoning", "mcp_call"]
    assert steered["incomplete_details"] == {"reason": "steered"}
    assert (steered["usage"]["input_tokens"], steered["usage"]["output_tokens"]) == (12, 3)
    assert response_text(last) == "Fine."
    assert upstream.requests[-1].json["messages"][-1] == {"role": "user", "content": STEER}
    assert len(upstream.requests) == (2 if moment == "calls" else 3)


@pytest.mark.needs("mcp")
def test_input_waits_for_an_approval(serve: Serve, upstream: ChatServer) -> None:
    from tests.mcp_server import run_mcp_server

    gate = Gate()
    call = call_delta(0, call_id="call_1", name="mcp__math__add", arguments='{"a": 2, "b": 3}')
    stream_gated(upstream, delta(reasoning_content="Hm."), gate, call, finish("tool_calls"), usage_fields())
    stream_gated(upstream, *answer_parts("chat", "Fine."))
    with run_mcp_server() as mcp:
        gateway = serve(toml=f'{PROVIDERS.format(url=upstream.url)}[mcp.math]\nurl = "{mcp.url}"\n')
        tool = {"type": "mcp", "server_label": "math"}
        with connect_client(gateway) as client:
            first, _ = start_and_steer(client, gate, "chat/any", tools=[tool])
            pending = receive_until(client, "response.steer.pending")[-1]
            answer = {**pending["required_input"][0], "approve": True}
            last = client.turn(model="chat/any", input=[answer], previous_response_id=first, tools=[tool])

    assert answer["type"] == "mcp_approval_response"
    assert response_text(last) == "Fine."
    assert user_texts(upstream.requests[1].json) == ["Write a poem.", STEER]


# -- refused input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"input": ""}, "'input'"),
        ({"input": []}, "'input'"),
        ({"input": None}, "'input'"),
        ({"input": 7}, "'input'"),
        ({"input": {"role": "user", "content": "x"}}, "'input'"),
        ({"input": ["x"]}, "'input[0]'"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "'input[0]'"),
        ({"input": [{"role": "user", "content": "x"}, {"role": "system", "content": "x"}]}, "'input[1]'"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "'input[0]'"),
        ({"input": [{"role": "user", "content": "x", "id": "msg_1"}]}, "'input[0].id'"),
        ({"input": [{"role": "user", "content": []}]}, "'input[0].content'"),
        ({"input": [{"role": "user"}]}, "'input[0].content'"),
        ({"input": [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}]}, "'input[0].content[0]'"),
        ({"input": [{"role": "user", "content": [{"type": ["input_text"]}]}]}, "'input[0].content[0]'"),
        ({"input": [{"role": "user", "content": ["x"]}]}, "'input[0].content[0]'"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "'input[0].content[0].text'"),
        ({"stream_id": "left"}, "'stream_id'"),
        ({"stream_id": {}}, "'stream_id'"),
        ({"model": "chat/any"}, "'model'"),
        ({"previous_response_id": None}, "'previous_response_id'"),
        ({"previous_response_id": ["x"]}, "'previous_response_id'"),
        ({"previous_response_id": {}}, "'previous_response_id'"),
    ],
    ids=json.dumps,
)
def test_invalid_input_is_returned_with_the_name_of_its_field(
    gateway: RunningGateway, upstream: ChatServer, message: dict[str, Any], named: str
) -> None:
    gate = Gate()
    stream_gated(upstream, *answer_parts("chat", "A poem.", gate))
    with connect_client(gateway) as client:
        client.send(model="chat/any", input="Write a poem.")
        response_id = receive_until(client, "response.created")[0]["response"]["id"]
        sent = {"type": "response.steer", "previous_response_id": response_id, "input": STEER, **message}
        client.send(sent)
        failed = receive_until(client, "response.steer.failed")[-1]
        gate.opened.set()
        last = receive_to_end(client)[-1]["response"]

    assert (failed["error"]["type"], failed["error"]["code"]) == ("invalid_request_error", "invalid_input")
    assert named in failed["error"]["message"]
    assert failed["steer"] == {name: sent[name] for name in ("input", "previous_response_id")}
    assert response_text(last) == "A poem."


@pytest.mark.parametrize("body", [{"conversation": "new"}, {"context_management": True}], ids=str)
def test_a_response_that_does_not_support_steering_runs_on(
    gateway: RunningGateway, upstream: ChatServer, body: dict[str, Any]
) -> None:
    gate = Gate()
    stream_gated(upstream, *answer_parts("chat", "A poem.", gate))
    if "conversation" in body:
        body = {"conversation": gateway.http.post("/v1/conversations", json={}).json()["id"]}
    else:
        body = {"context_management": [{"type": "compaction", "compact_threshold": 9000}]}
    with connect_client(gateway) as client:
        client.send(model="chat/any", input="Write a poem.", **body)
        response_id = receive_until(client, "response.created")[0]["response"]["id"]
        steer(client, response_id)
        failed = receive_until(client, "response.steer.failed")[-1]
        gate.opened.set()
        events = receive_to_end(client)
        assert response_text(client.turn(input="next")) == "next"

    assert failed["error"]["code"] == "steering_not_supported"
    assert failed["steer"]["input"] == STEER
    assert response_text(events[-1]["response"]) == "A poem."


def test_a_response_of_another_connection_or_tenant_is_unknown(gateway: RunningGateway, upstream: ChatServer) -> None:
    gate = Gate()
    stream_gated(upstream, *answer_parts("chat", "A poem.", gate))
    with connect_client(gateway) as client, connect_client(gateway) as other:
        client.send(model="chat/any", input="Write a poem.")
        response_id = receive_until(client, "response.created")[0]["response"]["id"]
        for one in (response_id, "resp_nobody"):
            steer(other, one)
            failed = other.receive()
            assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "response_not_found")
            assert failed["steer"] == {"input": STEER, "previous_response_id": one}
        gate.opened.set()
        assert response_text(receive_to_end(client)[-1]["response"]) == "A poem."
        steer(client, response_id)
        completed = client.receive()
        stored = client.turn(input="one")
        steer(other, stored["id"])
        assert other.receive()["error"]["code"] == "response_not_found"

    assert completed["error"]["code"] == "response_already_completed"


def test_input_for_a_response_that_ended_early_is_returned(gateway: RunningGateway, upstream: ChatServer) -> None:
    upstream.stream(delta(content="A po"), finish("length"), usage_fields())
    upstream.stream(delta(content="A po"), cut=True)
    with connect_client(gateway) as client:
        for reason in ("max_output_tokens", "stream_ended"):
            response = client.turn(model="chat/any", input="Write a poem.")
            assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": reason})
            steer(client, response["id"])
            failed = client.receive()
            assert failed["error"]["code"] == "response_not_active"
            assert "incomplete" in failed["error"]["message"]


@pytest.mark.parametrize(
    ("limits", "inputs"), [(SteerLimits(max_inputs=2), ["a", "b", "c"]), (SteerLimits(max_bytes=400), ["a", "b" * 400])]
)
def test_too_much_queued_input_is_refused(
    serve: Serve, upstream: ChatServer, limits: SteerLimits, inputs: Sequence[str]
) -> None:
    gateway = serve(toml=PROVIDERS.format(url=upstream.url), websocket_limits=WebSocketLimits(steering=limits))
    gate = Gate()
    stream_gated(upstream, *answer_parts("chat", "A poem.", gate))
    stream_gated(upstream, *answer_parts("chat", "Fine."))
    with connect_client(gateway) as client:
        client.send(model="chat/any", input="Write a poem.")
        response_id = receive_until(client, "response.created")[0]["response"]["id"]
        for steer_input in inputs:
            steer(client, response_id, steer_input)
        failed = receive_until(client, "response.steer.failed")[-1]
        gate.opened.set()
        receive_to_end(client, 2)

    assert (failed["error"]["code"], failed["steer"]["input"]) == ("too_many_pending_steers", inputs[-1])
    assert user_texts(upstream.requests[1].json) == ["Write a poem.", *inputs[:-1]]


def test_input_is_accepted_although_the_queue_of_requests_is_full(serve: Serve, upstream: ChatServer) -> None:
    gateway = serve(toml=PROVIDERS.format(url=upstream.url), websocket_limits=WebSocketLimits(max_queued=1))
    gate = Gate()
    stream_gated(upstream, *answer_parts("chat", "A poem.", gate))
    stream_gated(upstream, *answer_parts("chat", "Fine."))
    with connect_client(gateway) as client:
        client.send(model="chat/any", input="Write a poem.")
        response_id = receive_until(client, "response.created")[0]["response"]["id"]
        client.send(input="queued")
        client.send(input="refused")
        assert receive_until(client, "error")[-1]["error"]["code"] == "websocket_queue_full"
        steer(client, response_id)
        receive_until(client, "response.steer.accepted")
        gate.opened.set()
        ends = [one["response"] for one in receive_to_end(client, 3) if one["type"] == "response.completed"]

    assert [response_text(response) for response in ends] == ["A poem.", "Fine.", "queued"]


def cut_stream(upstream: ChatServer, gate: Gate) -> None:
    async def answer(receive: Receive, send: Send) -> None:
        await send_head(send, 200, "text/event-stream")
        await send_piece(send, event(delta(content="A po")))
        await gate.wait()
        raise ConnectionAbortedError

    upstream.answers.append(answer)


def refuse_successor(upstream: ChatServer, gate: Gate) -> None:
    stream_gated(upstream, *answer_parts("chat", "A poem.", gate))
    upstream.refuse(400, {"error": {"message": "Too long for me", "code": "nope"}})


def test_input_is_returned_if_the_limits_refuse_the_successor(serve: Serve, upstream: ChatServer) -> None:
    limits = "[serve.limits]\nper_minute = 1\n"
    gateway, gate = serve(toml=f"{PROVIDERS.format(url=upstream.url)}{limits}"), Gate()
    stream_gated(upstream, *answer_parts("chat", "A poem.", gate))
    with connect_client(gateway) as client:
        start_and_steer(client, gate, "chat/any")
        failed = receive_until(client, "response.steer.failed")[-1]

    assert failed["error"]["code"] == "successor_creation_failed"
    assert "limit" in failed["error"]["message"].lower()
    assert failed["steer"]["input"] == STEER


@pytest.mark.parametrize("script", [cut_stream, refuse_successor])
def test_accepted_input_is_returned_if_no_response_can_continue_with_it(
    gateway: RunningGateway, upstream: ChatServer, script: Callable[[ChatServer, Gate], None]
) -> None:
    gate = Gate()
    script(upstream, gate)
    with connect_client(gateway) as client:
        first, events = start_and_steer(client, gate, "chat/any")
        events += receive_until(client, "response.steer.failed")
        assert response_text(client.turn(input="next")) == "next"

    accepted, failed = (one for one in events if one["type"].startswith("response.steer."))
    assert failed["error"]["code"] == "successor_creation_failed"
    assert failed["steer"] == {"id": accepted["steer"]["id"], "input": STEER, "previous_response_id": first}
    assert "error" not in [one["type"] for one in events]


def test_a_connection_that_ends_returns_queued_input(serve: Serve, upstream: ChatServer) -> None:
    clock, gate = ManualClock(), Gate()
    gateway = serve(
        toml=PROVIDERS.format(url=upstream.url), clock=clock, websocket_limits=WebSocketLimits(max_age_s=10)
    )
    stream_gated(upstream, *answer_parts("chat", "A poem.", gate))
    with connect_client(gateway) as client:
        client.send(model="chat/any", input="Write a poem.")
        response_id = receive_until(client, "response.created")[0]["response"]["id"]
        assert gate.reached.wait(30)
        steer(client, response_id)
        receive_until(client, "response.steer.accepted")
        gateway.run(clock.advance_and_wake(10))
        gate.opened.set()
        events = receive_until(client, "error")

    assert [one["type"] for one in events[-3:]] == ["response.completed", "response.steer.failed", "error"]
    assert events[-2]["error"]["code"] == "successor_creation_failed"
    assert events[-2]["steer"]["input"] == STEER


def test_the_openai_package_steers_as_in_its_guide(gateway: RunningGateway, upstream: ChatServer) -> None:
    gate = Gate()
    stream_gated(upstream, *answer_parts("chat", "A long plan.", gate))
    stream_gated(upstream, *answer_parts("chat", "A small plan."))
    client = OpenAI(base_url=gateway.url, api_key="any", max_retries=0, http_client=httpx2.Client(trust_env=False))
    first, second, accepted = "", "", ""
    with client, client.responses.connect() as connection:
        connection.response.create(model="chat/any", input="Draft a plan.")
        for received in connection:
            if received.type == "response.created" and not first:
                first = received.response.id
                connection.response.steer(previous_response_id=first, input="Keep it small.")
            elif received.type == "response.created":
                second = received.response.id
            elif received.type == "response.steer.accepted":
                accepted = received.steer.id
                gate.opened.set()
            elif received.type == "response.completed" and received.response.id == second:
                assert received.response.output_text == "A small plan."
                break
            assert received.type not in ("response.steer.failed", "response.failed", "error")
        connection.response.steer(
            previous_response_id=first, input=[{"type": "message", "role": "user", "content": "x"}]
        )
        late = next(iter(connection))

    assert accepted
    assert late.type == "response.steer.failed"
    assert late.error.code == "response_already_completed"
    assert late.steer.previous_response_id == first


def test_frames_of_a_hostile_client_leave_the_connection_usable(gateway: RunningGateway) -> None:
    frames = [
        '{"type": "response.steer"',
        '{"type": "response.steer", "input": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"type": "response.steer", "type": "response.steer"}',
        '{"type": "response.steer", "input": "\\ud800", "previous_response_id": "\\ud800"}',
        '{"type": "response.steer", "input": 1e999, "previous_response_id": NaN}',
        '{"type": ["response.steer"]}',
        '[{"type": "response.steer"}]',
        '"response.steer"',
        json.dumps({"type": "response.steer", "previous_response_id": "x" * 100_000, "input": "y"}),
        b"\x00response.steer",
    ]
    with connect_client(gateway) as client:
        for frame in frames:
            client.send(frame)
            assert client.receive()["type"] in ("error", "response.steer.failed")
        assert response_text(client.turn(input="still here")) == "still here"
    assert gateway.unexpected_errors == []


# -- limits and endings without a socket -----------------------------------------------------------


def run_response(steering: ConnectionSteering, response_id: str, **body: Any) -> None:
    steering.begin(TurnMessage({"input": "a", **body}, None))
    response = {"id": response_id, "status": "completed", "output": []}
    steering.observe({"type": "response.created", "response": response})
    steering.observe({"type": "response.completed", "response": response})
    steering.finish(None, can_continue=True)


@pytest.mark.parametrize("body", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}}], ids=str)
def test_a_request_that_only_prepares_the_next_one_cannot_be_steered(body: dict[str, Any]) -> None:
    steering = ConnectionSteering(random_id, SteerLimits())
    steering.begin(TurnMessage(body, None))
    steering.observe({"type": "response.created", "response": {"id": "resp_1"}})
    failed, _ = steering.submit({"previous_response_id": "resp_1", "input": "x"}, 1)
    assert failed["error"]["code"] == "steering_not_supported"
    assert not steering.is_steered()


def test_the_ended_responses_of_a_connection_are_bounded() -> None:
    steering = ConnectionSteering(random_id, SteerLimits())
    for number in range(MAX_ENDED_RESPONSES + 1):
        run_response(steering, f"resp_{number}")
    codes = [
        steering.submit({"previous_response_id": f"resp_{number}", "input": "x"}, 1)[0]["error"]["code"]
        for number in (0, 1)
    ]
    assert codes == ["response_not_found", "response_already_completed"]


CLIENT_CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
TURNS = st.tuples(
    st.sampled_from(["completed", "waits", "steered", "failed", "broken", "refused"]),
    st.integers(0, 3),  # inputs while the response runs
    st.booleans(),  # whether the connection may go on
    st.sampled_from([-1, -1, 0, 9]),  # the earlier response that the next request continues, if there is one
)


@given(turns=st.lists(TURNS, max_size=12))
def test_accepted_input_is_used_once_or_returned_once(turns: list[tuple[str, int, bool, int]]) -> None:
    """Whatever happens to the responses, no input is lost, and none is in the history twice."""
    steering = ConnectionSteering(random_id, SteerLimits(max_inputs=8))
    accepted: list[str] = []
    settled: list[str] = []  # used in a response that was created, or returned
    ids: list[str] = []
    following: TurnMessage | None = None
    for kind, input_count, can_continue, parent in turns:
        previous = {"previous_response_id": ids[parent]} if -len(ids) <= parent < len(ids) else {}
        turn = steering.begin(following or TurnMessage({"input": "x", **previous}, None))
        if turn.steers:
            items = [item for steer in turn.steers for item in steer.items]
            assert turn.body["input"][: len(items)] == items
        if kind != "refused":
            ids.append(f"resp_{len(ids)}")
            settled += [steer.id for steer in turn.steers]
            steering.observe({"type": "response.created", "response": {"id": ids[-1]}})
            for _ in range(input_count):
                sent, _ = steering.submit({"previous_response_id": ids[-1], "input": "y"}, 1)
                accepted += [sent["steer"]["id"]] if sent["type"] == "response.steer.accepted" else []
        if kind not in ("refused", "broken"):
            status = {"waits": "completed", "steered": "incomplete"}.get(kind, kind)
            output = [CLIENT_CALL] if kind == "waits" else []
            response = {"id": ids[-1], "status": status, "output": output}
            steering.observe({"type": f"response.{status}", "response": response})
        result = steering.finish(None, can_continue=can_continue)
        following = result.turn
        settled += [one["steer"]["id"] for one in result.events if one["type"] == "response.steer.failed"]
    waiting = [steer.id for steer in following.steers] if following is not None else []
    for response_id in ids:
        turn = steering.begin(TurnMessage({"input": [], "previous_response_id": response_id}, None))
        waiting += [steer.id for steer in turn.steers]
    assert sorted(settled + waiting) == sorted(accepted)


# -- a killed server -------------------------------------------------------------------------------


@pytest.mark.needs("linux")
def test_a_server_that_is_killed_during_the_successor_keeps_the_steered_response(
    upstream: ChatServer, tmp_path: Path
) -> None:
    """The client repeats its input after the response that was confirmed, and the history has it once."""
    gates = [Gate(), Gate()]
    settings = config_flags(tmp_path, PROVIDERS.format(url=upstream.url))
    store = f"sqlite:{tmp_path / 'convo.db'}"
    for gate, words in zip(gates, ("A long poem.", "Lost."), strict=True):
        stream_gated(upstream, *answer_parts("chat", words, gate))
    stream_gated(upstream, *answer_parts("chat", "Short."))
    with run_serve("--store", store, before=settings) as process, connect_client(process) as client:
        first, _ = start_and_steer(client, gates[0], "chat/any")
        second = receive_until(client, "response.created")[-1]["response"]["id"]
        assert gates[1].reached.wait(30)
        process.stop(signal.SIGKILL)
        gates[1].opened.set()

    with run_serve("--store", store, before=settings) as process, connect_client(process) as client:
        assert response_text(process.http.get(f"/v1/responses/{first}").json()) == "A long poem."
        assert process.http.get(f"/v1/responses/{second}").status_code == 404
        last = client.turn(model="chat/any", input=STEER, previous_response_id=first)
        shown = process.http.get(f"/v1/responses/{last['id']}/input_items", params={"order": "asc"}).json()["data"]

    assert response_text(last) == "Short."
    assert user_texts({"input": shown}) == ["Write a poem.", STEER]

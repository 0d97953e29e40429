"""The gateway in front of models that give every call the same id, as llama.cpp does, or ids that a server refuses."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.models.chat_server import ChatServer, delta, finish, run_chat_server, tool
from tests.models.messages_events import message_events
from tests.models.messages_events import text as claude_text
from tests.models.messages_events import tool as claude_tool
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway

Json = Any


@pytest.fixture
def upstream() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


@pytest.fixture
def gateway(serve: Serve, upstream: ChatServer) -> RunningGateway:
    """A gateway in front of one server with three APIs: chat completions, Anthropic's Messages, Responses."""
    apis = {"chat": "chat", "responses": "responses", "claude": "anthropic"}
    sections = [f'[providers.{name}]\napi = "{api}"\nbase_url = "{upstream.url}"\n' for name, api in apis.items()]
    return serve(toml="".join(sections))


CITIES = ("Oslo", "Rome")
TOOLS = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}]


def arguments(city: str) -> str:
    return json.dumps({"city": city})


# -- what the server answers: calls of one id, or a text without calls ---------------------------------


def answer_chat(upstream: ChatServer, call_id: str, *cities: str) -> None:
    calls = [
        tool(index, call_id=call_id, name="weather", arguments=arguments(city)) for index, city in enumerate(cities)
    ]
    text = () if cities else (delta(content="Warm."),)
    upstream.stream(*calls, *text, finish("tool_calls" if cities else "stop"))


def answer_messages(upstream: ChatServer, call_id: str, *cities: str) -> None:
    calls = [claude_tool(index, call_id, "weather", arguments(city)) for index, city in enumerate(cities)]
    blocks = calls or [claude_text(0, "Warm.")]
    upstream.stream(*message_events(*blocks, reason="tool_use" if cities else "end_turn"), end=b"")


def answer_responses(upstream: ChatServer, call_id: str, *cities: str) -> None:
    part = {"type": "output_text", "text": "Warm.", "annotations": []}
    call = {"type": "function_call", "call_id": call_id, "name": "weather", "status": "completed"}
    output: list[Json] = [
        {**call, "id": f"fc_{len(upstream.requests)}{city}", "arguments": arguments(city)} for city in cities
    ] or [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}]
    events = [
        {"type": f"response.output_item.{kind}", "output_index": index, "item": item}
        for index, item in enumerate(output)
        for kind in ("added", "done")
    ]
    response = {"id": "resp_1", "status": "completed", "output": output, "usage": None}
    upstream.stream(*events, {"type": "response.completed", "response": response}, end=b"")


# -- what the server received: each call and each output, in order, with its id and its text ------------


def chat_pairs(body: Json) -> list[tuple[str, str]]:
    pairs = []
    for message in body["messages"]:
        pairs += [(call["id"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
        pairs += [(message["tool_call_id"], message["content"])] if message["role"] == "tool" else []
    return pairs


def message_pairs(body: Json) -> list[tuple[str, str]]:
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    return [
        (block["id"], json.dumps(block["input"]))
        if block["type"] == "tool_use"
        else (block["tool_use_id"], block["content"][0]["text"])
        for block in blocks
        if block["type"] != "text"
    ]


def response_pairs(body: Json) -> list[tuple[str, str]]:
    return [
        (item["call_id"], item.get("arguments") or item.get("output")) for item in body["input"] if "call_id" in item
    ]


Answer = Callable[..., None]
ReadPairs = Callable[[Json], list[tuple[str, str]]]
APIS: dict[str, tuple[Answer, ReadPairs]] = {
    "chat/m": (answer_chat, chat_pairs),
    "claude/m": (answer_messages, message_pairs),
    "responses/m": (answer_responses, response_pairs),
}


@pytest.fixture(params=APIS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def calls_of(response: Json) -> list[Json]:
    return [item for item in response["output"] if item["type"] == "function_call"]


def output(call: Json, text: str) -> Json:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


@pytest.mark.parametrize("is_chain", [True, False], ids=["chain", "whole history"])
def test_each_result_stays_behind_its_own_call(
    gateway: RunningGateway, upstream: ChatServer, model: str, is_chain: bool
) -> None:
    answer, read_pairs = APIS[model]
    items: list[Json] = [{"role": "user", "content": "Weather?"}]
    sent_pairs: list[tuple[str, str]] = []
    previous: str | None = None
    for turn, cities in enumerate([("Oslo",), ("Rome", "Bonn"), ("Oslo",), ()]):
        answer(upstream, "c1", *cities)
        body: Json = {"model": model, "input": items, "tools": TOOLS}
        response = gateway.create_response(body | ({"previous_response_id": previous} if previous else {})).json()
        assert response["status"] == "completed", response
        assert read_pairs(upstream.requests[-1].json) == sent_pairs
        calls = calls_of(response)
        outputs = [output(call, f"{turn}: {call['arguments']}") for call in calls]
        sent_pairs += [(call["call_id"], call["arguments"]) for call in calls]
        sent_pairs += [(one["call_id"], one["output"]) for one in outputs]
        items = outputs if is_chain else [*items, *response["output"], *outputs]
        previous = response["id"] if is_chain else None
    ids = [call_id for call_id, _ in sent_pairs]
    assert list(dict.fromkeys(ids)) == ["c1", *dict.fromkeys(ids[2:])]
    assert len(set(ids)) == len(ids) / 2


def test_an_id_is_the_same_in_each_event_of_an_answer(
    gateway: RunningGateway, upstream: ChatServer, model: str
) -> None:
    APIS[model][0](upstream, "c1", "Oslo", "Rome")
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    items = [{"role": "user", "content": "Weather?"}, call, output(call, "cold")]
    events = gateway.events({"model": model, "input": items, "tools": TOOLS})

    final_ids = [call["call_id"] for call in calls_of(events[-1]["response"])]
    assert len({"c1", *final_ids}) == 3
    for kind in ("added", "done"):
        ids = [event["item"]["call_id"] for event in events if event["type"] == f"response.output_item.{kind}"]
        assert ids == final_ids


def test_a_history_with_one_id_for_all_calls_is_sent_with_an_id_for_each(
    gateway: RunningGateway, upstream: ChatServer, model: str
) -> None:
    """As another gateway stored it. The ids of a history do not depend on what follows, so its cached prefix stays."""
    answer, read_pairs = APIS[model]
    items: list[Json] = [{"role": "user", "content": "Weather?"}]
    sent: list[list[tuple[str, str]]] = []
    for _ in range(3):
        calls = [
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": arguments(city)}
            for city in CITIES
        ]
        items += [*calls, *(output(call, call["arguments"]) for call in calls)]
        answer(upstream, "c1")
        assert gateway.create_response({"model": model, "input": items, "tools": TOOLS}).status_code == 200
        sent.append(read_pairs(upstream.requests[-1].json))
    pairs = sent[-1]
    assert pairs[: len(sent[0])] == sent[0]
    assert [call_id for call_id, _ in pairs] == [
        *("c1", "c1_2", "c1", "c1_2", "c1_3", "c1_4", "c1_3", "c1_4"),
        *("c1_5", "c1_6", "c1_5", "c1_6"),
    ]
    assert [text for _, text in pairs] == [arguments(city) for _ in range(6) for city in CITIES]


@pytest.mark.parametrize("call_id", ["call_" + "x" * 100, "call|1:é", "a.b c"])
def test_an_id_that_a_server_refuses_is_replaced_in_the_call_and_its_output(
    gateway: RunningGateway, upstream: ChatServer, model: str, call_id: str
) -> None:
    answer, read_pairs = APIS[model]
    answer(upstream, "c1")
    call = {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": "{}"}
    items = [{"role": "user", "content": "Weather?"}, call, output(call, "cold")]
    assert gateway.create_response({"model": model, "input": items, "tools": TOOLS}).status_code == 200

    (made, _), (answered, _) = read_pairs(upstream.requests[-1].json)
    assert made == answered
    assert len(made) <= 64
    assert made.replace("_", "").isalnum()
    assert made.isascii()


@pytest.mark.parametrize(("model", "call_id"), [("chat/kimi-k2", "functions.weather:0"), ("chat/m", "c" * 64)])
def test_an_id_that_the_server_of_a_model_needs_stays(
    gateway: RunningGateway, upstream: ChatServer, model: str, call_id: str
) -> None:
    answer_chat(upstream, call_id, "Oslo")
    answer_chat(upstream, call_id)
    body: Json = {"model": model, "input": [{"role": "user", "content": "Weather?"}], "tools": TOOLS}
    response = gateway.create_response(body).json()
    (call,) = calls_of(response)
    gateway.create_response({**body, "input": [output(call, "cold")], "previous_response_id": response["id"]})
    assert [one for one, _ in chat_pairs(upstream.requests[-1].json)] == [call_id, call_id] == [call["call_id"]] * 2


def test_a_model_of_mistral_gets_ids_of_nine_characters(gateway: RunningGateway, upstream: ChatServer) -> None:
    call = {"type": "function_call", "call_id": "toolu_01A", "name": "weather", "arguments": "{}"}
    other = {**call, "call_id": "b9mgIC84m"}
    items = [{"role": "user", "content": "Weather?"}, call, output(call, "1"), other, output(other, "2"), other]
    answer_chat(upstream, "b9mgIC84m", "Oslo")
    answered = gateway.create_response(
        {"model": "chat/mistral-small-latest", "input": [*items, output(other, "3")], "tools": TOOLS}
    ).json()
    ids = [call_id for call_id, _ in chat_pairs(upstream.requests[-1].json)][::2]
    ids += [call["call_id"] for call in calls_of(answered)]
    assert ids[1] == "b9mgIC84m"
    assert len(set(ids)) == 4
    assert all(len(one) == 9 and one.isalnum() for one in ids)


def test_an_output_of_a_function_answers_the_search_of_a_client(
    gateway: RunningGateway, upstream: ChatServer, model: str
) -> None:
    search = {"type": "tool_search_call", "call_id": "s1", "execution": "client", "arguments": {"queries": ["x"]}}
    items = [{"role": "user", "content": "Weather?"}, search, output(search, "found one")]
    answer, read_pairs = APIS[model]
    answer(upstream, "c1")
    tools = [*TOOLS, {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}]
    assert gateway.create_response({"model": model, "input": items, "tools": tools}).status_code == 200
    assert [call_id for call_id, _ in read_pairs(upstream.requests[-1].json)] == ["s1", "s1"]

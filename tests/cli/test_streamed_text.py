"""A response whose final text differs from the streamed text: convo stores the final text and prints a warning."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_runner import Convo
from tests.models.chat_server import ChatServer, run_chat_server
from tests.server.gateway import RunningGateway, run_gateway

RESPONSES = """
[providers.far]
api = "responses"
base_url = "{url}"
[aliases]
fast = "far/m"
"""
WARNING = "the text that was streamed differs from the final text, which was kept"


def response_events(streamed: str, final: str) -> list[dict[str, Any]]:
    """The events of a response with the deltas of `streamed` and the final text `final`."""
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": final, "annotations": []}
    position = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
    response = {"id": "resp_1", "object": "response", "model": "m", "output": [{**message, "content": [part]}]}
    return [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
        *({"type": "response.output_text.delta", **position, "delta": piece} for piece in streamed),
        {"type": "response.completed", "response": {**response, "status": "completed"}},
    ]


@pytest.fixture
def upstream() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


@pytest.fixture
def config(home: Path, upstream: ChatServer) -> Path:
    file = home / "far.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(RESPONSES.format(url=upstream.url))
    return file


def test_chat_warns_that_the_final_text_differs_and_stores_the_final_one(
    convo: Convo, config: Path, upstream: ChatServer
) -> None:
    upstream.stream(*response_events("sunny", "rainy"))

    got = convo("--config", str(config), "chat", "-m", "far/m", "--session", "weather?")
    inspected, conversation = convo("inspect", "weather"), convo("inspect", "weather", "--json").json()

    assert [line for line in got.err.splitlines() if "differs" in line] == [f"warning: {WARNING}"]
    assert "rainy" in str(conversation["items"])
    assert "sunny" not in str(conversation["items"])
    assert conversation["links"][0]["streamed_text_differs"] is True
    assert conversation["links"][0]["status"] == "completed"
    assert WARNING in inspected.out


def test_chat_prints_no_warning_when_the_texts_are_equal(convo: Convo, config: Path, upstream: ChatServer) -> None:
    upstream.stream(*response_events("sünny", "sünny"))

    got = convo("--config", str(config), "chat", "-m", "far/m", "--session", "weather?")

    assert "differs" not in got.err
    assert "streamed_text_differs" not in convo("inspect", "weather", "--json").json()["links"][0]


@pytest.fixture
def gateway(home: Path, upstream: ChatServer, tmp_path: Path) -> Iterator[RunningGateway]:
    (home / "data").mkdir(parents=True, exist_ok=True)
    toml = RESPONSES.format(url=upstream.url).removesuffix('[aliases]\nfast = "far/m"\n')
    with run_gateway(tmp_path / "served", f"sqlite:{home}/data/convo.db", toml='fast = "far/m"\n' + toml) as server:
        yield server


@pytest.mark.parametrize("body", [{}, {"stream": True}, {"background": True}])
def test_inspect_reports_the_differing_text_of_a_served_response_with_its_provider(
    convo: Convo, gateway: RunningGateway, upstream: ChatServer, body: dict[str, Any]
) -> None:
    upstream.stream(*response_events("sunny", "rainy"))

    events = gateway.events({"model": "fast", "input": "weather?", **body}) if body.get("stream") else []
    response = (
        events[-1]["response"]
        if events
        else gateway.create_response({"model": "fast", "input": "weather?", **body}).json()
    )
    while response["status"] in ("queued", "in_progress"):
        response = gateway.http.get(f"/v1/responses/{response['id']}").json()
    link = convo("inspect", response["id"], "--json").json()["links"][0]
    output = convo("inspect", response["id"]).out

    assert response["output"][0]["content"][0]["text"] == "rainy"
    assert response["error"] is None
    assert all("streamed_text_differs" not in event for event in events)
    assert (link["streamed_text_differs"], link["model"], link["provider"]) == (True, "fast", "far")
    assert f"{WARNING}: {response['id']}" in output
    assert "provider  far\n" in output
    assert "convo.provider" not in str(response)


def test_inspect_names_the_provider_of_each_model(convo: Convo) -> None:
    convo("chat", "-m", "scripted/echo", "--session", "hi")

    assert "model        scripted/echo\n" in convo("inspect", "hi").out
    assert convo("inspect", "hi", "--json").json()["links"][0]["provider"] == "scripted"

"""Shutdown: no new turn starts; running turns complete or are marked as cancelled."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway, run_gateway


def start_stream(gateway: RunningGateway, stack: ExitStack, **more: Any) -> tuple[dict[str, Any], Any]:
    """Start a stream and read its first event; return the response and an iterator over the remaining lines."""
    body = {"model": "slow", "input": "hi", "stream": True, **more}
    stream = stack.enter_context(gateway.http.stream("POST", "/v1/responses", json=body))
    lines = stream.iter_lines()
    first = next(json.loads(line[6:]) for line in lines if line.startswith("data: "))
    return first["response"], lines


def test_a_running_turn_completes(serve: Serve) -> None:
    gateway = serve(grace_s=20.0)
    gateway.script("slow", {"text": "word " * 30}, delay_s=0.02)
    with ExitStack() as stack:
        _, lines = start_stream(gateway, stack)
        gateway.shut_down()
        rest = [line for line in lines if line]
    assert rest[-3].endswith("response.completed")
    assert rest[-1] == "data: [DONE]"


def test_no_new_turn_starts_meanwhile(serve: Serve) -> None:
    """The server tells the client to retry, is not ready, and completes the open stream."""
    gateway = serve(grace_s=20.0)
    gateway.script("slow", {"text": "word " * 60}, delay_s=0.02)
    with ExitStack() as stack:
        _, lines = start_stream(gateway, stack)
        gateway.run(set_shutting_down(gateway))
        got = gateway.create_response({"model": "echo", "input": "hi"})
        ready = gateway.http.get("/readyz")
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

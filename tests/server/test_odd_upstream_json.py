"""A Responses server behind the gateway may send invalid fields: the client gets a valid response or an API error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile_server import STREAM, HostileServer, run_hostile_server, sse_event
from tests.server.gateway import RunningGateway, run_gateway

MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hello", "annotations": []}],
}


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with run_hostile_server() as server:
        yield server


@pytest.fixture
def gateway(server: HostileServer, tmp_path: Path) -> Iterator[RunningGateway]:
    provider = f'[providers.far]\napi = "responses"\nowner = "convo"\nbase_url = "{server.url}"'
    with run_gateway(tmp_path / "served", toml=provider) as running:
        yield running


def script_answer(server: HostileServer, status: str = "completed", **fields: Any) -> None:
    response = {"id": "resp_theirs", "status": status, "model": "m", "output": [MESSAGE], **fields}
    server.answers = lambda _: iter([STREAM, sse_event({"type": f"response.{status}", "response": response})])


def create_response(gateway: RunningGateway, **more: Any) -> Any:
    return gateway.create_response({"model": "far/m", "input": "hi", **more})


USAGES = [
    {"input_tokens": -5, "output_tokens": 10**40, "total_tokens": "many"},
    {"input_tokens": 7, "output_tokens": None},
    {"input_tokens": 7, "output_tokens": 2, "input_tokens_details": {"cached_tokens": "x"}},
    {"input_tokens": 7, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": [1]}},
]


@pytest.mark.parametrize("usage", USAGES)
def test_invalid_token_counts_count_as_zero(
    gateway: RunningGateway, server: HostileServer, usage: dict[str, Any]
) -> None:
    script_answer(server, usage=usage)

    answer = create_response(gateway)
    streamed = gateway.events({"model": "far/m", "input": "hi"})

    assert answer.status_code == 200
    assert answer.json()["output"][0]["content"][0]["text"] == "hello"
    assert streamed[-1]["type"] == "response.completed"
    assert gateway.unexpected_errors == []


@pytest.mark.parametrize("limit", ["mine", "a\r\nx-evil: 1\r\n\r\n", {"name": "x"}])
def test_a_provider_cannot_claim_that_a_limit_of_convo_was_reached(
    gateway: RunningGateway, server: HostileServer, limit: Any
) -> None:
    script_answer(server, "failed", error={"code": "server_error", "message": "no", "limit": limit})

    answer = create_response(gateway)

    assert answer.status_code == 200
    assert answer.json()["error"] == {"code": "server_error", "message": "no"}
    assert "x-convo-limit" not in answer.headers
    assert "x-evil" not in answer.headers


def test_an_invalid_reason_of_an_incomplete_answer_is_replaced(gateway: RunningGateway, server: HostileServer) -> None:
    script_answer(server, "incomplete", incomplete_details={"reason": [1]})

    answer = create_response(gateway)

    assert answer.status_code == 200
    assert answer.json()["incomplete_details"] == {"reason": "max_output_tokens"}


def test_an_invalid_error_and_model_of_a_failed_answer_are_replaced(
    gateway: RunningGateway, server: HostileServer
) -> None:
    script_answer(server, "failed", error={"code": 5, "message": {"x": 1}}, model={"x": 1})

    answer = create_response(gateway)

    assert answer.status_code == 200
    assert answer.json()["error"] == {"code": "server_error", "message": "The provider stopped the response."}


@pytest.mark.parametrize("output", [[5], ["x", None], "x"])
def test_values_of_an_output_that_are_no_items_are_left_out(
    gateway: RunningGateway, server: HostileServer, output: Any
) -> None:
    script_answer(server, output=output)

    answer = create_response(gateway)

    assert (answer.status_code, answer.json()["output"]) == (200, [])
    assert gateway.unexpected_errors == []


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_is_not_json_is_an_error_of_the_provider_and_not_of_the_client(
    gateway: RunningGateway, server: HostileServer, number: str
) -> None:
    script_answer(server, output=[{**MESSAGE, "score": "@"}])
    (head, piece) = server.answers("")
    server.answers = lambda _: iter([head, piece.replace(b'"@"', number.encode())])

    answer = create_response(gateway)

    assert answer.status_code == 502
    assert "not an event stream" in answer.json()["error"]["message"]


def test_a_model_name_with_a_lone_surrogate_is_unknown(gateway: RunningGateway) -> None:
    body = b'{"model": "far/\\ud800", "input": "hi"}'
    answer = gateway.http.post("/v1/responses", content=body, headers={"content-type": "application/json"})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "model_not_found"

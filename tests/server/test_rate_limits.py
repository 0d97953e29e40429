"""Limits for concurrent requests and for requests per minute, for each key and for the whole process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI, RateLimitError
from websockets.exceptions import ConnectionClosedError
from websockets.frames import CloseCode

from convo.config.sections import KeyLimits, ServeLimits
from convo.server.auth import KeysFile, create_api_key
from tests.clock import HELD_S
from tests.server.api_keys import bearer
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway
from tests.server.websocket_client import ManualClock, connect_client

ECHO = {"model": "echo", "input": "hi"}


@contextmanager
def open_stream(gateway: RunningGateway, key: str | None = None) -> Iterator[None]:
    """Keep a stream open while the block runs."""
    gateway.script("slow", {"text": "word " * 5000}, chunk=5, delay_s=0.02)
    headers = bearer(key) if key else {}
    body = {"model": "slow", "input": "hi", "stream": True}
    with gateway.http.stream("POST", "/v1/responses", json=body, headers=headers) as stream:
        lines = stream.iter_lines()  # a reference: without it the stream closes
        next(lines)
        yield


def refusal_fields(got: Any) -> tuple[int, str, str]:
    error = got.json()["error"]
    return got.status_code, error["type"], error["code"]


def test_too_many_concurrent_requests_of_a_key_are_refused(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = create_api_key(file, "alice"), create_api_key(file, "bob")
    gateway = serve(keys=KeysFile(file), limits=ServeLimits(concurrent=1))
    with open_stream(gateway, alice):
        got = gateway.create_response(ECHO, headers=bearer(alice))
        other = gateway.create_response(ECHO, headers=bearer(bob))
        health = [gateway.http.get(path).status_code for path in ("/healthz", "/readyz")]

    assert refusal_fields(got) == (429, "requests", "rate_limit_exceeded")
    assert (got.headers["retry-after"], other.status_code, health) == ("1", 200, [200, 200])


def test_too_many_requests_of_a_key_in_a_minute_are_refused_until_the_minute_is_over(
    serve: Serve, tmp_path: Path
) -> None:
    """Retry-After is exact to the second: a request after it succeeds, one a second earlier is refused."""
    file, clock = tmp_path / "keys", ManualClock()
    alice, bob = create_api_key(file, "alice"), create_api_key(file, "bob")
    gateway = serve(keys=KeysFile(file), clock=clock, limits=ServeLimits(per_minute=2))

    def send(key: str) -> Any:
        return gateway.create_response(ECHO, headers=bearer(key))

    first = send(alice).status_code
    clock.advance(20.5)
    second, third = send(alice).status_code, send(alice)
    assert (first, second) == (200, 200)
    assert refusal_fields(third) == (429, "requests", "rate_limit_exceeded")
    assert third.headers["retry-after"] == "40"
    assert third.json()["error"]["message"] == (
        "Rate limit reached: Limit 2 requests per minute (RPM), Used 2. Please try again in 40s."
    )
    clock.advance(39)
    assert send(alice).headers["retry-after"] == "1"
    assert send(bob).status_code == 200
    clock.advance(1)
    assert [send(alice).status_code, send(alice).status_code] == [200, 429]


def test_a_key_name_may_have_its_own_limits(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = create_api_key(file, "alice"), create_api_key(file, "bob")
    limits = ServeLimits(per_minute=1, keys={"alice": KeyLimits(per_minute=0)})
    gateway = serve(keys=KeysFile(file), limits=limits)
    statuses = {
        key: [gateway.create_response(ECHO, headers=bearer(key)).status_code for _ in range(3)] for key in (alice, bob)
    }
    assert statuses == {alice: [200, 200, 200], bob: [200, 429, 429]}


def test_all_keys_together_have_a_limit_per_minute(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    keys = [create_api_key(file, name) for name in ("alice", "bob", "carol")]
    gateway = serve(keys=KeysFile(file), clock=ManualClock(), limits=ServeLimits(process_per_minute=2))
    assert [gateway.create_response(ECHO, headers=bearer(key)).status_code for key in keys] == [200, 200, 429]


def test_without_keys_the_limits_apply_to_this_machine(serve: Serve) -> None:
    gateway = serve(clock=ManualClock(), limits=ServeLimits(per_minute=1))
    assert [gateway.create_response(ECHO).status_code for _ in range(2)] == [200, 429]
    assert gateway.http.get("/healthz").status_code == 200


def test_turns_over_a_websocket_are_counted_one_by_one(serve: Serve) -> None:
    gateway = serve(clock=ManualClock(), limits=ServeLimits(per_minute=2))
    with connect_client(gateway) as client:
        responses = [client.turn(input="hi") for _ in range(3)]
    assert [response.get("status") for response in responses] == ["completed", "completed", 429]
    assert (responses[2]["error"]["code"], responses[2]["error"]["type"]) == ("rate_limit_exceeded", "requests")


def test_turns_over_a_websocket_count_as_concurrent_requests(serve: Serve) -> None:
    gateway = serve(limits=ServeLimits(concurrent=1))
    with open_stream(gateway), connect_client(gateway) as client:
        assert client.turn(input="hi")["status"] == 429


def test_the_bodies_of_all_requests_together_have_a_limit_that_small_ones_ignore(serve: Serve) -> None:
    gateway = serve(limits=ServeLimits(process_body_bytes=150_000))
    gateway.script("slow", {"text": "word"}, delay_s=HELD_S)
    large = {"model": "echo", "input": "x" * 100_000}
    with gateway.http.stream("POST", "/v1/responses", json={**large, "model": "slow", "stream": True}) as stream:
        lines = stream.iter_lines()
        next(lines)
        with connect_client(gateway) as client, connect_client(gateway) as other:
            refused = gateway.create_response(large)
            assert refusal_fields(refused) == (503, "server_error", "overloaded")
            assert refused.headers["retry-after"] == "1"
            assert gateway.create_response(ECHO).status_code == 200
            assert other.turn(input="hi")["status"] == "completed"
            with pytest.raises(ConnectionClosedError) as closed:
                client.turn(input=large["input"])
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == CloseCode.TRY_AGAIN_LATER
            gateway.release_deltas()
            list(lines)
            assert other.turn(input=large["input"])["status"] == "completed"
            assert gateway.create_response(large).status_code == 200
    assert gateway.app.body_budget.taken_bytes == 0


def test_a_finished_request_frees_its_slot_also_when_its_client_disconnected(serve: Serve) -> None:
    gateway = serve(limits=ServeLimits(concurrent=1))
    with open_stream(gateway):
        pass
    while gateway.create_response(ECHO).status_code == 429:
        pass
    assert [gateway.create_response(ECHO).status_code for _ in range(3)] == [200] * 3


def test_the_openai_package_reads_the_refusal_as_a_rate_limit(serve: Serve) -> None:
    gateway = serve(clock=ManualClock(), limits=ServeLimits(per_minute=1))
    with OpenAI(base_url=gateway.url, api_key="any", max_retries=0) as client:
        client.responses.create(model="echo", input="hi")
        with pytest.raises(RateLimitError) as caught:
            client.responses.create(model="echo", input="hi")
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "requests")
    assert caught.value.response.headers["retry-after"] == "60"

"""Limits for concurrent requests and for requests per minute, for each key and for the whole process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI, RateLimitError

from convo.config.sections import KeyLimits, ServeLimits
from convo.server.auth import KeysFile, create_api_key
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway
from tests.server.websocket_client import ManualClock, connect_client

ECHO = {"model": "echo", "input": "hi"}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@contextmanager
def running(served: RunningGateway, key: str | None = None) -> Iterator[None]:
    """Keep a stream open while the block runs."""
    served.script("slow", {"text": "word " * 5000}, chunk=5, delay_s=0.02)
    headers = bearer(key) if key else {}
    body = {"model": "slow", "input": "hi", "stream": True}
    with served.http.stream("POST", "/v1/responses", json=body, headers=headers) as stream:
        lines = stream.iter_lines()  # a reference: without it the stream closes
        next(lines)
        yield


def refused(got: Any) -> tuple[int, str, str]:
    error = got.json()["error"]
    return got.status_code, error["type"], error["code"]


def test_too_many_concurrent_requests_of_a_key_are_refused(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = create_api_key(file, "alice"), create_api_key(file, "bob")
    served = serve(keys=KeysFile(file), limits=ServeLimits(concurrent=1))
    with running(served, alice):
        got = served.ask(ECHO, headers=bearer(alice))
        other = served.ask(ECHO, headers=bearer(bob))
        health = [served.http.get(path).status_code for path in ("/healthz", "/readyz")]

    assert refused(got) == (429, "requests", "rate_limit_exceeded")
    assert (got.headers["retry-after"], other.status_code, health) == ("1", 200, [200, 200])


def test_too_many_requests_of_a_key_in_a_minute_are_refused_until_the_minute_is_over(
    serve: Serve, tmp_path: Path
) -> None:
    """Retry-After is exact to the second: a request after it succeeds, one a second earlier is refused."""
    file, clock = tmp_path / "keys", ManualClock()
    alice, bob = create_api_key(file, "alice"), create_api_key(file, "bob")
    served = serve(keys=KeysFile(file), clock=clock, limits=ServeLimits(per_minute=2))

    def ask(key: str) -> Any:
        return served.ask(ECHO, headers=bearer(key))

    first = ask(alice).status_code
    clock.advance(20.5)
    second, third = ask(alice).status_code, ask(alice)
    assert (first, second) == (200, 200)
    assert refused(third) == (429, "requests", "rate_limit_exceeded")
    assert third.headers["retry-after"] == "40"
    assert third.json()["error"]["message"] == (
        "Rate limit reached: Limit 2 requests per minute (RPM), Used 2. Please try again in 40s."
    )
    clock.advance(39)
    assert ask(alice).headers["retry-after"] == "1"
    assert ask(bob).status_code == 200
    clock.advance(1)
    assert [ask(alice).status_code, ask(alice).status_code] == [200, 429]


def test_a_key_name_may_have_its_own_limits(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = create_api_key(file, "alice"), create_api_key(file, "bob")
    limits = ServeLimits(per_minute=1, keys={"alice": KeyLimits(per_minute=0)})
    served = serve(keys=KeysFile(file), limits=limits)
    asked = {key: [served.ask(ECHO, headers=bearer(key)).status_code for _ in range(3)] for key in (alice, bob)}
    assert asked == {alice: [200, 200, 200], bob: [200, 429, 429]}


def test_all_keys_together_have_a_limit_per_minute(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    keys = [create_api_key(file, name) for name in ("alice", "bob", "carol")]
    served = serve(keys=KeysFile(file), clock=ManualClock(), limits=ServeLimits(process_per_minute=2))
    assert [served.ask(ECHO, headers=bearer(key)).status_code for key in keys] == [200, 200, 429]


def test_without_keys_the_limits_apply_to_this_machine(serve: Serve) -> None:
    served = serve(clock=ManualClock(), limits=ServeLimits(per_minute=1))
    assert [served.ask(ECHO).status_code for _ in range(2)] == [200, 429]
    assert served.http.get("/healthz").status_code == 200


def test_turns_over_a_websocket_are_counted_one_by_one(serve: Serve) -> None:
    served = serve(clock=ManualClock(), limits=ServeLimits(per_minute=2))
    with connect_client(served) as client:
        came = [client.turn(input="hi") for _ in range(3)]
    assert [one.get("status") for one in came] == ["completed", "completed", 429]
    assert (came[2]["error"]["code"], came[2]["error"]["type"]) == ("rate_limit_exceeded", "requests")


def test_turns_over_a_websocket_count_as_concurrent_requests(serve: Serve) -> None:
    served = serve(limits=ServeLimits(concurrent=1))
    with running(served), connect_client(served) as client:
        assert client.turn(input="hi")["status"] == 429


def test_a_finished_request_frees_its_slot_also_when_its_client_disconnected(serve: Serve) -> None:
    served = serve(limits=ServeLimits(concurrent=1))
    with running(served):
        pass
    while served.ask(ECHO).status_code == 429:
        pass
    assert [served.ask(ECHO).status_code for _ in range(3)] == [200] * 3


def test_the_openai_package_reads_the_refusal_as_a_rate_limit(serve: Serve) -> None:
    served = serve(clock=ManualClock(), limits=ServeLimits(per_minute=1))
    with OpenAI(base_url=served.url, api_key="any", max_retries=0) as client:
        client.responses.create(model="echo", input="hi")
        with pytest.raises(RateLimitError) as caught:
            client.responses.create(model="echo", input="hi")
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "requests")
    assert caught.value.response.headers["retry-after"] == "60"

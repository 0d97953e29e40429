"""Metrics of requests, tokens, streams and the store. No id and no text of a request is a label."""

import re
from pathlib import Path

import pytest

from convo.server.auth import KeysFile, create_api_key
from convo.server.metrics import MAX_MODEL_LABELS, OTHER_MODELS_LABEL, Metrics
from tests.clock import HELD_S, FixedClock
from tests.server.api_keys import bearer, key_hash
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway
from tests.server.test_streams import faulty_service, unreachable_store
from tests.server.websocket_client import connect_client


def read_metrics(gateway: RunningGateway) -> dict[str, float]:
    """Return every sample by its name and labels."""
    lines = gateway.http.get("/metrics").text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_requests_are_counted_by_route_and_status(gateway: RunningGateway) -> None:
    """The label is the path template of the route, not the requested path."""
    gateway.create_response({"model": "echo", "input": "hi"})
    for path in ("resp_1", "resp_2"):
        gateway.http.get(f"/v1/responses/{path}")
    gateway.http.put("/v1/responses")
    gateway.http.get("/nowhere/at/all")
    got = read_metrics(gateway)

    assert got['convo_requests_total{method="POST",route="/v1/responses",status="200"}'] == 1
    assert got['convo_requests_total{method="GET",route="/v1/responses/{response_id}",status="404"}'] == 2
    assert got['convo_requests_total{method="PUT",route="/v1/responses",status="405"}'] == 1
    assert got['convo_requests_total{method="GET",route="",status="404"}'] == 1
    assert got['convo_request_seconds_count{route="/v1/responses/{response_id}"}'] == 2


def test_tokens_are_counted_by_model_and_kind(gateway: RunningGateway) -> None:
    gateway.create_response({"model": "echo", "input": "one two three"})
    gateway.events({"model": "echo", "input": "one two"})
    got = read_metrics(gateway)
    assert got['convo_tokens_total{kind="input",model="echo"}'] == 5
    assert got['convo_tokens_total{kind="output",model="echo"}'] == 5
    assert got['convo_first_event_seconds_count{route="/v1/responses"}'] == 2


def test_open_streams_are_counted_while_they_are_open(gateway: RunningGateway) -> None:
    gateway.script("slow", {"text": "word " * 50}, delay_s=HELD_S)
    with gateway.http.stream("POST", "/v1/responses", json={"model": "slow", "input": "hi", "stream": True}) as stream:
        lines = stream.iter_lines()
        next(lines)
        open_now = read_metrics(gateway)["convo_streams_open"]
        gateway.release_deltas()
        assert list(lines)
    assert (open_now, read_metrics(gateway)["convo_streams_open"]) == (1, 0)


def metrics_text(gateway: RunningGateway, key: str) -> str:
    got = gateway.http.get("/metrics", headers=bearer(key))
    assert got.status_code == 200
    return got.text


def test_a_key_sees_the_metrics_of_its_own_name_only(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob, root = (create_api_key(file, name) for name in ("alice", "bob", "root"))
    file.write_text(file.read_text().replace(key_hash(root), f"{key_hash(root)} admin  # monitoring"))
    gateway = serve(keys=KeysFile(file))
    for key, message in ((alice, "one two three"), (bob, "one")):
        gateway.create_response({"model": "echo", "input": message}, headers=bearer(key))
    requests_metric = 'convo_requests_total{method="POST",route="/v1/responses",status="200"}'
    tokens_metric = 'convo_tokens_total{kind="input",model="echo"}'

    for key, requests, token_count in ((alice, 1, 3), (bob, 1, 1), (root, 2, 4)):
        text = metrics_text(gateway, key)
        assert f"{requests_metric} {requests}.0" in text
        assert f"{tokens_metric} {token_count}.0" in text
        assert ("process_resident_memory_bytes" in text) is (key == root)
    assert "alice" not in metrics_text(gateway, root)


def test_an_admin_key_is_one_as_long_as_its_line_in_the_file_says_so(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    root = create_api_key(file, "root")
    file.write_text(f"root {key_hash(root)} admin\n")
    gateway = serve(keys=KeysFile(file))
    assert "process_" in metrics_text(gateway, root)
    file.write_text(f"root {key_hash(root)}\n")
    assert "process_" not in metrics_text(gateway, root)


def test_requests_that_failed_on_the_store_are_counted(serve: Serve) -> None:
    gateway = serve(wrap=faulty_service(unreachable_store))
    gateway.create_response({"model": "m", "input": "hi"})
    assert read_metrics(gateway)["convo_store_errors_total"] == 1
    with connect_client(gateway) as client:
        assert client.turn(input="hi")["error"]["code"] == "store_unavailable"
    assert read_metrics(gateway)["convo_store_errors_total"] == 2


def test_the_size_of_the_store_and_the_duration_of_its_transactions_are_shown(serve: Serve, tmp_path: Path) -> None:
    gateway = serve(f"sqlite:{tmp_path / 'convo.db'}")
    gateway.create_response({"model": "echo", "input": "hi"})
    first = read_metrics(gateway)
    gateway.create_response({"model": "echo", "input": "again"})
    second = read_metrics(gateway)

    assert second["convo_store_seconds_count"] > first["convo_store_seconds_count"] > 0
    assert second["convo_store_bytes"] == first["convo_store_bytes"] > 4096


def test_the_size_of_the_store_is_measured_once_a_minute(serve: Serve, tmp_path: Path) -> None:
    clock = FixedClock()
    gateway = serve(f"sqlite:{tmp_path / 'convo.db'}", clock=clock)
    before = read_metrics(gateway)["convo_store_bytes"]
    gateway.create_response({"model": "echo", "input": "word " * 20_000})
    assert read_metrics(gateway)["convo_store_bytes"] == before
    clock.advance(61)
    assert read_metrics(gateway)["convo_store_bytes"] > before


def test_a_store_without_a_disk_has_no_size(gateway: RunningGateway) -> None:
    assert "convo_store_bytes" not in read_metrics(gateway)


def test_a_key_does_not_see_the_size_of_a_shared_store(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice = create_api_key(file, "alice")
    gateway = serve(f"sqlite:{tmp_path / 'convo.db'}", keys=KeysFile(file))
    gateway.create_response({"model": "echo", "input": "hi"}, headers=bearer(alice))
    assert "convo_store_" not in metrics_text(gateway, alice).replace("convo_store_errors", "")


def test_the_number_of_model_labels_is_limited() -> None:
    metrics = Metrics()
    usage = {"input_tokens": 1, "output_tokens": 1}
    for index in range(MAX_MODEL_LABELS + 5):
        metrics.record_response({"model": f"m{index}", "usage": usage})
    models = set(re.findall(r'model="(\w+)"', metrics.render().decode()))
    assert len(models) == MAX_MODEL_LABELS + 1
    assert f'convo_tokens_total{{kind="input",model="{OTHER_MODELS_LABEL}"}} 5.0' in metrics.render().decode()


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": None}])
def test_a_response_without_usage_counts_nothing(usage: object) -> None:
    metrics = Metrics()
    metrics.record_response({"model": "m", "usage": usage})
    assert not re.search(r"convo_tokens_total\{.*\} [1-9]", metrics.render().decode())


def test_no_id_and_no_text_is_a_label(gateway: RunningGateway) -> None:
    response = gateway.create_response({"model": "echo", "input": "a secret word", "user": "somebody"}).json()
    gateway.http.get(f"/v1/responses/{response['id']}?include=secret")
    text = gateway.http.get("/metrics").text
    assert not [word for word in (response["id"], "secret", "somebody", "local", "req_") if word in text]


def test_every_request_is_logged_once_with_its_status_and_id(gateway: RunningGateway) -> None:
    got = [
        gateway.http.get("/healthz"),
        gateway.http.get("/nope"),
        gateway.create_response({"model": "echo", "input": "hi"}),
    ]
    gateway.http.get("/healthz")  # on the same connection, so the request before it has been logged
    exchanges = gateway.exchanges[:3]
    assert [(exchange.id, exchange.status) for exchange in exchanges] == [
        (answer.headers["x-request-id"], answer.status_code) for answer in got
    ]
    assert [exchange.tenant for exchange in exchanges] == ["", "", "local"]


def test_the_size_and_the_latency_of_the_store_are_described() -> None:
    metrics = Metrics(process=False)
    assert b"convo_store_bytes" not in metrics.render()
    metrics.set_store_size(1_234)
    metrics.record_store_duration(0.3)
    lines = metrics.render().decode().splitlines()
    assert lines[lines.index("# HELP convo_store_bytes Bytes of the store on disk, at most a minute old.") :][:3] == [
        "# HELP convo_store_bytes Bytes of the store on disk, at most a minute old.",
        "# TYPE convo_store_bytes gauge",
        "convo_store_bytes 1234.0",
    ]
    assert "# HELP convo_store_seconds Seconds of a store transaction, including the wait before its start." in lines
    assert [line for line in lines if line.startswith("convo_store_seconds_") and "bucket" not in line] == [
        "convo_store_seconds_count 1.0",
        "convo_store_seconds_sum 0.3",
    ]


def test_the_metrics_of_a_tenant_as_text() -> None:
    metrics = Metrics(process=False)
    metrics.record_request("GET", "/healthz", 200, 0.02)
    metrics.record_first_event("/v1/responses", 400.0)
    metrics.record_response({"model": "m", "usage": None})
    metrics.record_response(
        {
            "model": "m",
            "usage": {
                "input_tokens": 7,
                "input_tokens_details": {"cached_tokens": 5},
                "output_tokens": 3,
                "output_tokens_details": {"reasoning_tokens": 2},
            },
        }
    )
    metrics.add_open_streams(2)
    metrics.record_store_fault()
    lines = metrics.render().decode().splitlines()
    assert [line for line in lines if "_bucket{" not in line] == [
        "# HELP convo_requests_total HTTP requests.",
        "# TYPE convo_requests_total counter",
        'convo_requests_total{method="GET",route="/healthz",status="200"} 1.0',
        "# HELP convo_request_seconds Seconds from a request to the end of its response.",
        "# TYPE convo_request_seconds histogram",
        'convo_request_seconds_count{route="/healthz"} 1.0',
        'convo_request_seconds_sum{route="/healthz"} 0.02',
        "# HELP convo_first_event_seconds Seconds from a request to the first event of its response.",
        "# TYPE convo_first_event_seconds histogram",
        'convo_first_event_seconds_count{route="/v1/responses"} 1.0',
        'convo_first_event_seconds_sum{route="/v1/responses"} 400.0',
        "# HELP convo_streams_open Open streams.",
        "# TYPE convo_streams_open gauge",
        "convo_streams_open 2.0",
        "# HELP convo_tokens_total Tokens that models reported.",
        "# TYPE convo_tokens_total counter",
        'convo_tokens_total{kind="input",model="m"} 7.0',
        'convo_tokens_total{kind="cached",model="m"} 5.0',
        'convo_tokens_total{kind="output",model="m"} 3.0',
        'convo_tokens_total{kind="reasoning",model="m"} 2.0',
        "# HELP convo_store_errors_total Requests that failed because of the store.",
        "# TYPE convo_store_errors_total counter",
        "convo_store_errors_total 1.0",
    ]
    buckets = [line.rpartition(" ")[2] for line in lines if line.startswith("convo_request_seconds_bucket")]
    assert [line.split('"')[1] for line in lines if line.startswith("convo_request_seconds_bucket")] == [
        *("0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5"),
        *("1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "120.0", "300.0", "+Inf"),
    ]
    assert buckets == ["0.0"] * 4 + ["1.0"] * 14

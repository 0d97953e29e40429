"""Random and mutated requests get a response of the API: no 500, no timeout, no leftover task."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from convo.server.handlers import ApiRoute
from convo.server.inspector import DOCUMENTED_ROUTES
from convo.server.routes import API_ROUTES, SSE_MEDIA_TYPE, load_openapi_document
from convo.server.websocket import SWITCHING_PROTOCOLS_STATUS
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway
from tests.server.request_mutations import Request, mutated_messages, mutated_requests
from tests.server.websocket_client import WebSocketClient, connect_client

if TYPE_CHECKING:
    from schemathesis import Case

PATIENCE_S = 20
"""Much longer than any answer takes: a request that takes as long gets no answer at all."""


NO_KEY = "provider_key_refused"
"""Error code for a model whose provider needs a key that this server lacks; a bare name is such a model."""

LONG, LOST = 65_536, 0
"""LONG: bytes above which a request may be refused before the server has read all of it.
LOST: counts such refusals that got lost: the system discards a response if the client is still sending.
"""


LIMITS: Mapping[str, Any] = {"max_body_bytes": 400_000, "max_header_bytes": 20_000, "read_s": 0.2}
"""Low limits, so that mutations exceed them."""


class GatewayProcess:
    """The command in its own process, with the methods of `RunningGateway` that sending requests needs."""

    def __init__(self, root: str) -> None:
        self.root, self.port = root, int(root.rpartition(":")[2])
        self.http = httpx2.Client(base_url=root, timeout=PATIENCE_S, trust_env=False)

    def create_response(self, body: dict[str, Any]) -> httpx2.Response:
        return self.http.post("/v1/responses", json=body)

    def metric(self, name: str) -> float:
        lines = self.http.get("/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


Mode: TypeAlias = Literal["positive", "negative"]
"""Requests that the OpenAPI document allows, or requests that it forbids."""

Server: TypeAlias = RunningGateway | GatewayProcess


def generation_settings(examples: int) -> settings:
    """Return settings for this number of different requests; a failure is reported at once, without shrinking."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def valid_requests(gateway: Server) -> list[Request]:
    """Return valid requests, most of them for stored objects."""
    response = gateway.create_response({"model": "echo", "input": "hi"}).json()["id"]
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    conversation = gateway.http.post("/v1/conversations", json={"items": [item]}).json()["id"]
    body: dict[str, Any] = {"model": "echo", "input": [item], "tools": [{"type": "function", "name": "f"}]}
    more = {"metadata": {"a": "b"}, "temperature": 1, "text": {"format": {"type": "text"}}, "store": False}
    return [
        Request("POST", "/v1/responses", body | more),
        Request("POST", "/v1/responses", body | {"stream": True, "previous_response_id": response}),
        Request("POST", "/v1/responses", body | {"conversation": {"id": conversation}}),
        Request("POST", "/v1/responses/input_tokens", body),
        Request("POST", "/v1/responses/compact", {"model": "echo", "input": [item, item]}),
        Request("GET", f"/v1/responses/{response}"),
        Request("GET", f"/v1/responses/{response}/input_items?limit=2&order=asc"),
        Request("POST", f"/v1/responses/{response}/cancel", {}),
        Request("POST", "/v1/conversations", {"items": [item], "metadata": {}}),
        Request("POST", f"/v1/conversations/{conversation}", {"metadata": {"a": "b"}}),
        Request("POST", f"/v1/conversations/{conversation}/items", {"items": [item]}),
        Request("GET", f"/v1/conversations/{conversation}/items"),
        Request("DELETE", "/v1/conversations/conv_nobody"),
        Request("GET", "/v1/models"),
    ]


def send_raw(port: int, raw: bytes) -> tuple[int, bytes]:
    """Send these bytes; return the status and the body of the first response."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(raw)
        answer = HTTPResponse(connection, method=raw[:4].decode("latin-1").strip())
        answer.begin()
        return answer.status, answer.read()


def check_answer(status: int, body: bytes, *, head: bool) -> None:
    error = json.loads(body)["error"] if status >= 400 and not head else {}
    assert set(error) in (set(), {"message", "type", "param", "code"})
    assert status == SWITCHING_PROTOCOLS_STATUS or 200 <= status < 500 or error.get("code") == NO_KEY, (status, body)


def send_mutated_requests(gateway: Server, examples: int) -> Counter[int]:
    """Send this number of mutated requests; return the count of each status."""
    statuses: Counter[int] = Counter()

    @generation_settings(examples)
    @given(mutated_requests(valid_requests(gateway)))
    def send(raw: bytes) -> None:
        try:
            status, body = send_raw(gateway.port, raw)
        except (HTTPException, OSError) as error:
            if not (isinstance(error, ConnectionError) and len(raw) > LONG):
                raise AssertionError(f"no answer to {raw[:2000]!r}: {error!r}") from error
            statuses[LOST] += 1
            return
        statuses[status] += 1
        check_answer(status, body, head=raw.startswith(b"HEAD "))

    send()
    return statuses


# -- requests that the OpenAPI document allows or forbids -----------------------------------------

CHECK_NAMES = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_headers_conformance", "response_schema_conformance", "negative_data_rejection"),
)


SCHEMA_CHECK = "response_schema_conformance"
"""Not for a stream: its schema is that of the text, as in OpenAPI 3.1, and schemathesis compares it with each event."""


@cache
def described_api() -> Any:
    import schemathesis  # takes more than a second
    from schemathesis.checks import load_all_checks

    load_all_checks()
    return schemathesis.openapi.from_dict(json.loads(json.dumps(load_openapi_document())))


def send_documented_requests(gateway: Server, route: ApiRoute, mode: Mode, examples: int) -> Counter[int]:
    """Send this number of requests that the document allows or forbids; return the count of each status."""
    from schemathesis import GenerationMode

    operation = described_api()[route.path.replace("{model:path}", "{model}")][route.method.lower()]
    object_ids = stored_ids(gateway)
    statuses: Counter[int] = Counter()

    @generation_settings(examples)
    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)), real=st.booleans())
    def send(case: "Case[Any]", real: bool) -> None:
        if real:
            case.path_parameters = {
                name: object_ids.get(name, value) for name, value in (case.path_parameters or {}).items()
            }
        if case.media_type == "multipart/form-data" and isinstance(case.body, dict):
            assume(not any(isinstance(value, list) for value in case.body.values()))  # a form has no lists, only fields
        if isinstance(case.body, dict) and case.body.get("model") and isinstance(case.body["model"], str):
            case.body["model"] = "echo"
        statuses[send_documented_request(gateway, case)] += 1

    send()
    return statuses


def send_documented_request(gateway: Server, case: "Case[Any]") -> int:
    """Send one request, and check the response by the document; return its status."""
    from schemathesis.checks import CHECKS

    response = case.call(base_url=gateway.root, timeout=PATIENCE_S)
    is_stream = response.headers.get("content-type", [""])[0].startswith(SSE_MEDIA_TYPE)
    names = [name for name in CHECK_NAMES if not (is_stream and name == SCHEMA_CHECK)]
    checks: list[Any] = [CHECKS.get_one(name) for name in names]
    case.validate_response(response, checks=checks)
    return response.status_code


def stored_ids(gateway: Server) -> dict[str, str]:
    """Return the ids of stored objects by parameter name."""
    response = gateway.create_response({"model": "echo", "input": "hi"}).json()["id"]
    body = {"items": [{"role": "user", "content": "hi"}]}
    conversation = gateway.http.post("/v1/conversations", json=body).json()["id"]
    listed = gateway.http.get(f"/v1/conversations/{conversation}/items").json()
    ids = {"response_id": response, "conversation_id": conversation, "item_id": listed["first_id"], "model": "echo"}
    return {**ids, "id": response, "handle": response}


PAGE_CALLS = [route for route in DOCUMENTED_ROUTES if route.path != "/inspect/api/changes"]
"""The calls of the inspector page, except the feed of changes, which does not end."""

LENIENT_LISTS = ("/inspect/api/list", "/inspect/api/requests", "/inspect/api/decisions")
"""Lists of the page: a `limit` out of range is not refused."""

ALLOWED: list[tuple[ApiRoute, Mode]] = [(route, "positive") for route in (*API_ROUTES, *PAGE_CALLS)]
NOT_ALLOWED: list[tuple[ApiRoute, Mode]] = [
    (route, "negative")
    for route in (*API_ROUTES, *PAGE_CALLS)
    if (route.request_schema or route.query) and route.path not in LENIENT_LISTS
]


def parameter_id(value: Any) -> str:
    return f"{value.method} {value.path}" if isinstance(value, ApiRoute) else str(value)


@pytest.mark.parametrize(("route", "mode"), ALLOWED + NOT_ALLOWED, ids=parameter_id)
def test_the_server_conforms_to_its_openapi_document(
    shared_gateway: RunningGateway, route: ApiRoute, mode: Mode
) -> None:
    assert send_documented_requests(shared_gateway, route, mode, 3)
    assert shared_gateway.unexpected_errors == []


def test_a_stream_conforms_to_the_openapi_document(shared_gateway: RunningGateway) -> None:
    operation = described_api()["/v1/responses"]["post"]
    body = {"model": "echo", "input": "hi", "stream": True}
    case = operation.Case(body=body, media_type="application/json")
    assert send_documented_request(shared_gateway, case) == 200


# -- mutated requests ------------------------------------------------------------------------------


@pytest.fixture
def limited_gateway(serve: Serve, tmp_path: Path) -> Iterator[RunningGateway]:
    """A server with low limits. At the end it runs no more tasks than before, and met no unexpected error."""
    gateway = serve(f"sqlite:{tmp_path / 'convo.db'}", **LIMITS)
    gateway.create_response({"model": "echo", "input": "hi"})
    before = count_tasks(gateway)
    yield gateway
    for _ in range(1000):
        gateway.http.get("/healthz")
        if count_tasks(gateway) <= before:
            break
    assert count_tasks(gateway) <= before
    assert gateway.unexpected_errors == []


def count_tasks(gateway: RunningGateway) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks())

    return gateway.run(count())


def test_a_mutated_request_gets_an_api_response(limited_gateway: RunningGateway) -> None:
    statuses = send_mutated_requests(limited_gateway, 150)
    assert {200, 400} <= set(statuses)


def test_a_mutated_message_gets_an_answer_and_the_connection_stays(limited_gateway: RunningGateway) -> None:
    with connect_client(limited_gateway) as client:
        send_mutated_messages(client, 100)
        assert client.turn(input="still there")["status"] == "completed"


def send_mutated_messages(client: WebSocketClient, examples: int) -> None:
    @generation_settings(examples)
    @given(
        mutated_messages({"type": "response.create", "model": "echo", "input": "hi", "store": False, "metadata": {}})
    )
    def send(text: str) -> None:
        assume(len(text.encode()) <= LIMITS["max_body_bytes"])  # a longer one closes the connection
        try:
            client.send(text)
            end = client.receive_response_events()[-1]
        except (ConnectionClosed, TimeoutError, UnicodeEncodeError) as error:
            raise AssertionError(f"no answer to {text[:2000]!r}: {error!r}") from error
        assert end["type"] != "error" or 400 <= end["status"] < 500 or end["code"] == NO_KEY, end

    send()


# -- long run --------------------------------------------------------------------------------------

WARM_UP, RAW, MESSAGES, BY_DOCUMENT = 1500, 6500, 2000, 50
MAX_GROWTH_BYTES = 30 * 1024 * 1024

FREED_AT_ONCE = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}
"""The C library returns freed memory to the system, so that the memory of a process is what it uses.

Without them the process keeps 10 MB or more of freed memory, the more the more threads worked at the same time.
"""


@contextmanager
def run_gateway_process(folder: Path) -> Iterator[GatewayProcess]:
    """Run the command over SQLite with low limits. It must exit with 0 and print no error."""
    limits = "".join(f"{name} = {value}\n" for name, value in LIMITS.items())
    settings_file = folder / "convo.toml"
    settings_file.write_text(f'[aliases]\necho = "scripted/echo"\n[serve]\n{limits}', encoding="utf-8")
    command = [sys.executable, "-m", "convo", "--config", str(settings_file), "serve", "--port", "0"]
    store = f"sqlite:{folder / 'convo.db'}"
    with subprocess.Popen(
        [*command, "--store", store], stderr=subprocess.PIPE, encoding="utf-8", env={**os.environ, **FREED_AT_ONCE}
    ) as process:
        assert process.stderr is not None
        first_line = process.stderr.readline()
        address = re.search(r"http://[\d.:]+", first_line)
        assert address, first_line + process.stderr.read()
        process_gateway = GatewayProcess(address[0])
        try:
            yield process_gateway
        finally:
            process_gateway.http.close()
            process.terminate()
            stderr = process.stderr.read()
    assert (process.returncode, stderr) == (0, "")


@pytest.mark.full(every_commit=True)
def test_ten_thousand_mutated_requests_leave_no_tasks_or_locks(tmp_path: Path) -> None:
    """Memory and open files are compared with those after the warm-up."""
    with run_gateway_process(tmp_path) as server:
        statuses = send_mutated_requests(server, WARM_UP)
        for route, mode in ALLOWED:  # the first call of a route imports its libraries and opens its connection
            statuses += send_documented_requests(server, route, mode, 2)
        response = server.create_response({"model": "echo", "input": "hi"}).json()["id"]
        preview = server.http.get(f"/inspect/api/conversations/{response}/compaction")  # loads the tokenizer, 17 MB
        assert preview.status_code == 200
        memory, files = server.metric("process_resident_memory_bytes"), server.metric("process_open_fds")
        statuses += send_mutated_requests(server, RAW)
        for route, mode in ALLOWED + NOT_ALLOWED:
            statuses += send_documented_requests(server, route, mode, BY_DOCUMENT)
        with connect_client(server) as client:
            send_mutated_messages(client, MESSAGES)
        growth = server.metric("process_resident_memory_bytes") - memory
        print(f"{statuses.total() + MESSAGES} requests: {dict(statuses)}")
        print(f"memory {memory / 1e6:.1f} MB + {growth / 1e6:.1f} MB, open files {files:.0f}")
        assert growth < MAX_GROWTH_BYTES
        assert server.metric("process_open_fds") <= files
        assert statuses.total() + MESSAGES >= 10_000

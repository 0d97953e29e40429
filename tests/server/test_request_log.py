"""Each request to a model is listed: from the moment its body is read, and afterwards also where nothing is stored."""

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from convo.config.sections import ServeLimits
from convo.server.auth import KeysFile, create_api_key
from tests import databases
from tests.cli.chat_commands import ECHO
from tests.cli.stored_chats import DATABASE
from tests.clock import FixedClock
from tests.command_runner import Convo, Start
from tests.models.chat_server import ChatServer, run_chat_server
from tests.server.api_keys import bearer
from tests.server.gateway import RunningGateway, run_gateway, run_gateway_with_upstream
from tests.server.websocket_client import connect_client
from tests.terminal.pty_session import at_terminal

CODEX = {"user-agent": "codex_exec/0.171.0 (Debian)"}


def listed(gateway: RunningGateway, query: str = "", headers: dict[str, str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = gateway.http.get(f"/inspect/api/requests?{query}", headers=headers or {}).json()
    return found


def wait_for(gateway: RunningGateway, is_wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return the list as soon as it is as wanted."""
    deadline = time.monotonic() + 30
    while not is_wanted(found := listed(gateway)):
        assert time.monotonic() < deadline, found
    return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[RunningGateway, ChatServer]]:
    with run_gateway_with_upstream(tmp_path, f"sqlite:{tmp_path}/convo.db") as (gateway, upstream):
        yield gateway, upstream


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_a_request_is_listed_as_waiting_and_then_as_streaming(
    served: tuple[RunningGateway, ChatServer], path: str
) -> None:
    gateway, upstream = served
    field = {"/v1/responses": "input", "/v1/chat/completions": "messages"}[path]
    body = {"model": "up/m", "stream": True, field: [{"role": "user", "content": "tell me"}]}
    may_answer = threading.Event()
    with upstream.hold_answer("Once", " upon") as may_end:
        hold = upstream.answers.pop()

        async def wait_and_answer(receive: Any, send: Any) -> None:
            await asyncio.to_thread(may_answer.wait)
            await hold(receive, send)

        upstream.answers.append(wait_and_answer)
        client = threading.Thread(target=lambda: gateway.http.post(path, json=body, headers=CODEX))
        client.start()
        (waiting,) = wait_for(gateway, lambda found: found["running"])["running"]
        may_answer.set()
        (streaming,) = wait_for(gateway, lambda found: [row["phase"] for row in found["running"]] == ["streaming"])[
            "running"
        ]
        may_end.set()
        client.join()
    assert (waiting["phase"], waiting["model"], waiting["client"]) == ("waiting", "up/m", "codex 0.171.0")
    assert waiting["request_id"] == streaming["request_id"] == waiting["id"]
    assert streaming["first_token_s"] > 0
    (ended,) = wait_for(gateway, lambda found: not found["running"])["data"]
    assert (ended["status"], ended["id"] == waiting["id"]) == ("completed", path != "/v1/responses")


FAILURES: dict[str, tuple[Callable[[ChatServer], None] | None, dict[str, Any], str]] = {
    "400": (lambda up: up.refuse(400, {"error": {"message": "no", "code": "bad_tool"}}), {}, "bad_tool"),
    "401": (lambda up: up.refuse(401, {"error": {"message": "no"}}), {}, "provider_key_refused"),
    "429": (lambda up: up.refuse(429, {"error": {"message": "no", "code": "rate_limited"}}), {}, "rate_limited"),
    "503": (lambda up: up.refuse(503, {"error": {"message": "no", "code": "overloaded"}}), {}, "overloaded"),
    "prose as code": (
        lambda up: up.refuse(400, {"error": {"message": "no", "code": "cannot read my key is hunter2"}}),
        {},
        "upstream_error",
    ),
    "no response": (lambda up: up.hang_up(), {}, "unreachable"),
    "unknown model": (None, {"model": "no/m"}, "model_not_found"),
    "unknown field": (None, {"inptu": 1}, "unknown_parameter"),
    "unknown response": (None, {"previous_response_id": "resp_0"}, "previous_response_not_found"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_request_that_failed_leaves_a_row_and_no_response(
    served: tuple[RunningGateway, ChatServer], name: str
) -> None:
    gateway, upstream = served
    prepare, fields, code = FAILURES[name]
    if prepare:
        prepare(upstream)
    answer = gateway.http.post("/v1/responses", json={"model": "up/m", "input": "x", **fields}, headers=CODEX)
    assert answer.status_code >= 400
    (row,) = listed(gateway, "status=failed")["data"]
    assert row["code"] == code
    assert (row["id"], row["client"], row["is_stored"]) == (answer.headers["x-request-id"], "codex 0.171.0", False)
    assert row["model"] == fields.get("model", "up/m")
    assert row["latency_s"] > 0
    assert row["response_bytes"] == len(answer.content)
    assert "x" not in row["title"]
    assert gateway.http.get(f"/v1/responses/{row['id']}").status_code == 404
    continued = gateway.create_response({"model": "echo", "input": "x", "previous_response_id": row["id"]})
    assert continued.status_code >= 400


@pytest.fixture
def written_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep rows in memory until the server ends."""
    monkeypatch.setattr("convo.server.request_log.WRITE_INTERVAL_S", 3600)


@pytest.mark.usefixtures("written_at_the_end")
def test_a_rate_limited_request_leaves_a_row_and_one_without_a_valid_key_leaves_none(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    headers = bearer(create_api_key(keys, "alice"))
    limits = ServeLimits(per_minute=2)
    with run_gateway(tmp_path / "g", keys=KeysFile(keys), limits=limits, clock=FixedClock()) as gateway:
        for _ in range(3):
            last = gateway.create_response({"model": "echo", "input": "x", "store": False}, headers=headers)
        assert last.status_code == 429
        assert gateway.create_response({"model": "echo", "input": "x"}, headers=bearer("sk-wrong")).status_code == 401
        rows = gateway.run(_recent(gateway, "alice"))
        assert Counter((row.code, row.count) for row in rows) == Counter({(None, 2): 1, ("rate_limit_exceeded", 1): 1})
        assert gateway.run(_recent(gateway, "")) == []


async def _recent(gateway: RunningGateway, tenant: str) -> list[Any]:
    return list(gateway.app.requests.recent(tenant))


def test_a_turn_of_a_websocket_that_failed_leaves_a_row(served: tuple[RunningGateway, ChatServer]) -> None:
    gateway, upstream = served
    upstream.refuse(429, {"error": {"message": "no", "code": "rate_limited"}})
    with connect_client(gateway) as client:
        client.send({"type": "response.create", "model": "up/m", "input": "x"})
        client.receive()
    (row,) = wait_for(gateway, lambda found: found["data"])["data"]
    assert (row["status"], row["code"], row["model"]) == ("failed", "rate_limited", "up/m")


@pytest.mark.parametrize("store", [True, False])
def test_a_request_whose_client_leaves_while_it_waits_is_one_cancelled_row(
    served: tuple[RunningGateway, ChatServer], store: bool
) -> None:
    gateway, upstream = served
    may_answer = hold_refusal(upstream)
    address = urlsplit(gateway.url)
    client = HTTPConnection(address.netloc)
    body = json.dumps({"model": "up/m", "input": "x", "store": store})
    client.request("POST", "/v1/responses", body, {"content-type": "application/json"})
    wait_for(gateway, lambda found: found["running"] and upstream.requests)
    client.close()
    (row,) = wait_for(gateway, lambda found: found["data"] and not found["running"])["data"]
    assert (row["status"], row.get("is_stored", True)) == ("cancelled", store)
    may_answer.set()


@pytest.mark.usefixtures("written_at_the_end")
def test_rows_are_written_in_batches_kept_after_a_restart_and_limited_in_number(tmp_path: Path) -> None:
    def rows(gateway: RunningGateway) -> list[tuple[str, int]]:
        return [(row["model"], row["count"]) for row in listed(gateway)["data"]]

    store, clock = f"sqlite:{tmp_path}/convo.db", FixedClock(int(time.time()))
    with run_gateway(tmp_path / "g", store, max_unstored_rows=2, clock=clock) as gateway:
        for model in ("no/a", "no/b", "no/b", "no/c"):
            gateway.create_response({"model": model, "input": "x"})
            clock.advance(0.1)  # a row counts the requests of one second
        assert rows(gateway) == [("no/c", 1), ("no/b", 2), ("no/a", 1)]
    with run_gateway(tmp_path / "g", store) as gateway:
        assert rows(gateway) == [("no/c", 1), ("no/b", 2)]


MIXED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"model": "echo", "input": "stored"}, "completed"),
    ({"model": "echo", "input": "not stored", "store": False}, "completed"),
    ({"model": "no/m", "input": "x"}, "failed"),
    ({"model": "echo", "input": "x", "previous_response_id": "resp_0"}, "failed"),
)


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.full)])
def test_list_charts_filters_and_metrics_count_the_same_requests(tmp_path: Path, count: int) -> None:
    with run_gateway(tmp_path / "g", f"sqlite:{tmp_path}/convo.db") as gateway:
        for number in range(count):
            gateway.create_response(MIXED[number % len(MIXED)][0])
        counted: Counter[tuple[str, str]] = Counter()
        after = ""
        while True:
            page = listed(gateway, f"limit=200&after={after}")
            for row in page["data"]:
                counted[row["model"], row["status"]] += row.get("count", 1)
            if (after := page["next"] or "") == "":
                break
        half, failed = count // 4, count // 2
        models = {row["model"] for row in page["data"]}
        assert sum(counted.values()) == count
        assert sum(number for (_, status), number in counted.items() if status == "failed") == failed
        for query, requests, errors in (
            ("", count, failed),
            ("status=failed", failed, failed),
            ("status=completed", failed, 0),
            ("model=no/m", half, half),
        ):
            total = gateway.http.get(f"/inspect/api/charts?{query}").json()["total"]
            assert (total["requests"], total["errors"]) == (requests, errors), query
        buckets = gateway.http.get("/inspect/api/charts?model=no/m").json()["buckets"]
        assert all(0 < bucket["latency_p50_s"] <= bucket["latency_p95_s"] for bucket in buckets if bucket["requests"])
        assert "no/m" in listed(gateway)["models"], models
        metrics = gateway.http.get("/metrics").text
        by_status: Counter[bool] = Counter()
        for line in metrics.splitlines():
            if line.startswith('convo_requests_total{method="POST",route="/v1/responses"'):
                status = line.partition('status="')[2][:3]
                by_status[status < "400"] += int(float(line.rpartition(" ")[2]))
        assert by_status == {True: failed, False: failed}


def test_every_order_pages_through_stored_and_other_requests_alike(tmp_path: Path) -> None:
    with run_gateway(tmp_path / "g", f"sqlite:{tmp_path}/convo.db") as gateway:
        for body, _ in MIXED * 2:
            gateway.create_response(body)
        for sort in ("created_at", "model", "status", "latency", "input", "cached", "output", "cost", "title"):
            for order in ("asc", "desc"):
                query = f"sort={sort}&order={order}"
                whole = [row["id"] for row in listed(gateway, query)["data"]]
                paged, after = list[str](), ""
                while True:
                    page = listed(gateway, f"{query}&limit=2&after={after}")
                    paged += [row["id"] for row in page["data"]]
                    if not (after := page["next"] or ""):
                        break
                assert paged == whole, query
                assert len(set(whole)) == len(whole)


def test_a_request_is_listed_by_another_server_of_the_database_until_it_ends(tmp_path: Path) -> None:
    with databases.start_server() as database, ExitStack() as stack:
        one, upstream = stack.enter_context(run_gateway_with_upstream(tmp_path / "one", database.url()))
        other = stack.enter_context(run_gateway(tmp_path / "other", database.url()))
        with upstream.hold_answer("Once") as may_end:
            body = {"model": "up/m", "input": "tell me", "stream": True}
            client = threading.Thread(target=lambda: one.http.post("/v1/responses", json=body, headers=CODEX))
            client.start()
            (row,) = wait_for(other, lambda found: [row["phase"] for row in found["running"]] == ["streaming"])[
                "running"
            ]
            assert (row["title"], row["client"]) == ("tell me", "codex 0.171.0")
            may_end.set()
            client.join()
        assert wait_for(other, lambda found: not found["running"])["data"][0]["id"] == row["id"]
        one.create_response({"model": "no/m", "input": "x"})
        assert wait_for(other, lambda found: len(found["data"]) == 2)["data"][0]["code"] == "model_not_found"


@pytest.fixture
def beside(home: Path, tmp_path: Path, convo: Convo) -> Iterator[tuple[RunningGateway, ChatServer]]:
    """Run a server over the store of this test's commands, which has the conversation "talk", and their model."""
    convo("chat", *ECHO, "-n", "talk", "tell me")
    agent = '[agents.helper]\ninstructions = "Help."\nmodel = "up/m"\n'
    (tmp_path / "agent.toml").write_text(f'start = "helper"\n{agent}')
    with run_chat_server() as upstream:
        settings = f'[providers.up]\napi = "chat"\nbase_url = "{upstream.url}"\n'
        (home / "config").mkdir(exist_ok=True)
        (home / "config" / "config.toml").write_text(settings)
        with run_gateway(tmp_path / "served", f"sqlite:{home / DATABASE}") as gateway:
            yield gateway, upstream


def hold_refusal(upstream: ChatServer) -> threading.Event:
    """Refuse the next request when the returned event is set."""
    may_answer = threading.Event()
    upstream.refuse(401, {"error": {"message": "no", "code": "bad_key"}})
    refuse = upstream.answers.pop()

    async def wait_and_refuse(receive: Any, send: Any) -> None:
        await asyncio.to_thread(may_answer.wait)
        await refuse(receive, send)

    upstream.answers.append(wait_and_refuse)
    return may_answer


CLIENT = """
import json, os, urllib.error, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "tell me"}]}).encode()
address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
try:
    urllib.request.urlopen(urllib.request.Request(address, body, {"content-type": "application/json"}))
except urllib.error.HTTPError as error:
    error.read()  # as the SDKs do; without it the program is gone before the relay has the body
"""

COMMANDS: dict[str, tuple[str, ...]] = {
    "chat with the words of another chat": ("chat", "-m", "up/m", "tell me"),
    "chain": ("chat", "-m", "up/m", "--chain", "tell me"),
    "conversation": ("chat", "-m", "up/m", "--conversation", "tell me"),
    "replay": ("chat", "-m", "up/m", "--replay", "--from", "talk.json", "tell me"),
    "agent": ("chat", "--agent", "agent.toml", "tell me"),
    "race": ("race", "-m", "up/m", "tell me"),
    "compaction": ("compact", "talk", "-m", "up/m"),
    "program beside tap": ("tap", "--provider", "up", "--", sys.executable, "-c", CLIENT),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_request_of_another_command_is_listed_while_it_waits_and_after_it_failed(
    beside: tuple[RunningGateway, ChatServer], start: Start, name: str
) -> None:
    gateway, upstream = beside
    before = len(listed(gateway)["data"])
    may_answer = hold_refusal(upstream)
    requests = 4 if name == "race" else 1
    for _ in range(requests - 1):
        hold_refusal(upstream).set()
    process = start(*COMMANDS[name])
    found = wait_for(gateway, lambda found: any(row.get("phase") for row in found["running"] + found["data"]))
    (waiting,) = [row for row in found["running"] + found["data"] if row.get("phase")]
    assert (waiting["phase"], waiting["model"], waiting["status"]) == ("waiting", "up/m", "in_progress")
    assert 0 <= time.time() - waiting["created_at"] < 60
    assert len(found["data"]) == before + (name == "program beside tap")
    may_answer.set()
    process.wait()
    found = wait_for(gateway, lambda found: not found["running"])
    rows = found["data"][: len(found["data"]) - before]
    assert sum(row.get("count", 1) for row in rows) == requests
    for row in rows:
        assert (row["status"], row["code"], row["model"]) == ("failed", "bad_key", "up/m")
        assert row["latency_s"] > 0
        assert row["session"] or row["client"].startswith("convo ")
    assert gateway.http.get("/inspect/api/charts?status=failed").json()["total"]["requests"] == requests


def test_a_chat_is_listed_while_its_answer_streams_and_while_a_retry_waits_but_not_after_it_was_stopped(
    beside: tuple[RunningGateway, ChatServer],
) -> None:
    gateway, upstream = beside
    with upstream.hold_answer("Once"), at_terminal("chat", "-m", "up/m") as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("a story\r")
        found = wait_for(gateway, lambda found: [row["phase"] for row in found["running"]] == ["streaming"])
        (streaming,) = found["running"]
        assert (streaming["text"], streaming["title"], streaming["session"]) == ("Once", "a story", "a-story")
        terminal.press_ctrl("c")
        terminal.wait_for_prompt()
        found = wait_for(gateway, lambda found: not found["running"])
        assert (found["data"][0]["status"], found["data"][0]["session"]) == ("cancelled", "a-story")
        may_answer = hold_refusal(upstream)
        terminal.type_keys("/retry\r")
        assert wait_for(gateway, lambda found: found["running"])["running"][0]["phase"] == "waiting"
        may_answer.set()
        assert wait_for(gateway, lambda found: not found["running"])["data"][0]["code"] == "bad_key"
        terminal.wait_for_prompt()
        may_answer = hold_refusal(upstream)
        terminal.type_keys("/retry\r")
        assert wait_for(gateway, lambda found: found["running"])["running"][0]["title"] == "a story"
        may_answer.set()
        assert len(wait_for(gateway, lambda found: not found["running"])["data"]) == 4

"""`[serve] record`: requests that are not stored are in the inspector for a limited time, and clients are told."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from convo.server.auth import KeysFile, create_api_key
from tests.models.chat_server import ChatServer, delta, finish, run_chat_server
from tests.server.gateway import RunningGateway, run_gateway
from tests.server.websocket_client import connect_client

HEADER = "x-convo-recorded"
CODEX = {"user-agent": "codex_exec/0.169.0 (Debian)", "session-id": "s1", "cookie": "sk-planted-cookie-0123456789"}


LISTED_WITHIN_S = 5.0
"""Generous, because other processes share the machine; tests of the page measure it in milliseconds."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    with run_gateway(tmp_path, record=True) as running:
        yield running


def rows(gateway: RunningGateway, **headers: str) -> dict[str, Any]:
    listed: dict[str, Any] = gateway.http.get("/inspect/api/requests", headers=headers).json()
    return listed


def wait_for_rows(
    gateway: RunningGateway, is_wanted: Callable[[list[Any]], bool], timeout_s: float = 30.0
) -> list[Any]:
    """Return the rows as soon as they are wanted: requests are written behind their responses."""
    deadline = time.monotonic() + 30
    while not is_wanted(data := rows(gateway)["data"]):
        assert time.monotonic() < deadline, [row["status"] for row in data]
        time.sleep(0.01)
    return list(data)


def unstored(text: str, *history: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "echo", "store": False, "input": [*history, {"role": "user", "content": text}], **fields}


@pytest.mark.parametrize("stream", [False, True])
def test_unstored_requests_are_listed_and_continue_each_other(gateway: RunningGateway, stream: bool) -> None:
    history: list[Any] = []
    for text in ("one", "two"):
        if stream:
            events = gateway.http.post("/v1/responses", json=unstored(text, *history, stream=True), headers=CODEX)
            assert events.headers[HEADER] == "ttl=604800"
            line = next(
                line for line in events.text.splitlines() if line.startswith('data: {"type":"response.completed')
            )
            response = json.loads(line[6:])["response"]
        else:
            answer = gateway.create_response(unstored(text, *history), headers=CODEX)
            assert answer.headers[HEADER] == "ttl=604800"
            response = answer.json()
        history += [{"role": "user", "content": text}, *response["output"]]
    newest, oldest = wait_for_rows(gateway, lambda data: [row["status"] for row in data] == ["completed"] * 2)
    assert newest["id"] == response["id"]
    assert {newest["client"], oldest["client"]} == {"codex 0.169.0"}
    assert newest["session"] == oldest["session"]
    assert rows(gateway)["is_recording"]
    view = gateway.http.get(f"/inspect/api/conversations/{newest['session']}").json()
    assert [link["parent"] for link in view["links"]] == [None, oldest["id"]]
    assert view["items_at_head"] == 4


def test_a_recorded_response_stays_unknown_to_the_api(gateway: RunningGateway) -> None:
    response = gateway.create_response(unstored("one")).json()
    wait_for_rows(gateway, lambda data: [row["status"] for row in data] == ["completed"])
    assert gateway.http.get(f"/v1/responses/{response['id']}").status_code == 404
    continued = gateway.create_response({"model": "echo", "input": "two", "previous_response_id": response["id"]})
    assert continued.json()["error"]["code"] == "previous_response_not_found"


def test_a_running_request_is_listed_and_its_partial_answer_is_kept(gateway: RunningGateway) -> None:
    gateway.script("slow", {"text": "many words " * 40}, delay_s=0.2)
    body = {**unstored("one", stream=True), "model": "slow"}
    with gateway.http.stream("POST", "/v1/responses", json=body) as response:
        lines = response.iter_lines()
        assert any("response.created" in line for line in lines)
        started = time.monotonic()
        wait_for_rows(gateway, lambda data: [row["status"] for row in data] == ["in_progress"])
        assert time.monotonic() - started < LISTED_WITHIN_S
        assert any("output_text.delta" in line for line in lines)
    (row,) = wait_for_rows(gateway, lambda data: [row["status"] for row in data] == ["incomplete"])
    assert row["id"].startswith("resp_")


def test_turns_of_a_websocket_are_recorded_with_their_parents(gateway: RunningGateway) -> None:
    with connect_client(gateway) as client:
        first = client.turn(model="echo", store=False, input="one")
        second = client.turn(model="echo", store=False, input="two", previous_response_id=first["id"])
    data = wait_for_rows(gateway, lambda data: [row["status"] for row in data] == ["completed"] * 2)
    assert [row["id"] for row in data] == [second["id"], first["id"]]
    view = gateway.http.get(f"/inspect/api/conversations/{first['id']}").json()
    assert [link["parent"] for link in view["links"]] == [None, first["id"]]


def test_only_the_keys_of_the_setting_are_recorded(tmp_path: Path) -> None:
    keys = {name: create_api_key(tmp_path / "keys", name) for name in ("alice", "bob")}
    headers = {name: {"authorization": f"Bearer {key}"} for name, key in keys.items()}
    with run_gateway(tmp_path / "g", keys=KeysFile(tmp_path / "keys"), record=True, record_keys=("alice",)) as gateway:
        answers = {name: gateway.create_response(unstored("one"), headers=headers[name]) for name in keys}
        assert {name: HEADER in answer.headers for name, answer in answers.items()} == {"alice": True, "bob": False}
        deadline = time.monotonic() + 30
        while not (listed := rows(gateway, **headers["alice"]))["data"]:
            assert time.monotonic() < deadline
        assert listed["is_recording"]
        other = rows(gateway, **headers["bob"])
        assert [row["is_stored"] for row in other["data"]] == [False]
        assert not other["is_recording"]


@contextmanager
def sqlite_gateway(folder: Path, **fields: Any) -> Iterator[tuple[RunningGateway, Path]]:
    folder.mkdir(exist_ok=True)
    with run_gateway(folder / "g", f"sqlite:{folder / 'convo.db'}", **fields) as gateway:
        yield gateway, folder / "convo.db"


def test_nothing_is_recorded_by_default_and_no_stored_or_refused_request_twice(tmp_path: Path) -> None:
    with run_gateway(tmp_path / "off") as gateway:
        assert HEADER not in gateway.create_response(unstored("one")).headers
        assert [row["is_stored"] for row in rows(gateway)["data"]] == [False]
        assert not rows(gateway)["is_recording"]
    with run_gateway(tmp_path / "on", record=True) as gateway:
        assert HEADER not in gateway.create_response({"model": "echo", "input": "stored"}).headers
        assert HEADER not in gateway.create_response({**unstored("one"), "model": "missing/model"}).headers
        assert [(row["title"], row.get("code")) for row in rows(gateway)["data"]] == [
            ("", "model_not_found"),
            ("stored", None),
        ]


def test_recordings_are_complete_after_a_shutdown_and_expire_at_the_next_start(tmp_path: Path) -> None:
    with sqlite_gateway(tmp_path, record=True) as (gateway, file):
        assert gateway.create_response(unstored("remember me"), headers=CODEX).status_code == 200
    assert b"remember me" in file.read_bytes()
    assert b"planted" not in file.read_bytes()
    with sqlite_gateway(tmp_path, record=True, record_ttl_s=0) as (gateway, _):
        time.sleep(0.05)
        gateway.run(_start(gateway))
        wait_for_rows(gateway, lambda data: data == [])


async def _start(gateway: RunningGateway) -> None:
    gateway.app.recording.start()


# -- requests that are passed through -------------------------------------------------------------

MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "Bonjour."}], "usage": {"input_tokens": 3, "output_tokens": 2},
}  # fmt: skip
CLAUDE = {"user-agent": "claude-cli/2.1.330 (external)", "x-api-key": "sk-planted-key-0123456789"}


@contextmanager
def passing_gateway(folder: Path, **fields: Any) -> Iterator[tuple[RunningGateway, Path, ChatServer]]:
    """A gateway in front of a server of chat completions and of Anthropic's Messages, with its SQLite file."""
    with run_chat_server() as upstream:
        toml = f'''
[providers.up]
api = "chat"
base_url = "{upstream.url}"
[providers.claude]
api = "anthropic"
base_url = "{upstream.url.removesuffix("/v1")}"
'''
        with sqlite_gateway(folder, toml=toml, **fields) as (gateway, file):
            yield gateway, file, upstream


def chat(text: str, *history: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "up/m", "messages": [*history, {"role": "user", "content": text}], **fields}


def test_passed_requests_are_listed_while_they_run_and_continue_each_other(tmp_path: Path) -> None:
    with passing_gateway(tmp_path, record=True) as (gateway, file, upstream):
        upstream.stall(delta(content="Once"))
        with gateway.http.stream("POST", "/v1/chat/completions", json=chat("tell", stream=True), headers=CODEX) as left:
            assert left.headers[HEADER] == "ttl=604800"
            lines = left.iter_lines()  # closing it disconnects
            assert any("Once" in line for line in lines)
            started = time.monotonic()
            (running,) = wait_for_rows(gateway, lambda data: [row["status"] for row in data] == ["in_progress"])
            assert time.monotonic() - started < LISTED_WITHIN_S
        assert (running["client"], running["model"]) == ("codex 0.169.0", "up/m")
        (ended,) = wait_for_rows(gateway, lambda data: [row["status"] for row in data] == ["incomplete"])
        assert ended["title"] == "tell"

        upstream.stream(delta(content="Hi."), finish("stop"))
        first = gateway.http.post("/v1/chat/completions", json=chat("one", stream=True, store=True), headers=CODEX)
        assert first.headers[HEADER] == "ttl=604800"
        history = ({"role": "user", "content": "one"}, {"role": "assistant", "content": "Hi."})
        upstream.stream(delta(content="Ho."), finish("stop"))
        gateway.http.post("/v1/chat/completions", json=chat("two", *history, stream=True), headers=CODEX)
        upstream.refuse(200, MESSAGE)
        body = {"model": "claude/claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "salut"}]}
        assert gateway.http.post("/v1/messages", json=body, headers=CLAUDE).headers[HEADER]
        data = wait_for_rows(
            gateway, lambda data: [row["status"] for row in data] == [*["completed"] * 3, "incomplete"]
        )
        assert [row["client"] for row in data] == ["claude-code 2.1.330", *["codex 0.169.0"] * 3]
        assert data[0]["output_tokens"] == 2
        view = gateway.http.get(f"/inspect/api/conversations/{data[1]['id']}").json()
        assert view["links"][-1]["parent"] == data[2]["id"]
        assert gateway.http.get(f"/v1/responses/{data[2]['id']}").status_code == 404
    assert b"Bonjour." in file.read_bytes()
    assert b"planted" not in file.read_bytes()


def test_a_failed_request_is_recorded_with_its_error_and_embeddings_and_token_counts_are_not(tmp_path: Path) -> None:
    with passing_gateway(tmp_path, record=True) as (gateway, _, upstream):
        upstream.refuse(429, {"error": {"message": "too fast", "code": "rate_limit_exceeded"}})
        refused = gateway.http.post("/v1/chat/completions", json=chat("one"))
        assert (refused.status_code, refused.headers[HEADER]) == (429, "ttl=604800")
        upstream.hang_up()
        assert gateway.http.post("/v1/chat/completions", json=chat("two")).headers[HEADER] == "ttl=604800"
        upstream.refuse(401, {"error": {"message": "no"}})
        assert gateway.http.post("/v1/chat/completions", json=chat("three")).headers[HEADER] == "ttl=604800"
        upstream.refuse(200, {"data": []})
        assert HEADER not in gateway.http.post("/v1/embeddings", json={"model": "up/e", "input": "x"}).headers
        upstream.refuse(200, {"input_tokens": 1})
        count = {"model": "claude/claude-x", "messages": []}
        assert HEADER not in gateway.http.post("/v1/messages/count_tokens", json=count).headers
        assert HEADER not in gateway.http.post("/v1/chat/completions", json={**chat("x"), "model": "no/m"}).headers
        data = wait_for_rows(
            gateway,
            lambda data: (
                [(row["title"], row["status"]) for row in data]
                == [("", "failed"), ("", "completed"), ("three", "failed"), ("two", "failed"), ("one", "failed")]
            ),
        )
        assert [row["code"] for row in data[2:]] == ["provider_key_refused", "server_error", "rate_limit_exceeded"]
        link = gateway.http.get(f"/inspect/api/conversations/{data[4]['id']}").json()["links"][0]
        assert "too fast" in json.dumps(link)


def test_passed_requests_are_not_recorded_by_default(tmp_path: Path) -> None:
    with passing_gateway(tmp_path) as (gateway, _, upstream):
        upstream.stream(delta(content="Hi."), finish("stop"))
        assert HEADER not in gateway.http.post("/v1/chat/completions", json=chat("one", stream=True)).headers
        assert [(row["title"], row["is_stored"]) for row in rows(gateway)["data"]] == [("", False)]

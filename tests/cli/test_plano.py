"""`convo serve` with a configuration file of Plano, and Plano's stored responses in the same PostgreSQL database."""

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import databases
from tests.cli.serve_process import run_serve
from tests.command_runner import Convo
from tests.models.chat_server import ChatServer, delta, finish, run_chat_server
from tests.server.api_keys import bearer, key_hash

pytestmark = pytest.mark.needs("postgresql")

CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS conversation_states (
    response_id TEXT PRIMARY KEY,
    input_items JSONB NOT NULL,
    created_at BIGINT NOT NULL,
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX IF NOT EXISTS idx_conversation_states_created_at ON conversation_states(created_at);
CREATE INDEX IF NOT EXISTS idx_conversation_states_provider ON conversation_states(provider);
"""
"""The table of Plano's documentation."""

CONFIG = """
version: v0.3.0
listeners:
  - {type: model, name: models, port: 12000}
model_providers:
  - model: vllm/qwen
    access_key: $VLLM_API_KEY
    base_url: BASE_URL
    provider_interface: openai
    default: true
model_aliases:
  fast: {target: qwen}
state_storage:
  type: postgres
  connection_string: "postgresql://${DB_USER}@/DATABASE?host=$DB_HOST"
"""


def message(role: str, *parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as Plano's server stores it."""
    return {"role": role, "content": list(parts)}


ALICE = (
    message("user", {"type": "input_text", "text": "My name is Alice."}),
    message("assistant", {"type": "output_text", "text": "Hello Alice!"}),
)


class PlanoDatabase:
    """A database with the table of Plano, and a configuration file that names it."""

    def __init__(self, url: str, config: Path, upstream: ChatServer) -> None:
        self.url, self.config, self.upstream = url, config, upstream

    def add(self, response_id: str, items: Sequence[object], model: str = "vllm/qwen") -> None:
        with psycopg.connect(self.url) as db:
            db.execute(
                "INSERT INTO conversation_states (response_id, input_items, created_at, model, provider, updated_at)"
                " VALUES (%s, %s, 1765000000, %s, 'vllm/qwen', NOW())",
                (response_id, json.dumps(items), model),
            )

    def rows(self) -> list[Any]:
        with psycopg.connect(self.url) as db:
            return db.execute("SELECT * FROM conversation_states ORDER BY response_id").fetchall()

    def answer(self, text: str) -> None:
        self.upstream.stream(delta(content=text), finish("stop"))

    def sent(self) -> list[Any]:
        """The messages of the last request that the model received."""
        messages: list[Any] = self.upstream.requests[-1].json["messages"]
        return messages


@pytest.fixture
def plano(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanoDatabase]:
    url = databases.new_database(schema=False)
    options = psycopg.conninfo.conninfo_to_dict(url)
    monkeypatch.setenv("DB_USER", str(options["user"]))
    monkeypatch.setenv("DB_HOST", str(options["host"]))
    monkeypatch.setenv("VLLM_API_KEY", "sk-vllm")
    with psycopg.connect(url) as db:
        db.execute(CREATE_TABLE)
    with run_chat_server() as upstream:
        config = tmp_path / "plano_config.yaml"
        text = CONFIG.replace("BASE_URL", upstream.url).replace("DATABASE", str(options["dbname"]))
        config.write_text(text, encoding="utf-8")
        yield PlanoDatabase(url, config, upstream)
    databases.drop(url)


def serve(plano: PlanoDatabase, *argv: str) -> Any:
    return run_serve("--config", str(plano.config), *argv)


def test_a_response_of_plano_is_continued_and_inspected(convo: Convo, plano: PlanoDatabase) -> None:
    """The stored items are the history; the new response is in the same chain, and the row stays as it was."""
    plano.add("resp_alice", ALICE)
    rows = plano.rows()
    plano.answer("You are Alice.")
    with serve(plano) as server:
        response = server.create_response("Who am I?", model="fast", previous_response_id="resp_alice")
        stored = server.http.get("/v1/responses/resp_alice").json()
        items = server.http.get("/v1/responses/resp_alice/input_items").json()["data"]
        server.stop(signal.SIGTERM)

    assert response["output"][0]["content"][0]["text"] == "You are Alice."
    assert [(sent["role"], sent["content"]) for sent in plano.sent()] == [
        ("user", "My name is Alice."),
        ("assistant", "Hello Alice!"),
        ("user", "Who am I?"),
    ]
    assert plano.upstream.requests[-1].headers["authorization"] == "Bearer sk-vllm"
    assert (stored["status"], stored["model"], stored["created_at"]) == ("completed", "vllm/qwen", 1765000000)
    assert stored["output"][0]["content"][0]["text"] == "Hello Alice!"
    assert [item["content"][0]["text"] for item in items] == ["My name is Alice."]

    view = convo("--config", str(plano.config), "inspect", "resp_alice", "--json").json()
    assert [link["response_id"] for link in view["links"]] == ["resp_alice", response["id"]]
    assert plano.rows() == rows


def test_a_response_that_no_server_has_read_is_inspected(convo: Convo, plano: PlanoDatabase) -> None:
    plano.add("resp_alice", ALICE)
    command = "--config", str(plano.config)
    assert convo(*command, "inspect", "resp_alice").err.endswith("  try: convo store migrate\n")
    convo(*command, "store", "migrate")

    assert "Hello Alice!" in convo(*command, "inspect", "resp_alice", "--items").out
    assert convo(*command, "inspect", "resp_alic").exit == 0  # its own copy has a prefix
    assert convo(*command, "inspect", "resp_bob").exit == 5


def test_rows_of_plano_belong_to_the_tenant_local(plano: PlanoDatabase, tmp_path: Path) -> None:
    plano.add("resp_alice", ALICE)
    keys = tmp_path / "keys"
    keys.write_text(f"bob {key_hash('b')}\nlocal {key_hash('l')}\n", encoding="utf-8")
    keys.chmod(0o600)
    with serve(plano, "--keys", str(keys)) as server:

        def statuses(key: str) -> list[int]:
            body = {"model": "fast", "input": "Hi", "previous_response_id": "resp_alice"}
            got = server.http.post("/v1/responses", json=body, headers=bearer(key))
            return [got.status_code, server.http.get("/v1/responses/resp_alice", headers=bearer(key)).status_code]

        plano.answer("Hi.")
        assert [statuses("b"), statuses("l"), statuses("b")] == [[400, 404], [200, 200], [400, 404]]


def test_a_deleted_copy_stays_deleted_and_the_row_stays(plano: PlanoDatabase) -> None:
    plano.add("resp_alice", ALICE)
    rows = plano.rows()
    plano.answer("You are Alice.")
    plano.answer("Alice, still.")
    with serve(plano) as server:
        child = server.create_response("Who am I?", model="qwen", previous_response_id="resp_alice")
        deleted = server.http.delete("/v1/responses/resp_alice").json()
        again = server.http.delete("/v1/responses/resp_alice").status_code
        statuses = [server.http.get(f"/v1/responses/{name}").status_code for name in ("resp_alice", child["id"])]
        server.create_response("And now?", model="qwen", previous_response_id=child["id"])

    assert (deleted["deleted"], again, statuses) == (True, 404, [404, 200])
    assert plano.sent()[0]["content"] == "My name is Alice."
    assert plano.rows() == rows


CALL_TEXT = 'Called function: get_weather with arguments: {"city": "%s"}'


@pytest.mark.parametrize(
    ("items", "sent"),
    [
        pytest.param(
            [
                message("user", {"type": "input_text", "text": "Weather?"}),
                message("assistant", {"type": "output_text", "text": CALL_TEXT % "Rome"}),
                message("assistant", {"type": "output_text", "text": CALL_TEXT % "Oslo"}),
                {"type": "function_call_output", "call_id": "c1", "output": "sun"},
                {"type": "function_call_output", "call_id": "c2", "output": "rain"},
                message("assistant", {"type": "output_text", "text": "Sun and rain."}),
            ],
            [
                {"role": "user", "content": "Weather?"},
                [("c1", "get_weather", '{"city": "Rome"}'), ("c2", "get_weather", '{"city": "Oslo"}')],
                {"role": "tool", "tool_call_id": "c1", "content": "sun"},
                {"role": "tool", "tool_call_id": "c2", "content": "rain"},
                {"role": "assistant", "content": "Sun and rain."},
            ],
            id="calls as text",
        ),
        pytest.param(
            [
                message("user", {"type": "input_text", "text": "Weather?"}),
                {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "sun"},
                message("assistant", {"type": "output_text", "text": CALL_TEXT % "Oslo"}),
            ],
            [
                {"role": "user", "content": "Weather?"},
                [("c1", "get_weather", "{}")],
                {"role": "tool", "tool_call_id": "c1", "content": "sun"},
                {"role": "assistant", "content": CALL_TEXT % "Oslo"},
            ],
            id="calls as items, and a text without an output",
        ),
        pytest.param(
            [
                message("user", {"type": "input_image", "image_url": "https://x.example/a.png", "detail": None}),
                message("assistant", {"type": "input_text", "text": "A cat."}),
            ],
            [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}],
                },
                {"role": "assistant", "content": "A cat."},
            ],
            id="earlier versions",
        ),
    ],
)
def test_items_are_read_in_the_forms_of_plano(plano: PlanoDatabase, items: list[Any], sent: list[Any]) -> None:
    plano.add("resp_x", items, model="qwen")
    plano.answer("Yes.")
    with serve(plano) as server:
        server.create_response("Sure?", model="fast", previous_response_id="resp_x")

    def shorten(message: dict[str, Any]) -> Any:
        calls = message.get("tool_calls")
        return [(call["id"], *call["function"].values()) for call in calls] if calls else message

    assert [shorten(message) for message in plano.sent()[:-1]] == sent


def test_a_row_that_is_no_history_is_reported(plano: PlanoDatabase) -> None:
    plano.add("resp_x", ["Hi"])
    with serve(plano) as server:
        body = {"model": "fast", "input": "Hi", "previous_response_id": "resp_x"}
        got = server.http.post("/v1/responses", json=body)

    assert (got.status_code, got.json()["error"]["code"]) == (500, "store_damaged")


@pytest.mark.parametrize("statement", ["DROP TABLE conversation_states", "ALTER TABLE conversation_states DROP model"])
def test_without_a_table_of_plano_an_unknown_response_is_not_found(plano: PlanoDatabase, statement: str) -> None:
    with psycopg.connect(plano.url) as db:
        db.execute(statement)
    with serve(plano) as server:
        assert server.http.get("/v1/responses/resp_x").status_code == 404
        assert server.http.delete("/v1/responses/resp_x").status_code == 404

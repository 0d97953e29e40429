"""A response that reaches a limit ends, keeps its partial output, and names the limit."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.command_runner import Convo
from tests.hostile_server import HostileServer, repeat_piece, run_hostile_server
from tests.limits.endless_answers import FORMS, endless_answers, endless_deltas, slow_drip, started_then
from tests.server.gateway import RunningGateway, run_gateway

SMALL = {
    "answer_bytes": 4 * 2**20,
    "answer_events": 2_000,
    "event_bytes": 256 * 1024,
    "output_bytes": 4_096,
    "idle_s": 30,
    "answer_s": 20,
}
"""Small limits for a quick test; a busy machine reaches the limits of time last."""


@pytest.fixture(scope="module", autouse=True)
def import_provider_packages() -> None:
    """Import the provider packages first, so that the import does not count towards a short time limit."""
    import_module("openai")
    import_module("anthropic")


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with run_hostile_server() as server:
        yield server


def toml(server: HostileServer, api: str, limits: dict[str, Any]) -> str:
    lines = [f'[providers.far]\napi = "{api}"\nbase_url = "{server.url}"\nkey_env = "FAR_KEY"', "[limits]"]
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in limits.items())])


@pytest.fixture
def serve(
    server: HostileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., RunningGateway]]:
    """Return a function that starts a gateway in front of the server, with small limits."""
    from contextlib import ExitStack

    monkeypatch.setenv("FAR_KEY", "test-key")
    with ExitStack() as stack:

        def start(api: str, **limits: Any) -> RunningGateway:
            settings_text = toml(server, api, {**SMALL, **limits})
            return stack.enter_context(run_gateway(tmp_path / "served", toml=settings_text))

        yield start


OVER_LIMIT: dict[str, tuple[Callable[[str], Iterator[bytes]], dict[str, Any], str]] = {
    "deltas": (endless_deltas, {}, "output_bytes"),
    "arguments": (lambda api: endless_deltas(api, arguments=True), {}, "output_bytes"),
    "events": (endless_deltas, {"output_bytes": 2**20, "answer_events": 50}, "answer_events"),
    "comments": (lambda api: started_then(api, repeat_piece(b": still here\n\n")), {}, "answer_bytes"),
    "a line": (lambda api: started_then(api, repeat_piece(b"data: xxx", head=b"")), {}, "event_bytes"),
}


@pytest.mark.parametrize("api", FORMS)
@pytest.mark.parametrize("kind", OVER_LIMIT)
def test_a_limit_of_size_makes_an_answer_incomplete(server: HostileServer, serve: Any, api: str, kind: str) -> None:
    answers, limits, limit = OVER_LIMIT[kind]
    server.answers = lambda _: answers(api)
    gateway = serve(api, **limits)

    answer = gateway.create_response({"model": "far/m", "input": "hi"})
    response = answer.json()

    assert answer.status_code == 200
    assert answer.headers["x-convo-limit"] == f"limits.{limit}"
    assert (response["status"], response["error"]) == ("incomplete", None)
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["type"] for item in response["output"]] == ["message"]
    assert response["output"][0]["content"][0]["text"].startswith("begun ")
    assert server.closed.wait(30)
    assert gateway.exchanges[-1].limit_name == f"limits.{limit}"
    assert gateway.http.get(f"/v1/responses/{response['id']}").json() == response


@pytest.mark.parametrize("api", FORMS)
@pytest.mark.parametrize("limit", ["idle_s", "answer_s"])
def test_a_limit_of_time_makes_an_answer_fail(server: HostileServer, serve: Any, api: str, limit: str) -> None:
    server.answers = lambda _: slow_drip(server, api)
    gateway = serve(api, **{"answer_s": 30, limit: 1.5})  # the text comes before it, on a busy machine, too

    answer = gateway.create_response({"model": "far/m", "input": "hi"})
    response = answer.json()

    assert answer.headers["x-convo-limit"] == f"limits.{limit}"
    assert response["status"] == "failed"
    assert set(response["error"]) == {"code", "message"}
    assert response["error"]["code"] == "server_error"
    assert f"limits.{limit} = 1.5" in response["error"]["message"]
    assert response["output"][0]["content"][0]["text"] == "begun "
    assert server.closed.wait(30)


@pytest.mark.parametrize("kind", ["line", "body", "gzip bomb", "slow drip"])
def test_an_answer_that_never_starts_is_refused_with_the_name_of_the_limit(
    server: HostileServer, serve: Any, kind: str
) -> None:
    if kind == "slow drip":
        server.answers = lambda _: slow_continue_responses(server)
    else:
        server.answers = lambda _: endless_answers(server, "chat")[kind]()
    gateway = serve("chat", idle_s=0.5)

    answer = gateway.create_response({"model": "far/m", "input": "hi"})

    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "server_error"
    assert "limits." in answer.json()["error"]["message"]
    assert answer.headers["x-convo-limit"].startswith("limits.")
    assert server.closed.wait(30)


def slow_continue_responses(server: HostileServer) -> Iterator[bytes]:
    yield b"HTTP/1.1 100 Continue\r\n\r\n"
    while True:
        server.wait(0.02)
        yield b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("api", FORMS)
def test_endless_headers_are_refused(server: HostileServer, serve: Any, api: str) -> None:
    server.answers = lambda _: endless_answers(server, api)["header"]()

    answer = serve(api).create_response({"model": "far/m", "input": "hi"})

    assert answer.status_code == 502
    assert server.closed.wait(30)


def test_a_stream_names_the_limit_in_a_comment_before_its_last_event(server: HostileServer, serve: Any) -> None:
    server.answers = lambda _: endless_deltas("chat")

    text = serve("chat").create_response({"model": "far/m", "input": "hi", "stream": True}).text
    *_, comment, last, done, _ = text.split("\n\n")

    assert comment == ": x-convo-limit limits.output_bytes"
    event = json.loads(last.partition("data: ")[2])
    assert set(event) == {"type", "sequence_number", "response"}
    assert event["type"] == "response.incomplete"
    assert done == "data: [DONE]"


def test_a_response_in_the_background_ends_at_its_limit(server: HostileServer, serve: Any) -> None:
    server.answers = lambda _: endless_deltas("chat")
    gateway = serve("chat")

    created = gateway.create_response({"model": "far/m", "input": "hi", "background": True}).json()
    text = gateway.http.get(f"/v1/responses/{created['id']}", params={"stream": "true"}).text
    response = gateway.http.get(f"/v1/responses/{created['id']}").json()

    assert ": x-convo-limit limits.output_bytes" in text
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["content"][0]["text"].startswith("begun ")


def test_a_chain_continues_from_a_response_that_a_limit_ended(server: HostileServer, serve: Any) -> None:
    server.answers = lambda _: endless_deltas("chat", arguments=True)
    gateway = serve("chat")
    first = gateway.create_response({"model": "far/m", "input": "hi"}).json()

    second = gateway.create_response({"model": "far/m", "input": "go on", "previous_response_id": first["id"]})

    assert second.status_code == 200


# -- chat -----------------------------------------------------------------------------------------


@pytest.fixture
def chat(server: HostileServer, convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function: `chat(api, "--session", "hi")` sends a message with small limits; `limits` override them."""
    monkeypatch.setenv("FAR_KEY", "test-key")
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)

    def send_message(api: str, *argv: str, **limits: Any) -> Any:
        model = "openai/m" if api == "remote" else "far/m"
        settings_text = toml(server, "chat" if api == "remote" else api, {**SMALL, **limits})
        (home / "config").mkdir(parents=True, exist_ok=True)
        file = home / "limits.toml"
        file.write_text(settings_text)
        return convo("--config", str(file), "chat", "-m", model, *argv)

    return send_message


@pytest.mark.parametrize("api", ["chat", "anthropic", "remote"])
@pytest.mark.parametrize("owner", ["--session", "--chain"])
def test_a_chat_names_the_limit_and_ends_with_one(
    server: HostileServer, chat: Any, convo: Convo, api: str, owner: str
) -> None:
    server.answers = lambda _: endless_deltas("responses" if api == "remote" else api)

    got = chat(api, owner, "hi")

    assert got.exit == 1
    assert got.out.startswith("begun endless")
    assert "limits.output_bytes" in got.err
    assert "convo config set limits.output_bytes" in got.err
    assert server.closed.wait(30)
    document = convo("inspect", "@last", "--json").json()
    is_server_owned = api == "remote" and owner == "--chain"
    assert document["links"][-1]["status"] == ("failed" if is_server_owned else "incomplete")
    assert document["links"][-1]["limit"] == "limits.output_bytes"
    assert "limits.output_bytes" in convo("inspect", "@last").out


@pytest.mark.parametrize("api", ["chat", "remote"])
def test_a_chat_that_exceeds_the_time_limit_fails_with_the_name_of_the_limit(
    server: HostileServer, chat: Any, convo: Convo, api: str
) -> None:
    server.answers = lambda _: slow_drip(server, "responses" if api == "remote" else api)

    got = chat(api, "--session", "hi", idle_s=0.5)

    assert got.exit == 1
    assert "limits.idle_s = 0.5" in got.err
    assert convo("inspect", "@last", "--json").json()["links"][-1]["status"] == "failed"


def test_a_call_that_a_limit_truncated_is_never_run(server: HostileServer, chat: Any, tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text(
        "from pathlib import Path\n"
        "from convo.agents import Agent\n"
        "from convo.tools import tool\n"
        "@tool\n"
        "def pay(to: str = '') -> str:\n"
        "    Path('paid').write_text(to)\n"
        "    return 'paid'\n"
        "payer = Agent('payer', tools=[pay])\n"
    )
    server.answers = lambda _: endless_deltas("chat", arguments=True)

    got = chat("chat", "--agent", f"{agent}:payer", "hi")

    assert got.exit == 1
    assert "limits.output_bytes" in got.err
    assert not Path("paid").exists()


def test_an_endless_list_of_models_is_skipped(server: HostileServer, serve: Any) -> None:
    server.answers = lambda _: repeat_piece(b'{"id": "m"},', head=b"HTTP/1.1 200 OK\r\n\r\n" + b'{"data": [')
    gateway = serve("chat", body_bytes=2**20)

    listed = gateway.http.get("/v1/models").json()

    assert "far/m" not in [model["id"] for model in listed["data"]]

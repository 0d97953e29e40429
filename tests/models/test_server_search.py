"""Model servers on this machine: the models and context windows that each kind of server lists."""

import asyncio
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from convo.models import server_search
from convo.models.server_search import LocalServer, ServerKind, find_local_servers
from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.command_runner import Convo
from tests.terminal.plain_repl import run_repl

Responses = Mapping[str, Any]

MODELS = {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}

OLLAMA: Responses = {
    "/v1/models": MODELS,
    "/api/show a": {"model_info": {"general.architecture": "qwen", "qwen.context_length": 131_072}},
    "/api/show b": {"model_info": {}},
}
LLAMA_CPP: Responses = {"/v1/models": MODELS, "/props": {"default_generation_settings": {"n_ctx": 4_096}}}
LM_STUDIO: Responses = {
    "/v1/models": MODELS,
    "/api/v0/models": {"data": [{"id": "b", "max_context_length": 32_768}, {"id": "c", "max_context_length": 1}]},
}
VLLM: Responses = {"/v1/models": {"data": [{"id": "a", "max_model_len": 8_096}, {"id": "b", "max_model_len": "x"}]}}


@pytest.fixture(autouse=True)
def patient_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take more than two seconds for an answer."""
    monkeypatch.setattr(server_search, "SEARCH_TIMEOUT_S", 60.0)


@contextmanager
def run_server(responses: Responses, *, delay_s: float = 0.0) -> Iterator[int]:
    """Run a server with these JSON responses by path, and by model for POST; yields its port."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        path = scope["path"] + (f" {json.loads(body)['model']}" if body else "")
        response = responses.get(path)
        content = response if isinstance(response, bytes) else json.dumps(response).encode()
        await asyncio.sleep(delay_s)
        status = 404 if response is None else 200
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    listener, _ = listen_on_free_port()
    with serve_in_thread(application, listener, asyncio.new_event_loop()):
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("provider", "responses", "windows"),
    [
        ("ollama", OLLAMA, {"a": 131_072, "b": None}),
        ("llamacpp", LLAMA_CPP, {"a": 4_096, "b": 4_096}),
        ("lmstudio", LM_STUDIO, {"a": None, "b": 32_768}),
        ("vllm", VLLM, {"a": 8_096, "b": None}),
        ("ollama", {"/v1/models": {"object": "list", "data": None}}, {}),
        ("llamacpp", {"/v1/models": MODELS}, {"a": None, "b": None}),
        ("llamacpp", {"/v1/models": MODELS, "/props": []}, {"a": None, "b": None}),
        ("lmstudio", {"/v1/models": MODELS, "/api/v0/models": {"data": [5, {"id": "a"}]}}, {"a": None, "b": None}),
        (
            "lmstudio",
            {"/v1/models": MODELS, "/api/v0/models": {"data": [{"id": [1]}, {"id": {}}]}},
            {"a": None, "b": None},
        ),
        ("ollama", {"/v1/models": MODELS, "/api/show a": [], "/api/show b": {"model_info": 5}}, {"a": None, "b": None}),
    ],
)
async def test_the_models_of_a_server_have_the_windows_that_it_tells(
    provider: str, responses: Responses, windows: dict[str, int | None]
) -> None:
    with run_server(responses) as port:
        kind = ServerKind("Server", provider, port)
        assert await find_local_servers([kind]) == [LocalServer(kind, f"http://127.0.0.1:{port}/v1", windows)]


@pytest.mark.parametrize("host", ["127.0.0.1:PORT", "localhost:PORT", "http://127.0.0.1:PORT/", "0.0.0.0:PORT"])
def test_ollama_is_asked_at_the_address_that_its_variable_names(
    host: str, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = (ServerKind("Ollama", "ollama", 1), ServerKind("vLLM", "vllm", 1))
    monkeypatch.setattr(server_search, "SERVER_KINDS", kinds)
    with run_server(OLLAMA) as port:
        monkeypatch.setenv("OLLAMA_HOST", host.replace("PORT", str(port)))
        (server,) = convo("models", "--local", "--json").json()
        assert server["base_url"].endswith(f":{port}/v1")
        assert [model["model"] for model in server["models"]] == ["a", "b"]
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    assert convo("models", "--local").err == (
        "no model server answers on this machine at the standard ports of vLLM (1), or at OLLAMA_HOST"
        " (http://127.0.0.1:1/v1)\n"
    )


def test_a_host_without_a_port_has_the_standard_port(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_search, "SERVER_KINDS", (ServerKind("Ollama", "ollama", 1),))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.2")
    assert "OLLAMA_HOST (http://127.0.0.2:11434/v1)" in convo("models", "--local").err


@pytest.mark.parametrize(
    "responses",
    [
        {},
        {"/v1/models": b"<html>hello</html>"},
        {"/v1/models": {"data": [{"name": "a"}]}},
        {"/v1/models": {"data": [{"id": "x" * 2_000_000}]}},
        {"/v1/models": 5},
    ],
)
async def test_another_program_at_a_port_is_no_model_server(responses: Responses) -> None:
    with run_server(responses) as port:
        assert await find_local_servers([ServerKind("Server", "vllm", port)]) == []


def test_the_command_lists_the_servers_and_how_to_use_the_first(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_server(VLLM) as port:
        kinds = (ServerKind("vLLM", "vllm", port), ServerKind("Nobody", "ollama", 1))
        monkeypatch.setattr(server_search, "SERVER_KINDS", kinds)
        got = convo("models", "--local")
        url = f"http://127.0.0.1:{port}/v1"
        assert [line.split() for line in got.out.splitlines()] == [
            ["server", "base_url", "context", "model"],
            ["vLLM", url, "8,096", "a"],
            ["vLLM", url, "-", "b"],
        ]
        use, chat = got.err.splitlines()
        commands = use.removeprefix("to use it: ").split(" && ")
        assert commands == [
            "convo config set providers.vllm.api chat",
            f"convo config set providers.vllm.base_url {url}",
        ]
        assert chat == "to chat: convo chat -m vllm/a"
        models = [{"model": "a", "context": 8_096}, {"model": "b", "context": None}]
        assert convo("models", "--local", "--json").json() == [
            {"server": "vLLM", "provider": "vllm", "base_url": url, "models": models}
        ]
        for command in commands:
            assert convo(*command.split()[1:]).exit == 0
        assert convo("models", "--local").err == f"{chat}\n"
    assert convo("models", "--local").err == (
        f"no model server answers on this machine at the standard ports of vLLM ({port}), Nobody (1)\n"
    )


def context_of(model: str) -> str:
    """Return the line of /context about the window of a new chat with `model`."""
    err = run_repl("-m", model, lines=["/context"]).err
    return next(line for line in err.splitlines() if "window" in line or "free" in line)


@pytest.mark.needs("posix")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_chat_knows_the_window_that_the_list_shows(host: str, convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_server(VLLM) as port:
        monkeypatch.setattr(server_search, "SERVER_KINDS", (ServerKind("vLLM", "vllm", port),))
        assert convo("config", "set", "providers.mine.api", "chat").exit == 0
        assert convo("config", "set", "providers.mine.base_url", f"http://{host}:{port}/v1").exit == 0
        assert "unknown" in context_of("mine/a")
        assert convo("models", "--local").exit == 0
    assert "8,096" in context_of("mine/a")
    assert "unknown" in context_of("mine/b")
    known = {model["model"]: model["window"] for model in convo("models", "known", "--json").json()["models"]}
    assert known["mine/a"] == {"context": 8_096, "output": None, "source": "reported by its server"}
    assert convo("config", "set", 'windows."mine/a:latest"', "{ context = 5000 }").exit == 0
    assert "5,000" in context_of("mine/a")


def test_a_hostile_name_takes_one_short_line_and_is_in_no_command(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a\nto chat: convo chat -m evil", "x" * 1_000_000, "\x1b]0;t\x07", " b", "b", "c\td"]
    with run_server({"/v1/models": {"data": [{"id": name, "max_model_len": 4_096} for name in names]}}) as port:
        monkeypatch.setattr(server_search, "SERVER_KINDS", (ServerKind("vLLM", "vllm", port),))
        got = convo("models", "--local")
        assert [line.partition("4,096  ")[2] for line in got.out.splitlines()[1:]] == [
            r"a\nto chat: convo chat -m evil",
            "x" * 199 + "…",
            r"\x1b]0;t\x07",
            " b",
            "b",
            r"c\td",
        ]
        assert got.err.splitlines()[1:] == ["to chat: convo chat -m vllm/b"]
        (server,) = convo("models", "--local", "--json").json()
        assert [model["model"] for model in server["models"]] == names


@pytest.mark.parametrize("tokens", [b"9" * 4_000, b"1000000001", b"-1", b"0", b"NaN", b"1e999", b"true", b'"5"'])
async def test_a_number_that_is_no_context_window_is_left_out(tokens: bytes) -> None:
    with run_server({"/v1/models": b'{"data": [{"id": "a", "max_model_len": ' + tokens + b"}]}"}) as port:
        (server,) = await find_local_servers([ServerKind("vLLM", "vllm", port)])
        assert server.windows == {"a": None}


WINDOWS_URL = "http://127.0.0.1:9/v1"


def list_known_windows(convo: Convo) -> dict[str, int]:
    """Return the windows of the models of a provider at `WINDOWS_URL`."""
    assert convo("config", "set", "providers.mine.api", "chat").exit == 0
    assert convo("config", "set", "providers.mine.base_url", WINDOWS_URL).exit == 0
    models = convo("models", "known", "--json").json()["models"]
    return {model["model"]: model["window"]["context"] for model in models if model["model"].startswith("mine/")}


def test_a_saved_number_that_is_no_context_window_is_ignored(convo: Convo, home: Path) -> None:
    table = {"a": 4_096, "b": 10**9 + 1, "c": True, "d": -1, "e": 1.5, "f": None, "g": {"context": 5}}
    (home / "state").mkdir(parents=True)
    (home / "state" / "model_windows.json").write_text(json.dumps({WINDOWS_URL: table}), encoding="utf-8")
    assert list_known_windows(convo) == {"mine/a": 4_096}


def test_of_the_saved_windows_of_one_server_a_thousand_are_read(convo: Convo, home: Path) -> None:
    table = {f"m{number}": 4_096 for number in range(1_500)}
    (home / "state").mkdir(parents=True)
    (home / "state" / "model_windows.json").write_text(json.dumps({WINDOWS_URL: table}), encoding="utf-8")
    assert len(list_known_windows(convo)) == 1_000


@pytest.mark.needs("posix")
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "loop"])
def test_a_cache_that_is_no_file_is_ignored(kind: str, convo: Convo, home: Path) -> None:
    cache = home / "state" / "model_windows.json"
    cache.parent.mkdir(parents=True)
    match kind:
        case "pipe":
            os.mkfifo(cache)
        case "endless":
            cache.symlink_to("/dev/zero")
        case "folder":
            cache.mkdir()
        case "loop":
            cache.symlink_to(cache)
    assert list_known_windows(convo) == {}


def test_local_and_ask_cannot_be_combined(convo: Convo) -> None:
    got = convo("models", "--local", "--ask")
    message = "--local cannot be used with --ask"
    assert (got.exit, got.err) == (2, f"convo: {message}\n  try: convo models --local\n")


async def test_a_port_without_a_server_and_a_slow_server_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_search, "SEARCH_TIMEOUT_S", 0.2)
    with socket.socket() as unused, run_server(VLLM, delay_s=1.0) as slow_port:
        unused.bind(("127.0.0.1", 0))
        kinds = [ServerKind("Nobody", "ollama", unused.getsockname()[1]), ServerKind("Slow", "vllm", slow_port)]
        assert await find_local_servers(kinds) == []

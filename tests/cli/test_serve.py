"""`convo serve` as a process: startup, shutdown, the store, keys and logs."""

import json
import re
import resource
import signal
import socket
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from convo.cli.serve import StoreFaultPrinter, print_internal_error
from convo.errors import StoreUnavailable
from convo.installation import make_install_command
from tests.cli.serve_process import ServeProcess, config_flags, run_serve
from tests.cli.test_streamed_text import response_events
from tests.command_runner import Convo, Start
from tests.models.chat_server import delta, finish
from tests.models.chat_server import run_chat_server as answering

ALIASES = '[aliases]\necho = "scripted/echo"\nslow = "scripted/{folder}/slow.json"\n'


@pytest.fixture
def aliases(tmp_path: Path) -> tuple[str, str]:
    slow = {"replies": [{"text": "word " * 1000}], "delay_s": 0.05}
    (tmp_path / "slow.json").write_text(json.dumps(slow), encoding="utf-8")
    return config_flags(tmp_path, ALIASES.format(folder=tmp_path))


def open_stream(server: ServeProcess) -> object:
    """Start a long streamed response; it continues as long as the returned object is referenced."""
    body = {"model": "slow", "input": "hi", "stream": True}
    stream = server.http.stream("POST", "/v1/responses", json=body)
    lines = stream.__enter__().iter_lines()
    next(lines)
    return stream, lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_serve_prints_its_address_in_one_line_and_exits_0_on_a_signal(
    aliases: tuple[str, str], number: signal.Signals
) -> None:
    with run_serve("--store", "memory", before=aliases) as server:
        assert server.create_response("hello")["output"][0]["content"][0]["text"] == "hello"
        code = server.stop(number)
    assert (code, server.err) == (0, "")
    assert re.fullmatch(r"convo serves http://127\.0\.0\.1:\d+/v1, store memory\n", server.ready_line)


def test_a_second_signal_ends_the_server_at_once(aliases: tuple[str, str]) -> None:
    with run_serve("--store", "memory", before=aliases) as server:
        stream = open_stream(server)
        server.process.send_signal(signal.SIGTERM)
        while accepts_connections(server):
            pass
        code = server.stop(signal.SIGTERM)
    assert code == -signal.SIGTERM
    assert stream


def test_more_connections_than_open_files_allow_close_the_idle_ones_with_one_notice(start: Start) -> None:
    process = start("serve", "--port", "0", "--store", "memory", shell='ulimit -Sn 100; ulimit -Hn 256; exec "$@"')
    assert process.stderr
    server = ServeProcess(process, process.stderr.readline())
    address = server.http.base_url.host, server.http.base_url.port or 0
    silent = [socket.create_connection(address) for _ in range(270)]
    assert server.http.get("/readyz").status_code == 200
    assert server.stop(signal.SIGTERM) == 0
    assert server.err.startswith("convo serve: More than 96 connections are open")
    assert server.err.count("\n") == 1
    for connection in silent:
        connection.close()


def test_a_shutdown_that_waits_for_responses_is_reported(aliases: tuple[str, str]) -> None:
    with run_serve("--store", "memory", before=aliases) as server:
        stream = open_stream(server)
        server.process.send_signal(signal.SIGINT)
        assert server.process.stderr
        line = server.process.stderr.readline()
        server.stop(signal.SIGINT)
    assert line == "waiting up to 30 s for responses in progress; press Ctrl-C again to stop now\n"
    assert stream


def accepts_connections(server: ServeProcess) -> bool:
    """Whether the server accepts connections; it stops accepting them after the first signal."""
    try:
        socket.create_connection((server.http.base_url.host, server.http.base_url.port)).close()
    except ConnectionError:
        return False
    return True


def test_stored_responses_are_available_after_a_restart(aliases: tuple[str, str], tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'served.db'}"
    with run_serve("--store", store, before=aliases) as server:
        response = server.create_response("remember")
        assert server.stop(signal.SIGTERM) == 0
    with run_serve("--store", store, before=aliases) as server:
        assert server.http.get(f"/v1/responses/{response['id']}").json() == response
        assert (
            server.create_response("go on", previous_response_id=response["id"])["previous_response_id"]
            == response["id"]
        )


@pytest.mark.needs("linux")
def test_a_server_whose_disk_is_full_is_alive_and_not_ready_until_a_write_succeeds(
    aliases: tuple[str, str], tmp_path: Path
) -> None:
    with run_serve("--store", f"sqlite:{tmp_path / 'served.db'}", before=aliases) as server:
        server.create_response("one")
        limit = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
        full = server.http.post("/v1/responses", json={"model": "echo", "input": "two"})
        ready, health = server.http.get("/readyz"), server.http.get("/healthz")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limit)
        server.create_response("three")
        ready_again = server.http.get("/readyz")
        server.stop(signal.SIGTERM)
    assert (full.status_code, full.json()["error"]["code"]) == (503, "store_full")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")
    assert (health.status_code, ready_again.status_code) == (200, 200)


def test_serve_and_chat_share_the_default_store(convo: Convo, aliases: tuple[str, str]) -> None:
    """A chain that a chat started is continued over HTTP, and then inspected."""
    turn = convo("chat", "--chain", "-m", "scripted/echo", "--json", "hello").json()
    with run_serve(before=aliases) as server:
        stored = server.http.get(f"/v1/responses/{turn['response_id']}").json()
        response = server.create_response("again", previous_response_id=turn["response_id"])
        server.stop(signal.SIGTERM)
    conversation = convo("inspect", response["id"], "--json").json()

    assert stored["output"] == turn["output"]
    assert [link["response_id"] for link in conversation["links"]] == [turn["response_id"], response["id"]]


@pytest.mark.parametrize("argv", [["inspect", "@last"], ["chat", "-c", "go on"]])
def test_with_only_responses_of_other_clients_the_command_to_list_them_is_printed(
    convo: Convo, aliases: tuple[str, str], argv: list[str]
) -> None:
    with run_serve(before=aliases) as server:
        response = server.create_response("hello")
        server.stop(signal.SIGTERM)
    assert "convo inspect resp_ lists the newest responses of other clients\n" in convo(*argv).err
    assert response["id"] in convo("inspect", "resp_").out
    assert response["id"] in convo("sessions").out


def test_the_responses_of_a_key_are_inspected_with_the_tenant_of_that_key(
    convo: Convo, aliases: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice {sha256(b'secret').hexdigest()}\n", encoding="utf-8")
    keys.chmod(0o600)
    with run_serve("--keys", str(keys), before=aliases) as server:
        server.http.headers["authorization"] = "Bearer secret"
        response = server.create_response("hello")
        server.stop(signal.SIGTERM)
    assert convo("inspect", response["id"]).exit == 5

    monkeypatch.setenv("CONVO_TENANT", "alice")
    conversation = convo("inspect", response["id"], "--json").json()
    assert [link["response_id"] for link in conversation["links"]] == [response["id"]]


def test_without_a_store_nothing_can_be_continued(aliases: tuple[str, str]) -> None:
    with run_serve("--store", "none", before=aliases) as server:
        response = server.http.post("/v1/responses", json={"model": "echo", "input": "hi", "store": False})
        got = server.http.post("/v1/conversations", json={})
    assert response.status_code == 200
    assert (got.status_code, got.json()["error"]["type"]) == (400, "invalid_request_error")


def test_the_packages_of_providers_and_postgresql_are_imported_only_when_needed(aliases: tuple[str, str]) -> None:
    """A server that uses no provider starts fast and needs little memory."""
    with run_serve("--store", "memory", before=aliases, python=("-X", "importtime")) as server:
        server.create_response("hello")
        server.stop(signal.SIGTERM)
    modules = {line.rpartition("|")[2].strip() for line in server.err.splitlines() if line.startswith("import time:")}
    assert "starlette.routing" in modules
    assert not modules & {"pydantic", "aiohttp", "httpx2", "psycopg", "rich", "prompt_toolkit"}


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
def test_a_server_imports_the_packages_of_its_models_before_it_is_ready(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE_KEY", "sk-mine")
    provider = f'[providers.mine]\napi = "{api}"\nbase_url = "http://127.0.0.1:1/v1"\nowner = "convo"\n'
    config = config_flags(tmp_path, f'{provider}key_env = "MINE_KEY"\n[aliases]\nmine = "mine/m"\n')
    with run_serve("--store", "memory", before=config, python=("-X", "importtime")) as server:
        modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in server.err.splitlines()}
    assert "aiohttp" in modules


# -- keys -----------------------------------------------------------------------------------------


def test_a_new_key_is_printed_once_and_accepted(convo: Convo, aliases: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "keys"
    got = convo("serve", "--new-key", "alice", "--keys", str(file))
    key = got.out.strip()
    with run_serve("--store", "memory", "--keys", str(file), before=aliases) as server:
        refused = server.http.get("/v1/responses/resp_1").status_code
        accepted = server.http.get("/v1/responses/resp_1", headers={"authorization": f"Bearer {key}"}).status_code

    assert (got.exit, got.out.count("\n"), refused, accepted) == (0, 1, 401, 404)
    assert key not in got.err
    assert file.read_text() == f"alice {sha256(key.encode()).hexdigest()}\n"


def test_a_new_key_is_stored_in_the_default_file_if_none_is_named(convo: Convo, home: Path) -> None:
    got = convo("serve", "--new-key", "alice")
    assert (got.exit, str(home / "config" / "keys") in got.err) == (0, True)
    assert (home / "config" / "keys").read_text().startswith("alice ")


def test_a_second_key_keeps_the_first_one_valid_and_this_is_reported(convo: Convo, home: Path) -> None:
    first, second = convo("serve", "--new-key", "alice"), convo("serve", "--new-key", "alice")
    assert "remove its line" not in first.err
    assert second.err.endswith("earlier keys of alice remain valid; to revoke one, remove its line\n")
    assert (home / "config" / "keys").read_text().count("alice ") == 2


INVALID_COMMANDS = [
    (
        ["--host", "0.0.0.0"],
        "0.0.0.0 can be reached from other machines, and no API keys are set up",
        "convo serve --new-key NAME --keys FILE creates a key; then serve with --keys FILE",
    ),
    (["--keys", "./none"], "none: no such keys file", "convo serve --new-key NAME creates one"),
    (["--store", "redis://x"], "--store must be none, memory, sqlite:PATH or postgresql://...", ""),
    (["--port", "99999"], "--port must be a port from 0 (any free one) to 65535", ""),
    (["--new-key", "a b"], "'a b' cannot be used as a key name", ""),
]


@pytest.mark.parametrize(("argv", "message", "hint"), INVALID_COMMANDS)
def test_an_invalid_serve_command_is_a_usage_error(convo: Convo, argv: list[str], message: str, hint: str) -> None:
    got = convo("serve", *argv)
    assert (got.exit, got.out) == (2, "")
    assert message in got.err
    assert hint in got.err


def test_a_port_in_use_is_a_usage_error(convo: Convo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        got = convo("serve", "--store", "memory", "--port", str(port))
    assert got.exit == 2
    assert f"convo: cannot listen on 127.0.0.1, port {port}: Address already in use\n" in got.err


WITHOUT_UVICORN = """
import sys
from convo.__main__ import main
sys.modules["uvicorn"] = None
sys.argv[1:] = ["serve"]
sys.exit(main())
"""


def test_without_the_serve_extra_the_install_command_is_printed() -> None:
    got = subprocess.run([sys.executable, "-c", WITHOUT_UVICORN], capture_output=True, encoding="utf-8", check=False)
    assert got.returncode == 2
    message = "convo: convo serve needs the extra [serve], which is not installed"
    assert got.stderr == f"{message}\n  try: {make_install_command('serve')}\n"


# -- logs and errors ------------------------------------------------------------------------------


def test_verbose_logs_a_line_per_request_without_its_content(tmp_path: Path) -> None:
    with answering() as upstream:
        upstream.stream(*response_events("a secret word", "another secret word"))
        upstream.stream(delta(content="a secret word"), finish("stop"))
        toml = ALIASES.format(folder=tmp_path) + RESPONSES_PROVIDER.format(url=upstream.url)
        toml += LENIENT_PROVIDER.format(url=upstream.url)
        with run_serve("--store", "memory", "--verbose", before=config_flags(tmp_path, toml)) as server:
            server.create_response("a secret word")
            server.http.get("/v1/responses/resp%0A1?include=secret", headers={"authorization": "Bearer sk-secret"})
            server.create_response("a secret word", model="far/m")
            tools = [{"type": "web_search"}, {"type": "mcp", "server_label": "a_secret_word"}]
            server.http.post("/v1/responses", json={"model": "lenient/m", "input": "a secret word", "tools": tools})
            server.stop(signal.SIGTERM)
    first, second, third, fourth = server.err.splitlines()
    assert re.fullmatch(r"POST /v1/responses 200 \d+ ms req_[0-9a-f]{32} local", first)
    assert re.fullmatch(r"GET /v1/responses/resp%0A1 400 invalid_value \d+ ms req_[0-9a-f]{32} local", second)
    assert re.fullmatch(r"POST /v1/responses 200 streamed_text_differs \d+ ms req_[0-9a-f]{32} local", third)
    assert re.fullmatch(r"POST \S+ 200 ignored=tools\.web_search,tools\.mcp \d+ ms req_[0-9a-f]{32} local", fourth)


RESPONSES_PROVIDER = '[providers.far]\napi = "responses"\nbase_url = "{url}"\n'
LENIENT_PROVIDER = '[providers.lenient]\napi = "chat"\nbase_url = "{url}"\nhosted_tools = "omit"\n'
PROVIDER = '[providers.upstream]\napi = "chat"\nbase_url = "{url}"\nkey_env = "UPSTREAM_KEY"\n'
KEY = "sk-upstream-0123456789-secret"


def test_a_provider_key_is_sent_only_to_the_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Responses, errors, logs, metrics and the database do not contain it, although the provider repeats it."""
    monkeypatch.setenv("UPSTREAM_KEY", KEY)
    store = tmp_path / "served.db"
    with answering() as upstream:
        upstream.refuse(401, {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}})
        upstream.refuse(500, f"Traceback: Authorization: Bearer {KEY}")
        upstream.refuse(429, {"error": {"message": KEY, "code": KEY}})
        before = config_flags(tmp_path, PROVIDER.format(url=upstream.url))
        with run_serve("--store", f"sqlite:{store}", "--verbose", before=before) as server:
            body = {"model": "upstream/m", "input": "hi"}
            texts = [server.http.post("/v1/responses", json=body).text for _ in range(2)]
            background_text = server.http.post("/v1/responses", json={**body, "background": True}).text
            texts += [background_text, server.http.get("/metrics").text, server.http.get("/v1/models").text]
            server.stop(signal.SIGTERM)
        sent_keys = [request.headers["authorization"] for request in upstream.requests]

    files = b"".join(file.read_bytes() for file in tmp_path.glob("served.db*"))
    assert sent_keys[:2] == [f"Bearer {KEY}"] * 2
    assert KEY not in "".join([*texts, server.err, server.ready_line])
    assert files
    assert KEY.encode() not in files


def test_the_metrics_have_the_transactions_of_the_requests(tmp_path: Path, aliases: tuple[str, str]) -> None:
    """The page has a connection of its own to a SQLite file, which is not the one that is measured."""
    with run_serve("--store", f"sqlite:{tmp_path / 'served.db'}", before=aliases) as server:
        server.create_response("hi")
        metrics = server.http.get("/metrics").text
    count = re.search(r"^convo_store_seconds_count (\S+)$", metrics, re.MULTILINE)
    assert count
    assert float(count[1]) >= 1


def test_a_model_is_one_choice_of_the_inspector_page_under_its_short_and_its_full_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with answering() as upstream:
        for _ in range(2):
            upstream.stream(*response_events("rain", "rain"))
        before = config_flags(tmp_path, f'[providers.openai]\nbase_url = "{upstream.url}"\n')
        with run_serve("--store", "memory", before=before) as server:
            for name in ("gpt-5", "openai/gpt-5"):
                server.create_response("hail", model=name)
            listed = server.http.get("/inspect/api/requests").json()
    assert [row["model"] for row in listed["data"]] == ["openai/gpt-5", "gpt-5"]
    assert listed["models"] == ["openai/gpt-5"]


def test_a_repeated_store_failure_is_reported_once_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    printer = StoreFaultPrinter()
    for message in ("no room is left", "no room is left", "it is away"):
        printer(StoreUnavailable(message))
    assert capsys.readouterr().err == "convo serve: no room is left\nconvo serve: it is away\n"


def test_strict_mode_refuses_requests_that_the_openai_api_refuses(aliases: tuple[str, str]) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}
    with run_serve("--store", "memory", "--strict", before=aliases) as server:
        body = {"model": "echo", "input": [reasoning, {"role": "user", "content": "hi"}]}
        got = server.http.post("/v1/responses", json=body)
    assert (got.status_code, got.json()["error"]["param"]) == (400, "input[0].summary")


def test_an_unexpected_error_is_printed_with_its_type_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        print_internal_error(error)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.match(r"convo serve: .*ZeroDivisionError", printed.err), printed.err

"""`convo tap` as a process: the command's variables, terminal, signals and exit code, and the recordings."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convo.cli.tap import NoticeBuffer, TapTarget, add_client_arguments, build_client_variables, run_command
from convo.secrets import Secret
from convo.server.relay import Upstream
from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.bench.upstream import TEXT, serve
from tests.command_runner import Convo, Launch
from tests.fork_server import ConvoProcess

KEY = "sk-client-0123456789"

CLIENT = """
import json, os, sys, urllib.request
body = json.dumps({"model": "m", "input": "What was said?", "stream": len(sys.argv) > 1})
headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", body.encode(), headers)
print(urllib.request.urlopen(request).read().decode()[-40:])
sys.exit(7)
"""


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, str]]]:
    """A model server that the environment sets as OpenAI's; the headers of its requests."""
    requests: list[dict[str, str]] = []

    async def record(scope: Any, receive: Any, send: Any) -> None:
        requests.append({name.decode(): value.decode() for name, value in scope["headers"]})
        if not scope["path"].startswith("/v1/"):
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body"})
            return
        await serve(scope, receive, send)

    listener, url = listen_on_free_port()
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serve_in_thread(record, listener, asyncio.new_event_loop()):
        yield requests


def test_a_program_is_recorded_and_its_exit_code_is_that_of_convo(
    launch: Launch, convo: Convo, upstream: list[dict[str, str]], home: Path
) -> None:
    result = launch("tap", "--", sys.executable, "-c", CLIENT)
    assert result.exit == 7, result.err
    assert "logprobs" in result.out or "store" in result.out
    assert "\nrequests and responses are recorded in sqlite:" in result.err
    assert ", with their texts, and kept for 7 days\n" in result.err
    assert "\nall of them on a page, while they run: convo serve\n" in result.err
    assert "\nconvo tap: 1 request relayed, 1 recorded\n" in result.err
    assert upstream[0]["authorization"] == f"Bearer {KEY}"

    (session,) = convo("sessions", "--json").json()
    summary = f"convo tap: 1 request relayed, 1 recorded\nto inspect the last one: convo inspect {session['name']}\n"
    assert result.err.endswith(summary)
    assert f"convo chat --from {session['name']} -m PROVIDER/MODEL\n" in convo("inspect", session["name"]).out
    recorded = convo("inspect", session["name"], "--json").json()
    assert TEXT in json.dumps(recorded)
    assert "What was said?" in json.dumps(recorded)
    stored = b"".join(file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert KEY.encode() not in stored


def test_a_program_that_ignores_the_variables_gets_a_hint(launch: Launch, upstream: list[dict[str, str]]) -> None:
    result = launch("tap", "--", sys.executable, "-c", "")
    assert result.exit == 0, result.err
    summary, hint = "\nconvo tap: 0 requests relayed, 0 recorded\n", result.err.split("0 recorded\n")[-1]
    assert summary in result.err
    assert hint.startswith("no request arrived: the program sent none, has no key, or does not read OPENAI_BASE_URL")
    assert "  try: set http://127.0.0.1:" in hint


def test_a_key_in_a_file_is_used_for_a_program_without_one_and_never_for_another_provider(
    launch: Launch, upstream: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("sk-mine-0123456789\n", encoding="utf-8")
    (tmp_path / "key").chmod(0o600)
    base_url = os.environ["OPENAI_BASE_URL"]
    settings = f'[providers.mine]\napi = "responses"\nbase_url = "{base_url}"\nkey_file = "{tmp_path}/key"\n'
    (tmp_path / "c.toml").write_text(settings, encoding="utf-8")
    result = launch("--config", "c.toml", "tap", "--provider", "mine", "--", sys.executable, "-c", CLIENT, "stream")
    assert result.exit == 7, result.err
    assert "a client sends no key, or a placeholder, to" in result.err
    assert "sk-mine" not in result.err
    assert upstream[0]["authorization"] == "Bearer sk-mine-0123456789"


def test_a_program_without_a_key_gets_a_placeholder_for_an_upstream_and_404s_get_a_hint(
    launch: Launch, upstream: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    base_url = os.environ["OPENAI_BASE_URL"]
    result = launch("tap", "--upstream", base_url, "--", sys.executable, "-c", CLIENT)
    assert upstream[0]["authorization"] == "Bearer convo-tap"
    assert "404 Not Found" not in result.err
    root = base_url.removesuffix("/v1")
    result = launch("tap", "--upstream", root, "--", sys.executable, "-c", CLIENT)
    assert result.err.endswith(f"every response was 404 Not Found\n  try: --upstream {root}/v1\n")


def test_without_a_command_the_variables_are_printed_and_a_signal_ends_the_relay(
    upstream: list[dict[str, str]],
) -> None:
    with ConvoProcess(["tap"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        lines = [process.stdout.readline().strip() for _ in range(3)]
        variables = dict(line.removeprefix("export ").split("=", 1) for line in lines)
        assert list(variables) == ["OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL"]
        client = subprocess.run(
            [sys.executable, "-c", CLIENT], env={**os.environ, **variables}, capture_output=True, check=False
        )
        assert client.returncode == 7, client.stderr
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=30)[1]
    assert process.returncode == 0
    assert "\nconvo tap: 1 request relayed, 1 recorded\n" in errors


@pytest.mark.needs("posix")
@pytest.mark.parametrize(("handler", "code"), [("signal.SIG_DFL", 128 + signal.SIGTERM), ("lambda *a: sys.exit(3)", 3)])
def test_signals_reach_the_command_and_the_relay_stays_until_it_ends(
    upstream: list[dict[str, str]], handler: str, code: int
) -> None:
    program = (
        f"import signal, sys, time; signal.signal(15, {handler}); print('ready', flush=True)\nwhile 1: time.sleep(1)"
    )
    with ConvoProcess(
        ["tap", "--", sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == code


@pytest.mark.needs("posix")
async def test_a_signal_while_the_command_starts_reaches_it() -> None:
    """The signal arrives when the command exists, but the event loop has not reported its start."""
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
    assert await run_command(["sleep", "60"], dict(os.environ)) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("argv", "exit_code", "message"),
    [
        (["--provider", "openai", "--upstream", "http://h"], 2, "--provider and --upstream cannot be used together"),
        (["--provider", "nobody"], 2, "no provider 'nobody'"),
        (["--provider", "local"], 2, "the provider 'local' has no base URL"),
        (["--upstream", "nonsense"], 2, "'nonsense' is not the base URL of an API"),
        (["--store", "none"], 2, "convo tap needs a store to record in"),
        (["--", "no-such-program-here"], 2, "no program 'no-such-program-here'"),
        (["--port", "1000000"], 2, ""),
    ],
)
def test_wrong_arguments_are_refused(convo: Convo, argv: list[str], exit_code: int, message: str) -> None:
    result = convo("tap", *argv)
    assert (result.exit, message in result.err) == (exit_code, True), result.err


# -- variables and arguments of clients -----------------------------------------------------------

ROOT = "http://127.0.0.1:9"
OPENAI = Upstream("openai", "https://api.openai.com/v1", key=Secret("k"))
ANTHROPIC = Upstream("anthropic", "https://api.anthropic.com", key=Secret("k"), key_header="x-api-key")


def variables(
    *upstreams: Upstream, provider: str | None = None, program: str = "python", **environ: str
) -> dict[str, str]:
    return build_client_variables(upstreams, ROOT, TapTarget(provider), environ, program)


def test_the_variables_of_both_vendors() -> None:
    got = variables(OPENAI, ANTHROPIC, OPENAI_API_KEY="own")
    assert got == {
        "OPENAI_BASE_URL": f"{ROOT}/openai/v1",
        "OPENAI_API_BASE": f"{ROOT}/openai/v1",
        "ANTHROPIC_BASE_URL": f"{ROOT}/anthropic",
        "ANTHROPIC_API_KEY": "convo-tap",
    }
    assert "ANTHROPIC_API_KEY" not in variables(ANTHROPIC, program="claude")
    proxied = variables(OPENAI, HTTPS_PROXY="http://p", HTTP_PROXY="http://p", NO_PROXY="corp")
    assert (proxied["NO_PROXY"], proxied["no_proxy"]) == ("corp,127.0.0.1", "127.0.0.1")


def test_an_upstream_on_this_machine_gets_a_placeholder_for_each_key_that_is_not_set() -> None:
    server = Upstream("upstream", "http://localhost:8000/v1")
    got = variables(server)
    assert (got["OPENAI_API_KEY"], got["ANTHROPIC_API_KEY"]) == ("convo-tap", "convo-tap")
    assert not variables(server, OPENAI_API_KEY="own", ANTHROPIC_AUTH_TOKEN="own").keys() & {
        "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN",
    }  # fmt: skip
    assert "OPENAI_API_KEY" not in variables(server, program="codex")
    assert "OPENAI_API_KEY" not in variables(Upstream("upstream", "http://example.com/v1"))


def test_the_key_of_another_server_is_replaced_for_a_provider() -> None:
    groq = Upstream("groq", "https://api.groq.com/openai/v1")
    got = variables(groq, provider="groq", OPENAI_API_KEY="own")
    assert got["OPENAI_API_KEY"] == "convo-tap"
    assert got["OPENAI_BASE_URL"] == f"{ROOT}/groq/openai/v1"
    claude = variables(ANTHROPIC, provider="anthropic", program="claude", ANTHROPIC_API_KEY="own")
    assert (claude["ANTHROPIC_API_KEY"], claude["ANTHROPIC_AUTH_TOKEN"]) == ("convo-tap", "convo-tap")
    azure = Upstream("azure", "https://x.openai.azure.com", key_header="api-key")
    assert variables(azure, provider="azure")["AZURE_OPENAI_ENDPOINT"] == f"{ROOT}/azure"


def test_opencode_keeps_its_own_settings() -> None:
    own = json.dumps({"theme": "x", "provider": {"openai": {"options": {"timeout": 5}}}})
    got = json.loads(
        variables(OPENAI, ANTHROPIC, program="opencode", OPENCODE_CONFIG_CONTENT=own)["OPENCODE_CONFIG_CONTENT"]
    )
    assert got == {
        "theme": "x",
        "provider": {
            "openai": {"options": {"timeout": 5, "baseURL": f"{ROOT}/openai/v1"}},
            "anthropic": {"options": {"baseURL": f"{ROOT}/anthropic/v1"}},
        },
    }
    assert "OPENCODE_CONFIG_CONTENT" in variables(OPENAI, program="opencode", OPENCODE_CONFIG_CONTENT="[1]")


def test_codex_gets_a_provider_as_arguments() -> None:
    got = add_client_arguments(["/x/codex", "exec", "hi"], OPENAI, ROOT, {"OPENAI_API_KEY": "k"})
    assert got[:2] == ["/x/codex", "-c"]
    assert 'base_url="http://127.0.0.1:9/openai/v1"' in got[2]
    assert 'env_key="OPENAI_API_KEY",supports_websockets=true' in got[2]
    assert got[3:] == ["-c", 'model_provider="convo"', "exec", "hi"]
    assert "requires_openai_auth=true" in add_client_arguments(["codex"], OPENAI, ROOT, {})[2]
    assert add_client_arguments(["llm", "hi"], OPENAI, ROOT, {}) == ["llm", "hi"]


def test_notices_wait_while_a_command_has_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    notices = NoticeBuffer(is_deferred=True)
    for line in ("one", "two", "one"):
        notices.add(line)
    assert capsys.readouterr().err == ""
    notices.release()
    notices.add("one")
    assert capsys.readouterr().err == "convo tap: one\nconvo tap: two\n"

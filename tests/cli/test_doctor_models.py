"""`convo doctor` checks of keys, models and servers: missing requirements, and the commands that install them."""

import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from convo.cli.doctor import DoctorContext, run_doctor_checks
from convo.installation import make_install_command
from convo.models.weights import BUILT_IN_WEIGHTS
from convo.terminal.report_views import CheckLevel, CheckResult, make_warning_result
from tests.cli.doctor_checks import check_levels, run_check
from tests.command_runner import Convo, write_project_file
from tests.config.settings_inputs import make_settings
from tests.loopback_server import LoopbackServer
from tests.models.chat_server import ChatServer, run_chat_server


def test_keys_are_reported_by_the_names_of_their_variables(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    check = run_check(convo, "keys")

    assert check["found"].startswith("set: OPENAI_API_KEY (openai); not set: ANTHROPIC_API_KEY (anthropic), ")
    assert "sk-secret" not in convo("doctor").out


def test_an_invalid_key_is_a_fault(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret and more")
    check = run_check(convo, "keys")

    assert (check["level"], check["found"]) == ("fault", "OPENAI_API_KEY contains characters that a key cannot have")
    assert check["next"] == "export OPENAI_API_KEY=..., with the key as the provider shows it"
    assert "sk-secret" not in json.dumps(check)


@pytest.mark.needs("posix")
def test_a_key_in_a_file_is_reported_by_its_path(convo: Convo) -> None:
    write_project_file('[providers.openai]\nkey_file = "key"\n')
    check = run_check(convo, "keys")
    assert (check["level"], check["next"]) == ("fault", "convo config key set openai --file")
    assert check["found"] == f"the key of openai cannot be read: {Path('key').absolute()}: no such file or directory"

    Path("key").write_text("sk-secret")
    Path("key").chmod(0o644)
    check = run_check(convo, "keys")
    assert (check["level"], check["next"]) == ("warning", f"chmod 600 {Path('key').absolute()}")

    Path("key").chmod(0o600)
    assert run_check(convo, "keys")["found"].startswith(f"set: {Path('key').absolute()} (openai); not set: ")
    Path("key").write_text("sk-secret and more")
    assert run_check(convo, "keys")["next"] == "convo config key set openai --file"


def test_a_missing_key_of_the_default_model_is_a_fault(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_MODEL", "anthropic/claude-haiku-4-5")
    check = run_check(convo, "model")
    assert (check["level"], check["found"]) == ("fault", "anthropic needs a key")
    assert check["next"].startswith("convo config key set anthropic, set ANTHROPIC_API_KEY")

    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert run_check(convo, "model")["found"].startswith("anthropic/claude-haiku-4-5 (from CONVO_MODEL)")


def test_an_extra_that_is_not_installed_is_named_with_its_installation(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "toktok", None)
    check = run_check(convo, "extras")
    assert (check["level"], check["next"]) == ("ok", make_install_command("tokens"))


def test_the_missing_parts_of_the_built_in_model_are_named_with_their_installation(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, BUILT_IN_WEIGHTS.package, None)
    check = run_check(convo, "local")
    assert (check["level"], check["next"]) == ("ok", "convo models pull")

    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    check = run_check(convo, "local")
    assert (check["level"], check["next"]) == ("ok", f"{make_install_command('local')}, then convo models pull")


@pytest.mark.parametrize(
    ("model", "message", "hint"),
    [
        ("local/no-such.gguf", "{path}/no-such.gguf cannot be read: No such file or directory", None),
        ("local/words.gguf", "{path}/words.gguf is not a GGUF file", None),
        (
            "local/my.gguf",
            "local/my.gguf needs the extra [local], which is not installed",
            make_install_command("local"),
        ),
        (
            "openai/gpt-5",
            "openai needs a key",
            "convo config key set openai, set OPENAI_API_KEY, or choose a model with -m",
        ),
        (
            "azure/x",
            "the provider 'azure' has no base URL",
            "set AZURE_OPENAI_ENDPOINT, or set base_url under [providers.azure]",
        ),
        (
            "fast",
            "CONVO_MODEL: no model 'fast': no provider is known for it",
            "use provider/model; convo models --ask lists the available models",
        ),
    ],
)
def test_a_default_model_that_cannot_be_used_is_a_fault(
    model: str, message: str, hint: str | None, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("words.gguf").write_text("words")
    Path("my.gguf").write_bytes(b"GGUF" + bytes(100))
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setenv("CONVO_MODEL", model)
    check = run_check(convo, "model")

    assert (check["level"], check["found"]) == ("fault", message.format(path=Path.cwd()))
    assert hint is None or check["next"] == hint


def test_a_default_model_with_its_weights_and_its_engine_can_be_used(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("my.gguf").write_bytes(b"GGUF" + bytes(100))
    monkeypatch.setenv("CONVO_MODEL", "local/my.gguf")
    assert run_check(convo, "model")["found"] == (
        "local/my.gguf (from CONVO_MODEL); convo stores chains and conversations"
    )


@pytest.mark.parametrize(
    ("settings", "owner"), [("", "its provider"), ('owner = "convo"', "convo"), ('api = "chat"', "convo")]
)
def test_the_owner_of_the_state_is_reported_with_the_model(
    settings: str, owner: str, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project_file(f'model = "openai/gpt-6-luna"\n[providers.openai]\n{settings}\n')
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert run_check(convo, "model")["found"].endswith(f"; {owner} stores chains and conversations")


def test_a_token_is_reported_beside_the_key(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "token")
    assert run_check(convo, "keys")["found"] == (
        "set: AZURE_OPENAI_AD_TOKEN (azure); not set: ANTHROPIC_API_KEY (anthropic), AZURE_OPENAI_API_KEY (azure),"
        " DEEPSEEK_API_KEY (deepseek), OPENAI_API_KEY (openai)"
    )


@pytest.mark.needs("posix")
def test_a_file_whose_key_is_not_used_may_be_readable_by_others(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file('[providers.openai]\nkey_file = "key"\n')
    Path("key").write_text("sk-secret")
    Path("key").chmod(0o644)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    assert run_check(convo, "keys")["found"].startswith("set: OPENAI_API_KEY (openai); not set: ")


def test_an_alias_that_cannot_be_resolved_does_not_hide_the_next_one(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    write_project_file('[aliases]\na = "nope/x"\nb = "ollama/llama3.2"\n')
    assert run_check(convo, "ollama")["found"].startswith("cannot reach ollama at http://127.0.0.1:1/v1")


def test_ollama_is_not_contacted_when_it_is_not_used(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")

    assert run_check(convo, "ollama")["found"] == "not used: neither the default model nor an alias is an Ollama model"


@pytest.mark.parametrize(("model", "level"), [("ollama/llama3.2", "fault"), ("scripted/echo", "warning")])
def test_a_used_ollama_that_does_not_answer_is_reported_with_its_start_command(
    model: str, level: str, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project_file(f'model = "{model}"\n[aliases]\nllama = "ollama/llama3.2"\n')
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    check = run_check(convo, "ollama")

    assert check["level"] == level
    assert "cannot reach ollama at http://127.0.0.1:1/v1: connection refused" in check["found"]
    assert check["next"].startswith("ollama serve")


def test_a_missing_ollama_model_is_reported_with_its_pull_command(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVO_MODEL", "ollama/llama3.2")
    with run_chat_server() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url.removesuffix("/v1"))
        serve_model_list(server, "qwen3:latest")
        missing = run_check(convo, "ollama")
        serve_model_list(server, "qwen3:latest", "llama3.2:latest")
        present = run_check(convo, "ollama")

    assert (missing["level"], missing["next"]) == ("warning", "ollama pull llama3.2")
    assert present["found"] == f"Ollama responds at {server.url}"


def serve_model_list(server: ChatServer, *names: str) -> None:
    """Let the server list these models once."""
    server.refuse(200, {"object": "list", "data": [{"id": name} for name in names]})


def test_network_checks_run_only_on_request(convo: Convo, server: LoopbackServer) -> None:
    convo("doctor")
    assert server.requests == []

    assert run_check(convo, "network")["found"] == "reachable: openai"
    (request,) = server.requests
    assert "authorization" not in request.headers
    assert "network" in check_levels(convo, "--network")


def test_an_unreachable_server_is_named(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_check(convo, "network")["found"] == "no provider with a server is used or has a key"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    check = run_check(convo, "network")

    assert check["level"] == "fault"
    assert check["found"].startswith("cannot reach openai at http://127.0.0.1:1/v1")
    assert "sk-secret" not in json.dumps(check)


def test_models_of_the_settings_that_end_within_60_days_are_a_warning() -> None:
    environ = {"OPENAI_API_KEY": "sk-secret"}
    settings = make_settings(
        environ=environ,
        user='[aliases]\nlater = "openai/gpt-4o"\n[models."openai/o3"]\nverbosity = "low"\n',
    )

    def check_model(day: date) -> CheckResult:
        now = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
        (report,) = run_doctor_checks(["model"], DoctorContext(settings, environ, now=now))
        return report.result

    assert check_model(date(2026, 10, 11)).level is CheckLevel.OK
    assert check_model(date(2026, 10, 12)) == make_warning_result(
        'openai/o3 (models."openai/o3"): shutdown on 2026-12-11', "use openai/gpt-6.1-sol"
    )
    assert check_model(date(2027, 1, 1)) == make_warning_result(
        "openai/gpt-4o (aliases.later): shutdown on 2027-01-14", "use openai/gpt-6-luna"
    )

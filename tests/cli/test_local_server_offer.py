"""The offer of a model server on this machine to a user without an API key, at a real terminal."""

import os
import socket
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from tests.command_runner import Convo
from tests.models.test_server_search import run_server
from tests.terminal.pty_session import PtySession, at_terminal

pytestmark = pytest.mark.needs("terminal")

QUESTION = "[y/N] "

ANSWER = (
    b'data: {"choices": [{"index": 0, "delta": {"content": "bonjour"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
)

FAILING = ("chat", "-n", "resp_1", "hello")
"""A command that ends with an error right after the offer: the name is not valid."""


@contextmanager
def chat_beside_server(
    *argv: str,
    models: Sequence[str] = ("small",),
    port: int | None = None,
    provider: str = "vllm",
    timeout_s: float = 20.0,
    env: Mapping[str, str] | None = None,
    redirection: str = "",
) -> Iterator[PtySession]:
    """Run a command at a terminal, where the only standard port is that of a server with these models.

    port:       of another program instead of that server
    timeout_s:  of the search, long enough for a busy machine
    """
    responses: dict[str, Any] = {"/v1/models": {"data": [{"id": model, "max_model_len": 8_096} for model in models]}}
    responses |= {f"/v1/chat/completions {model}": ANSWER for model in models}
    with run_server(responses) as server_port:
        Path("run.py").write_text(
            "import sys\n"
            "from convo.cli import app, local_server_offer\n"
            "from convo.models import server_search\n"
            f"kind = server_search.ServerKind('vLLM', {provider!r}, {port or server_port})\n"
            f"server_search.SERVER_KINDS, local_server_offer.OFFER_TIMEOUT_S = (kind,), {timeout_s}\n"
            f"local_server_offer.WINDOWS_TIMEOUT_S = {timeout_s}\n"
            "sys.exit(app.run_command_line(sys.argv[1:]))\n",
            encoding="utf-8",
        )
        environ = {name: text.replace("PORT", str(server_port)) for name, text in (env or {}).items()}
        command = " ".join(map(quote, (sys.executable, f"{os.getcwd()}/run.py", *argv)))
        with at_terminal(command=f"exec {command} {redirection}", env=environ, columns=200) as terminal:
            yield terminal


def load_settings_file(home: Path) -> dict[str, Any]:
    file = home / "config" / "config.toml"
    return tomllib.loads(file.read_text()) if file.exists() else {}


def test_yes_makes_the_server_the_default_and_answers_at_once(convo: Convo, home: Path) -> None:
    with chat_beside_server("chat", "-n", "mine", "hello") as terminal:
        asked = terminal.wait_for_text(QUESTION)
        assert asked == f"No API key found, but vLLM answers on this machine. Use vllm/small by default? {QUESTION}"
        terminal.type_keys("y\r")
        assert terminal.wait_for_exit() == 0
        assert "bonjour" in terminal.output
        assert "set model to vllm/small in " in terminal.output
        assert "convo config unset model" in terminal.output
        settings = load_settings_file(home)
        assert settings["model"] == "vllm/small"
        assert settings["providers"]["vllm"]["api"] == "chat"
        assert settings["providers"]["vllm"]["base_url"].startswith("http://127.0.0.1:")
        known = {model["model"]: model["window"] for model in convo("models", "known", "--json").json()["models"]}
        assert known["vllm/small"]["context"] == 8_096
    with chat_beside_server(*FAILING) as terminal:
        assert terminal.wait_for_exit() == 2
        assert QUESTION not in terminal.output


@pytest.mark.parametrize("keys", ["\r", "no\r"])
def test_no_is_remembered(keys: str, home: Path) -> None:
    with chat_beside_server(*FAILING) as terminal:
        terminal.wait_for_text(QUESTION)
        terminal.type_keys(keys)
        assert terminal.wait_for_exit() == 2
        assert "convo will not ask again; convo models --local lists the servers" in terminal.output
    assert load_settings_file(home) == {}
    with chat_beside_server(*FAILING) as terminal:
        assert terminal.wait_for_exit() == 2
        assert QUESTION not in terminal.output


@pytest.mark.parametrize("keys", ["hello\r", *(pytest.param(key, marks=pytest.mark.full) for key in "\x03\x04")])
@pytest.mark.needs("weights")
def test_other_keys_start_the_chat_with_the_built_in_model_and_keep_nothing(keys: str, home: Path) -> None:
    with chat_beside_server("chat") as terminal:
        terminal.wait_for_text(QUESTION)
        terminal.type_keys(keys)
        assert "Using the bundled SmolLM2-135M" in terminal.wait_for_prompt()
        assert terminal.end_session() == 0
    assert load_settings_file(home) == {}
    with chat_beside_server(*FAILING) as terminal:
        terminal.wait_for_text(QUESTION)


@pytest.mark.parametrize(
    ("flags", "env"),
    [
        (["-m", "local"], {}),
        (["-q"], {}),
        (["--json"], {}),
        pytest.param(["--jsonl"], {}, marks=pytest.mark.full),
        (["--from", "mine"], {}),
        pytest.param(["-c"], {}, marks=pytest.mark.full),
        pytest.param([], {"CONVO_MODEL": "local"}, marks=pytest.mark.full),
        ([], {"OPENAI_API_KEY": "test-key"}),
    ],
)
def test_a_chat_with_a_model_or_for_a_program_is_not_asked(flags: list[str], env: dict[str, str]) -> None:
    with chat_beside_server(*FAILING, *flags, env=env) as terminal:
        assert terminal.wait_for_exit() in (2, 5)
        assert QUESTION not in terminal.output


@pytest.mark.parametrize("redirection", ["< /dev/null", "> out.txt", "2> err.txt"])
def test_without_a_terminal_nothing_is_asked(redirection: str) -> None:
    with chat_beside_server(*FAILING, redirection=redirection) as terminal:
        assert terminal.wait_for_exit() == 2
        written = "".join(file.read_text() for file in Path().glob("*.txt"))
        assert QUESTION not in terminal.output + written


def test_a_program_that_does_not_answer_delays_nothing() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        chat_beside_server(*FAILING, port=silent.getsockname()[1], timeout_s=0.15) as terminal,
    ):
        assert terminal.wait_for_exit() == 2
        assert QUESTION not in terminal.output


@pytest.mark.parametrize(
    ("models", "offered"),
    [
        (("Text-Embedding-1", "a\u202eb", "x" * 101, " ", "org/model:7b"), "vllm/org/model:7b"),
        (("nomic-embed-text",), None),
        ((), None),
    ],
)
def test_the_first_model_that_can_chat_is_offered(models: tuple[str, ...], offered: str | None) -> None:
    with chat_beside_server(*FAILING, models=models) as terminal:
        if offered:
            assert f"Use {offered} by default?" in terminal.wait_for_text(QUESTION)
        else:
            assert terminal.wait_for_exit() == 2
            assert QUESTION not in terminal.output


@pytest.mark.parametrize(("host", "is_offered"), [("localhost:PORT", True), ("127.0.0.1:9", False)])
def test_a_provider_with_the_name_of_the_server_is_used_if_it_is_that_server(
    host: str, is_offered: bool, home: Path
) -> None:
    with chat_beside_server(*FAILING, provider="ollama", env={"OLLAMA_HOST": host}) as terminal:
        if is_offered:
            terminal.wait_for_text(QUESTION)
            terminal.type_keys("yes\r")
        assert terminal.wait_for_exit() == 2
        assert (QUESTION in terminal.output) is False
    assert load_settings_file(home) == ({"model": "ollama/small"} if is_offered else {})


def test_a_profile_gets_its_own_default(home: Path) -> None:
    file = home / "config" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[profiles.work]\ntenant = "alice"\n')
    with chat_beside_server("--profile", "work", *FAILING) as terminal:
        terminal.wait_for_text(QUESTION)
        terminal.type_keys("y\r")
        assert terminal.wait_for_exit() == 2
    assert load_settings_file(home)["profiles"]["work"]["model"] == "vllm/small"


def test_a_refusal_that_cannot_be_kept_is_reported(home: Path) -> None:
    home.mkdir()
    (home / "state").write_text("a file")
    with chat_beside_server(*FAILING) as terminal:
        terminal.wait_for_text(QUESTION)
        terminal.type_keys("n\r")
        assert terminal.wait_for_exit() == 2
        assert "; this will be asked again" in terminal.output

"""`convo doctor`: what is wrong with the set-up, found on real files, servers and disks."""

import json
import os
import shlex
import socket
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from convo.cli import judging, looking
from convo.cli.checkup import CHECKS, ON_REQUEST
from convo.cli.completions import candidates
from convo.cli.judging import Terminal
from convo.cli.looking import EXTRAS
from convo.gateway.keys import hash_of
from convo.ui.findings import Level
from convo.ui.medium import Medium
from tests.config.rights import without_rights
from tests.loopback import Loopback
from tests.models.chat_server import ChatServer, serving
from tests.running import ROOT, Convo, Launch

USUAL = [name for name in CHECKS if name not in ON_REQUEST]


def found(convo: Convo, name: str, *argv: str) -> dict[str, Any]:
    """What one check came to."""
    got = convo("doctor", name, "--json", *argv)
    (one,) = got.json()["checks"]
    assert (got.exit, got.err) == (int(one["level"] == "fault"), "")
    assert one["next"] or one["level"] == "ok"
    return dict(one)


def levels(convo: Convo, *argv: str) -> dict[str, str]:
    return {one["name"]: one["level"] for one in convo("doctor", "--json", *argv).json()["checks"]}


def settings(text: str) -> None:
    Path(".convo.toml").write_text(text)


# -- the whole ------------------------------------------------------------------------------------


def test_a_fresh_machine_has_no_fault_and_nothing_is_made(convo: Convo, home: Path) -> None:
    got = convo("doctor")

    assert got.exit == 0
    assert [line.split()[0] for line in got.out.splitlines() if line[2] != " "] == USUAL
    assert f"  store     sqlite:{home}/data/convo.db (built in) will be made by the first turn\n" in got.out
    assert not home.exists()


def test_programs_get_the_same_in_a_table(convo: Convo) -> None:
    told = convo("doctor", "--json").json()

    assert told["ok"]
    assert [one["name"] for one in told["checks"]] == USUAL
    assert {name for one in told["checks"] for name in one} == {"name", "level", "found", "next"}


def test_a_fault_has_its_next_step_below_it_and_decides_the_exit_code(convo: Convo) -> None:
    settings('[serve]\nhost = "0.0.0.0"\n')
    got = convo("doctor", "serve", "seal")

    assert got.exit == 1
    first, second, _ = got.out.splitlines()
    assert first == "  serve  fault: 0.0.0.0, port 8788 lets other machines in, and there are no keys"
    assert second.startswith("         try: convo serve --new-key NAME")
    assert got.err == "1 fault\n"


def test_a_warning_is_no_fault(convo: Convo) -> None:
    got = convo("doctor", "store", "--store", "memory")

    assert (got.exit, got.err) == (0, "1 warning\n")
    assert "warning: the store is memory (from --store): state does not persist across restarts" in got.out


def test_a_check_that_is_not_there_is_a_usage_error(convo: Convo) -> None:
    got = convo("doctor", "stor")

    assert (got.exit, got.out) == (2, "")
    assert got.err == "convo: no check 'stor'\n  try: convo doctor store\n"
    assert convo("doctor", "xyz").err.endswith(f"  try: one of {', '.join(CHECKS)}\n")


def test_the_names_of_checks_are_completed() -> None:
    assert candidates(["doctor"], "se") == [
        ("settings", "the settings files and variables"),
        ("serve", "who may ask convo serve"),
        ("seal", "the key that seals compacted windows"),
    ]


def test_no_check_waits_longer_than_its_limit(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me:hush@127.0.0.1:{silent.getsockname()[1]}/convo?connect_timeout=600"
        one = found(convo, "store", "--store", url)

    assert (one["level"], "did not answer in 0.2 seconds" in one["found"]) == ("fault", True)
    assert "hush" not in json.dumps(one)


# -- settings -------------------------------------------------------------------------------------


def test_who_sets_something_is_listed(convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings('model = "scripted/echo"\n')
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1")

    assert found(convo, "settings")["found"] == f"OLLAMA_HOST, {tmp_path}/.convo.toml"


def test_a_broken_file_keeps_nobody_from_looking_at_the_rest(convo: Convo, tmp_path: Path) -> None:
    settings("model = \n")
    one = found(convo, "settings")

    assert one["found"] == f"{tmp_path}/.convo.toml, line 1: is not TOML: invalid value"
    said = levels(convo)
    assert said["settings"] == said["store"] == said["model"] == "fault"
    assert said["convo"] == said["folders"] == said["terminal"] == said["extras"] == "ok"
    assert found(convo, "keys")["next"] == "convo doctor settings"


def test_a_variable_that_is_not_set_is_named_and_only_the_store_depends_on_it(convo: Convo) -> None:
    settings('[state_storage]\ntype = "postgres"\nconnection_string = "postgresql://me:$DB_PASSWORD@host/db"\n')
    one = found(convo, "store")

    assert "names the variable DB_PASSWORD, which is not set" in one["found"]
    assert one["next"] == "export DB_PASSWORD=..."
    said = levels(convo)
    assert said["settings"] == "fault"
    assert said["keys"] == said["model"] == said["serve"] == "ok"


def test_a_password_with_special_characters_is_explained_and_not_repeated(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hush#@word")
    settings('[state_storage]\ntype = "postgres"\nconnection_string = "postgresql://me:$DB_PASSWORD@host/db"\n')
    one = found(convo, "store")

    assert "must be percent-encoded" in one["found"]
    assert "# as %23" in one["found"]
    assert "hush" not in json.dumps(one)


# -- keys and models ------------------------------------------------------------------------------


def test_keys_are_told_by_the_names_of_their_variables(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    one = found(convo, "keys")

    assert one["found"].startswith("set: OPENAI_API_KEY (openai); not set: ANTHROPIC_API_KEY (anthropic), ")
    assert "sk-secret" not in convo("doctor").out


def test_a_key_that_cannot_be_one_is_a_fault(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret and more")
    one = found(convo, "keys")

    assert (one["level"], one["found"]) == ("fault", "OPENAI_API_KEY holds characters that no key has")
    assert "sk-secret" not in json.dumps(one)


@pytest.mark.needs("posix")
def test_a_key_in_a_file_is_told_by_its_file(convo: Convo) -> None:
    settings('[providers.openai]\nkey_file = "key"\n')
    one = found(convo, "keys")
    assert (one["level"], one["next"]) == ("fault", "convo config key set openai --file")
    assert one["found"] == f"the key of openai cannot be read: {Path('key').absolute()}: no such file or directory"

    Path("key").write_text("sk-secret")
    Path("key").chmod(0o644)
    one = found(convo, "keys")
    assert (one["level"], one["next"]) == ("warning", f"chmod 600 {Path('key').absolute()}")

    Path("key").chmod(0o600)
    assert found(convo, "keys")["found"].startswith(f"set: {Path('key').absolute()} (openai); not set: ")
    Path("key").write_text("sk-secret and more")
    assert found(convo, "keys")["next"] == "convo config key set openai --file"


def test_a_profile_that_sets_something_is_named(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    settings('[profiles.work]\ntenant = "office"\n')
    monkeypatch.setenv("CONVO_PROFILE", "work")
    place = Path(".convo.toml").absolute()
    assert found(convo, "settings")["found"] == f"CONVO_PROFILE, {place} [profiles.work]"
    monkeypatch.setenv("CONVO_PROFILE", "wrok")
    assert found(convo, "settings")["found"] == "CONVO_PROFILE: no profile 'wrok'; did you mean 'work'?"


def test_the_default_model_needs_its_key(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_MODEL", "anthropic/claude-haiku-4-5")
    one = found(convo, "model")
    assert (one["level"], one["found"]) == ("fault", "anthropic needs a key")
    assert one["next"].startswith("set ANTHROPIC_API_KEY")

    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert found(convo, "model")["found"].startswith("anthropic/claude-haiku-4-5 (from CONVO_MODEL)")


def test_a_key_for_a_package_that_is_not_there_is_a_warning(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    one = found(convo, "extras")
    assert (one["level"], one["next"]) == ("ok", "pip install 'convo-state[anthropic]'")

    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    one = found(convo, "extras")
    assert (one["level"], one["next"]) == ("warning", "pip install 'convo-state[anthropic]'")


def test_without_its_engine_the_built_in_model_cannot_answer(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)

    one = found(convo, "local")
    assert (one["level"], one["next"]) == ("warning", "pip install xllamacpp")


def test_without_its_weights_the_chosen_model_cannot_answer(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_MODEL", "local/no-such.gguf")
    assert found(convo, "model")["found"].endswith("no-such.gguf cannot be read: No such file or directory")

    Path("words.gguf").write_text("words")
    monkeypatch.setenv("CONVO_MODEL", "local/words.gguf")
    assert found(convo, "model")["found"].endswith("words.gguf is not a GGUF file")


def test_the_weights_are_fetched_by_a_command_of_ours() -> None:
    finding = judging.local(judging.Local(engine=True, weights=None))

    assert (finding.level, finding.next) == (Level.WARNING, "convo models pull")


def test_every_extra_is_looked_for() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])

    assert set(EXTRAS) == extras - {"dev"}


def test_an_ollama_that_is_not_in_use_is_not_asked(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")

    assert found(convo, "ollama")["found"] == "not in use: no model and no alias names it"


@pytest.mark.parametrize(("model", "level"), [("ollama/llama3.2", "fault"), ("scripted/echo", "warning")])
def test_an_ollama_in_use_that_does_not_answer_is_to_be_started(
    model: str, level: str, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(f'model = "{model}"\n[aliases]\nllama = "ollama/llama3.2"\n')
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    one = found(convo, "ollama")

    assert one["level"] == level
    assert "cannot reach ollama at http://127.0.0.1:1/v1" in one["found"]
    assert one["next"].startswith("ollama serve")


def test_a_model_that_ollama_does_not_have_is_to_be_pulled(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_MODEL", "ollama/llama3.2")
    with serving() as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url.removesuffix("/v1"))
        listing(server, "qwen3:latest")
        missing = found(convo, "ollama")
        listing(server, "qwen3:latest", "llama3.2:latest")
        there = found(convo, "ollama")

    assert (missing["level"], missing["next"]) == ("warning", "ollama pull llama3.2")
    assert there["found"] == f"Ollama answers at {server.url}"


def listing(server: ChatServer, *names: str) -> None:
    """Let the server answer, once, that it has these models."""
    server.refuses(200, {"object": "list", "data": [{"id": name} for name in names]})


def test_the_network_is_only_tried_on_request(
    convo: Convo, loopback: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in loopback.environ.items():
        monkeypatch.setenv(name, value)
    convo("doctor")
    assert loopback.requests == []

    assert found(convo, "network")["found"] == "openai can be reached"
    (asked,) = loopback.requests
    assert "authorization" not in asked.headers
    assert "network" in levels(convo, "--network")


def test_a_server_that_cannot_be_reached_is_named(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    one = found(convo, "network")

    assert one["level"] == "fault"
    assert one["found"].startswith("cannot reach openai at http://127.0.0.1:1/v1")
    assert "sk-secret" not in json.dumps(one)


# -- serving --------------------------------------------------------------------------------------

LINE = f"alice {hash_of('key')}\n"


@pytest.mark.parametrize(
    ("text", "level", "said"),
    [
        (LINE, "ok", "0.0.0.0, port 8788, for whoever has one of 1 keys"),
        ("", "fault", "has no key in it: nobody may ask"),
        (f"{LINE}bob secret-key\n", "fault", "keys, line 2: is not a name and the SHA-256 of a key"),
        (None, "fault", "keys: there is no such keys file"),
    ],
)
def test_the_file_of_keys_is_read(text: str | None, level: str, said: str, convo: Convo) -> None:
    settings('[serve]\nhost = "0.0.0.0"\nkeys_file = "keys"\n')
    if text is not None:
        Path("keys").write_text(text)
    one = found(convo, "serve")

    assert one["level"] == level
    assert said in one["found"]
    assert "secret-key" not in json.dumps(one)


@pytest.mark.needs("posix")
def test_a_file_of_keys_that_nobody_writes_to_is_not_waited_for(convo: Convo) -> None:
    os.mkfifo("keys")
    settings('[serve]\nkeys_file = "keys"\n')

    assert "is no file of keys" in found(convo, "serve")["found"]


def test_serving_says_what_to_install(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    one = found(convo, "serve")

    assert (one["found"], one["next"]) == ("not installed: it needs uvicorn", "pip install 'convo-state[serve]'")


def test_the_key_that_seals_is_told_by_where_it_comes_from(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the store's own key" in found(convo, "seal")["found"]
    assert found(convo, "seal", "--store", "memory")["next"].startswith("export CONVO_SEAL_KEY=...")
    monkeypatch.setenv("CONVO_SEAL_KEY", "sk-secret")
    assert "sealed with CONVO_SEAL_KEY" in found(convo, "seal")["found"]


# -- the terminal and the folders -------------------------------------------------------------------


def test_an_encoding_without_our_characters_is_told(launch: Launch) -> None:
    got = launch("doctor", "terminal", "--json", env={"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"})
    (one,) = got.json()["checks"]

    assert (got.exit, one["level"]) == (0, "warning")
    assert "PYTHONUTF8=1" in one["next"]


@pytest.mark.parametrize(
    ("seen", "level", "said"),
    [
        (Terminal(Medium(80, colour=True), "xterm", "utf-8"), Level.OK, "xterm, 80 columns, colour, utf-8"),
        (
            Terminal(Medium(80), "dumb", "utf-8"),
            Level.OK,
            "dumb, 80 columns, no colour (NO_COLOR, or TERM is dumb), utf-8",
        ),
        (Terminal(Medium(30), "xterm", "utf-8"), Level.WARNING, "it has 30 columns; tables are cut"),
        (Terminal(Medium(80, boxes=False), "vt100", "ascii"), Level.WARNING, "its encoding is ascii: other characters"),
    ],
)
def test_what_a_terminal_can_show_is_said(seen: Terminal, level: Level, said: str) -> None:
    finding = judging.terminal(seen)

    assert (finding.level, finding.found.startswith(said)) == (level, True)


@pytest.mark.needs("terminal")
@pytest.mark.parametrize("columns", [40, 100])
def test_in_a_terminal_every_line_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import pexpect

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS")
    argv = ["-m", "convo", "doctor", "terminal", "serve", "seal", "ollama"]
    shown = pexpect.run(shlex.join([sys.executable, *argv]), env=dict(os.environ), dimensions=(24, columns))
    lines = shown.decode().replace("\x1b[2m", "").replace("\x1b[0m", "").splitlines()

    assert f"xterm, {columns} columns," in " ".join(lines).replace("  ", "")
    assert max(map(len, lines)) <= columns
    assert lines[-1] == "nothing is wrong"


@pytest.mark.needs("posix")
def test_folders_that_others_may_look_into_are_named(convo: Convo, home: Path) -> None:
    (home / "data").mkdir(parents=True)
    (home / "data").chmod(0o755)
    assert found(convo, "folders")["next"] == f"chmod 700 {home}/data"

    (home / "data").chmod(0o700)
    assert found(convo, "folders")["level"] == "ok"


@pytest.mark.needs("posix")
def test_a_folder_that_cannot_be_written_is_a_fault(convo: Convo, home: Path, tmp_path: Path) -> None:
    home.mkdir(0o555)
    tmp_path.chmod(0o755)
    with without_rights():
        one = found(convo, "folders")

    assert one["found"].startswith(f"the folder {home}")
    assert one["found"].endswith(" cannot be written to: Permission denied")
    assert one["next"] == "make its folder writable, or set CONVO_HOME to one that is"

"""`convo doctor`: problems of the installation, found on real files, servers and disks."""

import json
import os
import shlex
import socket
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from convo.cli import doctor
from convo.cli.completion import list_completions
from convo.cli.doctor import DOCTOR_CHECKS, OPT_IN_CHECKS
from tests.cli.doctor_checks import check_levels, run_check
from tests.command_runner import Convo, Launch, write_project_file
from tests.config.permissions import without_root

DEFAULT_CHECKS = [name for name in DOCTOR_CHECKS if name not in OPT_IN_CHECKS]


# -- all checks -----------------------------------------------------------------------------------


def test_a_new_installation_has_no_fault_and_doctor_creates_nothing(convo: Convo, home: Path) -> None:
    got = convo("doctor")

    assert got.exit == 0
    assert [line.split()[0] for line in got.out.splitlines() if line[2] != " "] == DEFAULT_CHECKS
    assert f"  store     sqlite:{home}/data/convo.db (built in) is created by the first turn\n" in got.out
    assert not home.exists()


def test_json_lists_the_same_checks(convo: Convo) -> None:
    result = convo("doctor", "--json").json()

    assert result["ok"]
    assert [check["name"] for check in result["checks"]] == DEFAULT_CHECKS
    assert {name for check in result["checks"] for name in check} == {"name", "level", "found", "next"}


def test_a_fault_is_followed_by_its_next_step_and_sets_the_exit_code(convo: Convo) -> None:
    write_project_file('[serve]\nhost = "0.0.0.0"\n')
    got = convo("doctor", "serve", "seal")

    assert got.exit == 1
    first, second, _ = got.out.splitlines()
    assert first == "  serve  error: 0.0.0.0, port 8788 can be reached from other machines, and no API keys are set up"
    assert second.startswith("         try: convo serve --new-key NAME")
    assert got.err == "1 error\n"


def test_a_warning_does_not_set_the_exit_code(convo: Convo) -> None:
    got = convo("doctor", "store", "--store", "memory")

    assert (got.exit, got.err) == (0, "1 warning\n")
    assert "warning: the store is memory (from --store): state does not persist across restarts" in got.out


def test_an_unknown_check_is_a_usage_error(convo: Convo) -> None:
    got = convo("doctor", "stor")

    assert (got.exit, got.out) == (2, "")
    assert got.err == "convo: no check 'stor'\n  try: convo doctor store\n"
    assert convo("doctor", "xyz").err.endswith(f"  try: one of {', '.join(DOCTOR_CHECKS)}\n")


def test_names_of_checks_are_completion_candidates() -> None:
    assert list_completions(["doctor"], "se") == [
        ("settings", "settings files and variables"),
        ("serve", "address and keys of convo serve"),
        ("seal", "key that encrypts compaction items"),
    ]


def test_no_check_exceeds_its_time_limit(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECK_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"postgresql://me:hush@127.0.0.1:{listener.getsockname()[1]}/convo?connect_timeout=600"
        check = run_check(convo, "store", "--store", url)

    assert (check["level"], "did not respond within 0.2 seconds" in check["found"]) == ("fault", True)
    assert "hush" not in json.dumps(check)


# -- settings -------------------------------------------------------------------------------------


def test_the_sources_of_settings_are_listed(convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file('model = "scripted/echo"\n')
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1")

    assert run_check(convo, "settings")["found"] == f"OLLAMA_HOST, {tmp_path}/.convo.toml"


def test_an_invalid_settings_file_does_not_prevent_the_other_checks(convo: Convo, tmp_path: Path) -> None:
    assert convo("config", "set", "trusted", f'["{tmp_path}"]').exit == 0
    Path(".convo.toml").write_text("model = \n")
    check = run_check(convo, "settings")

    assert check["found"] == f"{tmp_path}/.convo.toml, line 1: is not TOML: invalid value"
    levels = check_levels(convo)
    assert levels["settings"] == levels["store"] == levels["model"] == "fault"
    assert levels["convo"] == levels["folders"] == levels["terminal"] == levels["extras"] == "ok"
    assert run_check(convo, "keys")["next"] == "convo doctor settings"


def test_an_undefined_variable_is_named_and_only_fails_the_store_check(convo: Convo) -> None:
    write_project_file(
        '[state_storage]\ntype = "postgres"\nconnection_string = "postgresql://me:$DB_PASSWORD@host/db"\n'
    )
    check = run_check(convo, "store")

    assert "refers to the variable DB_PASSWORD, which is not set" in check["found"]
    assert check["next"] == "export DB_PASSWORD=..."
    levels = check_levels(convo)
    assert levels["settings"] == "fault"
    assert levels["keys"] == levels["model"] == levels["serve"] == "ok"


def test_a_password_with_special_characters_is_explained_and_not_repeated(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hush#@word")
    write_project_file(
        '[state_storage]\ntype = "postgres"\nconnection_string = "postgresql://me:$DB_PASSWORD@host/db"\n'
    )
    check = run_check(convo, "store")

    assert "must be percent-encoded" in check["found"]
    assert "# as %23" in check["found"]
    assert "hush" not in json.dumps(check)


def test_an_active_profile_is_named(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file('[profiles.work]\ntenant = "office"\n')
    monkeypatch.setenv("CONVO_PROFILE", "work")
    path = Path(".convo.toml").absolute()
    assert run_check(convo, "settings")["found"] == f"CONVO_PROFILE, {path} [profiles.work]"
    monkeypatch.setenv("CONVO_PROFILE", "wrok")
    assert run_check(convo, "settings")["found"] == "CONVO_PROFILE: no profile 'wrok'; did you mean 'work'?"


# -- convo serve ----------------------------------------------------------------------------------

KEY_LINE = f"alice {sha256(b'key').hexdigest()}\n"


@pytest.mark.parametrize(
    ("text", "level", "message"),
    [
        (KEY_LINE, "ok", "0.0.0.0, port 8788; 1 key"),
        ("", "fault", "has no keys: every request is rejected"),
        (f"{KEY_LINE}bob secret-key\n", "fault", "keys, line 2: is not a name and the SHA-256 of a key"),
        (None, "fault", "no keys file at "),
    ],
)
def test_the_keys_file_is_checked(text: str | None, level: str, message: str, convo: Convo) -> None:
    write_project_file('[serve]\nhost = "0.0.0.0"\nkeys_file = "keys"\n')
    if text is not None:
        Path("keys").write_text(text)
    check = run_check(convo, "serve")

    assert check["level"] == level
    assert message in check["found"]
    assert "secret-key" not in json.dumps(check)


@pytest.mark.needs("posix")
def test_a_keys_file_that_is_a_pipe_is_reported_without_waiting(convo: Convo) -> None:
    os.mkfifo("keys")
    write_project_file('[serve]\nkeys_file = "keys"\n')

    assert "is not a regular file" in run_check(convo, "serve")["found"]


def test_a_missing_serve_extra_is_reported_with_its_install_command(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    check = run_check(convo, "serve")

    assert (check["found"], check["next"]) == (
        "not installed: convo serve needs uvicorn",
        "pip install 'convo-state[serve]'",
    )


def test_the_source_of_the_encryption_key_is_reported(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the store's key" in run_check(convo, "seal")["found"]
    assert run_check(convo, "seal", "--store", "memory")["next"].startswith("export CONVO_SEAL_KEY=...")
    monkeypatch.setenv("CONVO_SEAL_KEY", "sk-secret")
    assert "encrypted with CONVO_SEAL_KEY" in run_check(convo, "seal")["found"]


# -- the terminal and the folders -------------------------------------------------------------------


def test_an_encoding_without_the_printed_characters_is_a_warning(launch: Launch) -> None:
    got = launch("doctor", "terminal", "--json", env={"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"})
    (check,) = got.json()["checks"]

    assert (got.exit, check["level"]) == (0, "warning")
    assert "PYTHONUTF8=1" in check["next"]


@pytest.mark.needs("terminal")
@pytest.mark.parametrize("columns", [40, 100])
def test_every_line_fits_the_width_of_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import pexpect

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS")
    argv = ["-m", "convo", "doctor", "terminal", "serve", "seal", "ollama"]
    output = pexpect.run(shlex.join([sys.executable, *argv]), env=dict(os.environ), dimensions=(24, columns))
    lines = output.decode().replace("\x1b[2m", "").replace("\x1b[0m", "").splitlines()

    assert f"xterm, {columns} columns," in " ".join(lines).replace("  ", "")
    assert max(map(len, lines)) <= columns
    assert lines[-1] == "all checks passed"


@pytest.mark.needs("posix")
def test_folders_that_other_users_can_read_are_named(convo: Convo, home: Path) -> None:
    (home / "data").mkdir(parents=True)
    (home / "data").chmod(0o755)
    assert run_check(convo, "folders")["next"] == f"chmod 700 {home}/data"

    (home / "data").chmod(0o700)
    assert run_check(convo, "folders")["level"] == "ok"


@pytest.mark.needs("posix")
def test_an_unwritable_folder_is_a_fault(convo: Convo, home: Path, tmp_path: Path) -> None:
    home.mkdir(0o555)
    tmp_path.chmod(0o755)
    with without_root():
        check = run_check(convo, "folders")

    assert check["found"].startswith(f"the folder {home}")
    assert check["found"].endswith(" cannot be written to: Permission denied")
    assert check["next"] == "make its folder writable, or set CONVO_HOME to a writable folder"

"""`convo doctor`: problems of the installation, found on real files, servers and disks."""

import json
import os
import platform
import re
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from importlib.util import spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from convo import __version__
from convo.cli import doctor
from convo.cli.completion import list_completions
from convo.cli.doctor import (
    DOCTOR_CHECKS,
    OPT_IN_CHECKS,
    DoctorCheck,
    DoctorContext,
    run_doctor_checks,
    select_doctor_checks,
)
from convo.installation import make_install_command
from convo.terminal.report_views import CheckResult, make_error_result, make_ok_result
from tests.cli.doctor_checks import run_check
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


LOCAL_ONLY = "127.0.0.1, port 8788; this machine only, no key needed"
STORE_KEY = "compaction items are encrypted with the store's key, which all users of the store share"
NO_KEYS = (
    "set: none; not set: ANTHROPIC_API_KEY (anthropic), AZURE_OPENAI_API_KEY (azure), AZURE_OPENAI_AD_TOKEN (azure),"
    " DEEPSEEK_API_KEY (deepseek), OPENAI_API_KEY (openai)"
)
NO_OLLAMA = "not used: neither the default model nor an alias is an Ollama model"
BUILT_IN_MODEL = "local/smollm2-135m-instruct (built in; no key found); convo stores chains and conversations"


def report(name: str, found: str, *, level: str = "ok", hint: str = "") -> dict[str, str]:
    return {"name": name, "level": level, "found": found, "next": hint}


def test_json_has_the_finding_of_each_check(convo: Convo, home: Path) -> None:
    result = convo("doctor", "--json").json()

    assert (result.keys(), result["ok"]) == ({"ok", "checks"}, True)
    assert [check["name"] for check in result["checks"]] == DEFAULT_CHECKS
    system = f"{platform.system()} {platform.machine()}"
    folders = ", ".join(str(home / name) for name in ("data", "state", "config"))
    assert [check for check in result["checks"] if check["name"] not in ("extras", "local")] == [
        report("convo", f"{__version__}, Python {platform.python_version()}, {system}"),
        report("settings", "all values are defaults; no file or variable sets one"),
        report("folders", f"writable: {folders}"),
        report("terminal", "stdout is not a terminal: plain text, no truncation, no color"),
        report("store", f"sqlite:{home}/data/convo.db (built in) is created by the first turn"),
        report("keys", NO_KEYS),
        report("model", BUILT_IN_MODEL),
        report("ollama", NO_OLLAMA),
        report("serve", LOCAL_ONLY),
        report("seal", STORE_KEY),
    ]


def test_an_invalid_store_setting_only_prevents_the_checks_that_use_the_store(convo: Convo) -> None:
    write_project_file('[state_storage]\ntype = "postgres"\nconnection_string = "postgresql://me:$NO_PW@host/db"\n')
    result = convo("doctor", "settings", "store", "keys", "model", "ollama", "serve", "seal", "--json").json()

    problem = (
        f"{Path('.convo.toml').absolute()}: 'state_storage.connection_string' refers to the variable NO_PW, which is"
        " not set"
    )
    assert result == {
        "ok": False,
        "checks": [
            report("settings", problem, level="fault", hint="export NO_PW=..."),
            report("store", problem, level="fault", hint="export NO_PW=..."),
            report("keys", NO_KEYS),
            report("model", BUILT_IN_MODEL),
            report("ollama", NO_OLLAMA),
            report("serve", LOCAL_ONLY),
            report("seal", "not checked: the store setting has an error", level="fault", hint="convo doctor store"),
        ],
    }


def test_each_check_has_a_description() -> None:
    assert {name: check.description for name, check in DOCTOR_CHECKS.items()} == {
        "convo": "versions of convo and Python",
        "settings": "settings files and variables",
        "folders": "folders that convo writes",
        "terminal": "capabilities of the terminal",
        "extras": "optional packages",
        "store": "database of conversations",
        "keys": "keys of the providers",
        "model": "default model",
        "local": "built-in model",
        "ollama": "Ollama server, if it is used",
        "serve": "address and keys of convo serve",
        "seal": "key that encrypts compaction items",
        "network": "connection to the servers of the providers",
    }


def test_checks_run_in_the_order_of_the_table() -> None:
    assert select_doctor_checks([], network=False) == DEFAULT_CHECKS
    assert select_doctor_checks([], network=True) == [*DEFAULT_CHECKS, "network"]
    assert select_doctor_checks(["seal", "convo", "seal"], network=False) == ["convo", "seal"]
    assert select_doctor_checks(["seal", "network"], network=False) == ["seal", "network"]
    assert select_doctor_checks(["seal"], network=True) == ["seal", "network"]


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


@pytest.mark.needs("weights")
def test_an_engine_without_its_system_library_is_a_warning(
    convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "libgomp.so.1: cannot open shared object file"
    package = tmp_path / "xllamacpp.py"
    package.write_text(f"raise ImportError({reason!r})\n", encoding="utf-8")
    spec = spec_from_file_location("xllamacpp", package)
    finder = SimpleNamespace(find_spec=lambda name, *_: spec if name == "xllamacpp" else None)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    check = run_check(convo, "local")

    assert (check["level"], check["found"]) == ("warning", f"the local engine did not start: {reason}")
    assert check["next"] == "apt install libgomp1 (Debian, Ubuntu), or choose another model"


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


def test_a_server_that_does_not_respond_is_a_fault(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECK_TIMEOUT_S", 0.2)
    monkeypatch.setattr(doctor, "TIMEOUT_MARGIN_S", 20.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        check = run_check(convo, "store", "--store", f"postgresql://me:hush@{host}/convo?connect_timeout=600")

    assert (check["level"], check["next"]) == ("fault", "check the host name, the network and the firewall")
    assert check["found"].endswith("did not respond within 0.2 seconds")
    assert host in check["found"]
    assert "hush" not in json.dumps(check)


def run_slow_check(monkeypatch: pytest.MonkeyPatch, timeout_s: float, margin_s: float, wait: Callable[[], None]) -> Any:
    """Run a check that calls `wait`, together with one that does not wait; return its result."""

    def run(context: DoctorContext) -> CheckResult:
        wait()
        return make_ok_result("done")

    monkeypatch.setattr(doctor, "CHECK_TIMEOUT_S", timeout_s)
    monkeypatch.setattr(doctor, "TIMEOUT_MARGIN_S", margin_s)
    monkeypatch.setattr(doctor, "DOCTOR_CHECKS", {**DOCTOR_CHECKS, "slow": DoctorCheck("slow", run)})
    slow, versions = run_doctor_checks(["slow", "convo"], DoctorContext(None, {}))
    assert (slow.name, versions.name) == ("slow", "convo")
    return slow.result


def test_a_check_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over, has_ended = threading.Event(), threading.Event()

    def wait() -> None:
        is_over.wait(10)
        has_ended.set()

    result = run_slow_check(monkeypatch, 0.02, 0.03, wait)
    assert not has_ended.is_set()
    is_over.set()
    assert result == make_error_result("timed out after 0.02 seconds", "check whether the disk and the server respond")


def test_a_check_has_additional_time_for_the_error_of_its_own_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_slow_check(monkeypatch, 0.0, 10.0, lambda: time.sleep(0.01)) == make_ok_result("done")


# -- settings -------------------------------------------------------------------------------------


def test_the_sources_of_settings_are_listed(convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file('model = "scripted/echo"\ntenant = "a"\n')
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1")
    monkeypatch.setenv("CONVO_MODEL", "scripted/echo")

    assert run_check(convo, "settings")["found"] == f"CONVO_MODEL, OLLAMA_HOST, {tmp_path}/.convo.toml"


def test_an_invalid_settings_file_does_not_prevent_the_other_checks(convo: Convo, tmp_path: Path) -> None:
    assert convo("config", "set", "trusted", f'["{tmp_path}"]').exit == 0
    Path(".convo.toml").write_text("model = \n")
    checks = convo("doctor", "--json").json()["checks"]

    problem = f"{tmp_path}/.convo.toml, line 1: is not TOML: invalid value"
    assert [check for check in checks if check["level"] != "ok"] == [
        report("settings", problem, level="fault", hint="correct the value where it is set"),
        *(
            report(name, "not checked: the settings have errors", level="fault", hint="convo doctor settings")
            for name in ("store", "keys", "model", "ollama", "serve", "seal")
        ),
    ]


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


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_key_in_place_of_a_model_is_not_repeated(flags: tuple[str, ...], convo: Convo) -> None:
    convo("config", "set", "model", "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD")
    got = convo("doctor", "model", *flags)
    assert got.exit == 1
    assert "no model '***'" in got.out
    assert "sk-proj" not in got.out + got.err


def test_an_active_profile_is_named(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file('[profiles.work]\ntenant = "office"\n')
    monkeypatch.setenv("CONVO_PROFILE", "work")
    path = Path(".convo.toml").absolute()
    assert run_check(convo, "settings")["found"] == f"CONVO_PROFILE, {path} [profiles.work]"
    monkeypatch.setenv("CONVO_PROFILE", "wrok")
    assert run_check(convo, "settings")["found"] == "CONVO_PROFILE: no profile 'wrok'; did you mean 'work'?"


def test_a_percentage_in_place_of_a_fraction_is_a_warning(convo: Convo) -> None:
    write_project_file("compact_at = 60\n")
    check = run_check(convo, "settings")
    assert (check["level"], check["next"]) == ("warning", "convo config set compact_at 0.6")


# -- convo serve ----------------------------------------------------------------------------------

KEY_LINE = f"alice {sha256(b'key').hexdigest()}\n"


@pytest.mark.parametrize(
    ("text", "level", "message", "hint"),
    [
        (f"{KEY_LINE}bob {'0' * 64}\n", "ok", "0.0.0.0, port 8788; 2 keys", ""),
        ("", "fault", "{path} has no keys: every request is rejected", "convo serve --new-key NAME"),
        (
            f"{KEY_LINE}bob secret-key\n",
            "fault",
            "{path}, line 2: is not a name and the SHA-256 of a key",
            None,
        ),
        (None, "fault", "no keys file at {path}", "convo serve --new-key NAME, to create it"),
    ],
)
def test_the_keys_file_is_checked(text: str | None, level: str, message: str, hint: str | None, convo: Convo) -> None:
    write_project_file('[serve]\nhost = "0.0.0.0"\nkeys_file = "keys"\n')
    if text is not None:
        Path("keys").write_text(text)
    check = run_check(convo, "serve")

    assert (check["level"], check["found"]) == (level, message.format(path=Path("keys").absolute()))
    assert hint is None or check["next"] == hint
    assert "secret-key" not in json.dumps(check)


@pytest.mark.needs("posix")
def test_a_keys_file_that_is_a_pipe_is_reported_without_waiting(convo: Convo) -> None:
    os.mkfifo("keys")
    write_project_file('[serve]\nkeys_file = "keys"\n')

    check = run_check(convo, "serve")
    assert check["found"] == f"{Path('keys').absolute()} is not a regular file"
    assert check["next"] == "convo serve --new-key NAME, to create a keys file"


def test_a_missing_serve_extra_is_reported_with_its_install_command(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    check = run_check(convo, "serve")

    assert (check["found"], check["next"]) == (
        "not installed: convo serve needs the extra [serve]",
        make_install_command("serve"),
    )


def test_the_source_of_the_encryption_key_is_reported(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the store's key" in run_check(convo, "seal")["found"]
    assert run_check(convo, "seal", "--store", "memory")["next"].startswith("export CONVO_SEAL_KEY=...")
    monkeypatch.setenv("CONVO_SEAL_KEY", "sk-secret")
    assert "encrypted with CONVO_SEAL_KEY" in run_check(convo, "seal")["found"]


# -- the terminal and the folders -------------------------------------------------------------------


@pytest.mark.needs("terminal")
def test_a_narrow_terminal_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    import pexpect

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS")
    output = pexpect.run(f"{sys.executable} -m convo doctor terminal", env=dict(os.environ), dimensions=(24, 39))
    assert "the terminal has 39 columns; tables are truncated" in " ".join(output.decode().split())


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
    lines = re.sub(r"\x1b\[\d*m", "", output.decode()).splitlines()

    assert f"xterm, {columns} columns," in " ".join(lines).replace("  ", "")
    assert max(map(len, lines)) <= columns
    assert lines[-2:] == ["", "all checks passed"]
    assert "\x1b[32mall checks passed" in output.decode()
    assert lines[0].startswith("✓ terminal  xterm")


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

"""Failures: error lines on stderr, error objects in JSON, and exit codes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest

from tests.cli.sample import SAMPLES
from tests.command_runner import ROOT, Convo, run_in_process

RUN_SAMPLE_COMMAND = """
import sys
from convo.cli.app import run_command_line
from tests.cli.sample import SAMPLES
sys.exit(run_command_line(sys.argv[1:], SAMPLES))
"""


def run_sample_command(*argv: str, stdout: TextIO) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process whose stdout is flushed at its end, when an output error may occur again."""
    return subprocess.run(
        [sys.executable, "-c", RUN_SAMPLE_COMMAND, *argv],
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )


@pytest.mark.parametrize(
    ("argv", "exit_code", "err"),
    [
        (["stumble", "not-found"], 5, "convo: no session 'nope'\n  try: convo sessions\n"),
        (["stumble", "in-a-group"], 5, "convo: no session 'nope'\n  try: convo sessions\n"),
        (["stumble", "no-hint"], 1, "convo: it failed\n"),
        (["stumble", "interrupt"], 130, ""),
        (["stumble", "abort"], 130, ""),
        (["stumble", "paused"], 3, ""),
        (["gret"], 2, "convo: no command 'gret'; did you mean 'greet'?\n  try: convo greet --help\n"),
        (
            ["--confg"],
            2,
            "convo: no option '--confg'; did you mean '--config'?\n  try: convo --config FILE, or convo --help\n",
        ),
        (["greet"], 2, "convo: missing argument 'NAME'\n  try: convo greet --help\n"),
        (["greet", "Ada", "Bob"], 2, "convo: unexpected argument: Bob\n  try: convo greet --help\n"),
        (["greet", "Ada", "--json=x"], 2, "convo: option '--json' does not take a value\n  try: convo greet --help\n"),
        (["box", "tak"], 2, "convo: no command 'tak' of convo box; did you mean 'take'?\n  try: convo box --help\n"),
        (
            ["--completion", "csh"],
            2,
            "convo: no completion script for 'csh'\n  try: use bash, zsh, fish or powershell\n",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_failure_prints_one_sentence_one_next_step_and_sets_an_exit_code(
    argv: list[str], exit_code: int, err: str, convo: Convo
) -> None:
    got = convo(*argv, table=SAMPLES)
    assert (got.exit, got.out, got.err) == (exit_code, "", err)


def test_on_a_terminal_the_other_lines_of_an_error_are_indented(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    failure = run_in_process("inspect", "/data/conversations/SmolLM2-135M/monads.json", is_terminal=True)
    assert failure.err == (
        "✗ convo: no file\n  '/data/conversations/SmolLM2-135M/\n  monads.json'\n"  #
        "  try: check the path\n"
    )
    failure = run_in_process("inspect", "conversation-that-does-not-exist", is_terminal=True)
    assert failure.err.splitlines()[:2] == ["✗ convo: no session", "  'conversation-that-does-not-exist'"]


def test_on_a_terminal_an_error_has_a_sign_and_a_bold_reason(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    failure = run_in_process("inspect", "nope", is_terminal=True)
    assert failure.err == (
        "\x1b[31m✗ convo:\x1b[0m \x1b[1mno session 'nope'\x1b[0m\n\x1b[2m  try:\x1b[0m convo sessions\n"
    )


def test_on_a_terminal_a_notice_is_wrapped_between_words_and_commands(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    notice = run_in_process("sessions", is_terminal=True)
    assert notice.err == 'no conversations yet; start one:\n  convo chat "hello"\n'
    notice = run_in_process("config", "set", "model", "local", is_terminal=True)
    assert notice.err == f"set model to local in\n  {home}/config/config.toml\n"  # the path remains in one piece


@pytest.mark.parametrize("flag", ["--json", "--jsonl"])
def test_with_json_a_failure_is_an_object_on_stdout(flag: str, convo: Convo) -> None:
    got = convo("stumble", "not-found", flag, table=SAMPLES)
    assert (got.exit, got.err) == (5, "")
    assert got.json() == {"error": {"code": "not_found", "message": "no session 'nope'", "hint": "convo sessions"}}


def test_with_json_a_usage_error_is_an_object_too(convo: Convo) -> None:
    got = convo("greet", "--json", table=SAMPLES)
    assert (got.exit, got.err) == (2, "")
    assert got.json()["error"] == {
        "code": "usage",
        "message": "missing argument 'NAME'",
        "hint": "convo greet --help",
    }


def test_with_json_an_interruption_has_an_error_code(convo: Convo) -> None:
    got = convo("stumble", "interrupt", "--json", table=SAMPLES)
    assert (got.exit, got.json()["error"]["code"]) == (130, "interrupted")


def test_json_after_a_double_dash_is_an_argument(convo: Convo) -> None:
    got = convo("greet", "--", "--json", "too", table=SAMPLES)
    assert (got.exit, got.out) == (2, "")


def test_control_characters_in_an_error_message_are_escaped(convo: Convo) -> None:
    got = convo("stumble", "hostile", table=SAMPLES)
    assert got.err == "convo: clear \\x1b[2J the \\x0dscreen\nnow\n  try: \\x07\n"


def test_an_internal_error_is_reported_by_type_and_location_without_its_text(convo: Convo) -> None:
    got = convo("stumble", "mistake", table=SAMPLES)
    first, second = got.err.splitlines()
    assert (got.exit, got.out) == (1, "")
    assert first.startswith("convo: internal error: KeyError in convo/cli/app.py:")
    assert second == "  try: set CONVO_DEBUG=1 to see the traceback"
    assert "sk-secret" not in got.err


def test_an_operating_system_error_keeps_its_own_text(convo: Convo) -> None:
    got = convo("stumble", "system", table=SAMPLES)
    assert got.err.startswith("convo: internal error: PermissionError (Permission denied) in convo/cli/app.py:")
    assert "sk-secret" not in got.err


def test_debug_output_shows_the_traceback_before_the_message_without_user_data(
    convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVO_DEBUG", "1")
    got = convo("stumble", "mistake", table=SAMPLES)
    assert got.err.startswith("Traceback (most recent call last):\n")
    assert "stumble.py" in got.err
    assert "\nKeyError\nconvo: internal error: KeyError in " in got.err
    assert "sk-secret" not in got.err


def test_an_unencodable_character_is_escaped() -> None:
    got = run_in_process("stumble", "odd-text", table=SAMPLES, encoding="ascii")
    assert (got.exit, got.out, got.err) == (0, "a check \\u2713 and half a pair \\ud83d\n", "")


def test_a_lone_surrogate_is_escaped_and_the_other_characters_are_printed() -> None:
    got = run_in_process("stumble", "odd-text", table=SAMPLES)
    assert (got.exit, got.out) == (0, "a check \u2713 and half a pair \\ud83d\n")


@pytest.mark.needs("posix")
@pytest.mark.parametrize("case", ["much-text", "little-text"])
def test_a_closed_stdout_ends_the_command_quietly(case: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as closed_pipe:
        done = run_sample_command("stumble", case, stdout=closed_pipe)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.needs("full disk")
@pytest.mark.parametrize("case", ["much-text", "little-text"])
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_an_output_error_is_reported_on_stderr(case: str, flags: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = run_sample_command("stumble", case, *flags, stdout=full)
    assert done.returncode == 1
    assert done.stderr == "convo: cannot write: No space left on device\n  try: free some space, then repeat\n"

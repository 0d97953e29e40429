"""The completion candidates of a command line, and the completion scripts in real shells."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from convo.cli.completion import list_completions, print_completions
from convo.cli.completion_scripts import COMPLETION_FILE_NAMES, COMPLETION_SCRIPTS, write_completion_scripts
from convo.history.records import Strategy
from tests.cli.sample import SAMPLES
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.command_runner import ROOT, Convo, write_project_file
from tests.terminal.pty_process import end_process
from tests.test_architecture import HEAVY

SHIM = f"""#!{sys.executable}
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.cli.sample import SAMPLES
if "_CONVO_COMPLETE" in os.environ:
    from convo.cli.completion import print_completions as run
else:
    from convo.cli.app import run_command_line as run
sys.exit(run(sys.argv[1:], SAMPLES))
"""
"""An executable that a shell calls as `convo`: the real command line with the sample commands."""


COMMANDS_OF_ROOT = [
    ("greet", "Say good day to somebody."),
    ("box", "Keep things in a box."),
    ("stumble", "End in one of many ways."),
]
OPTIONS_OF_ROOT = [
    ("--config", "Settings file to use instead of your own."),
    ("--profile", "Use the settings in [profiles.NAME]."),
    ("--completion", "Print the completion script for bash, zsh, fish or powershell."),
    ("--man", "Print the man page; read it with man -l -."),
    ("--version", "Print the version."),
    ("--help", "Show this message and exit."),
]


@pytest.mark.parametrize(
    ("argv", "incomplete", "candidates"),
    [
        ([], "", COMMANDS_OF_ROOT),
        ([], "gr", COMMANDS_OF_ROOT[:1]),
        ([], "-", [*OPTIONS_OF_ROOT[:-1], ("-h", OPTIONS_OF_ROOT[-1][1]), OPTIONS_OF_ROOT[-1]]),
        ([], "--c", [OPTIONS_OF_ROOT[0], OPTIONS_OF_ROOT[2]]),
        (["--config", "my.toml"], "bo", COMMANDS_OF_ROOT[1:2]),
        (["greet"], "--w", [("--warmly", "Mean it.")]),
        (["greet"], "", []),
        (["greet", "Ada"], "", []),
        (["greet", "--warmly"], "", []),
        (["greet", "--tongue"], "g", [("german", "")]),
        (["greet", "--tongue"], "=", [("english", ""), ("german", "")]),
        (["greet"], "--tongue=e", [("english", "")]),
        (["greet"], "--warmly=", []),
        (["box"], "", [("take", "Take one thing out."), ("put", "Put a file in.")]),
        (["box", "take"], "p", [("pear", "green: soft"), ("plum", "blue")]),
        (["box", "take"], "@", [("@last", "the one used last")]),
        (["box", "take", "pear"], "", []),
        (["box", "put"], "any", []),
        (["nonsense"], "--", OPTIONS_OF_ROOT),
        (["greet", "--"], "--w", []),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_partial_word_has_matching_candidates(
    argv: list[str], incomplete: str, candidates: list[tuple[str, str]]
) -> None:
    found = list_completions(argv, incomplete, SAMPLES)
    assert sorted(found) == sorted(candidates)
    in_order, expected = ([each for each in names if each[0] != "-h"] for names in (found, candidates))
    assert in_order == expected  # the order of the names of Typer's own option varies


@pytest.fixture
def sessions_and_settings(home: Path) -> None:
    """Store two sessions, and set an alias and a profile."""

    async def script(writer: ChatWriter) -> None:
        await writer.chat(Strategy.SESSION, "monads", "hi")
        await writer.chat(Strategy.CHAIN, "chained", "hi")

    write_chats(home, script)
    write_project_file('[aliases]\nfast = "openai/gpt-6.1-terra"\n[profiles.work.aliases]\nworker = "openai/gpt-5"\n')


MONADS = ("monads", "session, scripted/echo")
CHAINED = ("chained", "chain, scripted/echo")
HANDLES = [("@last", "chained"), CHAINED, MONADS]


@pytest.mark.parametrize(
    ("argv", "incomplete", "candidates"),
    [
        (["inspect"], "", HANDLES),
        (["inspect", "--"], "", HANDLES),
        (["diff", "monads"], "", HANDLES),
        (["diff"], "c", [CHAINED]),
        (["why"], "", HANDLES),
        (["chat", "--from"], "mo", [MONADS]),
        (["chat", "--from"], "=", HANDLES),
        (["chat"], "--fork=ch", [CHAINED]),
        (["sessions", "rm", "monads"], "c", [CHAINED]),
        (["resume"], "", HANDLES),
        (["inspect"], "resp_", [("resp_2", "chained"), ("resp_1", "monads")]),
        (["inspect"], "ses_", [("ses_2", "chained"), ("ses_1", "monads")]),
        (["inspect"], "conv_", []),
        (["chat", "--state"], "", []),
        (["inspect"], "./m", []),
        (
            ["chat", "-m"],
            "",
            [
                ("fast", "alias of openai/gpt-6.1-terra"),
                ("local/smollm2-135m-instruct", "used before"),
                ("scripted/echo", "used before"),
                ("local", "the built-in model"),
            ],
        ),
        (["--profile", "work", "chat", "-m"], "wo", [("worker", "alias of openai/gpt-5")]),
        (["chat", "-m"], "wo", []),
        (["race", "-m"], "openai/gpt-6.1-t", [("openai/gpt-6.1-terra", "price known")]),
        (["next", "monads", "--provider"], "o", [("ollama", "chat"), ("openai", "responses")]),
        (["--profile"], "", [("work", "in .convo.toml")]),
        (["config", "set"], "mod", [("model", ""), ("models", "")]),
        (
            ["config", "set"],
            "state_",
            [(f"state_storage.{key}", "") for key in ("type", "connection_string", "ttl", "ttls")],
        ),
        (["config", "set"], "pr", [("providers", ""), ("prices", ""), ("profile", ""), ("profiles", "")]),
        (["config", "key", "set"], "an", [("anthropic", "anthropic")]),
        (["schema"], "s", [("sessions", ""), ("store", "")]),
        ([], "in", [("inspect", "Inspect a conversation: its owner, requests, items, tokens and cost.")]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_local_sessions_files_and_models_are_candidates(
    argv: list[str], incomplete: str, candidates: list[tuple[str, str]], sessions_and_settings: None
) -> None:
    assert list_completions(argv, incomplete) == candidates


def test_the_settings_file_on_the_command_line_is_used(home: Path) -> None:
    Path("other.toml").write_text('[aliases]\nmine = "scripted/echo"\n[profiles.home]\nmodel = "mine"\n')
    config = ["--config", "other.toml"]
    assert list_completions([*config, "chat", "-m"], "m") == [("mine", "alias of scripted/echo")]
    assert list_completions([*config, "--profile"], "") == [("home", "in other.toml")]


def test_the_sessions_of_a_server_are_not_read(home: Path) -> None:
    write_project_file('[state_storage]\ntype = "postgres"\nconnection_string = "postgresql://127.0.0.1:1/none"\n')
    assert list_completions(["inspect"], "") == []


def test_with_unreadable_settings_there_are_no_candidates(
    sessions_and_settings: None, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config" / "config.toml").write_text("no toml")
    for argv in (["inspect", "="], ["chat", "-m", "="], ["--profile", "="]):
        assert print_completions(argv) == 0
    assert capsys.readouterr() == ("", "")


def test_a_missing_store_is_not_created(home: Path) -> None:
    assert list_completions(["inspect"], "") == []
    assert not home.exists()


def test_the_names_of_templates_are_candidates(home: Path) -> None:
    folder = home / "config" / "templates"
    folder.mkdir(parents=True)
    (folder / "review.toml").write_text('prompt = "Review this:\\n$input"\n')
    (folder / "invalid.toml").write_text("prompt = 1\n")
    assert list_completions(["chat", "-t"], "") == [("invalid", ""), ("review", "Review this:")]
    assert list_completions(["templates", "show"], "r") == [("review", "Review this:")]


def test_candidates_for_handles_and_models_import_no_large_packages(sessions_and_settings: None) -> None:
    code = (
        "import sys; from convo.cli.completion import list_completions; "
        "list_completions(['inspect'], ''); list_completions(['chat', '-m'], 'o'); "
        f"print(*{{name.split('.')[0] for name in sys.modules}} & {set(HEAVY) - {'sqlite3', 'typer'}!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert done.stdout == "\n"


def test_without_words_the_commands_are_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_completions([], SAMPLES) == 0
    assert capsys.readouterr().out == "".join(f"{name}\t{summary}\n" for name, summary in COMMANDS_OF_ROOT)


def test_each_candidate_is_a_line_with_its_help_after_a_tab(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_completions(["box", "=t"], SAMPLES) == 0
    assert capsys.readouterr().out == "take\tTake one thing out.\n"


def test_an_unparsable_command_line_has_no_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_completions(["greet", "--tongue", "german", "--nonsense", "=x"], SAMPLES) == 0
    assert capsys.readouterr() == ("", "")


def test_the_completion_scripts_in_the_repository_equal_the_generated_ones(tmp_path: Path) -> None:
    for _ in range(2):
        write_completion_scripts(tmp_path / "new" / "folder")
    scripts = {path.name: path.read_bytes() for path in (ROOT / "completions").iterdir() if path.name != "convo.1"}
    assert scripts == {path.name: path.read_bytes() for path in (tmp_path / "new" / "folder").iterdir()}
    assert set(scripts) == set(COMPLETION_FILE_NAMES.values())


@pytest.mark.parametrize("shell", COMPLETION_SCRIPTS)
def test_completions_prints_the_script_of_a_shell(shell: str, convo: Convo) -> None:
    got = convo("--completion", shell)
    assert (got.exit, got.out, got.err) == (0, COMPLETION_SCRIPTS[shell], "")


# -- in real shells: run each completed line and compare the output of the command ----------------

LINES = [
    ("convo greet A --wa\t", "good day, A!"),
    ("convo greet A --tongue g\t", "guten Tag, A"),
    ("convo box take pl\t", "took plum"),
    ("convo box take @l\t", "took @last"),
    ("convo box put a-fi\t", "put a-file.txt"),
    ("convo box ta\tpear", "took pear"),
]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the front of PATH that contains `convo`; the current folder contains the file a-file.txt."""
    (tmp_path / "a-file.txt").touch()
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "convo").write_text(SHIM)
    (folder / "convo").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("TERM", "dumb")
    return folder


def run_in_shell(command: str, arguments: list[str], script: str, lines: list[str]) -> Iterator[str]:
    """Type `script` and then `lines` into an interactive shell; yield the output of each."""
    import pexpect

    terminal: Any = pexpect.spawn(command, arguments, encoding="utf-8", timeout=30, dimensions=(24, 200))
    terminal.delaybeforesend = None
    try:
        for number, line in enumerate([script, *lines]):
            terminal.sendline(f"{line} > printed; echo done''-{number}")
            terminal.expect_exact(f"done-{number}\r\n")
            yield Path("printed").read_text().rstrip()
    finally:
        end_process(terminal)


@pytest.mark.needs("bash", "terminal", "posix")
def test_bash_completes_a_line(path: Path) -> None:
    load = f"source {ROOT / 'completions' / 'convo.bash'}"
    outputs = run_in_shell("bash", ["--norc", "--noprofile", "-i"], load, [line for line, _ in LINES])
    assert list(outputs)[1:] == [output for _, output in LINES]


@pytest.mark.needs("bash", "terminal", "posix")
def test_bash_never_executes_the_text_of_a_candidate(path: Path) -> None:
    name = "a$(touch${IFS}ran)b;id`id`"
    (path / "convo").write_text(f'#!/bin/sh\nif [ $_CONVO_COMPLETE ]; then echo {quote(name)}; else echo "$1"; fi\n')
    load = f"source {ROOT / 'completions' / 'convo.bash'}"
    *_, output = run_in_shell("bash", ["--norc", "--noprofile", "-i"], load, ["convo a\t"])
    assert output == name
    assert not Path("ran").exists()


@pytest.mark.needs("zsh", "terminal")
def test_zsh_completes_a_line(path: Path) -> None:
    load = f"autoload -U compinit; compinit -u -D; source {ROOT / 'completions' / '_convo'}"
    outputs = run_in_shell("zsh", ["-f", "-i"], load, [line for line, _ in LINES])
    assert list(outputs)[1:] == [output for _, output in LINES]


@pytest.mark.needs("fish")
@pytest.mark.parametrize(
    ("line", "candidate"),
    [
        ("convo gr", "greet\tSay good day to somebody."),
        ("convo greet A --wa", "--warmly\tMean it."),
        ("convo box take @", "@last\tthe one used last"),
        ("convo box put a-fi", "a-file.txt"),
    ],
)
def test_fish_offers_candidates_with_their_help(line: str, candidate: str, path: Path) -> None:
    load = f"source {ROOT / 'completions' / 'convo.fish'}; complete --do-complete '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", load], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    assert done.stdout.splitlines() == [candidate]

"""Screens and confirmation prompts in a real terminal of 80 or 160 columns, with enough rows for each."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from convo.cli.app import COMMANDS, CommandGroup
from convo.errors import RequestRefused
from convo.history.records import Strategy
from convo.terminal.terminal import text_width
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.command_runner import Convo
from tests.terminal.pty_process import spawn, wait_for_end
from tests.utc_timezone import utc_timezone

__all__ = ["utc_timezone"]

pytestmark = pytest.mark.needs("terminal")

COLOR_CODE = re.compile(r"\x1b\[[\d;]*m")


async def write_chat(writer: ChatWriter) -> None:
    chat = await writer.chat(Strategy.CHAIN, "monads", "What is a monad, in words that a child would know?", "Why?")
    await writer.retry(chat)


def run_in_terminal(*argv: str, env: dict[str, str] | None = None, columns: int = 80) -> str:
    """The output of a command line in a terminal."""
    import pexpect

    environ = {**os.environ, "TERM": "xterm", **(env or {})}
    environ.pop("COLUMNS", None)
    child = spawn(*argv, dimensions=(40, columns), encoding="utf-8", env=environ, timeout=60)
    child.expect(pexpect.EOF)
    wait_for_end(child)
    return str(child.before).replace("\r\n", "\n")


def test_a_tree_with_forks_fits_into_eighty_columns(home: Path) -> None:
    write_chats(home, write_chat)
    output = run_in_terminal("inspect", "monads")
    lines = COLOR_CODE.sub("", output).splitlines()
    assert max(map(text_width, lines)) <= 80
    rows = [line[:22] for line in lines if "resp_" in line[:18]]
    assert rows == ["● resp_1    full 1    ", "├─● resp_2  delta 1   ", "@ resp_3    delta 1   "]
    full = COLOR_CODE.sub("", run_in_terminal("inspect", "monads", "--full")).splitlines()
    rows = [line[:14] for line in full if "resp_" in line[:12]]
    assert rows[:3] == ["● resp_1    ch", "├─● resp_2  ch", "@ resp_3    ch"]
    assert rows[3:] == ["● resp_1    ch", "├─● resp_2  ch", "@ resp_3    ch"]
    assert COLOR_CODE.search(output)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_color_can_be_disabled(env: dict[str, str], home: Path) -> None:
    write_chats(home, write_chat)
    assert "\x1b" not in run_in_terminal("inspect", "monads", env=env)


async def write_failed_chat(writer: ChatWriter) -> None:
    chat = await writer.chat(Strategy.CHAIN, "monads", "What is a monad?", "Why?")
    await writer.fail(chat, "And how?", RequestRefused("the server is away"))


def test_a_terminal_shows_the_name_in_a_panel_and_a_sign_for_each_status(home: Path) -> None:
    write_chats(home, write_failed_chat)
    colored = run_in_terminal("inspect", "monads", "--no-pager", columns=160)
    assert "\x1b[31m✗ failed\x1b[0m" in colored
    assert "\x1b[32m✓ completed\x1b[0m" in colored
    plain = run_in_terminal("inspect", "monads", "--no-pager", env={"NO_COLOR": "1"}, columns=160)
    assert COLOR_CODE.sub("", colored) == plain
    assert plain.startswith("╭─ monads ──")


def test_a_check_of_a_store_has_a_sign_in_a_terminal(home: Path) -> None:
    write_chats(home, write_chat)
    output = run_in_terminal("store", "check")
    assert "\x1b[32m✓\x1b[0m sqlite:" in output
    plain = run_in_terminal("store", "check", env={"NO_COLOR": "1"}, columns=200)
    assert re.search(r"^✓ sqlite:.*: no problems found", plain, re.MULTILINE)


def test_a_pipe_shows_words_without_signs_and_does_not_load_rich(home: Path) -> None:
    write_chats(home, write_failed_chat)
    program = (
        "import sys; from convo.cli.app import run_command_line; code = run_command_line(['inspect', 'monads']); "
        "sys.exit(code or 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("monads\n  owner ")
    assert "  failed " in done.stdout
    assert not {"✓", "✗", "╭", "\x1b"} & set(done.stdout)


PIPED_COMMANDS = (
    *(
        "chat -m scripted/echo -n mine hello",
        "chat -m scripted/echo -c --json again",
        "chat -m scripted/echo -c --jsonl x",
    ),
    *("inspect monads", "inspect monads --full", "inspect monads --chart", "inspect monads --items", "inspect resp_"),
    *("inspect monads --json", "inspect monads --raw", "next monads hi", "next monads --json", "diff resp_1 resp_2"),
    *(
        "sessions",
        "sessions --json",
        "sessions show monads",
        "sessions search monad",
        "lint monads",
        "lint monads --json",
    ),
    *(
        "models",
        "models --json",
        "models known",
        "config list",
        "config list --json",
        "store stats",
        "store stats --json",
    ),
    *("approvals", "approvals --json", "race -m scripted/echo hi", "race -m scripted/echo hi --json", "export monads"),
    *("convert monads --to session", "compact monads --preview", "store check"),
)


def test_in_a_pipe_no_command_loads_rich(home: Path) -> None:
    """All commands in one process, with and without --json: a table, a tree, a bar or an answer needs it nowhere."""
    write_chats(home, write_failed_chat)
    program = (
        "import contextlib, io, sys\n"
        "from convo.cli.app import run_command_line\n"
        f"for command in {PIPED_COMMANDS!r}:\n"
        "    print('$', command, flush=True)\n"
        "    try: run_command_line(command.split())\n"
        "    except SystemExit: pass\n"
        "    if 'rich' in sys.modules: sys.exit(command + ' loads rich')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    outputs = dict(part.partition("\n")[::2] for part in done.stdout.split("$ ")[1:])
    assert list(outputs) == list(PIPED_COMMANDS)
    assert [command for command, output in outputs.items() if not output.strip()] == []


def test_full_shows_all_columns_in_a_narrow_terminal(convo: Convo, home: Path) -> None:
    write_chats(home, write_chat)
    narrow, full = (
        COLOR_CODE.sub("", run_in_terminal("inspect", "monads", "--no-pager", *flags)) for flags in ((), ("--full",))
    )
    headings = (
        "response owner sent ~tokens context input cached output reasoning model date time status seconds preview"
    )
    assert headings.split() in [line.split() for line in full.splitlines()]
    assert headings.split() not in [line.split() for line in narrow.splitlines()]
    assert "What is a monad, in words that a child would know? → What is a monad" in full
    assert convo("inspect", "monads", "--full").out == convo("inspect", "monads").out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--json",), "--full and --json cannot be used together: --json shows no table"),
        (("--raw",), "--full and --raw cannot be used together: --raw shows no table"),
        (("--items",), "--full and --items cannot be used together: --items shows no table"),
        (("--html", "x.html"), "--full and --html cannot be used together: --html shows no table"),
        (("-i",), "--interactive and --full cannot be used together"),
        (
            ("--watch",),
            "--watch and --full cannot be used together: --watch shows the tree of the local copy",
        ),
    ],
)
def test_full_is_refused_with_output_without_tables(flags: tuple[str, ...], message: str, convo: Convo) -> None:
    got = convo("inspect", "monads", "--full", *flags)
    assert got.exit == 2
    assert message in got.out + got.err


def test_full_is_refused_for_a_list_of_ids(convo: Convo) -> None:
    got = convo("inspect", "resp_", "--full")
    assert (got.exit, got.err) == (2, "convo: --full needs a conversation\n  try: convo inspect resp_\n")


def test_sessions_fit_into_eighty_columns(home: Path) -> None:
    write_chats(home, write_chat)
    lines = COLOR_CODE.sub("", run_in_terminal("sessions")).splitlines()
    assert max(map(text_width, lines)) <= 80
    assert lines[1].startswith("monads   chain  scripted/echo ")


@pytest.mark.parametrize(
    ("answer", "is_kept", "exit_code"), [("y", False, 0), ("yes", False, 0), ("n", True, 1), ("", True, 1)]
)
def test_removing_asks_for_confirmation_in_a_terminal(answer: str, is_kept: bool, exit_code: int, home: Path) -> None:
    import pexpect

    write_chats(home, write_chat)
    child = spawn("sessions", "rm", "monads", encoding="utf-8", env=dict(os.environ), timeout=60)
    child.expect_exact("remove monads? [y/N] ")
    child.sendline(answer)
    child.expect(pexpect.EOF)
    message = "nothing was removed" if is_kept else "removed monads: 3 responses and 5 items"
    assert (wait_for_end(child), message in str(child.before)) == (exit_code, True)
    assert ("monads" in run_in_terminal("sessions", env={"NO_COLOR": "1"}).split("\n", 1)[1]) == is_kept


HELP_PAGES = [["--help"], ["chat", "--help"], ["config", "--help"], ["templates", "--help"]]


@pytest.mark.parametrize("argv", HELP_PAGES, ids=" ".join)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_help_fits_the_terminal_and_has_the_text_of_the_help_on_a_pipe(
    argv: list[str], columns: int, convo: Convo
) -> None:
    output = run_in_terminal(*argv, env={"NO_COLOR": "1"}, columns=columns)
    assert max(map(len, output.partition("Examples:\n")[0].splitlines())) <= min(columns, 100)
    assert output.split() == convo(*argv).out.split()


def test_each_command_stands_in_one_group_of_the_help_and_each_group_has_an_example() -> None:
    lines = run_in_terminal("--help", env={"NO_COLOR": "1"}, columns=120).splitlines()
    examples = {line.split()[line.split().index("convo") + 1] for line in lines if re.match("  .*convo [a-z]+ ", line)}
    shown: list[str] = []
    for group in get_args(CommandGroup):
        start = lines.index(f"{group}:") + 1
        names = [line.split()[0] for line in lines[start : lines.index("", start)]]
        assert lines[start : start + len(names)] == [
            f"  {name:<{max(map(len, names))}}  {COMMANDS[name].summary}" for name in names
        ]
        assert examples & {*names}, group
        shown += names
    assert shown == [*COMMANDS]


def test_the_help_has_bold_headings_and_names_in_the_color_of_the_theme() -> None:
    output = run_in_terminal("--help")
    for part in (
        "\x1b[1mUsage:\x1b[0m convo [OPTIONS]",
        "\x1b[1mTalk\x1b[0m:\n  \x1b[36mchat\x1b[0m   ",
        "\x1b[1mOptions\x1b[0m:\n  \x1b[36m--config\x1b[0m FILE   ",
        "  \x1b[36m-h\x1b[0m, \x1b[36m--help\x1b[0m   ",
        "\x1b[1mExamples:\x1b[0m\n  \x1b[36mconvo chat\x1b[0m   ",
        "\x1b[1mExit codes\x1b[0m:\n  0 done, ",
    ):
        assert part in output
    assert COLOR_CODE.sub("", output) == run_in_terminal("--help", env={"NO_COLOR": "1"})
    assert COLOR_CODE.sub("", output) == run_in_terminal("--help", env={"TERM": "dumb"})
    assert "\x1b[38;5;63mchat\x1b[0m" in run_in_terminal("--help", env={"TERM": "xterm-256color"})


def test_the_help_on_a_pipe_has_eighty_columns_and_no_styles(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [convo(*argv).out for argv in HELP_PAGES]
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert [convo(*argv).out for argv in HELP_PAGES] == pages
    assert not any("\x1b" in page for page in pages)
    assert max(map(len, pages[0].partition("Examples:")[0].splitlines())) <= 78
    assert "  --man               Print the man page" in pages[0]
    assert "  chat       Chat with a model. Choose where the conversation state lives.\n" in pages[0]
    assert "even if it does\n        not exist.\n" in pages[3]


def test_findings_are_wrapped_between_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = {"type": "function_call", "call_id": "call_abcdefghijklmnopqrst", "name": "weather", "arguments": '{"city'}
    Path("a-long-name-of-a-broken-file.json").write_text(json.dumps([{"role": "user", "content": "hi"}, call]))
    lines = run_in_terminal("lint", "a-long-name-of-a-broken-file.json").splitlines()
    assert [line for line in lines if text_width(COLOR_CODE.sub("", line)) > 80] == []
    assert " ".join(" ".join(lines).split()).count("function call call_abcdefghijklmnopqrst has no output") == 1


def test_the_examples_of_a_compaction_are_wrapped() -> None:
    lines = run_in_terminal("compact", "--help").splitlines()
    assert [line for line in lines if text_width(COLOR_CODE.sub("", line)) > 80] == []

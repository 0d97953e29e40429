"""The command line itself: finding a command, its help, the options before its name, and its imports."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

import pytest

from convo import __version__
from convo.cli.app import COMMANDS, make_root_group, run_command_line
from convo.cli.completion_scripts import COMPLETION_SCRIPTS
from tests.cli.chat_commands import scripted_flags
from tests.cli.sample import SAMPLES
from tests.cli.test_manual import MAN_PAGE
from tests.command_runner import Convo, Launch

HEAVY = {
    *("openai", "httpx2", "pydantic", "pydantic_core", "prompt_toolkit", "rich", "xllamacpp"),
    *("starlette", "uvicorn", "tenacity", "hypothesis"),
}

LIGHT = [
    ["--version"],
    ["--help"],
    ["nonsense"],
    ["--completion", "bash"],
    *([name, "--help"] for name in COMMANDS),
    *(["sessions", "list"] for name in COMMANDS if name == "sessions"),
]
"""Command lines that every user runs often, so they must start fast."""


def imported_modules(*argv: str) -> set[str]:
    """Run one command line in a separate process; return the names of all modules that it imported."""
    return modules_of_all([argv])


def modules_of_all(command_lines: Iterable[Sequence[str]], env: str = "") -> set[str]:
    """Run command lines one after the other in a process of their own; return all modules that they imported."""
    code = (
        "import os, runpy, sys\n"
        f"os.environ.update({{'_CONVO_COMPLETE': {env!r}}} if {env!r} else {{}})\n"
        f"for argv in {[list(argv) for argv in command_lines]!r}:\n"
        "    sys.argv = ['convo', *argv]\n"
        "    try: runpy.run_module('convo', run_name='__main__')\n"
        "    except SystemExit: pass\n"
        "sys.stderr.write('\\nMODULES ' + ' '.join(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=True)
    return set(done.stderr.rpartition("MODULES ")[2].split())


def test_version_prints_one_line_on_stdout(launch: Launch) -> None:
    got = launch("--version")
    assert (got.exit, got.out, got.err) == (0, f"convo {__version__}\n", "")


def test_version_is_accepted_after_other_options_too(convo: Convo, tmp_path: Path) -> None:
    assert convo("--config", str(tmp_path / "c.toml"), "--version").out == f"convo {__version__}\n"


def test_version_imports_only_the_package_and_its_main_module() -> None:
    assert {name for name in imported_modules("--version") if name.startswith(("convo", "typer"))} == {"convo"}


def test_light_command_lines_import_no_large_packages() -> None:
    assert not modules_of_all(LIGHT) & HEAVY


@pytest.mark.parametrize(
    ("argv", "needed", "unneeded"),
    [
        ("sessions list", "convo.chat.lookup", "asyncio convo.compaction convo.usage convo.chat.session"),
        ("inspect @last", "convo.inspect.view", "asyncio convo.runstate convo.chat.turn convo.endpoints"),
        ("chat -c hi", "convo.chat.turn", "convo.transfer.compact convo.lint convo.cli.repl convo.runstate"),
    ],
)
def test_a_stored_conversation_needs_only_the_modules_of_its_command(
    argv: str, needed: str, unneeded: str, convo: Convo
) -> None:
    model = scripted_flags({"text": "hello"}, {"text": "again"})
    assert convo("chat", *model, "hi").exit == 0
    modules = imported_modules(*argv.split(), *(model if argv.startswith("chat") else ()))
    assert needed in modules
    assert not {name for name in modules if name.startswith(tuple(unneeded.split()))}


def test_completion_imports_no_large_packages() -> None:
    assert not modules_of_all([["=--"], *([name, "=--"] for name in COMMANDS)], env="1") & HEAVY


def test_help_imports_no_command_modules() -> None:
    modules = {name for name in imported_modules("--help") if name.startswith("convo.cli.")}
    assert not any(name.startswith("convo.cli.commands.") for name in modules)
    assert "convo.cli.app" in modules


@pytest.mark.parametrize("name", COMMANDS)
def test_every_summary_in_the_command_table_is_the_first_line_of_that_commands_help(name: str) -> None:
    command = make_root_group().get_command(None, name)
    assert (command.help or "").splitlines()[0] == COMMANDS[name].summary


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, convo: Convo) -> None:
    got = convo(name, "--help")
    assert (got.exit, got.err) == (0, "")
    assert got.out.startswith(f"Usage: convo {name} ")
    assert COMMANDS[name].summary.split()[0] in got.out


def test_help_lists_the_commands_in_the_order_of_the_command_table(convo: Convo) -> None:
    out = convo("--help", table=SAMPLES).out
    positions = [out.index(f"  {name} ") for name in SAMPLES]
    assert positions == sorted(positions)
    assert all(row.summary in out for row in SAMPLES.values())


HELP = """\
Usage: convo greet [OPTIONS] NAME

  Say good day to somebody.

  And mean it, with --warmly.

Arguments:
  NAME  Who is greeted.  [required]

Manner:
  --warmly  Mean it.

Options:
  --tongue <english|german>  In which language.  [default: english]
  --json                     Print JSON.
  -h, --help                 Show this message and exit.

Examples:
  convo greet Ada --warmly                            a line that is copied and therefore not wrapped at eighty

A paragraph is wrapped at eighty columns, and the breaks that its lines have
in the source are not kept.
"""


def test_help_of_a_command_groups_its_options_keeps_its_examples_and_wraps_paragraphs(
    convo: Convo,
) -> None:
    assert convo("greet", "-h", table=SAMPLES).out == HELP


def test_a_command_group_runs_alone_or_with_a_subcommand(convo: Convo) -> None:
    assert convo("box", table=SAMPLES).out == "empty\n"
    assert convo("box", "take", "pear", table=SAMPLES).out == "took pear\n"


def test_a_command_gets_the_settings_file_named_before_it(convo: Convo) -> None:
    assert convo("--config", "my.toml", "greet", "Ada", table=SAMPLES).out == "good day, Ada my.toml\n"


def test_a_command_without_a_settings_file_gets_none(convo: Convo) -> None:
    assert convo("greet", "Ada", table=SAMPLES).out == "good day, Ada\n"


def test_running_one_command_imports_no_other(convo: Convo) -> None:
    modules = {f"tests.cli.sample.{name}" for name in SAMPLES}
    for module in modules:
        sys.modules.pop(module, None)
    convo("greet", "Ada", table=SAMPLES)
    assert modules & sys.modules.keys() == {"tests.cli.sample.greet"}


@pytest.mark.parametrize(
    ("argv", "out"),
    [
        (["--version"], f"convo {__version__}\n"),
        (["--completion", "fish"], COMPLETION_SCRIPTS["fish"]),
        (["--completion", "fish", "--man", "--version"], COMPLETION_SCRIPTS["fish"]),
        (["--man"], MAN_PAGE),
        (["--man", "--version"], MAN_PAGE),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_option_that_prints_ends_the_command_line(argv: list[str], out: str, convo: Convo) -> None:
    got = convo(*argv, "greet", "Ada", table=SAMPLES)
    assert (got.exit, got.out, got.err) == (0, out, "")


def test_the_profile_applies_to_one_command_line(convo: Convo) -> None:
    Path("my.toml").write_text('tenant = "me"\n[profiles.work]\ntenant = "office"\n')
    for flags, tenant in (([], "me"), (["--profile", "work"], "office"), ([], "me")):
        (setting,) = convo("--config", "my.toml", *flags, "config", "list", "tenant", "--json").json()
        assert setting["value"] == tenant


def test_errors_and_output_go_to_the_null_device_if_the_streams_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert run_command_line(["--version"], SAMPLES) == 0
    assert run_command_line(["nonsense"], SAMPLES) == 2
    streams: list[TextIO] = [sys.stdin, sys.stdout, sys.stderr]
    assert [(stream.name, stream.mode) for stream in streams] == [
        (os.devnull, "r"),
        (os.devnull, "w"),
        (os.devnull, "w"),
    ]
    for stream in streams:
        stream.close()

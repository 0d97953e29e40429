"""Exit codes of commands, with one command for each code."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from convo.cli.output import EXIT_CODES
from tests.cli.agent_files import REFUND, agent_flags
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.command_runner import ROOT, Convo

BROKEN = '[{"type": "function_call_output", "call_id": "c1", "output": "x"}]'
REJECTED = {"error": {"code": "odd", "message": "That is not taken", "status": 400}}


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_each_outcome_has_its_exit_code(flags: list[str], convo: Convo) -> None:
    Path("broken.json").write_text(BROKEN)
    commands = {
        "done": ["chat", *ECHO, "hi"],
        "failed or incomplete": ["chat", *scripted_flags(REJECTED), "hi"],
        "usage or settings": ["chat", "--from", "a", "-c", "hi"],
        "paused for approval": ["chat", *agent_flags(), *scripted_flags(REFUND), "pay"],
        "lint findings": ["lint", "./broken.json"],
        "not found": ["inspect", "nope"],
    }
    assert {meaning: convo(*argv, *flags).exit for meaning, argv in commands.items()} == {
        meaning: code for code, meaning in EXIT_CODES.items() if meaning != "interrupted"
    }


@pytest.mark.needs("posix")
def test_an_interrupted_command_exits_130() -> None:
    slow = scripted_flags({"text": "word " * 100}, delay_s=0.2)
    command = [sys.executable, "-m", "convo", "chat", *slow, "hi"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout
    assert os.read(process.stdout.fileno(), 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert EXIT_CODES[process.returncode] == "interrupted"


def test_the_help_and_the_readme_list_the_same_exit_codes(convo: Convo) -> None:
    exit_codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    assert f"Exit codes: {exit_codes}." in " ".join(convo("--help").out.split())
    assert f"Exit codes: {exit_codes}." in " ".join((ROOT / "README.md").read_text().split())

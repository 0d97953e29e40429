"""Exit codes of commands, with one command for each code."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from convo.cli.output import EXIT_CODES
from tests.cli.agent_files import AGENTS, REFUND, agent_flags
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.command_runner import ROOT, Convo, Launch

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


INTERRUPTED_EXIT = """
import atexit, os, signal
atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""


@pytest.mark.needs("posix")
def test_an_interrupt_while_the_process_exits_prints_no_traceback(launch: Launch) -> None:
    flags = agent_flags(text=AGENTS + INTERRUPTED_EXIT)
    result = launch("chat", *flags, *scripted_flags({"text": "done"}), "-q", "hi")
    assert (result.exit, result.out, result.err) == (-signal.SIGINT, "done\n", "")


INTERRUPTED_AGAIN = """
import os, signal, sys
remaining = int(sys.argv.pop())

def interrupt_again(frame, event, argument):
    global remaining
    is_at_end = event == "call" and os.path.basename(frame.f_code.co_filename) in ("__main__.py", "signal.py")
    remaining -= is_at_end
    if is_at_end and remaining == 0:
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "convo.cli.app":
            sys.setprofile(interrupt_again)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from convo.__main__ import main
code = main()
sys.setprofile(None)
sys.exit(code)
"""


@pytest.mark.needs("posix")
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_second_interrupt_before_the_exit_prints_no_traceback(call: int) -> None:
    """Any of the calls between the first interrupt and the exit is interrupted again."""
    command = [sys.executable, "-c", INTERRUPTED_AGAIN, "sessions", str(call)]
    result = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (result.returncode in (130, -signal.SIGINT), result.stderr) == (True, "")


INTERRUPTED_IMPORT = """
import signal, sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "convo.cli.app":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from convo.__main__ import main
sys.exit(main())
"""


@pytest.mark.needs("posix")
def test_an_interrupt_before_the_command_is_imported_exits_130() -> None:
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, "doctor"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_the_help_and_the_readme_list_the_same_exit_codes(convo: Convo) -> None:
    exit_codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    assert f"Exit codes: {exit_codes}." in " ".join(convo("--help").out.split())
    assert f"Exit codes: {exit_codes}." in " ".join((ROOT / "README.md").read_text().split())

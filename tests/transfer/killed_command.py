"""Processes that run a command and are killed with SIGKILL before one of its effects.

python -m tests.transfer.killed_command FOLDER ARGV...

An effect is a write to the store or the replacement of a file. Each process has its own copy of FOLDER/begin,
named by the number of the effect, with CONVO_HOME in its "home". The last process is not killed. The program
prints the number of killed processes.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from convo.cli.app import run_command_line
from convo.stores.sqlite.connection import SqliteDatabase


def count_effects(step: int) -> Callable[[Any], Any]:
    """Return a decorator that counts the calls of its functions and kills the process before call `at`, from 0."""
    remaining = count(step, -1)

    def effect(function: Any) -> Any:
        def performed(*args: Any, **named: Any) -> Any:
            if next(remaining) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **named)

        return performed

    return effect


def run_and_kill(folder: Path, argv: Sequence[str], step: int) -> bool:
    """Run `argv` in a child process that is killed before effect `at`. Returns whether there was such an effect."""
    step_folder = folder / str(step)
    shutil.copytree(folder / "begin", step_folder)
    child = os.fork()
    if not child:
        effect: Any = count_effects(step)
        os.replace = effect(os.replace)
        setattr(SqliteDatabase, "write", effect(SqliteDatabase.write))  # noqa: B010  mypy refuses the assignment to a method
        os.chdir(step_folder)
        os.environ["CONVO_HOME"] = str(step_folder / "home")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        os._exit(run_command_line(argv))
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"{' '.join(argv)} ended with {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status)


if __name__ == "__main__":
    _, where, *words = sys.argv
    deaths = next(at for at in count() if not run_and_kill(Path(where), words, at))
    print(json.dumps(deaths))

"""A process that carries out a command and dies before one of its effects, by a kill that nothing can catch.

python -m tests.transfer.killed_command FOLDER ARGV...

An effect is a write into the store, and a file that takes its place. Each process has a copy of FOLDER/begin
to itself, called by the number of the effect, with CONVO_HOME in its "home"; the last one does not die.
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


def count_effects(at: int) -> Callable[[Any], Any]:
    """What makes a function an effect, before the `at`th of which the process dies."""
    left = count(at, -1)

    def effect(function: Any) -> Any:
        def performed(*args: Any, **named: Any) -> Any:
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **named)

        return performed

    return effect


def run_and_kill(folder: Path, argv: Sequence[str], at: int) -> bool:
    """Let a process carry out `argv`, and die before effect `at`; whether there was such an effect."""
    place = folder / str(at)
    shutil.copytree(folder / "begin", place)
    child = os.fork()
    if not child:
        effect: Any = count_effects(at)
        os.replace = effect(os.replace)
        setattr(SqliteDatabase, "write", effect(SqliteDatabase.write))  # noqa: B010  a method is nothing that may be assigned
        os.chdir(place)
        os.environ["CONVO_HOME"] = str(place / "home")
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

"""Ends what a test run started when the run has ended, however it ended.

    python -m tests.keeping PID FOLDER COMMANDS

It waits for the process PID to be gone, or to be told so by SIGTERM; then it carries out COMMANDS, a
JSON list of argument lists, and takes the folder away. A worker that is killed leaves nothing behind.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

POLL_S = 0.5


def keep(folder: Path, commands: Sequence[Sequence[str]], pid: int) -> None:
    """Have `commands` carried out and `folder` taken away when process `pid` has ended."""
    argv = [sys.executable, "-m", "tests.keeping", str(pid), str(folder), json.dumps(commands)]
    root = Path(__file__).parents[1]
    quiet = subprocess.DEVNULL
    subprocess.run(argv, cwd=root, stdin=quiet, stdout=quiet, stderr=quiet, check=True)


def wait_for(pid: int) -> None:
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except AttributeError:  # not Linux
        while _is_there(pid):
            time.sleep(POLL_S)
        return
    select.select([watched], [], [])


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def stopped(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(pid: str, folder: str, commands: str) -> None:
    if os.fork():
        return  # whoever started this need not wait for it
    os.setsid()
    signal.signal(signal.SIGTERM, stopped)
    try:
        wait_for(int(pid))
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for command in json.loads(commands):
        subprocess.run(command, check=False)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

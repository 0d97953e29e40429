"""A process that cleans up after a test run, even if the run is killed.

    python -m tests.cleanup_process PID FOLDER COMMANDS

It waits until the process PID has ended or until SIGTERM; then it runs COMMANDS, a JSON list of argument
lists, and removes the folder. The servers and files of a killed worker are removed too.
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


def clean_up_after(folder: Path, commands: Sequence[Sequence[str]], pid: int) -> None:
    """Run `commands` and remove `folder` when process `pid` has ended."""
    argv = [sys.executable, "-m", "tests.cleanup_process", str(pid), str(folder), json.dumps(commands)]
    root = Path(__file__).parents[1]
    devnull = subprocess.DEVNULL
    subprocess.run(argv, cwd=root, stdin=devnull, stdout=devnull, stderr=devnull, check=True)


def wait_for_exit(pid: int) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except AttributeError:  # not Linux
        while _is_alive(pid):
            time.sleep(POLL_S)
        return
    select.select([pidfd], [], [])


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def raise_keyboard_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(pid: str, folder: str, commands: str) -> None:
    if os.fork():
        return  # the process that started this does not wait for it
    os.setsid()
    signal.signal(signal.SIGTERM, raise_keyboard_interrupt)
    try:
        wait_for_exit(int(pid))
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for command in json.loads(commands):
        subprocess.run(command, check=False)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

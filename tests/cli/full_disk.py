"""A disk that is nearly full: a small file system of its own where the machine allows it, else a limit on files.

The file system lives in a name space of its own and is gone with the process that holds it, so
nothing is left mounted. Commands are run inside, files are looked at through `/proc`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from resource import RLIMIT_FSIZE, setrlimit
from typing import Protocol

from tests.command_runner import CommandResult

SIZE = "24m"
"""More than must be left before a model is asked."""
HOLD = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && read -r _'
FILL = 'head -c 100000000 /dev/zero >"$1/filler" 2>/dev/null; truncate -s "-$2" "$1/filler"'
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


class Disk(Protocol):
    """A folder that can be filled up; `visible_path` is where this process sees it."""

    visible_path: Path

    def launch(self, *argv: str) -> CommandResult: ...

    def fill(self, leave: int = 0) -> None: ...

    def free(self) -> None: ...


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """The disk that this machine allows, at `folder`."""
    folder.mkdir()
    if not can_mount():
        yield LimitedDisk(folder)
        return
    with subprocess.Popen(
        [*UNSHARE, "sh", "-c", HOLD, "sh", SIZE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "mounted\n"
        yield MountedDisk(folder, holder.pid)
        holder.communicate("done\n")


@cache
def can_mount() -> bool:
    """Whether this user may mount something where only its own processes see it."""
    try:
        tried = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    except OSError:
        return False
    return tried.returncode == 0


class MountedDisk:
    """A small file system that the process `holder` holds."""

    def __init__(self, folder: Path, holder: int) -> None:
        self.visible_path = Path(f"/proc/{holder}/root{folder}")
        self._folder = folder
        self._enter = ["nsenter", "--target", str(holder), "--user", "--mount", "--preserve-credentials"]

    def launch(self, *argv: str) -> CommandResult:
        return run_command([*self._enter, "--wd=" + os.getcwd(), sys.executable, "-m", "convo", *argv])

    def fill(self, leave: int = 0) -> None:
        """Leave so many bytes of the disk."""
        subprocess.run([*self._enter, "sh", "-c", FILL, "sh", str(self._folder), str(leave)], check=True)

    def free(self) -> None:
        (self.visible_path / "filler").unlink()


class LimitedDisk:
    """A folder like any other, and a limit on the size of files for what runs while it is full."""

    def __init__(self, folder: Path) -> None:
        self.visible_path, self._full = folder, False

    def launch(self, *argv: str) -> CommandResult:
        return run_with_file_limit(*argv) if self._full else run_command([sys.executable, "-m", "convo", *argv])

    def fill(self, leave: int = 0) -> None:
        self._full = True

    def free(self) -> None:
        self._full = False


def run_with_file_limit(*argv: str, size: int = 300) -> CommandResult:
    """The real command, which may write no file beyond `size` bytes."""
    return run_command([sys.executable, "-m", "convo", *argv], lambda: setrlimit(RLIMIT_FSIZE, (size, size)))


def run_command(command: list[str], before: Callable[[], None] | None = None) -> CommandResult:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", preexec_fn=before, check=False
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)

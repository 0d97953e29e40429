"""A full disk for tests: a small file system where the machine allows a mount, else a limit on the file size.

The file system is mounted in a separate mount namespace. The kernel unmounts it when the process that
created the namespace ends. Commands run inside the namespace; the test reads its files through `/proc`.
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
"""Larger than the free space that convo requires before a model request."""
MOUNT_SCRIPT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && read -r _'
FILL_SCRIPT = 'head -c 100000000 /dev/zero >"$1/filler" 2>/dev/null; truncate -s "-$2" "$1/filler"'
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


class Disk(Protocol):
    """A folder on a disk that the test can fill; `visible_path` is its path in the test process."""

    visible_path: Path

    def launch(self, *argv: str) -> CommandResult: ...

    def fill(self, free_bytes: int = 0) -> None: ...

    def free(self) -> None: ...


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """Create a disk at `folder`: a mounted one if this machine allows it, else a limited one."""
    folder.mkdir()
    if not can_mount():
        yield LimitedDisk(folder)
        return
    with subprocess.Popen(
        [*UNSHARE, "sh", "-c", MOUNT_SCRIPT, "sh", SIZE, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "mounted\n"
        yield MountedDisk(folder, holder.pid)
        holder.communicate("done\n")


@cache
def can_mount() -> bool:
    """Return whether this user may mount a file system in a separate mount namespace."""
    try:
        result = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    except OSError:
        return False
    return result.returncode == 0


class MountedDisk:
    """A small file system in the mount namespace of the process `holder`."""

    def __init__(self, folder: Path, holder: int) -> None:
        self.visible_path = Path(f"/proc/{holder}/root{folder}")
        self._folder = folder
        self._enter = ["nsenter", "--target", str(holder), "--user", "--mount", "--preserve-credentials"]

    def launch(self, *argv: str) -> CommandResult:
        return run_command([*self._enter, "--wd=" + os.getcwd(), sys.executable, "-m", "convo", *argv])

    def fill(self, free_bytes: int = 0) -> None:
        """Fill the disk except for `free_bytes` bytes."""
        subprocess.run([*self._enter, "sh", "-c", FILL_SCRIPT, "sh", str(self._folder), str(free_bytes)], check=True)

    def free(self) -> None:
        (self.visible_path / "filler").unlink()


class LimitedDisk:
    """A normal folder; while it counts as full, commands run with a limit on the file size."""

    def __init__(self, folder: Path) -> None:
        self.visible_path, self._full = folder, False

    def launch(self, *argv: str) -> CommandResult:
        return run_with_file_limit(*argv) if self._full else run_command([sys.executable, "-m", "convo", *argv])

    def fill(self, free_bytes: int = 0) -> None:
        self._full = True

    def free(self) -> None:
        self._full = False


def run_with_file_limit(*argv: str, size: int = 300) -> CommandResult:
    """Run the real command with a limit of `size` bytes on every file that it writes."""
    return run_command([sys.executable, "-m", "convo", *argv], lambda: setrlimit(RLIMIT_FSIZE, (size, size)))


def run_command(command: list[str], before: Callable[[], None] | None = None) -> CommandResult:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", preexec_fn=before, check=False
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)

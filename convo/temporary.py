"""Temporary files and folders whose names say which process made them.

A killed process leaves its own behind. The next one that makes a file or a folder in the same place removes
those of processes that have ended: of this machine at once, of another one after a day.

    .convo-1f0c9a7e-4711-882193-k3vd0q1z      prefix, process tag, a random part
"""

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from convo.processes import is_tag_here, is_tag_of_dead, process_tag

FILE_PREFIX = ".convo-"
FOREIGN_AGE_S = 86_400.0
"""Age after which the leftovers of another machine, in a folder that both see, are removed."""

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
NAME = re.compile(r"(?P<tag>[0-9a-f]{8}-\d+-\d*)-[0-9a-f]{8}")


def open_temporary(folder: Path) -> tuple[int, Path]:
    """Make a private file in `folder`; returns its descriptor, open for writing, and its path. raises: OSError"""
    _remove_leftovers(folder, FILE_PREFIX)
    place = folder / _new_name(FILE_PREFIX)
    return os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), PRIVATE_FILE), place


def make_folder(prefix: str, parent: str | None = None) -> str:
    """Make a private folder in `parent`, by default where temporary files belong. raises: OSError"""
    if parent is None:
        import tempfile  # for the few who need its search

        parent = tempfile.gettempdir()
    _remove_leftovers(Path(parent), prefix)
    place = os.path.join(parent, _new_name(prefix))
    os.mkdir(place, PRIVATE_FOLDER)
    return place


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A private folder that is removed when the block ends. raises: OSError"""
    place = make_folder(prefix)
    try:
        yield Path(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _new_name(prefix: str) -> str:
    return f"{prefix}{process_tag()}-{os.urandom(4).hex()}"


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove what dead processes left under `prefix`; what cannot be removed stays."""
    with suppress(OSError), os.scandir(folder) as entries:
        left = [entry for entry in entries if entry.name.startswith(prefix) and _is_left(entry, prefix)]
        for entry in left:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with suppress(OSError):
                    os.unlink(entry.path)


def _is_left(entry: "os.DirEntry[str]", prefix: str) -> bool:
    match = NAME.fullmatch(entry.name.removeprefix(prefix))
    if not match:
        return False
    if is_tag_here(match["tag"]):
        return is_tag_of_dead(match["tag"])
    with suppress(OSError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > FOREIGN_AGE_S
    return False

"""A database file that comes into being whole, or not at all.

It is written under a name that is removed as soon as it is open, so that a killed process leaves
nothing behind. Its bytes then go into a file without a name, are on the disk, and get the name in one
step, which fails where something has that name. Where the system has no files without a name (macOS),
the copy has a temporary one, and a process that is killed while it copies leaves that.
"""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from convo.config.places import PRIVATE_FILE
from convo.errors import StoreUnavailable, Usage
from convo.stores.sqlite.faults import translated
from convo.temporary import open_temporary

CHUNK = 16 * 2**20
"""Bytes that are copied at a time."""

NO_NAMELESS_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


@contextmanager
def new_database(target: Path) -> Iterator[sqlite3.Connection]:
    """A connection to an empty database that becomes `target` when the block ends without an error.

    raises:  Usage       something has this name already: nothing is ever overwritten
             StoreFault  the folder cannot be written, or has no room; there is no `target` then
    """
    if os.path.lexists(target):
        raise _taken(target)
    with translated(target):
        db, written = _opened(target)
        try:
            with closing(db):
                yield db
            _put(written, target)
        finally:
            os.close(written)


def _taken(target: Path) -> Usage:
    return Usage(f"{target} exists, and no file is overwritten", hint="name a file that does not exist yet")


def _opened(target: Path) -> tuple[sqlite3.Connection, int]:
    """A connection to a file whose name is gone, and the file itself, which the caller closes."""
    folder = target.absolute().parent
    try:
        written, name = open_temporary(folder)
    except (FileNotFoundError, NotADirectoryError) as wrong:
        hint = "name a file in a folder that exists"
        raise StoreUnavailable(f"{target} cannot be opened: {wrong.strerror}", hint=hint) from wrong
    try:
        db = sqlite3.connect(name.as_uri(), uri=True, isolation_level=None)
        # no journal: what goes wrong ends with this file, and a journal would be a second name
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "temp_store = MEMORY", "user_version"):
            db.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        os.close(written)
        raise
    finally:
        os.unlink(name)
    return db, written


def _put(written: int, target: Path) -> None:
    """Give the bytes of an open file the name `target`, durably. raises: Usage, OSError"""
    folder = target.absolute().parent
    try:
        copy, name = os.open(folder, os.O_TMPFILE | os.O_RDWR, PRIVATE_FILE), None
    except (AttributeError, OSError) as wrong:
        if isinstance(wrong, OSError) and wrong.errno not in NO_NAMELESS_FILES:
            raise
        copy, name = open_temporary(folder)
    try:
        _copy(written, copy)
        os.fsync(copy)
        if name:
            os.link(name, target)
        else:
            _name(copy, target)
    except FileExistsError:
        raise _taken(target) from None
    finally:
        os.close(copy)
        if name:
            with suppress(OSError):
                os.unlink(name)
    sync_folder(folder)


def _name(nameless: int, target: Path) -> None:
    """Give an open file without a name the name `target`. raises: FileExistsError"""
    opened = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        os.link(str(nameless), target, src_dir_fd=opened, follow_symlinks=True)
    finally:
        os.close(opened)


def _copy(source: int, target: int) -> None:
    size, done = os.fstat(source).st_size, 0
    if hasattr(os, "copy_file_range"):
        with suppress(OSError):  # not between these file systems: the bytes go through memory
            while done < size:
                done += os.copy_file_range(source, target, size - done, done, done)
            return
    os.lseek(source, 0, os.SEEK_SET)
    os.ftruncate(target, 0)
    with open(source, "rb", closefd=False) as reader, open(target, "wb", closefd=False) as writer:
        shutil.copyfileobj(reader, writer, CHUNK)


def sync_folder(folder: Path) -> None:
    """Make a new name in this folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

"""Copy a database into a new file while other processes write to it.

The copy is built in an unnamed file, synced, checked and then linked to its name. An existing file is never
overwritten, and a killed process leaves no file behind (on macOS a temporary one).
"""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from convo.errors import InvalidUsage, NotFound, StoreUnavailable
from convo.runtime import PRIVATE_FILE_MODE, ReportProgress, open_temporary_file
from convo.stores.sqlite import connection
from convo.stores.sqlite.check import quick_check
from convo.stores.sqlite.connection import damaged_file_error, translate_errors

PAGES_PER_STEP = 1000
"""Pages copied between two reports of progress."""

NO_LIMIT_S = 10**9


def backup_database(file: Path, target: Path, progress: ReportProgress) -> int:
    """Copy one snapshot of a database into a new file, check the copy, and return its size in bytes.

    Raises NotFound if there is no database, InvalidUsage if `target` exists, StoreFault if the database is damaged
    or `target` cannot be written; no new file is left then.
    """
    if not file.exists():
        raise NotFound("database", str(file), hint='convo chat "hello" creates one')
    with translate_errors(file), closing(_open_source(file)) as source:
        connection.check_schema_version(source, file)
        # The read transaction keeps one snapshot: without it the copy would restart after every write.
        source.execute("BEGIN")
        source.execute("SELECT 1 FROM sqlite_schema").fetchone()
        with new_database(target) as copy:
            source.backup(
                copy,
                pages=PAGES_PER_STEP,
                progress=lambda _, remaining, pages: progress("pages", pages - remaining, pages),
                sleep=0,
            )
    with translate_errors(target):
        check_result = quick_check(target, NO_LIMIT_S)
    if check_result != "ok":
        os.unlink(target)
        raise damaged_file_error(f"{file} is damaged: {check_result}", file)
    return target.stat().st_size


def _open_source(file: Path) -> sqlite3.Connection:
    uri = file.absolute().as_uri()
    if not os.access(file.parent, os.W_OK) and not Path(f"{file}-wal").exists():
        return sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
    return sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=5.0, isolation_level=None)


COPY_CHUNK_BYTES = 16 * 2**20
"""Bytes copied at a time."""

NO_TMPFILE_ERRNOS = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


@contextmanager
def new_database(target: Path) -> Iterator[sqlite3.Connection]:
    """Open an empty database that becomes `target` when the block ends without an error.

    Raises InvalidUsage if `target` exists, because no file is ever overwritten; StoreFault if the folder cannot be
    written or has no space. No new file is left then.
    """
    if os.path.lexists(target):
        raise _target_exists_error(target)
    with translate_errors(target):
        db, descriptor = open_unlinked_database(target)
        try:
            with closing(db):
                yield db
            _publish_file(descriptor, target)
        finally:
            os.close(descriptor)


def _target_exists_error(target: Path) -> InvalidUsage:
    return InvalidUsage(f"{target} already exists and is not overwritten", hint="name a file that does not exist")


def open_unlinked_database(target: Path) -> tuple[sqlite3.Connection, int]:
    """Return a connection to an unlinked file, and its descriptor, which the caller closes."""
    folder = target.absolute().parent
    try:
        descriptor, name = open_temporary_file(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "name a file in a folder that exists"
        raise StoreUnavailable(f"{target} cannot be opened: {error.strerror}", hint=hint) from error
    try:
        try:
            # SQLite opens a file by name only: a kill between the two statements leaves the name.
            db = sqlite3.connect(name, isolation_level=None)
        finally:
            os.unlink(name)
        # no journal: a failed copy is discarded, and a journal would need a named file
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "temp_store = MEMORY", "user_version"):
            db.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        os.close(descriptor)
        raise
    return db, descriptor


def _publish_file(descriptor: int, target: Path) -> None:
    """Give the bytes of an open file the name `target`, durably. Raises InvalidUsage and OSError."""
    folder = target.absolute().parent
    try:
        # A file without a name: nothing is left of it after a kill.
        copy, name = os.open(folder, os.O_TMPFILE | os.O_RDWR, PRIVATE_FILE_MODE), None
    except (AttributeError, OSError) as error:
        # AttributeError: macOS has no O_TMPFILE. The numbers are those of file systems that lack it.
        if isinstance(error, OSError) and error.errno not in NO_TMPFILE_ERRNOS:
            raise
        copy, name = open_temporary_file(folder)
    try:
        copy_file_bytes(descriptor, copy)
        os.fsync(copy)
        if name:
            # link fails if the target exists; rename would replace it.
            os.link(name, target)
        else:
            _link_unnamed_file(copy, target)
    except FileExistsError:
        raise _target_exists_error(target) from None
    finally:
        os.close(copy)
        if name:
            with suppress(OSError):
                os.unlink(name)
    _sync_folder(folder)


def _link_unnamed_file(descriptor: int, target: Path) -> None:
    """Give an open file without a name the name `target`. Raises FileExistsError."""
    fd_folder = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        # linkat follows the symbolic link in /proc to the open file; with AT_EMPTY_PATH it would need a privilege.
        os.link(str(descriptor), target, src_dir_fd=fd_folder, follow_symlinks=True)
    finally:
        os.close(fd_folder)


def copy_file_bytes(source: int, target: int) -> None:
    size, done = os.fstat(source).st_size, 0
    if hasattr(os, "copy_file_range"):
        with suppress(OSError):  # unsupported between these file systems: copied below
            while done < size:
                done += os.copy_file_range(source, target, size - done, done, done)
            return
    with open(source, "rb", closefd=False) as reader, open(target, "wb", closefd=False) as writer:
        shutil.copyfileobj(reader, writer, COPY_CHUNK_BYTES)


def _sync_folder(folder: Path) -> None:
    """Make a new name in this folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

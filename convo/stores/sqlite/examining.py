"""What a file and its disk are like. Nothing of it is changed: a schema that is behind stays so."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from convo.config.places import check_writable
from convo.errors import StoreReadOnly, StoreUnavailable
from convo.stores.condition import FileCondition
from convo.stores.sqlite import schema
from convo.stores.sqlite.checking import quick_check
from convo.stores.sqlite.faults import translated

WAIT_S = 2.0
"""How long another process may be writing."""

QUICK_S = 5.0
"""How long the quick check of the file may take; a larger file is left to `convo store check`."""

MOUNTS = Path("/proc/self/mountinfo")


def examine(file: Path) -> FileCondition:
    """raises: StoreFault  it cannot be opened, read or written, or is not ours"""
    with translated(file):
        if file.exists() and not file.is_file():
            raise StoreUnavailable(f"{file} is a {'folder' if file.is_dir() else 'device'}, not a database")
        there = check_writable(file.parent)
        if file.exists() and not os.access(file, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise StoreReadOnly(f"{file} may be read and not written")
        found = _schema(file) if file.exists() and file.stat().st_size else None
        quick = "ok" if found is None else quick_check(file, QUICK_S)
        free_bytes = shutil.disk_usage(there).free
    return FileCondition(file, found, schema.SCHEMA, free_bytes, filesystem(there.resolve(), _mounts()), quick)


def filesystem(folder: Path, mounts: str) -> str:
    """The kind of file system that holds `folder`.

    mounts:  as /proc/self/mountinfo has it; of several at one place the last one counts
    """
    found, longest = "", -1
    for line in mounts.splitlines():
        before, _, behind = line.partition(" - ")
        place = before.split(" ")[4].encode().decode("unicode_escape")
        if folder.is_relative_to(place) and len(place) >= longest:
            found, longest = behind.split(" ")[0], len(place)
    return found


def _schema(file: Path) -> int:
    """The number of the last migration, of a file that can be written now."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=WAIT_S)) as db:
        db.isolation_level = None
        schema.check(db, file)
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        return schema.applied(db)


def _mounts() -> str:
    """What is mounted where; empty on a system that does not say so."""
    try:
        return MOUNTS.read_text("utf-8", errors="surrogateescape")
    except OSError:
        return ""

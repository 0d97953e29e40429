"""Copies a database into one file while others write to it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from convo.errors import NotFound
from convo.stores.sqlite import schema
from convo.stores.sqlite.checking import quick_check
from convo.stores.sqlite.faults import damaged, translated
from convo.stores.sqlite.new_file import new_database
from convo.stores.upkeep import Progress

PAGES = 1000
"""Pages of one step."""

FOREVER_S = 10**9


def backup(file: Path, target: Path, progress: Progress) -> int:
    """Copy one state of a database into a new file, which is then checked; returns its size in bytes.

    raises:  NotFound    there is no database
             Usage       `target` exists
             StoreFault  the database is damaged, or `target` cannot be written; there is no `target` then
    """
    if not file.exists():
        raise NotFound("database", str(file), hint='convo chat "hello" makes one')
    with translated(file), closing(_source(file)) as source:
        schema.check(source, file)
        # A read transaction keeps this state of the file: without one the copy begins anew with every write.
        source.execute("BEGIN")
        source.execute("SELECT 1 FROM sqlite_schema").fetchone()
        with new_database(target) as copy:
            source.backup(
                copy, pages=PAGES, progress=lambda _, left, pages: progress("pages", pages - left, pages), sleep=0
            )
    with translated(target):
        found = quick_check(target, FOREVER_S)
    if found != "ok":
        os.unlink(target)
        raise damaged(f"{file} is damaged: {found}", file)
    return target.stat().st_size


def _source(file: Path) -> sqlite3.Connection:
    place = file.absolute().as_uri()
    if not os.access(file.parent, os.W_OK) and not Path(f"{file}-wal").exists():
        return sqlite3.connect(f"{place}?mode=ro&immutable=1", uri=True, isolation_level=None)
    return sqlite3.connect(f"{place}?mode=rw", uri=True, timeout=5.0, isolation_level=None)

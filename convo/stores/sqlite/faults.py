"""What SQLite and the file system say when they cannot, in our words.

The primary result code says what to do about it, so a sentence belongs to each; a full disk shows
under several codes, and they all mean the same here.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EFBIG, ENOSPC, EPERM, EROFS
from json import JSONDecodeError
from pathlib import Path
from shlex import quote

from convo.errors import StoreFault, StoreFull, StoreReadOnly, StoreUnavailable

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
NO_ROOM = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_FSYNC})

DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

NOT_TEXT = "Could not decode to UTF-8"
"""The beginning of Python's message for text in a row that is not UTF-8; it has no code."""

SENTENCES: dict[int, tuple[type[StoreFault], str]] = {
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "{file} is locked: another process has been writing to it for too long"),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "{file} is locked: another process has been writing to it for too long"),
    sqlite3.SQLITE_READONLY: (StoreReadOnly, "{file} may be read and not written"),
    sqlite3.SQLITE_PERM: (StoreReadOnly, "{file} may not be written"),
    sqlite3.SQLITE_FULL: (StoreFull, "there is no room left for {file}"),
    sqlite3.SQLITE_NOTADB: (StoreUnavailable, "{file} is not a database"),
    sqlite3.SQLITE_CORRUPT: (StoreUnavailable, "{file} is damaged"),
}
"""What a primary result code means; every other one keeps SQLite's own words."""


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Let nothing foreign out. raises: StoreFault"""
    try:
        yield
    except sqlite3.Error as wrong:
        raise fault(wrong, file) from wrong
    except JSONDecodeError as wrong:  # of a stored text: what is written was encoded here
        raise damaged(f"{file} is damaged: a stored text is not JSON", file) from wrong
    except OSError as wrong:
        raise os_fault(wrong, file) from wrong


def code(wrong: sqlite3.Error) -> int:
    """SQLite's extended result code; 0 when the module itself complains."""
    return int(getattr(wrong, "sqlite_errorcode", 0))


def busy(wrong: sqlite3.Error) -> bool:
    return code(wrong) & 0xFF in BUSY


def is_full(wrong: sqlite3.Error | OSError, file: Path) -> bool:
    """Whether it was for want of room that something failed."""
    found = fault(wrong, file) if isinstance(wrong, sqlite3.Error) else os_fault(wrong, file)
    return isinstance(found, StoreFull)


def fault(wrong: sqlite3.Error, file: Path) -> StoreFault:
    primary = code(wrong) & 0xFF
    if code(wrong) in NO_ROOM:
        return StoreFull(f"{file} could not be written: its disk, or a limit set on it, has no room left")
    if primary == sqlite3.SQLITE_CANTOPEN and not os.access(file.parent, os.W_OK):
        return StoreReadOnly(f"{file.parent} may be read and not written")
    if str(wrong).startswith(NOT_TEXT):
        return damaged(f"{file} is damaged: a stored text is not UTF-8", file)
    kind, sentence = SENTENCES.get(primary, (StoreUnavailable, "{file} cannot be used: {wrong}"))
    said = sentence.format(file=file, wrong=wrong)
    return damaged(said, file) if primary in DAMAGED else kind(said)


def damaged(said: str, file: Path) -> StoreUnavailable:
    """The error for a file whose content cannot be used, with the command that saves what can be read."""
    return StoreUnavailable(said, hint=f"convo store recover NEW.db --store {quote(f'sqlite:{file}')}")


def os_fault(wrong: OSError, file: Path) -> StoreFault:
    if wrong.errno in (EACCES, EPERM, EROFS):
        return StoreReadOnly(f"{wrong.filename or file} may not be written")
    if wrong.errno in (ENOSPC, EDQUOT, EFBIG):
        return StoreFull(f"there is no room left for {file}")
    return StoreUnavailable(f"{file} cannot be opened: {wrong.strerror}")

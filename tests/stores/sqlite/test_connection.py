"""Errors of SQLite and of the operating system, the disk space, and the empty store before there is a file."""

import errno
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from convo.errors import StoreFault, StoreFull, StoreReadOnly, StoreUnavailable
from convo.stores.sqlite.connection import (
    SqliteDatabase,
    check_schema_version,
    is_busy,
    is_disk_full,
    translate_errors,
)

CHECK_FOLDER = "check the folder of the store; CONVO_HOME sets it"
FREE_SPACE = "free some space, then retry; confirmed items are kept"
MAKE_WRITABLE = "make its folder writable, or set CONVO_HOME to a writable folder"
RECOVER = "convo store recover NEW.db --store 'sqlite:{file}'"
LOCKED = "{file} is locked: another process has been writing to it for too long"
NO_SPACE_FOR_WRITE = "{file} could not be written: the disk is full, or a size limit is reached"


def sqlite_error(code: int, message: str = "from SQLite") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


ERRORS: list[tuple[Exception, type[StoreFault], str, str]] = [
    (sqlite_error(sqlite3.SQLITE_BUSY), StoreUnavailable, LOCKED, CHECK_FOLDER),
    (sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT), StoreUnavailable, LOCKED, CHECK_FOLDER),
    (sqlite_error(sqlite3.SQLITE_LOCKED), StoreUnavailable, LOCKED, CHECK_FOLDER),
    (sqlite_error(sqlite3.SQLITE_READONLY), StoreReadOnly, "{file} is read-only", MAKE_WRITABLE),
    (sqlite_error(sqlite3.SQLITE_PERM), StoreReadOnly, "{file} cannot be written", MAKE_WRITABLE),
    (sqlite_error(sqlite3.SQLITE_FULL), StoreFull, "no disk space is left for {file}", FREE_SPACE),
    (sqlite_error(sqlite3.SQLITE_IOERR_WRITE), StoreFull, NO_SPACE_FOR_WRITE, FREE_SPACE),
    (sqlite_error(sqlite3.SQLITE_IOERR_SHMSIZE), StoreFull, NO_SPACE_FOR_WRITE, FREE_SPACE),
    (sqlite_error(sqlite3.SQLITE_IOERR_FSYNC), StoreFull, NO_SPACE_FOR_WRITE, FREE_SPACE),
    (sqlite_error(sqlite3.SQLITE_IOERR_READ), StoreUnavailable, "{file} cannot be used: from SQLite", CHECK_FOLDER),
    (sqlite_error(sqlite3.SQLITE_CANTOPEN), StoreUnavailable, "{file} cannot be used: from SQLite", CHECK_FOLDER),
    (sqlite_error(sqlite3.SQLITE_NOTADB), StoreUnavailable, "{file} is not a database", RECOVER),
    (sqlite_error(sqlite3.SQLITE_CORRUPT), StoreUnavailable, "{file} is damaged", RECOVER),
    (sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX), StoreUnavailable, "{file} is damaged", RECOVER),
    (sqlite3.ProgrammingError("no code"), StoreUnavailable, "{file} cannot be used: no code", CHECK_FOLDER),
    (
        sqlite3.OperationalError("Could not decode to UTF-8 column 'body' with text '\\ud8'"),
        StoreUnavailable,
        "{file} is damaged: a stored text is not UTF-8",
        RECOVER,
    ),
    (OSError(errno.EACCES, "no", "other.db"), StoreReadOnly, "other.db cannot be written", MAKE_WRITABLE),
    (OSError(errno.EPERM, "no"), StoreReadOnly, "{file} cannot be written", MAKE_WRITABLE),
    (OSError(errno.EROFS, "no"), StoreReadOnly, "{file} cannot be written", MAKE_WRITABLE),
    (OSError(errno.ENOSPC, "no"), StoreFull, "no disk space is left for {file}", FREE_SPACE),
    (OSError(errno.EDQUOT, "no"), StoreFull, "no disk space is left for {file}", FREE_SPACE),
    (OSError(errno.EFBIG, "no"), StoreFull, "no disk space is left for {file}", FREE_SPACE),
    (
        OSError(errno.EIO, "Input/output error"),
        StoreUnavailable,
        "{file} cannot be opened: Input/output error",
        CHECK_FOLDER,
    ),
]


@pytest.mark.parametrize(("error", "kind", "message", "hint"), ERRORS)
def test_an_error_of_sqlite_or_of_the_system_names_the_file_and_the_next_step(
    error: Exception, kind: type[StoreFault], message: str, hint: str, tmp_path: Path
) -> None:
    file = tmp_path / "a chat.db"
    with pytest.raises(StoreFault) as caught, translate_errors(file):
        raise error

    assert type(caught.value) is kind
    assert caught.value.message == message.format(file=file)
    assert caught.value.hint == hint.format(file=file)
    if isinstance(error, sqlite3.Error | OSError):
        assert is_disk_full(error, file) is (kind is StoreFull)
    if isinstance(error, sqlite3.Error):
        assert is_busy(error) is (message == LOCKED)


def test_a_text_that_is_not_utf8_or_not_json_is_damage(tmp_path: Path) -> None:
    file = tmp_path / "a chat.db"
    with pytest.raises(StoreUnavailable) as caught, translate_errors(file):
        b"\xff".decode()
    assert caught.value.message == f"{file} is damaged: a text in it is not UTF-8"
    assert caught.value.hint == RECOVER.format(file=file)

    with pytest.raises(StoreUnavailable) as caught, translate_errors(file):
        json.loads("{")
    assert caught.value.message == f"{file} is damaged: a stored text is not JSON"
    assert caught.value.hint == RECOVER.format(file=file)


def test_an_old_sqlite_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "chat.db"
    with closing(sqlite3.connect(":memory:")) as db:
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 0))
        check_schema_version(db, file)
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 9))
        monkeypatch.setattr(sqlite3, "sqlite_version", "3.36.9")
        with pytest.raises(StoreUnavailable) as caught:
            check_schema_version(db, file)
    assert caught.value.message == "SQLite 3.36.9 is too old; convo needs 3.37"
    assert caught.value.hint == "use a newer Python"


def test_a_turn_needs_eight_megabytes_on_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The disk is that of the nearest folder that exists."""
    database, asked = SqliteDatabase(tmp_path / "missing" / "chat.db"), []
    free_blocks = 8000

    def statvfs(folder: Path) -> SimpleNamespace:
        if not folder.exists():
            raise FileNotFoundError(folder)
        asked.append(folder)
        return SimpleNamespace(f_bavail=free_blocks, f_bfree=10**9, f_frsize=1000, f_bsize=10**9)

    monkeypatch.setattr(os, "statvfs", statvfs)
    database.check_disk_space()
    free_blocks = 7960
    with pytest.raises(StoreFull) as caught:
        database.check_disk_space()
    assert asked == [tmp_path, tmp_path]
    assert caught.value.message == f"the disk of {database.file} has 8.0 MB left, and a turn may need 8 MB"
    assert caught.value.hint == "free some space and retry; no request was sent"


async def test_the_settings_of_a_file(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "convo.db", inline=True)
    settings = {
        name: await database.write(lambda db, name=name: db.execute(f"PRAGMA {name}").fetchone()[0])  # type: ignore[misc]
        for name in (
            "page_size", "journal_mode", "synchronous", "foreign_keys", "secure_delete", "temp_store", "busy_timeout",
        )
    }  # fmt: skip
    assert settings == {
        "page_size": 4096,
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
        "temp_store": 2,
        "busy_timeout": 5000,
    }
    await database.aclose()

"""How a file comes to be a store of ours, and which version of one it is.

The file says itself: `application_id` marks it as convo's, `user_version` is the number of the
last migration that it went through. A file that is another program's, or a newer convo's, is
left as it is. Migrations are numbered SQL files; all that are missing run in one transaction, and
whoever comes second finds them done.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from convo.errors import StoreTooNew, StoreUnavailable
from convo.stores.sqlite.filling import FILLS

OURS = 0x636F6E76
"""The application id: "conv" in ASCII."""

SCHEMA = 4
"""The number of the last migration."""

SIGNED = (f"PRAGMA application_id = {OURS}", f"PRAGMA user_version = {SCHEMA}")
"""What makes a file say that it is ours."""

PAGE = 4096
"""Bytes of a page, in a file that is made now. A change goes through the log in whole pages, some twenty of them."""

OLDEST = (3, 37, 0)
"""The first SQLite with strict tables."""

MIGRATIONS = Path(__file__).with_name("migrations")


def check(db: sqlite3.Connection, file: Path) -> None:
    """Make sure that `file` is ours or empty; nothing is written.

    raises:  StoreTooNew;  StoreUnavailable  it belongs to another program
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is too old; convo needs 3.37", hint="a newer Python")
    db.execute("BEGIN")  # one state of the file: somebody may be making a store of it at this moment
    try:
        ours, found = _number(db, "application_id"), _number(db, "user_version")
        filled = db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    if ours == OURS and found > SCHEMA:
        raise StoreTooNew(str(file), found, SCHEMA)
    if ours != OURS and (ours or found or filled):
        raise StoreUnavailable(f"{file} is another program's database", hint="set CONVO_HOME to another folder")


def applied(db: sqlite3.Connection) -> int:
    """The number of the last migration that ran; 0 before the first."""
    return _number(db, "user_version")


def schema_sql() -> str:
    """All statements that make an empty file a store of ours."""
    return "\n".join([*map(_script, range(1, SCHEMA + 1)), *(f"{pragma};" for pragma in SIGNED)])


def migrate(db: sqlite3.Connection) -> Sequence[int]:
    """Bring the schema up to `SCHEMA`, all or nothing; the numbers of the migrations that this took."""
    if _number(db, "user_version") == SCHEMA:
        return ()
    db.execute("BEGIN IMMEDIATE")
    try:
        missing = range(_number(db, "user_version") + 1, SCHEMA + 1)
        for number in missing:
            _run(db, number)
        for pragma in SIGNED:
            db.execute(pragma)
        db.execute("COMMIT")
        return missing
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _run(db: sqlite3.Connection, number: int) -> None:
    for statement in _statements(_script(number)):
        db.execute(statement)
    if number in FILLS:
        FILLS[number](db)


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


@cache
def _script(number: int) -> str:
    (file,) = MIGRATIONS.glob(f"{number:04}_*.sql")
    return file.read_text(encoding="utf-8")


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""

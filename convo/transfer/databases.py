"""Conversations in a SQLite database that another program keeps.

It is opened for reading alone, and in a way that leaves no file beside it: without a write-ahead log
nobody is writing, and SQLite is told that nothing changes.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from convo.errors import InputFault
from convo.inspection.document import Document
from convo.transfer import agents_sessions, llm_logs

if TYPE_CHECKING:
    import sqlite3

Row = Mapping[str, Any]


class Database:
    """One open database: which tables it has, and what they hold."""

    def __init__(self, connection: "sqlite3.Connection") -> None:
        self._connection = connection
        self.tables = frozenset(row["name"] for row in self.rows("SELECT name FROM sqlite_schema WHERE type = 'table'"))

    def rows(self, statement: str, *values: object) -> list[Row]:
        return [dict(row) for row in self._connection.execute(statement, values)]


def documents_of(file: Path) -> list[Document]:
    """Every conversation in it, oldest first. raises: InputFault  it is of nobody that is known, or damaged"""
    with _opened(file) as database:
        for tables, read in READERS:
            if tables <= database.tables:
                return _as_written(read, database)
    raise InputFault(
        "it is a database of neither llm nor the Agents SDK",
        hint="its tables are not theirs; convo sessions lists ours",
    )


READERS: Sequence[tuple[frozenset[str], Callable[[Database], list[Document]]]] = (
    (frozenset({"agent_sessions", "agent_messages"}), agents_sessions.documents),
    (frozenset({"conversations", "responses"}), llm_logs.documents),
)


def _as_written(read: Callable[[Database], list[Document]], database: Database) -> list[Document]:
    """What `read` finds, where every value is what its program writes: a column of SQLite may hold anything.

    raises:  InputFault
    """
    try:
        found = read(database)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as wrong:
        raise InputFault("a row of it is not as its program writes it") from wrong
    if not all(isinstance(one.name, str | None) and isinstance(one.instructions, str | None) for one in found):
        raise InputFault("a conversation in it has a name that is no text")
    return found


@contextmanager
def _opened(file: Path) -> Iterator[Database]:
    import sqlite3

    still = "" if os.path.exists(f"{file}-wal") else "&immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro{still}", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            yield Database(connection)
    except sqlite3.Error as wrong:
        raise InputFault(f"it cannot be read: {wrong}") from wrong

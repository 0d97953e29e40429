"""The size of a SQLite database, with and without the search index and the agent runs."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path as File


@dataclass(frozen=True, slots=True)
class FileSize:
    """Bytes of a database: `file` is the whole file, `histories` excludes the search index and the agent runs."""

    file: int
    histories: int


def measure_file(file: File) -> FileSize:
    """Measure a closed database. Deletes its search index and its agent runs to count the pages that they used."""
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        size = file.stat().st_size
        page, pages = (int(db.execute(f"PRAGMA {pragma}").fetchone()[0]) for pragma in ("page_size", "page_count"))
        assert size == page * pages
        db.execute("INSERT INTO words (words) VALUES ('delete-all')")
        for table in ("approval_decisions", "agent_calls", "agent_documents", "agent_runs"):
            db.execute(f"DROP TABLE {table}")
        free = int(db.execute("PRAGMA freelist_count").fetchone()[0])
    return FileSize(size, size - page * free)

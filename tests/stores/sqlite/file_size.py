"""What a file costs: its bytes beside the items that are new in it."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path as File


@dataclass(frozen=True, slots=True)
class FileSize:
    """Bytes of a database: all of the file, and all but the search index and the runs of agents."""

    file: int
    histories: int


def measure_file(file: File) -> FileSize:
    """Measure a closed database. The index and the runs go for it, and the pages that this frees were theirs."""
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        size = file.stat().st_size
        page, pages = (int(db.execute(f"PRAGMA {what}").fetchone()[0]) for what in ("page_size", "page_count"))
        assert size == page * pages
        db.execute("INSERT INTO words (words) VALUES ('delete-all')")
        for table in ("agent_calls", "agent_documents", "agent_runs"):
            db.execute(f"DROP TABLE {table}")
        free = int(db.execute("PRAGMA freelist_count").fetchone()[0])
    return FileSize(size, size - page * free)

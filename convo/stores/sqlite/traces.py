"""What a removal leaves in the file, and how it goes.

A row that is deleted is zeroed where it stood. But SQLite moves rows between pages to keep them
full, and leaves the bytes where they stood before; and the search index only notes that an entry
is gone. Nothing but writing the whole file anew takes these away, which costs a second for each
hundred megabytes. So a removal only leaves a note, in its own transaction, and whoever closes the
file and finds a note does it. After a kill, that is whoever comes next.
"""

import sqlite3
from contextlib import suppress


def note(db: sqlite3.Connection) -> None:
    """Say that the transaction of this connection takes something away."""
    db.execute("INSERT INTO traces (n) VALUES (random())")


def clear(db: sqlite3.Connection) -> None:
    """Write the file anew if a removal left a note.

    While another process writes, or without the room for it, the note stays for the next one.
    """
    with suppress(sqlite3.Error):
        notes = db.execute("SELECT n FROM traces").fetchall()
        if notes:
            db.execute("PRAGMA temp_store = FILE")  # a whole copy has no place in memory
            db.execute("INSERT INTO words (words) VALUES ('optimize')")
            db.execute("VACUUM")
            db.executemany("DELETE FROM traces WHERE n = ?", notes)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

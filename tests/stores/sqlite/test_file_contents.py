"""Contents of uploaded files in a SQLite file: recovery, and no trace after a deletion."""

import sqlite3
from contextlib import closing
from pathlib import Path

from convo.stores.base import FileQuota, StoredFile
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.recover import recover_database
from convo.stores.sqlite.store import SqliteStore

QUOTA = FileQuota(10, 10**9)
BIG = bytes(range(256)) * 400


def stored_file(file_id: str, content: bytes) -> StoredFile:
    return StoredFile(file_id, f"{file_id}.bin", "user_data", "application/pdf", len(content), 1_700_000_000.0)


async def fill(file: Path) -> None:
    store = SqliteStore(SqliteDatabase(file))
    for file_id, content in (("one", BIG), ("two", BIG), ("three", b"needle-3"), ("four", b"needle-4")):
        assert await store.add_file(stored_file(file_id, content), content, QUOTA)
    await store.aclose()


async def test_files_are_recovered_and_those_with_a_damaged_content_are_left_out(file: Path, tmp_path: Path) -> None:
    await fill(file)
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE file_contents SET content = x'00' WHERE content = ?", (b"needle-3",))
    report = recover_database(file, tmp_path / "new.db", lambda *_: None)

    store = SqliteStore(SqliteDatabase(tmp_path / "new.db"))
    assert report.row_counts["files"] == 3
    assert await store.files() == [stored_file("one", BIG), stored_file("two", BIG), stored_file("four", b"needle-4")]
    assert (await store.file_content("two"), await store.file_content("three")) == (BIG, None)
    await store.aclose()


async def test_no_byte_of_a_deleted_file_is_left_after_the_last_close(file: Path) -> None:
    await fill(file)
    store = SqliteStore(SqliteDatabase(file))
    await store.remove_file("three")
    await store.aclose()

    content = b"".join(path.read_bytes() for path in file.parent.iterdir())
    assert (b"needle-3" in content, b"three.bin" in content, b"needle-4" in content) == (False, False, True)

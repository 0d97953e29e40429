"""Read the rows of a damaged file with SQLite, from a private copy of it.

Each table is read up to its first unreadable page. If there is one, every page that has rows is read as a table of its
own: the schema of the copy is replaced by one whose tables begin at the page that is read. So neither the header nor
the schema nor any page that leads to others has to be intact, and SQLite decodes all rows.
source: https://www.sqlite.org/fileformat2.html
"""

import os
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import NoneType

from convo.runtime import ReportProgress
from convo.stores.sqlite import connection
from convo.stores.sqlite.backup import copy_file_bytes, open_unlinked_database
from convo.stores.sqlite.tenant_rows import Row

MAGIC = b"SQLite format 3\0"
PAGE_SIZES = tuple(2**power for power in range(9, 16))

TABLE_PAGES, KEYED_PAGES = b"\r", b"\n\x02"
"""First bytes of pages with the rows of tables, and with those of tables without rowids and of indexes."""

DERIVED_TABLES = ("hashes", "names", "leases", "traces", "request_sums")
"""Tables that are not copied: indexes of the copied rows, and rows of running processes."""

COLUMN_TYPES: dict[str, tuple[type, ...]] = {
    "INTEGER": (int,), "TEXT": (str,), "BLOB": (bytes,), "REAL": (int, float),
}  # fmt: skip

PROGRESS_INTERVAL_PAGES = 1000
"""Pages between two reports of progress."""


def copy_rows(file: Path, target: Path, db: sqlite3.Connection, progress: ReportProgress) -> bool:
    """Insert every readable row into `db`, which has our schema; return whether the file is marked as a store of convo.

    target:  a file in the folder of the copy

    Rows may refer to lost rows. Raises sqlite3.Error and OSError if there can be no copy.
    """
    copy, descriptor = open_unlinked_database(target)
    try:
        with closing(copy):
            copy.text_factory = lambda text: text.decode(errors="replace")
            page_size = _write_copy(file, copy, descriptor)
            is_store = os.pread(descriptor, 4, 68) == connection.APPLICATION_ID.to_bytes(4, "big")
            tables = _list_tables(db)
            unread = [table for table in tables if not table.copy_from(copy, db)]
            if unread:
                for number, table, row in _read_pages(copy, descriptor, page_size, tables):
                    if number % PROGRESS_INTERVAL_PAGES == 0:
                        progress("pages", number, os.fstat(descriptor).st_size // page_size)
                    if table in unread:
                        table.insert(db, table.columns, row)
            return is_store
    finally:
        os.close(descriptor)


class _Table:
    """A table of our schema; its columns are in the order in which a row stores them."""

    def __init__(self, db: sqlite3.Connection, name: str, *, has_rowids: bool) -> None:
        info = db.execute(f"PRAGMA table_info({name})").fetchall()
        if not has_rowids:
            info.sort(key=lambda column: (not column[5], column[5]))  # the key is stored first
        self.name, self.has_rowids = name, has_rowids
        self.columns = [column for _, column, *_ in info]
        self._rowid = next((index for index, column in enumerate(info) if column[5] and has_rowids), None)
        self._types = [COLUMN_TYPES[kind] + (() if required else (NoneType,)) for _, _, kind, required, *_ in info]

    def copy_from(self, copy: sqlite3.Connection, db: sqlite3.Connection) -> bool:
        """Copy the columns that both databases have; return whether all rows could be read."""
        try:
            stored = {column for _, column, *_ in copy.execute(f"PRAGMA table_info({self.name})")}
            columns = [column for column in self.columns if column in stored]
            for row in copy.execute(f"SELECT {', '.join(columns)} FROM {self.name} NOT INDEXED"):  # noqa: S608 - names of our schema
                self.insert(db, columns, row)
        except sqlite3.DatabaseError:
            return False
        return True

    def insert(self, db: sqlite3.Connection, columns: Sequence[str], row: Row) -> None:
        values = ", ".join("?" * len(row))
        with suppress(sqlite3.IntegrityError):  # a column refuses the value: it was not stored by convo
            db.execute(f"INSERT OR IGNORE INTO {self.name} ({', '.join(columns)}) VALUES ({values})", row)  # noqa: S608

    def match(self, rowid: int | None, values: Row) -> Row | None:
        """Return the row of this table that is stored as these values; None if their types do not fit."""
        row, rest = list(values[: len(self.columns)]), values[len(self.columns) :]
        if self.has_rowids != (rowid is not None) or any(value is not None for value in rest):
            return None
        if self._rowid is not None:
            if row[self._rowid] is not None:
                return None
            row[self._rowid] = rowid
        if not all(map(isinstance, row, self._types)):
            return None
        last = str(row[-1])  # the two pairs of tables with the same types differ in it
        is_run, is_event = last.startswith('{"version":'), last.startswith("{")
        is_other = {"items": is_run, "agent_documents": not is_run, "members": is_event, "events": not is_event}
        return None if is_other.get(self.name) else tuple(row)


def _list_tables(db: sqlite3.Connection) -> list[_Table]:
    rows = db.execute(
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND strict ORDER BY name"
    ).fetchall()
    return [_Table(db, name, has_rowids=not wr) for name, wr in rows if name not in DERIVED_TABLES]


def _write_copy(file: Path, copy: sqlite3.Connection, descriptor: int) -> int:
    """Write a file, with the complete transactions of its log, into a copy with a valid header; return its page size.

    Raises sqlite3.Error and OSError.
    """
    try:
        has_log = Path(f"{file}-wal").exists() and _copy_with_log(file, copy)
    except sqlite3.DatabaseError:  # the header is damaged in the file and in the log
        has_log = False
    if not has_log:
        os.ftruncate(descriptor, 0)
        with file.open("rb") as source:
            copy_file_bytes(source.fileno(), descriptor)
    page_size = _repair_header(descriptor)
    os.ftruncate(descriptor, -(-os.fstat(descriptor).st_size // page_size) * page_size)
    with suppress(sqlite3.DatabaseError):  # the first statement fails if the schema is damaged, the next ones do not
        copy.execute("PRAGMA writable_schema = RESET")  # the schema of the file that was empty
        copy.execute("PRAGMA writable_schema = ON")
        copy.execute("SELECT 1 FROM sqlite_schema").fetchall()
    return page_size


def _copy_with_log(file: Path, copy: sqlite3.Connection) -> bool:
    """Copy the pages as of the last complete transaction. Nothing is written to the file or created beside it."""
    uri = f"{file.absolute().as_uri()}?mode=ro&vfs=unix-none"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as source:
        source.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()  # else the log needs a file of shared memory
        source.execute("PRAGMA writable_schema = ON")  # the file may be shorter than its header says
        source.backup(copy)
    return True


def _repair_header(descriptor: int) -> int:
    """Write those fields of the header that are the same in every store; return the page size."""
    header = os.pread(descriptor, 18, 0).ljust(18, b"\0")
    page_size = int.from_bytes(header[16:], "big")
    if page_size not in PAGE_SIZES:
        page_size = connection.PAGE_SIZE_BYTES
    os.pwrite(descriptor, struct.pack(">16sH6B", MAGIC, page_size, 1, 1, 0, 64, 32, 32), 0)
    os.pwrite(descriptor, bytes(4), 28)  # the number of pages: zero for that of the file
    os.pwrite(descriptor, struct.pack(">4I", 4, 0, 0, 1), 44)  # the format of the schema, and UTF-8
    return page_size


def _read_pages(
    copy: sqlite3.Connection, descriptor: int, page_size: int, tables: Sequence[_Table]
) -> Iterator[tuple[int, _Table, Row]]:
    """Iterate over the rows of all pages that are not free: the number of the page, and the table that the row fits."""
    free_pages = _list_free_pages(descriptor, page_size)
    columns = ", ".join(f"c{index}" for index in range(max(len(table.columns) for table in tables)))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        empty.execute(f"PRAGMA page_size = {page_size}")
        empty.execute(f"CREATE TABLE rowid_page ({columns})")
        empty.execute(f"CREATE TABLE keyed_page ({columns}, PRIMARY KEY (c0, c1)) WITHOUT ROWID")
        os.pwrite(descriptor, empty.serialize()[:page_size], 0)
    _repair_header(descriptor)
    os.pwrite(descriptor, b"\xff" * 4, 24)  # another change counter: SQLite drops the pages that it has read
    for number in range(2, os.fstat(descriptor).st_size // page_size + 1):
        kind = os.pread(descriptor, 1, (number - 1) * page_size)
        name = "rowid_page" if kind in TABLE_PAGES else "keyed_page" if kind in KEYED_PAGES else None
        if name is None or number in free_pages:
            continue
        copy.execute("PRAGMA writable_schema = RESET")
        copy.execute("PRAGMA writable_schema = ON")
        copy.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = ?", (number, name))
        copy.execute("PRAGMA writable_schema = RESET")
        for rowid, *values in _read_page(copy, name):
            for table in tables:
                if (row := table.match(rowid, tuple(values))) is not None:
                    yield number, table, row
                    break


def _read_page(copy: sqlite3.Connection, name: str) -> Iterator[Row]:
    """Iterate over the readable rows of a page; the first column is the rowid."""
    sql = f"SELECT {'rowid' if name == 'rowid_page' else 'NULL'}, * FROM {name}"  # noqa: S608 - constant names
    try:
        yield from copy.execute(sql).fetchall()
    except sqlite3.DatabaseError:
        with suppress(sqlite3.DatabaseError):
            (count,) = copy.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608
            for index in range(count):
                with suppress(sqlite3.DatabaseError):
                    yield from copy.execute(f"{sql} LIMIT 1 OFFSET ?", (index,)).fetchall()


def _list_free_pages(descriptor: int, page_size: int) -> set[int]:
    """Return the unused pages, which may have deleted rows, as far as their list can be read."""
    pages = set[int]()
    (number,) = struct.unpack(">I", os.pread(descriptor, 4, 32))
    while number and number not in pages:
        page = os.pread(descriptor, page_size, (number - 1) * page_size).ljust(page_size, b"\0")
        number_after, count = struct.unpack_from(">2I", page)
        pages.update((number, *struct.unpack_from(f">{min(count, page_size // 4 - 2)}I", page, 8)))
        number = number_after
    return pages

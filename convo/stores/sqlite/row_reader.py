"""The rows of a damaged file: copied into a new database without its schema.

Each row is assigned to a table by the types of its columns. Entries of indexes go to temporary tables, from which a
lost row can be restored.
"""

import sqlite3

from convo.runtime import ReportProgress
from convo.stores.sqlite.page_reader import ColumnValue, PageReader

PROGRESS_INTERVAL_PAGES = 1000
"""Pages between two reports of progress."""

ROWID_CODE = "#"
TABLE_SHAPES = {
    "tenants": "#T",
    "items": "I#T",
    "nodes": "I#iiBt",
    "repeated": "I#BT",
    "sessions": "I#Ttiiiiriti",
    "links": "I#Tiiiiiitrtrritti",
    "conversations": "I#TIIRT",
    "runs": "I#r",
    "agent_runs": "I#TIITtRR",
    "agent_documents": "I#T",
    "agent_calls": "I#ITRt",
    "file_contents": "I#BB",
    "files": "I#TTTTIIRr",
    "approval_decisions": "I#IRT",
}
"""Column types of each table with rowids: # is the rowid; integer, text, bytes or real; lower case may be null."""

INDEX_SHAPES = {
    "members": "IIIT",
    "events": "IIIT",
    "secrets": "TB",
    "marks": "IBI",
    "pairs": "II",
    "labels": "ITI",
}
"""Column types of rows in index trees.

`marks` are those of `hashes` and `nodes_by_key`, `pairs` and `labels` those of `RECOVERY_INDEXES`.
"""

RECOVERY_INDEXES = ("nodes_by_parent", "nodes_by_item", "sessions_by_head", "sessions_by_id", "sessions_by_name")
"""Indexes from which a lost row can be restored; each of their rows ends in the rowid of the indexed row."""

ADDED_COLUMN_COUNTS = {"sessions": 1, "links": 1}
"""Number of last columns that rows of an older schema do not have."""

COLUMN_TYPES: dict[str, tuple[type, ...]] = {"I": (int,), "T": (str,), "B": (bytes,), "R": (int, float)}

TABLE_COLUMNS = {
    "tenants": "n, name",
    "items": "tenant, n, body",
    "nodes": "tenant, n, parent, item, key, erased",
    "repeated": "tenant, n, hash, body",
    "sessions": "tenant, n, id, name, head, mark, written, link, used_at, removed, record, used",
    "links": "tenant, n, id, parent, session, saw, head, sent, route, status, created_at, previous, seconds,"
    " first_token_s, parameters, usage, error, sent_body",
    "conversations": "tenant, n, id, head, length, created_at, metadata",
    "runs": "tenant, link, ended_at",
    "agent_runs": "tenant, n, id, session, revision, status, state, created_at, changed_at",
    "agent_documents": "tenant, run, body",
    "agent_calls": "tenant, n, run, id, started_at, output",
    "file_contents": "tenant, n, hash, content",
    "files": "tenant, n, id, name, purpose, media_type, content, size, created_at, expires_at",
    "approval_decisions": "tenant, n, run, decided_at, body",
    "members": "node, conversation, tenant, id",
    "events": "link, number, tenant, body",
    "secrets": "name, value",
    "marks": "tenant, hash, n",
    "pairs": "named, n, tree",
    "labels": "tenant, label, n, tree",
}

HALF_KEY_BYTES, KEY_BYTES = 16, 32

AGENT_DOCUMENT_PREFIX = '{"version":'
"""Start of the document of an agent run; no item's text starts with it."""

CREATE_ENTRY_TABLES = (
    "CREATE TABLE temp.marks (tenant INTEGER, hash BLOB, n INTEGER, PRIMARY KEY (n, hash)) WITHOUT ROWID",
    "CREATE TABLE temp.pairs (named INTEGER, n INTEGER, tree TEXT, PRIMARY KEY (tree, n, named)) WITHOUT ROWID",
    "CREATE TABLE temp.labels"
    " (tenant INTEGER, label TEXT, n INTEGER, tree TEXT, PRIMARY KEY (tree, n, label)) WITHOUT ROWID",
)
"""Tables for the entries of indexes."""


def copy_rows(pages: PageReader, db: sqlite3.Connection, progress: ReportProgress) -> None:
    """Insert every readable row into `db`, whose schema is that of convo, and entries into `CREATE_ENTRY_TABLES`.

    Rows may reference lost rows.
    """
    for statement in CREATE_ENTRY_TABLES:
        db.execute(statement)
    _RowReader(pages, db, progress).run()


class _RowReader:
    """Read rows into the new database: first those in trees, then those of pages that are in no tree."""

    def __init__(self, pages: PageReader, db: sqlite3.Connection, progress: ReportProgress) -> None:
        self._pages, self._db, self._progress = pages, db, progress
        self._tree_of_page: dict[int, str] = {}

    def run(self) -> None:
        for name, root in self._pages.tree_roots().items():
            for number in self._pages.tree_pages(root):
                self._tree_of_page.setdefault(number, name)
        free_pages = self._pages.free_pages()
        tree_pages = sorted(self._tree_of_page)
        other_pages = (number for number in range(1, self._pages.page_count + 1) if number not in self._tree_of_page)
        for done, number in enumerate((*tree_pages, *other_pages)):
            if done % PROGRESS_INTERVAL_PAGES == 0:
                self._progress("pages", done, self._pages.page_count)
            if number not in free_pages or number in self._tree_of_page:
                self._copy_page_rows(number)

    def _copy_page_rows(self, number: int) -> None:
        tree_name = self._tree_of_page.get(number)
        has_rowids = self._pages.has_rowids(number)
        for rowid, values in self._pages.cells(number):
            table, values = _identify_table(rowid, values) if has_rowids else (_identify_index(values), values)
            if table in ("pairs", "labels"):
                if tree_name in RECOVERY_INDEXES:
                    self._insert_row(table, (*values, tree_name))
            elif table:
                self._insert_row(
                    table,
                    tuple(
                        rowid if position == _rowid_column(table) else value for position, value in enumerate(values)
                    ),
                )

    def _insert_row(self, table: str, row: tuple[ColumnValue, ...]) -> None:
        placeholders = ", ".join("?" for _ in row)
        statement = f"INSERT OR IGNORE INTO {table} ({TABLE_COLUMNS[table]}) VALUES ({placeholders})"  # noqa: S608 - constant names
        try:
            self._db.execute(statement, row)
        except (sqlite3.Error, OverflowError, UnicodeEncodeError):
            return  # a row with a value that its column refuses is not a row of convo


def _rowid_column(table: str) -> int | None:
    """Return the position of the rowid among the columns; None for a table without rowids."""
    position = TABLE_SHAPES.get(table, "").find(ROWID_CODE)
    return None if position < 0 else position


def _matches_shape(shape: str, values: tuple[ColumnValue, ...]) -> bool:
    return len(shape) == len(values) and all(map(_matches_column_type, shape, values))


def _matches_column_type(code: str, value: ColumnValue) -> bool:
    if value is None:
        return code == ROWID_CODE or code.islower()
    return code != ROWID_CODE and isinstance(value, COLUMN_TYPES[code.upper()])


def _identify_table(rowid: int | None, values: tuple[ColumnValue, ...]) -> tuple[str | None, tuple[ColumnValue, ...]]:
    """Return the table of a row, found by the types of its columns, and the row with missing columns added."""
    for table, shape in TABLE_SHAPES.items():
        missing_count = len(shape) - len(values)
        row = (
            (*values, *(None for _ in range(missing_count)))
            if 0 < missing_count <= ADDED_COLUMN_COUNTS.get(table, 0)
            else values
        )
        if rowid is None or rowid < 1 or not _matches_shape(shape, row):
            continue
        if table == "items" and str(row[2]).startswith(AGENT_DOCUMENT_PREFIX) and '"phase"' in str(row[2]):
            return "agent_documents", row
        if table == "nodes" and len(row[4]) != KEY_BYTES:  # type: ignore[arg-type]  # bytes by its shape
            return None, row
        return table, row
    return None, values


def _identify_index(values: tuple[ColumnValue, ...]) -> str | None:
    matches = [table for table, shape in INDEX_SHAPES.items() if _matches_shape(shape, values)]
    if matches and matches[0] == "members":
        return "events" if str(values[3]).startswith("{") else "members"
    if matches and matches[0] == "marks" and len(values[1]) != HALF_KEY_BYTES:  # type: ignore[arg-type]
        return None
    return matches[0] if matches else None

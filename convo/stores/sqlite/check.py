"""Check a database file, and probe whether it can be used. Nothing is written.

SQLite's own checks run first, then the rules that every row must satisfy. A file without a log is opened as
immutable, so that reading creates no files; if it was changed meanwhile, the check is repeated on an ordinary
read-only connection.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from convo.config.paths import check_folder_writable
from convo.errors import ConvoError, DamagedRow, NotFound, StoreReadOnly, StoreTooNew, StoreUnavailable
from convo.history.canonical import Hash, item_hash
from convo.history.tree import Key, child_key, root_key
from convo.runtime import ReportProgress
from convo.stores import base
from convo.stores.base import FileHealth, NamedSession, ProblemCounter, StoreCheckReport
from convo.stores.codec import (
    decode_agent_call,
    decode_agent_run,
    decode_approval_decision,
    decode_event,
    decode_json,
    decode_link,
    decode_metadata,
    decode_session,
    is_route,
    is_session_record,
    tokenize_item,
)
from convo.stores.sqlite import connection, tenant_rows
from convo.stores.sqlite.connection import is_busy, is_disk_full, translate_errors
from convo.stores.sqlite.records import SELECT_LINKS, SELECT_SESSIONS
from convo.stores.sqlite.runs import SELECT_AGENT_RUNS, SELECT_APPROVAL_DECISIONS
from convo.stores.sqlite.tenant_rows import TenantConnection, invalid_text_as_bytes

MAX_INTEGRITY_LINES = 100
"""Limit of the lines of SQLite's integrity check; the first ones show the cause."""

PROGRESS_INTERVAL_ROWS = 1000
"""Rows between two reports of progress."""

Result = TypeVar("Result")

REQUIRED_TABLES = {"items", "nodes", "links", "sessions"}

COUNTED_TABLES = ("items", "nodes", "sessions", "links", "conversations", "agent_runs", "events", "files")

SELECT_NODES_TO_CHECK = """
SELECT nodes.n, nodes.tenant, nodes.key, nodes.parent, nodes.item, up.key, items.body
FROM nodes LEFT JOIN nodes AS up ON up.n = nodes.parent LEFT JOIN items ON items.n = nodes.item ORDER BY nodes.n
"""

SELECT_PATH_TO_CHECK = """
WITH RECURSIVE up (n, parent, item, depth) AS (
    SELECT n, parent, item, 0 FROM nodes WHERE n = ?
    UNION ALL
    SELECT nodes.n, nodes.parent, nodes.item, depth + 1 FROM up JOIN nodes ON nodes.n = up.parent WHERE depth < ?
)
SELECT up.n, up.parent, up.item, length(items.body) FROM up LEFT JOIN items ON items.n = up.item
"""
"""The nodes from a head back to the root; the depth is limited because a damaged file may have a cycle."""

SELECT_MEMBERS_TO_CHECK = """
WITH RECURSIVE up (n, parent, item, erased, depth) AS (
    SELECT n, parent, item, erased, 0 FROM nodes WHERE n = :head
    UNION ALL
    SELECT nodes.n, nodes.parent, nodes.item, nodes.erased, depth + 1
    FROM up JOIN nodes ON nodes.n = up.parent WHERE depth < :most
)
SELECT coalesce(members.id, up.erased), items.body, members.id IS NOT NULL
FROM up LEFT JOIN members ON members.conversation = :n AND members.node = up.n
    LEFT JOIN items ON items.n = up.item AND members.id IS NULL
WHERE up.parent IS NOT NULL
"""

JSON_COLUMNS = (
    ("repeated", "n", "body"),
    ("agent_documents", "run", "body"),
    ("agent_calls", "n", "output"),
    ("approval_decisions", "n", "body"),
    ("events", "link", "body"),
    ("links", "n", "error"),
    ("conversations", "n", "metadata"),
)


def check_database(file: Path, progress: ReportProgress) -> StoreCheckReport:
    """Check a whole file.

    Raises NotFound if there is none, StoreFault if it is not a store of convo or cannot be opened.
    """
    if not file.exists():
        raise NotFound("database", str(file), hint='convo chat "hello" creates one')
    with translate_errors(file):
        report: StoreCheckReport = read_snapshot(file, lambda db: _DatabaseCheck(db, file, progress).run())
        return report


def quick_check(file: Path, limit_s: float) -> str | None:
    """Return the first line of SQLite's quick check of an existing file: "ok" if it found nothing.

    None: it did not end within the limit, in seconds.
    """
    deadline = monotonic() + limit_s

    def run_check(db: sqlite3.Connection) -> str | None:
        db.set_progress_handler(lambda: monotonic() > deadline, 10_000)
        try:
            return str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                return None
            raise
        except sqlite3.DatabaseError as error:
            return str(error)

    return read_snapshot(file, run_check)


def read_snapshot(file: Path, read: Callable[[sqlite3.Connection], Result]) -> Result:
    """Return the result of `read` on one unchanged state of a file. Raises sqlite3.Error and OSError."""
    for _ in range(2):
        if _has_wal_data(file):
            break
        stamp = _file_stamp(file)
        with closing(_connect_read_only(file, "immutable=1")) as db:
            result = read(db)
        if not _has_wal_data(file) and _file_stamp(file) == stamp:
            return result
    with closing(_connect_read_only(file, "mode=ro")) as db:
        return read(db)


def _has_wal_data(file: Path) -> bool:
    """Return whether the log has data that the file may lack."""
    log = Path(f"{file}-wal")
    return log.exists() and log.stat().st_size > 0


def _file_stamp(file: Path) -> tuple[int, int, int]:
    stats = file.stat()
    return stats.st_ino, stats.st_size, stats.st_mtime_ns


def _connect_read_only(file: Path, uri_options: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{file.absolute().as_uri()}?{uri_options}", uri=True, timeout=5.0, isolation_level=None)
    db.execute("PRAGMA temp_store = MEMORY")
    return db


class _NodeRow(NamedTuple):
    """A node with the values that its key is computed from."""

    rowid: int
    tenant: int
    key: bytes
    parent: int | None
    item: int | None
    parent_key: bytes | None
    body: str | None


class _DatabaseCheck:
    """One check over one connection. After a page that cannot be read, the next step continues."""

    def __init__(self, db: sqlite3.Connection, file: Path, progress: ReportProgress) -> None:
        self._db, self._database_file, self._progress = db, file, progress
        self._problems = ProblemCounter()
        self._bad_nodes: set[int] = set()
        self._bad_items: set[int] = set()
        self._row_counts: dict[str, int] = {}
        self._tenants: dict[int, TenantConnection] = {}

    def run(self) -> StoreCheckReport:
        skipped_reason = ""
        try:
            self._check_header()
            self._db.execute("BEGIN")
            version = connection.read_schema_version(self._db)
        except sqlite3.DatabaseError as error:
            if is_busy(error) or is_disk_full(error, self._database_file):
                raise
            self._problems.add("unreadable", f"the file cannot be opened: {error}")
            return StoreCheckReport({}, list(self._problems), (), "no row could be checked")
        self._run_step("file", self._check_integrity)
        self._run_step("references", self._check_references)
        if version == connection.SCHEMA_VERSION:
            self._check_rows()
        else:
            skipped_reason = f"the rules of schema {connection.SCHEMA_VERSION}: this file has schema {version}"
        sessions = list(self._damaged_sessions()) if self._problems else []
        damaged_rows = self._problems.damaged_rows
        return StoreCheckReport(self._row_counts, list(self._problems), sessions, skipped_reason, damaged_rows)

    def _check_header(self) -> None:
        """Reject another program's database. Raises StoreUnavailable and StoreTooNew."""
        try:
            connection.check_schema_version(self._db, self._database_file)
        except StoreTooNew:
            raise
        except StoreUnavailable:
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_schema")}
            if not tables >= REQUIRED_TABLES:
                raise
            self._problems.add("file", "its header does not identify it as a database of convo")

    def _check_rows(self) -> None:
        self._run_step("tenants", self._read_tenants)
        for table in COUNTED_TABLES:
            self._run_step(table, lambda table=table: self._count_rows(table))  # type: ignore[misc]
        self._run_step("items", self._check_items)
        self._run_step("nodes", self._check_nodes)
        self._run_step("tenants", self._check_tenant_isolation)
        self._run_step("records", self._check_records)
        self._run_step("conversations", self._check_conversations)
        for kind in RECORD_DECODERS:
            self._run_step(f"stored {kind}", lambda kind=kind: self._check_rows_decodable(kind))  # type: ignore[misc]
        self._run_step("search", self._check_search_index)

    def _run_step(self, name: str, step: Callable[[], None]) -> None:
        self._progress(name, 0, 0)
        try:
            step()
        except sqlite3.DatabaseError as error:
            self._problems.add("unreadable", f"{name}: {error}")

    def _iter_rows(self, name: str, sql: str) -> Iterator[tuple[Any, ...]]:
        """Iterate over rows and report the progress."""
        total = self._row_counts.get(name, 0)
        for done, row in enumerate(self._db.execute(sql)):
            if done % PROGRESS_INTERVAL_ROWS == 0:
                self._progress(name, done, total)
            yield row

    # -- SQLite's own checks ----------------------------------------------------------------------

    def _check_integrity(self) -> None:
        for (line,) in self._db.execute(f"PRAGMA integrity_check({MAX_INTEGRITY_LINES})"):
            if line != "ok":
                self._problems.add("file", line)

    def _check_references(self) -> None:
        for table, row, parent, _ in self._db.execute("PRAGMA foreign_key_check"):
            self._problems.add("reference", f"{table} row {row} refers to a row of {parent} that does not exist")
            if table == "nodes" and row is not None:
                self._bad_nodes.add(row)

    # -- rules of convo ---------------------------------------------------------------------------

    def _read_tenants(self) -> None:
        for n, name in self._db.execute("SELECT n, name FROM tenants"):
            self._tenants[n] = TenantConnection(self._db, n, root_key(name), {})

    def _count_rows(self, table: str) -> None:
        self._row_counts[table] = self._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - constant names

    def _check_items(self) -> None:
        """Check that each item is found by the hash of its content and by its id."""
        for n, tenant, body in self._iter_rows("items", "SELECT n, tenant, body FROM items ORDER BY n"):
            hashed = hash_item_text(body)
            t = self._tenants.get(tenant)
            if hashed is None or t is None:
                self._bad_items.add(n)
                self._problems.add("item", f"item {n} is not JSON" if hashed is None else f"item {n} has no tenant")
                continue
            if (
                t.fetch_value(
                    "SELECT item FROM hashes WHERE tenant = ? AND hash = ?", tenant, tenant_rows.short_hash(hashed)
                )
                != n
            ):
                self._bad_items.add(n)
                self._problems.add("item", f"item {n} does not have the hash that it is stored under")
            own_id = base.own_item_id(decode_json(body))
            if own_id and not tenant_rows.is_item_indexed(t, own_id, n):
                self._problems.add("index", f"item {n} is not found by its id")
        extra = self._db.execute("SELECT count(*) FROM hashes WHERE item NOT IN (SELECT n FROM items)").fetchone()[0]
        if extra:
            self._problems.add("index", "a hash leads to an item that does not exist", extra)

    def _check_nodes(self) -> None:
        """Check that each key is computed from the parent's key and the hash of the item."""
        for row in map(_NodeRow._make, self._iter_rows("nodes", SELECT_NODES_TO_CHECK)):
            fault = self._describe_node_fault(row)
            if fault:
                self._bad_nodes.add(row.rowid)
                self._problems.add("node", f"node {row.rowid} {fault}")

    def _describe_node_fault(self, row: _NodeRow) -> str:
        t = self._tenants.get(row.tenant)
        if t is None:
            return "has no tenant"
        if row.parent is None:
            return "" if row.key.hex() == t.root else "has no parent and is not its tenant's root"
        if row.parent_key is None or (row.item is not None and row.body is None):
            return "lacks its parent" if row.parent_key is None else "lacks its item"
        if row.body is None:
            return ""  # its item was deleted
        hashed = hash_item_text(row.body)
        is_valid = hashed is not None and child_key(Key(row.parent_key.hex()), hashed) == row.key.hex()
        return "" if is_valid else "has a key that does not match its parent and its item"

    def _check_tenant_isolation(self) -> None:
        """Check that no row references a row of another tenant."""
        tables = [name for (name,) in self._db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            for _, _, parent, column, parent_column, *_ in self._db.execute(
                f"PRAGMA foreign_key_list({table})"
            ).fetchall():
                if parent == "tenants":
                    continue
                key = parent_column or self._primary_key(parent)
                mixed = self._db.execute(
                    f"SELECT count(*) FROM {table} AS a JOIN {parent} AS b ON b.{key} = a.{column}"  # noqa: S608
                    " WHERE a.tenant <> b.tenant"
                ).fetchone()[0]
                if mixed:
                    self._problems.add("tenant", f"{table}.{column} refers to another tenant's {parent}", mixed)

    def _primary_key(self, table: str) -> str:
        columns = self._db.execute(f"PRAGMA table_info({table})").fetchall()
        if not columns:
            raise sqlite3.DatabaseError(f"no such table: {table}")
        return str(next(name for _, name, _, _, _, key in columns if key))

    def _check_records(self) -> None:
        """Check that every JSON column is valid JSON, and that JSON stored once has the hash of its text."""
        for table, key, column in JSON_COLUMNS:
            # repeated JSON is read as text, because its hash is of the text
            for n, text in self._iter_rows(table, f"SELECT {key}, {column} FROM {table} WHERE {column} IS NOT NULL"):  # noqa: S608
                if not is_valid_json(text):
                    self._problems.add("record", f"{table} {n}: {column} is not JSON")
        for n, hashed, body in self._iter_rows("repeated", "SELECT n, hash, body FROM repeated"):
            if sha256(body.encode()).digest() != hashed:
                self._problems.add("record", f"repeated {n} does not have the hash that it is stored under")
        routes = "SELECT n, tenant, body FROM repeated WHERE n IN (SELECT route FROM links)"
        for n, tenant, body in self._iter_rows("routes", routes):
            self._check_route(n, self._tenants.get(tenant), body)
        for n, record in self._iter_rows("sessions", "SELECT n, record FROM sessions WHERE record IS NOT NULL"):
            if not is_session_record(record):
                self._problems.add("record", f"session {n} has a record that cannot be read")

    def _check_route(self, n: int, t: TenantConnection | None, body: str) -> None:
        route = decode_json(body) if is_valid_json(body) else None
        if t is None or not is_route(route):
            self._problems.add("record", f"route {n} cannot be read")
        elif route[tenant_rows.ROUTE_CONVERSATION_INDEX] is not None and not tenant_rows.is_route_indexed(
            t, route[tenant_rows.ROUTE_CONVERSATION_INDEX], n
        ):
            self._problems.add("index", f"route {n} is not found by its conversation")

    def _check_conversations(self) -> None:
        """Check that a conversation has an id for each item on its path, and the right number of items."""
        max_depth = self._row_counts.get("nodes", 0)
        for n, head, length in self._iter_rows("conversations", "SELECT n, head, length FROM conversations"):
            rows = self._db.execute(SELECT_MEMBERS_TO_CHECK, {"head": head, "n": n, "most": max_depth}).fetchall()
            unnamed_count = sum(
                assigned_id is None and (body is None or not _has_item_id(body)) for assigned_id, body, _ in rows
            )
            if unnamed_count:
                self._problems.add("conversation", f"conversation {n} has items without an id")
            if len(rows) != length:
                self._problems.add("conversation", f"conversation {n} counts {length} items and has {len(rows)}")
            assigned_count = self._db.execute("SELECT count(*) FROM members WHERE conversation = ?", (n,)).fetchone()[0]
            if assigned_count != sum(is_assigned for *_, is_assigned in rows):
                self._problems.add("conversation", f"conversation {n} names items that are not on its path")

    def _check_rows_decodable(self, kind: str) -> None:
        """Decode every record in the way in which commands read it; items are checked by their hashes."""
        for _, error in iter_damaged_rows(self._db, kind):
            self._problems.add_row(error)

    def _check_search_index(self) -> None:
        """Check that the search index has exactly the terms of all items."""
        expected = indexed = 0
        for n, body in self._iter_rows("items", "SELECT n, body FROM items"):
            terms = tokenize_item(decode_json(body)) if hash_item_text(body) else ""
            for position, term in enumerate(terms.split(" ") if terms else ()):
                expected ^= hash((n, position, term))
        self._db.execute("CREATE VIRTUAL TABLE temp.term_places USING fts5vocab(main, words, instance)")
        for term, n, position in self._db.execute('SELECT term, doc, "offset" FROM temp.term_places'):
            indexed ^= hash((n, position, term))
        if indexed != expected:
            self._problems.add("search", "the search index does not match the terms of the items")

    # -- sessions ---------------------------------------------------------------------------------

    def _damaged_sessions(self) -> Iterator[NamedSession]:
        """Iterate over the sessions whose path to the root is damaged."""
        sql = (
            "SELECT tenants.name, sessions.name, head FROM sessions LEFT JOIN tenants ON tenants.n = sessions.tenant"
            " WHERE record IS NOT NULL ORDER BY sessions.n"
        )
        max_depth = self._row_counts.get("nodes", 1_000_000)
        try:
            for tenant, name, head in self._db.execute(sql):
                if not self._is_path_intact(head, max_depth):
                    yield NamedSession(tenant or "", name or "")
        except sqlite3.DatabaseError as error:
            self._problems.add("unreadable", f"some sessions cannot be read: {error}")

    def _is_path_intact(self, head: int, max_depth: int) -> bool:
        last_parent: int | None = -1
        try:
            for n, parent, item, length in self._db.execute(SELECT_PATH_TO_CHECK, (head, max_depth)):
                if n in self._bad_nodes or item in self._bad_items or (item is not None and length is None):
                    return False
                last_parent = parent
        except sqlite3.DatabaseError:
            return False
        return last_parent is None


def iter_damaged_rows(db: sqlite3.Connection, kind: str) -> Iterator[tuple[int, DamagedRow]]:
    """Iterate over the records of a kind, a key of `RECORD_DECODERS`, that cannot be read: their rowids and errors."""
    sql, rowid, decode = RECORD_DECODERS[kind]
    with invalid_text_as_bytes(db):
        for *row, n in db.execute(f"{sql.replace('FROM', f', {rowid} FROM', 1)} ORDER BY {rowid}"):
            try:
                decode(row)
            except DamagedRow as error:
                yield n, error


def _decode_conversation(row: Sequence[Any]) -> None:
    conversation_id, key, created_at, metadata = row
    if key is None:
        raise DamagedRow("conversation", str(conversation_id), "its head is missing")
    decode_metadata(str(conversation_id), created_at, metadata)


RECORD_DECODERS: dict[str, tuple[str, str, Callable[[Sequence[Any]], object]]] = {
    "sessions": (SELECT_SESSIONS, "sessions.n", decode_session),
    "responses": (SELECT_LINKS, "links.n", decode_link),
    "conversations": (
        "SELECT id, key, created_at, metadata FROM conversations LEFT JOIN nodes ON nodes.n = head",
        "conversations.n",
        _decode_conversation,
    ),
    "runs": (SELECT_AGENT_RUNS.partition("WHERE")[0], "agent_runs.n", decode_agent_run),
    "calls": (
        "SELECT agent_runs.id, agent_calls.id, started_at, output FROM agent_calls"
        " LEFT JOIN agent_runs ON agent_runs.n = run",
        "agent_calls.n",
        lambda row: decode_agent_call(str(row[0]), row[1:]),
    ),
    "decisions": (
        SELECT_APPROVAL_DECISIONS.partition("WHERE")[0],
        "approval_decisions.n",
        decode_approval_decision,
    ),
    "events": (
        "SELECT id, body FROM events LEFT JOIN links ON links.n = link",
        "link",
        lambda row: decode_event(str(row[0]), row[1]),
    ),
}
"""By kind: the query for the rows of all tenants, their rowid (of events, that of their response), and the function
that decodes a row."""


def hash_item_text(body: str) -> Hash | None:
    """Return the hash of an item's text; None if it is not an item."""
    try:
        item = decode_json(body)
        return item_hash(item) if isinstance(item, dict) else None
    except (ValueError, RecursionError, ConvoError):
        return None


def _has_item_id(body: str) -> bool:
    try:
        return isinstance(decode_json(body).get("id"), str)
    except (ValueError, RecursionError, AttributeError):
        return False


def is_valid_json(text: str) -> bool:
    try:
        decode_json(text)
    except (ValueError, RecursionError):
        return False
    return True


PROBE_BUSY_TIMEOUT_S = 2.0
"""Seconds to wait for another process that writes."""

QUICK_CHECK_LIMIT_S = 5.0
"""Time limit of the quick check in seconds; for larger files there is `convo store check`."""

MOUNTINFO_FILE = Path("/proc/self/mountinfo")


def probe_database(file: Path) -> FileHealth:
    """Return the health of a database file.

    Raises StoreFault if it cannot be opened, read or written, or is not a store of convo.
    """
    with translate_errors(file):
        if file.exists() and not file.is_file():
            raise StoreUnavailable(f"{file} is a {'folder' if file.is_dir() else 'device'}, not a database")
        folder = check_folder_writable(file.parent)
        if file.exists() and not os.access(file, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise StoreReadOnly(f"{file} is read-only")
        version = _probe_schema_version(file) if file.exists() and file.stat().st_size else None
        quick_result = "ok" if version is None else quick_check(file, QUICK_CHECK_LIMIT_S)
        free_bytes = shutil.disk_usage(folder).free
    return FileHealth(
        file,
        version,
        connection.SCHEMA_VERSION,
        free_bytes,
        filesystem_type(folder.resolve(), _read_mounts()),
        quick_result,
    )


def filesystem_type(folder: Path, mounts: str) -> str:
    """Return the type of the file system of `folder`.

    mounts:  the text of /proc/self/mountinfo; of several mounts on one folder the last one counts
    """
    filesystem, longest = "", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mount_point = before.split(" ")[4].encode().decode("unicode_escape")
        if folder.is_relative_to(mount_point) and len(mount_point) >= longest:
            filesystem, longest = after.split(" ")[0], len(mount_point)
    return filesystem


def _probe_schema_version(file: Path) -> int:
    """Return the number of the last migration, and check that the file can be written now."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=PROBE_BUSY_TIMEOUT_S)) as db:
        db.isolation_level = None
        connection.check_schema_version(db, file)
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        return connection.read_schema_version(db)


def _read_mounts() -> str:
    """Return the mount table; empty on a system without it."""
    try:
        return MOUNTINFO_FILE.read_text("utf-8", errors="surrogateescape")
    except OSError:
        return ""

"""Copy every readable row of a damaged file into a new database.

`damaged_file` reads the rows, and `_RowRepair` restores the rules of a store. A node whose key is not that of its
parent and its item is a gap: it is kept without its item. A session is cut at the first gap of its history, and the
items after it become a session of their own.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import sha256
from operator import eq
from pathlib import Path
from typing import Any

from convo.errors import DamagedRow, NotFound, StoreUnavailable
from convo.history.canonical import item_hash
from convo.history.items import Item
from convo.history.records import EMBEDDED_SCOPE, LINK_STATUSES
from convo.history.tree import Key, child_key, root_key
from convo.runtime import ReportProgress
from convo.stores.base import AppendItems, NamedSession, RecoveryReport, TruncatedSession
from convo.stores.codec import decode_json, encode_json, tokenize_item
from convo.stores.sqlite import check, connection, tenant_rows, tree
from convo.stores.sqlite.backup import new_database
from convo.stores.sqlite.connection import translate_errors
from convo.stores.sqlite.damaged_file import copy_rows
from convo.stores.sqlite.tenant_rows import Row, TenantConnection

STORE_OPTION_HINT = "name the file with --store sqlite:PATH"

UNKNOWN_MODEL = "unknown/unknown"
UNKNOWN_ROUTE = encode_json([UNKNOWN_MODEL, "session", *EMBEDDED_SCOPE, None, False, None])
UNKNOWN_RECORD = encode_json(["session", UNKNOWN_MODEL, 0.0, *EMBEDDED_SCOPE, None, None])

SELECT_PATH_FROM_ROOT = """
WITH RECURSIVE up (n, parent, item, depth) AS (
    SELECT n, parent, item, 0 FROM nodes WHERE n = ?
    UNION ALL SELECT nodes.n, nodes.parent, nodes.item, depth + 1 FROM up JOIN nodes ON nodes.n = up.parent
)
SELECT up.n, coalesce(gaps.item, up.item), gaps.n IS NOT NULL
FROM up LEFT JOIN gaps ON gaps.n = up.n ORDER BY depth DESC
"""
"""The nodes from the root to a head, with their items. There is no cycle: every parent was checked to be older."""

SELECT_UNUSED_ITEMS = """
WITH RECURSIVE intact (n) AS (
    SELECT n FROM nodes WHERE parent IS NULL
    UNION ALL SELECT nodes.n FROM intact JOIN nodes ON nodes.parent = intact.n WHERE nodes.n NOT IN (SELECT n FROM gaps)
), used (n) AS (
    SELECT head FROM sessions UNION SELECT head FROM conversations
    UNION SELECT saw FROM links UNION SELECT head FROM links UNION SELECT sent_body FROM links
    UNION SELECT parent FROM used JOIN nodes ON nodes.n = used.n
)
SELECT n FROM items WHERE tenant = ? AND n NOT IN (
    SELECT item FROM nodes WHERE item IS NOT NULL AND n IN (SELECT n FROM intact) AND n IN (SELECT n FROM used)
) ORDER BY n
"""

RECREATE_SESSIONS = """
INSERT OR IGNORE INTO sessions (n, tenant, id, name, head, mark, used_at, record)
SELECT session, tenant, 'ses_' || lower(hex(randomblob(12))), 'recovered-' || session, head, head, created_at,
    json_set(:record, '$[1]', coalesce((SELECT json_extract(body, '$[0]') FROM repeated WHERE n = route), :model))
FROM (SELECT *, max(n) FROM links WHERE session NOT IN (SELECT n FROM sessions) GROUP BY session)
WHERE tenant IN (SELECT n FROM tenants) AND head IN (SELECT n FROM nodes) RETURNING tenant, name
"""
"""Sessions whose row is lost while responses are left: their head is that of the last response."""

RESTORE_CONVERSATION_HEADS = """
UPDATE conversations SET head = coalesce((
    SELECT links.head FROM links JOIN nodes ON nodes.n = links.head JOIN repeated ON repeated.n = route
    WHERE json_extract(body, '$[5]') = conversations.id AND links.tenant = conversations.tenant ORDER BY links.n DESC
), (SELECT n FROM nodes WHERE parent IS NULL AND nodes.tenant = conversations.tenant), head)
WHERE head NOT IN (SELECT n FROM nodes)
"""

REPAIR_LINKS = f"""
UPDATE links SET route = (SELECT n FROM repeated WHERE body = :route AND tenant = links.tenant),
    parameters = NULL, usage = NULL, error = NULL, sent = coalesce(sent, 0), created_at = coalesce(created_at, 0),
    status = iif(status IN ({", ".join(f"'{status}'" for status in LINK_STATUSES)}), status, 'failed')
WHERE n = :n
"""

REPAIRS = {
    "sessions": (
        "sessions",
        "UPDATE sessions SET name = coalesce(name, 'recovered-' || n), used_at = coalesce(used_at, 0), record = :record"
        " WHERE n = :n",
    ),
    "responses": ("links", REPAIR_LINKS),
    "conversations": ("conversations", "UPDATE conversations SET metadata = '{}' WHERE n = :n"),
    "runs": ("agent_runs", "DELETE FROM agent_runs WHERE n = :n"),
    "calls": ("agent_calls", "UPDATE agent_calls SET output = 'null' WHERE n = :n"),
    "decisions": ("approval_decisions", "DELETE FROM approval_decisions WHERE n = :n"),
    "events": (
        "",
        "DELETE FROM events WHERE link = :n AND"
        " iif(json_valid(body), json_type(body, '$.sequence_number') IS NOT 'integer', 1)",
    ),
}
"""By kind of a record that cannot be read: its table, and the statement that repairs or deletes it."""


def recover_database(file: Path, target: Path, progress: ReportProgress) -> RecoveryReport:
    """Copy the readable rows of `file` into a new database.

    Raises NotFound if there is no such file, InvalidUsage if `target` exists, StoreFault if `target` cannot be
    written or `file` has no row of convo; no new file is left then.
    """
    if not file.exists():
        raise NotFound("database", str(file), hint=STORE_OPTION_HINT)
    if not file.is_file():  # reading a pipe would block
        raise StoreUnavailable(f"{file} is not a regular file", hint=STORE_OPTION_HINT)
    with translate_errors(file), new_database(target) as db:
        db.execute(f"PRAGMA page_size = {connection.PAGE_SIZE_BYTES}")
        connection.migrate_schema(db)
        db.execute("CREATE TEMP TABLE gaps (n INTEGER PRIMARY KEY, item INTEGER)")
        db.execute("BEGIN")
        is_store = copy_rows(file, target, db, progress)
        report = _RowRepair(db, progress).run()
        if not any(report.row_counts.values()) and not is_store:
            raise StoreUnavailable(f"{file} contains no rows of convo; nothing was written", hint=STORE_OPTION_HINT)
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = OFF")
        return report


class _RowRepair:
    """Restore every rule of a store over rows that may refer to lost ones."""

    def __init__(self, db: sqlite3.Connection, progress: ReportProgress) -> None:
        self._db, self._progress = db, progress
        self._execute = db.execute
        self._tenants: dict[int, tuple[str, int]] = {}
        self._complete: list[NamedSession] = []
        self._truncated: list[TruncatedSession] = []
        self._lost: list[NamedSession] = []
        self._recreated: list[NamedSession] = []

    def run(self) -> RecoveryReport:
        damaged = [(kind, *row) for kind in REPAIRS for row in check.iter_damaged_rows(self._db, kind)]
        steps = (
            self._repair_tenants, self._repair_items, self._repair_nodes, self._repair_records,
            self._repair_sessions, self._repair_conversations, self._keep_unused_items, self._fill_indexes,
        )  # fmt: skip
        for done, step in enumerate(steps):
            self._progress("rows", done, len(steps))
            step()
        repaired: list[DamagedRow] = []
        omitted: list[DamagedRow] = []
        for kind, n, error in damaged:
            if _is_reported_as_session(kind, error):
                continue
            table, is_complete = REPAIRS[kind][0], "saw IS NOT NULL" if kind == "responses" else "1"
            is_kept = table and self._value(f"SELECT 1 FROM {table} WHERE n = ? AND {is_complete}", n)
            (repaired if is_kept else omitted).append(error)
        row_counts = {table: self._value(f"SELECT count(*) FROM {table}") for table in check.COUNTED_TABLES}
        sessions = self._complete, self._truncated, self._lost, self._recreated
        return RecoveryReport(row_counts, *sessions, repaired, omitted)

    # -- tenants, items and nodes -----------------------------------------------------------------

    def _repair_tenants(self) -> None:
        """Give every tenant that has nodes or items a name and a root."""
        names: dict[int, str] = dict(self._all("SELECT n, name FROM tenants"))
        for (n,) in self._all("SELECT tenant FROM nodes UNION SELECT tenant FROM items"):
            if n not in names:
                names[n] = f"recovered-{n}" if "local" in names.values() else "local"
                self._execute("INSERT INTO tenants (n, name) VALUES (?, ?)", (n, names[n]))
        for n, name in names.items():
            key = bytes.fromhex(root_key(name))
            root = self._value("SELECT n FROM nodes WHERE tenant = ? AND substr(key, 1, 16) = ?", n, key[:16])
            self._execute("DELETE FROM nodes WHERE tenant = ? AND parent IS NULL OR n = ?", (n, root))
            root = self._execute("INSERT INTO nodes (n, tenant, key) VALUES (?, ?, ?)", (root, n, key)).lastrowid
            assert root
            self._tenants[n] = name, root

    def _repair_items(self) -> None:
        """Delete items that are not JSON, and index the others by their hash and terms."""
        for n, tenant in self._all("SELECT n, tenant FROM items ORDER BY n"):
            body = self._value("SELECT body FROM items WHERE n = ?", n)
            hashed = check.hash_item_text(body)
            short = hashed and tenant_rows.short_hash(hashed)
            existing = self._value("SELECT item FROM hashes WHERE tenant = ? AND hash = ?", tenant, short)
            if short is None or existing is not None:  # damage can change an item into another one
                self._execute("UPDATE nodes SET item = ? WHERE item = ?", (existing, n))
                self._execute("DELETE FROM items WHERE n = ?", (n,))
                continue
            self._execute("INSERT INTO hashes (tenant, hash, item) VALUES (?, ?, ?)", (tenant, short, n))
            if terms := tokenize_item(decode_json(body)):
                self._execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (n, terms))

    def _repair_nodes(self) -> None:
        """Record as gaps the nodes whose key is not that of their parent and their item."""
        self._execute("DELETE FROM nodes WHERE length(key) <> 32")
        for n, tenant, parent, item, erased in self._all(
            "SELECT n, tenant, parent, item, erased FROM nodes ORDER BY n"
        ):
            name, root = self._tenants[tenant]
            if n == root:
                continue
            select_parent = "SELECT key FROM nodes WHERE n = ? AND tenant = ? AND (n < ? OR n = ?)"
            parent_key = self._value(select_parent, parent, tenant, n, root)
            if parent_key is None:  # it may be the root, which may have another rowid now
                self._execute("UPDATE nodes SET parent = ? WHERE n = ?", (root, n))
            elif item is None and erased is not None:
                continue  # its item was deleted
            body = self._value("SELECT body FROM items WHERE n = ? AND tenant = ?", item, tenant)
            hashed = check.hash_item_text(body) if body else None
            before = Key(parent_key.hex()) if parent_key else root_key(name)
            key = bytes.fromhex(child_key(before, hashed)) if hashed else b""
            # the first half of a key identifies a node, as in the index: damage of the second half is repaired
            matching = "UPDATE nodes SET key = ? WHERE n = ? AND substr(key, 1, 16) = ?"
            if not self._execute(matching, (key, n, key[:16])).rowcount:
                self._execute("UPDATE nodes SET item = NULL, erased = coalesce(erased, '') WHERE n = ?", (n,))
                self._execute("INSERT INTO gaps (n, item) VALUES (?, ?)", (n, item))

    # -- records ----------------------------------------------------------------------------------

    def _repair_records(self) -> None:
        """Delete contents that are not those of their hash; repair or delete the records that cannot be read."""
        for table, column in (("repeated", "CAST(body AS BLOB)"), ("file_contents", "content")):
            for n, stored in self._all(f"SELECT n, hash FROM {table}"):
                hashed = sha256(self._value(f"SELECT {column} FROM {table} WHERE n = ?", n)).digest()
                if sum(map(eq, stored, hashed)) >= len(hashed) // 2:  # so many bytes show that only the hash is damaged
                    self._execute(f"UPDATE OR IGNORE {table} SET hash = ? WHERE n = ?", (hashed, n))
                self._execute(f"DELETE FROM {table} WHERE n = ? AND hash <> ?", (n, hashed))
        unknown = {"record": UNKNOWN_RECORD, "model": UNKNOWN_MODEL, "route": UNKNOWN_ROUTE}
        for tenant, name in self._execute(RECREATE_SESSIONS, unknown).fetchall():
            self._recreated.append(NamedSession(self._tenants[tenant][0], name))
        self._execute(RESTORE_CONVERSATION_HEADS)
        self._clear_references()
        self._execute("UPDATE links SET saw = (SELECT parent FROM nodes WHERE n = head) WHERE saw IS NULL")
        self._execute("UPDATE links SET head = saw WHERE head IS NULL")
        self._execute("UPDATE links SET (route, parameters, status) = (NULL, NULL, NULL) WHERE saw IS NULL")
        for tenant in self._tenants:
            row = tenant, sha256(UNKNOWN_ROUTE.encode()).digest(), UNKNOWN_ROUTE
            self._execute("INSERT OR IGNORE INTO repeated (tenant, hash, body) VALUES (?, ?, ?)", row)
        for kind, (_, statement) in REPAIRS.items():
            for n, error in list(check.iter_damaged_rows(self._db, kind)):
                if not _is_reported_as_session(kind, error):
                    self._execute(statement, {**unknown, "n": n})
        self._clear_references()

    def _clear_references(self) -> None:
        """Clear each reference to a row that is missing or another tenant's; delete rows that must have it."""
        complete = "SELECT n FROM links WHERE saw IS NOT NULL OR head IS NOT NULL"
        self._execute(
            "INSERT OR IGNORE INTO runs (tenant, link, ended_at)"
            f" SELECT tenant, link, 0.0 FROM events WHERE link IN ({complete})"
        )
        self._execute(f"DELETE FROM runs WHERE link NOT IN ({complete})")
        tables = [name for (name,) in self._all("SELECT name FROM pragma_table_list WHERE schema = 'main' AND strict")]
        changes = -1
        while changes != self._db.total_changes:
            changes = self._db.total_changes
            for table in tables:
                columns = self._all(f"PRAGMA table_info({table})")
                required = {name for _, name, _, is_required, _, key in columns if is_required or key}
                for _, _, parent, column, *_ in self._all(f"PRAGMA foreign_key_list({table})"):
                    key = "link" if parent == "runs" else "n"
                    tenant = "" if parent == "tenants" else f"AND up.tenant = {table}.tenant"
                    change = f"DELETE FROM {table}" if column in required else f"UPDATE {table} SET {column} = NULL"
                    self._execute(
                        f"{change} WHERE {column} IS NOT NULL AND NOT EXISTS"
                        f" (SELECT 1 FROM {parent} AS up WHERE up.{key} = {table}.{column} {tenant})"
                    )
        self._execute("DELETE FROM file_contents WHERE n NOT IN (SELECT content FROM files)")
        self._execute(
            "DELETE FROM sessions WHERE coalesce(record, head) IS NULL AND n NOT IN"
            " (SELECT session FROM links WHERE session IS NOT NULL)"
        )

    # -- histories --------------------------------------------------------------------------------

    def _repair_sessions(self) -> None:
        """Cut each session at the first gap of its history; the items after it become a session of their own."""
        sessions = self._all("SELECT n, tenant, name, head, record FROM sessions WHERE record IS NOT NULL ORDER BY n")
        for n, tenant, name, head, record in sessions:
            kept, rest = self._cut(tenant, head, session=n)
            session = NamedSession(self._tenants[tenant][0], name)
            if kept[-1] == head:
                if session not in self._recreated:
                    self._complete.append(session)
                continue
            new_head, item_count, rest_name = kept[-1], len(kept) - 1, ""
            if rest and not item_count:  # only its start is lost
                new_head, item_count, rest = self._insert_items(tenant, rest), len(rest), []
            if rest:
                rest_name = self._insert_session(tenant, f"{name}-rest", rest, decode_json(record)[1])
            self._execute(
                "UPDATE sessions SET (head, mark, written) = (?, ?, NULL) WHERE n = ?", (new_head, new_head, n)
            )
            if item_count:
                self._truncated.append(TruncatedSession(*session, item_count, rest_name, len(rest)))
            else:
                self._lost.append(session)

    def _repair_conversations(self) -> None:
        """Cut each conversation at the first gap of its history, and give every item on its path an id."""
        for n, tenant, head in self._all("SELECT n, tenant, head FROM conversations"):
            kept, _ = self._cut(tenant, head)
            self._execute("UPDATE conversations SET head = ?, length = ? WHERE n = ?", (kept[-1], len(kept) - 1, n))
            nodes = "(SELECT value FROM json_each(:nodes))"
            values = {"n": n, "nodes": encode_json(kept[1:])}
            self._execute(f"DELETE FROM members WHERE conversation = :n AND node NOT IN {nodes}", values)
            self._execute(
                "INSERT OR IGNORE INTO members (tenant, conversation, node, id)"
                " SELECT nodes.tenant, :n, nodes.n, 'msg_' || lower(hex(substr(key, 1, 16))) FROM nodes"
                f" LEFT JOIN items ON items.n = item WHERE nodes.n IN {nodes}"
                " AND coalesce(erased, '') = '' AND iif(json_valid(body), json_type(body, '$.id'), '') IS NOT 'text'",
                values,
            )

    def _cut(self, tenant: int, head: int | None, session: int | None = None) -> tuple[list[int], list[Item]]:
        """Return the nodes of a history up to its first gap, with the root, and the readable items after the gap.

        session:  the session whose last response with an intact start is used if the head does not lead to the root
        """
        kept, rest = self._split_path(head)
        if not kept or (rest and len(kept) == 1):
            heads = (
                "SELECT head FROM links WHERE session = ? UNION SELECT saw FROM links WHERE session = ? ORDER BY 1 DESC"
            )
            for (node,) in self._all(heads, session, session):
                before, after = self._split_path(node)
                rest = rest or after
                if len(before) > 1:
                    kept = before
                    break
        return [n for n, *_ in kept] or [self._tenants[tenant][1]], self._load_items(item for _, item, _ in rest)

    def _split_path(self, head: int | None) -> tuple[list[Row], list[Row]]:
        """Return the nodes from the root to the first gap, and the others."""
        path = self._all(SELECT_PATH_FROM_ROOT, head)
        index = next((index for index, (*_, is_gap) in enumerate(path) if is_gap), len(path))
        return path[:index], path[index:]

    def _keep_unused_items(self) -> None:
        """Create a session of the items that are on no path, in the order in which they were stored."""
        for tenant, (tenant_name, _) in self._tenants.items():
            if items := self._load_items(n for (n,) in self._all(SELECT_UNUSED_ITEMS, tenant)):
                name = self._insert_session(tenant, "recovered-items", items, UNKNOWN_MODEL)
                self._recreated.append(NamedSession(tenant_name, name))

    def _load_items(self, rowids: Iterable[int | None]) -> list[Item]:
        bodies = (self._value("SELECT body FROM items WHERE n = ?", n) for n in rowids)
        return [decode_json(body) for body in bodies if body is not None]

    def _insert_items(self, tenant: int, items: Sequence[Item]) -> int:
        """Append items to the root, and return the rowid of the last node."""
        name, node = self._tenants[tenant]
        t, key = TenantConnection(self._db, tenant, root_key(name), {}), root_key(name)
        for item in items:
            child = tree.insert_missing_nodes(t, AppendItems(key, (item,)))
            # it can be a gap below a node whose key is damaged: now it is filled
            self._execute("UPDATE nodes SET parent = ? WHERE n = ?", (node, child))
            self._execute("DELETE FROM gaps WHERE n = ?", (child,))
            node, key = child, child_key(key, item_hash(item))
        return node

    def _insert_session(self, tenant: int, name: str, items: Sequence[Item], model: str) -> str:
        """Insert a session with these items; return its name, with a number if there is another one of this name."""
        head = self._insert_items(tenant, items)
        if self._value("SELECT 1 FROM sessions WHERE tenant = ? AND name = ?", tenant, name):
            name = f"{name}-{head}"
        self._execute(
            "INSERT INTO sessions (tenant, id, name, head, mark, used_at, used, record)"
            " VALUES (?1, 'ses_' || lower(hex(randomblob(12))), ?2, ?3, ?3, 0, 0, json_set(?4, '$[1]', ?5))",
            (tenant, name, head, UNKNOWN_RECORD, model),
        )
        return name

    def _fill_indexes(self) -> None:
        self._execute("UPDATE sessions SET mark = head WHERE mark IS NULL")
        self._execute("UPDATE links SET title = NULL")  # the columns of lists are computed again from what is left
        self._execute(
            "DELETE FROM repeated WHERE n NOT IN (SELECT route FROM links WHERE route IS NOT NULL"
            " UNION SELECT parameters FROM links WHERE parameters IS NOT NULL)"
        )
        for backfill in connection.BACKFILLS.values():
            backfill(self._db)

    def _all(self, sql: str, *values: object) -> list[Row]:
        return self._db.execute(sql, values).fetchall()

    def _value(self, sql: str, *values: object) -> Any:
        row = self._db.execute(sql, values).fetchone()
        return row[0] if row else None


def _is_reported_as_session(kind: str, error: DamagedRow) -> bool:
    """Return whether a session lost a part of its history, but not its record."""
    return kind == "sessions" and error.problem.endswith("head is missing")

"""Copy every readable row of a damaged file into a new database.

`page_reader` reads the pages of the file, `row_reader` copies their rows, and `_RowRepair` restores the rules of a
store. Keys are hashes of the path before them, so a changed item or node is noticed. A session whose history is
broken is cut after its last intact node; the items after the break become a session of their own.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from convo.errors import DamagedRow, NotFound, StoreUnavailable
from convo.history.canonical import item_hash
from convo.history.items import Item, Json, user_message
from convo.history.records import EMBEDDED_SCOPE, LINK_STATUSES
from convo.history.tree import Key, child_key, root_key
from convo.runtime import ReportProgress
from convo.stores import base
from convo.stores.base import AppendItems, NamedSession, RecoveryReport, TruncatedSession
from convo.stores.codec import (
    RECORD_PROBLEMS,
    decode_approval_decision,
    decode_json,
    encode_json,
    is_route,
    is_session_record,
    is_usage,
    tokenize_item,
)
from convo.stores.sqlite import check, connection, tenant_rows, tree
from convo.stores.sqlite.backup import new_database
from convo.stores.sqlite.connection import translate_errors
from convo.stores.sqlite.page_reader import PageReader
from convo.stores.sqlite.row_reader import HALF_KEY_BYTES, copy_rows
from convo.stores.sqlite.tenant_rows import Row, TenantConnection

ROWS_PER_BATCH = 500

CREATE_REPAIR_TABLES = """
CREATE TABLE temp.broken (n INTEGER PRIMARY KEY, why TEXT NOT NULL, item INTEGER);
CREATE TABLE temp.referenced (n INTEGER PRIMARY KEY);
"""
"""Tables for the repair. `broken` has the nodes whose path to the root is not the stored one.

why:   "lost" (its item is missing), "changed" (its item is another one, recorded in `item`),
       "moved" (its parent is missing)
"""

UNKNOWN_ROUTE = [
    "unknown/unknown",
    "session",
    EMBEDDED_SCOPE.url,
    EMBEDDED_SCOPE.organisation,
    EMBEDDED_SCOPE.project,
    None,
    False,
    None,
]
UNKNOWN_RECORD = [
    "session",
    "unknown/unknown",
    0.0,
    EMBEDDED_SCOPE.url,
    EMBEDDED_SCOPE.organisation,
    EMBEDDED_SCOPE.project,
    None,
    None,
]

SELECT_PATH_FROM_ROOT = """
WITH RECURSIVE up (n, parent, item, depth) AS (
    SELECT n, parent, item, 0 FROM nodes WHERE n = :head
    UNION ALL SELECT nodes.n, nodes.parent, nodes.item, depth + 1 FROM up JOIN nodes ON nodes.n = up.parent
)
SELECT up.n, up.parent, up.item, broken.why, broken.item FROM up LEFT JOIN broken ON broken.n = up.n ORDER BY depth DESC
"""
"""The nodes from the root to a head. There is no cycle: every parent's rowid was checked to be smaller."""

INSERT_REFERENCED_NODES = """
INSERT OR IGNORE INTO referenced
SELECT saw FROM links WHERE saw IS NOT NULL UNION SELECT head FROM links WHERE head IS NOT NULL
UNION SELECT sent_body FROM links WHERE sent_body IS NOT NULL
UNION SELECT head FROM sessions WHERE head IS NOT NULL UNION SELECT mark FROM sessions WHERE mark IS NOT NULL
UNION SELECT written FROM sessions WHERE written IS NOT NULL UNION SELECT head FROM conversations
UNION SELECT parent FROM nodes WHERE parent IS NOT NULL
"""

STORE_OPTION_HINT = "name the file with --store sqlite:PATH"


def recover_database(file: Path, target: Path, progress: ReportProgress) -> RecoveryReport:
    """Copy the readable rows of `file` into a new database.

    Raises NotFound if there is no such file, InvalidUsage if `target` exists, StoreFault if `target` cannot be
    written or `file` has no row of convo; no new file is left then.
    """
    if not file.exists():
        raise NotFound("database", str(file), hint=STORE_OPTION_HINT)
    if not file.is_file():  # reading a pipe would block
        raise StoreUnavailable(f"{file} is not a regular file", hint=STORE_OPTION_HINT)
    with translate_errors(file), PageReader(file) as pages, new_database(target) as db:
        db.execute(f"PRAGMA page_size = {connection.PAGE_SIZE_BYTES}")
        connection.migrate_schema(db)
        db.executescript(CREATE_REPAIR_TABLES)
        db.execute("BEGIN")
        copy_rows(pages, db, progress)
        report = _RowRepair(db, progress).run()
        if not any(report.row_counts.values()) and pages.application_id != connection.APPLICATION_ID:
            raise StoreUnavailable(f"{file} contains no rows of convo; nothing was written", hint=STORE_OPTION_HINT)
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = OFF")
        return report


KEPT_ROW_QUERIES = {
    "session": "SELECT 1 FROM sessions WHERE name = ? AND record IS NOT NULL",
    "response": "SELECT 1 FROM links WHERE id = ? AND saw IS NOT NULL",
    "conversation": "SELECT 1 FROM conversations WHERE id = ?",
    "run": "SELECT 1 FROM agent_runs WHERE id = ?",
    "tool call": "SELECT 1 FROM agent_calls JOIN agent_runs ON agent_runs.n = run"
    " WHERE agent_runs.id = ? AND agent_calls.id = ?",
}
"""Queries for the row with the key of a damaged one, by its kind; a damaged event or decision is always left out."""


class _BrokenHistory(NamedTuple):
    """A history with a broken path.

    last_intact_node:  the last node with an intact path to the root; None if there is none
    remaining_items:   readable items after it, oldest first
    is_start_lost:     the path was cut off from the root, and begins there now
    """

    last_intact_node: int | None
    remaining_items: list[Item]
    is_start_lost: bool = False


class _RowRepair:
    """Restore every rule of a store over rows that may reference lost ones."""

    def __init__(self, db: sqlite3.Connection, progress: ReportProgress) -> None:
        self._db, self._progress = db, progress
        self._tenants: dict[int, TenantConnection] = {}
        self._roots: dict[int, int] = {}
        self._invalid_texts: dict[int, str] = {}
        self._complete: list[NamedSession] = []
        self._truncated: list[TruncatedSession] = []
        self._lost: list[NamedSession] = []
        self._recreated: list[NamedSession] = []

    def run(self) -> RecoveryReport:
        steps: tuple[Callable[[], None], ...] = (
            self._repair_tenants, self._repair_items, self._restore_nodes, self._repair_nodes,
            self._repair_records, self._repair_links, self._restore_sessions, self._repair_sessions,
            self._repair_conversations, self._repair_runs, self._repair_files, self._keep_unreferenced_nodes,
            self._delete_invalid_rows,
        )  # fmt: skip
        damaged = {
            (error.table, error.key): error
            for kind in check.RECORD_DECODERS
            for error in check.iter_damaged_rows(self._db, kind)
        }
        for done, step in enumerate(steps):
            self._progress("rows", done, len(steps))
            step()
        repaired, omitted = self._sort_damaged_rows(damaged.values())
        row_counts = {table: self._fetch_value(f"SELECT count(*) FROM {table}") for table in check.COUNTED_TABLES}
        sessions = self._complete, self._truncated, self._lost, self._recreated
        return RecoveryReport(row_counts, *sessions, repaired, omitted)

    def _sort_damaged_rows(self, damaged: Iterable[DamagedRow]) -> tuple[list[DamagedRow], list[DamagedRow]]:
        """Sort the rows that could not be read before the repair into those that can be read now, and the others.

        A session that only lost a part of its history is not among them: it is reported as a session.
        """
        repaired: list[DamagedRow] = []
        omitted: list[DamagedRow] = []
        for error in damaged:
            if error.table == "session" and error.problem not in RECORD_PROBLEMS:
                continue
            keys = error.key.split(" ", 1) if error.table == "tool call" else [error.key]
            is_kept = error.table in KEPT_ROW_QUERIES and self._fetch_value(KEPT_ROW_QUERIES[error.table], *keys)
            (repaired if is_kept else omitted).append(error)
        return repaired, omitted

    # -- tenants and items ------------------------------------------------------------------------

    def _repair_tenants(self) -> None:
        """Give every tenant that has nodes or items a name and a root."""
        names: dict[int, str] = dict(self._fetch_all("SELECT n, name FROM tenants"))
        for (n,) in self._fetch_all("SELECT tenant FROM nodes UNION SELECT tenant FROM items"):
            if n not in names and n > 0:
                root_keys = {
                    bytes(key)
                    for (key,) in self._fetch_all("SELECT key FROM nodes WHERE tenant = ? AND parent IS NULL", n)
                }
                is_local_unused = "local" not in names.values()
                is_local = bytes.fromhex(root_key("local")) in root_keys or (is_local_unused and len(names) == 0)
                names[n] = "local" if is_local and is_local_unused else f"recovered-{n}"
                self._execute("INSERT INTO tenants (n, name) VALUES (?, ?)", n, names[n])
        for n, name in names.items():
            root = root_key(name)
            self._tenants[n] = TenantConnection(self._db, n, root, {})
            self._roots[n] = self._find_or_create_root(n, bytes.fromhex(root))
        self._execute("DELETE FROM nodes WHERE tenant NOT IN (SELECT n FROM tenants)")

    def _find_or_create_root(self, tenant: int, key: bytes) -> int:
        """Return the rowid of a tenant's root, which is restored if it is lost."""
        root = self._fetch_value("SELECT n FROM nodes WHERE tenant = ? AND parent IS NULL AND key = ?", tenant, key)
        if root is not None:
            self._execute("UPDATE nodes SET item = NULL, erased = NULL WHERE n = ?", root)
            return int(root)
        indexed = self._fetch_value("SELECT n FROM marks WHERE tenant = ? AND hash = ?", tenant, key[:HALF_KEY_BYTES])
        if indexed is not None and self._fetch_value("SELECT 1 FROM nodes WHERE n = ?", indexed) is None:
            self._execute("INSERT INTO nodes (n, tenant, key) VALUES (?, ?, ?)", indexed, tenant, key)
            return int(indexed)
        # Keys of the root's children are hashes over its key, so a matching child's parent is the lost root.
        sql = (
            "SELECT parent, key, body FROM nodes JOIN items ON items.n = item WHERE nodes.tenant = ? AND parent NOT IN"
            " (SELECT n FROM nodes WHERE parent IS NOT NULL) ORDER BY nodes.n LIMIT 1000"
        )
        for parent, child, body in self._fetch_all(sql, tenant):
            hashed = check.hash_item_text(body)
            if hashed and child_key(Key(key.hex()), hashed) == child.hex():
                self._execute("INSERT OR REPLACE INTO nodes (n, tenant, key) VALUES (?, ?, ?)", parent, tenant, key)
                return int(parent)
        first_rowid = self._fetch_value("SELECT min(n) FROM nodes") or 2
        rowid = first_rowid - 1 if first_rowid > 1 else self._fetch_value("SELECT max(n) + 1 FROM nodes")
        self._execute("INSERT INTO nodes (n, tenant, key) VALUES (?, ?, ?)", rowid, tenant, key)
        return int(rowid)

    def _repair_items(self) -> None:
        """Index items by their hash, id and terms; the text of an invalid item is remembered for its session."""
        for n, tenant, body in self._iter_rows("SELECT n, tenant, body FROM items WHERE n > ? ORDER BY n LIMIT ?"):
            t, hashed = self._tenants.get(tenant), check.hash_item_text(body)
            if t is None or hashed is None:
                if t is not None:
                    self._invalid_texts[n] = body
                self._execute("DELETE FROM items WHERE n = ?", n)
                continue
            existing = t.fetch_value(
                "SELECT item FROM hashes WHERE tenant = ? AND hash = ?", tenant, tenant_rows.short_hash(hashed)
            )
            if existing is not None:  # a duplicate: damage changed another item into this one
                self._execute("UPDATE nodes SET item = ? WHERE item = ?", existing, n)
                self._execute("DELETE FROM items WHERE n = ?", n)
                continue
            self._execute(
                "INSERT INTO hashes (tenant, hash, item) VALUES (?, ?, ?)", tenant, tenant_rows.short_hash(hashed), n
            )
            item = decode_json(body)
            tenant_rows.index_item_id(t, base.own_item_id(item), n)
            if terms := tokenize_item(item):
                self._execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", n, terms)

    # -- nodes ------------------------------------------------------------------------------------

    def _restore_nodes(self) -> None:
        """Restore nodes whose row is lost from indexes, if the key proves that the entries belong together."""
        sql = (
            "SELECT marks.n, marks.tenant, marks.hash, up.named, of.named FROM marks"
            " JOIN pairs AS up ON up.tree = 'nodes_by_parent' AND up.n = marks.n"
            " JOIN pairs AS of ON of.tree = 'nodes_by_item' AND of.n = marks.n"
            " WHERE marks.n NOT IN (SELECT n FROM nodes) ORDER BY marks.n"
        )
        for n, tenant, half_key, parent, item in self._fetch_all(sql):
            parent_key = self._fetch_value("SELECT key FROM nodes WHERE n = ? AND tenant = ?", parent, tenant)
            body = self._fetch_value("SELECT body FROM items WHERE n = ? AND tenant = ?", item, tenant)
            hashed = check.hash_item_text(body) if body else None
            if parent_key is None or hashed is None:
                continue
            key = bytes.fromhex(child_key(Key(parent_key.hex()), hashed))
            if key[:HALF_KEY_BYTES] == half_key:
                row = n, tenant, parent, item, key
                self._execute("INSERT OR IGNORE INTO nodes (n, tenant, parent, item, key) VALUES (?, ?, ?, ?, ?)", *row)

    def _repair_nodes(self) -> None:
        """Give every node a parent and a key computed from it; a node that cannot have them is recorded as broken."""
        rekeyed: set[int] = set()
        sql = "SELECT n, tenant, parent, item, key, erased FROM nodes WHERE n > ? ORDER BY n LIMIT ?"
        for n, tenant, parent, item, key, erased in self._iter_rows(sql):
            if n == self._roots[tenant]:
                continue
            parent_key = self._fetch_value(
                "SELECT key FROM nodes WHERE n = ? AND tenant = ? AND n < ?", parent, tenant, n
            )
            body = self._fetch_value("SELECT body FROM items WHERE n = ? AND tenant = ?", item, tenant)
            if parent_key is None:
                parent, parent_key = self._roots[tenant], bytes.fromhex(self._tenants[tenant].root)
                self._execute("UPDATE nodes SET parent = ? WHERE n = ?", parent, n)
                self._record_broken_node(n, "moved")
                rekeyed.add(n)
            if body is None:
                if item is not None:
                    self._execute("UPDATE nodes SET item = NULL, erased = '' WHERE n = ?", n)
                    self._record_broken_node(n, "lost", item if item in self._invalid_texts else None)
                elif erased is None:
                    self._execute("UPDATE nodes SET erased = '' WHERE n = ?", n)
                    self._record_broken_node(n, "lost")
                continue
            self._rekey(n, tenant, parent, item, bytes.fromhex(_child_key(parent_key, body)), key, rekeyed)

    def _rekey(
        self, n: int, tenant: int, parent: int, item: int, correct_key: bytes, key: bytes, rekeyed: set[int]
    ) -> None:
        """Write a node's correct key, or remove an item that is not the node's original one."""
        if correct_key == key:
            rekeyed.discard(n)
            if self._fetch_value("SELECT why FROM broken WHERE n = ?", n) == "moved":
                self._execute("DELETE FROM broken WHERE n = ?", n)  # the root is its true parent
            return
        if n not in rekeyed and parent not in rekeyed and not self._has_stored_hash(item):
            own_id = base.own_item_id(decode_json(self._fetch_value("SELECT body FROM items WHERE n = ?", item)))
            self._execute("UPDATE nodes SET item = NULL, erased = ? WHERE n = ?", own_id, n)
            self._record_broken_node(n, "changed", item)
            return
        if parent in rekeyed:
            rekeyed.add(n)
        duplicate = self._fetch_value(
            "SELECT n FROM nodes WHERE tenant = ? AND substr(key, 1, 16) = ? AND n <> ?",
            tenant,
            correct_key[:HALF_KEY_BYTES],
            n,
        )
        if duplicate is None:
            self._execute("UPDATE nodes SET key = ? WHERE n = ?", correct_key, n)
        elif duplicate < n:
            self._merge_nodes(n, duplicate)
        else:
            self._merge_nodes(duplicate, n)
            self._execute("UPDATE nodes SET key = ? WHERE n = ?", correct_key, n)

    def _has_stored_hash(self, item: int) -> bool:
        """Return whether the damaged file stored this item under the hash of its present text."""
        hashed = item_hash(decode_json(self._fetch_value("SELECT body FROM items WHERE n = ?", item)))
        stored_hash = tenant_rows.short_hash(hashed)
        return self._fetch_value("SELECT 1 FROM marks WHERE n = ? AND hash = ?", item, stored_hash) is not None

    def _merge_nodes(self, n: int, target: int) -> None:
        """Move all references from a node to another node with the same key."""
        for table, column in (
            ("nodes", "parent"), ("links", "saw"), ("links", "head"), ("links", "sent_body"), ("sessions", "head"),
            ("sessions", "mark"), ("sessions", "written"), ("conversations", "head"),
        ):  # fmt: skip
            self._execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", target, n)
        self._execute("DELETE FROM members WHERE node = ?", n)
        self._execute("DELETE FROM nodes WHERE n = ?", n)
        self._execute("DELETE FROM broken WHERE n = ?", n)

    def _record_broken_node(self, n: int, reason: str, item: int | None = None) -> None:
        self._execute("INSERT OR REPLACE INTO broken (n, why, item) VALUES (?, ?, ?)", n, reason, item)

    # -- records, links ---------------------------------------------------------------------------

    def _repair_records(self) -> None:
        """Replace or delete invalid JSON; write the hash of JSON that is stored once."""
        for n, tenant, body in self._iter_rows("SELECT n, tenant, body FROM repeated WHERE n > ? ORDER BY n LIMIT ?"):
            if tenant not in self._tenants or not check.is_valid_json(body):
                self._execute("DELETE FROM repeated WHERE n = ?", n)
                continue
            self._execute("UPDATE OR REPLACE repeated SET hash = ? WHERE n = ?", sha256(body.encode()).digest(), n)
        for table, column, replacement, is_valid in (
            ("links", "error", None, is_json_object),
            ("conversations", "metadata", "{}", is_json_object),
            ("agent_calls", "output", "null", check.is_valid_json),
        ):
            for n, text in self._fetch_all(f"SELECT n, {column} FROM {table} WHERE {column} IS NOT NULL"):
                if not is_valid(text):
                    self._execute(f"UPDATE {table} SET {column} = ? WHERE n = ?", replacement, n)
        for link, text in self._fetch_all("SELECT link, body FROM events"):
            if not is_event(text):
                self._execute("DELETE FROM events WHERE link = ? AND body = ?", link, text)
        for n, decided_at, text in self._fetch_all("SELECT n, decided_at, body FROM approval_decisions"):
            if not is_approval_decision(decided_at, text):
                self._execute("DELETE FROM approval_decisions WHERE n = ?", n)
        for run, text in self._fetch_all("SELECT run, body FROM agent_documents"):
            if not is_json_object(text):
                self._execute("DELETE FROM agent_documents WHERE run = ?", run)

    def _repair_links(self) -> None:
        """Let every link reference existing nodes, a route and parameters; a row with only an id stays one."""
        columns = "n, tenant, parent, saw, head, sent_body, route, parameters, previous, usage, status"
        for row in self._iter_rows(f"SELECT {columns} FROM links WHERE n > ? ORDER BY n LIMIT ?"):
            n, tenant, parent, saw, head, sent_body, route, parameters, previous, usage, status = row
            if tenant not in self._tenants:
                self._execute("DELETE FROM links WHERE n = ?", n)
                continue
            new_saw, new_head = self._find_rowid("nodes", saw, tenant), self._find_rowid("nodes", head, tenant)
            if new_saw is None and new_head is not None:
                new_saw = self._fetch_value("SELECT parent FROM nodes WHERE n = ?", new_head) or new_head
            new_head = new_saw if new_head is None else new_head
            new_parent = self._find_rowid("links", parent, tenant)
            new_previous = None if new_parent is None and previous == "" else previous
            new_parameters = parameters if self._is_parameters(parameters, tenant) else None
            self._execute(
                "UPDATE links SET saw = ?, head = ?, sent_body = ?, parent = ?, previous = ?, parameters = ?"
                " WHERE n = ?",
                *(new_saw, new_head, self._find_rowid("nodes", sent_body, tenant)),
                *(new_parent, new_previous, new_parameters, n),
            )
            if new_saw is None:
                self._execute(
                    "UPDATE links SET sent_body = NULL, route = NULL, parameters = NULL, status = NULL WHERE n = ?", n
                )
                continue
            route_members = self._load_route(route, tenant)
            has_usage = usage is not None and route_members is not None and is_usage(route_members, usage)
            self._execute(
                "UPDATE links SET route = ?, usage = ?, status = ?, created_at = coalesce(created_at, 0),"
                " sent = coalesce(sent, 0) WHERE n = ?",
                route if route_members is not None else self._find_or_create_unknown_route(tenant),
                *(usage if has_usage else None, status if status in LINK_STATUSES else "failed", n),
            )
        for n, tenant, body in self._fetch_all(
            "SELECT n, tenant, body FROM repeated WHERE n IN (SELECT route FROM links)"
        ):
            tenant_rows.index_route(self._tenants[tenant], decode_json(body), n)

    def _load_route(self, n: int | None, tenant: int) -> list[Json] | None:
        """Return the route in a row of `repeated`; None if there is no such row, or no route in it."""
        body = self._fetch_value("SELECT body FROM repeated WHERE n = ? AND tenant = ?", n, tenant)
        route = None if body is None else decode_json(body)
        return route if is_route(route) else None

    def _is_parameters(self, n: int | None, tenant: int) -> bool:
        """Return whether the row has parameters: the rowid of lost ones may be that of a new route."""
        body = self._fetch_value("SELECT body FROM repeated WHERE n = ? AND tenant = ?", n, tenant)
        return body is not None and isinstance(decode_json(body), dict)

    def _find_or_create_unknown_route(self, tenant: int) -> int:
        """Return the rowid of the route that replaces a lost one."""
        body = encode_json(UNKNOWN_ROUTE)
        hashed = sha256(body.encode()).digest()
        existing = self._fetch_value("SELECT n FROM repeated WHERE tenant = ? AND hash = ?", tenant, hashed)
        if existing is not None:
            return int(existing)
        rowid = self._execute(
            "INSERT INTO repeated (tenant, hash, body) VALUES (?, ?, ?)", tenant, hashed, body
        ).lastrowid
        assert rowid is not None
        return rowid

    # -- sessions ---------------------------------------------------------------------------------

    def _restore_sessions(self) -> None:
        """Create a record for sessions of which only links, or entries in indexes, are left."""
        self._execute("DELETE FROM sessions WHERE tenant NOT IN (SELECT n FROM tenants)")
        without_record = "record IS NULL AND head IS NOT NULL"  # a removed session has no head either
        self._execute(f"UPDATE sessions SET record = ? WHERE {without_record}", encode_json(UNKNOWN_RECORD))
        lost = self._fetch_all(
            "SELECT session, tenant FROM links WHERE session IS NOT NULL AND saw IS NOT NULL"
            " AND session NOT IN (SELECT n FROM sessions)"
            " UNION SELECT n, tenant FROM labels WHERE tree = 'sessions_by_name' AND label IS NOT NULL"
            " AND n NOT IN (SELECT n FROM sessions) AND tenant IN (SELECT n FROM tenants)"
        )
        for n, tenant in lost:
            last_link = self._db.execute(
                "SELECT head, body, created_at FROM links JOIN repeated ON repeated.n = route"
                " WHERE session = ? AND links.tenant = ? ORDER BY created_at DESC, links.n DESC",
                (n, tenant),
            ).fetchone()
            head, model, created_at = (
                (last_link[0], decode_json(last_link[1])[0], last_link[2])
                if last_link
                else (None, UNKNOWN_RECORD[1], 0.0)
            )
            indexed_head = self._fetch_value("SELECT named FROM pairs WHERE tree = 'sessions_by_head' AND n = ?", n)
            head = self._find_rowid("nodes", indexed_head, tenant) or head or self._roots[tenant]
            record = [UNKNOWN_RECORD[0], model, created_at, *UNKNOWN_RECORD[3:]]
            select_label = "SELECT label FROM labels WHERE tree = ? AND n = ? AND tenant = ?"
            name = self._fetch_value(select_label, "sessions_by_name", n, tenant) or f"recovered-{n}"
            session_id = self._fetch_value(select_label, "sessions_by_id", n, tenant)
            self._insert_session(tenant, name, head, encode_json(record), created_at, n=n, session_id=session_id)
        self._execute("UPDATE links SET session = NULL WHERE session NOT IN (SELECT n FROM sessions)")
        self._execute(
            "UPDATE links SET session = NULL WHERE session IS NOT NULL"
            " AND tenant <> (SELECT tenant FROM sessions WHERE sessions.n = links.session)"
        )

    def _repair_sessions(self) -> None:
        """Cut each session after its last intact node; the items after it become a session of their own."""
        columns = "n, tenant, id, name, head, mark, written, link, used_at, record"
        recreated_names = {session.name for session in self._recreated}
        rows = list(self._fetch_all(f"SELECT {columns} FROM sessions WHERE record IS NOT NULL ORDER BY n"))
        for n, tenant, _, name, head, mark, written, link, used_at, record in rows:
            name = self._unused_session_name(tenant, name, n) if name is None else name
            record = record if is_session_record(record) else encode_json(UNKNOWN_RECORD)
            history = self._recover_history(n, tenant, head)
            new_head = self._roots[tenant] if history.last_intact_node is None else history.last_intact_node
            on_path = {node for node, *_ in self._db.execute(SELECT_PATH_FROM_ROOT, {"head": new_head})}
            new_link = self._find_rowid("links", link, tenant)
            self._execute(
                "UPDATE sessions SET (name, head, mark, written, link, used_at, record) = (?, ?, ?, ?, ?, ?, ?)"
                " WHERE n = ?",
                *(name, new_head, mark if mark in on_path else new_head, written if written in on_path else None),
                *(new_link, used_at if used_at is not None else 0.0, record, n),
            )
            if name not in recreated_names:
                self._report_session(
                    tenant,
                    name,
                    new_head,
                    history,
                    record,
                    used_at,
                    is_complete=new_head == head and not history.remaining_items and not history.is_start_lost,
                )

    def _report_session(
        self,
        tenant: int,
        name: str,
        new_head: int,
        history: _BrokenHistory,
        record: str,
        used_at: float | None,
        *,
        is_complete: bool,
    ) -> None:
        session = NamedSession(self._tenant_name(tenant), name)
        if is_complete:
            self._complete.append(session)
            return
        rest_name = ""
        if history.remaining_items:
            rest_name = self._unused_session_name(tenant, f"{name}-rest", 0)
            head = self._insert_items(tenant, history.remaining_items)
            model = decode_json(record)[1]
            rest_record = [UNKNOWN_RECORD[0], model, used_at or 0.0, *UNKNOWN_RECORD[3:]]
            self._insert_session(tenant, rest_name, head, encode_json(rest_record), used_at or 0.0, is_reported=False)
        item_count = len(self._select_path(new_head)) - 1
        if item_count or rest_name:
            self._truncated.append(TruncatedSession(*session, item_count, rest_name, len(history.remaining_items)))
        else:
            self._lost.append(session)

    def _recover_history(self, session: int, tenant: int, head: int | None) -> _BrokenHistory:
        """Return the readable part of a session's history."""
        paths = [self._select_path(head)] if self._find_rowid("nodes", head, tenant) is not None else []
        if paths and not any(reason for *_, reason, _ in paths[0]):
            return _BrokenHistory(head, [])
        select_heads = "SELECT head FROM links WHERE session = ? AND head IS NOT NULL UNION SELECT saw FROM links"
        rows = self._fetch_all(f"{select_heads} WHERE session = ? AND saw IS NOT NULL", session, session)
        paths += [self._select_path(node) for (node,) in rows]
        intact_path = _longest_intact_path(paths)
        remainder = max((path[_first_broken_index(path) :] for path in paths), key=len, default=[])
        items = self._recover_items(remainder)
        if len(intact_path) > 1:
            return _BrokenHistory(intact_path[-1][0], items)
        if paths and paths[0] and _has_all_items(paths[0]) and head is not None:  # only the start is lost
            return _BrokenHistory(head, [], is_start_lost=True)
        return _BrokenHistory(None, items)

    def _select_path(self, head: int | None) -> list[Row]:
        return self._db.execute(SELECT_PATH_FROM_ROOT, {"head": head}).fetchall()

    def _recover_items(self, path: list[Row]) -> list[Item]:
        """Return the items of the nodes, as far as they can be read."""
        items: list[Item] = []
        for _, _, item, reason, other_item in path:
            if reason == "lost" and other_item in self._invalid_texts:
                text = f"[damaged item; its stored text follows]\n{self._invalid_texts[other_item]}"
                items.append(user_message(text))
                continue
            rowid = other_item if reason == "changed" else item
            if body := self._fetch_value("SELECT body FROM items WHERE n = ?", rowid):
                items.append(decode_json(body))
        return items

    def _insert_session(
        self, tenant: int, name: str, head: int, record: str, used_at: float, *, n: int | None = None,
        session_id: str | None = None, is_reported: bool = True,
    ) -> None:  # fmt: skip
        session_id = session_id or f"ses_{sha256(f'{tenant} {name} {head}'.encode()).hexdigest()[:24]}"
        name = self._unused_session_name(tenant, name, n or 0)
        self._execute(
            "INSERT INTO sessions (n, tenant, id, name, head, mark, used_at, used, record)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)",
            n, tenant, session_id, name, head, head, used_at, record,
        )  # fmt: skip
        if is_reported:
            self._recreated.append(NamedSession(self._tenant_name(tenant), name))

    def _unused_session_name(self, tenant: int, base_name: str | None, n: int) -> str:
        name, number = base_name or f"recovered-{n}", 1
        while self._fetch_value("SELECT 1 FROM sessions WHERE tenant = ? AND name = ? AND n <> ?", tenant, name, n):
            number += 1
            name = f"{base_name or f'recovered-{n}'}-{number}"
        return name

    # -- conversations, runs ----------------------------------------------------------------------

    def _repair_conversations(self) -> None:
        """Cut each conversation after its last intact node, and give every item on its path an id."""
        self._execute("DELETE FROM conversations WHERE tenant NOT IN (SELECT n FROM tenants)")
        for n, tenant, conversation_id, head in list(self._fetch_all("SELECT n, tenant, id, head FROM conversations")):
            t = self._tenants[tenant]
            heads = [head] if self._find_rowid("nodes", head, tenant) is not None else []
            for route in tenant_rows.select_route_rowids(t, conversation_id):
                heads += [rowid for (rowid,) in self._fetch_all("SELECT head FROM links WHERE route = ?", route)]
            paths = [self._select_path(rowid) for rowid in heads]
            intact_path = _longest_intact_path(paths)
            is_start_lost = paths and len(intact_path) <= 1 and _has_all_items(paths[0])
            path = paths[0] if is_start_lost else intact_path
            new_head = path[-1][0] if path else self._roots[tenant]
            self._execute(
                "UPDATE conversations SET head = ?, length = ? WHERE n = ?", new_head, max(len(path) - 1, 0), n
            )
            nodes = [rowid for rowid, *_ in path[1:]]
            self._execute(
                "DELETE FROM members WHERE conversation = ? AND node NOT IN (SELECT value FROM json_each(?))",
                n, encode_json(nodes),
            )  # fmt: skip
            self._assign_item_ids(n, tenant, nodes)
        self._execute("DELETE FROM members WHERE conversation NOT IN (SELECT n FROM conversations)")
        for tenant, node, item in self._fetch_all(
            "SELECT members.tenant, node, item FROM members JOIN nodes ON nodes.n = node WHERE item IS NOT NULL"
        ):
            tenant_rows.index_assigned_ids(self._tenants[tenant], node, item)

    def _assign_item_ids(self, conversation: int, tenant: int, nodes: list[int]) -> None:
        for node in nodes:
            key, erased_id, body, assigned_id = self._db.execute(
                "SELECT key, erased, body, members.id FROM nodes LEFT JOIN items ON items.n = nodes.item"
                " LEFT JOIN members ON members.node = nodes.n AND conversation = ? WHERE nodes.n = ?",
                (conversation, node),
            ).fetchone()
            if assigned_id is None and not erased_id and not (body and base.own_item_id(decode_json(body))):
                self._execute("INSERT INTO members (tenant, conversation, node, id) VALUES (?, ?, ?, ?)",
                          tenant, conversation, node, f"msg_{key.hex()[:HALF_KEY_BYTES * 2]}")  # fmt: skip
        self._execute("UPDATE members SET tenant = ? WHERE conversation = ?", tenant, conversation)

    def _repair_runs(self) -> None:
        """Delete runs, agent runs and events without their parent row; events without a run get one that has ended."""
        complete_links = "SELECT n FROM links WHERE saw IS NOT NULL"
        self._execute(
            "INSERT OR IGNORE INTO runs (tenant, link, ended_at) SELECT DISTINCT tenant, link, 0.0 FROM events"
            f" WHERE link IN ({complete_links})"
        )
        self._execute(f"DELETE FROM runs WHERE link NOT IN ({complete_links})")
        self._execute("DELETE FROM events WHERE link NOT IN (SELECT link FROM runs)")
        self._execute("DELETE FROM agent_runs WHERE n NOT IN (SELECT run FROM agent_documents)")
        statuses = ", ".join("?" for _ in base.AGENT_RUN_STATUSES)
        self._execute(f"DELETE FROM agent_runs WHERE status NOT IN ({statuses})", *base.AGENT_RUN_STATUSES)
        self._execute("DELETE FROM agent_runs WHERE session NOT IN (SELECT n FROM sessions WHERE record IS NOT NULL)")
        self._execute("DELETE FROM agent_documents WHERE run NOT IN (SELECT n FROM agent_runs)")
        self._execute("DELETE FROM agent_calls WHERE run NOT IN (SELECT n FROM agent_runs)")
        self._execute("DELETE FROM approval_decisions WHERE run NOT IN (SELECT n FROM agent_runs)")

    def _repair_files(self) -> None:
        """Delete files without their content, and contents that differ from their hash or that no file has."""
        tenants = "SELECT n FROM tenants"
        self._execute(f"DELETE FROM files WHERE tenant NOT IN ({tenants})")
        for (n,) in self._fetch_all("SELECT n FROM file_contents"):
            hashed, content = self._fetch_all("SELECT hash, content FROM file_contents WHERE n = ?", n)[0]
            if sha256(content).digest() != hashed:
                self._execute("DELETE FROM file_contents WHERE n = ?", n)
        self._execute(
            "DELETE FROM files WHERE NOT EXISTS (SELECT 1 FROM file_contents"
            " WHERE file_contents.n = files.content AND file_contents.tenant = files.tenant)"
        )
        self._execute("DELETE FROM file_contents WHERE n NOT IN (SELECT content FROM files)")

    # -- unreferenced rows ------------------------------------------------------------------------

    def _keep_unreferenced_nodes(self) -> None:
        """Create sessions for histories that nothing references."""
        self._execute(INSERT_REFERENCED_NODES)
        unreferenced = self._fetch_all(
            "SELECT n, tenant FROM nodes WHERE n NOT IN (SELECT n FROM referenced) ORDER BY n"
        )
        for n, tenant in unreferenced:
            if n == self._roots[tenant]:
                continue
            path = self._select_path(n)
            if _has_all_items(path):
                self._insert_session(tenant, f"recovered-{n}", n, encode_json(UNKNOWN_RECORD), 0.0)
            elif items := self._recover_items(path):
                head = self._insert_items(tenant, items)
                self._insert_session(tenant, f"recovered-{n}", head, encode_json(UNKNOWN_RECORD), 0.0)
        self._keep_unlinked_items()

    def _keep_unlinked_items(self) -> None:
        """Create a session of the items whose nodes are lost, in the order in which they were stored."""
        for tenant in self._tenants:
            rows = self._fetch_all(
                "SELECT body FROM items WHERE tenant = ? AND n NOT IN (SELECT item FROM nodes WHERE item IS NOT NULL)"
                " ORDER BY n", tenant)  # fmt: skip
            items = [decode_json(body) for (body,) in rows]
            if items:
                head = self._insert_items(tenant, items)
                self._insert_session(tenant, "recovered-items", head, encode_json(UNKNOWN_RECORD), 0.0)

    def _delete_invalid_rows(self) -> None:
        """Number the uses of sessions from an older schema; delete rows that reference missing rows, and unused ids."""
        self._execute(
            "UPDATE sessions SET used = (SELECT count(*) FROM sessions AS before WHERE before.tenant = sessions.tenant"
            " AND (before.used_at, before.n) <= (sessions.used_at, sessions.n)) WHERE record IS NOT NULL"
            " AND NOT EXISTS (SELECT 1 FROM sessions AS other WHERE other.used > 0)"
        )  # the column `used` is missing in older schemas
        self._execute(
            "DELETE FROM sessions WHERE record IS NULL AND NOT EXISTS (SELECT 1 FROM links WHERE session = sessions.n)"
        )
        while violations := self._fetch_all("PRAGMA foreign_key_check"):
            for table, rowid, _, _ in violations:
                if rowid is None:
                    self._execute(f"DELETE FROM {table} WHERE {_orphan_condition(self._db, table)}")
                else:
                    self._execute(f"DELETE FROM {table} WHERE rowid = ?", rowid)

    # -- statements -------------------------------------------------------------------------------

    def _insert_items(self, tenant: int, items: list[Item]) -> int:
        """Append items to the root, and return the rowid of the last node."""
        root = self._tenants[tenant].root
        connection_without_cache = TenantConnection(self._db, tenant, root, {})  # rows were deleted since
        return tree.insert_missing_nodes(connection_without_cache, AppendItems(root, tuple(items)))

    def _tenant_name(self, tenant: int) -> str:
        return str(self._fetch_value("SELECT name FROM tenants WHERE n = ?", tenant))

    def _find_rowid(self, table: str, n: int | None, tenant: int) -> int | None:
        """Return the rowid if the row exists and belongs to the tenant."""
        rowid: int | None = self._fetch_value(f"SELECT n FROM {table} WHERE n = ? AND tenant = ?", n, tenant)
        return rowid

    def _execute(self, sql: str, *values: object) -> sqlite3.Cursor:
        return self._db.execute(sql, values)

    def _fetch_all(self, sql: str, *values: object) -> list[Row]:
        return self._db.execute(sql, values).fetchall()

    def _fetch_value(self, sql: str, *values: object) -> Any:
        row = self._db.execute(sql, values).fetchone()
        return row[0] if row else None

    def _iter_rows(self, sql: str) -> Iterator[Row]:
        """Iterate over rows by rowid, in batches, so that the caller may change them meanwhile."""
        last_rowid = -1
        while rows := self._db.execute(sql, (last_rowid, ROWS_PER_BATCH)).fetchall():
            yield from rows
            last_rowid = rows[-1][0]


def is_json_object(text: str) -> bool:
    return check.is_valid_json(text) and isinstance(decode_json(text), dict)


def is_event(text: str) -> bool:
    """Return whether the text of an event can be decoded."""
    return is_json_object(text) and type(decode_json(text).get("sequence_number")) is int


def is_approval_decision(decided_at: object, text: str) -> bool:
    """Return whether the columns of a decision can be decoded."""
    try:
        decode_approval_decision(("", decided_at, text))
    except DamagedRow:
        return False
    return True


def _orphan_condition(db: sqlite3.Connection, table: str) -> str:
    """Return the SQL condition for rows of a table without rowids that reference missing rows."""
    keys = db.execute(f"PRAGMA foreign_key_list({table})").fetchall()
    parts = []
    for _, _, parent, column, *_ in keys:
        key = next(name for _, name, _, _, _, is_key in db.execute(f"PRAGMA table_info({parent})") if is_key)
        parts.append(f"{column} NOT IN (SELECT {key} FROM {parent})")
    return " OR ".join(parts)


def _has_all_items(path: list[Row]) -> bool:
    """Whether the path has the stored items; its start may be lost."""
    return all(reason in (None, "moved") for *_, reason, _ in path)


def _longest_intact_path(paths: list[list[Row]]) -> list[Row]:
    return max((path[: _first_broken_index(path)] for path in paths), key=len, default=[])


def _first_broken_index(path: list[Row]) -> int:
    """Return the position of the first broken node of a path; its length if there is none."""
    return next((index for index, (*_, reason, _) in enumerate(path) if reason), len(path))


def _child_key(parent_key: bytes, body: str) -> Key:
    return child_key(Key(parent_key.hex()), item_hash(decode_json(body)))

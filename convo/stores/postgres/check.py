"""Check the rows of a database, and probe server, role and privileges. Nothing is written.

Rows are read in one read-only transaction, some hundred at a time in primary-key order, so that they are
consistent and memory does not grow with the database.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from uuid import UUID

from convo.errors import ConvoError, DamagedRow, StoreTooNew
from convo.history.canonical import item_hash
from convo.history.items import Item
from convo.history.tree import Key, child_key, root_key
from convo.runtime import ReportProgress
from convo.stores import base
from convo.stores.base import NamedSession, ProblemCounter, ServerHealth, StoreCheckReport
from convo.stores.codec import decode_event_batch, decode_metadata, is_session_record, tokenize_item
from convo.stores.postgres import connection, tenant_rows
from convo.stores.postgres.commit import hash_terms
from convo.stores.postgres.connection import PostgresDatabase
from convo.stores.postgres.records import SELECT_LINKS, SELECT_SESSIONS, link_from_row, session_from_row
from convo.stores.postgres.runs import (
    SELECT_AGENT_CALLS,
    SELECT_AGENT_RUNS,
    SELECT_APPROVAL_DECISIONS,
    SELECT_EVENTS,
    agent_call_from_row,
    agent_run_from_row,
    approval_decision_from_row,
)
from convo.stores.postgres.tenant_rows import BEGIN_SNAPSHOT, DatabaseConnection, Row, TenantConnection, decode_body
from convo.stores.postgres.tree import NODE_KEY_SQL

ROWS_PER_BATCH = 500
"""Rows of one query."""

SELECT_TENANTS = "SELECT tenant, name FROM convo.tenants ORDER BY tenant"

COUNTED_TABLES = ("items", "nodes", "sessions", "links", "conversations", "agent_runs", "events", "files")

SELECT_ITEMS_TO_CHECK = """
SELECT hash, body, named, (SELECT terms FROM convo.words WHERE words.tenant = $1 AND words.item = items.hash)
FROM convo.items WHERE tenant = $1 AND ($2::uuid IS NULL OR hash > $2) ORDER BY hash LIMIT $3
"""

SELECT_NODES_TO_CHECK = f"""
SELECT nodes.id, {NODE_KEY_SQL}, nodes.parent, nodes.item, nodes.depth, up.depth,
    uuid_send(up.id) || uuid_send(up.rest), items.body
FROM convo.nodes
    LEFT JOIN convo.nodes AS up ON up.tenant = $1 AND up.id = nodes.parent
    LEFT JOIN convo.items ON items.tenant = $1 AND items.hash = nodes.item
WHERE nodes.tenant = $1 AND ($2::uuid IS NULL OR nodes.id > $2) ORDER BY nodes.id LIMIT $3
"""

SELECT_JSON_TO_CHECK = """
SELECT hash, body, NULL FROM convo.repeated WHERE tenant = $1 AND ($2::uuid IS NULL OR hash > $2)
ORDER BY hash LIMIT $3
"""

SELECT_FOREIGN_KEYS = """
SELECT child.relname, parent.relname,
    (SELECT array_agg(attname::text ORDER BY at) FROM unnest(conkey) WITH ORDINALITY AS a (n, at)
        JOIN pg_attribute ON attrelid = conrelid AND attnum = n),
    (SELECT array_agg(attname::text ORDER BY at) FROM unnest(confkey) WITH ORDINALITY AS a (n, at)
        JOIN pg_attribute ON attrelid = confrelid AND attnum = n)
FROM pg_constraint
    JOIN pg_class AS child ON child.oid = conrelid JOIN pg_class AS parent ON parent.oid = confrelid
WHERE contype = 'f' AND conparentid = 0 AND connamespace = 'convo'::regnamespace
ORDER BY 1, 2
"""
"""Every foreign key of the schema `convo`: the tables, and the columns on both sides."""

SELECT_MEMBERS_TO_CHECK = """
WITH RECURSIVE up (id, parent, item, erased, depth) AS (
    SELECT nodes.id, parent, item, erased, depth FROM convo.nodes
    WHERE tenant = $1 AND id = (SELECT head FROM convo.conversations WHERE tenant = $1 AND id = $2)
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, erased, depth FROM convo.nodes WHERE tenant = $1 AND id = up.parent
            AND nodes.depth < up.depth LIMIT 1
    ) AS before ON true
)
SELECT (SELECT id FROM convo.members WHERE tenant = $1 AND node = up.id AND conversation = $2), erased,
    (SELECT body FROM convo.items WHERE tenant = $1 AND hash = up.item)
FROM up WHERE parent IS NOT NULL
"""

SELECT_SESSIONS_TO_CHECK = """
SELECT id, name, record, head FROM convo.sessions WHERE tenant = $1 AND ($2::text IS NULL OR id > $2)
ORDER BY id LIMIT $3
"""

SELECT_PATH_TO_CHECK = """
WITH RECURSIVE up (id, parent, item, depth) AS (
    SELECT id, parent, item, depth FROM convo.nodes WHERE tenant = $1 AND id = $2
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, depth FROM convo.nodes WHERE tenant = $1 AND id = up.parent
            AND nodes.depth < up.depth LIMIT 1
    ) AS before ON true
)
SELECT id, parent, item FROM up
"""


IN_BATCHES = "AND ($2::text IS NULL OR id > $2) ORDER BY id LIMIT $3"

SELECT_SESSION_ROWS = f"{SELECT_SESSIONS} {IN_BATCHES}"
SELECT_LINK_ROWS = f"{SELECT_LINKS} WHERE tenant = $1 {IN_BATCHES}"
SELECT_RUN_ROWS = f"{SELECT_AGENT_RUNS} {IN_BATCHES}"
SELECT_CONVERSATION_ROWS = f"""
SELECT id, created_at, metadata, EXISTS (
    SELECT 1 FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = conversations.head)
FROM convo.conversations WHERE tenant = $1 {IN_BATCHES}
"""


async def check_database(db: DatabaseConnection, location: str, progress: ReportProgress) -> StoreCheckReport:
    """Check every row of every tenant.

    Raises StoreUnavailable or StoreTooNew if the tables are not those of this convo.
    """
    await connection.check_schema_version(db, location)
    await db.execute(BEGIN_SNAPSHOT.sql)
    check = _DatabaseCheck(db, progress)
    await check.run()
    damaged_rows = check.problems.damaged_rows
    return StoreCheckReport(check.row_counts, list(check.problems), check.damaged_sessions, damaged_rows=damaged_rows)


class _DatabaseCheck:
    """One check in one transaction."""

    def __init__(self, db: DatabaseConnection, progress: ReportProgress) -> None:
        self._db, self._progress = db, progress
        self.problems, self.row_counts = ProblemCounter(), dict.fromkeys(COUNTED_TABLES, 0)
        self.damaged_sessions: list[NamedSession] = []
        self._damaged_ids: set[UUID] = set()

    async def run(self) -> None:
        await self._check_references()
        tenants = await self._fetch_all(SELECT_TENANTS)
        for table in self.row_counts:
            self.row_counts[table] = (await self._fetch_all(f"SELECT count(*) FROM convo.{table}"))[0][0]
        for n, stored_name in tenants:
            t = TenantConnection.from_name(self._db, tenant_rows.unescape_name(stored_name))
            if t.tenant_number != n:
                self.problems.add("tenant", f"tenant {t.name!r} is stored under another tenant's number")
            else:
                await self._check_tenant(t)

    async def _check_tenant(self, t: TenantConnection) -> None:
        self._damaged_ids.clear()
        async for hashed, body, id_hash, term_hashes in self._iter_rows(t, "items", SELECT_ITEMS_TO_CHECK):
            self._check_item(t, hashed, bytes(body), id_hash, term_hashes)
        async for row in self._iter_rows(t, "nodes", SELECT_NODES_TO_CHECK):
            fault = _describe_node_fault(t, *row)
            if fault:
                self._damaged_ids.add(row[0])
                self.problems.add("node", f"node {row[0].hex} {fault}")
        async for hashed, body, _ in self._iter_rows(t, "records", SELECT_JSON_TO_CHECK):
            if tenant_rows.json_uuid(body) != hashed:
                self.problems.add("record", f"repeated {hashed.hex} does not have the hash that it is stored under")
        await self._check_conversations(t)
        async for _, name, record, head in self._iter_rows(t, "sessions", SELECT_SESSIONS_TO_CHECK):
            if not is_session_record(record):
                self.problems.add(
                    "record", f"session {tenant_rows.unescape_name(name)!r} has a record that cannot be read"
                )
            if self.problems and not await self._is_path_intact(t, head):
                self.damaged_sessions.append(NamedSession(t.name, tenant_rows.unescape_name(name)))
        await self._check_rows_decodable(t)

    async def _check_rows_decodable(self, t: TenantConnection) -> None:
        """Decode every record in the way in which commands read it; items are checked by their hashes."""
        async for row in self._iter_rows(t, "sessions", SELECT_SESSION_ROWS):
            self._decode(session_from_row, row)
        async for row in self._iter_rows(t, "links", SELECT_LINK_ROWS):
            self._decode(link_from_row, row)
        async for row in self._iter_rows(t, "conversations", SELECT_CONVERSATION_ROWS):
            self._decode(_decode_conversation, row)
        async for row in self._iter_rows(t, "agent_runs", SELECT_RUN_ROWS):
            self._decode(agent_run_from_row, row)
            run_id = tenant_rows.unescape_name(row[0])
            for call in await t.fetch_all(SELECT_AGENT_CALLS, row[0]):
                self._decode(partial(agent_call_from_row, run_id), call)
            for decision in await t.fetch_all(f"{SELECT_APPROVAL_DECISIONS} AND run = $2 ORDER BY place", row[0]):
                self._decode(approval_decision_from_row, decision)
        for (stored_id,) in await t.fetch_all("SELECT DISTINCT run FROM convo.events WHERE tenant = $1 ORDER BY run"):
            response_id = tenant_rows.unescape_name(stored_id)
            for (body,) in await t.fetch_all(SELECT_EVENTS, stored_id, -1):
                self._decode(partial(decode_event_batch, response_id), body)

    def _decode(self, decode: Callable[[Any], object], row: object) -> None:
        try:
            decode(row)
        except DamagedRow as error:
            self.problems.add_row(error)

    def _check_item(
        self, t: TenantConnection, hashed: UUID, body: bytes, id_hash: int | None, term_hashes: list[int] | None
    ) -> None:
        item = _decode_valid_item(body)
        if item is None or tenant_rows.item_uuid(item_hash(item)) != hashed:
            self._damaged_ids.add(hashed)
            self.problems.add("item", f"item {hashed.hex} does not have the hash that it is stored under")
            return
        own_id = base.own_item_id(item)
        if id_hash != (tenant_rows.hash_item_id(own_id) if own_id else None):
            self.problems.add("index", f"item {hashed.hex} is not found by its id")
        terms = tokenize_item(item)
        if sorted(set(term_hashes or ())) != sorted(set(hash_terms(t, terms)) if terms else ()):
            self.problems.add("search", f"the search index lacks terms of item {hashed.hex}")

    async def _check_references(self) -> None:
        for table, parent, columns, parent_columns in await self._fetch_all(SELECT_FOREIGN_KEYS):
            join_condition = " AND ".join(
                f"b.{parent_column} = a.{column}" for column, parent_column in zip(columns, parent_columns, strict=True)
            )
            not_null = " AND ".join(f"a.{column} IS NOT NULL" for column in columns)
            missing = await self._fetch_all(
                f"SELECT count(*) FROM convo.{table} AS a WHERE {not_null}"
                f" AND NOT EXISTS (SELECT 1 FROM convo.{parent} AS b WHERE {join_condition})"
            )
            if missing[0][0]:
                example = f"{table}.{columns[-1]} refers to a row of {parent} that does not exist"
                self.problems.add("reference", example, missing[0][0])

    async def _check_conversations(self, t: TenantConnection) -> None:
        ids = await t.fetch_all("SELECT id FROM convo.conversations WHERE tenant = $1 ORDER BY id")
        for (stored_id,) in ids:
            rows = await t.fetch_all(SELECT_MEMBERS_TO_CHECK, stored_id)
            unnamed_count = sum(
                assigned_id is None and erased_id is None and not _has_item_id(body)
                for assigned_id, erased_id, body in rows
            )
            if unnamed_count:
                self.problems.add(
                    "conversation", f"conversation {tenant_rows.unescape_name(stored_id)} has items without an id"
                )
            count_assigned = "SELECT count(*) FROM convo.members WHERE tenant = $1 AND conversation = $2"
            if await t.fetch_value(count_assigned, stored_id) != sum(
                assigned_id is not None for assigned_id, _, _ in rows
            ):
                example = f"conversation {tenant_rows.unescape_name(stored_id)} names items that are not on its path"
                self.problems.add("conversation", example)

    async def _is_path_intact(self, t: TenantConnection, head: UUID) -> bool:
        rows = await t.fetch_all(SELECT_PATH_TO_CHECK, head)
        is_damaged = any(node in self._damaged_ids or item in self._damaged_ids for node, _, item in rows)
        return bool(rows) and rows[-1][1] is None and not is_damaged

    async def _fetch_all(self, sql: str) -> list[Row]:
        return await (await self._db.execute(sql)).fetchall()

    async def _iter_rows(self, t: TenantConnection, name: str, sql: str) -> AsyncIterator[Row]:
        """Iterate over rows, ordered by their first column."""
        last, done = None, 0
        while rows := await t.fetch_all(sql, last, ROWS_PER_BATCH):
            for row in rows:
                yield row
            last, done = rows[-1][0], done + len(rows)
            self._progress(name, done, self.row_counts.get(name, 0))


def _describe_node_fault(
    t: TenantConnection,
    _: UUID,
    key: bytes,
    parent: UUID | None,
    item_id: UUID | None,
    depth: int,
    parent_depth: int | None,
    parent_key: bytes | None,
    body: bytes | None,
) -> str:
    """Describe the fault of a node; empty if there is none."""
    if parent is None:
        is_root = key.hex() == root_key(t.name) and depth == 0
        return "" if is_root else "has no parent and is not its tenant's root"
    if parent_key is None or parent_depth is None or (item_id is not None and body is None):
        return "lacks its parent or its item"
    if depth != parent_depth + 1:
        return "has a depth that is not one more than its parent's"
    if body is None:
        return ""  # its item was deleted
    item = _decode_valid_item(bytes(body))
    is_valid = item is not None and child_key(Key(bytes(parent_key).hex()), item_hash(item)) == bytes(key).hex()
    return "" if is_valid else "has a key that does not match its parent and its item"


def _decode_valid_item(body: bytes) -> Item | None:
    try:
        item = decode_body("", body)
        item_hash(item)
    except ConvoError:
        return None
    return item


def _decode_conversation(row: Row) -> None:
    """Decode a row of `SELECT_CONVERSATION_ROWS`. Raises DamagedRow."""
    stored_id, created_at, metadata, has_head = row
    conversation_id = tenant_rows.unescape_name(stored_id)
    if not has_head:
        raise DamagedRow("conversation", conversation_id, "its head is missing")
    decode_metadata(conversation_id, created_at, metadata)


def _has_item_id(body: bytes | None) -> bool:
    item = _decode_valid_item(bytes(body)) if body is not None else None
    return item is not None and isinstance(item.get("id"), str)


TABLE_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE")

PROBE_TIMEOUT_S = 4.0
"""Seconds that the server has to accept a connection."""

SELECT_ROLE = """
SELECT current_user, has_database_privilege(current_database(), 'CREATE'),
    pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'
"""

SELECT_SCHEMA_ACCESS = """
SELECT has_schema_privilege(pg_namespace.oid, 'USAGE'),
    pg_class.oid IS NOT NULL, coalesce(has_table_privilege(pg_class.oid, 'SELECT'), false)
FROM pg_namespace LEFT JOIN pg_class ON relnamespace = pg_namespace.oid AND relname = 'migrations'
WHERE nspname = 'convo'
"""

SELECT_MISSING_PRIVILEGES = """
SELECT privilege FROM unnest($1::text[]) privilege WHERE EXISTS (
    SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'convo' AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'migrations'
    AND NOT has_table_privilege(pg_class.oid, privilege))
"""


async def probe_database(url: str) -> ServerHealth:
    """Return the health of a server.

    Raises StoreFault if it does not accept the connection, or a newer convo created the tables.
    """
    database = PostgresDatabase(url, connect_timeout_s=PROBE_TIMEOUT_S)
    async with database.direct_connection() as db:
        return await _probe_connection(db, database.location)


async def _probe_connection(db: DatabaseConnection, location: str) -> ServerHealth:
    role, can_create, is_read_only = await _select_row(db, SELECT_ROLE) or ("", False, False)
    has_usage, has_migrations, is_readable = await _select_row(db, SELECT_SCHEMA_ACCESS) or (True, False, False)
    version = await connection.read_schema_version(db) if has_usage and is_readable else None if has_migrations else 0
    if version is not None and version > connection.SCHEMA_VERSION:
        raise StoreTooNew(location, version, connection.SCHEMA_VERSION)
    missing_privileges = [] if has_usage else ["USAGE"]
    if has_migrations:
        missing_privileges += [
            row[0] for row in await (await db.execute(SELECT_MISSING_PRIVILEGES, (list(TABLE_PRIVILEGES),))).fetchall()
        ]
    return ServerHealth(
        location=location,
        server_version=db.info.server_version,
        role=role,
        schema_version=version,
        latest_schema_version=connection.SCHEMA_VERSION,
        can_create_schema=can_create,
        missing_privileges=missing_privileges,
        is_read_only=is_read_only,
        uses_tls=db.pgconn.ssl_in_use,
    )


async def _select_row(db: DatabaseConnection, sql: str) -> Row | None:
    return await (await db.execute(sql)).fetchone()

"""Checks the rules that every row of ours keeps; the server looks after its files itself.

Everything is read in one read-only transaction, a few hundred rows at a time, in the order of the
primary key: so the rows fit together while others write, and memory does not grow with the database.
"""

from collections.abc import AsyncIterator
from uuid import UUID

from convo.errors import ConvoError
from convo.history import Key, child, root
from convo.items import Item, hash_of
from convo.stores import rules
from convo.stores.forms import session_of
from convo.stores.postgres import names, schema
from convo.stores.postgres.bodies import item_of
from convo.stores.postgres.changing import term_numbers
from convo.stores.postgres.tenant import SNAPSHOT, Connection, Row, Tenant
from convo.stores.postgres.tree import KEY
from convo.stores.terms import terms_of
from convo.stores.upkeep import NamedSession, Problems, Progress, StoreCheck
from convo.stores.verbatim import loads

BATCH = 500
"""Rows of one question."""

TENANTS = "SELECT tenant, name FROM convo.tenants ORDER BY tenant"

COUNTED = ("items", "nodes", "sessions", "links", "conversations", "agent_runs", "events")

ITEMS = """
SELECT hash, body, named, (SELECT terms FROM convo.words WHERE words.tenant = $1 AND words.item = items.hash)
FROM convo.items WHERE tenant = $1 AND ($2::uuid IS NULL OR hash > $2) ORDER BY hash LIMIT $3
"""

NODES = f"""
SELECT nodes.id, {KEY}, nodes.parent, nodes.item, nodes.depth, up.depth,
    uuid_send(up.id) || uuid_send(up.rest), items.body
FROM convo.nodes
    LEFT JOIN convo.nodes AS up ON up.tenant = $1 AND up.id = nodes.parent
    LEFT JOIN convo.items ON items.tenant = $1 AND items.hash = nodes.item
WHERE nodes.tenant = $1 AND ($2::uuid IS NULL OR nodes.id > $2) ORDER BY nodes.id LIMIT $3
"""

REPEATED = """
SELECT hash, body, NULL FROM convo.repeated WHERE tenant = $1 AND ($2::uuid IS NULL OR hash > $2)
ORDER BY hash LIMIT $3
"""

REFERENCES = """
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
"""Every reference of our schema: the tables, and the columns on both sides."""

CONVERSATIONS = """
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

SESSIONS = """
SELECT id, name, record, head FROM convo.sessions WHERE tenant = $1 AND ($2::text IS NULL OR id > $2)
ORDER BY id LIMIT $3
"""

PATH = """
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


async def check(db: Connection, place: str, progress: Progress) -> StoreCheck:
    """Check every row of every tenant. raises: StoreUnavailable, StoreTooNew  the tables are not this convo's"""
    await schema.check(db, place)
    await db.execute(SNAPSHOT.sql)
    checking = _Checking(db, progress)
    await checking.run()
    return StoreCheck(checking.rows, list(checking.found), checking.sessions)


class _Checking:
    """One check over one transaction."""

    def __init__(self, db: Connection, progress: Progress) -> None:
        self._db, self._progress = db, progress
        self.found, self.rows = Problems(), dict.fromkeys(COUNTED, 0)
        self.sessions: list[NamedSession] = []
        self._bad: set[UUID] = set()

    async def run(self) -> None:
        await self._references()
        tenants = await self._all(TENANTS)
        for table in self.rows:
            self.rows[table] = (await self._all(f"SELECT count(*) FROM convo.{table}"))[0][0]
        for n, written in tenants:
            t = Tenant.of(self._db, names.read(written))
            if t.n != n:
                self.found.add("tenant", f"tenant {t.name!r} is stored under another tenant's number")
            else:
                await self._tenant(t)

    async def _tenant(self, t: Tenant) -> None:
        self._bad.clear()
        async for hashed, body, named, terms in self._batches(t, "items", ITEMS):
            self._check_item(t, hashed, bytes(body), named, terms)
        async for row in self._batches(t, "nodes", NODES):
            fault = _fault_of(t, *row)
            if fault:
                self._bad.add(row[0])
                self.found.add("node", f"node {row[0].hex} {fault}")
        async for hashed, body, _ in self._batches(t, "records", REPEATED):
            if names.text_name(body) != hashed:
                self.found.add("record", f"repeated {hashed.hex} does not have the hash that it is stored under")
        await self._conversations(t)
        async for _, name, record, head in self._batches(t, "sessions", SESSIONS):
            if not _is_record(record):
                self.found.add("record", f"session {names.read(name)!r} has a record that cannot be read")
            if self.found and not await self._is_whole(t, head):
                self.sessions.append(NamedSession(t.name, names.read(name)))

    def _check_item(self, t: Tenant, hashed: UUID, body: bytes, named: int | None, terms: list[int] | None) -> None:
        item = _read(body)
        if item is None or names.item_name(hash_of(item)) != hashed:
            self._bad.add(hashed)
            self.found.add("item", f"item {hashed.hex} does not have the hash that it is stored under")
            return
        own = rules.own_id(item)
        if named != (names.number(own) if own else None):
            self.found.add("index", f"item {hashed.hex} is not found by its id")
        cut = terms_of(item)
        if sorted(set(terms or ())) != sorted(set(term_numbers(t, cut)) if cut else ()):
            self.found.add("search", f"the search index does not hold the terms of item {hashed.hex}")

    async def _references(self) -> None:
        for table, parent, own, theirs in await self._all(REFERENCES):
            joined = " AND ".join(f"b.{to} = a.{column}" for column, to in zip(own, theirs, strict=True))
            named = " AND ".join(f"a.{column} IS NOT NULL" for column in own)
            lost = await self._all(
                f"SELECT count(*) FROM convo.{table} AS a WHERE {named}"
                f" AND NOT EXISTS (SELECT 1 FROM convo.{parent} AS b WHERE {joined})"
            )
            if lost[0][0]:
                said = f"{table}.{own[-1]} refers to a row of {parent} that does not exist"
                self.found.add("reference", said, lost[0][0])

    async def _conversations(self, t: Tenant) -> None:
        ids = await t.all("SELECT id FROM convo.conversations WHERE tenant = $1 ORDER BY id")
        for (written,) in ids:
            rows = await t.all(CONVERSATIONS, written)
            unnamed = sum(given is None and erased is None and not _has_id(body) for given, erased, body in rows)
            if unnamed:
                self.found.add("conversation", f"conversation {names.read(written)} has items without an id")
            given = "SELECT count(*) FROM convo.members WHERE tenant = $1 AND conversation = $2"
            if await t.one(given, written) != sum(given is not None for given, _, _ in rows):
                said = f"conversation {names.read(written)} names items that are not on its path"
                self.found.add("conversation", said)

    async def _is_whole(self, t: Tenant, head: UUID) -> bool:
        rows = await t.all(PATH, head)
        damaged = any(place in self._bad or item in self._bad for place, _, item in rows)
        return bool(rows) and rows[-1][1] is None and not damaged

    async def _all(self, sql: str) -> list[Row]:
        return await (await self._db.execute(sql)).fetchall()

    async def _batches(self, t: Tenant, name: str, sql: str) -> AsyncIterator[Row]:
        """Rows in the order of their first column."""
        last, done = None, 0
        while rows := await t.all(sql, last, BATCH):
            for row in rows:
                yield row
            last, done = rows[-1][0], done + len(rows)
            self._progress(name, done, self.rows.get(name, 0))


def _fault_of(
    t: Tenant,
    _: UUID,
    key: bytes,
    parent: UUID | None,
    item: UUID | None,
    depth: int,
    above_depth: int | None,
    above: bytes | None,
    body: bytes | None,
) -> str:
    """What is wrong with a node, in words; empty where nothing is."""
    if parent is None:
        is_root = key.hex() == root(t.name) and depth == 0
        return "" if is_root else "has no parent and is not its tenant's root"
    if above is None or above_depth is None or (item is not None and body is None):
        return "has lost its parent or its item"
    if depth != above_depth + 1:
        return "does not count its place behind its parent's"
    if body is None:
        return ""  # its item was deleted
    found = _read(bytes(body))
    right = found is not None and child(Key(bytes(above).hex()), hash_of(found)) == bytes(key).hex()
    return "" if right else "has a key that does not follow from its parent and its item"


def _read(body: bytes) -> Item | None:
    import zlib

    try:
        found = item_of(body)
        hash_of(found)
    except (ValueError, RecursionError, zlib.error, ConvoError):
        return None
    return found if isinstance(found, dict) else None


def _has_id(body: bytes | None) -> bool:
    found = _read(bytes(body)) if body is not None else None
    return found is not None and isinstance(found.get("id"), str)


def _is_record(record: str) -> bool:
    try:
        session_of(("", "", b"", b"", None, None, 0.0, record, None))
        loads(record)
    except (ValueError, TypeError, RecursionError):
        return False
    return True

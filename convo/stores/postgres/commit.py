"""Apply a transaction in two round trips.

Plan: keys follow from items, so all nodes are known before the database is asked. Read: begin, lock the tenant
and read what the plan needs. Write: insert in a fixed order, so that writers do not deadlock, and commit. Tenant
locks are shared; a transaction that may leave nodes unreferenced is repeated with an exclusive lock. Plans that only
add items and links can be merged into one transaction.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from convo.errors import NotFound, StoreUnavailable
from convo.history.canonical import item_hash
from convo.history.items import MAX_TITLE_ITEMS, Item
from convo.history.records import UNFINISHED_STATUSES, LinkStatus
from convo.history.tree import Key, child_key
from convo.stores import base
from convo.stores.base import AppendItems, Transaction
from convo.stores.codec import tokenize_item
from convo.stores.postgres import records, runs, tenant_rows
from convo.stores.postgres import records as links
from convo.stores.postgres import runs as agents
from convo.stores.postgres.records import SELECT_PATH_TO_CONVERSATION
from convo.stores.postgres.tenant_rows import (
    BEGIN,
    COMMIT,
    Row,
    Statement,
    TenantConnection,
    decode_body,
    encode_body,
    to_columns,
)
from convo.stores.postgres.tree import NODE_KEY_SQL


class PlannedNode(NamedTuple):
    """A node that a transaction creates, unless it is stored."""

    parent: Key
    item: Item
    item_id: UUID
    body: bytes


class ExistingNode(NamedTuple):
    """A stored node; `is_empty` where its item was erased, and at the root."""

    depth: int
    is_empty: bool


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """A transaction and the nodes of its appends.

    planned_nodes:  by key; a parent comes before its children, or is not among them
    """

    transaction: Transaction
    planned_nodes: Mapping[Key, PlannedNode]

    def referenced_nodes(self, final: Container[str]) -> frozenset[Key]:
        """Return the planned nodes that are referenced after the commit, or have such a descendant.

        final:  links that have ended already: they keep their nodes
        """
        links = tuple(link for link in self.transaction.links if link.id not in final)
        referenced: set[Key] = set()
        for key in base.iter_referenced_keys(replace(self.transaction, links=links)):
            while key in self.planned_nodes and key not in referenced:
                referenced.add(key)
                key = self.planned_nodes[key].parent
        return frozenset(referenced)

    @property
    def keys_to_read(self) -> list[Key]:
        """The keys that are read from the database."""
        change = self.transaction
        keys = (
            *(append.after for append in change.appends),
            *self.planned_nodes,
            *base.iter_referenced_keys(change),
            *change.erased_nodes,
        )
        return sorted({key for key in keys if tenant_rows.is_node_key(key)})

    @property
    def base_node_ids(self) -> list[UUID]:
        """The last nodes that may be stored on the paths to the nodes that records reference."""
        return sorted(
            {
                tenant_rows.node_id(self.base_key(key))
                for key in base.iter_referenced_keys(self.transaction)
                if tenant_rows.is_node_key(key)
            }
        )

    def base_key(self, key: Key) -> Key:
        """Return the last node on the path to `key`, `key` included, that this transaction does not append."""
        while key in self.planned_nodes:
            key = self.planned_nodes[key].parent
        return key

    def planned_path(self, key: Key) -> list[Key]:
        """Return the planned nodes from the base of `key` to `key`, oldest first."""
        path = []
        while key in self.planned_nodes:
            path.append(key)
            key = self.planned_nodes[key].parent
        return path[::-1]

    def check_nodes(self, existing: Mapping[Key, ExistingNode]) -> None:
        """Check that every node that the transaction names is stored or planned. Raises NotFound."""
        for append in self.transaction.appends:
            self._check_node(append.after, existing)
        for key in (*base.iter_referenced_keys(self.transaction), *self.transaction.erased_nodes):
            self._check_node(key, existing)

    def _check_node(self, key: Key, existing: Mapping[Key, ExistingNode]) -> None:
        if key not in existing and key not in self.planned_nodes:
            raise base.node_not_found_error(key)

    def depth(self, key: Key, existing: Mapping[Key, ExistingNode]) -> int:
        """Return the number of items on the path to `key`."""
        count = 0
        while key not in existing:
            count, key = count + 1, self.planned_nodes[key].parent
        return count + existing[key].depth


def plan_commit(transaction: Transaction) -> CommitPlan:
    """Plan the nodes of a transaction. Raises NotCanonical and NotFound."""
    base.check_stored_names(transaction)
    return CommitPlan(transaction, _plan_nodes(transaction.appends))


MAX_MERGED_BYTES = 256 * 1024
"""Bytes of the items of a transaction that is merged with others: a statement of PostgreSQL has at most 1 GB."""


def can_merge(plan: CommitPlan) -> bool:
    """Return whether the transaction only adds items and links, and is small."""
    change = plan.transaction
    return (
        change == Transaction(change.appends, change.links)
        and sum(len(planned.body) for planned in plan.planned_nodes.values()) <= MAX_MERGED_BYTES
    )


def merge_plans(plans: Sequence[CommitPlan]) -> CommitPlan | None:
    """Merge transactions of one tenant; None if two of them write one link, so that the second may release nodes."""
    changes = [plan.transaction for plan in plans]
    links = {link.id: link for change in changes for link in change.links}
    if len(links) < sum(len(change.links) for change in changes):
        return None
    appends = tuple(append for change in changes for append in change.appends)
    planned_nodes = {key: planned for plan in plans for key, planned in plan.planned_nodes.items()}
    return CommitPlan(Transaction(appends, tuple(links[id_] for id_ in sorted(links))), planned_nodes)


def _plan_nodes(appends: Iterable[AppendItems]) -> dict[Key, PlannedNode]:
    planned: dict[Key, PlannedNode] = {}
    for append in appends:
        key = append.after
        if not tenant_rows.is_node_key(key):
            raise base.node_not_found_error(key)
        for item in append.items:
            hashed = item_hash(item)
            parent, key = key, child_key(key, hashed)
            if key not in planned:
                planned[key] = PlannedNode(parent, item, tenant_rows.item_uuid(hashed), encode_body(item))
    return planned


LOCK_TENANT_SHARED = "SELECT pg_advisory_xact_lock_shared($1)"
LOCK_TENANT_EXCLUSIVE = "SELECT pg_advisory_xact_lock($1)"

INSERT_TENANT = "INSERT INTO convo.tenants (tenant, name) VALUES ($1, $2) ON CONFLICT DO NOTHING"
INSERT_ROOT = "INSERT INTO convo.nodes (tenant, id, rest, depth) VALUES ($1, $2, $3, 0) ON CONFLICT DO NOTHING"
SELECT_TENANT_NAME = "SELECT name FROM convo.tenants WHERE tenant = $1"

SELECT_NODES = (
    f"SELECT {NODE_KEY_SQL}, parent, depth, item IS NULL FROM convo.nodes WHERE tenant = $1 AND id = ANY($2::uuid[])"
)

LOCK_SESSIONS = """
SELECT id, head, mark, written FROM convo.sessions
WHERE tenant = $1 AND (id = $2 OR name = $3) ORDER BY id FOR UPDATE
"""

LOCK_CONVERSATION = "SELECT head FROM convo.conversations WHERE tenant = $1 AND id = $2 FOR UPDATE"

LOCK_LINKS = """
SELECT id, status, saw, head, sent_body FROM convo.links WHERE tenant = $1 AND id = ANY($2::text[])
ORDER BY id FOR UPDATE
"""

LOCK_OPEN_RUN = "SELECT 1 FROM convo.runs WHERE tenant = $1 AND id = $2 AND ended_at IS NULL FOR UPDATE"

SELECT_DETACHED_NODES = """
WITH RECURSIVE old (id, depth) AS (
    SELECT id, depth FROM convo.nodes WHERE tenant = $1 AND id = ANY($2::uuid[]) AND depth > 0
), up (id, parent, depth) AS (
    SELECT id, parent, depth FROM convo.nodes WHERE tenant = $1 AND id = ANY($3::uuid[])
    UNION SELECT before.id, before.parent, before.depth FROM up JOIN LATERAL (
        SELECT id, parent, depth FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1) AS before ON true
    WHERE up.depth > (SELECT min(depth) FROM old)
)
SELECT id FROM old WHERE id NOT IN (SELECT id FROM up)
"""
"""Those of the nodes $2 that are not on the paths to the nodes $3."""


@dataclass(frozen=True, slots=True)
class CommitReads:
    """The stored state before a transaction.

    existing_nodes:      those of the plan that are stored
    link_statuses:       of the stored links that the transaction writes, requires or starts the run of
    session_exists:      whether the session has a record
    conversation_head:   the conversation's stored head
    conversation_nodes:  of the conversation: (node, hash of its item's own id, erased id), from its new base back to
                         its old head or to the root, both included
    detached_nodes:      nodes that may be unreferenced afterwards
    """

    existing_nodes: Mapping[Key, ExistingNode]
    link_statuses: Mapping[str, LinkStatus]
    session_exists: bool
    conversation_head: UUID | None
    conversation_nodes: list[Row]
    detached_nodes: list[UUID]


async def begin_commit(t: TenantConnection, plan: CommitPlan, *, exclusive: bool, tenant_exists: bool) -> CommitReads:
    """Begin the transaction and read the stored state. Raises Conflict, NotFound and InputFault.

    exclusive:      lock out all other transactions of this tenant
    tenant_exists:  the tenant is known to be stored
    """
    statements = {**_build_begin(t, exclusive=exclusive, tenant_exists=tenant_exists), **_build_reads(t, plan)}
    results = dict(zip(statements, await t.run_pipeline(*statements.values()), strict=True))
    if results.get("tenant", [(tenant_rows.escape_name(t.name),)]) != [(tenant_rows.escape_name(t.name),)]:
        raise StoreUnavailable(f"the tenant {t.name!a} has the number of another tenant", hint="choose another name")
    required_link_id = plan.transaction.required_link_id
    if required_link_id and required_link_id not in {tenant_rows.unescape_name(row[0]) for row in results["links"]}:
        raise NotFound("response", required_link_id)
    if plan.transaction.ended_run_id and not results["run"]:
        raise base.run_not_open_error(plan.transaction.ended_run_id)
    runs.check_agent_run_revision(plan.transaction, results)
    reads = CommitReads(
        existing_nodes={Key(key.hex()): ExistingNode(depth, is_empty) for key, _, depth, is_empty in results["places"]},
        link_statuses={tenant_rows.unescape_name(link_id): status for link_id, status, *_ in results.get("links", [])},
        session_exists=_check_session_head(plan, results.get("sessions", [])),
        conversation_head=_check_conversation_head(plan, results.get("conversation", [])),
        conversation_nodes=results.get("behind", []),
        detached_nodes=await _detached_nodes(t, plan, results),
    )
    _check_references(plan, reads)
    runs.check_agent_run_references(plan.transaction, results)
    return reads


async def _detached_nodes(t: TenantConnection, plan: CommitPlan, results: Mapping[str, list[Row]]) -> list[UUID]:
    """Return the nodes of the written records that will not be on any of their paths afterwards.

    A head that only moves to a node of this transaction's appends needs no query.
    """
    old_nodes = {node for row in results.get("conversation", []) for node in row}
    old_nodes |= {
        node
        for session_id, *row in results.get("sessions", [])
        if _is_planned_session(plan, session_id)
        for node in row
    }
    old_nodes |= {node for _, status, *row in results.get("links", []) if status in UNFINISHED_STATUSES for node in row}
    parents = {UUID(bytes=bytes(key[:16])): parent for key, parent, _, _ in results["places"]}
    kept_nodes: set[UUID | None] = {None, tenant_rows.node_id(t.root)}
    for start in plan.base_node_ids:
        current: UUID | None = start
        while current not in kept_nodes:
            kept_nodes.add(current)
            current = parents.get(current) if current else None
    candidates = sorted(node for node in old_nodes - kept_nodes if node)
    return (
        [node for (node,) in await t.fetch_all(SELECT_DETACHED_NODES, candidates, plan.base_node_ids)]
        if candidates
        else []
    )


def _is_planned_session(plan: CommitPlan, session_id: str) -> bool:
    session = plan.transaction.session
    return session is not None and tenant_rows.unescape_name(session_id) == session.id


def _build_begin(t: TenantConnection, *, exclusive: bool, tenant_exists: bool) -> dict[str, Statement]:
    statements = {"begin": BEGIN, "lock": t.statement(LOCK_TENANT_EXCLUSIVE if exclusive else LOCK_TENANT_SHARED)}
    if tenant_exists:
        return statements
    root = t.root
    inserts = {
        "new tenant": t.statement(INSERT_TENANT, tenant_rows.escape_name(t.name)),
        "new root": t.statement(INSERT_ROOT, tenant_rows.node_id(root), tenant_rows.node_rest(root)),
    }
    return {**statements, **inserts, "tenant": t.statement(SELECT_TENANT_NAME)}


def _build_reads(t: TenantConnection, plan: CommitPlan) -> dict[str, Statement]:
    """Return the queries of a commit, in the order in which rows are locked."""
    change = plan.transaction
    session, conversation = change.session, change.conversation
    # Sorted, as all rows are locked in the order of their ids.
    ids = sorted({*(link.id for link in change.links), *filter(None, (change.started_run_id, change.required_link_id))})
    links = [tenant_rows.escape_name(link_id) for link_id in ids]
    statements = {"places": t.statement(SELECT_NODES, [tenant_rows.node_id(key) for key in plan.keys_to_read])}
    if session:
        statements["sessions"] = t.statement(
            LOCK_SESSIONS, tenant_rows.escape_name(session.id), tenant_rows.escape_name(session.name)
        )
    if conversation:
        conversation_id = tenant_rows.escape_name(conversation.id)
        statements["conversation"] = t.statement(LOCK_CONVERSATION, conversation_id)
        statements["behind"] = t.statement(
            SELECT_PATH_TO_CONVERSATION, _node_id_or_none(plan.base_key(conversation.head)), conversation_id
        )
    if links:
        statements["links"] = t.statement(LOCK_LINKS, links)
    if change.ended_run_id:
        statements["run"] = t.statement(LOCK_OPEN_RUN, tenant_rows.escape_name(change.ended_run_id))
    return {**statements, **runs.build_agent_run_reads(t, change)}


def _node_id_or_none(key: Key) -> UUID | None:
    return tenant_rows.node_id(key) if tenant_rows.is_node_key(key) else None


def _check_session_head(plan: CommitPlan, rows: list[Row]) -> bool:
    """Return whether the session has a record. Raises Conflict."""
    session = plan.transaction.session
    if session is None:
        return False
    heads = {tenant_rows.unescape_name(session_id): head for session_id, head, _, _ in rows}
    base.check_expected_head(
        f"session {session.name!r}",
        plan.transaction.expected_session_head,
        _head_key(plan.transaction.expected_session_head, heads.get(session.id)),
    )
    if set(heads) - {session.id}:
        raise base.session_name_taken_error(session.name)
    return session.id in heads


def _check_conversation_head(plan: CommitPlan, rows: list[Row]) -> UUID | None:
    """Return the conversation's stored head. Raises Conflict."""
    conversation, expected = plan.transaction.conversation, plan.transaction.expected_conversation_head
    head: UUID | None = rows[0][0] if rows else None
    if conversation:
        base.check_expected_head(conversation.id, expected, _head_key(expected, head))
    return head


def _head_key(expected: base.ExpectedHead, head: UUID | None) -> Key | None:
    """Return the expected key if it is the key of `head`, else a different one."""
    if head is None:
        return None
    is_expected = (
        isinstance(expected, str) and tenant_rows.is_node_key(expected) and tenant_rows.node_id(expected) == head
    )
    return Key(expected) if is_expected and isinstance(expected, str) else Key(head.hex)


def _check_references(plan: CommitPlan, reads: CommitReads) -> None:
    """Check that everything that the transaction references exists. Raises NotFound and InputFault."""
    change = plan.transaction
    plan.check_nodes(reads.existing_nodes)
    if change.conversation:
        base.check_item_ids(change.conversation, plan.depth(change.conversation.head, reads.existing_nodes))
        for item_id in change.conversation.item_ids:
            base.check_stored_name(item_id)
    if change.started_run_id and change.started_run_id not in {
        *reads.link_statuses,
        *(link.id for link in change.links),
    }:
        raise NotFound("response", change.started_run_id)


INSERT_ITEMS = """
INSERT INTO convo.items (tenant, hash, named, body, stored_at)
SELECT $1, hash, named, body, extract(epoch FROM statement_timestamp()) + place / 1e6
FROM unnest($2::uuid[], $3::bigint[], $4::bytea[], $5::integer[]) AS new (hash, named, body, place)
ON CONFLICT DO NOTHING
"""

INSERT_TERMS = """
INSERT INTO convo.words (tenant, item, length, terms)
SELECT $1, item, length, terms::integer[]
FROM unnest($2::uuid[], $3::integer[], $4::text[]) AS new (item, length, terms)
ON CONFLICT DO NOTHING
"""

INSERT_NODES = """
INSERT INTO convo.nodes (tenant, id, rest, parent, item, depth)
SELECT $1, id, rest, parent, item, depth
FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::integer[]) AS new (id, rest, parent, item, depth)
ON CONFLICT DO NOTHING
"""

RESTORE_ERASED_NODES = """
UPDATE convo.nodes SET item = new.item, erased = NULL FROM unnest($2::uuid[], $3::uuid[]) AS new (id, item)
WHERE nodes.tenant = $1 AND nodes.id = new.id AND nodes.item IS NULL
"""


async def apply_transaction(t: TenantConnection, plan: CommitPlan, *, exclusive: bool, tenant_exists: bool) -> bool:
    """Apply a transaction; return False, with nothing written, if it needs the exclusive lock.

    tenant_exists:  the tenant is known to be stored

    Raises the errors of `Store.commit`.
    """
    reads = await begin_commit(t, plan, exclusive=exclusive, tenant_exists=tenant_exists)
    # Only a transaction that alone writes for the tenant can tell that nothing references a node.
    if reads.detached_nodes and not exclusive:
        return False
    writes = [*_build_writes(t, plan, reads)]
    if not exclusive:
        await t.run_pipeline(*writes, COMMIT)
        return True
    await t.run_pipeline(*writes)
    erased_items = await _erase_items(t, plan.transaction)
    removed_ids = [plan.transaction.removed_link_id] if plan.transaction.removed_link_id else []
    deleted = await delete_links(t, [tenant_rows.escape_name(link_id) for link_id in removed_ids])
    await delete_unreferenced_rows(t, reads.detached_nodes, deleted, erased_items)
    await t.run_pipeline(COMMIT)
    return True


def _build_writes(t: TenantConnection, plan: CommitPlan, reads: CommitReads) -> Iterator[Statement]:
    change = plan.transaction
    yield from _build_node_inserts(t, plan, reads)
    yield from links.build_link_upserts(t, change.links, reads.link_statuses)
    if change.session:
        yield from records.build_session_upsert(t, change.session, exists=reads.session_exists)
    if change.conversation:
        nodes, is_extended = _nodes_with_own_ids(plan, change.conversation.head, reads)
        yield from records.build_conversation_upsert(
            t, change.conversation, reads.conversation_head, nodes, is_extended=is_extended
        )
    if change.started_run_id:
        yield runs.build_run_start(t, change.started_run_id)
    if change.ended_run_id:
        yield from runs.build_run_end(t, change.ended_run_id)
    if change.agent_run:
        yield agents.build_agent_run_upsert(t, change.agent_run)
    yield from agents.build_agent_call_upserts(t, change.agent_calls)
    yield from agents.build_approval_decision_inserts(t, change.approval_decisions)


# -- nodes ----------------------------------------------------------------------------------------


def _build_node_inserts(t: TenantConnection, plan: CommitPlan, reads: CommitReads) -> Iterator[Statement]:
    """Insert the referenced nodes that are not stored, and restore erased items."""
    referenced = plan.referenced_nodes(
        {link_id for link_id, status in reads.link_statuses.items() if status not in UNFINISHED_STATUSES}
    )
    new = {
        key: planned
        for key, planned in plan.planned_nodes.items()
        if key in referenced and key not in reads.existing_nodes
    }
    restored = {
        key: planned
        for key, planned in plan.planned_nodes.items()
        if key in reads.existing_nodes and reads.existing_nodes[key].is_empty
    }
    if new or restored:
        in_order = [planned for key, planned in plan.planned_nodes.items() if key in new or key in restored]
        yield from _build_item_inserts(t, in_order)
    if restored:
        yield t.statement(
            RESTORE_ERASED_NODES,
            *to_columns([(tenant_rows.node_id(key), planned.item_id) for key, planned in restored.items()], 2),
        )
    if new:
        rows = [
            (
                tenant_rows.node_id(key),
                tenant_rows.node_rest(key),
                tenant_rows.node_id(planned.parent),
                planned.item_id,
                plan.depth(key, reads.existing_nodes),
            )
            # Sorted: two writers that insert the same rows in another order deadlock.
            for key, planned in sorted(new.items())
        ]
        yield t.statement(INSERT_NODES, *to_columns(rows, 5))


def _build_item_inserts(t: TenantConnection, planned_nodes: Iterable[PlannedNode]) -> Iterator[Statement]:
    """Insert the items that are not stored yet, and their search terms."""
    items: dict[UUID, PlannedNode] = {}
    for planned in planned_nodes:
        items.setdefault(planned.item_id, planned)
    rows = [
        (planned.item_id, _own_id_hash(planned.item), planned.body, position)
        for position, planned in enumerate(items.values())
    ]
    # Sorted: two writers that insert the same rows in another order deadlock.
    yield t.statement(INSERT_ITEMS, *to_columns(sorted(rows), 4))
    term_rows = [
        (item_id, len(terms), _format_term_array(t, terms))
        for item_id, planned in sorted(items.items())
        if (terms := tokenize_item(planned.item))
    ]
    if term_rows:
        yield t.statement(INSERT_TERMS, *to_columns(term_rows, 3))


def _own_id_hash(item: Item) -> int | None:
    """Return the hash of an item's own id; None if it has none."""
    own_id = base.own_item_id(item)
    return tenant_rows.hash_item_id(own_id) if own_id else None


def _format_term_array(t: TenantConnection, terms: str) -> str:
    return "{" + ",".join(map(str, sorted(hash_terms(t, terms)))) + "}"


def hash_terms(t: TenantConnection, terms: str) -> set[int]:
    """Return the hashes of terms, salted by tenant, so that a search reads no index entries of other tenants.

    terms:  from `tokenize`; different terms may have the same hash, so matches must be verified
    """
    salt = t.tenant_number & 0xFFFFFFFF
    # crc32 is unsigned; PostgreSQL's integer is signed.
    return {crc32(term.encode(), salt) - 2**31 for term in set(terms.split())}


# -- records --------------------------------------------------------------------------------------


def _nodes_with_own_ids(plan: CommitPlan, head: Key, reads: CommitReads) -> tuple[list[tuple[UUID, int | None]], bool]:
    """Return the nodes whose items need ids now, oldest first, and whether the ids before them are kept."""
    *rows, last = reads.conversation_nodes
    is_extended = last[0] == reads.conversation_head
    stored = [
        (node, tenant_rows.hash_item_id(tenant_rows.unescape_name(erased_id)) if erased_id else own_id_hash)
        for node, own_id_hash, erased_id in rows[::-1]
    ]
    planned = [
        (tenant_rows.node_id(key), _own_id_hash(plan.planned_nodes[key].item)) for key in plan.planned_path(head)
    ]
    return stored + planned, is_extended


UNREFERENCED_NODE_SQL = """
parent IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND saw = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND head = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND sent_body = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.sessions WHERE sessions.tenant = $1 AND head = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.sessions WHERE sessions.tenant = $1 AND mark = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.sessions WHERE sessions.tenant = $1 AND written = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM convo.conversations WHERE conversations.tenant = $1 AND head = nodes.id)
"""

DELETE_UNREFERENCED_PATHS = f"""
WITH RECURSIVE gone (id, parent, item) AS (
    SELECT id, parent, item FROM convo.nodes WHERE tenant = $1 AND id = ANY($2::uuid[]) AND {UNREFERENCED_NODE_SQL}
        AND NOT EXISTS (SELECT 1 FROM convo.nodes AS child WHERE child.tenant = $1 AND child.parent = nodes.id)
    UNION ALL
    SELECT before.* FROM gone JOIN LATERAL (
        SELECT id, parent, item FROM convo.nodes
        WHERE tenant = $1 AND id = gone.parent AND {UNREFERENCED_NODE_SQL} AND NOT EXISTS (
            SELECT 1 FROM convo.nodes AS child
            WHERE child.tenant = $1 AND child.parent = nodes.id AND child.id <> gone.id)
        LIMIT 1
    ) AS before ON true
)
DELETE FROM convo.nodes WHERE tenant = $1 AND id IN (SELECT id FROM gone) RETURNING id, parent, item
"""
"""Delete paths that end at the given nodes; where two of them meet, both stop before the common node."""

SELECT_UNUSED_ITEMS = """
SELECT hash FROM unnest($2::uuid[]) AS given (hash)
WHERE NOT EXISTS (SELECT 1 FROM convo.nodes WHERE tenant = $1 AND item = given.hash)
"""

SELECT_NODE_ITEMS = """
SELECT nodes.id, nodes.item, body FROM convo.nodes JOIN convo.items ON items.tenant = $1 AND hash = item
WHERE nodes.tenant = $1 AND nodes.id = ANY($2::uuid[])
"""

ERASE_NODE_ITEMS = """
UPDATE convo.nodes SET item = NULL, erased = old.own FROM unnest($2::uuid[], $3::text[]) AS old (id, own)
WHERE tenant = $1 AND nodes.id = old.id
"""


CLEAR_TITLES = """
WITH RECURSIVE below (id, steps) AS (
    SELECT id, 1 FROM unnest($2::uuid[]) AS erased (id)
    UNION ALL
    SELECT child.id, steps + 1 FROM below JOIN LATERAL (
        SELECT id FROM convo.nodes WHERE tenant = $1 AND parent = below.id OFFSET 0
    ) AS child ON true WHERE steps < $3
)
UPDATE convo.links SET title = NULL, tools = NULL
WHERE tenant = $1 AND (saw = ANY(ARRAY(SELECT id FROM below)) OR head = ANY(ARRAY(SELECT id FROM below)))
"""
"""Clear the titles that may be from an item of the nodes $2; they are computed again from the items that are left."""

SELECT_OTHER_NODES_OF_ITEMS = """
WITH RECURSIVE old (id) AS (
    SELECT head FROM convo.links WHERE tenant = $1
        AND route IN (SELECT hash FROM convo.repeated WHERE repeated.tenant = $1 AND conversation = $3)
    UNION SELECT before.* FROM old JOIN LATERAL (
        SELECT parent FROM convo.nodes WHERE tenant = $1 AND id = old.id AND parent IS NOT NULL LIMIT 1
    ) AS before ON true
), own (id) AS (
    SELECT $4::uuid UNION ALL SELECT before.* FROM own JOIN LATERAL (
        SELECT parent FROM convo.nodes WHERE tenant = $1 AND id = own.id AND parent IS NOT NULL LIMIT 1
    ) AS before ON true
)
SELECT id FROM convo.nodes WHERE tenant = $1 AND id <> ALL($2::uuid[])
    AND item IN (SELECT item FROM convo.nodes WHERE tenant = $1 AND id = ANY($2::uuid[]))
    AND id IN (SELECT id FROM old) AND id NOT IN (SELECT id FROM own)
"""
"""Other nodes of erased items: on the paths of a conversation's links, not on its own."""


async def _erase_items(t: TenantConnection, transaction: Transaction) -> list[UUID]:
    """Erase the items of a transaction's `erased_nodes`; return their ids, because they may have no node any more."""
    if not transaction.erased_nodes:
        return []
    nodes = [tenant_rows.node_id(key) for key in transaction.erased_nodes]
    if transaction.conversation:
        conversation = (
            tenant_rows.escape_name(transaction.conversation.id),
            tenant_rows.node_id(transaction.conversation.head),
        )
        nodes += [node for (node,) in await t.fetch_all(SELECT_OTHER_NODES_OF_ITEMS, nodes, *conversation)]
    rows = await t.fetch_all(SELECT_NODE_ITEMS, nodes)
    erased_ids = [
        (node, tenant_rows.escape_name(base.own_item_id(decode_body(node.hex[:12], body)))) for node, _, body in rows
    ]
    await t.run_pipeline(
        t.statement(ERASE_NODE_ITEMS, *to_columns(erased_ids, 2)),
        t.statement(CLEAR_TITLES, nodes, MAX_TITLE_ITEMS),
    )
    return [item for _, item, _ in rows]


DELETE_LINKS = """
DELETE FROM convo.links WHERE tenant = $1 AND id = ANY($2::text[]) RETURNING saw, head, sent_body, route, parameters
"""

DELETE_UNREFERENCED_JSON = """
DELETE FROM convo.repeated WHERE tenant = $1 AND (hash = ANY($2::uuid[]) OR conversation IN (
    SELECT conversation FROM convo.repeated WHERE tenant = $1 AND hash = ANY($2::uuid[])))
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND route = hash)
    AND NOT EXISTS (SELECT 1 FROM convo.links WHERE links.tenant = $1 AND parameters = hash)
"""


async def delete_links(t: TenantConnection, ids: Sequence[str]) -> list[Row]:
    """Delete links (escaped ids) and their runs; return the nodes and the shared JSON that each referenced."""
    if not ids:
        return []
    *_, rows = await t.run_pipeline(*runs.build_run_deletes(t, ids), t.statement(DELETE_LINKS, ids))
    return rows


async def delete_unreferenced_rows(
    t: TenantConnection, nodes: Iterable[UUID | None], links: Sequence[Row], items: Iterable[UUID] = ()
) -> None:
    """Delete the nodes, items and shared JSON that nothing references any more.

    nodes, items:  candidates, with everything that their removal leaves unreferenced
    links:         the result of `delete_links`
    """
    shared_json: set[UUID] = {json_id for link in links for json_id in link[3:] if json_id}
    nodes = [*nodes, *(node for link in links for node in link[:3])]
    await _delete_unreferenced_nodes(t, {node for node in nodes if node}, items)
    if shared_json:
        await t.run_pipeline(t.statement(DELETE_UNREFERENCED_JSON, sorted(shared_json)))


async def _delete_unreferenced_nodes(t: TenantConnection, nodes: Iterable[UUID], items: Iterable[UUID]) -> None:
    """Delete those of `nodes` and `items` that nothing references, and everything that this leaves unreferenced."""
    candidates, candidate_items = set(nodes), set(items)
    while candidates:
        rows = await t.fetch_all(DELETE_UNREFERENCED_PATHS, sorted(candidates))
        # Where two paths met, both stopped; their common node may be unreferenced now.
        candidates = {parent for _, parent, _ in rows} - {node for node, _, _ in rows}
        candidate_items |= {item for _, _, item in rows if item}
    if candidate_items:
        unused_items = [item for (item,) in await t.fetch_all(SELECT_UNUSED_ITEMS, sorted(candidate_items))]
        await t.run_pipeline(
            t.statement("DELETE FROM convo.words WHERE tenant = $1 AND item = ANY($2::uuid[])", unused_items),
            t.statement("DELETE FROM convo.items WHERE tenant = $1 AND hash = ANY($2::uuid[])", unused_items),
        )

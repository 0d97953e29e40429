"""Sessions, conversations and links as rows.

JSON that many links repeat is stored once in `repeated`. Links refer to their parent by id, not by row: it may
be a response of another endpoint. Functions named `build_` return statements, for the pipeline of a commit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from uuid import UUID

from convo.errors import DamagedRow, NotFound
from convo.history.items import Json
from convo.history.records import ANSWERED_STATUSES, UNFINISHED_STATUSES, Link, LinkStatus, Session
from convo.history.tree import Key
from convo.stores import base
from convo.stores.base import Conversation, SessionStats
from convo.stores.codec import (
    LISTED_COLUMNS,
    SAME_AS_PARENT,
    ReadRows,
    decode_link,
    decode_metadata,
    decode_rows,
    decode_session,
    encode_error,
    encode_json,
    encode_listed_columns,
    encode_previous_response_id,
    encode_route,
    encode_session_record,
)
from convo.stores.postgres import tenant_rows
from convo.stores.postgres.tenant_rows import Row, Statement, TenantConnection, decode_body, to_columns
from convo.stores.postgres.tree import NODE_KEY_SQL

SESSION_COLUMNS = f"""
id, name, (SELECT {NODE_KEY_SQL} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = sessions.head),
    (SELECT {NODE_KEY_SQL} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = sessions.mark),
    (SELECT {NODE_KEY_SQL} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = sessions.written),
    link, used_at, record, used
"""

SELECT_SESSIONS = f"SELECT {SESSION_COLUMNS} FROM convo.sessions WHERE tenant = $1"

SELECT_SESSION_STATS = """
WITH RECURSIVE up (id, parent, item, depth) AS (
    SELECT nodes.id, parent, item, depth FROM convo.sessions JOIN convo.nodes
        ON nodes.tenant = $1 AND nodes.id = sessions.head WHERE sessions.tenant = $1 AND sessions.id = $2
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, depth FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
)
SELECT (SELECT max(depth) FROM up), (SELECT depth FROM up WHERE id = mark),
    (
        SELECT count(*) FROM convo.links
        WHERE tenant = $1 AND session = $2 AND (status = ANY($3::text[]) OR head <> saw)
    ),
    (SELECT body FROM convo.items WHERE tenant = $1 AND hash = (SELECT item FROM up WHERE depth = 1))
FROM convo.sessions WHERE tenant = $1 AND id = $2
"""

SELECT_LAST_USE = "(SELECT coalesce(max(used), 0) FROM convo.sessions WHERE tenant = $1 AND id <> $2)"
"""The highest use order of the other sessions; `used` counts up with every use and does not depend on the clock."""

INSERT_SESSION = f"""
INSERT INTO convo.sessions (tenant, id, name, head, mark, written, link, used_at, record, used)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::bigint, {SELECT_LAST_USE} + 1))
"""
UPDATE_SESSION = f"""
UPDATE convo.sessions SET (name, head, mark, written, link, used_at, record) = ROW ($3, $4, $5, $6, $7, $8, $9),
    used = CASE
        WHEN $10::bigint IS NOT NULL THEN $10
        WHEN used_at = $8 OR used > {SELECT_LAST_USE} THEN used
        ELSE {SELECT_LAST_USE} + 1
    END
WHERE tenant = $1 AND id = $2
"""
DELETE_REMOVED_MARKER = "DELETE FROM convo.removed WHERE tenant = $1 AND session = $2"

SELECT_MEMBERS = f"""
WITH RECURSIVE up (id, parent, item, erased, key) AS (
    SELECT nodes.id, parent, item, erased, {NODE_KEY_SQL} FROM convo.conversations JOIN convo.nodes
        ON nodes.tenant = $1 AND nodes.id = head WHERE conversations.tenant = $1 AND conversations.id = $2
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, erased, {NODE_KEY_SQL} FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
), called (key, erased, item, given) AS (
    SELECT key, erased, item,
        (SELECT id FROM convo.members WHERE tenant = $1 AND node = up.id AND conversation = $2) FROM up
)
SELECT key, given, erased,
    CASE WHEN given IS NULL THEN (SELECT body FROM convo.items WHERE tenant = $1 AND hash = called.item) END,
    created_at, metadata
FROM called, convo.conversations WHERE tenant = $1 AND id = $2
"""
"""The nodes from a conversation's head back to the root, with the sources of each item's id."""

SELECT_KNOWN_CONVERSATION = """
WITH RECURSIVE up (id, parent, position) AS (
    SELECT id, parent, 1 FROM convo.nodes WHERE tenant = $1 AND id = $3
    UNION ALL
    SELECT before.*, position + 1 FROM up JOIN LATERAL (
        SELECT id, parent FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
), last AS (
    SELECT position, given.id FROM up JOIN LATERAL (
        SELECT id FROM convo.members WHERE tenant = $1 AND node = up.id AND conversation = $2 LIMIT 1
    ) AS given ON true LIMIT 1
)
SELECT created_at, metadata, position, last.id FROM convo.conversations LEFT JOIN last ON true
WHERE tenant = $1 AND conversations.id = $2 AND head = $3
"""
"""A conversation with this head, and the last id on its path that it assigned, at a position counted from the end.

Items are added at the end only: if another id on a path of the same items changed, so did this one.
"""

SELECT_PATH_TO_CONVERSATION = """
WITH RECURSIVE up (id, parent, item, erased) AS (
    SELECT id, parent, item, erased FROM convo.nodes WHERE tenant = $1 AND id = $2
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent, item, erased FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
    WHERE up.id IS DISTINCT FROM (SELECT head FROM convo.conversations WHERE tenant = $1 AND id = $3)
)
SELECT id, (SELECT named FROM convo.items WHERE tenant = $1 AND hash = up.item), erased FROM up
"""
"""The nodes from a node back to the head of a conversation or to the root, both included."""

INSERT_CONVERSATION = """
INSERT INTO convo.conversations (tenant, id, head, created_at, metadata) VALUES ($1, $2, $3, $4, $5)
"""
UPDATE_CONVERSATION = """
UPDATE convo.conversations SET (head, created_at, metadata) = ROW ($3, $4, $5) WHERE tenant = $1 AND id = $2
"""
DELETE_ASSIGNED_IDS = """
WITH RECURSIVE up (id, parent) AS (
    SELECT id, parent FROM convo.nodes WHERE tenant = $1 AND id = $3
    UNION ALL
    SELECT before.* FROM up JOIN LATERAL (
        SELECT id, parent FROM convo.nodes WHERE tenant = $1 AND id = up.parent LIMIT 1
    ) AS before ON true
)
DELETE FROM convo.members WHERE tenant = $1 AND conversation = $2 AND node IN (SELECT id FROM up)
"""
"""Delete the ids that a conversation assigned to the items on the path to a node."""

INSERT_ASSIGNED_IDS = """
INSERT INTO convo.members (tenant, conversation, node, named, id)
SELECT $1, $2, node, named, id FROM unnest($3::uuid[], $4::bigint[], $5::text[]) AS new (node, named, id)
"""


# -- sessions -------------------------------------------------------------------------------------


async def select_session(t: TenantConnection, name_or_id: str) -> Session | None:
    """Return a session. Raises DamagedRow."""
    query = f"{SELECT_SESSIONS} AND (id = $2 OR name = $2) ORDER BY id <> $2 LIMIT 1"
    row = await t.fetch_row(query, tenant_rows.escape_name(name_or_id))
    return session_from_row(row) if row else None


async def select_sessions(t: TenantConnection, limit: int | None) -> ReadRows[Session]:
    newest_first = "ORDER BY used DESC NULLS FIRST, used_at DESC, id DESC LIMIT $2"
    row_count = limit
    while True:
        rows = await t.fetch_all(f"{SELECT_SESSIONS} {newest_first}", row_count)
        read = decode_rows(session_from_row, rows)
        if limit is None or row_count is None or len(rows) < row_count or len(read.rows) >= limit:
            return read
        row_count = limit + len(read.damaged)


async def select_session_stats(t: TenantConnection, session_id: str) -> ReadRows[SessionStats]:
    """Return the figures of a session, without its first item if that is damaged. Raises NotFound."""
    row = await t.fetch_row(SELECT_SESSION_STATS, tenant_rows.escape_name(session_id), list(ANSWERED_STATUSES))
    if row is None:
        raise NotFound("session", session_id)
    item_count, confirmed_count, turn_count, body = row
    stats = SessionStats(item_count or 0, (item_count or 0) - (confirmed_count or 0), turn_count, None)
    try:
        first_item = None if body is None else decode_body(f"of {session_id}", body)
    except DamagedRow as error:
        return ReadRows([stats], [error])
    return ReadRows([stats._replace(first_item=first_item)], [])


def session_from_row(row: Row) -> Session:
    """Return the session of a row of `SESSION_COLUMNS`. Raises DamagedRow."""
    session_id, name, head, mark, written, link, used_at, record, used = row
    names = tenant_rows.unescape_name(session_id), tenant_rows.unescape_name(name)
    return decode_session(
        (*names, head, mark, written, link and tenant_rows.unescape_name(link), used_at, record, used)
    )


def build_session_upsert(t: TenantConnection, new: Session, *, exists: bool) -> Iterable[Statement]:
    """Write a record. Raises NotCanonical."""
    yield t.statement(
        UPDATE_SESSION if exists else INSERT_SESSION,
        *(
            tenant_rows.escape_name(new.id),
            tenant_rows.escape_name(new.name),
            tenant_rows.node_id(new.head),
            tenant_rows.node_id(new.confirmed_head),
        ),
        *(
            tenant_rows.node_id(new.file_head) if new.file_head else None,
            tenant_rows.escape_optional_name(new.link_id),
            new.used_at,
            encode_session_record(new),
        ),
        new.use_order,
    )
    if not exists:
        yield t.statement(DELETE_REMOVED_MARKER, tenant_rows.escape_name(new.id))


# -- conversations --------------------------------------------------------------------------------


async def select_conversation(
    t: TenantConnection, conversation_id: str, known: Conversation | None = None
) -> Conversation | None:
    """Return a conversation. Raises DamagedRow."""
    stored_id = tenant_rows.escape_name(conversation_id)
    row = await t.fetch_row(SELECT_KNOWN_CONVERSATION, stored_id, tenant_rows.node_id(known.head)) if known else None
    if known and row and (row[2] is None or known.item_ids[-row[2]] == tenant_rows.unescape_name(row[3])):
        return replace(known, metadata=decode_metadata(conversation_id, *row[:2]))
    rows = await t.fetch_all(SELECT_MEMBERS, stored_id)
    if not rows:
        if await t.fetch_row("SELECT 1 FROM convo.conversations WHERE tenant = $1 AND id = $2", stored_id):
            raise DamagedRow("conversation", conversation_id, "its head is missing")
        return None
    key, *_, created_at, metadata = rows[0]
    ids = tuple(_member_id(conversation_id, *member) for _, *member, _, _ in rows[-2::-1])
    metadata = decode_metadata(conversation_id, created_at, metadata)
    return Conversation(conversation_id, Key(key.hex()), created_at, ids, metadata)


def _member_id(conversation_id: str, assigned_id: str | None, erased_id: str | None, body: bytes | None) -> str:
    if body is not None:
        return base.own_item_id(decode_body(f"in {conversation_id}", body))
    return tenant_rows.unescape_name(assigned_id or erased_id or "")


def build_conversation_upsert(
    t: TenantConnection,
    new: Conversation,
    old_head: UUID | None,
    nodes: Sequence[tuple[UUID, int | None]],
    *,
    is_extended: bool,
) -> Iterable[Statement]:
    """Write a conversation and the ids that it assigned. Raises NotCanonical.

    nodes:  oldest first, each with the hash of its item's own id: those after `old_head` if the new head is a
            descendant of it (`is_extended`), else all
    """
    row = (
        tenant_rows.escape_name(new.id),
        tenant_rows.node_id(new.head),
        new.created_at,
        encode_json(dict(new.metadata)),
    )
    yield t.statement(INSERT_CONVERSATION if old_head is None else UPDATE_CONVERSATION, *row)
    if old_head is not None and not is_extended:
        yield t.statement(DELETE_ASSIGNED_IDS, tenant_rows.escape_name(new.id), old_head)
    ids = new.item_ids[len(new.item_ids) - len(nodes) :]
    assigned = [
        (node, tenant_rows.hash_item_id(item_id), tenant_rows.escape_name(item_id))
        for (node, own_id_hash), item_id in zip(nodes, ids, strict=True)
        if own_id_hash != tenant_rows.hash_item_id(item_id)
    ]
    if assigned:
        yield t.statement(INSERT_ASSIGNED_IDS, tenant_rows.escape_name(new.id), *to_columns(assigned, 3))


SELECT_LINKS = f"""
SELECT id, parent, session,
    (SELECT {NODE_KEY_SQL} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = links.saw),
    (SELECT {NODE_KEY_SQL} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = links.head),
    sent, (SELECT body FROM convo.repeated WHERE repeated.tenant = $1 AND hash = route), status, created_at, previous,
    seconds, first_token_s,
    (SELECT body FROM convo.repeated WHERE repeated.tenant = $1 AND hash = parameters), usage, error,
    (SELECT {NODE_KEY_SQL} FROM convo.nodes WHERE nodes.tenant = $1 AND nodes.id = links.sent_body)
FROM convo.links
"""

ORDER_OLDEST_FIRST = "ORDER BY created_at, id"

WHERE_CONVERSATION = """
WHERE tenant = $1 AND route IN (SELECT hash FROM convo.repeated WHERE repeated.tenant = $1 AND conversation = $2)
"""

WITH_RELATED_LINKS = """
WITH RECURSIVE above (id) AS (
    SELECT id FROM convo.links WHERE tenant = $1 AND id = $2
    UNION
    SELECT near.id FROM above JOIN LATERAL (
        SELECT parent AS id FROM convo.links WHERE tenant = $1 AND links.id = above.id AND parent IS NOT NULL OFFSET 0
    ) AS near ON true
), kin (id) AS (
    (SELECT id FROM above LIMIT $3::bigint)
    UNION
    SELECT near.id FROM kin JOIN LATERAL (
        SELECT id FROM convo.links WHERE tenant = $1 AND parent = kin.id OFFSET 0
    ) AS near ON true
)
"""
"""A link, its ancestors, and their descendants, nearest first; only as many as the caller takes are read."""

INSERT_JSON = """
INSERT INTO convo.repeated (tenant, hash, body, conversation)
SELECT $1, hash, body, conversation FROM unnest($2::uuid[], $3::text[], $4::text[]) AS new (hash, body, conversation)
ON CONFLICT DO NOTHING
"""

LINK_COLUMNS = f"""
id, parent, session, saw, head, sent, route, status, created_at, previous, seconds, first_token_s, parameters,
    usage, error, sent_body, {", ".join(LISTED_COLUMNS)}"""
LINK_WIDTH = LINK_COLUMNS.count(",") + 1
UPDATE_FINAL_LINK = """
UPDATE convo.links SET session = coalesce(nullif(session, ''), $3), parent = coalesce(nullif(parent, ''), $4),
    first_token_s = coalesce(first_token_s, $5)
WHERE tenant = $1 AND id = $2
"""
"""The columns that `merge_link` may fill in for a final link."""


def _link_placeholders(row: int = 0) -> str:
    first = 2 + row * LINK_WIDTH
    return ", ".join(f"${number}" for number in range(first, first + LINK_WIDTH))


UPDATE_LINK = f"UPDATE convo.links SET ({LINK_COLUMNS}) = ROW ({_link_placeholders()}) WHERE tenant = $1 AND id = $2"


@cache
def _insert_links_sql(count: int) -> str:
    """Return the statement for `count` links; arrays for `unnest` would cost one link ten times as much."""
    rows = ", ".join(f"($1, {_link_placeholders(row)})" for row in range(count))
    return f"INSERT INTO convo.links (tenant, {LINK_COLUMNS}) VALUES {rows}"


async def select_link(t: TenantConnection, link_id: str) -> Link | None:
    """Return a link. Raises DamagedRow."""
    row = await t.fetch_row(f"{SELECT_LINKS} WHERE tenant = $1 AND id = $2", tenant_rows.escape_name(link_id))
    return link_from_row(row) if row else None


async def select_session_links(t: TenantConnection, session_id: str, limit: int | None = None) -> ReadRows[Link]:
    session = tenant_rows.escape_name(session_id)
    if limit is None:
        return await _select_links_oldest_first(t, "WHERE tenant = $1 AND session = $2", session)
    newest = """WHERE tenant = $1 AND id = ANY(ARRAY(
        SELECT id FROM convo.links WHERE tenant = $1 AND session = $2 ORDER BY created_at DESC, id DESC LIMIT $3
    ))"""
    return await _select_links_oldest_first(t, newest, session, limit)


async def select_conversation_links(t: TenantConnection, conversation_id: str) -> ReadRows[Link]:
    return await _select_links_oldest_first(t, WHERE_CONVERSATION, tenant_rows.escape_name(conversation_id))


async def select_responses_to(t: TenantConnection, input_heads: Collection[Key]) -> ReadRows[Link]:
    node_ids = {key: tenant_rows.node_id(key) for key in input_heads if tenant_rows.is_node_key(key)}
    if not node_ids:
        return ReadRows([], [])
    links = await _select_links_oldest_first(t, "WHERE tenant = $1 AND saw = ANY ($2::uuid[])", [*node_ids.values()])
    return links._replace(rows=[link for link in links.rows if link.input_head in node_ids])


async def select_related_links(t: TenantConnection, link_id: str, limit: int | None = None) -> ReadRows[Link]:
    where = "WHERE tenant = $1 AND id IN (SELECT id FROM kin LIMIT $3::bigint)"
    return await _select_links_oldest_first(
        t, where, tenant_rows.escape_name(link_id), limit, with_clause=WITH_RELATED_LINKS
    )


async def select_child_links(t: TenantConnection, link_id: str, limit: int) -> ReadRows[Link]:
    where = (
        "WHERE tenant = $1 AND id = ANY(ARRAY(SELECT id FROM convo.links WHERE tenant = $1 AND parent = $2 LIMIT $3))"
    )
    return await _select_links_oldest_first(t, where, tenant_rows.escape_name(link_id), limit)


async def _select_links_oldest_first(
    t: TenantConnection, where: str, *values: object, with_clause: str = ""
) -> ReadRows[Link]:
    rows = await t.fetch_all(f"{with_clause}{SELECT_LINKS}{where} {ORDER_OLDEST_FIRST}", *values)
    return decode_rows(link_from_row, rows)


def link_from_row(row: Row) -> Link:
    """Return the link of a row of `SELECT_LINKS`. Raises DamagedRow."""
    link_id, parent, session, *columns = row
    previous = columns[6] and tenant_rows.unescape_name(columns[6])
    ids = (
        tenant_rows.unescape_name(link_id),
        parent and tenant_rows.unescape_name(parent),
        session and tenant_rows.unescape_name(session),
    )
    return decode_link((*ids, *columns[:6], previous, *columns[7:]))


def build_link_upserts(
    t: TenantConnection, new: Iterable[Link], stored_statuses: Mapping[str, LinkStatus]
) -> Iterable[Statement]:
    """Write links and their shared JSON, by the rules of `merge_link`. Raises NotCanonical.

    new:  written in order; the same link may occur twice
    """
    statuses, shared_json = dict(stored_statuses), dict[UUID, tuple[str, str | None]]()
    inserted: list[tuple[object, ...]] = []
    updates: list[Statement] = []
    for link in new:
        stored_status = statuses.get(link.id)
        if stored_status is not None and stored_status not in UNFINISHED_STATUSES:
            updates.append(_build_final_link_update(t, link))
            continue
        row = _link_row(link, shared_json)
        if stored_status is None:
            inserted.append(row)
        else:
            updates.append(t.statement(UPDATE_LINK, *row))
        statuses[link.id] = link.status
    if shared_json:  # in the same order for every writer, so that two never deadlock
        in_order = [(json_id, *shared_json[json_id]) for json_id in sorted(shared_json)]
        yield t.statement(INSERT_JSON, *to_columns(in_order, 3))
    if inserted:
        yield t.statement(_insert_links_sql(len(inserted)), *chain.from_iterable(inserted))
    yield from updates


def _build_final_link_update(t: TenantConnection, link: Link) -> Statement:
    return t.statement(
        UPDATE_FINAL_LINK,
        tenant_rows.escape_name(link.id),
        tenant_rows.escape_optional_name(link.session_id),
        tenant_rows.escape_optional_name(link.parent_id),
        link.first_token_s,
    )


def _link_row(link: Link, shared_json: dict[UUID, tuple[str, str | None]]) -> tuple[object, ...]:
    """Return the columns of a link; add the JSON that it shares, with the conversation of a route."""

    def share(value: Json, conversation: str | None = None) -> UUID:
        body = encode_json(value)
        json_id = tenant_rows.json_uuid(body)
        shared_json[json_id] = (body, conversation)
        return json_id

    route, figures = encode_route(link)
    previous = encode_previous_response_id(link)
    return (
        tenant_rows.escape_name(link.id),
        tenant_rows.escape_optional_name(link.parent_id),
        tenant_rows.escape_optional_name(link.session_id),
        tenant_rows.node_id(link.input_head),
        tenant_rows.node_id(link.head),
        link.sent_count,
        share(route, tenant_rows.escape_optional_name(link.conversation_id)),
        link.status,
        link.created_at,
        previous if previous == SAME_AS_PARENT else tenant_rows.escape_optional_name(previous),
        link.duration_s,
        link.first_token_s,
        share(link.parameters) if link.parameters else None,
        figures,
        encode_error(link),
        tenant_rows.node_id(link.body_head) if link.body_head else None,
        *encode_listed_columns(link),
    )

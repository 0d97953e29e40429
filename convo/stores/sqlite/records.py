"""Sessions, conversations and links as rows.

JSON that many links repeat (parameters; the route: model, strategy, scope, conversation) is stored once in
`repeated`. A link or session that others refer to but that is not stored, or was removed, is a row with only
an id. A conversation stores only the item ids that it assigned itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from convo.errors import DamagedRow, NotFound
from convo.history.items import Json
from convo.history.records import ANSWERED_STATUSES, UNFINISHED_STATUSES, Link, Session
from convo.history.tree import Key
from convo.stores import base
from convo.stores.base import Conversation, SessionStats
from convo.stores.codec import (
    LISTED_COLUMNS,
    ReadRows,
    decode_item,
    decode_items,
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
from convo.stores.sqlite import tenant_rows
from convo.stores.sqlite.tenant_rows import Columns, Row, TenantConnection, fetch_records, to_query_name
from convo.stores.sqlite.tree import (
    NO_NODE,
    SELECT_PATH_ROWIDS,
    delete_unreferenced_link,
    delete_unreferenced_targets,
    find_node,
    node_rowid,
    select_node_item,
)

SELECT_SESSIONS = """
SELECT sessions.id, sessions.name, head.key, mark.key, written.key, links.id, sessions.used_at, sessions.record,
    sessions.used
FROM sessions
    LEFT JOIN nodes AS head ON head.n = sessions.head
    LEFT JOIN nodes AS mark ON mark.n = sessions.mark
    LEFT JOIN nodes AS written ON written.n = sessions.written
    LEFT JOIN links ON links.n = sessions.link
WHERE (sessions.record IS NOT NULL OR sessions.head IS NOT NULL)
"""
"""The sessions with a record; a row without one has only an id that links reference."""

SELECT_SESSION_ROW = """
SELECT sessions.n, head.key, links.id, links.saw IS NULL, sessions.name, sessions.head, mark, written, sessions.link,
    used_at, used
FROM sessions
    JOIN nodes AS head ON head.n = sessions.head
    LEFT JOIN links ON links.n = sessions.link
WHERE sessions.tenant = ? AND sessions.id = ?
"""

SELECT_LAST_USE = "SELECT coalesce(max(used), 0) FROM sessions WHERE tenant = ? AND id <> ?"

SELECT_NAME_CONFLICT = "SELECT 1 FROM sessions WHERE tenant = ? AND name = ? AND id <> ?"

SELECT_CONVERSATION_ROW = """
SELECT conversations.n, head, length, key FROM conversations JOIN nodes ON nodes.n = head
WHERE conversations.tenant = ? AND id = ?
"""

SELECT_LAST_ASSIGNED_ID = """
WITH RECURSIVE up (n, parent, position) AS (
    SELECT n, parent, 1 FROM nodes WHERE n = ?
    UNION ALL SELECT nodes.n, nodes.parent, position + 1 FROM up JOIN nodes ON nodes.n = up.parent
)
SELECT position, id FROM up CROSS JOIN members ON members.conversation = ? AND members.node = up.n LIMIT 1
"""
"""The last id on the path to a head that a conversation assigned, and its position, counted from the end.

Items are added at the end only: if another id on a path of the same items changed, so did this one.
"""

SELECT_MEMBERS = """
WITH RECURSIVE up (n, parent, item, erased) AS (
    SELECT n, parent, item, erased FROM nodes WHERE n = ?
    UNION ALL
    SELECT nodes.n, nodes.parent, nodes.item, nodes.erased FROM up JOIN nodes ON nodes.n = up.parent WHERE up.n <> ?
)
SELECT up.n, members.id, up.erased, CASE WHEN members.id IS NULL THEN items.body END,
    up.item
FROM up LEFT JOIN items ON items.n = up.item
    LEFT JOIN members ON members.conversation = ? AND members.node = up.n
"""
"""Nodes from a head back to another one or to the root, both included, with the sources of each item's id."""


# -- sessions -------------------------------------------------------------------------------------


def select_session(t: TenantConnection, name_or_id: str) -> Session | None:
    """Return a session. Raises DamagedRow."""
    parameters = t.tenant_number, to_query_name(name_or_id)
    rows = t.fetch_records(SELECT_SESSIONS + "AND sessions.tenant = ? AND sessions.id = ?", *parameters)
    rows = rows or t.fetch_records(SELECT_SESSIONS + "AND sessions.tenant = ? AND sessions.name = ?", *parameters)
    return decode_session(rows[0]) if rows else None


def select_sessions(t: TenantConnection, limit: int | None) -> ReadRows[Session]:
    newest_first = "AND sessions.tenant = ? ORDER BY used DESC NULLS FIRST, used_at DESC, sessions.n DESC LIMIT ?"
    row_count = -1 if limit is None else limit
    while True:
        rows = t.fetch_records(SELECT_SESSIONS + newest_first, t.tenant_number, row_count)
        read = decode_rows(decode_session, rows)
        if limit is None or len(rows) < row_count or len(read.rows) >= limit:
            return read
        row_count = limit + len(read.damaged)


def select_session_stats(t: TenantConnection, session_id: str) -> ReadRows[SessionStats]:
    """Return the figures of a session, without its first item if that is damaged. Raises NotFound."""
    row = t.fetch_row(
        "SELECT n, head, mark FROM sessions WHERE tenant = ? AND id = ? AND record IS NOT NULL",
        t.tenant_number,
        to_query_name(session_id),
    )
    if row is None:
        raise NotFound("session", session_id)
    n, head, mark = row
    path = [rowid for (rowid,) in t.fetch_all(SELECT_PATH_ROWIDS, head)][:-1]
    count_answered = "SELECT count(*) FROM links WHERE session = ? AND (status IN (?, ?) OR head <> saw)"
    stats = SessionStats(
        item_count=len(path),
        unconfirmed_count=path.index(mark) if mark in path else len(path),
        turn_count=t.fetch_value(count_answered, n, *ANSWERED_STATUSES),
        first_item=None,
    )
    try:
        return ReadRows([stats._replace(first_item=select_node_item(t, path[-1]) if path else None)], [])
    except DamagedRow as error:
        return ReadRows([stats], [error])


class SessionRow(NamedTuple):
    """The stored row of a session that a transaction writes.

    head_key:  key of the node `head`
    link_id:   id of the row `link`
    is_link_placeholder:  the row `link` has only an id
    """

    rowid: int
    head_key: bytes
    link_id: str | None
    is_link_placeholder: bool
    name: str
    head: int
    confirmed_head: int
    file_head: int | None
    link: int | None
    used_at: float
    use_order: int | None


def check_stored_session(t: TenantConnection, new: Session, expected: base.ExpectedHead) -> SessionRow | None:
    """Return the stored row, if `new` may replace it. Raises Conflict."""
    row = t.fetch_row(SELECT_SESSION_ROW, t.tenant_number, new.id)
    stored = SessionRow(*row) if row else None
    base.check_expected_head(f"session {new.name!r}", expected, Key(stored.head_key.hex()) if stored else None)
    if not (stored and stored.name == new.name) and t.fetch_value(
        SELECT_NAME_CONFLICT, t.tenant_number, new.name, new.id
    ):
        raise base.session_name_taken_error(new.name)
    if stored:
        t.rowids["sessions", new.id] = stored.rowid
        t.rowids["nodes", stored.head_key.hex()] = stored.head
    if stored and stored.link_id is not None and stored.link is not None:
        t.rowids["links", stored.link_id] = stored.link
    return stored


def upsert_session(t: TenantConnection, new: Session, stored: SessionRow | None) -> tuple[int, ...]:
    """Write a record over the row from `check_stored_session`; return the nodes that the old one referenced."""
    row: dict[str, object] = {
        "name": new.name,
        "head": node_rowid(t, new.head),
        "mark": node_rowid(t, new.confirmed_head),
        "written": node_rowid(t, new.file_head) if new.file_head else None,
        "link": link_rowid(t, new.link_id),
        "used_at": new.used_at,
        "used": _use_number(t, new, stored),
        "record": encode_session_record(new),
    }
    if stored is None:
        n = t.find_rowid("sessions", new.id)
        if n is None:
            t.insert_row("sessions", new.id, row)
        else:  # the row has only an id, or was removed
            t.update_row("sessions", n, {**row, "removed": 0}, {})
        return ()
    t.update_row("sessions", stored.rowid, row, _session_columns(stored))
    if stored.link is not None and stored.is_link_placeholder:
        delete_unreferenced_link(t, stored.link)
    return tuple(n for n in (stored.head, stored.confirmed_head, stored.file_head) if n is not None)


def _session_columns(stored: SessionRow) -> dict[str, object]:
    return {
        "name": stored.name,
        "head": stored.head,
        "mark": stored.confirmed_head,
        "written": stored.file_head,
        "link": stored.link,
        "used_at": stored.used_at,
        "used": stored.use_order,
    }


def _use_number(t: TenantConnection, new: Session, stored: SessionRow | None) -> int | None:
    """Return a session's use order: its own, or else the stored one, or the highest if `new` is a use."""
    if new.use_order is not None:
        return new.use_order
    if stored and stored.used_at == new.used_at:
        return stored.use_order
    highest: int = t.fetch_value(SELECT_LAST_USE, t.tenant_number, new.id)
    return stored.use_order if stored and stored.use_order is not None and stored.use_order > highest else highest + 1


# -- conversations --------------------------------------------------------------------------------


def select_conversation(
    t: TenantConnection, conversation_id: str, known: Conversation | None = None
) -> Conversation | None:
    """Return a conversation. Raises DamagedRow."""
    found = t.fetch_records(
        "SELECT conversations.n, nodes.n, nodes.key, created_at, metadata FROM conversations"
        " LEFT JOIN nodes ON nodes.n = head WHERE conversations.tenant = ? AND id = ?",
        *(t.tenant_number, to_query_name(conversation_id)),
    )
    if not found:
        return None
    n, head, key, created_at, metadata = found[0]
    if key is None:
        raise DamagedRow("conversation", conversation_id, "its head is missing")
    if known is not None and known.head == key.hex():
        last = t.fetch_row(SELECT_LAST_ASSIGNED_ID, head, n)
        if last is None or known.item_ids[-last[0]] == last[1]:
            return replace(known, metadata=decode_metadata(conversation_id, created_at, metadata))
    rows = t.fetch_records(SELECT_MEMBERS, head, NO_NODE, n)[-2::-1]
    bodies = [body for _, _, _, body, _ in rows if body is not None]
    own_items = iter(decode_items([f"in {conversation_id}"] * len(bodies), bodies))
    ids = tuple(
        base.own_item_id(next(own_items)) if body is not None else assigned_id or erased_id
        for _, assigned_id, erased_id, body, _ in rows
    )
    if not all(isinstance(item_id, str) for item_id in ids):
        raise DamagedRow("conversation", conversation_id, "an item has no id")
    metadata = decode_metadata(conversation_id, created_at, metadata)
    return Conversation(conversation_id, Key(key.hex()), created_at, ids, metadata)


class ConversationRow(NamedTuple):
    """The stored row of a conversation that a transaction writes; `length` counts the items up to its head."""

    rowid: int
    head: int
    length: int
    head_key: bytes


def check_stored_conversation(
    t: TenantConnection, new: Conversation, expected: base.ExpectedHead
) -> ConversationRow | None:
    """Return the stored row, if its head is the expected one. Raises Conflict."""
    row = t.fetch_row(SELECT_CONVERSATION_ROW, t.tenant_number, new.id)
    stored = ConversationRow(*row) if row else None
    base.check_expected_head(new.id, expected, Key(stored.head_key.hex()) if stored else None)
    if stored:
        t.rowids["nodes", stored.head_key.hex()] = stored.head
    return stored


def upsert_conversation(t: TenantConnection, new: Conversation, stored: ConversationRow | None) -> tuple[int, ...]:
    """Write a conversation and the ids that it assigned; return the node that was its head before."""
    head = node_rowid(t, new.head)
    n, old_head, length, _ = stored or (_insert_conversation(t, new, head), NO_NODE, 0, b"")
    rows = t.fetch_all(SELECT_MEMBERS, head, old_head, n)
    if rows[-1][0] == old_head:  # the new head is a descendant of the old one, or the same
        nodes = rows[-2::-1]
    else:
        nodes, length = rows[-2::-1], 0
        delete_assigned_ids(t, n, old_head)
    base.check_item_ids(new, length + len(nodes))
    t.execute(
        "UPDATE conversations SET head = ?, length = ?, created_at = ?, metadata = ? WHERE n = ?",
        *(head, len(new.item_ids), new.created_at, encode_json(dict(new.metadata)), n),
    )
    _insert_assigned_ids(t, n, nodes, new.item_ids[length:])
    return (old_head,) if stored else ()


def delete_assigned_ids(t: TenantConnection, conversation: int, head: int) -> None:
    """Delete the ids that a conversation assigned to the items on its path."""
    for n, assigned_id, _, _, item in t.fetch_all(SELECT_MEMBERS, head, NO_NODE, conversation):
        if assigned_id is not None:
            t.execute("DELETE FROM members WHERE node = ? AND conversation = ?", n, conversation)
            tenant_rows.unindex_item_id(t, assigned_id, item)


def _insert_conversation(t: TenantConnection, new: Conversation, head: int) -> int:
    return t.execute_insert(
        "INSERT INTO conversations (tenant, id, head, length, created_at, metadata) VALUES (?, ?, ?, 0, ?, '')",
        *(t.tenant_number, new.id, head, new.created_at),
    )


def _insert_assigned_ids(t: TenantConnection, conversation: int, nodes: Iterable[Row], ids: Iterable[str]) -> None:
    """Store the ids that the items at `nodes` do not have themselves."""
    for (n, _, erased_id, body, item), item_id in zip(nodes, ids, strict=True):
        base.check_stored_name(item_id)
        if item_id != (base.own_item_id(decode_item(item_id, body)) if body else erased_id):
            t.execute(
                "INSERT INTO members (tenant, conversation, node, id) VALUES (?, ?, ?, ?)",
                t.tenant_number,
                conversation,
                n,
                item_id,
            )
            if item is not None:
                tenant_rows.index_item_id(t, item_id, item)


SELECT_LINKS = """
SELECT links.id, parents.id, sessions.id, saw.key, head.key, links.sent, routes.body, links.status, links.created_at,
    links.previous, links.seconds, links.first_token_s, parameters.body, links.usage, links.error,
    bodies.key
FROM links
    LEFT JOIN nodes AS saw ON saw.n = links.saw
    LEFT JOIN nodes AS head ON head.n = links.head
    LEFT JOIN nodes AS bodies ON bodies.n = links.sent_body
    LEFT JOIN repeated AS routes ON routes.n = links.route
    LEFT JOIN links AS parents ON parents.n = links.parent
    LEFT JOIN sessions ON sessions.n = links.session
    LEFT JOIN repeated AS parameters ON parameters.n = links.parameters
WHERE links.saw IS NOT NULL
"""
"""The links that are stored; a row without an input has only an id that other rows reference."""

WITH_RELATED_LINKS = """
WITH RECURSIVE above (n) AS (
    SELECT n FROM links WHERE tenant = :tenant AND id = :id AND saw IS NOT NULL
    UNION SELECT links.parent FROM above JOIN links ON links.n = above.n WHERE links.parent IS NOT NULL
    LIMIT :limit
), kin (n) AS (
    SELECT n FROM above
    UNION SELECT links.n FROM kin JOIN links ON links.parent = kin.n
    LIMIT :limit
)
"""
"""A link, its ancestors, and their descendants, nearest first; a negative limit reads all of them."""

ORDER_OLDEST_FIRST = "ORDER BY links.created_at, links.n"

LINK_REFERENCE_COLUMNS = ("saw", "head", "sent_body", "parent", "session", "route", "parameters")
"""Columns of a link that reference other rows; the first three reference nodes."""

SELECT_LINK_REFERENCES = f"SELECT n, {', '.join(LINK_REFERENCE_COLUMNS)} FROM links WHERE tenant = ? AND id = ?"  # noqa: S608 - constant columns


def select_link(t: TenantConnection, link_id: str) -> Link | None:
    """Return a link. Raises DamagedRow."""
    parameters = t.tenant_number, to_query_name(link_id)
    rows = t.fetch_records(SELECT_LINKS + "AND links.tenant = ? AND links.id = ?", *parameters)
    return decode_link(rows[0]) if rows else None


def select_session_links(t: TenantConnection, session_id: str, limit: int | None = None) -> ReadRows[Link]:
    values = t.tenant_number, to_query_name(session_id)
    if limit is None:
        return _select_links_oldest_first(t, "AND links.tenant = ? AND sessions.id = ?", *values)
    newest = """AND links.n IN (
        SELECT n FROM links WHERE session = (SELECT n FROM sessions WHERE tenant = ? AND id = ?) AND +saw IS NOT NULL
        ORDER BY n DESC LIMIT ?
    )"""
    return _select_links_oldest_first(t, newest, *values, limit)


def select_responses_to(t: TenantConnection, input_heads: Sequence[Key]) -> ReadRows[Link]:
    nodes = [row[0] for row in (find_node(t, key) for key in input_heads) if row]
    return (
        _select_links_oldest_first(t, "AND links.saw IN (SELECT value FROM json_each(?))", encode_json(nodes))
        if nodes
        else ReadRows([], [])
    )


def select_related_links(t: TenantConnection, link_id: str, limit: int | None = None) -> ReadRows[Link]:
    sql = f"{WITH_RELATED_LINKS}{SELECT_LINKS}AND links.n IN (SELECT n FROM kin) {ORDER_OLDEST_FIRST}"  # noqa: S608 - constant names
    values = {"tenant": t.tenant_number, "id": to_query_name(link_id), "limit": -1 if limit is None else limit}
    return decode_rows(decode_link, fetch_records(t.db, sql, values))


def select_child_links(t: TenantConnection, link_id: str, limit: int) -> ReadRows[Link]:
    name = to_query_name(link_id)
    n = t.find_rowid("links", name) if name else None
    # links.n is in the order of the index, so that only the rows of the result are read
    sql = f"{SELECT_LINKS}AND links.parent = ? ORDER BY links.n LIMIT ?"
    return decode_rows(decode_link, t.fetch_records(sql, n, limit)) if n else ReadRows([], [])


def select_conversation_links(t: TenantConnection, conversation_id: str) -> ReadRows[Link]:
    routes = tenant_rows.select_route_rowids(t, conversation_id)
    return _select_links_oldest_first(t, f"AND links.route IN ({', '.join('?' for _ in routes)})", *routes)


def _select_links_oldest_first(t: TenantConnection, condition: str, *values: object) -> ReadRows[Link]:
    return decode_rows(decode_link, t.fetch_records(f"{SELECT_LINKS}{condition} {ORDER_OLDEST_FIRST}", *values))


def upsert_link(t: TenantConnection, new: Link) -> tuple[int, ...]:
    """Write a link by the rules of `merge_link`; return the nodes that the old one referenced."""
    n, *references = t.fetch_row(SELECT_LINK_REFERENCES, t.tenant_number, new.id) or (None,)
    before = dict(zip(LINK_REFERENCE_COLUMNS, references, strict=False))
    stored = select_link(t, new.id) if before.get("saw") else None
    merged = base.merge_link(stored, new)
    if stored and stored.status not in UNFINISHED_STATUSES:
        columns = {"parent": link_rowid(t, merged.parent_id), "session": _session_rowid(t, merged.session_id)}
        t.update_row("links", n, {**columns, "first_token_s": merged.first_token_s}, before)
        return ()
    row = _link_columns(t, merged)
    n = n or t.rowids.get(("links", merged.id))  # inserted meanwhile if the link is its own parent
    if n is None:
        t.insert_row("links", merged.id, row)
        return ()
    t.update_row("links", n, row, before)
    t.rowids["links", merged.id] = n
    if stored is None:
        return ()
    delete_unreferenced_targets(
        t, *(before[column] if before[column] != row[column] else None for column in LINK_REFERENCE_COLUMNS[3:])
    )
    return tuple(before[column] for column in LINK_REFERENCE_COLUMNS[:3] if before[column] is not None)


def _link_columns(t: TenantConnection, link: Link) -> Columns:
    """Return the columns of a link. Raises NotFound and NotCanonical."""
    route, figures = encode_route(link)
    parameters = _intern_json(t, link.parameters)[0] if link.parameters else None
    return {
        "parent": link_rowid(t, link.parent_id),
        "session": _session_rowid(t, link.session_id),
        "route": _route_rowid(t, route),
        "parameters": parameters,
        "saw": node_rowid(t, link.input_head),
        "head": node_rowid(t, link.head),
        "sent_body": node_rowid(t, link.body_head) if link.body_head else None,
        "sent": link.sent_count,
        "status": link.status,
        "created_at": link.created_at,
        "previous": encode_previous_response_id(link),
        "seconds": link.duration_s,
        "first_token_s": link.first_token_s,
        "usage": figures,
        "error": encode_error(link),
        **dict(zip(LISTED_COLUMNS, encode_listed_columns(link), strict=True)),
    }


def _route_rowid(t: TenantConnection, route: Sequence[Json]) -> int:
    """Return the rowid of a route, which other links may share."""
    n, is_new = _intern_json(t, route)
    if is_new:
        tenant_rows.index_route(t, route, n)
    return n


def link_rowid(t: TenantConnection, link_id: str | None) -> int | None:
    """Return the rowid of a link; a row with only the id is inserted if there is none."""
    if link_id is None:
        return None
    return t.find_rowid("links", link_id) or t.insert_row("links", link_id, {})


def _session_rowid(t: TenantConnection, session_id: str | None) -> int | None:
    if session_id is None:
        return None
    return t.find_rowid("sessions", session_id) or t.insert_row("sessions", session_id, {})


def _intern_json(t: TenantConnection, value: Json) -> tuple[int, bool]:
    """Return the rowid of JSON that is stored once, and whether it was inserted by this call."""
    body = encode_json(value)
    digest = sha256(body.encode()).digest()
    n: int | None = t.fetch_value("SELECT n FROM repeated WHERE tenant = ? AND hash = ?", t.tenant_number, digest)
    if n is not None:
        return n, False
    return t.execute_insert(
        "INSERT INTO repeated (tenant, hash, body) VALUES (?, ?, ?)", t.tenant_number, digest, body
    ), True
